// formats.h - the readers behind data.h, one file per format, and what they share (formats.c).
//
// A reader fills n, x and y of a set whose other fields are known, unless it says that it finds
// them. All it allocates is in the set's arena, also when it fails. Every size, count and label is
// checked before it is used.
#ifndef FORMATS_H
#define FORMATS_H
#include "data/data.h"

enum { MAX_CLASSES = 1000, MAX_PICTURES = 4000000, MAX_SIDE = 1024, MAX_PATH = 512 };
enum { CIFAR_PIXELS = 3 * 32 * 32 };

// x and y for n pictures of the set's c and side, 1 <= n <= MAX_PICTURES.
int set_alloc(Set *s, size_t n, Err *err);
// "0", "1", ... as the names of the set's classes.
int number_names(Set *s, Err *err);
// Fails with "FILE: record N: label L, expected FIRST to LAST".
int bad_label(const char *path, size_t record, double label, int first, int last, Err *err);
// The size of a regular file of at most `max` bytes; asked before libraries open a file, because a
// pipe would block them.
int regular_size(const char *path, uint64_t max, uint64_t *size, Err *err);
// The folder for downloads when none was named: $JEMPP_DATA, or jempp in the user's data folder.
int data_home(char dst[MAX_PATH], Err *err);

// Files of CIFAR's records: label_bytes labels, of which the last counts, then three planes of
// 32 x 32. Each file holds `records` of them.
int read_cifar(Set *s, const char path[][MAX_PATH], int n_path, int label_bytes, size_t records,
               Err *err);
// One such file with one label byte and any number of records; finds all of the set's fields. There
// are 10 classes, or as many as the labels need.
int read_cifar_any(Set *s, const char *path, Err *err);
// A pair of IDX files, plain or gzipped.
int read_idx(Set *s, const char *images, const char *labels, Err *err);
// Whether a file is as long as its header says, without inflating its contents.
int idx_is_whole(const char *path, int rank);
int svhn_is_whole(const char *path);
// SVHN's cropped digits: a MATLAB 5 file with X[32][32][3][n] and y[n], where 10 stands for 0.
int read_svhn(Set *s, const char *path, Err *err);
// A folder of PNG, JPEG and WebP pictures, one subfolder per class; finds all of the set's fields.
int read_folder(Set *s, const char *dir, Half half, const DataOpts *o, Err *err);
// Whether it has a test half of its own, so that none is cut out of its classes.
int folder_has_test(const char *dir);
// Every picture of a folder's test half, else of the folder, else of its subfolders, as o->channels
// planes of o->side x o->side; labels do not count. Finds all of the set's fields.
int read_pictures(Set *s, const char *dir, const DataOpts *o, Err *err);
int is_picture(const char *dir, const char *name);     // by its suffix; dir does not matter
// The paths of all pictures of a folder, or of its subfolders where it has none itself, sorted.
// They live in *arena, which is overwritten and must be freed, after a failure too.
// ev (may be NULL) gets a line of those that were left out, and of subfolders without any or beside
// pictures.
int list_pictures(Arena *arena, const char *dir, const char ***path, size_t *n, const Events *ev,
                  Err *err);
// Ten kinds of coloured shapes, drawn by o->seed; finds all of the set's fields.
int draw_shapes(Set *s, Half half, const DataOpts *o, Err *err);
#endif
