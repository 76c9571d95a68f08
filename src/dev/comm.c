// comm.c - see comm.h.
#include "dev/comm.h"
#include "base/module.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- opening -----------------------------------------------------------------------------------

// How many ranks were started, 1 where this process is alone: Open MPI, MPICH and its relatives and
// Slurm with PMIx each say so in their own way.
static int comm_ranks(void) {
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "MV2_COMM_WORLD_SIZE" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text) return atoi(text) > 1 ? atoi(text) : 1;
    }
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (getenv("PMIX_RANK") && tasks) return atoi(tasks) > 1 ? atoi(tasks) : 1;
    return 1;
}

int comm_own_rank(void) {
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                                         "PMIX_RANK" };
    for (size_t i = 0; comm_ranks() > 1 && i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text) return atoi(text);
    }
    return 0;
}

int comm_open(Comm **c, double timeout, const Events *events, Err *err) {
    CommModule *fill = NULL;
    *c = NULL;
    if (comm_ranks() == 1) return 0;
    if (module_load("mpi", "jempp_comm", (void **)&fill, err))
        return err_prefix(err, "started as one of %d ranks", comm_ranks());
    Comm *me = calloc(1, sizeof *me);
    if (!me) return err_set(err, ERR_MEM, "out of memory for %d ranks", comm_ranks());
    me->timeout = timeout;
    me->events = events;
    if (fill(COMM_ABI, me, err)) {
        free(me);
        return -1;
    }
    *c = me;
    return 0;
}

void comm_close(Comm *c) {
    if (!c) return;
    c->ops->close(c);
    free(c->stage);
    free(c);
}

DevOpts comm_dev(const Comm *c, DevOpts o) {
    if (!c) return o;
    o.unit = c->local_rank;
    if (!o.threads) o.threads = -c->local_size;
    return o;
}

// After a failure to communicate every rank has an error to report, but one message is enough: the
// lowest rank that still runs reports first, and a rank that gets a signal meanwhile stays silent.
// So does a rank that hung and wakes because mpirun ends it, which takes mpirun two seconds.
static void wait_turn(const Comm *c) {
    const struct timespec tenth = { .tv_nsec = 100000000 };
    const int turns = 20 + (c->rank < 30 ? 3 * c->rank : 90);
    for (int i = 0; i < turns && !stop_asked(c->events); i++) nanosleep(&tenth, NULL);
}

// This rank alone is out of memory, so it reports at once.
int comm_check(const Comm *c, Err *err) {
    if (!c || !c->err.kind) return 0;
    if (c->err.kind == ERR_MEM)
        return err_set(err, ERR_MEM, "rank %d of %d: %s", c->rank, c->size, c->err.msg);
    wait_turn(c);
    return err_set(err, c->err.kind, "%s", stop_asked(c->events) ? "" : c->err.msg);
}

// ---- host memory -------------------------------------------------------------------------------

static int exchanges(const Comm *c) { return c && !c->err.kind; }

void comm_gather(Comm *c, const void *mine, void *all, size_t bytes) {
    if (!exchanges(c)) return;
    c->ops->gather(c, mine, all, bytes);
    c->ops->wait(c);
}

void comm_broadcast(Comm *c, void *p, size_t bytes) {
    if (!exchanges(c)) return;
    c->ops->broadcast(c, p, bytes);
    c->ops->wait(c);
}

void *comm_answers(Comm *c, const void *mine, size_t bytes) {
    void *all = calloc((size_t)c->size, bytes);
    if (!all) err_set(&c->err, ERR_MEM, "out of memory for %d ranks", c->size);
    comm_gather(c, mine, all, bytes);
    if (!c->err.kind) return all;
    free(all);
    return NULL;
}

int comm_text(Comm *c, char **text, Err *err) {
    if (!c) return 0;
    uint64_t n = *text ? strlen(*text) + 1 : 0;
    comm_broadcast(c, &n, sizeof n);
    if (c->rank) {
        free(*text);
        *text = n ? malloc(n) : NULL;
    }
    if (comm_agree(c, n && !*text ? err_set(err, ERR_MEM, "out of memory for a text") : 0, err))
        return -1;
    if (n) comm_broadcast(c, *text, n);
    return comm_check(c, err);
}

