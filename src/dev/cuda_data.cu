// cuda_data.cu - batches, augmentation, the replay buffer's rows, chain starts.
#include "dev/cuda.cuh"

static __global__ void pick_kernel(int from, int n, Rng key, const StepState *now, int *index) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    key = rng_now(key, now);
    const uint32_t batches = (uint32_t)(from / n);     // the last, short batch is dropped
    const uint32_t first = key.step % batches * (uint32_t)n;
    key.step /= batches;
    index[i] = (int)rng_perm(key, (uint32_t)from, first + (uint32_t)i);
}

static void pick(Dev *dev, int from, int n, Rng key, const StepState *now, int *index) {
    if (dev->err.kind) return;
    pick_kernel<<<blocks_for((size_t)n, 64), 64, 0, cuda_of(dev)->stream>>>(from, n, key, now,
                                                                            index);
    cuda_launched(dev, "pick");
}

static __global__ void slots_kernel(Slots s, Rng key, const StepState *now, int *slot, int *y) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= s.batch) return;
    slot[i] = slots_of(s, rng_now(key, now), i);
    y[i] = slot_class(slot[i], s.n, s.classes);
}

static void slots(Dev *dev, Slots s, Rng key, const StepState *now, int *slot, int *y) {
    if (dev->err.kind) return;
    slots_kernel<<<blocks_for((size_t)s.batch, 64), 64, 0, cuda_of(dev)->stream>>>(s, key, now,
                                                                                   slot, y);
    cuda_launched(dev, "slots");
}

static __device__ int reflect(int i, int n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

// A thread makes four pixels of an image: those that share a block of random numbers.
static __global__ void batch_kernel(Bytes set, const int *index, Augment a, Rng key,
                                    const StepState *now, float *x, int *y) {
    const int k = (int)blockIdx.y, S = set.side;
    const size_t dim = (size_t)set.c * S * S,
                 b = 4 * (blockIdx.x * (size_t)blockDim.x + threadIdx.x);
    if (b >= dim) return;
    key = rng_now(key, now);
    Rng move = key, noise = key;
    move.sub = 1;
    noise.sub = 2;
    const uint8_t *src = set.x + (size_t)index[k] * dim;
    const uint32_t row = first_row(now) + (uint32_t)(a.from + k);
    const uint32_t span = (uint32_t)(2 * a.pad + 1), at = row * 4;
    const int di = (int)rng_below(move, at, span) - a.pad,
              dj = (int)rng_below(move, at + 1, span) - a.pad;
    const int mirror = a.flip && rng_u32(move, at + 2) & 1;
    float z[4] = { 0, 0, 0, 0 };
    if (a.noise > 0) rng_normal4(noise, (uint32_t)((row * dim + b) / 4), z);
    for (size_t e = b; e < dim && e < b + 4; e++) {
        const int j = (int)(e % (size_t)S), i = (int)(e / (size_t)S % (size_t)S),
                  c = (int)(e / (size_t)(S * S));
        const int ii = reflect(i + di, S), jj = reflect((mirror ? S - 1 - j : j) + dj, S);
        float v = (float)src[(c * S + ii) * S + jj] / 127.5f - 1;
        if (a.noise > 0) v += a.noise * z[e - b];
        x[(size_t)k * dim + e] = v;
    }
    if (y && b == 0) y[k] = set.y[index[k]];
}

static void batch(Dev *dev, const Bytes *set, const int *index, int n, Augment a, Rng key,
                  const StepState *now, real *x, int *y) {
    if (dev->err.kind) return;
    const size_t dim = (size_t)set->c * set->side * set->side;
    const dim3 grid(blocks_for((dim + 3) / 4, 128), (unsigned)n);
    batch_kernel<<<grid, 128, 0, cuda_of(dev)->stream>>>(*set, index, a, key, now, x, y);
    cuda_launched(dev, "batch");
}

static __global__ void rows_kernel(float *dst, const float *src, const int *to, const int *from,
                                   size_t dim, const StepState *now) {
    const size_t k = blockIdx.y, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= dim || (now && now->halt)) return;
    dst[(to ? (size_t)to[k] : k) * dim + i] = src[(from ? (size_t)from[k] : k) * dim + i];
}

static void rows_get(Dev *dev, real *dst, const real *src, const int *index, int n, size_t dim) {
    if (dev->err.kind) return;
    rows_kernel<<<dim3(blocks_for(dim, 256), (unsigned)n), 256, 0, cuda_of(dev)->stream>>>(
        dst, src, NULL, index, dim, NULL);
    cuda_launched(dev, "rows_get");
}

static void rows_put(Dev *dev, real *dst, const real *src, const int *index, int n, size_t dim,
                     const StepState *now) {
    if (dev->err.kind) return;
    rows_kernel<<<dim3(blocks_for(dim, 256), (unsigned)n), 256, 0, cuda_of(dev)->stream>>>(
        dst, src, index, NULL, dim, now);
    cuda_launched(dev, "rows_put");
}

