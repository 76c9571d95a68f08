// comm_mpi.c - the transport between ranks by MPI. A module (see comm.h).
//
// One thread makes all calls of MPI, in the order in which they were asked for, while the others
// compute. So the library needs no support for threads, gradients travel during the backward pass,
// and a rank that does not answer is noticed: every call is started, then polled until a deadline.
//
// A rank that exits with an error which the others do not have would leave them waiting: so all
// meet once more at the end, and where the others do not come soon, MPI ends them.
//
// A sum is made in the order of ranks, whatever way the numbers take: each rank gets its share of
// everybody's numbers, adds them up, and the shares are collected.
#include "dev/comm.h"
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_JOBS = 256, SMALL = 4096, PIECE = 1 << 28, GRACE = 5 };   // grace: seconds

typedef enum { JOB_REDUCE, JOB_GATHER, JOB_BROADCAST } JobKind;
typedef struct {
    JobKind     kind;
    void       *p;                    // in place, or where to collect
    const void *from;
    size_t      n;                    // reals or bytes
    Reduce      how;
    double      timeout;
} Job;

typedef struct {                      // MPI of this process: there can be one
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  work, done;
    Job             job[MAX_JOBS];
    unsigned        posted, finished;
    int             started, ready, leave;
    int             status;           // the process's, when it leaves
    int             agreed, alone;    // an error is that of all ranks; or of this one alone
    MPI_Comm        end;              // for the meeting at the end
    int             rank, size, local_rank, local_size;
    real           *room;             // other ranks' numbers
    size_t          n_room;
    int            *count, *at;       // of reals of each rank's share; where they begin
    Err             why;              // the first failure
} Mpi;

static Mpi mpi = { .lock = PTHREAD_MUTEX_INITIALIZER,
                   .work = PTHREAD_COND_INITIALIZER,
                   .done = PTHREAD_COND_INITIALIZER };

// ---- the thread's side -------------------------------------------------------------------------

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static MPI_Datatype real_type(void) { return sizeof(real) == 8 ? MPI_DOUBLE : MPI_FLOAT; }

static int failed(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return 0;
    MPI_Error_string(code, text, &n);
    return err_set(&mpi.why, ERR_IO, "%s between ranks failed: %s", what, text);
}

// Polls a started operation; the processor is for those who compute, so it soon sleeps between.
static int complete(MPI_Request *request, int code, const char *what, double timeout) {
    double start = seconds(), passed = 0;
    int over = 0;
    if (failed(code, what)) return -1;
    for (long i = 0;; i++) {
        if (failed(MPI_Test(request, &over, MPI_STATUS_IGNORE), what)) return -1;
        if (over) return 0;
        if (i < 200) {
            sched_yield();
            continue;
        }
        const struct timespec nap = { .tv_nsec = passed < 1e-2 ? 20000 : 200000 };
        const double before = seconds();
        nanosleep(&nap, NULL);
        if (seconds() - before > timeout / 2) start = seconds();     // it is this rank that slept
        passed = seconds() - start;
        if (passed < timeout) continue;
        return err_set(&mpi.why, ERR_IO,
                       "no answer from another rank for %.0f s (--rank-timeout): it hangs, or the "
                       "network is cut",
                       timeout);
    }
}

static int reserve(size_t n) {
    if (n <= mpi.n_room) return 0;
    free(mpi.room);
    mpi.room = malloc(n * sizeof *mpi.room);
    mpi.n_room = mpi.room ? n : 0;
    if (mpi.room) return 0;
    return err_set(&mpi.why, ERR_MEM, "out of memory for the exchange between ranks");
}

// to[i] = sum over ranks of from[r * stride + i], or the mean.
static void add_up(real *to, const real *from, size_t n, size_t stride, Reduce how) {
    const double scale = how == REDUCE_MEAN ? 1.0 / mpi.size : 1;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < mpi.size; r++) sum += (double)from[(size_t)r * stride + i];
        to[i] = (real)(sum * scale);
    }
}

