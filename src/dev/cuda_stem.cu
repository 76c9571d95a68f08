// cuda_stem.cu - own convolutions: the stem, which reads plain images; the head, which is plain on
// both sides; and plain loops for every shape that nothing better is made for.
#include "dev/cuda.cuh"

struct Geometry {
    int n, in, out, xh, xw, yh, yw, size, size_w, stride, pad, pad_w;
};

static Geometry geometry(const Conv *c, const Tensor *x, const Tensor *y) {
    return { x->n, x->c,    y->c,      x->h,      x->w,   y->h,
             y->w, c->size, c->size_w, c->stride, c->pad, c->pad_w };
}

// ---- from plain images to vectors --------------------------------------------------------------

// A thread makes one vector of one pixel. w: [in][size][size_w][8 * vecs].
template <class T>
static __global__ void stem_fwd_kernel(Geometry g, const float *x, const float *w, const float *b,
                                       void *y) {
    const int vecs = (g.out + 7) / 8, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= g.n * g.yh * g.yw * vecs) return;
    const int vec = i % vecs, pixel = i / vecs, q = pixel % g.yw, p = pixel / g.yw % g.yh;
    const float *image = x + (size_t)(pixel / g.yw / g.yh) * g.in * g.xh * g.xw;
    Vec8 s = vec8_of(b, vec, g.out);
    for (int c = 0; c < g.in; c++)
        for (int u = 0; u < g.size; u++) {
            const int r = p * g.stride + u - g.pad;
            if (r < 0 || r >= g.xh) continue;
            for (int v = 0; v < g.size_w; v++) {
                const int col = q * g.stride + v - g.pad_w;
                if (col < 0 || col >= g.xw) continue;
                const float a = image[((size_t)c * g.xh + r) * g.xw + col];
                const float4 *wp =
                    (const float4 *)(w +
                                     ((size_t)((c * g.size + u) * g.size_w + v) * vecs + vec) * 8);
                const float4 lo = wp[0], hi = wp[1];
                s.v[0] += a * lo.x, s.v[1] += a * lo.y, s.v[2] += a * lo.z, s.v[3] += a * lo.w;
                s.v[4] += a * hi.x, s.v[5] += a * hi.y, s.v[6] += a * hi.z, s.v[7] += a * hi.w;
            }
        }
    pack_store<T>(y, (size_t)i, pack<T>(s));
}

// A thread makes one pixel of up to four channels.
template <class T>
static __global__ void stem_dx_kernel(Geometry g, const void *dy, const float *w, float *dx) {
    const int vecs = (g.out + 7) / 8, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= g.n * g.xh * g.xw) return;
    const int c0 = 4 * (int)blockIdx.y, q = i % g.xw, p = i / g.xw % g.xh, n = i / g.xw / g.xh;
    const int taps = g.size * g.size_w;
    float s[4] = { 0, 0, 0, 0 };
    for (int u = 0; u < g.size; u++) {
        const int r = p + g.pad - u;
        if (r < 0 || r % g.stride || r / g.stride >= g.yh) continue;
        for (int v = 0; v < g.size_w; v++) {
            const int col = q + g.pad_w - v;
            if (col < 0 || col % g.stride || col / g.stride >= g.yw) continue;
            const size_t at = ((size_t)(n * g.yh + r / g.stride) * g.yw + col / g.stride) * vecs;
            for (int o = 0; o < vecs; o++) {
                const Vec8 d = unpack(pack_load<T>(dy, at + o));
                #pragma unroll
                for (int c = 0; c < 4; c++) {
                    if (c0 + c >= g.in) break;
                    const float4 *wp =
                        (const float4 *)(w +
                                         ((size_t)((c0 + c) * taps + u * g.size_w + v) * vecs + o) *
                                             8);
                    const float4 lo = wp[0], hi = wp[1];
                    s[c] += d.v[0] * lo.x + d.v[1] * lo.y + d.v[2] * lo.z + d.v[3] * lo.w;
                    s[c] += d.v[4] * hi.x + d.v[5] * hi.y + d.v[6] * hi.z + d.v[7] * hi.w;
                }
            }
        }
    }
    #pragma unroll
    for (int c = 0; c < 4; c++)
        if (c0 + c < g.in) dx[((size_t)n * g.in + c0 + c) * g.xh * g.xw + i % (g.xh * g.xw)] = s[c];
}

