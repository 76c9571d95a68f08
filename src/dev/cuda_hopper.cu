// cuda_hopper.cu - own 3x3 convolutions of stride 1 in bf16, for GPUs of compute capability 9.0.
//
// A block computes a tile of pixels, 8 x 8 for each of its warpgroups, of BN channels as a sum of
// matrix products, one for each of the nine taps and each 64 input channels. The input is fetched
// once for all nine taps: the tile with a border, [pixel][channel] in shared memory; each tap reads
// the same pixels from another start. That works because a warpgroup's rows of A come in groups of
// eight that may lie any distance apart: a group is a row of eight pixels, the distance that of
// rows of the tile. Outside the image the fetches give zeros, which is the padding. Filters come
// tap by tap, through a ring of stages; the first thread fetches for all.
//
// With two warpgroups a tile has 8 columns, and other blocks on the multiprocessor work while one
// begins or ends. With four it has twice the pixels, so that filters are fetched half as often.
#include "dev/cuda_hopper.cuh"

enum { SIDE = 8, KC = 64, ROW = KC * 2, MOST_STAGES = 8 };   // a warpgroup's pixels: SIDE x SIDE

struct Tiles {
    int n, h, w, in, out;
    int across, high, images;                  // a tile's warpgroups: of a row, a column; images
    int n_chunk, m_tiles, buffers, stages;
};

// Pixels from one row of a tile to the next; bytes of a fetched tile.
template <int GROUPS> static __host__ __device__ int pitch_of(const Tiles &s) {
    return (GROUPS == 2 ? 1 : s.across) * SIDE + 2;
}
template <int GROUPS> static __host__ __device__ int fetched_bytes(const Tiles &s) {
    return pitch_of<GROUPS>(s) * (s.high * SIDE + 2) * s.images * ROW;
}
// ... and of its place in shared memory
template <int GROUPS> static __host__ __device__ int buffer_bytes(const Tiles &s) {
    return GROUPS == 2 ? 200 * ROW : (fetched_bytes<GROUPS>(s) + 1023) / 1024 * 1024;
}

// ---- the kernel --------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct TileOrigin {
    int w0, h0, n0, o0;
}; // first column, row, image, output channel

static __device__ __forceinline__ TileOrigin tile_origin(const Tiles &s, int bn) {
    const int m = (int)blockIdx.x % s.m_tiles, across = s.across * SIDE, down = s.high * SIDE;
    const int per_row = s.w / across, per_image = per_row * (s.h / down);
    return { m % per_row * across, m % per_image / per_row * down, m / per_image * s.images,
             (int)blockIdx.x / s.m_tiles * bn };
}

struct Patch {
    int row, column, image;
}; // a warpgroup's, in its tile

template <int GROUPS> static __device__ __forceinline__ Patch patch_of(const Tiles &s, int group) {
    const int across = GROUPS == 2 ? 1 : s.across;
    return { group / across % s.high * SIDE, group % across * SIDE, group / across / s.high };
}

struct TileBarriers {                          // filled by the fetches, freed by the warpgroups
    uint64_t a_full[2], a_free[2], b_full[MOST_STAGES], b_free[MOST_STAGES];
};

static __device__ __forceinline__ void barriers_init(TileBarriers &b, int stages, int groups) {
    if (threadIdx.x == 0) {
        ring_init(b.a_full, b.a_free, 2, groups);
        ring_init(b.b_full, b.b_free, stages, groups);
        barriers_ready();
    }
    __syncthreads();
}

