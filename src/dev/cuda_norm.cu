// cuda_norm.cu - norm, activation and residual sum; pooling.
//
// One kernel a direction. All its blocks are on the GPU at once, so that they can wait for each other:
// each reads its part of the tensor into shared memory, adds it up, meets the blocks that share its
// channels at a barrier, and finishes its part out of shared memory. So a forward pass reads x (and
// r) and writes (x and) y once, a backward pass reads x and dy and writes dx. What does not fit is read
// twice: first of all before the barrier, last of all behind it.
// A block's part is a range of pixels of a "slab" of up to four octs, an oct a thread and round. A thread
// only ever touches its own places in shared memory. Sums are taken in a fixed order.
#include "dev/cuda.cuh"

enum { MOST_SLAB = 32, MOST_SLABS = 128, BARRIER_GAP = 8, THREADS = 512, WARPS = THREADS / 32 };

struct NormArgs {
    void        *x, *y;                // backward: y is dx
    const void  *r, *dy;
    const float *bx, *br;              // biases that x and r still lack, or NULL
    Norm         op;
    float       *dgamma, *dbeta;
    float       *part;                 // [slab][chunk][2][slab's channels]
    unsigned    *barrier;              // [slab], BARRIER_GAP apart
    int          pixels, octs, c, slabs, chunks, per_chunk, keep;   // keep: rounds kept in shared memory
    int          write_x, sums;        // forward: x changes; backward: sums are wanted
};

// Blocks of one slab wait until all `n` of them have come. barrier[0] counts them, barrier[1] the
// meetings so far. One thread asks, or the asking would slow down those that are not so far.
static __device__ void meet(unsigned *barrier, unsigned n) {
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile unsigned *meetings = barrier + 1;
        const unsigned before = *meetings;
        __threadfence();
        if (atomicAdd(barrier, 1) == n - 1) {
            *(volatile unsigned *)barrier = 0;
            __threadfence();
            atomicAdd(barrier + 1, 1);
        } else
            while (*meetings == before) {}
        __threadfence();
    }
    __syncthreads();
}

// Adds a[8] and b[8] up over all threads of the block that share an oct, to sum[0 .. 1][channel].
template <int SO>
static __device__ void block_sums(float a[8], float b[8], float red[WARPS][2][MOST_SLAB],
                                  float sum[2][MOST_SLAB]) {
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    #pragma unroll
    for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int d = SO; d < 32; d *= 2) {
            a[i] += __shfl_xor_sync(~0u, a[i], d);
            b[i] += __shfl_xor_sync(~0u, b[i], d);
        }
    if (lane < SO)
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            red[warp][0][8 * lane + i] = a[i];
            red[warp][1][8 * lane + i] = b[i];
        }
    __syncthreads();
    if (t < 2 * 8 * SO) {
        const int which = t / (8 * SO), ch = t % (8 * SO);
        float s = 0;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) s += red[w][which][ch];
        sum[which][ch] = s;
    }
    __syncthreads();
}

// ---- copies that run ahead -----------------------------------------------------------------------

template <class T> static __device__ void fetch(Pack<T> *to, const void *base, size_t oct) {
    const unsigned dst = (unsigned)__cvta_generic_to_shared(to);
    const char *src = (const char *)base + oct * sizeof(Pack<T>);
    #pragma unroll
    for (unsigned i = 0; i < sizeof(Pack<T>); i += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + i), "l"(src + i)
                     : "memory");
}

static __device__ void fetched_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> static __device__ void all_but_last() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// The order in which rounds are read and where they lie: those that will not be kept come first,
// through the last D of the kept rounds' places.
template <int D> struct Order {
    int rounds, keep, tail;
    __device__ int round(int j) const { return j < tail ? keep + j : j - tail; }
    __device__ int place(int j) const { return j < tail ? keep - D + j % D : j - tail; }
};

