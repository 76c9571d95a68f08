// inception.c - Inception as a list of ops, its weights, and its features batch by batch.
//
// Blocks A to E are those of "Rethinking the Inception Architecture for Computer Vision" (Szegedy
// et al., 2015) as TensorFlow's graph has them: means divide by the pixels that are there, and the
// last block pools with a maximum.
#include "net/inception.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPS = 192, MAX_CONVS = 96 };

// ---- the list -----------------------------------------------------------------------------------

typedef struct {
    Inception *in;
    Net       *net;
    const char *module, *tf;           // the block's name: pytorch-fid's, TensorFlow's
    int        x;                      // the block's input
    int        y, at, total;           // its output: activation (-1: none yet); channels
} InceptionBuilder;

static const Op NO_OP = { .r = -1, .w = -1, .b = -1, .stat = -1, .filter = -1 };

typedef enum { VALID, SAME } Border;   // no padding; as much as keeps the size with stride 1

static int conv(InceptionBuilder *b, int x, const char *name, const char *tf, int out, int size,
                int size_w, int stride, Border border) {
    Net *net = b->net;
    const Tensor t = net->act[x];
    const int pad = border == SAME ? size / 2 : 0, pad_w = border == SAME ? size_w / 2 : 0;
    const int dim[4] = { out, t.c, size, size_w }, fan_in = t.c * size * size_w;
    char module[48];
    snprintf(module, sizeof module, "%s%s%s", b->module, *b->module ? "." : "", name);
    snprintf(b->in->alias[net->n_filter], sizeof *b->in->alias, "%s%s%s", b->tf, *b->tf ? "." : "",
             tf);
    Op op = NO_OP;
    op.kind = OP_CONV;
    op.x = x;
    op.size = size;
    op.size_w = size_w;
    op.stride = stride;
    op.pad = pad;
    op.pad_w = pad_w;
    op.relu = 1;
    op.filter = net->n_filter;
    op.w = net_param(net, module, "conv.weight", dim, 4, fan_in);
    op.b = net_param(net, module, "conv.bias", dim, 1, fan_in);     // what the norm folds into
    net->filter[net->n_filter++] =
        (Filter){ .out = out, .in = t.c, .size = size, .size_w = size_w };
    return net_op(net, op, out, (t.h + 2 * pad - size) / stride + 1,
                  (t.w + 2 * pad_w - size_w) / stride + 1);
}

static int conv1(InceptionBuilder *b, const char *name, const char *tf, int out) {
    return conv(b, b->x, name, tf, out, 1, 1, 1, VALID);
}

static int window(InceptionBuilder *b, int x, PoolKind kind, int stride, Border border) {
    const Tensor t = b->net->act[x];
    Op op = NO_OP;
    op.kind = OP_WINDOW;
    op.x = x;
    op.pool = kind;
    op.size = op.size_w = 3;
    op.stride = stride;
    op.pad = op.pad_w = border == SAME;
    return net_op(b->net, op, t.c, (t.h + 2 * op.pad - 3) / stride + 1,
                  (t.w + 2 * op.pad - 3) / stride + 1);
}

static void block(InceptionBuilder *b, const char *module, const char *tf, int total) {
    b->module = module;
    b->tf = tf;
    b->total = total;
    b->at = 0;
    b->y = -1;
}

// x becomes the next channels of the block's output, which becomes the next block's input.
static void branch(InceptionBuilder *b, int x) {
    Net *net = b->net;
    const Tensor t = net->act[x];
    Op op = NO_OP;
    op.kind = OP_CONCAT;
    op.x = x;
    op.y = b->y;
    op.at = b->at;
    if (b->y < 0) b->y = net_op(net, op, b->total, t.h, t.w);
    else net->op[net->n_op++] = op;
    b->at += t.c;
    if (b->at == b->total) b->x = b->y;
}

