// eval.c - see eval.h. eval_text is the place to begin reading; TASKS lists what there is.
#include "eval/eval.h"
#include "base/file.h"
#include "base/log.h"
#include "base/md5.h"
#include "jem/robust.h"
#include "base/events.h"
#include "base/version.h"
#include "data/run_data.h"
#include "run/folder.h"
#include "run/train_bench.h"
#include "jem/metrics.h"
#include "data/ood_sets.h"
#include "report/report.h"
#include "jem/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 16, MAX_CURVES = 8, ATTACKED = 1000, MAX_JSON = 1 << 26 };

typedef struct {
    char       name[16];
    AttackPlan plan;
    double     radius[MAX_RADII];
    int        n;
} CurvePlan;

typedef struct {
    Model *m;
    const Config *use;                // what the user asked for
    const Events *ev;
    char      dir[512], data[300], md5[33];
    int       wanted;                 // bits by task
    Set       test, valid;            // what is judged (--split); what a temperature is fitted on, if any
    Bytes     bytes;                  // test, on the device
    int       n, batch;               // images that are looked at; at a time
    Scorer    scorer;
    Probe     probe;                  // opened when first needed
    float    *logits;                 // of the test images; NULL: not known yet
    Set       out[MAX_OUT];
    int       n_out, n_curve;
    CurvePlan curve[MAX_CURVES];
    Json     *old, **fresh;           // what was in the file; what this call found, by task
} Eval;

typedef struct {
    const char *name;
    int (*run)(Eval *, JsonOut *, Err *);
    int images;                       // it looks at the test images
} Task;

static uint64_t seed_of(const Eval *e) { return (uint64_t)e->use->seed; }

static void tell(const Eval *e, int done, int n, const char *text) {
    tell_progress(e->ev, (uint64_t)done, (uint64_t)n, "images", text);
}

// ---- images through the model ----------------------------------------------------------------------

// What sets an image, or the copies that are refined, apart from how it was stored.
static double noise_of(const Eval *e) {
    return e->use->refine && !config_given(e->use, "input-noise") ? e->m->cfg.sigma
                                                                  : e->use->input_noise;
}

static Refine refine_of(const Eval *e) {
    const Config *run = &e->m->cfg;
    Refine r = { .chain = chain_of(run), .draws = e->use->draws };
    r.chain.steps = e->use->refine;
    r.chain.energy = (Energy){ .a = 1 };
    r.noise = (real)noise_of(e);
    return r;
}

static int need_probe(Eval *e, Err *err) {
    const Refine r = refine_of(e);
    return e->probe.net ? 0 : probe_open(&e->probe, &e->m->net, e->batch, &r, err);
}

// Goes through n images of a set a batch at a time; each puts its part of what is asked for.
typedef struct {
    const Bytes *set;
    int n, refined;
    const char *text;
    float *logits;                    // [n][classes], or NULL
    double *slope;                    // [n], or NULL
} Look;

static int look_batch(Eval *e, const Look *l, int from, int n, Err *err) {
    const size_t at = (size_t)from * (size_t)e->m->net.spec.classes;
    const Rng key = { .seed = seed_of(e), .stream = RNG_EVAL, .step = (uint32_t)from };
    if (!l->refined && l->logits && scorer_set(&e->scorer, l->set, from, n, l->logits + at, err))
        return -1;
    if (!l->refined && !l->slope) return 0;
    int *index = malloc((size_t)n * sizeof *index);
    if (!index) return err_set(err, ERR_MEM, "out of memory for a batch");
    for (int i = 0; i < n; i++) index[i] = from + i;
    // copies to be refined bring their own noise
    probe_load(&e->probe, l->set, index, n, l->refined ? 0 : (real)e->use->input_noise, key);
    free(index);
    if (l->refined) probe_logits(&e->probe, e->probe.x0, n, key, l->logits + at);
    if (l->slope) probe_slopes(&e->probe, e->probe.x0, n, l->slope + from);
    return dev_check(&e->m->dev, err);
}

static int look(Eval *e, const Look *l, Err *err) {
    if ((l->refined || l->slope) && need_probe(e, err)) return -1;
    tell(e, 0, l->n, l->text);
    for (int i = 0; i < l->n; i += e->batch) {
        const int n = l->n - i < e->batch ? l->n - i : e->batch;
        if (look_batch(e, l, i, n, err) || stopped(e->ev, err)) return -1;
        tell(e, i + n, l->n, l->text);
    }
    const size_t count = (size_t)l->n * (size_t)e->m->net.spec.classes;
    for (size_t i = 0; l->logits && i < count; i++)
        if (!isfinite(l->logits[i]))
            return err_set(err, ERR_DATA,
                           "%s: gives a logit that is not finite for image %zu of %s", e->m->path,
                           i / (size_t)e->m->net.spec.classes, l->text);
    return 0;
}