// Where a thread works: its oct, its pixels p0 + row, p0 + row + ROWS, ...
template <int SO> struct Part {
    int    t, slab, chunk, oct, p0, p1, rounds;
    size_t at0, pace;
    __device__ Part(const NormArgs &a) {
        constexpr int ROWS = THREADS / SO;
        t = (int)threadIdx.x;
        slab = (int)blockIdx.x % a.slabs;
        chunk = (int)blockIdx.x / a.slabs;
        oct = slab * SO + t % SO;
        p0 = chunk * a.per_chunk;
        p1 = min(a.pixels, p0 + a.per_chunk);
        const int row = t / SO;
        rounds = oct < a.octs && p0 + row < p1 ? (p1 - p0 - row + ROWS - 1) / ROWS : 0;
        at0 = (size_t)(p0 + row) * a.octs + oct;
        pace = (size_t)ROWS * a.octs;
    }
};

template <class T, int SO, int D>
static __global__ void __launch_bounds__(THREADS, 1) norm_fwd_kernel(const NormArgs a) {
    constexpr int W = 8 * SO, GROUPS = THREADS / W;
    extern __shared__ uint4 kept_raw[];
    Pack<T> *kept = (Pack<T> *)kept_raw, *ring = kept + a.keep * THREADS;      // ring: r, D rounds
    __shared__ float red[WARPS][2][MOST_SLAB], sum[2][MOST_SLAB], first[MOST_SLAB];
    __shared__ float coef[2][MOST_SLAB], joined[2][THREADS];
    after_previous();
    const Part<SO> me(a);
    const int t = me.t, rounds = me.rounds, stats = a.op.gamma && a.op.batch_stats;
    const Order<D> order = { rounds, min(rounds, a.keep), max(rounds - a.keep, 0) };
    float *part = a.part + (size_t)me.slab * a.chunks * 2 * W;
    // what the threads that finish the statistics will need
    const int c = me.slab * W + t, mine = t < W && c < a.c && a.op.gamma;
    const float gamma = mine ? a.op.gamma[c] : 0, beta = mine ? a.op.beta[c] : 0;
    const float run_mean = mine ? a.op.run_mean[c] : 0, run_var = mine ? a.op.run_var[c] : 0;
    // a bias that x still lacks belongs to the mean, not to x
    const float bias = mine && !a.write_x && a.bx ? a.bx[c] : 0;

    if (stats || a.write_x) {
        auto run_ahead = [&](int j) {
            if (j < rounds) {
                const size_t at = me.at0 + order.round(j) * me.pace;
                fetch<T>(&kept[order.place(j) * THREADS + t], a.x, at);
                if (a.r) fetch<T>(&ring[j % D * THREADS + t], a.r, at);
            }
            fetched_group();
        };
        for (int j = 0; j < D; j++) run_ahead(j);
        Oct shift, s, q, add;
        #pragma unroll
        for (int k = 0; k < 8; k++) shift.v[k] = s.v[k] = q.v[k] = 0;
        if (a.write_x) {
            const Oct br = oct_of(a.br, me.oct, a.c);
            add = oct_of(a.bx, me.oct, a.c);
            #pragma unroll
            for (int k = 0; k < 8; k++) add.v[k] += br.v[k];
        }
        for (int j = 0; j < rounds; j++) {
            all_but_last<D - 1>();
            Oct v = unpack(kept[order.place(j) * THREADS + t]);
            if (a.r) {
                const Oct r = unpack(ring[j % D * THREADS + t]);
                #pragma unroll
                for (int k = 0; k < 8; k++) v.v[k] += r.v[k];
            }
            if (a.write_x) {
                #pragma unroll
                for (int k = 0; k < 8; k++) v.v[k] += add.v[k];
                const Pack<T> p = pack<T>(v);
                pack_store<T>(a.x, me.at0 + order.round(j) * me.pace, p);
                if (j >= order.tail) kept[order.place(j) * THREADS + t] = p;
                v = unpack(p);                        // the statistics are of what is stored
            }
            run_ahead(j + D);
            if (j == 0) shift = v;
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                const float d = v.v[k] - shift.v[k];
                s.v[k] += d;
                q.v[k] += d * d;
            }
        }
        if (stats) {
            // all threads' sums to the first thread's first values as the common origin
            if (t < SO)
                #pragma unroll
                for (int k = 0; k < 8; k++) first[8 * t + k] = shift.v[k];
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                const float d = rounds ? shift.v[k] - first[8 * (t % SO) + k] : 0;
                q.v[k] += 2 * d * s.v[k] + (float)rounds * d * d;
                s.v[k] += (float)rounds * d;
            }
            block_sums<SO>(s.v, q.v, red, sum);
            if (t < W) {
                const float mean = sum[0][t] / (float)(me.p1 - me.p0);
                part[(me.chunk * 2) * W + t] = first[t] + mean;
                part[(me.chunk * 2 + 1) * W + t] = fmaxf(sum[1][t] - sum[0][t] * mean, 0);
            }
            meet(a.barrier + me.slab * BARRIER_GAP, (unsigned)a.chunks);
            // means and squares of all parts, from the first part's mean as the origin
            float total = 0, square = 0;
            const float origin = __ldcg(&part[t % W]);
            for (int k = t / W; k < a.chunks; k += GROUPS) {
                const float n = (float)(min(a.pixels, (k + 1) * a.per_chunk) - k * a.per_chunk);
                const float d = __ldcg(&part[(k * 2) * W + t % W]) - origin;
                total += n * d;
                square += __ldcg(&part[(k * 2 + 1) * W + t % W]) + n * d * d;
            }
            joined[0][t] = total;
            joined[1][t] = square;
            __syncthreads();
            if (t < W) first[t] = origin;
        }
    }
    if (t < W) {
        float scale = c < a.c, offset = 0;
        if (mine) {
            float mean = run_mean, var = run_var;
            if (stats) {
                float total = 0, square = 0;
                #pragma unroll
                for (int k = 0; k < GROUPS; k++)
                    total += joined[0][k * W + t], square += joined[1][k * W + t];
                const float n = (float)a.pixels, m2 = fmaxf(square - total * total / n, 0),
                            k = a.op.momentum;
                mean = first[t] + total / n + bias;
                var = m2 / n;
                if (a.op.update && me.chunk == 0) {
                    a.op.run_mean[c] = (1 - k) * run_mean + k * mean;
                    a.op.run_var[c] = (1 - k) * run_var + k * (n > 1 ? m2 / (n - 1) : m2);
                }
            }
            const float rstd = 1 / sqrtf(var + a.op.eps);
            if (me.chunk == 0) {
                a.op.mean[c] = mean;
                a.op.rstd[c] = rstd;
            }
            scale = gamma * rstd;
            offset = beta - (mean - bias) * scale;
        }
        coef[0][t] = scale;
        coef[1][t] = offset;
    }
    __syncthreads();

    const int have = stats || a.write_x ? order.keep : 0;
    Oct scale, offset;
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        scale.v[k] = coef[0][8 * (t % SO) + k];
        offset.v[k] = coef[1][8 * (t % SO) + k];
    }
    auto finish = [&](int i, Pack<T> p) {
        Oct v = unpack(p);
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            const float z = scale.v[k] * v.v[k] + offset.v[k];
            v.v[k] = fmaxf(z, a.op.leak * z);             // the leak lies between 0 and 1
        }
        pack_store<T>(a.y, me.at0 + i * me.pace, pack<T>(v));
    };
    #pragma unroll 4
    for (int i = 0; i < have; i++) finish(i, kept[i * THREADS + t]);
    #pragma unroll 4
    for (int i = have; i < rounds; i++) finish(i, pack_load<T>(a.x, me.at0 + i * me.pace));
}