// Partial sums [block][item][8] of the weights' gradients; an item is one tap of one input channel
// for one vector of outputs.
enum { DW_BLOCKS = 264, DW_THREADS = 256 };

template <class T>
static __global__ void stem_dw_kernel(Geometry g, const float *x, const void *dy, int items,
                                      float *part) {
    __shared__ float sums[DW_THREADS][9];
    const int vecs = (g.out + 7) / 8, taps = g.size * g.size_w, t = (int)threadIdx.x;
    const int here = min(items - (int)blockIdx.y * DW_THREADS, DW_THREADS),
              lanes = DW_THREADS / here;
    const int item = (int)blockIdx.y * DW_THREADS + t % here, lane = t / here;
    const int vec = item % vecs, tap = item / vecs % taps, c = item / vecs / taps;
    const int pixels = g.n * g.yh * g.yw, per = (pixels + (int)gridDim.x - 1) / (int)gridDim.x;
    const int end = min(pixels, ((int)blockIdx.x + 1) * per);
    Vec8 s;
    #pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = 0;
    if (lane < lanes)
        for (int i = (int)blockIdx.x * per + lane; i < end; i += lanes) {
            const int q = i % g.yw, p = i / g.yw % g.yh, n = i / g.yw / g.yh;
            const int r = p * g.stride + tap / g.size_w - g.pad,
                      col = q * g.stride + tap % g.size_w - g.pad_w;
            if (r < 0 || r >= g.xh || col < 0 || col >= g.xw) continue;
            const float a = x[(((size_t)n * g.in + c) * g.xh + r) * g.xw + col];
            const Vec8 d = unpack(pack_load<T>(dy, (size_t)i * vecs + vec));
            #pragma unroll
            for (int k = 0; k < 8; k++) s.v[k] += a * d.v[k];
        }
    #pragma unroll
    for (int k = 0; k < 8; k++) sums[t][k] = s.v[k];
    __syncthreads();
    for (int j = t; j < here * 8; j += DW_THREADS) {
        float all = 0;
        for (int l = 0; l < lanes; l++) all += sums[l * here + j / 8][j % 8];
        part[((size_t)blockIdx.x * items + blockIdx.y * DW_THREADS) * 8 + j] = all;
    }
}

// dw += the partial sums, a block an item's channel. [item][8] is [in][tap][vec][8].
static __global__ void stem_dw_add_kernel(Geometry g, int items, int parts, const float *part,
                                          float *dw) {
    __shared__ float sums[128];
    const int vecs = (g.out + 7) / 8, taps = g.size * g.size_w, t = (int)threadIdx.x;
    const int item = (int)blockIdx.x / 8, o = item % vecs * 8 + (int)blockIdx.x % 8;
    float s = 0;
    for (int i = t; i < parts; i += 128) s += part[(size_t)i * items * 8 + blockIdx.x];
    sums[t] = s;
    for (int d = 64; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) sums[t] += sums[t + d];
    }
    if (t == 0 && o < g.out)
        dw[(size_t)(o * g.in + item / vecs / taps) * taps + item / vecs % taps] += sums[0];
}

// ---- any layout, any shape: plain loops --------------------------------------------------------

struct View {                                 // elements by position, plain or opaque
    void *p;
    int   c, h, w, plain, half;
    __device__ size_t at(int n, int ch, int i, int j) const {
        return plain ? (((size_t)n * c + ch) * h + i) * w + j
                     : ((size_t)(n * h + i) * w + j) * ((c + 7) / 8 * 8) + ch;
    }
    __device__ float get(int n, int ch, int i, int j) const {
        const size_t k = at(n, ch, i, j);
        return !plain && half ? __bfloat162float(((const bf16 *)p)[k]) : ((const float *)p)[k];
    }
    __device__ void put(int n, int ch, int i, int j, float v) const {
        const size_t k = at(n, ch, i, j);
        if (!plain && half) ((bf16 *)p)[k] = __float2bfloat16(v);
        else ((float *)p)[k] = v;
    }
    __device__ int filled() const { return plain ? c : (c + 7) / 8 * 8; }
};