// The test images' logits by the classifier that was asked for (noise, refinement).
static int need_logits(Eval *e, Err *err) {
    if (e->logits) return 0;
    float *z = malloc((size_t)e->n * (size_t)e->m->net.spec.classes * sizeof *z);
    if (!z) return err_set(err, ERR_MEM, "out of memory for %d images' logits", e->n);
    const Look l = { &e->bytes, e->n, e->use->refine > 0, e->data, z, NULL };
    if (look(e, &l, err)) {
        free(z);
        return -1;
    }
    e->logits = z;
    return 0;
}

// ---- accuracy and calibration ----------------------------------------------------------------------

static int task_acc(Eval *e, JsonOut *j, Err *err) {
    const int C = e->m->net.spec.classes;
    Scores s;
    if (need_logits(e, err) || scores_of(&s, e->logits, e->test.y, (size_t)e->n, C, 1, err))
        return -1;
    size_t *counts = malloc((size_t)C * (size_t)C * sizeof *counts);
    if (!counts) return err_set(err, ERR_MEM, "out of memory for a confusion matrix");
    confusion_of(counts, e->logits, e->test.y, (size_t)e->n, C);
    json_put_int(j, "n", e->n);
    json_put_double(j, "noise", noise_of(e));
    json_put_int(j, "refine", e->use->refine);
    json_put_int(j, "draws", e->use->refine ? e->use->draws : 1);
    json_put_double(j, "top1", 100 * s.accuracy);
    json_put_double(j, "top5", C > 10 ? 100 * s.top5 : NAN);
    json_put_double(j, "nll", s.nll);
    json_put_double(j, "log_px", s.fx);
    json_open_array(j, "per_class");
    for (int c = 0; c < C; c++) {
        size_t all = 0;
        for (int k = 0; k < C; k++) all += counts[(size_t)c * (size_t)C + (size_t)k];
        json_put_double(j, NULL, 100 * (double)counts[(size_t)c * (size_t)(C + 1)] / (double)all);
    }
    json_close(j);
    json_open_array(j, "confusion");
    for (int c = 0; c < C; c++) {
        json_open_array(j, NULL);
        for (int k = 0; k < C; k++)
            json_put_uint(j, NULL, counts[(size_t)c * (size_t)C + (size_t)k]);
        json_close(j);
    }
    json_close(j);
    free(counts);
    return 0;
}

static void put_calibration(JsonOut *j, const Scores *s) {
    json_put_double(j, "ece", 100 * s->ece);
    json_put_double(j, "mce", 100 * s->mce);
    json_put_double(j, "classwise_ece", 100 * s->classwise);
    json_put_double(j, "brier", s->brier);
    json_put_double(j, "nll", s->nll);
    json_open_array(j, "reliability");
    for (int b = 0; b < ECE_BINS; b++) {
        const double n = (double)s->bin[b].count;           // of an empty bin nothing is known: null
        json_open_object(j, NULL);
        json_put_double(j, "lo", (double)b / ECE_BINS);
        json_put_double(j, "hi", (double)(b + 1) / ECE_BINS);
        json_put_uint(j, "count", s->bin[b].count);
        json_put_double(j, "confidence", s->bin[b].confidence / n);
        json_put_double(j, "accuracy", s->bin[b].right / n);
        json_close(j);
    }
    json_close(j);
}

// T is fitted on the run's validation images, through the plain classifier or the refined one alike.
static int fit_temperature(Eval *e, double *t, Err *err) {
    const int C = e->m->net.spec.classes;
    Bytes valid = { 0 };
    float *z = malloc(e->valid.n * (size_t)C * sizeof *z);
    int rc = z ? bytes_upload(&valid, &e->m->dev, &e->valid, err)
               : err_set(err, ERR_MEM, "out of memory for validation images");
    const Look l = { &valid, (int)e->valid.n, e->use->refine > 0, "validation images", z, NULL };
    if (!rc) rc = look(e, &l, err);
    if (!rc) *t = temperature_of(z, e->valid.y, e->valid.n, C);
    bytes_free(&valid, &e->m->dev);
    free(z);
    return rc;
}

