// report.c - see report.h.
#include "report/report.h"
#include "base/file.h"
#include "base/image.h"
#include "base/text.h"
#include "conf/config.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/paper.h"
#include "run/folder.h"
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int report_pictures(const char *dir, Err *err) {
    static const char *const SUFFIX[] = { [PLOT_PNG] = "png", [PLOT_SVG] = "svg" };
    Record r;
    Figure f = { 0 };
    int rc = record_read(&r, dir, err);
    for (FigureId id = 0; !rc && id < N_FIGURE; id++) {
        Arena a = { 0 };
        const int there = figure_make(&f, &r, id, &a, err);
        for (PlotFormat k = PLOT_PNG; !rc && there > 0 && k <= PLOT_SVG; k++) {
            char name[64], path[600];
            snprintf(name, sizeof name, "%s.%s", figure_info[id].file, SUFFIX[k]);
            rc = path_join(path, sizeof path, dir, name, err);
            if (!rc) rc = plot_write(&f, k, path, err);
        }
        if (there < 0) rc = -1;
        arena_free(&a);
    }
    record_free(&r);
    return rc;
}

// ---- the page's text ----------------------------------------------------------------------

enum { EMBED_MOST = 48 << 20 };      // bytes of sample grids in one page
enum { SHELL_WORD = 4 * RUN_PATH };  // bytes of the folder's name in a command

typedef struct {
    FILE       *out;
    Record      r;
    const char *dir, *system;        // system: the paper's that this run is compared with
    size_t      embedded;
    int         has_model;           // best.safetensors is there
    int         beside;              // the paper has results for this data set
    int         pictures, left_out;
    Err         no_plot;             // why there are no figures, where there are none
} Page;

// ---- pictures -----------------------------------------------------------------------------

// A vector picture as an image of its own: glyphs of several have the same names.
static int put_figure(Page *p, FigureId id, Err *err) {
    Arena a = { 0 };
    Figure f = { 0 };
    char *svg = NULL;
    size_t n;
    const FigureInfo *info = &figure_info[id];
    int rc = figure_make(&f, &p->r, id, &a, err);
    if (rc > 0 && p->no_plot.kind) {
        fputs("<p class=soft>The picture is left out: ", p->out);
        html_text(p->out, p->no_plot.msg);
        fputs("</p>\n", p->out);
        p->left_out++;
    } else if (rc > 0 && !(rc = plot_draw(&f, PLOT_SVG, &svg, &n, err))) {
        fprintf(p->out,
                "<figure><img width=%d height=%d alt=\"%s\" src=\"data:image/svg+xml;base64,", f.w,
                f.h, info->title);
        html_base64(p->out, (const unsigned char *)svg, n);
        fprintf(p->out, "\">\n<figcaption>%s</figcaption></figure>\n", info->caption);
        p->pictures++;
    }
    free(svg);
    arena_free(&a);
    return rc < 0 ? -1 : 0;
}

// Pages of one class are named after its number: "sheets/class-003-best-px.png".
static const char *of_class(const Page *p, const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    int c = -1;
    if (sscanf(base, "class-%4d", &c) != 1 || c < 0 || c >= p->r.eval.n_class) return NULL;
    return p->r.eval.class_name[c];
}

// What a grid shows, as far as its name tells, and the name.
static void put_caption(const Page *p, const char *name) {
    static const char *const KNOWN[][2] = {
        { "best-px.png", "highest p(x)" },
        { "worst-px.png", "lowest p(x)" },
        { "best-pyx.png", "highest p(y|x)" },
        { "worst-pyx.png", "lowest p(y|x)" },
        { "samples.png", "uncurated samples" },
        { "classes.png", "class-conditional samples, one row per class" },
        { "starts.png", "chain starts" },
        { "centres.png", "class centres" },
        { "nearest-buffer.png", "samples of the replay buffer, above the three training images "
                                "nearest to each (pixels)" },
        { "nearest-fresh.png",
          "samples of fresh chains, above the three training images nearest to each (pixels)" },
    };
    const size_t n = strlen(name);
    if (of_class(p, name)) html_text(p->out, of_class(p, name)), fputs(": ", p->out);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const size_t k = strlen(KNOWN[i][0]);
        if (n >= k && !strcmp(name + n - k, KNOWN[i][0])) fprintf(p->out, "%s: ", KNOWN[i][1]);
    }
    if (strstr(name, "/step-")) fputs("the replay buffer in training: ", p->out);
    html_text(p->out, name);
}

