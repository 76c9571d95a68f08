// ref_learn.c - sampling, learning and data on the reference backend: moves of chains and attacks,
// optimisers, the check of a step, batches and chain starts.
#include "dev/ref.h"
#include "dev/watch.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- sampling and learning ---------------------------------------------------------------------

static real clamp(real v, real limit) { return v > limit ? limit : v < -limit ? -limit : v; }

// The inner moves share one gradient: layer one is affine, so theirs cannot differ (docs/pyld.md).
// The first clamp brings pixels displaced by noise back, the second ends the other moves.
static void langevin(Dev *dev, Tensor *x, const Tensor *g, Move m, Rng key, const StepState *now) {
    (void)dev;
    key = rng_now(key, now);
    real *px = x->p;
    const real *pg = g->p, wall = m.clamp ? 1 : INFINITY;
    const size_t before = first_row(now) * (tensor_len(x) / (size_t)x->n);
    #pragma omp parallel for
    for (size_t i = 0; i < tensor_len(x); i++) {
        real move = m.lr * clamp(pg[i], m.clip);
        px[i] = clamp(clamp(px[i] + move, wall) + (real)(m.inner - 1) * move, wall);
        if (m.noise > 0) px[i] += m.noise * (real)rng_normal(key, before + i);
    }
}

// x back into the ball around x0 and the box. Shortening by a rounded factor may leave a hair too
// much, so the factor is taken a hair shorter.
static void confine(real *x, const real *x0, size_t n, Attack a) {
    const double far = a.l2 ? reals_distance(x, x0, n) : 0;
    const real keep = far > (double)a.radius ? (real)((double)a.radius / far * (1 - 1e-7)) : 1;
    for (size_t i = 0; i < n; i++) {
        const real d = a.l2 ? keep * (x[i] - x0[i]) : clamp(x[i] - x0[i], a.radius);
        x[i] = clamp(x0[i] + d, 1);
    }
}

static void attack_start(Dev *dev, Tensor *x, const real *x0, Attack a, Rng key,
                         const StepState *now) {
    (void)dev;
    key = rng_now(key, now);
    const size_t dim = tensor_len(x) / (size_t)x->n;
    #pragma omp parallel for
    for (int k = 0; k < x->n; k++) {
        real *p = (real *)x->p + (size_t)k * dim;
        const real *from = x0 + (size_t)k * dim;
        Rng size = key;
        size.sub = 1;
        const uint64_t row = first_row(now) + (uint64_t)(a.from + k);
        // a direction from normals, a distance that fills the ball evenly
        const double reach =
            (double)a.radius * pow((double)rng_uniform(size, row), 1 / (double)dim);
        for (size_t i = 0; i < dim; i++) {
            const uint64_t at = row * dim + i;
            p[i] =
                a.l2 ? (real)rng_normal(key, at) : a.radius * (real)(2 * rng_uniform(key, at) - 1);
        }
        const real scale = a.l2 ? (real)(reach / (reals_distance(p, NULL, dim) + 1e-30)) : 1;
        for (size_t i = 0; i < dim; i++) p[i] = from[i] + scale * p[i];
        confine(p, from, dim, a);
    }
}

static void attack_move(Dev *dev, Tensor *x, const Tensor *g, const real *x0, Attack a) {
    (void)dev;
    const size_t dim = tensor_len(x) / (size_t)x->n;
    #pragma omp parallel for
    for (int k = 0; k < x->n; k++) {
        real *p = (real *)x->p + (size_t)k * dim;
        const real *d = (const real *)g->p + (size_t)k * dim;
        const real scale = a.l2 ? a.step / (real)(reals_distance(d, NULL, dim) + 1e-30) : a.step;
        for (size_t i = 0; i < dim; i++)
            p[i] += scale * (a.l2 ? d[i] : (real)((d[i] > 0) - (d[i] < 0)));
        confine(p, x0 + (size_t)k * dim, dim, a);
    }
}

static void dot(Dev *dev, size_t n, const real *a, const real *b, real *out) {
    (void)dev;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    *out = (real)sum;
}

static void sgd(Dev *dev, size_t n, real *w, const real *g, real *v, Sgd o, const StepState *now) {
    (void)dev;
    if (now->halt) return;
    #pragma omp parallel for if (n > MANY)
    for (size_t i = 0; i < n; i++) {
        v[i] = o.momentum * v[i] + (g[i] + o.decay * w[i]);
        w[i] -= now->in.lr * v[i];
    }
}

