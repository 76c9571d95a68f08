// cuda_ops.cu - losses, chains, attacks, optimisers.
#include "dev/cuda.cuh"
#include "dev/watch.h"

static __device__ float clamp(float v, float limit) {
    return v > limit ? limit : v < -limit ? -limit : v;
}

// ---- the head and its losses -------------------------------------------------------------------

enum { HEAD_THREADS = 1024 };

// A warp takes a row of logits at a time.
static __global__ void __launch_bounds__(HEAD_THREADS)
    head_kernel(const float *z, int n, int classes, const int *y, Energy e, float scale, float *dz,
                float *sums) {
    __shared__ double part[HEAD_THREADS / 32][N_SUM];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    double sum[N_SUM] = { 0 };
    e = energy_now(e);
    for (int row = warp; row < n; row += HEAD_THREADS / 32) {
        const float *p = z + (size_t)row * classes;
        float best = -INFINITY;
        int where = classes;
        for (int c = lane; c < classes; c += 32)
            if (p[c] > best || where == classes) best = p[c], where = c;
        for (int d = 16; d > 0; d /= 2) {         // of equal ones the first; lanes without any lose
            const float other = __shfl_xor_sync(~0u, best, d);
            const int there = __shfl_xor_sync(~0u, where, d);
            if (there < classes &&
                (where == classes || other > best || (other == best && there < where)))
                best = other, where = there;
        }
        double total = 0;
        for (int c = lane; c < classes; c += 32) total += exp((double)(p[c] - best));
        const double lse = (double)best + log(warp_sum(total));
        if (lane == 0) {
            sum[SUM_LSE] += lse;
            sum[SUM_LSE2] += lse * lse;
            sum[SUM_SOFTPLUS] += energy_softplus(&e, lse);
            if (y) sum[SUM_ZY] += (double)p[y[row]];
            if (y) sum[SUM_RIGHT] += where == y[row];
        }
        const double slope = energy_slope(&e, lse);
        for (int c = lane; dz && c < classes; c += 32) {
            double d = slope * exp((double)p[c] - lse);
            if (y && c == y[row]) d += (double)e.b;
            dz[(size_t)row * classes + c] = (float)((double)scale * d);
        }
    }
    if (lane == 0)
        for (int i = 0; i < N_SUM; i++) part[warp][i] = sum[i];
    __syncthreads();
    if (threadIdx.x < N_SUM) {
        double all = 0;
        for (int w = 0; w < HEAD_THREADS / 32; w++) all += part[w][threadIdx.x];
        sums[threadIdx.x] = (float)all;
    }
}

static void head(Dev *dev, const Tensor *z, const int *y, Energy e, real scale, Tensor *dz,
                 real *sums) {
    if (dev->err.kind) return;
    head_kernel<<<1, HEAD_THREADS, 0, cuda_of(dev)->stream>>>((const float *)z->p, z->n,
                                                              z->c * z->h * z->w, y, e, scale,
                                                              dz ? (float *)dz->p : NULL, sums);
    cuda_launched(dev, "head");
}

// A thread takes a row; of equal ones the first is the largest.
static __global__ void margin_kernel(const float *z, int n, int classes, const int *y, float *dz) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= n) return;
    const float *p = z + (size_t)row * classes;
    int other = y[row] == 0;
    for (int c = 0; c < classes; c++)
        if (c != y[row] && p[c] > p[other]) other = c;
    for (int c = 0; c < classes; c++)
        dz[(size_t)row * classes + c] = (float)((c == other) - (c == y[row]));
}

static void margin(Dev *dev, const Tensor *z, const int *y, Tensor *dz) {
    if (dev->err.kind) return;
    margin_kernel<<<blocks_for((size_t)z->n, 128), 128, 0, cuda_of(dev)->stream>>>(
        (const float *)z->p, z->n, z->c * z->h * z->w, y, (float *)dz->p);
    cuda_launched(dev, "margin");
}

static __global__ void watch_kernel(Watch o, const float *sums, StepState *now, float *ring) {
    watch_step(&o, sums, now, ring);
}

static void watch(Dev *dev, const Watch *o, const real *sums, StepState *now, real *ring) {
    if (dev->err.kind) return;
    watch_kernel<<<1, 1, 0, cuda_of(dev)->stream>>>(*o, sums, now, ring);
    cuda_launched(dev, "watch");
}

