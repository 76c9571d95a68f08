// eval_fid.c - the task fid: how near samples are to real images, by features of the Inception
// network. See task.h.
#include "base/file.h"
#include "base/image.h"
#include "base/text.h"
#include "eval/task.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the reference ------------------------------------------------------------------------------

// "cifar10", "cifar10:test", a folder or a file.
static void reference_name(const Evaluation *e, char dst[600]) {
    const char *what = e->use->reference, *data = e->use->data[0] ? e->use->data : e->m->cfg.data;
    if (!strcmp(what, "train") || !strcmp(what, "test"))
        snprintf(dst, 600, "%.300s%s", data, strcmp(what, "test") ? "" : ":test");
    else snprintf(dst, 600, "%.590s", what);
}

// Which images are compared: with --from those alone, else all that there are.
static int takes_buffer(const Evaluation *e) {
    return config_given(e->use, "from") ? e->use->from == FROM_BUFFER : model_has_buffer(e->m);
}

static int takes_fresh(const Evaluation *e) {
    return !config_given(e->use, "from") || e->use->from == FROM_FRESH;
}

// The other tasks go on.
static void leave_out(Evaluation *e, const Err *why) {
    char line[sizeof why->msg + 32];
    e->wanted &= ~(1u << TASK_FID);
    snprintf(line, sizeof line, "task fid left out: %s", why->msg);
    tell_line(e->ev, line);
}

int check_fid(Evaluation *e, Err *err) {
    const int buffer = takes_buffer(e), fresh = takes_fresh(e);
    char weights[FEATURES_PATH];
    Err why = { 0 };
    if (!buffer && !fresh)
        return err_set(err, ERR_ARG, "--from: the task fid takes buffer or fresh");
    if (features_find(weights, e->use, &why)) {
        if (e->wanted == 1u << TASK_FID) return err_set(err, why.kind, "%s", why.msg);
        leave_out(e, &why);
        return 0;
    }
    const char *one = buffer && e->use->limit == 1  ? "--limit"
                      : fresh && e->use->count == 1 ? "--count"
                                                    : NULL;
    return one ? err_set(err, ERR_ARG, "%s 1: the task fid needs 2 images or more", one) : 0;
}

int prepare_fid(Evaluation *e, Err *err) {
    char name[600];
    reference_name(e, name);
    if (feature_is_statistics(name)) {
        if (!e->use->per_class) return feature_statistics(&e->fid_reference, name, e->ev, err);
        return err_set(err, ERR_ARG, "--per-class: %s has statistics alone, no labels", name);
    }
    const DataOpts o = eval_data_opts(e);
    if (source_open(&e->fid_images, name, &o, err)) return err_prefix(err, "--reference");
    source_warn_of_size(&e->fid_images, e->m->net.spec.side, e->m->net.spec.side, e->ev);
    if (!e->use->per_class || (e->fid_images.y && e->fid_images.classes == eval_classes(e)))
        return 0;
    return err_set(err, ERR_ARG, "--per-class: %s has no labels of the model's %d classes", name,
                   eval_classes(e));
}

static int open_reference(Evaluation *e, FeatureNet *net, Err *err) {
    if (e->fid_reference.moments.dim) return 0;
    return e->use->per_class
               ? feature_set(&e->fid_reference, net, &e->fid_images, 0, e->ev, err)
               : feature_reference(&e->fid_reference, net, &e->fid_images, e->ev, err);
}

// ---- samples ------------------------------------------------------------------------------------

typedef struct {
    Evaluation *e;
    FeatureNet *net;
    const char *from;                 // "buffer", "fresh"
    size_t      dim;
    int         n;
    float      *x;                    // [n][dim]
    int        *cls;                  // [n]: the class that the model predicts
    FidImages   result;
    Arena       arena;
} Samples;

typedef struct {
    double p;
    int at;
} Confidence;

static int most_confident_first(const void *a, const void *b) {
    const Confidence *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->at - y->at;
}

