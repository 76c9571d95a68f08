// fid.c - see fid.h.
#include "jem/fid.h"
#include "base/arena.h"
#include "base/rng.h"
#include "dev/dense.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1000 };                       // rows that are taken to double precision at a time

static int check_features(const float *x, size_t n, int dim, Err *err) {
    int bad = 0;
    #pragma omp parallel for reduction(| : bad)
    for (size_t i = 0; i < n * (size_t)dim; i++) bad |= !isfinite(x[i]);
    return bad ? err_set(err, ERR_DATA, "features of images are not finite") : 0;
}

// ---- Fréchet distance --------------------------------------------------------------------------

static void mean_of(double *mean, const float *x, size_t n, size_t dim) {
    #pragma omp parallel for
    for (size_t from = 0; from < dim; from += 16) {
        const size_t to = from + 16 < dim ? from + 16 : dim;
        double sum[16] = { 0 };
        for (size_t i = 0; i < n; i++)
            for (size_t j = from; j < to; j++) sum[j - from] += (double)x[i * dim + j];
        for (size_t j = from; j < to; j++) mean[j] = sum[j - from] / (double)n;
    }
}

static int covariance_of(Moments *m, const float *x, Err *err) {
    const size_t dim = (size_t)m->dim, rows = m->n < CHUNK ? m->n : CHUNK;
    double *chunk = malloc(rows * dim * sizeof *chunk);
    int rc = chunk ? 0 : err_set(err, ERR_MEM, "out of memory for a covariance");
    for (size_t from = 0; !rc && from < m->n; from += rows) {
        const size_t k = m->n - from < rows ? m->n - from : rows;
        #pragma omp parallel for
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < dim; j++)
                chunk[i * dim + j] = (double)x[(from + i) * dim + j] - m->mean[j];
        rc = dense_gram(m->cov, dim, k, 1 / (double)(m->n - 1), (Dense){ chunk, 1, dim }, err);
    }
    free(chunk);
    return rc;
}

int moments_of(Moments *m, const float *x, size_t n, int dim, Err *err) {
    *m = (Moments){ .n = n, .dim = dim };
    if (n < 2) return err_set(err, ERR_ARG, "found %zu images, a covariance needs 2", n);
    if (check_features(x, n, dim, err)) return -1;
    m->mean = calloc((size_t)dim, sizeof *m->mean);
    m->cov = calloc((size_t)dim * (size_t)dim, sizeof *m->cov);
    int rc = m->mean && m->cov ? 0 : err_set(err, ERR_MEM, "out of memory for a covariance");
    if (!rc) {
        mean_of(m->mean, x, n, (size_t)dim);
        rc = covariance_of(m, x, err);
    }
    if (rc) moments_free(m);
    return rc;
}

void moments_free(Moments *m) {
    free(m->mean);
    free(m->cov);
    *m = (Moments){ 0 };
}

static double trace(const Moments *m) {
    double sum = 0;
    for (size_t i = 0; i < (size_t)m->dim; i++) sum += m->cov[i * (size_t)m->dim + i];
    return sum;
}

// f^T f = m's covariance; f: [rank][dim]. Statistics may come out of a file.
static int factor_of(const Moments *m, double *work, double *f, size_t *rank, Err *err) {
    const size_t dim = (size_t)m->dim;
    double sum = 0;
    memcpy(work, m->cov, dim * dim * sizeof *work);
    if (dense_factor(work, dim, f, rank, err)) return -1;
    for (size_t i = 0; i < *rank * dim; i++) sum += f[i] * f[i];
    if (fabs(sum - trace(m)) <= 1e-6 * fabs(trace(m))) return 0;
    return err_set(err, ERR_DATA, "not a covariance: it has negative or non-finite eigenvalues");
}