static void stem(InceptionBuilder *b) {
    block(b, "", "", 0);
    int x = conv(b, b->x, "Conv2d_1a_3x3", "conv", 32, 3, 3, 2, VALID);
    x = conv(b, x, "Conv2d_2a_3x3", "conv_1", 32, 3, 3, 1, VALID);
    x = conv(b, x, "Conv2d_2b_3x3", "conv_2", 64, 3, 3, 1, SAME);
    x = window(b, x, POOL_MAX, 2, VALID);
    x = conv(b, x, "Conv2d_3b_1x1", "conv_3", 80, 1, 1, 1, VALID);
    x = conv(b, x, "Conv2d_4a_3x3", "conv_4", 192, 3, 3, 1, VALID);
    b->x = window(b, x, POOL_MAX, 2, VALID);
}

static void block_a(InceptionBuilder *b, const char *module, const char *tf, int pool) {
    block(b, module, tf, 64 + 64 + 96 + pool);
    const int in = b->x;
    branch(b, conv1(b, "branch1x1", "conv", 64));
    int x = conv1(b, "branch5x5_1", "tower.conv", 48);
    branch(b, conv(b, x, "branch5x5_2", "tower.conv_1", 64, 5, 5, 1, SAME));
    x = conv1(b, "branch3x3dbl_1", "tower_1.conv", 64);
    x = conv(b, x, "branch3x3dbl_2", "tower_1.conv_1", 96, 3, 3, 1, SAME);
    branch(b, conv(b, x, "branch3x3dbl_3", "tower_1.conv_2", 96, 3, 3, 1, SAME));
    x = window(b, in, POOL_MEAN, 1, SAME);
    branch(b, conv(b, x, "branch_pool", "tower_2.conv", pool, 1, 1, 1, VALID));
}

static void block_b(InceptionBuilder *b, const char *module, const char *tf) {
    const int in = b->x;
    block(b, module, tf, 384 + 96 + b->net->act[in].c);
    branch(b, conv(b, in, "branch3x3", "conv", 384, 3, 3, 2, VALID));
    int x = conv1(b, "branch3x3dbl_1", "tower.conv", 64);
    x = conv(b, x, "branch3x3dbl_2", "tower.conv_1", 96, 3, 3, 1, SAME);
    branch(b, conv(b, x, "branch3x3dbl_3", "tower.conv_2", 96, 3, 3, 2, VALID));
    branch(b, window(b, in, POOL_MAX, 2, VALID));
}

static void block_c(InceptionBuilder *b, const char *module, const char *tf, int c) {
    block(b, module, tf, 4 * 192);
    const int in = b->x;
    branch(b, conv1(b, "branch1x1", "conv", 192));
    int x = conv1(b, "branch7x7_1", "tower.conv", c);
    x = conv(b, x, "branch7x7_2", "tower.conv_1", c, 1, 7, 1, SAME);
    branch(b, conv(b, x, "branch7x7_3", "tower.conv_2", 192, 7, 1, 1, SAME));
    x = conv1(b, "branch7x7dbl_1", "tower_1.conv", c);
    x = conv(b, x, "branch7x7dbl_2", "tower_1.conv_1", c, 7, 1, 1, SAME);
    x = conv(b, x, "branch7x7dbl_3", "tower_1.conv_2", c, 1, 7, 1, SAME);
    x = conv(b, x, "branch7x7dbl_4", "tower_1.conv_3", c, 7, 1, 1, SAME);
    branch(b, conv(b, x, "branch7x7dbl_5", "tower_1.conv_4", 192, 1, 7, 1, SAME));
    x = window(b, in, POOL_MEAN, 1, SAME);
    branch(b, conv(b, x, "branch_pool", "tower_2.conv", 192, 1, 1, 1, VALID));
}

static void block_d(InceptionBuilder *b, const char *module, const char *tf) {
    const int in = b->x;
    block(b, module, tf, 320 + 192 + b->net->act[in].c);
    int x = conv1(b, "branch3x3_1", "tower.conv", 192);
    branch(b, conv(b, x, "branch3x3_2", "tower.conv_1", 320, 3, 3, 2, VALID));
    x = conv1(b, "branch7x7x3_1", "tower_1.conv", 192);
    x = conv(b, x, "branch7x7x3_2", "tower_1.conv_1", 192, 1, 7, 1, SAME);
    x = conv(b, x, "branch7x7x3_3", "tower_1.conv_2", 192, 7, 1, 1, SAME);
    branch(b, conv(b, x, "branch7x7x3_4", "tower_1.conv_3", 192, 3, 3, 2, VALID));
    branch(b, window(b, in, POOL_MAX, 2, VALID));
}

