// cpu_wino.c - own Winograd convolutions, 3x3 with a border of one: stride 1 (for inference also
// without a border), and stride 2, for which oneDNN has none. cpu_wino_line.h has the mathematics.
// Compiled once for each instruction set (cpu_vec.h).
//
// A tile of 4x4 outputs takes 6x6 = 36 (stride 1) or 9x9 = 81 products (stride 2) instead of 144,
// one at each position of the transformed tile. At each position, the products over all channels
// and many tiles are one product of matrices: tiles are transformed in groups (tiles_in),
// multiplied position by position (multiply) and transformed back (tiles_out). Weight gradients are
// the transposed maps (gather instead of multiply) and cost the same.
#include "dev/cpu_wino_line.h"
#include <omp.h>

// A vec that is aligned, as all of the scratch is.
typedef float reg __attribute__((vector_size(L * 4), may_alias));

// Transforms are computed in fp32, products in the type of activations. A dot product of bf16 adds
// two products at once, of neighbours in memory: input channels, or, in weight gradients, tiles.
#ifdef __AVX512BF16__
enum { PAIR = 2 };
#else
enum { PAIR = 1 };
#endif

enum {
    ALL = WEIGHTS * WEIGHTS,         // weights of a filter
    GROUP = 24 * PAIR,               // tiles transformed together: the cache holds their positions
    TILES = L == 16 ? 8 : 6,         // tiles whose sums the registers hold
    ROWS = L / 2,                    // input channels likewise, of weight gradients
    AHEAD = 4,                       // tiles by which pixels are prefetched
};

// Stride 2 has several positions with the weight of tap 1.
INLINE int weight_of(int position, int positions) {
    const int row = position / positions, col = position % positions;
    return (row < WEIGHTS ? row : WEIGHTS - 1) * WEIGHTS + (col < WEIGHTS ? col : WEIGHTS - 1);
}

// ---- two dimensions -----------------------------------------------------------------------------

typedef struct {                   // a convolution as this file sees it, from one side to the other
    Kind kind;
    int  rot180;                     // dx: the filter's two sides are exchanged
    int  pad, relu;                  // of a convolution of kind X1; what is written is max(0, y)
    int  in, out;                    // channels
    int  cols, per, tiles;           // tiles in a row, of an image, of all images
} WinoJob;

typedef struct {                     // where a tile lies
    int n, row, col;
} Where;

typedef struct {                     // tiles first .. first+n-1 of blocks b0 .. b0+blocks-1
    int first, n, b0, blocks;
} Part;

typedef struct {                     // the pixels of one block of one image
    act *p;
    int  h, w;
} Plane;

static Where where(const WinoJob *j, int tile) {
    return (Where){ tile / j->per, tile % j->per / j->cols, tile % j->cols };
}

INLINE Plane plane(const Tensor *t, int n, int b) { return (Plane){ chunk(t, n, b), t->h, t->w }; }

// The values that a tile reads, `step` apart from row to row; x itself where that will do.
INLINE const vec *tile_pixels(Kind k, Plane in, Where at, int before, vec *room, int *step) {
    const WinoTile g = tile_of(k);
    const act *x = in.p;
    const int h = in.h, w = in.w;
    const int i0 = at.row * g.step - before, j0 = at.col * g.step - before;
    const int inside = i0 >= 0 && j0 >= 0 && i0 + g.in <= h && j0 + g.in <= w;
    *step = inside && PAIR == 1 ? w : g.in;
    if (inside && PAIR == 1) return (const vec *)x + i0 * w + j0;
    if (inside) {
        for (int i = 0; i < g.in; i++)
            for (int j = 0; j < g.in; j++) room[i * g.in + j] = LOAD(&x[(i0 + i) * w + j0 + j]);
        return room;
    }
    for (int i = 0; i < g.in; i++)
        for (int j = 0; j < g.in; j++) {
            const int there = i0 + i >= 0 && i0 + i < h && j0 + j >= 0 && j0 + j < w;
            room[i * g.in + j] = there ? LOAD(&x[(i0 + i) * w + j0 + j]) : (vec){ 0 };
        }
    return room;
}

