// cuda_hopper_s2.cu - 3x3 convolutions of stride 2 in bf16 and their data gradients, for GPUs of
// compute capability 9.0.
//
// With stride 2 a tap meets pixels of one parity of rows and of columns only. Four classes of
// pixels, with 4, 2, 2 and 1 taps, so are four convolutions of stride 1 on images of half the size:
// forward, their inputs are the four classes of x, and their results are added; backward, the four
// classes of dx each come from dy. Each is computed as in cuda_hopper.cu: a tile of pixels with its
// border is fetched once for all of its taps, filters come tap by tap.
//
// A block computes 64 pixels (8 x 8) of BN channels by each of two or four warpgroups. Two have a
// warp beside them that fetches; with four there are no registers for it, and the first thread
// does. Backward, a block computes the four classes of its tile one after the other, and the
// fetches for the next run while one is stored.
#include "dev/cuda_hopper.cuh"

enum { CLASSES = 4, SIDE = 8, KC = 64, ROW = KC * 2 };   // a patch's side; a step's channels, bytes
enum { MOST_PLANES = 4, MOST_STAGES = 8 };
enum { STORED = 16, STORED_ROW = STORED * 2 + 16, STORE_ROOM = 16 * STORED_ROW };   // of a warp

struct S2Tiles {
    int n, h, w, out;                          // images; dy's or y's size; channels of the result
    int across, high, images;                  // patches of a tile
    int n_chunk, tiles;
    int plane, planes, stages;                 // bytes of a fetched plane; how many, of filters too
};

struct S2Maps {
    CUtensorMap plane[CLASSES], filters;
};

// Classes are (odd, odd), (odd, even), (even, odd), (even, even) rows and columns: those that are
// odd have two taps, and one more row or column is fetched.
static __host__ __device__ int odd_rows(int cls) { return cls < 2; }
static __host__ __device__ int odd_columns(int cls) { return cls % 2 == 0; }

template <int WARPGROUPS> static constexpr int store_room() { return WARPGROUPS * 4 * STORE_ROOM; }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct S2Barriers {                            // filled by the fetches, freed by the warpgroups
    uint64_t a_full[MOST_PLANES], a_free[MOST_PLANES], b_full[MOST_STAGES], b_free[MOST_STAGES];
};

struct S2Origin {
    int w0, h0, n0, o0;                        // first column, row, image, output channel
};

static __device__ __forceinline__ S2Origin s2_origin(const S2Tiles &s, int bn, int block) {
    const int m = block % s.tiles, across = s.across * SIDE, high = s.high * SIDE;
    const int per_row = s.w / across, per_image = per_row * (s.h / high);
    return { m % per_row * across, m % per_image / per_row * high, m / per_image * s.images,
             block / s.tiles * bn };
}

// What is fetched next: a plane of pixels before the first of its taps, and filters. A step is a
// tap of a plane. Forward, the order is all nine taps of 64 channels, class by class, then the next
// 64; backward, all channels of a class.
struct S2Next {
    S2Origin o;
    int j, chunk, left;                        // the tap's place in the order; steps left
    int a, b, planes, steps;                   // places in shared memory; how many are in use
    unsigned a_phase, b_phase;
};

static __device__ __forceinline__ int class_at(int j) { return j < 4 ? 0 : j / 2 - 1; }
static __device__ __forceinline__ bool is_first(int j) { return 0x151 >> j & 1; }   // 0, 4, 6, 8
static __device__ __forceinline__ bool is_last(int j) { return 0x1a8 >> j & 1; }    // 3, 5, 7, 8
static __device__ __forceinline__ int tap_at(int j) { return (int)(0x453718620ull >> 4 * j & 15); }

template <int DX>
static __device__ __forceinline__ void fetch_plane(S2Next *f, const S2Maps &maps, const S2Tiles &s,
                                                   unsigned char *room, S2Barriers &bar) {
    const int cls = class_at(f->j), rows = odd_rows(cls), columns = odd_columns(cls), a = f->a;
    barrier_wait(&bar.a_free[a], f->a_phase);
    barrier_expect(&bar.a_full[a],
                   (s.across * SIDE + columns) * (s.high * SIDE + rows) * s.images * ROW);
    fetch_pixels(room + a * s.plane, &maps.plane[cls], &bar.a_full[a], f->chunk * KC,
                 f->o.w0 - (DX ? 0 : columns), f->o.h0 - (DX ? 0 : rows), f->o.n0);
    f->planes++;
    f->a = a + 1;
    if (a + 1 == s.planes) f->a = 0, f->a_phase ^= 1;
}

