// page_results.c - the sections of the report's page that show a run's results.
#include "base/text.h"
#include "report/html.h"
#include "report/page.h"
#include "report/paper.h"
#include <math.h>
#include <string.h>

static double run_number(const Page *p, const char *key) {
    double v = NAN;
    json_double(json_get(p->r.run, key), &v);
    return v;
}

const char *page_data(const Page *p) {
    const char *of_eval = p->r.eval.there ? p->r.eval.data : "";
    return of_eval[0] ? of_eval : record_option(&p->r, "data");
}

const char *page_net(const Page *p) {
    const char *of_eval = p->r.eval.there ? p->r.eval.net : "";
    return of_eval[0] ? of_eval : record_option(&p->r, "model");
}

double page_paper(const Page *p, const char *measure) {
    return paper_figure(p->system, page_data(p), measure);
}

static void put_measure(Page *p, const char *name, double v, int digits, const char *unit,
                        const char *measure) {
    if (!isfinite(v)) return;
    fputs("<tr><th scope=row>", p->out);
    html_text(p->out, name);
    fputs("</th>", p->out);
    html_number(p->out, v, digits, unit);
    if (p->beside)
        html_number(p->out, measure ? page_paper(p, measure) : NAN, digits > 2 ? 2 : digits, unit);
    fputs("</tr>\n", p->out);
}

static void put_metrics(Page *p, TaskId id) {
    Metric m[MAX_METRICS];
    const int n = results_metrics(&p->r.eval, id, m);
    for (int i = 0; i < n; i++)
        put_measure(p, m[i].label, m[i].value, m[i].digits, m[i].unit, m[i].measure);
}

static double minutes_per_epoch(const Page *p) {
    const double steps = run_number(p, "steps"), each = run_number(p, "steps_per_epoch");
    return steps > 0 && each > 0 ? run_number(p, "seconds") / 60 * each / steps : NAN;
}

// A table of measures: rows by put_measure, then close_measures.
static void open_measures(Page *p) {
    fputs("<div class=wide><table><thead><tr><th>measure</th><th class=n>this run</th>", p->out);
    if (p->beside) fprintf(p->out, "<th class=n>paper: %s</th>", paper_label(p->system));
    fputs("</tr></thead><tbody>\n", p->out);
}

static void close_measures(Page *p) { fputs("</tbody></table></div>\n", p->out); }

static void put_ood_measures(Page *p) {
    const OodResult *ood = &p->r.eval.ood;
    for (int i = 0; i < ood->n_set; i++)
        for (int k = 0; k <= SCORE_MAXP; k++) {
            const OodSet *set = &ood->set[i];
            char name[1200], measure[1200];
            snprintf(name, sizeof name, "OOD AUROC against %s, %s", set->name, score_label[k]);
            snprintf(measure, sizeof measure, "%s:%s", score_name[k], set->name);
            if (set->score[k].there) put_measure(p, name, set->score[k].auroc, 3, "", measure);
        }
}

static void put_run_measures(Page *p) {
    put_measure(p, "best validation accuracy", 100 * run_number(p, "best_valid_accuracy"), 2, " %",
                NULL);
    put_measure(p, "test accuracy at the end of training", 100 * run_number(p, "test_accuracy"), 2,
                " %", NULL);
    put_measure(p, "test ECE at the end of training", 100 * run_number(p, "test_ece"), 2, " %",
                NULL);
    put_measure(p, "training, minutes per epoch", minutes_per_epoch(p), 2, "",
                "speed.minutes_per_epoch");
    put_measure(p, "divergences (rolled back to a checkpoint)", run_number(p, "retries"), 0, "",
                NULL);
}

// How this run differs from what the paper's column is about.
static void put_paper_note(Page *p) {
    FILE *f = p->out;
    fputs("<p class=soft>The paper's results are for WRN-28-10, its times for an unnamed GPU", f);
    if (strcmp(page_net(p), "wrn-28-10") && page_net(p)[0]) {
        fputs("; this network is ", f);
        html_text(f, page_net(p));
    }
    if (strcmp(p->system, record_option(&p->r, "preset")))
        fputs(". This run is not one of the paper's systems; the nearest one is shown", f);
    fputs(".</p>\n", f);
}

static void put_glance(Page *p) {
    const FidResult *fid = &p->r.eval.fid;
    fputs("<h2>At a glance</h2>\n", p->out);
    open_measures(p);
    for (TaskId id = 0; id < N_TASK; id++)
        if (id < TASK_SAMPLES) put_metrics(p, id);             // the others have sections
    put_measure(p, "FID of the replay buffer", fid->buffer.there ? fid->buffer.figures.fid : NAN, 2,
                "", "fid.buffer.fid");
    put_measure(p, "FID of fresh chains", fid->fresh.there ? fid->fresh.figures.fid : NAN, 2, "",
                NULL);
    put_measure(p, "Inception Score of the replay buffer",
                fid->buffer.there ? fid->buffer.figures.is : NAN, 2, "", "fid.buffer.is");
    put_ood_measures(p);
    put_run_measures(p);
    close_measures(p);
    if (p->beside) put_paper_note(p);
}

