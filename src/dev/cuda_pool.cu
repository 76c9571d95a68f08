// cuda_pool.cu - the mean over all pixels.
#include "dev/cuda.cuh"

enum { POOL_VECS = 16, POOL_LANES = 16 };

// A block takes 16 vectors of an image, 16 threads each.
template <class T>
static __global__ void pool_fwd_kernel(const void *x, float *y, int vecs, int c, int hw) {
    __shared__ Vec8 part[POOL_LANES][POOL_VECS];
    const int o = (int)threadIdx.x, lane = (int)threadIdx.y, n = (int)blockIdx.y;
    const int vec = (int)blockIdx.x * POOL_VECS + o;
    Vec8 s;
    #pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = 0;
    for (int p = lane; vec < vecs && p < hw; p += POOL_LANES) {
        const Vec8 v = unpack(pack_load<T>(x, ((size_t)n * hw + p) * vecs + vec));
        #pragma unroll
        for (int k = 0; k < 8; k++) s.v[k] += v.v[k];
    }
    part[lane][o] = s;
    __syncthreads();
    const int i = lane * POOL_VECS + o, ch = (int)blockIdx.x * POOL_VECS * 8 + i;
    if (i >= 8 * POOL_VECS || ch >= c) return;
    float all = 0;
    for (int l = 0; l < POOL_LANES; l++) all += part[l][i / 8].v[i % 8];
    y[(size_t)n * c + ch] = all / (float)hw;
}

template <class T>
static __global__ void pool_bwd_kernel(const float *dy, void *dx, size_t n, int vecs, int c,
                                       int hw) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t image = i / (size_t)vecs / (size_t)hw;
    Vec8 v = vec8_of(dy + image * c, (int)(i % (size_t)vecs), c);
    #pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] /= (float)hw;
    pack_store<T>(dx, i, pack<T>(v));
}

static void pool_fwd(Dev *dev, const Tensor *x, Tensor *y) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    cuda_settle(dev, x);
    const int vecs = vecs_of(x), hw = x->h * x->w;
    const dim3 grid(blocks_for((size_t)vecs, POOL_VECS), (unsigned)x->n),
        block(POOL_VECS, POOL_LANES);
    if (cuda->half)
        pool_fwd_kernel<bf16>
            <<<grid, block, 0, cuda->stream>>>(x->p, (float *)y->p, vecs, x->c, hw);
    else
        pool_fwd_kernel<float>
            <<<grid, block, 0, cuda->stream>>>(x->p, (float *)y->p, vecs, x->c, hw);
    cuda_launched(dev, "pool_fwd");
}

static void pool_bwd(Dev *dev, const Tensor *dy, Tensor *dx) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const int vecs = vecs_of(dx), hw = dx->h * dx->w;
    const size_t n = vectors_in(dx);
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half)
        pool_bwd_kernel<bf16>
            <<<grid, 256, 0, cuda->stream>>>((const float *)dy->p, dx->p, n, vecs, dx->c, hw);
    else
        pool_bwd_kernel<float>
            <<<grid, 256, 0, cuda->stream>>>((const float *)dy->p, dx->p, n, vecs, dx->c, hw);
    cuda_launched(dev, "pool_bwd");
    cuda_set_pending(dev, dx, NULL);
}

void cuda_pool_table(Backend *be) {
    be->pool_fwd = pool_fwd;
    be->pool_bwd = pool_bwd;
}
