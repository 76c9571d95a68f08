// score_many.h - scores of any number of images, of files, folders and sets, into one file.
#ifndef SCORE_MANY_H
#define SCORE_MANY_H
#include "run/score_file.h"

typedef struct { uint64_t images, unreadable; int stopped; uint64_t total; } ScoredMany;

// names: picture files, folders of pictures, npz files of images of the model's size (arr_0, as in
// data/image_source.h), and image sets: NAME its training images, NAME:test
// its test images. A picture that cannot be read is a row with its error or, with use->strict, an
// error of the call. If ev stops it, the file has the rows so far.
int score_many(Model *m, const Config *use, const char *const *name, int n_name, const char *out,
               const Events *ev, ScoredMany *result, Err *err);
// The same with a call per row. The first batches are small, so that the first rows come soon.
typedef void OnScore(void *ctx, const ScoreRow *row);
int score_each(Model *m, const Config *use, const char *const *name, int n_name, OnScore *on,
               void *ctx, const Events *ev, ScoredMany *result, Err *err);
#endif
