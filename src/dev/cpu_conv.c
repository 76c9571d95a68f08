// cpu_conv.c - convolutions by oneDNN, the only file that includes its header. 2.x (Debian 12) and
// 3.x spell descriptors differently; the first part hides that.
//
// Activations keep our blocked layout; weights have the layout that a primitive asks for, packed
// copies of the master weights. oneDNN computes directly; where we have a Winograd kernel for a
// shape (cpu_wino.c), the two are timed when the shape is first opened, and the winner is used from
// then on.
#include "dev/cpu.h"
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FWD, DX, DW };                                     // as in Conv.how
enum { MEM_X, MEM_Y, MEM_W, MEM_B, MEM_SCRATCH, N_MEM };  // what a primitive reads and writes

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} OneDnn;

static OneDnn *dnn_of(const Dev *dev) { return cpu_of(dev)->dnn; }

static int ok(Dev *dev, dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return 1;
    if (status == dnnl_out_of_memory)
        err_set(&dev->err, ERR_MEM, "oneDNN: out of memory for %s", what);
    else err_set(&dev->err, ERR_DEV, "oneDNN: status %d from %s", (int)status, what);
    return 0;
}

// ---- 2.x and 3.x --------------------------------------------------------------------------------

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t MemDesc;
typedef const_dnnl_memory_desc_t MemDescView;

static MemDesc desc_new(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag) {
    MemDesc d = NULL;
    dnnl_memory_desc_create_with_tag(&d, rank, dims, type, tag);
    return d;
}

static void desc_free(MemDesc d) { dnnl_memory_desc_destroy(d); }
#else
typedef dnnl_memory_desc_t *MemDesc; // a struct there, a handle in 3.x: put into a box
typedef const dnnl_memory_desc_t *MemDescView;

static MemDesc desc_new(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag) {
    MemDesc d = malloc(sizeof *d);
    if (!d || dnnl_memory_desc_init_by_tag(d, rank, dims, type, tag) == dnnl_success) return d;
    free(d);
    return NULL;
}

static void desc_free(MemDesc d) { free(d); }
#endif

typedef struct {                     // one convolution in oneDNN's words
    MemDesc x, y, w, dw, w_plain, b; // w, dw: any layout; dw, w_plain and b: fp32
    dnnl_dims_t stride, before, after;
    int relu;                        // the convolution ends with it, and is for inference alone
} DnnShape;

static dnnl_prop_kind_t prop_of(const DnnShape *s) {
    return s->relu ? dnnl_forward_inference : dnnl_forward_training;
}

