// ref.c - the reference backend: plain loops over plain NCHW tensors, the oracle for every other
// one. Long sums are kept in double.
#include "base/arena.h"
#include "dev/backend.h"
#include "dev/resize.h"
#include "dev/watch.h"
#include "dev/sync_norm.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 100000 };                               // fewer elements are not shared among threads

// ---- the device and its memory -----------------------------------------------------------

static void dev_nothing(Dev *dev) { (void)dev; }

static void ref_open(Dev *dev, const DevOpts *o) { dev->threads = o->threads > 0 ? o->threads : 1; }

static const char *describe(Dev *dev) {
    (void)dev;
    return "plain loops, the reference";
}

static const char *tuning(Dev *dev) {
    (void)dev;
    return "";
}

static void *mem_alloc(Dev *dev, size_t bytes, const char *what) {
    if (dev->err.kind || memory_check(bytes, what, &dev->err)) return NULL;
    size_t whole = (bytes + 63) / 64 * 64;
    void *p = whole >= bytes ? aligned_alloc(64, whole ? whole : 64) : NULL;
    if (!p)
        err_set(&dev->err, ERR_MEM, "out of memory: %.2f GiB for %s", (double)bytes / 0x1p30, what);
#ifdef POISON
    if (p) memset(p, 0xff, whole);                   // NaN: nothing may rely on fresh memory
#endif
    return p;
}

static void mem_free(Dev *dev, void *p) {
    (void)dev;
    free(p);
}

static void *host_alloc(Dev *dev, size_t bytes) {
    (void)dev;
    return malloc(bytes ? bytes : 1);
}

static void copy(Dev *dev, void *dst, const void *src, size_t bytes) {
    (void)dev;
    if (bytes) memcpy(dst, src, bytes);
}

static void zero(Dev *dev, void *p, size_t bytes) {
    (void)dev;
    memset(p, 0, bytes);
}

static size_t tensor_bytes(Dev *dev, const Tensor *t) {
    (void)dev;
    return tensor_len(t) * sizeof(real);
}

static void from_plain(Dev *dev, const real *src, Tensor *dst) {
    copy(dev, dst->p, src, tensor_len(dst) * sizeof(real));
}

static void to_plain(Dev *dev, const Tensor *src, real *dst) {
    copy(dev, dst, src->p, tensor_len(src) * sizeof(real));
}

// ---- convolution ---------------------------------------------------------------------------

static void filters_pack(Dev *dev, Filter *f, int n) { (void)dev, (void)f, (void)n; }
static void filter_close(Dev *dev, Filter *f) { (void)dev, (void)f; }
static void conv_close(Dev *dev, Conv *c) { (void)dev, (void)c; }

static void conv_open(Dev *dev, Conv *c) {
    (void)dev;
    for (int i = 0; i < 3; i++) c->how[i] = "loops";
}

// The outputs i of 0 .. out-1 whose tap i * stride + off falls inside 0 .. in-1 are lo .. hi-1.
static void span(int out, int in, int stride, int off, int *lo, int *hi) {
    *lo = off < 0 ? (-off + stride - 1) / stride : 0;
    *hi = in - 1 - off < 0 ? 0 : (in - 1 - off) / stride + 1;
    if (*hi > out) *hi = out;
}

static real *plane(const Tensor *t, int n, int c) {
    return (real *)t->p + ((size_t)n * t->c + c) * t->h * t->w;
}

static void conv_fwd(Dev *dev, const Conv *op, const Tensor *x, const real *b, Tensor *y) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    #pragma omp parallel for collapse(2) if (tensor_len(y) > MANY)
    for (int n = 0; n < y->n; n++)
        for (int o = 0; o < y->c; o++) {
            real *py = plane(y, n, o);
            for (int i = 0; i < y->h * y->w; i++) py[i] = b ? b[o] : 0;
            for (int c = 0; c < x->c; c++)
                for (int u = 0; u < K; u++)
                    for (int v = 0; v < W; v++) {
                        const real *px = plane(x, n, c),
                                   w = op->filter->w[((o * x->c + c) * K + u) * W + v];
                        int i0, i1, j0, j1;
                        span(y->h, x->h, S, u - op->pad, &i0, &i1);
                        span(y->w, x->w, S, v - op->pad_w, &j0, &j1);
                        for (int i = i0; i < i1; i++)
                            for (int j = j0; j < j1; j++)
                                py[i * y->w + j] +=
                                    w * px[(i * S + u - op->pad) * x->w + j * S + v - op->pad_w];
                    }
            for (int i = 0; op->relu && i < y->h * y->w; i++) py[i] = py[i] > 0 ? py[i] : 0;
        }
}

