// net.c - networks as lists of ops: their parameters, weights and size. pass.c runs them.
#include "net/net.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

int net_parse(NetSpec *spec, const char *model, Err *err) {
    int depth = 0, width = 0, end = 0;
    if (sscanf(model, "wrn-%4d-%3d%n", &depth, &width, &end) != 2 || model[end])
        return err_set(err, ERR_ARG,
                       "model '%s' is not of the form wrn-DEPTH-WIDTH, as in wrn-28-10", model);
    spec->depth = depth;
    spec->width = width;
    return 0;
}

static int spec_check(const NetSpec *s, Err *err) {
    if (s->depth < 10 || s->depth > 1000 || (s->depth - 4) % 6)
        return err_set(err, ERR_ARG,
                       "depth %d: expected 6n + 4 from 10 to 1000 (10, 16, 22, 28, ...)", s->depth);
    if (s->width < 1 || s->width > 64)
        return err_set(err, ERR_ARG, "width %d: expected 1 to 64", s->width);
    if (s->channels != 1 && s->channels != 3)
        return err_set(err, ERR_ARG, "%d image channels: expected 1 or 3", s->channels);
    if (s->side < 4 || s->side > 256 || s->side % 4)
        return err_set(err, ERR_ARG, "images of %dx%d pixels: expected a multiple of 4 up to 256",
                       s->side, s->side);
    if (s->classes < 2 || s->classes > 1000)
        return err_set(err, ERR_ARG, "%d class%s: expected 2 to 1000", s->classes,
                       s->classes == 1 ? "" : "es");
    return 0;
}

int net_build(Net *net, const NetSpec *spec, Err *err) {
    memset(net, 0, sizeof *net);
    net->spec = *spec;
    net->eps = (real)1e-5;
    net->leak = (real)0.2;
    net->momentum = (real)0.1;
    if (spec_check(spec, err)) return -1;
    if (!wrn_build(net, err)) return 0;
    net_free(net);
    return -1;
}

int net_reserve(Net *net, int n, Err *err) {
    const size_t ops = (size_t)n;
    net->op = arena_alloc(&net->arena, ops, sizeof *net->op);
    net->act = arena_alloc(&net->arena, ops + 1, sizeof *net->act);
    net->par = arena_alloc(&net->arena, 2 * ops, sizeof *net->par);
    net->stat = arena_alloc(&net->arena, ops, sizeof *net->stat);
    net->filter = arena_alloc(&net->arena, ops, sizeof *net->filter);
    return arena_ok(&net->arena, "the network's list of ops", err);
}

int net_param(Net *net, const char *module, const char *part, const int *dim, int rank,
              int fan_in) {
    Param *p = &net->par[net->n_par];
    *p = (Param){ .rank = rank, .off = net->n_w, .len = 1, .fan_in = fan_in };
    snprintf(p->name, sizeof p->name, "%s.%s", module, part);
    for (int i = 0; i < rank; i++) p->len *= (size_t)(p->dim[i] = dim[i]);
    net->n_w += p->len;
    return net->n_par++;
}

int net_op(Net *net, Op op, int c, int h, int w) {
    // On the way up this op comes before every earlier reader of its inputs: it stores their
    // gradients, and the earlier ones, which are norms, add.
    for (int i = 0; i < net->n_op; i++)
        if (net->op[i].x == op.x || (op.r >= 0 && net->op[i].x == op.r)) net->op[i].add_dx = 1;
    op.y = net->n_act;
    net->op[net->n_op++] = op;
    net->act[net->n_act] = (Tensor){ 1, c, h, w, NULL };
    return net->n_act++;
}

int net_alloc(Net *net, Dev *dev, Err *err) {
    net->dev = dev;
    net->w = dev->be.alloc(dev, net->n_w * sizeof(real), "weights");
    if (!net->forward_only)
        net->dw = dev->be.alloc(dev, net->n_w * sizeof(real), "gradients of the weights");
    net->state = dev->be.alloc(dev, (net->n_state + 1) * sizeof(real), "norm statistics");
    if (dev_check(dev, err)) return -1;
    for (int i = 0; i < net->n_op; i++)
        if (net->op[i].kind == OP_CONV)
            net->filter[net->op[i].filter].w = net->w + net->par[net->op[i].w].off;
    return 0;
}

