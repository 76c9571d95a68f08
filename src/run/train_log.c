// train_log.c - see train_log.h.
#include "run/train_log.h"
#include "base/file.h"
#include "base/log.h"
#include "run/folder.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const log_name[N_LOG] = {
    [LOG_STEP] = "step",
    [LOG_EPOCH] = "epoch",
    [LOG_SECONDS] = "seconds",
    [LOG_LR] = "lr",
    [LOG_LOSS] = "loss",
    [LOG_CE] = "ce",
    [LOG_ACCURACY] = "accuracy",
    [LOG_FX] = "fx",
    [LOG_FXQ] = "fxq",
    [LOG_GAP] = "gap",
    [LOG_CLIMB] = "climb",
    [LOG_VALID] = "valid_accuracy",
    [LOG_FID] = "fid",
    [LOG_AUROC] = "auroc",
    [LOG_CHAIN_STEPS] = "chain_steps",
};

// For each column: the value of the device's row that it shows (-1: another value), and its number
// of digits, after the decimal point (fixed) or significant ones.
static const struct {
    int row, digits, fixed;
} columns[N_LOG] = {
    [LOG_STEP] = { -1, 0, 1 },
    [LOG_EPOCH] = { -1, 4, 1 },
    [LOG_SECONDS] = { -1, 2, 1 },
    [LOG_LR] = { ROW_LR, 6, 0 },
    [LOG_LOSS] = { ROW_LOSS, 6, 0 },
    [LOG_CE] = { ROW_CE, 6, 0 },
    [LOG_ACCURACY] = { ROW_RIGHT, 4, 1 },
    [LOG_FX] = { ROW_FX, 6, 0 },
    [LOG_FXQ] = { ROW_FXQ, 6, 0 },
    [LOG_GAP] = { ROW_GAP, 5, 0 },
    [LOG_CLIMB] = { ROW_CLIMB, 4, 0 },
    [LOG_VALID] = { -1, 4, 1 },
    [LOG_FID] = { -1, 3, 1 },
    [LOG_AUROC] = { ROW_AUROC, 4, 1 },
    [LOG_CHAIN_STEPS] = { ROW_STEPS, 0, 1 },
};

static int columns_now(const TrainLog *log) { return log->chain_length ? N_LOG : LOG_AUROC; }

static void head_line(char *dst, size_t n, int columns_in) {
    size_t at = 0;
    for (int k = 0; k < columns_in; k++)
        at += (size_t)snprintf(dst + at, n - at, "%s%c", log_name[k],
                               k + 1 < columns_in ? '\t' : '\n');
}

// How many columns a log with this first line has; 0: it is not one of ours. Columns are only ever
// added at the end.
static int columns_of(const char *line) {
    char head[256];
    for (int n = N_LOG; n > LOG_VALID; n--) {
        head_line(head, sizeof head, n);
        if (!strcmp(line, head)) return n;
    }
    return 0;
}

static void close_text(TrainLog *log) {
    if (log->f) fclose(log->f);
    log->f = NULL;
}

// ---- lines that wait to be written

// Whole lines, so that what is dropped for want of memory tears none.
static void add_pending(TrainLog *log, const char *line) {
    const size_t n = strlen(line);
    if (log->n_pending + n > log->room) {
        const size_t room = 2 * log->room + n + 4096;
        char *more = realloc(log->pending, room);
        if (!more) return;
        log->pending = more;
        log->room = room;
    }
    memcpy(log->pending + log->n_pending, line, n);
    log->n_pending += n;
}

// Forgets the lines of `step` and after it.
static void cut_pending(TrainLog *log, uint64_t step) {
    size_t at = 0;
    while (at < log->n_pending && strtoull(log->pending + at, NULL, 10) < step)
        at += (size_t)((char *)memchr(log->pending + at, '\n', log->n_pending - at) + 1 -
                       (log->pending + at));
    log->n_pending = at;
}

static int write_pending(TrainLog *log, Err *err) {
    const size_t n = log->n_pending;
    if (!n || fwrite(log->pending, 1, n, log->f) == n) {
        log->size += (long)n;
        log->n_pending = 0;
        return 0;
    }
    err_set(err, ERR_IO, "%s: %s", log->path, strerror(errno));
    clearerr(log->f);                                   // without the part that was written
    if (fseek(log->f, log->size, SEEK_SET) || ftruncate(fileno(log->f), log->size))
        err_append(err, "; cutting it back: %s", strerror(errno));
    return -1;
}

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A session has one event file; a rollback continues it. An error stays in it.
static void start_events(TrainLog *log, const char *dir) {
    EventFile *e = &log->events;
    if (!e->f && !e->err.kind) (void)event_file_open(e, dir, wall_time(), "jempp", &e->err);
    if (!e->f) return;
    event_file_start(e, wall_time(), log->next);
    (void)event_file_flush(e, NULL);
}