// tr (A^1/2 B A^1/2)^1/2 is the sum of the singular values of F G^T where F^T F = A and G^T G = B.
// So no square root of a matrix is needed, nor one of a round-off that should have been 0.
static int trace_of_root(double *sum, const Moments *a, const Moments *b, Err *err) {
    const size_t dim = (size_t)a->dim;
    Arena arena = { 0 };
    double *work = arena_alloc(&arena, dim * dim, sizeof *work),
           *f = arena_alloc(&arena, dim * dim, sizeof *f),
           *g = arena_alloc(&arena, dim * dim, sizeof *g),
           *values = arena_alloc(&arena, dim, sizeof *values);
    size_t p = 0, q = 0;
    int rc = arena_ok(&arena, "a Fréchet distance", err) || factor_of(a, work, f, &p, err) ||
             factor_of(b, work, g, &q, err);
    if (!rc) {
        memset(work, 0, dim * dim * sizeof *work);
        rc =
            dense_product(work, q, p, q, dim, 1, (Dense){ f, dim, 1 }, (Dense){ g, dim, 1 }, err) ||
            dense_singular(work, p, q, values, err);
    }
    *sum = 0;
    for (size_t i = 0; !rc && i < p && i < q; i++) *sum += values[i];
    arena_free(&arena);
    return rc;
}

int frechet_distance(double *distance, const Moments *a, const Moments *b, Err *err) {
    double root, sum = 0;
    if (a->dim != b->dim)
        return err_set(err, ERR_DATA, "features of %d and of %d numbers cannot be compared", a->dim,
                       b->dim);
    if (trace_of_root(&root, a, b, err)) return -1;
    for (int i = 0; i < a->dim; i++) sum += (a->mean[i] - b->mean[i]) * (a->mean[i] - b->mean[i]);
    sum += trace(a) + trace(b) - 2 * root;
    *distance = sum < 0 ? 0 : sum;                            // of equal sets round-off is left
    return isfinite(sum) ? 0 : err_set(err, ERR_DATA, "means of features are not finite");
}

// ---- pairs of images ---------------------------------------------------------------------------

typedef struct {
    const float    *x;
    const uint32_t *row;            // which rows count, in which order; NULL: all
    size_t          n, dim;
} Rows;

typedef struct {                // inner products of a chunk of one set's rows with one of another's
    size_t  i, j, m, n;             // first rows and how many
    double *a, *b, *dot;            // [m][dim], [n][dim], [m][n]
    Arena   arena;
} Pairs;

static int pairs_open(Pairs *p, const Rows *x, const Rows *y, Err *err) {
    const size_t m = x->n < CHUNK ? x->n : CHUNK, n = y->n < CHUNK ? y->n : CHUNK;
    *p = (Pairs){ 0 };
    p->a = arena_alloc(&p->arena, m * x->dim, sizeof *p->a);
    p->b = arena_alloc(&p->arena, n * x->dim, sizeof *p->b);
    p->dot = arena_alloc(&p->arena, m * n, sizeof *p->dot);
    return arena_ok(&p->arena, "pairs of features", err);
}

static size_t load_rows(double *dst, const Rows *s, size_t from) {
    const size_t n = s->n - from < CHUNK ? s->n - from : CHUNK;
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        const float *src = s->x + (s->row ? s->row[from + i] : from + i) * s->dim;
        for (size_t j = 0; j < s->dim; j++) dst[i * s->dim + j] = (double)src[j];
    }
    return n;
}

// Calls `use` for every chunk of pairs, for `upper` (x and y are one set) only where j >= i.
static int each_chunk(const Rows *x, const Rows *y, int upper,
                      void (*use)(void *ctx, const Pairs *p), void *ctx, Err *err) {
    Pairs p;
    int rc = pairs_open(&p, x, y, err);
    for (p.i = 0; !rc && p.i < x->n; p.i += CHUNK) {
        p.m = load_rows(p.a, x, p.i);
        for (p.j = upper ? p.i : 0; !rc && p.j < y->n; p.j += CHUNK) {
            p.n = load_rows(p.b, y, p.j);
            memset(p.dot, 0, p.m * p.n * sizeof *p.dot);
            const Dense a = { p.a, x->dim, 1 }, b = { p.b, x->dim, 1 };
            rc = upper && p.i == p.j ? dense_gram(p.dot, p.n, x->dim, 1, b, err)
                                     : dense_product(p.dot, p.n, p.m, p.n, x->dim, 1, a, b, err);
            if (!rc) use(ctx, &p);
        }
    }
    arena_free(&p.arena);
    return rc;
}

