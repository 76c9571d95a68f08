// fit_save.c - what a run writes while it goes: log lines, checkpoints, run.json; and how a resumed
// run finds them.
#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "base/version.h"
#include "run/fit_run.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// `last`, or `prev` where that is damaged or a crash fell between two renames; the other way round
// if `older`.
int run_use_checkpoint(TrainRun *r, int older, UseCheckpoint *use, void *ctx, Err *err) {
    static const RunFile files[] = { RUN_LAST, RUN_PREV };
    Err first = { 0 };
    for (int i = 0; i < 2; i++) {
        const RunFile file = files[older ? 1 - i : i];
        char path[RUN_PATH];
        Err why = { 0 };
        if (run_path(path, r->out, file, err)) return -1;
        if (!file_exists(path) || (file == RUN_LAST && r->last_damaged)) continue;
        const int rc = use(r, path, ctx, &why);
        if (!rc && first.kind) run_say(r, "%s; using %s instead", first.msg, path);
        if (!rc) return 0;
        if (why.kind != ERR_DATA && why.kind != ERR_IO)
            return err_set(err, why.kind, "%s", why.msg);
        r->last_damaged |= file == RUN_LAST;
        if (!first.kind) first = why;
    }
    if (first.kind)
        return err_set(err, ERR_DATA, "%s: no checkpoint to resume from: %s", r->out, first.msg);
    err_set(err, ERR_DATA, "%s: no checkpoint to resume from (neither %s nor %s in it)", r->out,
            run_file(RUN_LAST), run_file(RUN_PREV));
    add_runs(err, r->out);
    return -1;
}

int run_resume_options(TrainRun *r, const char *path, void *tuning, Err *err) {
    Config old;
    if (ckpt_options(path, &old, tuning, err)) return -1;
    Config now = old;
    config_take(&now, &r->cfg);
    if (config_same_run(&old, &now, err)) return -1;
    r->new_length =
        now.epochs != old.epochs || now.iterations != old.iterations || now.minutes != old.minutes;
    r->moved = strcmp(now.data, old.data) != 0;
    // these belong to this call, not to the run
    now.resume = 1;
    snprintf(now.out, sizeof now.out, "%s", r->cfg.out);
    r->cfg = now;
    return 0;
}

int run_load_state(TrainRun *r, const char *path, void *none, Err *err) {
    (void)none;
    return ckpt_load(&r->t, &r->state, path, err);
}

typedef struct {
    char path[RUN_PATH];
    char *text;
    size_t n;
} TextFile;

static int text_write(void *file, Err *err) {
    const TextFile *f = file;
    Writer w = writer_open(f->path);
    write_bytes(&w, f->text, f->n);
    write_bytes(&w, "\n", 1);
    return writer_close(&w, err);
}

static void text_drop(void *file) {
    free(((TextFile *)file)->text);
    free(file);
}

int run_write_record(TrainRun *r, Err *err) {
    JsonOut j = { .indent = 2 };
    char when[32];
    utc_now(when);
    json_open_object(&j, NULL);
    json_put_string(&j, "program", "jempp");
    json_put_string(&j, "version", version_text());
    json_put_string(&j, "written", when);
    json_put_string(&j, "device", r->dev.be.name);
    json_put_string(&j, "device_details", r->dev.be.describe(&r->dev));
    if (r->comm) json_put_int(&j, "ranks", r->comm->size);
    json_put_uint(&j, "parameters", r->t.net.n_w);
    json_put_uint(&j, "train_images", r->train.n);
    json_put_uint(&j, "valid_images", r->valid.n);
    json_put_uint(&j, "test_images", r->test.n);
    json_put_string(&j, "data_from", r->train.from);
    json_put_uint(&j, "steps", r->t.step);
    json_put_uint(&j, "steps_per_epoch", r->t.per_epoch);
    json_put_uint(&j, "steps_total", r->total);
    json_put_double(&j, "seconds", run_seconds(r));
    json_put_int(&j, "retries", r->state.attempt);
    json_put_double(&j, "best_valid_accuracy",
                    r->state.best_accuracy < 0 ? NAN : r->state.best_accuracy);
    json_put_uint(&j, "best_step", r->state.best_step);
    json_put_double(&j, "test_accuracy", r->test_accuracy);
    json_put_double(&j, "test_ece", r->test_ece);
    config_json(&r->cfg, &j);
    json_put_string(&j, "kernels", r->dev.be.tuning(&r->dev));
    json_close(&j);
    TextFile *f = calloc(1, sizeof *f);
    char *text = json_finish(&j, f ? &f->n : NULL, err);
    if (!f || !text || run_path(f->path, r->out, RUN_RECORD, err)) {
        free(f);
        free(text);
        return err_set(err, ERR_MEM, "out of memory for run.json");
    }
    f->text = text;
    worker_add(r->writer, (Job){ text_write, text_drop, f });
    return 0;
}

