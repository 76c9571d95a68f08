// cuda.cuh - what the files of the cuda backend share.
//
// Opaque activations are [n][h][w][channels], channels filled up with zeros to a multiple of eight,
// in bf16 or fp32; every operation keeps the filling zero. A thread handles 8-channel vectors:
// eight channels of one pixel, 16 bytes of bf16. Everything runs on one stream, allocates nothing
// while it runs and never waits for the device, so that any sequence of operations can be recorded
// (record_begin).
#ifndef CUDA_CUH
#define CUDA_CUH
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include "base/library.h"
#include "dev/backend.h"
}

typedef __nv_bfloat16 bf16;

enum { MAX_OLD = 64, MAX_PENDING = 512 };

// A bias that a convolution left to whoever reads its output: most biases vanish in a norm.
typedef struct { const void *p; const float *b; } Pending;

typedef struct {
    cudaStream_t stream;
    void        *dnn;                  // cuDNN's handle
    struct ConvPlan *plans;            // cuda_tune.cu's, found so far
    cudaEvent_t  start, stop;          // for timing
    int          half;                 // activations are bf16
    Precision    precision;
    ConvChoice   conv;
    int          deterministic;
    int          hopper;               // compute capability 9.0
    int          early;                // kernels may start before the one before has ended
    int          sms, smem;            // multiprocessors; bytes of shared memory one block can have
    size_t       elem;                 // bytes of an activation's element
    char         about[160];
    char        *tuning;               // choices made by timing, one line each
    int          tuning_new;           // some are not in the cache file yet
    char        *cache;                // that file's name, or NULL
    void        *scratch;              // dev->scratch_bytes, for the convolution that is running
    float       *partial;              // sums of parts of a tensor
    size_t       partial_bytes;
    unsigned    *barrier;              // cuda_norm.cu's counters
    void        *old[MAX_OLD];         // blocks that were outgrown; recordings may still use them
    int          n_old;
    Pending      pending[MAX_PENDING];
    int          n_pending;
    struct Ranks *ranks;               // cuda_ranks.cu's, or NULL
    struct Blas *blas;                 // cuda_muon.cu's, or NULL
} Cuda;

static inline Cuda *cuda_of(const Dev *dev) { return (Cuda *)dev->impl; }
static inline int vecs_of(const Tensor *t) { return (t->c + 7) / 8; }
static inline size_t vectors_in(const Tensor *t) { return tensor_pixels(t) * (size_t)vecs_of(t); }
static inline unsigned blocks_for(size_t n, unsigned threads) {
    return (unsigned)((n + threads - 1) / threads);
}

// cuda.cu. cuda_failed remembers a failed call as the device's error; 0 where it went well.
int  cuda_failed(Dev *dev, cudaError_t rc, const char *what);
void cuda_launched(Dev *dev, const char *what);              // after each kernel launch
void cuda_reserve_scratch(Dev *dev, size_t bytes);
void cuda_reserve_partial(Dev *dev, size_t bytes);
void cuda_choose(Dev *dev, const char *key, const char *how);
// The choice made for a key, copied to how[n]: 1, or 0 where there is none.
int  cuda_choice(const Cuda *cuda, const char *key, char *how, size_t n);
const float *cuda_pending(const Dev *dev, const void *p);    // the bias that p still lacks, or NULL
void cuda_set_pending(Dev *dev, const Tensor *t, const float *b);   // NULL: it lacks none
void cuda_settle(Dev *dev, const Tensor *t);                 // adds the bias that t still lacks

