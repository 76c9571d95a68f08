// fit.c - see fit.h. fit_loop is the place to begin reading.
#include "run/fit.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/run_data.h"
#include "dev/watch.h"
#include "run/fit_run.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void utc_now(char when[32]) {
    const time_t t = time(NULL);
    struct tm tm;
    strftime(when, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
}

// For those who look at the run folder, so a failure to write it is not one of the run.
static void keep_message(const char *dir, const char *line) {
    char path[RUN_PATH], when[32];
    if (run_path(path, dir, RUN_MESSAGES, NULL)) return;
    FILE *out = file_change(path, "a", NULL);
    if (!out) return;
    if (ftell(out) == 0) fputs("time\tmessage\n", out);
    utc_now(when);
    fprintf(out, "%s\t", when);
    for (; *line; line++) fputc((unsigned char)*line < 32 ? ' ' : *line, out);
    fputc('\n', out);
    (void)fclose(out);
}

void run_say(const TrainRun *r, const char *fmt, ...) {
    char line[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    tell_line(r->ev, line);
    if (r->lock >= 0) keep_message(r->out, line);
}

double run_seconds(const TrainRun *r) { return r->state.seconds + (now_seconds() - r->start); }

// ---- the loop --------------------------------------------------------------------------------

static void show_progress(TrainRun *r) {
    real row[N_ROW] = { 0 };
    if (!r->ev || !r->ev->progress || r->t.step == r->log.next) return; // no new step
    if (!r->shown) {                     // the speed counts from here: step 0 also chose kernels
        r->shown = r->t.step;
        r->shown_at = now_seconds();
    }
    trainer_rows(&r->t, r->t.step - 1, 1, row);
    int n = snprintf(r->text, sizeof r->text, "epoch %.1f  ce %.3f  acc %.1f %%",
                     (double)r->t.step / (double)r->t.per_epoch, (double)row[ROW_CE],
                     100 * (double)row[ROW_RIGHT]);
    if (px_active(&r->t))
        n += snprintf(r->text + n, sizeof r->text - (size_t)n, "  f(x) %.2f  f(xq) %.2f",
                      (double)row[ROW_FX], (double)row[ROW_FXQ]);
    if (!isnan(r->valid_accuracy))
        n += snprintf(r->text + n, sizeof r->text - (size_t)n, "  valid %.2f %%",
                      100 * r->valid_accuracy);
    if (!isnan(r->fid_value))
        n += snprintf(r->text + n, sizeof r->text - (size_t)n, "  FID %.1f", r->fid_value);
    if (r->comm && r->t.step > r->shown)
        snprintf(r->text + n, sizeof r->text - (size_t)n, "  %.0f images/s on %d rank%s",
                 (double)(r->t.step - r->shown) * r->t.labels.images /
                     (now_seconds() - r->shown_at),
                 r->comm->size, plural(r->comm->size));
    r->ev->progress(r->ev->ctx, r->shown, r->t.step, r->total, "it", r->text);
}

static int finished(TrainRun *r) {
    if (r->cfg.minutes > 0) {
        const double limit = 60 * r->cfg.minutes;
        double passed = run_seconds(r);
        comm_broadcast(r->comm, &passed, sizeof passed);
        r->t.time_share = fmin(passed / limit, 1);
        r->total = r->t.step;
        if (passed < limit)
            r->total = (uint64_t)((double)r->t.step * limit / fmax(passed, 1e-3)) + 1;
        return passed >= limit;
    }
    return r->t.step >= r->total;
}

// Time spent writing does not count as time between checkpoints.
static int checkpoint_due(TrainRun *r) {
    const double since = fmin(run_seconds(r) - r->saved_at, worker_idle(r->writer));
    return r->cfg.checkpoint_minutes > 0 && since >= 60 * r->cfg.checkpoint_minutes;
}

static const double CLIMB_ROOM = 0.1;        // above --climb-limit, of a state that is kept

// The limit of divergence that is too near for a state to be kept, by the halt that it would cause.
static int near_limit(const TrainRun *r, const StepState *now) {
    const Watch *w = &r->t.watch;
    if (px_settles(&r->t, r->t.step)) return HALT_NO;
    if (w->gap_limit > 0 && now->gap > w->gap_limit / 2) return HALT_GAP;
    if (w->ce_limit > 0 && now->ce - now->ce_low > w->ce_limit / 2) return HALT_CE;
    return !px_pending(&r->t) && climb_below(w, now, CLIMB_ROOM) ? HALT_CLIMB : HALT_NO;
}

int run_is_stable(const TrainRun *r, const StepState *now) { return near_limit(r, now) == HALT_NO; }

static void describe_limit(const TrainRun *r, const StepState *now, char *dst, size_t n) {
    const Config *c = &r->cfg;
    const int limit = near_limit(r, now);
    if (limit == HALT_GAP)
        snprintf(dst, n,
                 "the running mean of |f(x) - f(x_q)| is %.3g, more than half of --gap-limit %g",
                 (double)now->gap, c->gap_limit);
    else if (limit == HALT_CE)
        snprintf(dst, n,
                 "the cross-entropy's running mean is %.3g above its lowest value, more than half "
                 "of --ce-limit %g",
                 (double)(now->ce - now->ce_low), c->ce_limit);
    else
        snprintf(dst, n, "the running mean of climb is %.3f, not %g above --climb-limit %g",
                 (double)now->climb, CLIMB_ROOM, c->climb_limit);
}

// A checkpoint that was due: said once until there is one again, and at the end.
static void say_not_saved(TrainRun *r, const StepState *now, int end) {
    char why[160];
    if (!end && r->told_not_saved++) return;
    describe_limit(r, now, why, sizeof why);
    if (end)
        run_say(r,
                "not saved, close to a divergence limit: %s; the checkpoint of step %" PRIu64
                " is kept",
                why, r->saved_step);
    else
        run_say(r,
                "no checkpoint is written from step %" PRIu64
                " on, until the run is further from a divergence limit: %s; that of step %" PRIu64
                " is kept",
                r->t.step, why, r->saved_step);
}

// The live page asks for the end of a run by a file in its folder; it is looked for twice per
// second.
static int stop_file(TrainRun *r) {
    const double now = now_seconds();
    if (now - r->looked < 0.5) return 0;
    r->looked = now;
    if (!run_stop_requested(r->out)) return 0;
    run_stop_clear(r->out);
    run_say(r, "stop requested by the file %s in the run folder", run_file(RUN_STOP));
    return 1;
}

// What the host does between steps once the device has been waited for: log, validation at the end
// of an epoch and of the run, checkpoint, stopping.
static int between_steps(TrainRun *r, const StepState *now, int epoch_over, int last, int *stopped,
                         Err *err) {
    const uint64_t step = r->t.step;
    const int no_model = !r->state.best_step && px_active(&r->t);
    const int validate = (epoch_over && step != r->state.validated) ||
                         (last && (step != r->state.validated || no_model));
    show_progress(r);
    if (!validate) run_write_log(r, NAN, NAN);
    if (validate && comm_agree(r->comm, run_end_epoch(r, err), err)) return -1;
    const int stop = !last && (stop_asked(r->ev) || (run_writes(r) && stop_file(r)));
    const Wish wish = run_wish(r, (Wish){ stop, checkpoint_due(r) || (last && r->new_length) });
    *stopped = wish.stop;
    const int save = validate || (step > r->saved_step && wish.stop) ||
                     ((step > r->saved_step || last) && wish.save);
    const int stable = run_is_stable(r, now), end = last || *stopped;
    if (save && stable && comm_agree(r->comm, run_save(r, err), err)) return -1;
    if (!stable && (end ? step > r->saved_step : save)) say_not_saved(r, now, end);
    return 0;
}

static int fit_loop(TrainRun *r, int *stopped, Err *err) {
    Trainer *t = &r->t;
    const uint64_t look_every = (uint64_t)r->dev.be.look_every;
    for (;;) {
        const int last = finished(r);
        const int epoch_over = t->step && t->step % t->per_epoch == 0;
        if (t->step % look_every == 0 || epoch_over || last) {
            const int failed = dev_check(&r->dev, err) || worker_check(r->writer, err);
            if (run_ranks_alike(r, failed, err)) return -1;
            const StepState now = trainer_state(t); // waits for the device
            if (now.halt) {
                if (run_roll_back(r, now.halt, err)) return -1;
                continue;
            }
            if (between_steps(r, &now, epoch_over, last, stopped, err)) return -1;
            if (last || *stopped) return 0;
        }
        trainer_advance(t);
        if (t->px_began && t->step == t->px_began + 1)
            run_say(r,
                    "p(x) begins with step %" PRIu64 "; the best model is chosen from step %" PRIu64
                    " on, or is the last one",
                    t->px_began, run_density_from(r));
    }
}

// ---- opening and closing ---------------------------------------------------------------------

static int load_data(TrainRun *r, Err *err) {
    const Config *c = &r->cfg;
    const DataOpts o = data_opts(c, r->ev);
    Err none = { 0 };
    if (c->resume && run_folder_there(c, err)) return -1;
    if (c->resume ? run_images(c, r->ev, &r->train, &r->valid, err)
                  : new_run_images(c, r->ev, &r->train, &r->valid, err))
        return -1;
    if (strchr(c->data, ':')) images_digest(r->images, &r->train, &r->valid);
    if (strncmp(c->data, "cifar-file:", 11) == 0 ||
        set_load(&r->test, c->data, HALF_TEST, &o, &none))
        r->test.n = 0;
    return stopped(r->ev, err);
}

static void introduce(const TrainRun *r, const char *note) {
    const Trainer *t = &r->t;
    const double epochs = (double)r->total / (double)t->per_epoch;
    char length[64];
    if (note[0]) run_say(r, "note: %s", note);
    if (r->cfg.minutes > 0)
        snprintf(length, sizeof length, "%g minute%s", r->cfg.minutes, plural(r->cfg.minutes));
    else
        snprintf(length, sizeof length, "%" PRIu64 " step%s (%.4g epoch%s)", r->total,
                 plural((double)r->total), epochs, plural(epochs));
    run_say(r, "%s: %.2f M parameters, %.3f GMAC per image", r->cfg.model, (double)t->net.n_w / 1e6,
            (double)net_macs(&t->net) / 1e9);
    run_say(r, "%s: %zu training, %zu validation, %zu test image%s of %d classes, %dx%d; %s",
            r->cfg.data, r->train.n, r->valid.n, r->test.n, plural((double)r->test.n),
            r->train.classes, r->train.side, r->train.side, r->train.from);
    run_say(r, "device %s: %s; %.2f GiB for activations", r->dev.be.name,
            r->dev.be.describe(&r->dev), (double)t->mem_bytes / 0x1p30);
    run_say(r, "%s, batch %d, into %s", length, r->cfg.batch, r->out);
    if (!r->cfg.resume && !(r->cfg.minutes > 0) && 2 * (uint64_t)r->cfg.warmup > r->total)
        run_say(r,
                "warning: the learning rate rises for --warmup %d step%s, which is more than half "
                "of the run: expected fewer, such as --warmup %" PRIu64,
                r->cfg.warmup, plural(r->cfg.warmup), r->total / 10);
    run_introduce_ranks(r);
}

// The folder, and of a resumed run its options and kernel choices (malloc'd).
static int open_folder(TrainRun *r, char **tuning, Err *err) {
    if (run_folder_choose(r->out, sizeof r->out, &r->made, &r->cfg, err) ||
        run_folder_lock(r->out, r->cfg.resume, &r->lock, err))
        return -1;
    run_stop_clear(r->out);                                 // of an earlier session
    if (!r->cfg.resume) return 0;
    return run_use_checkpoint(r, 0, run_resume_options, tuning, err);
}

static int start_device(TrainRun *r, const char *tuning, Err *err) {
    DevOpts o = comm_dev(r->comm, config_dev(&r->cfg));
    o.tuning = tuning;
    o.events = r->ev;
    return dev_open(&r->dev, r->cfg.device, &o, r->note, err);
}

static int open_device(TrainRun *r, const char *tuning, Err *err) {
    Trainer *t = &r->t;
    if (!r->dev.be.name && start_device(r, tuning, err)) return -1;
    const int empty = r->cfg.resume || !run_writes(r);      // filled from rank 0 or a checkpoint
    if (trainer_open(t, &r->dev, r->comm, &r->cfg, &r->train, empty, err)) return -1;
    // batches as large as those of training use the kernels that were found for these
    const int infer = r->cfg.batch < 64 ? r->dev.be.eval_batch : r->cfg.batch;
    if (scorer_open(&r->scorer, &t->net, infer, t->mem, t->mem_bytes, err) || stopped(r->ev, err))
        return -1;
    r->scorer.comm = r->comm;
    return r->valid.n ? bytes_upload(&r->valid_bytes, &r->dev, &r->valid, err) : 0;
}

// A user's own images may have changed since the checkpoint. Then they are divided differently, and
// what was held out would be trained on.
static int check_images(const TrainRun *r, Err *err) {
    const char *was = r->state.images;
    char word[2 * RUN_PATH];
    if (!r->images[0] || !strcmp(was, r->images) || (!was[0] && !r->moved)) return 0;
    return err_set(err, ERR_DATA,
                   "--resume: %s: %s (found %zu image%s for training, %zu for validation); restore "
                   "them, or begin another run: train --init %s",
                   r->cfg.data,
                   was[0] ? "the pictures or classes are not those that the run was trained with"
                          : "its checkpoint is too old to tell whether these are its pictures",
                   r->train.n, plural((double)r->train.n), r->valid.n,
                   shell_word(word, sizeof word, r->out));
}

// What rank 0 alone does, after all have opened their devices.
static int open_state(TrainRun *r, Err *err) {
    if (r->cfg.resume ? run_use_checkpoint(r, 0, run_load_state, NULL, err)
                      : run_init_weights(r, err))
        return -1;
    if (r->cfg.resume && check_images(r, err)) return -1;
    r->writer = worker_open(err);
    return r->writer ? train_log_open(&r->log, r->out, r->t.step, err) : -1;
}

// A resumed run that has nothing to do, or less than nothing.
static int check_length(const TrainRun *r, Err *err) {
    const uint64_t done = r->t.step;
    const double epochs = (double)done / (double)r->t.per_epoch;
    const int timed = r->cfg.minutes > 0, over = timed && r->state.seconds >= 60 * r->cfg.minutes;
    if (!timed && done > r->total)
        return err_set(err, ERR_ARG,
                       "--resume: the run has done %" PRIu64
                       " step%s (%.4g epoch%s), found %" PRIu64 ": expected no fewer",
                       done, plural((double)done), epochs, plural(epochs), r->total);
    if (over || (!timed && done == r->total))
        run_say(r, "note: the run was complete; a larger --%s with --resume extends it",
                timed               ? "minutes"
                : r->cfg.iterations ? "iterations"
                                    : "epochs");
    return 0;
}

// With a new --climb-limit that is too high a resumed run would at once use up its retries, or keep
// no state.
static int check_climb(TrainRun *r, Err *err) {
    const Trainer *t = &r->t;
    const StepState now = trainer_state(&r->t);
    const double most = floor(100 * ((double)now.climb - CLIMB_ROOM)) / 100;
    char expected[80] = "expected 0 (no limit)";
    if (!px_active(t) || px_settles(t, t->step) || t->step < t->px_began + CLIMB_FROM ||
        !climb_below(&t->watch, &now, CLIMB_ROOM))
        return 0;
    if (most > 0)
        snprintf(expected, sizeof expected, "expected at most %.2f, or 0 (no limit)", most);
    return err_set(
        err, ERR_ARG,
        "--resume: --climb-limit %g: the run's running mean of climb is %.3f, and a state "
        "is kept only from %g above the limit on: %s",
        r->cfg.climb_limit, (double)now.climb, CLIMB_ROOM, expected);
}

static int fit_open(TrainRun *r, Err *err) {
    char *tuning = NULL;
    int rc = comm_agree(r->comm, run_writes(r) ? open_folder(r, &tuning, err) : 0, err);
    if (!rc) rc = run_share_folder(r, &tuning, err);
    if (!rc)
        rc = config_check(&r->cfg, err) || run_fid_check(r, err) || run_init_check(r, err) ||
             (run_writes(r) && start_device(r, tuning, err)) ||  // others need what rank 0 finds
             load_data(r, err) || run_init_fits(r, err);
    rc = comm_agree(r->comm, rc, err) || run_same_images(r, err) ||
         run_open_devices(r, open_device, tuning, err);
    free(tuning);
    if (rc) return -1;
    Trainer *t = &r->t;
    r->logits = malloc((r->valid.n + r->test.n + 1) * (size_t)r->train.classes * sizeof *r->logits);
    if (!r->logits) rc = err_set(err, ERR_MEM, "out of memory for scores");
    r->total = t->schedule.total;
    r->start = now_seconds();
    r->log.ev = r->ev;
    r->log.tensorboard = r->cfg.tensorboard;
    r->log.chain_length = r->t.length.most > 0;
    if (!rc && run_writes(r)) rc = open_state(r, err);
    if (comm_agree(r->comm, rc, err)) return -1;
    run_share_state(r);
    r->saved_at = r->state.seconds;
    r->first_step = r->saved_step = r->log.next = t->step;
    introduce(r, r->note);
    if (r->cfg.resume) run_say(r, "resuming at step %" PRIu64, t->step);
    if (r->cfg.resume && run_writes(r)) run_note_device(r);
    if (r->cfg.resume) return check_length(r, err) || check_climb(r, err) ? -1 : 0;
    return comm_agree(r->comm, run_save(r, err), err);
}

static void fit_close(TrainRun *r) {
    worker_close(r->writer);
    if (r->dev.be.name) snapshot_free(&r->state_file, &r->dev);
    if (r->dev.be.name) snapshot_free(&r->model_file, &r->dev);
    run_fid_close(r);
    scorer_close(&r->scorer);
    if (r->dev.be.name) bytes_free(&r->valid_bytes, &r->dev);
    trainer_close(&r->t);
    if (r->dev.be.name) dev_close(&r->dev);
    set_free(&r->train);
    set_free(&r->valid);
    set_free(&r->test);
    train_log_close(&r->log);
    if (r->lock >= 0) close(r->lock);
    free(r->logits);
    starts_file_free(&r->starts);
}

int fit(const Config *c, const Events *events, FitResult *result, Err *err) {
    TrainRun *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, ERR_MEM, "out of memory");
    r->cfg = *c;
    config_settle(&r->cfg);
    r->ev = events;
    r->lock = -1;
    r->valid_accuracy = r->fid_value = r->test_accuracy = r->test_ece = NAN;
    r->state = (RunState){ .lr_scale = 1, .best_accuracy = -1 };
    *result = (FitResult){ .valid_accuracy = NAN, .test_accuracy = NAN, .test_ece = NAN };
    int rc = run_open_ranks(r, err) || fit_open(r, err);
    const int opened = !rc;
    if (rc && r->lock >= 0) run_folder_drop(r->out, r->made);
    if (!rc) rc = fit_loop(r, &result->stopped, err);
    if (!rc) rc = comm_agree(r->comm, run_saved(r, err), err);
    if (opened) run_flush_log(r);
    snprintf(result->out, sizeof result->out, "%s", r->out);
    result->steps = r->t.step;
    result->retries = r->state.attempt;
    if (r->state.best_accuracy >= 0) result->valid_accuracy = r->state.best_accuracy;
    if (!rc && !result->stopped) {
        if (px_pending(&r->t))
            run_say(r, "note: p(x) never began, so no model was written: expected more steps, or a "
                       "lower --px-from");
        rc = run_test_best(r, err);
    }
    if (rc && err && worker_check(r->writer, &(Err){ 0 })) run_advise(r, err);
    result->test_accuracy = r->test_accuracy;
    result->test_ece = r->test_ece;
    if (r->start > 0) result->seconds = run_seconds(r);
    if (!rc && !result->stopped) run_fit_length(r);         // no other rank waits for it
    fit_close(r);
    run_close_ranks(r, rc, err);
    free(r);
    return rc;
}
