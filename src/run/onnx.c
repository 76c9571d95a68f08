// onnx.c - see onnx.h. Numbers of fields are those of onnx.proto3.
#include "run/onnx.h"
#include "base/file.h"
#include "base/protobuf.h"
#include "base/version.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 8, OPSET = 17, FLOAT = 1 };
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_META = 14
};
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_CONSTANT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TENSOR_DIM = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };

const char onnx_magic[] = "\x08\x08\x12\x05jempp";       // IR version 8, producer jempp

typedef struct {                     // a constant: its message but the numbers, and where they are
    Proto  head;
    const real *at;                  // on the device, or NULL: value
    float  value;
    size_t n;
} Constant;

typedef struct {
    const Model *m;
    Proto     graph;                 // all of it but the constants
    Constant *constant;
    int       n_constant;
    char    (*act)[32];              // the name that each activation has now
    int       n_node;
} Onnx;

// ---- parts ----------------------------------------------------------------------------------

static void add_node(Onnx *o, Proto *node, const char *op, const char *output) {
    char name[32];
    snprintf(name, sizeof name, "%s_%d", op, o->n_node++);
    proto_text(node, NODE_OUTPUT, output);
    proto_text(node, NODE_NAME, name);
    proto_text(node, NODE_OP, op);
    proto_message(&o->graph, GRAPH_NODE, node);
}

typedef enum { OF_FLOAT = 1, OF_INT = 2, OF_INTS = 7 } AttributeType;

static Proto attribute(const char *name) {
    Proto a = { 0 };
    proto_text(&a, ATTRIBUTE_NAME, name);
    return a;
}

static void add_attribute(Proto *node, Proto *a, AttributeType type) {
    proto_int(a, ATTRIBUTE_TYPE, type);
    proto_message(node, NODE_ATTRIBUTE, a);
}

static void put_ints(Proto *node, const char *name, const int *v, int n) {
    Proto a = attribute(name);
    for (int i = 0; i < n; i++) proto_int(&a, ATTRIBUTE_INTS, v[i]);
    add_attribute(node, &a, OF_INTS);
}

static void put_int(Proto *node, const char *name, int v) {
    Proto a = attribute(name);
    proto_int(&a, ATTRIBUTE_INT, v);
    add_attribute(node, &a, OF_INT);
}

static void put_float(Proto *node, const char *name, float v) {
    Proto a = attribute(name);
    proto_float(&a, ATTRIBUTE_FLOAT, v);
    add_attribute(node, &a, OF_FLOAT);
}

static void add_constant(Onnx *o, const char *name, const int *dim, int rank, const real *at,
                         float value) {
    Constant *c = &o->constant[o->n_constant++];
    *c = (Constant){ .at = at, .value = value, .n = 1 };
    for (int i = 0; i < rank; i++) {
        proto_int(&c->head, TENSOR_DIM, dim[i]);
        c->n *= (size_t)dim[i];
    }
    proto_int(&c->head, TENSOR_TYPE, FLOAT);
    proto_text(&c->head, TENSOR_NAME, name);
    proto_open(&c->head, TENSOR_RAW, c->n * sizeof(float));
}

static void add_param(Onnx *o, Proto *node, int par) {
    const Param *p = &o->m->net.par[par];
    add_constant(o, p->name, p->dim, p->rank, o->m->net.w + p->off, 0);
    proto_text(node, NODE_INPUT, p->name);
}

// A node of two inputs, the second a number.
static void add_scalar_op(Onnx *o, const char *op, const char *x, const char *name, float value,
                          const char *y) {
    Proto node = { 0 };
    add_constant(o, name, NULL, 0, NULL, value);
    proto_text(&node, NODE_INPUT, x);
    proto_text(&node, NODE_INPUT, name);
    add_node(o, &node, op, y);
}

static void add_value(Onnx *o, int field, const char *name, const int *dim, int rank) {
    Proto shape = { 0 }, tensor = { 0 }, type = { 0 }, value = { 0 };
    for (int i = 0; i < rank; i++) {
        Proto d = { 0 };
        if (dim[i]) proto_int(&d, 1, dim[i]);
        else proto_text(&d, 2, "N");                     // any number of images
        proto_message(&shape, 1, &d);
    }
    proto_int(&tensor, 1, FLOAT);
    proto_message(&tensor, 2, &shape);
    proto_message(&type, 1, &tensor);
    proto_text(&value, 1, name);
    proto_message(&value, 2, &type);
    proto_message(&o->graph, field, &value);
}

// ---- ops ------------------------------------------------------------------------------------