void run_write_log(TrainRun *r, double valid, double fid) {
    enum { MOST = 64 };                                 // steps that are read at once
    real rows[MOST][N_ROW] = { 0 };
    if (!run_writes(r)) {
        r->log.next = r->t.step;
        return;
    }
    for (int i = MOST; r->log.next < r->t.step; i++) {
        const uint64_t step = r->log.next, left = r->t.step - step;
        if (i == MOST) {
            i = 0;
            trainer_rows(&r->t, step, left < MOST ? (int)left : MOST, rows[0]);
        }
        const real *row = rows[i];
        const int px = !px_pending(&r->t) && step >= r->t.px_began;
        r->over_margin += px && row[ROW_FX] - row[ROW_FXQ] > r->t.watch.px_margin;
        r->counted += (uint64_t)px;
        const int last = left == 1;
        const LogStep s = { .epoch = (double)(step + 1) / (double)r->t.per_epoch,
                            .seconds = run_seconds(r),
                            .valid = last ? valid : NAN,
                            .fid = last ? fid : NAN,
                            .px = px };
        train_log_add(&r->log, &s, row);
    }
    train_log_show(&r->log);
}

void run_warn(TrainRun *r, SideOutput what, const Err *why) {
    static const char *const then[] = {
        [SIDE_LOG] = "its lines are kept in memory, and written when that is possible",
        [SIDE_EVENTS] = "no more is written to this file",
        [SIDE_PICTURE] = "a sample grid is missing",
        [SIDE_DIVERGED] = "the report will not show this divergence",
    };
    if (!r->warned[what]++)
        run_say(r, "warning: %.400s; training continues, %s", why->msg, then[what]);
}

void run_flush_log(TrainRun *r) {
    Err why = { 0 };
    if (train_log_flush(&r->log, &why)) run_warn(r, SIDE_LOG, &why);
    why = (Err){ 0 };
    if (train_log_flush_events(&r->log, &why)) run_warn(r, SIDE_EVENTS, &why);
    if (r->picture_err.failed) run_warn(r, SIDE_PICTURE, &r->picture_err.why);
}

static int is_no_space(const char *msg) {
    return strstr(msg, strerror(ENOSPC)) || strstr(msg, strerror(EDQUOT));
}

void run_advise(const TrainRun *r, Err *err) {
    static const RunFile files[] = { RUN_LAST, RUN_PREV };
    char path[RUN_PATH], word[2 * RUN_PATH];
    const char *free_space = is_no_space(err->msg) ? "free disk space, then " : "";
    for (int i = 0; i < 2; i++) {
        if (run_path(path, r->out, files[i], NULL) || !file_exists(path)) continue;
        err_append(err, "; %scontinue from the last checkpoint: jempp train --resume --out %s",
                   free_space, shell_word(word, sizeof word, r->out));
        return;
    }
    if (*free_space) err_append(err, "; free disk space, or choose another --out");
}

// A record that is missing or cannot be read says nothing about the device.
void run_note_device(const TrainRun *r) {
    enum { MOST = 64 << 20 };
    char path[RUN_PATH], *text = NULL;
    size_t n;
    Json *record = NULL;
    Err none = { 0 };
    const char *now = r->dev.be.describe(&r->dev);
    if (!run_path(path, r->out, RUN_RECORD, &none) && !file_read(path, MOST, &text, &n, &none) &&
        !json_parse(&record, text, n, 12, path, &none)) {
        const char *before = json_string(json_get(record, "device_details"));
        if (before && strcmp(before, now) != 0)
            run_say(r,
                    "note: the run was on %.200s, and is resumed on %.200s: results may differ in "
                    "the last bits from those of an uninterrupted run",
                    before, now);
    }
    json_free(record);
    free(text);
}

// Until the run is past the step it diverged at, the older of the two checkpoints stays: the newer
// may already be on its way there. So it does where the newer was saved while p(x) settled, or is
// damaged.
int run_save(TrainRun *r, Err *err) {
    const int past = r->t.step > r->state.diverged_step && r->t.step > r->saved_step;
    const int keep_newer = past && !px_settles(&r->t, r->saved_step) && !r->last_damaged;
    char last[RUN_PATH], prev[RUN_PATH];
    if (past && !px_settles(&r->t, r->t.step)) r->state.diverged_in_a_row = 0;
    if (!run_writes(r)) {
        r->saved_step = r->t.step;
        return 0;
    }
    if (run_path(last, r->out, RUN_LAST, err) || run_path(prev, r->out, RUN_PREV, err)) return -1;
    run_write_log(r, NAN, NAN);
    run_flush_log(r);
    if (worker_wait(r->writer, r->state_job, err)) return -1;
    RunState now = r->state;
    now.seconds = run_seconds(r);
    memcpy(now.images, r->images, sizeof now.images);
    if (ckpt_take(&r->state_file, &r->t, &now, last, keep_newer ? prev : NULL, err)) return -1;
    r->state_job = worker_add(r->writer, (Job){ snapshot_write, snapshot_drop, &r->state_file });
    r->saved_step = r->t.step;
    r->new_length = r->last_damaged = r->told_not_saved = 0;
    r->saved_at = run_seconds(r);
    return run_write_record(r, err);
}

int run_saved(TrainRun *r, Err *err) { return worker_wait_all(r->writer, err); }