template <int BN, int DX>
static __device__ __forceinline__ void fetch_step(S2Next *f, const S2Maps &maps, const S2Tiles &s,
                                                  unsigned char *room, S2Barriers &bar) {
    const int j = f->j, b = f->b, chunk = f->chunk;
    if (is_first(j)) fetch_plane<DX>(f, maps, s, room, bar);
    barrier_wait(&bar.b_free[b], f->b_phase);
    barrier_expect(&bar.b_full[b], BN * ROW);
    fetch_filters(room + s.planes * s.plane + b * BN * ROW, &maps.filters, &bar.b_full[b],
                  chunk * KC, tap_at(j), f->o.o0);
    f->steps++, f->left--;
    f->b = b + 1;
    if (b + 1 == s.stages) f->b = 0, f->b_phase ^= 1;
    const bool ends = DX ? is_last(j) : j == TAPS - 1, more = DX && chunk + 1 < s.n_chunk;
    f->j = !ends ? j + 1 : more ? (j > 3 ? 2 * class_at(j) + 2 : 0) : DX ? j + 1 : 0;
    if (ends) f->chunk = DX && !more ? 0 : chunk + 1;
}

// A warp's 16 pixels, two rows of a patch, to memory: 16 channels at a time through its own shared
// memory. pixel: the first one's number; the next row's is `down` further, the next column's
// `right`.
template <int BN>
static __device__ __forceinline__ void store_patch(const float (&d)[BN / 2], unsigned char *mine,
                                                   bf16 *y, size_t pixel, int down, int right,
                                                   const S2Tiles &s, int o0, bool real) {
    const int lane = thread_again() % 32, p = lane / 2;
    bf16 *to =
        y + (pixel + (size_t)(p / SIDE * down + p % SIDE * right)) * s.out + o0 + lane % 2 * 8;
    #pragma unroll
    for (int j = 0; j < BN / 8; j += 2) {
        __syncwarp();
        store_quarters(mine + lane % 16 * STORED_ROW + lane / 16 * 16,
                       two_bf16(d[4 * j], d[4 * j + 1]), two_bf16(d[4 * j + 2], d[4 * j + 3]),
                       two_bf16(d[4 * j + 4], d[4 * j + 5]), two_bf16(d[4 * j + 6], d[4 * j + 7]));
        __syncwarp();
        const uint4 v = *(const uint4 *)(mine + p * STORED_ROW + lane % 2 * 16);
        if (real) *(uint4 *)(to + 8 * j) = v;
    }
}

#endif

template <int WARPGROUPS> static constexpr bool HAS_FETCHER = WARPGROUPS == 2;
template <int WARPGROUPS>
static constexpr int THREADS = WARPGROUPS * 128 + (HAS_FETCHER<WARPGROUPS> ? 32 : 0);

