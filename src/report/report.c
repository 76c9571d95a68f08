// report.c - see report.h.
#include "report/report.h"
#include "base/file.h"
#include "base/text.h"
#include "base/text_out.h"
#include "conf/config.h"
#include "report/html.h"
#include "report/page.h"
#include "report/paper.h"
#include "run/folder.h"
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

enum { SHELL_WORD = 4 * RUN_PATH };  // bytes of the folder's name in a command

static void put_missing(Page *p) {
    char word[SHELL_WORD];
    int n = 0;
    if (!p->r.eval.there && !p->has_model) {
        fprintf(p->out,
                "<h2>Not evaluated yet</h2>\n<p>The run has no model yet: %s is written after its "
                "first validation (with --px-from: some time after p(x) began).</p>\n",
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
    html_text(f, page_net(p));
    if (page_data(p)[0]) fputs(" on ", f);
    html_text(f, page_data(p));
    fputs("</p>\n", f);
    if (page_results(p, err)) return -1;
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
    char word[SHELL_WORD];
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    FILE *f = out.f;
    fprintf(f, "%s: written, with %d picture%s\n", path, p->pictures, plural(p->pictures));
    if (p->no_plot.kind) fprintf(f, "plots are left out: %s\n", p->no_plot.msg);
    else if (p->left_out)
        fprintf(f, "%d sample grid%s left out: a page holds %d MB of them\n", p->left_out,
                p->left_out == 1 ? " is" : "s are", EMBED_MOST >> 20);
    if (!p->r.eval.there && p->has_model)
        fprintf(f, "not evaluated yet: run jempp eval %s\n", shell_word(word, sizeof word, p->dir));
    else if (!p->r.eval.there) fprintf(f, "not evaluated yet: the run has no model yet\n");
    return text_close(&out, err);
}

char *report_write(const char *dir, const char *out, Err *err) {
    Page p = { .dir = dir };
    char path[RUN_PATH], best[RUN_PATH], *text = NULL, *said = NULL;
    TextOut page;
    if (out[0] ? snprintf(path, sizeof path, "%s", out) >= (int)sizeof path &&
                     err_set(err, ERR_ARG, "%.80s...: name too long", out)
               : run_path(path, dir, RUN_REPORT, err))
        return NULL;
    if (record_read(&p.r, dir, err)) return NULL;
    p.system = paper_system(record_option(&p.r, "preset"), record_option(&p.r, "px"),
                            atoi(record_option(&p.r, "steps")));
    p.beside = isfinite(page_paper(&p, "acc.top1"));
    p.has_model = !run_path(best, dir, RUN_BEST, NULL) && file_exists(best);
    try_plot(&p);
    int rc = text_open(&page, "the report", err);
    if (!rc) {
        p.out = page.f;
        rc = put_page(&p, err);
        text = text_close(&page, err);
        if (!text) rc = -1;
    }
    if (!rc && (rc = write_page(path, text, page.n, err)) && !out[0])
        err_append(err, " (--out FILE.html writes elsewhere)");
    if (!rc && !out[0] && !p.no_plot.kind) rc = report_pictures(dir, err);
    if (!rc) said = what_was_done(&p, path, err);
    free(text);
    record_free(&p.r);
    return said;
}
