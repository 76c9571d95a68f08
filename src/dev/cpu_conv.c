// cpu_conv.c - convolutions, by oneDNN (cpu_dnn.h) and by our own kernels.
//
// Activations keep our blocked layout; weights have the layout that a primitive asks for, packed
// copies of the master weights. oneDNN computes directly; where we have a Winograd kernel for a
// shape (cpu_wino.c), the two are timed when the shape is first opened, and the winner is used from
// then on.
#include "dev/cpu_dnn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- packed weights -----------------------------------------------------------------------------

typedef struct PackedWeights {                // Filter.impl is a list of these
    struct PackedWeights *next;
    Primitive          reorder;
    dnnl_memory_t like;              // remembers the layout
    void        *mem;
    size_t       bytes;
} PackedWeights;

static MemDescView like(const PackedWeights *p) {
    MemDescView d = NULL;
    dnnl_memory_get_memory_desc(p->like, &d);
    return d;
}

static PackedWeights *pack_get(Dev *dev, Filter *f, MemDescView plain, MemDescView wanted) {
    for (PackedWeights *p = f->impl; p; p = p->next)
        if (dnnl_memory_desc_equal(like(p), wanted)) return p;
    PackedWeights *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(&dev->err, ERR_MEM, "out of memory for packed weights");
        return NULL;
    }
    p->next = f->impl;
    f->impl = p;
    dnn_ok(dev, dnnl_memory_create(&p->like, wanted, dnn_of(dev)->engine, DNNL_MEMORY_NONE),
           "a memory object");
    reorder_open(dev, &p->reorder, plain, wanted, 0);
    p->bytes = desc_bytes(wanted);
    p->mem = dev->be.alloc(dev, p->bytes, "packed weights");
    if (!p->mem) return NULL;
    dev->packed_bytes += p->bytes;
    // the master copy may have been packed for others long ago, or not be there yet
    if (f->w) reorder_run(dev, &p->reorder, f->w, p->mem);
    return p;
}

static void filters_pack(Dev *dev, Filter *f, int n) {
    if (!cpu_ready(dev)) return;
    for (int i = 0; i < n; i++)
        for (PackedWeights *p = f[i].impl; p; p = p->next)
            reorder_run(dev, &p->reorder, f[i].w, p->mem);
}

static void filter_close(Dev *dev, Filter *f) {
    for (PackedWeights *p = f->impl, *next; p; p = next) {
        next = p->next;
        prim_close(&p->reorder);
        if (p->like) dnnl_memory_destroy(p->like);
        if (p->mem) dev->packed_bytes -= p->bytes;
        dev->be.free(dev, p->mem);
        free(p);
    }
    f->impl = NULL;
}

// ---- the choice between kernels -----------------------------------------------------------------

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const Winograd *winograd(const Dev *dev) { return cpu_of(dev)->k->wino; }

static size_t winograd_bytes(const Dev *dev, const Conv *c, int dir) {
    return winograd(dev)->bytes(c, dir == DX, dir == DW, dev->threads);
}

// c with blank weights, x, y (and their gradients), weights' gradient, bias and scratch at p.
static void winograd_run(Dev *dev, const Conv *c, int dir, void *const p[N_MEM]) {
    const Filter f = {
        .out = c->filter->out, .in = c->filter->in, .size = 3, .size_w = 3, .w = p[MEM_W]
    };
    Conv blank = *c;
    Tensor x = c->x, y = c->y;
    blank.filter = (Filter *)&f;
    x.p = p[MEM_X];
    y.p = p[MEM_Y];
    if (dir == DW) winograd(dev)->run_dw(&blank, &x, &y, p[MEM_W], p[MEM_SCRATCH]);
    else if (dir == DX) winograd(dev)->run(&blank, 1, &y, NULL, &x, p[MEM_SCRATCH]);
    else winograd(dev)->run(&blank, 0, &x, p[MEM_B], &y, p[MEM_SCRATCH]);
}