// The gradient behind the activation: dy, times the leak where the forward pass was negative.
static __device__ Oct behind(const Oct &x, Oct dy, const Oct &scale, const Oct &offset,
                             float leak) {
    #pragma unroll
    for (int k = 0; k < 8; k++)
        if (!(scale.v[k] * x.v[k] + offset.v[k] > 0)) dy.v[k] *= leak;
    return dy;
}

template <class T, int SO, int D>
static __global__ void __launch_bounds__(THREADS, 1) norm_bwd_kernel(const NormArgs a) {
    constexpr int W = 8 * SO, GROUPS = THREADS / W;
    extern __shared__ uint4 kept_raw[];
    Pack<T> *kept = (Pack<T> *)kept_raw;               // x and dy of each round; then dx as it was, D rounds
    Pack<T> *ring = kept + 2 * a.keep * THREADS;
    __shared__ float red[WARPS][2][MOST_SLAB], sum[2][MOST_SLAB], joined[2][THREADS];
    after_previous();
    const Part<SO> me(a);
    const int t = me.t, rounds = me.rounds;
    float *part = a.part + (size_t)me.slab * a.chunks * 2 * W;
    const Order<D> order = { rounds, min(rounds, a.keep), max(rounds - a.keep, 0) };

    auto run_ahead = [&](int j) {
        if (j < rounds) {
            const size_t at = me.at0 + order.round(j) * me.pace;
            fetch<T>(&kept[2 * order.place(j) * THREADS + t], a.x, at);
            fetch<T>(&kept[(2 * order.place(j) + 1) * THREADS + t], a.dy, at);
        }
        fetched_group();
    };
    if (a.sums)
        for (int j = 0; j < D; j++) run_ahead(j);

    Oct scale, offset, s, q;                           // y = leaky(scale x + offset)
    {
        const Oct beta = oct_of(a.op.beta, me.oct, a.c), bias = oct_of(a.bx, me.oct, a.c);
        const Oct mean = oct_of(a.op.gamma ? a.op.mean : NULL, me.oct, a.c);
        const Oct rstd = oct_of(a.op.gamma ? a.op.rstd : NULL, me.oct, a.c);
        scale = oct_of(a.op.gamma, me.oct, a.c);
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            scale.v[k] = a.op.gamma ? scale.v[k] * rstd.v[k] : 1;
            offset.v[k] = a.op.gamma ? beta.v[k] - (mean.v[k] - bias.v[k]) * scale.v[k] : 0;
            s.v[k] = q.v[k] = 0;
        }
    }
    if (a.sums)
        for (int j = 0; j < rounds; j++) {
            all_but_last<D - 1>();
            const Oct x = unpack(kept[2 * order.place(j) * THREADS + t]);
            const Oct dy = unpack(kept[(2 * order.place(j) + 1) * THREADS + t]);
            run_ahead(j + D);
            const Oct dz = behind(x, dy, scale, offset, a.op.leak);
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                s.v[k] += dz.v[k];
                q.v[k] += dz.v[k] * x.v[k];               // the mean is taken off at the end
            }
        }

    // what the last part needs from memory: rounds that were not kept, into places that come free, and dx
    const int have = a.sums ? order.keep : 0;
    auto ahead_again = [&](int i) {
        if (i < rounds && a.y) {
            const size_t at = me.at0 + i * me.pace;
            const int place = (i - have) % D;
            if (i >= have) fetch<T>(&kept[2 * place * THREADS + t], a.x, at);
            if (i >= have) fetch<T>(&kept[(2 * place + 1) * THREADS + t], a.dy, at);
            if (a.op.add_dx) fetch<T>(&ring[i % D * THREADS + t], a.y, at);
        }
        fetched_group();
    };
    for (int i = 0; i < D; i++) ahead_again(i);

    if (a.sums) {
        block_sums<SO>(s.v, q.v, red, sum);
        if (t < 2 * W) part[me.chunk * 2 * W + t] = sum[t / W][t % W];
        const int channel = me.slab * W + t % W, mine = t < W && channel < a.c;
        const float rstd = mine ? a.op.rstd[channel] : 0, gamma = mine ? a.op.gamma[channel] : 0;
        const float mean = mine ? a.op.mean[channel] - (a.bx ? a.bx[channel] : 0) : 0;
        float total[2] = { 0, 0 };
        meet(a.barrier + me.slab * BARRIER_GAP, (unsigned)a.chunks);
        for (int k = t / W; k < a.chunks; k += GROUPS) {
            total[0] += __ldcg(&part[(k * 2) * W + t % W]);
            total[1] += __ldcg(&part[(k * 2 + 1) * W + t % W]);
        }
        joined[0][t] = total[0];
        joined[1][t] = total[1];
        __syncthreads();
        if (t < W) {
            float all = 0, dot = 0;                   // of dz; of dz times the normalised x
            #pragma unroll
            for (int k = 0; k < GROUPS; k++)
                all += joined[0][k * W + t], dot += joined[1][k * W + t];
            dot = (dot - mean * all) * rstd;
            if (me.chunk == 0 && mine && a.dbeta) a.dbeta[channel] += all;
            if (me.chunk == 0 && mine && a.dgamma) a.dgamma[channel] += dot;
            // dx = scale dz - k1 - k2 x
            const float k2 = gamma * rstd * rstd * dot / (float)a.pixels;
            sum[0][t] = a.op.batch_stats ? gamma * rstd * all / (float)a.pixels - mean * k2 : 0;
            sum[1][t] = a.op.batch_stats ? k2 : 0;
        }
        __syncthreads();
    }
    if (!a.y) return;

    Oct k1, k2;
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        k1.v[k] = a.sums ? sum[0][8 * (t % SO) + k] : 0;
        k2.v[k] = a.sums ? sum[1][8 * (t % SO) + k] : 0;
    }
    for (int i = 0; i < rounds; i++) {
        all_but_last<D - 1>();
        const int place = i < have ? i : (i - have) % D;
        const Oct x = unpack(kept[2 * place * THREADS + t]),
                  dy = unpack(kept[(2 * place + 1) * THREADS + t]);
        Oct old;
        if (a.op.add_dx) old = unpack(ring[i % D * THREADS + t]);
        ahead_again(i + D);
        Oct g = behind(x, dy, scale, offset, a.op.leak);
        #pragma unroll
        for (int k = 0; k < 8; k++) g.v[k] = scale.v[k] * g.v[k] - k1.v[k] - k2.v[k] * x.v[k];
        if (a.op.add_dx)
            #pragma unroll
            for (int k = 0; k < 8; k++) g.v[k] += old.v[k];
        pack_store<T>(a.y, me.at0 + i * me.pace, pack<T>(g));
    }
}