// The model's own T, unless one is asked for. The images that it was fitted on, and a refined
// classifier, it has nothing to say about.
static int put_temperature(Eval *e, JsonOut *j, Err *err) {
    const int anew = e->use->temperature;
    double t = e->use->refine > 0 || e->use->split == SPLIT_VALID ? 0 : e->m->temperature;
    Scores s;
    if (anew && fit_temperature(e, &t, err)) return -1;
    if (!(t > 0)) {
        json_put_string(j, "temperature", NULL);
        return 0;
    }
    if (scores_of(&s, e->logits, e->test.y, (size_t)e->n, e->m->net.spec.classes, t, err))
        return -1;
    json_open_object(j, "temperature");
    json_put_double(j, "t", t);
    json_put_double(j, "n_valid", anew ? (double)e->valid.n : NAN);
    put_calibration(j, &s);
    json_close(j);
    return 0;
}

static int task_ece(Eval *e, JsonOut *j, Err *err) {
    Scores s;
    if (need_logits(e, err) ||
        scores_of(&s, e->logits, e->test.y, (size_t)e->n, e->m->net.spec.classes, 1, err))
        return -1;
    json_put_int(j, "n", e->n);
    json_put_int(j, "bins", ECE_BINS);
    put_calibration(j, &s);
    return put_temperature(e, j, err);
}

// ---- out of distribution ---------------------------------------------------------------------------

// score[N_SCORE][n] of the first n images of a set.
static int score_set(Eval *e, const Set *set, int n, const char *name, double *score, Err *err) {
    const int C = e->m->net.spec.classes;
    Bytes bytes = { 0 };
    float *z = calloc((size_t)n * (size_t)C, sizeof *z);
    int rc = z ? bytes_upload(&bytes, &e->m->dev, set, err)
               : err_set(err, ERR_MEM, "out of memory for %d images' logits", n);
    const Look l = { &bytes, n, 0, name, z, score + (size_t)SCORE_GRADNORM * (size_t)n };
    if (!rc) rc = look(e, &l, err);
    for (int i = 0; !rc && i < n; i++) {
        const float *row = z + (size_t)i * (size_t)C;
        const double lse = logsumexp(row, C), top = (double)row[argmax(row, C)];
        score[SCORE_LOGPX * n + i] = lse;
        score[SCORE_MAXP * n + i] = exp(top - lse);
        score[SCORE_MAXLOGIT * n + i] = top;
        if (!isfinite(score[SCORE_GRADNORM * n + i]))
            rc = err_set(err, ERR_DATA, "%s: a gradient that is not finite, image %d of %s",
                         e->m->path, i, name);
    }
    bytes_free(&bytes, &e->m->dev);
    free(z);
    return rc;
}

static void put_counts(JsonOut *j, const char *key, const size_t *v, int n) {
    json_open_array(j, key);
    for (int i = 0; i < n; i++) json_put_uint(j, NULL, v[i]);
    json_close(j);
}

static void put_detection(JsonOut *j, const char *key, const Detection *d) {
    json_open_object(j, key);
    json_put_double(j, "auroc", d->auroc);
    json_put_double(j, "aupr", d->aupr);
    json_put_double(j, "aupr_out", d->aupr_out);
    json_put_double(j, "fpr95", d->fpr95);
    json_open_array(j, "roc");
    for (int i = 0; i < d->n_roc; i++) {
        json_open_array(j, NULL);
        for (int k = 0; k < 2; k++) json_put_double(j, NULL, d->roc[i][k]);
        json_close(j);
    }
    json_close(j);
    json_open_object(j, "hist");
    json_put_double(j, "lo", d->lo);
    json_put_double(j, "hi", d->hi);
    put_counts(j, "in", d->in, HIST_BINS);
    put_counts(j, "out", d->out, HIST_BINS);
    json_close(j);
    json_close(j);
}

static int put_out_set(Eval *e, JsonOut *j, double *in, const Set *set, Err *err) {
    const int n = (int)set->n;
    double *out = malloc((size_t)n * N_SCORE * sizeof *out);
    Detection *d = malloc(sizeof *d);
    int rc = out && d ? score_set(e, set, n, set->name, out, err)
                      : err_set(err, ERR_MEM, "out of memory for scores");
    if (!rc) {
        json_open_object(j, NULL);
        json_put_string(j, "name", set->name);
        json_put_string(j, "from", set->from);
        json_put_int(j, "n", n);
        json_open_object(j, "scores");
        for (int k = 0; k < N_SCORE; k++) {
            detect(d, in + (size_t)k * (size_t)e->n, (size_t)e->n, out + (size_t)k * (size_t)n,
                   (size_t)n);
            put_detection(j, score_name[k], d);
        }
        json_close(j);
        json_close(j);
    }
    free(out);
    free(d);
    return rc;
}

