// figures.c - see figures.h.
#include "report/figures.h"
#include "base/text.h"
#include "data/data.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

const FigureInfo figure_info[N_FIGURE] = {
    [FIG_CURVES] = { "curves", "Training",
                     "Means over at most 200 equal parts of the run; "
                     "validation accuracy after each epoch." },
    [FIG_CONFUSION] = { "confusion", "Confusion matrix",
                        "Rows are true classes, columns predicted classes, in percent of each row. "
                        "Values below 0.05 % are left blank." },
    [FIG_RELIABILITY] = { "reliability", "Calibration",
                          "Accuracy by confidence; on the dashed line the two are equal. Below, "
                          "the number of images per bin (logarithmic)." },
    [FIG_DENSITY] = { "density", "log p(x), in and out of distribution",
                      "log p(x) up to a constant: the log-sum-exp of the logits. The outermost "
                      "bins include all values beyond them." },
    [FIG_ROC] = { "roc", "Out-of-distribution detection",
                  "In-distribution images are the positive class; the number is the AUROC." },
    [FIG_ATTACK] = { "attack", "Robustness",
                     "Accuracy under attack against the radius of the perturbation; pixels are "
                     "in [0, 1]." },
};

// ---- building -----------------------------------------------------------------------------

typedef struct {
    Arena *arena;
    const Record *r;
    Figure *f;
} Draft;

static Panel *panels(const Draft *d, int n, int columns, int w, int row_h) {
    Panel *p = arena_alloc(d->arena, (size_t)n, sizeof *p);
    *d->f = (Figure){
        .w = w, .h = row_h * ((n + columns - 1) / columns), .columns = columns, .n = n, .panel = p
    };
    return p;
}

static void add(Panel *p, PlotKind kind, Ink ink, const char *label, int n, const double *x,
                const double *y) {
    if (p->n < PLOT_SERIES) p->series[p->n++] = (Series){ kind, ink, label, n, x, y };
}

