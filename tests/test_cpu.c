// test_cpu.c - the cpu device against the reference device, operation by operation.
//
// Outputs start as NaN and have guard bytes behind them. Where the processor has bf16, everything
// that works on opaque activations is tested with it too: both devices get the same rounded
// numbers. A tensor may then differ from the reference by these shares of its length:
//     5e-3   direct convolutions, norms, pooling: each number is rounded once (2e-3), and weights
//     2e-2   Winograd: its transformed tiles and weights are rounded (1e-2 was measured)
#include "testing.h"
#include "net/net.h"
#include "search_case.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 64, MAX_BUFS = 64 };

// ---- counting allocations: what the C library's malloc is asked for while `watching` ------------

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static struct { volatile int watching, count, large; } heap;

static void heap_note(size_t n) {
    if (!heap.watching) return;
    __atomic_add_fetch(&heap.count, 1, __ATOMIC_RELAXED);
    if (n > 4096) __atomic_add_fetch(&heap.large, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n) {
    heap_note(n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    heap_note(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    heap_note(n);
    return __libc_realloc(p, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
    heap_note(n);
    *p = __libc_memalign(align, n);
    return *p ? 0 : 12;
}

void *aligned_alloc(size_t align, size_t n) {
    heap_note(n);
    return __libc_memalign(align, n);
}
#endif

// ---- two devices, guarded memory, comparison ----------------------------------------------------

typedef struct {
    Dev *dev;
    char *p;
    size_t bytes;
} Buf;
typedef struct {
    Dev dev[2];                         // the reference, the processor
    Buf buf[MAX_BUFS];
    int n_buf, lanes;
    int half;                           // the processor's activations are bf16
    uint32_t step;
} Pair;

static DevOpts cpu_opts(int half, int threads) {
    return (DevOpts){ .threads = threads, .precision = half ? PREC_BF16 : PREC_FP32 };
}

static void dev_start(Dev *dev, const char *name, DevOpts o) {
    OK(dev_open(dev, name, &o, NULL, err));
}

static int pair_start(void **state, int half) {
    Pair *t = calloc(1, sizeof *t);
    assert_non_null(t);
    *state = t;                         // closed whether or not a device opens
    t->half = half;
    dev_start(&t->dev[0], "ref", (DevOpts){ .threads = 1 });
    dev_start(&t->dev[1], "cpu", cpu_opts(half, 2));
    t->lanes = (int)(t->dev[1].be.tensor_bytes(&t->dev[1], &(Tensor){ 1, 1, 1, 1, NULL }) /
                     (half ? sizeof(uint16_t) : sizeof(real)));
    return 0;
}

static int pair_open(void **state) { return pair_start(state, 0); }
static int half_pair_open(void **state) { return pair_start(state, 1); }

static int pair_close(void **state) {
    Pair *t = *state;
    dev_close(&t->dev[0]);
    dev_close(&t->dev[1]);
    free(t);
    return 0;
}

static void dev_fine(const Dev *dev) { OK(dev_check(dev, err)); }

// Memory full of NaN with guard bytes behind it, until bufs_free.
static void *buf(Pair *t, Dev *dev, size_t bytes) {
    assert_true(t->n_buf < MAX_BUFS);
    char *p = dev->be.alloc(dev, bytes + GUARD, "a test");
    dev_fine(dev);
    memset(p, 0xff, bytes);
    memset(p + bytes, 0xa5, GUARD);
    t->buf[t->n_buf++] = (Buf){ dev, p, bytes };
    return p;
}

static void bufs_free(Pair *t) {
    dev_fine(&t->dev[0]);
    dev_fine(&t->dev[1]);
    for (int i = 0; i < t->n_buf; i++) {
        const Buf *b = &t->buf[i];
        for (int k = 0; k < GUARD; k++)
            if ((unsigned char)b->p[b->bytes + (size_t)k] != 0xa5)
                fail_msg("written past the end of buffer %d", i);
        b->dev->be.free(b->dev, b->p);
    }
    t->n_buf = 0;
}

static real *reals(Pair *t, Dev *dev, size_t n) { return buf(t, dev, n * sizeof(real)); }

// n numbers of this mean and standard deviation, the same on both devices.
static void twins(Pair *t, size_t n, double mean, double sd, real *out[2]) {
    const Rng key = { 7, RNG_TEST, t->step++, 0 };
    out[0] = reals(t, &t->dev[0], n);
    out[1] = reals(t, &t->dev[1], n);
    for (size_t i = 0; i < n; i++)
        out[0][i] = out[1][i] = (real)(mean + sd * (double)rng_normal(key, i));
}

static Tensor on(Pair *t, Dev *dev, Tensor shape, int plain) {
    shape.p =
        buf(t, dev, plain ? tensor_len(&shape) * sizeof(real) : dev->be.tensor_bytes(dev, &shape));
    return shape;
}

// An activation on both devices: random, or NaN to be written.
static void random_pair(Pair *t, Tensor shape, int plain, double mean, Tensor out[2]) {
    real *v[2];
    twins(t, tensor_len(&shape), mean, 1, v);
    for (int i = 0; i < 2; i++) {
        out[i] = on(t, &t->dev[i], shape, plain);
        if (plain) memcpy(out[i].p, v[i], tensor_len(&shape) * sizeof(real));
        else t->dev[i].be.from_plain(&t->dev[i], v[i], &out[i]);
    }
    if (!t->half || plain) return;
    t->dev[1].be.to_plain(&t->dev[1], &out[1], v[0]);    // the reference gets rounded ones too
    t->dev[0].be.from_plain(&t->dev[0], v[0], &out[0]);
}

static void empty_pair(Pair *t, Tensor shape, int plain, Tensor out[2]) {
    out[0] = on(t, &t->dev[0], shape, plain);
    out[1] = on(t, &t->dev[1], shape, plain);
}

static void same(const real *want, const real *got, size_t n, double tol, const char *what) {
    const double d = distance(got, want, n);
    if (!(d <= tol)) fail_msg("%s: off by %.2e of its length", what, d);
}

// The filling of the last channel block must stay zero.
static void filling_is_zero(const Pair *t, const Tensor *x, const char *what) {
    const int L = t->lanes, last = x->c % L, hw = x->h * x->w, blocks = (x->c + L - 1) / L;
    for (int n = 0; last && n < x->n; n++)
        for (int i = 0; i < hw; i++)
            for (int l = last; l < L; l++) {
                const size_t at = (((size_t)n * blocks + blocks - 1) * hw + i) * L + l;
                if (t->half ? (((uint16_t *)x->p)[at] & 0x7fff) != 0 : ((real *)x->p)[at] != 0)
                    fail_msg("%s: the filling of the last channel block is not zero", what);
            }
}

static double tol_of(const Pair *t, double fp32, double bf16) { return t->half ? bf16 : fp32; }

static void same_tensor(Pair *t, Tensor x[2], int plain, double tol, const char *what) {
    const size_t n = tensor_len(&x[0]);
    real *got = x[1].p;
    if (!plain) {
        filling_is_zero(t, &x[1], what);
        got = reals(t, &t->dev[1], n);
        t->dev[1].be.to_plain(&t->dev[1], &x[1], got);
    }
    same(x[0].p, got, n, tol, what);
}

// ---- convolutions -------------------------------------------------------------------------------

#include "op_cases.h"
#include "window_cases.h"

// how: the kernels' name, or NULL for any.
static void conv_agrees(Pair *t, const Case *k, const char *how, double tol) {
    char what[128];
    snprintf(what, sizeof what, "conv n%d %d-%d %dx%d k%d s%d p%d plain %d%d", k->n, k->in, k->out,
             k->h, k->w, k->size, k->stride, k->pad, k->x_plain, k->y_plain);
    ConvRun r;
    conv_run(t, k, &r);
    for (int d = 0; how && d < 3; d++) assert_string_equal(r.c[1].how[d], how);
    same_tensor(t, r.y, k->y_plain, tol, what);
    same_tensor(t, r.y0, k->y_plain, tol, what);
    same_tensor(t, r.dx, k->x_plain, tol, what);
    same(r.dw[0], r.dw[1], r.n_w, tol, what);
    same(r.db[0], r.db[1], (size_t)k->out, tol, what);
    conv_end(t, r.c, r.f);
}

static void convolutions_of_odd_shapes_agree(void **state) {
    for (int at = 0; at < 7 * 7 * 4; at++) {
        const Case k = odd_case(at, at / 28, at / 4 % 7);
        conv_agrees(*state, &k, NULL, tol_of(*state, 2e-5, 2e-2));
    }
}

static void convolutions_of_real_shapes_agree(void **state) {
    static const Case real_ones[] = {
        { 3, 16, 16, 32, 32, 3, 1, 1, 0, 0 }, { 2, 16, 32, 28, 28, 3, 1, 1, 0, 0 },
        { 4, 32, 32, 16, 16, 3, 2, 1, 0, 0 }, { 4, 64, 64, 8, 8, 3, 1, 1, 0, 0 },
        { 4, 64, 128, 16, 16, 1, 2, 0, 0, 0 }, { 2, 32, 64, 14, 14, 3, 1, 1, 0, 0 },
        { 3, 160, 160, 12, 12, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(real_ones); i++)
        conv_agrees(*state, &real_ones[i], NULL, tol_of(*state, 1e-4, 2e-2));
}

// A device that was told to use the same kind of kernel for this shape in every direction.
static void told(Dev *dev, int half, int threads, const Case *k, const char *way) {
    static const char *const dirs[] = { "fwd", "dx", "dw" };
    char text[256] = "";
    for (int d = 0; d < 3; d++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s %dx%d %d-%d k%d s%d p%d%s = %s\n", dirs[d], k->h, k->w, k->in, k->out, k->size,
                 k->stride, k->pad, half ? " bf16" : "", way);
    DevOpts o = cpu_opts(half, threads);
    o.tuning = text;
    dev_start(dev, "cpu", o);
}

// Every size of picture up to three tiles, one image and several, odd and even numbers of blocks,
// more tiles than are transformed together; batches large enough that sums are cut into pieces.
static void winograd_agrees(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const int channels[] = { 16, 32, 48, 160 };
    int at = 0;
    for (int stride = 1; stride <= 2; stride++)
        for (int side = 1; side <= 12 * stride; side += stride)
            for (int i = 0; i < 4; i++, at++) {
                const int many = side == 12 ? 21 : 1 + at % 3, wide = (at * 5) % 9 + 1;
                const Case k = {
                    many, channels[i], channels[at / 4 % 3], side, wide, 3, stride, 1, 0, 0
                };
                told(&t->dev[1], t->half, 1 + at % 2, &k, "winograd");
                conv_agrees(t, &k, "own:winograd", tol_of(t, 2e-5, 2e-2));
                dev_close(&t->dev[1]);
            }
    t->dev[1] = usual;
}

static void winograd_leaves_the_rest_to_others(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const Case rest[] = {
        { 2, 20, 32, 8, 8, 3, 1, 1, 0, 0 }, { 2, 32, 20, 8, 8, 3, 1, 1, 0, 0 },
        { 2, 32, 32, 8, 8, 3, 1, 0, 0, 0 }, { 2, 32, 32, 9, 9, 3, 3, 1, 0, 0 },
        { 2, 32, 32, 8, 8, 1, 1, 0, 0, 0 }, { 2, 16, 16, 8, 8, 5, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(rest); i++) {
        real w[1] = { 0 };
        Filter f = { rest[i].out, rest[i].in, rest[i].size, rest[i].size, w, NULL };
        Conv c = conv_of(&rest[i], &f, WANT_DX | WANT_DW);
        told(&t->dev[1], t->half, 1, &rest[i], "winograd");
        conv_agrees(t, &rest[i], NULL, tol_of(t, 2e-5, 5e-3));
        f.w = reals(t, &t->dev[1], (size_t)f.out * f.in * f.size * f.size);
        t->dev[1].be.conv_open(&t->dev[1], &c);
        for (int d = 0; d < 3; d++) assert_null(strstr(c.how[d], "wino"));
        t->dev[1].be.conv_close(&t->dev[1], &c);
        t->dev[1].be.filter_close(&t->dev[1], &f);
        bufs_free(t);
        dev_close(&t->dev[1]);
    }
    t->dev[1] = usual;
}

static void stems_and_heads_agree(void **state) {
    Pair *t = *state;
    for (size_t i = 0; i < LEN(STEMS_AND_HEADS); i++) {
        const Case *k = &STEMS_AND_HEADS[i];
        if (t->half && !k->x_plain && k->y_plain) continue;     // no network has such a one
        conv_agrees(t, k, NULL, tol_of(t, 2e-5, 5e-3));
    }
}

// Where Winograd is not allowed every product is of numbers rounded once.
static void direct_convolutions_agree_closely(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const Case cases[] = { { 3, 32, 48, 9, 9, 3, 1, 1, 0, 0 },
                                  { 3, 48, 32, 9, 9, 3, 2, 1, 0, 0 },
                                  { 3, 24, 40, 7, 5, 1, 1, 0, 0, 0 } };
    DevOpts o = cpu_opts(t->half, 2);
    o.conv = CONV_DIRECT;
    dev_start(&t->dev[1], "cpu", o);
    for (size_t i = 0; i < LEN(cases); i++) conv_agrees(t, &cases[i], NULL, tol_of(t, 2e-5, 5e-3));
    dev_close(&t->dev[1]);
    t->dev[1] = usual;
}

static void inference_agrees(void **state) {
    Pair *t = *state;
    for (size_t i = 0; i < LEN(RELU_CASES); i++)
        relu_conv_agrees(t, &RELU_CASES[i], tol_of(t, 2e-5, 2e-2));
    windows_agree(t, tol_of(t, 1e-6, 5e-3));
    concats_agree(t, 0);
}

static void packed_weights_follow_the_master_copy(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Case k = { 1, 16, 16, 4, 4, 1, 1, 0, 0, 0 };
    real *w = reals(t, dev, 256), *ones = reals(t, dev, 256), *out = reals(t, dev, 256);
    for (int i = 0; i < 256; i++) w[i] = ones[i] = 1;
    Filter f = { 16, 16, 1, 1, w, NULL };
    Conv a = conv_of(&k, &f, 0), b = conv_of(&k, &f, 0);
    Tensor x = on(t, dev, a.x, 0), y = on(t, dev, a.y, 0);
    dev->be.from_plain(dev, ones, &x);
    dev->be.conv_open(dev, &a);
    for (int i = 0; i < 256; i++) w[i] = 2;
    dev->be.conv_fwd(dev, &a, &x, NULL, &y);
    dev->be.to_plain(dev, &y, out);
    assert_true(out[0] == 16);                           // 16 channels of 1 * 1: not packed yet
    dev->be.filters_pack(dev, &f, 1);
    dev->be.conv_open(dev, &b);                          // shares what was packed
    dev->be.conv_fwd(dev, &b, &x, NULL, &y);
    dev->be.to_plain(dev, &y, out);
    assert_true(out[255] == 32);
    assert_true(dev->packed_bytes == 256 * (t->half ? sizeof(uint16_t) : sizeof(real)));
    dev->be.conv_close(dev, &a);
    dev->be.conv_close(dev, &b);
    dev->be.filter_close(dev, &f);
    bufs_free(t);
}

// ---- norm, pooling, layout ----------------------------------------------------------------------

static void norm_agrees(Pair *t, Tensor shape, int mode) {
    const size_t C = (size_t)shape.c;
    NormRun n;
    norm_run(t, shape, mode, &n);
    same_tensor(t, n.x, 0, 0, n.what);
    same_tensor(t, n.y, 0, tol_of(t, 1e-5, 5e-3), n.what);
    for (int i = 2; i < 7; i++)
        same(n.par[i][0], n.par[i][1], i == 6 ? 2 * C : C, tol_of(t, 1e-5, 1e-4), n.what);
    // with one or two values a channel the gradient is zero, and only round-off is left
    if (!(mode & NO_DX) && shape.n * shape.h * shape.w > 2)
        same_tensor(t, n.dx, 0, tol_of(t, 2e-5, 5e-3), n.what);
    bufs_free(t);
}

static void norms_agree_in_every_mode(void **state) {
    static const int channels[] = { 1, 3, 5, 16, 24, 40, 64 };
    for (int mode = 0, at = 0; mode < N_MODE; mode++)
        for (size_t i = 0; i < 7; i++, at++)
            norm_agrees(*state, (Tensor){ 1 + at % 4, channels[i], 3 + at % 6, 2 + at % 5, NULL },
                        mode);
}

// Sizes at which channel blocks are handled in more than one group.
static void norms_of_large_tensors_agree(void **state) {
    const int mode = HAS_NORM | BATCH_STATS | RESIDUAL | UPDATE;
    norm_agrees(*state, (Tensor){ 24, 48, 32, 32, NULL }, mode);
    norm_agrees(*state, (Tensor){ 24, 40, 32, 32, NULL }, mode | ADD_DX);
    norm_agrees(*state, (Tensor){ 2, 16, 1, 1, NULL }, mode);
    norm_agrees(*state, (Tensor){ 1, 16, 1, 1, NULL }, mode);
}

// A single sweep that adds up squares would lose every digit here.
static void statistics_survive_a_large_mean(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Tensor shape = { 8, 16, 16, 16, NULL };
    const size_t n = tensor_len(&shape);
    real *v = reals(t, dev, n), *stat = reals(t, dev, 32), *one = reals(t, dev, 16),
         *nil = reals(t, dev, 16);
    for (size_t i = 0; i < n; i++) v[i] = i % 2 ? 4097 : 4095;         // mean 4096, variance 1
    for (int c = 0; c < 16; c++) one[c] = 1, nil[c] = 0;
    Tensor x = on(t, dev, shape, 0), y = on(t, dev, shape, 0);
    dev->be.from_plain(dev, v, &x);
    const Norm op = { .leak = (real)0.2,
                      .batch_stats = 1,
                      .gamma = one,
                      .beta = nil,
                      .mean = stat,
                      .rstd = stat + 16 };
    dev->be.norm_fwd(dev, &op, &x, NULL, &y);
    dev->be.to_plain(dev, &y, v);
    for (int c = 0; c < 16; c++) assert_true(stat[c] == 4096 && stat[16 + c] == 1);
    for (size_t i = 0; i < n; i++) assert_true(v[i] == (i % 2 ? (real)1 : -(real)0.2));
    bufs_free(t);
}

static void pooling_agrees_and_layouts_go_there_and_back(void **state) {
    Pair *t = *state;
    static const int channels[] = { 1, 3, 5, 16, 24, 40, 64, 640 };
    for (int i = 0; i < 8; i++) {
        const Tensor shape = { 1 + i % 3, channels[i], 8 - i % 4, 1 + i, NULL },
                     pooled = { shape.n, shape.c, 1, 1, NULL };
        Tensor x[2], y[2], dy[2], dx[2];
        random_pair(t, shape, 0, 1, x);
        random_pair(t, pooled, 1, 0, dy);
        empty_pair(t, pooled, 1, y);
        empty_pair(t, shape, 0, dx);
        same_tensor(t, x, 0, 0, "from_plain and to_plain");
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            dev->be.pool_fwd(dev, &x[k], &y[k]);
            dev->be.pool_bwd(dev, &dy[k], &dx[k]);
        }
        same_tensor(t, y, 1, 1e-6, "pool_fwd");
        same_tensor(t, dx, 0, tol_of(t, 1e-6, 5e-3), "pool_bwd");
        bufs_free(t);
    }
}

// ---- sampling and learning ----------------------------------------------------------------------

static void moves_agree(void **state) {
    Pair *t = *state;
    static const Move moves[] = { { 5, (real)0.2, 1, 0, 1 },
                                  { 1, 1, INFINITY, (real)0.01, 0 },
                                  { 3, (real)0.5, (real)0.3, (real)0.1, 1 } };
    for (int i = 0; i < 3; i++) {
        const Tensor shape = { 3, 1 + 2 * (i & 1), 7, 5, NULL };
        const StepState now = { .in.step = 11 };
        const Rng key = { 3, RNG_TEST, 5, 6 };
        Tensor x[2], g[2];
        random_pair(t, shape, 1, 0, x);
        random_pair(t, shape, 1, 0, g);
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            dev->be.langevin(dev, &x[k], &g[k], moves[i], key, i == 2 ? NULL : &now);
        }
        same_tensor(t, x, 1, 1e-6, "langevin");
        bufs_free(t);
    }
}

static void optimisers_agree_and_stand_still_when_halted(void **state) {
    Pair *t = *state;
    const size_t n = 1003;
    for (int halt = 0; halt < 2; halt++) {
        real *w[2], *g[2], *v[2], *m[2], *u[2], *avg[2];
        twins(t, n, 0, 1, w);
        twins(t, n, 0, 1, g);
        twins(t, n, 0, 1, v);
        twins(t, n, 0, 1, m);
        twins(t, n, 5, 1, u);
        twins(t, n, 0, 1, avg);
        const real first = w[1][0], first_avg = avg[1][0];
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            const StepState now = { .in.step = 3, .in.lr = (real)0.1, .halt = halt };
            dev->be.sgd(dev, n, w[k], g[k], v[k], (Sgd){ (real)0.9, (real)4e-4 }, &now);
            dev->be.adam(dev, n, w[k], g[k], m[k], u[k],
                         (Adam){ (real)0.9, (real)0.999, (real)1e-8, (real)0.01 }, &now);
            dev->be.ema(dev, n, avg[k], w[k], (real)0.99, &now);
        }
        assert_true((w[1][0] == first) == halt && (avg[1][0] == first_avg) == halt);
        same(w[0], w[1], n, 1e-6, "weights");
        same(v[0], v[1], n, 1e-6, "momentum");
        same(m[0], m[1], n, 1e-6, "Adam's first moment");
        same(u[0], u[1], n, 1e-6, "Adam's second moment");
        same(avg[0], avg[1], n, 1e-6, "average");
        bufs_free(t);
    }
}

static void one_number_that_is_not_finite_halts(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const real bad[] = { NAN, INFINITY, -INFINITY };
    real *g = reals(t, dev, 1001);
    for (int i = 0; i < 1001; i++) g[i] = (real)3e38;
    StepState now = { 0 };
    dev->be.check_finite(dev, 1001, g, &now);
    assert_int_equal(now.halt, HALT_NO);
    for (int i = 0; i < 3; i++) {
        now.halt = 0;
        g[1000 - i * 400] = bad[i];
        dev->be.check_finite(dev, 1001, g, &now);
        assert_int_equal(now.halt, HALT_GRAD);
        g[1000 - i * 400] = 0;
    }
    now.halt = HALT_LOSS;
    g[0] = NAN;
    dev->be.check_finite(dev, 1001, g, &now);
    assert_int_equal(now.halt, HALT_LOSS);               // the first reason stays
    bufs_free(t);
}

static void chain_starts_agree(void **state) {
    Pair *t = *state;
    enum { ROWS = 23, DIM = 1100, OUT = 3 };
    static uint8_t bytes[40 * DIM];
    int rows[ROWS];
    const Rng key = { 9, RNG_TEST, 2, 0 };
    for (int i = 0; i < 40 * DIM; i++) bytes[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < ROWS; i++) rows[i] = (i * 7) % 40;
    for (int factor = 0; factor < 2; factor++) {
        real *mean[2], *low[2], *out[2];
        twins(t, DIM, 0, 0.1, mean);
        twins(t, (size_t)ROWS * DIM, 0, 1, low);
        twins(t, (size_t)OUT * DIM, 0, 1, out);
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            const Gauss g = { .n = ROWS,
                              .dim = DIM,
                              .bytes = bytes,
                              .rows = rows,
                              .factor = factor ? low[k] : NULL,
                              .mean = mean[k],
                              .scale = (real)0.2,
                              .jitter = (real)0.01 };
            dev->be.gauss(dev, &g, (const int[]){ 4, 9 }, 2, key, out[k], OUT);
        }
        same(out[0], out[1], (size_t)OUT * DIM, 1e-5, "gauss");
        bufs_free(t);
    }
}

// ---- choices, threads, memory, errors -----------------------------------------------------------

// Opens every convolution of a network and looks at the names of its kernels: oneDNN's, which own
// ones would hide where they are faster.
static void no_layer_is_slow(const char *model, int channels, int side, StemKind stem) {
    Net net = { 0 };
    NetSpec spec = {
        .channels = channels, .side = side, .classes = 10, .norm = NORM_BATCH, .stem = stem
    };
    OK(net_parse(&spec, model, err) || net_build(&net, &spec, err));
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 2, .conv = CONV_DIRECT });
    real *w = calloc((size_t)640 * 640 * 9, sizeof *w);  // no layer has more
    assert_non_null(w);
    for (int i = 0; i < net.n_op; i++) {
        const Op *op = &net.op[i];
        if (op->kind != OP_CONV) continue;
        Filter f = net.filter[op->filter];
        f.w = w;
        f.impl = NULL;
        Conv c = { .x = net.act[op->x],
                   .y = net.act[op->y],
                   .size = op->size,
                   .size_w = op->size_w,
                   .stride = op->stride,
                   .pad = op->pad,
                   .pad_w = op->pad_w,
                   .x_plain = op->x == 0,
                   .want = WANT_DX | WANT_DW,
                   .filter = &f };
        c.x.n = c.y.n = 2;
        c.x_plain |= c.y_plain = op->y == net.n_act - 1;
        dev.be.conv_open(&dev, &c);
        dev_fine(&dev);
        for (int k = 0; k < 3; k++) {
            assert_non_null(c.how[k]);
            if (strstr(c.how[k], "ref"))
                fail_msg("%s, %d -> %d at %dx%d, direction %d: %s", model, c.x.c, c.y.c, c.x.h,
                         c.x.w, k, c.how[k]);
        }
        dev.be.conv_close(&dev, &c);
        dev.be.filter_close(&dev, &f);
    }
    free(w);
    net_free(&net);
    dev_close(&dev);
}

