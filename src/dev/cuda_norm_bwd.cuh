// cuda_norm_bwd.cuh - the norm's backward kernel; cuda_norm.cu says how both work.
#ifndef CUDA_NORM_BWD_CUH
#define CUDA_NORM_BWD_CUH
#include "dev/cuda_norm.cuh"

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
                                                     const Vec8 &s, const Vec8 &q, BwdShared &sh) {
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
#endif
