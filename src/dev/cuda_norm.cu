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
#include "dev/cuda_norm.cuh"

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

// ---- backward ----------------------------------------------------------------------------------

struct BwdShared {
    float red[WARPS][2][TILE_CHANNELS], sum[2][TILE_CHANNELS], joined[2][THREADS];
};

struct Line {
    Vec8 scale, offset;
}; // y = leaky(scale x + offset)

// A thread per channel finds its line, in sh.sum; then each takes those of its vector.
template <int TV>
static __device__ __forceinline__ Line line_of(const NormArgs &a, const ThreadWork<TV> &me,
                                               BwdShared &sh) {
    constexpr int W = 8 * TV;
    const int c = me.tile * W + me.t;
    if (me.t < W) {
        float scale = !a.op.gamma, offset = 0;
        if (a.op.gamma && c < a.c) {
            scale = a.op.gamma[c] * a.op.rstd[c];
            offset = a.op.beta[c] - (a.op.mean[c] - (a.bx ? a.bx[c] : 0)) * scale;
        }
        sh.sum[0][me.t] = scale;
        sh.sum[1][me.t] = offset;
    }
    __syncthreads();
    Line l;
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        l.scale.v[k] = sh.sum[0][8 * (me.t % TV) + k];
        l.offset.v[k] = sh.sum[1][8 * (me.t % TV) + k];
    }
    return l;
}

// The gradient with respect to scale x + offset: dy, times the leak where that was negative.
static __device__ Vec8 activation_grad(const Vec8 &x, Vec8 dy, const Line &l, float leak) {
    #pragma unroll
    for (int k = 0; k < 8; k++)
        if (!(l.scale.v[k] * x.v[k] + l.offset.v[k] > 0)) dy.v[k] *= leak;
    return dy;
}

// Requests x and dy of the next round: a slot's two vectors.
template <bool TAIL, class T, int D>
static __device__ __forceinline__ void fetch_x_dy(const NormArgs &a, int rounds,
                                                  Cursor<T, D, 2> &ahead, uint64_t policy) {
    if (ahead.j < rounds) {
        fetch<T>(ahead.slot, a.x, ahead.at, policy);
        fetch<T>(ahead.slot + THREADS, a.dy, ahead.at, policy);
    }
    fetched_group();
    ahead.template next<TAIL>();
}

// Adds a vector's dz and dz x; the mean is taken off x at the end.
template <class T>
static __device__ __forceinline__ void add_gradient(const Pack<T> &px, const Pack<T> &pdy,
                                                    const Line &l, float leak, Vec8 &s, Vec8 &q) {
    const Vec8 x = unpack(px), dz = activation_grad(x, unpack(pdy), l, leak);
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        s.v[k] += dz.v[k];
        q.v[k] += dz.v[k] * x.v[k];
    }
}

// The sums of dz and dz x over the rounds that pass through shared memory.
template <bool TAIL, class T, int D>
static __device__ __forceinline__ void sum_gradients(const NormArgs &a, int rounds,
                                                     Cursor<T, D, 2> now, Cursor<T, D, 2> ahead,
                                                     const Line &l, uint64_t policy, Vec8 &s,
                                                     Vec8 &q) {
    for (; now.j < rounds; now.template next<TAIL>()) {
        all_but_last<D - 1>();
        const Pack<T> x = now.slot[0], dy = now.slot[THREADS];
        fetch_x_dy<TAIL>(a, rounds, ahead, policy);
        add_gradient(x, dy, l, a.op.leak, s, q);
    }
}

// The block's sums, to part; returns what all_arrived needs.
template <int TV>
static __device__ __forceinline__ unsigned send_sums(const NormArgs &a, const ThreadWork<TV> &me,
                                                     const Vec8 &s, const Vec8 &q,
                                                     BwdShared &sh) {
    constexpr int W = 8 * TV;
    float *part = a.part + ((size_t)me.tile * a.chunks + me.chunk) * 2 * W;
    const float sum = block_sums<TV>(s.v, q.v, sh.red);
    if (me.t < 2 * W) part[me.t] = sum;
    return arrive(a.barrier + me.tile * BARRIER_GAP, a.chunks, me.chunk == 0);
}