// Predicts each image's class; keeps the most confident share where one was asked for.
static int classify(Samples *s, Err *err) {
    const int C = eval_classes(s->e);
    float *z = arena_alloc(&s->arena, (size_t)s->n * (size_t)C, sizeof *z),
          *kept = arena_alloc(&s->arena, (size_t)s->n * s->dim, sizeof *kept);
    Confidence *order = arena_alloc(&s->arena, (size_t)s->n, sizeof *order);
    s->cls = arena_alloc(&s->arena, (size_t)s->n, sizeof *s->cls);
    if (arena_ok(&s->arena, "samples", err) || model_logits(s->e->m, s->x, s->n, z, err)) return -1;
    for (int i = 0; i < s->n; i++) {
        const float *row = z + (size_t)i * (size_t)C;
        order[i] = (Confidence){ (double)row[argmax(row, C)] - logsumexp(row, C), i };
    }
    const double share = s->e->use->confident;
    if (share < 1 && !strcmp(s->from, "buffer")) {
        qsort(order, (size_t)s->n, sizeof *order, most_confident_first);
        s->n = (int)fmin(s->n, fmax(2, floor(share * s->n + 1e-6)));
        s->result.confident = share;
    }
    for (int i = 0; i < s->n; i++) {
        const size_t at = (size_t)order[i].at;
        s->cls[i] = argmax(z + at * (size_t)C, C);
        memcpy(kept + (size_t)i * s->dim, s->x + at * s->dim, s->dim * sizeof *kept);
    }
    s->x = kept;
    return 0;
}

static int draw(Samples *s, Err *err) {
    Config u = *s->e->use;
    s->x = arena_alloc(&s->arena, (size_t)s->n * s->dim, sizeof *s->x);
    if (arena_ok(&s->arena, "samples", err) || config_set(&u, "from", s->from, "from", err) ||
        model_sample(s->e->m, &u, s->e->ev, s->n, s->x, NULL, err))
        return -1;
    return classify(s, err);
}

// ---- samples beside what they were learnt from --------------------------------------------------

enum { SHOWN = 12, NEAREST = 3 };

// The training images nearest to x in squared pixel distance, the nearest first.
static void nearest_images(const Set *set, const float *x, size_t dim, uint32_t at[NEAREST]) {
    double best[NEAREST];
    for (int k = 0; k < NEAREST; k++) best[k] = INFINITY, at[k] = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const uint8_t *p = set->x + i * dim;
        float d = 0;
        for (size_t j = 0; j < dim; j++) {
            const float v = x[j] - byte_to_pixel(p[j]);
            d += v * v;
        }
        int k = NEAREST;
        for (; k > 0 && (double)d < best[k - 1]; k--)
            if (k < NEAREST) best[k] = best[k - 1], at[k] = at[k - 1];
        if (k < NEAREST) best[k] = (double)d, at[k] = i;
    }
}

// SHOWN samples in a row, the images nearest to each below it.
static int nearest_page(const Samples *s, const Set *set, float *page) {
    const int shown = s->n < SHOWN ? s->n : SHOWN;
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < shown; i++) {
        const float *x = s->x + (size_t)((int64_t)i * s->n / shown) * s->dim;
        uint32_t at[NEAREST];
        nearest_images(set, x, s->dim, at);
        memcpy(page + (size_t)i * s->dim, x, s->dim * sizeof *x);
        for (int k = 0; k < NEAREST; k++)
            for (size_t j = 0; j < s->dim; j++)
                page[(size_t)((k + 1) * shown + i) * s->dim + j] =
                    byte_to_pixel(set->x[at[k] * s->dim + j]);
    }
    return shown;
}

static int write_nearest(Samples *s, Err *err) {
    const DataOpts o = eval_data_opts(s->e);
    char path[RUN_PATH], dir[RUN_PATH], file[96];
    Set set;
    Image im = { 0 };
    Err none = { 0 };
    float *page = arena_alloc(&s->arena, SHOWN * (NEAREST + 1) * s->dim, sizeof *page);
    if (arena_ok(&s->arena, "samples", err)) return -1;
    if (set_load(&set, s->e->m->cfg.data, HALF_TRAIN, &o, &none)) return 0; // it is not here
    const int fits = (size_t)set.c * (size_t)set.side * (size_t)set.side == s->dim && set.n,
              columns = fits ? nearest_page(s, &set, page) : 0;
    set_free(&set);
    if (!columns) return 0;
    snprintf(file, sizeof file, "%s/nearest-%s.png", run_file(RUN_SHEETS), s->from);
    int rc = run_path(dir, s->e->dir, RUN_SHEETS, err);
    if (!rc) rc = dir_make_inside(dir, err);
    if (!rc) rc = path_join(path, sizeof path, s->e->dir, file, err);
    if (!rc)
        rc = image_grid(&im, model_images(s->e->m, page, columns * (NEAREST + 1)),
                        (Grid){ columns, 2, 2 }, err);
    if (!rc) rc = image_write_png(&im, path, err);
    image_free(&im);
    if (rc) return rc;
    s->result.nearest = arena_strdup(&s->e->results.arena, file);
    return arena_ok(&s->e->results.arena, "results", err);
}

