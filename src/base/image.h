// image.h - pictures in and out: 8-bit grey or RGB, rows from the top, pixels interleaved.
#ifndef IMAGE_H
#define IMAGE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct { int w, h, c; uint8_t *p; } Image;      // c is 1 or 3; p: image_new, image_free

typedef struct { const float *x; int n, c, side; } FloatImages;   // x[n][c][side][side] in [-1, 1]

// A byte as the value in [-1, 1] that networks read.
static inline float byte_to_pixel(uint8_t v) { return (float)v / 127.5f - 1; }

enum { IMAGE_MAX_SIDE = 16384 };                        // larger ones are refused before decoding

int  image_new(Image *im, int w, int h, int c, Err *err);             // black
void image_free(Image *im);
// PNG, JPEG or still WebP by its first bytes, as c channels and upright as EXIF says: palette,
// alpha (over white), 16 bit, CMYK.
int  image_read(Image *im, const char *path, int c, Err *err);
int  image_decode(Image *im, const uint8_t *data, size_t n, const char *name, int c, Err *err);
// The same, refused where it has more than `pixels` (0: no limit).
int  image_decode_most(Image *im, const uint8_t *data, size_t n, const char *name, int c,
                       size_t pixels, Err *err);
int  image_encode_png(const Image *im, char **data, size_t *n, Err *err);     // *data is malloc'd
int  image_write_png(const Image *im, const char *path, Err *err);    // atomic
// Frames of one size as an endless animated WebP, ms milliseconds each.
int  image_write_webp(const Image *frame, int n, int ms, const char *path, Err *err);
// n pixels of `from` channels (grey or RGB, 2 and 4 with alpha) to `to` of 1 or 3, over white.
void image_convert(uint8_t *dst, int to, const uint8_t *src, int from, size_t n);
// Turns and mirrors a picture that was stored with this EXIF orientation (1 to 8; 0: not said).
int  image_upright(Image *im, int orientation, Err *err);
// Antialiased bilinear as PIL's resize(BILINEAR) (within 1/255).
int  image_resize(Image *dst, const Image *src, int w, int h, Err *err);
// Short side to `side`, then the centre square, as torchvision's Resize and CenterCrop.
int  image_square(Image *dst, const Image *src, int side, Err *err);
// Images, clamped and rounded, as one picture with borders of `gap` pixels, each image enlarged
// `zoom` times.
typedef struct { int columns, gap, zoom; } Grid;
int  image_grid(Image *im, FloatImages of, Grid grid, Err *err);
int  image_columns(int n);                                   // of a grid that is about square
// The picture as coloured half blocks for a terminal, at most `cols` wide; malloc'd, or NULL.
char *image_text(const Image *im, int cols);
#endif