// Tile i's value at a position, into that position's row of tiles. With `pairs` two tiles share a
// register: the even one's bf16 lie in the low halves of its lanes, the odd one's in the high.
#ifdef __AVX512BF16__
INLINE void put(act *row, int i, int pairs, vec value) {
    const __m256i bits = (__m256i)_mm512_cvtneps_pbh((__m512)value);
    __m512i *two = (__m512i *)row + i / 2;
    if (!pairs) _mm256_store_si256((__m256i *)row + i, bits);
    else if (i % 2 == 0) _mm512_store_si512(two, _mm512_cvtepu16_epi32(bits));
    else
        _mm512_store_si512(
            two, _mm512_or_si512(*two, _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
}
#else
#define put(row, i, pairs, value) ((row)[i] = (value))
#endif

// The tile at `at`, number i of its group, to its positions, ld apart.
INLINE void read_tile(Kind k, Plane x, Where at, int before, act *v, int i, int pairs, size_t ld) {
    const WinoTile g = tile_of(k);
    vec room[MOST * MOST], half[MOST][MOST], line[MOST];
    int step;
    const vec *from = tile_pixels(k, x, at, before, room, &step);
    for (int j = 0; j < g.in; j++) read_line(k, from + j, step, &half[0][j], MOST);
    for (int r = 0; r < g.positions; r++) {
        read_line(k, half[r], 1, line, 1);
        for (int p = 0; p < g.positions; p++)
            put(v + (r * g.positions + p) * ld, i, pairs, line[p]);
    }
    (void)pairs;
}

// Prefetches the pixels that tile `at` adds to its neighbours'.
INLINE void prefetch(Plane x, Where at, int step) {
    for (int i = at.row * step; i < at.row * step + step && i < x.h; i++)
        for (int j = at.col * step; j < at.col * step + step && j < x.w; j++)
            __builtin_prefetch(&x.p[i * x.w + j]);
}

// The distance from position to position: a little more than all tiles of all blocks, so that
// positions do not share cache lines.
static size_t apart(int blocks) { return (size_t)GROUP * blocks + PAIR; }

INLINE void read_tiles(Kind k, const WinoJob *j, const Tensor *t, Part p, int pairs, act *v) {
    const int before = k == X1 ? j->pad : tile_of(k).before;
    for (int b = 0; b < p.blocks; b++)
        for (int i = 0; i < p.n; i++) {
            const Where at = where(j, p.first + i), next = where(j, p.first + i + AHEAD);
            if (i + AHEAD < p.n) prefetch(plane(t, next.n, p.b0 + b), next, tile_of(k).step);
            read_tile(k, plane(t, at.n, p.b0 + b), at, before, v + b * GROUP, i, pairs,
                      apart(p.blocks));
        }
}

// A part of t to v as [position][block][GROUP], for dw with tiles in pairs.
static void tiles_in(Kind k, const WinoJob *j, const Tensor *t, Part p, int pairs, act *v) {
    switch (k) {
    case X1:
        if (pairs) read_tiles(X1, j, t, p, 1, v);
        else read_tiles(X1, j, t, p, 0, v);
        break;
    case X2:
        if (pairs) read_tiles(X2, j, t, p, 1, v);
        else read_tiles(X2, j, t, p, 0, v);
        break;
    case DX2: read_tiles(DX2, j, t, p, 0, v); break;
    case DW1: read_tiles(DW1, j, t, p, 1, v); break;
    case DW2: read_tiles(DW2, j, t, p, 1, v); break;
    }
}

INLINE void write_tile(Kind k, const vec *m, size_t ld, const vec *bias, int relu, Plane y,
                       Where at) {
    const WinoTile g = tile_of(k);
    const int i0 = at.row * g.out, j0 = at.col * g.out;
    vec half[MOST][MOST], line[MOST];
    for (int j = 0; j < g.positions; j++)
        write_line(k, m + j * ld, (int)(g.positions * ld), &half[0][j], MOST);
    for (int i = 0; i < g.out && i0 + i < y.h; i++) {
        write_line(k, half[i], 1, line, 1);
        for (int j = 0; j < g.out && j0 + j < y.w; j++) {
            const vec z = line[j] + *bias;
            STORE(&y.p[(i0 + i) * y.w + j0 + j], relu ? PICK(z > 0, z, (vec){ 0 }) : z);
        }
    }
}

INLINE void write_tiles(Kind k, const WinoJob *j, const vec *m, const float *bias, Tensor *t,
                        Part p) {
    for (int b = 0; b < p.blocks; b++) {
        const vec add = bias ? *(const vec *)(bias + (p.b0 + b) * L) : (vec){ 0 };
        for (int i = 0; i < p.n; i++) {
            const Where at = where(j, p.first + i);
            write_tile(k, m + i * p.blocks + b, (size_t)GROUP * p.blocks + 1, &add, j->relu,
                       plane(t, at.n, p.b0 + b), at);
        }
    }
}

// The positions m, [position][GROUP][p.blocks], to that part of t.
static void tiles_out(const WinoJob *j, const vec *m, const float *bias, Tensor *t, Part p) {
    if (j->kind == X1) write_tiles(X1, j, m, bias, t, p);
    else if (j->kind == X2) write_tiles(X2, j, m, bias, t, p);
    else write_tiles(DX2, j, m, bias, t, p);
}

// ---- weights ------------------------------------------------------------------------------------

// Packed weights are [out / lanes / wide][ALL][in][wide][lanes], wide being 2 where that divides.
static int wide_of(const WinoJob *j) { return j->out / L % 2 ? 1 : 2; }
static size_t weights_of(const WinoJob *j) { return (size_t)ALL * j->in * (j->out / L); } // vectors

// Those of input channel c and block b begin here and are in * wide vectors apart.
static size_t weight_at(const WinoJob *j, int b, int c) {
    const int wide = wide_of(j);
    return ((size_t)(b / wide) * ALL * j->in + c) * wide + b % wide;
}

// The weights of input channel c and block b at all positions, `step` from one to the next.
INLINE void filter_positions(const WinoJob *j, const Filter *f, int b, int c, vec *u, size_t step) {
    const float(*g)[3] = TAPS[j->kind];
    const int flip = j->rot180 && j->kind == X1;
    vec w[9], half[WEIGHTS][3];
    for (int l = 0; l < L; l++) {
        const int k = b * L + l;
        const float *from = f->w + (size_t)(j->rot180 ? c * f->in + k : k * f->in + c) * 9;
        for (int t = 0; t < 9; t++) w[t][l] = from[flip ? 8 - t : t];
    }
    for (int i = 0; i < WEIGHTS; i++)
        for (int t = 0; t < 3; t++)
            half[i][t] = g[i][0] * w[t] + g[i][1] * w[3 + t] + g[i][2] * w[6 + t];
    for (int i = 0; i < ALL; i++) {
        const float *q = g[i % WEIGHTS];
        const vec *h = half[i / WEIGHTS];
        u[(size_t)i * step] = q[0] * h[0] + q[1] * h[1] + q[2] * h[2];
    }
}

// Packs PAIR input channels from c on.
#ifdef __AVX512BF16__
static void pack(const WinoJob *j, const Filter *f, int b, int c, vec *u) {
    const int wide = wide_of(j), pairs = j->in / 2;
    vec two[2][ALL];
    for (int i = 0; i < 2; i++) filter_positions(j, f, b, c + i, two[i], 1);
    __m512i *to = (__m512i *)u + ((size_t)(b / wide) * ALL * pairs + c / 2) * wide + b % wide;
    for (int i = 0; i < ALL; i++) {
        const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)two[0][i]));
        const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)two[1][i]));
        to[(size_t)i * pairs * wide] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
}
#else
static void pack(const WinoJob *j, const Filter *f, int b, int c, vec *u) {
    filter_positions(j, f, b, c, u + weight_at(j, b, c), (size_t)j->in * wide_of(j));
}
#endif

