// cuda_norm.cuh - what the norm's two kernels share: their arguments, the barrier between blocks,
// sums over a block, copies that run ahead, and which thread works on what.
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH
#include "dev/cuda.cuh"

enum { TILE_CHANNELS = 32, MAX_TILES = 128, BARRIER_GAP = 32, THREADS = 512, WARPS = THREADS / 32 };

struct NormArgs {
    void        *x, *y;                // backward: y is dx
    const void  *r, *dy;
    const float *bx, *br;              // biases that x and r still lack, or NULL
    Norm         op;
    float       *dgamma, *dbeta;
    float       *part;                 // [tile][chunk][2][tile's channels]
    unsigned    *barrier;              // [tile], BARRIER_GAP apart: a cache line each
    size_t       pixels;
    int          vecs, c, tiles, chunks, per_chunk;
    int          keep;                 // rounds kept in shared memory
    int          once;                 // no round is read twice
    int          write_x, sums;        // forward: x changes; backward: sums are wanted
};

// Blocks of one tile wait for each other in two steps, so that memory can be requested in between:
// arrive, and all_arrived with what arrive returned. What a block wrote before it arrived, every
// other one sees afterwards. All n arrivals together add 2^31 to the counter, so its highest bit
// changes once per meeting and no one resets it. One thread polls: more would slow down the blocks
// that still work.
static __device__ unsigned arrive(unsigned *barrier, int n, int first) {
    unsigned before = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(barrier), "r"(first ? 0x80000000u - (unsigned)(n - 1) : 1u)
                     : "memory");
    return before;
}

static __device__ void all_arrived(const unsigned *barrier, unsigned before) {
    if (threadIdx.x == 0) {
        unsigned now;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now)
                         : "l"(barrier)
                         : "memory");
        while (!((now ^ before) & 0x80000000u));
    }
    __syncthreads();
}

// Adds a[8] and b[8] up over all threads of the block that share a vector. Thread t < 16 TV gets
// the sum of a (t < 8 TV) or b of the tile's channel t % (8 TV). In each step two lanes share the
// sums that both still have: each hands over half of them and adds to the other half.
template <int TV>
static __device__ float block_sums(const float a[8], const float b[8],
                                   float red[WARPS][2][TILE_CHANNELS]) {
    constexpr int W = 8 * TV;
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    float v[16];
    int first = 0, n = 16;                            // this lane's sums: first .. first + n - 1
    #pragma unroll
    for (int i = 0; i < 8; i++) v[i] = a[i], v[8 + i] = b[i];
    #pragma unroll
    for (int d = TV; d < 32; d *= 2) {
        if (n == 1) {
            v[0] += __shfl_xor_sync(~0u, v[0], d);
            continue;
        }
        n /= 2;
        const int upper = lane & d;
        #pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n) {
                const float other = __shfl_xor_sync(~0u, upper ? v[i] : v[i + n], d);
                v[i] = (upper ? v[i + n] : v[i]) + other;
            }
        first += upper ? n : 0;
    }
    #pragma unroll
    for (int i = 0; i < 16; i++)
        if (i < n) red[warp][(first + i) / 8][8 * (lane % TV) + (first + i) % 8] = v[i];
    __syncthreads();
    float sum = 0;
    if (t < 2 * W)
        #pragma unroll
        for (int w = 0; w < WARPS; w++) sum += red[w][t / W][t % W];
    return sum;
}

// The two sums of a tile's channel t % W that each of the chunks t / W, t / W + GROUPS, ... sent:
// use(chunk, first, second). Several chunks' are requested at once.
template <int TV, class Use>
static __device__ __forceinline__ void each_chunk(const float *part, int chunks, Use use) {
    constexpr int W = 8 * TV, GROUPS = THREADS / W, AT_ONCE = 5;
    const int t = (int)threadIdx.x;
    for (int k0 = t / W; k0 < chunks; k0 += AT_ONCE * GROUPS) {
        float v[AT_ONCE][2];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                if (k0 + i * GROUPS < chunks)
                    v[i][j] = __ldcg(&part[((k0 + i * GROUPS) * 2 + j) * W + t % W]);
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (k0 + i * GROUPS < chunks) use(k0 + i * GROUPS, v[i][0], v[i][1]);
    }
}

// ---- copies that run ahead ---------------------------------------------------------------------

// For what will not be read again soon: its lines are the first to leave the L2 cache.
static __device__ uint64_t passing(int once) {
    uint64_t first, normal;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
    return once ? first : normal;
}

template <class T>
static __device__ void fetch(Pack<T> *to, const void *base, size_t vec, uint64_t policy) {
    const unsigned dst = (unsigned)__cvta_generic_to_shared(to);
    const char *src = (const char *)base + vec * sizeof(Pack<T>);
    #pragma unroll
    for (unsigned i = 0; i < sizeof(Pack<T>); i += 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(dst + i),
                     "l"(src + i), "l"(policy)
                     : "memory");
}

static __device__ void fetched_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> static __device__ void all_but_last() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

