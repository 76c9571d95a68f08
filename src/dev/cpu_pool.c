// cpu_pool.c - pooling over windows, concatenation and the resize to Inception's input on the cpu
// device. Compiled once for each instruction set (cpu_vec.h).
#include "dev/cpu_vec.h"
#include "dev/resize.h"
#include <string.h>

// ---- pooling ------------------------------------------------------------------------------------

typedef struct {
    int lo, hi;
} PixelRange; // pixels lo .. hi-1

// What of window i is there: it begins at i * stride - pad.
static PixelRange window_range(Pool o, int i, int n) {
    const int lo = i * o.stride - o.pad, hi = lo + o.size;
    return (PixelRange){ lo < 0 ? 0 : lo, hi > n ? n : hi };
}

static void mean_row(Pool o, const act *x, int w, PixelRange row, act *y, int out) {
    for (int j = 0; j < out; j++) {
        const PixelRange col = window_range(o, j, w);
        vec sum = { 0 };
        for (int u = row.lo; u < row.hi; u++)
            for (int v = col.lo; v < col.hi; v++) sum += LOAD(&x[u * w + v]);
        STORE(&y[j], sum / (float)((row.hi - row.lo) * (col.hi - col.lo)));
    }
}

static void max_row(Pool o, const act *x, int w, PixelRange row, act *y, int out) {
    for (int j = 0; j < out; j++) {
        const PixelRange col = window_range(o, j, w);
        vec most = LOAD(&x[row.lo * w + col.lo]);
        for (int u = row.lo; u < row.hi; u++)
            for (int v = col.lo; v < col.hi; v++) {
                const vec z = LOAD(&x[u * w + v]);
                most = PICK(z > most, z, most);
            }
        STORE(&y[j], most);
    }
}

static void window_fwd(Dev *dev, Pool o, const Tensor *x, Tensor *y) {
    if (!cpu_ready(dev)) return;
    const int blocks = blocks_of(x, L);
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < x->n; n++)
        for (int b = 0; b < blocks; b++)
            for (int i = 0; i < y->h; i++)
                (o.kind == POOL_MAX ? max_row : mean_row)(o, chunk(x, n, b), x->w,
                                                          window_range(o, i, x->h),
                                                          chunk(y, n, b) + i * y->w, y->w);
}

// ---- concatenation ------------------------------------------------------------------------------

// Where x does not begin at a block of y, lane by lane; the last block is filled up with zeros.
static void concat_lanes(const Tensor *x, Tensor *y, int at, int n) {
    const int hw = x->h * x->w, end = at + x->c, filled = (end + L - 1) / L * L;
    for (int c = at; c < filled; c++) {
        const elem *from = c < end ? (const elem *)chunk(x, n, (c - at) / L) + (c - at) % L : NULL;
        elem *to = (elem *)chunk(y, n, c / L) + c % L;
        for (int i = 0; i < hw; i++) to[i * L] = from ? from[i * L] : 0;
    }
}

static void concat(Dev *dev, const Tensor *x, Tensor *y, int at) {
    if (!cpu_ready(dev)) return;
    const size_t image = (size_t)blocks_of(x, L) * x->h * x->w * sizeof(act);
    #pragma omp parallel for
    for (int n = 0; n < x->n; n++)
        if (at % L) concat_lanes(x, y, at, n);
        else memcpy(chunk(y, n, at / L), chunk(x, n, 0), image);
}

// ---- resize -------------------------------------------------------------------------------------

enum { MOST_COLS = 512 };                                // of the result

static void resize(Dev *dev, const Tensor *bytes, Tensor *y) {
    if (!cpu_ready(dev)) return;
    if (y->w > MOST_COLS) {
        err_set(&dev->err, ERR_ARG, "resize to %d columns: at most %d", y->w, MOST_COLS);
        return;
    }
    const int w = bytes->w, planes = y->n * y->c;
    Sample col[MOST_COLS];
    for (int j = 0; j < y->w; j++) col[j] = legacy_sample(j, w, y->w);
    #pragma omp parallel for collapse(2)
    for (int p = 0; p < planes; p++)
        for (int i = 0; i < y->h; i++) {
            const Sample row = legacy_sample(i, bytes->h, y->h);
            const uint8_t *x = (const uint8_t *)bytes->p + (size_t)p * bytes->h * w;
            float *to = (float *)y->p + ((size_t)p * y->h + i) * y->w;
            for (int j = 0; j < y->w; j++)
                to[j] = legacy_mix(x + row.lo * w, x + row.hi * w, row, col[j]);
        }
}

void FOR_ISA(cpu_pool_)(Backend *be) {
    be->window_fwd = window_fwd;
    be->concat = concat;
    be->resize = resize;
}