static int task_ood(Eval *e, JsonOut *j, Err *err) {
    double *in = malloc((size_t)e->n * N_SCORE * sizeof *in);
    int rc = in ? score_set(e, &e->test, e->n, e->data, in, err)
                : err_set(err, ERR_MEM, "out of memory for scores");
    json_open_object(j, "in");
    json_put_string(j, "name", e->data);
    json_put_int(j, "n", e->n);
    json_close(j);
    json_put_double(j, "noise", e->use->input_noise);
    json_open_array(j, "sets");
    for (int i = 0; !rc && i < e->n_out; i++) rc = put_out_set(e, j, in, &e->out[i], err);
    json_close(j);
    free(in);
    return rc;
}

// ---- attacks ---------------------------------------------------------------------------------------

static void put_curve(Eval *e, JsonOut *j, const CurvePlan *c, const double *accuracy) {
    const AttackPlan *a = &c->plan;
    json_open_object(j, NULL);
    json_put_string(j, "norm", a->l2 ? "l2" : "linf");
    json_put_string(j, "attack", a->fgsm ? "fgsm" : "pgd");
    json_put_string(j, "loss", a->loss == LOSS_MARGIN ? "margin" : "ce");
    json_put_int(j, "steps", a->fgsm ? 1 : a->steps);
    json_put_int(j, "restarts", a->fgsm || !a->random_start ? 1 : a->restarts);
    json_put_bool(j, "random_start", !a->fgsm && a->random_start);
    json_put_double(j, "step", a->step > 0 && !a->fgsm ? a->step : NAN);   // null: by the rule
    json_put_string(j, "step_rule",
                    a->fgsm       ? "the radius"
                    : a->step > 0 ? "fixed"
                                  : "2.5 radius / steps");
    json_put_int(j, "refine", e->use->refine);
    json_put_int(j, "draws", e->use->refine ? e->use->draws : 1);
    json_open_array(j, "radii");
    for (int i = 0; i < c->n; i++) json_put_double(j, NULL, c->radius[i]);
    json_close(j);
    json_open_array(j, "accuracy");
    for (int i = 0; i < c->n; i++) json_put_double(j, NULL, 100 * accuracy[i]);
    json_close(j);
    json_close(j);
}

static int task_attack(Eval *e, JsonOut *j, Err *err) {
    const int n = e->use->limit || e->n < ATTACKED ? e->n : ATTACKED;
    double accuracy[MAX_CURVES][MAX_RADII] = { { 0 } };
    int rc = need_probe(e, err);
    for (int i = 0; !rc && i < e->n_curve; i++) {
        const CurvePlan *c = &e->curve[i];
        rc = attack_curve(&e->probe, &e->bytes, e->test.y, n, &c->plan, c->name, c->radius, c->n,
                          seed_of(e) + (uint64_t)i, e->ev, accuracy[i], err);
    }
    if (rc) return -1;
    json_put_int(j, "n", n);
    json_put_double(j, "clean", 100 * accuracy[0][0]);
    json_open_array(j, "curves");
    for (int i = 0; i < e->n_curve; i++) put_curve(e, j, &e->curve[i], accuracy[i]);
    json_close(j);
    return 0;
}

// ---- speed and samples -----------------------------------------------------------------------------

// Milliseconds of a step of a chain, as in training.
static int chain_ms(Eval *e, double *ms, Err *err) {
    Net *net = &e->m->net;
    Dev *dev = net->dev;
    const int B = e->m->cfg.batch;
    Pass pass = { 0 };
    int rc = pass_open(&pass, net, B, MODE_SAMPLE, err);
    const size_t bytes = (size_t)B * tensor_len(&net->act[0]) * sizeof(real);
    void *mem = rc ? NULL : dev->be.alloc(dev, pass.bytes, "sampling");
    real *x = dev->be.alloc(dev, bytes, "a batch"),
         *sums = dev->be.alloc(dev, N_SUM * sizeof(real), "sums");
    if (!rc) rc = dev_check(dev, err);
    if (!rc) {
        Chain chain = chain_of(&e->m->cfg);
        chain.energy = (Energy){ .a = 1 };
        pass_bind(&pass, mem);
        dev->be.zero(dev, x, bytes);
        double began = 0;
        for (int k = -3; !rc && (k < 5 || (now_seconds() - began < 1 && k < 100)); k++) {
            if (k == 0) dev->be.sync(dev), began = now_seconds();
            chain.steps = 1;
            sample_run(&pass, &chain, x, NULL, sums, (Rng){ 0 }, NULL);
            dev->be.sync(dev);
            if (k >= 0) *ms = 1e3 * (now_seconds() - began) / (k + 1);
            rc = stopped(e->ev, err);
        }
        if (!rc) rc = dev_check(dev, err);
    }
    pass_close(&pass);
    void *all[] = { mem, x, sums };
    for (int i = 0; i < 3; i++) dev->be.free(dev, all[i]);
    return rc;
}