static void no_convolution_of_a_real_network_is_slow(void **state) {
    (void)state;
    no_layer_is_slow("wrn-28-10", 3, 32, STEM_3X3);
    no_layer_is_slow("wrn-16-2", 3, 32, STEM_3X3);
    no_layer_is_slow("wrn-10-1", 1, 28, STEM_4X4);
    no_layer_is_slow("wrn-16-4", 3, 64, STEM_3X3);
}

// Opens one convolution and returns the names of its kernels, joined, and the choices.
static void names_with(const char *tuning, ConvChoice choice, char names[256], char text[512]) {
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1, .tuning = tuning, .conv = choice });
    real *w = calloc((size_t)32 * 32 * 9, sizeof *w);
    assert_non_null(w);
    Filter f = { 32, 32, 3, 3, w, NULL };
    Conv c = conv_of(&(Case){ 4, 32, 32, 16, 16, 3, 1, 1, 0, 0 }, &f, WANT_DX | WANT_DW);
    dev.be.conv_open(&dev, &c);
    dev_fine(&dev);
    snprintf(names, 256, "%s %s %s", c.how[0], c.how[1], c.how[2]);
    assert_true(snprintf(text, 512, "%s", dev.be.tuning(&dev)) < 512);
    dev.be.conv_close(&dev, &c);
    dev.be.filter_close(&dev, &f);
    free(w);
    dev_close(&dev);
}

