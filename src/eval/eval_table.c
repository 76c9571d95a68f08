// eval_table.c - eval.json for a terminal, beside the figures of the JEM++ paper where it has one.
#include "eval/eval.h"
#include "report/paper.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the table -----------------------------------------------------------------------------------

typedef struct {
    FILE *f;
    const Json *tasks;
    const char *system, *data;        // of the paper's, to compare with
} Table;

static double paper(const Table *t, const char *measure) {
    return paper_figure(t->system, t->data, measure);
}

static double number(const Json *of, const char *key) {
    double v = NAN;
    (void)json_double(json_get(of, key), &v);
    return v;
}

static const char *string(const Json *of, const char *key) {
    const char *s = json_string(json_get(of, key));
    return s ? s : "?";
}

// A line: what, the figure, the paper's (NaN: none).
static void row(const Table *t, const char *what, double v, const char *unit, int digits,
                double beside) {
    if (isnan(v)) return;
    fprintf(t->f, "  %-34s %9.*f%-3s", what, digits, v, unit);
    if (!isnan(beside)) fprintf(t->f, " %9.*f%s", digits > 2 ? 2 : digits, beside, unit);
    fprintf(t->f, "\n");
}

static const Json *begin(const Table *t, const char *name, const char *title) {
    const Json *task = json_get(t->tasks, name);
    const double n = number(task, "n");
    if (!task) return NULL;
    fprintf(t->f, "\n%s", title);
    if (!isnan(n)) fprintf(t->f, ", %.0f images", n);
    fprintf(t->f, "\n");
    return task;
}

static void put_acc(const Table *t) {
    const Json *a = begin(t, "acc", "accuracy");
    if (!a) return;
    row(t, "top-1", number(a, "top1"), " %", 2, paper(t, "acc"));
    row(t, "top-5", number(a, "top5"), " %", 2, NAN);
    row(t, "NLL", number(a, "nll"), "", 4, NAN);
}

static void put_ece(const Table *t) {
    const Json *a = begin(t, "ece", "calibration"), *s = json_get(a, "temperature");
    if (!a) return;
    row(t, "ECE", number(a, "ece"), " %", 2, paper(t, "ece"));
    row(t, "maximum", number(a, "mce"), " %", 2, NAN);
    row(t, "class-wise ECE", number(a, "classwise_ece"), " %", 2, NAN);
    row(t, "Brier score", number(a, "brier"), "", 4, NAN);
    row(t, "temperature", number(s, "t"), "", 3, NAN);
    row(t, "  ECE with it", number(s, "ece"), " %", 2, NAN);
    row(t, "  NLL with it", number(s, "nll"), "", 4, NAN);
}

static void put_ood(const Table *t) {
    const Json *a = begin(t, "ood", "out of distribution (AUROC, FPR at 95 %)");
    for (const Json *s = json_first(json_get(a, "sets")); s; s = json_next(s)) {
        char name[32], measure[320];
        data_label(name, string(s, "name"));
        for (const Json *k = json_first(json_get(s, "scores")); k; k = json_next(k)) {
            snprintf(measure, sizeof measure, "%.20s:%.280s", json_key(k), string(s, "name"));
            const double beside = paper(t, measure);
            fprintf(t->f, "  %-24.24s %-9s %9.3f %9.3f", !strcmp(json_key(k), "logpx") ? name : "",
                    json_key(k), number(k, "auroc"), number(k, "fpr95"));
            if (!isnan(beside)) fprintf(t->f, " %9.2f", beside);
            fprintf(t->f, "\n");
        }
    }
}

static void put_radius(FILE *f, double radius, int linf) {
    if (linf) fprintf(f, " %5.3g/255", radius * 255);
    else fprintf(f, " %9.3g", radius);
}

static void put_attack(const Table *t) {
    const Json *a = begin(t, "attack", "accuracy under attack");
    for (const Json *c = json_first(json_get(a, "curves")); c; c = json_next(c)) {
        const char *norm = string(c, "norm");
        const Json *r = json_get(c, "radii"), *v = json_get(c, "accuracy");
        fprintf(t->f, "  %s %s, %s, steps %g, restarts %g\n", string(c, "attack"), norm,
                string(c, "loss"), number(c, "steps"), number(c, "restarts"));
        for (const Json *x = json_first(r), *y = json_first(v); x && y;
             x = json_next(x), y = json_next(y)) {
            double radius = 0, accuracy = 0;
            (void)json_double(x, &radius);
            (void)json_double(y, &accuracy);
            fprintf(t->f, "   ");
            put_radius(t->f, radius, !strcmp(norm, "linf"));
            fprintf(t->f, "  %6.2f %%\n", accuracy);
        }
    }
}

static void put_samples(const Table *t) {
    const Json *a = begin(t, "samples", "samples");
    if (a)
        fprintf(t->f, "  %zu pages, of %s chains\n", json_count(json_get(a, "files")),
                string(a, "from"));
}

static void put_speed(const Table *t) {
    const Json *a = begin(t, "speed", "speed");
    if (!a) return;
    row(t, "p(y|x) and log p(x), images/s", number(a, "images_per_second"), "", 0, NAN);
    row(t, "a step of a chain, ms", number(a, "sgld_step_ms"), "", 2, NAN);
    row(t, "an iteration, ms", number(a, "iteration_ms"), "", 1, NAN);
    row(t, "an epoch, minutes", number(a, "minutes_per_epoch"), "", 2, paper(t, "minutes"));
}

char *eval_table(const Json *doc, const Config *run, Err *err) {
    char *text = NULL;
    size_t n = 0;
    const char *data = string(doc, "data");
    char px[32];
    config_value(run, config_row("px"), px, sizeof px);
    const Table t = { open_memstream(&text, &n), json_get(doc, "tasks"),
                      paper_system(run->preset, px, run->steps), data };
    if (t.f) {
        fprintf(t.f, "%s: %s, %s on %s (%s)\n", string(doc, "model"), string(doc, "net"), data,
                string(doc, "device"), string(doc, "precision"));
        if (!isnan(paper(&t, "acc")))
            fprintf(t.f, "right column: the paper's %s, WRN-28-10\n", paper_label(t.system));
        put_acc(&t);
        put_ece(&t);
        put_ood(&t);
        put_attack(&t);
        put_samples(&t);
        put_speed(&t);
        if (!fclose(t.f)) {
            tame(text);
            return text;
        }
    }
    free(text);
    err_set(err, ERR_MEM, "out of memory for a table");
    return NULL;
}
