// fit_epoch.c - the end of an epoch: validation, the best model, a picture of the replay buffer.
#include "base/file.h"
#include "base/image.h"
#include "base/safetensors.h"
#include "jem/metrics.h"
#include "run/fit_run.h"
#include "run/weights_file.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// Averaged weights need running statistics of their own: of labelled batches, augmented as in
// training, as the averaged net sees them.
static void average_statistics(TrainRun *r) {
    enum { BATCHES = 50 };
    Trainer *t = &r->t;
    Pass *p = &t->label_pass;
    const size_t bytes = t->net.n_state * sizeof(real);
    const uint64_t batches = t->net.batches;
    for (int k = 0; k < BATCHES && bytes; k++) {
        const StepInput in = { .step = (uint32_t)(t->step + (uint64_t)k),
                               .first = (uint32_t)t->px.first };
        t->dev->be.copy_in(t->dev, &t->state->in, &in, sizeof in);
        gather_labelled(t, RNG_EVAL, RNG_EVAL);
        for (int i = 0; i < t->net.n_op; i++) p->norm[i].momentum = 1 / (real)(k + 1);
        pass_forward(p, t->labelled->x);
    }
    for (int i = 0; i < t->net.n_op; i++) p->norm[i].momentum = t->net.momentum;
    comm_reduce(t->comm, t->dev, t->net.state, t->net.n_state, REDUCE_MEAN);
    comm_wait(t->comm, t->dev);
    t->net.batches = batches;
}

static void swap(Dev *dev, real *a, real *b, size_t n, real *room) {
    dev->be.copy(dev, room, a, n * sizeof *a);
    dev->be.copy(dev, a, b, n * sizeof *a);
    dev->be.copy(dev, b, room, n * sizeof *a);
}

// Exchanges the weights and statistics in use with the averaged ones. Clobbers dw: no step is under
// way.
static void swap_average(Trainer *t) {
    if (!t->optim.avg) return;
    swap(t->dev, t->net.w, t->optim.avg, t->net.n_w, t->net.dw);
    swap(t->dev, t->net.state, t->optim.avg_state, t->net.n_state, t->net.dw);
    net_changed(&t->net);
}

// What the model needs to start chains without its data.
static int chain_starts(TrainRun *r, Err *err) {
    if (r->starts.mean || !has_chains(&r->t) || !r->t.starts.n_group) return 0;
    const int groups = r->t.starts.n_group;
    r->starts = (StartsFile){ .n_group = groups,
                              .kept = starts_kept(r->t.net.n_w, groups, r->t.starts.dim),
                              .channels = r->train.c,
                              .side = r->train.side };
    return starts_file_fit(&r->train, &r->starts, err);
}

// Fitted to the logits of the validation images; 0 where there are too few errors to fit it:
// without any, the lowest temperature would fit best.
static double temperature_in_use(const TrainRun *r) {
    const Set *v = &r->valid;
    if (errors_of(r->logits, v->y, v->n, v->classes) < TEMPERATURE_ERRORS) return 0;
    return temperature_of(r->logits, v->y, v->n, v->classes);
}

static int save_best(TrainRun *r, const Scores *s, Err *err) {
    char path[RUN_PATH];
    Config cfg = r->cfg;
    cfg.steps = r->t.chain.steps;                       // as long as chains are by now
    if (chain_starts(r, err) || run_path(path, r->out, RUN_BEST, err)) return -1;
    const ModelCard card = { .cfg = &cfg,
                             .class_name = r->train.class_name,
                             .threshold = s->threshold,
                             .percentile = s->n ? s->percentile : NULL,
                             .temperature = temperature_in_use(r),
                             .starts = r->starts,
                             .images = r->images };
    if (worker_wait(r->writer, r->model_job, err) ||
        model_take(&r->model_file, &r->t.net, &card, path, err))
        return -1;
    r->model_job = worker_add(r->writer, (Job){ snapshot_write, snapshot_drop, &r->model_file });
    return 0;
}