// Both run by turns on blank memory, so that a disturbance meets both; the shortest run counts.
// Seldom more than half a second, even where one run takes a tenth.
static int time_winograd(Dev *dev, const Conv *c, int dir, const char *key,
                         const_dnnl_primitive_desc_t direct, const DnnShape *s) {
    Primitive prim = { 0 };
    double best[2] = { 1e30, 1e30 }, spent = 0;
    prim_open(dev, &prim, dir, direct, s);
    const size_t own = winograd_bytes(dev, c, dir), plain = desc_bytes(s->w_plain);
    const size_t bytes[N_MEM] = { desc_bytes(s->x), desc_bytes(s->y),
                                  prim.w > plain ? prim.w : plain, desc_bytes(s->b),
                                  prim.scratch > own ? prim.scratch : own };
    void *p[N_MEM] = { 0 };
    for (int m = 0; m < N_MEM; m++) {
        p[m] = dev->be.alloc(dev, bytes[m], "timing kernels");
        if (p[m]) memset(p[m], 0, bytes[m]);
    }
    for (int run = 0; run < 16 && !dev->err.kind && (run < 3 || spent < 0.25); run++)
        for (int i = 0; i < 2 && !dev_searching(dev, key); i++) {
            const double start = seconds();
            if (i) winograd_run(dev, c, dir, p);
            else prim_run(dev, &prim, (const void *const *)p);
            const double t = seconds() - start;
            if (t < best[i]) best[i] = t;
            if (run > 0) spent += t;
        }
    for (int m = 0; m < N_MEM; m++) dev->be.free(dev, p[m]);
    prim_close(&prim);
    return best[1] < best[0];
}

// Inference of few images does not wait for timings. Measured on 8 images of each of Inception's
// shapes, ours is 2.3 to 3.2 times as fast as oneDNN's from 35x35 pixels on, and equal at 8x8,
// where filters weigh most; with it a single image of WRN-16-4 takes 6.9 ms, not 9.4.
static int winograd_pays(const Conv *c) { return c->y.h * c->y.w >= 256; }

// Whether to use our Winograd kernel; the batch size is no part of the question.
static int choose_winograd(Dev *dev, const Conv *c, int dir, const_dnnl_primitive_desc_t direct,
                           const DnnShape *s) {
    if (cpu_of(dev)->conv != CONV_AUTO || !winograd_bytes(dev, c, dir)) return 0;
    if (c->relu) return winograd_pays(c);
    static const char *const name[] = { "fwd", "dx", "dw" };
    char key[80];
    snprintf(key, sizeof key, "%s %dx%d %d-%d k%d s%d p%d%s", name[dir], c->x.h, c->x.w, c->x.c,
             c->y.c, c->size, c->stride, c->pad, cpu_of(dev)->half ? " bf16" : "");
    Cpu *cpu = cpu_of(dev);
    const int known = choice_find(cpu->tuning, key);
    if (known >= 0) return known;
    if (c->run_few) return winograd_pays(c);               // not what a cache happens to hold
    int winner = choice_find(cpu->cached, key);
    if (winner < 0) {
        winner = time_winograd(dev, c, dir, key, direct, s);
        if (dev->err.kind) return winner;
        cpu->timed |= !choice_add(&cpu->cached, key, winner);
    }
    if (choice_add(&cpu->tuning, key, winner))
        err_set(&dev->err, ERR_MEM, "out of memory for the kernel choices");
    return winner;
}

// ---- convolutions -------------------------------------------------------------------------------

typedef struct {                     // Conv.impl
    Primitive prim[3], unpack;       // unpack: adds the weights' gradient to the caller's
    PackedWeights  *pack[3];
    int    winograd[3];              // our kernel, not prim[]
    size_t packed_at;                // where, in the scratch, the packed gradient lies
    float *no_bias;
    int    head, stem;               // own kernels: for everything; for the gradients ...
    int    stem_fwd;                 // ... and forward too
} CpuConv;

static int is_head(const Conv *c) {
    return c->x_plain && c->y_plain && c->size == 1 && c->size_w == 1 && c->stride == 1 &&
           c->pad == 0 && c->pad_w == 0 && !c->relu && c->x.h == 1 && c->x.w == 1;
}

