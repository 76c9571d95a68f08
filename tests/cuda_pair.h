// cuda_pair.h - the cuda device and the reference device side by side, in fp32 or bf16: memory that
// begins as NaN and has guard bytes behind it, equal numbers on both, comparison.
#ifndef CUDA_PAIR_H
#define CUDA_PAIR_H
#include "testing.h"
#include "net/net.h"

enum { GUARD = 64, MAX_BUFS = 96 };

typedef struct {
    char *p;
    size_t bytes;
} Buf;
typedef struct {
    Dev      dev[2];                 // the reference, the GPU
    Buf      buf[MAX_BUFS];          // the GPU's
    void    *host[MAX_BUFS];         // the reference's
    int      n_buf, n_host;
    double   tol;                    // of activations
    uint32_t step;
} Pair;

static inline void dev_fine(const Dev *dev) { OK(dev_check(dev, err)); }

static inline int pair_open(Pair *t, Precision precision, const char *tuning) {
    memset(t, 0, sizeof *t);
    if (!has_device("cuda")) skip();
    const DevOpts o = { .precision = precision, .tuning = tuning };
    OK(dev_open(&t->dev[0], "ref", &(DevOpts){ .threads = 2 }, NULL, err));
    OK(dev_open(&t->dev[1], "cuda", &o, NULL, err));
    t->tol = precision == PREC_FP32 ? 1e-4 : 2e-2;
    return 0;
}

static inline void pair_close(Pair *t) {
    dev_close(&t->dev[0]);
    dev_close(&t->dev[1]);
}

// Memory full of NaN, on the GPU with guard bytes behind it, until bufs_free.
static inline void *buf(Pair *t, int i, size_t bytes) {
    assert_true(t->n_buf < MAX_BUFS && t->n_host < MAX_BUFS);
    char *host = malloc(bytes + GUARD);
    memset(host, 0xff, bytes);
    memset(host + bytes, 0xa5, GUARD);
    if (!i) return t->host[t->n_host++] = host;
    Dev *dev = &t->dev[1];
    char *p = dev->be.alloc(dev, bytes + GUARD, "a test");
    dev->be.copy_in(dev, p, host, bytes + GUARD);
    dev_fine(dev);
    free(host);
    t->buf[t->n_buf++] = (Buf){ p, bytes };
    return p;
}

static inline void bufs_free(Pair *t) {
    Dev *dev = &t->dev[1];
    dev->be.sync(dev);
    dev_fine(dev);
    for (int i = 0; i < t->n_buf; i++) {
        unsigned char guard[GUARD];
        dev->be.copy_out(dev, guard, t->buf[i].p + t->buf[i].bytes, GUARD);
        for (int k = 0; k < GUARD; k++)
            if (guard[k] != 0xa5) fail_msg("written past the end of buffer %d", i);
        dev->be.free(dev, t->buf[i].p);
    }
    for (int i = 0; i < t->n_host; i++) free(t->host[i]);
    t->n_buf = t->n_host = 0;
}

static inline void upload(Pair *t, void *dst, const void *src, size_t bytes) {
    t->dev[1].be.copy_in(&t->dev[1], dst, src, bytes);
}

// What the GPU has at p, in host memory until bufs_free.
static inline void *fetched(Pair *t, const void *p, size_t bytes) {
    void *host = buf(t, 0, bytes);
    t->dev[1].be.copy_out(&t->dev[1], host, p, bytes);
    dev_fine(&t->dev[1]);
    return host;
}

// n numbers of this mean and standard deviation, the same on both devices.
static inline void twins(Pair *t, size_t n, double mean, double sd, real *out[2]) {
    const Rng key = { 7, RNG_TEST, t->step++, 0 };
    out[0] = buf(t, 0, n * sizeof(real));
    out[1] = buf(t, 1, n * sizeof(real));
    for (size_t i = 0; i < n; i++) out[0][i] = (real)(mean + sd * (double)rng_normal(key, i));
    upload(t, out[1], out[0], n * sizeof(real));
}

