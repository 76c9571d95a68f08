// fit_ranks.c - a run that several processes train together (dev/comm.h): what they compare before
// it, tell each other during it, and which of them writes.
#include "base/sha256.h"
#include "base/text.h"
#include "base/version.h"
#include "run/fit_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- before the run ---------------------------------------------------------------------------

// Paths and threads may differ from machine to machine.
static int may_differ(const char *line, size_t n) {
    static const char *const names[] = { "data-dir =", "threads =" };
    for (int i = 0; i < 2; i++)
        if (n >= strlen(names[i]) && !strncmp(line, names[i], strlen(names[i]))) return 1;
    return 0;
}

// The first lines in which two texts differ, as long as they are.
static int compare_lines(const char *theirs, const char *mine, Err *err) {
    while (*theirs || *mine) {
        const size_t n = strcspn(theirs, "\n"), m = strcspn(mine, "\n");
        if ((n != m || strncmp(theirs, mine, n) != 0) && !may_differ(mine, m))
            return err_set(err, ERR_ARG,
                           "found '%.*s', but rank 0 has '%.*s': all ranks must have "
                           "the same options and the same program",
                           m < 200 ? (int)m : 200, mine, n < 200 ? (int)n : 200, theirs);
        theirs += n + (theirs[n] != 0);
        mine += m + (mine[m] != 0);
    }
    return 0;
}

// Version, program file and options, one line each; malloc'd.
static char *describe_rank(const Config *c) {
    char *options = config_dump(c, CMD_TRAIN), *text = NULL, hash[65] = "unknown";
    Err none = { 0 };
    (void)sha256_file("/proc/self/exe", hash, &none);
    if (options && asprintf(&text, "version %s\nprogram %s\n%s", version_text(), hash, options) < 0)
        text = NULL;
    free(options);
    return text;
}

static int same_options(TrainRun *r, Err *err) {
    char *mine = describe_rank(&r->cfg), *theirs = mine ? strdup(mine) : NULL;
    int rc = mine && theirs ? 0 : err_set(err, ERR_MEM, "out of memory for options");
    if (comm_agree(r->comm, rc, err) || comm_text(r->comm, &theirs, err)) rc = -1;
    if (!rc) rc = comm_agree(r->comm, compare_lines(theirs, mine, err), err);
    free(mine);
    free(theirs);
    return rc;
}

int run_open_ranks(TrainRun *r, Err *err) {
    if (comm_open(&r->comm, r->cfg.rank_timeout, r->ev, err)) return -1;
    if (!r->comm) return 0;
    if (r->comm->rank && r->ev) {                           // rank 0 speaks for all
        r->silent = (Events){ .stop = r->ev->stop, .ctx = r->ev->ctx };
        r->ev = r->comm->events = &r->silent;
    }
    return same_options(r, err);
}

int run_share_folder(TrainRun *r, char **tuning, Err *err) {
    if (!r->comm) return 0;
    comm_broadcast(r->comm, r->out, sizeof r->out);
    char dir[sizeof r->cfg.data_dir];
    const int threads = r->cfg.threads;
    memcpy(dir, r->cfg.data_dir, sizeof dir);               // of this machine
    comm_broadcast(r->comm, &r->cfg, sizeof r->cfg);
    memcpy(r->cfg.data_dir, dir, sizeof dir);
    r->cfg.threads = threads;
    return comm_text(r->comm, tuning, err);
}

int run_same_images(TrainRun *r, Err *err) {
    if (!r->comm) return 0;
    struct {
        uint64_t train, valid, test, hash;
    } mine = { r->train.n, r->valid.n, r->test.n, 0 }, zero;
    const size_t dim = (size_t)(r->train.c * r->train.side * r->train.side);
    for (size_t i = 0; i < r->train.n; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < dim; k++) sum = 31 * sum + r->train.x[i * dim + k];
        mine.hash += checksum_of(i, (uint32_t)(sum ^ sum >> 32) + (uint32_t)r->train.y[i]);
    }
    zero = mine;
    comm_broadcast(r->comm, &zero, sizeof zero);
    int rc = 0;
    if (memcmp(&zero, &mine, sizeof mine) != 0)
        rc = err_set(
            err, ERR_DATA,
            "%s: the images differ from those of rank 0: %zu training, %zu validation and %zu test "
            "images from %s",
            r->cfg.data, r->train.n, r->valid.n, r->test.n, r->train.from);
    return comm_agree(r->comm, rc, err);
}

// Kernels are timed once, by rank 0, while the others wait: side by side they would disturb each
// other, and ranks with other kernels would round otherwise.
int run_open_devices(TrainRun *r, int (*open)(TrainRun *, const char *, Err *), char *tuning,
                     Err *err) {
    int rc = comm_agree(r->comm, comm_rank(r->comm) ? 0 : open(r, tuning, err), err);
    if (!rc && r->comm) {
        char *found = r->comm->rank ? NULL : strdup(r->dev.be.tuning(&r->dev));
        rc = comm_text(r->comm, &found, err);
        if (!rc) rc = comm_agree(r->comm, r->comm->rank ? open(r, found, err) : 0, err);
        if (!rc) rc = comm_connect(r->comm, &r->dev, r->cfg.share_gpu, err);
        free(found);
    }
    return rc;
}

void run_share_state(TrainRun *r) {
    if (!r->comm) return;
    comm_broadcast(r->comm, &r->state, sizeof r->state);
    trainer_broadcast(&r->t);
}

// ---- during the run ---------------------------------------------------------------------------

Wish run_wish(TrainRun *r, Wish mine) {
    if (!r->comm) return mine;
    Wish *all = comm_answers(r->comm, &mine, sizeof mine);
    if (!all) return (Wish){ .stop = 1 };                   // what follows finds the failure
    Wish w = { .save = all[0].save };
    for (int i = 0; i < r->comm->size; i++) w.stop |= all[i].stop;
    free(all);
    return w;
}

int run_ranks_alike(TrainRun *r, int rc, Err *err) {
    if (!r->comm) return rc;
    // a rank that failed waits until the others, too, have given up the link between devices; those
    // that lost it need not wait for anyone
    if (rc) r->comm->timeout = r->dev.linked == LINK_LOST ? 10 : 2 * r->comm->timeout;
    return comm_agree(r->comm, rc, err) || trainer_same(&r->t, err);
}

void run_introduce_ranks(const TrainRun *r) {
    if (!r->comm) return;
    run_say(r, "%d rank%s, %d image%s of each batch per rank; sums by %s", r->comm->size,
            plural(r->comm->size), r->t.px.rows, plural(r->t.px.rows),
            r->dev.linked ? "NCCL" : "MPI");
}

// A failure to communicate leaves everything at the last checkpoint.
static void say_what_is_kept(const TrainRun *r, Err *err) {
    const Err why = *err;
    if (!r->comm->err.kind || !why.msg[0] || !r->saved_step) return;
    *err = (Err){ 0 };
    err_set(err, why.kind, "%.700s; %s holds the checkpoint of step %llu, --resume continues there",
            why.msg, r->out, (unsigned long long)r->saved_step);
}

void run_close_ranks(TrainRun *r, int rc, Err *err) {
    if (!r->comm) return;
    if (rc) say_what_is_kept(r, err);
    if (rc) comm_quiet(r->comm, err);
    comm_close(r->comm);
}
