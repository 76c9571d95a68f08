// eval_sheets.c - the task samples: sheets of samples, uncurated, by class, and ranked by p(x) and
// p(y|x); and how many samples that were drawn as a class are recognised as it.
#include "base/file.h"
#include "base/image.h"
#include "eval/task.h"
#include "jem/metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACROSS = 10, FRESH = 20 };     // images per row; chains per class where there is no buffer

typedef struct {
    double px, pyx;
    int at, cls;
} Scored;

typedef struct {
    Evaluation   *e;
    SamplesResult result;
    size_t  dim;
    int     classes, n;
    float  *pool;                             // [n][dim]: the samples that are ranked
    Scored *by_class;                         // [n], class by class
    int    *first;                            // [classes + 1]: where each begins
    float  *page;                             // one sheet
} Sheets;

// n images from `from`; by_class: image i is to be one of class i % classes.
static int draw(Sheets *s, const char *from, int by_class, int n, float *x, Err *err) {
    Config u = *s->e->use;
    if (config_set(&u, "from", from, "from", err) ||
        (by_class && config_set(&u, "class", "all", "class", err)))
        return -1;
    return model_sample(s->e->m, &u, s->e->ev, n, x, NULL, err);
}

static int write_page(Sheets *s, const char *name, int n, int columns, Err *err) {
    char path[RUN_PATH], file[96];
    Image im = { 0 };
    snprintf(file, sizeof file, "%s/%s", run_file(RUN_SHEETS), name);
    int rc = path_join(path, sizeof path, s->e->dir, file, err);
    if (!rc) rc = image_grid(&im, model_images(s->e->m, s->page, n), (Grid){ columns, 2, 2 }, err);
    if (!rc) rc = image_write_png(&im, path, err);
    image_free(&im);
    if (rc) return rc;
    s->result.file[s->result.n_file++] = arena_strdup(&s->e->results.arena, file);
    return arena_ok(&s->e->results.arena, "results", err);
}

static void put(Sheets *s, int to, const float *x) {
    float *at = s->page + (size_t)to * s->dim;
    if (x) memcpy(at, x, s->dim * sizeof *at);
    else
        for (size_t i = 0; i < s->dim; i++) at[i] = -1;      // black: there is none
}

// A sheet of the first of n class-conditional samples, one row per class. Returns all of them,
// [n][dim], malloc'd; NULL and err.
static float *class_rows(Sheets *s, const char *name, const char *from, int n, Err *err) {
    const int shown = ACROSS * s->classes;
    float *x = malloc((size_t)n * s->dim * sizeof *x);
    int rc = x ? draw(s, from, 1, n, x, err) : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < shown; i++)
        put(s, i % s->classes * ACROSS + i / s->classes, x + (size_t)i * s->dim);
    if (!rc) rc = write_page(s, name, shown, ACROSS, err);
    if (!rc) return x;
    free(x);
    return NULL;
}

// The percentage of class-conditional samples whose class the classifier m predicts.
static int agreement(const Sheets *s, Model *m, const float *x, int n, double *percent, Err *err) {
    const int C = s->classes;
    float *z = malloc((size_t)n * (size_t)C * sizeof *z);
    const int rc =
        z ? model_logits(m, x, n, z, err) : err_set(err, ERR_MEM, "out of memory for samples");
    int agreeing = 0;
    for (int i = 0; !rc && i < n; i++) agreeing += argmax(z + (size_t)i * (size_t)C, C) == i % C;
    if (!rc) *percent = 100. * agreeing / n;
    free(z);
    return rc;
}

// Fresh chains by class: more than are shown where a classifier is to recognise them.
static int class_samples(Sheets *s, Err *err) {
    enum { MEASURED = 1000 };
    Evaluation *e = s->e;
    const int asked = e->use->classifier[0] != 0, limit = e->use->limit,
              most = !asked                      ? 0
                     : limit && limit < MEASURED ? limit
                                                 : MEASURED,
              each = most / s->classes, n = s->classes * (each > ACROSS ? each : ACROSS);
    SamplesResult *r = &s->result;
    float *x = class_rows(s, "classes.png", "fresh", n, err);
    if (!x) return -1;
    r->by_class = n;
    r->fresh_steps = model_chains(e->m).steps;
    r->classifier = e->use->classifier;
    int rc = agreement(s, e->m, x, n, &r->agreement, err);
    if (!rc && asked) rc = agreement(s, &e->classifier, x, n, &r->classifier_agreement, err);
    free(x);
    return rc;
}

static int class_starts(Sheets *s, Err *err) {
    float *x = class_rows(s, "starts.png", "starts", ACROSS * s->classes, err);
    const int rc = x ? 0 : -1;
    free(x);
    return rc;
}

static int centres(Sheets *s, Err *err) {
    const int n = s->e->m->starts.n_group;
    if (!s->e->m->starts.mean) return 0;
    const int rc = draw(s, "centres", 0, n, s->page, err);
    return rc ? rc : write_page(s, "centres.png", n, n < ACROSS ? n : ACROSS, err);
}

// ---- ranking ------------------------------------------------------------------------------

static int by_px(const void *a, const void *b) {
    const double x = ((const Scored *)a)->px, y = ((const Scored *)b)->px;
    return (x < y) - (x > y);
}

static int by_pyx(const void *a, const void *b) {
    const double x = ((const Scored *)a)->pyx, y = ((const Scored *)b)->pyx;
    return (x < y) - (x > y);
}

