// cpu_ops.c - the cpu device's operations beside the convolutions. Compiled once for each
// instruction set (cpu_vec.h).
//
// Work is cut into chunks that do not depend on the number of threads, and what chunks add up is
// combined in a fixed order: results do not depend on the number of threads.
#include "dev/cpu_vec.h"
#include "dev/sync_norm.h"
#include <math.h>

// ---- norm and activation ------------------------------------------------------------------------

// Channel blocks are handled in groups whose data the caches can hold from one sweep to the next,
// so that a norm reads and writes memory once.
enum { GROUP_BYTES = 4 << 20 };

static int group_of(const Tensor *t) {
    const size_t block = (size_t)t->n * t->h * t->w * sizeof(act);
    return block < GROUP_BYTES ? (int)(GROUP_BYTES / block) : 1;
}

typedef struct {
    vec sum, dot;
} Sums; // of a chunk, or means over a block
typedef struct {
    vec mean, scale, beta;
} Affine; // of a block; zeros where no channel is

// What a norm over t keeps while it runs: of each chunk [block][image], of each block.
typedef struct {
    Sums *chunk, *block;
    Affine *affine;
} Partial;

static int partial_of(Dev *dev, const Tensor *t, Partial *p) {
    if (!cpu_ready(dev)) return 0;
    const Cpu *cpu = cpu_of(dev);
    const size_t blocks = (size_t)blocks_of(t, L);
    if (cpu->n_partial < cpu_partial(t, L)) {
        err_set(&dev->err, ERR_DEV, "a norm of %dx%dx%dx%d, a size that was not prepared", t->n,
                t->c, t->h, t->w);
        return 0;
    }
    p->chunk = (Sums *)cpu->partial;
    p->block = p->chunk + blocks * t->n;
    p->affine = (Affine *)(p->block + blocks);
    return 1;
}

static void affine_of(const Norm *op, int b, int channels, Affine *a) {
    *a = (Affine){ 0 };
    for (int l = 0; l < L && b * L + l < channels; l++) {
        const int c = b * L + l;
        a->mean[l] = op->gamma ? op->mean[c] : 0;
        a->scale[l] = op->gamma ? op->gamma[c] * op->rstd[c] : 1;
        a->beta[l] = op->gamma ? op->beta[c] : 0;
    }
}

// Adds r to x where there is one, then mean and squared deviations of the chunk's channels. The
// second sweep finds the chunk in the cache.
static void chunk_stats(act *x, const act *r, int hw, Sums *out) {
    for (int p = 0; r && p < hw; p++) STORE(&x[p], LOAD(&x[p]) + LOAD(&r[p]));
    vec mean, q[4] = { 0 };
    chunk_sum(x, hw, &mean);
    mean /= (float)hw;
    int p = 0;
    for (; p + 4 <= hw; p += 4)
        for (int j = 0; j < 4; j++) {
            const vec d = LOAD(&x[p + j]) - mean;
            q[j] += d * d;
        }
    for (; p < hw; p++) q[0] += (LOAD(&x[p]) - mean) * (LOAD(&x[p]) - mean);
    out->sum = mean;
    out->dot = q[0] + q[1] + (q[2] + q[3]);
}

// The block's statistics from those of its chunks, which are all of one size.
static void block_stats(const Norm *op, int b, const Tensor *x, const Sums *part) {
    const double hw = (double)x->h * x->w, m = x->n * hw;
    for (int l = 0; l < L && b * L + l < x->c; l++) {
        const int c = b * L + l;
        double mean = 0, q = 0;
        for (int n = 0; n < x->n; n++) mean += (double)part[n].sum[l];
        mean /= x->n;
        for (int n = 0; n < x->n; n++) {
            const double d = (double)part[n].sum[l] - mean;
            q += (double)part[n].dot[l] + hw * d * d;
        }
        op->mean[c] = (float)mean;
        op->rstd[c] = (float)(1 / sqrt(q / m + (double)op->eps));
        if (!op->update) continue;
        const double k = (double)op->momentum, unbiased = m > 1 ? q / (m - 1) : q;
        op->run_mean[c] = (float)((1 - k) * (double)op->run_mean[c] + k * mean);
        op->run_var[c] = (float)((1 - k) * (double)op->run_var[c] + k * unbiased);
    }
}

