// singular.c - singular values of a dense matrix, see dense.h.
//
// Two stages, so that nearly all the work is matrix products and threads meet hundreds of times,
// not thousands: blocks of Householder reflections from both sides leave BAND diagonals above the
// main one; reflections of BAND rows or columns then chase what is beyond the first of them down
// the diagonal and out of the matrix. Implicit QL finds the values of the two diagonals that
// remain.
#include "base/arena.h"
#include "dev/dense.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 32 };

// ---- kernels, compiled for each instruction set ------------------------------------------------

#define INLINE static inline __attribute__((always_inline))

// w = v^T p and z = v^T q for p, q [n][BAND]
INLINE void project_body(size_t n, const double *v, const double *p, const double *q,
                         double *restrict w, double *restrict z) {
    double a[BAND] = { 0 }, b[BAND] = { 0 };
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < BAND; j++) {
            a[j] += v[i] * p[i * BAND + j];
            b[j] += v[i] * q[i * BAND + j];
        }
    memcpy(w, a, sizeof a);
    memcpy(z, b, sizeof b);
}

// p[n][BAND] -= v w^T
INLINE void update_body(size_t n, const double *v, const double *restrict w, double *restrict p) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < BAND; j++) p[i * BAND + j] -= v[i] * w[j];
}

// a[m][n], rows ld apart, becomes (I - t v v^T) a; n <= 2 BAND
INLINE void left_body(double *restrict a, size_t ld, size_t m, size_t n, const double *restrict v,
                      double t) {
    double w[2 * BAND] = { 0 };
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) w[j] += v[i] * a[i * ld + j];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) a[i * ld + j] -= t * v[i] * w[j];
}

// a[m][n], rows ld apart, becomes a (I - t v v^T); n <= BAND
INLINE void right_body(double *restrict a, size_t ld, size_t m, size_t n, const double *restrict v,
                       double t) {
    for (size_t i = 0; i < m; i++, a += ld) {
        double part[8] = { 0 }, sum = 0;
        size_t j = 0;
        for (; j + 8 <= n; j += 8)
            for (size_t k = 0; k < 8; k++) part[k] += a[j + k] * v[j + k];
        for (; j < n; j++) sum += a[j] * v[j];
        for (size_t k = 0; k < 8; k++) sum += part[k];
        sum *= t;
        for (j = 0; j < n; j++) a[j] -= sum * v[j];
    }
}

typedef struct {
    void (*project)(size_t, const double *, const double *, const double *, double *, double *);
    void (*update)(size_t, const double *, const double *, double *);
    void (*left)(double *, size_t, size_t, size_t, const double *, double);
    void (*right)(double *, size_t, size_t, size_t, const double *, double);
} Kernels;

#define KERNELS(ISA, TARGET)                                                                       \
    TARGET static void project_##ISA(size_t n, const double *v, const double *p, const double *q,  \
                                     double *w, double *z) {                                       \
        project_body(n, v, p, q, w, z);                                                            \
    }                                                                                              \
    TARGET static void update_##ISA(size_t n, const double *v, const double *w, double *p) {       \
        update_body(n, v, w, p);                                                                   \
    }                                                                                              \
    TARGET static void left_##ISA(double *a, size_t ld, size_t m, size_t n, const double *v,       \
                                  double t) {                                                      \
        left_body(a, ld, m, n, v, t);                                                              \
    }                                                                                              \
    TARGET static void right_##ISA(double *a, size_t ld, size_t m, size_t n, const double *v,      \
                                   double t) {                                                     \
        right_body(a, ld, m, n, v, t);                                                             \
    }                                                                                              \
    static const Kernels kernels_##ISA = { project_##ISA, update_##ISA, left_##ISA, right_##ISA };

KERNELS(any, )

#ifdef __x86_64__
KERNELS(avx2, __attribute__((target("avx2,fma"))))
KERNELS(avx512, __attribute__((target("avx512f,fma"))))

static const Kernels *kernels_here(void) {
    if (__builtin_cpu_supports("avx512f")) return &kernels_avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels_avx2
                                                                           : &kernels_any;
}
#else
static const Kernels *kernels_here(void) { return &kernels_any; }
#endif

