// fid.c - see fid.h.
#include "jem/fid.h"
#include "base/arena.h"
#include "base/text.h"
#include "dev/dense.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1000 };                       // rows that are taken to double precision at a time

int check_features(const float *x, size_t n, int dim, Err *err) {
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
    if (!rc) dense_mirror(m->cov, dim);
    free(chunk);
    return rc;
}

int moments_of(Moments *m, const float *x, size_t n, int dim, Err *err) {
    *m = (Moments){ .n = n, .dim = dim };
    if (n < 2)
        return err_set(err, ERR_ARG, "found %zu image%s, a covariance needs 2", n,
                       plural((double)n));
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
        return err_set(err, ERR_ARG, "found %zu image%s, an Inception Score has %d splits", n,
                       plural((double)n), splits);
    const size_t parts = (size_t)splits, each = 3 * (size_t)classes + 1;
    double *room = malloc(parts * each * sizeof *room), sum = 0, squares = 0;
    if (!room) return err_set(err, ERR_MEM, "out of memory for an Inception Score");
    #pragma omp parallel for
    for (size_t i = 0; i < parts; i++)                        // the last of its numbers: the score
        room[(i + 1) * each - 1] = split_score(logits, classes, order, n * i / parts,
                                               n * (i + 1) / parts, room + i * each);
    for (size_t i = 0; i < parts; i++) {
        const double v = room[(i + 1) * each - 1];
        sum += v;
        squares += v * v;
    }
    free(room);
    s->mean = sum / splits;
    s->sd = sqrt(fmax(squares / splits - s->mean * s->mean, 0));
    return isfinite(s->mean) ? 0 : err_set(err, ERR_DATA, "softmax logits are not finite");
}
