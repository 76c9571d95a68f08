// cuda_muon.cu - what Muon (net/muon.c) needs of a device: products of matrices, and steps that
// keep the length of the weights.
//
// The products are cuBLAS's, which is loaded when it is wanted, so that the module works where it
// is missing; the few of its declarations that are needed stand here.
#include "dev/cuda.cuh"
#include "dev/sphere.h"
#include <stdio.h>
#include <stdlib.h>

// ---- cuBLAS ------------------------------------------------------------------------------------

enum { BLAS_OK = 0, BLAS_FP32 = 68, BLAS_TF32 = 77, BLAS_ANY_WAY = -1, BLAS_ROOM = 32 << 20 };

struct Blas {
    int (*Create)(void **handle);
    int (*Destroy)(void *);
    int (*SetStream)(void *, cudaStream_t);
    int (*SetWorkspace)(void *, void *, size_t);
    int (*Gemm)(void *, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                cudaDataType, int lda, long long step_a, const void *b, cudaDataType, int ldb,
                long long step_b, const void *beta, void *c, cudaDataType, int ldc,
                long long step_c, int count, int compute, int algorithm);
    const char *(*GetStatusString)(int);
    void *handle, *room;
};

static int load(Blas *blas, Err *err) {
    char file[32];
    snprintf(file, sizeof file, "libcublas.so.%d", CUDART_VERSION / 1000);
    const Library cublas = { file, "optimizer = muon needs cuBLAS, which is not found here",
                             ": another version is needed", ERR_DEV };
    const LibraryFunction wanted[] = {
        { "cublasCreate_v2", &blas->Create },
        { "cublasDestroy_v2", &blas->Destroy },
        { "cublasSetStream_v2", &blas->SetStream },
        { "cublasSetWorkspace_v2", &blas->SetWorkspace },
        { "cublasGemmStridedBatchedEx", &blas->Gemm },
        { "cublasGetStatusString", &blas->GetStatusString },
    };
    return library_load(&cublas, wanted, sizeof wanted / sizeof *wanted, err);
}

static int blas_failed(Dev *dev, int rc) {
    if (rc == BLAS_OK) return 0;
    return err_set(&dev->err, ERR_DEV, "cuBLAS failed at a product of matrices: %s",
                   cuda_of(dev)->blas->GetStatusString(rc));
}

// Opens it at its first use; a room of its own keeps it from allocating later.
static Blas *blas_of(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    if (cuda->blas || dev->err.kind) return cuda->blas;
    Blas *blas = cuda->blas = (Blas *)calloc(1, sizeof *blas);
    if (!blas) err_set(&dev->err, ERR_MEM, "out of memory for cuBLAS");
    if (!blas || load(blas, &dev->err)) return blas;
    blas->room = dev->be.alloc(dev, BLAS_ROOM, "cuBLAS");
    if (dev->err.kind || blas_failed(dev, blas->Create(&blas->handle)) ||
        blas_failed(dev, blas->SetStream(blas->handle, cuda->stream)))
        return blas;
    blas_failed(dev, blas->SetWorkspace(blas->handle, blas->room, BLAS_ROOM));
    return blas;
}

void cuda_muon_close(Dev *dev) {
    Blas *blas = cuda_of(dev)->blas;
    if (!blas) return;
    if (blas->handle) blas->Destroy(blas->handle);
    cudaFree(blas->room);
    free(blas);
}

// Row by row, c = a b is what cuBLAS, which goes column by column, knows as c^T = b^T a^T.
static void matmul(Dev *dev, int count, int m, int n, int k, real scale, Factor a, Factor b,
                   int add, real *c) {
    Blas *blas = blas_of(dev);
    if (dev->err.kind) return;
    const float alpha = scale, beta = add ? 1 : 0;
    const int compute = cuda_of(dev)->precision == PREC_FP32 ? BLAS_FP32 : BLAS_TF32;
    blas_failed(dev, blas->Gemm(blas->handle, b.transposed, a.transposed, n, m, k, &alpha, b.p,
                                CUDA_R_32F, b.transposed ? k : n, (long long)k * n, a.p, CUDA_R_32F,
                                a.transposed ? m : k, (long long)m * k, &beta, c, CUDA_R_32F, n,
                                (long long)m * n, count, compute, BLAS_ANY_WAY));
}

// ---- sums and steps ----------------------------------------------------------------------------

// PARTS: blocks that a matrix or filter is divided among, one for each thread of sum_of
enum { THREADS = 256, PARTS = THREADS };