// ---- figures ------------------------------------------------------------------------------------

static int distances_by_class(Samples *s, const FeatureSet *f, Err *err) {
    const int C = eval_classes(s->e);
    s->result.per_class = eval_alloc(s->e, (size_t)C, sizeof *s->result.per_class, err);
    if (!s->result.per_class) return -1;
    return fid_by_class(s->result.per_class, C, f, &s->e->fid_reference, s->e->ev, err);
}

static void warn_of_bias(const Samples *s) {
    char line[200];
    if (s->n >= FID_BIASED_BELOW) return;
    snprintf(line, sizeof line,
             "warning: FID of %d image%s is biased upwards; fewer than %d are not comparable with "
             "figures of 10,000 or 50,000",
             s->n, plural(s->n), FID_BIASED_BELOW);
    tell_line(s->e->ev, line);
}

static int compare(Samples *s, Err *err) {
    ImageSource source;
    FeatureSet f = { 0 };
    Evaluation *e = s->e;
    if (source_of_floats(&source, model_images(e->m, s->x, s->n),
                         !strcmp(s->from, "buffer") ? "replay buffer" : "fresh chains", err))
        return -1;
    source.y = s->cls;
    warn_of_bias(s);
    int rc = feature_set(&f, s->net, &source, 1, e->ev, err);
    const int figures = !comm_rank(e->m->comm);             // others may have no reference
    if (!rc && figures)
        rc = fid_figures(&s->result.figures, &f, &e->fid_reference, eval_seed(e), e->ev, err);
    if (!rc && figures && e->use->per_class) rc = distances_by_class(s, &f, err);
    feature_set_free(&f);
    source_close(&source);
    return rc;
}

static int evaluate(Evaluation *e, FeatureNet *net, const char *from, int n, FidImages *result,
                    Err *err) {
    Samples s = { .e = e, .net = net, .from = from, .dim = tensor_len(&e->m->net.act[0]), .n = n };
    s.result = (FidImages){ .there = 1, .steps = NAN, .confident = 1, .nearest = "" };
    int rc = draw(&s, err);
    if (!rc) rc = compare(&s, err);
    if (!rc && !comm_rank(e->m->comm)) rc = write_nearest(&s, err);
    rc = comm_agree(e->m->comm, rc, err);
    arena_free(&s.arena);
    if (!rc) *result = s.result;
    return rc;
}

static int evaluate_all(Evaluation *e, FeatureNet *net, FidResult *r, Err *err) {
    const int limit = e->use->limit, slots = e->m->cfg.buffer, buffer = takes_buffer(e),
              fresh = takes_fresh(e);
    int rc = open_reference(e, net, err);
    if (!rc && buffer)
        rc = evaluate(e, net, "buffer", limit && limit < slots ? limit : slots, &r->buffer, err);
    if (!rc && fresh) rc = evaluate(e, net, "fresh", e->use->count, &r->fresh, err);
    if (!rc && fresh) r->fresh.steps = model_chains(e->m).steps;
    return rc;
}

int task_fid(Evaluation *e, Err *err) {
    FidResult r = { 0 };
    FeatureNet net;
    if (comm_agree(e->m->comm, features_open(&net, e->m->comm, e->use, err), err)) {
        features_close(&net);
        return -1;
    }
    int rc = evaluate_all(e, &net, &r, err);
    Arena *a = &e->results.arena;
    r.reference = arena_strdup(a, e->fid_reference.about);
    r.weights = arena_strdup(a, net.path);
    r.sha256 = arena_strdup(a, net.sha256);
    r.network_precision = net.precision;
    features_close(&net);
    if (!rc) rc = arena_ok(a, "results", err);
    if (!rc) e->results.fid = r;
    return rc;
}
