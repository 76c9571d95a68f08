// dense.c - see dense.h.
//
// Products are computed in tiles of TILE_M x TILE_N that stay in registers, from panels packed so
// that a tile reads memory in order. The bidiagonal form is found with one pass that updates the
// matrix and one that reads it for each column: memory is what limits it.
#include "dev/dense.h"
#include "base/arena.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_M = 8, TILE_N = 6, DEPTH = 256, STRIP = 8, PARTS = 16 };

typedef double vec __attribute__((vector_size(8 * TILE_M)));
typedef double loose __attribute__((vector_size(8 * TILE_M), aligned(8), may_alias));

// ---- kernels, compiled for each instruction set ------------------------------------------------

#define INLINE static inline __attribute__((always_inline))

// out[TILE_N][TILE_M] = sum over k of a[k][i] b[k][j]
INLINE void tile_body(size_t k, const double *a, const double *b, double *out) {
    vec c0 = { 0 }, c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0;
    for (size_t i = 0; i < k; i++, a += TILE_M, b += TILE_N) {
        const vec v = *(const loose *)a;
        c0 += v * b[0];
        c1 += v * b[1];
        c2 += v * b[2];
        c3 += v * b[3];
        c4 += v * b[4];
        c5 += v * b[5];
    }
    loose *o = (loose *)out;
    o[0] = c0, o[1] = c1, o[2] = c2, o[3] = c3, o[4] = c4, o[5] = c5;
}

// row -= a y + b v, then sum += w row
INLINE void update_body(size_t n, double *row, double a, const double *y, double b, const double *v,
                        double w, double *sum) {
    size_t j = 0;
    for (; j + TILE_M <= n; j += TILE_M) {
        const vec r =
            *(const loose *)(row + j) - a * *(const loose *)(y + j) - b * *(const loose *)(v + j);
        *(loose *)(row + j) = r;
        *(loose *)(sum + j) += w * r;
    }
    for (; j < n; j++) {
        row[j] -= a * y[j] + b * v[j];
        sum[j] += w * row[j];
    }
}

INLINE double dot_body(size_t n, const double *a, const double *b) {
    vec s = { 0 }, t = s;
    size_t j = 0;
    double sum = 0;
    for (; j + 2 * TILE_M <= n; j += 2 * TILE_M) {
        s += *(const loose *)(a + j) * *(const loose *)(b + j);
        t += *(const loose *)(a + j + TILE_M) * *(const loose *)(b + j + TILE_M);
    }
    for (; j < n; j++) sum += a[j] * b[j];
    s += t;
    for (int i = 0; i < TILE_M; i++) sum += s[i];
    return sum;
}

typedef struct {
    void (*tile)(size_t, const double *, const double *, double *);
    void (*update)(size_t, double *, double, const double *, double, const double *, double,
                   double *);
    double (*dot)(size_t, const double *, const double *);
} Kernels;

static void tile_any(size_t k, const double *a, const double *b, double *out) {
    tile_body(k, a, b, out);
}
static void update_any(size_t n, double *row, double a, const double *y, double b, const double *v,
                       double w, double *sum) {
    update_body(n, row, a, y, b, v, w, sum);
}
static double dot_any(size_t n, const double *a, const double *b) { return dot_body(n, a, b); }

#ifdef __x86_64__
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,fma")))
AVX2 static void tile_avx2(size_t k, const double *a, const double *b, double *out) {
    tile_body(k, a, b, out);
}
AVX2 static void update_avx2(size_t n, double *row, double a, const double *y, double b,
                             const double *v, double w, double *sum) {
    update_body(n, row, a, y, b, v, w, sum);
}
AVX2 static double dot_avx2(size_t n, const double *a, const double *b) {
    return dot_body(n, a, b);
}
AVX512 static void tile_avx512(size_t k, const double *a, const double *b, double *out) {
    tile_body(k, a, b, out);
}
AVX512 static void update_avx512(size_t n, double *row, double a, const double *y, double b,
                                 const double *v, double w, double *sum) {
    update_body(n, row, a, y, b, v, w, sum);
}
AVX512 static double dot_avx512(size_t n, const double *a, const double *b) {
    return dot_body(n, a, b);
}

static Kernels kernels(void) {
    if (__builtin_cpu_supports("avx512f"))
        return (Kernels){ tile_avx512, update_avx512, dot_avx512 };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (Kernels){ tile_avx2, update_avx2, dot_avx2 };
    return (Kernels){ tile_any, update_any, dot_any };
}
#else
static Kernels kernels(void) { return (Kernels){ tile_any, update_any, dot_any }; }
#endif

// ---- products ----------------------------------------------------------------------------------

static size_t panels_of(size_t n, size_t wide) { return (n + wide - 1) / wide; }