// A PNG of the run folder, as it is. One that is missing or no picture is said to be.
static void put_grid(Page *p, const char *name) {
    char path[600], *data = NULL;
    size_t n;
    Image im = { 0 };
    Err why = { 0 };
    if (path_join(path, sizeof path, p->dir, name, &why) ||
        file_read(path, EMBED_MOST, &data, &n, &why) ||
        image_decode(&im, (const uint8_t *)data, n, path, 3, &why) ||
        (memcmp(data, "\x89PNG", 4) && err_set(&why, ERR_DATA, "%s: expected a PNG", path))) {
        fputs("<p class=soft>", p->out);
        html_text(p->out, why.msg);
        fputs("</p>\n", p->out);
    } else if (p->embedded + n > EMBED_MOST) {
        p->left_out++;
    } else {
        fprintf(p->out, "<figure><img width=%d height=%d alt=\"", im.w, im.h);
        html_text(p->out, name);
        fputs("\" src=\"data:image/png;base64,", p->out);
        html_base64(p->out, (const unsigned char *)data, n);
        fputs("\">\n<figcaption>", p->out);
        put_caption(p, name);
        fputs("</figcaption></figure>\n", p->out);
        p->embedded += n;
        p->pictures++;
    }
    image_free(&im);
    free(data);
}

static int is_png(const struct dirent *d) {
    const size_t n = strlen(d->d_name);
    return n > 4 && n < 200 && !strcmp(d->d_name + n - 4, ".png");
}

// What training and `jempp sample` left in samples/: of training's grids the last.
static int put_folder(Page *p) {
    char path[RUN_PATH];
    struct dirent **entry;
    Err none = { 0 };
    if (run_path(path, p->dir, RUN_SAMPLES, &none)) return 0;
    const int n = scandir(path, &entry, is_png, alphasort);
    if (n < 0) return 0;
    if (n) fputs("<div class=grids>\n", p->out);
    for (int i = 0; i < n; i++) {
        const int step = is_run_sample(entry[i]->d_name);
        const int later = step && i + 1 < n && is_run_sample(entry[i + 1]->d_name);
        char name[300];
        snprintf(name, sizeof name, "%s/%s", run_file(RUN_SAMPLES), entry[i]->d_name);
        if (!later) put_grid(p, name);
    }
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    if (n) fputs("</div>\n", p->out);
    return n;
}

// ---- sections -----------------------------------------------------------------------------

static double run_number(const Page *p, const char *key) {
    double v = NAN;
    json_double(json_get(p->r.run, key), &v);
    return v;
}

static const char *data_of(const Page *p) {
    const char *of_eval = p->r.eval.there ? p->r.eval.data : "";
    return of_eval[0] ? of_eval : record_option(&p->r, "data");
}

static const char *net_of(const Page *p) {
    const char *of_eval = p->r.eval.there ? p->r.eval.net : "";
    return of_eval[0] ? of_eval : record_option(&p->r, "model");
}

static double paper(const Page *p, const char *measure) {
    return paper_figure(p->system, data_of(p), measure);
}

static void put_measure(Page *p, const char *name, double v, int digits, const char *unit,
                        const char *measure) {
    if (!isfinite(v)) return;
    fputs("<tr><th scope=row>", p->out);
    html_text(p->out, name);
    fputs("</th>", p->out);
    html_number(p->out, v, digits, unit);
    if (p->beside)
        html_number(p->out, measure ? paper(p, measure) : NAN, digits > 2 ? 2 : digits, unit);
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

static void put_glance(Page *p) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    fputs("<h2>At a glance</h2>\n<div class=wide><table><thead><tr><th>measure</th>"
          "<th class=n>this run</th>",
          f);
    if (p->beside) fprintf(f, "<th class=n>paper: %s</th>", paper_label(p->system));
    fputs("</tr></thead><tbody>\n", f);
    for (TaskId id = 0; id < N_TASK; id++)
        if (id < TASK_SAMPLES) put_metrics(p, id);             // the others have sections
    put_measure(p, "FID of the replay buffer",
                e->fid.buffer.there ? e->fid.buffer.figures.fid : NAN, 2, "", "fid.buffer.fid");
    put_measure(p, "FID of fresh chains", e->fid.fresh.there ? e->fid.fresh.figures.fid : NAN, 2,
                "", NULL);
    put_measure(p, "Inception Score of the replay buffer",
                e->fid.buffer.there ? e->fid.buffer.figures.is : NAN, 2, "", "fid.buffer.is");
    for (int i = 0; i < e->ood.n_set; i++)
        for (int k = 0; k <= SCORE_MAXP; k++) {
            char name[1200], measure[1200];
            snprintf(name, sizeof name, "OOD AUROC against %s, %s", e->ood.set[i].name,
                     score_label[k]);
            snprintf(measure, sizeof measure, "%s:%s", score_name[k], e->ood.set[i].name);
            if (e->ood.set[i].score[k].there)
                put_measure(p, name, e->ood.set[i].score[k].auroc, 3, "", measure);
        }
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
    fputs("</tbody></table></div>\n", f);
    if (!p->beside) return;
    fputs("<p class=soft>The paper's results are for WRN-28-10, its times for an unnamed GPU", f);
    if (strcmp(net_of(p), "wrn-28-10") && net_of(p)[0]) {
        fputs("; this network is ", f);
        html_text(f, net_of(p));
    }
    if (strcmp(p->system, record_option(&p->r, "preset")))
        fputs(". This run is not one of the paper's systems; the nearest one is shown", f);
    fputs(".</p>\n", f);
}