// All blocks' sums: adds them to the parameters' gradients and leaves k1 and k2 of
// dx = scale dz - k1 - k2 x in sh.sum.
template <int TV>
static __device__ __forceinline__ void join_sums(const NormArgs &a, const ThreadWork<TV> &me,
                                                 unsigned arrived, BwdShared &sh) {
    constexpr int W = 8 * TV, GROUPS = THREADS / W;
    const int t = me.t;
    const float *part = a.part + (size_t)me.tile * a.chunks * 2 * W;
    const int channel = me.tile * W + t % W, mine = t < W && channel < a.c;
    const float rstd = mine ? a.op.rstd[channel] : 0, gamma = mine ? a.op.gamma[channel] : 0;
    const float mean = mine ? a.op.mean[channel] - (a.bx ? a.bx[channel] : 0) : 0;
    float total[2] = { 0, 0 };
    all_arrived(a.barrier + me.tile * BARRIER_GAP, arrived);
    each_chunk<TV>(part, a.chunks, [&](int, float dz, float dz_x) {
        total[0] += dz;
        total[1] += dz_x;
    });
    sh.joined[0][t] = total[0];
    sh.joined[1][t] = total[1];
    __syncthreads();
    if (t < W) {
        float all = 0, dot = 0;                       // of dz; of dz times the normalised x
        #pragma unroll
        for (int k = 0; k < GROUPS; k++)
            all += sh.joined[0][k * W + t], dot += sh.joined[1][k * W + t];
        dot = (dot - mean * all) * rstd;
        if (me.chunk == 0 && mine && a.dbeta) a.dbeta[channel] += all;
        if (me.chunk == 0 && mine && a.dgamma) a.dgamma[channel] += dot;
        const float k2 = gamma * rstd * rstd * dot / (float)a.pixels;
        sh.sum[0][t] = a.op.batch_stats ? gamma * rstd * all / (float)a.pixels - mean * k2 : 0;
        sh.sum[1][t] = a.op.batch_stats ? k2 : 0;
    }
    __syncthreads();
}

// Has the dx to add to brought into the L2 cache while the blocks wait for each other. The blocks
// of a chunk each take a part of its pixels, with all their channels.
template <class T, int TV>
static __device__ __forceinline__ void prefetch_dx(const NormArgs &a, const ThreadWork<TV> &me) {
#if __CUDA_ARCH__ >= 900
    constexpr size_t PIECE = 2048;
    if (me.t != THREADS - 32) return;
    const int part = (me.pixels + a.tiles - 1) / a.tiles, first = me.tile * part;
    size_t left = first < me.pixels ? (size_t)min(part, me.pixels - first) * a.vecs : 0;
    const Pack<T> *dx =
        (const Pack<T> *)a.y + ((size_t)me.chunk * (size_t)a.per_chunk + (size_t)first) * a.vecs;
    for (; left; dx += PIECE) {
        const size_t n = left < PIECE ? left : PIECE;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(dx),
                     "r"((unsigned)(n * sizeof(Pack<T>)))
                     : "memory");
        left -= n;
    }
#endif
}

// What the last pass needs from memory, round after round: x and dy of those that have to be read
// again, into slots that are free by then, and the dx to add to. dx is written in this order: the
// rounds in registers, those kept in shared memory, those that have to be read again.
template <class T, int D> struct Refetch {
    Ring<T, D, 2> again;
    Ring<T, D, 1> old;
    size_t        at, at0, pace;
    int           j, rounds, in_registers, have, needed;   // have: rounds in either memory
    template <int TV>
    __device__ Refetch(const NormArgs &a, const ThreadWork<TV> &me, int n, int n_kept,
                       Pack<T> *kept, Pack<T> *ring)
        : again(kept + me.t), old(ring + me.t), at(me.at(n ? me.rounds - n : 0)), at0(me.at0),
          pace(me.pace), j(0), rounds(a.y ? me.rounds : 0), in_registers(n), have(n + n_kept),
          needed(a.op.add_dx || have < me.rounds) {}
    template <bool AGAIN> __device__ __forceinline__ void next(const NormArgs &a) {
        if (j < rounds) {
            if (AGAIN && j >= have) {
                fetch<T>(again.slot(), a.x, at, passing(1));
                fetch<T>(again.slot() + THREADS, a.dy, at, passing(1));
            }
            if (a.op.add_dx) fetch<T>(old.slot(), a.y, at, passing(0));
        }
        fetched_group();
        if (AGAIN && j >= have) again.next();
        if (a.op.add_dx) old.next();
        j++;
        at += pace;
        if (j == in_registers) at = at0;
    }
};

template <class T, int TV, int D, int R>
static __device__ __forceinline__ void write_dx(const NormArgs &a, const ThreadWork<TV> &me,
                                                const Registers<T, R> &own, const Line &l,
                                                const BwdShared &sh, const Pack<T> *kept,
                                                Refetch<T, D> &refetch) {
    Vec8 k1, k2;
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        k1.v[k] = a.sums ? sh.sum[0][8 * (me.t % TV) + k] : 0;
        k2.v[k] = a.sums ? sh.sum[1][8 * (me.t % TV) + k] : 0;
    }
    size_t at = me.at(own.first);
    auto finish = [&](const Pack<T> &px, const Pack<T> &pdy, const Pack<T> &old) {
        const Vec8 x = unpack(px);
        Vec8 g = activation_grad(x, unpack(pdy), l, a.op.leak);
        #pragma unroll
        for (int k = 0; k < 8; k++) g.v[k] = l.scale.v[k] * g.v[k] - k1.v[k] - k2.v[k] * x.v[k];
        if (a.op.add_dx) {
            const Vec8 o = unpack(old);
            #pragma unroll
            for (int k = 0; k < 8; k++) g.v[k] += o.v[k];
        }
        pack_store<T>(a.y, at, pack<T>(g));
        at += me.pace;
    };
    #pragma unroll
    for (int r = 0; r < R; r++)
        if (r < own.n) {
            Pack<T> old;
            if (refetch.needed) {
                all_but_last<D - 1>();
                if (a.op.add_dx) old = *refetch.old.slot();
                refetch.template next<false>(a);      // of rounds that are in either memory
            }
            finish(own.x[r], own.dy[r], old);
        }
    at = me.at0;
    const Pack<T> *slot = kept + me.t;
    for (int j = own.n; j < me.rounds; j++) {
        if (refetch.needed) all_but_last<D - 1>();
        if (j >= refetch.have) slot = refetch.again.slot();
        const Pack<T> x = slot[0], dy = slot[THREADS];
        Pack<T> old;
        if (a.op.add_dx) old = *refetch.old.slot();
        slot += 2 * THREADS;
        if (refetch.needed) refetch.template next<true>(a);
        finish(x, dy, old);
    }
}