template <int BN, int WARPGROUPS, int DX>
static __global__ void __launch_bounds__(THREADS<WARPGROUPS>, 1)
    conv3_s2_kernel(const __grid_constant__ S2Maps maps, bf16 *y, const S2Tiles s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char raw[];
    unsigned char *room = raw + (-(int)shared_address(raw) & 1023);
    __shared__ S2Barriers bar;
    __shared__ S2Next next;                    // of the thread that fetches
    const int t = (int)threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);
    if (t == 0) {
        for (int i = 0; i < CLASSES; i++) request_map(&maps.plane[i]);
        request_map(&maps.filters);
        ring_init(bar.a_full, bar.a_free, s.planes, WARPGROUPS);
        ring_init(bar.b_full, bar.b_free, s.stages, WARPGROUPS);
        barriers_ready();
    }
    __syncthreads();
    after_previous();
    // phase: of a barrier before its first
    const S2Next start = {
        s2_origin(s, BN, block_again()), 0, 0, s.n_chunk * TAPS, 0, 0, 0, 0, 1, 1
    };
    if (HAS_FETCHER<WARPGROUPS> && group == WARPGROUPS) {
        S2Next f = start;
        if (t == WARPGROUPS * 128)
            while (f.left) fetch_step<BN, DX>(&f, maps, s, room, bar);
        return;
    }
    // As much as there is room for. The waits are for the other warpgroups, which need nothing that
    // is not under way.
    auto fetch_more = [&]() {
        while (next.left && next.steps < s.stages && (next.planes < s.planes || !is_first(next.j)))
            fetch_step<BN, DX>(&next, maps, s, room, bar);
    };
    if (!HAS_FETCHER<WARPGROUPS> && t == 0) {
        next = start;
        fetch_more();
    }
    // this warpgroup's patch
    const int column = group % s.across * SIDE, row = group / s.across % s.high * SIDE,
              image = group / s.across / s.high;
    const unsigned filters = (unsigned)(s.planes * s.plane);
    float d[BN / 2];
    #pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0;
    int a = 0, b = 0, old_b = -1;              // the plane and the stage; the stage before it
    unsigned a_phase = 0, b_phase = 0;
    auto multiply_plane = [&](int cls, int keep) {
        const int rows = odd_rows(cls), columns = odd_columns(cls);
        const int pitch = s.across * SIDE + columns;
        const int first = (image * (s.high * SIDE + rows) + row) * pitch + column;
        barrier_wait(&bar.a_full[a], a_phase);
        for (int tap = 0; tap < (1 + rows) * (1 + columns); tap++) {
            const int pixel = first + tap / (1 + columns) * pitch + tap % (1 + columns);
            const uint64_t ma = matrix(shared_address(room) + (unsigned)(a * s.plane + pixel * ROW),
                                       (unsigned)(pitch * ROW));
            const uint64_t mb =
                matrix(shared_address(room) + filters + (unsigned)(b * BN * ROW), 8 * ROW);
            barrier_wait(&bar.b_full[b], b_phase);
            multiply_begin();
            #pragma unroll
            for (int k = 0; k < KC / 16; k++) multiply(d, ma + 2 * k, mb + 2 * k, k | tap | keep);
            multiply_end();
            all_products_but<1>();             // those of the step before this one are done
            if (old_b >= 0 && t % 128 == 0) {
                barrier_arrive(&bar.b_free[old_b]);
                if (tap == 0) barrier_arrive(&bar.a_free[a ? a - 1 : s.planes - 1]);
                if (!HAS_FETCHER<WARPGROUPS> && t == 0) {
                    next.steps--, next.planes -= tap == 0;
                    fetch_more();
                }
            }
            old_b = b;
            if (++b == s.stages) b = 0, b_phase ^= 1;
        }
        if (++a == s.planes) a = 0, a_phase ^= 1;
    };
    auto store = [&](int cls) {
        constexpr int scale = DX ? 2 : 1;
        const S2Origin o = s2_origin(s, BN, block_again());
        const int again = thread_again(), g = again / 128, n = o.n0 + g / s.across / s.high;
        const int r = o.h0 + g / s.across % s.high * SIDE + again % 128 / 32 * 2,
                  c = o.w0 + g % s.across * SIDE;
        const size_t pixel =
            ((size_t)n * s.h * scale + r * scale + (DX ? odd_rows(cls) : 0)) * (s.w * scale) +
            c * scale + (DX ? odd_columns(cls) : 0);
        unsigned char *mine = room + filters + s.stages * BN * ROW + again / 32 * STORE_ROOM;
        all_products_but<0>();
        store_patch<BN>(d, mine, y, pixel, s.w * scale * scale, scale, s, o.o0, n < s.n);
    };
    if (DX)
        #pragma unroll 1
        for (int cls = 0; cls < CLASSES; cls++) {
            int chunk = 0;
            do multiply_plane(cls, chunk);
            while (++chunk < s.n_chunk);
            store(cls);
        }
    else {
        int i = 0;
        do multiply_plane(i % CLASSES, i);
        while (++i < s.n_chunk * CLASSES);
        store(0);
    }
#endif
}

// ---- launching ---------------------------------------------------------------------------------

// A variant is a number of channels that a block computes, and of warpgroups that do it.
static const int WIDTH[HOPPER_S2_VARIANTS] = { 160, 160, 128, 128, 64, 64 },
                 GROUPS_OF[HOPPER_S2_VARIANTS] = { 4, 2, 4, 2, 4, 2 };

// from: what is fetched; small: y or dy.
static S2Tiles tiles_of(const Cuda *cuda, int variant, const Tensor *from, const Tensor *small,
                        int out) {
    const int groups = GROUPS_OF[variant];
    S2Tiles s = { small->n, small->h, small->w, out };
    s.across = groups == 4 && small->w % (2 * SIDE) == 0 ? 2 : 1;
    s.high = small->h % (2 * SIDE) == 0 ? 2 : 1;
    s.images = groups / (s.across * s.high);
    s.n_chunk = (from->c + KC - 1) / KC;
    s.tiles = small->w / (s.across * SIDE) * (small->h / (s.high * SIDE)) *
              ((small->n + s.images - 1) / s.images);
    const int pixels = (s.across * SIDE + 1) * (s.high * SIDE + 1) * s.images;
    s.plane = (pixels * ROW + 1023) / 1024 * 1024;
    s.planes = groups == 4 ? 3 : 4;
    // 1 KiB for alignment, and the barriers
    const int room = cuda->smem - 1024 - 256 - groups * 4 * STORE_ROOM;
    s.stages = (room - s.planes * s.plane) / (WIDTH[variant] * ROW);
    if (s.stages > MOST_STAGES) s.stages = MOST_STAGES;
    return s;
}