static void conv_dx(Dev *dev, const Conv *op, const Tensor *dy, Tensor *dx) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    #pragma omp parallel for collapse(2) if (tensor_len(dx) > MANY)
    for (int n = 0; n < dx->n; n++)
        for (int c = 0; c < dx->c; c++) {
            real *px = plane(dx, n, c);
            memset(px, 0, (size_t)dx->h * dx->w * sizeof(real));
            for (int o = 0; o < dy->c; o++)
                for (int u = 0; u < K; u++)
                    for (int v = 0; v < W; v++) {
                        const real *py = plane(dy, n, o),
                                   w = op->filter->w[((o * dx->c + c) * K + u) * W + v];
                        int i0, i1, j0, j1;
                        span(dy->h, dx->h, S, u - op->pad, &i0, &i1);
                        span(dy->w, dx->w, S, v - op->pad_w, &j0, &j1);
                        for (int i = i0; i < i1; i++)
                            for (int j = j0; j < j1; j++)
                                px[(i * S + u - op->pad) * dx->w + j * S + v - op->pad_w] +=
                                    w * py[i * dy->w + j];
                    }
        }
}

static void conv_dw(Dev *dev, const Conv *op, const Tensor *x, const Tensor *dy, real *dw,
                    real *db) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    #pragma omp parallel for if (tensor_len(dy) > MANY)
    for (int o = 0; o < dy->c; o++) {
        for (int c = 0; c < x->c; c++)
            for (int u = 0; u < K; u++)
                for (int v = 0; v < W; v++) {
                    int i0, i1, j0, j1;
                    span(dy->h, x->h, S, u - op->pad, &i0, &i1);
                    span(dy->w, x->w, S, v - op->pad_w, &j0, &j1);
                    double s = 0;
                    for (int n = 0; n < x->n; n++) {
                        const real *px = plane(x, n, c), *py = plane(dy, n, o);
                        for (int i = i0; i < i1; i++)
                            for (int j = j0; j < j1; j++)
                                s += (double)py[i * dy->w + j] *
                                     (double)
                                         px[(i * S + u - op->pad) * x->w + j * S + v - op->pad_w];
                    }
                    dw[((o * x->c + c) * K + u) * W + v] += (real)s;
                }
        double s = 0;
        for (int n = 0; db && n < dy->n; n++)
            for (int i = 0; i < dy->h * dy->w; i++) s += (double)plane(dy, n, o)[i];
        if (db) db[o] += (real)s;
    }
}

// ---- norm, activation, pooling ---------------------------------------------------------------

// Mean and rstd of channel c: this batch's, or the running ones.
static void norm_stats(const Norm *op, const Tensor *x, int c) {
    if (!op->batch_stats) {
        op->mean[c] = op->run_mean[c];
        op->rstd[c] = (real)(1 / sqrt((double)op->run_var[c] + (double)op->eps));
        return;
    }
    const int hw = x->h * x->w;
    const double m = (double)x->n * hw;
    double s = 0, q = 0;
    for (int n = 0; n < x->n; n++)
        for (int i = 0; i < hw; i++) s += (double)plane(x, n, c)[i];
    s /= m;
    for (int n = 0; n < x->n; n++)
        for (int i = 0; i < hw; i++) {
            double d = (double)plane(x, n, c)[i] - s;
            q += d * d;
        }
    op->mean[c] = (real)s;
    op->rstd[c] = (real)(1 / sqrt(q / m + (double)op->eps));
    if (!op->update) return;
    const double k = (double)op->momentum, unbiased = m > 1 ? q / (m - 1) : q;
    op->run_mean[c] = (real)((1 - k) * (double)op->run_mean[c] + k * s);
    op->run_var[c] = (real)((1 - k) * (double)op->run_var[c] + k * unbiased);
}

static void norm_fwd(Dev *dev, const Norm *op, Tensor *x, const Tensor *r, Tensor *y) {
    (void)dev;
    const int hw = x->h * x->w;
    #pragma omp parallel for if (tensor_len(x) > MANY)
    for (int c = 0; c < x->c; c++) {
        for (int n = 0; r && n < x->n; n++)
            for (int i = 0; i < hw; i++) plane(x, n, c)[i] += plane(r, n, c)[i];
        real scale = 1, mean = 0, beta = 0;
        if (op->gamma) {
            norm_stats(op, x, c);
            scale = op->gamma[c] * op->rstd[c];
            mean = op->mean[c];
            beta = op->beta[c];
        }
        for (int n = 0; n < x->n; n++)
            for (int i = 0; i < hw; i++) {
                const real z = scale * (plane(x, n, c)[i] - mean) + beta;
                plane(y, n, c)[i] = z > 0 ? z : op->leak * z;
            }
    }
}