// ---- launching -----------------------------------------------------------------------------------

typedef void Kernel(const NormArgs);
enum { AHEAD_FWD = 6, AHEAD_BWD = 3 };         // rounds that copies run ahead; 1 where there is little room

template <class T, int SO> static Kernel *kernel_for(int backward, int deep) {
    if (backward) return deep ? norm_bwd_kernel<T, SO, AHEAD_BWD> : norm_bwd_kernel<T, SO, 1>;
    return deep ? norm_fwd_kernel<T, SO, AHEAD_FWD> : norm_fwd_kernel<T, SO, 1>;
}

static Kernel *kernel_of(int half, int backward, int so, int deep) {
    if (half)
        return so == 4   ? kernel_for<bf16, 4>(backward, deep)
               : so == 2 ? kernel_for<bf16, 2>(backward, deep)
                         : kernel_for<bf16, 1>(backward, deep);
    return so == 4   ? kernel_for<float, 4>(backward, deep)
           : so == 2 ? kernel_for<float, 2>(backward, deep)
                     : kernel_for<float, 1>(backward, deep);
}

static size_t dynamic_smem(const Cuda *cuda) {
    return (size_t)(cuda->smem - 10 * 1024) / 1024 * 1024;
}

void cuda_norm_start(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    for (int i = 0; i < 12 && !dev->err.kind; i++)
        cuda_failed(dev,
                    cudaFuncSetAttribute(
                        (const void *)kernel_of(cuda->half, i & 1, 1 << i / 4, i & 2),
                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)dynamic_smem(cuda)),
                    "preparing norms");
    // all blocks together are no more than multiprocessors
    cuda_reserve_partial(dev, (size_t)cuda->sms * 2 * MOST_SLAB * sizeof(float));
    cuda->barrier =
        (unsigned *)dev->be.alloc(dev, MOST_SLABS * BARRIER_GAP * sizeof(unsigned), "barriers");
    dev->be.zero(dev, cuda->barrier, MOST_SLABS * BARRIER_GAP * sizeof(unsigned));
}

