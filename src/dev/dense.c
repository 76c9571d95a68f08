// dense.c - see dense.h.
//
// Products are computed in tiles that stay in registers, from panels packed so that a tile reads
// memory in order. Threads meet twice in a product, however large it is.
#include "dev/dense.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A tile has COLS columns and as many rows as the processor's registers hold (Kernel.rows).
enum { COLS = 8, MAX_ROWS = 12, DEPTH = 256, STRIP = 48, BLOCK_COLS = 512 };

// ---- kernels, one for each instruction set -----------------------------------------------------

// c[ROWS][COLS], rows ldc apart, += scale * sum over k of a[k][i] b[k][j], in vectors of WIDE.
#define TILE(NAME, TARGET, ROWS, WIDE)                                                             \
    typedef double NAME##_vec __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));       \
    TARGET static void NAME(size_t k, const double *a, const double *b, double scale, double *c,   \
                            size_t ldc) {                                                          \
        enum { VECS = COLS / WIDE };                                                               \
        NAME##_vec sum[ROWS][VECS], v[VECS];                                                       \
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < VECS; j++) sum[i][j] =    \
            (NAME##_vec){ 0 };                                                                     \
        for (; k; k--, a += ROWS, b += COLS) {                                                     \
            UNROLL for (int j = 0; j < VECS; j++) v[j] = ((const NAME##_vec *)b)[j];               \
            UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < VECS; j++)            \
                sum[i][j] += a[i] * v[j];                                                          \
        }                                                                                          \
        UNROLL for (int i = 0; i < ROWS; i++, c += ldc)                                            \
            UNROLL for (int j = 0; j < VECS; j++)((NAME##_vec *)c)[j] += scale * sum[i][j];        \
    }
#define UNROLL _Pragma("GCC unroll 16")

typedef struct {
    size_t rows;
    void (*tile)(size_t k, const double *a, const double *b, double scale, double *c, size_t ldc);
} Kernel;

TILE(tile_any, , 3, 2)

#ifdef __x86_64__
TILE(tile_avx2, __attribute__((target("avx2,fma"))), 6, 4)
TILE(tile_avx512, __attribute__((target("avx512f,fma"))), MAX_ROWS, 8)

static Kernel kernel_here(void) {
    if (__builtin_cpu_supports("avx512f")) return (Kernel){ MAX_ROWS, tile_avx512 };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (Kernel){ 6, tile_avx2 };
    return (Kernel){ 3, tile_any };
}
#else
static Kernel kernel_here(void) { return (Kernel){ 3, tile_any }; }
#endif

// ---- products ----------------------------------------------------------------------------------

typedef struct {
    double *c;
    size_t  ldc, m, n, k;
    double  scale;
    Dense   a, b;
    int     upper;                  // of a symmetric c: tiles that are all below the diagonal are
    Kernel  kernel;                 // left out
    double *right;                  // b packed: by panel of COLS rows, [k][COLS] each
} Product;

static size_t parts_of(size_t n, size_t size) { return (n + size - 1) / size; }

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

// The tile of c at (i, j), as far as c reaches.
static void add_tile(const Product *s, size_t i, size_t j, size_t k, const double *left,
                     const double *right) {
    const size_t rows = s->m - i < s->kernel.rows ? s->m - i : s->kernel.rows,
                 cols = s->n - j < COLS ? s->n - j : COLS;
    double *c = s->c + i * s->ldc + j, t[MAX_ROWS * COLS] = { 0 };
    if (rows == s->kernel.rows && cols == COLS) {
        s->kernel.tile(k, left, right, s->scale, c, s->ldc);
        return;
    }
    s->kernel.tile(k, left, right, s->scale, t, COLS);
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < cols; x++) c[y * s->ldc + x] += t[y * COLS + x];
}

// Rows [i, i + STRIP) and columns [j, j + BLOCK_COLS) of c. left: room for STRIP x DEPTH.
static void multiply_block(const Product *s, size_t i, size_t j, double *left) {
    const size_t rows = s->kernel.rows, end = s->n - j < BLOCK_COLS ? s->n : j + BLOCK_COLS,
                 panels = parts_of(s->m - i < STRIP ? s->m - i : STRIP, rows);
    if (s->upper && end <= i) return;
    for (size_t from = 0; from < s->k; from += DEPTH) {
        const size_t deep = s->k - from < DEPTH ? s->k - from : DEPTH;
        for (size_t p = 0; p < panels; p++)
            pack(left + p * rows * DEPTH, s->a, s->m, i / rows + p, rows, from, deep);
        for (size_t q = j / COLS; q * COLS < end; q++)
            for (size_t p = 0; p < panels; p++) {
                if (s->upper && (q + 1) * COLS <= i + p * rows) continue;
                add_tile(s, i + p * rows, q * COLS, deep, left + p * rows * DEPTH,
                         s->right + (q * s->k + from) * COLS);
            }
    }
}

static int product(Product s, Err *err) {
    const size_t panels = parts_of(s.n, COLS), down = parts_of(s.m, STRIP),
                 across = parts_of(s.n, BLOCK_COLS);
    s.kernel = kernel_here();
    s.right = malloc((panels * s.k + 1) * COLS * sizeof *s.right);
    if (!s.right) return err_set(err, ERR_MEM, "out of memory for a matrix product");
    #pragma omp parallel
    {
        double left[STRIP * DEPTH];
        #pragma omp for
        for (size_t p = 0; p < panels; p++)
            pack(s.right + p * s.k * COLS, s.b, s.n, p, COLS, 0, s.k);
        #pragma omp for schedule(dynamic) nowait
        for (size_t at = 0; at < down * across; at++)
            multiply_block(&s, at / across * STRIP, at % across * BLOCK_COLS, left);
    }
    free(s.right);
    return 0;
}

int dense_product(double *c, size_t ldc, size_t m, size_t n, size_t k, double scale, Dense a,
                  Dense b, Err *err) {
    return product((Product){ c, ldc, m, n, k, scale, a, b, 0, { 0 }, NULL }, err);
}

int dense_gram(double *c, size_t n, size_t k, double scale, Dense a, Err *err) {
    return product((Product){ c, n, n, n, k, scale, a, a, 1, { 0 }, NULL }, err);
}

void dense_mirror(double *c, size_t n) {
    enum { SIDE = 32 };                                 // so that both parts stay in the cache
    #pragma omp parallel for schedule(dynamic)
    for (size_t top = 0; top < n; top += SIDE)
        for (size_t left = 0; left <= top; left += SIDE)
            for (size_t i = top; i < top + SIDE && i < n; i++)
                for (size_t j = left; j < left + SIDE && j < i; j++) c[i * n + j] = c[j * n + i];
}

// ---- a factor of a positive semi-definite matrix -----------------------------------------------

// Row j of f from row `pivot` of s, of which rows [block, j) of f are not yet taken away.
static void factor_row(const double *s, size_t n, double *f, size_t block, size_t j, size_t pivot,
                       double *left) {
    double *row = f + j * n;
    const double scale = 1 / sqrt(left[pivot]);
    for (size_t i = 0; i < pivot; i++) row[i] = s[i * n + pivot];   // s has its upper half alone
    memcpy(row + pivot, s + pivot * n + pivot, (n - pivot) * sizeof *row);
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
