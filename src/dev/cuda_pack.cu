// cuda_pack.cu - filters in the layouts that the kernels read, packed from the master copy by one
// kernel for a whole network; weight gradients back to the master's layout.
#include "dev/cuda_conv.cuh"
#include <stdlib.h>

enum { TILE = 32 };                            // channels on each side of what a block packs

struct PackItem {
    const float *master;
    void        *w, *rot180;                    // as in PackedFilter; rot180 and stem may be NULL
    float       *stem;
    int          out, in, taps, first;          // first: its first block
};

// A block packs a tile of 32 x 32 channels, or a stem.
template <class T, int TAPS>
static __device__ void pack_tile(const PackItem &it, int local, float *tile) {
    constexpr int ROW = TILE * TAPS, STRIDE = ROW + 1;
    const int op = (it.out + 7) / 8 * 8, ip = (it.in + 7) / 8 * 8, t = (int)threadIdx.x,
              n = (int)blockDim.x;
    const int across = (ip + TILE - 1) / TILE, o0 = local / across * TILE,
              i0 = local % across * TILE;
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int o = e / ROW, rest = e % ROW;
        tile[o * STRIDE + rest] = o0 + o < it.out && i0 + rest / TAPS < it.in
                                      ? it.master[((size_t)(o0 + o) * it.in + i0) * TAPS + rest]
                                      : 0;
    }
    __syncthreads();
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int i = e % TILE, tap = e / TILE % TAPS, o = e / TILE / TAPS;
        if (o0 + o < op && i0 + i < ip)
            ((T *)it.w)[((size_t)(o0 + o) * TAPS + tap) * ip + i0 + i] =
                (T)tile[o * STRIDE + i * TAPS + tap];
    }
    if (!it.rot180) return;
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int o = e % TILE, tap = e / TILE % TAPS, i = e / TILE / TAPS;
        if (o0 + o < op && i0 + i < ip)
            ((T *)it.rot180)[((size_t)(i0 + i) * TAPS + tap) * op + o0 + o] =
                (T)tile[o * STRIDE + i * TAPS + TAPS - 1 - tap];
    }
}

// Any number of taps, without the rotated form.
template <class T> static __device__ void pack_any(const PackItem &it, int local) {
    const int op = (it.out + 7) / 8 * 8, ip = (it.in + 7) / 8 * 8, across = (ip + TILE - 1) / TILE;
    const int o0 = local / across * TILE, i0 = local % across * TILE;
    for (int e = (int)threadIdx.x; e < TILE * TILE * it.taps; e += (int)blockDim.x) {
        const int i = i0 + e % TILE, tap = e / TILE % it.taps, o = o0 + e / TILE / it.taps;
        if (o >= op || i >= ip) continue;
        const float w =
            o < it.out && i < it.in ? it.master[((size_t)o * it.in + i) * it.taps + tap] : 0;
        ((T *)it.w)[((size_t)o * it.taps + tap) * ip + i] = (T)w;
    }
}

template <class T> static __global__ void pack_kernel(const PackItem *items, int n) {
    __shared__ float tile[TILE * (TILE * MAX_TAPS + 1)];
    __shared__ PackItem it;
    const int t = (int)threadIdx.x;
    for (int i = t; i < n; i += (int)blockDim.x)
        if (items[i].first <= (int)blockIdx.x &&
            (i + 1 == n || items[i + 1].first > (int)blockIdx.x))
            it = items[i];
    __syncthreads();
    const int op = (it.out + 7) / 8 * 8, local = (int)blockIdx.x - it.first;
    if (it.stem)
        for (int e = t; e < it.in * it.taps * op; e += (int)blockDim.x) {
            const int o = e % op, tap = e / op % it.taps, c = e / op / it.taps;
            it.stem[e] = o < it.out ? it.master[((size_t)o * it.in + c) * it.taps + tap] : 0;
        }
    else if (it.taps == 9) pack_tile<T, 9>(it, local, tile);
    else if (it.taps == 4) pack_tile<T, 4>(it, local, tile);
    else if (it.taps == 1) pack_tile<T, 1>(it, local, tile);
    else pack_any<T>(it, local);
}