static void block_e(InceptionBuilder *b, const char *module, const char *tf, PoolKind pool) {
    block(b, module, tf, 320 + 2 * 384 + 2 * 384 + 192);
    const int in = b->x;
    branch(b, conv1(b, "branch1x1", "conv", 320));
    int x = conv1(b, "branch3x3_1", "tower_conv", 384);
    branch(b, conv(b, x, "branch3x3_2a", "tower_mixed_conv", 384, 1, 3, 1, SAME));
    branch(b, conv(b, x, "branch3x3_2b", "tower_mixed_conv_1", 384, 3, 1, 1, SAME));
    x = conv1(b, "branch3x3dbl_1", "tower_1_conv", 448);
    x = conv(b, x, "branch3x3dbl_2", "tower_1_conv_1", 384, 3, 3, 1, SAME);
    branch(b, conv(b, x, "branch3x3dbl_3a", "tower_1_mixed_conv", 384, 1, 3, 1, SAME));
    branch(b, conv(b, x, "branch3x3dbl_3b", "tower_1_mixed_conv_1", 384, 3, 1, 1, SAME));
    x = window(b, in, pool, 1, SAME);
    branch(b, conv(b, x, "branch_pool", "tower_2_conv", 192, 1, 1, 1, VALID));
}

static void head(Net *net, int x, int has_logits) {
    Op op = NO_OP;
    op.kind = OP_POOL;
    op.x = x;
    net->features = x = net_op(net, op, INCEPTION_FEATURES, 1, 1);
    if (!has_logits) return;
    const int dim[2] = { INCEPTION_CLASSES, INCEPTION_FEATURES };
    op.kind = OP_CONV;
    op.x = x;
    op.size = op.size_w = op.stride = 1;
    op.filter = net->n_filter;
    op.w = net_param(net, "fc", "weight", dim, 2, INCEPTION_FEATURES);
    op.b = net_param(net, "fc", "bias", dim, 1, INCEPTION_FEATURES);
    net->filter[net->n_filter++] =
        (Filter){ .out = INCEPTION_CLASSES, .in = INCEPTION_FEATURES, .size = 1, .size_w = 1 };
    net_op(net, op, INCEPTION_CLASSES, 1, 1);
}

static int build(Inception *in, Err *err) {
    Net *net = &in->net;
    net->forward_only = 1;
    in->alias = arena_alloc(&net->arena, MAX_CONVS, sizeof *in->alias);
    if (net_reserve(net, MAX_OPS, err)) return -1;
    net->act[net->n_act++] = (Tensor){ 1, 3, in->h, in->w, NULL };
    InceptionBuilder b = { .in = in, .net = net };
    Op op = NO_OP;
    op.kind = OP_RESIZE;
    b.x = net_op(net, op, 3, INCEPTION_SIDE, INCEPTION_SIDE);
    stem(&b);
    block_a(&b, "Mixed_5b", "mixed", 32);
    block_a(&b, "Mixed_5c", "mixed_1", 64);
    block_a(&b, "Mixed_5d", "mixed_2", 64);
    block_b(&b, "Mixed_6a", "mixed_3");
    block_c(&b, "Mixed_6b", "mixed_4", 128);
    block_c(&b, "Mixed_6c", "mixed_5", 160);
    block_c(&b, "Mixed_6d", "mixed_6", 160);
    block_c(&b, "Mixed_6e", "mixed_7", 192);
    block_d(&b, "Mixed_7a", "mixed_8");
    block_e(&b, "Mixed_7b", "mixed_9", POOL_MEAN);
    block_e(&b, "Mixed_7c", "mixed_10", POOL_MAX);
    head(net, b.x, in->has_logits);
    return 0;
}

// ---- weights ------------------------------------------------------------------------------------

enum { GAMMA, BETA, MEAN, VAR, N_STAT };

typedef struct {
    Inception *in;
    const InceptionWeights *from;
    int    script;                     // names are the TorchScript file's
    float *w;                          // all parameters, as Net.w has them
    float *stat[N_STAT];               // of one norm
} Loader;