static void running_stats(const Norm *op, int channels) {
    for (int c = 0; c < channels; c++) {
        op->mean[c] = op->run_mean[c];
        op->rstd[c] = (float)(1 / sqrt((double)op->run_var[c] + (double)op->eps));
    }
}

static void chunk_norm(const Affine *a, float leak, const act *x, int hw, act *y) {
    const vec mean = a->mean, scale = a->scale, beta = a->beta;
    for (int p = 0; p < hw; p++) {
        const vec z = (LOAD(&x[p]) - mean) * scale + beta, low = leak * z;
        STORE(&y[p], PICK(z > 0, z, low));
    }
}

static void norm_fwd(Dev *dev, const Norm *op, Tensor *x, const Tensor *r, Tensor *y) {
    Partial part;
    if (!partial_of(dev, x, &part)) return;
    const int blocks = blocks_of(x, L), N = x->n, hw = x->h * x->w, group = group_of(x);
    const int batch = op->gamma && op->batch_stats;
    if (op->gamma && !batch) running_stats(op, x->c);
    #pragma omp parallel
    for (int b0 = 0; b0 < blocks; b0 += group) {
        const int nb = b0 + group < blocks ? group : blocks - b0;
        if (batch) {
            #pragma omp for
            for (int i = 0; i < nb * N; i++) {
                const int b = b0 + i % nb, n = i / nb;
                chunk_stats(chunk(x, n, b), r ? chunk(r, n, b) : NULL, hw, &part.chunk[b * N + n]);
            }
        }
        #pragma omp for
        for (int b = b0; b < b0 + nb; b++) {
            if (batch) block_stats(op, b, x, part.chunk + b * N);
            affine_of(op, b, x->c, &part.affine[b]);
        }
        #pragma omp for nowait
        for (int i = 0; i < nb * N; i++) {
            const int b = b0 + i % nb, n = i / nb;
            act *px = chunk(x, n, b);
            const act *pr = r && !batch ? chunk(r, n, b) : NULL;
            for (int p = 0; pr && p < hw; p++) STORE(&px[p], LOAD(&px[p]) + LOAD(&pr[p]));
            chunk_norm(&part.affine[b], op->leak, px, hw, chunk(y, n, b));
        }
    }
}

// Sums of dz and of dz (x - mean), dz being the gradient behind the activation.
static void chunk_sums(const Affine *a, float leak, const act *x, const act *dy, int hw,
                       Sums *out) {
    const vec mean = a->mean, scale = a->scale, beta = a->beta;
    vec sum = { 0 }, dot = { 0 };
    for (int p = 0; p < hw; p++) {
        const vec d = LOAD(&x[p]) - mean, g = LOAD(&dy[p]), low = leak * g;
        const vec dz = PICK(d * scale + beta > 0, g, low);
        sum += dz;
        dot += dz * d;
    }
    out->sum = sum;
    out->dot = dot;
}

// Adds the block's sums to the parameters' gradients. out: mean of dz, mean of dz xh times rstd.
static void block_sums(const Norm *op, int b, const Tensor *x, const Sums *part, float *dgamma,
                       float *dbeta, Sums *out) {
    const double m = (double)x->n * x->h * x->w;
    *out = (Sums){ 0 };
    for (int l = 0; l < L && b * L + l < x->c; l++) {
        const int c = b * L + l;
        double sum = 0, dot = 0;
        for (int n = 0; n < x->n; n++) {
            sum += (double)part[n].sum[l];
            dot += (double)part[n].dot[l];
        }
        const double rstd = (double)op->rstd[c];
        if (dgamma) dgamma[c] += (float)(dot * rstd);
        if (dbeta) dbeta[c] += (float)sum;
        if (!op->batch_stats) continue;
        out->sum[l] = (float)(sum / m);
        out->dot[l] = (float)(dot / m * rstd * rstd);
    }
}

static void chunk_dx(const Affine *a, float leak, const Sums *s, const act *x, const act *dy,
                     int hw, int add, act *dx) {
    const vec mean = a->mean, scale = a->scale, beta = a->beta, sum = s->sum, dot = s->dot;
    for (int p = 0; p < hw; p++) {
        const vec d = LOAD(&x[p]) - mean, up = LOAD(&dy[p]), low = leak * up;
        const vec dz = PICK(d * scale + beta > 0, up, low), g = scale * (dz - sum - d * dot);
        if (add) STORE(&dx[p], LOAD(&dx[p]) + g);
        else STORE(&dx[p], g);
    }
}

