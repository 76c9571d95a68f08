// cuda_ranks.cu - GPUs of several ranks: exchange by NCCL, checksums, norms over all ranks.
//
// NCCL is loaded when it is wanted, so that the module works where it is missing; the few of its
// declarations that are needed stand here. It runs on a stream of its own, beside the backward
// pass, and what it does can be recorded: events carry the order from one stream to the other.
#include "dev/cuda.cuh"
#include "dev/sync_norm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- NCCL --------------------------------------------------------------------------------------

typedef struct {
    char bytes[128];
} NcclId;
typedef void *NcclComm;
enum { NCCL_OK = 0, NCCL_BUSY = 7, NCCL_FLOAT = 7, NCCL_SUM = 0, NCCL_AVG = 4 };

struct Nccl {
    int (*GetUniqueId)(NcclId *);
    int (*CommInitRank)(NcclComm *, int n, NcclId, int rank);
    int (*CommDestroy)(NcclComm);
    int (*CommAbort)(NcclComm);
    int (*CommGetAsyncError)(NcclComm, int *);
    int (*AllReduce)(const void *, void *, size_t, int type, int op, NcclComm, cudaStream_t);
    int (*AllGather)(const void *, void *, size_t, int type, NcclComm, cudaStream_t);
    const char *(*GetErrorString)(int);
};

struct Ranks {
    Nccl         nccl;
    NcclComm     comm;
    cudaStream_t stream;
    cudaEvent_t  ready, done;          // of what it reads; of what it wrote
};

static int load(Nccl *n, Err *err) {
    static const Library nccl = { "libnccl.so.2",
                                  "several GPUs need NCCL 2, which is not found here",
                                  ": version 2.10 or later is needed", ERR_DEV };
    const LibraryFunction wanted[] = {
        { "ncclGetUniqueId", &n->GetUniqueId },
        { "ncclCommInitRank", &n->CommInitRank },
        { "ncclCommDestroy", &n->CommDestroy },
        { "ncclCommAbort", &n->CommAbort },
        { "ncclCommGetAsyncError", &n->CommGetAsyncError },
        { "ncclAllReduce", &n->AllReduce },
        { "ncclAllGather", &n->AllGather },
        { "ncclGetErrorString", &n->GetErrorString },
    };
    return library_load(&nccl, wanted, sizeof wanted / sizeof *wanted, err);
}

static int nccl_failed(Dev *dev, int rc, const char *what) {
    if (rc == NCCL_OK) return 0;
    const Nccl *n = &cuda_of(dev)->ranks->nccl;
    return err_set(&dev->err, ERR_DEV, "NCCL failed at %s: %s", what, n->GetErrorString(rc));
}

static int ranks_id(Dev *dev, char id[128], Err *err) {
    Nccl n;
    if (load(&n, err)) return -1;
    const int rc = n.GetUniqueId((NcclId *)id);
    (void)dev;
    return rc == NCCL_OK ? 0
                         : err_set(err, ERR_DEV, "NCCL does not start: %s", n.GetErrorString(rc));
}

static void ranks_open(Dev *dev, int rank, int size, const char id[128]) {
    Cuda *cuda = cuda_of(dev);
    Ranks *r = (Ranks *)calloc(1, sizeof *r);
    NcclId all;
    if (dev->err.kind) return;
    cuda->ranks = r;
    if (!r) {
        err_set(&dev->err, ERR_MEM, "out of memory for the link between GPUs");
        return;
    }
    if (load(&r->nccl, &dev->err)) return;
    if (cuda->deterministic) {         // one way to add up, whatever the sizes
        setenv("NCCL_ALGO", "Ring", 0);
        setenv("NCCL_PROTO", "Simple", 0);
    }
    memcpy(all.bytes, id, sizeof all.bytes);
    if (cuda_failed(dev, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "opening") ||
        cuda_failed(dev, cudaEventCreateWithFlags(&r->ready, cudaEventDisableTiming), "opening") ||
        cuda_failed(dev, cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming), "opening"))
        return;
    nccl_failed(dev, r->nccl.CommInitRank(&r->comm, size, all, rank), "connecting the GPUs");
}

void cuda_ranks_close(Dev *dev) {
    Ranks *r = cuda_of(dev)->ranks;
    if (!r) return;
    if (r->comm && dev->linked == 1) r->nccl.CommDestroy(r->comm);
    if (r->ready) cudaEventDestroy(r->ready);
    if (r->done) cudaEventDestroy(r->done);
    if (r->stream) cudaStreamDestroy(r->stream);
    free(r);
    cuda_of(dev)->ranks = NULL;
}

// What is queued on stream `after` from now on waits for all that is queued on `before`.
static int order(Dev *dev, cudaEvent_t event, cudaStream_t before, cudaStream_t after) {
    return cuda_failed(dev, cudaEventRecord(event, before), "the link between GPUs") ||
           cuda_failed(dev, cudaStreamWaitEvent(after, event, 0), "the link between GPUs");
}

static void ranks_reduce(Dev *dev, real *p, size_t n, int mean) {
    Ranks *r = cuda_of(dev)->ranks;
    if (dev->err.kind || order(dev, r->ready, cuda_of(dev)->stream, r->stream)) return;
    nccl_failed(
        dev, r->nccl.AllReduce(p, p, n, NCCL_FLOAT, mean ? NCCL_AVG : NCCL_SUM, r->comm, r->stream),
        "a sum");
}

static void ranks_gather(Dev *dev, const real *mine, real *all, size_t n) {
    Ranks *r = cuda_of(dev)->ranks;
    if (dev->err.kind || order(dev, r->ready, cuda_of(dev)->stream, r->stream)) return;
    nccl_failed(dev, r->nccl.AllGather(mine, all, n, NCCL_FLOAT, r->comm, r->stream),
                "collecting chains");
}