// Columns from .. from + k of rows [wide p, wide p + wide) to dst[k][wide], zeros where no row is.
static void pack(double *dst, Dense a, size_t rows, size_t p, size_t wide, size_t from, size_t k) {
    if (a.row == 1 && (p + 1) * wide <= rows) {         // a whole panel of a transpose: in order
        const double *src = a.p + p * wide + from * a.col;
        for (size_t j = 0; j < k; j++)
            for (size_t i = 0; i < wide; i++) dst[j * wide + i] = src[j * a.col + i];
        return;
    }
    for (size_t i = 0; i < wide; i++) {
        const size_t row = p * wide + i;
        const double *src = a.p + row * a.row + from * a.col;
        for (size_t j = 0; j < k; j++) dst[j * wide + i] = row < rows ? src[j * a.col] : 0;
    }
}

// c[rows][cols] of the tile at (i, j) += scale * t, or its part on and above c's diagonal.
static void add_tile(double *c, size_t ldc, size_t i, size_t j, size_t m, size_t n, double scale,
                     const double *t) {
    const size_t rows = m - i < TILE_M ? m - i : TILE_M, cols = n - j < TILE_N ? n - j : TILE_N;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < cols; x++) c[(i + y) * ldc + j + x] += scale * t[x * TILE_M + y];
}

static int product(double *c, size_t ldc, size_t m, size_t n, size_t k, double scale, Dense a,
                   Dense b, int upper, Err *err) {
    const size_t pm = panels_of(m, TILE_M), pn = panels_of(n, TILE_N);
    const Kernels kernel = kernels();
    Arena arena = { 0 };
    double *left = arena_alloc(&arena, pm * TILE_M * DEPTH, sizeof *left),
           *right = arena_alloc(&arena, pn * TILE_N * DEPTH, sizeof *right);
    int rc = arena_ok(&arena, "a matrix product", err);
    for (size_t from = 0; !rc && from < k; from += DEPTH) {
        const size_t deep = k - from < DEPTH ? k - from : DEPTH;
        #pragma omp parallel
        {
            #pragma omp for nowait
            for (size_t p = 0; p < pm; p++)
                pack(left + p * TILE_M * DEPTH, a, m, p, TILE_M, from, deep);
            #pragma omp for
            for (size_t p = 0; p < pn; p++)
                pack(right + p * TILE_N * DEPTH, b, n, p, TILE_N, from, deep);
            #pragma omp for schedule(dynamic)
            for (size_t strip = 0; strip < pm; strip += STRIP)
                for (size_t q = 0; q < pn; q++)
                    for (size_t p = strip; p < strip + STRIP && p < pm; p++) {
                        double t[TILE_M * TILE_N];
                        if (upper && (q + 1) * TILE_N <= p * TILE_M) continue;
                        kernel.tile(deep, left + p * TILE_M * DEPTH, right + q * TILE_N * DEPTH, t);
                        add_tile(c, ldc, p * TILE_M, q * TILE_N, m, n, scale, t);
                    }
        }
    }
    arena_free(&arena);
    return rc;
}

int dense_product(double *c, size_t ldc, size_t m, size_t n, size_t k, double scale, Dense a,
                  Dense b, Err *err) {
    return product(c, ldc, m, n, k, scale, a, b, 0, err);
}

int dense_gram(double *c, size_t n, size_t k, double scale, Dense a, Err *err) {
    if (product(c, n, n, n, k, scale, a, a, 1, err)) return -1;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) c[i * n + j] = c[j * n + i];
    return 0;
}

// ---- a factor of a positive semi-definite matrix -----------------------------------------------

// Row j of f from row `pivot` of s, of which rows [block, j) of f are not yet taken away.
static void factor_row(const double *s, size_t n, double *f, size_t block, size_t j, size_t pivot,
                       double *left) {
    double *row = f + j * n;
    const double scale = 1 / sqrt(left[pivot]);
    memcpy(row, s + pivot * n, n * sizeof *row);
    for (size_t q = block; q < j; q++) {
        const double w = f[q * n + pivot];
        for (size_t i = 0; i < n; i++) row[i] -= w * f[q * n + i];
    }
    for (size_t i = 0; i < n; i++) row[i] = left[i] > 0 ? row[i] * scale : 0;
    row[pivot] = left[pivot] * scale;
    for (size_t i = 0; i < n; i++) left[i] -= row[i] * row[i];
    left[pivot] = 0;                                    // a row that was a pivot is done with
}

int dense_factor(double *s, size_t n, double *f, size_t *rank, Err *err) {
    enum { BLOCK = 64 };
    double most = 0, *left = malloc((n + 1) * sizeof *left);
    if (!left) return err_set(err, ERR_MEM, "out of memory for a Cholesky factor");
    int rc = 0, done = 0;
    for (size_t i = 0; i < n; i++) {
        left[i] = s[i * n + i];
        if (left[i] > most) most = left[i];
    }
    *rank = 0;
    for (size_t block = 0; !rc && !done && block < n; block = *rank) {
        while (*rank < n && *rank < block + BLOCK) {
            size_t pivot = 0;
            for (size_t i = 1; i < n; i++)
                if (left[i] > left[pivot]) pivot = i;
            done = !(left[pivot] > DBL_EPSILON * most);
            if (done) break;
            factor_row(s, n, f, block, (*rank)++, pivot, left);
        }
        if (done) break;
        rc = dense_gram(s, n, *rank - block, -1, (Dense){ f + block * n, 1, n }, err);
    }
    free(left);
    return rc;
}