static void norm_bwd(Dev *dev, const Norm *op, const Tensor *x, const Tensor *dy, Tensor *dx,
                     float *dgamma, float *dbeta) {
    Partial part;
    if (!partial_of(dev, x, &part)) return;
    const int blocks = blocks_of(x, L), N = x->n, hw = x->h * x->w, group = group_of(x);
    const int sums = op->gamma && (op->batch_stats || dgamma || dbeta);
    for (int b = 0; b < blocks; b++) {
        affine_of(op, b, x->c, &part.affine[b]);
        part.block[b] = (Sums){ 0 };
    }
    #pragma omp parallel
    for (int b0 = 0; b0 < blocks; b0 += group) {
        const int nb = b0 + group < blocks ? group : blocks - b0;
        if (sums) {
            #pragma omp for
            for (int i = 0; i < nb * N; i++) {
                const int b = b0 + i % nb, n = i / nb;
                chunk_sums(&part.affine[b], op->leak, chunk(x, n, b), chunk(dy, n, b), hw,
                           &part.chunk[b * N + n]);
            }
            #pragma omp for
            for (int b = b0; b < b0 + nb; b++)
                block_sums(op, b, x, part.chunk + b * N, dgamma, dbeta, &part.block[b]);
        }
        #pragma omp for nowait
        for (int i = 0; i < (dx ? nb * N : 0); i++) {
            const int b = b0 + i % nb, n = i / nb;
            chunk_dx(&part.affine[b], op->leak, &part.block[b], chunk(x, n, b), chunk(dy, n, b), hw,
                     op->add_dx, chunk(dx, n, b));
        }
    }
}

static void norm_center(Dev *dev, const Norm *op, const Tensor *x, const float *mine,
                        const float *all, int ranks, Tensor *dx, float *dgamma, float *dbeta) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(x, L), hw = x->h * x->w;
    #pragma omp parallel for
    for (int b = 0; b < blocks; b++) {
        vec at = { 0 }, slope = { 0 };
        for (int l = 0; l < L && b * L + l < x->c; l++) {
            const NormCenter k =
                norm_center_channel(op, x, mine, all, ranks, b * L + l, dgamma, dbeta);
            at[l] = k.a;
            slope[l] = k.b;
        }
        for (int n = 0; dx && n < x->n; n++) {
            const act *px = chunk(x, n, b);
            act *to = chunk(dx, n, b);
            for (int p = 0; p < hw; p++) STORE(&to[p], LOAD(&to[p]) - at - slope * LOAD(&px[p]));
        }
    }
}

// ---- pooling and layout -------------------------------------------------------------------------

static void pool_fwd(Dev *dev, const Tensor *x, Tensor *y) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(x, L), hw = x->h * x->w;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < x->n; n++)
        for (int b = 0; b < blocks; b++) {
            vec s;
            chunk_sum(chunk(x, n, b), hw, &s);
            s /= (float)hw;
            float *to = (float *)y->p + (size_t)n * x->c + b * L;
            for (int l = 0; l < L && b * L + l < x->c; l++) to[l] = s[l];
        }
}

static void pool_bwd(Dev *dev, const Tensor *dy, Tensor *dx) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(dx, L), hw = dx->h * dx->w;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < dx->n; n++)
        for (int b = 0; b < blocks; b++) {
            const float *from = (const float *)dy->p + (size_t)n * dx->c + b * L;
            act *p = chunk(dx, n, b);
            vec d = { 0 };
            for (int l = 0; l < L && b * L + l < dx->c; l++) d[l] = from[l] / (float)hw;
            for (int i = 0; i < hw; i++) STORE(&p[i], d);
        }
}

static void from_plain(Dev *dev, const float *src, Tensor *dst) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(dst, L), hw = dst->h * dst->w;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < dst->n; n++)
        for (int b = 0; b < blocks; b++) {
            const float *from = src + ((size_t)n * dst->c + b * L) * hw;
            act *to = chunk(dst, n, b);
            for (int i = 0; i < hw; i++) {
                vec v = { 0 };
                for (int l = 0; l < L && b * L + l < dst->c; l++) v[l] = from[l * hw + i];
                STORE(&to[i], v);
            }
        }
}

