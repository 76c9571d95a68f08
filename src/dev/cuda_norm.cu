// cuda_norm.cu - norm, activation and residual sum.
//
// One kernel per direction. All its blocks are on the GPU at once, so that they can wait for each
// other: each reads its part of the tensor into shared memory, adds it up, waits for the blocks
// that share its channels, and finishes its part out of shared memory. So a forward pass reads x
// (and r) and writes (x and) y once, a backward pass reads x and dy and writes dx. What does not
// fit into shared memory a backward pass keeps in registers, as far as these reach; the rest is
// read twice: first of all before the barrier, last of all after it.
//
// A block's part is a chunk of pixels of a tile of up to four 8-channel vectors. In each round a
// thread handles one vector of one pixel; it only ever touches its own slots in shared memory. Sums
// are taken in a fixed order.
#include "dev/cuda_norm_bwd.cuh"

// ---- forward -----------------------------------------------------------------------------------

struct FwdShared {
    float red[WARPS][2][TILE_CHANNELS], sum[2][TILE_CHANNELS], first[TILE_CHANNELS];
    float coef[2][TILE_CHANNELS], joined[2][THREADS];
};

struct VecMoments {
    Vec8 shift, s, q;
}; // sums of v - shift and of its squares

struct Channel {                       // what the thread that finishes a channel's statistics needs
    int   c, mine;
    float gamma, beta, run_mean, run_var, bias;
};

template <int TV>
static __device__ __forceinline__ Channel channel_of(const NormArgs &a, const ThreadWork<TV> &me) {
    const int c = me.tile * 8 * TV + me.t, mine = me.t < 8 * TV && c < a.c && a.op.gamma;
    Channel ch = { c, mine };
    ch.gamma = mine ? a.op.gamma[c] : 0, ch.beta = mine ? a.op.beta[c] : 0;
    ch.run_mean = mine ? a.op.run_mean[c] : 0, ch.run_var = mine ? a.op.run_var[c] : 0;
    // a bias that x still lacks belongs to the mean, not to x
    ch.bias = mine && !a.write_x && a.bx ? a.bx[c] : 0;
    return ch;
}

// Requests x, and r, of the next round.
template <bool TAIL, class T, int D>
static __device__ __forceinline__ void fetch_x(const NormArgs &a, int rounds,
                                               Cursor<T, D, 1> &ahead, Ring<T, D, 1> &ring,
                                               uint64_t policy) {
    if (ahead.j < rounds) {
        fetch<T>(ahead.slot, a.x, ahead.at, policy);
        if (a.r) fetch<T>(ring.slot(), a.r, ahead.at, policy);
    }
    fetched_group();
    ahead.template next<TAIL>();
    if (a.r) ring.next();
}

// Adds r and add to x where a.write_x says so and writes it back; adds up its moments.
template <bool TAIL, class T, int D>
static __device__ __forceinline__ void sum_x(const NormArgs &a, int rounds, Cursor<T, D, 1> now,
                                             Cursor<T, D, 1> ahead, Ring<T, D, 1> ring,
                                             const Vec8 &add, uint64_t policy, VecMoments &m) {
    for (; now.j < rounds; now.template next<TAIL>()) {
        all_but_last<D - 1>();
        Vec8 v = unpack(*now.slot);
        if (a.r) {
            const Vec8 r = unpack(*ring.slot());
            #pragma unroll
            for (int k = 0; k < 8; k++) v.v[k] += r.v[k];
        }
        if (a.write_x) {
            #pragma unroll
            for (int k = 0; k < 8; k++) v.v[k] += add.v[k];
            const Pack<T> p = pack<T>(v);
            store_passing<T>(a.x, now.at, p, policy);
            if (!TAIL || now.j >= now.tail) *now.slot = p;
            v = unpack(p);                            // the statistics are of what is stored
        }
        fetch_x<TAIL>(a, rounds, ahead, ring, policy);
        if (now.j == 0) m.shift = v;
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            const float d = v.v[k] - m.shift.v[k];
            m.s.v[k] += d;
            m.q.v[k] += d * d;
        }
    }
}