static void ranks_wait(Dev *dev) {
    Ranks *r = cuda_of(dev)->ranks;
    if (!dev->err.kind) (void)order(dev, r->done, r->stream, cuda_of(dev)->stream);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Without it a GPU whose partner is gone would be waited for without end.
void cuda_ranks_settle(Dev *dev) {
    Ranks *r = cuda_of(dev)->ranks;
    const double start = seconds();
    const struct timespec nap = { 0, 20000 };
    int rc = NCCL_OK;
    while (cudaStreamQuery(cuda_of(dev)->stream) == cudaErrorNotReady) {
        const double passed = seconds() - start;
        if (passed > 1e-3) nanosleep(&nap, NULL);
        if (passed < 0.5) continue;
        r->nccl.CommGetAsyncError(r->comm, &rc);
        if ((rc == NCCL_OK || rc == NCCL_BUSY) && passed < dev->link_timeout) continue;
        dev->linked = LINK_LOST;
        if (rc != NCCL_OK && rc != NCCL_BUSY) nccl_failed(dev, rc, "the link between GPUs");
        err_set(&dev->err, ERR_DEV,
                "no answer from another rank's GPU for %.0f s (--rank-timeout): it hangs, or the "
                "network is cut",
                dev->link_timeout);
        r->nccl.CommAbort(r->comm);
        return;
    }
}

// ---- checksums ---------------------------------------------------------------------------------

static __global__ void checksum_kernel(const uint32_t *word, size_t n, unsigned long long *sum) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        mine += checksum_of(i, word[i]);
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

static uint64_t checksum(Dev *dev, const void *p, size_t bytes) {
    Cuda *cuda = cuda_of(dev);
    unsigned long long sum = 0;
    cuda_reserve_partial(dev, sizeof sum);
    if (dev->err.kind) return 0;
    dev->be.zero(dev, cuda->partial, sizeof sum);
    checksum_kernel<<<(unsigned)cuda->sms * 4, 256, 0, cuda->stream>>>(
        (const uint32_t *)p, bytes / 4, (unsigned long long *)cuda->partial);
    cuda_launched(dev, "checksum");
    dev->be.copy_out(dev, &sum, cuda->partial, sizeof sum);
    return sum;
}

// ---- batch normalisation over all ranks --------------------------------------------------------

static __global__ void norm_join_kernel(Norm op, Tensor x, const float *all, int ranks,
                                        float *stats) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c < x.c) norm_join_channel(&op, &x, all, ranks, c, stats);
}

static void norm_join(Dev *dev, const Norm *op, const Tensor *x, const real *all, int ranks,
                      real *stats) {
    if (dev->err.kind) return;
    norm_join_kernel<<<blocks_for((size_t)x->c, 128), 128, 0, cuda_of(dev)->stream>>>(*op, *x, all,
                                                                                      ranks, stats);
    cuda_launched(dev, "norm_join");
}

// Lines dx -= a + b x of all channels, to line [2][c]; bias: what x still lacks.
static __global__ void norm_line_kernel(Norm op, Tensor x, const float *bias, const float *mine,
                                        const float *all, int ranks, float *dgamma, float *dbeta,
                                        float *line) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= x.c) return;
    const NormCenter k = norm_center_channel(&op, &x, mine, all, ranks, c, dgamma, dbeta);
    line[c] = k.a + k.b * (bias ? bias[c] : 0);
    line[x.c + c] = k.b;
}

template <class T>
static __global__ void norm_center_kernel(const void *x, void *dx, const float *line, size_t n,
                                          int vecs, int c) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const int vec = (int)(i % (size_t)vecs);
        const Vec8 v = unpack(pack_load<T>(x, i)), a = vec8_of(line, vec, c);
        const Vec8 b = vec8_of(line + c, vec, c);
        Vec8 d = unpack(pack_load<T>(dx, i));
        #pragma unroll
        for (int k = 0; k < 8; k++) d.v[k] -= a.v[k] + b.v[k] * v.v[k];
        pack_store<T>(dx, i, pack<T>(d));
    }
}

static void norm_center(Dev *dev, const Norm *op, const Tensor *x, const real *mine,
                        const real *all, int ranks, Tensor *dx, real *dgamma, real *dbeta) {
    Cuda *cuda = cuda_of(dev);
    cuda_reserve_partial(dev, 2 * (size_t)x->c * sizeof(float));
    if (dev->err.kind) return;
    norm_line_kernel<<<blocks_for((size_t)x->c, 128), 128, 0, cuda->stream>>>(
        *op, *x, cuda_pending(dev, x->p), mine, all, ranks, dgamma, dbeta, cuda->partial);
    cuda_launched(dev, "norm_center");
    if (!dx) return;
    const size_t n = vectors_in(x);
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half)
        norm_center_kernel<bf16>
            <<<grid, 256, 0, cuda->stream>>>(x->p, dx->p, cuda->partial, n, vecs_of(x), x->c);
    else
        norm_center_kernel<float>
            <<<grid, 256, 0, cuda->stream>>>(x->p, dx->p, cuda->partial, n, vecs_of(x), x->c);
    cuda_launched(dev, "norm_center");
}

void cuda_ranks_table(Backend *be) {
    be->norm_join = norm_join;
    be->norm_center = norm_center;
    be->checksum = checksum;
    be->ranks_id = ranks_id;
    be->ranks_open = ranks_open;
    be->ranks_reduce = ranks_reduce;
    be->ranks_gather = ranks_gather;
    be->ranks_wait = ranks_wait;
}