void cuda_ops_table(Backend *be);                            // cuda_ops.cu
void cuda_data_table(Backend *be);                           // cuda_data.cu
void cuda_window_table(Backend *be);                         // cuda_window.cu
void cuda_relu(Dev *dev, Tensor *t, int plain, const float *b);   // t = max(0, t + b); b or NULL
void cuda_ranks_table(Backend *be);                          // cuda_ranks.cu
void cuda_ranks_close(Dev *dev);
void cuda_ranks_settle(Dev *dev);                            // waits for the stream, up to a limit
void cuda_muon_table(Backend *be);                           // cuda_muon.cu
void cuda_muon_close(Dev *dev);
void cuda_norm_start(Dev *dev);                              // cuda_norm.cu
void cuda_norm_table(Backend *be);
void cuda_pool_table(Backend *be);                           // cuda_pool.cu
void cuda_conv_start(Dev *dev);                              // cuda_conv.cu
void cuda_conv_stop(Dev *dev);
void cuda_conv_version(char *dst, size_t n);                 // of cuDNN
void cuda_conv_table(Backend *be);

// ---- early starts ------------------------------------------------------------------------------
// A kernel launched so may start while the one before it still runs, which hides its start. It
// begins with after_previous(), and touches no memory before.

__device__ inline void after_previous() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// together: all blocks are on the GPU at once.
template <class... P, class... A>
static cudaError_t launch_early(const Cuda *cuda, void (*kernel)(P...), unsigned grid,
                                unsigned threads, size_t smem, int together, const A &...args) {
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(grid);
    how.blockDim = dim3(threads);
    how.dynamicSmemBytes = smem;
    how.stream = cuda->stream;
    how.attrs = attr;
    if (cuda->early) {
        attr[how.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[how.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (together) {
        attr[how.numAttrs].id = cudaLaunchAttributeCooperative;
        attr[how.numAttrs++].val.cooperative = 1;
    }
    return cudaLaunchKernelEx(&how, kernel, args...);
}

// cuda_hopper.cu: y = x convolved 3x3, stride 1, padding 1, in bf16; w: [out][tap][in].
enum {
    HOPPER_VARIANTS = 10, HOPPER_DW_VARIANTS = 6, HOPPER_S2_VARIANTS = 6, MOST_OWN_VARIANTS = 10
};
int  hopper_fits(const Dev *dev, int variant, const Tensor *x, const Tensor *y);
cudaError_t hopper_conv(Dev *dev, int variant, const Tensor *x, const void *w, const Tensor *y);

// cuda_hopper_dw.cu: the weight gradient of the same convolution, x and dy in bf16: partial sums
// in part (hopper_dw_bytes), which hopper_dw_add then adds to dw [out][in][tap] in a fixed order.
int    hopper_dw_fits(const Dev *dev, int variant, const Tensor *x, const Tensor *y);
size_t hopper_dw_bytes(const Dev *dev, int variant, const Tensor *x, const Tensor *y);
cudaError_t hopper_dw(Dev *dev, int variant, const Tensor *x, const Tensor *dy, void *part);
cudaError_t hopper_dw_add(Dev *dev, int variant, const Tensor *x, const Tensor *dy,
                          const void *part, float *dw);

// cuda_hopper_s2.cu: the same with stride 2, for images of even size; and its data gradient, by the
// filter rotated by 180 degrees, [in][tap][out].
int  hopper_s2_fits(const Dev *dev, int variant, int dx, const Tensor *x, const Tensor *y);
cudaError_t hopper_s2_fwd(Dev *dev, int variant, const Tensor *x, const void *w, const Tensor *y);
cudaError_t hopper_s2_dx(Dev *dev, int variant, const Tensor *dy, const void *rot180,
                         const Tensor *dx);

// cuda_stem.cu: convolutions with plain images or plain features on a side, and any convolution
// that cuDNN has no engine for. w: as stem_pack made it ([in][size][size_w][out, filled to eights],
// fp32) where x is plain and y opaque, else the master copy.
void stem_fwd(Dev *dev, const Conv *c, const float *w, const Tensor *x, const float *b, Tensor *y);
void stem_dx(Dev *dev, const Conv *c, const float *w, const Tensor *dy, Tensor *dx);
void stem_dw(Dev *dev, const Conv *c, const Tensor *x, const Tensor *dy, float *dw);
void bias_grad(Dev *dev, const Conv *c, const Tensor *dy, float *db);
size_t stem_partial(const Conv *c);                          // bytes of partial sums stem_dw needs
// How far a result (0: y, 1: x as its gradient, 2: dw) is from what w, x and y give, as a share of
// its length, by some of its numbers. room: two doubles on the device.
double conv_probe(Dev *dev, const Conv *c, int dir, const Tensor *x, const Tensor *y,
                  const float *w, const float *dw, double *room);

// ---- sums --------------------------------------------------------------------------------------

template <class T> static __device__ inline T warp_sum(T s) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d);
    return s;
}

// The sum over the block, in every thread.
static __device__ inline double block_sum(double s) {
    __shared__ double part[32];
    const int n = (int)blockDim.x / 32;
    s = warp_sum(s);
    __syncthreads();                   // part may still be read, by the sum before
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0;
    for (int i = 0; i < n; i++) s += part[i];
    return s;
}

// ---- 8-channel vectors -------------------------------------------------------------------------

struct Vec8 { float v[8]; };

template <class T> struct Pack { uint4 u[sizeof(T) / 2]; };  // a vector as it lies in memory

template <class T> __device__ inline Pack<T> pack_load(const void *base, size_t vec) {
    Pack<T> p;
    const uint4 *from = (const uint4 *)base + vec * (sizeof(T) / 2);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 2; i++) p.u[i] = from[i];
    return p;
}