// ---- chains and attacks ------------------------------------------------------------------------

// As ref_learn.c says: the inner moves share one gradient.
static __global__ void langevin_kernel(float *x, const float *g, size_t n, size_t dim, Move m,
                                       Rng key, const StepState *now) {
    const size_t block = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const float wall = m.clamp ? 1 : INFINITY;
    float z[4] = { 0, 0, 0, 0 };
    if (4 * block >= n) return;
    if (m.noise > 0)
        rng_normal4(rng_now(key, now), (uint32_t)(first_row(now) * (dim / 4) + block), z);
    for (size_t i = 4 * block; i < n && i < 4 * block + 4; i++) {
        const float move = m.lr * clamp(g[i], m.clip);
        float v = clamp(clamp(x[i] + move, wall) + (float)(m.inner - 1) * move, wall);
        if (m.noise > 0) v += m.noise * z[i - 4 * block];
        x[i] = v;
    }
}

static void langevin(Dev *dev, Tensor *x, const Tensor *g, Move m, Rng key, const StepState *now) {
    if (dev->err.kind) return;
    const size_t n = tensor_len(x);
    langevin_kernel<<<blocks_for((n + 3) / 4, 128), 128, 0, cuda_of(dev)->stream>>>(
        (float *)x->p, (const float *)g->p, n, n / (size_t)x->n, m, key, now);
    cuda_launched(dev, "langevin");
}

enum { DOT_THREADS = 1024 };

// One block, so that the order of the sum is always the same.
static __global__ void __launch_bounds__(DOT_THREADS)
    dot_kernel(size_t n, const float *a, const float *b, float *out) {
    __shared__ double part[DOT_THREADS / 32];
    double sum = 0;
    #pragma unroll 8
    for (size_t i = threadIdx.x; i < n; i += DOT_THREADS) sum += (double)(a[i] * b[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(part[threadIdx.x]);
    if (threadIdx.x == 0) *out = (float)sum;
}

static void dot(Dev *dev, size_t n, const real *a, const real *b, real *out) {
    if (dev->err.kind) return;
    dot_kernel<<<1, DOT_THREADS, 0, cuda_of(dev)->stream>>>(n, a, b, out);
    cuda_launched(dev, "dot");
}

enum { IMAGE_THREADS = 256 };

// |v - from| over the block; all threads get it.
static __device__ double length(const float *v, const float *from, size_t n, double *room) {
    double s = 0;
    for (size_t i = threadIdx.x; i < n; i += IMAGE_THREADS) {
        const double d = (double)v[i] - (from ? (double)from[i] : 0);
        s += d * d;
    }
    __syncthreads();
    room[threadIdx.x] = s;
    for (int d = IMAGE_THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d) room[threadIdx.x] += room[threadIdx.x + d];
    }
    __syncthreads();
    return sqrt(room[0]);
}

static __device__ void confine(float *x, const float *x0, size_t n, Attack a, double *room) {
    const double far = a.l2 ? length(x, x0, n, room) : 0;
    const float keep = far > (double)a.radius ? (float)((double)a.radius / far * (1 - 1e-7)) : 1;
    for (size_t i = threadIdx.x; i < n; i += IMAGE_THREADS) {
        const float d = a.l2 ? keep * (x[i] - x0[i]) : clamp(x[i] - x0[i], a.radius);
        x[i] = clamp(x0[i] + d, 1);
    }
}

// A block an image; a thread always handles the same pixels, so it reads only what it wrote.
static __global__ void attack_start_kernel(float *x, const float *x0, size_t dim, Attack a, Rng key,
                                           const StepState *now) {
    __shared__ double room[IMAGE_THREADS];
    const uint64_t k = blockIdx.x, row = first_row(now) + (uint64_t)a.from + k;
    float *p = x + k * dim;
    key = rng_now(key, now);
    Rng size = key;
    size.sub = 1;
    const double reach = (double)a.radius * pow((double)rng_uniform(size, row), 1 / (double)dim);
    for (size_t i = threadIdx.x; i < dim; i += IMAGE_THREADS)
        p[i] = a.l2 ? rng_normal(key, row * dim + i)
                    : a.radius * (2 * rng_uniform(key, row * dim + i) - 1);
    const float scale = a.l2 ? (float)(reach / (length(p, NULL, dim, room) + 1e-30)) : 1;
    for (size_t i = threadIdx.x; i < dim; i += IMAGE_THREADS) p[i] = x0[k * dim + i] + scale * p[i];
    confine(p, x0 + k * dim, dim, a, room);
}

static __global__ void attack_move_kernel(float *x, const float *g, const float *x0, size_t dim,
                                          Attack a) {
    __shared__ double room[IMAGE_THREADS];
    const size_t k = blockIdx.x;
    float *p = x + k * dim;
    const float *d = g + k * dim;
    const float scale = a.l2 ? a.step / (float)(length(d, NULL, dim, room) + 1e-30) : a.step;
    for (size_t i = threadIdx.x; i < dim; i += IMAGE_THREADS)
        p[i] += scale * (a.l2 ? d[i] : (float)((d[i] > 0) - (d[i] < 0)));
    confine(p, x0 + k * dim, dim, a, room);
}

static void attack_start(Dev *dev, Tensor *x, const real *x0, Attack a, Rng key,
                         const StepState *now) {
    if (dev->err.kind) return;
    attack_start_kernel<<<(unsigned)x->n, IMAGE_THREADS, 0, cuda_of(dev)->stream>>>(
        (float *)x->p, x0, tensor_len(x) / (size_t)x->n, a, key, now);
    cuda_launched(dev, "attack_start");
}

static void attack_move(Dev *dev, Tensor *x, const Tensor *g, const real *x0, Attack a) {
    if (dev->err.kind) return;
    attack_move_kernel<<<(unsigned)x->n, IMAGE_THREADS, 0, cuda_of(dev)->stream>>>(
        (float *)x->p, (const float *)g->p, x0, tensor_len(x) / (size_t)x->n, a);
    cuda_launched(dev, "attack_move");
}

// ---- optimisers --------------------------------------------------------------------------------

// Four numbers a thread where the addresses allow it.
static int in_fours(const void *a, const void *b, const void *c, const void *d) {
    return !(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) & 15);
}

