// pass.c - a network in one mode: where its tensors live, and its two directions (pass_forward,
// pass_backward_last). See net.h.
#include "net/net.h"
#include <string.h>

// ---- where everything lives -------------------------------------------------------------------
// Time runs 0 .. n-1 in the forward pass and n .. 2n-1 in the backward pass. A tensor is born when
// first written and dies when last read. What the backward pass reads depends on the gradients
// wanted, so a pass that wants fewer needs less memory. Images are the caller's and are not
// planned.

typedef struct {
    PlanBlock *b;
    int n, *act, *grad, *stat;
} Layout;

static int add_block(Layout *l, int t, size_t bytes) {
    l->b[l->n] = (PlanBlock){ t, t, (bytes + 255) & ~(size_t)255, 0 };
    return l->n++;
}

static void alive_at(Layout *l, int id, int t) {
    if (id >= 0 && l->b[id].dies < t) l->b[id].dies = t;
}

static int is_plain(const Net *net, int act) {
    for (int i = 0; i < net->n_op; i++)
        if (net->op[i].y == act && (net->op[i].kind == OP_POOL || net->op[i].kind == OP_RESIZE))
            return 1;
    return act == 0 || act == net->n_act - 1;
}

static size_t act_bytes(const Pass *p, int i) {
    const Tensor *t = &p->act[i];
    if (is_plain(p->net, i) || !p->net->dev) return tensor_len(t) * sizeof(real);
    return p->net->dev->be.tensor_bytes(p->net->dev, t);
}

static void plan_down(Layout *l, const Pass *p) {
    const Net *net = p->net;
    const int n = net->n_op;
    for (int i = 0; i < n; i++) {
        const Op *op = &net->op[i];
        const int up = 2 * n - 1 - i, keep_x = op->kind == OP_NORM ? p->mode & (WANT_DX | WANT_DW)
                                               : op->kind == OP_CONV ? p->mode & WANT_DW
                                                                     : 0;
        if (l->act[op->y] < 0) l->act[op->y] = add_block(l, i, act_bytes(p, op->y));
        alive_at(l, l->act[op->x], keep_x ? up : i);
        if (op->r >= 0) alive_at(l, l->act[op->r], i);
        if (op->stat < 0) continue;
        l->stat[i] = add_block(l, i, 2 * (size_t)p->act[op->x].c * sizeof(real));
        if (keep_x) alive_at(l, l->stat[i], up);
    }
    alive_at(l, l->act[net->n_act - 1], n);                    // the loss reads the logits
    alive_at(l, l->act[net->features], n);
}

static void plan_up(Layout *l, const Pass *p) {
    const Net *net = p->net;
    const int n = net->n_op, out = net->n_act - 1;
    l->grad[out] = add_block(l, n, act_bytes(p, out));           // the loss writes their gradient
    for (int i = n - 1; i >= 0; i--) {
        const Op *op = &net->op[i];
        const int t = 2 * n - 1 - i;
        alive_at(l, l->grad[op->y], t);
        if (op->x == 0 && !(p->mode & WANT_DX)) continue;
        if (!op->add_dx) l->grad[op->x] = add_block(l, t, act_bytes(p, op->x));
        alive_at(l, l->grad[op->x], t);
        if (op->r >= 0) l->grad[op->r] = l->grad[op->x];         // x + r: one gradient for both
    }
    if (p->mode & WANT_DX) alive_at(l, l->grad[0], 2 * n);
}

static int plan(Pass *p, int share, Err *err) {
    const Net *net = p->net;
    const size_t acts = (size_t)net->n_act, ops = (size_t)net->n_op;
    Arena a = { 0 };
    Layout l = { .b = arena_alloc(&a, 2 * acts + ops, sizeof *l.b),
                 .act = arena_alloc(&a, acts, sizeof(int)),
                 .grad = arena_alloc(&a, acts, sizeof(int)),
                 .stat = arena_alloc(&a, ops, sizeof(int)) };
    if (arena_ok(&a, "a pass's memory plan", err)) {
        arena_free(&a);
        return -1;
    }
    for (size_t i = 0; i < acts; i++) l.act[i] = l.grad[i] = -1;
    for (size_t i = 0; i < ops; i++) l.stat[i] = -1;
    plan_down(&l, p);
    if (p->mode & (WANT_DX | WANT_DW)) plan_up(&l, p);
    p->bytes = plan_blocks(l.b, l.n, share);
    for (size_t i = 0; i < acts; i++) p->act_off[i] = l.act[i] < 0 ? (size_t)-1 : l.b[l.act[i]].off;
    for (size_t i = 0; i < acts; i++)
        p->grad_off[i] = l.grad[i] < 0 ? (size_t)-1 : l.b[l.grad[i]].off;
    for (size_t i = 0; i < ops; i++)
        p->stat_off[i] = l.stat[i] < 0 ? (size_t)-1 : l.b[l.stat[i]].off;
    arena_free(&a);
    return 0;
}