static int reduce_small(const Job *j) {
    MPI_Request q;
    if (reserve(j->n * (size_t)mpi.size)) return -1;
    const int code = MPI_Iallgather(j->p, (int)j->n, real_type(), mpi.room, (int)j->n, real_type(),
                                    MPI_COMM_WORLD, &q);
    if (complete(&q, code, "a sum", j->timeout)) return -1;
    add_up(j->p, mpi.room, j->n, j->n, j->how);
    return 0;
}

static int reduce_large(const Job *j) {
    MPI_Request q;
    const size_t size = (size_t)mpi.size, share = (j->n + size - 1) / size;
    if (reserve(share * size)) return -1;
    int *mine = mpi.count + mpi.size, *lie = mpi.at + mpi.size;      // of what comes in
    for (int r = 0; r < mpi.size; r++) {
        const size_t from = share * (size_t)r < j->n ? share * (size_t)r : j->n;
        mpi.at[r] = (int)from;
        mpi.count[r] = (int)(j->n - from < share ? j->n - from : share);
    }
    for (int r = 0; r < mpi.size; r++) mine[r] = mpi.count[mpi.rank], lie[r] = (int)share * r;
    int code = MPI_Ialltoallv(j->p, mpi.count, mpi.at, real_type(), mpi.room, mine, lie,
                              real_type(), MPI_COMM_WORLD, &q);
    if (complete(&q, code, "a sum", j->timeout)) return -1;
    real *own = (real *)j->p + mpi.at[mpi.rank];
    add_up(own, mpi.room, (size_t)mpi.count[mpi.rank], share, j->how);
    code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, j->p, mpi.count, mpi.at, real_type(),
                           MPI_COMM_WORLD, &q);
    return complete(&q, code, "a sum", j->timeout);
}

static int gather_bytes(const Job *j) {
    MPI_Request q;
    const int code =
        MPI_Iallgather(j->from, (int)j->n, MPI_BYTE, j->p, (int)j->n, MPI_BYTE, MPI_COMM_WORLD, &q);
    return complete(&q, code, "an exchange", j->timeout);
}

static int run_job(const Job *j) {
    MPI_Request q;
    switch (j->kind) {
    case JOB_REDUCE: return j->n <= SMALL ? reduce_small(j) : reduce_large(j);
    case JOB_GATHER: return gather_bytes(j);
    case JOB_BROADCAST:
        return complete(&q, MPI_Ibcast(j->p, (int)j->n, MPI_BYTE, 0, MPI_COMM_WORLD, &q),
                        "a broadcast", j->timeout);
    }
    return -1;
}

static int start_mpi(void) {
    int level;
    MPI_Comm here;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))
        return err_set(&mpi.why, ERR_IO, "MPI cannot be initialised");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.size);
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, mpi.rank, MPI_INFO_NULL, &here))
        return err_set(&mpi.why, ERR_IO, "MPI cannot find out which ranks share a machine");
    MPI_Comm_rank(here, &mpi.local_rank);
    MPI_Comm_size(here, &mpi.local_size);
    MPI_Comm_free(&here);
    if (failed(MPI_Comm_dup(MPI_COMM_WORLD, &mpi.end), "preparing for the exchange")) return -1;
    mpi.count = calloc(4 * (size_t)mpi.size, sizeof(int));
    mpi.at = mpi.count ? mpi.count + 2 * mpi.size : NULL;
    return mpi.count ? 0 : err_set(&mpi.why, ERR_MEM, "out of memory for %d ranks", mpi.size);
}

static void end_all(int failed_before) {
    MPI_Request q;
    if (failed_before) return;                           // the others have noticed it too
    const int in_time = mpi.status && !mpi.agreed;
    if (!mpi.alone && !complete(&q, MPI_Ibarrier(mpi.end, &q), "the end", in_time ? GRACE : 1e300))
        MPI_Finalize();
    else MPI_Abort(MPI_COMM_WORLD, mpi.status ? mpi.status : 1);
}

