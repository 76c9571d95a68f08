// ref_net.c - the network's operations of the reference backend: convolution, norm, pooling, the
// head and its losses. Long sums are kept in double.
#include "dev/ref.h"
#include "dev/resize.h"
#include "dev/sync_norm.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- convolution ---------------------------------------------------------------------------

static void filters_pack(Dev *dev, Filter *f, int n) { (void)dev, (void)f, (void)n; }
static void filter_close(Dev *dev, Filter *f) { (void)dev, (void)f; }
static void conv_close(Dev *dev, Conv *c) { (void)dev, (void)c; }

// The outputs lo .. hi-1 of a row or column whose inputs under one tap of a filter are inside the
// image: those from, from + stride, ...
typedef struct {
    int lo, hi, from;
} Span;

enum { MAX_TAPS = 16 };

typedef struct {                  // for every row and column of a filter
    Span row[MAX_TAPS], column[MAX_TAPS];
} Cover;

static void spans(Span *s, int taps, int out, int in, int stride, int pad) {
    for (int k = 0; k < taps; k++) {
        const int off = k - pad, last = in - 1 - off;          // of inputs: i * stride + off
        const int lo = off < 0 ? (-off + stride - 1) / stride : 0;
        const int hi = last < 0 ? 0 : last / stride + 1 < out ? last / stride + 1 : out;
        s[k] = lo < hi ? (Span){ lo, hi, lo * stride + off } : (Span){ 0 };
    }
}

static Cover cover(const Conv *op, const Tensor *x, const Tensor *y) {
    Cover c = { 0 };
    spans(c.row, op->size, y->h, x->h, op->stride, op->pad);
    spans(c.column, op->size_w, y->w, x->w, op->stride, op->pad_w);
    return c;
}

static void conv_open(Dev *dev, Conv *c) {
    if (c->size > MAX_TAPS || c->size_w > MAX_TAPS)
        err_set(&dev->err, ERR_ARG, "a filter of %dx%d: expected at most %dx%d", c->size, c->size_w,
                MAX_TAPS, MAX_TAPS);
    for (int i = 0; i < 3; i++) c->how[i] = "loops";
}

static void conv_fwd(Dev *dev, const Conv *op, const Tensor *x, const real *b, Tensor *y) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    const Cover at = cover(op, x, y);
    #pragma omp parallel for collapse(2) if (tensor_len(y) > MANY)
    for (int n = 0; n < y->n; n++)
        for (int o = 0; o < y->c; o++) {
            real *py = plane(y, n, o);
            for (int i = 0; i < y->h * y->w; i++) py[i] = b ? b[o] : 0;
            for (int c = 0; c < x->c; c++)
                for (int u = 0; u < K; u++)
                    for (int v = 0; v < W; v++) {
                        const real w = op->filter->w[((o * x->c + c) * K + u) * W + v];
                        const Span r = at.row[u], s = at.column[v];
                        const real *px = plane(x, n, c) + r.from * x->w + s.from;
                        for (int i = r.lo; i < r.hi; i++)
                            for (int j = s.lo; j < s.hi; j++)
                                py[i * y->w + j] += w * px[((i - r.lo) * x->w + j - s.lo) * S];
                    }
            for (int i = 0; op->relu && i < y->h * y->w; i++) py[i] = py[i] > 0 ? py[i] : 0;
        }
}

static void conv_dx(Dev *dev, const Conv *op, const Tensor *dy, Tensor *dx) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    const Cover at = cover(op, dx, dy);
    #pragma omp parallel for collapse(2) if (tensor_len(dx) > MANY)
    for (int n = 0; n < dx->n; n++)
        for (int c = 0; c < dx->c; c++) {
            memset(plane(dx, n, c), 0, (size_t)dx->h * dx->w * sizeof(real));
            for (int o = 0; o < dy->c; o++)
                for (int u = 0; u < K; u++)
                    for (int v = 0; v < W; v++) {
                        const real w = op->filter->w[((o * dx->c + c) * K + u) * W + v];
                        const Span r = at.row[u], s = at.column[v];
                        const real *py = plane(dy, n, o);
                        real *px = plane(dx, n, c) + r.from * dx->w + s.from;
                        for (int i = r.lo; i < r.hi; i++)
                            for (int j = s.lo; j < s.hi; j++)
                                px[((i - r.lo) * dx->w + j - s.lo) * S] += w * py[i * dy->w + j];
                    }
        }
}

static void conv_dw(Dev *dev, const Conv *op, const Tensor *x, const Tensor *dy, real *dw,
                    real *db) {
    (void)dev;
    const int K = op->size, W = op->size_w, S = op->stride;
    const Cover at = cover(op, x, dy);
    #pragma omp parallel for if (tensor_len(dy) > MANY)
    for (int o = 0; o < dy->c; o++) {
        for (int c = 0; c < x->c; c++)
            for (int u = 0; u < K; u++)
                for (int v = 0; v < W; v++) {
                    const Span r = at.row[u], t = at.column[v];
                    double s = 0;
                    for (int n = 0; n < x->n; n++) {
                        const real *py = plane(dy, n, o);
                        const real *px = plane(x, n, c) + r.from * x->w + t.from;
                        for (int i = r.lo; i < r.hi; i++)
                            for (int j = t.lo; j < t.hi; j++)
                                s += (double)py[i * dy->w + j] *
                                     (double)px[((i - r.lo) * x->w + j - t.lo) * S];
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
    (void)dev;
    const size_t image = (size_t)x->c * x->h * x->w * sizeof(real);
    for (int n = 0; n < x->n; n++) memcpy(plane(y, n, at), plane(x, n, 0), image);
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

void ref_net_table(Backend *be) {
    be->filters_pack = filters_pack;
    be->filter_close = filter_close;
    be->conv_open = conv_open;
    be->conv_close = conv_close;
    be->conv_fwd = conv_fwd;
    be->conv_dx = conv_dx;
    be->conv_dw = conv_dw;
    be->norm_fwd = norm_fwd;
    be->norm_bwd = norm_bwd;
    be->norm_join = norm_join;
    be->norm_center = norm_center;
    be->pool_fwd = pool_fwd;
    be->pool_bwd = pool_bwd;
    be->window_fwd = window_fwd;
    be->concat = concat;
    be->resize = resize;
    be->head = head;
    be->margin = margin;
}