int pass_plan(Pass *p, Net *net, int batch, int mode, int share, Err *err) {
    const size_t acts = (size_t)net->n_act, ops = (size_t)net->n_op;
    *p = (Pass){ .net = net, .dev = net->dev, .mode = mode, .batch = batch };
    if (net->forward_only && mode & (WANT_DX | WANT_DW))
        return err_set(err, ERR_ARG, "this network has no gradients: it is for inference alone");
    p->act = arena_alloc(&p->arena, acts, sizeof *p->act);
    p->grad = arena_alloc(&p->arena, acts, sizeof *p->grad);
    p->conv = arena_alloc(&p->arena, ops, sizeof *p->conv);
    p->norm = arena_alloc(&p->arena, ops, sizeof *p->norm);
    p->act_off = arena_alloc(&p->arena, acts, sizeof(size_t));
    p->grad_off = arena_alloc(&p->arena, acts, sizeof(size_t));
    p->stat_off = arena_alloc(&p->arena, ops, sizeof(size_t));
    if (arena_ok(&p->arena, "a pass", err)) return -1;
    for (size_t i = 0; i < acts; i++) {
        p->act[i] = net->act[i];
        p->act[i].n = batch;
        p->grad[i] = p->act[i];
    }
    return plan(p, share, err);
}

static void open_conv(Pass *p, int i) {
    Net *net = p->net;
    const Op *op = &net->op[i];
    p->conv[i] = (Conv){ .x = p->act[op->x],
                         .y = p->act[op->y],
                         .size = op->size,
                         .size_w = op->size_w,
                         .stride = op->stride,
                         .pad = op->pad,
                         .pad_w = op->pad_w,
                         .relu = op->relu,
                         .x_plain = is_plain(net, op->x),
                         .y_plain = is_plain(net, op->y),
                         .want = p->mode & (WANT_DX | WANT_DW),
                         .run_few = p->mode & RUN_FEW,
                         .filter = &net->filter[op->filter] };
    if (op->x == 0 && !(p->mode & WANT_DX)) p->conv[i].want &= WANT_DW;
    else if (p->mode & WANT_DW) p->conv[i].want |= WANT_DX;
    net->dev->be.conv_open(net->dev, &p->conv[i]);
    net->dev->conv_at++;
}

int pass_open(Pass *p, Net *net, int batch, int mode, Err *err) {
    if (pass_plan(p, net, batch, mode, 1, err)) return -1;
    dev_search_begin(net->dev, net->n_filter);
    for (int i = 0; i < net->n_op; i++)
        if (net->op[i].kind == OP_CONV) open_conv(p, i);
    if (dev_search_end(net->dev, err)) return -1;
    net_changed(net);                                // packed copies that were just made are empty
    return dev_check(net->dev, err);
}

static void *at(void *mem, size_t off) { return off == (size_t)-1 ? NULL : (char *)mem + off; }

void pass_bind(Pass *p, void *mem) {
    const Net *net = p->net;
    for (int i = 0; i < net->n_act; i++) {
        p->act[i].p = at(mem, p->act_off[i]);
        p->grad[i].p = at(mem, p->grad_off[i]);
    }
    for (int i = 0; i < net->n_op; i++) {
        const Op *op = &net->op[i];
        if (op->kind != OP_NORM) continue;
        p->norm[i] = (Norm){
            .eps = net->eps, .momentum = net->momentum, .leak = net->leak, .add_dx = op->add_dx
        };
        if (op->stat < 0) continue;
        const Stat *s = &net->stat[op->stat];
        Norm *o = &p->norm[i];
        o->batch_stats = !(p->mode & STATS_RUNNING);
        o->update = o->batch_stats && (p->mode & STATS_UPDATE);
        o->gamma = net->w + net->par[op->w].off;
        o->beta = net->w + net->par[op->b].off;
        o->run_mean = net->state + s->off;
        o->run_var = o->run_mean + s->len;
        o->mean = at(mem, p->stat_off[i]);
        o->rstd = o->mean + s->len;
    }
}