// The transpose of pack, after adding up the pieces.
static void unpack(const WinoJob *j, const vec *u, int pieces, int b, int c, float *dw) {
    const float(*g)[3] = TAPS[j->kind];
    const int wide = wide_of(j);
    vec half[WEIGHTS][3] = { 0 }, w[9] = { 0 };
    u += weight_at(j, b, c);
    for (int i = 0; i < ALL; i++) {
        vec s = { 0 };
        for (int p = 0; p < pieces; p++) s += u[p * weights_of(j) + (size_t)i * j->in * wide];
        for (int t = 0; t < 3; t++) half[i / WEIGHTS][t] += g[i % WEIGHTS][t] * s;
    }
    for (int i = 0; i < WEIGHTS; i++)
        for (int t = 0; t < 9; t++) w[t] += g[i][t / 3] * half[i][t % 3];
    for (int l = 0; l < L; l++)
        for (int t = 0; t < 9; t++) dw[((size_t)(b * L + l) * j->in + c) * 9 + t] += w[t][l];
}

// ---- products -----------------------------------------------------------------------------------

// Sums stay in registers only if the compiler unrolls early.

// sum += v's PAIR numbers at `pair`, in every lane, times u's.
#ifdef __AVX512BF16__
#define ADD_PRODUCT(sum, v, pair, u)                                                              \
    ((sum) = (reg)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(u),                                  \
                                   (__m512bh)_mm512_set1_epi32(((const int *)(v))[pair])))
