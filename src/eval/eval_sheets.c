// eval_sheets.c - the samples task of eval.h: pages of what a model draws, sorted by what it thinks
// of them.
#include "base/file.h"
#include "base/image.h"
#include "eval/eval.h"
#include "jem/metrics.h"
#include "run/folder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACROSS = 10, FRESH = 20 };     // pictures in a row; chains a class where there is no buffer

typedef struct {
    double px, pyx;
    int at, cls;
} Judged;

typedef struct {
    Model *m;
    const Config *use;
    const Events *ev;
    const char *dir;
    JsonOut *j;
    size_t  dim;
    int     classes, n;
    float  *pool;                             // [n][dim]: what is sorted
    Judged *by_class;                         // [n], class by class
    int    *first;                            // [classes + 1]: where each begins
    float  *page;                             // room for one
} Sheets;

// n images from `from`; conditional: chains climb the logit of class i % classes.
static int draw(Sheets *s, const char *from, int conditional, int n, float *x, Err *err) {
    Config u = *s->use;
    if (config_set(&u, "from", from, "from", err) ||
        (conditional && config_set(&u, "conditional", "on", "conditional", err)))
        return -1;
    return model_sample(s->m, &u, s->ev, n, x, NULL, err);
}

static int write_page(Sheets *s, const char *name, int n, int columns, Err *err) {
    const NetSpec *spec = &s->m->net.spec;
    char path[RUN_PATH], file[96];
    Image im = { 0 };
    snprintf(file, sizeof file, "%s/%s", run_file(RUN_SHEETS), name);
    int rc = path_join(path, sizeof path, s->dir, file, err);
    if (!rc) rc = image_grid(&im, s->page, n, spec->channels, spec->side, columns, 2, 2, err);
    if (!rc) rc = image_write_png(&im, path, err);
    image_free(&im);
    if (!rc) json_put_string(s->j, NULL, file);
    return rc;
}

static void put(Sheets *s, int to, const float *x) {
    float *at = s->page + (size_t)to * s->dim;
    if (x) memcpy(at, x, s->dim * sizeof *at);
    else
        for (size_t i = 0; i < s->dim; i++) at[i] = -1;      // black: there is none
}

// A row a class of what is drawn class by class.
static int class_rows(Sheets *s, const char *name, const char *from, Err *err) {
    const int n = ACROSS * s->classes;
    float *x = malloc((size_t)n * s->dim * sizeof *x);
    int rc = x ? draw(s, from, 1, n, x, err) : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < n; i++)
        put(s, i % s->classes * ACROSS + i / s->classes, x + (size_t)i * s->dim);
    free(x);
    return rc ? rc : write_page(s, name, n, ACROSS, err);
}

static int centres(Sheets *s, Err *err) {
    const int n = s->m->n_group;
    if (!s->m->mean) return 0;
    return draw(s, "centres", 0, n, s->page, err) ||
                   write_page(s, "centres.png", n, n < ACROSS ? n : ACROSS, err)
               ? -1
               : 0;
}

// ---- what is sorted ------------------------------------------------------------------------------

static int by_px(const void *a, const void *b) {
    const double x = ((const Judged *)a)->px, y = ((const Judged *)b)->px;
    return (x < y) - (x > y);
}

static int by_pyx(const void *a, const void *b) {
    const double x = ((const Judged *)a)->pyx, y = ((const Judged *)b)->pyx;
    return (x < y) - (x > y);
}

static int by_cls(const void *a, const void *b) {
    return ((const Judged *)a)->cls - ((const Judged *)b)->cls;
}

// A sample's class is the one it is read as: chains of p(x) have no other.
static int judge(Sheets *s, Err *err) {
    const int C = s->classes;
    float *z = malloc((size_t)s->n * (size_t)C * sizeof *z);
    const int rc = z ? model_logits(s->m, s->pool, s->n, z, err)
                     : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < s->n; i++) {
        const float *row = z + (size_t)i * (size_t)C;
        const double lse = logsumexp(row, C);
        const int c = argmax(row, C);
        s->by_class[i] = (Judged){ lse, (double)row[c] - lse, i, c };
        s->first[c + 1]++;
    }
    free(z);
    if (rc) return rc;
    for (int c = 0; c < C; c++) s->first[c + 1] += s->first[c];
    qsort(s->by_class, (size_t)s->n, sizeof *s->by_class, by_cls);
    return 0;
}

static const float *ranked(const Sheets *s, int c, int i, int worst) {
    const int n = s->first[c + 1] - s->first[c], k = worst ? n - 1 - i : i;
    return i < n ? s->pool + (size_t)s->by_class[s->first[c] + k].at * s->dim : NULL;
}