// Makes x[n] a Householder vector v with v[0] = 1 such that (I - t v v^T) x = (*head, 0, ...);
// returns t.
static double householder(double *x, size_t n, double *head) {
    double most = 0, sum = 0;
    for (size_t i = 1; i < n; i++) most = fmax(most, fabs(x[i]));
    const double first = x[0];
    *head = first;
    x[0] = 1;
    if (!(most > 0)) return 0;
    most = fmax(most, fabs(first));
    for (size_t i = 1; i < n; i++) sum += x[i] / most * (x[i] / most);
    sum += first / most * (first / most);
    *head = -copysign(most * sqrt(sum), first);
    for (size_t i = 1; i < n; i++) x[i] /= first - *head;
    return (*head - first) / *head;
}

// ---- to a band ---------------------------------------------------------------------------------

typedef struct {                    // BAND reflections at once: I - v t v^T, t upper triangular
    size_t  n;
    double *v;                      // [n][BAND]
    double *panel;                  // [n][BAND]: what they reduce, upper triangular afterwards
    double *column;                 // [n]
    double *product;                // [most rows or columns][BAND]
    double  t[BAND][BAND];
    const Kernels *kernel;
} Reflections;

// Finds the reflections that make the panel upper triangular.
static void reduce_panel(Reflections *r) {
    const size_t n = r->n;
    double w[BAND], z[BAND], head;
    memset(r->v, 0, n * BAND * sizeof *r->v);
    memset(r->t, 0, sizeof r->t);
    for (size_t j = 0; j < BAND && j < n; j++) {
        double *x = r->column;
        for (size_t i = j; i < n; i++) x[i - j] = r->panel[i * BAND + j];
        const double t = householder(x, n - j, &head);
        r->kernel->project(n - j, x, r->panel + j * BAND, r->v + j * BAND, w, z);
        for (size_t c = 0; c < BAND; c++) w[c] = c > j ? t * w[c] : 0;
        r->kernel->update(n - j, x, w, r->panel + j * BAND);
        for (size_t i = j; i < n; i++) {
            r->panel[i * BAND + j] = i > j ? 0 : head;
            r->v[i * BAND + j] = x[i - j];
        }
        r->t[j][j] = t;                                 // t's column: -t * T * (V^T v)
        for (size_t i = 0; i < j; i++) {
            double sum = 0;
            for (size_t k = i; k < j; k++) sum += r->t[i][k] * z[k];
            r->t[i][j] = -t * sum;
        }
    }
}

// product = product t, a row at a time
static void times_t(const Reflections *r, size_t rows) {
    #pragma omp parallel for
    for (size_t i = 0; i < rows; i++) {
        double sum[BAND] = { 0 }, *row = r->product + i * BAND;
        for (size_t k = 0; k < BAND; k++)
            for (size_t j = 0; j < BAND; j++) sum[j] += row[k] * r->t[k][j];
        memcpy(row, sum, sizeof sum);
    }
}

// a[r->n][cols], rows ld apart, becomes (I - v t v^T)^T a.
static int reflect_columns(const Reflections *r, double *a, size_t ld, size_t cols, Err *err) {
    memset(r->product, 0, cols * BAND * sizeof *r->product);
    if (dense_product(r->product, BAND, cols, BAND, r->n, 1, (Dense){ a, 1, ld },
                      (Dense){ r->v, 1, BAND }, err))
        return -1;
    times_t(r, cols);
    return dense_product(a, ld, r->n, cols, BAND, -1, (Dense){ r->v, BAND, 1 },
                         (Dense){ r->product, BAND, 1 }, err);
}

// a[rows][r->n], rows ld apart, becomes a (I - v t v^T).
static int reflect_rows(const Reflections *r, double *a, size_t ld, size_t rows, Err *err) {
    memset(r->product, 0, rows * BAND * sizeof *r->product);
    if (dense_product(r->product, BAND, rows, BAND, r->n, 1, (Dense){ a, ld, 1 },
                      (Dense){ r->v, 1, BAND }, err))
        return -1;
    times_t(r, rows);
    return dense_product(a, ld, rows, r->n, BAND, -1, (Dense){ r->product, BAND, 1 },
                         (Dense){ r->v, BAND, 1 }, err);
}