#else
#define ADD_PRODUCT(sum, v, pair, u) ((sum) += ((const float *)(v))[pair] * (u))
#endif

// m = v u for TILES tiles: v is [blocks][GROUP][lanes], u [blocks * lanes / PAIR][wide], m
// [TILES][wide].
INLINE void multiply(int wide, const act *v, const reg *u, int blocks, reg *m) {
    reg s[TILES * 2];
    #pragma GCC unroll 32
    for (int i = 0; i < TILES * wide; i++) s[i] = (reg){ 0 };
    for (int b = 0; b < blocks; b++, v += GROUP)
        for (int c = 0; c < L / PAIR; c++, u += wide) {
            #pragma GCC unroll 32
            for (int i = 0; i < TILES * wide; i++)
                ADD_PRODUCT(s[i], v, i / wide * (L / PAIR) + c, u[i % wide]);
        }
    #pragma GCC unroll 32
    for (int i = 0; i < TILES * wide; i++) m[i] = s[i];
}

static void multiply1(const act *v, const reg *u, int n, reg *m) { multiply(1, v, u, n, m); }
static void multiply2(const act *v, const reg *u, int n, reg *m) { multiply(2, v, u, n, m); }

// u += v' d over n tiles: v is [GROUP][lanes] from channel c on, d [wide][GROUP], u [ROWS][wide].
INLINE void gather(int wide, const act *v, int c, const reg *d, int n, reg *u) {
    reg s[ROWS * 2];
    #pragma GCC unroll 32
    for (int i = 0; i < ROWS * wide; i++) s[i] = u[i];
    for (int t = 0; t < n; t += PAIR, v += PAIR, d++) {
        #pragma GCC unroll 32
        for (int i = 0; i < ROWS * wide; i++)
            ADD_PRODUCT(s[i], v, c + i / wide, d[i % wide * (GROUP / PAIR)]);
    }
    #pragma GCC unroll 32
    for (int i = 0; i < ROWS * wide; i++) u[i] = s[i];
}