template <class T, int TV, int D>
static __device__ __forceinline__ VecMoments read_x(const NormArgs &a, const ThreadWork<TV> &me,
                                                    Pack<T> *kept, Pack<T> *r) {
    const uint64_t policy = passing(a.once);
    const Cursor<T, D, 1> now(me, kept, me.rounds, a.keep);
    Cursor<T, D, 1> ahead = now;
    Ring<T, D, 1> ring(r + me.t);
    for (int j = 0; j < D; j++) fetch_x<true>(a, me.rounds, ahead, ring, policy);
    VecMoments m;
    Vec8 add;
    #pragma unroll
    for (int k = 0; k < 8; k++) m.shift.v[k] = m.s.v[k] = m.q.v[k] = 0;
    if (a.write_x) {
        const Vec8 br = vec8_of(a.br, me.vec, a.c);
        add = vec8_of(a.bx, me.vec, a.c);
        #pragma unroll
        for (int k = 0; k < 8; k++) add.v[k] += br.v[k];
    }
    if (now.tail) sum_x<true>(a, me.rounds, now, ahead, ring, add, policy, m);
    else sum_x<false>(a, me.rounds, now, ahead, ring, add, policy, m);
    return m;
}

// The block's means and squared deviations, to part: all threads' sums are brought to the first
// thread's first values as the common origin.
template <int TV>
static __device__ __forceinline__ void block_moments(const ThreadWork<TV> &me, VecMoments m,
                                                     FwdShared &sh, float *part) {
    constexpr int W = 8 * TV;
    const int t = me.t;
    if (t < TV)
        #pragma unroll
        for (int k = 0; k < 8; k++) sh.first[8 * t + k] = m.shift.v[k];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        const float d = me.rounds ? m.shift.v[k] - sh.first[8 * (t % TV) + k] : 0;
        m.q.v[k] += 2 * d * m.s.v[k] + (float)me.rounds * d * d;
        m.s.v[k] += (float)me.rounds * d;
    }
    const float sum = block_sums<TV>(m.s.v, m.q.v, sh.red);
    if (t < 2 * W) sh.sum[t / W][t % W] = sum;
    __syncthreads();
    if (t < W) {
        const float mean = sh.sum[0][t] / (float)me.pixels;
        part[(me.chunk * 2) * W + t] = sh.first[t] + mean;
        part[(me.chunk * 2 + 1) * W + t] = fmaxf(sh.sum[1][t] - sh.sum[0][t] * mean, 0);
    }
}

// Means and squared deviations of all chunks, from the first chunk's mean as the origin, to
// sh.joined and sh.first.
template <int TV>
static __device__ __forceinline__ void join_chunks(const NormArgs &a, int t, const float *part,
                                                   FwdShared &sh) {
    constexpr int W = 8 * TV;
    float total = 0, square = 0;
    const float origin = __ldcg(&part[t % W]);
    each_chunk<TV>(part, a.chunks, [&](int k, float mean, float deviation) {
        const float n = (float)chunk_pixels(a, k);
        const float d = mean - origin;
        total += n * d;
        square += deviation + n * d * d;
    });
    sh.joined[0][t] = total;
    sh.joined[1][t] = square;
    __syncthreads();
    if (t < W) sh.first[t] = origin;
}

// The channel's statistics, running ones included, and its y = leaky(coef[0] x + coef[1]).
template <int TV>
static __device__ __forceinline__ void finish_channel(const NormArgs &a, const ThreadWork<TV> &me,
                                                      const Channel &ch, int stats, FwdShared &sh) {
    constexpr int W = 8 * TV, GROUPS = THREADS / W;
    const int t = me.t, c = ch.c;
    float scale = c < a.c, offset = 0;
    if (ch.mine) {
        float mean = ch.run_mean, var = ch.run_var;
        if (stats) {
            float total = 0, square = 0;
            #pragma unroll
            for (int k = 0; k < GROUPS; k++)
                total += sh.joined[0][k * W + t], square += sh.joined[1][k * W + t];
            const float n = (float)a.pixels, m2 = fmaxf(square - total * total / n, 0),
                        k = a.op.momentum;
            mean = sh.first[t] + total / n + ch.bias;
            var = m2 / n;
            if (a.op.update && me.chunk == 0) {
                a.op.run_mean[c] = (1 - k) * ch.run_mean + k * mean;
                a.op.run_var[c] = (1 - k) * ch.run_var + k * (n > 1 ? m2 / (n - 1) : m2);
            }
        }
        const float rstd = 1 / sqrtf(var + a.op.eps);
        if (me.chunk == 0) {
            a.op.mean[c] = mean;
            a.op.rstd[c] = rstd;
        }
        scale = ch.gamma * rstd;
        offset = ch.beta - (mean - ch.bias) * scale;
    }
    sh.coef[0][t] = scale;
    sh.coef[1][t] = offset;
}