static int put_training(Page *p, Err *err) {
    fputs("<h2>Training</h2>\n", p->out);
    if (p->r.log.n) return put_figure(p, FIG_CURVES, err);
    fputs("<p class=soft>No log.tsv: only a model was evaluated here.</p>\n", p->out);
    return 0;
}

static int put_accuracy(Page *p, Err *err) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    if (!e->acc.run.there) return 0;
    fputs("<h2>Accuracy</h2>\n<p class=soft>", f);
    if (isfinite(e->acc.n)) fprintf(f, "%.0f images", e->acc.n);
    if (e->acc.noise > 0) fprintf(f, ", input noise %g", e->acc.noise);
    if (e->acc.refine > 0) fprintf(f, ", refined by %.0f steps", e->acc.refine);
    fputs("</p>\n", f);
    if (put_figure(p, FIG_CONFUSION, err)) return -1;
    if (!e->acc.per_class) return 0;
    fputs("<div class=options>\n", f);
    for (int i = 0; i < e->n_class; i++) {
        fputs("<div>", f);
        html_text(f, e->class_name[i]);
        if (isfinite(e->acc.per_class[i])) fprintf(f, " <b>%.2f %%</b>", e->acc.per_class[i]);
        fputs("</div>\n", f);
    }
    fputs("</div>\n", f);
    return 0;
}

static int put_calibration(Page *p, Err *err) {
    if (!p->r.eval.ece.run.there) return 0;
    fputs("<h2>Calibration</h2>\n", p->out);
    return put_figure(p, FIG_RELIABILITY, err);
}

static int put_ood(Page *p, Err *err) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    if (!e->ood.run.there) return 0;
    fputs(
        "<h2>Out-of-distribution detection</h2>\n<div class=wide><table><caption>In-distribution: ",
        f);
    html_text(f, e->ood.in.name);
    if (isfinite(e->ood.in.n)) fprintf(f, ", %.0f images", e->ood.in.n);
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
            if (p->beside) html_number(f, paper(p, measure), 2, "");
            html_number(f, s->aupr, 3, "");
            html_number(f, s->aupr_out, 3, "");
            html_number(f, s->fpr95, 3, "");
            fputs("</tr>\n", f);
        }
    fputs("</tbody></table></div>\n", f);
    const int rc = put_figure(p, FIG_DENSITY, err);
    return rc ? rc : put_figure(p, FIG_ROC, err);
}

static void put_curve(FILE *f, const AttackCurve *c) {
    const int linf = !strcmp(c->norm, "linf");
    fputs("<div class=wide><table><caption>", f);
    html_text(f, c->attack);
    fputs(", ", f);
    html_text(f, c->norm);
    fputs(", loss ", f);
    html_text(f, c->loss);
    if (isfinite(c->targets)) fprintf(f, " (%.0f targets)", c->targets);
    if (isfinite(c->steps)) fprintf(f, ", %.0f steps", c->steps);
    if (isfinite(c->step)) fprintf(f, " of %.4g", c->step);
    else if (c->step_rule[0]) fputs(" of ", f), html_text(f, c->step_rule);
    if (isfinite(c->restarts)) fprintf(f, ", restarts %.0f", c->restarts);
    if (c->refine > 0)
        fprintf(f, ", refined by %.0f steps, gradient over %.0f draws (straight-through)",
                c->refine, c->draws);
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
    if (isfinite(e->attack.n)) fprintf(p->out, "%.0f images. ", e->attack.n);
    if (isfinite(e->attack.clean)) fprintf(p->out, "Clean accuracy: %.2f %%.", e->attack.clean);
    fputs("</p>\n", p->out);
    if (put_figure(p, FIG_ATTACK, err)) return -1;
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
        if ((of_class(p, e->samples.file[i]) != NULL) != of_classes) continue;
        if (!n++ && of_classes) fputs("<details><summary>By class</summary>\n", p->out);
        if (n == 1) fputs("<div class=grids>\n", p->out);
        put_grid(p, e->samples.file[i]);
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
    n += put_folder(p);
    if (!n) fputs("<p class=soft>None were found.</p>\n", p->out);
    put_table(p, TASK_SAMPLES, "Settings of the chains");
}