// Minutes of an epoch, from a few whole iterations on noise; NaN where they would take long, or the
// training set is not here.
static double epoch_minutes(Eval *e, double step_ms, double *iteration_ms) {
    enum { TIMED = 3, ALL = 7 };
    Config c = e->m->cfg;
    Set train = { 0 }, valid = { 0 };
    Err none = { 0 };
    double ms[TIMED], minutes = NAN;
    *iteration_ms = NAN;
    const int chains = c.px == PX_NONE ? 0 : c.steps;
    c.side = e->m->net.spec.side;
    c.channels = e->m->net.spec.channels;
    c.n_classes = e->m->net.spec.classes;
    c.threads = e->use->threads;
    c.precision = e->use->precision;
    c.conv = e->use->conv;
    if ((chains + 9) * step_ms * ALL < 60e3 && !train_bench(&c, TIMED, ms, e->ev, &none))
        *iteration_ms = fmin(ms[0], fmin(ms[1], ms[2]));
    if (!isnan(*iteration_ms) && !run_images(&c, &train, &valid, &none))
        minutes = *iteration_ms * (double)(train.n / (size_t)c.batch) / 60e3;
    set_free(&train);
    set_free(&valid);
    return minutes;
}

static void tell_timed(const Eval *e, int done, const char *what) {
    tell_progress(e->ev, (uint64_t)done, 3, "measurements", what);
}

static int task_speed(Eval *e, JsonOut *j, Err *err) {
    const int C = e->m->net.spec.classes;
    double began = 0, step_ms = 0, iteration_ms = 0, lse = 0;
    int n = 0;
    float *z = malloc((size_t)e->batch * (size_t)C * sizeof *z);
    if (!z) return err_set(err, ERR_MEM, "out of memory for logits");
    int rc = 0;
    tell_timed(e, 0, "classification");
    for (int from = 0, k = -1; !rc && (k < 1 || (n < e->n && now_seconds() - began < 10)); k++) {
        const int m = e->n - from < e->batch ? e->n - from : e->batch;
        if (k == 0) began = now_seconds();
        rc = scorer_set(&e->scorer, &e->bytes, from, m, z, err);
        for (int i = 0; i < m; i++) lse += logsumexp(z + (size_t)i * (size_t)C, C);
        if (k >= 0) n += m;
        if (k >= 0) from = from + m < e->n ? from + m : 0;
        if (!rc) rc = stopped(e->ev, err);
    }
    const double rate = n / (now_seconds() - began);
    free(z);
    tell_timed(e, 1, "a chain's steps");
    if (rc || chain_ms(e, &step_ms, err)) return -1;
    tell_timed(e, 2, "whole iterations");
    const double minutes = epoch_minutes(e, step_ms, &iteration_ms);
    if (stopped(e->ev, err)) return -1;
    tell_timed(e, 3, "");
    json_put_int(j, "n", n);
    json_put_int(j, "batch", e->batch);
    json_put_double(j, "images_per_second", rate);              // p(y|x) and log p(x) together
    json_put_double(j, "seconds_per_10000", 10000 / rate);
    json_put_double(j, "mean_logpx", lse / (n + e->batch));
    json_put_int(j, "chain_batch", e->m->cfg.batch);
    json_put_double(j, "sgld_step_ms", step_ms);
    json_put_double(j, "iteration_ms", iteration_ms);
    json_put_double(j, "minutes_per_epoch", minutes);
    return 0;
}

static int task_samples(Eval *e, JsonOut *j, Err *err) {
    return eval_samples(e->m, e->use, e->ev, e->dir, j, err);
}

static const Task TASKS[] = {
    { "acc", task_acc, 1 },       { "ece", task_ece, 1 },         { "ood", task_ood, 1 },
    { "attack", task_attack, 1 }, { "samples", task_samples, 0 }, { "speed", task_speed, 1 },
};
enum { N_TASK = sizeof TASKS / sizeof *TASKS, T_ECE = 1, T_OOD = 2, T_ATTACK = 3 };

// ---- what was asked for ----------------------------------------------------------------------------

static int read_tasks(Eval *e, Err *err) {
    char list[sizeof e->use->tasks], *at = list, *name;
    snprintf(list, sizeof list, "%s", e->use->tasks);
    while ((name = strsep(&at, ","))) {
        int i = 0;
        while (i < N_TASK && strcmp(TASKS[i].name, name) != 0) i++;
        if (i == N_TASK)
            return err_set(err, ERR_ARG,
                           "--tasks: found '%s', expected some of acc,ece,ood,attack,samples,speed",
                           name);
        e->wanted |= 1 << i;
    }
    return 0;
}

