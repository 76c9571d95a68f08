// tensorboard.c - see tensorboard.h.
#include "report/tensorboard.h"
#include "base/file.h"
#include "base/text.h"
#include "report/record.h"
#include "run/event_file.h"
#include "run/folder.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char NOTE[] = "jempp-report";

static int is_of_run(const struct dirent *e) {
    return is_event_file(e->d_name) && !strstr(e->d_name, NOTE);
}
static int is_of_report(const struct dirent *e) {
    return is_event_file(e->d_name) && strstr(e->d_name, NOTE);
}
static int is_grid(const struct dirent *e) { return is_run_sample(e->d_name); }

static void free_names(struct dirent **entry, int n) {
    for (int i = 0; i < n; i++) free(entry[i]);
    if (n >= 0) free(entry);
}

// Fails where the run has event files of its own; removes those of an earlier report.
static int make_room(const char *dir, Err *err) {
    struct dirent **entry;
    const int n = scandir(dir, &entry, is_of_run, alphasort);
    int rc = 0;
    if (n < 0) return err_set(err, ERR_IO, "%s: %s", dir, strerror(errno));
    if (n > 0) rc = err_set(err, ERR_ARG, "%s: has event files already: %s", dir, entry[0]->d_name);
    free_names(entry, n);
    if (rc) return rc;
    struct dirent **old;
    const int n_old = scandir(dir, &old, is_of_report, alphasort);
    for (int i = 0; !rc && i < n_old; i++) {
        char path[RUN_PATH];
        rc = path_join(path, sizeof path, dir, old[i]->d_name, err);
        if (!rc) remove(path);
    }
    free_names(old, n_old);
    return rc;
}

// When the run began, as far as its log shows: when it was last written, less its seconds.
static double began(const char *dir, const Log *log) {
    char path[RUN_PATH];
    struct stat st;
    if (run_path(path, dir, RUN_LOG, NULL) || stat(path, &st)) return 0;
    const double seconds = log->column[LOG_SECONDS][log->n - 1];
    return (double)st.st_mtime - (isnan(seconds) ? 0 : seconds);
}

static double time_of(const Log *log, double start, int row) {
    const double s = log->column[LOG_SECONDS][row];
    return start + (isnan(s) ? 0 : s);
}

static void put_log(EventFile *e, const Log *log, double start) {
    for (int i = 0; i < log->n; i++) {
        double value[N_LOG];
        for (int k = 0; k < N_LOG; k++) value[k] = k == LOG_STEP ? NAN : log->column[k][i];
        event_file_scalars(e, time_of(log, start, i), (uint64_t)log->column[LOG_STEP][i], "train",
                           N_LOG, log_name, value);
    }
}

// A grid's name has the number of steps done: its line of the log is the one before.
static int put_grids(EventFile *e, const char *dir, const Log *log, double start, int *grids,
                     Err *err) {
    char samples[RUN_PATH], path[RUN_PATH];
    struct dirent **entry;
    *grids = 0;
    if (run_path(samples, dir, RUN_SAMPLES, err)) return -1;
    const int n = scandir(samples, &entry, is_grid, alphasort);
    int rc = 0, row = 0;
    for (int i = 0; !rc && i < n; i++) {
        const uint64_t done = strtoull(entry[i]->d_name + strlen("step-"), NULL, 10);
        const uint64_t step = done ? done - 1 : 0;
        while (row + 1 < log->n && log->column[LOG_STEP][row] < (double)step) row++;
        rc = path_join(path, sizeof path, samples, entry[i]->d_name, err);
        if (!rc) event_file_picture(e, time_of(log, start, row), step, "samples", path);
        *grids += !rc;
    }
    free_names(entry, n);
    return rc;
}

char *tensorboard_write(const char *dir, Err *err) {
    Record r;
    EventFile e;
    char path[600], *said = NULL;
    int grids = 0;
    if (record_read(&r, dir, err)) return NULL;
    int rc =
        r.log.n ? make_room(dir, err) : err_set(err, ERR_DATA, "%s: its log has no steps", dir);
    const double start = rc ? 0 : began(dir, &r.log);
    if (!rc) rc = event_file_open(&e, dir, start, NOTE, err);
    if (!rc) {
        memcpy(path, e.path, sizeof path);
        put_log(&e, &r.log, start);
        rc = put_grids(&e, dir, &r.log, start, &grids, err);
        if (event_file_close(&e, rc ? NULL : err)) rc = -1;
        if (rc) remove(path);
    }
    if (!rc && asprintf(&said, "%s: %d step%s, %d sample grid%s\n", path, r.log.n, plural(r.log.n),
                        grids, plural(grids)) < 0) {
        said = NULL;
        err_set(err, ERR_MEM, "out of memory for a text");
    }
    record_free(&r);
    return said;
}