static void choices_are_taken_from_the_text_not_timed_again(void **state) {
    (void)state;
    char names[256], text[512], again[512], other[256], flipped[1024] = "";
    names_with(NULL, CONV_AUTO, names, text);
    if (!*text) skip();                                  // no Winograd here, so no choice
    names_with(text, CONV_AUTO, other, again);
    assert_string_equal(text, again);
    assert_string_equal(names, other);
    // the opposite choice for every line cannot come out of a clock
    for (const char *s = text; *s; s = strchr(s, '\n') + 1) {
        const char *value = strstr(s, "= ") + 2;
        snprintf(flipped + strlen(flipped), sizeof flipped - strlen(flipped), "%.*s%s\n",
                 (int)(value - s), s, *value == 'w' ? "direct" : "winograd");
    }
    names_with(flipped, CONV_AUTO, other, again);
    assert_string_equal(flipped, again);
    assert_string_not_equal(names, other);
    names_with(flipped, CONV_DIRECT, other, again);
    assert_null(strstr(other, "wino"));
}

static void broken_choices_are_left_out(void **state) {
    (void)state;
    static const char good[] = "fwd 8x8 16-16 k3 s1 p1 = direct\n";
    static const char text[] =
        "rubbish\n\n= winograd\nfwd 8x8 16-16 k3 s1 p1 = magic\n"
        "up 8x8 16-16 k3 s1 p1 = direct\nfwd 8x8 16-16 k3 s1 p1 = winograd \n"
        "fwd 8x8 16-16 k3 s1 p1 = direct\nfwd 8x8 16-16 k3 s1 p1 = winograd\n"
        "fwd 99999999999999999999x8 16-16 k3 s1 p1 = direct\n%s%n%s\n"
        "a line that goes on and on and on and on and on and on and on and on and on and on and on "
        "and on, without an end";
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1, .tuning = text });
    assert_string_equal(dev.be.tuning(&dev), good);
    dev_close(&dev);
}