static int read_curve(Eval *e, CurvePlan *c, const char *name, Err *err) {
    static const double linf[] = { 0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16 };
    const Config *u = e->use;
    const int fgsm = !strncmp(name, "fgsm-", 5), l2 = !strcmp(name + (fgsm ? 5 : 4), "l2");
    if ((!fgsm && strncmp(name, "pgd-", 4) != 0) ||
        (!l2 && strcmp(name + (fgsm ? 5 : 4), "linf") != 0))
        return err_set(err, ERR_ARG,
                       "--attacks: found '%s', expected some of pgd-linf,pgd-l2,fgsm-linf,fgsm-l2",
                       name);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->plan = (AttackPlan){ .l2 = l2,
                            .fgsm = fgsm,
                            .loss = u->attack_loss,
                            .steps = u->attack_steps,
                            .restarts = u->restarts,
                            .random_start = u->random_start,
                            .step = u->attack_step };
    if (!u->radii[0]) {
        c->n = sizeof linf / sizeof *linf;
        for (int i = 0; i < c->n; i++) c->radius[i] = l2 ? i / 10.0 : linf[i] / 255;
        return 0;
    }
    // no two images are farther apart than this
    const double most = l2 ? sqrt((double)tensor_len(&e->m->net.act[0])) : 1;
    char expected[128];
    snprintf(expected, sizeof expected,
             "numbers that rise from 0 to at most %.4g for %s (pixels go from 0 to 1)", most, name);
    double *first = c->radius + 1;                          // 0 always comes first: the clean accuracy
    int n = config_rising("--radii", u->radii, 0, most, expected, first, MAX_RADII - 1, err);
    if (n < 0) return -1;
    if (first[0] > 0) first--, n++;
    memmove(c->radius, first, (size_t)n * sizeof *first);
    c->n = n;
    return 0;
}

static int read_curves(Eval *e, Err *err) {
    char list[sizeof e->use->attacks], *at = list, *name;
    snprintf(list, sizeof list, "%s", e->use->attacks);
    while ((name = strsep(&at, ","))) {
        if (e->n_curve == MAX_CURVES)
            return err_set(err, ERR_ARG, "--attacks: more than %d", (int)MAX_CURVES);
        if (read_curve(e, &e->curve[e->n_curve++], name, err)) return -1;
    }
    return 0;
}

static int same_kind(const Eval *e, const Set *s, Err *err) {
    const NetSpec *spec = &e->m->net.spec;
    if (s->c != spec->channels || s->side != spec->side)
        return err_set(err, ERR_ARG,
                       "%s: pictures of %d channels, %d x %d; the model's have %d, %d x %d",
                       s->name, s->c, s->side, s->side, spec->channels, spec->side, spec->side);
    if (s->classes != spec->classes)
        return err_set(err, ERR_ARG, "%s: %d classes; the model has %d", s->name, s->classes,
                       spec->classes);
    return 0;
}

static DataOpts data_opts_of(const Eval *e) {
    DataOpts o = data_opts(&e->m->cfg);
    o.side = e->m->net.spec.side;
    o.channels = e->m->net.spec.channels;
    return o;
}

static int load_outside(Eval *e, Err *err) {
    char list[sizeof e->use->ood], *at = list;
    const char *names[MAX_OUT + 1] = { 0 };
    const DataOpts o = data_opts_of(e);
    int n = 0;
    snprintf(list, sizeof list, "%s", e->use->ood);
    if (!list[0]) ood_names(names, &e->test, o.dir);
    for (char *name; list[0] && (name = strsep(&at, ","));) {
        if (n == MAX_OUT) return err_set(err, ERR_ARG, "--ood: more than %d sets", (int)MAX_OUT);
        names[n++] = name;
    }
    for (int i = 0; names[i]; i++) {
        if (ood_load(&e->out[i], names[i], &e->test, (size_t)e->use->limit, &o, err)) return -1;
        e->n_out++;
    }
    return 0;
}

// The images that the run held out, for the option that asks for them.
static int load_valid(const Eval *e, const char *option, Set *valid, Err *err) {
    Set train = { 0 };
    const int rc = run_images(&e->m->cfg, &train, valid, err);
    set_free(&train);
    if (rc) return err_prefix(err, "%s", option);
    if (!valid->n)
        return err_set(err, ERR_ARG, "%s: the run held out no validation images", option);
    return same_kind(e, valid, err);
}

