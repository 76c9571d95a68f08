// comm.h - ranks: processes that work on one task together, each on its own device.
//
// A Comm is what a process knows of the others; NULL stands for working alone, and every function
// here accepts it and does nothing then. The transport is a module (jempp-mpi.so), loaded where the
// process was started by mpirun, srun or the like. All ranks call the same functions in the same
// order. Operations return nothing: a Comm remembers its first failure, and exchanges nothing from
// then on (comm_check asks). A failed device does not stop the exchange, so that ranks with a
// failure and ranks without meet again in comm_agree. A rank that fails in the exchange itself,
// because its memory is used up, cannot meet the others: when its process exits, it ends theirs.
#ifndef COMM_H
#define COMM_H
#include "dev/backend.h"

typedef struct Comm Comm;

typedef enum { REDUCE_SUM, REDUCE_MEAN } Reduce;

typedef struct {                      // the transport: host memory, in the order of the calls
    // Start to combine p[n] of all ranks in place, in the order of ranks; to collect `bytes` of
    // each rank in `all`, rank by rank; to copy rank 0's. The memory must stay until wait returns.
    void (*reduce)(Comm *, real *p, size_t n, Reduce how);
    void (*gather)(Comm *, const void *mine, void *all, size_t bytes);
    void (*broadcast)(Comm *, void *p, size_t bytes);
    void (*wait)(Comm *);
    void (*close)(Comm *);
} CommOps;

struct Comm {
    int     rank, size;
    int     local_rank, local_size;   // among the ranks of this machine
    double  timeout;                  // seconds to wait for an answer of the others
    const CommOps *ops;
    void   *impl;                     // the transport's own
    real   *stage;                    // host memory where the device has its own
    size_t  n_stage;
    const Events *events;             // whose stop ends waiting after a failure; may be NULL
    int     agreed;                   // all ranks have the same error (comm_agree)
    Err     err;                      // the first failure
};

// Which of the ranks this process is, from the environment that mpirun or srun made; 0 where it is
// alone.
int  comm_own_rank(void);
// *c is NULL where the process is alone.
int  comm_open(Comm **c, double timeout, const Events *events, Err *err);
void comm_close(Comm *c);
int  comm_check(const Comm *c, Err *err);               // 0, or -1 and the first failure

// Options of a device with what ranks of one machine share out: GPUs, and processors by default.
DevOpts comm_dev(const Comm *c, DevOpts o);

static inline int comm_rank(const Comm *c) { return c ? c->rank : 0; }
static inline int comm_size(const Comm *c) { return c ? c->size : 1; }

// ---- host memory; these wait
void comm_gather(Comm *c, const void *mine, void *all, size_t bytes);    // all: size x bytes
void comm_broadcast(Comm *c, void *p, size_t bytes);                     // from rank 0
// What comm_gather collects, malloc'd; NULL after a failure. c is not NULL.
void *comm_answers(Comm *c, const void *mine, size_t bytes);
// A text of rank 0 (malloc'd, may be NULL) replaces that of the others.
int  comm_text(Comm *c, char **text, Err *err);
// Nonzero if rc is nonzero on any rank: then err is that of the first such rank, with its number.
// On its way up an error that was agreed upon is not asked about again: ranks without a failure may
// learn of it further down than the one that has it, and all return from the same place.
int  comm_agree(Comm *c, int rc, Err *err);
// An error that was agreed upon is dealt with; something new begins.
void comm_begin(Comm *c);
// Where all ranks have the same error, rank 0 alone has a message to show.
void comm_quiet(const Comm *c, Err *err);
// n items in batches of `batch`, the last of which may be short, are shared out by whole batches:
// this rank's are first .. end - 1. When all have finished, comm_join completes base, n items of
// `bytes` each, on every rank.
void comm_part(const Comm *c, int n, int batch, int *first, int *end);
void comm_join(Comm *c, void *base, int n, int batch, size_t bytes);

// ---- the device's memory; these start, and comm_wait orders the device's next operation behind
// them. Where the device has a link of its own (Backend.ranks_reduce) they can be recorded.
void comm_reduce(Comm *c, Dev *dev, real *p, size_t n, Reduce how);
void comm_collect(Comm *c, Dev *dev, const real *mine, real *all, size_t n);   // all: size x n
void comm_wait(Comm *c, Dev *dev);
void comm_copy(Comm *c, Dev *dev, void *p, size_t bytes);       // rank 0's; waits
int  comm_records(const Comm *c, const Dev *dev);       // a step that communicates can be recorded
// Connects the devices where they have a link of their own (NCCL). A device may serve two ranks
// only if `shared`: then all goes through the host. Collective; an error on one is one on all.
int  comm_connect(Comm *c, Dev *dev, int shared, Err *err);
// The check of that alone: that no two ranks have one device, unless `shared`.
int  comm_units(Comm *c, const Dev *dev, int shared, Err *err);
// A link of one rank with itself, to measure what it costs; c is the caller's to keep.
int  comm_connect_alone(Comm *c, Dev *dev, Err *err);

// What jempp-mpi.so exports as "jempp_comm": fills rank, size, ops and impl.
enum { COMM_ABI = (int)sizeof(Comm) << 8 | (int)sizeof(real) };
typedef int CommModule(int abi, Comm *c, Err *err);
#endif