// Runs our own kernels with so many threads and copies all memory they worked on.
static size_t own_kernels(int half, int threads, char *out, size_t room) {
    Pair t = { .step = 100, .half = half };
    dev_start(&t.dev[0], "ref", (DevOpts){ 0 });
    DevOpts o = cpu_opts(half, threads);
    o.conv = CONV_DIRECT;
    dev_start(&t.dev[1], "cpu", o);
    Dev *dev = &t.dev[1];
    const Tensor shape = { 5, 40, 9, 9, NULL }, image = { 5, 3, 9, 9, NULL },
                 row = { 5, 40, 1, 1, NULL };
    Tensor x[2], r[2], dy[2], g[2], img[2], row_y[2];
    real *par[8][2], *w[2], *dw[2], *stem_dw[2], *m[2], *v[2];
    for (int i = 0; i < 8; i++) twins(&t, 40, 1, 0.1, par[i]);
    twins(&t, 1600, 0, 1, w);
    twins(&t, 1600, 0, 1, dw);
    twins(&t, 1600, 0, 1, stem_dw);
    twins(&t, 1600, 0, 1, m);
    twins(&t, 1600, 9, 1, v);
    random_pair(&t, shape, 0, 1, x);
    random_pair(&t, shape, 0, 1, r);
    random_pair(&t, shape, 0, 0, dy);
    random_pair(&t, image, 1, 0, g);
    random_pair(&t, image, 1, 0, img);
    random_pair(&t, row, 1, 0, row_y);
    Tensor y = on(&t, dev, shape, 0), dx = on(&t, dev, shape, 0), dimg = on(&t, dev, image, 1),
           z = on(&t, dev, row, 1), dz = on(&t, dev, row, 1);
    const Norm op = { .eps = (real)1e-5,
                      .momentum = (real)0.1,
                      .leak = (real)0.2,
                      .batch_stats = 1,
                      .update = 1,
                      .gamma = par[0][1],
                      .beta = par[1][1],
                      .run_mean = par[2][1],
                      .run_var = par[3][1],
                      .mean = par[4][1],
                      .rstd = par[5][1] };
    Filter f[2] = { { 40, 3, 3, 3, w[1], NULL }, { 40, 40, 1, 1, w[1], NULL } };
    Conv stem = conv_of(&(Case){ 5, 3, 40, 9, 9, 3, 1, 1, 1, 0 }, &f[0], WANT_DX | WANT_DW);
    Conv head = conv_of(&(Case){ 5, 40, 40, 1, 1, 1, 1, 0, 1, 1 }, &f[1], WANT_DX | WANT_DW);
    dev->be.conv_open(dev, &stem);
    dev->be.conv_open(dev, &head);
    if (half) dev->be.conv_fwd(dev, &stem, &img[1], par[0][1], &y);    // oneDNN's in fp32
    dev->be.norm_fwd(dev, &op, &x[1], &r[1], &y);
    dev->be.norm_bwd(dev, &op, &x[1], &dy[1], &dx, par[6][1], par[7][1]);
    dev->be.conv_dx(dev, &stem, &dx, &dimg);
    dev->be.langevin(dev, &img[1], &dimg, (Move){ 5, (real)0.2, 1, (real)0.1, 1 },
                     (Rng){ 1, RNG_TEST, 0, 0 }, NULL);
    dev->be.pool_fwd(dev, &y, &z);
    dev->be.conv_fwd(dev, &head, &z, par[0][1], &row_y[1]);
    dev->be.conv_dx(dev, &head, &row_y[1], &dz);
    dev->be.conv_dw(dev, &head, &z, &row_y[1], dw[1], par[1][1]);
    dev->be.conv_dw(dev, &stem, &img[1], &dx, stem_dw[1], par[2][1]);
    const StepState now = { .in.step = 1, .in.lr = (real)0.1 };
    dev->be.sgd(dev, 1600, w[1], dw[1], m[1], (Sgd){ (real)0.9, (real)0.1 }, &now);
    dev->be.adam(dev, 1600, w[1], dw[1], m[1], v[1], (Adam){ (real)0.9, (real)0.99, 1, 0 }, &now);
    size_t n = 0;
    for (int i = 0; i < t.n_buf; i++) {
        if (t.buf[i].dev != dev) continue;
        assert_true(n + t.buf[i].bytes <= room);
        memcpy(out + n, t.buf[i].p, t.buf[i].bytes);
        n += t.buf[i].bytes;
    }
    dev->be.conv_close(dev, &stem);
    dev->be.conv_close(dev, &head);
    for (int i = 0; i < 2; i++) dev->be.filter_close(dev, &f[i]);
    bufs_free(&t);
    dev_close(&t.dev[0]);
    dev_close(&t.dev[1]);
    return n;
}