static void direct_open(Dev *dev, Conv *c, const DnnShape *s, int dir,
                        const_dnnl_primitive_desc_t pd) {
    CpuConv *plan = c->impl;
    Primitive *w = &plan->prim[dir];
    prim_open(dev, w, dir, pd, s);
    c->how[dir] = w->how;
    if (dir == DW)
        reorder_open(dev, &plan->unpack, desc_of(pd, dnnl_query_diff_weights_md), s->w_plain, 1);
    else plan->pack[dir] = pack_get(dev, c->filter, s->w_plain, desc_of(pd, dnnl_query_weights_md));
    const size_t most = w->scratch > plan->unpack.scratch ? w->scratch : plan->unpack.scratch;
    if (dir == DW) plan->packed_at = (most + 63) / 64 * 64;
    cpu_reserve_scratch(dev, dir == DW ? plan->packed_at + w->w : w->scratch);
}

static void direction_open(Dev *dev, Conv *c, const DnnShape *s, int dir) {
    CpuConv *plan = c->impl;
    dnnl_primitive_desc_t pd = describe(dev, s, dir);
    if (!pd) {
        err_set(&dev->err, ERR_DEV, "oneDNN: no kernel for a convolution %dx%d stride %d, %d -> %d",
                c->size, c->size_w, c->stride, c->x.c, c->y.c);
        return;
    }
    plan->winograd[dir] = choose_winograd(dev, c, dir, pd, s);
    if (dev->err.kind) {             // or the search was stopped: nothing half made may stay
        plan->winograd[dir] = 0;
    } else if (plan->winograd[dir]) {
        c->how[dir] = "own:winograd";
        cpu_reserve_scratch(dev, winograd_bytes(dev, c, dir));
    } else {
        direct_open(dev, c, s, dir, pd);
    }
    dnnl_primitive_desc_destroy(pd);
}

static size_t stem_bytes(const Conv *c, int lanes) {
    return (size_t)c->x.n * blocks_of(&c->y, lanes) * c->size * c->size * c->x.c * lanes *
           sizeof(float);
}

static void conv_open(Dev *dev, Conv *c) {
    c->impl = NULL;
    for (int i = 0; i < 3; i++) c->how[i] = NULL;
    if (!cpu_ready(dev)) return;
    CpuConv *plan = c->impl = calloc(1, sizeof *plan);
    if (plan) plan->no_bias = calloc((size_t)c->y.c, sizeof(float));
    if (!plan || !plan->no_bias) {
        err_set(&dev->err, ERR_MEM, "out of memory for a convolution");
        return;
    }
    const int want[3] = { 1, c->want & WANT_DX, c->want & WANT_DW };
    plan->head = is_head(c);
    plan->stem = c->x_plain && !c->y_plain && c->size == c->size_w && c->pad == c->pad_w;
    plan->stem_fwd = plan->stem && cpu_of(dev)->half;
    for (int i = 0; plan->head && i < 3; i++) c->how[i] = want[i] ? "own:head" : NULL;
    if (plan->head) return;
    DnnShape s = shape_new(dev, c);
    for (int dir = 0; dir < 3 && !dev->err.kind; dir++)
        if (want[dir] && plan->stem && (dir != FWD || plan->stem_fwd)) c->how[dir] = "own:stem";
        else if (want[dir]) direction_open(dev, c, &s, dir);
    if (plan->stem) cpu_reserve_scratch(dev, stem_bytes(c, cpu_of(dev)->k->lanes));
    if (want[DW]) cpu_reserve_partial(dev, &c->y);
    shape_free(&s);
}

static void conv_close(Dev *dev, Conv *c) {
    (void)dev;
    CpuConv *plan = c->impl;
    if (!plan) return;
    for (int i = 0; i < 3; i++) prim_close(&plan->prim[i]);
    prim_close(&plan->unpack);
    free(plan->no_bias);
    free(plan);
    c->impl = NULL;
}

// The plan, if the convolution can run in this direction.
static CpuConv *plan_of(Dev *dev, const Conv *c, int dir) {
    if (!cpu_ready(dev)) return NULL;
    if (c->impl && c->how[dir]) return c->impl;
    err_set(&dev->err, ERR_DEV, "a convolution %d -> %d was not opened for this gradient", c->x.c,
            c->y.c);
    return NULL;
}