// a[m][n], m >= n, keeps its singular values and gets zeros left of the diagonal and right of BAND
// diagonals above it.
static int to_band(double *a, size_t m, size_t n, Err *err) {
    Arena arena = { 0 };
    Reflections r = { .kernel = kernels_here() };
    double **of_panel[] = { &r.v, &r.panel, &r.product };
    for (int i = 0; i < 3; i++) *of_panel[i] = arena_alloc(&arena, m * BAND, sizeof(double));
    r.column = arena_alloc(&arena, m, sizeof(double));
    int rc = arena_ok(&arena, "singular values", err);
    for (size_t k = 0; !rc && k < n; k += BAND) {
        const size_t right = k + BAND, wide = n - k < BAND ? n - k : BAND;
        double *corner = a + k * n + k;
        r.n = m - k;
        memset(r.panel, 0, r.n * BAND * sizeof *r.panel);
        for (size_t i = 0; i < r.n; i++)
            memcpy(r.panel + i * BAND, corner + i * n, wide * sizeof *r.panel);
        reduce_panel(&r);
        for (size_t i = 0; i < r.n; i++)
            memcpy(corner + i * n, r.panel + i * BAND, wide * sizeof *r.panel);
        if (right >= n) break;
        rc = reflect_columns(&r, corner + BAND, n, n - right, err);
        if (rc) break;
        r.n = n - right;                                // the rows that are done, right of them
        for (size_t i = 0; i < r.n; i++)
            for (size_t j = 0; j < BAND; j++) r.panel[i * BAND + j] = corner[j * n + BAND + i];
        reduce_panel(&r);
        for (size_t i = 0; i < r.n; i++)
            for (size_t j = 0; j < BAND; j++) corner[j * n + BAND + i] = r.panel[i * BAND + j];
        rc = reflect_rows(&r, a + right * n + right, n, m - right, err);
    }
    arena_free(&arena);
    return rc;
}

// ---- to two diagonals --------------------------------------------------------------------------

// Row i, column j is at p[i * ROW + j - i + BAND]: a row has BAND places left of the diagonal and
// 2 BAND from it on, for what comes to be there on the way; two rows are ROW - 1 apart.
enum { ROW = 3 * BAND + 8 };

typedef struct {
    double *p;
    size_t  n;
    const Kernels *kernel;
} Band;

static double *at(const Band *b, size_t i, size_t j) { return b->p + i * ROW + j + BAND - i; }

// Reflects columns [from, to) so that row i of them has one number, the first.
static void clear_row(const Band *b, size_t i, size_t from, size_t to) {
    double v[BAND], *row = at(b, i, from);
    memcpy(v, row, (to - from) * sizeof *v);
    const double t = householder(v, to - from, &row[0]);
    memset(row + 1, 0, (to - from - 1) * sizeof *row);
    b->kernel->right(at(b, i + 1, from), ROW - 1, to - i - 1, to - from, v, t);
}

