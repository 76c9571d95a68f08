// cuda_hopper_dw.cu - weight gradients of 3x3 convolutions of stride 1 in bf16, for GPUs of compute
// capability 9.0.
//
// The gradient of a tap is the product of two matrices of all pixels: the input, shifted by the
// tap, transposed, and the output's gradient. Pixels are what is summed over, so rows of shared
// memory ([pixel][channel], as fetched) are columns of both operands, which wgmma can read. They
// come in chunks of 32 channels, and the chunks of an operand may lie any distance apart: a
// warpgroup's 64 rows are two strips, each 32 input channels of one tap, read from the same tile
// of pixels with a border, each from its own start. So any number of chunks is divided evenly:
// 160 channels have 45 strips.
//
// A block has three warpgroups that multiply (six strips with BN output channels) and a warp that
// fetches, tile by tile of 128 pixels (8 columns of 16 rows, or of 8 rows of two images). Blocks
// divide strips, output channels and tiles. Each writes its sums; a second kernel adds them, in a
// fixed order, to the gradient. Outside the image the fetches give zeros, so every size of image
// will do.
#include "dev/cuda_hopper.cuh"

enum { ACROSS = 8, PIXELS = 128, STEPS = PIXELS / 16 };          // of a tile; wgmmas for it
enum { CHUNK = 32, PIXEL = CHUNK * 2, GRADS = PIXELS * PIXEL };  // channels, bytes
enum { GROUPS = 3, STRIPS = 2 * GROUPS, FETCHER = GROUPS * 128, THREADS = FETCHER + 32 };
enum { MOST_STAGES = 8, MOST_ROWS = 20 };      // rows: two images of 8 with a border

struct DwTiles {
    int down, images;                          // a tile's rows and images
    int across, high, tiles;                   // tiles in a row of an image, in a column; of all
    int chunks, strips, by_column;             // of the input; the order of a chunk's taps
    int groups, kinds, splits;                 // of six strips; times output channels; of the tiles
    int stages;
};

// How the input lies in shared memory: once, with a border, or once for each column of taps, so
// that every tap starts where the swizzle's pattern does.
template <int COPIES> struct Input {
    static constexpr int PITCH = COPIES == 1 ? ACROSS + 2 : ACROSS;      // pixels from row to row
    static constexpr int COPY = PITCH * MOST_ROWS * PIXEL;
    static constexpr int BYTES = (COPIES * COPY + 1023) / 1024 * 1024;   // of a chunk
    // Where the i-th strip of a chunk starts. The second chunk of an operand must lie behind the
    // first, so the order is that of the addresses: of taps by rows, or by columns.
    static __device__ int offset(int i) {
        return COPIES == 1 ? (i / 3 * PITCH + i % 3) * PIXEL : i / 3 * COPY + i % 3 * PITCH * PIXEL;
    }
};