static void add_conv(Onnx *o, const Op *op) {
    Proto node = { 0 };
    const int head = o->m->net.par[op->w].rank == 2;
    proto_text(&node, NODE_INPUT, o->act[op->x]);
    add_param(o, &node, op->w);
    add_param(o, &node, op->b);
    if (head) {
        put_int(&node, "transB", 1);
        add_node(o, &node, "Gemm", o->act[op->y]);
        return;
    }
    put_ints(&node, "kernel_shape", (int[]){ op->size, op->size_w }, 2);
    put_ints(&node, "strides", (int[]){ op->stride, op->stride }, 2);
    put_ints(&node, "pads", (int[]){ op->pad, op->pad_w, op->pad, op->pad_w }, 4);
    add_node(o, &node, "Conv", o->act[op->y]);
}

// The norm adds the residual to its input in place: later readers of the input get the sum.
static void add_residual(Onnx *o, const Op *op) {
    Proto node = { 0 };
    proto_text(&node, NODE_INPUT, o->act[op->x]);
    proto_text(&node, NODE_INPUT, o->act[op->r]);
    snprintf(o->act[op->x], sizeof o->act[op->x], "sum%d", op->x);
    add_node(o, &node, "Add", o->act[op->x]);
}

static void add_norm(Onnx *o, const Op *op) {
    const Net *net = &o->m->net;
    char normed[40];
    snprintf(normed, sizeof normed, "%s", o->act[op->x]);
    if (op->stat >= 0) {
        const Stat *s = &net->stat[op->stat];
        const int len = (int)s->len;
        char name[80];
        Proto node = { 0 };
        proto_text(&node, NODE_INPUT, o->act[op->x]);
        add_param(o, &node, op->w);
        add_param(o, &node, op->b);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s.running_%s", s->name, k ? "var" : "mean");
            add_constant(o, name, &len, 1, net->state + s->off + (size_t)k * s->len, 0);
            proto_text(&node, NODE_INPUT, name);
        }
        put_float(&node, "epsilon", (float)net->eps);
        snprintf(normed, sizeof normed, "norm%d", op->y);
        add_node(o, &node, "BatchNormalization", normed);
    }
    Proto node = { 0 };
    proto_text(&node, NODE_INPUT, normed);
    put_float(&node, "alpha", (float)net->leak);
    add_node(o, &node, "LeakyRelu", o->act[op->y]);
}

static void add_pool(Onnx *o, const Op *op) {
    Proto pool = { 0 }, flat = { 0 };
    proto_text(&pool, NODE_INPUT, o->act[op->x]);
    add_node(o, &pool, "GlobalAveragePool", "pooled");
    proto_text(&flat, NODE_INPUT, "pooled");
    put_int(&flat, "axis", 1);
    add_node(o, &flat, "Flatten", o->act[op->y]);
}

static void add_outputs(Onnx *o) {
    const double t = o->m->temperature > 0 ? o->m->temperature : 1;
    Proto softmax = { 0 }, sum = { 0 };
    add_scalar_op(o, "Div", "logits", "temperature", (float)t, "scaled");
    proto_text(&softmax, NODE_INPUT, "scaled");
    put_int(&softmax, "axis", 1);
    add_node(o, &softmax, "Softmax", "probs");
    proto_text(&sum, NODE_INPUT, "logits");
    put_ints(&sum, "axes", (int[]){ 1 }, 1);
    put_int(&sum, "keepdims", 0);
    add_node(o, &sum, "ReduceLogSumExp", "log_px");
}

static int build_graph(Onnx *o, Err *err) {
    const Net *net = &o->m->net;
    const NetSpec *s = &net->spec;
    o->act = calloc((size_t)net->n_act, sizeof *o->act);
    o->constant = calloc((size_t)(net->n_par + 2 * net->n_stat) + 3, sizeof *o->constant);
    if (!o->act || !o->constant) return err_set(err, ERR_MEM, "out of memory for a model");
    for (int i = 0; i < net->n_act; i++) snprintf(o->act[i], sizeof *o->act, "act%d", i);
    snprintf(o->act[net->n_act - 1], sizeof *o->act, "logits");
    proto_text(&o->graph, GRAPH_NAME, "jempp");
    add_scalar_op(o, "Mul", "image", "two", 2, "doubled");
    add_scalar_op(o, "Sub", "doubled", "one", 1, o->act[0]);
    for (const Op *op = net->op; op < net->op + net->n_op; op++) {
        if (op->kind == OP_NORM && op->r >= 0) add_residual(o, op);
        if (op->kind == OP_CONV) add_conv(o, op);
        else if (op->kind == OP_NORM) add_norm(o, op);
        else if (op->kind == OP_POOL) add_pool(o, op);
        else return err_set(err, ERR_ARG, "%s: has an operation that is not exported", o->m->path);
    }
    add_outputs(o);
    add_value(o, GRAPH_INPUT, "image", (int[]){ 0, s->channels, s->side, s->side }, 4);
    add_value(o, GRAPH_OUTPUT, "logits", (int[]){ 0, s->classes }, 2);
    add_value(o, GRAPH_OUTPUT, "probs", (int[]){ 0, s->classes }, 2);
    add_value(o, GRAPH_OUTPUT, "log_px", (int[]){ 0 }, 1);
    return 0;
}