int train_log_open(TrainLog *log, const char *dir, uint64_t step, Err *err) {
    char line[512], head[256];
    if (log->f) (void)write_pending(log, NULL);
    cut_pending(log, step);
    close_text(log);
    log->n_column = columns_now(log);
    head_line(head, sizeof head, log->n_column);
    if (run_path(log->path, dir, RUN_LOG, err)) return -1;
    log->f = file_change(log->path, "r+", err);
    if (!log->f) return -1;
    long keep = 0;
    while (fgets(line, sizeof line, log->f)) {
        const int first = keep == 0, whole = strchr(line, '\n') != NULL;
        const int n_column = first ? columns_of(line) : log->n_column;
        if (!whole || !n_column || (!first && strtoull(line, NULL, 10) >= step)) break;
        log->n_column = n_column;
        keep = ftell(log->f);
    }
    if (fseek(log->f, keep, SEEK_SET) || ftruncate(fileno(log->f), keep))
        return err_set(err, ERR_IO, "%s: %s", log->path, strerror(errno));
    log->size = keep;
    (void)setvbuf(log->f, NULL, _IONBF, 0);
    if (keep == 0 &&
        (log->n_pending < strlen(head) || memcmp(log->pending, head, strlen(head)) != 0)) {
        log->n_pending = 0;
        add_pending(log, head);
    }
    (void)fcntl(fileno(log->f), F_OFD_SETLK, &(struct flock){ .l_type = F_WRLCK });
    log->next = step;
    if (log->tensorboard) start_events(log, dir);
    return 0;
}

static int of_chains(int column) {
    return column == LOG_FXQ || column == LOG_GAP || column == LOG_CLIMB || column >= LOG_AUROC;
}

void train_log_add(TrainLog *log, const LogStep *s, const real row[N_ROW]) {
    const double other[N_LOG] = { [LOG_STEP] = (double)log->next,
                                  [LOG_EPOCH] = s->epoch,
                                  [LOG_SECONDS] = s->seconds,
                                  [LOG_VALID] = s->valid,
                                  [LOG_FID] = s->fid };
    double value[N_LOG];
    const int n = columns_now(log);
    char line[N_LOG * 400];
    size_t at = 0;
    for (int k = 0; k < n; k++) {
        char text[400] = "";            // the largest double has 309 digits
        const double v = columns[k].row >= 0 ? (double)row[columns[k].row] : other[k];
        const int known = k == LOG_VALID || k == LOG_FID ? !isnan(v) : s->px || !of_chains(k);
        if (known)
            snprintf(text, sizeof text, columns[k].fixed ? "%.*f" : "%.*g", columns[k].digits, v);
        value[k] = text[0] ? strtod(text, NULL) : NAN;
        if (k < log->n_column)
            at += (size_t)snprintf(line + at, sizeof line - at, k ? "\t%s" : "%s", text);
    }
    snprintf(line + at, sizeof line - at, "\n");
    add_pending(log, line);
    tell_row(log->ev, n, log_name, value);
    value[LOG_STEP] = NAN;              // an event has its step anyway
    if (log->events.f)
        event_file_scalars(&log->events, wall_time(), log->next, "train", n, log_name, value);
    log->next++;
}

void train_log_picture(TrainLog *log, const char *png) {
    const uint64_t last = log->next ? log->next - 1 : 0;
    if (log->events.f) event_file_picture(&log->events, wall_time(), last, "samples", png);
}

int train_log_flush(TrainLog *log, Err *err) { return log->f ? write_pending(log, err) : 0; }

int train_log_flush_events(TrainLog *log, Err *err) { return event_file_flush(&log->events, err); }

void train_log_show(TrainLog *log) {
    const double now = now_seconds();
    if (now - log->shown < 1) return;
    log->shown = now;
    (void)train_log_flush(log, NULL);
    (void)train_log_flush_events(log, NULL);            // an error stays, for the next who asks
}

// Asking takes no lock, so a run that begins at this moment is not disturbed.
int train_log_is_open(const char *dir) {
    char path[RUN_PATH];
    struct flock lock = { .l_type = F_WRLCK };
    if (run_path(path, dir, RUN_LOG, NULL)) return 0;
    const int f = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f < 0) return 0;
    const int open = !fcntl(f, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
    close(f);
    return open;
}

void train_log_close(TrainLog *log) {
    (void)train_log_flush(log, NULL);
    close_text(log);
    free(log->pending);
    log->pending = NULL;
    log->n_pending = log->room = 0;
    (void)event_file_close(&log->events, NULL);
}