// Writes y: the first `have` rounds out of shared memory, the others from x.
template <class T, int TV>
static __device__ __forceinline__ void write_y(const NormArgs &a, const ThreadWork<TV> &me,
                                               const FwdShared &sh, const Pack<T> *kept, int have) {
    Vec8 scale, offset;
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        scale.v[k] = sh.coef[0][8 * (me.t % TV) + k];
        offset.v[k] = sh.coef[1][8 * (me.t % TV) + k];
    }
    size_t at = me.at0;
    auto finish = [&](Pack<T> p) {
        Vec8 v = unpack(p);
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            const float z = scale.v[k] * v.v[k] + offset.v[k];
            v.v[k] = fmaxf(z, a.op.leak * z);         // the leak lies between 0 and 1
        }
        pack_store<T>(a.y, at, pack<T>(v));
        at += me.pace;
    };
    #pragma unroll 4
    for (int i = 0; i < have; i++) finish(kept[i * THREADS + me.t]);
    #pragma unroll 4
    for (int i = have; i < me.rounds; i++) finish(pack_load<T>(a.x, at));
}

template <class T, int TV, int D>
static __global__ void __launch_bounds__(THREADS, 1) norm_fwd_kernel(const NormArgs a) {
    extern __shared__ uint4 kept_raw[];
    Pack<T> *kept = (Pack<T> *)kept_raw, *ring = kept + a.keep * THREADS;      // ring: r, D rounds
    __shared__ FwdShared sh;
    after_previous();
    const ThreadWork<TV> me(a);
    const int stats = a.op.gamma && a.op.batch_stats;
    float *part = a.part + (size_t)me.tile * a.chunks * 2 * 8 * TV;
    const Channel ch = channel_of(a, me);
    if (stats || a.write_x) {
        const VecMoments m = read_x<T, TV, D>(a, me, kept, ring);
        if (stats) {
            block_moments(me, m, sh, part);
            unsigned *barrier = a.barrier + me.tile * BARRIER_GAP;
            all_arrived(barrier, arrive(barrier, a.chunks, me.chunk == 0));
            join_chunks<TV>(a, me.t, part, sh);
        }
    }
    if (me.t < 8 * TV) finish_channel(a, me, ch, stats, sh);
    __syncthreads();
    write_y(a, me, sh, kept, stats || a.write_x ? min(me.rounds, a.keep) : 0);
}

// ---- launching ---------------------------------------------------------------------------------

typedef void NormKernel(const NormArgs);
// Rounds that copies run ahead; 1 where memory is short. Many rounds gain by more.
enum { AHEAD_FWD = 6, AHEAD_BWD = 3, AHEAD_MANY = 5 };
enum { IN_REGISTERS = 14 };             // bytes of an element times rounds that registers can keep
enum Kind { FWD_SHALLOW, FWD, BWD_SHALLOW, BWD, BWD_REGISTERS, BWD_MANY, N_KIND };
static const int AHEAD[N_KIND] = { 1, AHEAD_FWD, 1, AHEAD_BWD, AHEAD_BWD, AHEAD_MANY };

template <class T, int TV> static NormKernel *kernel_for(Kind kind) {
    constexpr int R = IN_REGISTERS / sizeof(T);
    switch (kind) {
    case FWD_SHALLOW: return norm_fwd_kernel<T, TV, 1>;
    case FWD: return norm_fwd_kernel<T, TV, AHEAD_FWD>;
    case BWD_SHALLOW: return norm_bwd_kernel<T, TV, 1, 0>;
    case BWD: return norm_bwd_kernel<T, TV, AHEAD_BWD, 0>;
    case BWD_REGISTERS: return norm_bwd_kernel<T, TV, AHEAD_BWD, R>;
    default: return norm_bwd_kernel<T, TV, AHEAD_MANY, R>;
    }
}

static NormKernel *kernel_of(int half, int tv, Kind kind) {
    if (half)
        return tv == 4   ? kernel_for<bf16, 4>(kind)
               : tv == 2 ? kernel_for<bf16, 2>(kind)
                         : kernel_for<bf16, 1>(kind);
    return tv == 4   ? kernel_for<float, 4>(kind)
           : tv == 2 ? kernel_for<float, 2>(kind)
                     : kernel_for<float, 1>(kind);
}