static const char *words(const Draft *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static const char *words(const Draft *d, const char *fmt, ...) {
    char s[1200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(s, sizeof s, fmt, args);
    va_end(args);
    return arena_strdup(d->arena, s);
}

static const char *short_name(const Draft *d, const char *set) {
    char label[32];
    data_label(label, set);
    return arena_strdup(d->arena, label);
}

static const double *pair(const Draft *d, double a, double b) {
    double *v = arena_alloc(d->arena, 2, sizeof *v);
    if (v) v[0] = a, v[1] = b;
    return v;
}

// ---- learning curves ----------------------------------------------------------------------

enum { PARTS = 200 };

// Means of a column over equal parts of the log, `scale` times; how many parts.
static int means(const Draft *d, LogColumn k, double scale, double **out) {
    const Log *log = &d->r->log;
    const int each = (log->n + PARTS - 1) / PARTS, n = (log->n + each - 1) / each;
    *out = arena_alloc(d->arena, (size_t)n, sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        double sum = 0;
        int finite = 0;
        for (int j = i * each; j < (i + 1) * each && j < log->n; j++) {
            if (!isfinite(log->column[k][j])) continue;
            sum += log->column[k][j];
            finite++;
        }
        (*out)[i] = finite ? scale * sum / finite : NAN;
    }
    return n;
}

static void add_means(const Draft *d, Panel *p, LogColumn k, double scale, Ink ink,
                      const char *label) {
    double *x, *y;
    means(d, LOG_EPOCH, 1, &x);
    const int n = means(d, k, scale, &y);
    add(p, PLOT_LINE, ink, label, n, x, y);
}

// A column that few steps have, such as those at the end of an epoch.
static void add_points(const Draft *d, Panel *p, LogColumn k, double scale, Ink ink,
                       const char *label) {
    const Log *log = &d->r->log;
    double *x = arena_alloc(d->arena, (size_t)log->n, sizeof *x);
    double *y = arena_alloc(d->arena, (size_t)log->n, sizeof *y);
    int n = 0;
    for (int i = 0; x && y && i < log->n; i++) {
        if (!isfinite(log->column[k][i])) continue;
        x[n] = log->column[LOG_EPOCH][i];
        y[n++] = scale * log->column[k][i];
    }
    if (n) add(p, PLOT_LINE, ink, label, n, x, y);
}

// Runs without chains log zeros there, older ones nothing.
static int has(const Log *log, LogColumn k) {
    for (int i = 0; i < log->n; i++)
        if (isfinite(log->column[k][i]) && log->column[k][i] != 0) return 1;
    return 0;
}

static int curves(const Draft *d) {
    const Log *log = &d->r->log;
    if (!log->n) return 0;
    const int chains = has(log, LOG_FXQ), fid = has(log, LOG_FID), n = (chains ? 4 : 3) + fid;
    Panel *p = panels(d, n, 2, 960, 320);
    if (!p) return 1;
    p[0] = (Panel){ .title = "Accuracy, %", .y_hi = 100 };
    add_means(d, &p[0], LOG_ACCURACY, 100, INK_BLUE, "training batches");
    add_points(d, &p[0], LOG_VALID, 100, INK_RED, "validation");
    p[1] = (Panel){ .title = "Loss" };
    add_means(d, &p[1], LOG_LOSS, 1, INK_BLUE, "loss");
    add_means(d, &p[1], LOG_CE, 1, INK_RED, "cross-entropy");
    if (chains) {
        p[2] = (Panel){ .title = "log p(x), up to a constant" };
        add_means(d, &p[2], LOG_FX, 1, INK_BLUE, "real images, f(x)");
        add_means(d, &p[2], LOG_FXQ, 1, INK_RED, "sampled images, f(x_q)");
        p[3] = (Panel){ .title = "Chains" };
        add_means(d, &p[3], LOG_GAP, 1, INK_GREEN, "gap: running mean of |f(x) - f(x_q)|");
        if (has(log, LOG_CLIMB))
            add_means(d, &p[3], LOG_CLIMB, 1, INK_BLUE, "climb: first move, relative to its slope");
    } else {
        p[2] = (Panel){ .title = "Learning rate" };
        add_means(d, &p[2], LOG_LR, 1, INK_GREEN, "rate");
    }
    if (fid) {
        p[n - 1] = (Panel){ .title = "FID of the replay buffer" };
        add_points(d, &p[n - 1], LOG_FID, 1, INK_BLUE, "5,000 images against the training set");
    }
    double end = log->column[LOG_EPOCH][log->n - 1];
    for (int i = 0; i < log->n_diverged; i++) end = fmax(end, log->diverged_epoch[i]);
    for (int i = 0; i < n; i++) {
        p[i].x_label = "epoch";
        p[i].x_hi = 1.01 * end; // a mark at the end is not on the frame
        if (log->n_diverged)
            add(&p[i], PLOT_MARKS, INK_BLACK, i ? NULL : "diverged", log->n_diverged,
                log->diverged_epoch, NULL);
    }
    return 1;
}

// ---- evaluation ---------------------------------------------------------------------------

static int confusion(const Draft *d) {
    const EvalResults *e = &d->r->eval;
    const int n = e->n_class;
    if (!e->acc.confusion) return 0;
    Panel *p = panels(d, 1, 1, 760, 720);
    double *share = arena_alloc(d->arena, (size_t)n * (size_t)n, sizeof *share);
    if (!p || !share) return 1;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        const double *row = e->acc.confusion + (size_t)i * (size_t)n;
        for (int k = 0; k < n; k++) sum += isfinite(row[k]) ? row[k] : 0;
        for (int k = 0; k < n; k++) share[i * n + k] = sum > 0 ? row[k] / sum : NAN;
    }
    *p = (Panel){ .x_label = "predicted class", .y_label = "true class", .names = e->class_name };
    add(p, PLOT_CELLS, INK_BLUE, NULL, n, NULL, share);
    return 1;
}

static void reliability_of(const Draft *d, const Calibration *c, const char *what, Panel *top,
                           Panel *below) {
    const size_t n = (size_t)c->n_bin;
    double *edge = arena_alloc(d->arena, n + 1, sizeof *edge),
           *accuracy = arena_alloc(d->arena, n, sizeof *accuracy),
           *height = arena_alloc(d->arena, n, sizeof *height), most = 1;
    if (!edge || !accuracy || !height) return;
    edge[0] = c->bin[0].lo;
    for (size_t i = 0; i < n; i++) {
        edge[i + 1] = c->bin[i].hi;
        accuracy[i] = c->bin[i].accuracy;
        height[i] = c->bin[i].count >= 1 ? log10(c->bin[i].count) : NAN;
        if (c->bin[i].count > most) most = c->bin[i].count;
    }
    const char *title = isfinite(c->ece) ? words(d, "%s: ECE %.2f %%", what, c->ece) : what;
    *top = (Panel){ .title = title, .y_label = "accuracy", .x_hi = 1, .y_hi = 1, .tall = 2 };
    add(top, PLOT_BARS, INK_BLUE, "accuracy", c->n_bin, edge, accuracy);
    add(top, PLOT_LINE, INK_GREY, "perfect calibration", 2, pair(d, 0, 1), pair(d, 0, 1));
    *below = (Panel){ .x_label = "confidence, max p(y|x)",
                      .y_label = "images",
                      .x_hi = 1,
                      .y_log = 1,
                      .y_lo = -0.3,
                      .y_hi = ceil(log10(most) + 0.05) };
    add(below, PLOT_BARS, INK_ORANGE, NULL, c->n_bin, edge, height);
}

static int reliability(const Draft *d) {
    const EceResult *e = &d->r->eval.ece;
    if (!e->plain.n_bin) return 0;
    const int columns = e->temperature.there && e->temperature.at_t.n_bin ? 2 : 1;
    Panel *p = panels(d, 2 * columns, columns, columns * 480, 300);
    if (!p) return 1;
    reliability_of(d, &e->plain, "As trained", &p[0], &p[columns]);
    if (columns == 2)
        reliability_of(d, &e->temperature.at_t, words(d, "Temperature %.3g", e->temperature.t),
                       &p[1], &p[3]);
    return 1;
}

// Counts as percentages of all: sets of different sizes can be compared.
static const double *percent(const Draft *d, const double *count, int n) {
    double *v = arena_alloc(d->arena, (size_t)n, sizeof *v), sum = 0;
    for (int i = 0; i < n; i++) sum += isfinite(count[i]) ? count[i] : 0;
    for (int i = 0; v && i < n; i++) v[i] = sum > 0 ? 100 * count[i] / sum : 0;
    return v;
}

static const double *hist_edges(const Draft *d, const OodScore *s) {
    const int n = s->hist.n;
    double *edge = arena_alloc(d->arena, (size_t)n + 1, sizeof *edge);
    for (int i = 0; edge && i <= n; i++) edge[i] = s->hist.lo + (s->hist.hi - s->hist.lo) * i / n;
    return edge;
}

static Panel against(const Draft *d, const OodSet *set) {
    return (Panel){ .title = words(d, "%s against %s", short_name(d, d->r->eval.ood.in.name),
                                   short_name(d, set->name)) };
}

// One scale for all sets, unless one of them would be a needle on it.
static int density(const Draft *d) {
    const OodResult *ood = &d->r->eval.ood;
    int n = 0;
    double lo = INFINITY, hi = -INFINITY, least = INFINITY;
    for (int i = 0; i < ood->n_set; i++) {
        const OodScore *s = &ood->set[i].score[SCORE_LOGPX];
        if (!s->hist.n) continue;
        n++;
        lo = fmin(lo, s->hist.lo);
        hi = fmax(hi, s->hist.hi);
        least = fmin(least, s->hist.hi - s->hist.lo);
    }
    if (!n) return 0;
    const int shared = least > (hi - lo) / 5;
    Panel *p = panels(d, n, n > 1 ? 2 : 1, n > 1 ? 960 : 560, 300);
    if (!p) return 1;
    for (int i = 0; i < ood->n_set; i++) {
        const OodSet *set = &ood->set[i];
        const OodScore *s = &set->score[SCORE_LOGPX];
        if (!s->hist.n) continue;
        const double *edge = hist_edges(d, s);
        *p = against(d, set);
        p->x_label = "log p(x) + constant";
        p->y_label = "% of images";
        p->x_lo = shared ? lo : s->hist.lo;
        p->x_hi = shared ? hi : s->hist.hi;
        add(p, PLOT_HIST, INK_GREEN, words(d, "in: %s", short_name(d, ood->in.name)), s->hist.n,
            edge, percent(d, s->hist.in, s->hist.n));
        add(p++, PLOT_HIST, INK_RED, words(d, "out: %s", short_name(d, set->name)), s->hist.n, edge,
            percent(d, s->hist.out, s->hist.n));
    }
    return 1;
}

static int has_roc(const OodSet *s) {
    int any = 0;
    for (int k = 0; k < N_SCORE; k++) any |= s->score[k].n_roc > 0;
    return any;
}

static const double *roc_column(const Draft *d, const OodScore *s, int k) {
    double *v = arena_alloc(d->arena, (size_t)s->n_roc, sizeof *v);
    for (int i = 0; v && i < s->n_roc; i++) v[i] = s->roc[2 * i + k];
    return v;
}

static int roc(const Draft *d) {
    static const Ink INK[N_SCORE] = { INK_BLUE, INK_RED, INK_GREEN, INK_PURPLE };
    const OodResult *ood = &d->r->eval.ood;
    int n = 0;
    for (int i = 0; i < ood->n_set; i++) n += has_roc(&ood->set[i]);
    if (!n) return 0;
    Panel *p = panels(d, n, n > 1 ? 2 : 1, n > 1 ? 960 : 520, 470);
    for (int i = 0; p && i < ood->n_set; i++) {
        const OodSet *set = &ood->set[i];
        if (!has_roc(set)) continue;
        *p = against(d, set);
        p->x_label = "false positive rate (OOD images accepted)";
        p->y_label = "true positive rate";
        p->x_hi = p->y_hi = 1;
        add(p, PLOT_LINE, INK_GREY, NULL, 2, pair(d, 0, 1), pair(d, 0, 1));
        for (int k = 0; k < N_SCORE; k++) {
            const OodScore *s = &set->score[k];
            if (!s->n_roc) continue;
            const char *label = isfinite(s->auroc) ? words(d, "%s: %.3f", score_label[k], s->auroc)
                                                   : score_label[k];
            add(p, PLOT_LINE, INK[k], label, s->n_roc, roc_column(d, s, 0), roc_column(d, s, 1));
        }
        p++;
    }
    return 1;
}

static int is_linf(const AttackCurve *c) { return !strcmp(c->norm, "linf"); }

static const char *curve_label(const Draft *d, const AttackCurve *c) {
    char more[80] = "";
    if (c->restarts > 1) snprintf(more, sizeof more, ", %.0f restarts", c->restarts);
    if (c->refine > 0)
        snprintf(more + strlen(more), sizeof more - strlen(more), ", refined by %.0f step%s",
                 c->refine, plural(c->refine));
    const char *attack = !strcmp(c->attack, "pgd")    ? "PGD"
                         : !strcmp(c->attack, "fgsm") ? "FGSM"
                         : !strcmp(c->attack, "apgd") ? "APGD"
                                                      : c->attack;
    const char *loss = !strcmp(c->loss, "ce")       ? "cross-entropy"
                       : !strcmp(c->attack, "apgd") ? "CE and targeted DLR"
                                                    : c->loss;
    if (c->steps > 1) return words(d, "%s-%.0f, %s%s", attack, c->steps, loss, more);
    return words(d, "%s, %s%s", attack, loss, more);
}

static void attack_panel(const Draft *d, int linf, Panel *p) {
    static const Ink INK[] = { INK_BLUE, INK_RED, INK_GREEN, INK_PURPLE, INK_ORANGE, INK_SKY };
    const EvalResults *e = &d->r->eval;
    const double scale = linf ? 255 : 1;
    double most = 0;
    *p = (Panel){ .title = linf ? "L\u221e" : "L2",
                  .x_label = linf ? "radius, in 1/255" : "radius, pixels in [0, 1]",
                  .y_label = "accuracy, %",
                  .y_hi = 100 };
    for (int i = 0; i < e->attack.n_curve; i++) {
        const AttackCurve *c = &e->attack.curve[i];
        if (is_linf(c) != linf) continue;
        double *x = arena_alloc(d->arena, (size_t)c->n, sizeof *x);
        for (int k = 0; x && k < c->n; k++) {
            x[k] = scale * c->radius[k];
            if (x[k] > most) most = x[k];
        }
        add(p, PLOT_LINE, INK[p->n % (int)(sizeof INK / sizeof *INK)], curve_label(d, c), c->n, x,
            c->accuracy);
    }
    if (isfinite(e->attack.clean) && most > 0)
        add(p, PLOT_LINE, INK_GREY, "clean", 2, pair(d, 0, most),
            pair(d, e->attack.clean, e->attack.clean));
}

static int attack(const Draft *d) {
    const EvalResults *e = &d->r->eval;
    int n[2] = { 0 };
    for (int i = 0; i < e->attack.n_curve; i++) n[is_linf(&e->attack.curve[i])] += 1;
    const int both = n[0] && n[1];
    if (!n[0] && !n[1]) return 0;
    Panel *p = panels(d, 1 + both, 1 + both, both ? 960 : 560, 400);
    if (!p) return 1;
    if (n[1]) attack_panel(d, 1, p++);
    if (n[0]) attack_panel(d, 0, p);
    return 1;
}

int figure_make(Figure *f, const Record *r, FigureId id, Arena *a, Err *err) {
    static int (*const MAKE[N_FIGURE])(const Draft *) = {
        [FIG_CURVES] = curves,
        [FIG_CONFUSION] = confusion,
        [FIG_RELIABILITY] = reliability,
        [FIG_DENSITY] = density,
        [FIG_ROC] = roc,
        [FIG_ATTACK] = attack,
    };
    const Draft d = { a, r, f };
    const int there = MAKE[id](&d);
    return arena_ok(a, "a picture", err) ? -1 : there;
}