// The same for Winograd: y, dx and dw.
static size_t own_winograd(int half, int threads, int stride, char *out, size_t room) {
    const Case k = { 30, 32, 64, 16, 16, 3, stride, 1, 0, 0 };
    Pair t = { .step = 200, .half = half };
    dev_start(&t.dev[0], "ref", (DevOpts){ 0 });
    told(&t.dev[1], half, threads, &k, "winograd");
    Dev *dev = &t.dev[1];
    real *w[2], *dw[2];
    Tensor x[2], dy[2];
    twins(&t, 64 * 32 * 9, 0, 1, w);
    twins(&t, 64 * 32 * 9, 0, 1, dw);
    Filter f = { 64, 32, 3, 3, w[1], NULL };
    Conv c = conv_of(&k, &f, WANT_DX | WANT_DW);
    random_pair(&t, c.x, 0, 0, x);
    random_pair(&t, c.y, 0, 0, dy);
    Tensor y = on(&t, dev, c.y, 0), dx = on(&t, dev, c.x, 0);
    dev->be.conv_open(dev, &c);
    dev->be.conv_fwd(dev, &c, &x[1], NULL, &y);
    dev->be.conv_dx(dev, &c, &dy[1], &dx);
    dev->be.conv_dw(dev, &c, &x[1], &dy[1], dw[1], NULL);
    const size_t n_y = dev->be.tensor_bytes(dev, &y), n_dx = dev->be.tensor_bytes(dev, &dx),
                 n_dw = (size_t)64 * 32 * 9 * sizeof(real);
    assert_true(n_y + n_dx + n_dw <= room);
    memcpy(out, y.p, n_y);
    memcpy(out + n_y, dx.p, n_dx);
    memcpy(out + n_y + n_dx, dw[1], n_dw);
    dev->be.conv_close(dev, &c);
    dev->be.filter_close(dev, &f);
    bufs_free(&t);
    dev_close(&t.dev[0]);
    dev_close(&t.dev[1]);
    return n_y + n_dx + n_dw;
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    const int half = ((const Pair *)*state)->half;
    enum { ROOM = 4 << 20 };
    char *one = malloc(ROOM), *more = malloc(ROOM);
    assert_true(one && more);
    const size_t n = own_kernels(half, 1, one, ROOM);
    for (int threads = 2; threads <= 5; threads++) {
        assert_true(own_kernels(half, threads, more, ROOM) == n);
        assert_memory_equal(one, more, n);
    }
    for (int stride = 1; stride <= 2; stride++) {
        const size_t all = own_winograd(half, 1, stride, one, ROOM);
        for (int threads = 2; threads <= 7; threads += 5) {
            assert_true(own_winograd(half, threads, stride, more, ROOM) == all);
            assert_memory_equal(one, more, all);
        }
    }
    free(one);
    free(more);
}

