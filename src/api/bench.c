// bench.c - see bench.h.
#include "api/bench.h"
#include "base/events.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_out.h"
#include "jem/metrics.h"
#include "run/train_bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, INPUT, WEIGHTS, N_DIR };
static const char *const DIR_NAME[N_DIR] = { "forward", "input gradient", "weight gradients" };
static const char *const DIR_KEY[N_DIR] = { "forward", "dx", "dw" };

// A pass that stops after each direction; the last is what training does.
static const int PASS_MODE[N_DIR] = { 0, MODE_SAMPLE, MODE_TRAIN };
static const char *const PASS_NAME[N_DIR] = { "forward", "forward and input gradient",
                                              "forward and weight gradients" };
static const char *const PASS_KEY[N_DIR] = { "forward", "forward_dx", "forward_dw" };

typedef struct {
    double      ms;                  // 0: not there
    double      work;                // FLOP of a convolution, bytes of a norm
    char        how[64];             // the device's name for it, or ""
} Cell;

typedef struct {                     // ops of one shape
    char what[64];
    int  count, op;                  // op: the first of them
    Cell cell[N_DIR];
} Row;

typedef struct {
    const Config *c;
    NetSpec spec;
    Dev    dev;
    Net    net;
    Pass   ops, pass[N_DIR];         // ops: every gradient of every op
    void  *mem;
    real  *x, *sums;
    Row   *row;
    int    n_row;
    Cell   whole[N_DIR];
    char   device[256];
    double *ms, *cpu_ms;             // of n whole iterations, ascending; processor time
    int    n;
} Bench;

// ---- a stopwatch --------------------------------------------------------------------------

typedef void Work(Bench *b, int i);

// The least of at least 3 runs and some 50 ms of them, after one to warm up: on a busy machine the
// others measure the neighbours.
static double stopwatch(Bench *b, Work *work, int i) {
    enum { MOST = 100 };
    double least = 0, total = 0;
    work(b, i);
    b->dev.be.sync(&b->dev);
    for (int n = 0; n < MOST && (n < 3 || total < 50); n++) {
        const double start = now_seconds();
        work(b, i);
        b->dev.be.sync(&b->dev);
        const double ms = 1e3 * (now_seconds() - start);
        if (!n || ms < least) least = ms;
        total += ms;
    }
    return least;
}

// ---- opening ------------------------------------------------------------------------------

static int open_device(Bench *b, const Events *ev, Err *err) {
    const Config *c = b->c;
    DevOpts o = config_dev(c);
    o.events = ev;
    char note[256];
    if (dev_open(&b->dev, c->device, &o, note, err)) return -1;
    snprintf(b->device, sizeof b->device, "%s: %s", b->dev.be.name, b->dev.be.describe(&b->dev));
    return 0;
}

static int open_passes(Bench *b, Err *err) {
    const int batch = b->c->batch;
    if (pass_open(&b->ops, &b->net, batch, MODE_TRAIN | WANT_DX, err)) return -1;
    size_t most = b->ops.bytes;
    for (int i = 0; i < N_DIR; i++) {
        if (pass_open(&b->pass[i], &b->net, batch, PASS_MODE[i], err)) return -1;
        if (b->pass[i].bytes > most) most = b->pass[i].bytes;
    }
    b->mem = b->dev.be.alloc(&b->dev, most, "activations");
    b->sums = b->dev.be.alloc(&b->dev, N_SUM * sizeof(real), "sums");
    if (dev_check(&b->dev, err)) return -1;
    pass_bind(&b->ops, b->mem);
    for (int i = 0; i < N_DIR; i++) pass_bind(&b->pass[i], b->mem);
    return 0;
}

static int open_images(Bench *b, Err *err) {
    const NetSpec *s = &b->net.spec;
    const size_t n = (size_t)b->c->batch * (size_t)(s->channels * s->side * s->side);
    const Rng key = { .seed = (uint64_t)b->c->seed, .stream = RNG_BENCH };
    real *host = malloc(n * sizeof *host);
    if (!host) return err_set(err, ERR_MEM, "out of memory for %d images", b->c->batch);
    for (size_t i = 0; i < n; i++) host[i] = (real)(2 * rng_uniform(key, i) - 1);
    b->x = b->dev.be.alloc(&b->dev, n * sizeof *host, "images");
    if (b->x) b->dev.be.copy_in(&b->dev, b->x, host, n * sizeof *host);
    free(host);
    return dev_check(&b->dev, err);
}