// The products to memory, through the shared memory that the fetched data no longer needs: a
// pixel's channels in a row.
template <int BN, int GROUPS>
static __device__ __forceinline__ void store_tile(const float (&d)[BN / 2], const TileOrigin &o,
                                                  const Tiles &s, unsigned char *room, bf16 *y) {
    constexpr int PITCH = BN * 2 + 16, VECS = BN / 8;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    unsigned char *mine = room + warp * 16 * PITCH;
    unsigned char *to = mine + (lane % 16) * PITCH + lane / 16 * 16;
    #pragma unroll
    for (int j = 0; j < VECS; j += 2)
        store_quarters(to + j * 16, two_bf16(d[4 * j], d[4 * j + 1]),
                       two_bf16(d[4 * j + 2], d[4 * j + 3]), two_bf16(d[4 * j + 4], d[4 * j + 5]),
                       two_bf16(d[4 * j + 6], d[4 * j + 7]));
    __syncwarp();
    const Patch at = patch_of<GROUPS>(s, warp / 4);
    const int n = o.n0 + at.image, h0 = o.h0 + at.row, w0 = o.w0 + at.column;
    for (int i = lane; i < 16 * VECS; i += 32) {
        const int p = warp % 4 * 16 + i / VECS;
        const size_t pixel = ((size_t)n * s.h + h0 + p / SIDE) * s.w + w0 + p % SIDE;
        const uint4 v = *(const uint4 *)(mine + i / VECS * PITCH + i % VECS * 16);
        if (n < s.n) *(uint4 *)(y + pixel * s.out + o.o0 + i % VECS * 8) = v;
    }
}

#endif

// LAST: products of 16 channels in the last chunk, 4 where it is full.
template <int BN, int LAST, int GROUPS>
static __global__ void __launch_bounds__(GROUPS * 128, GROUPS > 2 ? 1
                                                       : BN <= 64 ? 3
                                                                  : 2)
    conv3_kernel(const __grid_constant__ CUtensorMap pixels,
                 const __grid_constant__ CUtensorMap filters, bf16 *y, const Tiles s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int B = BN * ROW;
    const int A = buffer_bytes<GROUPS>(s), pitch = pitch_of<GROUPS>(s);
    extern __shared__ unsigned char raw[];
    unsigned char *room = raw + (-(int)shared_address(raw) & 1023), *ring = room + s.buffers * A;
    __shared__ TileBarriers bar;
    const int t = (int)threadIdx.x;
    const TileOrigin o = tile_origin(s, BN);
    if (t == 0) {
        request_map(&pixels);
        request_map(&filters);
    }
    barriers_init(bar, s.stages, GROUPS);
    after_previous();

    // One thread fetches for all: pixels a chunk ahead, filters as far ahead as there are stages.
    const int steps = s.n_chunk * TAPS;
    auto fetch_a = [&](int c) {
        const int at = c % 2;
        if (c >= 2) barrier_wait(&bar.a_free[at], (c / 2 - 1) & 1);
        barrier_expect(&bar.a_full[at], fetched_bytes<GROUPS>(s));
        fetch_pixels(room + at * A, &pixels, &bar.a_full[at], c * KC, o.w0 - 1, o.h0 - 1, o.n0);
    };
    auto fetch_b = [&](int step, int at) {
        barrier_expect(&bar.b_full[at], B);
        fetch_filters(ring + at * B, &filters, &bar.b_full[at], step / TAPS * KC, step % TAPS,
                      o.o0);
    };
    if (t == 0) {
        fetch_a(0);
        for (int i = 0; i < s.stages && i < steps; i++) fetch_b(i, i);
    }
    const Patch patch = patch_of<GROUPS>(s, t / 128);
    const int first = (patch.image * (s.high * SIDE + 2) + patch.row) * pitch + patch.column;
    float d[BN / 2];
    #pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0;
    int at = 0, old = 0, step = 0;              // this step's stage, the one before it
    unsigned phase = 0, old_phase = 0;
    auto chunk = [&](int c, auto products) {
        barrier_wait(&bar.a_full[c % 2], (c / 2) & 1);
        const unsigned a0 = shared_address(room) + (unsigned)(c % 2 * A + first * ROW);
        for (int tap = 0; tap < TAPS; tap++, step++) {
            barrier_wait(&bar.b_full[at], phase);
            const unsigned pixel = (unsigned)(tap / 3 * pitch + tap % 3);
            const uint64_t a = matrix(a0 + pixel * ROW, (unsigned)(pitch * ROW));
            const uint64_t b = matrix(shared_address(ring) + (unsigned)(at * B), 8 * ROW);
            multiply_begin();
            #pragma unroll
            for (int k = 0; k < products; k++) multiply(d, a + 2 * k, b + 2 * k);
            multiply_end();
            all_products_but<1>();              // those of the step before this one are done
            if (step && t % 128 == 0) barrier_arrive(&bar.b_free[old]);
            if (tap == 0 && c && t % 128 == 0) barrier_arrive(&bar.a_free[(c - 1) % 2]);
            if (t == 0 && step) {               // the stage of that step is filled again
                if (tap == 1 && c + 1 < s.n_chunk) fetch_a(c + 1);
                if (step - 1 + s.stages < steps) {
                    barrier_wait(&bar.b_free[old], old_phase);
                    fetch_b(step - 1 + s.stages, old);
                }
            }
            old = at;
            old_phase = phase;
            if (++at == s.stages) at = 0, phase ^= 1;
        }
    };
    for (int c = 0; c < s.n_chunk - (LAST < KC / 16); c++) chunk(c, Number<KC / 16>());
    if (LAST < KC / 16) chunk(s.n_chunk - 1, Number<LAST>());
    all_products_but<0>();
    __syncthreads();
    store_tile<BN, GROUPS>(d, o, s, room, y);
#endif
}