// How many rounds can be kept: all, or at least twice as many as copies run ahead.
static int rounds_kept(const Cuda *cuda, int rounds, int ahead, size_t kept, size_t ring) {
    const size_t room = dynamic_smem(cuda);
    if (ring * (size_t)ahead >= room) return 0;
    const int most = (int)((room - ring * (size_t)ahead) / kept);
    if (rounds < ahead) rounds = ahead;
    return most >= rounds ? rounds : most >= 2 * ahead ? most : 0;
}

static void launch(Dev *dev, NormArgs *a, const Tensor *x, int backward) {
    Cuda *cuda = cuda_of(dev);
    a->octs = octs_of(x);
    a->c = x->c;
    a->pixels = pixels_of(x);
    const int so = a->octs >= 4 ? 4 : a->octs >= 2 ? 2 : 1;
    a->slabs = (a->octs + so - 1) / so;
    if (a->slabs > MOST_SLABS || a->slabs > cuda->sms) {
        err_set(&dev->err, ERR_ARG, "a norm over %d channels is more than this device can do",
                x->c);
        return;
    }
    const int rows = THREADS / so, most = cuda->sms / a->slabs;
    a->chunks = (a->pixels + rows - 1) / rows < most ? (a->pixels + rows - 1) / rows : most;
    a->per_chunk = (a->pixels + a->chunks - 1) / a->chunks;
    a->chunks = (a->pixels + a->per_chunk - 1) / a->per_chunk;
    a->part = cuda->partial;
    a->barrier = cuda->barrier;
    const size_t round = (size_t)THREADS * 8 * cuda->elem, kept = backward ? 2 * round : round;
    const size_t ring = backward ? (a->op.add_dx ? round : 0) : a->r ? round : 0;
    const int rounds = (a->per_chunk + rows - 1) / rows;
    int ahead = backward ? AHEAD_BWD : AHEAD_FWD;
    a->keep = rounds_kept(cuda, rounds, ahead, kept, ring);
    const int deep = a->keep > 0;
    if (!deep) {
        ahead = 1;
        a->keep = rounds_kept(cuda, rounds, ahead, kept, ring);
    }
    cuda_failed(dev,
                launch_early(cuda, kernel_of(cuda->half, backward, so, deep),
                             (unsigned)(a->slabs * a->chunks), THREADS,
                             (size_t)a->keep * kept + ring * (size_t)ahead, 1, *a),
                backward ? "norm_bwd" : "norm_fwd");
}

