// chain_length.c - see chain_length.h.
#include "jem/chain_length.h"
#include "jem/metrics.h"
#include <math.h>
#include <string.h>

int chain_length_open(ChainLength *l, Dev *dev, const Config *c, int rows, int classes, Err *err) {
    *l = (ChainLength){ .most = c->steps_max,
                        .limit = c->steps_auroc,
                        .auroc = 0.5,
                        .dev = dev,
                        .batch = c->batch,
                        .rows = rows,
                        .classes = classes };
    if (!l->most) return 0;
    const size_t n = 2 * (size_t)rows, both = 2 * (size_t)c->batch;
    l->seen = arena_alloc(&l->arena, n * (size_t)classes, sizeof *l->seen);
    l->own = arena_alloc(&l->arena, n, sizeof *l->own);
    l->all = arena_alloc(&l->arena, both, sizeof *l->all);
    l->fx = arena_alloc(&l->arena, both, sizeof *l->fx);
    l->fxq = l->fx + c->batch;
    if (arena_ok(&l->arena, "the AUROC of a batch", err)) return -1;
    l->logits = dev->be.alloc(dev, n * (size_t)classes * sizeof(real), "logits of a batch");
    if (dev_check(dev, err)) return -1;
    dev->be.zero(dev, l->logits, n * (size_t)classes * sizeof(real));
    return 0;
}

void chain_length_close(ChainLength *l) {
    if (l->logits) l->dev->be.free(l->dev, l->logits);
    arena_free(&l->arena);
    memset(l, 0, sizeof *l);
}

void chain_length_keep(ChainLength *l, int sampled, const Tensor *logits) {
    const size_t n = (size_t)l->rows * (size_t)l->classes;
    l->dev->be.copy(l->dev, l->logits + (sampled ? n : 0), logits->p, n * sizeof(real));
}

static double lse_of(const real *z, int n) {
    double sum = 0, top = (double)z[0];
    for (int k = 1; k < n; k++) top = fmax(top, (double)z[k]);
    for (int k = 0; k < n; k++) sum += exp((double)z[k] - top);
    return top + log(sum);
}

// f of all ranks' images, the same on every rank. Nonzero: one is not finite.
static int collect(ChainLength *l, Comm *comm) {
    const size_t n = (size_t)l->rows, bytes = 2 * n * sizeof *l->own;
    const int ranks = l->batch / l->rows;
    int bad = 0;
    l->dev->be.copy_out(l->dev, l->seen, l->logits, 2 * n * (size_t)l->classes * sizeof *l->seen);
    for (size_t i = 0; i < 2 * n; i++)
        l->own[i] = lse_of(l->seen + i * (size_t)l->classes, l->classes);
    if (comm) comm_gather(comm, l->own, l->all, bytes);
    else memcpy(l->all, l->own, bytes);
    for (int r = 0; r < ranks; r++) {
        memcpy(l->fx + (size_t)r * n, l->all + 2 * (size_t)r * n, n * sizeof *l->fx);
        memcpy(l->fxq + (size_t)r * n, l->all + (2 * (size_t)r + 1) * n, n * sizeof *l->fxq);
    }
    for (int i = 0; i < 2 * l->batch; i++) bad |= !isfinite(l->all[i]);
    return bad;
}

// The mean covers about the last hundred steps. It starts again after a lengthening, so that
// chains get longer once more only if the AUROC stays above its limit.
int chain_length_next(ChainLength *l, int steps, Comm *comm) {
    const double keep = 0.9;
    Detection d;
    if (collect(l, comm)) return steps;
    detect(&d, l->fx, (size_t)l->batch, l->fxq, (size_t)l->batch);
    l->auroc = keep * l->auroc + (1 - keep) * d.auroc;
    if (steps >= l->most || !(l->auroc > l->limit)) return steps;
    l->auroc = 0.5;
    return steps + 1;
}
