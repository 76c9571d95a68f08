// folder.c - see folder.h.
#include "run/folder.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char *const names[N_RUN_FILE] = {
    [RUN_RECORD] = "run.json",       [RUN_LOG] = "log.tsv",
    [RUN_DIVERGED] = "diverged.tsv", [RUN_LAST] = "last.safetensors",
    [RUN_PREV] = "prev.safetensors", [RUN_BEST] = "best.safetensors",
    [RUN_SAMPLES] = "samples",       [RUN_EVAL] = "eval.json",
    [RUN_VALID] = "valid",           [RUN_SHEETS] = "sheets",
    [RUN_REPORT] = "report.html",    [RUN_SCORES] = "scores",
    [RUN_MESSAGES] = "messages.tsv", [RUN_STOP] = "stop",
};

const char *run_file(RunFile file) { return names[file]; }

int run_path(char dst[RUN_PATH], const char *dir, RunFile file, Err *err) {
    return path_join(dst, RUN_PATH, dir, names[file], err);
}

int run_sample_path(char dst[RUN_PATH], const char *dir, uint64_t step, Err *err) {
    char name[64];
    snprintf(name, sizeof name, "%s/step-%07" PRIu64 ".png", names[RUN_SAMPLES], step);
    return path_join(dst, RUN_PATH, dir, name, err);
}

int is_run_sample(const char *name) { return !strncmp(name, "step-", 5); }

// ---- what is no run folder ---------------------------------------------------------------------

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

int add_runs(Err *err, const char *dir) {
    enum { MOST = 3 };
    struct dirent **entry = NULL;
    int found = 0;
    const int n = scandir(dir, &entry, NULL, by_bytes);
    for (int i = 0; i < n; i++) {
        char sub[RUN_PATH], record[RUN_PATH];
        const char *name = entry[i]->d_name;
        if (name[0] != '.' && !path_join(sub, sizeof sub, dir, name, NULL) &&
            !run_path(record, sub, RUN_RECORD, NULL) && file_exists(record)) {
            if (err && found < MOST)
                err_append(err, "%s%.*s", found ? ", " : "; runs in it: ", text_whole(name, 100),
                           name);
            if (found++ == MOST && err) err_append(err, ", ...");
        }
        free(entry[i]);
    }
    free(entry);
    return found;
}

int no_run(const char *dir, const char *missing, Err *err) {
    const char *kind = file_kind(dir);
    if (!kind) return err_set(err, ERR_IO, "%s: no such run folder", dir);
    if (!dir_exists(dir))
        return err_set(err, ERR_ARG, "%s: is %s, expected the folder of a run", dir, kind);
    err_set(err, ERR_DATA, "%s: a folder, but not of a run (no %s in it)", dir, missing);
    add_runs(err, dir);
    return -1;
}

int run_model_path(char dst[RUN_PATH], const char *path, Err *err) {
    if (!dir_exists(path))
        return snprintf(dst, RUN_PATH, "%s", path) < RUN_PATH
                   ? 0
                   : err_set(err, ERR_ARG, "%.80s...: name too long", path);
    if (run_path(dst, path, RUN_BEST, err)) return -1;
    if (file_exists(dst)) return 0;
    char record[RUN_PATH];
    if (run_path(record, path, RUN_RECORD, err)) return -1;
    if (!file_exists(record)) return no_run(path, names[RUN_RECORD], err);
    return err_set(err, ERR_DATA,
                   "%s: this run has no model yet; %s is written after its first validation (with "
                   "--px-from: some time after p(x) began)",
                   path, names[RUN_BEST]);
}

int run_folder_choose(char *dst, size_t n, int *made, const Config *c, Err *err) {
    *made = 0;
    if (c->resume && !c->out[0])
        return err_set(err, ERR_ARG, "--resume needs --out RUN, the folder of the run to resume");
    if (c->out[0]) {
        if (snprintf(dst, n, "%s", c->out) >= (int)n)
            return err_set(err, ERR_ARG, "--out %.60s...: name too long", c->out);
    } else {
        char when[32];
        const time_t t = time(NULL);
        struct tm tm;
        strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&t, &tm));
        snprintf(dst, n, "runs/%s-%s", c->preset[0] ? c->preset : c->model, when);
    }
    if (c->resume && !dir_exists(dst)) return no_run(dst, names[RUN_LAST], err);
    *made = !dir_exists(dst);
    if (!*made && !c->resume && add_runs(NULL, dst)) {
        err_set(err, ERR_ARG, "--out %s: expected a folder for this run alone, such as %s/NAME",
                dst, dst);
        add_runs(err, dst);
        return -1;
    }
    return dir_make(dst, err);
}

void run_folder_drop(const char *dir, int made) {
    char samples[RUN_PATH];
    if (!run_path(samples, dir, RUN_SAMPLES, NULL)) rmdir(samples);
    if (made) rmdir(dir);
}

// The lock is on the folder itself, so that no lock file is left behind however the run ends.
int run_folder_lock(const char *dir, int resume, int *lock, Err *err) {
    char last[RUN_PATH], prev[RUN_PATH], samples[RUN_PATH];
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return err_set(err, ERR_IO, "%s: %s", dir, strerror(errno));
    int rc = 0;
    if (flock(*lock, LOCK_EX | LOCK_NB))
        rc = err_set(err, ERR_ARG, "%s: another run is writing into this folder", dir);
    if (!rc) rc = run_path(last, dir, RUN_LAST, err) || run_path(prev, dir, RUN_PREV, err);
    if (!rc && !resume && (file_exists(last) || file_exists(prev)))
        rc = err_set(
            err, ERR_ARG,
            "%s: already holds a run; --resume continues it, another --out starts a new one", dir);
    if (!rc) rc = run_path(samples, dir, RUN_SAMPLES, err) || dir_make_inside(samples, err);
    if (!rc) return 0;
    close(*lock);
    *lock = -1;
    return -1;
}

int run_stop_requested(const char *dir) {
    char path[RUN_PATH];
    return !run_path(path, dir, RUN_STOP, NULL) && file_exists(path);
}

void run_stop_clear(const char *dir) {
    char path[RUN_PATH];
    if (!run_path(path, dir, RUN_STOP, NULL)) (void)unlink(path);
}