static int load_images(Eval *e, Err *err) {
    const DataOpts o = data_opts_of(e);
    if (e->use->split == SPLIT_VALID) {
        if (e->use->data[0])
            return err_set(err, ERR_ARG, "--split valid: the run's own images: expected no --data");
        if (e->use->temperature)
            return err_set(err, ERR_ARG,
                           "--split valid: a temperature is fitted on these images and must be "
                           "judged by others: expected no --temperature");
        return load_valid(e, "--split valid", &e->test, err);
    }
    if (!e->use->data[0] && !strncmp(e->data, "cifar-file:", 11))
        return err_set(err, ERR_ARG,
                       "%s: the model was trained on it, and it has no test half: expected --data",
                       e->data);
    return set_load(&e->test, e->data, HALF_TEST, &o, err) || same_kind(e, &e->test, err) ? -1 : 0;
}

static int load_data(Eval *e, Err *err) {
    if (load_images(e, err)) return -1;
    e->n = (int)e->test.n;
    if (e->use->limit && e->use->limit < e->n) e->n = e->use->limit;
    if (e->wanted >> T_ECE & 1 && e->use->temperature &&
        load_valid(e, "--temperature", &e->valid, err))
        return -1;
    return e->wanted >> T_OOD & 1 ? load_outside(e, err) : 0;
}

// ---- the file --------------------------------------------------------------------------------------