// A page a class, and one with the first ones of every class, for one order.
static int ranking(Sheets *s, int pyx, int worst, Err *err) {
    char name[64], what[24];
    snprintf(what, sizeof what, "%s-%s", worst ? "worst" : "best", pyx ? "pyx" : "px");
    int rc = 0;
    for (int c = 0; !rc && c < s->classes; c++) {
        const int there = s->first[c + 1] - s->first[c],
                  n = there < s->use->page ? there : s->use->page;
        qsort(s->by_class + s->first[c], (size_t)there, sizeof *s->by_class, pyx ? by_pyx : by_px);
        for (int i = 0; i < n; i++) put(s, i, ranked(s, c, i, worst));
        snprintf(name, sizeof name, "class-%03d-%s.png", c, what);
        if (n) rc = write_page(s, name, n, ACROSS, err);
    }
    for (int i = 0; !rc && i < s->classes * ACROSS; i++)
        put(s, i, ranked(s, i / ACROSS, i % ACROSS, worst));
    snprintf(name, sizeof name, "%s.png", what);
    return rc ? rc : write_page(s, name, s->classes * ACROSS, ACROSS, err);
}

// ---- all of it -----------------------------------------------------------------------------------

static int has_buffer(const Model *m) {
    char path[RUN_PATH];
    return m->run[0] && m->cfg.px != PX_NONE && !run_path(path, m->run, RUN_LAST, NULL) &&
           file_exists(path);
}

static int write_sheets(Sheets *s, const char *from, Err *err) {
    const int some = s->n < ACROSS * ACROSS ? s->n : ACROSS * ACROSS;
    json_open_array(s->j, "files");
    int rc = draw(s, from, 0, s->n, s->pool, err) || judge(s, err) ? -1 : 0;
    for (int i = 0; !rc && i < some; i++) put(s, i, s->pool + (size_t)i * s->dim);
    if (!rc) rc = write_page(s, "samples.png", some, ACROSS, err);
    if (!rc) rc = class_rows(s, "classes.png", "fresh", err);
    if (!rc) rc = class_rows(s, "starts.png", "starts", err);
    if (!rc) rc = centres(s, err);
    for (int k = 0; !rc && k < 4; k++) rc = ranking(s, k / 2, k % 2, err);
    json_close(s->j);
    return rc;
}

static void put_settings(const Sheets *s, int buffer) {
    const Config *run = &s->m->cfg;
    json_put_string(s->j, "from", buffer ? "buffer" : "fresh");
    json_put_int(s->j, "n", s->n);
    json_put_int(s->j, "fresh_steps", FRESH_STEPS);
    json_put_int(s->j, "batch", run->batch);
    json_put_int(s->j, "inner", run->inner);
    json_put_double(s->j, "step_size", run->step_size);
    json_put_double(s->j, "clip", run->clip);
    json_put_double(s->j, "noise", run->noise);
    json_put_int(s->j, "page", s->use->page);
    json_open_array(s->j, "per_class");
    for (int c = 0; c < s->classes; c++) json_put_int(s->j, NULL, s->first[c + 1] - s->first[c]);
    json_close(s->j);
}

int eval_samples(Model *m, const Config *use, const Events *ev, const char *dir, JsonOut *j,
                 Err *err) {
    const int C = m->net.spec.classes, buffer = has_buffer(m);
    Sheets s = { m, use, ev, dir, j, .dim = tensor_len(&m->net.act[0]), .classes = C };
    char path[RUN_PATH];
    Arena a = { 0 };
    s.n = buffer ? m->cfg.buffer : FRESH * C;
    if (use->limit && use->limit < s.n) s.n = use->limit;
    const int page = use->page > ACROSS * C ? use->page : ACROSS * C,
              room = page > ACROSS * ACROSS ? page : ACROSS * ACROSS;
    s.pool = arena_alloc(&a, (size_t)s.n * s.dim, sizeof *s.pool);
    s.page = arena_alloc(&a, (size_t)room * s.dim, sizeof *s.page);
    s.by_class = arena_alloc(&a, (size_t)s.n, sizeof *s.by_class);
    s.first = arena_alloc(&a, (size_t)C + 1, sizeof *s.first);
    int rc = arena_ok(&a, "samples", err);
    if (!rc) rc = run_path(path, dir, RUN_SHEETS, err) || dir_make(path, err);
    if (!rc) rc = write_sheets(&s, buffer ? "buffer" : "fresh", err);
    if (!rc) put_settings(&s, buffer);
    arena_free(&a);
    return rc;
}
