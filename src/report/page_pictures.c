// page_pictures.c - figures and sample grids, embedded in the report's page.
#include "base/file.h"
#include "base/image.h"
#include "report/html.h"
#include "report/page.h"
#include "run/folder.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

// A vector picture as an image of its own: glyphs of several have the same names.
int page_figure(Page *p, FigureId id, Err *err) {
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
const char *page_class(const Page *p, const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    int c = -1;
    if (sscanf(base, "class-%4d", &c) != 1 || c < 0 || c >= p->r.eval.n_class) return NULL;
    return p->r.eval.class_name[c];
}

// What a grid shows, where its name is a known one, and the name.
static void put_caption(const Page *p, const char *name) {
    static const char *const KNOWN[][2] = {
        { "best-px.png", "highest p(x)" },
        { "worst-px.png", "lowest p(x)" },
        { "best-pyx.png", "highest p(y|x)" },
        { "worst-pyx.png", "lowest p(y|x)" },
        { "samples.png", "uncurated samples" },
        { "classes.png", "class-conditional samples, one row per class" },
        { "starts.png", "chain starts" },
        { "centres.png", "class means" },
        { "nearest-buffer.png", "samples of the replay buffer, above the three training images "
                                "nearest to each (pixels)" },
        { "nearest-fresh.png",
          "samples of fresh chains, above the three training images nearest to each (pixels)" },
    };
    const size_t n = strlen(name);
    if (page_class(p, name)) html_text(p->out, page_class(p, name)), fputs(": ", p->out);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const size_t k = strlen(KNOWN[i][0]);
        if (n >= k && !strcmp(name + n - k, KNOWN[i][0])) fprintf(p->out, "%s: ", KNOWN[i][1]);
    }
    if (strstr(name, "/step-")) fputs("the replay buffer in training: ", p->out);
    html_text(p->out, name);
}

// A PNG of the run folder, as it is. One that is missing or no picture is said to be.
void page_grid(Page *p, const char *name) {
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
int page_folder(Page *p) {
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
        if (!later) page_grid(p, name);
    }
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    if (n) fputs("</div>\n", p->out);
    return n;
}