// oneDNN makes a few small objects at each call; our own code none, and nobody anything large.
static void running_allocates_nothing(void **state) {
#ifdef __SANITIZE_ADDRESS__
    (void)state;
    skip();
#else
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Case k = { 4, 32, 32, 16, 16, 3, 1, 1, 0, 0 };
    real *w[2], *dw[2], *par[2], *g[2];
    Tensor x[2], y[2], dx[2], img[2];
    twins(t, 32 * 32 * 9, 0, 1, w);
    twins(t, 32 * 32 * 9, 0, 1, dw);
    twins(t, 8 * 32, 1, 0.1, par);
    twins(t, 4 * 3 * 256, 1, 0.1, g);
    Filter f = { 32, 32, 3, 3, w[1], NULL };
    Conv c = conv_of(&k, &f, WANT_DX | WANT_DW);
    random_pair(t, c.x, 0, 0, x);
    random_pair(t, c.y, 0, 0, y);
    random_pair(t, c.y, 0, 0, dx);
    random_pair(t, (Tensor){ 4, 3, 16, 16, NULL }, 1, 0, img);
    Tensor grad = { 4, 3, 16, 16, g[1] }, pooled = { 4, 32, 1, 1, g[1] };
    const Norm op = { .batch_stats = 1,
                      .gamma = par[1],
                      .beta = par[1] + 32,
                      .mean = par[1] + 64,
                      .rstd = par[1] + 96 };
    const StepState now = { 0 };
    dev->be.conv_open(dev, &c);
    for (int i = 0; i < 2; i++) {                        // the first time threads are made
        heap.count = heap.large = 0;
        heap.watching = 1;
        dev->be.norm_fwd(dev, &op, &x[1], &dx[1], &y[1]);
        dev->be.norm_bwd(dev, &op, &x[1], &y[1], &dx[1], par[1] + 128, par[1] + 160);
        dev->be.pool_fwd(dev, &y[1], &pooled);
        dev->be.langevin(dev, &img[1], &grad, (Move){ 5, (real)0.2, 1, (real)0.1, 1 },
                         (Rng){ 1, RNG_TEST, 0, 0 }, &now);
        dev->be.sgd(dev, 32 * 32 * 9, dw[1], w[1], dw[1], (Sgd){ (real)0.9, 0 }, &now);
        heap.watching = 0;
        if (i) assert_int_equal(heap.count, 0);
        heap.watching = 1;
        dev->be.filters_pack(dev, &f, 1);
        dev->be.conv_fwd(dev, &c, &x[1], par[1], &y[1]);
        dev->be.conv_dx(dev, &c, &y[1], &dx[1]);
        dev->be.conv_dw(dev, &c, &x[1], &y[1], dw[1], par[1]);
        heap.watching = 0;
        if (i) assert_int_equal(heap.large, 0);
    }
    dev->be.conv_close(dev, &c);
    dev->be.filter_close(dev, &f);
    bufs_free(t);
#endif
}

