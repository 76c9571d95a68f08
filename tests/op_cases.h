// op_cases.h - convolutions, norms and products of matrices on two devices side by side. A test of
// a device includes this after it has said what a Pair is (dev[0] the reference, dev[1] the device)
// and how memory comes about there: twins, random_pair, empty_pair.
#ifndef OP_CASES_H
#define OP_CASES_H

typedef struct {
    int n, in, out, h, w, size, stride, pad, x_plain, y_plain;
} Case;

static const Case STEMS_AND_HEADS[] = {
    { 3, 3, 16, 32, 32, 3, 1, 1, 1, 0 }, { 2, 1, 16, 28, 28, 4, 2, 1, 1, 0 },
    { 2, 3, 16, 64, 64, 4, 2, 1, 1, 0 }, { 1, 1, 16, 28, 28, 3, 1, 1, 1, 0 },
    { 3, 3, 5, 9, 7, 3, 1, 1, 1, 0 },    { 2, 1, 24, 7, 10, 4, 2, 1, 1, 0 },
    { 3, 1, 16, 4, 4, 4, 2, 1, 1, 0 },   { 3, 3, 16, 4, 4, 3, 1, 1, 1, 0 },
    { 2, 5, 40, 6, 6, 3, 2, 1, 1, 0 },   { 5, 64, 10, 1, 1, 1, 1, 0, 1, 1 },
    { 1, 24, 3, 1, 1, 1, 1, 0, 1, 1 },   { 64, 640, 100, 1, 1, 1, 1, 0, 1, 1 },
    { 2, 5, 7, 4, 4, 3, 1, 1, 1, 1 },    { 2, 24, 3, 4, 4, 1, 1, 0, 0, 1 },
};

// The at-th convolution of an odd shape; `in` and `out` choose among seven numbers of channels.
static inline Case odd_case(int at, int in, int out) {
    static const int channels[] = { 1, 3, 5, 16, 24, 40, 64 };
    static const struct {
        int size, stride, pad;
    } kind[] = { { 1, 1, 0 }, { 1, 2, 0 }, { 3, 1, 1 }, { 3, 2, 1 } };
    const int q = at % 4;
    return (Case){ 1 + at % 3, channels[in], channels[out], 5 + at % 5, 4 + at % 7,
                   kind[q].size, kind[q].stride, kind[q].pad, 0, 0 };
}

static inline Conv conv_of(const Case *k, Filter *f, int want) {
    return (Conv){ .x = { k->n, k->in, k->h, k->w, NULL },
                   .y = { k->n, k->out, (k->h + 2 * k->pad - k->size) / k->stride + 1,
                          (k->w + 2 * k->pad - k->size) / k->stride + 1, NULL },
                   .size = k->size,
                   .size_w = k->size,
                   .stride = k->stride,
                   .pad = k->pad,
                   .pad_w = k->pad,
                   .x_plain = k->x_plain,
                   .y_plain = k->y_plain,
                   .want = want,
                   .filter = f };
}

typedef struct {                        // [2]: on the reference, on the device
    Filter f[2];
    Conv   c[2];
    size_t n_w;
    real  *w[2], *b[2], *dw[2], *db[2];
    Tensor x[2], y[2], y0[2], dy[2], dx[2];    // y0: without bias
} ConvRun;

// Every direction of a convolution on both devices, ready to be compared; conv_end closes it.
static inline void conv_run(Pair *t, const Case *k, ConvRun *r) {
    r->n_w = (size_t)k->in * (size_t)(k->out * k->size * k->size);
    twins(t, r->n_w, 0, 1, r->w);
    twins(t, (size_t)k->out, 0, 1, r->b);
    twins(t, r->n_w, 0, 1, r->dw);                       // gradients are added to what is there
    twins(t, (size_t)k->out, 0, 1, r->db);
    for (int i = 0; i < 2; i++) {
        r->f[i] = (Filter){ k->out, k->in, k->size, k->size, r->w[i], NULL };
        r->c[i] = conv_of(k, &r->f[i], WANT_DX | WANT_DW);
    }
    random_pair(t, r->c[0].x, k->x_plain, 0.3, r->x);
    random_pair(t, r->c[0].y, k->y_plain, 0.1, r->dy);
    empty_pair(t, r->c[0].y, k->y_plain, r->y);
    empty_pair(t, r->c[0].y, k->y_plain, r->y0);
    empty_pair(t, r->c[0].x, k->x_plain, r->dx);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        const Backend *be = &dev->be;
        be->conv_open(dev, &r->c[i]);
        be->filters_pack(dev, &r->f[i], 1);
        be->conv_fwd(dev, &r->c[i], &r->x[i], r->b[i], &r->y[i]);
        be->conv_fwd(dev, &r->c[i], &r->x[i], NULL, &r->y0[i]);
        be->conv_dx(dev, &r->c[i], &r->dy[i], &r->dx[i]);
        be->conv_dw(dev, &r->c[i], &r->x[i], &r->dy[i], r->dw[i], NULL);
        be->conv_dw(dev, &r->c[i], &r->x[i], &r->dy[i], r->dw[i], r->db[i]);
        dev_fine(dev);
    }
}

static inline void conv_end(Pair *t, Conv c[2], Filter f[2]) {
    for (int i = 0; i < 2; i++) {
        t->dev[i].be.conv_close(&t->dev[i], &c[i]);
        t->dev[i].be.filter_close(&t->dev[i], &f[i]);
    }
    assert_true(t->dev[1].packed_bytes == 0);
    bufs_free(t);
}

