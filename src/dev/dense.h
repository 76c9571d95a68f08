// dense.h - dense linear algebra in double precision on the host: matrix products, a pivoted
// Cholesky factor, singular values.
//
// Matrices are row-major. Every sum is taken in an order that does not depend on the number of
// threads, so results are bit-for-bit reproducible with any number of them on one kind of
// processor.
#ifndef DENSE_H
#define DENSE_H
#include "base/err.h"
#include <stddef.h>

// m x k numbers, element (i, j) at p[i * row + j * col]: col 1 is a matrix, row 1 its transpose.
typedef struct { const double *p; size_t row, col; } Dense;

// c[m][n] += scale * a b^T, with a m x k, b n x k and c's rows ldc apart.
int dense_product(double *c, size_t ldc, size_t m, size_t n, size_t k, double scale, Dense a,
                  Dense b, Err *err);
// c[n][n] += scale * a a^T with a n x k, on and above the diagonal: half the work. What is below is
// undefined until dense_mirror copies the upper half there.
int dense_gram(double *c, size_t n, size_t k, double scale, Dense a, Err *err);
void dense_mirror(double *c, size_t n);
// s = f^T f for a positive semi-definite s[n][n], whose upper half is read; s is clobbered. Rows of
// f[*rank][n] are written, at most n of them; what is left of s is round-off.
int dense_factor(double *s, size_t n, double *f, size_t *rank, Err *err);
// The min(m, n) singular values of a[m][n], which is clobbered, in no particular order.
int dense_singular(double *a, size_t m, size_t n, double *values, Err *err);
#endif
