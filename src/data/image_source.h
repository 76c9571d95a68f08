// image_source.h - images of one size, of whatever origin, as bytes: an image set by name, a folder
// of pictures, an npz file, samples in memory. For what compares sets of images.
#ifndef IMAGE_SOURCE_H
#define IMAGE_SOURCE_H
#include "base/image.h"
#include "data/data.h"

typedef struct {
    char     about[600];            // "cifar10, training images"
    size_t   n;
    int      c, h, w;               // c: 1 or 3
    const uint8_t *x;               // [n][c][h][w]; NULL: pictures are read when they are wanted
    const char   **path;            // [n], of those pictures
    const int     *y;               // labels [n], each in [0, classes), or NULL
    int      classes;
    Set      set;                   // what x and y point into
    Arena    arena;
} ImageSource;

// NAME: a set's training images; NAME:test: its test images; a folder with pictures of one size, or
// with subfolders of such; FILE.npz with arr_0 [n][h][w][c] uint8, and labels where it has arr_1
// [n], whole numbers from 0 to 999.
int  source_open(ImageSource *s, const char *name, const DataOpts *o, Err *err);
// Copies images, rounded to bytes. They have no labels; y may be set to those of the caller.
int  source_of_floats(ImageSource *s, FloatImages of, const char *about, Err *err);
// Images index[0 .. n) as three planes each, dst [n][3][h][w]: grey ones three times.
int  source_read(const ImageSource *s, const uint32_t *index, size_t n, uint8_t *dst, Err *err);
// A warning where these images are compared with images of another size.
void source_warn_of_size(const ImageSource *s, int h, int w, const Events *ev);
// MD5 of the images' size and bytes, in order.
int  source_hash(const ImageSource *s, char hex[33], Err *err);
// Writes all images: to FILE.npz as arr_0 [n][h][w][c] uint8, and labels as arr_1 [n] int64; else
// to a folder, which is created, as 000000.png and so on, without labels: files of such names that
// are there are removed first.
int  source_write(const ImageSource *s, const char *path, const Events *ev, Err *err);
// Whether source_write can write to this folder, which, unless `replace`, has no picture yet.
int  source_folder(const char *dir, int replace, Err *err);
void source_close(ImageSource *s);
#endif
