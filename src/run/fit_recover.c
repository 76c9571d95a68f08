// fit_recover.c - a diverged run rolls back to a checkpoint and tries again.
#include "base/file.h"
#include "base/log.h"
#include "run/fit_run.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const reasons[] = {
    [HALT_NO] = "",
    [HALT_LOSS] = "the loss is not finite or exceeded --loss-limit",
    [HALT_GRAD] = "a gradient is not finite",
    [HALT_GAP] = "|f(x) - f(x_q)| exceeded --gap-limit",
    [HALT_CE] = "the cross-entropy exceeded its lowest value by --ce-limit",
    [HALT_CLIMB] = "the running mean of climb fell below --climb-limit, so p(x) was being lost",
};

// log.tsv is cut back with the run, so divergences are kept in a file of their own, for the report.
static void note_divergence(TrainRun *r, int reason) {
    char path[RUN_PATH];
    Err why = { 0 };
    if (run_path(path, r->out, RUN_DIVERGED, NULL)) return;
    FILE *out = file_change(path, "a", &why);
    if (out && ftell(out) == 0) fputs("step\tepoch\tseconds\treason\n", out);
    if (out)
        fprintf(out, "%" PRIu64 "\t%.4f\t%.2f\t%s\n", r->t.step,
                (double)r->t.step / (double)r->t.per_epoch, run_seconds(r), reasons[reason]);
    if (out && !fclose(out)) return;
    err_set(&why, ERR_IO, "%s: %s", path, strerror(errno));
    run_warn(r, SIDE_DIVERGED, &why);
}

// Chains that gain less than a third of what their gradient predicts step over the maxima
// (docs/pyld.md). Checkpoints have the running mean, so a resumed run can tell at once.
static int chains_overshoot(TrainRun *r) {
    const uint64_t step = r->t.step;
    if (step - r->t.px_began < CLIMB_FROM || px_settles(&r->t, step)) return 0;
    return (double)trainer_state(&r->t).climb < 1.0 / 3;
}

typedef struct {
    char list[240];
    const char *last;
} Advice;

// "a, b or c": the last one is kept apart until list_advice.
static void advise(Advice *a, int applies, const char *what) {
    const size_t n = strlen(a->list);
    if (!applies) return;
    if (a->last) snprintf(a->list + n, sizeof a->list - n, "%s%s", n ? ", " : "", a->last);
    a->last = what;
}

static void list_advice(char *dst, size_t n, const Advice *a) {
    snprintf(dst, n, "%s%s%s", a->list, a->list[0] ? " or " : "", a->last);
}

// What the run itself may change when it is resumed, and what only a new one may; not what it has.
static void advice(TrainRun *r, int reason, char *dst, size_t n) {
    const Config *c = &r->cfg;
    const int px = px_active(&r->t), climb = reason == HALT_CLIMB;
    const int overshoot = px && !climb && chains_overshoot(r);
    char same[300], other[300];
    Advice a = { 0 }, b = { 0 };
    advise(&a, 1, "more --retries");
    advise(&a, px && c->sam <= 0, "--sam 1");
    advise(&a, climb && c->sam > 0, "a larger --sam");
    advise(&a, climb, "a lower --climb-limit if the samples are good");
    list_advice(same, sizeof same, &a);
    advise(&b, !px, "a smaller --lr");
    advise(&b, px && !climb && c->px_margin <= 0 && c->px_loss != LOSS_BCE, "--px-margin 1");
    advise(&b, px && !climb && !overshoot, "more chain steps (--steps)");
    advise(&b, px, "a smaller --step-size");
    advise(&b, (climb || overshoot) && (c->px != PX_SHARED || c->sigma < 0.1),
           "more noise on real images (--px shared --sigma 0.1)");
    list_advice(other, sizeof other, &b);
    snprintf(dst, n, "%stry %s with --resume, or a new run with %s",
             overshoot ? "the chains' steps are too large (climb in log.tsv): " : "", same, other);
}