// A warp makes one output.
static __global__ void plain_fwd_kernel(Geometry g, View x, const float *w, const float *b,
                                        View y) {
    const int lane = (int)threadIdx.x % 32;
    const size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32;
    const int o = (int)(i % (size_t)y.filled()), taps = g.size * g.size_w;
    const size_t pixel = i / (size_t)y.filled();
    if (pixel >= (size_t)g.n * g.yh * g.yw) return;
    const int q = (int)(pixel % (size_t)g.yw), p = (int)(pixel / (size_t)g.yw % (size_t)g.yh);
    const int n = (int)(pixel / (size_t)g.yw / (size_t)g.yh);
    float s = 0;
    for (int k = lane; k < g.in * taps && o < g.out; k += 32) {
        const int r = p * g.stride + k % taps / g.size_w - g.pad,
                  col = q * g.stride + k % g.size_w - g.pad_w;
        if (r < 0 || r >= g.xh || col < 0 || col >= g.xw) continue;
        s += w[(size_t)o * g.in * taps + k] * x.get(n, k / taps, r, col);
    }
    s = warp_sum(s);
    if (lane == 0) y.put(n, o, p, q, o < g.out ? s + (b ? b[o] : 0) : 0);
}

// The head: y [n][out] = x [n][in] w' + b, a warp an output.
static __global__ void head_fwd_kernel(int n, int in, int out, const float *x, const float *w,
                                       const float *b, float *y) {
    const int lane = (int)threadIdx.x % 32, i = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= n * out) return;
    const float *px = x + (size_t)(i / out) * in, *pw = w + (size_t)(i % out) * in;
    float s = 0;
    #pragma unroll 8
    for (int k = lane; k < in; k += 32) s += px[k] * pw[k];
    s = warp_sum(s);
    if (lane == 0) y[i] = s + (b ? b[i % out] : 0);
}

// A thread makes one gradient of an input.
static __global__ void plain_dx_kernel(Geometry g, View dy, const float *w, View dx) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, pixel = i / (size_t)dx.filled();
    const int c = (int)(i % (size_t)dx.filled()), taps = g.size * g.size_w;
    if (pixel >= (size_t)g.n * g.xh * g.xw) return;
    const int q = (int)(pixel % (size_t)g.xw), p = (int)(pixel / (size_t)g.xw % (size_t)g.xh);
    const int n = (int)(pixel / (size_t)g.xw / (size_t)g.xh);
    float s = 0;
    for (int tap = 0; tap < taps && c < g.in; tap++) {
        const int r = p + g.pad - tap / g.size_w, col = q + g.pad_w - tap % g.size_w;
        if (r < 0 || col < 0 || r % g.stride || col % g.stride) continue;
        if (r / g.stride >= g.yh || col / g.stride >= g.yw) continue;
        for (int o = 0; o < g.out; o++)
            s +=
                w[(size_t)(o * g.in + c) * taps + tap] * dy.get(n, o, r / g.stride, col / g.stride);
    }
    dx.put(n, c, p, q, s);
}

// A warp makes one gradient of a weight.
static __global__ void plain_dw_kernel(Geometry g, View x, View dy, float *dw) {
    const int lane = (int)threadIdx.x % 32, taps = g.size * g.size_w;
    const int i = (int)((blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32);
    if (i >= g.out * g.in * taps) return;
    const int tap = i % taps, c = i / taps % g.in, o = i / taps / g.in;
    float s = 0;
    for (int k = lane; k < g.n * g.yh * g.yw; k += 32) {
        const int q = k % g.yw, p = k / g.yw % g.yh, n = k / g.yw / g.yh;
        const int r = p * g.stride + tap / g.size_w - g.pad,
                  col = q * g.stride + tap % g.size_w - g.pad_w;
        if (r < 0 || r >= g.xh || col < 0 || col >= g.xw) continue;
        s += dy.get(n, o, p, q) * x.get(n, c, r, col);
    }
    s = warp_sum(s);
    if (lane == 0) dw[i] += s;
}

// A block makes one gradient of a bias.
static __global__ void bias_grad_kernel(View dy, int n, float *db) {
    __shared__ float sums[256];
    const int o = (int)blockIdx.x, t = (int)threadIdx.x;
    float s = 0;
    for (int k = t; k < n * dy.h * dy.w; k += 256)
        s += dy.get(k / dy.w / dy.h, o, k / dy.w % dy.h, k % dy.w);
    sums[t] = s;
    for (int d = 128; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) sums[t] += sums[t + d];
    }
    if (t == 0) db[o] += sums[0];
}

