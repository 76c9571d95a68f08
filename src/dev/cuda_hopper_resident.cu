// cuda_hopper_resident.cu - own 3x3 convolutions of stride 1 in bf16 with up to 128 input channels,
// for GPUs of compute capability 9.0: the filters stay in shared memory.
//
// A block computes 64 output channels of many tiles, one after the other. It fetches the filters of
// all nine taps once. A tile is 128 pixels, 8 columns of 16 rows; it is fetched with a border, 64
// channels at a time, through a ring of stages, and read by all nine taps as in cuda_hopper.cu.
// Here the filters are A and the pixels B: such a product of 64 x 128 x 16 reads 6 KiB of shared
// memory in the 64 cycles that it takes. With 64 channels as B, it would be 4 KiB in 32 cycles,
// all that shared memory can give.
//
// Two warpgroups take tiles in turn: while one stores its tile, the other multiplies. A tile is
// transposed for that in the stage that its pixels no longer need. A warp beside them fetches.
#include "dev/cuda_hopper.cuh"

enum { ACROSS = 8, DOWN = 16, BORDERED = ACROSS + 2, OUT = 64, KC = 64, ROW = KC * 2 };
enum { FETCHED = BORDERED * (DOWN + 2) * ROW, STAGE = (FETCHED + 1023) / 1024 * 1024 };
enum { FILTER = OUT * ROW, MOST_CHUNKS = 2, MOST_STAGES = 8 };
enum { GROUPS = 2, THREADS = GROUPS * 128 + 32, WARPS_OF_GROUP = 4 };

struct ResidentTiles {
    int n, h, w, out;
    int n_chunk;                               // of 64 input channels
    int tiles, sharing;                        // tiles of the images; blocks that share them
    int stages;
};

// ---- the kernel --------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct ResidentBarriers {
    uint64_t full[MOST_STAGES], free[MOST_STAGES];     // by the fetches; by a warpgroup's warps
    uint64_t filters[MOST_CHUNKS * TAPS];
    uint64_t turn[GROUPS];                     // the other one has begun all products of its tile
};

static __device__ __forceinline__ void barriers_init(ResidentBarriers &b, const ResidentTiles &s) {
    if (threadIdx.x == 0) {
        ring_init(b.full, b.free, s.stages, WARPS_OF_GROUP);
        for (int i = 0; i < s.n_chunk * TAPS; i++) barrier_init(&b.filters[i], 1);
        for (int i = 0; i < GROUPS; i++) barrier_init(&b.turn[i], 1);
        barriers_ready();
    }
    __syncthreads();
}

struct TileOrigin {
    int w0, h0, n;
}; // first column and row, image

static __device__ __forceinline__ TileOrigin tile_origin(const ResidentTiles &s, int tile) {
    const int per_row = s.w / ACROSS, per_image = per_row * (s.h / DOWN);
    return { tile % per_row * ACROSS, tile % per_image / per_row * DOWN, tile / per_image };
}

// A place in the ring: the stage, and which of its barriers' phases comes next.
struct RingPlace {
    int      at;
    unsigned phase;
    __device__ __forceinline__ void next(int stages) {
        if (++at == stages) at = 0, phase ^= 1;
    }
};

// All fetches of a block, by one thread: filters tap by tap with the first tile.
static __device__ __forceinline__ void fetch_all(const CUtensorMap *pixels,
                                                 const CUtensorMap *filters, const ResidentTiles &s,
                                                 int first, int o0, unsigned char *room,
                                                 unsigned char *ring, ResidentBarriers &bar) {
    RingPlace to = { 0, 1 };                   // 1: the phase before a barrier's first
    for (int tile = first; tile < s.tiles; tile += s.sharing) {
        const TileOrigin o = tile_origin(s, tile);
        for (int c = 0; c < s.n_chunk; c++, to.next(s.stages)) {
            barrier_wait(&bar.free[to.at], to.phase);
            barrier_expect(&bar.full[to.at], FETCHED);
            fetch_pixels(ring + to.at * STAGE, pixels, &bar.full[to.at], c * KC, o.w0 - 1, o.h0 - 1,
                         o.n);
            for (int tap = 0; tile == first && tap < TAPS; tap++) {
                const int i = c * TAPS + tap;
                barrier_expect(&bar.filters[i], FILTER);
                fetch_filters(room + i * FILTER, filters, &bar.filters[i], c * KC, tap, o0);
            }
        }
    }
}