struct SgdRule {
    Sgd o;
    __device__ void step(float lr, float, float &w, float g, float &, float &v) const {
        v = o.momentum * v + (g + o.decay * w);
        w -= lr * v;
    }
};

struct AdamRule {
    Adam o;
    __device__ void step(float rate, float root, float &w, float g, float &m, float &v) const {
        const float d = g + o.decay * w;
        m = o.beta1 * m + (float)(1 - (double)o.beta1) * d;
        v = o.beta2 * v + (float)(1 - (double)o.beta2) * d * d;
        w -= rate * m / (sqrtf(v) / root + o.eps);
    }
};

static __device__ void rates(const SgdRule &, const StepState *now, float *rate, float *root) {
    *rate = now->in.lr;
    *root = 1;
}

static __device__ void rates(const AdamRule &r, const StepState *now, float *rate, float *root) {
    const double t = now->in.step + 1.0;
    *rate = (float)((double)now->in.lr / (1 - pow((double)r.o.beta1, t)));
    *root = (float)sqrt(1 - pow((double)r.o.beta2, t));
}

template <class Rule, int MOMENTS>
static __global__ void optim_kernel(size_t n, int fours, float *w, const float *g, float *m,
                                    float *v, Rule rule, const StepState *now) {
    __shared__ float shared[2];
    if (now->halt) return;
    if (threadIdx.x == 0) rates(rule, now, &shared[0], &shared[1]);
    __syncthreads();
    const float rate = shared[0], root = shared[1];
    const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x,
                 all = (size_t)gridDim.x * blockDim.x;
    const size_t whole = fours ? n / 4 : 0;
    for (size_t i = first; i < whole; i += all) {
        float4 fw = ((float4 *)w)[i], fv = ((float4 *)v)[i], fm = fv;
        const float4 fg = ((const float4 *)g)[i];
        if (MOMENTS == 2) fm = ((float4 *)m)[i];
        rule.step(rate, root, fw.x, fg.x, fm.x, fv.x);
        rule.step(rate, root, fw.y, fg.y, fm.y, fv.y);
        rule.step(rate, root, fw.z, fg.z, fm.z, fv.z);
        rule.step(rate, root, fw.w, fg.w, fm.w, fv.w);
        ((float4 *)w)[i] = fw;
        ((float4 *)v)[i] = fv;
        if (MOMENTS == 2) ((float4 *)m)[i] = fm;
    }
    for (size_t i = 4 * whole + first; i < n; i += all) {
        float none = 0;
        rule.step(rate, root, w[i], g[i], MOMENTS == 2 ? m[i] : none, v[i]);
    }
}

