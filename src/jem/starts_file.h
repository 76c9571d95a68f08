// starts_file.h - chain starts as a model file holds them, so that it can be sampled without its
// training images. Per group one Gaussian, in cosine coefficients: the standard deviation of each,
// and the correlations of those that vary most.
#ifndef STARTS_FILE_H
#define STARTS_FILE_H
#include "data/data.h"
#include "dev/backend.h"
#include "jem/cosine.h"

typedef struct {
    int      n_group, channels, side;
    int      kept;               // coefficients whose correlations are kept; 0 in files of 0.1
    int32_t *index;              // [kept]: which they are, rising
    int8_t  *lower;              // [n_group][kept (kept + 1) / 2]: the rows of the Cholesky factor
                                 // of their correlations, in units of 1 / STARTS_UNIT
    float   *mean, *spectrum;    // [n_group][dim]: of pixels; sd of coefficients (kept 0: NULL)
    int      rank;               // files of 0.1: directions of the covariance, as long as their sd
    float   *factor;             // [n_group][rank][dim], or NULL
} StartsFile;

enum { STARTS_KEPT = 448, STARTS_UNIT = 127 };

// How many coefficients a model of n_w weights keeps correlations of: STARTS_KEPT or, where the
// file does not grow by more than a sixth of the weights (2 bytes each), more; at most all.
int    starts_kept(size_t n_w, int n_group, int dim);
// Numbers in one group's part of `lower`.
size_t starts_lower_len(int kept);
// Of these images; f's sizes are set, `kept` no more than there are coefficients. Its arrays
// become malloc'd (starts_file_free).
int    starts_file_fit(const Set *set, StartsFile *f, Err *err);
void   starts_file_free(StartsFile *f);
// Draw `number` of a group; room: [dim + side^2].
void   starts_file_draw(const StartsFile *f, const Cosine *cosine, uint64_t seed, int number,
                        int group, double *room, real *out);
#endif