// ---- launching ---------------------------------------------------------------------------------

typedef CUresult EncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                             const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                             const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function, or NULL.
static EncodeTiled *encode_tiled() {
    static EncodeTiled *found;
    static int asked;
    cudaDriverEntryPointQueryResult how;
    void *p = NULL;
    if (!asked &&
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault,
                                         &how) == cudaSuccess &&
        how == cudaDriverEntryPointSuccess)
        found = (EncodeTiled *)p;
    asked = 1;
    return found;
}

int hopper_can_map(void) { return encode_tiled() != NULL; }

int hopper_map(CUtensorMap *map, const void *p, const TensorBox *t) {
    cuuint64_t dims[4], strides[4];
    cuuint32_t boxes[4], ones[4];
    for (int i = 0; i < t->rank; i++) {
        dims[i] = (cuuint64_t)t->dim[i];
        strides[i] = t->stride[i] * sizeof(bf16);
        boxes[i] = (cuuint32_t)t->box[i];
        ones[i] = 1;
    }
    const CUtensorMapSwizzle swizzle =
        t->box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
    return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (cuuint32_t)t->rank, (void *)p,
                          dims, strides + 1, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? 0
               : -1;
}

int hopper_map_pixels(CUtensorMap *map, const Tensor *t, int channels, int columns, int rows,
                      int images) {
    const size_t c = (size_t)t->c, row = c * (size_t)t->w;
    const TensorBox box = { 4,
                            { t->c, t->w, t->h, t->n },
                            { channels, columns, rows, images },
                            { 1, c, row, row * (size_t)t->h } };
    return hopper_map(map, t->p, &box);
}

// A variant is a number of channels a block computes, its warpgroups, and how many blocks share a
// multiprocessor; the last one is cuda_hopper_resident.cu's.
enum { RESIDENT = HOPPER_VARIANTS - 1 };
static const struct {
    int width, groups, per_sm;
} VARIANT[RESIDENT] = { { 160, 2, 1 }, { 160, 2, 2 }, { 128, 2, 1 }, { 128, 2, 2 }, { 64, 2, 1 },
                        { 64, 2, 2 },  { 64, 2, 3 },  { 16, 2, 3 },  { 160, 4, 1 } };