static void sgd(Dev *dev, size_t n, real *w, const real *g, real *v, Sgd o, const StepState *now) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    optim_kernel<SgdRule, 1><<<(unsigned)cuda->sms * 8, 256, 0, cuda->stream>>>(
        n, in_fours(w, g, v, v), w, g, NULL, v, SgdRule{ o }, now);
    cuda_launched(dev, "sgd");
}

static void adam(Dev *dev, size_t n, real *w, const real *g, real *m, real *v, Adam o,
                 const StepState *now) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    optim_kernel<AdamRule, 2><<<(unsigned)cuda->sms * 8, 256, 0, cuda->stream>>>(
        n, in_fours(w, g, v, m), w, g, m, v, AdamRule{ o }, now);
    cuda_launched(dev, "adam");
}

static __global__ void ema_kernel(size_t n, float *avg, const float *w, float keep,
                                  const StepState *now) {
    if (now->halt) return;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        avg[i] = keep * avg[i] + (1 - keep) * w[i];
}

static void ema(Dev *dev, size_t n, real *avg, const real *w, real keep, const StepState *now) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    ema_kernel<<<(unsigned)cuda->sms * 8, 256, 0, cuda->stream>>>(n, avg, w, keep, now);
    cuda_launched(dev, "ema");
}

enum { ASCEND_THREADS = 256 };

static __global__ void ascend_length_kernel(size_t n, const float *w, float *g, float *keep,
                                            double *part) {
    double square = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float v = g[i] * fabsf(w[i]);
        keep[i] = w[i];
        g[i] = v;
        square += (double)v * (double)v;
    }
    square = block_sum(square);
    if (threadIdx.x == 0) part[blockIdx.x] = square;
}

static __global__ void ascend_move_kernel(size_t n, float *w, const float *g, float radius,
                                          const double *part) {
    double square = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) square += part[i];
    square = block_sum(square);
    const float scale = square > 0 ? (float)((double)radius / sqrt(square)) : 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        w[i] += scale * fabsf(w[i]) * g[i];
}

static void sam_perturb(Dev *dev, size_t n, real *w, real *g, real radius, real *keep) {
    Cuda *cuda = cuda_of(dev);
    const unsigned blocks = (unsigned)cuda->sms * 8;
    cuda_reserve_partial(dev, blocks * sizeof(double));
    if (dev->err.kind) return;
    double *part = (double *)cuda->partial;
    ascend_length_kernel<<<blocks, ASCEND_THREADS, 0, cuda->stream>>>(n, w, g, keep, part);
    ascend_move_kernel<<<blocks, ASCEND_THREADS, 0, cuda->stream>>>(n, w, g, radius, part);
    cuda_launched(dev, "sam_perturb");
}

static __global__ void check_finite_kernel(size_t n, int fours, const float *g, StepState *now) {
    const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x,
                 all = (size_t)gridDim.x * blockDim.x;
    const size_t whole = fours ? n / 4 : 0;
    int bad = 0;
    for (size_t i = first; i < whole; i += all) {
        const float4 v = ((const float4 *)g)[i];
        bad |= !isfinite(v.x) | !isfinite(v.y) | !isfinite(v.z) | !isfinite(v.w);
    }
    for (size_t i = 4 * whole + first; i < n; i += all) bad |= !isfinite(g[i]);
    if (bad) atomicCAS(&now->halt, HALT_NO, HALT_GRAD);
}

static void check_finite(Dev *dev, size_t n, const real *g, StepState *now) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    check_finite_kernel<<<(unsigned)cuda->sms * 8, 256, 0, cuda->stream>>>(n, in_fours(g, g, g, g),
                                                                           g, now);
    cuda_launched(dev, "check");
}

void cuda_ops_table(Backend *be) {
    be->head = head;
    be->watch = watch;
    be->langevin = langevin;
    be->dot = dot;
    be->margin = margin;
    be->attack_start = attack_start;
    be->attack_move = attack_move;
    be->sgd = sgd;
    be->adam = adam;
    be->ema = ema;
    be->sam_perturb = sam_perturb;
    be->check_finite = check_finite;
}