typedef struct {
    Image im;
    char path[RUN_PATH];
    PictureErr *err;
} Picture;

// For those who look at the run folder, so a failure is not one of the run.
static void picture_fail(PictureErr *e, const Err *why) {
    if (e->failed) return;
    e->why = *why;
    e->failed = 1;
}

static int picture_write(void *picture, Err *err) {
    const Picture *p = picture;
    Err why = { 0 };
    (void)err;
    if (image_write_png(&p->im, p->path, &why)) picture_fail(p->err, &why);
    return 0;
}

static void picture_drop(void *picture) {
    image_free(&((Picture *)picture)->im);
    free(picture);
}

float *run_slots(const Trainer *t, int most, int *n, Err *err) {
    const size_t dim = t->replay.dim;
    *n = t->replay.slots.n < most ? t->replay.slots.n : most;
    real *row = malloc(dim * sizeof *row);
    float *x = malloc((size_t)*n * dim * sizeof *x);
    int rc = row && x ? 0 : err_set(err, ERR_MEM, "out of memory for the replay buffer");
    for (int i = 0; !rc && i < *n; i++) {
        t->dev->be.copy_out(t->dev, row,
                            t->replay.x + (size_t)((int64_t)i * t->replay.slots.n / *n) * dim,
                            dim * sizeof *row);
        reals_to_floats(x + (size_t)i * dim, row, dim);
    }
    free(row);
    if (!rc && !dev_check(t->dev, err)) return x;
    free(x);
    return NULL;
}

// 10 x 10 of the buffer's slots: one row per class where there are 10 classes.
static int draw_grid(const TrainRun *r, Picture *p, Err *err) {
    enum { SIDE = 10 };
    const Trainer *t = &r->t;
    int n;
    float *x = run_slots(t, SIDE * SIDE, &n, err);
    int rc = x ? run_sample_path(p->path, r->out, t->step, err) : -1;
    if (!rc)
        rc = image_grid(&p->im, (FloatImages){ x, n, t->data.c, t->data.side },
                        (Grid){ SIDE, 2, 2 }, err);
    free(x);
    return rc;
}

// By the thread that writes, or here where the event file takes it in at once.
static void sample_grid(TrainRun *r) {
    Err why = { 0 };
    if (!px_active(&r->t)) return;
    Picture *p = calloc(1, sizeof *p);
    if (!p) err_set(&why, ERR_MEM, "out of memory for a sample grid");
    if (!p || draw_grid(r, p, &why)) {
        run_warn(r, SIDE_PICTURE, &why);
        if (p) picture_drop(p);
        return;
    }
    p->err = &r->picture_err;
    if (!r->log.tensorboard) {
        worker_add(r->writer, (Job){ picture_write, picture_drop, p });
        return;
    }
    if (image_write_png(&p->im, p->path, &why)) run_warn(r, SIDE_PICTURE, &why);
    else train_log_picture(&r->log, p->path);
    picture_drop(p);
}

// The margin prevents divergence, but p(x) hardly improves where it acts often.
static void note_margin(TrainRun *r) {
    const char *then = r->cfg.sam <= 0      ? "--sam 1"
                       : r->cfg.sam_images ? "a larger --sam-images"
                                           : "a larger --sam";
    if (px_active(&r->t) && r->t.watch.px_margin > 0 && r->over_margin > r->counted / 4 &&
        !px_settles(&r->t, r->t.step) && !r->told_over_margin++)
        run_say(r,
                "note: in %" PRIu64 " of the last %" PRIu64
                " steps f(x) - f(x_q) exceeded --px-margin: the classifier learns, p(x) hardly "
                "does; %s, more --steps or a shorter run may keep the samples good",
                r->over_margin, r->counted, then);
    r->over_margin = r->counted = 0;
}