static void adam(Dev *dev, size_t n, real *w, const real *g, real *m, real *v, Adam o,
                 const StepState *now) {
    (void)dev;
    if (now->halt) return;
    const double t = now->in.step + 1.0, b1 = (double)o.beta1, b2 = (double)o.beta2;
    const real rate = (real)((double)now->in.lr / (1 - pow(b1, t))),
               root = (real)sqrt(1 - pow(b2, t));
    #pragma omp parallel for if (n > MANY)
    for (size_t i = 0; i < n; i++) {
        real d = g[i] + o.decay * w[i];
        m[i] = (real)b1 * m[i] + (real)(1 - b1) * d;
        v[i] = (real)b2 * v[i] + (real)(1 - b2) * d * d;
        w[i] -= rate * m[i] / ((real)sqrt((double)v[i]) / root + o.eps);
    }
}

static void ema(Dev *dev, size_t n, real *avg, const real *w, real keep, const StepState *now) {
    (void)dev;
    if (now->halt) return;
    #pragma omp parallel for if (n > MANY)
    for (size_t i = 0; i < n; i++) avg[i] = keep * avg[i] + (1 - keep) * w[i];
}

static void sam_perturb(Dev *dev, size_t n, real *w, real *g, real radius, real *keep) {
    (void)dev;
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        keep[i] = w[i];
        g[i] *= (real)fabs((double)w[i]);
        square += (double)g[i] * (double)g[i];
    }
    const double scale = square > 0 ? (double)radius / sqrt(square) : 0;
    for (size_t i = 0; i < n; i++) w[i] += (real)(scale * fabs((double)w[i]) * (double)g[i]);
}

static void check_finite(Dev *dev, size_t n, const real *g, StepState *now) {
    (void)dev;
    int bad = 0;
    #pragma omp parallel for reduction(| : bad)
    for (size_t i = 0; i < n; i++) bad |= !isfinite(g[i]);
    if (bad && !now->halt) now->halt = HALT_GRAD;
}

static void watch(Dev *dev, const Watch *o, const real *sums, StepState *now, real *ring) {
    (void)dev;
    watch_step(o, sums, now, ring);
}

// ---- data --------------------------------------------------------------------------------------

static void pick(Dev *dev, int from, int n, Rng key, const StepState *now, int *index) {
    (void)dev;
    key = rng_now(key, now);
    const uint32_t batches = (uint32_t)(from / n);     // the last, short batch is dropped
    const uint32_t first = key.step % batches * (uint32_t)n;
    key.step /= batches;
    for (int i = 0; i < n; i++) index[i] = (int)rng_perm(key, (uint32_t)from, first + (uint32_t)i);
}

static void slots(Dev *dev, Slots s, Rng key, const StepState *now, int *slot, int *y) {
    (void)dev;
    key = rng_now(key, now);
    for (int i = 0; i < s.batch; i++) {
        slot[i] = slots_of(s, key, i);
        y[i] = slot_class(slot[i], s.n, s.classes);
    }
}

