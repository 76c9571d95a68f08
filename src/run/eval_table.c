// eval_table.c - eval.json for a terminal, beside the figures of the JEM++ paper where it has one.
#include "run/eval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the paper -----------------------------------------------------------------------------------

// WRN-28-10; NaN: not reported. OOD on CIFAR-10: log p(x), then max p(y|x). Of ECE the paper does not
// say for which M it is.
enum { D_CIFAR10, D_CIFAR100, D_SVHN, N_DATA };
enum { P_SVHN, P_INTERP, P_CIFAR100, P_CELEBA, N_POUT };
typedef struct {
    const char *name;
    double acc[N_DATA], ece[N_DATA];
    double logpx[N_POUT], maxp[N_POUT];
    double minutes;
} Paper;

static const char *const DATA_NAME[N_DATA] = { "cifar10", "cifar100", "svhn" };
static const char *const OUT_NAME[N_POUT] = { "svhn", "interp", "cifar100", "celeba" };
#define NO NAN
static const Paper PAPER[] = {
    { "JEM++ M=5",
      { 91.1, 72.0, 96.7 },
      { 2.35, 3.3, NO },
      { .89, .73, .81, .74 },
      { .88, .78, .86, .78 },
      12.5 },
    { "JEM++ M=10",
      { 93.5, 74.5, 96.9 },
      { 2.35, 3.3, NO },
      { .63, .68, .64, .59 },
      { .91, .78, .88, .82 },
      20.1 },
    { "JEM++ M=20",
      { 94.1, NO, NO },
      { NO, NO, NO },
      { .85, .57, .68, .89 },
      { .94, .77, .88, .90 },
      32.5 },
    { "JEM",
      { 92.9, 72.2, 96.7 },
      { 4.2, 4.87, NO },
      { .67, .65, .67, .75 },
      { .89, .75, .87, .79 },
      30.1 },
    { "softmax",
      { 95.8, 78.9, 97.0 },
      { NO, NO, NO },
      { NO, NO, NO, NO },
      { .93, .77, .85, .62 },
      NO },
};

static int index_of(const char *name, const char *const *list, int n) {
    int i = 0;
    while (name && i < n && strcmp(name, list[i]) != 0) i++;
    return name && i < n ? i : -1;
}

// "celeba" of "cifar-file:/data/celeba.bin": what a set is called in a line of the table.
static void short_name(char dst[25], const char *name) {
    const char *slash = strrchr(name, '/'), *colon = strchr(name, ':');
    const char *from = slash ? slash + 1 : colon ? colon + 1 : name, *dot = strrchr(from, '.');
    snprintf(dst, 25, "%.*s", dot && colon ? (int)(dot - from) : (int)strlen(from), from);
}

// The paper's system with these options, or NULL: what decides is the sampler.
static const Paper *paper_of(const Config *run) {
    if (run->px == PX_NONE) return run->attack == ATTACK_NONE ? &PAPER[4] : NULL;
    if (run->inner == 1) return run->steps == 20 && run->norm == NORM_NONE ? &PAPER[3] : NULL;
    switch (run->steps) {
    case 5:  return &PAPER[0];
    case 10: return &PAPER[1];
    case 20: return &PAPER[2];
    default: return NULL;
    }
}

// ---- the table -----------------------------------------------------------------------------------

typedef struct {
    FILE *f;
    const Json *tasks;
    const Paper *paper;               // NULL: none to compare with
    int data;                         // of the paper's, or -1
} Table;

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
                double paper) {
    if (isnan(v)) return;
    fprintf(t->f, "  %-34s %9.*f%-3s", what, digits, v, unit);
    if (!isnan(paper)) fprintf(t->f, " %9.*f%s", digits > 2 ? 2 : digits, paper, unit);
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

static double of_data(const Table *t, const double figure[N_DATA]) {
    return figure ? figure[t->data] : NAN;
}

static void put_acc(const Table *t) {
    const Json *a = begin(t, "acc", "accuracy");
    if (!a) return;
    row(t, "top-1", number(a, "top1"), " %", 2, of_data(t, t->paper ? t->paper->acc : NULL));
    row(t, "top-5", number(a, "top5"), " %", 2, NAN);
    row(t, "NLL", number(a, "nll"), "", 4, NAN);
}

static void put_ece(const Table *t) {
    const Json *a = begin(t, "ece", "calibration"), *s = json_get(a, "temperature");
    if (!a) return;
    row(t, "ECE", number(a, "ece"), " %", 2, of_data(t, t->paper ? t->paper->ece : NULL));
    row(t, "maximum", number(a, "mce"), " %", 2, NAN);
    row(t, "class-wise ECE", number(a, "classwise_ece"), " %", 2, NAN);
    row(t, "Brier score", number(a, "brier"), "", 4, NAN);
    row(t, "temperature", number(s, "t"), "", 3, NAN);
    row(t, "  ECE with it", number(s, "ece"), " %", 2, NAN);
    row(t, "  NLL with it", number(s, "nll"), "", 4, NAN);
}

static void put_ood(const Table *t) {
    const Json *a = begin(t, "ood", "out of distribution (AUROC, FPR at 95 %)");
    const char *in = string(json_get(a, "in"), "name");
    for (const Json *s = json_first(json_get(a, "sets")); s; s = json_next(s)) {
        char name[25];
        short_name(name, string(s, "name"));
        const int at = !strcmp(in, "cifar10") ? index_of(name, OUT_NAME, N_POUT) : -1;
        for (const Json *k = json_first(json_get(s, "scores")); k; k = json_next(k)) {
            const int px = !strcmp(json_key(k), "logpx"), maxp = !strcmp(json_key(k), "maxp");
            const double paper = !t->paper || at < 0 ? NAN
                                 : px                ? t->paper->logpx[at]
                                 : maxp              ? t->paper->maxp[at]
                                                     : NAN;
            fprintf(t->f, "  %-24.24s %-9s %9.3f %9.3f", px ? name : "", json_key(k),
                    number(k, "auroc"), number(k, "fpr95"));
            if (!isnan(paper)) fprintf(t->f, " %9.2f", paper);
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
    row(t, "an epoch, minutes", number(a, "minutes_per_epoch"), "", 2,
        t->paper && t->data == D_CIFAR10 ? t->paper->minutes : NAN);
}

char *eval_table(const Json *doc, const Config *run, Err *err) {
    char *text = NULL;
    size_t n = 0;
    const char *data = string(doc, "data");
    const Json *tasks = json_get(doc, "tasks");
    Table t = { open_memstream(&text, &n), tasks, NULL, index_of(data, DATA_NAME, N_DATA) };
    if (t.data >= 0) t.paper = paper_of(run);
    if (t.f) {
        fprintf(t.f, "%s: %s, %s on %s (%s)\n", string(doc, "model"), string(doc, "net"), data,
                string(doc, "device"), string(doc, "precision"));
        if (t.paper) fprintf(t.f, "right column: the paper's %s, WRN-28-10\n", t.paper->name);
        put_acc(&t);
        put_ece(&t);
        put_ood(&t);
        put_attack(&t);
        put_samples(&t);
        put_speed(&t);
        if (!fclose(t.f)) return text;
    }
    free(text);
    err_set(err, ERR_MEM, "out of memory for a table");
    return NULL;
}
