// pairs.c - what is computed from every pair of images of two sets: kernel distance (KID),
// precision, recall, density and coverage. See fid.h.
//
// All of it comes from inner products of features. They are computed once, in chunks of CHUNK x
// CHUNK: each set with itself, where the upper half is enough, then one with the other.
#include "base/arena.h"
#include "base/rng.h"
#include "base/text.h"
#include "dev/dense.h"
#include "jem/fid.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1000, PIECES = 8, COLUMNS = 64 };

typedef enum { SAMPLES, REAL_IMAGES, N_SETS } Which;
typedef enum { SAMPLES_ALONE, REAL_ALONE, BOTH, N_SWEEPS } Sweep;

typedef struct {                    // images of one set that a kernel distance counts, ascending
    uint32_t *row;
    size_t    n;
} Subset;

typedef struct {
    const float *x;                 // [n][dim]
    size_t n;
    Subset *subset;                 // [n_subsets]; the first is the one of `all`
    double *norm;                   // [n]: |x|^2
    double *nearest;                // [n][k]: squared distances to its own set, ascending
} FeatureRows;

typedef struct {
    FeatureRows set[N_SETS];
    size_t  dim, n_subsets;         // 0: no kernel distance
    int     k;                      // neighbours; 0: no precision and recall
    double *kernel_sum;             // [N_SWEEPS][n_subsets][PIECES]
    int    *within;                 // [samples]: in reach of how many real images
    char   *covered, *found;        // [real]: has a sample in reach; is in reach of a sample
    Arena   arena;
    // the chunk
    const FeatureRows *a, *b;       // their rows and columns are of these sets
    Sweep   sweep;
    size_t  i, j, m, n;             // first row and column; how many
    double *left, *right, *dot;     // [m][dim], [n][dim], [m][n]
    double *reach;                  // [CHUNK]
} Pairs;

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

// ---- kernel distance ---------------------------------------------------------------------------

