// cuda_conv.cu - the convolution operations: by the plans of cuda_tune.cu between opaque
// activations, by the own kernels of cuda_stem.cu where images or features are plain.
#include "dev/cuda_conv.cuh"
#include <limits.h>
#include <stdlib.h>

typedef struct {                               // Conv.impl; NULL: by cuda_stem.cu
    const ConvPlan *plan[3];
} ConvImpl;

void cuda_conv_start(Dev *dev) {
    dnn_start(dev);
    tune_start(dev);
}

void cuda_conv_stop(Dev *dev) {
    tune_stop(dev);
    dnn_stop(dev);
}

static int can_plan(const Conv *c) {
    return !c->x_plain && !c->y_plain &&
           (c->relu || (c->size == c->size_w && c->size * c->size <= MAX_TAPS));
}

static size_t align256(size_t n) { return (n + 255) / 256 * 256; }
static size_t dw_bytes(const Conv *c) { return align256(filled_len(c) * sizeof(float)); }

// The kernels of cuda_stem.cu count 8-channel vectors with 32 bits, by up to 264 too far.
static int is_too_large(const Conv *c) {
    const size_t most = INT_MAX - 1024;
    return vectors_in(&c->x) > most || vectors_in(&c->y) > most;
}

static void conv_open(Dev *dev, Conv *c) {
    if (dev->err.kind) return;
    if (is_too_large(c)) {
        err_set(&dev->err, ERR_ARG,
                "%d images of %dx%d pixels at once are more than a convolution on the GPU can take:"
                " choose a smaller batch",
                c->x.n, c->x.h, c->x.w);
        return;
    }
    ConvImpl *impl = (ConvImpl *)calloc(1, sizeof *impl);
    if (!c->filter->impl) c->filter->impl = calloc(1, sizeof(PackedFilter));
    c->impl = impl;
    if (!impl || !c->filter->impl) {
        err_set(&dev->err, ERR_MEM, "out of memory for a convolution");
        return;
    }
    const int want[3] = { 1, c->want & WANT_DX, c->want & WANT_DW };
    for (int dir = 0; dir < 3; dir++) {
        c->how[dir] = NULL;
        if (!want[dir] || dev->err.kind) continue;
        const ConvPlan *p = can_plan(c) ? plan_for(dev, c, dir) : NULL;
        impl->plan[dir] = p;
        c->how[dir] = p ? p->name : c->x_plain ? "own" : "loops";
        if (p) cuda_reserve_scratch(dev, align256(p->workspace) + (dir == DW ? dw_bytes(c) : 0));
    }
    filter_forms(dev, c, can_plan(c), wants_rot180(dev, c));
    if (c->x_plain && !c->y_plain && want[DW]) cuda_reserve_partial(dev, stem_partial(c));
}

static void conv_close(Dev *dev, Conv *c) {
    (void)dev;
    free(c->impl);
    c->impl = NULL;
}

static const ConvPlan *plan_of(const Conv *c, int dir) {
    return ((const ConvImpl *)c->impl)->plan[dir];
}

static const PackedFilter *packed_of(const Conv *c) {
    return (const PackedFilter *)c->filter->impl;
}

static const float *stem_weights(const Conv *c) {
    return packed_of(c)->stem ? packed_of(c)->stem : c->filter->w;
}

static void conv_fwd(Dev *dev, const Conv *c, const Tensor *x, const real *b, Tensor *y) {
    if (dev->err.kind) return;
    const ConvPlan *p = plan_of(c, FWD);
    if (!c->x_plain) cuda_settle(dev, x);
    if (!p) {
        stem_fwd(dev, c, stem_weights(c), x, b, y);
        if (!c->y_plain) cuda_set_pending(dev, y, NULL);
        if (c->relu) cuda_relu(dev, y, c->y_plain, NULL);
        return;
    }
    plan_failed(dev, p, plan_run(dev, p, x, packed_of(c), NULL, y, cuda_of(dev)->scratch),
                "conv_fwd");
    cuda_set_pending(dev, y, c->relu ? NULL : b);
    if (c->relu) cuda_relu(dev, y, 0, b);
}

static void conv_dx(Dev *dev, const Conv *c, const Tensor *dy, Tensor *dx) {
    if (dev->err.kind) return;
    const ConvPlan *p = plan_of(c, DX);
    if (!p) stem_dx(dev, c, stem_weights(c), dy, dx);
    else
        plan_failed(dev, p, plan_run(dev, p, dx, packed_of(c), NULL, dy, cuda_of(dev)->scratch),
                    "conv_dx");
    if (!c->x_plain) cuda_set_pending(dev, dx, NULL);
}

static void conv_dw(Dev *dev, const Conv *c, const Tensor *x, const Tensor *dy, real *dw,
                    real *db) {
    if (dev->err.kind) return;
    const ConvPlan *p = plan_of(c, DW);
    if (!c->x_plain) cuda_settle(dev, x);
    if (db) bias_grad(dev, c, dy, db);
    if (!p) {
        stem_dw(dev, c, x, dy, dw);
        return;
    }
    void *part = cuda_of(dev)->scratch, *workspace = (char *)part + dw_bytes(c);
    if (!plan_failed(dev, p, plan_run(dev, p, x, packed_of(c), part, dy, workspace), "conv_dw"))
        plan_failed(dev, p, plan_dw_add(dev, p, c, part, workspace, dw), "conv_dw");
}

void cuda_conv_table(Backend *be) {
    be->filters_pack = filters_pack;
    be->filter_close = filter_close;
    be->conv_open = conv_open;
    be->conv_close = conv_close;
    be->conv_fwd = conv_fwd;
    be->conv_dx = conv_dx;
    be->conv_dw = conv_dw;
}