// A warpgroup's products [channel][pixel] to memory, through shared memory of [pixel][channel].
static __device__ __forceinline__ void store_tile(const float (&d)[64], const TileOrigin &o,
                                                  const ResidentTiles &s, int o0, int group,
                                                  unsigned char *stage, bf16 *y) {
    constexpr int PITCH = OUT * 2 + 16, VECS = OUT / 8;
    const int t = (int)threadIdx.x % 128, lane = t % 32;
    const int channel = t / 32 * 16 + lane / 8 % 2 * 8, pixel = lane / 16 * 8 + lane % 8;
    unsigned char *to = stage + pixel * PITCH + channel * 2;
    warpgroup_sync(group);                     // all four warps' products have read the pixels
    #pragma unroll
    for (int j = 0; j < 128 / 8; j += 2)
        store_transposed(to + 8 * j * PITCH, two_bf16(d[4 * j], d[4 * j + 1]),
                         two_bf16(d[4 * j + 2], d[4 * j + 3]), two_bf16(d[4 * j + 4], d[4 * j + 5]),
                         two_bf16(d[4 * j + 6], d[4 * j + 7]));
    before_fetches();
    warpgroup_sync(group);
    const int p = t / VECS;                    // its first pixel: 8 rounds, 16 pixels each
    const unsigned char *from = stage + p * PITCH + t % VECS * 16;
    bf16 *out = y + (((size_t)o.n * s.h + o.h0 + p / ACROSS) * s.w + o.w0 + p % ACROSS) * s.out +
                o0 + t % VECS * 8;
    const size_t two_rows = (size_t)2 * s.w * s.out;
    if (o0 + t % VECS * 8 >= s.out) return;
    #pragma unroll
    for (int i = 0; i < 8; i++)
        *(uint4 *)(out + i * two_rows) = *(const uint4 *)(from + i * 16 * PITCH);
}

#endif

// LAST: products of 16 channels in the last chunk, 4 where it is full.
template <int LAST>
static __global__ void __launch_bounds__(THREADS, 1)
    conv3_resident_kernel(const __grid_constant__ CUtensorMap pixels,
                          const __grid_constant__ CUtensorMap filters, bf16 *y,
                          const ResidentTiles s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char raw[];
    unsigned char *room = raw + (-(int)shared_address(raw) & 1023);
    unsigned char *ring = room + s.n_chunk * TAPS * FILTER;
    __shared__ ResidentBarriers bar;
    const int t = (int)threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);
    const int first = (int)blockIdx.x % s.sharing, o0 = (int)blockIdx.x / s.sharing * OUT;
    if (t == GROUPS * 128) {
        request_map(&pixels);
        request_map(&filters);
    }
    barriers_init(bar, s);
    after_previous();
    if (group == GROUPS) {
        if (t == GROUPS * 128) fetch_all(&pixels, &filters, s, first, o0, room, ring, bar);
        return;
    }
    float d[64];
    RingPlace from = { 0, 0 };
    int at = 0;                                // the stage that is read
    auto release = [&](int stage) {
        __syncwarp();
        if (t % 32 == 0) barrier_arrive(&bar.free[stage]);
    };
    auto chunk = [&](int c, int first_time, auto products) {
        const int old = at;
        at = from.at;
        barrier_wait(&bar.full[at], from.phase);
        const unsigned stage = shared_address(ring) + (unsigned)(at * STAGE);
        for (int tap = 0; tap < TAPS; tap++) {
            const int f = c * TAPS + tap;
            if (first_time) barrier_wait(&bar.filters[f], 0);
            const unsigned pixel = (unsigned)(tap / 3 * BORDERED + tap % 3);
            const uint64_t a = matrix(shared_address(room) + (unsigned)(f * FILTER), 8 * ROW);
            const uint64_t b = matrix(stage + pixel * ROW, BORDERED * ROW);
            multiply_begin();
            #pragma unroll
            for (int k = 0; k < products; k++) multiply(d, a + 2 * k, b + 2 * k, f | k);
            multiply_end();
            all_products_but<1>();             // those of the tap before this one are done
            if (c && tap == 0) release(old);
        }
        from.next(s.stages);
    };
    for (int i = 0, tile = first; tile < s.tiles; i++, tile += s.sharing) {
        if (i % GROUPS != group) {             // the other warpgroup's
            for (int c = 0; c < s.n_chunk; c++) from.next(s.stages);
            continue;
        }
        // So that one multiplies and one stores; and all earlier stages have been full, so that the
        // phase of a stage is clear.
        if (i) barrier_wait(&bar.turn[group], (unsigned)((i - 1) / GROUPS & 1));
        for (int c = 0; c < s.n_chunk - 1; c++) chunk(c, i < GROUPS, Number<KC / 16>());
        chunk(s.n_chunk - 1, i < GROUPS, Number<LAST>());
        if (t % 128 == 0) barrier_arrive(&bar.turn[1 - group]);
        all_products_but<0>();
        store_tile(d, tile_origin(s, tile), s, o0, group, ring + at * STAGE, y);
        release(at);
    }
