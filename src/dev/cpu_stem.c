// cpu_stem.c - own convolutions for the ends of a network, where oneDNN has no fast kernel: the
// gradients of the stem, which reads plain images (and all of it where activations are bf16, which
// images are not), and all of the head, a matrix product. Compiled
// once for each instruction set (cpu_vec.h).
#include "dev/cpu_vec.h"

// ---- stem ---------------------------------------------------------------------------------------

static void stem_pack(const Filter *f, float *w) {
    const int taps = f->size * f->size;
    for (int b = 0; b * L < f->out; b++)
        for (int t = 0; t < taps; t++)
            for (int c = 0; c < f->in; c++)
                for (int l = 0; l < L; l++) {
                    const int o = b * L + l;
                    *w++ = o < f->out ? f->w[((size_t)o * f->in + c) * taps + t] : 0;
                }
}

enum {
    TILE = 64,                       // pixels of a row whose sums stay in the innermost cache
    LINE = 256,                      // pixels that they are made from
};

// Row i, columns j0 .. j0+len-1 of a block of outputs: one row of one input channel at a time, with
// its border, adds its products to all of them.
static void stem_row(const Conv *op, const vec *w, const float *image, const vec *bias, int i,
                     int j0, int len, act *to) {
    const int K = op->size, S = op->stride, in = op->x.c, h = op->x.h, width = op->x.w;
    const int left = j0 * S - op->pad, need = (len - 1) * S + K;
    float line[LINE];
    vec s[TILE];
    for (int j = 0; j < len; j++) s[j] = *bias;
    for (int u = 0; u < K; u++) {
        const int r = i * S + u - op->pad;
        if (r < 0 || r >= h) continue;
        for (int c = 0; c < in; c++) {
            const float *row = image + ((size_t)c * h + r) * width;
            for (int k = 0; k < need; k++)
                line[k] = left + k >= 0 && left + k < width ? row[left + k] : 0;
            for (int j = 0; j < len; j++)
                for (int v = 0; v < K; v++) s[j] += w[(u * K + v) * in + c] * line[j * S + v];
        }
    }
    for (int j = 0; j < len; j++) STORE(&to[j], op->relu ? PICK(s[j] > 0, s[j], (vec){ 0 }) : s[j]);
}

static void stem_fwd(const Conv *op, const float *w, const Tensor *x, const float *b, Tensor *y) {
    const int blocks = blocks_of(y, L), K = op->size, each = K * K * op->x.c;
    int most = (LINE - K) / op->stride + 1;
    if (most > TILE) most = TILE;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < y->n; n++)
        for (int i = 0; i < y->h; i++)
            for (int k = 0; k < blocks; k++) {
                const float *image = (const float *)x->p + (size_t)n * x->c * x->h * x->w;
                vec bias = { 0 };
                for (int l = 0; b && l < L && k * L + l < y->c; l++) bias[l] = b[k * L + l];
                for (int j = 0; j < y->w; j += most)
                    stem_row(op, (const vec *)w + (size_t)k * each, image, &bias, i, j,
                             y->w - j < most ? y->w - j : most, chunk(y, n, k) + i * y->w + j);
            }
}

// Pixels j0 .. j0+len-1 of row i of channel c: every tap adds its products, a vector of output
// channels to a pixel; the lanes are added up at the end.
static void stem_tile(const Conv *op, const vec *w, const act *dy, int c, int i, int j0, int len,
                      float *to) {
    const int K = op->size, S = op->stride, in = op->x.c, h = op->y.h, width = op->y.w;
    vec s[TILE];
    for (int j = 0; j < len; j++) s[j] = (vec){ 0 };
    for (int b = 0; b < blocks_of(&op->y, L); b++, w += K * K * in, dy += h * width)
        for (int u = (i + op->pad) % S; u < K && u <= i + op->pad; u += S) {
            const act *row = dy + (i + op->pad - u) / S * width;
            if ((i + op->pad - u) / S >= h) continue;
            for (int v = 0; v < K; v++) {
                const int at = j0 + op->pad - v;         // pixel j0 is output at / S under this tap
                const int first = at > 0 ? (at + S - 1) / S : 0;
                const int last = at + len - 1 < 0 ? -1 : (at + len - 1) / S;
                const vec tap = w[(u * K + v) * in + c];
                for (int o = first; o <= last && o < width; o++)
                    s[o * S - at] += tap * LOAD(&row[o]);
            }
        }
    for (int j = 0; j < len; j++) {
        const float *lane = (const float *)&s[j];
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int l = 0; l < L; l++) sum += lane[l];
        to[j] = sum;
    }
}

static void stem_dx(const Conv *op, const float *w, const Tensor *dy, Tensor *dx) {
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < dx->n; n++)
        for (int i = 0; i < dx->h; i++)
            for (int c = 0; c < dx->c; c++) {
                float *to = (float *)dx->p + (((size_t)n * dx->c + c) * dx->h + i) * dx->w;
                for (int j = 0; j < dx->w; j += TILE)
                    stem_tile(op, (const vec *)w, chunk(dy, n, 0), c, i, j,
                              dx->w - j < TILE ? dx->w - j : TILE, to + j);
            }
}

// The outputs whose tap at `off` falls inside 0 .. in-1 are lo .. hi-1.
static void span(int out, int in, int stride, int off, int *lo, int *hi) {
    *lo = off < 0 ? (stride - 1 - off) / stride : 0;
    *hi = off < in ? (in - 1 - off) / stride + 1 : 0;
    if (*hi > out) *hi = out;
}