// ---- kernel distance ---------------------------------------------------------------------------

typedef struct {
    double sum, scale;
    int    same;                    // one set with itself: the diagonal does not count
} KernelSum;

static void add_kernel(void *ctx, const Pairs *p) {
    KernelSum *k = ctx;
    double row[CHUNK];
    #pragma omp parallel for
    for (size_t i = 0; i < p->m; i++) {
        double sum = 0;
        for (size_t j = 0; j < p->n; j++) {
            const double v = p->dot[i * p->n + j] * k->scale + 1;
            if (!k->same || p->i + i != p->j + j) sum += v * v * v;
        }
        row[i] = sum;
    }
    for (size_t i = 0; i < p->m; i++) k->sum += k->same && p->i != p->j ? 2 * row[i] : row[i];
}

static int mmd(double *out, const Rows *x, const Rows *y, Err *err) {
    const double n = (double)x->n, m = (double)y->n, scale = 1 / (double)x->dim;
    KernelSum xx = { .scale = scale, .same = 1 }, yy = xx, xy = { .scale = scale };
    if (each_chunk(x, x, 1, add_kernel, &xx, err) || each_chunk(y, y, 1, add_kernel, &yy, err) ||
        each_chunk(x, y, 0, add_kernel, &xy, err))
        return -1;
    *out = xx.sum / (n * (n - 1)) + yy.sum / (m * (m - 1)) - 2 * xy.sum / (n * m);
    return 0;
}

uint32_t *choose_images(size_t n, size_t count, uint64_t seed, uint32_t which, Err *err) {
    uint32_t *row = malloc((count + 1) * sizeof *row);
    const Rng key = { .seed = seed, .stream = RNG_EVAL, .step = which, .sub = 0xf1d };
    if (!row) err_set(err, ERR_MEM, "out of memory for a choice of images");
    for (size_t i = 0; row && i < count; i++) row[i] = rng_perm(key, (uint32_t)n, (uint32_t)i);
    return row;
}

// The distance between `size` rows of each set, chosen by seed and `which`.
static int mmd_subset(double *out, Rows x, Rows y, size_t size, uint64_t seed, uint32_t which,
                      Err *err) {
    uint32_t *a = choose_images(x.n, size, seed, 2 * which, err),
             *b = choose_images(y.n, size, seed, 2 * which + 1, err);
    x.row = a, y.row = b;
    x.n = y.n = size;
    const int rc = a && b ? mmd(out, &x, &y, err) : -1;
    free(a);
    free(b);
    return rc;
}

int kid_of(Kid *k, const float *x, size_t n, const float *y, size_t m, int dim, int subsets,
           uint64_t seed, const Events *ev, Err *err) {
    const Rows a = { x, NULL, n, (size_t)dim }, b = { y, NULL, m, (size_t)dim };
    const size_t least = n < m ? n : m;
    double sum = 0, squares = 0;
    if (least < 2)
        return err_set(err, ERR_ARG, "found %zu images, a kernel distance needs 2", least);
    *k = (Kid){ .size = least < KID_SUBSET ? (int)least : KID_SUBSET, .n_all = least };
    k->subsets = (size_t)k->size == n && n == m ? 1 : subsets;  // all subsets would be the same
    if (check_features(x, n, dim, err) || check_features(y, m, dim, err)) return -1;
    for (int i = 0; i < k->subsets; i++) {
        double v;
        tell_progress(ev, (uint64_t)i, (uint64_t)k->subsets, "subsets", "KID");
        if (stopped(ev, err) || mmd_subset(&v, a, b, (size_t)k->size, seed, 1 + (uint32_t)i, err))
            return -1;
        sum += v;
        squares += v * v;
    }
    tell_progress(ev, (uint64_t)k->subsets, (uint64_t)k->subsets, "subsets", "KID");
    k->mean = sum / k->subsets;
    k->sd = sqrt(fmax(squares / k->subsets - k->mean * k->mean, 0));
    return mmd_subset(&k->all, a, b, least, seed, 0, err);
}