static size_t dynamic_smem(const Cuda *cuda) {
    return (size_t)(cuda->smem - 10 * 1024) / 1024 * 1024;
}

void cuda_norm_start(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    for (int i = 0; i < 3 * N_KIND && !dev->err.kind; i++)
        cuda_failed(dev,
                    cudaFuncSetAttribute(
                        (const void *)kernel_of(cuda->half, 1 << i / N_KIND, (Kind)(i % N_KIND)),
                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)dynamic_smem(cuda)),
                    "preparing norms");
    // all blocks together are no more than multiprocessors
    cuda_reserve_partial(dev, (size_t)cuda->sms * 2 * TILE_CHANNELS * sizeof(float));
    cuda->barrier =
        (unsigned *)dev->be.alloc(dev, MAX_TILES * BARRIER_GAP * sizeof(unsigned), "barriers");
    dev->be.zero(dev, cuda->barrier, MAX_TILES * BARRIER_GAP * sizeof(unsigned));
}

// How many rounds can be kept: all, or at least twice as many as copies run ahead.
static int rounds_kept(const Cuda *cuda, int rounds, int ahead, size_t kept, size_t ring) {
    const size_t room = dynamic_smem(cuda);
    if (ring * (size_t)ahead >= room) return 0;
    const int most = (int)((room - ring * (size_t)ahead) / kept);
    if (rounds < ahead) rounds = ahead;
    return most >= rounds ? rounds : most >= 2 * ahead ? most : 0;
}

// Sets a->keep. Registers are used where not all rounds can be kept, and then copies run ahead as
// far as shared memory allows.
static Kind pick_kernel(const Cuda *cuda, NormArgs *a, int backward, int rounds, size_t kept,
                        size_t ring) {
    const Kind usual = backward ? BWD : FWD, shallow = backward ? BWD_SHALLOW : FWD_SHALLOW;
    const Kind order[] = { usual, BWD_MANY, BWD_REGISTERS };
    for (int i = 0; i < (a->sums ? 3 : 1); i++) {
        a->keep = rounds_kept(cuda, rounds, AHEAD[order[i]], kept, ring);
        if (a->keep >= rounds || (a->keep && (i || !a->sums))) return order[i];
    }
    a->keep = rounds_kept(cuda, rounds, AHEAD[shallow], kept, ring);
    return shallow;
}

static void launch(Dev *dev, NormArgs *a, const Tensor *x, int backward) {
    Cuda *cuda = cuda_of(dev);
    a->vecs = vecs_of(x);
    a->c = x->c;
    a->pixels = tensor_pixels(x);
    const int tv = a->vecs >= 4 ? 4 : a->vecs >= 2 ? 2 : 1;
    a->tiles = (a->vecs + tv - 1) / tv;
    if (a->tiles > MAX_TILES || a->tiles > cuda->sms) {
        err_set(&dev->err, ERR_ARG, "a norm over %d channels is more than this device can do",
                x->c);
        return;
    }
    const unsigned rows = (unsigned)(THREADS / tv), most = (unsigned)(cuda->sms / a->tiles);
    const unsigned needed = blocks_for(a->pixels, rows);
    a->per_chunk = (int)blocks_for(a->pixels, needed < most ? needed : most);
    a->chunks = (int)blocks_for(a->pixels, (unsigned)a->per_chunk);
    a->part = cuda->partial;
    a->barrier = cuda->barrier;
    const size_t round = (size_t)THREADS * 8 * cuda->elem, kept = backward ? 2 * round : round;
    const size_t ring = backward ? (a->op.add_dx ? round : 0) : a->r ? round : 0;
    const int rounds = (int)blocks_for((size_t)a->per_chunk, rows);
    const Kind kind = pick_kernel(cuda, a, backward, rounds, kept, ring);
    a->once = a->keep + (kind >= BWD_REGISTERS ? IN_REGISTERS / (int)cuda->elem : 0) >= rounds;
    cuda_failed(dev,
                launch_early(cuda, kernel_of(cuda->half, tv, kind),
                             (unsigned)(a->tiles * a->chunks), THREADS,
                             (size_t)a->keep * kept + ring * (size_t)AHEAD[kind], 1, *a),
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

void cuda_norm_table(Backend *be) {
    be->norm_fwd = norm_fwd;
    be->norm_bwd = norm_bwd;
}