static void to_plain(Dev *dev, const Tensor *src, float *dst) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(src, L), hw = src->h * src->w;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < src->n; n++)
        for (int b = 0; b < blocks; b++) {
            const act *from = chunk(src, n, b);
            float *to = dst + ((size_t)n * src->c + b * L) * hw;
            for (int i = 0; i < hw; i++) {
                const vec v = LOAD(&from[i]);
                for (int l = 0; l < L && b * L + l < src->c; l++) to[l * hw + i] = v[l];
            }
        }
}

// ---- sampling and learning ----------------------------------------------------------------------

static float clamp(float v, float limit) { return v > limit ? limit : v < -limit ? -limit : v; }

static void langevin(Dev *dev, Tensor *x, const Tensor *g, Move m, Rng key, const StepState *now) {
    if (!cpu_ready(dev)) return;
    key = rng_now(key, now);
    float *px = x->p;
    const float *pg = g->p, wall = m.clamp ? 1 : INFINITY;
    const size_t len = tensor_len(x);
    #pragma omp parallel for simd
    for (size_t i = 0; i < len; i++) {               // ref_learn.c says why
        const float move = m.lr * clamp(pg[i], m.clip);
        px[i] = clamp(clamp(px[i] + move, wall) + (float)(m.inner - 1) * move, wall);
    }
    if (!(m.noise > 0)) return;
    const size_t before = first_row(now) * (len / (size_t)x->n);    // images have 4 k pixels
    #pragma omp parallel for
    for (size_t i = 0; i < len; i += 4) {
        float z[4];
        rng_normal4(key, (uint32_t)((before + i) / 4), z);
        for (size_t j = i; j < len && j < i + 4; j++) px[j] += m.noise * z[j - i];
    }
}

static void sgd(Dev *dev, size_t n, float *w, const float *g, float *v, Sgd o,
                const StepState *now) {
    if (!cpu_ready(dev) || now->halt) return;
    const float lr = now->in.lr;
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        v[i] = o.momentum * v[i] + (g[i] + o.decay * w[i]);
        w[i] -= lr * v[i];
    }
}

static void adam(Dev *dev, size_t n, float *w, const float *g, float *m, float *v, Adam o,
                 const StepState *now) {
    if (!cpu_ready(dev) || now->halt) return;
    const double t = now->in.step + 1.0, b1 = (double)o.beta1, b2 = (double)o.beta2;
    const float rate = (float)((double)now->in.lr / (1 - pow(b1, t))),
                root = (float)sqrt(1 - pow(b2, t));
    const float new1 = (float)(1 - b1), new2 = (float)(1 - b2);
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        const float d = g[i] + o.decay * w[i];
        m[i] = o.beta1 * m[i] + new1 * d;
        v[i] = o.beta2 * v[i] + new2 * d * d;
        w[i] -= rate * m[i] / (sqrtf(v[i]) / root + o.eps);
    }
}

static void ema(Dev *dev, size_t n, float *avg, const float *w, float keep, const StepState *now) {
    if (!cpu_ready(dev) || now->halt) return;
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) avg[i] = keep * avg[i] + (1 - keep) * w[i];
}

// x - x is 0 where x is finite; unlike isfinite, the compiler turns this into vectors.
static void check_finite(Dev *dev, size_t n, const float *g, StepState *now) {
    if (!cpu_ready(dev)) return;
    int bad = 0;
    #pragma omp parallel for simd reduction(| : bad)
    for (size_t i = 0; i < n; i++) bad |= !(g[i] - g[i] == 0);
    if (bad && !now->halt) now->halt = HALT_GRAD;
}

void FOR_ISA(cpu_ops_)(Backend *be) {
    be->norm_fwd = norm_fwd;
    be->norm_bwd = norm_bwd;
    be->norm_center = norm_center;
    be->pool_fwd = pool_fwd;
    be->pool_bwd = pool_bwd;
    be->from_plain = from_plain;
    be->to_plain = to_plain;
    be->langevin = langevin;
    be->sgd = sgd;
    be->adam = adam;
    be->ema = ema;
    be->check_finite = check_finite;
    be->gauss = FOR_ISA(cpu_gauss_);
}