void comm_begin(Comm *c) {
    if (c) c->agreed = 0;
}

int comm_agree(Comm *c, int rc, Err *err) {
    if (!c || (rc && c->agreed)) return rc;
    int mine = rc != 0, first = -1, *all = comm_answers(c, &mine, sizeof mine);
    if (!all) return rc ? rc : comm_check(c, err);
    for (int r = c->size - 1; r >= 0; r--)
        if (all[r]) first = r;
    free(all);
    c->agreed = first >= 0;
    if (first < 0) return 0;
    // its message to all, by way of everybody's: no other operation sends from a rank that is not 0
    Err why = mine ? *err : (Err){ 0 }, *every = comm_answers(c, &why, sizeof why);
    if (!every) return rc ? rc : comm_check(c, err);
    why = every[first];
    free(every);
    *err = (Err){ 0 };
    return err_set(err, why.kind ? why.kind : ERR_DEV, "rank %d of %d: %s", first, c->size,
                   why.msg);
}

void comm_quiet(const Comm *c, Err *err) {
    if (c && c->rank && c->agreed && !c->err.kind) err->msg[0] = 0;
}

static int part_begin(int n, int batch, int rank, int size) {
    const int64_t batches = ((int64_t)n + batch - 1) / batch;
    const int64_t at = (batches * rank + size - 1) / size * batch;   // rank 0 has the first
    return at < n ? (int)at : n;
}

void comm_part(const Comm *c, int n, int batch, int *first, int *end) {
    *first = part_begin(n, batch, comm_rank(c), comm_size(c));
    *end = part_begin(n, batch, comm_rank(c) + 1, comm_size(c));
}

// Parts differ by one batch at most, so all are sent as the longest is.
void comm_join(Comm *c, void *base, int n, int batch, size_t bytes) {
    if (!c || n <= 0) return;
    const size_t size = (size_t)c->size, batches = ((size_t)n + (size_t)batch - 1) / (size_t)batch,
                 most = (batches / size + 1) * (size_t)batch * bytes;
    char *all = calloc(size + 1, most), *mine = all ? all + most * size : NULL;
    int first, end;
    if (!all) {
        err_set(&c->err, ERR_MEM, "out of memory for the results of %d ranks", c->size);
        return;
    }
    comm_part(c, n, batch, &first, &end);
    memcpy(mine, (char *)base + (size_t)first * bytes, (size_t)(end - first) * bytes);
    comm_gather(c, mine, all, most);
    for (int r = 0; r < c->size; r++) {
        first = part_begin(n, batch, r, c->size);
        end = part_begin(n, batch, r + 1, c->size);
        memcpy((char *)base + (size_t)first * bytes, all + most * (size_t)r,
               (size_t)(end - first) * bytes);
    }
    free(all);
}

// ---- the device's memory -----------------------------------------------------------------------

static real *staged(Comm *c, size_t n) {
    if (n <= c->n_stage) return c->stage;
    free(c->stage);
    c->stage = malloc(n * sizeof *c->stage);
    c->n_stage = c->stage ? n : 0;
    if (!c->stage) err_set(&c->err, ERR_MEM, "out of memory for the exchange between ranks");
    return c->stage;
}

void comm_reduce(Comm *c, Dev *dev, real *p, size_t n, Reduce how) {
    if (!exchanges(c) || !n) return;
    if (dev->linked) {
        dev->be.ranks_reduce(dev, p, n, how == REDUCE_MEAN);
    } else if (dev->be.host_memory) {
        c->ops->reduce(c, p, n, how);
    } else {
        real *host = staged(c, n);
        if (!host) return;
        dev->be.copy_out(dev, host, p, n * sizeof *p);
        c->ops->reduce(c, host, n, how);
        c->ops->wait(c);
        dev->be.copy_in(dev, p, host, n * sizeof *p);
    }
}

