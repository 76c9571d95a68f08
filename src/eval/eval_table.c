// eval_table.c - results for a terminal, beside those of the JEM++ paper where it has any.
#include "base/text.h"
#include "base/text_out.h"
#include "data/data.h"
#include "eval/eval.h"
#include "report/paper.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    FILE       *f;
    const EvalResults *r;
    const char *system;               // the paper's, to compare with
} Printout;

static double paper(const Printout *t, const char *measure) {
    return paper_figure(t->system, t->r->data, measure);
}

static void put_heading(const Printout *t, TaskId id, double n, const char *more) {
    fprintf(t->f, "\n%s%s", task_title(id), more);
    if (!isnan(n)) fprintf(t->f, ", %.0f image%s", n, plural(n));
    fprintf(t->f, "\n");
}

static void put_metrics(const Printout *t, TaskId id) {
    Metric m[MAX_METRICS];
    const int n = results_metrics(t->r, id, m);
    for (int i = 0; i < n; i++) {
        const double beside = paper(t, m[i].measure);
        fprintf(t->f, "  %-46s %11s", m[i].label, m[i].text);
        if (!isnan(beside))
            fprintf(t->f, " %9.*f%s", m[i].digits > 2 ? 2 : m[i].digits, beside, m[i].unit);
        fprintf(t->f, "\n");
    }
}

static void put_ood(const Printout *t) {
    const OodResult *ood = &t->r->ood;
    for (int i = 0; i < ood->n_set; i++) {
        const OodSet *set = &ood->set[i];
        char name[32], measure[1100];
        data_label(name, set->name);
        for (int k = 0; k < N_SCORE; k++) {
            if (!set->score[k].there) continue;
            snprintf(measure, sizeof measure, "%s:%s", score_name[k], set->name);
            const double beside = paper(t, measure);
            if (k) name[0] = 0;
            fprintf(t->f, "  %s%*s %-9s %9.3f %9.3f", name, text_fill(name, 24), "", score_name[k],
                    set->score[k].auroc, set->score[k].fpr95);
            if (!isnan(beside)) fprintf(t->f, " %9.2f", beside);
            fprintf(t->f, "\n");
        }
    }
}

static void put_curve(FILE *f, const AttackCurve *c) {
    const int linf = !strcmp(c->norm, "linf");
    fprintf(f, "  %s %s, %s", c->attack, c->norm, c->loss);
    if (isfinite(c->targets)) fprintf(f, " (%g targets)", c->targets);
    fprintf(f, ", steps %g, restarts %g\n", c->steps, c->restarts);
    for (int i = 0; i < c->n; i++) {
        if (linf) fprintf(f, "    %5.3g/255", 255 * c->radius[i]);
        else fprintf(f, "    %9.3g", c->radius[i]);
        fprintf(f, "  %6.2f %%\n", c->accuracy[i]);
    }
}

static void put_fid(const Printout *t) {
    const FidResult *r = &t->r->fid;
    put_heading(t, TASK_FID, NAN, "");
    put_metrics(t, TASK_FID);
    if (r->buffer.there && r->buffer.confident < 1)
        fprintf(t->f, "  of the replay buffer the %g %% most confident images\n",
                100 * r->buffer.confident);
    const struct {
        const FidImages *of;
        const char *name;
    } by_class[] = { { &r->buffer, "replay buffer" }, { &r->fresh, "fresh chains" } };
    for (int k = 0; k < 2; k++)
        for (int i = 0; by_class[k].of->there && by_class[k].of->per_class && i < t->r->n_class;
             i++) {
            char name[256];
            text_shorten(name, sizeof name, t->r->class_name[i], 28);
            fprintf(t->f, "  %s: FID of %s%*s %9.2f\n", by_class[k].name, name, text_fill(name, 28),
                    "", by_class[k].of->per_class[i]);
        }
    fprintf(t->f, "  reference: %s\n  weights: %s\n           SHA-256 %s\n", r->reference,
            r->weights, r->sha256);
}

static void put_samples(const Printout *t) {
    const SamplesResult *s = &t->r->samples;
    fprintf(t->f, "  %d sheet%s of samples from %s\n", s->n_file, plural(s->n_file),
            strcmp(s->from, "fresh") ? "the replay buffer" : "fresh chains");
    if (isnan(s->agreement)) return;                         // results of an earlier version
    fprintf(t->f, "  of %g sample%s drawn by class the model recognises %.1f %%\n", s->by_class,
            plural(s->by_class), s->agreement);
    if (!isnan(s->classifier_agreement))
        fprintf(t->f, "  and %s %.1f %%\n", s->classifier, s->classifier_agreement);
}

static void put_tasks(const Printout *t) {
    const EvalResults *r = t->r;
    if (r->acc.run.there) put_heading(t, TASK_ACC, r->acc.n, "");
    put_metrics(t, TASK_ACC);
    if (r->ece.run.there) put_heading(t, TASK_ECE, r->ece.n, "");
    put_metrics(t, TASK_ECE);
    if (r->ood.run.there) put_heading(t, TASK_OOD, r->ood.in.n, " (AUROC, FPR at 95 % TPR)");
    put_ood(t);
    if (r->attack.run.there) put_heading(t, TASK_ATTACK, r->attack.n, "");
    for (int i = 0; i < r->attack.n_curve; i++) put_curve(t->f, &r->attack.curve[i]);
    if (r->samples.run.there) {
        put_heading(t, TASK_SAMPLES, r->samples.n, "");
        put_samples(t);
    }
    if (r->speed.run.there) put_heading(t, TASK_SPEED, r->speed.n, "");
    put_metrics(t, TASK_SPEED);
    if (r->fid.run.there) put_fid(t);
}

char *eval_table(const EvalResults *r, const Config *run, Err *err) {
    char px[32];
    TextOut out;
    if (text_open(&out, "a table", err)) return NULL;
    config_value(run, config_row("px"), px, sizeof px);
    const Printout t = { out.f, r, paper_system(run->preset, px, run->steps) };
    fprintf(t.f, "%s: %s, %s on %s (%s)\n", r->model, r->net, r->data, r->device, r->precision);
    if (!isnan(paper(&t, "acc.top1")))
        fprintf(t.f, "right column: the paper's %s, WRN-28-10\n", paper_label(t.system));
    put_tasks(&t);
    char *text = text_close(&out, err);
    if (text) tame(text);
    return text;
}