static int wanted(const Loader *l, const char *name, int rank, const int *dim, float *dst,
                  Err *err) {
    const int rc = l->from->read(l->from->ctx, name, rank, dim, dst, err);
    return rc > 0 ? err_set(err, ERR_DATA, "Inception's weights lack '%s'", name) : rc;
}

// A convolution and its norm: y = w x scale + beta - mean scale, scale = gamma / sqrt(var + eps).
static int load_conv(const Loader *l, const Op *op, Err *err) {
    static const char *const ours[N_STAT] = { "bn.weight", "bn.bias", "bn.running_mean",
                                              "bn.running_var" };
    static const char *const script[N_STAT] = { "gamma", "beta", "mean", "var" };
    const Param *w = &l->in->net.par[op->w], *b = &l->in->net.par[op->b];
    const char *dot = strstr(w->name, ".conv.weight");
    char module[64], name[96];
    if (l->script) snprintf(module, sizeof module, "net.layers.%s", l->in->alias[op->filter]);
    else snprintf(module, sizeof module, "%.*s", (int)(dot - w->name), w->name);
    snprintf(name, sizeof name, "%s.%s", module, l->script ? "weight" : "conv.weight");
    if (wanted(l, name, 4, w->dim, l->w + w->off, err)) return -1;
    for (int i = 0; i < N_STAT; i++) {
        snprintf(name, sizeof name, "%s.%s", module, l->script ? script[i] : ours[i]);
        const int rc = i == GAMMA ? l->from->read(l->from->ctx, name, 1, b->dim, l->stat[i], err)
                                  : wanted(l, name, 1, b->dim, l->stat[i], err);
        if (rc < 0) return -1;
        for (size_t k = 0; rc > 0 && k < b->len; k++) l->stat[i][k] = 1;   // TensorFlow's has none
    }
    const size_t each = w->len / b->len;
    for (size_t o = 0; o < b->len; o++) {
        const double var = (double)l->stat[VAR][o] + 0.001;
        if (!(var > 0))
            return err_set(err, ERR_DATA, "Inception's weights: %s[%zu] is %g, not a variance",
                           name, o, (double)l->stat[VAR][o]);
        const double scale = (double)l->stat[GAMMA][o] / sqrt(var);
        float *row = l->w + w->off + o * each;
        for (size_t k = 0; k < each; k++) row[k] = (float)((double)row[k] * scale);
        l->w[b->off + o] = (float)((double)l->stat[BETA][o] - (double)l->stat[MEAN][o] * scale);
    }
    return 0;
}

static int load_head(const Loader *l, const Op *op, Err *err) {
    const Param *w = &l->in->net.par[op->w], *b = &l->in->net.par[op->b];
    memset(l->w + b->off, 0, b->len * sizeof(float));   // the score is defined without it
    return wanted(l, w->name, 2, w->dim, l->w + w->off, err);
}

static int upload(Net *net, const float *w, Err *err) {
    real *room = sizeof(real) == sizeof(float) ? NULL : malloc(net->n_w * sizeof *room);
    if (sizeof(real) != sizeof(float) && !room)
        return err_set(err, ERR_MEM, "out of memory for Inception's weights");
    for (size_t i = 0; room && i < net->n_w; i++) room[i] = (real)w[i];
    net->dev->be.copy_in(net->dev, net->w, room ? (const void *)room : w, net->n_w * sizeof(real));
    free(room);
    return dev_check(net->dev, err);
}

static int load(Inception *in, const InceptionWeights *from, int script, Err *err) {
    Net *net = &in->net;
    Arena a = { 0 };
    Loader l = { .in = in, .from = from, .script = script };
    l.w = arena_alloc(&a, net->n_w, sizeof *l.w);
    for (int i = 0; i < N_STAT; i++) l.stat[i] = arena_alloc(&a, INCEPTION_FEATURES, sizeof(float));
    int rc = arena_ok(&a, "Inception's weights", err);
    for (int i = 0; !rc && i < net->n_op; i++)
        if (net->op[i].kind == OP_CONV)
            rc = (net->op[i].relu ? load_conv : load_head)(&l, &net->op[i], err);
    if (!rc) rc = upload(net, l.w, err);
    arena_free(&a);
    return rc;
}