static void conv_fwd(Dev *dev, const Conv *c, const Tensor *x, const float *b, Tensor *y) {
    const CpuConv *p = plan_of(dev, c, FWD);
    if (!p) return;
    const Cpu *cpu = cpu_of(dev);
    if (p->head) {
        cpu->k->head_fwd(c->filter->w, x, b, y);
    } else if (p->stem_fwd) {
        cpu->k->stem_pack(c->filter, cpu->scratch);
        cpu->k->stem_fwd(c, cpu->scratch, x, b, y);
    } else if (p->winograd[FWD]) {
        winograd(dev)->run(c, 0, x, b, y, cpu->scratch);
    } else {
        prim_run(dev, &p->prim[FWD],
                 (const void *[N_MEM]){ x->p, y->p, p->pack[FWD]->mem, b ? b : p->no_bias,
                                        cpu->scratch });
    }
}

static void conv_dx(Dev *dev, const Conv *c, const Tensor *dy, Tensor *dx) {
    const CpuConv *p = plan_of(dev, c, DX);
    if (!p) return;
    const Cpu *cpu = cpu_of(dev);
    if (p->head) {
        cpu->k->head_dx(c->filter->w, dy, dx);
    } else if (p->stem) {
        cpu->k->stem_pack(c->filter, cpu->scratch);
        cpu->k->stem_dx(c, cpu->scratch, dy, dx);
    } else if (p->winograd[DX]) {
        winograd(dev)->run(c, 1, dy, NULL, dx, cpu->scratch);
    } else {
        prim_run(dev, &p->prim[DX],
                 (const void *[N_MEM]){ dx->p, dy->p, p->pack[DX]->mem, NULL, cpu->scratch });
    }
}

static void conv_dw(Dev *dev, const Conv *c, const Tensor *x, const Tensor *dy, float *dw,
                    float *db) {
    const CpuConv *p = plan_of(dev, c, DW);
    if (!p) return;
    const Cpu *cpu = cpu_of(dev);
    if (p->head) {
        cpu->k->head_dw(x, dy, dw, db);
        return;
    }
    if (p->stem) {
        cpu->k->stem_dw(c, x, dy, cpu->scratch, dw);
    } else if (p->winograd[DW]) {
        winograd(dev)->run_dw(c, x, dy, dw, cpu->scratch);
    } else {
        const Primitive *w = &p->prim[DW];
        void *packed = (char *)cpu->scratch + p->packed_at;
        // oneDNN's bf16 kernel multiplies what it does not write of its scratch by 0, if images are
        // narrower than the filter: NaN of another convolution would get into the gradient
        if (cpu->half && c->x.w < c->size_w) memset(cpu->scratch, 0, w->scratch);
        prim_run(dev, w, (const void *[N_MEM]){ x->p, dy->p, packed, NULL, cpu->scratch });
        reorder_run(dev, &p->unpack, packed, dw);
    }
    if (db) cpu->k->bias_grad(dy, c->y_plain, cpu->partial, db);
}

// Muon's products (Backend.matmul).
static void matmul(Dev *dev, int count, int m, int n, int k, real scale, Factor a, Factor b,
                   int add, real *c) {
    const dnnl_dim_t row_a = a.transposed ? m : k, row_b = b.transposed ? k : n;
    for (int i = 0; i < count && cpu_ready(dev); i++, a.p += m * k, b.p += k * n, c += m * n)
        dnn_ok(dev,
               dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, scale, a.p,
                          row_a, b.p, row_b, add ? 1 : 0, c, n),
               "a product of matrices");
}

void cpu_conv_table(Backend *be) {
    be->filters_pack = filters_pack;
    be->filter_close = filter_close;
    be->conv_open = conv_open;
    be->conv_close = conv_close;
    be->conv_fwd = conv_fwd;
    be->conv_dx = conv_dx;
    be->conv_dw = conv_dw;
    be->matmul = matmul;
}