// With xh = (x - mean) rstd and dz the gradient behind the activation, batch statistics give
// dx = gamma rstd (dz - mean(dz) - xh mean(dz xh)); running ones are constants: dx = gamma rstd dz.
static void norm_bwd(Dev *dev, const Norm *op, const Tensor *x, const Tensor *dy, Tensor *dx,
                     real *dgamma, real *dbeta) {
    (void)dev;
    const int hw = x->h * x->w;
    const double m = (double)x->n * hw;
    #pragma omp parallel for if (tensor_len(x) > MANY)
    for (int c = 0; c < x->c; c++) {
        const real mean = op->gamma ? op->mean[c] : 0, rstd = op->gamma ? op->rstd[c] : 1;
        const real gamma = op->gamma ? op->gamma[c] : 1;
        const real scale = gamma * rstd, beta = op->gamma ? op->beta[c] : 0;
        double sum = 0, dot = 0;                       // of dz, of dz xh
        for (int n = 0; op->gamma && n < x->n; n++)
            for (int i = 0; i < hw; i++) {
                real v = plane(x, n, c)[i], d = plane(dy, n, c)[i];
                real dz = scale * (v - mean) + beta > 0 ? d : op->leak * d;
                sum += (double)dz;
                dot += (double)(dz * (v - mean) * rstd);
            }
        if (dgamma) dgamma[c] += (real)dot;
        if (dbeta) dbeta[c] += (real)sum;
        if (!op->batch_stats) sum = dot = 0;
        for (int n = 0; dx && n < x->n; n++)
            for (int i = 0; i < hw; i++) {
                real v = plane(x, n, c)[i], d = plane(dy, n, c)[i];
                real dz = scale * (v - mean) + beta > 0 ? d : op->leak * d;
                real g = scale * (dz - (real)(sum / m) - (v - mean) * rstd * (real)(dot / m));
                plane(dx, n, c)[i] = op->add_dx ? plane(dx, n, c)[i] + g : g;
            }
    }
}

static void norm_join(Dev *dev, const Norm *op, const Tensor *x, const real *all, int ranks,
                      real *stats) {
    (void)dev;
    for (int c = 0; c < x->c; c++) norm_join_channel(op, x, all, ranks, c, stats);
}

static void norm_center(Dev *dev, const Norm *op, const Tensor *x, const real *mine,
                        const real *all, int ranks, Tensor *dx, real *dgamma, real *dbeta) {
    (void)dev;
    for (int c = 0; c < x->c; c++) {
        const NormCenter k = norm_center_channel(op, x, mine, all, ranks, c, dgamma, dbeta);
        for (int n = 0; dx && n < x->n; n++)
            for (int i = 0; i < x->h * x->w; i++)
                plane(dx, n, c)[i] -= k.a + k.b * plane(x, n, c)[i];
    }
}

static void pool_fwd(Dev *dev, const Tensor *x, Tensor *y) {
    (void)dev;
    for (int n = 0; n < x->n; n++)
        for (int c = 0; c < x->c; c++) {
            double s = 0;
            for (int i = 0; i < x->h * x->w; i++) s += (double)plane(x, n, c)[i];
            *plane(y, n, c) = (real)(s / (x->h * x->w));
        }
}

static void pool_bwd(Dev *dev, const Tensor *dy, Tensor *dx) {
    (void)dev;
    for (int n = 0; n < dx->n; n++)
        for (int c = 0; c < dx->c; c++)
            for (int i = 0; i < dx->h * dx->w; i++)
                plane(dx, n, c)[i] = *plane(dy, n, c) / (real)(dx->h * dx->w);
}

// The window's pixels that are there: rows i0 .. i1-1, columns j0 .. j1-1.
static real window(const Pool *o, const real *x, int w, int i0, int i1, int j0, int j1) {
    double sum = 0;
    real most = -INFINITY;
    for (int i = i0; i < i1; i++)
        for (int j = j0; j < j1; j++) {
            const real v = x[i * w + j];
            sum += (double)v;
            most = v > most ? v : most;
        }
    return o->kind == POOL_MAX ? most : (real)(sum / ((i1 - i0) * (j1 - j0)));
}