// ---- launching ---------------------------------------------------------------------------------

static View view(const Cuda *cuda, const Tensor *t, int plain) {
    return { t->p, t->c, t->h, t->w, plain, cuda->half };
}

static int is_stem(const Conv *c) { return c->x_plain && !c->y_plain; }

void stem_fwd(Dev *dev, const Conv *c, const float *w, const Tensor *x, const float *b, Tensor *y) {
    Cuda *cuda = cuda_of(dev);
    const Geometry g = geometry(c, x, y);
    if (is_stem(c)) {
        const unsigned grid = blocks_for(vectors_in(y), 128);
        if (cuda->half)
            stem_fwd_kernel<bf16>
                <<<grid, 128, 0, cuda->stream>>>(g, (const float *)x->p, w, b, y->p);
        else
            stem_fwd_kernel<float>
                <<<grid, 128, 0, cuda->stream>>>(g, (const float *)x->p, w, b, y->p);
    } else if (c->x_plain && c->y_plain && c->size * c->size_w == 1 && x->h * x->w == 1) {
        head_fwd_kernel<<<blocks_for((size_t)x->n * y->c * 32, 128), 128, 0, cuda->stream>>>(
            x->n, x->c, y->c, (const float *)x->p, w, b, (float *)y->p);
    } else {
        const View vx = view(cuda, x, c->x_plain), vy = view(cuda, y, c->y_plain);
        const size_t outs = c->y_plain ? tensor_len(y) : 8 * vectors_in(y);
        plain_fwd_kernel<<<blocks_for(32 * outs, 128), 128, 0, cuda->stream>>>(g, vx, w, b, vy);
    }
    cuda_launched(dev, "conv_fwd");
}

void stem_dx(Dev *dev, const Conv *c, const float *w, const Tensor *dy, Tensor *dx) {
    Cuda *cuda = cuda_of(dev);
    const Geometry g = geometry(c, dx, dy);
    if (is_stem(c)) {
        const dim3 grid(blocks_for(tensor_pixels(dx), 128), (unsigned)(dx->c + 3) / 4);
        if (cuda->half)
            stem_dx_kernel<bf16><<<grid, 128, 0, cuda->stream>>>(g, dy->p, w, (float *)dx->p);
        else stem_dx_kernel<float><<<grid, 128, 0, cuda->stream>>>(g, dy->p, w, (float *)dx->p);
    } else {
        const View vx = view(cuda, dx, c->x_plain), vy = view(cuda, dy, c->y_plain);
        const size_t ins = c->x_plain ? tensor_len(dx) : 8 * vectors_in(dx);
        plain_dx_kernel<<<blocks_for(ins, 128), 128, 0, cuda->stream>>>(g, vy, w, vx);
    }
    cuda_launched(dev, "conv_dx");
}

static int dw_items(const Conv *c) { return c->x.c * c->size * c->size_w * vecs_of(&c->y); }

size_t stem_partial(const Conv *c) { return (size_t)DW_BLOCKS * dw_items(c) * 8 * sizeof(float); }

void stem_dw(Dev *dev, const Conv *c, const Tensor *x, const Tensor *dy, float *dw) {
    Cuda *cuda = cuda_of(dev);
    const Geometry g = geometry(c, x, dy);
    if (is_stem(c)) {
        const int items = dw_items(c);
        const dim3 grid(DW_BLOCKS, blocks_for((size_t)items, DW_THREADS));
        if (cuda->half)
            stem_dw_kernel<bf16><<<grid, DW_THREADS, 0, cuda->stream>>>(
                g, (const float *)x->p, dy->p, items, cuda->partial);
        else
            stem_dw_kernel<float><<<grid, DW_THREADS, 0, cuda->stream>>>(
                g, (const float *)x->p, dy->p, items, cuda->partial);
        stem_dw_add_kernel<<<(unsigned)items * 8, 128, 0, cuda->stream>>>(g, items, DW_BLOCKS,
                                                                          cuda->partial, dw);
    } else {
        const View vx = view(cuda, x, c->x_plain), vy = view(cuda, dy, c->y_plain);
        const size_t weights = (size_t)g.out * g.in * g.size * g.size_w;
        plain_dw_kernel<<<blocks_for(32 * weights, 128), 128, 0, cuda->stream>>>(g, vx, vy, dw);
    }
    cuda_launched(dev, "conv_dw");
}