template <int BN, int COPIES> struct Stage {
    static constexpr int BYTES = 2 * Input<COPIES>::BYTES + BN / CHUNK * GRADS;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct DwBlock {                               // what a block computes
    int strip, chunk, n_chunks;                // its first strip; chunks of input that it needs
    int out, from, to;                         // its first output channel; its tiles
};

static __device__ __forceinline__ DwBlock dw_block(const DwTiles &s, int bn) {
    const int kind = (int)blockIdx.x % s.kinds, split = (int)blockIdx.x / s.kinds;
    const int strip = kind % s.groups * STRIPS, last = min(strip + STRIPS, s.strips) - 1;
    return { strip,
             strip / TAPS,
             last / TAPS - strip / TAPS + 1,
             kind / s.groups * bn,
             (int)((long long)split * s.tiles / s.splits),
             (int)((long long)(split + 1) * s.tiles / s.splits) };
}

struct DwBarriers {                            // filled by the fetches, freed by the warpgroups
    uint64_t full[MOST_STAGES], free[MOST_STAGES];
};

template <int BN, int COPIES>
static __device__ __forceinline__ void
fetch_tiles(const CUtensorMap *pixels, const CUtensorMap *grads, const DwBlock &b, const DwTiles &s,
            unsigned char *room, DwBarriers &bar) {
    typedef Input<COPIES> In;
    const int copy = In::PITCH * (s.down + 2) * s.images * PIXEL;
    const int bytes = b.n_chunks * COPIES * copy + BN / CHUNK * GRADS;
    int at = 0;
    unsigned phase = 1;                        // of a barrier that is still unused: "free"
    for (int tile = b.from; tile < b.to; tile++) {
        const int w = tile % s.across * ACROSS, h = tile / s.across % s.high * s.down,
                  n = tile / s.across / s.high * s.images;
        unsigned char *x = room + at * Stage<BN, COPIES>::BYTES, *dy = x + 2 * In::BYTES;
        barrier_wait(&bar.free[at], phase);
        barrier_expect(&bar.full[at], bytes);
        for (int i = 0; i < b.n_chunks; i++)
            for (int k = 0; k < COPIES; k++)
                fetch_pixels(x + i * In::BYTES + k * In::COPY, pixels, &bar.full[at],
                             (b.chunk + i) * CHUNK, w - 1 + k, h - 1, n);
        for (int i = 0; i < BN / CHUNK; i++)
            fetch_pixels(dy + i * GRADS, grads, &bar.full[at], b.out + i * CHUNK, w, h, n);
        if (++at == s.stages) at = 0, phase ^= 1;
    }
}

#endif

// part: [split][kind][warpgroup][BN / 8][thread], four numbers of each thread's.
template <int BN, int COPIES>
static __global__ void __launch_bounds__(THREADS, 1)
    conv3_dw_kernel(const __grid_constant__ CUtensorMap pixels,
                    const __grid_constant__ CUtensorMap grads, float4 *part, const DwTiles s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef Input<COPIES> In;
    extern __shared__ unsigned char raw[];
    unsigned char *room = raw + (-(int)shared_address(raw) & 1023);
    __shared__ DwBarriers bar;
    const int t = (int)threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);
    const DwBlock b = dw_block(s, BN);
    if (t == FETCHER) {
        request_map(&pixels);
        request_map(&grads);
    }
    if (t == 0) {
        ring_init(bar.full, bar.free, s.stages, GROUPS);
        barriers_ready();
    }
    __syncthreads();
    after_previous();
    if (group == GROUPS) {
        if (t == FETCHER) fetch_tiles<BN, COPIES>(&pixels, &grads, b, s, room, bar);
        return;
    }
    // This warpgroup's two strips. Where there are none left it computes what is not stored.
    const int strip = min(b.strip + 2 * group, s.strips - 1);
    const int first = (strip / TAPS - b.chunk) * In::BYTES + In::offset(strip % TAPS);
    const int second = strip + 1 < s.strips ? ((strip + 1) / TAPS - b.chunk) * In::BYTES +
                                                  In::offset((strip + 1) % TAPS)
                                            : first + PIXEL;
    constexpr uint64_t DOWN = 2 * In::PITCH * PIXEL / 16;     // a step is two rows of pixels
    const uint64_t border = s.images == 2 ? DOWN : 0;         // to the second image
    float d[BN / 2];
    #pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0;
    int at = 0, old = 0;
    unsigned phase = 0;
    for (int tile = b.from; tile < b.to; tile++) {
        barrier_wait(&bar.full[at], phase);
        const unsigned x = shared_address(room) + (unsigned)(at * Stage<BN, COPIES>::BYTES);
        const uint64_t a =
            matrix_of_pixels(x + (unsigned)first, (unsigned)(second - first), In::PITCH * PIXEL);
        const uint64_t dy = matrix_of_pixels(x + 2 * In::BYTES, GRADS, ACROSS * PIXEL);
        multiply_begin();
        #pragma unroll
        for (int k = 0; k < STEPS; k++)
            multiply<1>(d, a + DOWN * k + (k < STEPS / 2 ? 0 : border), dy + 16 * PIXEL / 16 * k);
        multiply_end();
        all_products_but<1>();                 // those of the tile before this one are done
        if (tile > b.from && t % 128 == 0) barrier_arrive(&bar.free[old]);
        old = at;
        if (++at == s.stages) at = 0, phase ^= 1;
    }
    all_products_but<0>();
    if (b.strip + 2 * group >= s.strips) return;
    float4 *to = part + ((size_t)blockIdx.x * GROUPS + group) * (BN / 8 * 128) + t % 128;
    #pragma unroll
    for (int j = 0; j < BN / 8; j++)
        to[j * 128] = make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
#endif
}