// Samples above the training images that are nearest to them.
static void put_nearest(Page *p, const FidImages *of) {
    if (of->there && of->nearest[0]) put_grid(p, of->nearest);
}

static void put_fid_classes(Page *p, const FidImages *of, const char *what) {
    const EvalResults *e = &p->r.eval;
    if (!of->there || !of->per_class) return;
    fprintf(p->out, "<p class=soft>FID by predicted class, %s:</p>\n<div class=options>\n", what);
    for (int i = 0; i < e->n_class; i++) {
        fputs("<div>", p->out);
        html_text(p->out, e->class_name[i]);
        if (isfinite(of->per_class[i])) fprintf(p->out, " <b>%.1f</b>", of->per_class[i]);
        fputs("</div>\n", p->out);
    }
    fputs("</div>\n", p->out);
}

static void put_fid(Page *p) {
    const FidResult *r = &p->r.eval.fid;
    FILE *f = p->out;
    Metric m[MAX_METRICS];
    const int n = results_metrics(&p->r.eval, TASK_FID, m);
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
    fputs(".</p>\n<div class=wide><table><thead><tr><th>measure</th><th class=n>this run</th>", f);
    if (p->beside) fprintf(f, "<th class=n>paper: %s</th>", paper_label(p->system));
    fputs("</tr></thead><tbody>\n", f);
    for (int i = 0; i < n; i++)
        put_measure(p, m[i].label, m[i].value, m[i].digits, m[i].unit, m[i].measure);
    fputs("</tbody></table></div>\n", f);
    put_fid_classes(p, &r->buffer, "replay buffer");
    put_fid_classes(p, &r->fresh, "fresh chains");
    fputs("<div class=grids>\n", f);
    put_nearest(p, &r->buffer);
    put_nearest(p, &r->fresh);
    fputs("</div>\n", f);
}

static void put_missing(Page *p) {
    char word[SHELL_WORD];
    int n = 0;
    if (!p->r.eval.there && !p->has_model) {
        fprintf(p->out,
                "<h2>Not evaluated yet</h2>\n<p>The run has no model yet: %s is written after its "
                "first validation.</p>\n",
                run_file(RUN_BEST));
        return;
    }
    for (TaskId id = 0; id < N_TASK; id++) {
        if (results_task(&p->r.eval, id)->there) continue;
        if (!n++) fputs("<h2>Not evaluated yet</h2>\n<ul>\n", p->out);
        fprintf(p->out, "<li>%s: <code>jempp eval ", task_title(id));
        html_text(p->out, shell_word(word, sizeof word, p->dir));
        fprintf(p->out, " --tasks %s</code></li>\n", task_name(id));
    }
    if (n) fputs("</ul>\n", p->out);
}

static void put_settings(Page *p) {
    const EvalResults *e = &p->r.eval;
    FILE *f = p->out;
    fputs("<h2>Settings</h2>\n<div class=wide><table>\n", f);
    for (const Json *m = json_first(p->r.run); m; m = json_next(m)) {
        char value[40];
        double v;
        if (!strcmp(json_key(m), "kernels")) continue; // for the program: long, and not a setting
        if (json_string(m)) html_row(f, json_key(m), json_string(m));
        if (json_double(m, &v)) continue;
        snprintf(value, sizeof value, "%.10g", v);
        html_row(f, json_key(m), value);
    }
    if (e->there) {
        html_row(f, "evaluated with version", e->version);
        html_row(f, "evaluated on device", e->device);
        html_row(f, "evaluated in precision", e->precision);
    }
    fputs("</table></div>\n", f);
    const Json *options = json_get(p->r.run, "options");
    if (json_kind(options) != JSON_OBJECT) return;
    fputs("<p class=soft>Training options; those that differ from the defaults are in bold."
          "</p>\n<div class=options>\n",
          f);
    for (const Json *m = json_first(options); m; m = json_next(m)) {
        const char *value = json_string(m);
        const OptRow *row = config_row(json_key(m));
        if (!value) continue;
        const int as_default = row && !strcmp(row->value, value);
        fprintf(f, as_default ? "<div class=as>" : "<div><b>");
        html_text(f, json_key(m));
        fputs(" = ", f);
        html_text(f, value);
        fputs(as_default ? "</div>\n" : "</b></div>\n", f);
    }
    fputs("</div>\n", f);
}

