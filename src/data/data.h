// data.h - the data layer: image sets by name, one file per format, downloads and OOD sets, as
// bytes on the host. It uses no device and no neural network.
#ifndef DATA_H
#define DATA_H
#include "base/arena.h"
#include "base/err.h"
#include "base/events.h"
#include <stddef.h>
#include <stdint.h>

typedef enum { HALF_TRAIN, HALF_TEST } Half;

typedef struct {
    Arena    arena;
    char     name[256];             // as asked for: "cifar10", "folder:/my/pictures"
    char     from[512];             // where it was found
    int      c, side, classes;
    int      flip;                  // mirrored pictures are as good (digits' are not)
    const char **class_name;        // [classes]
    size_t   n;
    uint8_t *x;                     // [n][c][side][side], planes
    int     *y;                     // [n]
} Set;

// What is wrong with a folder of pictures, counted over all sets that are loaded with it.
typedef struct {
    size_t pictures, unreadable;    // looked at; of these
    size_t classes;                 // without a picture
} Problems;
enum { MOST_PROBLEMS = 20 };        // that are reported

typedef struct {
    const char *dir;                // --data-dir, or NULL
    int         side;               // for folder: and shapes; 0: 32
    int         channels;           // for folder:; 0: 3
    uint64_t    seed;               // for shapes and the held-out part of a folder without test/
    int         look_only;          // finds the set, its shape and classes; reads no image, n is 0
    const Events *events;           // shows how far folder: is read, and can stop it; may be NULL
    // NULL: the first picture that cannot be read is an error. Else all are counted, and the first
    // of them reported as lines to `events`; what cannot be read is black in the set.
    Problems   *problems;
} DataOpts;

// Names: cifar10 cifar100 svhn mnist fashion-mnist shapes folder:DIR cifar-file:FILE
// A missing half is an error that says what was looked for, and where, and how to get it.
int  set_load(Set *s, const char *name, Half half, const DataOpts *o, Err *err);
// Whether a set can have this name; NAME:test counts as well.
int  set_named(const char *name);
// Channels, side and classes of a set whose images all have one size, whether it is found or not;
// -1: another.
int  set_shape(const char *name, int *c, int *side, int *classes);
// NAME or NAME:test: the half, and how long NAME is.
Half set_half(const char *name, size_t *n);
extern const char set_names[];                    // those that can be, for messages
void set_free(Set *s);
// Keeps pictures `index[0..n)` in that order (for the validation split and --train-images).
int  set_select(Set *dst, const Set *src, const uint32_t *index, size_t n, Err *err);
// n images drawn by seed (RNG_SUBSET), stratified by class: each class keeps its share. In the
// order of src; a larger draw holds a smaller one as far as the shares allow. All where n is more.
int  set_draw(Set *dst, const Set *src, size_t n, uint64_t seed, Err *err);
// Splits off n_valid pictures chosen by seed (RNG_SPLIT); keeps at most `limit` others (0: all).
int  set_split(const Set *all, size_t n_valid, size_t limit, uint64_t seed, Set *train, Set *valid,
               Err *err);
// An error unless images of a model that takes c channels of side x side have this size.
int  check_image_size(const char *name, int its_c, int its_w, int its_h, int c, int side, Err *err);
// A picture file as a row of the set's kind: c planes of side x side bytes.
int  picture_load(uint8_t *dst, const char *path, int c, int side, Err *err);
int  picture_decode(uint8_t *dst, const uint8_t *data, size_t n, const char *name, int c, int side,
                    Err *err);                    // the same from memory

// ---- what is known, for `jempp data`
typedef struct {
    char name[32], about[128], found[512];
    char damaged[64];               // a file that is too short or too long, or ""
    int  train, test, fetchable;
} SetInfo;
int data_list(const char *dir, SetInfo *info, int max);               // how many were written
// Downloads and unpacks NAME into dir (or the user's data folder). A download that ev stopped is
// continued by the next call.
int data_fetch(const char *name, const char *dir, const char *url, const Events *ev, Err *err);
// Where the file NAME ("folder/file") is below the data folders, `dir` first; -1: nowhere.
int data_find(char *dst, size_t n, const char *dir, const char *name);
// Where `jempp data fetch inception` put the network's weights; else an error that says what to do.
int data_inception(char *dst, size_t n, const char *dir, Err *err);
// Makes the path of a "folder:" or "cifar-file:" absolute, so that it is found from any folder;
// other names, and paths that are not there, stay as they are.
int  data_absolute(char *name, size_t n, Err *err);
// What a set is called in a table or legend: "celeba" for "cifar-file:DIR/celeba.bin".
void data_label(char dst[32], const char *name);
#endif