// One image's gradient for tap (u, v) of an input channel (px its plane), for a block of outputs.
static void stem_tap(const Conv *op, const float *px, const act *dy, int u, int v, vec *sum) {
    const int S = op->stride, w = op->x.w;
    int i0, i1, j0, j1;
    span(op->y.h, op->x.h, S, u - op->pad, &i0, &i1);
    span(op->y.w, w, S, v - op->pad, &j0, &j1);
    vec s[2] = { 0 };
    for (int i = i0; i < i1; i++) {
        const float *row = px + (i * S + u - op->pad) * w + v - op->pad;
        const act *d = dy + i * op->y.w;
        int j = j0;
        for (; j + 2 <= j1; j += 2) {
            s[0] += row[j * S] * LOAD(&d[j]);
            s[1] += row[(j + 1) * S] * LOAD(&d[j + 1]);
        }
        if (j < j1) s[0] += row[j * S] * LOAD(&d[j]);
    }
    *sum = s[0] + s[1];
}

static void stem_dw(const Conv *op, const Tensor *x, const Tensor *dy, float *part, float *dw) {
    const int K = op->size, in = x->c, blocks = blocks_of(dy, L), each = K * K * in * blocks;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < x->n; n++)
        for (int b = 0; b < blocks; b++)
            for (int t = 0; t < K * K * in; t++) {
                const float *px = (const float *)x->p + ((size_t)n * in + t % in) * x->h * x->w;
                stem_tap(op, px, chunk(dy, n, b), t / in / K, t / in % K,
                         (vec *)part + (size_t)n * each + b * K * K * in + t);
            }
    #pragma omp parallel for
    for (int o = 0; o < dy->c; o++)
        for (int t = 0; t < K * K * in; t++) {
            double sum = 0;
            for (int n = 0; n < x->n; n++)
                sum += (double)part[((size_t)n * each + o / L * K * K * in + t) * L + o % L];
            dw[((size_t)o * in + t % in) * K * K + t / in] += (float)sum;
        }
}

// ---- head ---------------------------------------------------------------------------------------

static void head_fwd(const float *w, const Tensor *x, const float *b, Tensor *y) {
    const int in = x->c, out = y->c;
    #pragma omp parallel for
    for (int n = 0; n < x->n; n++)
        for (int o = 0; o < out; o++) {
            const float *px = (const float *)x->p + (size_t)n * in, *pw = w + (size_t)o * in;
            float s = 0;
            #pragma omp simd reduction(+ : s)
            for (int c = 0; c < in; c++) s += px[c] * pw[c];
            ((float *)y->p)[(size_t)n * out + o] = b ? s + b[o] : s;
        }
}

static void head_dx(const float *w, const Tensor *dy, Tensor *dx) {
    const int in = dx->c, out = dy->c;
    #pragma omp parallel for
    for (int n = 0; n < dx->n; n++) {
        float *to = (float *)dx->p + (size_t)n * in;
        const float *d = (const float *)dy->p + (size_t)n * out;
        for (int c = 0; c < in; c++) to[c] = 0;
        for (int o = 0; o < out; o++) {
            #pragma omp simd
            for (int c = 0; c < in; c++) to[c] += d[o] * w[(size_t)o * in + c];
        }
    }
}

static void head_dw(const Tensor *x, const Tensor *dy, float *dw, float *db) {
    const int in = x->c, out = dy->c;
    #pragma omp parallel for
    for (int o = 0; o < out; o++)
        for (int n = 0; n < x->n; n++) {
            const float d = ((const float *)dy->p)[(size_t)n * out + o];
            const float *px = (const float *)x->p + (size_t)n * in;
            #pragma omp simd
            for (int c = 0; c < in; c++) dw[(size_t)o * in + c] += d * px[c];
            if (db) db[o] += d;
        }
}

// ---- bias ---------------------------------------------------------------------------------------

static void bias_grad_plain(const Tensor *dy, float *db) {
    const int hw = dy->h * dy->w;
    #pragma omp parallel for
    for (int c = 0; c < dy->c; c++) {
        double sum = 0;
        for (int n = 0; n < dy->n; n++)
            for (int i = 0; i < hw; i++)
                sum += (double)((const float *)dy->p)[((size_t)n * dy->c + c) * hw + i];
        db[c] += (float)sum;
    }
}

static void bias_grad(const Tensor *dy, int plain, float *partial, float *db) {
    if (plain) {
        bias_grad_plain(dy, db);
        return;
    }
    const int blocks = blocks_of(dy, L), N = dy->n, hw = dy->h * dy->w;
    vec *part = (vec *)partial;
    #pragma omp parallel for
    for (int i = 0; i < N * blocks; i++) chunk_sum(chunk(dy, i / blocks, i % blocks), hw, &part[i]);
    for (int c = 0; c < dy->c; c++) {
        double sum = 0;
        for (int n = 0; n < N; n++) sum += (double)part[n * blocks + c / L][c % L];
        db[c] += (float)sum;
    }
}

const CpuKernels FOR_ISA(cpu_kernels_) = {
    .isa = ISA_NAME,
    .lanes = L,
    .stem_pack = stem_pack,
    .stem_fwd = stem_fwd,
    .stem_dx = stem_dx,
    .stem_dw = stem_dw,
    .head_fwd = head_fwd,
    .head_dx = head_dx,
    .head_dw = head_dw,
    .bias_grad = bias_grad,
    .wino = &FOR_ISA(cpu_wino_),
};