template <class T>
static __device__ void store_passing(void *base, size_t vec, Pack<T> p, uint64_t policy) {
    char *to = (char *)base + vec * sizeof(Pack<T>);
    #pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 2; i++)
        asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                         to + 16 * i),
                     "r"(p.u[i].x), "r"(p.u[i].y), "r"(p.u[i].z), "r"(p.u[i].w), "l"(policy)
                     : "memory");
}

// The pixels of a chunk: per_chunk, or what is left for the last one.
static __device__ int chunk_pixels(const NormArgs &a, int chunk) {
    const size_t left = a.pixels - (size_t)chunk * (size_t)a.per_chunk;
    return left < (size_t)a.per_chunk ? (int)left : a.per_chunk;
}

// What a thread works on: its vector, its pixels row, row + ROWS, ... of its chunk.
template <int TV> struct ThreadWork {
    int    t, tile, chunk, vec, pixels, rounds;      // pixels: of the chunk
    size_t at0, pace;                  // its first vector in memory; from one round to the next
    __device__ ThreadWork(const NormArgs &a) {
        constexpr int ROWS = THREADS / TV;
        t = (int)threadIdx.x;
        tile = (int)blockIdx.x % a.tiles;
        chunk = (int)blockIdx.x / a.tiles;
        vec = tile * TV + t % TV;
        pixels = chunk_pixels(a, chunk);
        const int row = t / TV;
        rounds = vec < a.vecs && row < pixels ? (pixels - row + ROWS - 1) / ROWS : 0;
        at0 = ((size_t)chunk * (size_t)a.per_chunk + (size_t)row) * a.vecs + vec;
        pace = (size_t)ROWS * a.vecs;
    }
    __device__ size_t at(int round) const { return at0 + round * pace; }
};
// The rounds in the order in which they are read, and their slots of N vectors in shared memory:
// those that will not be kept (the tail) come first, through the last D of the kept rounds' slots.
// All is found by additions: finding it again in each round would cost as much as the arithmetic.
template <class T, int D, int N> struct Cursor {
    static constexpr int STEP = N * THREADS;
    Pack<T> *slot, *first, *end;
    size_t   at, at0, pace;            // the round's vector in memory
    int      j, tail;                  // rounds so far; of all, those that will not be kept
    template <int TV>
    __device__ Cursor(const ThreadWork<TV> &me, Pack<T> *kept, int rounds, int keep)
        : first(kept + me.t), at0(me.at0), pace(me.pace), j(0), tail(max(rounds - keep, 0)) {
        end = first + keep * STEP;
        slot = tail ? end - D * STEP : first;
        at = tail ? me.at(keep) : at0;
    }
    template <bool TAIL> __device__ __forceinline__ void next() {
        j++;
        slot += STEP;
        at += pace;
        if (!TAIL || j > tail) return;
        if (j == tail) slot = first, at = at0;
        else if (slot == end) slot = end - D * STEP;
    }
};

// D slots of N vectors that are used in turn. Copies run D rounds ahead: a slot is read, then
// requested again.
template <class T, int D, int N> struct Ring {
    Pack<T> *first;
    int      at;
    __device__ Ring(Pack<T> *begin) : first(begin), at(0) {}
    __device__ Pack<T> *slot() const { return first + at; }
    __device__ void next() { at = at == (D - 1) * N * THREADS ? 0 : at + N * THREADS; }
};

// Rounds kept in registers: the last ones, as far as shared memory has no room; at most R.
template <class T, int R> struct Registers {
    static constexpr int SIZE = R ? R : 1;
    Pack<T> x[SIZE], dy[SIZE];
    int     n, first;                  // rounds first .. first + n - 1
    __device__ Registers(int rounds, int kept)
        : n(max(min(rounds - kept, R), 0)), first(rounds - n) {}
};

// The vector where wanted, else zeros; without a branch, so that many can be under way.
template <class T>
static __device__ Pack<T> load_if(int wanted, const void *base, size_t vec, uint64_t policy) {
    Pack<T> p;
    const char *src = (const char *)base + vec * sizeof(Pack<T>);
    #pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 2; i++)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.s32 p, %4, 0;\n"
                     "mov.u32 %0, 0;\n"
                     "mov.u32 %1, 0;\n"
                     "mov.u32 %2, 0;\n"
                     "mov.u32 %3, 0;\n"
                     "@p ld.global.L1::no_allocate.L2::cache_hint.v4.u32 "
                     "{%0, %1, %2, %3}, [%5], %6;\n"
                     "}"
                     : "=&r"(p.u[i].x), "=&r"(p.u[i].y), "=&r"(p.u[i].z), "=&r"(p.u[i].w)
                     : "r"(wanted), "l"(src + 16 * i), "l"(policy)
                     : "memory");
    return p;
}

// Hides from the compiler where p comes from: it would keep p's eight floats for later, not p.
template <class T> static __device__ void keep_packed(Pack<T> &p) {
    #pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 2; i++)
        asm volatile("" : "+r"(p.u[i].x), "+r"(p.u[i].y), "+r"(p.u[i].z), "+r"(p.u[i].w));
}
#endif