static int put_training(Page *p, Err *err) {
    fputs("<h2>Training</h2>\n", p->out);
    if (p->r.log.n) return page_figure(p, FIG_CURVES, err);
    fputs("<p class=soft>No log.tsv: only a model was evaluated here.</p>\n", p->out);
    return 0;
}

// One value per class, beside its name.
static void put_per_class(Page *p, const double *value, int digits, const char *unit) {
    const EvalResults *e = &p->r.eval;
    fputs("<div class=options>\n", p->out);
    for (int i = 0; i < e->n_class; i++) {
        fputs("<div>", p->out);
        html_text(p->out, e->class_name[i]);
        if (isfinite(value[i])) fprintf(p->out, " <b>%.*f%s</b>", digits, value[i], unit);
        fputs("</div>\n", p->out);
    }
    fputs("</div>\n", p->out);
}

static int put_accuracy(Page *p, Err *err) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    if (!e->acc.run.there) return 0;
    fputs("<h2>Accuracy</h2>\n<p class=soft>", f);
    if (isfinite(e->acc.n)) fprintf(f, "%.0f image%s", e->acc.n, plural(e->acc.n));
    if (e->acc.noise > 0) fprintf(f, ", input noise %g", e->acc.noise);
    if (e->acc.refine > 0)
        fprintf(f, ", refined by %.0f step%s", e->acc.refine, plural(e->acc.refine));
    fputs("</p>\n", f);
    if (page_figure(p, FIG_CONFUSION, err)) return -1;
    if (e->acc.per_class) put_per_class(p, e->acc.per_class, 2, " %");
    return 0;
}

static int put_calibration(Page *p, Err *err) {
    if (!p->r.eval.ece.run.there) return 0;
    fputs("<h2>Calibration</h2>\n", p->out);
    return page_figure(p, FIG_RELIABILITY, err);
}

static int put_ood(Page *p, Err *err) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    if (!e->ood.run.there) return 0;
    fputs(
        "<h2>Out-of-distribution detection</h2>\n<div class=wide><table><caption>In-distribution: ",
        f);
    html_text(f, e->ood.in.name);
    if (isfinite(e->ood.in.n)) fprintf(f, ", %.0f image%s", e->ood.in.n, plural(e->ood.in.n));
    if (e->ood.noise > 0) fprintf(f, ", input noise %g on all sets", e->ood.noise);
    fputs("</caption>\n<thead><tr><th>OOD set</th><th class=n>images</th><th>score</th><th "
          "class=n>AUROC</th>",
          f);
    if (p->beside) fputs("<th class=n>paper</th>", f);
    fputs("<th class=n>AUPR, in</th><th class=n>AUPR, out</th>"
          "<th class=n>FPR at 95 % TPR</th></tr></thead><tbody>\n",
          f);
    for (int i = 0; i < e->ood.n_set; i++)
        for (int k = 0; k < N_SCORE; k++) {
            const OodSet *set = &e->ood.set[i];
            const OodScore *s = &set->score[k];
            char measure[1200];
            if (!s->there) continue;
            snprintf(measure, sizeof measure, "%s:%s", score_name[k], set->name);
            fputs("<tr><th scope=row>", f);
            html_text(f, set->name);
            fputs("</th>", f);
            html_number(f, set->n, 0, "");
            fprintf(f, "<td>%s</td>", score_label[k]);
            html_number(f, s->auroc, 3, "");
            if (p->beside) html_number(f, page_paper(p, measure), 2, "");
            html_number(f, s->aupr, 3, "");
            html_number(f, s->aupr_out, 3, "");
            html_number(f, s->fpr95, 3, "");
            fputs("</tr>\n", f);
        }
    fputs("</tbody></table></div>\n", f);
    const int rc = page_figure(p, FIG_DENSITY, err);
    return rc ? rc : page_figure(p, FIG_ROC, err);
}

static void put_curve(FILE *f, const AttackCurve *c) {
    const int linf = !strcmp(c->norm, "linf");
    fputs("<div class=wide><table><caption>", f);
    html_text(f, c->attack);
    fputs(", ", f);
    html_text(f, c->norm);
    fputs(", loss ", f);
    html_text(f, c->loss);
    if (isfinite(c->targets)) fprintf(f, " (%.0f target%s)", c->targets, plural(c->targets));
    if (isfinite(c->steps)) fprintf(f, ", %.0f step%s", c->steps, plural(c->steps));
    if (isfinite(c->step)) fprintf(f, " of %.4g", c->step);
    else if (c->step_rule[0]) fputs(" of ", f), html_text(f, c->step_rule);
    if (isfinite(c->restarts)) fprintf(f, ", restarts %.0f", c->restarts);
    if (c->refine > 0)
        fprintf(f, ", refined by %.0f step%s, gradient over %.0f draw%s (straight-through)",
                c->refine, plural(c->refine), c->draws, plural(c->draws));
    fputs("</caption>\n<tr><th scope=row>radius</th>", f);
    for (int i = 0; i < c->n; i++)
        fprintf(f, linf ? "<td class=n>%.3g/255</td>" : "<td class=n>%.3g</td>",
                linf ? 255 * c->radius[i] : c->radius[i]);
    fputs("</tr>\n<tr><th scope=row>accuracy,&nbsp;%</th>", f);
    for (int i = 0; i < c->n; i++) html_number(f, c->accuracy[i], 1, "");
    fputs("</tr></table></div>\n", f);
}