static int bench_open(Bench *b, const Events *ev, Err *err) {
    if (config_net(&b->spec, b->c, 0, 0, 0, err) || net_build(&b->net, &b->spec, err)) return -1;
    if (open_device(b, ev, err)) return -1;
    if (b->c->ranks && !b->dev.be.ranks_open)
        return err_set(err, ERR_ARG, "--ranks %d: measures NCCL on a GPU, found the device %s",
                       b->c->ranks, b->dev.be.name);
    if (net_alloc(&b->net, &b->dev, err)) return -1;
    if (net_init(&b->net, (uint64_t)b->c->seed, err) || open_passes(b, err)) return -1;
    return open_images(b, err);
}

// Gives the device back but keeps the results: whole iterations open one of their own.
static void bench_release(Bench *b) {
    Dev *dev = &b->dev;
    if (b->ops.net) pass_close(&b->ops);
    for (int i = 0; i < N_DIR; i++)
        if (b->pass[i].net) pass_close(&b->pass[i]);
    if (dev->be.name) {
        dev->be.free(dev, b->mem);
        dev->be.free(dev, b->sums);
        dev->be.free(dev, b->x);
    }
    net_free(&b->net);
    if (dev->be.name) dev_close(dev);
    memset(dev, 0, sizeof *dev);
}

// ---- the work -----------------------------------------------------------------------------

static void run_pass(Bench *b, int i) {
    Pass *p = i < N_DIR ? &b->pass[i] : &b->ops;
    pass_forward(p, b->x);
    if (!(p->mode & (WANT_DX | WANT_DW))) return;
    b->dev.be.head(&b->dev, pass_logits(p), NULL, (Energy){ .a = 1 }, 1 / (real)p->batch,
                   pass_logits_grad(p), b->sums);
    pass_backward(p);
}

// The tensors of one op are all alive at once, so the pass's memory serves an op on its own too.
static void run_forward(Bench *b, int i) {
    Pass *p = &b->ops;
    const Op *op = &b->net.op[i];
    Tensor *x = &p->act[op->x], *y = &p->act[op->y];
    if (op->kind == OP_CONV)
        b->dev.be.conv_fwd(&b->dev, &p->conv[i], x, b->net.w + b->net.par[op->b].off, y);
    else if (op->kind == OP_NORM)
        b->dev.be.norm_fwd(&b->dev, &p->norm[i], x, op->r < 0 ? NULL : &p->act[op->r], y);
}

static void run_input(Bench *b, int i) {
    Pass *p = &b->ops;
    const Op *op = &b->net.op[i];
    const Tensor *dy = &p->grad[op->y];
    if (op->kind == OP_CONV) b->dev.be.conv_dx(&b->dev, &p->conv[i], dy, &p->grad[op->x]);
    else if (op->kind == OP_NORM)
        b->dev.be.norm_bwd(&b->dev, &p->norm[i], &p->act[op->x], dy, &p->grad[op->x], NULL, NULL);
}

static void run_weights(Bench *b, int i) {
    Pass *p = &b->ops;
    const Op *op = &b->net.op[i];
    b->dev.be.conv_dw(&b->dev, &p->conv[i], &p->act[op->x], &p->grad[op->y],
                      b->net.dw + b->net.par[op->w].off, NULL);
}

// ---- measuring ----------------------------------------------------------------------------

// Each tensor counted once: x to y; with a residual also r and x written back; dy and x to dx.
static double norm_bytes(Bench *b, const Op *op, int dir) {
    const double one = (double)b->dev.be.tensor_bytes(&b->dev, &b->ops.act[op->x]);
    return dir == FORWARD ? one * (op->r < 0 ? 2 : 4) : one * (op->add_dx ? 4 : 3);
}

static int measure_op(Bench *b, Row *r, const Events *ev, Err *err) {
    static Work *const work[N_DIR] = { run_forward, run_input, run_weights };
    const Op *op = &b->net.op[r->op];
    for (int d = 0; d < N_DIR; d++) {
        if (op->kind == OP_NORM && d == WEIGHTS) continue;          // part of its backward pass
        if (stopped(ev, err)) return -1;
        r->cell[d].ms = stopwatch(b, work[d], r->op);
        const char *how = op->kind == OP_CONV ? b->ops.conv[r->op].how[d] : NULL;
        snprintf(r->cell[d].how, sizeof r->cell[d].how, "%s", how ? how : "");
        r->cell[d].work = op->kind == OP_CONV ? 2.0 * b->c->batch * (double)op_macs(&b->net, op)
                                              : norm_bytes(b, op, d);
    }
    return 0;
}