static Tiles tiles_of(const Cuda *cuda, int variant, const Tensor *x, const Tensor *y) {
    const int groups = VARIANT[variant].groups;
    Tiles s = { x->n, x->h, x->w, x->c, y->c };
    s.across = groups == 4 && x->w % (2 * SIDE) == 0 ? 2 : 1;
    s.high = x->h % (2 * SIDE) == 0 ? 2 : 1;
    s.images = groups / (s.across * s.high);
    s.n_chunk = (x->c + KC - 1) / KC;
    s.m_tiles =
        x->w / (s.across * SIDE) * (x->h / (s.high * SIDE)) * ((x->n + s.images - 1) / s.images);
    s.buffers = s.n_chunk > 1 ? 2 : 1;
    // of a multiprocessor's memory a block takes 1 KiB besides, its barriers and its alignment
    const int room = (cuda->smem + 1024) / VARIANT[variant].per_sm - 1024 - 1024 - 256;
    const int buffer = groups == 4 ? buffer_bytes<4>(s) : buffer_bytes<2>(s);
    s.stages = (room - s.buffers * buffer) / (VARIANT[variant].width * ROW);
    if (s.stages > MOST_STAGES) s.stages = MOST_STAGES;
    return s;
}

int hopper_fits(const Dev *dev, int variant, const Tensor *x, const Tensor *y) {
    const Cuda *cuda = cuda_of(dev);
    if (variant == RESIDENT) return hopper_resident_fits(dev, x, y);
    if (variant < 0 || variant > RESIDENT) return 0;
    const int width = VARIANT[variant].width;
    return cuda->hopper && cuda->half && x->w % SIDE == 0 && x->h % SIDE == 0 && x->c % 32 == 0 &&
           y->c % width == 0 && (width > 16 || y->c < 64) &&
           tiles_of(cuda, variant, x, y).stages > 1 && hopper_can_map();
}

template <int BN, int LAST, int GROUPS>
static cudaError_t launch(Cuda *cuda, const Tiles *s, const Tensor *x, const void *w,
                          const Tensor *y) {
    const size_t in = (size_t)x->c;
    const TensorBox w_box = { 3, { x->c, TAPS, y->c }, { KC, 1, BN }, { 1, in, TAPS * in } };
    CUtensorMap pixels, filters;
    if (hopper_map_pixels(&pixels, x, KC, pitch_of<GROUPS>(*s), s->high * SIDE + 2, s->images) ||
        hopper_map(&filters, w, &w_box))
        return cudaErrorInvalidValue;
    const int fetched = s->buffers * buffer_bytes<GROUPS>(*s) + s->stages * BN * ROW;
    const int leaving = GROUPS * 4 * 16 * (BN * 2 + 16);
    const int bytes = 1024 + (fetched > leaving ? fetched : leaving);
    const cudaError_t rc = cudaFuncSetAttribute(conv3_kernel<BN, LAST, GROUPS>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (rc) return rc;
    return launch_early(cuda, conv3_kernel<BN, LAST, GROUPS>, (unsigned)(s->m_tiles * (y->c / BN)),
                        GROUPS * 128, (size_t)bytes, 0, pixels, filters, (bf16 *)y->p, *s);
}

// The last chunk of input channels is full, or half.
template <int BN, int GROUPS>
static cudaError_t launch_either(Cuda *cuda, const Tiles *s, const Tensor *x, const void *w,
                                 const Tensor *y) {
    return x->c % KC ? launch<BN, 2, GROUPS>(cuda, s, x, w, y)
                     : launch<BN, 4, GROUPS>(cuda, s, x, w, y);
}

cudaError_t hopper_conv(Dev *dev, int variant, const Tensor *x, const void *w, const Tensor *y) {
    if (variant == RESIDENT) return hopper_resident_conv(dev, x, w, y);
    Cuda *cuda = cuda_of(dev);
    const Tiles s = tiles_of(cuda, variant, x, y);
    if (VARIANT[variant].groups == 4) return launch_either<160, 4>(cuda, &s, x, w, y);
    switch (VARIANT[variant].width) {
    case 160: return launch_either<160, 2>(cuda, &s, x, w, y);
    case 128: return launch_either<128, 2>(cuda, &s, x, w, y);
    case 64: return launch_either<64, 2>(cuda, &s, x, w, y);
    default: return launch_either<16, 2>(cuda, &s, x, w, y);
    }
}