static void norm_fwd(Dev *dev, const Norm *op, Tensor *x, const Tensor *r, Tensor *y) {
    if (dev->err.kind) return;
    NormArgs a = { .x = x->p, .y = y->p, .r = r ? r->p : NULL };
    a.op = *op;
    a.bx = cuda_pending(dev, x->p);
    a.br = r ? cuda_pending(dev, r->p) : NULL;
    a.write_x = r || (!op->gamma && a.bx);
    launch(dev, &a, x, 0);
    if (a.write_x) cuda_set_pending(dev, x, NULL);
    cuda_set_pending(dev, y, NULL);
}

static void norm_bwd(Dev *dev, const Norm *op, const Tensor *x, const Tensor *dy, Tensor *dx,
                     real *dgamma, real *dbeta) {
    if (dev->err.kind) return;
    NormArgs a = { .x = x->p, .y = dx ? dx->p : NULL };
    a.dy = dy->p;
    a.op = *op;
    a.bx = cuda_pending(dev, x->p);
    a.dgamma = dgamma;
    a.dbeta = dbeta;
    a.sums = op->gamma && (dgamma || dbeta || (op->batch_stats && dx));
    if (!a.sums && !dx) return;
    launch(dev, &a, x, 1);
    if (dx) cuda_set_pending(dev, dx, NULL);
}