void bias_grad(Dev *dev, const Conv *c, const Tensor *dy, float *db) {
    Cuda *cuda = cuda_of(dev);
    bias_grad_kernel<<<(unsigned)dy->c, 256, 0, cuda->stream>>>(view(cuda, dy, c->y_plain), dy->n,
                                                                db);
    cuda_launched(dev, "the gradient of a bias");
}

// ---- probing -----------------------------------------------------------------------------------

enum { PROBES = 1024 };

// A warp works one number of a result out anew, some numbers spread over all of it: sums[0] gets
// the squared differences, sums[1] the squares.
static __global__ void probe_kernel(Geometry g, int dir, View x, View y, const float *w,
                                    const float *dw, double *sums) {
    const int lane = (int)threadIdx.x % 32, taps = g.size * g.size_w;
    const size_t probe = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32;
    const size_t total = dir == 0   ? (size_t)g.n * g.out * g.yh * g.yw
                         : dir == 1 ? (size_t)g.n * g.in * g.xh * g.xw
                                    : (size_t)g.out * g.in * taps;
    size_t i = probe * 2654435761u % total;
    float s = 0, got;
    if (dir == 2) {
        const int tap = (int)(i % (size_t)taps), c = (int)(i / (size_t)taps) % g.in,
                  o = (int)(i / (size_t)taps) / g.in;
        got = dw[i];
        for (int k = lane; k < g.n * g.yh * g.yw; k += 32) {
            const int q = k % g.yw, p = k / g.yw % g.yh, n = k / g.yw / g.yh;
            const int r = p * g.stride + tap / g.size_w - g.pad,
                      col = q * g.stride + tap % g.size_w - g.pad_w;
            if (r >= 0 && r < g.xh && col >= 0 && col < g.xw)
                s += y.get(n, o, p, q) * x.get(n, c, r, col);
        }
    } else {
        const View &out = dir ? x : y, &in = dir ? y : x;
        const size_t hw = (size_t)(out.w * out.h);
        const int q = (int)(i % (size_t)out.w), p = (int)(i / (size_t)out.w % (size_t)out.h);
        const int ch = (int)(i / hw % (size_t)out.c), n = (int)(i / hw / (size_t)out.c);
        got = out.get(n, ch, p, q);
        for (int k = lane; k < in.c * taps; k += 32) {
            const int c = k / taps, tap = k % taps, u = tap / g.size_w, v = tap % g.size_w;
            int r = p * g.stride + u - g.pad, col = q * g.stride + v - g.pad_w;
            if (dir) {
                r = p + g.pad - u, col = q + g.pad_w - v;
                if (r < 0 || col < 0 || r % g.stride || col % g.stride) continue;
                r /= g.stride, col /= g.stride;
            }
            if (r < 0 || r >= in.h || col < 0 || col >= in.w) continue;
            s += w[(size_t)(dir ? c * g.in + ch : ch * g.in + c) * taps + tap] *
                 in.get(n, c, r, col);
        }
    }
    s = warp_sum(s);
    if (lane) return;
    atomicAdd(&sums[0], (double)(got - s) * (double)(got - s));
    atomicAdd(&sums[1], (double)s * (double)s);
}

double conv_probe(Dev *dev, const Conv *c, int dir, const Tensor *x, const Tensor *y,
                  const float *w, const float *dw, double *room) {
    Cuda *cuda = cuda_of(dev);
    double sums[2] = { 0, 0 };
    dev->be.zero(dev, room, sizeof sums);
    probe_kernel<<<PROBES / 4, 128, 0, cuda->stream>>>(
        geometry(c, x, y), dir, view(cuda, x, c->x_plain), view(cuda, y, c->y_plain), w, dw, room);
    cuda_launched(dev, "probing a convolution");
    dev->be.copy_out(dev, sums, room, sizeof sums);
    return sqrt(sums[0] / (sums[1] + 1e-300));
}