static void window_fwd(Dev *dev, Pool o, const Tensor *x, Tensor *y) {
    (void)dev;
    for (int n = 0; n < y->n; n++)
        for (int c = 0; c < y->c; c++)
            for (int i = 0; i < y->h; i++)
                for (int j = 0; j < y->w; j++) {
                    const int i0 = i * o.stride - o.pad, j0 = j * o.stride - o.pad;
                    const int i1 = i0 + o.size, j1 = j0 + o.size;
                    plane(y, n, c)[i * y->w + j] =
                        window(&o, plane(x, n, c), x->w, i0 < 0 ? 0 : i0, i1 > x->h ? x->h : i1,
                               j0 < 0 ? 0 : j0, j1 > x->w ? x->w : j1);
                }
}

static void concat(Dev *dev, const Tensor *x, Tensor *y, int at) {
    const size_t image = (size_t)x->c * x->h * x->w * sizeof(real);
    for (int n = 0; n < x->n; n++) copy(dev, plane(y, n, at), plane(x, n, 0), image);
}

static void resize(Dev *dev, const Tensor *bytes, Tensor *y) {
    (void)dev;
    const int h = bytes->h, w = bytes->w;
    for (int n = 0; n < y->n; n++)
        for (int c = 0; c < y->c; c++)
            for (int i = 0; i < y->h; i++)
                for (int j = 0; j < y->w; j++) {
                    const Sample r = legacy_sample(i, h, y->h), q = legacy_sample(j, w, y->w);
                    const uint8_t *x = (const uint8_t *)bytes->p + ((size_t)n * y->c + c) * h * w;
                    const float v = legacy_mix(x + r.lo * w, x + r.hi * w, r, q);
                    plane(y, n, c)[i * y->w + j] = (real)v;
                }
}

// ---- the head and its losses -------------------------------------------------------------------

static void head(Dev *dev, const Tensor *z, const int *y, Energy e, real scale, Tensor *dz,
                 real *sums) {
    (void)dev;
    double sum[N_SUM] = { 0 };
    e = energy_now(e);
    for (int n = 0; n < z->n; n++) {
        const real *p = plane(z, n, 0);
        int best = 0;
        for (int c = 1; c < z->c; c++)
            if (p[c] > p[best]) best = c;
        double total = 0;
        for (int c = 0; c < z->c; c++) total += exp((double)(p[c] - p[best]));
        const double lse = (double)p[best] + log(total);
        sum[SUM_LSE] += lse;
        sum[SUM_LSE2] += lse * lse;
        sum[SUM_SOFTPLUS] += energy_softplus(&e, lse);
        if (y) sum[SUM_ZY] += (double)p[y[n]];
        if (y) sum[SUM_RIGHT] += best == y[n];
        const double slope = energy_slope(&e, lse);
        for (int c = 0; dz && c < z->c; c++) {
            double d = slope * exp((double)p[c] - lse);
            if (y && c == y[n]) d += (double)e.b;
            plane(dz, n, 0)[c] = (real)((double)scale * d);
        }
    }
    for (int i = 0; i < N_SUM; i++) sums[i] = (real)sum[i];
}

static void margin(Dev *dev, const Tensor *z, const int *y, Tensor *dz) {
    (void)dev;
    for (int n = 0; n < z->n; n++) {
        const real *p = plane(z, n, 0);
        real *d = plane(dz, n, 0);
        int other = y[n] == 0;
        for (int c = 0; c < z->c; c++)
            if (c != y[n] && p[c] > p[other]) other = c;
        for (int c = 0; c < z->c; c++) d[c] = (real)((c == other) - (c == y[n]));
    }
}

static void watch(Dev *dev, const Watch *o, const real *sums, StepState *now, real *ring) {
    (void)dev;
    watch_step(o, sums, now, ring);
}

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

static double length(const real *v, const real *from, size_t n) {
    double s = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)v[i] - (from ? (double)from[i] : 0);
        s += d * d;
    }
    return sqrt(s);
}