// NULL where oneDNN has no such kernel.
#if DNNL_VERSION_MAJOR >= 3
static dnnl_primitive_desc_t describe_as(Dev *dev, const DnnShape *s, int dir,
                                         const_dnnl_primitive_desc_t forward,
                                         const_dnnl_primitive_attr_t attr) {
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_engine_t e = dnn_of(dev)->engine;
    const dnnl_dims_t no = { 0 };
    dnnl_primitive_desc_t pd = NULL;
    if (dir == FWD)
        dnnl_convolution_forward_primitive_desc_create(&pd, e, prop_of(s), alg, s->x, s->w, s->b,
                                                       s->y, s->stride, no, s->before, s->after,
                                                       attr);
    else if (dir == DX)
        dnnl_convolution_backward_data_primitive_desc_create(
            &pd, e, alg, s->x, s->w, s->y, s->stride, no, s->before, s->after, forward, attr);
    else
        dnnl_convolution_backward_weights_primitive_desc_create(&pd, e, alg, s->x, s->dw, NULL,
                                                                s->y, s->stride, no, s->before,
                                                                s->after, forward, attr);
    return pd;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_relu(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
}
#else
static dnnl_primitive_desc_t describe_as(Dev *dev, const DnnShape *s, int dir,
                                         const_dnnl_primitive_desc_t forward,
                                         const_dnnl_primitive_attr_t attr) {
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t c;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status;
    if (dir == FWD)
        status = dnnl_convolution_forward_desc_init(&c, prop_of(s), alg, s->x, s->w, s->b, s->y,
                                                    s->stride, s->before, s->after);
    else if (dir == DX)
        status = dnnl_convolution_backward_data_desc_init(&c, alg, s->x, s->w, s->y, s->stride,
                                                          s->before, s->after);
    else
        status = dnnl_convolution_backward_weights_desc_init(&c, alg, s->x, s->dw, NULL, s->y,
                                                             s->stride, s->before, s->after);
    if (status != dnnl_success) return NULL;
    dnnl_primitive_desc_create(&pd, &c, attr, dnn_of(dev)->engine, forward);
    return pd;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

static dnnl_status_t append_relu(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
}
#endif

// ---- primitives ---------------------------------------------------------------------------------

// oneDNN would allocate scratch memory at every run; ours lasts.
static dnnl_primitive_attr_t attr_new(Dev *dev, int add, int relu) {
    dnnl_primitive_attr_t a = NULL;
    dnnl_post_ops_t ops = NULL;
    if (!ok(dev, dnnl_primitive_attr_create(&a), "an attribute")) return NULL;
    ok(dev, dnnl_primitive_attr_set_scratchpad_mode(a, dnnl_scratchpad_mode_user),
       "a scratchpad's mode");
    if (!add && !relu) return a;
    ok(dev, dnnl_post_ops_create(&ops), "a post-op");
    if (add) ok(dev, append_sum(ops), "a post-op");
    if (relu) ok(dev, append_relu(ops), "a post-op");
    ok(dev, dnnl_primitive_attr_set_post_ops(a, ops), "a post-op");
    dnnl_post_ops_destroy(ops);
    return a;
}

typedef struct {                     // a primitive and the memory objects it runs on
    dnnl_primitive_t handle;
    dnnl_memory_t    mem[N_MEM];     // NULL: not of this kind
    int              arg[N_MEM];
    size_t           scratch, w;     // bytes
    char             how[48];
} Primitive;

static size_t desc_bytes(MemDescView d) { return d ? dnnl_memory_desc_get_size(d) : 0; }

static MemDescView desc_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static void prim_mem(Dev *dev, Primitive *w, int m, int arg, MemDescView d) {
    w->arg[m] = arg;
    ok(dev, dnnl_memory_create(&w->mem[m], d, dnn_of(dev)->engine, DNNL_MEMORY_NONE),
       "a memory object");
}

static void prim_start(Dev *dev, Primitive *w, const_dnnl_primitive_desc_t pd) {
    const char *how = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&how);
    snprintf(w->how, sizeof w->how, "%s", how ? how : "?");
    ok(dev, dnnl_primitive_create(&w->handle, pd), w->how);
    const MemDescView scratch = desc_of(pd, dnnl_query_scratchpad_md);
    w->scratch = desc_bytes(scratch);
    prim_mem(dev, w, MEM_SCRATCH, DNNL_ARG_SCRATCHPAD, scratch);
}

static void prim_open(Dev *dev, Primitive *w, int dir, const_dnnl_primitive_desc_t pd,
                      const DnnShape *s) {
    const int back = dir != FWD;
    const MemDescView weights =
        desc_of(pd, dir == DW ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    prim_start(dev, w, pd);
    prim_mem(dev, w, MEM_X, dir == DX ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, s->x);
    prim_mem(dev, w, MEM_Y, back ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, s->y);
    prim_mem(dev, w, MEM_W, dir == DW ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights);
    if (!back) prim_mem(dev, w, MEM_B, DNNL_ARG_BIAS, s->b);
    w->w = desc_bytes(weights);
}

static void prim_close(Primitive *w) {
    if (w->handle) dnnl_primitive_destroy(w->handle);
    for (int i = 0; i < N_MEM; i++)
        if (w->mem[i]) dnnl_memory_destroy(w->mem[i]);
    *w = (Primitive){ 0 };
}

// p: where x, y, w, b and the scratch lie.
static void prim_run(Dev *dev, const Primitive *w, const void *const p[N_MEM]) {
    dnnl_exec_arg_t args[N_MEM];
    int n = 0;
    for (int i = 0; i < N_MEM; i++) {
        if (!w->mem[i]) continue;
        ok(dev, dnnl_memory_set_data_handle(w->mem[i], (void *)p[i]), "a memory object");
        args[n++] = (dnnl_exec_arg_t){ w->arg[i], w->mem[i] };
    }
    if (dev->err.kind) return;
    ok(dev, dnnl_primitive_execute(w->handle, dnn_of(dev)->stream, n, args), w->how);
    ok(dev, dnnl_stream_wait(dnn_of(dev)->stream), w->how);
}

// Brings x's layout to y's, or adds to what is there.
static void reorder_open(Dev *dev, Primitive *w, MemDescView from, MemDescView to, int add) {
    const dnnl_engine_t e = dnn_of(dev)->engine;
    dnnl_primitive_attr_t attr = attr_new(dev, add, 0);
    dnnl_primitive_desc_t pd = NULL;
    if (attr &&
        ok(dev, dnnl_reorder_primitive_desc_create(&pd, from, e, to, e, attr), "a reorder")) {
        prim_start(dev, w, pd);
        prim_mem(dev, w, MEM_X, DNNL_ARG_FROM, from);
        prim_mem(dev, w, MEM_Y, DNNL_ARG_TO, to);
        cpu_reserve_scratch(dev, w->scratch);
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_primitive_attr_destroy(attr);
}

static void reorder_run(Dev *dev, const Primitive *w, const void *from, void *to) {
    prim_run(dev, w,
             (const void *[N_MEM]){
                 [MEM_X] = from, [MEM_Y] = to, [MEM_SCRATCH] = cpu_of(dev)->scratch });
}

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
    ok(dev, dnnl_memory_create(&p->like, wanted, dnn_of(dev)->engine, DNNL_MEMORY_NONE),
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

static DnnShape shape_new(Dev *dev, const Conv *c) {
    const dnnl_format_tag_t blocked = cpu_of(dev)->k->lanes == 16 ? dnnl_nChw16c : dnnl_nChw8c;
    const dnnl_data_type_t type = cpu_of(dev)->half ? dnnl_bf16 : dnnl_f32;
    const Tensor *x = &c->x, *y = &c->y;
    const int k = c->size, kw = c->size_w, s = c->stride, p = c->pad, pw = c->pad_w;
    const dnnl_dims_t dx = { x->n, x->c, x->h, x->w }, dy = { y->n, y->c, y->h, y->w };
    const dnnl_dims_t dw = { y->c, x->c, k, kw }, db = { y->c };
    const DnnShape shape = {
        .x = desc_new(4, dx, c->x_plain ? dnnl_f32 : type, c->x_plain ? dnnl_nchw : blocked),
        .y = desc_new(4, dy, c->y_plain ? dnnl_f32 : type, c->y_plain ? dnnl_nchw : blocked),
        .w = desc_new(4, dw, c->x_plain && c->y_plain ? dnnl_f32 : type, dnnl_format_tag_any),
        .dw = desc_new(4, dw, dnnl_f32, dnnl_format_tag_any),
        .w_plain = desc_new(4, dw, dnnl_f32, dnnl_oihw),
        .b = desc_new(1, db, dnnl_f32, dnnl_x),
        .stride = { s, s },
        .before = { p, pw },
        // what the last window needs beyond the input; less than 0 where it does not reach the end
        .after = { (y->h - 1) * s + k - x->h - p, (y->w - 1) * s + kw - x->w - pw },
        .relu = c->relu,
    };
    if (!shape.x || !shape.y || !shape.w || !shape.dw || !shape.w_plain || !shape.b)
        err_set(&dev->err, ERR_MEM, "oneDNN: cannot describe a convolution %dx%d %d -> %d", k, kw,
                x->c, y->c);
    return shape;
}

static void shape_free(DnnShape *s) {
    desc_free(s->x);
    desc_free(s->y);
    desc_free(s->w);
    desc_free(s->dw);
    desc_free(s->w_plain);
    desc_free(s->b);
}

static dnnl_primitive_desc_t describe(Dev *dev, const DnnShape *s, int dir) {
    dnnl_primitive_attr_t attr = attr_new(dev, 0, s->relu);
    dnnl_primitive_desc_t forward = describe_as(dev, s, FWD, NULL, attr), pd = forward;
    if (dir != FWD && forward) {                          // a hint that backward passes must have
        pd = describe_as(dev, s, dir, forward, attr);
        dnnl_primitive_desc_destroy(forward);
    }
    dnnl_primitive_attr_destroy(attr);
    return pd;
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
        prim_run(dev, w, (const void *[N_MEM]){ x->p, dy->p, packed, NULL, cpu->scratch });
        reorder_run(dev, &p->unpack, packed, dw);
    }
    if (db) cpu->k->bias_grad(dy, c->y_plain, cpu->partial, db);
}

// ---- the library --------------------------------------------------------------------------------

Isa cpu_conv_isa(void) {
    const int isa = (int)dnnl_get_effective_cpu_isa(); // bits: a wider set contains the others
    if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) return ISA_BF16;
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return ISA_AVX512;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? ISA_AVX2 : ISA_BASE;
}

void cpu_conv_version(char *dst, size_t n) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(dst, n, "%d.%d.%d", v->major, v->minor, v->patch);
}

void cpu_conv_start(Dev *dev) {
    OneDnn *d = cpu_of(dev)->dnn = calloc(1, sizeof *d);
    if (!d) {
        err_set(&dev->err, ERR_MEM, "out of memory for oneDNN");
        return;
    }
    if (ok(dev, dnnl_engine_create(&d->engine, dnnl_cpu, 0), "its engine"))
        ok(dev, dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags), "its stream");
}

void cpu_conv_stop(Dev *dev) {
    OneDnn *d = dnn_of(dev);
    if (!d) return;
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d);
    cpu_of(dev)->dnn = NULL;
}

void cpu_conv_table(Backend *be) {
    be->filters_pack = filters_pack;
    be->filter_close = filter_close;
    be->conv_open = conv_open;
    be->conv_close = conv_close;
    be->conv_fwd = conv_fwd;
    be->conv_dx = conv_dx;
    be->conv_dw = conv_dw;
}
