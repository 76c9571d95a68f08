// fit.c - see fit.h. fit_loop is the place to begin reading.
#include "run/fit.h"
#include "base/file.h"
#include "base/image.h"
#include "base/json.h"
#include "base/log.h"
#include "run/ckpt.h"
#include "run/folder.h"
#include "run/train_log.h"
#include "base/events.h"
#include "base/version.h"
#include "jem/metrics.h"
#include "jem/score.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    Config   cfg;
    const Events *ev;
    char     out[480];
    int      lock;                   // the run folder, held open and locked: one run at a time
    Dev      dev;
    Set      train, valid, test;     // test.n 0: not found
    Bytes    valid_bytes;            // on the device
    Trainer  t;
    Scorer   scorer;
    RunState state;
    TrainLog log;
    float   *logits;                 // of the validation images
    float   *mean, *factor;          // chain starts for the model; made once
    double   began, saved_at;        // clock; seconds of training
    uint64_t told;                   // the first step that was shown live
    uint64_t saved_step, total;      // total: steps of the whole run, an estimate with --minutes
    uint64_t trouble;                // the furthest step it diverged at
    double   valid_accuracy;         // the last one, or NaN
    int      bad_in_a_row;
    uint64_t behind, counted;        // steps of this epoch with chains behind, of so many
    int      told_behind;
    char     text[200];              // the live line
} Fit;

