// detail.h - how much detail a set of images has: a figure that rises as chains go on, by which
// their length can be chosen without any network.
#ifndef DETAIL_H
#define DETAIL_H
#include "jem/cosine.h"
#include <stddef.h>

typedef struct {
    Cosine  cosine;
    int     channels;
    size_t  n;                   // images so far
    double *z, *room;            // [side][side]: the brightness of one, and its coefficients
    double *sum, *square;        // of the coefficients of all
} Detail;

int    detail_open(Detail *d, int channels, int side, Err *err);
void   detail_close(Detail *d);
void   detail_add(Detail *d, const float *x, size_t n);     // x[n][channels][side][side]
// The mean logarithm of the variances of those coefficients that have a middle frequency: 2 to 13
// half waves per 32 pixels. Not a number if a pixel is not.
double detail_value(const Detail *d);
#endif