static int give_up(TrainRun *r, int reason, Err *err) {
    const uint64_t at = r->t.step;
    char after[60] = "", what[700];
    advice(r, reason, what, sizeof what);
    if (r->cfg.retries)
        snprintf(after, sizeof after, "%d %s", r->cfg.retries,
                 r->cfg.retries == 1 ? "retry" : "retries");
    run_say(r, "diverged near step %" PRIu64 ": %s; giving up%s%s", at, reasons[reason],
            after[0] ? " after " : "", after);
    return err_set(err, ERR_DIVERGED, "%s: diverged near step %" PRIu64 " (%s)%s%s%s; %s", r->out,
                   at, reasons[reason], after[0] ? " and " : "", after,
                   after[0] ? " did not help" : "", what);
}

// The state of a checkpoint, on all ranks, with the run's own record of the best model, divergences
// and time.
static int load_checkpoint(TrainRun *r, int older, Err *err) {
    const RunState now = r->state;
    const double seconds = run_seconds(r);
    const int rc = run_writes(r) &&
                   (run_saved(r, err) || run_use_checkpoint(r, older, run_load_state, NULL, err));
    if (comm_agree(r->comm, rc ? -1 : 0, err)) return -1;
    run_share_state(r);
    r->state.best_accuracy = now.best_accuracy;
    r->state.best_step = now.best_step;
    r->state.diverged_step = now.diverged_step;
    r->state.diverged_in_a_row = now.diverged_in_a_row;
    r->state.seconds = seconds;
    r->start = now_seconds();
    return 0;
}

// What a rollback changes about SAM.
static void sam_change(const TrainRun *r, double before, char *dst, size_t n) {
    const double boost = r->t.sam_boost;
    if (boost == before) dst[0] = 0;
    else if (boost == 1) snprintf(dst, n, "; SAM begins now instead of at --sam-from");
    else snprintf(dst, n, "; SAM's radius is now %g times --sam", boost);
}

// Continues from a checkpoint with a new random stream, after repeated divergence at half the
// learning rate, and where climb fell with more SAM. That is saved, so that a run that is killed
// now remembers its attempts.
int run_roll_back(TrainRun *r, int reason, Err *err) {
    const uint64_t at = r->t.step;
    if (at > r->state.diverged_step) r->state.diverged_step = at;
    if (run_writes(r)) note_divergence(r, reason);
    const int attempt = r->state.attempt + 1;
    if (attempt > r->cfg.retries) return give_up(r, reason, err);
    const int in_a_row = ++r->state.diverged_in_a_row;
    const double scale = in_a_row > 1 ? r->t.lr_scale / 2 : r->t.lr_scale;
    const double boost = r->t.sam_boost,
                 more = reason == HALT_CLIMB ? trainer_stronger_sam(&r->t) : boost;
    // the last checkpoint may already be diverging: climb falls for hundreds of steps, and is not
    // judged while p(x) settles
    const int older =
        reason == HALT_CLIMB ? in_a_row > 1 || px_settles(&r->t, r->saved_step) : in_a_row > 2;
    if (load_checkpoint(r, older, err)) return -1;
    r->state.attempt = attempt;
    r->state.lr_scale = r->t.lr_scale = scale;
    r->t.sam_boost = more;
    trainer_seed(&r->t, attempt);               // drops recordings, which hold the radius
    char sam[64];
    sam_change(r, boost, sam, sizeof sam);
    if (has_chains(&r->t)) replay_rewind(&r->t.replay, r->t.seed, r->t.step, r->t.replay.drawn);
    run_say(r,
            "diverged near step %" PRIu64 ": %s; rolling back to step %" PRIu64
            " with a new random stream%s%s (retry %d of %d)",
            at, reasons[reason], r->t.step, in_a_row > 1 ? " and half the learning rate" : "", sam,
            attempt, r->cfg.retries);
    r->log.next = r->t.step;
    return comm_agree(r->comm, run_save(r, err), err) ||
           comm_agree(r->comm, run_writes(r) ? train_log_open(&r->log, r->out, r->t.step, err) : 0,
                      err);
}
