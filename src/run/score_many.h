// score_many.h - scores of any number of images, of files, folders and sets.
#ifndef SCORE_MANY_H
#define SCORE_MANY_H
#include "run/score_file.h"

typedef struct { uint64_t images, unreadable; int stopped; uint64_t total; } ScoredMany;

typedef void OnScore(void *ctx, const ScoreRow *row);

typedef struct {
    // [n]: picture files, folders of pictures, npz files of images of the model's size (arr_0, as
    // in data/image_source.h), and image sets: NAME its training images, NAME:test its test images
    const char *const *name;
    int         n;
    int         strict;      // a picture that cannot be read ends the call; else it is a row
    const char *out;         // the file that gets the rows; NULL: each is passed to ...
    OnScore    *on;          // ... this. The first batches are small: the first rows come soon.
    void       *ctx;
} ScoreJob;

// If ev stops it, there are the rows so far.
int score_many(Model *m, const ScoreJob *job, const Events *ev, ScoredMany *result, Err *err);
#endif
