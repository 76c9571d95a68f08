// eval_class.c - the tasks acc and ece: accuracy and calibration of p(y|x).
#include "eval/task.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int scores_at(Evaluation *e, double temperature, Scores *s, Err *err) {
    const int rc = need_logits(e, err);
    return rc ? rc
              : scores_of(s, e->logits, e->test.y, (size_t)e->n, eval_classes(e), temperature, err);
}

// ---- accuracy -------------------------------------------------------------------------------

int task_acc(Evaluation *e, Err *err) {
    const int C = eval_classes(e);
    const size_t cells = (size_t)C * (size_t)C;
    Scores s;
    if (scores_at(e, 1, &s, err)) return -1;
    AccResult a = { .n = e->n,
                    .noise = eval_noise(e),
                    .refine = e->use->refine,
                    .draws = e->use->refine ? e->use->draws : 1,
                    .top1 = 100 * s.accuracy,
                    .top5 = C > 10 ? 100 * s.top5 : NAN,
                    .nll = s.nll,
                    .log_px = s.fx,
                    .per_class = eval_alloc(e, (size_t)C, sizeof(double), err),
                    .confusion = eval_alloc(e, cells, sizeof(double), err) };
    size_t *counts = malloc(cells * sizeof *counts);
    if (!counts || !a.per_class || !a.confusion) {
        free(counts);
        return err_set(err, ERR_MEM, "out of memory for a confusion matrix");
    }
    confusion_of(counts, e->logits, e->test.y, (size_t)e->n, C);
    for (size_t i = 0; i < cells; i++) a.confusion[i] = (double)counts[i];
    for (int c = 0; c < C; c++) {
        const double *row = a.confusion + (size_t)c * (size_t)C;
        double all = 0;
        for (int k = 0; k < C; k++) all += row[k];
        a.per_class[c] = 100 * row[c] / all;               // NaN where a class has no images
    }
    free(counts);
    e->results.acc = a;
    return 0;
}

// ---- calibration ----------------------------------------------------------------------------

static int calibration_of(Evaluation *e, double temperature, Calibration *c, Err *err) {
    Scores s;
    if (scores_at(e, temperature, &s, err)) return -1;
    *c = (Calibration){ .ece = 100 * s.ece,
                        .mce = 100 * s.mce,
                        .classwise = 100 * s.classwise,
                        .brier = s.brier,
                        .nll = s.nll,
                        .n_bin = ECE_BINS,
                        .bin = eval_alloc(e, ECE_BINS, sizeof *c->bin, err) };
    for (int b = 0; c->bin && b < ECE_BINS; b++) {
        const double n = (double)s.bin[b].count;           // 0: NaN
        c->bin[b] = (CalibrationBin){ .lo = (double)b / ECE_BINS,
                                      .hi = (double)(b + 1) / ECE_BINS,
                                      .count = n,
                                      .confidence = s.bin[b].confidence / n,
                                      .accuracy = s.bin[b].right / n };
    }
    return c->bin ? 0 : -1;
}

static void warn_of_few_errors(const Evaluation *e, size_t errors) {
    char line[200];
    if (errors >= TEMPERATURE_ERRORS) return;
    snprintf(line, sizeof line,
             "warning: --temperature: only %zu of %zu validation images are misclassified (%d are "
             "needed for a reliable T)",
             errors, e->valid.n, TEMPERATURE_ERRORS);
    tell_line(e->ev, line);
}

// T fitted on the run's validation images, through the same classifier as the test images.
static int fit_temperature(Evaluation *e, TemperatureScaling *s, Err *err) {
    const int C = eval_classes(e);
    float *z = calloc(e->valid.n * (size_t)C, sizeof *z);
    const int rc = z ? eval_set_logits(e, &e->valid, "validation images", z, err)
                     : err_set(err, ERR_MEM, "out of memory for validation images");
    if (!rc) {
        const size_t errors = errors_of(z, e->valid.y, e->valid.n, C);
        warn_of_few_errors(e, errors);
        s->errors = (double)errors;
        s->t = temperature_of(z, e->valid.y, e->valid.n, C);
    }
    free(z);
    return rc;
}

// With --temperature a new T, else the model's own, which holds neither for the images that it was
// fitted on nor for the refined classifier.
static int scale_temperature(Evaluation *e, TemperatureScaling *s, Err *err) {
    const int fit = e->use->temperature;
    s->t = e->use->refine > 0 || e->use->split == SPLIT_VALID ? 0 : e->m->temperature;
    s->n_valid = fit ? (double)e->valid.n : NAN;
    s->errors = NAN;
    if (fit && fit_temperature(e, s, err)) return -1;
    s->there = s->t > 0;
    return s->there ? calibration_of(e, s->t, &s->at_t, err) : 0;
}

int prepare_ece(Evaluation *e, Err *err) {
    if (!e->use->temperature || e->valid.n) return 0;
    return eval_load_valid(e, "--temperature", &e->valid, err);
}

int task_ece(Evaluation *e, Err *err) {
    EceResult r = { .n = e->n, .bins = ECE_BINS };
    if (calibration_of(e, 1, &r.plain, err) || scale_temperature(e, &r.temperature, err)) return -1;
    e->results.ece = r;
    return 0;
}