static int group_ops(Bench *b, Err *err) {
    int n = 0;
    Row *row = b->row = calloc((size_t)b->net.n_op, sizeof *row);
    if (!row) return err_set(err, ERR_MEM, "out of memory for a table");
    for (int i = 0; i < b->net.n_op; i++) {
        Row new = { .op = i, .count = 1 };
        int k = 0;
        if (b->net.op[i].kind == OP_POOL) continue;
        op_describe(&b->net, &b->net.op[i], new.what, sizeof new.what);
        while (k < n && strcmp(row[k].what, new.what) != 0) k++;
        if (k < n) row[k].count++;
        else row[n++] = new;
    }
    b->n_row = n;
    return 0;
}

static double forward_flop(const Bench *b) { return 2.0 * b->c->batch * (double)net_macs(&b->net); }
static double stem_flop(const Bench *b) {
    return 2.0 * b->c->batch * (double)op_macs(&b->net, &b->net.op[0]);
}

static void tell(const Events *ev, int done, int total, const char *what) {
    tell_progress(ev, (uint64_t)done, (uint64_t)total, "measurements", what);
}

static int measure(Bench *b, const Events *ev, Err *err) {
    const double f = forward_flop(b);
    const double flop[N_DIR] = { f, 2 * f, 3 * f - stem_flop(b) };
    const int total = b->n_row + N_DIR + 1;
    run_pass(b, N_DIR);                                   // real numbers into the ops' memory
    for (int i = 0; i < b->n_row; i++) {
        tell(ev, i, total, b->row[i].what);
        if (measure_op(b, &b->row[i], ev, err)) return -1;
    }
    for (int i = 0; i < N_DIR; i++) {
        tell(ev, b->n_row + i, total, PASS_NAME[i]);
        b->whole[i] = (Cell){ .ms = stopwatch(b, run_pass, i), .work = flop[i] };
        if (stopped(ev, err)) return -1;
    }
    tell(ev, total - 1, total, "whole iterations");
    return dev_check(&b->dev, err);
}

static int measure_iterations(Bench *b, const Events *ev, Err *err) {
    enum { USUAL = 5 };
    b->n = b->c->iterations ? b->c->iterations : USUAL;
    b->ms = calloc((size_t)b->n, sizeof *b->ms);
    b->cpu_ms = calloc((size_t)b->n, sizeof *b->cpu_ms);
    if (!b->ms || !b->cpu_ms) return err_set(err, ERR_MEM, "out of memory for %d iterations", b->n);
    Comm *comm;
    if (comm_open(&comm, b->c->rank_timeout, ev, err)) return -1;
    const int rc = train_bench(b->c, comm, b->n, b->ms, b->cpu_ms, ev, err);
    if (rc) comm_quiet(comm, err);
    comm_close(comm);
    if (rc) return -1;
    sort_numbers(b->ms, (size_t)b->n);
    sort_numbers(b->cpu_ms, (size_t)b->n);
    return 0;
}

// Chains run down and up without weight gradients, each update batch with them.
static double iteration_flop(const Bench *b) {
    const int px = b->c->px, batches = px == PX_NONE ? 1 : px == PX_SHARED ? 2 : 3;
    const double labelled = (double)config_labelled(b->c) / b->c->batch,
                 all = batches - 1 + labelled,
                 few = (double)b->c->sam_images / b->c->batch * batches,
                 updates = b->c->sam > 0 ? all + (few > 0 ? few : all) : all;
    return (px == PX_NONE ? 0 : b->c->steps) * b->whole[INPUT].work +
           updates * b->whole[WEIGHTS].work;
}

// ---- showing ------------------------------------------------------------------------------

static double rate(const Cell *c) {
    return c->ms > 0 ? c->work / c->ms * 1e-6 : 0;
} // giga a second

static void put_row(FILE *f, const Row *r) {
    for (int d = 0; d < N_DIR; d++) {
        const Cell *c = &r->cell[d];
        const int conv = r->cell[WEIGHTS].ms > 0;
        if (c->ms <= 0) continue;
        fprintf(f, "%-30s ", d ? "" : r->what);
        if (d) fprintf(f, "%5s", "");
        else fprintf(f, "%5d", r->count);
        fprintf(f, "  %-16s %9.3f %8.1f %-7s %s\n", conv || !d ? DIR_NAME[d] : "backward", c->ms,
                rate(c), conv ? "GFLOP/s" : "GB/s", c->how);
    }
}