static inline void empty_twins(Pair *t, size_t n, real *out[2]) {
    out[0] = buf(t, 0, n * sizeof(real));
    out[1] = buf(t, 1, n * sizeof(real));
}

static inline void twin_ints(Pair *t, size_t n, const int *v, int *out[2]) {
    for (int i = 0; i < 2; i++) out[i] = buf(t, i, n * sizeof(int));
    if (v) memcpy(out[0], v, n * sizeof(int));
    if (v) upload(t, out[1], v, n * sizeof(int));
}

static inline void empty_pair(Pair *t, Tensor shape, int plain, Tensor out[2]) {
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        out[i] = shape;
        out[i].p = buf(
            t, i, plain ? tensor_len(&shape) * sizeof(real) : dev->be.tensor_bytes(dev, &shape));
    }
}

static inline void random_pair(Pair *t, Tensor shape, int plain, double mean, Tensor out[2]) {
    real *v[2];
    twins(t, tensor_len(&shape), mean, 1, v);
    empty_pair(t, shape, plain, out);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        if (plain) dev->be.copy(dev, out[i].p, v[i], tensor_len(&shape) * sizeof(real));
        else dev->be.from_plain(dev, v[i], &out[i]);
    }
}

static inline void same(Pair *t, real *const v[2], size_t n, double tol, const char *what) {
    const double d = distance(fetched(t, v[1], n * sizeof(real)), v[0], n);
    if (!(d <= tol)) {
        const real *got = fetched(t, v[1], n * sizeof(real));
        fail_msg("%s: off by %.2e of its length; it begins with %g %g, not %g %g", what, d,
                 (double)got[0], (double)got[n > 1], (double)v[0][0], (double)v[0][n > 1]);
    }
}

static inline void same_ints(Pair *t, int *const v[2], size_t n) {
    assert_memory_equal(v[0], fetched(t, v[1], n * sizeof(int)), n * sizeof(int));
}

// The channels beyond the last must stay zero, or convolutions would add them up.
static inline void filling_is_zero(Pair *t, const Tensor *x, const char *what) {
    const size_t bytes = t->dev[1].be.tensor_bytes(&t->dev[1], x),
                 pixels = (size_t)(x->n * x->h * x->w);
    const size_t a_pixel = bytes / pixels, elem = a_pixel / (size_t)((x->c + 7) / 8 * 8);
    const unsigned char *raw = fetched(t, x->p, bytes);
    for (size_t i = 0; i < pixels; i++)
        for (size_t k = (size_t)x->c * elem; k < a_pixel; k++)
            if (raw[i * a_pixel + k] & (k % elem == elem - 1 ? 0x7f : 0xff))
                fail_msg("%s: the channels behind the last are not zero", what);
}

static inline void same_tensor(Pair *t, Tensor x[2], int plain, double tol, const char *what) {
    const size_t n = tensor_len(&x[0]);
    real *v[2] = { x[0].p, x[1].p };
    if (!plain) {
        filling_is_zero(t, &x[1], what);
        v[1] = buf(t, 1, n * sizeof(real));
        t->dev[1].be.to_plain(&t->dev[1], &x[1], v[1]);
    }
    same(t, v, n, tol, what);
}

static inline void in_both_types(void (*test)(Pair *)) {
    static const Precision types[] = { PREC_FP32, PREC_BF16 };
    for (size_t i = 0; i < LEN(types); i++) {
        Pair t;
        pair_open(&t, types[i], NULL);
        test(&t);
        pair_close(&t);
    }
}

static inline StepState *now_on(Pair *t, int i, StepState now) {
    StepState *p = buf(t, i, sizeof now);
    t->dev[i].be.copy_in(&t->dev[i], p, &now, sizeof now);
    return p;
}
#endif
