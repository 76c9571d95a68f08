// sync.c - batch normalisation over the parts of several ranks (--sync-bn).
//
// Forward: each rank's statistics, collected, give those of the whole batch, with which the norm
// runs as with running ones. Backward: the same, and its sums over all ranks complete the gradient.
#include "net/net.h"

// Room: every rank's statistics and the joined ones; or this rank's sums and those of all.
int pass_sync(Pass *p, Comm *comm, Err *err) {
    Dev *dev = p->dev;
    size_t most = 1;
    if (!comm) return 0;
    for (int i = 0; i < p->net->n_act; i++)
        if ((size_t)p->act[i].c > most) most = (size_t)p->act[i].c;
    p->sync = comm;
    p->sync_room = dev->be.alloc(dev, 2 * ((size_t)comm->size + 1) * most * sizeof(real),
                                 "norms of all ranks");
    return dev_check(dev, err);
}

void sync_norm_fwd(Pass *p, const Norm *op, Tensor *x, const Tensor *r, Tensor *y) {
    Dev *dev = p->dev;
    const size_t c = (size_t)x->c;
    const int ranks = p->sync->size;
    real *stats = p->sync_room + 2 * c * (size_t)ranks;
    Norm mine = *op, whole = *op;
    mine.update = 0;
    dev->be.norm_fwd(dev, &mine, x, r, y);                   // op->mean and, behind it, op->rstd
    comm_collect(p->sync, dev, op->mean, p->sync_room, 2 * c);
    comm_wait(p->sync, dev);
    dev->be.norm_join(dev, op, x, p->sync_room, ranks, stats);
    whole.batch_stats = whole.update = 0;
    whole.run_mean = stats;
    whole.run_var = stats + c;
    dev->be.norm_fwd(dev, &whole, x, NULL, y);
}

void sync_norm_bwd(Pass *p, const Norm *op, const Tensor *x, const Tensor *dy, Tensor *dx,
                   real *dgamma, real *dbeta) {
    Dev *dev = p->dev;
    const size_t c = (size_t)x->c, bytes = 2 * c * sizeof(real);
    real *mine = p->sync_room, *all = mine + 2 * c;
    Norm whole = *op;
    whole.batch_stats = 0;
    dev->be.zero(dev, mine, bytes);
    dev->be.norm_bwd(dev, &whole, x, dy, dx, mine, mine + c);
    dev->be.copy(dev, all, mine, bytes);
    comm_reduce(p->sync, dev, all, 2 * c, REDUCE_SUM);
    comm_wait(p->sync, dev);
    dev->be.norm_center(dev, op, x, mine, all, p->sync->size, dx, dgamma, dbeta);
}