int hopper_s2_fits(const Dev *dev, int variant, int dx, const Tensor *x, const Tensor *y) {
    const Cuda *cuda = cuda_of(dev);
    if (!cuda->hopper || !cuda->half || variant < 0 || variant >= HOPPER_S2_VARIANTS) return 0;
    const Tensor *from = dx ? y : x, *to = dx ? x : y;
    return x->h == 2 * y->h && x->w == 2 * y->w && y->h % SIDE == 0 && y->w % SIDE == 0 &&
           from->c % 8 == 0 && to->c % WIDTH[variant] == 0 &&
           tiles_of(cuda, variant, from, y, to->c).stages > 1 && hopper_can_map();
}

// Fetched planes: backward all of dy, with as many rows and columns more as the class needs;
// forward a class of x, in steps of two rows and columns.
static int map_planes(S2Maps *maps, const S2Tiles *s, int dx, const Tensor *from) {
    const size_t c = (size_t)from->c, row = c * (size_t)from->w, step = dx ? 1 : 2;
    for (int cls = 0; cls < CLASSES; cls++) {
        const int rows = odd_rows(cls), columns = odd_columns(cls);
        const TensorBox box = { 4,
                                { from->c, s->w, s->h, from->n },
                                { KC, s->across * SIDE + columns, s->high * SIDE + rows,
                                  s->images },
                                { 1, c * step, row * step, row * (size_t)from->h } };
        const size_t start = dx ? 0 : (size_t)rows * row + (size_t)columns * c;
        if (hopper_map(&maps->plane[cls], (const bf16 *)from->p + start, &box)) return -1;
    }
    return 0;
}

template <int BN, int WARPGROUPS, int DX>
static cudaError_t launch(Cuda *cuda, const S2Tiles *s, const Tensor *from, const void *w,
                          const Tensor *to) {
    S2Maps maps;
    const size_t in = (size_t)from->c;
    const TensorBox w_box = { 3, { from->c, TAPS, to->c }, { KC, 1, BN }, { 1, in, TAPS * in } };
    if (map_planes(&maps, s, DX, from) || hopper_map(&maps.filters, w, &w_box))
        return cudaErrorInvalidValue;
    const int bytes = 1024 + s->planes * s->plane + s->stages * BN * ROW + store_room<WARPGROUPS>();
    const cudaError_t rc = cudaFuncSetAttribute(conv3_s2_kernel<BN, WARPGROUPS, DX>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (rc) return rc;
    return launch_early(cuda, conv3_s2_kernel<BN, WARPGROUPS, DX>,
                        (unsigned)(s->tiles * (to->c / BN)), THREADS<WARPGROUPS>, (size_t)bytes, 0,
                        maps, (bf16 *)to->p, *s);
}

template <int DX>
static cudaError_t convolve(Dev *dev, int variant, const Tensor *from, const void *w,
                            const Tensor *to) {
    Cuda *cuda = cuda_of(dev);
    const S2Tiles s = tiles_of(cuda, variant, from, DX ? from : to, to->c);
    switch (WIDTH[variant] + GROUPS_OF[variant]) {
    case 164: return launch<160, 4, DX>(cuda, &s, from, w, to);
    case 162: return launch<160, 2, DX>(cuda, &s, from, w, to);
    case 132: return launch<128, 4, DX>(cuda, &s, from, w, to);
    case 130: return launch<128, 2, DX>(cuda, &s, from, w, to);
    case 68: return launch<64, 4, DX>(cuda, &s, from, w, to);
    default: return launch<64, 2, DX>(cuda, &s, from, w, to);
    }
}

cudaError_t hopper_s2_fwd(Dev *dev, int variant, const Tensor *x, const void *w, const Tensor *y) {
    return convolve<0>(dev, variant, x, w, y);
}

cudaError_t hopper_s2_dx(Dev *dev, int variant, const Tensor *dy, const void *rot180,
                         const Tensor *dx) {
    return convolve<1>(dev, variant, dy, rot180, dx);
}