// ---- the file -------------------------------------------------------------------------------

static void add_meta(Proto *model, const char *name, const char *value) {
    Proto p = { 0 };
    proto_text(&p, 1, name);
    proto_text(&p, 2, value);
    proto_message(model, MODEL_META, &p);
}

static void put_meta(Proto *model, const Model *m) {
    char number[40];
    snprintf(number, sizeof number, "%.9g", (double)m->threshold);
    if (!isnan(m->threshold)) add_meta(model, "threshold", number);
    snprintf(number, sizeof number, "%.17g", m->temperature);
    if (m->temperature > 0) add_meta(model, "temperature", number);
    Proto p = { 0 }, names = { 0 };
    for (int i = 0; i < m->net.spec.classes; i++) {      // one name per line
        if (i) proto_append(&names, "\n", 1);
        proto_append(&names, m->class_name[i], strlen(m->class_name[i]));
    }
    proto_text(&p, 1, "classes");
    proto_message(&p, 2, &names);
    proto_message(model, MODEL_META, &p);
}

static void write_floats(Writer *w, const Constant *c, Dev *dev) {
    enum { ROOM = 4096 };
    real some[ROOM];
    float out[ROOM];
    if (!c->at) write_bytes(w, &c->value, sizeof c->value);
    for (size_t i = 0; c->at && i < c->n; i += ROOM) {
        const size_t n = c->n - i < ROOM ? c->n - i : ROOM;
        dev->be.copy_out(dev, some, c->at + i, n * sizeof *some);
        reals_to_floats(out, some, n);
        write_bytes(w, out, n * sizeof *out);
    }
}

// Constants follow the rest of the graph. Their numbers go straight to the file.
static int write_model(Onnx *o, Writer *w, Err *err) {
    Proto model = { 0 }, opset = { 0 }, prefix = { 0 };
    uint64_t size = o->graph.n;
    int failed = o->graph.failed;
    for (int i = 0; i < o->n_constant; i++) {
        const Constant *c = &o->constant[i];
        const uint64_t n = c->head.n + c->n * sizeof(float);
        proto_open(&prefix, GRAPH_CONSTANT, n);
        size += prefix.n + n;
        failed |= c->head.failed | prefix.failed;
        proto_free(&prefix);
    }
    if (size > 0x7fff0000)
        return err_set(err, ERR_ARG, "%s: %.1f GiB; an ONNX file has at most 2", w->path,
                       (double)size / 0x1p30);
    proto_int(&model, MODEL_IR, IR_VERSION);
    proto_text(&model, MODEL_PRODUCER, "jempp");
    proto_text(&model, MODEL_PRODUCER_VERSION, version_text());
    proto_text(&opset, 1, "");
    proto_int(&opset, 2, OPSET);
    proto_message(&model, MODEL_OPSET, &opset);
    put_meta(&model, o->m);
    proto_open(&model, MODEL_GRAPH, size);
    write_bytes(w, model.p, model.n);
    write_bytes(w, o->graph.p, o->graph.n);
    failed |= model.failed;
    proto_free(&model);
    for (int i = 0; i < o->n_constant; i++) {
        const Constant *c = &o->constant[i];
        proto_open(&prefix, GRAPH_CONSTANT, c->head.n + c->n * sizeof(float));
        write_bytes(w, prefix.p, prefix.n);
        write_bytes(w, c->head.p, c->head.n);
        write_floats(w, c, o->m->net.dev);
        proto_free(&prefix);
    }
    return failed ? err_set(err, ERR_MEM, "out of memory for a model") : 0;
}

int onnx_write(const Model *m, const char *path, Err *err) {
    Onnx o = { .m = m };
    int rc = build_graph(&o, err);
    if (!rc) {
        Writer w = writer_open(path);
        rc = write_model(&o, &w, err) || dev_check(m->net.dev, err);
        if (rc) writer_cancel(&w);
        else rc = writer_close(&w, err);
    }
    for (int i = 0; i < o.n_constant; i++) proto_free(&o.constant[i].head);
    proto_free(&o.graph);
    free(o.constant);
    free(o.act);
    return rc;
}