static int reflect(int i, int n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

static void batch(Dev *dev, const Bytes *set, const int *index, int n, Augment a, Rng key,
                  const StepState *now, real *x, int *y) {
    (void)dev;
    key = rng_now(key, now);
    Rng move = key, noise = key;
    move.sub = 1;
    noise.sub = 2;
    const int S = set->side, C = set->c;
    const size_t dim = (size_t)C * S * S;
    #pragma omp parallel for
    for (int k = 0; k < n; k++) {
        const uint8_t *src = set->x + (size_t)index[k] * dim;
        const uint32_t row = first_row(now) + (uint32_t)(a.from + k);
        const uint32_t span_ = (uint32_t)(2 * a.pad + 1), at = row * 4;
        const int di = (int)rng_below(move, at, span_) - a.pad;
        const int dj = (int)rng_below(move, at + 1, span_) - a.pad;
        const int mirror = a.flip && rng_u32(move, at + 2) & 1;
        real *dst = x + (size_t)k * dim;
        for (int c = 0; c < C; c++)
            for (int i = 0; i < S; i++)
                for (int j = 0; j < S; j++) {
                    int ii = reflect(i + di, S), jj = reflect((mirror ? S - 1 - j : j) + dj, S);
                    dst[(c * S + i) * S + j] = (real)src[(c * S + ii) * S + jj] / (real)127.5 - 1;
                }
        for (size_t b = 0; a.noise > 0 && b < dim; b += 4) {
            float z[4];
            rng_normal4(noise, (uint32_t)((row * dim + b) / 4), z);
            for (size_t i = b; i < dim && i < b + 4; i++) dst[i] += a.noise * (real)z[i - b];
        }
        if (y) y[k] = set->y[index[k]];
    }
}

static void rows_get(Dev *dev, real *dst, const real *src, const int *index, int n, size_t dim) {
    (void)dev;
    for (int i = 0; i < n; i++)
        memcpy(dst + i * dim, src + (size_t)index[i] * dim, dim * sizeof *dst);
}

static void rows_put(Dev *dev, real *dst, const real *src, const int *index, int n, size_t dim,
                     const StepState *now) {
    (void)dev;
    if (now->halt) return;
    for (int i = 0; i < n; i++)
        memcpy(dst + (size_t)index[i] * dim, src + i * dim, dim * sizeof *dst);
}

static void reinit(Dev *dev, real *x, int n, size_t dim, Slots s, const real *pool, int n_pool,
                   Rng key, const StepState *now) {
    (void)dev;
    key = rng_now(key, now);
    uint32_t next = now->in.drawn;
    const int first = (int)now->in.first;              // rows before it are other ranks'
    for (int i = -first; i < n; i++) {
        if (!slots_is_fresh(s, key, first + i)) continue;
        uint32_t at = next++ % (uint32_t)n_pool;
        if (i >= 0) memcpy(x + i * dim, pool + at * dim, dim * sizeof *x);
    }
}

// Row i weighs z_i, so the mean keeps a weight of 1 - scale * sum(z) where rows still contain it.
static void gauss(Dev *dev, const Gauss *g, const int *number, int n, Rng key, real *out,
                  int n_out) {
    (void)dev;
    const size_t dim = (size_t)g->dim;
    #pragma omp parallel for
    for (int k = 0; k < n; k++) {
        Rng z = key, eta = key;
        z.step = eta.step = key.step + (uint32_t)number[k];
        z.sub = 1;
        eta.sub = 2;
        real *x = out + draw_row(number[k], n_out) * dim;
        for (size_t i = 0; i < dim; i++) x[i] = 0;
        double total = 0;
        for (int r = 0; r < g->n; r++) {
            const real w = g->scale * (real)rng_normal(z, (uint64_t)r);
            total += (double)w;
            if (g->factor)
                for (size_t i = 0; i < dim; i++) x[i] += w * g->factor[(size_t)r * dim + i];
            const uint8_t *row = g->factor ? NULL : g->bytes + (size_t)g->rows[r] * dim;
            for (size_t i = 0; row && i < dim; i++) x[i] += w * ((real)row[i] / (real)127.5 - 1);
        }
        const real keep = g->factor ? 1 : (real)(1 - total);
        for (size_t i = 0; i < dim; i++)
            x[i] = clamp(x[i] + keep * g->mean[i] + g->jitter * (real)rng_normal(eta, i), 1);
    }
}

static void uniform(Dev *dev, const int *number, int n, size_t dim, Rng key, real *out, int n_out) {
    (void)dev;
    for (int k = 0; k < n; k++) {
        Rng at = key;
        at.step += (uint32_t)number[k];
        for (size_t i = 0; i < dim; i++)
            out[draw_row(number[k], n_out) * dim + i] = (real)(2 * rng_uniform(at, i) - 1);
    }
}

void ref_learn_table(Backend *be) {
    be->langevin = langevin;
    be->dot = dot;
    be->attack_start = attack_start;
    be->attack_move = attack_move;
    be->sgd = sgd;
    be->adam = adam;
    be->ema = ema;
    be->check_finite = check_finite;
    be->sam_perturb = sam_perturb;
    be->watch = watch;
    be->pick = pick;
    be->slots = slots;
    be->batch = batch;
    be->rows_get = rows_get;
    be->rows_put = rows_put;
    be->reinit = reinit;
    be->gauss = gauss;
    be->uniform = uniform;
}
