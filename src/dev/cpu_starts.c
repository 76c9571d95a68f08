// cpu_starts.c - chain starts on the cpu device: the product of random weights and a class's
// images. Compiled once for each instruction set (cpu_vec.h).
//
// Draws are made in lots, each by one thread; where there are more threads than lots, by several,
// each with a piece of the pixels, which draw the same weights: that costs less than to wait for
// another's. Pixels lie in the result while chunks of rows are added to them, and in registers, for
// a block of draws, while the rows of a chunk are.
#include "dev/cpu_vec.h"
#include <math.h>
#include <omp.h>
#include <string.h>

enum { LOT = 96, CHUNK = 256, BLOCK = L == 16 ? 12 : 6, WIDE = 2 };

typedef struct {
    const Gauss *g;
    Rng    key;
    int    n;                                           // draws
    float *x[LOT];                                      // their pixels
    int    number[LOT];
    double total[LOT];                                  // of the weights
    float  w[LOT / BLOCK][CHUNK][BLOCK];                // the weights of a chunk's rows
} Lot;

static Rng key_of(const Lot *l, int k, uint32_t sub) {
    Rng key = l->key;
    key.step += (uint32_t)l->number[k];
    key.sub = sub;
    return key;
}

// Those of `rows` rows from `first` on, a multiple of 4, for draw k.
static void draw_weights(Lot *l, int k, int first, int rows) {
    const Rng z = key_of(l, k, 1);
    float four[4];
    for (int r = 0; r < rows; r++) {
        if (r % 4 == 0) rng_normal4(z, (uint32_t)(first + r) / 4, four);
        const float w = l->g->scale * four[r % 4];
        l->w[k / BLOCK][r][k % BLOCK] = w;
        l->total[k] += (double)w;
    }
}

static void bytes_to_pixels(float *restrict x, const uint8_t *restrict bytes, int n) {
    #pragma omp simd
    for (int i = 0; i < n; i++) x[i] = (float)bytes[i] * (1 / 127.5f) - 1;
}

static size_t row_at(const Gauss *g, int r) {
    return (size_t)(g->factor ? r : g->rows[r]) * (size_t)g->dim;
}

static float pixel(const Gauss *g, size_t at) {
    return g->factor ? g->factor[at] : (float)g->bytes[at] * (1 / 127.5f) - 1;
}

// Pixels at .. at + n - 1 of a chunk's rows. All draws read them here: they are converted once, and
// in the rows themselves their addresses would collide in the cache.
typedef struct {
    float row[CHUNK][WIDE * L];
} Slice;

static void cut(Slice *s, const Gauss *g, int n, size_t at, int first, int rows) {
    for (int r = 0; r < rows; r++) {
        const size_t from = row_at(g, first + r) + at;
        if (g->factor) memcpy(s->row[r], g->factor + from, (size_t)n * sizeof *s->row[r]);
        else bytes_to_pixels(s->row[r], g->bytes + from, n);
    }
}

// Adds them to the draws of block b.
static inline __attribute__((always_inline)) void add_rows(Lot *l, const Slice *from, int wide,
                                                           int b, size_t at, int rows) {
    float *const *x = l->x + b * BLOCK;
    const int n = l->n - b * BLOCK;
    vec s[BLOCK * WIDE];
    #pragma GCC unroll 32
    for (int i = 0; i < BLOCK * wide; i++)
        s[i] = i / wide < n ? *(const vec *)(x[i / wide] + at + i % wide * L) : (vec){ 0 };
    for (int r = 0; r < rows; r++) {
        #pragma GCC unroll 32
        for (int i = 0; i < BLOCK * wide; i++)
            s[i] += l->w[b][r][i / wide] * *(const vec *)(from->row[r] + i % wide * L);
    }
    #pragma GCC unroll 32
    for (int i = 0; i < BLOCK * wide; i++)
        if (i / wide < n) *(vec *)(x[i / wide] + at + i % wide * L) = s[i];
}

static void add_two(Lot *l, const Slice *from, int b, size_t at, int rows) {
    add_rows(l, from, 2, b, at, rows);
}
static void add_one(Lot *l, const Slice *from, int b, size_t at, int rows) {
    add_rows(l, from, 1, b, at, rows);
}

// Where an image is no whole number of vectors.
static void add_rest(Lot *l, size_t at, int first, int rows) {
    for (int k = 0; k < l->n; k++)
        for (size_t i = at; i < (size_t)l->g->dim; i++)
            for (int r = 0; r < rows; r++)
                l->x[k][i] +=
                    l->w[k / BLOCK][r][k % BLOCK] * pixel(l->g, row_at(l->g, first + r) + i);
}

static void add_chunk(Lot *l, size_t at, int first, int rows) {
    const size_t left = (size_t)l->g->dim - at;
    const int wide = left < L ? 0 : left < WIDE * L ? 1 : WIDE;
    Slice s;
    cut(&s, l->g, wide * L, at, first, rows);
    for (int b = 0; wide && b * BLOCK < l->n; b++)
        (wide == 1 ? add_one : add_two)(l, &s, b, at, rows);
    if (wide < WIDE) add_rest(l, at + (size_t)wide * L, first, rows);
}

// The mean keeps a weight of 1 - total where rows still contain it.
static void finish(const Lot *l, int k, size_t from, size_t to) {
    const Gauss *g = l->g;
    const Rng eta = key_of(l, k, 2);
    const float keep = g->factor ? 1 : (float)(1 - l->total[k]);
    float four[4];
    for (size_t i = from; i < to; i++) {                // from: a multiple of 4
        if (i % 4 == 0) rng_normal4(eta, (uint32_t)(i / 4), four);
        const float x = l->x[k][i] + keep * g->mean[i] + g->jitter * four[i % 4];
        l->x[k][i] = fminf(fmaxf(x, -1), 1);
    }
}

// Pixels from .. to - 1 of all draws.
static void draw_piece(Lot *l, size_t from, size_t to) {
    const Gauss *g = l->g;
    for (int k = 0; k < l->n; k++)
        for (size_t i = from; i < to; i++) l->x[k][i] = 0;
    for (int first = 0; first < g->n; first += CHUNK) {
        const int rows = g->n - first < CHUNK ? g->n - first : CHUNK;
        for (int k = 0; k < l->n; k++) draw_weights(l, k, first, rows);
        for (size_t at = from; at < to; at += WIDE * L) add_chunk(l, at, first, rows);
    }
    for (int k = 0; k < l->n; k++) finish(l, k, from, to);
}

void FOR_ISA(cpu_gauss_)(Dev *dev, const Gauss *g, const int *number, int n, Rng key, float *out,
                         int n_out) {
    if (!cpu_ready(dev) || !n) return;
    const int lots = (n + LOT - 1) / LOT, pieces = (omp_get_max_threads() + lots - 1) / lots;
    const size_t dim = (size_t)g->dim, slices = (dim + WIDE * L - 1) / (WIDE * L);
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int i = 0; i < lots; i++)
        for (int p = 0; p < pieces; p++) {
            const size_t from = slices * (size_t)p / (size_t)pieces * WIDE * L,
                         to = slices * (size_t)(p + 1) / (size_t)pieces * WIDE * L;
            const int done = i * LOT;
            Lot l = { .g = g, .key = key, .n = n - done < LOT ? n - done : LOT };
            for (int k = 0; k < l.n; k++) {
                l.number[k] = number[done + k];
                l.x[k] = out + draw_row(l.number[k], n_out) * dim;
            }
            draw_piece(&l, from, to < dim ? to : dim);
        }
}