// What the source has: the names of the TorchScript file or not, a softmax or not.
static int probe(Inception *in, const InceptionWeights *from, int *script, Err *err) {
    const int first[4] = { 32, 3, 3, 3 }, fc[2] = { INCEPTION_CLASSES, INCEPTION_FEATURES };
    const size_t len = (size_t)INCEPTION_CLASSES * INCEPTION_FEATURES;
    float *room = malloc(len * sizeof *room);
    if (!room) return err_set(err, ERR_MEM, "out of memory for Inception's weights");
    static const char *const name[] = { "Conv2d_1a_3x3.conv.weight", "net.layers.conv.weight" };
    int rc = 1, soft = -1;
    for (*script = -1; rc > 0 && *script < 1;)
        rc = from->read(from->ctx, name[++*script], 4, first, room, err);
    if (rc > 0)
        err_set(err, ERR_DATA, "these are not Inception's weights: neither '%s' nor '%s' is there",
                name[0], name[1]);
    else if (!rc) soft = from->read(from->ctx, "fc.weight", 2, fc, room, err);
    in->has_logits = soft == 0;
    free(room);
    return soft < 0 ? -1 : 0;
}

// ---- running ------------------------------------------------------------------------------------

enum { FEW = 8, MAX_SIDE = 8192 };

// Activations take 8 MB an image, so that processors want as few images as keep their threads busy.
static int good_batch(const Dev *dev) {
    if (dev->be.eval_batch >= 256) return dev->be.eval_batch;
    return dev->threads > FEW ? dev->threads : FEW;
}

int inception_open(Inception *in, Dev *dev, const InceptionWeights *weights, int h, int w,
                   int batch, Err *err) {
    *in = (Inception){ .h = h, .w = w, .batch = batch };
    if (h < 1 || w < 1 || h > MAX_SIDE || w > MAX_SIDE)
        return err_set(err, ERR_ARG, "images of %dx%d pixels: expected sides of 1 to %d", h, w,
                       MAX_SIDE);
    if (!batch) in->batch = good_batch(dev);
    int script = 0;
    if (probe(in, weights, &script, err) || build(in, err)) return -1;
    if (net_alloc(&in->net, dev, err) || load(in, weights, script, err)) return -1;
    if (pass_open(&in->pass, &in->net, in->batch, MODE_INFER, err)) return -1;
    in->mem = dev->be.alloc(dev, in->pass.bytes, "Inception's activations");
    in->images =
        dev->be.alloc(dev, (size_t)in->batch * 3 * (size_t)h * (size_t)w, "images for Inception");
    if (dev_check(dev, err)) return -1;
    dev->be.zero(dev, in->images, (size_t)in->batch * 3 * (size_t)h * (size_t)w);
    pass_bind(&in->pass, in->mem);
    return dev_check(dev, err);
}

int inception_start(Inception *in, const uint8_t *images, int n, Err *err) {
    Dev *dev = in->net.dev;
    dev->be.copy_in(dev, in->images, images, (size_t)n * 3 * (size_t)in->h * (size_t)in->w);
    pass_forward(&in->pass, in->images);
    return dev_check(dev, err);
}

int inception_finish(Inception *in, int n, real *features, real *logits, Err *err) {
    Dev *dev = in->net.dev;
    if (logits && !in->has_logits)
        return err_set(err, ERR_ARG, "these Inception weights have no softmax layer (fc.weight)");
    dev->be.copy_out(dev, features, in->pass.act[in->net.features].p,
                     (size_t)n * INCEPTION_FEATURES * sizeof(real));
    if (logits)
        dev->be.copy_out(dev, logits, pass_logits(&in->pass)->p,
                         (size_t)n * INCEPTION_CLASSES * sizeof(real));
    return dev_check(dev, err);
}

void inception_close(Inception *in) {
    Dev *dev = in->net.dev;
    if (in->pass.net) pass_close(&in->pass);
    if (dev) dev->be.free(dev, in->mem);
    if (dev) dev->be.free(dev, in->images);
    net_free(&in->net);
    *in = (Inception){ 0 };
}