void pass_close(Pass *p) {
    for (int i = 0; p->conv && i < p->net->n_op; i++)
        if (p->conv[i].impl) p->dev->be.conv_close(p->dev, &p->conv[i]);
    if (p->sync_room) p->dev->be.free(p->dev, p->sync_room);
    arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

// ---- running -----------------------------------------------------------------------------------

void pass_forward(Pass *p, void *x) {
    Net *net = p->net;
    Dev *dev = p->dev;
    p->act[0].p = x;
    for (int i = 0; i < net->n_op; i++) {
        const Op *op = &net->op[i];
        Tensor *in = &p->act[op->x], *y = &p->act[op->y];
        switch (op->kind) {
        case OP_CONV:
            dev->be.conv_fwd(dev, &p->conv[i], in, net->w + net->par[op->b].off, y);
            break;
        case OP_NORM: {
            const Tensor *r = op->r < 0 ? NULL : &p->act[op->r];
            if (p->sync && p->norm[i].batch_stats) sync_norm_fwd(p, &p->norm[i], in, r, y);
            else dev->be.norm_fwd(dev, &p->norm[i], in, r, y);
            break;
        }
        case OP_POOL: dev->be.pool_fwd(dev, in, y); break;
        case OP_WINDOW:
            dev->be.window_fwd(dev, (Pool){ op->pool, op->size, op->stride, op->pad }, in, y);
            break;
        case OP_CONCAT: dev->be.concat(dev, in, y, op->at); break;
        case OP_RESIZE: dev->be.resize(dev, in, y); break;
        }
    }
    net->batches += p->mode & STATS_UPDATE && !(p->mode & STATS_RUNNING);
}

static size_t param_end(const Net *net, int par) {
    return par < 0 ? 0 : net->par[par].off + net->par[par].len;
}

// The gradients from here on are complete after the backward pass of op i: those of earlier ops lie
// before.
static size_t complete_from(const Net *net, int i) {
    size_t end = 0;
    while (--i >= 0) {
        if (param_end(net, net->op[i].w) > end) end = param_end(net, net->op[i].w);
        if (param_end(net, net->op[i].b) > end) end = param_end(net, net->op[i].b);
    }
    return end;
}

// Sums the gradients that are complete after op i, if they fill a bucket or are the last. *end is
// where those begin that were summed before.
static void reduce_bucket(const Pass *p, Comm *comm, int i, size_t *end) {
    enum { BUCKET = 4 << 20 };                                 // reals
    const size_t from = complete_from(p->net, i);
    if (*end - from < BUCKET && i > 0) return;
    comm_reduce(comm, p->dev, p->net->dw + from, *end - from, REDUCE_SUM);
    *end = from;
}

void pass_backward(Pass *p) { pass_backward_last(p, NULL); }

void pass_backward_last(Pass *p, Comm *comm) {
    const Net *net = p->net;
    Dev *dev = p->dev;
    const int want_dw = p->mode & WANT_DW;
    size_t reduced = net->n_w;
    for (int i = net->n_op - 1; i >= 0; i--) {
        const Op *op = &net->op[i];
        const Tensor *x = &p->act[op->x], *dy = &p->grad[op->y];
        Tensor *dx = p->grad[op->x].p ? &p->grad[op->x] : NULL;
        real *dw = want_dw && op->w >= 0 ? net->dw + net->par[op->w].off : NULL;
        real *db = want_dw && op->b >= 0 ? net->dw + net->par[op->b].off : NULL;
        switch (op->kind) {
        case OP_CONV:
            if (op->bias_lost && !(p->mode & STATS_RUNNING)) db = NULL;     // exactly zero
            if (dw) dev->be.conv_dw(dev, &p->conv[i], x, dy, dw, db);
            if (dx) dev->be.conv_dx(dev, &p->conv[i], dy, dx);
            break;
        case OP_NORM:
            if (p->sync && p->norm[i].batch_stats) sync_norm_bwd(p, &p->norm[i], x, dy, dx, dw, db);
            else dev->be.norm_bwd(dev, &p->norm[i], x, dy, dx, dw, db);
            break;
        case OP_POOL: dev->be.pool_bwd(dev, dy, dx); break;
        default: break;                                        // forward_only: pass_plan refuses
        }
        if (comm) reduce_bucket(p, comm, i, &reduced);
    }
}

Tensor *pass_logits(Pass *p) { return &p->act[p->net->n_act - 1]; }
Tensor *pass_logits_grad(Pass *p) { return &p->grad[p->net->n_act - 1]; }
Tensor *pass_input_grad(Pass *p) { return &p->grad[0]; }
