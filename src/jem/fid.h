// fid.h - distances between two sets of images by features of each image: Fréchet distance (FID),
// kernel distance (KID), precision, recall, density, coverage; and the Inception Score of one set.
// Pure functions of numbers; docs/eval.md defines each.
//
// Features are x[n][dim]. Sums are in double and in an order that does not depend on threads.
#ifndef FID_H
#define FID_H
#include "base/events.h"
#include <stddef.h>
#include <stdint.h>

// Figures from fewer images than a feature has numbers are biased upwards by more than most
// differences between models.
enum { FID_BIASED_BELOW = 2048 };

typedef struct {
    size_t  n;                      // images; 0: unknown
    int     dim;
    double *mean, *cov;             // [dim], [dim][dim] divided by n - 1; malloc'd
} Moments;

int  moments_of(Moments *m, const float *x, size_t n, int dim, Err *err);
void moments_free(Moments *m);
// |mean difference|^2 + tr A + tr B - 2 tr (A^1/2 B A^1/2)^1/2, also for singular covariances.
int  frechet_distance(double *distance, const Moments *a, const Moments *b, Err *err);

enum { KID_SUBSETS = 100, KID_SUBSET = 1000 };
typedef struct {
    double mean, sd;                // over subsets
    int    subsets, size;           // size: images of each set in a subset
    double all;                     // of all images in one
    size_t n_all;                   // of each set
} Kid;

enum { PRDC_NEAREST = 5 };
typedef struct { double precision, recall, density, coverage; int k; } Prdc;

typedef struct { const float *x; size_t n; int dim; } Features;   // x[n][dim]

typedef struct {
    int      subsets, nearest;      // of Kid; k of Prdc
    uint64_t seed;                  // chooses the subsets
} PairOpts;

// What takes every pair of images; `kid` and `prdc` may be NULL. Both sets have the same dim.
// KID is the unbiased squared maximum mean discrepancy with the kernel (x.y / dim + 1)^3. Subsets
// are of KID_SUBSET images or, where a set is smaller, of that many. Of the larger set, `all` has
// as many images, chosen by seed, as the smaller one has.
// Precision, recall, density and coverage count samples that lie near real images, and real images
// near samples: within the distance of a point's k-th neighbour in its own set, which has more than
// k images.
int  compare_pairs(Kid *kid, Prdc *prdc, Features samples, Features reals, const PairOpts *o,
                   const Events *ev, Err *err);
// 0, or -1 where a number is not finite.
int  check_features(const float *x, size_t n, int dim, Err *err);

enum { IS_SPLITS = 10 };
typedef struct { double mean, sd; int splits; } InceptionScore;   // over splits

// exp of the mean divergence of p(y|x) = softmax(logits[order[i]]) from its mean, in splits of
// images that follow each other in `order` (NULL: as they are).
int  inception_score(InceptionScore *s, const float *logits, size_t n, int classes,
                     const uint32_t *order, int splits, Err *err);

// `count` of n numbers, distinct, chosen by seed and `which`; malloc'd, NULL with err.
uint32_t *choose_images(size_t n, size_t count, uint64_t seed, uint32_t which, Err *err);
#endif