// ---- the second kernel -------------------------------------------------------------------------

// dw [out][in][tap] += the sums of all splits: a block takes 8 output channels and 16 of the
// input's. A warp for each tap reads what a warp wrote: each thread has two columns of two rows
// that are eight apart (PTX: the accumulator of wgmma).
enum { OUTS = 8, INS = 16, SUM_THREADS = TAPS * 32, LINE = INS * TAPS, AT_ONCE = 16 };

static __global__ void __launch_bounds__(SUM_THREADS)
    dw_sum_kernel(const float4 *part, float *dw, int in, int bn, const DwTiles s) {
    __shared__ float tile[OUTS][LINE + 4];     // so that a warp's stores are to 32 banks
    after_previous();
    const int halves = s.chunks * (CHUNK / INS), c0 = (int)blockIdx.x % halves * INS,
              out = (int)blockIdx.x / halves * OUTS;
    const int t = (int)threadIdx.x, tap = t / 32, lane = t % 32,
              strip = c0 / CHUNK * TAPS + (s.by_column ? tap % 3 * 3 + tap / 3 : tap),
              warp = strip % 2 * 2 + c0 % CHUNK / INS;
    const int kind = out / bn * s.groups + strip / STRIPS;
    const size_t warpgroup = (size_t)(bn / 8 * 128), split = (size_t)s.kinds * GROUPS * warpgroup;
    const float4 *from = part + ((size_t)kind * GROUPS + strip % STRIPS / 2) * warpgroup +
                         out % bn / 8 * 128 + warp * 32 + lane;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = 0; i < s.splits; i += AT_ONCE) {
        float4 v[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = i + k < s.splits ? from[(size_t)(i + k) * split] : make_float4(0, 0, 0, 0);
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sum.x += v[k].x, sum.y += v[k].y, sum.z += v[k].z, sum.w += v[k].w;
    }
    const int row = lane / 4, col = lane % 4 * 2;
    tile[col][row * TAPS + tap] = sum.x;
    tile[col + 1][row * TAPS + tap] = sum.y;
    tile[col][(row + 8) * TAPS + tap] = sum.z;
    tile[col + 1][(row + 8) * TAPS + tap] = sum.w;
    __syncthreads();
    const int e = t % LINE, here = (in - c0) * TAPS;   // numbers that there are
    #pragma unroll
    for (int o = t / LINE; o < OUTS; o += SUM_THREADS / LINE)
        if (e < here) dw[((size_t)(out + o) * in + c0) * TAPS + e] += tile[o][e];
}

// ---- launching ---------------------------------------------------------------------------------

// A variant is a number of output channels that a block computes, and how the input lies in shared
// memory.
static const int WIDTH[HOPPER_DW_VARIANTS] = { 160, 128, 64, 160, 128, 64 },
                 COPIES_OF[HOPPER_DW_VARIANTS] = { 1, 1, 1, 3, 3, 3 };

static int round_up(int a, int b) { return (a + b - 1) / b; }