static void gather1(const act *v, int c, const reg *d, int n, reg *u) { gather(1, v, c, d, n, u); }
static void gather2(const act *v, int c, const reg *d, int n, reg *u) { gather(2, v, c, d, n, u); }

// ---- convolutions -------------------------------------------------------------------------------

static WinoJob job_of(const Conv *c, int dx) {
    const Tensor *y = dx ? &c->x : &c->y;
    WinoJob j = { .kind = c->stride == 1 ? X1
                          : dx           ? DX2
                                         : X2,
                  .rot180 = dx,
                  .pad = c->pad,
                  .relu = c->relu,
                  .in = dx ? c->y.c : c->x.c,
                  .out = y->c };
    const int out = tile_of(j.kind).out;
    j.cols = (y->w + out - 1) / out;
    j.per = (y->h + out - 1) / out * j.cols;
    j.tiles = y->n * j.per;
    return j;
}

// Room for one thread's positions, in vectors: of the input's blocks and of `more`.
static size_t room(const WinoJob *j, int more) {
    const int positions = tile_of(j->kind).positions;
    return (size_t)positions * positions * (GROUP * (j->in / L + more) + 2);
}

static void run_group(const WinoJob *j, const Tensor *x, const vec *u, const float *bias, Tensor *y,
                      int first, int n, vec *scratch) {
    const int positions = tile_of(j->kind).positions, blocks = j->in / L, wide = wide_of(j);
    const size_t ldv = apart(blocks), ldm = (size_t)GROUP * wide + 1;
    act *v = (act *)scratch;
    vec *m = (vec *)(v + positions * positions * ldv);
    tiles_in(j->kind, j, x, (Part){ first, n, 0, blocks }, 0, v);
    for (int b = 0; b < j->out / L; b += wide, u += (size_t)ALL * j->in / PAIR * wide) {
        for (int p = 0; p < positions * positions; p++)
            for (int t = 0; t < n; t += TILES)
                (wide == 2 ? multiply2 : multiply1)(
                    v + p * ldv + t,
                    (const reg *)u + (size_t)weight_of(p, positions) * j->in / PAIR * wide, blocks,
                    (reg *)m + p * ldm + t * wide);
        tiles_out(j, m, bias, y, (Part){ first, n, b, wide });
    }
}

static void run(const Conv *c, int dx, const Tensor *x, const float *bias, Tensor *y,
                void *scratch) {
    const WinoJob j = job_of(c, dx);
    const int threads = omp_get_max_threads(), units = (j.tiles + TILES - 1) / TILES;
    const int each = GROUP / TILES * threads, groups = (units + each - 1) / each * threads;
    vec *u = scratch, *v = u + weights_of(&j);
    #pragma omp parallel
    {
        #pragma omp for
        for (int i = 0; i < j.out / L * j.in; i += PAIR) pack(&j, c->filter, i / j.in, i % j.in, u);
        #pragma omp for schedule(dynamic)
        for (int i = 0; i < groups; i++) {           // as many groups for each thread
            const int first = (int)((int64_t)units * i / groups) * TILES;
            const int next = (int)((int64_t)units * (i + 1) / groups) * TILES;
            run_group(&j, x, u, bias, y, first, (next < j.tiles ? next : j.tiles) - first,
                      v + room(&j, 2) * omp_get_thread_num());
        }
    }
}

// ---- weight gradients ---------------------------------------------------------------------------

// Tiles are divided into pieces, each with its own sums, which fit into the caches. Their number
// depends on the shape alone, so results do not depend on the number of threads. A piece is divided
// by blocks of outputs, at most CHUNK together.
enum { CHUNK = 4, SUMS_BYTES = 5 << 20, MANY = 16 };

static int pieces_of(const WinoJob *j) {
    const size_t n = SUMS_BYTES / (weights_of(j) * sizeof(vec));
    return n < 1 ? 1 : n > MANY ? MANY : (int)n;
}