static void *serve(void *none) {
    int bad = start_mpi();
    pthread_mutex_lock(&mpi.lock);
    mpi.ready = 1;
    pthread_cond_broadcast(&mpi.done);
    for (;;) {
        while (mpi.posted == mpi.finished && !mpi.leave) pthread_cond_wait(&mpi.work, &mpi.lock);
        if (mpi.posted == mpi.finished) break;
        const Job j = mpi.job[mpi.finished % MAX_JOBS];
        pthread_mutex_unlock(&mpi.lock);
        if (!bad) bad = run_job(&j);                     // after a failure nothing is exchanged
        pthread_mutex_lock(&mpi.lock);
        mpi.finished++;
        pthread_cond_broadcast(&mpi.done);
    }
    pthread_mutex_unlock(&mpi.lock);
    end_all(bad);
    return none;
}

// ---- the callers' side -------------------------------------------------------------------------

static void post(Comm *c, Job j) {
    j.timeout = c->timeout;
    pthread_mutex_lock(&mpi.lock);
    while (mpi.posted - mpi.finished == MAX_JOBS) pthread_cond_wait(&mpi.done, &mpi.lock);
    mpi.job[mpi.posted++ % MAX_JOBS] = j;
    pthread_cond_signal(&mpi.work);
    pthread_mutex_unlock(&mpi.lock);
}

static void reduce(Comm *c, real *p, size_t n, Reduce how) {
    for (size_t at = 0; at < n; at += PIECE)             // MPI counts in ints
        post(c, (Job){ .kind = JOB_REDUCE,
                       .p = p + at,
                       .n = n - at < PIECE ? n - at : PIECE,
                       .how = how });
}

static void gather(Comm *c, const void *mine, void *all, size_t bytes) {
    if (bytes >= (size_t)1 << 31) {
        err_set(&c->err, ERR_DEV, "%zu bytes per rank are more than an exchange can take", bytes);
        return;
    }
    post(c, (Job){ .kind = JOB_GATHER, .p = all, .from = mine, .n = bytes });
}

static void broadcast(Comm *c, void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE)
        post(c, (Job){ .kind = JOB_BROADCAST,
                       .p = (char *)p + at,
                       .n = bytes - at < PIECE ? bytes - at : PIECE });
}

static void wait_all(Comm *c) {
    pthread_mutex_lock(&mpi.lock);
    while (mpi.posted != mpi.finished) pthread_cond_wait(&mpi.done, &mpi.lock);
    if (mpi.why.kind) err_set(&c->err, mpi.why.kind, "%s", mpi.why.msg);
    pthread_mutex_unlock(&mpi.lock);
}

// MPI ends with the process: it cannot start twice.
static void end_mpi(int status, void *none) {
    (void)none;
    fflush(NULL);                                        // MPI_Abort does not
    pthread_mutex_lock(&mpi.lock);
    mpi.status = status;
    mpi.leave = 1;
    pthread_cond_signal(&mpi.work);
    pthread_mutex_unlock(&mpi.lock);
    pthread_join(mpi.thread, NULL);
}

static void close_comm(Comm *c) {
    pthread_mutex_lock(&mpi.lock);
    mpi.agreed = c->agreed;
    mpi.alone |= c->err.kind == ERR_MEM;
    pthread_mutex_unlock(&mpi.lock);
}

static int start_thread(Err *err) {
    sigset_t all, before;
    sigfillset(&all);                                    // signals are for the main thread
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&mpi.thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return err_set(err, ERR_IO, "cannot start a thread for MPI: %s", strerror(rc));
    mpi.started = 1;
    (void)on_exit(end_mpi, NULL);
    return 0;
}

__attribute__((visibility("default"))) CommModule jempp_comm;

int jempp_comm(int abi, Comm *c, Err *err) {
    static const CommOps ops = { reduce, gather, broadcast, wait_all, close_comm };
    if (abi != COMM_ABI)
        return err_set(err, ERR_DEV, "jempp-mpi.so was built for another version of this program");
    if (!mpi.started && start_thread(err)) return -1;
    pthread_mutex_lock(&mpi.lock);
    while (!mpi.ready) pthread_cond_wait(&mpi.done, &mpi.lock);
    pthread_mutex_unlock(&mpi.lock);
    if (mpi.why.kind) return err_set(err, mpi.why.kind, "%s", mpi.why.msg);
    c->rank = mpi.rank;
    c->size = mpi.size;
    c->local_rank = mpi.local_rank;
    c->local_size = mpi.local_size;
    c->ops = &ops;
    return 0;
}