static char *as_text(const Bench *b, Err *err) {
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    FILE *f = out.f;
    const double ms = median(b->ms, (size_t)b->n);
    char px[32], sam[32] = "", labelled[32] = "", whole[128];
    config_value(b->c, config_row("px"), px, sizeof px);
    if (b->c->sam > 0 && b->c->sam_images)
        snprintf(sam, sizeof sam, ", SAM by %d image%s", b->c->sam_images,
                 plural(b->c->sam_images));
    else if (b->c->sam > 0) snprintf(sam, sizeof sam, ", SAM");
    if (config_labelled(b->c) > b->c->batch)
        snprintf(labelled, sizeof labelled, ", %d labelled", config_labelled(b->c));
    snprintf(whole, sizeof whole, "whole iteration, M = %d, px %s%s%s", b->c->steps, px, labelled,
             sam);
    const NetSpec *s = &b->spec;
    fprintf(f, "%s, %dx%dx%d images, %d classes, batch %d; %s\n\n", b->c->model, s->channels,
            s->side, s->side, s->classes, b->c->batch, b->device);
    fprintf(f, "%-30s %5s  %-16s %9s\n", "op", "count", "direction", "ms");
    for (int i = 0; i < b->n_row; i++) put_row(f, &b->row[i]);
    fprintf(f, "\n");
    for (int i = 0; i < N_DIR; i++)
        fprintf(f, "%-53s %9.2f ms %8.1f GFLOP/s\n", PASS_NAME[i], b->whole[i].ms,
                rate(&b->whole[i]));
    fprintf(f, "%-53s %9.2f ms %8.1f GFLOP/s  (median of %d, least %.2f)\n", whole, ms,
            iteration_flop(b) / ms * 1e-6, b->n, b->ms[0]);
    return text_close(&out, err);
}

static void put_cell(JsonOut *j, const char *key, const Cell *c, const char *unit) {
    if (c->ms <= 0) return;
    json_open_object(j, key);
    json_put_double(j, "ms", c->ms);
    json_put_double(j, unit, rate(c));
    if (c->how[0]) json_put_string(j, "how", c->how);
    json_close(j);
}

static char *as_json(const Bench *b, Err *err) {
    JsonOut j = { .indent = 2 };
    char px[32];
    config_value(b->c, config_row("px"), px, sizeof px);
    json_open_object(&j, NULL);
    json_put_string(&j, "model", b->c->model);
    json_put_string(&j, "device", b->device);
    json_put_int(&j, "channels", b->spec.channels);
    json_put_int(&j, "side", b->spec.side);
    json_put_int(&j, "classes", b->spec.classes);
    json_put_int(&j, "batch", b->c->batch);
    json_put_int(&j, "labelled", config_labelled(b->c));
    json_put_int(&j, "steps", b->c->steps);
    json_put_string(&j, "px", px);
    json_put_double(&j, "sam", b->c->sam);
    json_put_int(&j, "sam_images", b->c->sam_images);
    json_open_array(&j, "ops");
    for (int i = 0; i < b->n_row; i++) {
        const Row *r = &b->row[i];
        json_open_object(&j, NULL);
        json_put_string(&j, "op", r->what);
        json_put_int(&j, "count", r->count);
        for (int d = 0; d < N_DIR; d++)
            put_cell(&j, DIR_KEY[d], &r->cell[d], r->cell[WEIGHTS].ms > 0 ? "gflops" : "gbytes");
        json_close(&j);
    }
    json_close(&j);
    json_open_object(&j, "passes");
    for (int i = 0; i < N_DIR; i++) put_cell(&j, PASS_KEY[i], &b->whole[i], "gflops");
    json_close(&j);
    json_put_double(&j, "iteration_ms", median(b->ms, (size_t)b->n));
    json_put_double(&j, "iteration_min_ms", b->ms[0]);
    json_put_double(&j, "iteration_cpu_ms", median(b->cpu_ms, (size_t)b->n));
    json_put_int(&j, "iterations", b->n);
    json_put_double(&j, "iteration_gflops", iteration_flop(b) / median(b->ms, (size_t)b->n) * 1e-6);
    json_close(&j);
    return json_finish(&j, NULL, err);
}

char *bench_text(const Config *c, const Events *ev, Err *err) {
    if (c->inference) return bench_inference(c, ev, err);
    if (c->ranks > 1) {
        err_set(err, ERR_ARG,
                "--ranks %d: expected 1 or 0; mpirun -n %d jempp bench measures several", c->ranks,
                c->ranks);
        return NULL;
    }
    Bench b = { .c = c };
    char *text = NULL;
    const int rc = bench_open(&b, ev, err) || group_ops(&b, err) || measure(&b, ev, err);
    bench_release(&b);
    if (!rc && !measure_iterations(&b, ev, err)) {
        tell(ev, b.n_row + N_DIR + 1, b.n_row + N_DIR + 1, "");
        text = c->json ? as_json(&b, err) : as_text(&b, err);
    }
    free(b.row);
    free(b.ms);
    free(b.cpu_ms);
    return text;
}
