// feature_set.h - the features of a set of images, their statistics, and the figures that compare
// two of them: FID, KID, precision, recall, density, coverage, Inception Score.
#ifndef FEATURE_SET_H
#define FEATURE_SET_H
#include "jem/features.h"
#include "jem/fid.h"

enum { FID_REFERENCES = 10000 };    // whose features are compared one by one, and cached

typedef struct {
    char     about[600];            // "cifar10, 50000 training images"
    Moments  moments;               // of all images
    size_t   n_x;
    float   *x;                     // [n_x][dim] of all images or of some; NULL: unknown
    float   *logits;                // [n_x][INCEPTION_CLASSES], or NULL
    int     *y;                     // [n_x], or NULL
    double   seconds_features, seconds_statistics;   // that it took; 0 from a file or the cache
} FeatureSet;

// Everything about a source's images; labels where it has them.
int  feature_set(FeatureSet *s, FeatureNet *f, const ImageSource *from, int with_logits,
                 const Events *ev, Err *err);
// A reference: moments of all images, features of FID_REFERENCES of them chosen at random, from the
// cache in the user's data folder where it has them, else computed and cached.
int  feature_reference(FeatureSet *s, FeatureNet *f, const ImageSource *from, const Events *ev,
                       Err *err);
// The features of n of its images, chosen by seed and `which`, because sets may lie class by class;
// malloc'd, NULL with err.
float *feature_choice(const FeatureSet *s, size_t n, uint64_t seed, uint32_t which, Err *err);
// What that cached of n images; feature_set_free frees it, also where this failed.
int  feature_cache_read(FeatureSet *s, const char *path, size_t n, Err *err);
// An npz file with `mu` and `sigma`, as other programs write it.
int  feature_is_statistics(const char *path);
int  feature_statistics(FeatureSet *s, const char *path, const Events *ev, Err *err);
int  feature_statistics_write(const FeatureSet *s, const char *path, Err *err);
void feature_set_free(FeatureSet *s);

typedef struct {                    // of `n` images; NaN: cannot be computed from what is there
    double n, n_reference;
    double fid, kid, kid_sd, kid_all;
    double precision, recall, density, coverage;
    double is, is_sd;
    double seconds_fid, seconds_pairs;   // that FID took, and what compares pairs of images
} FidFigures;

int  fid_figures(FidFigures *f, const FeatureSet *images, const FeatureSet *reference,
                 uint64_t seed, const Events *ev, Err *err);
// FID of the images of each class against the reference's of that class, into fid[classes]; NaN
// where either has fewer than two. Both have labels, and features of all images.
int  fid_by_class(double *fid, int classes, const FeatureSet *images, const FeatureSet *reference,
                  const Events *ev, Err *err);
#endif