template <class T, int TV, int D, int R>
static __global__ void __launch_bounds__(THREADS, 1) norm_bwd_kernel(const NormArgs a) {
    extern __shared__ uint4 kept_raw[];
    Pack<T> *kept = (Pack<T> *)kept_raw;               // x and dy of each round, ...
    Pack<T> *ring = kept + 2 * a.keep * THREADS;       // ... then dx as it was, D rounds
    __shared__ BwdShared sh;
    after_previous();
    const ThreadWork<TV> me(a);
    Registers<T, R> own(me.rounds, a.keep);
    const uint64_t policy = passing(a.once);
    #pragma unroll
    for (int r = 0; r < R; r++) {
        own.x[r] = load_if<T>(r < own.n, a.x, me.at(own.first + r), policy);
        own.dy[r] = load_if<T>(r < own.n, a.dy, me.at(own.first + r), policy);
    }
    const Cursor<T, D, 2> now(me, kept, own.first, a.keep);
    Cursor<T, D, 2> ahead = now;
    if (a.sums)
        for (int j = 0; j < D; j++) fetch_x_dy<true>(a, own.first, ahead, policy);
    const Line l = line_of(a, me, sh);
    Vec8 s, q;
    #pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = q.v[k] = 0;
    #pragma unroll
    for (int r = 0; r < R; r++) {                      // zeros, where there are fewer, add nothing
        add_gradient(own.x[r], own.dy[r], l, a.op.leak, s, q);
        keep_packed(own.x[r]);
        keep_packed(own.dy[r]);
    }
    if (a.sums && now.tail) sum_gradients<true>(a, own.first, now, ahead, l, policy, s, q);
    if (a.sums && !now.tail) sum_gradients<false>(a, own.first, now, ahead, l, policy, s, q);
    if (a.sums && a.y && a.op.add_dx) prefetch_dx<T>(a, me);
    const int n_kept = a.sums ? min(own.first, a.keep) : 0;
    const unsigned arrived = a.sums ? send_sums(a, me, s, q, sh) : 0;
    Refetch<T, D> refetch(a, me, own.n, n_kept, kept, ring);
    for (int j = 0; j < D; j++) refetch.template next<true>(a);
    if (a.sums) join_sums(a, me, arrived, sh);
    if (a.y) write_dx<T, TV, D>(a, me, own, l, sh, kept, refetch);
}

// ---- launching ---------------------------------------------------------------------------------

typedef void NormKernel(const NormArgs);
enum { AHEAD_FWD = 6, AHEAD_BWD = 3 };  // rounds that copies run ahead; 1 where memory is short
enum { IN_REGISTERS = 14 };             // bytes of an element times rounds that registers can keep
enum Kind { FWD_SHALLOW, FWD, BWD_SHALLOW, BWD, BWD_REGISTERS, N_KIND };

template <class T, int TV> static NormKernel *kernel_for(Kind kind) {
    constexpr int R = IN_REGISTERS / sizeof(T);
    switch (kind) {
    case FWD_SHALLOW: return norm_fwd_kernel<T, TV, 1>;
    case FWD: return norm_fwd_kernel<T, TV, AHEAD_FWD>;
    case BWD_SHALLOW: return norm_bwd_kernel<T, TV, 1, 0>;
    case BWD: return norm_bwd_kernel<T, TV, AHEAD_BWD, 0>;
    default: return norm_bwd_kernel<T, TV, AHEAD_BWD, R>;
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
    int ahead = backward ? AHEAD_BWD : AHEAD_FWD;
    a->keep = rounds_kept(cuda, rounds, ahead, kept, ring);
    Kind kind = !backward ? FWD : a->sums && a->keep < rounds ? BWD_REGISTERS : BWD;
    if (!a->keep) {
        ahead = 1;
        a->keep = rounds_kept(cuda, rounds, ahead, kept, ring);
        kind = backward ? BWD_SHALLOW : FWD_SHALLOW;
    }
    a->once = a->keep + (kind == BWD_REGISTERS ? IN_REGISTERS / (int)cuda->elem : 0) >= rounds;
    cuda_failed(dev,
                launch_early(cuda, kernel_of(cuda->half, tv, kind),
                             (unsigned)(a->tiles * a->chunks), THREADS,
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

void cuda_norm_table(Backend *be) {
    be->norm_fwd = norm_fwd;
    be->norm_bwd = norm_bwd;
}