// ---- singular values ---------------------------------------------------------------------------

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

typedef struct {                    // a matrix on its way to bidiagonal form
    double *a;                      // [m][n], m >= n
    size_t m, n;
    // what is still to be taken from a: u y^T + x v^T
    double *u, *y, *x, *v;
    double *u2, *part;              // the next u; sums of PARTS bands of rows
    Kernels kernel;
} Bidiag;

// Brings a up to date to the right of column k, and finds y = a^T u2 there: one pass over memory.
static void update_and_project(Bidiag *b, size_t k) {
    const size_t rows = b->m - k, cols = b->n - k - 1;
    #pragma omp parallel for schedule(dynamic)
    for (size_t p = 0; p < PARTS; p++) {
        double *sum = b->part + p * b->n;
        memset(sum, 0, cols * sizeof *sum);
        for (size_t i = k + rows * p / PARTS; i < k + rows * (p + 1) / PARTS; i++)
            b->kernel.update(cols, b->a + i * b->n + k + 1, b->u[i], b->y + k + 1, b->x[i],
                             b->v + k + 1, b->u2[i], sum);
    }
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t p = 0; p < PARTS; p++) sum += b->part[p * b->n + j];
        b->y[k + 1 + j] = sum;
    }
}

// Column k of the matrix becomes d, row k to the right of it e; u, y, x and v are what is then to
// be taken from the rest.
static void reduce(Bidiag *b, size_t k, double *d, double *e) {
    const size_t m = b->m, n = b->n;
    for (size_t i = k; i < m; i++)
        b->u2[i] = b->a[i * n + k] - b->u[i] * b->y[k] - b->x[i] * b->v[k];
    const double t = householder(b->u2 + k, m - k, d);
    *e = 0;
    if (k + 1 == n) return;
    update_and_project(b, k);
    for (size_t i = k; i < m; i++) b->u[i] = t * b->u2[i];
    for (size_t j = k + 1; j < n; j++) b->v[j] = b->a[k * n + j] - b->u[k] * b->y[j];
    const double s = householder(b->v + k + 1, n - k - 1, e);
    const double along = b->kernel.dot(n - k - 1, b->y + k + 1, b->v + k + 1);
    #pragma omp parallel for
    for (size_t i = k; i < m; i++)
        b->x[i] =
            s * (b->kernel.dot(n - k - 1, b->a + i * n + k + 1, b->v + k + 1) - b->u[i] * along);
}

// One implicit QL sweep over d[lo .. hi], e between neighbours, with Wilkinson's shift at lo.
static void ql_sweep(double *d, double *e, size_t lo, size_t hi) {
    double g = (d[lo + 1] - d[lo]) / (2 * e[lo]), r = hypot(g, 1), s = 1, c = 1, p = 0;
    g = d[hi] - d[lo] + e[lo] / (g + copysign(r, g));
    for (size_t i = hi; i-- > lo;) {
        double f = s * e[i];
        const double b = c * e[i];
        e[i + 1] = r = hypot(f, g);
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
    double most = 0;
    for (size_t i = 0; i + 1 < n; i++) most = fmax(most, fmax(fabs(d[i]), fabs(e[i])));
    for (size_t lo = 0; lo < n; lo++)
        for (int sweep = 0;; sweep++) {
            size_t hi = lo;
            while (hi + 1 < n && fabs(e[hi]) > DBL_EPSILON / 4 * most &&
                   fabs(e[hi]) > DBL_EPSILON / 2 * (fabs(d[hi]) + fabs(d[hi + 1])))
                hi++;
            if (hi == lo) break;
            if (sweep == 100)
                return err_set(err, ERR_DATA, "singular values of a matrix do not converge");
            ql_sweep(d, e, lo, hi);
        }
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
    Arena arena = { 0 };
    Bidiag b = { .a = a, .m = m, .n = n, .kernel = kernels() };
    double **of_m[] = { &b.u, &b.x, &b.u2 }, **of_n[] = { &b.y, &b.v };
    for (int i = 0; i < 3; i++) *of_m[i] = arena_alloc(&arena, m, sizeof(double));
    for (int i = 0; i < 2; i++) *of_n[i] = arena_alloc(&arena, n, sizeof(double));
    b.part = arena_alloc(&arena, PARTS * n, sizeof(double));
    double *d = arena_alloc(&arena, n, sizeof *d), *e = arena_alloc(&arena, n, sizeof *e);
    int rc = arena_ok(&arena, "singular values", err);
    for (size_t k = 0; !rc && k < n; k++) reduce(&b, k, &d[k], &e[k]);
    if (!rc) rc = bidiagonal(d, e, n, values, err);
    arena_free(&arena);
    return rc;
}
