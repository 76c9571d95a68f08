// cosine.h - the cosine transform of an image, and of its colours: pixels of photographs are
// strongly correlated, their coefficients hardly.
#ifndef COSINE_H
#define COSINE_H
#include "base/err.h"

typedef struct {
    int     channels, side;
    double *basis;               // [side][side]: row u is the u-th cosine
    double *columns;             // the same, transposed
} Cosine;

int  cosine_open(Cosine *t, int channels, int side, Err *err);
void cosine_close(Cosine *t);
// Planes x [channels][side][side] to coefficients of the same shape, or back, in place; room:
// [side][side]. Orthonormal.
void cosine_forward(const Cosine *t, double *x, double *room);
void cosine_inverse(const Cosine *t, double *x, double *room);
#endif