// ---- precision, recall, density, coverage ------------------------------------------------------

typedef struct {                    // the k nearest of its own set, squared distances
    const double *norm;             // |x|^2
    double *nearest;                // [n][k], ascending
    int     k;
} Neighbours;

static double squared(const Pairs *p, size_t i, size_t j, const double *a, const double *b) {
    return fmax(a[p->i + i] + b[p->j + j] - 2 * p->dot[i * p->n + j], 0);
}

static void add_neighbours(void *ctx, const Pairs *p) {
    const Neighbours *s = ctx;
    #pragma omp parallel for
    for (size_t i = 0; i < p->m; i++) {
        double *best = s->nearest + (p->i + i) * (size_t)s->k;
        for (size_t j = 0; j < p->n; j++) {
            const double d = squared(p, i, j, s->norm, s->norm);
            if (p->i + i == p->j + j || !(d < best[s->k - 1])) continue;
            int at = s->k - 1;
            for (; at > 0 && best[at - 1] > d; at--) best[at] = best[at - 1];
            best[at] = d;
        }
    }
}

typedef struct {
    const double *norm[2];          // of the real images, of the samples
    const double *reach[2];         // squared distance of each one's k-th neighbour
    int          *within;           // [samples]: in reach of how many real images
    char         *covered, *found;  // [real]: has a sample in reach; is in reach of a sample
} Manifold;

static void add_manifold(void *ctx, const Pairs *p) {
    const Manifold *s = ctx;
    #pragma omp parallel for
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            const double d = squared(p, i, j, s->norm[0], s->norm[1]);
            if (d < s->reach[0][p->i + i]) s->covered[p->i + i] = 1;
            if (d < s->reach[1][p->j + j]) s->found[p->i + i] = 1;
        }
    #pragma omp parallel for
    for (size_t j = 0; j < p->n; j++)
        for (size_t i = 0; i < p->m; i++)
            s->within[p->j + j] += squared(p, i, j, s->norm[0], s->norm[1]) < s->reach[0][p->i + i];
}

// norm and reach of every row.
static int reach_of(const Rows *x, int k, double *norm, double *reach, Err *err) {
    Neighbours s = { norm, malloc(x->n * (size_t)k * sizeof(double)), k };
    if (!s.nearest) return err_set(err, ERR_MEM, "out of memory for neighbours");
    for (size_t i = 0; i < x->n; i++) {
        norm[i] = 0;
        for (size_t j = 0; j < x->dim; j++)
            norm[i] += (double)x->x[i * x->dim + j] * (double)x->x[i * x->dim + j];
    }
    for (size_t i = 0; i < x->n * (size_t)k; i++) s.nearest[i] = INFINITY;
    const int rc = each_chunk(x, x, 0, add_neighbours, &s, err);
    for (size_t i = 0; i < x->n; i++) reach[i] = s.nearest[(i + 1) * (size_t)k - 1];
    free(s.nearest);
    return rc;
}