#endif
}

// ---- launching ---------------------------------------------------------------------------------

// Of 64 output channels; where the last one has fewer, fetches fill in zeros for the others.
static int slices(const Tensor *y) { return (y->c + OUT - 1) / OUT; }

static ResidentTiles tiles_of(const Cuda *cuda, const Tensor *x, const Tensor *y) {
    ResidentTiles s = { x->n, x->h, x->w, y->c };
    s.n_chunk = (x->c + KC - 1) / KC;
    s.tiles = x->w / ACROSS * (x->h / DOWN) * x->n;
    s.sharing = cuda->sms / slices(y);
    if (s.sharing < 1) s.sharing = 1;
    if (s.sharing > s.tiles) s.sharing = s.tiles;
    // 1 KiB for alignment, and the barriers
    s.stages = (cuda->smem - 1024 - 512 - s.n_chunk * TAPS * FILTER) / STAGE;
    if (s.stages > MOST_STAGES) s.stages = MOST_STAGES;
    return s;
}

int hopper_resident_fits(const Dev *dev, const Tensor *x, const Tensor *y) {
    const Cuda *cuda = cuda_of(dev);
    return cuda->hopper && cuda->half && x->w % ACROSS == 0 && x->h % DOWN == 0 && x->c % 16 == 0 &&
           x->c % KC != 48 && x->c <= MOST_CHUNKS * KC && y->c % 16 == 0 &&
           tiles_of(cuda, x, y).stages > 1 && hopper_can_map();
}

template <int LAST>
static cudaError_t launch(Cuda *cuda, const Tensor *x, const void *w, const Tensor *y) {
    const ResidentTiles s = tiles_of(cuda, x, y);
    const size_t in = (size_t)x->c;
    const TensorBox w_box = { 3, { x->c, TAPS, y->c }, { KC, 1, OUT }, { 1, in, TAPS * in } };
    CUtensorMap pixels, filters;
    if (hopper_map_pixels(&pixels, x, KC, BORDERED, DOWN + 2, 1) || hopper_map(&filters, w, &w_box))
        return cudaErrorInvalidValue;
    const int bytes = 1024 + s.n_chunk * TAPS * FILTER + s.stages * STAGE;
    const cudaError_t rc = cudaFuncSetAttribute(conv3_resident_kernel<LAST>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (rc) return rc;
    return launch_early(cuda, conv3_resident_kernel<LAST>, (unsigned)(s.sharing * slices(y)),
                        THREADS, (size_t)bytes, 0, pixels, filters, (bf16 *)y->p, s);
}

cudaError_t hopper_resident_conv(Dev *dev, const Tensor *x, const void *w, const Tensor *y) {
    Cuda *cuda = cuda_of(dev);
    switch (x->c % KC) {
    case 0: return launch<4>(cuda, x, w, y);
    case 32: return launch<2>(cuda, x, w, y);
    default: return launch<1>(cuda, x, w, y);
    }
}