static int by_cls(const void *a, const void *b) {
    return ((const Scored *)a)->cls - ((const Scored *)b)->cls;
}

// A sample's class is the predicted one: chains of p(x) have no other.
static int score_samples(Sheets *s, Err *err) {
    const int C = s->classes;
    float *z = malloc((size_t)s->n * (size_t)C * sizeof *z);
    const int rc = z ? model_logits(s->e->m, s->pool, s->n, z, err)
                     : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < s->n; i++) {
        const float *row = z + (size_t)i * (size_t)C;
        const double lse = logsumexp(row, C);
        const int c = argmax(row, C);
        s->by_class[i] = (Scored){ lse, (double)row[c] - lse, i, c };
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

// For one order: one sheet per class, and one with the first samples of every class.
static int ranking(Sheets *s, int pyx, int worst, Err *err) {
    char name[64], what[24];
    snprintf(what, sizeof what, "%s-%s", worst ? "worst" : "best", pyx ? "pyx" : "px");
    int rc = 0;
    for (int c = 0; !rc && c < s->classes; c++) {
        const int there = s->first[c + 1] - s->first[c],
                  n = there < s->e->use->page ? there : s->e->use->page;
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

// ---- all of it ---------------------------------------------------------------------------------

static int write_sheets(Sheets *s, const char *from, Err *err) {
    const int some = s->n < ACROSS * ACROSS ? s->n : ACROSS * ACROSS;
    int rc = draw(s, from, 0, s->n, s->pool, err);
    if (!rc) rc = score_samples(s, err);
    for (int i = 0; !rc && i < some; i++) put(s, i, s->pool + (size_t)i * s->dim);
    if (!rc) rc = write_page(s, "samples.png", some, ACROSS, err);
    if (!rc) rc = class_samples(s, err);
    if (!rc) rc = class_starts(s, err);
    if (!rc) rc = centres(s, err);
    for (int k = 0; !rc && k < 4; k++) rc = ranking(s, k / 2, k % 2, err);
    return rc;
}

static void put_settings(Sheets *s, const char *from) {
    const Config *run = &s->e->m->cfg;
    SamplesResult *r = &s->result;
    r->from = from;
    r->n = s->n;
    r->batch = run->batch;
    r->inner = run->inner;
    r->step_size = run->step_size;
    r->clip = run->clip;
    r->noise = run->noise;
    r->page = s->e->use->page;
    for (int c = 0; c < s->classes; c++) r->per_class[c] = s->first[c + 1] - s->first[c];
}

static int alloc_sheets(Sheets *s, Arena *a, Err *err) {
    const int C = s->classes, page = s->e->use->page > ACROSS * C ? s->e->use->page : ACROSS * C,
              room = page > ACROSS * ACROSS ? page : ACROSS * ACROSS;
    s->pool = arena_alloc(a, (size_t)s->n * s->dim, sizeof *s->pool);
    s->page = arena_alloc(a, (size_t)room * s->dim, sizeof *s->page);
    s->by_class = arena_alloc(a, (size_t)s->n, sizeof *s->by_class);
    s->first = arena_alloc(a, (size_t)C + 1, sizeof *s->first);
    s->result.file = eval_alloc(s->e, 4 + 4 * ((size_t)C + 1), sizeof *s->result.file, err);
    s->result.per_class = eval_alloc(s->e, (size_t)C, sizeof *s->result.per_class, err);
    if (!s->result.file || !s->result.per_class) return -1;
    return arena_ok(a, "samples", err);
}

// The classifier takes the model's images, and has its classes.
int check_samples(Evaluation *e, Err *err) {
    Model *c = &e->classifier;
    const NetSpec *a = &e->m->net.spec, *b = &c->net.spec;
    if (!e->use->classifier[0]) return 0;
    if (model_open(c, e->use, e->use->classifier, err)) return err_prefix(err, "--classifier");
    if (b->channels != a->channels || b->side != a->side || b->classes != a->classes)
        return err_set(
            err, ERR_DATA,
            "--classifier %s: %d classes, images of %dx%dx%d; expected %d and %dx%dx%d as "
            "in %s",
            c->path, b->classes, b->channels, b->side, b->side, a->classes, a->channels, a->side,
            a->side, e->m->path);
    const Set names = { .classes = b->classes, .class_name = c->class_name };
    model_compare_names(e->m, &names, c->path, "other classes",
                        "samples are compared by the classes' numbers", e->ev);
    return 0;
}

int task_samples(Evaluation *e, Err *err) {
    const int buffer = model_has_buffer(e->m), C = eval_classes(e);
    Sheets s = { .e = e, .dim = tensor_len(&e->m->net.act[0]), .classes = C };
    s.result.classifier_agreement = NAN;
    const char *from = buffer ? "buffer" : "fresh";
    char path[RUN_PATH];
    Arena a = { 0 };
    s.n = buffer ? e->m->cfg.buffer : FRESH * C;
    if (e->use->limit && e->use->limit < s.n) s.n = e->use->limit;
    int rc = alloc_sheets(&s, &a, err);
    if (!rc) rc = run_path(path, e->dir, RUN_SHEETS, err);
    if (!rc) rc = dir_make_inside(path, err);
    if (!rc) rc = write_sheets(&s, from, err);
    if (!rc) put_settings(&s, from);
    arena_free(&a);
    if (!rc) e->results.samples = s.result;
    return rc;
}