// ---- the page -----------------------------------------------------------------------------

static void title_of(const char *dir, char title[256]) {
    char full[PATH_MAX];
    const char *path = realpath(dir, full) ? full : dir, *slash = strrchr(path, '/');
    snprintf(title, 256, "%.250s", slash && slash[1] ? slash + 1 : path);
}

static int put_page(Page *p, Err *err) {
    char title[256];
    FILE *f = p->out;
    title_of(p->dir, title);
    fputs("<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport "
          "content=\"width=device-width,initial-scale=1\">\n<title>jempp: ",
          f);
    html_text(f, title);
    fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", html_style);
    html_text(f, title);
    fputs("</h1>\n<p class=soft>", f);
    html_text(f, net_of(p));
    if (data_of(p)[0]) fputs(" on ", f);
    html_text(f, data_of(p));
    fputs("</p>\n", f);
    put_glance(p);
    if (put_training(p, err) || put_accuracy(p, err) || put_calibration(p, err) ||
        put_ood(p, err) || put_attack(p, err))
        return -1;
    put_samples(p);
    put_fid(p);
    if (p->r.eval.speed.run.there) {
        fputs("<h2>Speed</h2>\n", f);
        put_table(p, TASK_SPEED, p->r.eval.speed.run.device);
    }
    put_missing(p);
    put_settings(p);
    fputs("</body>\n</html>\n", f);
    return 0;
}

// Whether figures can be drawn on this machine; the page is written in either case.
static void try_plot(Page *p) {
    char *data = NULL;
    size_t n;
    const double zero[2] = { 0 };
    const Panel panel = { .series = { { PLOT_LINE, INK_BLUE, NULL, 2, zero, zero } }, .n = 1 };
    plot_draw(&(Figure){ 16, 16, 1, 1, &panel }, PLOT_SVG, &data, &n, &p->no_plot);
    free(data);
}

static int write_page(const char *path, const char *text, size_t n, Err *err) {
    Writer w = writer_open(path);
    write_bytes(&w, text, n);
    return writer_close(&w, err);
}

static char *what_was_done(const Page *p, const char *path, Err *err) {
    char *text = NULL, word[SHELL_WORD];
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        fprintf(f, "%s: written, with %d picture%s\n", path, p->pictures,
                p->pictures == 1 ? "" : "s");
        if (p->no_plot.kind) fprintf(f, "plots are left out: %s\n", p->no_plot.msg);
        else if (p->left_out)
            fprintf(f, "%d sample grids are left out: a page holds %d MB of them\n", p->left_out,
                    EMBED_MOST >> 20);
        if (!p->r.eval.there && p->has_model)
            fprintf(f, "not evaluated yet: run jempp eval %s\n",
                    shell_word(word, sizeof word, p->dir));
        else if (!p->r.eval.there) fprintf(f, "not evaluated yet: the run has no model yet\n");
        if (!fclose(f)) return text;
    }
    free(text);
    err_set(err, ERR_MEM, "out of memory for a text");
    return NULL;
}

char *report_write(const char *dir, const char *out, Err *err) {
    Page p = { .dir = dir };
    char path[RUN_PATH], best[RUN_PATH], *text = NULL, *said = NULL;
    size_t n;
    if (out[0] ? snprintf(path, sizeof path, "%s", out) >= (int)sizeof path &&
                     err_set(err, ERR_ARG, "%.80s...: name too long", out)
               : run_path(path, dir, RUN_REPORT, err))
        return NULL;
    if (record_read(&p.r, dir, err)) return NULL;
    p.system = paper_system(record_option(&p.r, "preset"), record_option(&p.r, "px"),
                            atoi(record_option(&p.r, "steps")));
    p.beside = isfinite(paper(&p, "acc.top1"));
    p.has_model = !run_path(best, dir, RUN_BEST, NULL) && file_exists(best);
    try_plot(&p);
    p.out = open_memstream(&text, &n);
    int rc = p.out ? put_page(&p, err) : -1;
    if (!p.out || fclose(p.out)) rc = err_set(err, ERR_MEM, "out of memory for the report");
    if (!rc && (rc = write_page(path, text, n, err)) && !out[0])
        err_append(err, " (--out FILE.html writes elsewhere)");
    if (!rc && !out[0] && !p.no_plot.kind) rc = report_pictures(dir, err);
    if (!rc) said = what_was_done(&p, path, err);
    free(text);
    record_free(&p.r);
    return said;
}
