// cuda_hopper.cuh - what the own convolutions for compute capability 9.0 share: barriers in shared
// memory, fetches by the tensor memory accelerator (TMA), matrix products of a warpgroup (wgmma).
#ifndef CUDA_HOPPER_CUH
#define CUDA_HOPPER_CUH
#include "dev/cuda.cuh"
#include <cuda.h>

enum { TAPS = 9 };

// A tensor in bf16 as fetches see it, and the box that one fetch brings: dimension 0 is that of
// channels; stride: numbers from one index to the next. A box's channels fill a row of shared
// memory, of 128 bytes or 64, swizzled as wgmma expects.
struct TensorBox {
    int    rank, dim[4], box[4];
    size_t stride[4];
};

template <int N> struct Number {               // a constant that functions can be given
    __device__ constexpr operator int() const { return N; }
};

// cuda_hopper.cu
int hopper_can_map(void);                      // whether the driver makes descriptors of tensors
int hopper_map(CUtensorMap *map, const void *p, const TensorBox *t);
// A tensor [n][h][w][channels], and the size of its boxes.
int hopper_map_pixels(CUtensorMap *map, const Tensor *t, int channels, int columns, int rows,
                      int images);

// cuda_hopper_resident.cu: a variant of hopper_conv
int hopper_resident_fits(const Dev *dev, const Tensor *x, const Tensor *y);
cudaError_t hopper_resident_conv(Dev *dev, const Tensor *x, const void *w, const Tensor *y);

// ---- matrices in shared memory -----------------------------------------------------------------
// wgmma gets a matrix as a descriptor: its address, the distances between its parts, and the
// swizzle of its rows. The swizzle is a function of the address, so a matrix may start at any row.

// Rows of 128 bytes along the sum; groups of eight rows lie `apart` bytes apart.
__device__ inline uint64_t matrix(unsigned address, unsigned apart) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(apart >> 4) << 32 |
           (uint64_t)1 << 62;
}

// Rows of 64 bytes across the sum: 32 channels of a pixel. The next 32 channels lie `chunks` bytes
// further, the next eight pixels `groups`.
__device__ inline uint64_t matrix_of_pixels(unsigned address, unsigned chunks, unsigned groups) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(chunks >> 4) << 16 |
           (uint64_t)(groups >> 4) << 32 | (uint64_t)2 << 62;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---- barriers in shared memory, fetches --------------------------------------------------------

__device__ inline unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ inline void barrier_init(uint64_t *b, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count));
}

// A ring of stages: each is filled by one fetch, and freed by all its readers.
__device__ inline void ring_init(uint64_t *full, uint64_t *free, int stages, int readers) {
    for (int i = 0; i < stages; i++) {
        barrier_init(&full[i], 1);
        barrier_init(&free[i], readers);
    }
}

// After the initialisations, before fetches that use the barriers.
__device__ inline void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(uint64_t *b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

__device__ inline void barrier_wait(uint64_t *b, unsigned phase) {
    asm volatile("{\n.reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\n"
                 "bra again;\n"
                 "done:\n}" ::"r"(shared_address(b)),
                 "r"(phase)
                 : "memory");
}

__device__ inline void barrier_arrive(uint64_t *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

// Requests a tensor's descriptor, which the first fetch would otherwise wait for. It belongs to the
// kernel's arguments, so this may come before after_previous().
__device__ inline void request_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void fetch_pixels(void *to, const CUtensorMap *map, uint64_t *b, int c, int w,
                                    int h, int n) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(c), "r"(w), "r"(h), "r"(n)
                 : "memory");
}

__device__ inline void fetch_filters(void *to, const CUtensorMap *map, uint64_t *b, int c, int tap,
                                     int out) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(c), "r"(tap), "r"(out)
                 : "memory");
}

// ---- matrix products ---------------------------------------------------------------------------

#define D8(i)                                                                                     \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define D16(i) D8(i), D8(i + 8)
#define N0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
#define N1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define N2 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
#define N3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define N4 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA(n, names, a, b, major, keep)                                                        \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " keep ", 0;\n"                                             \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, " a ", " b              \
    ", p, 1, 1, " major ", " major ";\n}"

// d[64][BN] += a[64][16] b[BN][16]^T, by a warpgroup, later; without keep it is = instead of +=.
// MN: rows of shared memory are columns of a and b (16 of them), else they are rows of a and b.
template <int MN = 0>
__device__ inline void multiply(float (&d)[8], uint64_t a, uint64_t b, int keep = 1) {
    asm volatile(WGMMA(16, "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", "%11")
                 : D8(0)
                 : "l"(a), "l"(b), "n"(MN), "r"(keep));
}
template <int MN = 0>
__device__ inline void multiply(float (&d)[32], uint64_t a, uint64_t b, int keep = 1) {
    asm volatile(WGMMA(64, N0 N1, "%32", "%33", "%34", "%35")
                 : D16(0), D16(16)
                 : "l"(a), "l"(b), "n"(MN), "r"(keep));
}
template <int MN = 0>
__device__ inline void multiply(float (&d)[64], uint64_t a, uint64_t b, int keep = 1) {
    asm volatile(WGMMA(128, N0 N1 N2 N3, "%64", "%65", "%66", "%67")
                 : D16(0), D16(16), D16(32), D16(48)
                 : "l"(a), "l"(b), "n"(MN), "r"(keep));
}
template <int MN = 0>
__device__ inline void multiply(float (&d)[80], uint64_t a, uint64_t b, int keep = 1) {
    asm volatile(WGMMA(160, N0 N1 N2 N3 N4, "%80", "%81", "%82", "%83")
                 : D16(0), D16(16), D16(32), D16(48), D16(64)
                 : "l"(a), "l"(b), "n"(MN), "r"(keep));
}

__device__ inline void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void multiply_end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void all_products_but() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__device__ inline void store_quarters(void *to, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(to)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// The same of transposed quarters: what would be a column of a quarter is a row in memory.
__device__ inline void store_transposed(void *to, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(to)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// ---- between threads ---------------------------------------------------------------------------

// Waits for all threads of this warpgroup.
__device__ inline void warpgroup_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// What this thread has written to shared memory comes before fetches to the same place.
__device__ inline void before_fetches() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The block's and the thread's number, read again: what follows needs no registers before that.
__device__ inline int block_again() {
    int i;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(i));
    return i;
}
__device__ inline int thread_again() {
    int i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}

#endif
#endif