// ---- pooling -------------------------------------------------------------------------------------

enum { POOL_OCTS = 16, POOL_LANES = 16 };

// A block takes 16 octs of an image, 16 threads each.
template <class T>
static __global__ void pool_fwd_kernel(const void *x, float *y, int octs, int c, int hw) {
    __shared__ Oct part[POOL_LANES][POOL_OCTS];
    const int o = (int)threadIdx.x, lane = (int)threadIdx.y, n = (int)blockIdx.y;
    const int oct = (int)blockIdx.x * POOL_OCTS + o;
    Oct s;
    #pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = 0;
    for (int p = lane; oct < octs && p < hw; p += POOL_LANES) {
        const Oct v = unpack(pack_load<T>(x, ((size_t)n * hw + p) * octs + oct));
        #pragma unroll
        for (int k = 0; k < 8; k++) s.v[k] += v.v[k];
    }
    part[lane][o] = s;
    __syncthreads();
    const int i = lane * POOL_OCTS + o, ch = (int)blockIdx.x * POOL_OCTS * 8 + i;
    if (i >= 8 * POOL_OCTS || ch >= c) return;
    float all = 0;
    for (int l = 0; l < POOL_LANES; l++) all += part[l][i / 8].v[i % 8];
    y[(size_t)n * c + ch] = all / (float)hw;
}

template <class T>
static __global__ void pool_bwd_kernel(const float *dy, void *dx, size_t n, int octs, int c,
                                       int hw) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t image = i / (size_t)octs / (size_t)hw;
    Oct v = oct_of(dy + image * c, (int)(i % (size_t)octs), c);
    #pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] /= (float)hw;
    pack_store<T>(dx, i, pack<T>(v));
}

static void pool_fwd(Dev *dev, const Tensor *x, Tensor *y) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    cuda_settle(dev, x);
    const int octs = octs_of(x), hw = x->h * x->w;
    const dim3 grid(blocks_for((size_t)octs, POOL_OCTS), (unsigned)x->n),
        block(POOL_OCTS, POOL_LANES);
    if (cuda->half)
        pool_fwd_kernel<bf16>
            <<<grid, block, 0, cuda->stream>>>(x->p, (float *)y->p, octs, x->c, hw);
    else
        pool_fwd_kernel<float>
            <<<grid, block, 0, cuda->stream>>>(x->p, (float *)y->p, octs, x->c, hw);
    cuda_launched(dev, "pool_fwd");
}

static void pool_bwd(Dev *dev, const Tensor *dy, Tensor *dx) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const int octs = octs_of(dx), hw = dx->h * dx->w;
    const size_t n = (size_t)pixels_of(dx) * octs;
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half)
        pool_bwd_kernel<bf16>
            <<<grid, 256, 0, cuda->stream>>>((const float *)dy->p, dx->p, n, octs, dx->c, hw);
    else
        pool_bwd_kernel<float>
            <<<grid, 256, 0, cuda->stream>>>((const float *)dy->p, dx->p, n, octs, dx->c, hw);
    cuda_launched(dev, "pool_bwd");
    cuda_set_pending(dev, dx, NULL);
}

void cuda_norm_table(Backend *be) {
    be->norm_fwd = norm_fwd;
    be->norm_bwd = norm_bwd;
    be->pool_fwd = pool_fwd;
    be->pool_bwd = pool_bwd;
}