static void say(const Fit *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const Fit *f, const char *fmt, ...) {
    char line[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    tell_line(f->ev, line);
}

static double spent(const Fit *f) { return f->state.seconds + (now_seconds() - f->began); }

// ---- the folder -----------------------------------------------------------------------------------

// The newest state that can be read: `last`, or `prev` where a crash fell between two renames; the
// other way round where an older state is wanted.
static int find_state(const Fit *f, int older, char path[RUN_PATH], Err *err) {
    Err why = { 0 };
    static const RunFile files[] = { RUN_LAST, RUN_PREV };
    for (int i = 0; i < 2; i++) {
        St st;
        if (run_path(path, f->out, files[older ? 1 - i : i], err)) return -1;
        if (!file_exists(path) || st_open(&st, path, &why)) continue;
        st_close(&st);
        if (why.kind) say(f, "%s; going back to %s", why.msg, path);
        return 0;
    }
    return err_set(err, ERR_DATA, "%s: no checkpoint to go on from%s%s", f->out,
                   why.kind ? ": " : "", why.msg);
}

// The run's own options, with those that the user gave now and that may change.
static int resume_options(Fit *f, const char *path, char **tuning, Err *err) {
    Config old;
    if (ckpt_options(path, &old, tuning, err)) return -1;
    Config now = old;
    config_take(&now, &f->cfg);
    if (config_same_run(&old, &now, err)) return -1;
    // what belongs to this call, not to the run
    now.resume = 1;
    snprintf(now.out, sizeof now.out, "%s", f->cfg.out);
    f->cfg = now;
    return 0;
}

static void put_options(JsonOut *j, const Config *c) {
    json_open_object(j, "options");
    for (int i = 0; i < config_n_rows; i++) {
        char value[1100];
        if (!(config_rows[i].commands & CMD_TRAIN) || config_rows[i].type == T_FILE) continue;
        config_value(c, &config_rows[i], value, sizeof value);
        json_put_string(j, config_rows[i].name, value);
    }
    json_close(j);
}

static int write_record(Fit *f, Err *err) {
    JsonOut j = { .indent = 2 };
    char path[RUN_PATH], when[40];
    const time_t t = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
    json_open_object(&j, NULL);
    json_put_string(&j, "program", "jempp");
    json_put_string(&j, "version", version_text());
    json_put_string(&j, "written", when);
    json_put_string(&j, "device", f->dev.be.name);
    json_put_string(&j, "device_details", f->dev.be.describe(&f->dev));
    json_put_uint(&j, "parameters", f->t.net.n_w);
    json_put_uint(&j, "train_images", f->train.n);
    json_put_uint(&j, "valid_images", f->valid.n);
    json_put_string(&j, "data_from", f->train.from);
    json_put_uint(&j, "steps", f->t.step);
    json_put_uint(&j, "steps_per_epoch", f->t.per_epoch);
    json_put_double(&j, "seconds", spent(f));
    json_put_int(&j, "retries", f->state.attempt);
    json_put_double(&j, "best_valid_accuracy",
                    f->state.best_accuracy < 0 ? NAN : f->state.best_accuracy);
    json_put_uint(&j, "best_step", f->state.best_step);
    put_options(&j, &f->cfg);
    json_put_string(&j, "kernels", f->dev.be.tuning(&f->dev));
    json_close(&j);
    size_t n;
    char *text = json_finish(&j, &n, err);
    if (!text || run_path(path, f->out, RUN_RECORD, err)) return free(text), -1;
    Writer w = writer_open(path);
    write_bytes(&w, text, n);
    write_bytes(&w, "\n", 1);
    free(text);
    return writer_close(&w, err);
}

// ---- the log --------------------------------------------------------------------------------------

// Brings the log up to the step before t.step. valid: the epoch's accuracy, on its last step, or NaN.
static void drain_log(Fit *f, double valid) {
    real row[N_ROW] = { 0 };
    while (f->log.next < f->t.step) {
        const uint64_t step = f->log.next;
        trainer_row(&f->t, step, row);
        f->behind += row[ROW_FX] - row[ROW_FXQ] > f->t.watch.px_margin;
        f->counted++;
        train_log_add(&f->log, (double)(step + 1) / (double)f->t.per_epoch, spent(f), row,
                      step + 1 == f->t.step ? valid : NAN);
    }
}

static void progress(Fit *f) {
    real row[N_ROW] = { 0 };
    if (!f->ev || !f->ev->progress || f->t.step == f->log.next)
        return;                        // no step made that is not told
    if (!f->told) f->told = f->t.step;                      // speed is counted from here: the step before chose kernels
    trainer_row(&f->t, f->t.step - 1, row);
    int n = snprintf(f->text, sizeof f->text, "epoch %.1f  ce %.3f  acc %.1f %%",
                     (double)f->t.step / (double)f->t.per_epoch, (double)row[ROW_CE],
                     100 * (double)row[ROW_RIGHT]);
    if (has_chains(&f->t))
        n += snprintf(f->text + n, sizeof f->text - (size_t)n, "  f(x) %.2f  f(xq) %.2f",
                      (double)row[ROW_FX], (double)row[ROW_FXQ]);
    if (!isnan(f->valid_accuracy))
        snprintf(f->text + n, sizeof f->text - (size_t)n, "  valid %.2f %%",
                 100 * f->valid_accuracy);
    f->ev->progress(f->ev->ctx, f->told, f->t.step, f->total, "it", f->text);
}

// ---- epochs ----------------------------------------------------------------------------------------

// Averaged weights need statistics of their own: those of labelled batches, augmented as ever, seen by the averaged net.
static void average_statistics(Fit *f) {
    enum { BATCHES = 50 };
    Trainer *t = &f->t;
    Pass *p = &t->real_pass;
    const size_t bytes = t->net.n_state * sizeof(real);
    const uint64_t batches = t->net.batches;
    for (int k = 0; k < BATCHES && bytes; k++) {
        const StepInput in = { .step = (uint32_t)(t->step + (uint64_t)k) };
        const Rng key = { .seed = t->seed, .stream = RNG_EVAL };
        t->dev->be.copy_in(t->dev, &t->state->in, &in, sizeof in);
        t->dev->be.pick(t->dev, (Pick){ PICK_EPOCH, t->data.n, 0 }, t->cfg.batch, key, t->state,
                        t->index, NULL);
        t->dev->be.batch(t->dev, &t->data, t->index, t->cfg.batch, trainer_augment(t), key, t->state,
                         t->batch[0].x, NULL);
        for (int i = 0; i < t->net.n_op; i++) p->norm[i].momentum = 1 / (real)(k + 1);
        pass_forward(p, t->batch[0].x);
    }
    for (int i = 0; i < t->net.n_op; i++) p->norm[i].momentum = t->net.momentum;
    t->net.batches = batches;
}

static void swap(Dev *dev, real *a, real *b, size_t n, real *room) {
    dev->be.copy(dev, room, a, n * sizeof *a);
    dev->be.copy(dev, a, b, n * sizeof *a);
    dev->be.copy(dev, b, room, n * sizeof *a);
}

// Exchanges the weights and statistics in use with the averaged ones. dw serves as room: no step is under way.
static void swap_average(Trainer *t) {
    if (!t->optim.avg) return;
    swap(t->dev, t->net.w, t->optim.avg, t->net.n_w, t->net.dw);
    swap(t->dev, t->net.state, t->optim.avg_state, t->net.n_state, t->net.dw);
    net_changed(&t->net);
}

// Means and leading directions of the classes, so that the model can start chains without its data.
static int chain_starts(Fit *f, Err *err) {
    const int n_group = f->t.starts.n_group, dim = f->t.starts.dim;
    if (f->mean || !has_chains(&f->t) || !n_group) return 0;
    f->mean = malloc((size_t)(n_group * dim) * sizeof *f->mean);
    f->factor = malloc((size_t)(n_group * dim) * STARTS_RANK * sizeof *f->factor);
    if (!f->mean || !f->factor) return err_set(err, ERR_MEM, "out of memory for chain starts");
    return starts_factor(f->train.x, f->train.y, f->train.n, n_group, dim, STARTS_RANK, f->mean,
                         f->factor, err);
}

// From the logits of the validation images, of which s tells. Few mistakes do not tell how sure to be: of
// none, the coldest temperature would fit best.
static double temperature_in_use(const Fit *f, const Scores *s) {
    enum { LEAST_MISTAKES = 20 };
    if ((1 - s->accuracy) * (double)s->n < LEAST_MISTAKES) return 0;
    return temperature_of(f->logits, f->valid.y, f->valid.n, f->valid.classes);
}

static int save_best(Fit *f, const Scores *s, Err *err) {
    char path[RUN_PATH];
    if (chain_starts(f, err) || run_path(path, f->out, RUN_BEST, err)) return -1;
    const ModelCard card = { .cfg = &f->cfg,
                             .class_name = f->train.class_name,
                             .threshold = s->threshold,
                             .temperature = temperature_in_use(f, s),
                             .n_group = f->t.starts.n_group,
                             .rank = STARTS_RANK,
                             .mean = f->mean,
                             .factor = f->factor };
    return model_save(&f->t.net, f->t.net.w, f->t.net.state, &card, 0, path, err);
}

// Until the run is past where it went astray, the older of the two states stays: the newer may be on its
// way there.
static int save_state(Fit *f, Err *err) {
    const int past = f->t.step > f->trouble && f->t.step > f->saved_step;
    char last[RUN_PATH], prev[RUN_PATH];
    if (run_path(last, f->out, RUN_LAST, err) || run_path(prev, f->out, RUN_PREV, err))
        return -1;
    drain_log(f, NAN);
    if (train_log_flush(&f->log, err)) return -1;
    RunState now = f->state;
    now.seconds = spent(f);
    if (ckpt_save(&f->t, &now, last, past ? prev : NULL, err)) return -1;
    f->saved_step = f->t.step;
    if (past) f->bad_in_a_row = 0;
    const int rc = write_record(f, err);
    f->saved_at = spent(f);                                 // writing is no time between checkpoints
    return rc;
}

// One row a class where there are classes to show: 10 x 10 of the buffer's slots, evenly spread.
static int sample_grid(Fit *f, Err *err) {
    enum { SIDE = 10 };
    Trainer *t = &f->t;
    char path[RUN_PATH];
    if (!has_chains(t)) return 0;
    const size_t dim = t->replay.dim;
    const int n = t->replay.n < SIDE * SIDE ? t->replay.n : SIDE * SIDE;
    real *row = malloc(dim * sizeof *row);
    float *x = malloc((size_t)n * dim * sizeof *x);
    Image im = { 0 };
    int rc = row && x ? 0 : err_set(err, ERR_MEM, "out of memory for a picture");
    for (int i = 0; !rc && i < n; i++) {
        t->dev->be.copy_out(t->dev, row, t->replay.x + (size_t)((int64_t)i * t->replay.n / n) * dim,
                            dim * sizeof *row);
        for (size_t k = 0; k < dim; k++) x[(size_t)i * dim + k] = (float)row[k];
    }
    if (!rc) rc = run_sample_path(path, f->out, t->step, err);
    if (!rc) rc = image_grid(&im, x, n, t->data.c, t->data.side, SIDE, 2, 2, err);
    if (!rc) rc = image_write_png(&im, path, err);
    image_free(&im);
    free(row);
    free(x);
    return rc;
}

// A margin keeps a run alive; whether p(x) is still learnt is another question.
static void tell_behind(Fit *f) {
    if (has_chains(&f->t) && f->t.watch.px_margin > 0 && f->behind > f->counted / 4 &&
        !f->told_behind++)
        say(f,
            "note: in %" PRIu64 " of the last %" PRIu64
            " steps chains were behind (--px-margin): the classifier learns, p(x) hardly does; "
            "--sam "
            "2, more --steps or an earlier end may keep samples good",
            f->behind, f->counted);
    f->behind = f->counted = 0;
}

// Validation, the best model, a picture. With averaged weights it is those that are judged and kept.
static int end_epoch(Fit *f, Err *err) {
    Trainer *t = &f->t;
    Scores s = { .threshold = NAN };
    int rc = 0;
    f->state.judged = t->step;
    const StepState keep = trainer_state(t);
    swap_average(t);
    if (t->optim.avg) average_statistics(f);
    if (f->valid.n) {
        rc = scorer_set(&f->scorer, &f->valid_bytes, 0, (int)f->valid.n, f->logits, err);
        if (!rc) rc = scores_of(&s, f->logits, f->valid.y, f->valid.n, f->valid.classes, 1, err);
        f->valid_accuracy = rc ? NAN : s.accuracy;
    }
    // without validation images the newest model is the best
    if (!rc && (!f->valid.n || s.accuracy > f->state.best_accuracy)) {
        f->state.best_accuracy = f->valid.n ? s.accuracy : -1;
        f->state.best_step = t->step;
        rc = save_best(f, &s, err);
    }
    swap_average(t);
    t->dev->be.copy_in(t->dev, t->state, &keep, sizeof keep);
    drain_log(f, f->valid_accuracy);
    tell_behind(f);
    return rc || sample_grid(f, err) ? -1 : dev_check(t->dev, err);
}

// ---- trouble ----------------------------------------------------------------------------------------

static const char *const reasons[] = { "", "the loss is not finite or beyond its limit",
                                       "a gradient is not finite", "f(x) and f(x_q) drifted apart",
                                       "the classifier's loss rose far above its lowest" };

// The log is cut back with the run, so what happened is kept beside it; the report marks it.
static int note_divergence(const Fit *f, int reason, Err *err) {
    char path[RUN_PATH];
    if (run_path(path, f->out, RUN_DIVERGED, err)) return -1;
    FILE *out = fopen(path, "a");
    if (out && ftell(out) == 0) fputs("step\tepoch\tseconds\treason\n", out);
    if (out)
        fprintf(out, "%" PRIu64 "\t%.4f\t%.2f\t%s\n", f->t.step,
                (double)f->t.step / (double)f->t.per_epoch, spent(f), reasons[reason]);
    if (!out || fclose(out)) return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    return 0;
}

// Chains that get less than a third of what their slopes promise leap over the ridges they climb.
static const char *advice(Fit *f, uint64_t at) {
    const uint64_t n = at < 100 ? at : 100;
    real row[N_ROW] = { 0 };
    double climb = 0;
    for (uint64_t i = at - n; i < at; i++) {
        trainer_row(&f->t, i, row);
        climb += (double)row[ROW_CLIMB] / (double)n;
    }
    return climb < 1.0 / 3 && has_chains(&f->t)
               ? "chains leapt too far (climb in log.tsv): --px-margin 1, --sam 2, a smaller "
                 "--step-size or "
                 "more noise on real images (--px shared --sigma 0.1) may"
               : "--px-margin 1, --sam 2, more chain steps (--steps) or a smaller --step-size may";
}

// Back to the last good state, with other random numbers; after repeated trouble with half the rate. It
// is saved as such: a run that is killed now goes on with what was learnt of the trouble.
static int go_back(Fit *f, int reason, Err *err) {
    char path[RUN_PATH];
    const uint64_t at = f->t.step;
    const int attempt = f->state.attempt + 1;
    if (at > f->trouble) f->trouble = at;
    if (note_divergence(f, reason, err)) return -1;
    if (attempt > f->cfg.retries) {
        say(f, "diverged near step %" PRIu64 ": %s; giving up after %d retries", at,
            reasons[reason], f->cfg.retries);
        return err_set(err, ERR_DIVERGED,
                       "%s: diverged near step %" PRIu64 " (%s) and %d retries did not help; %s",
                       f->out, at, reasons[reason], f->cfg.retries, advice(f, at));
    }
    const double spent_so_far = spent(f);
    const double scale = ++f->bad_in_a_row > 1 ? f->t.lr_scale / 2 : f->t.lr_scale;
    const RunState before = f->state;
    const int older = f->bad_in_a_row > 2;                  // the last state may be on its way there
    if (find_state(f, older, path, err) || ckpt_load(&f->t, &f->state, path, err)) return -1;
    f->state.attempt = attempt;
    f->state.best_accuracy = before.best_accuracy;
    f->state.best_step = before.best_step;
    f->state.seconds = spent_so_far;
    f->began = now_seconds();
    f->state.lr_scale = f->t.lr_scale = scale;
    trainer_seed(&f->t, attempt);
    if (has_chains(&f->t)) replay_rewind(&f->t.replay, f->t.seed, f->t.step, f->t.replay.drawn);
    say(f,
        "diverged near step %" PRIu64 ": %s; going back to step %" PRIu64
        " with other random numbers%s (retry %d of %d)",
        at, reasons[reason], f->t.step, f->bad_in_a_row > 1 ? " and half the learning rate" : "",
        attempt, f->cfg.retries);
    return save_state(f, err) || train_log_open(&f->log, f->out, f->t.step, err) ? -1 : 0;
}

// ---- the run ------------------------------------------------------------------------------------------

static int finished(Fit *f) {
    if (f->cfg.minutes > 0) {
        const double limit = 60 * f->cfg.minutes, gone = spent(f);
        f->t.time_share = fmin(gone / limit, 1);
        f->total = f->t.step;
        if (gone < limit) f->total = (uint64_t)((double)f->t.step * limit / fmax(gone, 1e-3)) + 1;
        return gone >= limit;
    }
    return f->t.step >= f->total;
}

static int due(const Fit *f) {
    return f->cfg.checkpoint_minutes > 0 &&
           spent(f) - f->saved_at >= 60 * f->cfg.checkpoint_minutes;
}

// A state half way to a limit is not worth going back to.
static int is_calm(const Watch *w, const StepState *now) {
    return !(w->gap_limit > 0 && now->gap > w->gap_limit / 2) &&
           !(w->ce_limit > 0 && now->ce - now->ce_low > w->ce_limit / 2);
}

static int fit_loop(Fit *f, int *stopped, Err *err) {
    Trainer *t = &f->t;
    const uint64_t look = (uint64_t)f->dev.be.look_every;
    for (;;) {
        const int last = finished(f);
        const int epoch_over = t->step && t->step % t->per_epoch == 0;
        if (t->step % look == 0 || epoch_over || last) {
            if (dev_check(&f->dev, err)) return -1;
            const StepState now = trainer_state(t);
            if (now.halt) {
                if (go_back(f, now.halt, err)) return -1;
                continue;
            }
            progress(f);
            const int judge = (epoch_over || last) && t->step != f->state.judged;
            if (!judge) drain_log(f, NAN);
            if (judge && end_epoch(f, err)) return -1;
            *stopped = !last && stop_asked(f->ev);
            const int save = judge || (t->step > f->saved_step && (*stopped || due(f)));
            if (save && is_calm(&t->watch, &now) && save_state(f, err)) return -1;
            if ((last || *stopped) && t->step > f->saved_step)
                say(f, "not saved: the run is about to diverge; step %" PRIu64 " is kept",
                    f->saved_step);
            if (last || *stopped) return 0;
        }
        trainer_advance(t);
    }
}

static int load_data(Fit *f, Err *err) {
    const Config *c = &f->cfg;
    const DataOpts o = data_opts(c);
    Err none = { 0 };
    if (run_images(c, &f->train, &f->valid, err)) return -1;
    if (strncmp(c->data, "cifar-file:", 11) == 0 ||
        set_load(&f->test, c->data, HALF_TEST, &o, &none))
        f->test.n = 0;
    return 0;
}

static int start_weights(Fit *f, Err *err) {
    char path[RUN_PATH];
    St st;
    if (!f->cfg.init[0]) return 0;
    if (run_model_path(path, f->cfg.init, err) || st_open(&st, path, err)) return -1;
    const int rc = model_weights(&st, &f->t.net, err);
    st_close(&st);
    optim_average(&f->t.optim, &f->t.net);
    return rc;
}

static void introduce(const Fit *f, const char *note) {
    const Trainer *t = &f->t;
    char length[64];
    if (note[0]) say(f, "note: %s", note);
    if (f->cfg.minutes > 0) snprintf(length, sizeof length, "%g minutes", f->cfg.minutes);
    else
        snprintf(length, sizeof length, "%" PRIu64 " steps (%.4g epochs)", f->total,
                 (double)f->total / (double)t->per_epoch);
    say(f, "%s: %.2f M parameters, %.3f GMAC an image", f->cfg.model, (double)t->net.n_w / 1e6,
        (double)net_macs(&t->net) / 1e9);
    say(f, "%s: %zu training, %zu validation, %zu test images of %d classes, %dx%d, from %s",
        f->cfg.data, f->train.n, f->valid.n, f->test.n, f->train.classes, f->train.side,
        f->train.side, f->train.from);
    say(f, "device %s: %s; %.2f GiB for activations", f->dev.be.name,
        f->dev.be.describe((Dev *)(uintptr_t)&f->dev), (double)t->mem_bytes / 0x1p30);
    say(f, "%s, batch %d, into %s", length, f->cfg.batch, f->out);
}

static int fit_open(Fit *f, Err *err) {
    char path[RUN_PATH], note[256], *tuning = NULL;
    int rc = run_folder_choose(f->out, sizeof f->out, &f->cfg, err) ||
             run_folder_lock(f->out, f->cfg.resume, &f->lock, err);
    if (!rc && f->cfg.resume)
        rc = find_state(f, 0, path, err) || resume_options(f, path, &tuning, err) ? -1 : 0;
    if (!rc) rc = config_check(&f->cfg, err) || load_data(f, err) ? -1 : 0;
    DevOpts o = config_dev(&f->cfg);
    o.tuning = tuning;
    if (!rc) rc = dev_open(&f->dev, f->cfg.device, &o, note, err);
    free(tuning);
    if (rc) return -1;
    Trainer *t = &f->t;
    if (trainer_open(t, &f->dev, &f->cfg, &f->train, f->cfg.resume, err)) return -1;
    const int infer = f->cfg.batch < 100 ? 100 : f->cfg.batch;
    if (scorer_open(&f->scorer, &t->net, infer, t->mem, t->mem_bytes, err)) return -1;
    if (f->valid.n && bytes_upload(&f->valid_bytes, &f->dev, &f->valid, err)) return -1;
    f->logits = malloc((f->valid.n + f->test.n + 1) * (size_t)f->train.classes * sizeof *f->logits);
    if (!f->logits) return err_set(err, ERR_MEM, "out of memory for scores");
    f->total = t->schedule.total;
    f->began = now_seconds();
    if (f->cfg.resume ? ckpt_load(t, &f->state, path, err) : start_weights(f, err)) return -1;
    f->saved_at = f->state.seconds;
    f->saved_step = t->step;
    if (train_log_open(&f->log, f->out, t->step, err)) return -1;
    introduce(f, note);
    if (f->cfg.resume) say(f, "going on at step %" PRIu64, t->step);
    return f->cfg.resume ? 0 : save_state(f, err);
}

// The best model, not the last, is what the user gets: it is that one whose test accuracy is told.
static int test_best(Fit *f, FitResult *result, Err *err) {
    char path[RUN_PATH];
    St st;
    Scores s;
    Bytes test = { 0 };
    if (!f->test.n || run_path(path, f->out, RUN_BEST, err) || !file_exists(path)) return 0;
    if (st_open(&st, path, err)) return -1;
    int rc = model_weights(&st, &f->t.net, err);
    st_close(&st);
    if (!rc) rc = bytes_upload(&test, &f->dev, &f->test, err);
    if (!rc) rc = scorer_set(&f->scorer, &test, 0, (int)f->test.n, f->logits, err);
    if (!rc) rc = scores_of(&s, f->logits, f->test.y, f->test.n, f->test.classes, 1, err);
    bytes_free(&test, &f->dev);
    if (rc) return -1;
    result->test_accuracy = s.accuracy;
    result->test_ece = s.ece;
    return 0;
}

static void fit_close(Fit *f) {
    scorer_close(&f->scorer);
    if (f->dev.be.name) bytes_free(&f->valid_bytes, &f->dev);
    trainer_close(&f->t);
    if (f->dev.be.name) dev_close(&f->dev);
    set_free(&f->train);
    set_free(&f->valid);
    set_free(&f->test);
    train_log_close(&f->log);
    if (f->lock >= 0) close(f->lock);
    free(f->logits);
    free(f->mean);
    free(f->factor);
}

int fit(const Config *c, const Events *events, FitResult *result, Err *err) {
    Fit *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, ERR_MEM, "out of memory");
    f->cfg = *c;
    f->ev = events;
    f->lock = -1;
    f->valid_accuracy = NAN;
    f->state = (RunState){ .lr_scale = 1, .best_accuracy = -1 };
    *result = (FitResult){ .valid_accuracy = NAN, .test_accuracy = NAN, .test_ece = NAN };
    int rc = fit_open(f, err);
    if (!rc) rc = fit_loop(f, &result->stopped, err);
    if (f->log.f) fflush(f->log.f);
    snprintf(result->out, sizeof result->out, "%s", f->out);
    result->steps = f->t.step;
    result->retries = f->state.attempt;
    if (f->state.best_accuracy >= 0) result->valid_accuracy = f->state.best_accuracy;
    if (!rc && !result->stopped) rc = test_best(f, result, err);
    if (f->began > 0) result->seconds = spent(f);
    fit_close(f);
    free(f);
    return rc;
}
