// cpu_dnn.c - see cpu_dnn.h.
#include "dev/cpu_dnn.h"
#include <stdio.h>
#include <stdlib.h>

int dnn_ok(Dev *dev, dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return 1;
    if (status == dnnl_out_of_memory)
        err_set(&dev->err, ERR_MEM, "oneDNN: out of memory for %s", what);
    else err_set(&dev->err, ERR_DEV, "oneDNN: status %d from %s", (int)status, what);
    return 0;
}

// ---- 2.x and 3.x --------------------------------------------------------------------------------

#if DNNL_VERSION_MAJOR >= 3
static MemDesc desc_new(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag) {
    MemDesc d = NULL;
    dnnl_memory_desc_create_with_tag(&d, rank, dims, type, tag);
    return d;
}

static void desc_free(MemDesc d) { dnnl_memory_desc_destroy(d); }
#else
static MemDesc desc_new(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag) {
    MemDesc d = malloc(sizeof *d);
    if (!d || dnnl_memory_desc_init_by_tag(d, rank, dims, type, tag) == dnnl_success) return d;
    free(d);
    return NULL;
}

static void desc_free(MemDesc d) { free(d); }
#endif

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
    if (!dnn_ok(dev, dnnl_primitive_attr_create(&a), "an attribute")) return NULL;
    dnn_ok(dev, dnnl_primitive_attr_set_scratchpad_mode(a, dnnl_scratchpad_mode_user),
           "a scratchpad's mode");
    if (!add && !relu) return a;
    dnn_ok(dev, dnnl_post_ops_create(&ops), "a post-op");
    if (add) dnn_ok(dev, append_sum(ops), "a post-op");
    if (relu) dnn_ok(dev, append_relu(ops), "a post-op");
    dnn_ok(dev, dnnl_primitive_attr_set_post_ops(a, ops), "a post-op");
    dnnl_post_ops_destroy(ops);
    return a;
}

size_t desc_bytes(MemDescView d) { return d ? dnnl_memory_desc_get_size(d) : 0; }

MemDescView desc_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static void prim_mem(Dev *dev, Primitive *w, int m, int arg, MemDescView d) {
    w->arg[m] = arg;
    dnn_ok(dev, dnnl_memory_create(&w->mem[m], d, dnn_of(dev)->engine, DNNL_MEMORY_NONE),
           "a memory object");
}

static void prim_start(Dev *dev, Primitive *w, const_dnnl_primitive_desc_t pd) {
    const char *how = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&how);
    snprintf(w->how, sizeof w->how, "%s", how ? how : "?");
    dnn_ok(dev, dnnl_primitive_create(&w->handle, pd), w->how);
    const MemDescView scratch = desc_of(pd, dnnl_query_scratchpad_md);
    w->scratch = desc_bytes(scratch);
    prim_mem(dev, w, MEM_SCRATCH, DNNL_ARG_SCRATCHPAD, scratch);
}

void prim_open(Dev *dev, Primitive *w, int dir, const_dnnl_primitive_desc_t pd, const DnnShape *s) {
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

void prim_close(Primitive *w) {
    if (w->handle) dnnl_primitive_destroy(w->handle);
    for (int i = 0; i < N_MEM; i++)
        if (w->mem[i]) dnnl_memory_destroy(w->mem[i]);
    *w = (Primitive){ 0 };
}

void prim_run(Dev *dev, const Primitive *w, const void *const p[N_MEM]) {
    dnnl_exec_arg_t args[N_MEM];
    int n = 0;
    for (int i = 0; i < N_MEM; i++) {
        if (!w->mem[i]) continue;
        dnn_ok(dev, dnnl_memory_set_data_handle(w->mem[i], (void *)p[i]), "a memory object");
        args[n++] = (dnnl_exec_arg_t){ w->arg[i], w->mem[i] };
    }
    if (dev->err.kind) return;
    dnn_ok(dev, dnnl_primitive_execute(w->handle, dnn_of(dev)->stream, n, args), w->how);
    dnn_ok(dev, dnnl_stream_wait(dnn_of(dev)->stream), w->how);
}

void reorder_open(Dev *dev, Primitive *w, MemDescView from, MemDescView to, int add) {
    const dnnl_engine_t e = dnn_of(dev)->engine;
    dnnl_primitive_attr_t attr = attr_new(dev, add, 0);
    dnnl_primitive_desc_t pd = NULL;
    if (attr &&
        dnn_ok(dev, dnnl_reorder_primitive_desc_create(&pd, from, e, to, e, attr), "a reorder")) {
        prim_start(dev, w, pd);
        prim_mem(dev, w, MEM_X, DNNL_ARG_FROM, from);
        prim_mem(dev, w, MEM_Y, DNNL_ARG_TO, to);
        cpu_reserve_scratch(dev, w->scratch);
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_primitive_attr_destroy(attr);
}

void reorder_run(Dev *dev, const Primitive *w, const void *from, void *to) {
    prim_run(dev, w,
             (const void *[N_MEM]){
                 [MEM_X] = from, [MEM_Y] = to, [MEM_SCRATCH] = cpu_of(dev)->scratch });
}

// ---- the description of a convolution -----------------------------------------------------------

DnnShape shape_new(Dev *dev, const Conv *c) {
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

void shape_free(DnnShape *s) {
    desc_free(s->x);
    desc_free(s->y);
    desc_free(s->w);
    desc_free(s->dw);
    desc_free(s->w_plain);
    desc_free(s->b);
}

dnnl_primitive_desc_t describe(Dev *dev, const DnnShape *s, int dir) {
    dnnl_primitive_attr_t attr = attr_new(dev, 0, s->relu);
    dnnl_primitive_desc_t forward = describe_as(dev, s, FWD, NULL, attr), pd = forward;
    if (dir != FWD && forward) {                          // a hint that backward passes must have
        pd = describe_as(dev, s, dir, forward, attr);
        dnnl_primitive_desc_destroy(forward);
    }
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

// ---- the library --------------------------------------------------------------------------------

Isa cpu_dnn_isa(void) {
    const int isa = (int)dnnl_get_effective_cpu_isa(); // bits: a wider set contains the others
    if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) return ISA_BF16;
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return ISA_AVX512;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? ISA_AVX2 : ISA_BASE;
}

void cpu_dnn_version(char *dst, size_t n) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(dst, n, "%d.%d.%d", v->major, v->minor, v->patch);
}

void cpu_dnn_start(Dev *dev) {
    OneDnn *d = cpu_of(dev)->dnn = calloc(1, sizeof *d);
    if (!d) {
        err_set(&dev->err, ERR_MEM, "out of memory for oneDNN");
        return;
    }
    if (dnn_ok(dev, dnnl_engine_create(&d->engine, dnnl_cpu, 0), "its engine"))
        dnn_ok(dev, dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags),
               "its stream");
}

void cpu_dnn_stop(Dev *dev) {
    OneDnn *d = dnn_of(dev);
    if (!d) return;
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d);
    cpu_of(dev)->dnn = NULL;
}