uint64_t run_density_from(const TrainRun *r) {
    const Config *c = &r->cfg;
    const double average = c->ema > 0 ? 3 / (1 - c->ema) : 0;
    if (!r->t.px_began) return 0;
    return r->t.px_began + (uint64_t)fmax(fmax(PX_SETTLES, average), c->warmup);
}

// Without validation images the newest model is the best. A model that is losing its density often
// classifies better, and so does one that has none yet: the former replaces none, and the latter is
// the best one only until there is another, of a run that ended with it.
static int is_better(const TrainRun *r, double accuracy, const StepState *now) {
    const uint64_t from = run_density_from(r), step = r->t.step;
    const int none = !r->state.best_step || r->state.best_step < from;
    if (px_pending(&r->t)) return 0;
    if (step < from) return none && step >= r->total;
    return none || ((!r->valid.n || accuracy > r->state.best_accuracy) && run_is_stable(r, now));
}

// With averaged weights (--ema) it is those that are validated and kept.
int run_end_epoch(TrainRun *r, Err *err) {
    Trainer *t = &r->t;
    Scores s = { .threshold = NAN };
    int rc = 0;
    r->state.validated = t->step;
    const StepState keep = trainer_state(t);
    swap_average(t);
    if (t->optim.avg) average_statistics(r);
    if (r->valid.n) {
        rc = scorer_set(&r->scorer, &r->valid_bytes, 0, (int)r->valid.n, r->logits, err);
        if (!rc) rc = scores_of(&s, r->logits, r->valid.y, r->valid.n, r->valid.classes, 1, err);
        r->valid_accuracy = rc ? NAN : s.accuracy;
    }
    if (!rc && is_better(r, s.accuracy, &keep)) {
        r->state.best_accuracy = r->valid.n ? s.accuracy : -1;
        r->state.best_step = t->step;
        if (run_writes(r)) rc = save_best(r, &s, err);
    }
    swap_average(t);
    t->dev->be.copy_in(t->dev, t->state, &keep, sizeof keep);
    rc = comm_agree(r->comm, rc, err);                      // rank 0 alone saves; all compute FID
    const int due = !rc && run_fid_due(r);
    if (due) r->fid_value = run_fid(r);
    run_write_log(r, r->valid_accuracy, due ? r->fid_value : NAN);
    note_margin(r);
    if (!rc && run_writes(r)) sample_grid(r);
    return rc || dev_check(t->dev, err);
}

// The best model, not the last, is what the user gets, so its test accuracy is reported.
static int load_best(TrainRun *r, const char *path, Err *err) {
    St st;
    if (st_open(&st, path, err)) return -1;
    const int rc = model_weights(&st, &r->t.net, err);
    st_close(&st);
    return rc;
}

int run_test_best(TrainRun *r, Err *err) {
    char path[RUN_PATH];
    Scores s = { 0 };
    Bytes test = { 0 };
    int here = r->test.n && !run_path(path, r->out, RUN_BEST, err) && file_exists(path);
    comm_broadcast(r->comm, &here, sizeof here);
    if (!here) return comm_check(r->comm, err);
    int rc = comm_agree(r->comm, run_writes(r) ? load_best(r, path, err) : 0, err);
    if (!rc) run_share_state(r);
    if (!rc) rc = bytes_upload(&test, &r->dev, &r->test, err);
    if (!rc) rc = scorer_set(&r->scorer, &test, 0, (int)r->test.n, r->logits, err);
    if (!rc) rc = scores_of(&s, r->logits, r->test.y, r->test.n, r->test.classes, 1, err);
    bytes_free(&test, &r->dev);
    if (comm_agree(r->comm, rc, err)) return -1;
    r->test_accuracy = s.accuracy;
    r->test_ece = s.ece;
    return comm_agree(r->comm, run_writes(r) && (run_write_record(r, err) || run_saved(r, err)),
                      err);
}