static void the_first_failure_stays_and_stops_the_device(void **state) {
    (void)state;
    Dev dev;
    Err err = { 0 };
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1 });
    real w[16] = { 0 }, v[16] = { 1 };
    Filter f = { 4, 4, 1, 1, w, NULL };
    Conv c = conv_of(&(Case){ 1, 4, 4, 1, 1, 1, 1, 0, 1, 1 }, &f, 0);
    dev.be.conv_open(&dev, &c);
    Tensor x = c.x, y = c.y;
    x.p = w;
    y.p = v;
    dev.be.conv_dx(&dev, &c, &y, &x);                    // was not asked for
    dev.be.conv_fwd(&dev, &c, &x, NULL, &y);
    assert_int_equal(dev_check(&dev, &err), -1);
    assert_int_equal(err.kind, ERR_DEV);
    assert_true(v[0] == 1);                              // nothing ran
    assert_null(dev.be.alloc(&dev, 64, "nothing"));
    dev.be.conv_close(&dev, &c);
    dev.be.filter_close(&dev, &f);
    dev_close(&dev);
}

// bf16 too, with its reason, where the processor has no instructions for it.
static void tf32_is_refused(void **state) {
    (void)state;
    Dev dev;
    Err err = { 0 };
    assert_int_equal(dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_TF32 }, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_ARG);
    err = (Err){ 0 };
    if (!dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_BF16 }, NULL, &err)) {
        dev_close(&dev);
        return;
    }
    assert_int_equal(err.kind, ERR_ARG);
    assert_non_null(strstr(err.msg, "AVX512_BF16"));
}

// A whole network in bf16 against the same in fp32: logits and every gradient. Rounding changes the
// sign of some activations, and with it their gradients: at random weights, behind 13 of them,
// these are off by a tenth or more with direct convolutions already. Winograd's may be five times
// as far.
static void a_network_in_bf16_is_close_to_fp32(void **state) {
    (void)state;
    enum { N = 16 };
    const NetSpec spec = { 16, 2, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    real *out[3][3] = { 0 };
    size_t n[3] = { 0 };
    for (int half = 0; half < 3; half++) {               // fp32; bf16; bf16 and direct
        Dev dev;
        Net net;
        Pass p;
        DevOpts o = cpu_opts(half > 0, 2);
        o.conv = half == 2 ? CONV_DIRECT : CONV_AUTO;
        dev_start(&dev, "cpu", o);
        OK(net_build(&net, &spec, err));
        OK(net_alloc(&net, &dev, err));
        OK(net_init(&net, 3, err));
        OK(pass_open(&p, &net, N, MODE_TRAIN | WANT_DX, err));
        void *mem = dev.be.alloc(&dev, p.bytes, "a test");
        real *x = dev.be.alloc(&dev, tensor_len(&p.act[0]) * sizeof(real), "a test");
        OK(dev_check(&dev, err));
        const Rng key = { 5, RNG_TEST, 0, 0 };
        for (size_t i = 0; i < tensor_len(&p.act[0]); i++) x[i] = 2 * (real)rng_uniform(key, i) - 1;
        pass_bind(&p, mem);
        net_zero_grad(&net);
        pass_forward(&p, x);
        const Tensor *z = pass_logits(&p), *g = pass_input_grad(&p);
        n[0] = tensor_len(z), n[1] = tensor_len(g), n[2] = net.n_w;
        for (int k = 0; k < 3; k++) out[half][k] = malloc(n[k] * sizeof(real));
        memcpy(out[half][0], z->p, n[0] * sizeof(real));
        real *dz = pass_logits_grad(&p)->p;
        for (size_t i = 0; i < n[0]; i++) dz[i] = i % 10 == i / 10 % 10;
        pass_backward(&p);
        OK(dev_check(&dev, err));
        memcpy(out[half][1], g->p, n[1] * sizeof(real));
        memcpy(out[half][2], net.dw, n[2] * sizeof(real));
        dev.be.free(&dev, mem);
        dev.be.free(&dev, x);
        pass_close(&p);
        net_free(&net);
        dev_close(&dev);
    }
    static const char *const what[] = { "logits", "input gradient", "weight gradients" };
    static const double tol[] = { 0.01, 0.3, 0.2 };
    for (int k = 0; k < 3; k++) {
        const double direct = distance(out[2][k], out[0][k], n[k]);
        const double any = distance(out[1][k], out[0][k], n[k]);
        print_message("%s: off by %.3f direct, %.3f\n", what[k], direct, any);
        assert_less(direct, tol[k]);
        assert_less(any, 5 * direct);
        for (int i = 0; i < 3; i++) free(out[i][k]);
    }
}

static void the_device_says_what_it_runs_on(void **state) {
    Pair *t = *state;
    const char *about = t->dev[1].be.describe(&t->dev[1]);
    assert_int_equal(strncmp(about, "2 threads, ", 11), 0);
    assert_non_null(strstr(about, "oneDNN "));
}

// The other layout and kernels, which this machine may not choose by itself.
static int again_with_avx2(void) {
    if (getenv("ONEDNN_MAX_CPU_ISA")) return 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
        execl("/proc/self/exe", "test_cpu", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Winograd everywhere, as text: the largest scratch there can be, and no time spent on choosing.
static void wrn_28_10_needs_little_scratch(void **state) {
    (void)state;
    const NetSpec spec = { 28, 10, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    static const char *const dirs[] = { "fwd", "dx", "dw" };
    char text[16384];
    size_t n = 0;
    Net net;
    OK(net_build(&net, &spec, err));
    for (int i = 0; i < net.n_op; i++) {
        const Op *op = &net.op[i];
        const Tensor *x = &net.act[op->x];
        for (int d = 0; op->kind == OP_CONV && op->size == 3 && d < 3; d++)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "%s %dx%d %d-%d k3 s%d p1 = winograd\n",
                                 dirs[d], x->h, x->w, x->c, net.act[op->y].c, op->stride);
    }
    assert_true(n < sizeof text);
    Dev dev;
    Pass p;
    OK(dev_open(&dev, "cpu", &(DevOpts){ .threads = 2, .tuning = text }, NULL, err));
    OK(net_alloc(&net, &dev, err));
    dev.be.zero(&dev, net.w, net.n_w * sizeof(real));
    OK(pass_open(&p, &net, 64, WANT_DX | MODE_TRAIN, err));
    print_message("scratch %.3f GiB, packed weights %.3f GiB\n", (double)dev.scratch_bytes / 0x1p30,
                  (double)dev.packed_bytes / 0x1p30);
    assert_less((double)dev.scratch_bytes / 0x1p30, 0.35);
    assert_less((double)p.bytes / 0x1p30, 1.4);
    pass_close(&p);
    net_free(&net);
    dev_close(&dev);
}

static void the_search_for_kernels_is_shown_and_stops(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);               // nothing is known, nothing is kept
    search_is_shown_and_stops("cpu");
}

static int has_bf16(void) {
    Dev dev;
    Err err = { 0 };
    if (dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_BF16 }, NULL, &err)) return 0;
    dev_close(&dev);
    return 1;
}

