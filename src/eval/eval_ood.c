// eval_ood.c - the task ood: how well scores of p(x) and p(y|x) detect out-of-distribution images.
#include "eval/task.h"
#include <stdlib.h>

static double *counts_of(Evaluation *e, const size_t *v, int n, Err *err) {
    double *to = eval_alloc(e, (size_t)n, sizeof *to, err);
    for (int i = 0; to && i < n; i++) to[i] = (double)v[i];
    return to;
}

static int put_detection(Evaluation *e, OodScore *s, const Detection *d, Err *err) {
    *s = (OodScore){ .there = 1,
                     .auroc = d->auroc,
                     .aupr = d->aupr,
                     .aupr_out = d->aupr_out,
                     .fpr95 = d->fpr95,
                     .n_roc = d->n_roc,
                     .roc = eval_alloc(e, 2 * (size_t)d->n_roc, sizeof(double), err),
                     .hist = { .lo = d->lo,
                               .hi = d->hi,
                               .n = HIST_BINS,
                               .in = counts_of(e, d->in, HIST_BINS, err),
                               .out = counts_of(e, d->out, HIST_BINS, err) } };
    for (int i = 0; s->roc && i < 2 * d->n_roc; i++) s->roc[i] = d->roc[i / 2][i % 2];
    return s->roc && s->hist.in && s->hist.out ? 0 : -1;
}

// in: scores of the test images, [N_SCORE][e->n].
static int detect_set(Evaluation *e, double *in, const Set *set, OodSet *to, Err *err) {
    const size_t n = set->n, n_in = (size_t)e->n;
    double *out = malloc(n * N_SCORE * sizeof *out);
    Detection *d = malloc(sizeof *d);
    int rc = out && d ? eval_ood_scores(e, set, out, err)
                      : err_set(err, ERR_MEM, "out of memory for scores");
    *to = (OodSet){ .name = set->name, .from = set->from, .n = (double)n };
    for (size_t k = 0; !rc && k < N_SCORE; k++) {
        detect(d, in + k * n_in, n_in, out + k * n, n);
        rc = put_detection(e, &to->score[k], d, err);
    }
    free(out);
    free(d);
    return rc;
}

int task_ood(Evaluation *e, Err *err) {
    OodResult r = { .in = { e->data, e->n },
                    .noise = e->use->input_noise,
                    .n_set = e->n_ood,
                    .set = eval_alloc(e, (size_t)e->n_ood, sizeof *r.set, err) };
    if (!r.set) return -1;
    double *in = malloc((size_t)e->n * N_SCORE * sizeof *in);
    int rc =
        in ? eval_ood_scores(e, NULL, in, err) : err_set(err, ERR_MEM, "out of memory for scores");
    for (int i = 0; !rc && i < e->n_ood; i++) rc = detect_set(e, in, &e->ood[i], &r.set[i], err);
    free(in);
    if (!rc) e->results.ood = r;
    return rc;
}