// Convolutions: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), biases too; gamma 1, beta 0;
// mean 0, variance 1.
int net_init(Net *net, uint64_t seed, Err *err) {
    Arena a = { 0 };
    real *w = arena_alloc(&a, net->n_w, sizeof *w),
         *state = arena_alloc(&a, net->n_state + 1, sizeof *state);
    if (arena_ok(&a, "initial weights", err)) {
        arena_free(&a);
        return -1;
    }
    for (int i = 0; i < net->n_par; i++) {
        const Param *p = &net->par[i];
        const Rng key = { .seed = seed, .stream = RNG_INIT, .step = (uint32_t)i };
        const double bound = p->fan_in > 0 ? 1 / sqrt((double)p->fan_in) : 0;
        for (size_t k = 0; k < p->len; k++)
            w[p->off + k] = p->fan_in > 0 ? (real)(bound * (2 * (double)rng_uniform(key, k) - 1))
                                          : (real)(p->fan_in == 0);
    }
    for (int i = 0; i < net->n_stat; i++)
        for (size_t k = 0; k < net->stat[i].len; k++)
            state[net->stat[i].off + net->stat[i].len + k] = 1;
    net->dev->be.copy_in(net->dev, net->w, w, net->n_w * sizeof *w);
    net->dev->be.copy_in(net->dev, net->state, state, net->n_state * sizeof *state);
    net->batches = 0;
    net_changed(net);
    arena_free(&a);
    return dev_check(net->dev, err);
}

void net_changed(Net *net) { net->dev->be.filters_pack(net->dev, net->filter, net->n_filter); }

void net_zero_grad(Net *net) { net->dev->be.zero(net->dev, net->dw, net->n_w * sizeof(real)); }

void net_free(Net *net) {
    if (net->dev) {
        for (int i = 0; i < net->n_filter; i++)
            net->dev->be.filter_close(net->dev, &net->filter[i]);
        net->dev->be.free(net->dev, net->w);
        net->dev->be.free(net->dev, net->dw);
        net->dev->be.free(net->dev, net->state);
    }
    arena_free(&net->arena);
    memset(net, 0, sizeof *net);
}

uint64_t op_macs(const Net *net, const Op *op) {
    if (op->kind != OP_CONV) return 0;
    const Tensor *y = &net->act[op->y];
    return (uint64_t)tensor_len(y) * (uint64_t)net->act[op->x].c *
           (uint64_t)(op->size * op->size_w);
}

uint64_t net_macs(const Net *net) {
    uint64_t macs = 0;
    for (int i = 0; i < net->n_op; i++) macs += op_macs(net, &net->op[i]);
    return macs;
}

void op_describe(const Net *net, const Op *op, char *dst, size_t n) {
    const Tensor *x = &net->act[op->x], *y = &net->act[op->y];
    switch (op->kind) {
    case OP_CONV:
        snprintf(dst, n, "conv %dx%d%s  %d -> %d  %dx%d", op->size, op->size_w,
                 op->stride > 1 ? " /2" : "", x->c, y->c, y->h, y->w);
        break;
    case OP_NORM:
        snprintf(dst, n, "%s%s  %d  %dx%d", op->r >= 0 ? "add+" : "",
                 op->w < 0 ? "lrelu" : "norm+lrelu", x->c, x->h, x->w);
        break;
    case OP_POOL: snprintf(dst, n, "mean  %d  %dx%d -> 1x1", x->c, x->h, x->w); break;
    case OP_WINDOW:
        snprintf(dst, n, "%s %dx%d%s  %d  %dx%d", op->pool == POOL_MAX ? "max" : "mean", op->size,
                 op->size, op->stride > 1 ? " /2" : "", x->c, y->h, y->w);
        break;
    case OP_CONCAT: snprintf(dst, n, "concat  %d + %d  %dx%d", op->at, x->c, x->h, x->w); break;
    case OP_RESIZE: snprintf(dst, n, "resize  %dx%d -> %dx%d", x->h, x->w, y->h, y->w); break;
    }
}