// A block takes one row; how many rows before it start afresh says which of the pool is next.
static __global__ void reinit_kernel(float *x, size_t dim, Slots s, const float *pool, int n_pool,
                                     Rng key, const StepState *now) {
    const int here = (int)blockIdx.x, row = (int)now->in.first + here;
    key = rng_now(key, now);
    if (!slots_is_fresh(s, key, row)) return;
    int before = 0;
    for (int base = 0; base < row; base += (int)blockDim.x) {
        const int j = base + (int)threadIdx.x;
        before += __syncthreads_count(j < row && slots_is_fresh(s, key, j));
    }
    const size_t at = (now->in.drawn + (uint32_t)before) % (uint32_t)n_pool;
    for (size_t i = threadIdx.x; i < dim; i += blockDim.x)
        x[(size_t)here * dim + i] = pool[at * dim + i];
}

static void reinit(Dev *dev, real *x, int n, size_t dim, Slots s, const real *pool, int n_pool,
                   Rng key, const StepState *now) {
    if (dev->err.kind) return;
    reinit_kernel<<<(unsigned)n, 128, 0, cuda_of(dev)->stream>>>(x, dim, s, pool, n_pool, key, now);
    cuda_launched(dev, "reinit");
}

// ---- chain starts ------------------------------------------------------------------------------
// A block makes AT_ONCE draws of COLUMNS pixels each: a row of images is read once for all of them.

enum { AT_ONCE = 16, COLUMNS = 128, DEEP = 64 };

static __global__ void __launch_bounds__(COLUMNS)
    gauss_kernel(Gauss g, const int *number, int n, Rng key, float *out, int n_out) {
    __shared__ float z[DEEP][AT_ONCE];
    __shared__ int rows[DEEP];
    const int t = (int)threadIdx.x, first = (int)blockIdx.y * AT_ONCE;
    const size_t dim = (size_t)g.dim, i = blockIdx.x * (size_t)COLUMNS + t;
    float s[AT_ONCE], total[AT_ONCE];
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) s[k] = total[k] = 0;
    for (int base = 0; base < g.n; base += DEEP) {
        __syncthreads();
        // four normals come at a time
        for (int e = t; e < DEEP / 4 * AT_ONCE; e += COLUMNS) {
            const int k = e % AT_ONCE, r = e / AT_ONCE * 4;
            float four[4] = { 0, 0, 0, 0 };
            if (first + k < n && base + r < g.n) {
                Rng at = key;
                at.step += (uint32_t)number[first + k];
                at.sub = 1;
                rng_normal4(at, (uint32_t)((base + r) / 4), four);
            }
            for (int j = 0; j < 4; j++) z[r + j][k] = base + r + j < g.n ? g.scale * four[j] : 0;
        }
        for (int r = t; r < DEEP; r += COLUMNS)
            rows[r] = base + r < g.n ? (g.factor ? base + r : g.rows[base + r]) : 0;
        __syncthreads();
        if (i >= dim) continue;
        const int deep = min(DEEP, g.n - base);
        #pragma unroll 4
        for (int r = 0; r < deep; r++) {
            const size_t at = (size_t)rows[r] * dim + i;
            const float v = g.factor ? g.factor[at] : (float)g.bytes[at] / 127.5f - 1;
            #pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                s[k] += z[r][k] * v;
                total[k] += z[r][k];
            }
        }
    }
    if (i >= dim) return;
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        if (first + k >= n) break;
        Rng eta = key;
        eta.step += (uint32_t)number[first + k];
        eta.sub = 2;
        const float keep = g.factor ? 1 : 1 - total[k];
        const float v = s[k] + keep * g.mean[i] + g.jitter * rng_normal(eta, i);
        out[draw_row(number[first + k], n_out) * dim + i] = fminf(fmaxf(v, -1), 1);
    }
}

static void gauss(Dev *dev, const Gauss *g, const int *number, int n, Rng key, real *out,
                  int n_out) {
    if (dev->err.kind || n <= 0) return;
    const dim3 grid(blocks_for((size_t)g->dim, COLUMNS), blocks_for((size_t)n, AT_ONCE));
    gauss_kernel<<<grid, COLUMNS, 0, cuda_of(dev)->stream>>>(*g, number, n, key, out, n_out);
    cuda_launched(dev, "gauss");
}

static __global__ void uniform_kernel(const int *number, size_t dim, Rng key, float *out,
                                      int n_out) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const int which = number[blockIdx.y];
    if (i >= dim) return;
    key.step += (uint32_t)which;
    out[draw_row(which, n_out) * dim + i] = 2 * rng_uniform(key, i) - 1;
}

static void uniform(Dev *dev, const int *number, int n, size_t dim, Rng key, real *out, int n_out) {
    if (dev->err.kind || n <= 0) return;
    uniform_kernel<<<dim3(blocks_for(dim, 256), (unsigned)n), 256, 0, cuda_of(dev)->stream>>>(
        number, dim, key, out, n_out);
    cuda_launched(dev, "uniform");
}

void cuda_data_table(Backend *be) {
    be->pick = pick;
    be->slots = slots;
    be->batch = batch;
    be->rows_get = rows_get;
    be->rows_put = rows_put;
    be->reinit = reinit;
    be->gauss = gauss;
    be->uniform = uniform;
}