static DwTiles tiles_of(const Cuda *cuda, int variant, const Tensor *x, const Tensor *y) {
    DwTiles s = {};
    const int width = WIDTH[variant];
    s.images = x->h % 16 && x->h % 16 <= 8 ? 2 : 1;
    s.down = 16 / s.images;
    s.across = round_up(x->w, ACROSS);
    s.high = round_up(x->h, s.down);
    s.tiles = s.across * s.high * round_up(x->n, s.images);
    s.chunks = round_up(x->c, CHUNK);
    s.strips = s.chunks * TAPS;
    s.by_column = COPIES_OF[variant] > 1;
    s.groups = round_up(s.strips, STRIPS);
    s.kinds = s.groups * (y->c / width);
    s.splits = cuda->sms / s.kinds;            // one block on each multiprocessor, if that can be
    if (s.splits < 1) s.splits = 1;
    if (s.splits > s.tiles) s.splits = s.tiles;
    // 1 KiB for alignment, and the barriers
    const int input = COPIES_OF[variant] == 1 ? Input<1>::BYTES : Input<3>::BYTES;
    s.stages = (cuda->smem - 1024 - 256) / (2 * input + width / CHUNK * GRADS);
    if (s.stages > MOST_STAGES) s.stages = MOST_STAGES;
    return s;
}

int hopper_dw_fits(const Dev *dev, int variant, const Tensor *x, const Tensor *y) {
    const Cuda *cuda = cuda_of(dev);
    return cuda->hopper && cuda->half && x->c % 8 == 0 && x->h == y->h && x->w == y->w &&
           variant >= 0 && variant < HOPPER_DW_VARIANTS && y->c % WIDTH[variant] == 0 &&
           tiles_of(cuda, variant, x, y).stages > 1 && hopper_can_map();
}

size_t hopper_dw_bytes(const Dev *dev, int variant, const Tensor *x, const Tensor *y) {
    const DwTiles s = tiles_of(cuda_of(dev), variant, x, y);
    return (size_t)s.splits * s.kinds * GROUPS * 64 * WIDTH[variant] * sizeof(float);
}

template <int BN, int COPIES>
static cudaError_t launch(Cuda *cuda, const DwTiles *s, const Tensor *x, const Tensor *dy,
                          void *part) {
    CUtensorMap pixels, grads;
    if (hopper_map_pixels(&pixels, x, CHUNK, Input<COPIES>::PITCH, s->down + 2, s->images) ||
        hopper_map_pixels(&grads, dy, CHUNK, ACROSS, s->down, s->images))
        return cudaErrorInvalidValue;
    const int bytes = 1024 + s->stages * Stage<BN, COPIES>::BYTES;
    const cudaError_t rc = cudaFuncSetAttribute(conv3_dw_kernel<BN, COPIES>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (rc) return rc;
    return launch_early(cuda, conv3_dw_kernel<BN, COPIES>, (unsigned)(s->kinds * s->splits),
                        THREADS, (size_t)bytes, 0, pixels, grads, (float4 *)part, *s);
}

cudaError_t hopper_dw(Dev *dev, int variant, const Tensor *x, const Tensor *dy, void *part) {
    Cuda *cuda = cuda_of(dev);
    const DwTiles s = tiles_of(cuda, variant, x, dy);
    switch (WIDTH[variant] + COPIES_OF[variant]) {
    case 161: return launch<160, 1>(cuda, &s, x, dy, part);
    case 129: return launch<128, 1>(cuda, &s, x, dy, part);
    case 65: return launch<64, 1>(cuda, &s, x, dy, part);
    case 163: return launch<160, 3>(cuda, &s, x, dy, part);
    case 131: return launch<128, 3>(cuda, &s, x, dy, part);
    default: return launch<64, 3>(cuda, &s, x, dy, part);
    }
}

cudaError_t hopper_dw_add(Dev *dev, int variant, const Tensor *x, const Tensor *dy,
                          const void *part, float *dw) {
    Cuda *cuda = cuda_of(dev);
    const DwTiles s = tiles_of(cuda, variant, x, dy);
    return launch_early(cuda, dw_sum_kernel, (unsigned)(s.chunks * (CHUNK / INS) * (dy->c / OUTS)),
                        SUM_THREADS, 0, 0, (const float4 *)part, dw, x->c, WIDTH[variant], s);
}