// The table of one network's filters, which its first filter owns.
static PackedFilter *table_of(Dev *dev, Filter *f, int n) {
    PackedFilter *owner = NULL;
    int used = 0, blocks = 0;
    for (int i = 0; i < n; i++) {
        PackedFilter *p = (PackedFilter *)f[i].impl;
        if (!p || !(p->w || p->stem)) continue;          // the head uses the master copy
        if (!owner) owner = p;
        used++;
    }
    if (!owner || (owner->table && owner->n_table == used)) return owner;
    PackItem *item = (PackItem *)calloc((size_t)used, sizeof *item);
    if (!item) {
        err_set(&dev->err, ERR_MEM, "out of memory for a table of filters");
        return NULL;
    }
    for (int i = 0, k = 0; i < n; i++) {
        const PackedFilter *p = (const PackedFilter *)f[i].impl;
        if (!p || !(p->w || p->stem)) continue;
        item[k++] = { f[i].w, p->w, p->rot180, p->stem, f[i].out, f[i].in, f[i].size * f[i].size_w,
                      blocks };
        blocks +=
            p->stem ? 1
                    : ((fill8(f[i].out) + TILE - 1) / TILE) * ((fill8(f[i].in) + TILE - 1) / TILE);
    }
    if (owner->table) dev->be.free(dev, owner->table);
    owner->table = dev->be.alloc(dev, (size_t)used * sizeof *item, "a table of filters");
    if (owner->table) dev->be.copy_in(dev, owner->table, item, (size_t)used * sizeof *item);
    owner->n_table = used;
    owner->n_blocks = blocks;
    free(item);
    return owner;
}

void filters_pack(Dev *dev, Filter *f, int n) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const PackedFilter *t = table_of(dev, f, n);
    if (!t || dev->err.kind || !t->n_blocks) return;
    if (cuda->half)
        pack_kernel<bf16><<<(unsigned)t->n_blocks, 256, 0, cuda->stream>>>(
            (const PackItem *)t->table, t->n_table);
    else
        pack_kernel<float><<<(unsigned)t->n_blocks, 256, 0, cuda->stream>>>(
            (const PackItem *)t->table, t->n_table);
    cuda_launched(dev, "filters_pack");
}

void filter_close(Dev *dev, Filter *f) {
    PackedFilter *p = (PackedFilter *)f->impl;
    if (!p) return;
    dev->be.free(dev, p->w);
    dev->be.free(dev, p->rot180);
    dev->be.free(dev, p->stem);
    dev->be.free(dev, p->table);
    dev->packed_bytes -= p->bytes;
    free(p);
    f->impl = NULL;
}

static void *form_alloc(Dev *dev, PackedFilter *p, size_t bytes) {
    void *q = dev->be.alloc(dev, bytes, "packed filters");
    if (!q) return NULL;
    p->bytes += bytes;
    dev->packed_bytes += bytes;
    return q;
}

// Both forms, wanted or not: what another pass chooses must not change the table of filters.
void filter_forms(Dev *dev, const Conv *c, int by_dnn, int rot180) {
    PackedFilter *p = (PackedFilter *)c->filter->impl;
    const size_t n = filled_len(c), bytes = n * cuda_of(dev)->elem;
    if (by_dnn && !p->w) p->w = form_alloc(dev, p, bytes);
    if (by_dnn && rot180 && !p->rot180) p->rot180 = form_alloc(dev, p, bytes);
    if (c->x_plain && !c->y_plain && !p->stem)
        p->stem = (float *)form_alloc(dev, p, n / fill8(c->x.c) * c->x.c * sizeof(float));
}

// ---- weight gradients --------------------------------------------------------------------------

// dw [out][in][tap] += part [out][tap][in]; a block takes an output channel and 128 inputs.
enum { ADD_TILE = 128, ADD_THREADS = 256 };

template <class T, int TAPS>
static __global__ void dw_add_kernel(const T *part, float *dw, int in) {
    __shared__ float tile[TAPS][ADD_TILE + 1];
    const int ip = (in + 7) / 8 * 8, o = (int)blockIdx.y, i0 = (int)blockIdx.x * ADD_TILE,
              t = (int)threadIdx.x;
    const int here = min(ADD_TILE, in - i0);
    #pragma unroll
    for (int e = t; e < TAPS * ADD_TILE; e += ADD_THREADS)
        if (e % ADD_TILE < here)
            tile[e / ADD_TILE][e % ADD_TILE] =
                (float)part[((size_t)o * TAPS + e / ADD_TILE) * ip + i0 + e % ADD_TILE];
    __syncthreads();
    float *to = dw + ((size_t)o * in + i0) * TAPS;
    #pragma unroll
    for (int e = t; e < ADD_TILE * TAPS; e += ADD_THREADS)
        if (e < here * TAPS) to[e] += tile[e % TAPS][e / TAPS];
}

template <class T>
static void dw_add_launch(cudaStream_t s, const Conv *c, const T *part, float *dw) {
    const dim3 grid(blocks_for((size_t)c->x.c, ADD_TILE), (unsigned)c->y.c);
    if (c->size == 3) dw_add_kernel<T, 9><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
    else if (c->size == 2) dw_add_kernel<T, 4><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
    else dw_add_kernel<T, 1><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
}

void dw_add(Dev *dev, const Conv *c, const void *part, int out32, float *dw) {
    if (out32) dw_add_launch(cuda_of(dev)->stream, c, (const float *)part, dw);
    else dw_add_launch(cuda_of(dev)->stream, c, (const bf16 *)part, dw);
    cuda_launched(dev, "conv_dw");
}
