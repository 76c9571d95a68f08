// model_view.c - see model_view.h.
#include "serve/model_view.h"
#include "base/image.h"
#include "serve/picture.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void model_view_close(ModelView *v) {
    if (!v->model) return;
    model_close(v->model);
    free(v->model);
    free(v->images);
    free(v->logits);
    v->model = NULL;
    v->images = v->logits = NULL;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int model_view_open(ModelView *v, const Config *c, Runs *runs, const char *run, Err *err) {
    char file[RUN_PATH];
    RunModel found;
    struct stat now = { 0 };
    if (runs_model(runs, run, &found))
        return *run ? err_set(err, ERR_ARG, "no model '%.100s'", run)
                    : err_set(err, ERR_ARG,
                              "there is no model yet: it is written after the first validation "
                              "(with --px-from: some time after p(x) began)");
    if (run_model_path(file, found.path, err)) return -1;
    if (stat(file, &now)) return err_set(err, ERR_IO, "%s: cannot be read", found.name);
    if (v->model && !strcmp(v->name, found.name) && same_file(&now, &v->file)) return 0;
    model_view_close(v);
    Model *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, ERR_MEM, "out of memory for a model");
    if (model_open(m, c, found.path, err)) return free(m), -1;
    const size_t dim = tensor_len(&m->net.act[0]), C = (size_t)m->net.spec.classes;
    v->model = m;
    v->file = now;
    snprintf(v->name, sizeof v->name, "%s", found.name);
    v->images = malloc(AT_ONCE * dim * sizeof *v->images);
    v->logits = malloc((AT_ONCE + 1) * C * sizeof *v->logits);
    if (v->images && v->logits) return 0;
    model_view_close(v);
    return err_set(err, ERR_MEM, "out of memory for pictures");
}

// ---- answers -----------------------------------------------------------------------------------

void put_model(const ModelView *v, JsonOut *j) {
    const Model *m = v->model;
    const NetSpec *spec = &m->net.spec;
    json_put_string(j, "name", v->name);
    json_put_string(j, "network", m->cfg.model);
    json_put_string(j, "data", m->cfg.data);
    json_put_string(j, "device", m->dev.be.describe(&m->dev));
    json_put_uint(j, "parameters", m->net.n_w);
    json_put_int(j, "channels", spec->channels);
    json_put_int(j, "side", spec->side);
    json_put_float(j, "threshold", m->threshold);
    json_put_bool(j, "samples", m->cfg.px != PX_NONE);
    json_put_int(j, "max_upload", MAX_UPLOAD);
    json_open_array(j, "classes");
    for (int i = 0; i < spec->classes; i++) json_put_string(j, NULL, m->class_name[i]);
    json_close(j);
    json_open_array(j, "percentiles");
    for (int i = 0; m->percentile && i < N_PERCENTILE; i++)
        json_put_float(j, NULL, m->percentile[i]);
    json_close(j);
}

// The share of validation images, in percent, whose log p(x) is below; NaN: unknown.
static double percent_below(const Model *m, double log_px) {
    const float *p = m->percentile;
    if (!p) return NAN;
    int k = 0;
    while (k < N_PERCENTILE && (double)p[k] < log_px) k++;
    if (k == 0 || k == N_PERCENTILE) return k ? 100 : 0;
    return k - 1 + (log_px - (double)p[k - 1]) / (double)(p[k] - p[k - 1]);
}

static int put_guess(char *dst, size_t n, const char *name, double p) {
    char sure[32] = "more than 99"; // a model is never 100 % sure
    if (!(p >= 0.5))
        return snprintf(dst, n, "The model is undecided. Its best guess: %.100s (%.0f %%).", name,
                        100 * p);
    if (p <= 0.99) snprintf(sure, sizeof sure, "%.0f", 100 * p);
    return snprintf(dst, n, "This looks like: %.100s (the model is %s %% sure).", name, sure);
}

// known: whether log p(x) is above the model's threshold; negative where it has none.
static void put_familiarity(char *dst, size_t n, int known, double below) {
    static const char like[] = "It is the sort of picture that the model was trained on";
    static const char unlike[] = "But it is unlike the pictures that the model was trained on";
    static const char aside[] = "of 100 pictures kept aside in training";
    if (known < 0)
        snprintf(dst, n, "The model file does not say which pictures are familiar to it.");
    else if (known && isnan(below)) snprintf(dst, n, "%s.", like);
    else if (known) snprintf(dst, n, "%s: %s, %.0f look less typical.", like, aside, below);
    else if (isnan(below)) snprintf(dst, n, "%s, so do not rely on this answer.", unlike);
    else
        snprintf(dst, n, "%s: %s, %.0f look more typical. Do not rely on this answer.", unlike,
                 aside, 100 - below);
}

// For someone who has never heard of densities.
static void put_words(JsonOut *j, const char *name, double p, int known, double below) {
    char text[600];
    const int n = put_guess(text, sizeof text, name, p);
    text[n] = ' ';
    put_familiarity(text + n + 1, sizeof text - (size_t)n - 1, known, below);
    json_put_string(j, "words", text);
}

void put_prediction(const ModelView *v, JsonOut *j, const float *image, const float *logits) {
    const Model *m = v->model;
    const NetSpec *spec = &m->net.spec;
    const int C = spec->classes;
    float *p = v->logits + (size_t)AT_ONCE * (size_t)C;
    const double log_px = (double)model_score(m, logits, p), below = percent_below(m, log_px);
    const int top = argmax(p, C), known = isnan(m->threshold) ? -1 : log_px >= (double)m->threshold;
    Err err = { 0 };
    json_put_string(j, "model", v->name);
    json_put_string(j, "class", m->class_name[top]);
    json_put_float(j, "p", p[top]);
    json_put_double(j, "log_px", log_px);
    if (known < 0) json_put_string(j, "known", NULL);
    else json_put_bool(j, "known", known);
    json_put_double(j, "percent_below", below);
    put_words(j, m->class_name[top], (double)p[top], known, below);
    json_open_array(j, "probabilities");
    for (int i = 0; i < C; i++) json_put_float(j, NULL, p[i]);
    json_close(j);
    (void)picture_put(j, "input", model_images(m, image, 1), 1, &err);
}

int put_samples(ModelView *v, JsonOut *j, int n, const float *images, const int *class_of,
                Err *err) {
    Model *m = v->model;
    const NetSpec *spec = &m->net.spec;
    const size_t C = (size_t)spec->classes;
    float *logits = malloc((size_t)n * C * sizeof *logits);
    int rc = logits ? model_logits(m, images, n, logits, err)
                    : err_set(err, ERR_MEM, "out of memory for samples");
    json_open_array(j, "class");
    for (int i = 0; !rc && i < n; i++)
        json_put_string(j, NULL, class_of[i] < 0 ? NULL : m->class_name[class_of[i]]);
    json_close(j);
    json_open_array(j, "log_px");
    for (int i = 0; !rc && i < n; i++)
        json_put_float(j, NULL, model_score(m, logits + (size_t)i * C, NULL));
    json_close(j);
    json_put_int(j, "columns", image_columns(n));
    if (!rc) rc = picture_put(j, "image", model_images(m, images, n), image_columns(n), err);
    free(logits);
    return rc;
}