int prdc_of(Prdc *p, const float *real, size_t n, const float *sample, size_t m, int dim, int k,
            Err *err) {
    const Rows x = { real, NULL, n, (size_t)dim }, y = { sample, NULL, m, (size_t)dim };
    *p = (Prdc){ .k = k };
    if (n <= (size_t)k || m <= (size_t)k)
        return err_set(err, ERR_ARG, "found %zu images, precision and recall need more than %d",
                       n < m ? n : m, k);
    if (check_features(real, n, dim, err) || check_features(sample, m, dim, err)) return -1;
    Arena arena = { 0 };
    double *norm[2], *reach[2];
    for (int i = 0; i < 2; i++) {
        norm[i] = arena_alloc(&arena, i ? m : n, sizeof(double));
        reach[i] = arena_alloc(&arena, i ? m : n, sizeof(double));
    }
    Manifold s = { { norm[0], norm[1] },
                   { reach[0], reach[1] },
                   arena_alloc(&arena, m, sizeof(int)),
                   arena_alloc(&arena, n, 1),
                   arena_alloc(&arena, n, 1) };
    const int rc =
        arena_ok(&arena, "precision and recall", err) || reach_of(&x, k, norm[0], reach[0], err) ||
        reach_of(&y, k, norm[1], reach[1], err) || each_chunk(&x, &y, 0, add_manifold, &s, err);
    for (size_t i = 0; !rc && i < m; i++) {
        p->precision += s.within[i] > 0;
        p->density += s.within[i];
    }
    for (size_t i = 0; !rc && i < n; i++) {
        p->recall += s.found[i];
        p->coverage += s.covered[i];
    }
    p->precision /= (double)m;
    p->density /= (double)m * k;
    p->recall /= (double)n;
    p->coverage /= (double)n;
    arena_free(&arena);
    return rc;
}

// ---- Inception Score ---------------------------------------------------------------------------

// p = softmax(z), logp = log p
static void softmax(const float *z, int n, double *p, double *logp) {
    double most = (double)z[0], sum = 0;
    for (int i = 1; i < n; i++) most = fmax(most, (double)z[i]);
    for (int i = 0; i < n; i++) sum += exp((double)z[i] - most);
    for (int i = 0; i < n; i++) {
        logp[i] = (double)z[i] - most - log(sum);
        p[i] = exp(logp[i]);
    }
}

// The score of images order[from .. to); room: [3][classes].
static double split_score(const float *logits, int classes, const uint32_t *order, size_t from,
                          size_t to, double *room) {
    double *mean = room, *p = room + classes, *logp = room + 2 * classes, sum = 0;
    const double n = (double)(to - from);
    memset(mean, 0, (size_t)classes * sizeof *mean);
    // sum p log p - sum p log mean: the second needs the mean alone
    for (size_t i = from; i < to; i++) {
        softmax(logits + (order ? order[i] : i) * (size_t)classes, classes, p, logp);
        for (int c = 0; c < classes; c++) {
            mean[c] += p[c] / n;
            if (p[c] > 0) sum += p[c] * logp[c] / n;
        }
    }
    for (int c = 0; c < classes; c++)
        if (mean[c] > 0) sum -= mean[c] * log(mean[c]);
    return exp(sum);
}

int inception_score(InceptionScore *s, const float *logits, size_t n, int classes,
                    const uint32_t *order, int splits, Err *err) {
    *s = (InceptionScore){ .splits = splits };
    if (n < (size_t)splits)
        return err_set(err, ERR_ARG, "found %zu images, an Inception Score has %d splits", n,
                       splits);
    double *room = malloc(3 * (size_t)classes * sizeof *room), sum = 0, squares = 0;
    if (!room) return err_set(err, ERR_MEM, "out of memory for an Inception Score");
    for (size_t i = 0; i < (size_t)splits; i++) {
        const double v = split_score(logits, classes, order, n * i / (size_t)splits,
                                     n * (i + 1) / (size_t)splits, room);
        sum += v;
        squares += v * v;
    }
    free(room);
    s->mean = sum / splits;
    s->sd = sqrt(fmax(squares / splits - s->mean * s->mean, 0));
    return isfinite(s->mean) ? 0 : err_set(err, ERR_DATA, "softmax logits are not finite");
}
