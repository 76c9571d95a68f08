// cuda_window.cu - what inference needs beside the convolutions on the cuda device: ReLU, pooling
// over windows, concatenation, the resize to Inception's input.
#include "dev/cuda.cuh"
extern "C" {
#include "dev/resize.h"
}

// An element-wise kernel for the device's type of activations.
#define LAUNCH(cuda, kernel, n, ...)                                                               \
    do {                                                                                           \
        const unsigned grid_ = blocks_for(n, 256);                                                 \
        if ((cuda)->half) kernel<bf16><<<grid_, 256, 0, (cuda)->stream>>>(__VA_ARGS__);            \
        else kernel<float><<<grid_, 256, 0, (cuda)->stream>>>(__VA_ARGS__);                        \
    } while (0)

// ---- ReLU ---------------------------------------------------------------------------------------

template <class T>
static __global__ void relu_kernel(void *x, const float *b, size_t n, int vecs, int c) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    Vec8 v = unpack(pack_load<T>(x, i)), add = vec8_of(b, (int)(i % (size_t)vecs), c);
    #pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = fmaxf(v.v[k] + add.v[k], 0);
    pack_store<T>(x, i, pack<T>(v));
}

static __global__ void relu_plain_kernel(float *x, const float *b, size_t n, size_t hw, size_t c) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = fmaxf(x[i] + (b ? b[i / hw % c] : 0), 0);
}

void cuda_relu(Dev *dev, Tensor *t, int plain, const float *b) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const size_t n = plain ? tensor_len(t) : vectors_in(t);
    if (plain)
        relu_plain_kernel<<<blocks_for(n, 256), 256, 0, cuda->stream>>>(
            (float *)t->p, b, n, (size_t)t->h * t->w, (size_t)t->c);
    else LAUNCH(cuda, relu_kernel, n, t->p, b, n, vecs_of(t), t->c);
    cuda_launched(dev, "ReLU");
}

// ---- pooling ------------------------------------------------------------------------------------

struct Shape {
    int n, vecs, h, w;
};
static Shape shape_of(const Tensor *t) { return { t->n, vecs_of(t), t->h, t->w }; }

// A thread makes one vector of one pixel.
template <class T>
static __global__ void window_kernel(Pool o, const void *x, Shape sx, void *y, Shape sy) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const int vec = (int)(i % (size_t)sy.vecs);
    const size_t pixel = i / (size_t)sy.vecs;
    const int q = (int)(pixel % (size_t)sy.w), p = (int)(pixel / (size_t)sy.w % (size_t)sy.h);
    const size_t n = pixel / (size_t)sy.w / (size_t)sy.h;
    if (n >= (size_t)sy.n) return;
    const int i0 = max(p * o.stride - o.pad, 0), i1 = min(p * o.stride - o.pad + o.size, sx.h);
    const int j0 = max(q * o.stride - o.pad, 0), j1 = min(q * o.stride - o.pad + o.size, sx.w);
    Vec8 v;
    #pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = o.kind == POOL_MAX ? -INFINITY : 0;
    for (int u = i0; u < i1; u++)
        for (int w = j0; w < j1; w++) {
            const Vec8 at =
                unpack(pack_load<T>(x, ((n * sx.h + u) * sx.w + w) * (size_t)sx.vecs + vec));
            #pragma unroll
            for (int k = 0; k < 8; k++)
                v.v[k] = o.kind == POOL_MAX ? fmaxf(v.v[k], at.v[k]) : v.v[k] + at.v[k];
        }
    const float scale = o.kind == POOL_MAX ? 1 : 1 / (float)((i1 - i0) * (j1 - j0));
    #pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] *= scale;
    pack_store<T>(y, i, pack<T>(v));
}

static void window_fwd(Dev *dev, Pool o, const Tensor *x, Tensor *y) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    cuda_settle(dev, x);
    LAUNCH(cuda, window_kernel, vectors_in(y), o, x->p, shape_of(x), y->p, shape_of(y));
    cuda_set_pending(dev, y, NULL);
    cuda_launched(dev, "window_fwd");
}

// ---- concatenation ------------------------------------------------------------------------------

// Whole vecs: x begins at a vector of y.
template <class T>
static __global__ void concat_kernel(const void *x, size_t n, int vecs, void *y, int whole,
                                     int at) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t pixel = i / (size_t)vecs, vec = i % (size_t)vecs;
    pack_store<T>(y, pixel * (size_t)whole + (size_t)at + vec, pack_load<T>(x, i));
}

// Channel by channel; then the last vector is filled up with zeros. n: pixels.
template <class T>
static __global__ void concat_any_kernel(const T *x, size_t n, int c, int filled, T *y, int whole,
                                         int at, int end) {
    const int width = end - at;                            // channels, with the filling
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, pixel = i / (size_t)width;
    const int k = (int)(i % (size_t)width);
    if (pixel >= n) return;
    y[pixel * (size_t)whole + (size_t)(at + k)] =
        k < c ? x[pixel * (size_t)filled + (size_t)k] : (T)0.0f;
}

static void concat(Dev *dev, const Tensor *x, Tensor *y, int at) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    cuda_settle(dev, x);
    const size_t pixels = tensor_pixels(x);
    const int end = (at + x->c + 7) / 8 * 8, filled = 8 * vecs_of(x), whole = 8 * vecs_of(y);
    const size_t n = at % 8 ? pixels * (size_t)(end - at) : pixels * (size_t)vecs_of(x);
    if (at % 8 == 0) LAUNCH(cuda, concat_kernel, n, x->p, n, vecs_of(x), y->p, vecs_of(y), at / 8);
    else if (cuda->half)
        concat_any_kernel<bf16><<<blocks_for(n, 256), 256, 0, cuda->stream>>>(
            (const bf16 *)x->p, pixels, x->c, filled, (bf16 *)y->p, whole, at, end);
    else
        concat_any_kernel<float><<<blocks_for(n, 256), 256, 0, cuda->stream>>>(
            (const float *)x->p, pixels, x->c, filled, (float *)y->p, whole, at, end);
    cuda_set_pending(dev, y, NULL);
    cuda_launched(dev, "concat");
}

// ---- resize -------------------------------------------------------------------------------------

static __global__ void resize_kernel(const uint8_t *x, int xh, int xw, float *y, size_t planes,
                                     int h, int w) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= planes * (size_t)h * w) return;
    const Sample col = legacy_sample((int)(i % (size_t)w), xw, w);
    const Sample row = legacy_sample((int)(i / (size_t)w % (size_t)h), xh, h);
    const uint8_t *plane = x + i / ((size_t)h * w) * xh * xw;
    y[i] = legacy_mix(plane + row.lo * xw, plane + row.hi * xw, row, col);
}

static void resize(Dev *dev, const Tensor *bytes, Tensor *y) {
    if (dev->err.kind) return;
    const size_t planes = (size_t)y->n * y->c;
    resize_kernel<<<blocks_for(tensor_len(y), 256), 256, 0, cuda_of(dev)->stream>>>(
        (const uint8_t *)bytes->p, bytes->h, bytes->w, (float *)y->p, planes, y->h, y->w);
    cuda_launched(dev, "resize");
}

void cuda_window_table(Backend *be) {
    be->window_fwd = window_fwd;
    be->concat = concat;
    be->resize = resize;
}