// Adds up the weight gradients of a part: of its blocks of outputs, over its tiles.
static void run_piece(const WinoJob *j, const Tensor *x, const Tensor *dy, Part piece, vec *u,
                      vec *scratch) {
    const int positions = tile_of(j->kind).positions, wide = wide_of(j);
    const int blocks = piece.blocks, end = piece.first + piece.n;
    const size_t ldv = apart(j->in / L), ldd = apart(blocks);
    const size_t each = (size_t)ALL * j->in;         // vectors of a block's weights
    act *v = (act *)scratch, *d = v + positions * positions * ldv;
    u += piece.b0 * each;
    for (size_t i = 0; i < blocks * each; i++) u[i] = (vec){ 0 };
    for (int first = piece.first; first < end; first += GROUP) {
        const int n = end - first < GROUP ? end - first : GROUP;
        tiles_in(j->kind, j, x, (Part){ first, n, 0, j->in / L }, 1, v);
        tiles_in(j->kind == X1 ? DW1 : DW2, j, dy, (Part){ first, n, piece.b0, blocks }, 1, d);
        for (int p = 0; p < positions * positions; p++)
            for (int b = 0; b < blocks; b += wide)
                for (int c = 0; c < j->in; c += ROWS)
                    (wide == 2 ? gather2 : gather1)(
                        v + p * ldv + c / L * GROUP, c % L, (const reg *)(d + p * ldd + b * GROUP),
                        n,
                        (reg *)u + b * each + ((size_t)weight_of(p, positions) * j->in + c) * wide);
    }
}

static void run_dw(const Conv *c, const Tensor *x, const Tensor *dy, float *dw, void *scratch) {
    const WinoJob j = job_of(c, 0);
    const int blocks = j.out / L, pieces = pieces_of(&j), cuts = (blocks + CHUNK - 1) / CHUNK;
    const int chunk = pieces * cuts < 2 * omp_get_max_threads() ? wide_of(&j) : CHUNK;
    const int chunks = (blocks + chunk - 1) / chunk;
    vec *u = scratch, *v = u + pieces * weights_of(&j);
    #pragma omp parallel
    {
        #pragma omp for schedule(dynamic)
        for (int i = 0; i < pieces * chunks; i++) {
            const int64_t p = i / chunks;
            const int b = i % chunks * chunk, first = (int)(j.tiles * p / pieces);
            const Part piece = { first, (int)(j.tiles * (p + 1) / pieces) - first, b,
                                 blocks - b < chunk ? blocks - b : chunk };
            run_piece(&j, x, dy, piece, u + p * weights_of(&j),
                      v + room(&j, CHUNK) * omp_get_thread_num());
        }
        #pragma omp for
        for (int i = 0; i < blocks * j.in; i++) unpack(&j, u, pieces, i / j.in, i % j.in, dw);
    }
}

static size_t bytes(const Conv *c, int dx, int dw, int threads) {
    const int s = c->stride;
    const int valid = c->relu && s == 1 && c->pad == 0;      // without padding: inference alone
    if (c->size != 3 || c->size_w != 3 || c->pad_w != c->pad || (c->pad != 1 && !valid)) return 0;
    if ((s != 1 && s != 2) || c->x_plain || c->y_plain) return 0;
    const int cut = 3 - 2 * c->pad;                // rows that the kernel takes from the input
    if (c->y.h != (c->x.h - cut) / s + 1 || c->y.w != (c->x.w - cut) / s + 1) return 0;
    if (c->x.c % L || c->y.c % L) return 0;
    const WinoJob j = job_of(c, dx);
    const size_t packed = weights_of(&j) * (dw ? pieces_of(&j) : 1);
    return (packed + room(&j, dw ? CHUNK : 2) * threads) * sizeof(vec);
}

const Winograd FOR_ISA(cpu_wino_) = { .bytes = bytes, .run = run, .run_dw = run_dw };