void comm_collect(Comm *c, Dev *dev, const real *mine, real *all, size_t n) {
    if (!exchanges(c) || !n) return;
    const size_t size = (size_t)c->size;
    if (dev->linked) {
        dev->be.ranks_gather(dev, mine, all, n);
    } else if (dev->be.host_memory) {
        c->ops->gather(c, mine, all, n * sizeof *all);
    } else {
        real *host = staged(c, n * (size + 1));
        if (!host) return;
        dev->be.copy_out(dev, host + n * size, mine, n * sizeof *all);
        c->ops->gather(c, host + n * size, host, n * sizeof *all);
        c->ops->wait(c);
        dev->be.copy_in(dev, all, host, n * size * sizeof *all);
    }
}

void comm_wait(Comm *c, Dev *dev) {
    if (!c) return;
    if (dev->linked) dev->be.ranks_wait(dev);
    else c->ops->wait(c);
}

void comm_copy(Comm *c, Dev *dev, void *p, size_t bytes) {
    enum { PIECE = 1 << 24 };                               // reals
    if (!c) return;
    for (size_t at = 0; at < bytes; at += PIECE * sizeof(real)) {
        const size_t m = bytes - at < PIECE * sizeof(real) ? bytes - at : PIECE * sizeof(real);
        real *host = staged(c, (m + sizeof(real) - 1) / sizeof(real));
        if (!host) return;
        dev->be.copy_out(dev, host, (char *)p + at, m);
        comm_broadcast(c, host, m);
        if (c->rank) dev->be.copy_in(dev, (char *)p + at, host, m);
    }
}

int comm_records(const Comm *c, const Dev *dev) { return !c || dev->linked; }

// Two ranks on one GPU slow each other down, and NCCL refuses them without saying who.
int comm_units(Comm *c, const Dev *dev, int shared, Err *err) {
    if (!c) return 0;
    typedef struct {
        char host[64], unit[64];
    } Place;
    Place me = { 0 };
    gethostname(me.host, sizeof me.host - 1);
    memcpy(me.unit, dev->unit, sizeof dev->unit);
    Place *all = comm_answers(c, &me, sizeof me);
    int rc = comm_check(c, err);
    for (int a = 0; !rc && !shared && a < c->size; a++)
        for (int b = 0; !rc && b < a; b++)
            if (all[a].unit[0] && !strcmp(all[a].unit, all[b].unit)) {
                c->agreed = 1;
                rc = err_set(err, ERR_ARG,
                             "ranks %d and %d have the same GPU of %s: start one rank per GPU "
                             "(--share-gpu allows it, for tests)",
                             b, a, all[a].host);
            }
    free(all);
    return rc;
}

enum { LINK_ID = 128 };                                     // bytes that name a link

int comm_connect_alone(Comm *c, Dev *dev, Err *err) {
    char id[LINK_ID];
    *c = (Comm){ .size = 1 };
    if (!dev->be.ranks_open)
        return err_set(err, ERR_ARG, "the device %s has no link to other ranks' devices",
                       dev->be.name);
    if (dev->be.ranks_id(dev, id, err)) return -1;
    dev->be.ranks_open(dev, 0, 1, id);
    dev->link_timeout = 60;
    dev->linked = !dev->err.kind;
    return dev_check(dev, err);
}

int comm_connect(Comm *c, Dev *dev, int shared, Err *err) {
    char id[LINK_ID] = { 0 };
    if (!c) return 0;
    if (comm_units(c, dev, shared, err)) return -1;         // the same verdict everywhere
    int own = dev->be.ranks_open && !shared, least = 0;
    int *all = comm_answers(c, &own, sizeof own);
    if (!all) return comm_check(c, err);
    for (int r = 0; r < c->size; r++) least += all[r];
    free(all);
    c->agreed = least && least < c->size;
    if (c->agreed)
        return err_set(err, ERR_ARG, "%d of %d ranks have a GPU: all or none must", least, c->size);
    if (!dev->be.ranks_open || !least) return 0;
    int rc = c->rank ? 0 : dev->be.ranks_id(dev, id, err);
    if (comm_agree(c, rc, err)) return -1;
    comm_broadcast(c, id, sizeof id);
    dev->be.ranks_open(dev, c->rank, c->size, id);
    if (comm_agree(c, dev_check(dev, err), err)) return -1;
    dev->link_timeout = c->timeout;
    dev->linked = 1;
    return 0;
}