static int choose_folder(Eval *e, Err *err) {
    const Model *m = e->m;
    char name[256];
    const char *base = strrchr(m->path, '/');
    snprintf(name, sizeof name, "%.240s", base ? base + 1 : m->path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    if (e->use->out[0]) snprintf(e->dir, sizeof e->dir, "%s", e->use->out);
    else if (m->run[0]) snprintf(e->dir, sizeof e->dir, "%.500s", m->run);
    else snprintf(e->dir, sizeof e->dir, "%s-eval", name);
    return dir_make(e->dir, err);
}

static int hash_model(Eval *e, Err *err) {
    Md5 md5 = md5_start();
    Reader r = reader_open(e->m->path);
    char part[1 << 16];
    for (uint64_t left = r.size; left;) {
        const size_t n = left < sizeof part ? (size_t)left : sizeof part;
        read_bytes(&r, part, n);
        md5_add(&md5, part, n);
        left -= n;
    }
    md5_end(&md5, e->md5);
    return reader_close(&r, err);
}

// Results of the same model stay in the file until the same task is done again. All are on one set, with
// whose figures the paper's are compared.
static int read_old(Eval *e, Err *err) {
    char path[RUN_PATH], *text;
    size_t n;
    if (run_path(path, e->dir, RUN_EVAL, err)) return -1;
    if (!file_exists(path)) return 0;
    if (file_read(path, MAX_JSON, &text, &n, err)) return -1;
    const int rc = json_parse(&e->old, text, n, 32, path, err);
    free(text);
    if (rc) return -1;
    const char *of = json_string(json_get(e->old, "md5")),
               *on = json_string(json_get(e->old, "data"));
    if (of && !strcmp(of, e->md5))
        return !on || !strcmp(on, e->data)
                   ? 0
                   : err_set(err, ERR_ARG, "%s: has results on %s; --out says where those on %s go",
                             path, on, e->data);
    json_free(e->old);
    e->old = NULL;
    return 0;
}

static void put_machine(const Eval *e, JsonOut *j) {
    json_put_string(j, "device", e->m->dev.be.name);
    json_put_string(j, "precision", e->m->dev.be.precision[e->use->precision]);
    json_put_uint(j, "seed", seed_of(e));
    json_put_string(j, "data", e->data);
}

static char *file_text(const Eval *e, Err *err) {
    const NetSpec *spec = &e->m->net.spec;
    char net[32];
    JsonOut j = { .indent = 1 };
    snprintf(net, sizeof net, "wrn-%d-%d", spec->depth, spec->width);
    json_open_object(&j, NULL);
    json_put_int(&j, "jempp_eval", 1);
    json_put_string(&j, "version", version_text());
    json_put_string(&j, "model", e->m->path);
    json_put_string(&j, "md5", e->md5);
    json_put_string(&j, "net", net);
    put_machine(e, &j);
    json_open_array(&j, "classes");
    for (int i = 0; i < spec->classes; i++) json_put_string(&j, NULL, e->m->class_name[i]);
    json_close(&j);
    json_open_object(&j, "tasks");
    for (int i = 0; i < N_TASK; i++) {
        const Json *old = json_get(json_get(e->old, "tasks"), TASKS[i].name),
                   *now = e->fresh[i] ? e->fresh[i] : old;
        if (now) json_put(&j, TASKS[i].name, now);
    }
    json_close(&j);
    json_close(&j);
    return json_finish(&j, NULL, err);
}

static int save(const Eval *e, Err *err) {
    char path[RUN_PATH], *text = file_text(e, err);
    if (!text || run_path(path, e->dir, RUN_EVAL, err)) {
        free(text);
        return -1;
    }
    Writer w = writer_open(path);
    write_bytes(&w, text, strlen(text));
    write_bytes(&w, "\n", 1);
    free(text);
    return writer_close(&w, err);
}

static int run_task(Eval *e, int i, Err *err) {
    JsonOut j = { 0 };
    const double began = now_seconds();
    json_open_object(&j, NULL);
    put_machine(e, &j);
    const int rc = TASKS[i].run(e, &j, err);
    json_put_double(&j, "seconds", now_seconds() - began);
    if (rc) j.failed = ERR_ARG;                             // half of it is of no use
    else json_close(&j);
    size_t n = 0;
    char *text = json_finish(&j, &n, err);
    const int bad = !text || json_parse(&e->fresh[i], text, n, 32, TASKS[i].name, err);
    free(text);
    return bad ? -1 : save(e, err);
}

// ---- all of it -------------------------------------------------------------------------------------

static int batch_for(const Eval *e) {
    const int most = e->m->dev.be.eval_batch;
    return e->n && e->n < most ? e->n : most;
}

static int eval_open(Eval *e, Err *err) {
    int images = 0;
    snprintf(e->data, sizeof e->data, "%s%s", e->use->data[0] ? e->use->data : e->m->cfg.data,
             e->use->split == SPLIT_VALID ? " (validation)" : "");
    if (read_tasks(e, err) || read_curves(e, err)) return -1;
    for (int i = 0; i < N_TASK; i++) images |= TASKS[i].images && e->wanted >> i & 1;
    if (images && load_data(e, err)) return -1;
    if (hash_model(e, err) || choose_folder(e, err) || read_old(e, err)) return -1;
    e->batch = batch_for(e);
    e->fresh = arena_alloc(&e->m->arena, N_TASK, sizeof(Json *));
    if (arena_ok(&e->m->arena, "results", err) || !images) return e->fresh ? 0 : -1;
    if (scorer_open(&e->scorer, &e->m->net, e->batch, NULL, 0, err)) return -1;
    e->scorer.noise = (real)e->use->input_noise;
    e->scorer.seed = seed_of(e);
    return bytes_upload(&e->bytes, &e->m->dev, &e->test, err);
}

static void eval_close(Eval *e) {
    scorer_close(&e->scorer);
    probe_close(&e->probe);
    bytes_free(&e->bytes, &e->m->dev);
    set_free(&e->test);
    set_free(&e->valid);
    for (int i = 0; i < MAX_OUT; i++) set_free(&e->out[i]);
    for (int i = 0; e->fresh && i < N_TASK; i++) json_free(e->fresh[i]);
    json_free(e->old);
    free(e->logits);
}

static char *result(const Eval *e, Err *err) {
    char *text = file_text(e, err);
    Json *doc = NULL;
    if (!text || e->use->json) return text;
    const int bad = json_parse(&doc, text, strlen(text), 32, run_file(RUN_EVAL), err);
    free(text);
    text = bad ? NULL : eval_table(doc, &e->m->cfg, err);
    json_free(doc);
    return text;
}

// Pictures of what was measured, beside it. A machine that draws none has its figures all the same.
static int draw(const Eval *e, Err *err) {
    char line[sizeof err->msg + 32];
    if (!report_pictures(e->dir, err)) return 0;
    if (err->kind != ERR_DEV) return -1;
    snprintf(line, sizeof line, "pictures left out: %s", err->msg);
    tell_line(e->ev, line);
    *err = (Err){ 0 };
    return 0;
}

char *eval_text(Model *m, const Config *use, const Events *ev, Err *err) {
    Eval *e = calloc(1, sizeof *e);
    if (!e) {
        err_set(err, ERR_MEM, "out of memory for an evaluation");
        return NULL;
    }
    e->m = m;
    e->use = use;
    e->ev = ev;
    int rc = eval_open(e, err), done = 0, all = 0;
    for (int i = 0; i < N_TASK; i++) all += e->wanted >> i & 1;
    for (int i = 0; !rc && i < N_TASK; i++) {
        if (!(e->wanted >> i & 1)) continue;
        rc = run_task(e, i, err);
        done += !rc;
    }
    if (rc && done)
        err_prefix(err, "%d of %d tasks are done and kept in %s/eval.json", done, all, e->dir);
    char *text = rc || draw(e, err) ? NULL : result(e, err);
    eval_close(e);
    free(e);
    return text;
}
