// cpu_pair.h - the cpu device and the reference device side by side: memory that begins as NaN and
// has guard bytes behind it, equal numbers on both, comparison. Where the processor has bf16, all
// that works on opaque activations can be tested with it: both get the same rounded numbers.
#ifndef CPU_PAIR_H
#define CPU_PAIR_H
#include "testing.h"
#include "net/net.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 64, MAX_BUFS = 64 };

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

static inline DevOpts cpu_opts(int half, int threads) {
    return (DevOpts){ .threads = threads, .precision = half ? PREC_BF16 : PREC_FP32 };
}

static inline void dev_start(Dev *dev, const char *name, DevOpts o) {
    OK(dev_open(dev, name, &o, NULL, err));
}

static inline int pair_start(void **state, int half) {
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

static inline int pair_open(void **state) { return pair_start(state, 0); }
static inline int half_pair_open(void **state) { return pair_start(state, 1); }

static inline int pair_close(void **state) {
    Pair *t = *state;
    dev_close(&t->dev[0]);
    dev_close(&t->dev[1]);
    free(t);
    return 0;
}

static inline void dev_fine(const Dev *dev) { OK(dev_check(dev, err)); }

// Memory full of NaN with guard bytes behind it, until bufs_free.
static inline void *buf(Pair *t, Dev *dev, size_t bytes) {
    assert_true(t->n_buf < MAX_BUFS);
    char *p = dev->be.alloc(dev, bytes + GUARD, "a test");
    dev_fine(dev);
    memset(p, 0xff, bytes);
    memset(p + bytes, 0xa5, GUARD);
    t->buf[t->n_buf++] = (Buf){ dev, p, bytes };
    return p;
}

static inline void bufs_free(Pair *t) {
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

static inline real *reals(Pair *t, Dev *dev, size_t n) { return buf(t, dev, n * sizeof(real)); }

// n numbers of this mean and standard deviation, the same on both devices.
static inline void twins(Pair *t, size_t n, double mean, double sd, real *out[2]) {
    const Rng key = { 7, RNG_TEST, t->step++, 0 };
    out[0] = reals(t, &t->dev[0], n);
    out[1] = reals(t, &t->dev[1], n);
    for (size_t i = 0; i < n; i++)
        out[0][i] = out[1][i] = (real)(mean + sd * (double)rng_normal(key, i));
}

static inline Tensor on(Pair *t, Dev *dev, Tensor shape, int plain) {
    shape.p =
        buf(t, dev, plain ? tensor_len(&shape) * sizeof(real) : dev->be.tensor_bytes(dev, &shape));
    return shape;
}

// An activation on both devices: random, or NaN to be written.
static inline void random_pair(Pair *t, Tensor shape, int plain, double mean, Tensor out[2]) {
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

static inline void empty_pair(Pair *t, Tensor shape, int plain, Tensor out[2]) {
    out[0] = on(t, &t->dev[0], shape, plain);
    out[1] = on(t, &t->dev[1], shape, plain);
}

static inline void same(const real *want, const real *got, size_t n, double tol, const char *what) {
    const double d = distance(got, want, n);
    if (!(d <= tol)) fail_msg("%s: off by %.2e of its length", what, d);
}

// The filling of the last channel block must stay zero.
static inline void filling_is_zero(const Pair *t, const Tensor *x, const char *what) {
    const int L = t->lanes, last = x->c % L, hw = x->h * x->w, blocks = (x->c + L - 1) / L;
    for (int n = 0; last && n < x->n; n++)
        for (int i = 0; i < hw; i++)
            for (int l = last; l < L; l++) {
                const size_t at = (((size_t)n * blocks + blocks - 1) * hw + i) * L + l;
                if (t->half ? (((uint16_t *)x->p)[at] & 0x7fff) != 0 : ((real *)x->p)[at] != 0)
                    fail_msg("%s: the filling of the last channel block is not zero", what);
            }
}

static inline double tol_of(const Pair *t, double fp32, double bf16) {
    return t->half ? bf16 : fp32;
}

static inline void same_tensor(Pair *t, Tensor x[2], int plain, double tol, const char *what) {
    const size_t n = tensor_len(&x[0]);
    real *got = x[1].p;
    if (!plain) {
        filling_is_zero(t, &x[1], what);
        got = reals(t, &t->dev[1], n);
        t->dev[1].be.to_plain(&t->dev[1], &x[1], got);
    }
    same(x[0].p, got, n, tol, what);
}

#include "op_cases.h"

// A device that was told to use the same kind of kernel for this shape in every direction.
static inline void told(Dev *dev, int half, int threads, const Case *k, const char *way) {
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

static inline int has_bf16(void) {
    Dev dev;
    Err err = { 0 };
    if (dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_BF16 }, NULL, &err)) return 0;
    dev_close(&dev);
    return 1;
}

// The other layout and kernels, which this machine may not choose by itself.
static inline int again_with_avx2(const char *name) {
    if (getenv("ONEDNN_MAX_CPU_ISA")) return 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
        execl("/proc/self/exe", name, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
#endif