uint32_t *choose_images(size_t n, size_t count, uint64_t seed, uint32_t which, Err *err) {
    uint32_t *row = malloc((count + 1) * sizeof *row);
    const Rng key = { .seed = seed, .stream = RNG_EVAL, .step = which, .sub = 0xf1d };
    if (!row) err_set(err, ERR_MEM, "out of memory for a choice of images");
    for (size_t i = 0; row && i < count; i++) row[i] = rng_perm(key, (uint32_t)n, (uint32_t)i);
    return row;
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int choose_subsets(Pairs *p, const Kid *k, uint64_t seed, Err *err) {
    for (int w = 0; w < N_SETS; w++) {
        FeatureRows *set = &p->set[w];
        set->subset = arena_alloc(&p->arena, p->n_subsets, sizeof *set->subset);
        if (!set->subset) return err_set(err, ERR_MEM, "out of memory for subsets");
        for (uint32_t s = 0; s < p->n_subsets; s++) {
            Subset *sub = &set->subset[s];
            sub->n = s ? (size_t)k->size : k->n_all;
            sub->row = choose_images(set->n, sub->n, seed, 2 * s + (uint32_t)w, err);
            if (!sub->row) return -1;
            qsort(sub->row, sub->n, sizeof *sub->row, ascending);
        }
    }
    return 0;
}

// How many of a subset's images come before image i of the set.
static size_t before(const Subset *s, size_t i) {
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (s->row[mid] < i) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

// The kernel, summed over the chunk's pairs of one subset, as far as its rows are in one piece.
static double subset_sum(const Pairs *p, size_t subset, size_t piece) {
    const Subset *a = &p->a->subset[subset], *b = &p->b->subset[subset];
    const size_t from = before(a, p->i), rows = before(a, p->i + p->m) - from,
                 left = before(b, p->j), right = before(b, p->j + p->n);
    double sum = 0;
    for (size_t r = from + rows * piece / PIECES; r < from + rows * (piece + 1) / PIECES; r++) {
        const double *row = p->dot + (a->row[r] - p->i) * p->n;
        double part = 0;
        for (size_t c = left; c < right; c++) part += row[b->row[c] - p->j];
        sum += part;
    }
    return sum;
}

// Inner products become kernels, that of an image with itself 0; chunks above the diagonal stand
// for those below it too.
static void add_kernels(Pairs *p) {
    const double scale = 1 / (double)p->dim, twice = p->sweep != BOTH && p->i != p->j ? 2 : 1;
    const int diagonal = p->sweep != BOTH && p->i == p->j;
    double *sums = p->kernel_sum + p->sweep * p->n_subsets * PIECES;
    #pragma omp parallel
    {
        #pragma omp for
        for (size_t i = 0; i < p->m; i++) {
            double *row = p->dot + i * p->n;
            for (size_t j = 0; j < p->n; j++) {
                const double v = row[j] * scale + 1;
                row[j] = twice * v * v * v;
            }
            if (diagonal) row[i] = 0;
        }
        #pragma omp for schedule(dynamic) nowait
        for (size_t at = 0; at < p->n_subsets * PIECES; at++)
            sums[at] += subset_sum(p, at / PIECES, at % PIECES);
    }
}

static double kernel_mean(const Pairs *p, Sweep sweep, size_t subset) {
    const double n = (double)p->set[0].subset[subset].n;
    const double *sums = p->kernel_sum + (sweep * p->n_subsets + subset) * PIECES;
    double sum = 0;
    for (int i = 0; i < PIECES; i++) sum += sums[i];
    return sum / (n * (sweep == BOTH ? n : n - 1));
}

static void finish_kid(const Pairs *p, Kid *k) {
    double sum = 0, squares = 0;
    for (size_t s = 0; s < p->n_subsets; s++) {
        const double v = kernel_mean(p, SAMPLES_ALONE, s) + kernel_mean(p, REAL_ALONE, s) -
                         2 * kernel_mean(p, BOTH, s);
        if (!s) k->all = v;
        sum += s ? v : 0;
        squares += s ? v * v : 0;
    }
    k->mean = sum / k->subsets;
    k->sd = sqrt(fmax(squares / k->subsets - k->mean * k->mean, 0));
}

// ---- precision, recall, density, coverage ------------------------------------------------------

static double squared(const Pairs *p, size_t i, size_t j) {
    return fmax(p->a->norm[p->i + i] + p->b->norm[p->j + j] - 2 * p->dot[i * p->n + j], 0);
}

static double reach_of(const Pairs *p, Which set, size_t i) {
    return p->set[set].nearest[(i + 1) * (size_t)p->k - 1];
}

static void add_neighbour(double *best, int k, double d) {
    if (!(d < best[k - 1])) return;
    int at = k - 1;
    for (; at > 0 && best[at - 1] > d; at--) best[at] = best[at - 1];
    best[at] = d;
}

// The chunk's columns are neighbours of its rows and, off the diagonal, the other way round.
static void add_neighbours(Pairs *p) {
    const size_t k = (size_t)p->k;
    double *nearest = p->a->nearest;
    #pragma omp parallel
    {
        #pragma omp for
        for (size_t i = 0; i < p->m; i++)
            for (size_t j = 0; j < p->n; j++)
                if (p->i + i != p->j + j)
                    add_neighbour(nearest + (p->i + i) * k, p->k, squared(p, i, j));
        if (p->i != p->j) {
            #pragma omp for nowait
            for (size_t from = 0; from < p->n; from += COLUMNS)
                for (size_t i = 0; i < p->m; i++)
                    for (size_t j = from; j < min(from + COLUMNS, p->n); j++)
                        add_neighbour(nearest + (p->j + j) * k, p->k, squared(p, i, j));
        }
    }
}

// Rows are samples, columns real images.
static void add_manifold(Pairs *p) {
    #pragma omp parallel
    {
        #pragma omp for
        for (size_t j = 0; j < p->n; j++) p->reach[j] = reach_of(p, REAL_IMAGES, p->j + j);
        #pragma omp for nowait
        for (size_t i = 0; i < p->m; i++)
            for (size_t j = 0; j < p->n; j++) p->within[p->i + i] += squared(p, i, j) < p->reach[j];
        #pragma omp for nowait
        for (size_t from = 0; from < p->n; from += COLUMNS)
            for (size_t i = 0; i < p->m; i++) {
                const double reach = reach_of(p, SAMPLES, p->i + i);
                for (size_t j = from; j < min(from + COLUMNS, p->n); j++) {
                    const double d = squared(p, i, j);
                    p->covered[p->j + j] |= d < p->reach[j];
                    p->found[p->j + j] |= d < reach;
                }
            }
    }
}

static void measure_norms(const Pairs *p, const FeatureRows *set) {
    #pragma omp parallel for
    for (size_t i = 0; i < set->n; i++) {
        set->norm[i] = 0;
        for (size_t j = 0; j < p->dim; j++) {
            const double v = (double)set->x[i * p->dim + j];
            set->norm[i] += v * v;
        }
    }
}

static int prepare_prdc(Pairs *p, Err *err) {
    for (int w = 0; w < N_SETS; w++) {
        FeatureRows *set = &p->set[w];
        const size_t len = set->n * (size_t)p->k;
        set->norm = arena_alloc(&p->arena, set->n, sizeof *set->norm);
        set->nearest = arena_alloc(&p->arena, len, sizeof *set->nearest);
        if (arena_ok(&p->arena, "precision and recall", err)) return -1;
        for (size_t i = 0; i < len; i++) set->nearest[i] = INFINITY;
        measure_norms(p, set);
    }
    p->within = arena_alloc(&p->arena, p->set[SAMPLES].n, sizeof *p->within);
    p->covered = arena_alloc(&p->arena, p->set[REAL_IMAGES].n, 1);
    p->found = arena_alloc(&p->arena, p->set[REAL_IMAGES].n, 1);
    p->reach = arena_alloc(&p->arena, CHUNK, sizeof *p->reach);
    return arena_ok(&p->arena, "precision and recall", err);
}

static void finish_prdc(const Pairs *p, Prdc *r) {
    const size_t n = p->set[SAMPLES].n, m = p->set[REAL_IMAGES].n;
    for (size_t i = 0; i < n; i++) {
        r->precision += p->within[i] > 0;
        r->density += p->within[i];
    }
    for (size_t i = 0; i < m; i++) {
        r->recall += p->found[i];
        r->coverage += p->covered[i];
    }
    r->precision /= (double)n;
    r->density /= (double)n * r->k;
    r->recall /= (double)m;
    r->coverage /= (double)m;
}

// ---- all pairs ---------------------------------------------------------------------------------

static size_t load_rows(double *dst, const FeatureRows *s, size_t from, size_t dim) {
    const size_t n = min(s->n - from, CHUNK);
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < dim; j++) dst[i * dim + j] = (double)s->x[(from + i) * dim + j];
    return n;
}

static int multiply_chunk(Pairs *p, Err *err) {
    const Dense a = { p->left, p->dim, 1 }, b = { p->right, p->dim, 1 };
    memset(p->dot, 0, p->m * p->n * sizeof *p->dot);
    if (p->sweep == BOTH || p->i != p->j)
        return dense_product(p->dot, p->n, p->m, p->n, p->dim, 1, a, b, err);
    if (dense_gram(p->dot, p->n, p->dim, 1, b, err)) return -1;
    dense_mirror(p->dot, p->n);
    return 0;
}

static size_t chunks_of(size_t n) { return (n + CHUNK - 1) / CHUNK; }

static uint64_t count_chunks(const Pairs *p) {
    const uint64_t n = chunks_of(p->set[SAMPLES].n), m = chunks_of(p->set[REAL_IMAGES].n);
    return n * (n + 1) / 2 + m * (m + 1) / 2 + n * m;
}

static int sweep_pairs(Pairs *p, Sweep sweep, uint64_t *done, const Events *ev, Err *err) {
    const uint64_t total = count_chunks(p);
    int rc = 0;
    p->sweep = sweep;
    p->a = &p->set[sweep == REAL_ALONE ? REAL_IMAGES : SAMPLES];
    p->b = &p->set[sweep == SAMPLES_ALONE ? SAMPLES : REAL_IMAGES];
    for (p->i = 0; !rc && p->i < p->a->n; p->i += CHUNK) {
        p->m = load_rows(p->left, p->a, p->i, p->dim);
        for (p->j = sweep == BOTH ? 0 : p->i; !rc && p->j < p->b->n; p->j += CHUNK) {
            tell_progress(ev, (*done)++, total, "blocks", "comparing features");
            p->n = load_rows(p->right, p->b, p->j, p->dim);
            rc = stopped(ev, err) || multiply_chunk(p, err);
            if (rc) break;
            if (p->k) (sweep == BOTH ? add_manifold : add_neighbours)(p);
            if (p->n_subsets) add_kernels(p);
        }
    }
    return rc;
}

static int prepare(Pairs *p, const Kid *kid, uint64_t seed, Err *err) {
    const size_t m = min(p->set[SAMPLES].n, CHUNK), n = min(p->set[REAL_IMAGES].n, CHUNK),
                 most = m > n ? m : n;
    p->left = arena_alloc(&p->arena, most * p->dim, sizeof *p->left);
    p->right = arena_alloc(&p->arena, most * p->dim, sizeof *p->right);
    p->dot = arena_alloc(&p->arena, most * most, sizeof *p->dot);
    p->kernel_sum =
        arena_alloc(&p->arena, N_SWEEPS * PIECES * (p->n_subsets + 1), sizeof *p->kernel_sum);
    if (arena_ok(&p->arena, "pairs of features", err)) return -1;
    if (kid && choose_subsets(p, kid, seed, err)) return -1;
    return p->k ? prepare_prdc(p, err) : 0;
}

static void pairs_free(Pairs *p) {
    for (int w = 0; w < N_SETS; w++)
        for (size_t s = 0; p->set[w].subset && s < p->n_subsets; s++) free(p->set[w].subset[s].row);
    arena_free(&p->arena);
}

static int check_counts(const Pairs *p, const Kid *kid, const Prdc *prdc, Err *err) {
    const size_t least = min(p->set[SAMPLES].n, p->set[REAL_IMAGES].n);
    if (kid && least < 2)
        return err_set(err, ERR_ARG, "found %zu image%s, a kernel distance needs 2", least,
                       plural((double)least));
    if (prdc && least <= (size_t)p->k)
        return err_set(err, ERR_ARG, "found %zu image%s, precision and recall need more than %d",
                       least, plural((double)least), p->k);
    for (int w = 0; w < N_SETS; w++)
        if (check_features(p->set[w].x, p->set[w].n, (int)p->dim, err)) return -1;
    return 0;
}

int compare_pairs(Kid *kid, Prdc *prdc, Features samples, Features reals, const PairOpts *o,
                  const Events *ev, Err *err) {
    Pairs p = { .set = { { .x = samples.x, .n = samples.n }, { .x = reals.x, .n = reals.n } },
                .dim = (size_t)samples.dim };
    const size_t least = min(samples.n, reals.n), size = min(least, KID_SUBSET);
    if (prdc) *prdc = (Prdc){ .k = p.k = o->nearest };
    if (check_counts(&p, kid, prdc, err)) return -1;
    if (kid) {                                            // or all subsets would be the same
        *kid = (Kid){ .size = (int)size, .n_all = least, .subsets = o->subsets };
        if (size == samples.n && size == reals.n) kid->subsets = 1;
        p.n_subsets = (size_t)kid->subsets + 1;
    }
    uint64_t done = 0;
    int rc = prepare(&p, kid, o->seed, err);
    for (int s = 0; !rc && s < N_SWEEPS; s++) rc = sweep_pairs(&p, (Sweep)s, &done, ev, err);
    if (!rc) {
        tell_progress(ev, done, done, "blocks", "comparing features");
        if (kid) finish_kid(&p, kid);
        if (prdc) finish_prdc(&p, prdc);
    }
    pairs_free(&p);
    return rc;
}