// x back into the ball around x0 and the box. Shortening by a rounded factor may leave a hair too
// much, so the factor is taken a hair shorter.
static void confine(real *x, const real *x0, size_t n, Attack a) {
    const double far = a.l2 ? length(x, x0, n) : 0;
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
        const uint64_t row = first_row(now) + (uint64_t)k;
        // a direction from normals, a distance that fills the ball evenly
        const double reach =
            (double)a.radius * pow((double)rng_uniform(size, row), 1 / (double)dim);
        for (size_t i = 0; i < dim; i++) {
            const uint64_t at = row * dim + i;
            p[i] =
                a.l2 ? (real)rng_normal(key, at) : a.radius * (real)(2 * rng_uniform(key, at) - 1);
        }
        const real scale = a.l2 ? (real)(reach / (length(p, NULL, dim) + 1e-30)) : 1;
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
        const real scale = a.l2 ? a.step / (real)(length(d, NULL, dim) + 1e-30) : a.step;
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

// ---- data --------------------------------------------------------------------------------------

static void pick(Dev *dev, Pick p, int n, Rng key, const StepState *now, int *index, int *y) {
    (void)dev;
    key = rng_now(key, now);
    uint32_t first = 0;
    if (p.kind == PICK_EPOCH) {                        // the last, short batch is dropped
        uint32_t batches = (uint32_t)(p.from / n);
        first = key.step % batches * (uint32_t)n;
        key.step /= batches;
    }
    for (int i = 0; i < n; i++) {
        index[i] = (int)rng_perm(key, (uint32_t)p.from, first + (uint32_t)i);
        if (y) y[i] = slot_class(index[i], p.from, p.classes);
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
        const uint32_t row = first_row(now) + (uint32_t)k;
        const uint32_t span_ = (uint32_t)(2 * a.pad + 1), at = row * 4;
        const int di = (int)rng_below(move, at, span_) - a.pad;
        const int dj = (int)rng_below(move, at + 1, span_) - a.pad;
        const int mirror = a.flip && rng_u32(move, at + 2) & 1;
        real *dst = x + (size_t)k * dim;
        for (int c = 0; c < C; c++)
            for (int i = 0; i < S; i++)
                for (int j = 0; j < S; j++) {
                    int ii = reflect(i + di, S), jj = reflect((mirror ? S - 1 - j : j) + dj, S);
                    dst[(c * S + i) * S + j] =
                        cut_out(&a, key, row, i, j, S)
                            ? 0
                            : (real)src[(c * S + ii) * S + jj] / (real)127.5 - 1;
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

static void reinit(Dev *dev, real *x, int n, size_t dim, real rate, const real *pool, int n_pool,
                   Rng key, const StepState *now) {
    (void)dev;
    key = rng_now(key, now);
    uint32_t next = now->in.drawn;
    const int first = (int)now->in.first;              // rows before it are other ranks'
    for (int i = -first; i < n; i++) {
        if (!((real)rng_uniform(key, (uint64_t)(first + i)) < rate)) continue;
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
        real *x = out + (size_t)(number[k] % n_out) * dim;
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
            out[(size_t)(number[k] % n_out) * dim + i] = (real)(2 * rng_uniform(at, i) - 1);
    }
}

static uint64_t checksum(Dev *dev, const void *p, size_t bytes) {
    (void)dev;
    const uint32_t *word = p;
    uint64_t sum = 0;
    #pragma omp parallel for reduction(+ : sum) if (bytes > MANY)
    for (size_t i = 0; i < bytes / sizeof *word; i++) sum += checksum_of(i, word[i]);
    return sum;
}

const Backend backend_ref = {
    .name = "ref",
    .precision = { "fp32", "fp32", "fp32", "fp32" },
    .host_memory = 1,
    .eval_batch = 64,                 // a short last batch should waste little
    .look_every = 1,
    .open = ref_open,
    .close = dev_nothing,
    .describe = describe,
    .tuning = tuning,
    .sync = dev_nothing,
    .alloc = mem_alloc,
    .free = mem_free,
    .host_alloc = host_alloc,
    .host_free = mem_free,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .zero = zero,
    .tensor_bytes = tensor_bytes,
    .from_plain = from_plain,
    .to_plain = to_plain,
    .filters_pack = filters_pack,
    .filter_close = filter_close,
    .conv_open = conv_open,
    .conv_close = conv_close,
    .conv_fwd = conv_fwd,
    .conv_dx = conv_dx,
    .conv_dw = conv_dw,
    .norm_fwd = norm_fwd,
    .norm_bwd = norm_bwd,
    .norm_join = norm_join,
    .norm_center = norm_center,
    .pool_fwd = pool_fwd,
    .pool_bwd = pool_bwd,
    .window_fwd = window_fwd,
    .concat = concat,
    .resize = resize,
    .head = head,
    .langevin = langevin,
    .dot = dot,
    .margin = margin,
    .attack_start = attack_start,
    .attack_move = attack_move,
    .sgd = sgd,
    .adam = adam,
    .ema = ema,
    .sam_perturb = sam_perturb,
    .check_finite = check_finite,
    .watch = watch,
    .pick = pick,
    .batch = batch,
    .rows_get = rows_get,
    .rows_put = rows_put,
    .reinit = reinit,
    .gauss = gauss,
    .uniform = uniform,
    .checksum = checksum,
};