enum { HAS_NORM = 1, BATCH_STATS = 2, RESIDUAL = 4, ADD_DX = 8, NO_DX = 16 };
enum { NO_PARAM = 32, UPDATE = 64, N_MODE = 128 };     // any sum of them is a mode

typedef struct {
    real  *par[7][2];            // gamma, beta, run_mean, run_var, dgamma, dbeta, mean and rstd
    Tensor x[2], r[2], y[2], dy[2], dx[2];
    char what[96];
} NormRun;

// v, of the reference's memory, becomes the activation on both devices.
static inline void set_pair(Pair *t, Tensor shape, real *const v[2], Tensor out[2]) {
    t->dev[1].be.copy_in(&t->dev[1], v[1], v[0], tensor_len(&shape) * sizeof(real));
    for (int i = 0; i < 2; i++) t->dev[i].be.from_plain(&t->dev[i], v[i], &out[i]);
}

// Multiples of 1/16 below 8: bf16 holds the sum of two such numbers.
static inline void round_pair(Pair *t, Tensor shape, Tensor out[2]) {
    real *v[2], *was = out[0].p;
    twins(t, tensor_len(&shape), 0, 0, v);
    for (size_t i = 0; i < tensor_len(&shape); i++)
        v[0][i] = (real)(fmin(fmax(round((double)was[i] * 16), -127), 127) / 16);
    set_pair(t, shape, v, out);
}

// Round-off decides on which side of the kink of the leaky ReLU an activation near 0 lies, and its
// gradient differs five times: such activations get none.
static inline void mute_kinks(Pair *t, Tensor shape, NormRun *n) {
    real *dy[2], *was = n->dy[0].p, *y = n->y[0].p;
    twins(t, tensor_len(&shape), 0, 0, dy);
    for (size_t i = 0; i < tensor_len(&shape); i++)
        if (y[i] > (real)0.05 || y[i] < (real)-0.01) dy[0][i] = was[i];
    set_pair(t, shape, dy, n->dy);
}

// Both directions of a norm on both devices.
static inline void norm_run(Pair *t, Tensor shape, int mode, NormRun *n) {
    const size_t C = (size_t)shape.c;
    const int params = mode & HAS_NORM && !(mode & NO_PARAM);
    Norm op[2];
    snprintf(n->what, sizeof n->what, "norm %dx%dx%dx%d mode %d", shape.n, shape.c, shape.h,
             shape.w, mode);
    for (int i = 0; i < 6; i++) twins(t, C, i == 3 ? 5 : 0.5, i == 3 ? 0.5 : 1, n->par[i]);
    twins(t, 2 * C, 0, 1, n->par[6]);
    random_pair(t, shape, 0, 2, n->x);
    random_pair(t, shape, 0, -1, n->r);
    round_pair(t, shape, n->x);
    round_pair(t, shape, n->r);
    random_pair(t, shape, 0, 0.2, n->dy);
    empty_pair(t, shape, 0, n->y);
    if (mode & ADD_DX) random_pair(t, shape, 0, 1, n->dx);
    else empty_pair(t, shape, 0, n->dx);
    for (int i = 0; i < 2; i++) {
        op[i] = (Norm){ .eps = (real)1e-5,
                        .momentum = (real)0.1,
                        .leak = (real)0.2,
                        .batch_stats = !!(mode & BATCH_STATS),
                        .update = !!(mode & UPDATE),
                        .add_dx = !!(mode & ADD_DX),
                        .gamma = mode & HAS_NORM ? n->par[0][i] : NULL,
                        .beta = mode & HAS_NORM ? n->par[1][i] : NULL,
                        .run_mean = n->par[2][i],
                        .run_var = n->par[3][i],
                        .mean = n->par[6][i],
                        .rstd = n->par[6][i] + C };
        Dev *dev = &t->dev[i];
        dev->be.norm_fwd(dev, &op[i], &n->x[i], mode & RESIDUAL ? &n->r[i] : NULL, &n->y[i]);
    }
    mute_kinks(t, shape, n);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        dev->be.norm_bwd(dev, &op[i], &n->x[i], &n->dy[i], mode & NO_DX ? NULL : &n->dx[i],
                         params ? n->par[4][i] : NULL, params ? n->par[5][i] : NULL);
    }
}

// COUNT products c = 1.5 a b (+ c), each m x n with inner sums of k, on both devices. The bits of
// `how`: a is stored by columns; b is; what is in c is added. Returns how many numbers c has.
static inline size_t product_run(Pair *t, const int shape[3], int how, real *c[2]) {
    enum { COUNT = 3 };
    const int m = shape[0], n = shape[1], k = shape[2];
    real *a[2], *b[2];
    twins(t, (size_t)(COUNT * m * k), 0, 1, a);
    twins(t, (size_t)(COUNT * k * n), 0, 1, b);
    twins(t, (size_t)(COUNT * m * n), 0, 1, c);
    for (int i = 0; i < 2; i++)
        t->dev[i].be.matmul(&t->dev[i], COUNT, m, n, k, (real)1.5, (Factor){ a[i], how & 1 },
                            (Factor){ b[i], how >> 1 & 1 }, how >> 2, c[i]);
    return (size_t)(COUNT * m * n);
}
#endif
