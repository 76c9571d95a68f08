// window_cases.h - the operations of inference on two devices side by side: convolutions with ReLU
// and kernels that are no squares, pooling over windows, concatenation. Included after op_cases.h.
#ifndef WINDOW_CASES_H
#define WINDOW_CASES_H

typedef struct {
    int n, in, out, h, w, size, size_w, stride, pad, pad_w, x_plain;
} ReluCase;

// Every kind of kernel that Inception has, with odd shapes and numbers of channels.
static const ReluCase RELU_CASES[] = {
    { 2, 3, 32, 23, 21, 3, 3, 2, 0, 0, 1 },   { 1, 3, 5, 9, 8, 3, 3, 2, 0, 0, 1 },
    { 3, 32, 32, 13, 11, 3, 3, 1, 0, 0, 0 },  { 2, 32, 64, 10, 9, 3, 3, 1, 1, 1, 0 },
    { 2, 80, 192, 9, 9, 3, 3, 1, 0, 0, 0 },   { 1, 64, 80, 7, 5, 1, 1, 1, 0, 0, 0 },
    { 2, 48, 64, 9, 7, 5, 5, 1, 2, 2, 0 },    { 1, 128, 128, 8, 9, 1, 7, 1, 0, 3, 0 },
    { 2, 128, 192, 9, 8, 7, 1, 1, 3, 0, 0 },  { 2, 40, 24, 8, 8, 1, 3, 1, 0, 1, 0 },
    { 3, 24, 40, 8, 8, 3, 1, 1, 1, 0, 0 },    { 2, 96, 96, 17, 15, 3, 3, 2, 0, 0, 0 },
    { 1, 5, 7, 6, 5, 1, 7, 1, 0, 3, 0 },      { 2, 17, 3, 5, 6, 7, 1, 1, 3, 0, 0 },
    { 1, 16, 16, 3, 3, 3, 3, 1, 0, 0, 0 },    { 1, 7, 9, 7, 7, 5, 5, 1, 2, 2, 0 },
    { 2, 448, 384, 8, 8, 3, 3, 1, 1, 1, 0 },
};

static void relu_conv_agrees(Pair *t, const ReluCase *k, double tol) {
    const size_t n_w = (size_t)k->in * (size_t)(k->out * k->size * k->size_w);
    real *w[2], *b[2];
    Tensor x[2], y[2];
    Filter f[2];
    Conv c[2];
    char what[128];
    twins(t, n_w, 0, 1, w);
    twins(t, (size_t)k->out, 0, 1, b);
    for (int i = 0; i < 2; i++) {
        f[i] = (Filter){ k->out, k->in, k->size, k->size_w, w[i], NULL };
        c[i] = (Conv){ .x = { k->n, k->in, k->h, k->w, NULL },
                       .y = { k->n, k->out, (k->h + 2 * k->pad - k->size) / k->stride + 1,
                              (k->w + 2 * k->pad_w - k->size_w) / k->stride + 1, NULL },
                       .size = k->size,
                       .size_w = k->size_w,
                       .stride = k->stride,
                       .pad = k->pad,
                       .pad_w = k->pad_w,
                       .relu = 1,
                       .x_plain = k->x_plain,
                       .filter = &f[i] };
    }
    random_pair(t, c[0].x, k->x_plain, 0.3, x);
    empty_pair(t, c[0].y, 0, y);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        dev->be.conv_open(dev, &c[i]);
        dev->be.filters_pack(dev, &f[i], 1);
        dev->be.conv_fwd(dev, &c[i], &x[i], b[i], &y[i]);
        dev_fine(dev);
    }
    snprintf(what, sizeof what, "conv with ReLU n%d %d-%d %dx%d k%dx%d s%d p%dx%d (%s)", k->n,
             k->in, k->out, k->h, k->w, k->size, k->size_w, k->stride, k->pad, k->pad_w,
             c[1].how[0]);
    same_tensor(t, y, 0, tol, what);
    conv_end(t, c, f);
}

// Sizes around the window's, one channel block and several, with and without a filled last one.
static void windows_agree(Pair *t, double tol) {
    static const Pool pools[] = { { POOL_MEAN, 3, 1, 1 }, { POOL_MAX, 3, 1, 1 },
                                  { POOL_MAX, 3, 2, 0 },  { POOL_MEAN, 3, 2, 0 },
                                  { POOL_MAX, 2, 2, 0 },  { POOL_MEAN, 5, 3, 2 } };
    static const Tensor shapes[] = {
        { 2, 16, 5, 5, NULL }, { 1, 3, 8, 9, NULL }, { 3, 40, 6, 7, NULL }, { 1, 64, 17, 17, NULL }
    };
    for (size_t i = 0; i < LEN(pools); i++)
        for (size_t s = 0; s < LEN(shapes); s++) {
            const Pool o = pools[i];
            Tensor x[2], y[2], out = shapes[s];
            char what[96];
            out.h = (out.h + 2 * o.pad - o.size) / o.stride + 1;
            out.w = (out.w + 2 * o.pad - o.size) / o.stride + 1;
            random_pair(t, shapes[s], 0, -1, x);         // most are below 0, which padding is not
            empty_pair(t, out, 0, y);
            for (int d = 0; d < 2; d++) t->dev[d].be.window_fwd(&t->dev[d], o, &x[d], &y[d]);
            snprintf(what, sizeof what, "pool %d %d s%d p%d of %dx%dx%d", o.kind, o.size, o.stride,
                     o.pad, out.c, shapes[s].h, shapes[s].w);
            same_tensor(t, y, 0, tol, what);
            bufs_free(t);
        }
}

// Parts that begin at a block of channels and parts that do not.
static void concats_agree(Pair *t, double tol) {
    static const int parts[][4] = { { 64, 64, 96, 32 }, { 16, 16, 0, 0 }, { 3, 5, 24, 0 },
                                    { 1, 1, 1, 1 },     { 8, 40, 3, 20 }, { 17, 0, 0, 0 } };
    for (size_t i = 0; i < LEN(parts); i++) {
        const int *c = parts[i];
        Tensor whole = { 2, c[0] + c[1] + c[2] + c[3], 5, 4, NULL }, y[2];
        empty_pair(t, whole, 0, y);
        for (int p = 0, at = 0; p < 4 && c[p]; at += c[p++]) {
            Tensor x[2], part = whole;
            part.c = c[p];
            random_pair(t, part, 0, 0.5, x);
            for (int d = 0; d < 2; d++) t->dev[d].be.concat(&t->dev[d], &x[d], &y[d], at);
        }
        same_tensor(t, y, 0, tol, "concat");
        bufs_free(t);
    }
}
#endif