static int put_attack(Page *p, Err *err) {
    const EvalResults *e = &p->r.eval;
    if (!e->attack.run.there) return 0;
    fputs("<h2>Robustness</h2>\n<p class=soft>", p->out);
    if (isfinite(e->attack.n)) fprintf(p->out, "%.0f image%s. ", e->attack.n, plural(e->attack.n));
    if (isfinite(e->attack.clean)) fprintf(p->out, "Clean accuracy: %.2f %%.", e->attack.clean);
    fputs("</p>\n", p->out);
    if (page_figure(p, FIG_ATTACK, err)) return -1;
    for (int i = 0; i < e->attack.n_curve; i++) put_curve(p->out, &e->attack.curve[i]);
    return 0;
}

// Everything that is known of a task, one figure per row.
static void put_table(Page *p, TaskId id, const char *caption) {
    Metric m[MAX_METRICS];
    const int n = results_metrics(&p->r.eval, id, m);
    if (!n) return;
    fprintf(p->out, "<table><caption>%s</caption>\n", caption);
    for (int i = 0; i < n; i++) html_row(p->out, m[i].label, m[i].text);
    fputs("</table>\n", p->out);
}

// Classes that have no sheet, since no sample was classified as theirs.
static void put_empty_classes(const Page *p) {
    const EvalResults *e = &p->r.eval;
    int n = 0;
    for (int c = 0; e->samples.per_class && c < e->n_class; c++) {
        if (e->samples.per_class[c] > 0) continue;
        fputs(n++ ? ", " : "<p class=soft>No sample was classified as: ", p->out);
        html_text(p->out, e->class_name[c]);
    }
    if (n) fputs("</p>\n", p->out);
}

static int put_sheets(Page *p, int of_classes) {
    const EvalResults *e = &p->r.eval;
    int n = 0;
    for (int i = 0; i < e->samples.n_file; i++) {
        if ((page_class(p, e->samples.file[i]) != NULL) != of_classes) continue;
        if (!n++ && of_classes) fputs("<details><summary>By class</summary>\n", p->out);
        if (n == 1) fputs("<div class=grids>\n", p->out);
        page_grid(p, e->samples.file[i]);
    }
    if (n) fputs("</div>\n", p->out);
    if (n && of_classes) put_empty_classes(p);
    if (n && of_classes) fputs("</details>\n", p->out);
    return n;
}

static void put_samples(Page *p) {
    fputs("<h2>Samples</h2>\n", p->out);
    int n = put_sheets(p, 0);
    n += put_sheets(p, 1);
    n += page_folder(p);
    if (!n) fputs("<p class=soft>None were found.</p>\n", p->out);
    put_table(p, TASK_SAMPLES, "Chains, and samples drawn by class");
}

// Samples above the training images that are nearest to them.
static void put_nearest(Page *p, const FidImages *of) {
    if (of->there && of->nearest[0]) page_grid(p, of->nearest);
}

static void put_fid_classes(Page *p, const FidImages *of, const char *what) {
    if (!of->there || !of->per_class) return;
    fprintf(p->out, "<p class=soft>FID by predicted class, %s:</p>\n", what);
    put_per_class(p, of->per_class, 1, "");
}

static void put_fid(Page *p) {
    const FidResult *r = &p->r.eval.fid;
    FILE *f = p->out;
    if (!r->run.there) return;
    fputs("<h2>Samples against real images</h2>\n<p class=soft>Reference: ", f);
    html_text(f, r->reference);
    fputs(". Inception weights: ", f);
    html_text(f, r->weights);
    fputs(", SHA-256 ", f);
    html_text(f, r->sha256);
    if (r->buffer.there && r->buffer.confident < 1)
        fprintf(f, ". Of the replay buffer, the %g %% most confident images",
                100 * r->buffer.confident);
    fputs(".</p>\n", f);
    open_measures(p);
    put_metrics(p, TASK_FID);
    close_measures(p);
    put_fid_classes(p, &r->buffer, "replay buffer");
    put_fid_classes(p, &r->fresh, "fresh chains");
    fputs("<div class=grids>\n", f);
    put_nearest(p, &r->buffer);
    put_nearest(p, &r->fresh);
    fputs("</div>\n", f);
}

static void put_speed(Page *p) {
    if (!p->r.eval.speed.run.there) return;
    fputs("<h2>Speed</h2>\n", p->out);
    put_table(p, TASK_SPEED, p->r.eval.speed.run.device);
}

int page_results(Page *p, Err *err) {
    put_glance(p);
    if (put_training(p, err) || put_accuracy(p, err) || put_calibration(p, err) ||
        put_ood(p, err) || put_attack(p, err))
        return -1;
    put_samples(p);
    put_fid(p);
    put_speed(p);
    return 0;
}