// How many kernels are timed when a net is opened.
static int timings(const char *dir, int mode) {
    const NetSpec spec = { 10, 1, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    SearchSeen seen = { 0 };
    const Events events = { .progress = search_progress, .ctx = &seen };
    Dev dev;
    Net net;
    Pass p;
    setenv("XDG_CACHE_HOME", dir, 1);
    OK(dev_open(&dev, "cpu", &(DevOpts){ .threads = 1, .events = &events }, NULL, err));
    OK(net_build(&net, &spec, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    OK(pass_open(&p, &net, 2, mode, err));
    pass_close(&p);
    net_free(&net);
    dev_close(&dev);
    return seen.reports;
}

static void timings_are_kept_in_a_cache(void **state) {
    (void)state;
    char dir[] = "/tmp/jempp_cache_XXXXXX", command[200];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(timings(dir, MODE_INFER | RUN_FEW), 0); // one use does not wait for them
    const int all = timings(dir, MODE_TRAIN);
    assert_true(all > 3);
    assert_int_equal(timings(dir, MODE_TRAIN), 0);
    assert_int_equal(timings("/dev/null", MODE_TRAIN), all); // where nothing can be kept
    snprintf(command, sizeof command, "sed -i 's/winograd\\|direct/other/' %s/jempp/cpu-*.txt",
             dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(timings(dir, MODE_TRAIN), all);         // lines that are not ours do not count
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_agree),
        cmocka_unit_test(convolutions_of_real_shapes_agree),
        cmocka_unit_test(direct_convolutions_agree_closely),
        cmocka_unit_test(stems_and_heads_agree),
        cmocka_unit_test(packed_weights_follow_the_master_copy),
        cmocka_unit_test(norms_agree_in_every_mode),
        cmocka_unit_test(norms_of_large_tensors_agree),
        cmocka_unit_test(statistics_survive_a_large_mean),
        cmocka_unit_test(pooling_agrees_and_layouts_go_there_and_back),
        cmocka_unit_test(moves_agree),
        cmocka_unit_test(optimisers_agree_and_stand_still_when_halted),
        cmocka_unit_test(one_number_that_is_not_finite_halts),
        cmocka_unit_test(chain_starts_agree),
        cmocka_unit_test(no_convolution_of_a_real_network_is_slow),
        cmocka_unit_test(choices_are_taken_from_the_text_not_timed_again),
        cmocka_unit_test(broken_choices_are_left_out),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(the_first_failure_stays_and_stops_the_device),
        cmocka_unit_test(tf32_is_refused),
        cmocka_unit_test(the_device_says_what_it_runs_on),
        cmocka_unit_test(winograd_agrees),
        cmocka_unit_test(winograd_leaves_the_rest_to_others),
        cmocka_unit_test(wrn_28_10_needs_little_scratch),
        cmocka_unit_test(the_search_for_kernels_is_shown_and_stops),
        cmocka_unit_test(timings_are_kept_in_a_cache),
        cmocka_unit_test(inference_agrees),
    };
    const struct CMUnitTest half[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_agree),
        cmocka_unit_test(convolutions_of_real_shapes_agree),
        cmocka_unit_test(direct_convolutions_agree_closely),
        cmocka_unit_test(stems_and_heads_agree),
        cmocka_unit_test(packed_weights_follow_the_master_copy),
        cmocka_unit_test(norms_agree_in_every_mode),
        cmocka_unit_test(norms_of_large_tensors_agree),
        cmocka_unit_test(pooling_agrees_and_layouts_go_there_and_back),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(winograd_agrees),
        cmocka_unit_test(winograd_leaves_the_rest_to_others),
        cmocka_unit_test(a_network_in_bf16_is_close_to_fp32),
        cmocka_unit_test(inference_agrees),
    };
    int failed = cmocka_run_group_tests(tests, pair_open, pair_close);
    if (has_bf16()) failed += cmocka_run_group_tests(half, half_pair_open, pair_close);
    return failed ? failed : again_with_avx2();
}