template <class T> __device__ inline void pack_store(void *base, size_t vec, Pack<T> p) {
    uint4 *to = (uint4 *)base + vec * (sizeof(T) / 2);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 2; i++) to[i] = p.u[i];
}

__device__ inline Vec8 unpack(Pack<bf16> p) {
    Vec8 o;
    const unsigned w[4] = { p.u[0].x, p.u[0].y, p.u[0].z, p.u[0].w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        o.v[2 * i] = __uint_as_float(w[i] << 16);
        o.v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
    return o;
}

__device__ inline Vec8 unpack(Pack<float> p) {
    Vec8 o;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        o.v[4 * i] = __uint_as_float(p.u[i].x);
        o.v[4 * i + 1] = __uint_as_float(p.u[i].y);
        o.v[4 * i + 2] = __uint_as_float(p.u[i].z);
        o.v[4 * i + 3] = __uint_as_float(p.u[i].w);
    }
    return o;
}

__device__ inline unsigned two_bf16(float lo, float hi) {
    const __nv_bfloat162 b = __floats2bfloat162_rn(lo, hi);
    return *(const unsigned *)&b;
}

template <class T> __device__ inline Pack<T> pack(const Vec8 &o);
template <> __device__ inline Pack<bf16> pack<bf16>(const Vec8 &o) {
    Pack<bf16> p;
    p.u[0] = make_uint4(two_bf16(o.v[0], o.v[1]), two_bf16(o.v[2], o.v[3]),
                        two_bf16(o.v[4], o.v[5]), two_bf16(o.v[6], o.v[7]));
    return p;
}
template <> __device__ inline Pack<float> pack<float>(const Vec8 &o) {
    Pack<float> p;
#pragma unroll
    for (int i = 0; i < 2; i++)
        p.u[i] = make_uint4(__float_as_uint(o.v[4 * i]), __float_as_uint(o.v[4 * i + 1]),
                            __float_as_uint(o.v[4 * i + 2]), __float_as_uint(o.v[4 * i + 3]));
    return p;
}

// a[0 .. 7] of a vector of c numbers, from 8 * vec on; zeros behind its end.
__device__ inline Vec8 vec8_of(const float *a, int vec, int c) {
    Vec8 o;
#pragma unroll
    for (int i = 0; i < 8; i++) o.v[i] = a && 8 * vec + i < c ? a[8 * vec + i] : 0;
    return o;
}
#endif