// part[matrix][PARTS], by a grid of PARTS x count blocks
static __global__ void square_kernel(size_t n, const float *x, double *part) {
    const float *p = x + blockIdx.y * n;
    double sum = 0;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += PARTS * THREADS)
        sum += (double)p[i] * (double)p[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.y * PARTS + blockIdx.x] = sum;
}

// The sum of PARTS numbers, in the same order by every block.
static __device__ double sum_of(const double *part) { return block_sum(part[threadIdx.x]); }

static __global__ void divide_kernel(size_t n, float *x, const double *part) {
    const double length = sqrt(sum_of(part + blockIdx.y * PARTS));
    float *p = x + blockIdx.y * n;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n && length > 0;
         i += PARTS * THREADS)
        p[i] = (float)((double)p[i] / length);
}

static void unit_length(Dev *dev, int count, size_t n, real *x) {
    Cuda *cuda = cuda_of(dev);
    cuda_reserve_partial(dev, (size_t)count * PARTS * sizeof(double));
    if (dev->err.kind) return;
    const dim3 grid(PARTS, (unsigned)count);
    double *part = (double *)cuda->partial;
    square_kernel<<<grid, THREADS, 0, cuda->stream>>>(n, x, part);
    divide_kernel<<<grid, THREADS, 0, cuda->stream>>>(n, x, part);
    cuda_launched(dev, "unit_length");
}

static __global__ void add_identity_kernel(size_t all, unsigned n, float scale, float shift,
                                           const float *x, float *y) {
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < all; i += gridDim.x * THREADS)
        y[i] = scale * x[i] + (i % ((size_t)n * n) % (n + 1) ? 0 : shift);
}

static void add_identity(Dev *dev, int count, int n, real scale, real shift, const real *x,
                         real *y) {
    if (dev->err.kind) return;
    const size_t all = (size_t)count * (size_t)n * (size_t)n;
    add_identity_kernel<<<blocks_for(all, THREADS), THREADS, 0, cuda_of(dev)->stream>>>(
        all, (unsigned)n, scale, shift, x, y);
    cuda_launched(dev, "add_identity");
}

static __global__ void nesterov_kernel(size_t n, const float *g, float *v, float *u, float momentum,
                                       const StepState *now) {
    const size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (now->halt || i >= n) return;
    v[i] = momentum * v[i] + g[i];
    u[i] = g[i] + momentum * v[i];
}

static void nesterov(Dev *dev, size_t n, const real *g, real *v, real *u, real momentum,
                     const StepState *now) {
    if (dev->err.kind) return;
    nesterov_kernel<<<blocks_for(n, THREADS), THREADS, 0, cuda_of(dev)->stream>>>(n, g, v, u,
                                                                                  momentum, now);
    cuda_launched(dev, "nesterov");
}

// part[3][PARTS]: of w.w, w.o and o.o
static __global__ void products_kernel(size_t n, const float *w, const float *o, double *part) {
    double ww = 0, wo = 0, oo = 0;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += PARTS * THREADS) {
        const double a = (double)w[i], b = (double)o[i];
        ww += a * a;
        wo += a * b;
        oo += b * b;
    }
    ww = block_sum(ww);
    wo = block_sum(wo);
    oo = block_sum(oo);
    if (threadIdx.x) return;
    part[blockIdx.x] = ww;
    part[PARTS + blockIdx.x] = wo;
    part[2 * PARTS + blockIdx.x] = oo;
}

static __global__ void sphere_step_kernel(size_t n, float *w, const float *o, float rate,
                                          const double *part, const StepState *now) {
    if (now->halt) return;
    const double ww = sum_of(part), wo = sum_of(part + PARTS), oo = sum_of(part + 2 * PARTS);
    const SphereStep s = sphere_step_of((double)(rate * now->in.lr), ww, wo, oo);
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += PARTS * THREADS)
        w[i] = (float)(s.keep * (double)w[i] - s.move * (double)o[i]);
}

static void sphere_step(Dev *dev, size_t n, real *w, const real *o, real rate,
                        const StepState *now) {
    Cuda *cuda = cuda_of(dev);
    cuda_reserve_partial(dev, 3 * PARTS * sizeof(double));
    if (dev->err.kind) return;
    double *part = (double *)cuda->partial;
    products_kernel<<<PARTS, THREADS, 0, cuda->stream>>>(n, w, o, part);
    sphere_step_kernel<<<PARTS, THREADS, 0, cuda->stream>>>(n, w, o, rate, part, now);
    cuda_launched(dev, "sphere_step");
}

void cuda_muon_table(Backend *be) {
    be->matmul = matmul;
    be->unit_length = unit_length;
    be->add_identity = add_identity;
    be->nesterov = nesterov;
    be->sphere_step = sphere_step;
}