// Reflects rows [from, to) so that column `from` of them has one number, the first. `end`: where
// these rows end.
static void clear_column(const Band *b, size_t from, size_t to, size_t end) {
    double v[BAND];
    for (size_t i = from; i < to; i++) v[i - from] = *at(b, i, from);
    const double t = householder(v, to - from, at(b, from, from));
    for (size_t i = from + 1; i < to; i++) *at(b, i, from) = 0;
    b->kernel->left(at(b, from, from + 1), ROW - 1, to - from, end - from - 1, v, t);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

// Each sweep brings one row to its two numbers. What that adds below the diagonal and right of the
// band is cleared for one column and one row, BAND further down each time; the next sweeps clear
// the rest.
static void chase(const Band *b) {
    for (size_t s = 0; s + 2 < b->n + 1; s++)
        for (size_t row = s, from = s + 1; from < b->n;) {
            const size_t to = min(from + BAND, b->n), next = to;
            clear_row(b, row, from, to);
            clear_column(b, from, to, min(to + BAND, b->n));
            row = from;
            from = next;
        }
}

// d[n] and e[n - 1] of a[.][n] that to_band left.
static int to_diagonals(const double *a, size_t n, double *d, double *e, Err *err) {
    Band b = { calloc(n * ROW, sizeof(double)), n, kernels_here() };
    if (!b.p) return err_set(err, ERR_MEM, "out of memory for singular values");
    for (size_t i = 0; i < n; i++)
        memcpy(at(&b, i, i), a + i * n + i, (min(i + BAND + 1, n) - i) * sizeof *a);
    chase(&b);
    for (size_t i = 0; i < n; i++) {
        d[i] = *at(&b, i, i);
        if (i + 1 < n) e[i] = *at(&b, i, i + 1);
    }
    free(b.p);
    return 0;
}

// ---- their singular values ---------------------------------------------------------------------

// sqrt(a^2 + b^2) of numbers of at most about 1: what underflows does not count.
static double length(double a, double b) { return sqrt(a * a + b * b); }

// One implicit QL sweep over d[lo .. hi], e between neighbours, with Wilkinson's shift at lo.
static void ql_sweep(double *d, double *e, size_t lo, size_t hi) {
    double g = (d[lo + 1] - d[lo]) / (2 * e[lo]), r = hypot(g, 1), s = 1, c = 1, p = 0;
    g = d[hi] - d[lo] + e[lo] / (g + copysign(r, g));
    for (size_t i = hi; i-- > lo;) {
        double f = s * e[i];
        const double b = c * e[i];
        e[i + 1] = r = length(f, g);
        if (!(r > 0)) {                                 // it fell apart here: recover
            d[i + 1] -= p;
            e[hi] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
    }
    d[lo] -= p;
    e[lo] = g;
    e[hi] = 0;
}

// Eigenvalues of the symmetric tridiagonal matrix with diagonal d[n] and e[n - 1] beside it (e has
// room for n), in place.
static int tridiagonal(double *d, double *e, size_t n, Err *err) {
    double most = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fmax(fabs(d[i]), fabs(e[i])));
        sum += fabs(d[i]) + fabs(e[i]);
    }
    if (!isfinite(sum)) return err_set(err, ERR_DATA, "singular values of non-finite numbers");
    if (!(most > 0)) return 0;
    for (size_t i = 0; i < n; i++) d[i] /= most, e[i] /= most;
    for (size_t lo = 0; lo < n; lo++)
        for (int sweep = 0;; sweep++) {
            size_t hi = lo;
            while (hi + 1 < n && fabs(e[hi]) > DBL_EPSILON / 4 &&
                   fabs(e[hi]) > DBL_EPSILON / 2 * (fabs(d[hi]) + fabs(d[hi + 1])))
                hi++;
            if (hi == lo) break;
            if (sweep == 100)
                return err_set(err, ERR_DATA, "singular values of a matrix do not converge");
            ql_sweep(d, e, lo, hi);
        }
    for (size_t i = 0; i < n; i++) d[i] *= most;
    return 0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The singular values of the bidiagonal matrix with d on the diagonal and e above it: the upper
// half of the eigenvalues of a tridiagonal matrix with 0 on the diagonal and d1 e1 d2 e2 ... beside
// it. Nothing is squared, so that round-off is not brought back as a large root.
static int bidiagonal(const double *d, const double *e, size_t n, double *values, Err *err) {
    double *diagonal = calloc(2 * n + 1, sizeof *diagonal),
           *beside = calloc(2 * n + 1, sizeof *beside);
    int rc = diagonal && beside ? 0 : err_set(err, ERR_MEM, "out of memory for singular values");
    for (size_t i = 0; !rc && i < n; i++) {
        beside[2 * i] = d[i];
        beside[2 * i + 1] = i + 1 < n ? e[i] : 0;
    }
    if (!rc) rc = tridiagonal(diagonal, beside, 2 * n, err);
    if (!rc) {
        qsort(diagonal, 2 * n, sizeof *diagonal, by_value);
        for (size_t k = 0; k < n; k++) values[k] = fmax(diagonal[n + k], 0);
    }
    free(diagonal);
    free(beside);
    return rc;
}

static int transpose(double **t, const double *a, size_t m, size_t n, Err *err) {
    *t = malloc(m * n * sizeof **t + 1);
    if (!*t) return err_set(err, ERR_MEM, "out of memory for a matrix");
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) (*t)[j * m + i] = a[i * n + j];
    return 0;
}

int dense_singular(double *a, size_t m, size_t n, double *values, Err *err) {
    if (m < n) {
        double *t;
        int rc = transpose(&t, a, m, n, err);
        if (!rc) rc = dense_singular(t, n, m, values, err);
        free(t);
        return rc;
    }
    double *d = malloc((n + 1) * sizeof *d), *e = malloc((n + 1) * sizeof *e);
    int rc = d && e ? to_band(a, m, n, err) : err_set(err, ERR_MEM, "out of memory for a matrix");
    if (!rc) rc = to_diagonals(a, n, d, e, err);
    if (!rc) rc = bidiagonal(d, e, n, values, err);
    free(d);
    free(e);
    return rc;
}
