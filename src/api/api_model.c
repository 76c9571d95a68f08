// api_model.c - jempp.h's training and models.
#include "api/api.h"
#include "api/output.h"
#include "base/image.h"
#include "base/json.h"
#include "base/text.h"
#include "data/image_source.h"
#include "eval/eval.h"
#include "run/fit.h"
#include "run/model.h"
#include "run/model_file.h"
#include "run/onnx.h"
#include "run/score_many.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int jempp_train(const JemppOptions *o, const JemppEvents *ev, JemppTrained *result, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    FitResult r = { .valid_accuracy = NAN, .test_accuracy = NAN, .test_ece = NAN };
    const Events events = events_of(ev);
    Config cfg = o->cfg;
    int rc = data_absolute(cfg.data, sizeof cfg.data, &e);
    if (!rc) rc = fit(&cfg, &events, &r, &e);
    *result = (JemppTrained){ .steps = r.steps,
                              .seconds = r.seconds,
                              .valid_accuracy = r.valid_accuracy,
                              .test_accuracy = r.test_accuracy,
                              .test_ece = r.test_ece,
                              .stopped = r.stopped,
                              .retries = r.retries };
    memcpy(result->out, r.out, sizeof result->out);
    return rc ? api_fail(err, &e) : 0;
}

Jempp *jempp_open(const JemppOptions *o, const char *path, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    Jempp *j = calloc(1, sizeof *j);
    if (!j) err_set(&e, ERR_MEM, "out of memory for a model");
    else if (!(o->command->bit & (CMD_SAMPLE | CMD_EVAL) ? model_open_shared
                                                         : model_open)(j, &o->cfg, path, &e))
        return j;
    free(j);
    api_fail(err, &e);
    return NULL;
}

void jempp_close(Jempp *j) {
    if (!j) return;
    model_close(j);
    free(j);
}

int jempp_classes(const Jempp *j) { return j->net.spec.classes; }
const char *jempp_class_name(const Jempp *j, int i) {
    return i >= 0 && i < j->net.spec.classes ? j->class_name[i] : NULL;
}
int jempp_channels(const Jempp *j) { return j->net.spec.channels; }
int jempp_side(const Jempp *j) { return j->net.spec.side; }
float jempp_threshold(const Jempp *j) { return j->threshold; }

// A picture from memory or, where data is NULL, from the file `name`.
static int load_image(const Jempp *j, const void *data, size_t n, const char *name, float *image,
                      Err *err) {
    const NetSpec *spec = &j->net.spec;
    const size_t dim = tensor_len(&j->net.act[0]);
    uint8_t *p = malloc(dim);
    if (!p) return err_set(err, ERR_MEM, "out of memory for an image");
    const int rc = data ? picture_decode(p, data, n, name, spec->channels, spec->side, err)
                        : picture_load(p, name, spec->channels, spec->side, err);
    for (size_t i = 0; !rc && i < dim; i++) image[i] = byte_to_pixel(p[i]);
    free(p);
    return rc;
}

int jempp_load_image(const Jempp *j, const char *path, float *image, JemppErr *err) {
    Err e = { 0 };
    const int failed = dir_exists(path)
                           ? err_set(&e, ERR_IO, "%s: is a folder, expected a picture", path)
                           : load_image(j, NULL, 0, path, image, &e);
    return failed ? api_fail(err, &e) : 0;
}

int jempp_decode_image(const Jempp *j, const void *data, size_t n, const char *name, float *image,
                       JemppErr *err) {
    Err e = { 0 };
    return load_image(j, data ? data : "", n, name, image, &e) ? api_fail(err, &e) : 0;
}

int jempp_logits(Jempp *j, const float *images, int n, float *logits, JemppErr *err) {
    Err e = { 0 };
    return model_logits(j, images, n, logits, &e) ? api_fail(err, &e) : 0;
}

float jempp_score(const Jempp *j, const float *logits, float *p) {
    return model_score(j, logits, p);
}

// Fills all but `file`; room: [classes].
static void prediction(const Jempp *j, const float *logits, float *room, JemppPrediction *a) {
    a->log_px = jempp_score(j, logits, room);
    a->label = 0;
    for (int k = 1; k < j->net.spec.classes; k++)
        if (room[k] > room[a->label]) a->label = k;
    a->p = room[a->label];
    a->class_name = j->class_name[a->label];
    a->in = isnan(j->threshold) ? -1 : a->log_px >= j->threshold;
    a->error = NULL;
}

int jempp_predict(Jempp *j, const float *images, int n, JemppPrediction *out, JemppErr *err) {
    const int C = j->net.spec.classes;
    Err e = { 0 };
    float *logits = malloc(((size_t)n + 1) * (size_t)C * sizeof *logits), *p = logits;
    int rc = logits ? 0 : err_set(&e, ERR_MEM, "out of memory for predictions");
    if (!rc) rc = model_logits(j, images, n, logits + C, &e);
    for (int i = 0; !rc && i < n; i++)
        prediction(j, logits + (size_t)(i + 1) * (size_t)C, p, &out[i]);
    free(logits);
    return rc ? api_fail(err, &e) : 0;
}

static void put_answer(JsonOut *j, const JemppPrediction *p) {
    json_put_string(j, "class", p->class_name);
    json_put_double(j, "p", (double)p->p);
    json_put_double(j, "log_px", (double)p->log_px);
    for (int k = 0; k < 2; k++) {                           // "in": the name that 0.1 has for it
        const char *key = k ? "in" : "known";
        if (p->in < 0) json_put_string(j, key, NULL);
        else json_put_bool(j, key, p->in);
    }
}

static void put_prediction(JsonOut *j, const JemppPrediction *p) {
    json_open_object(j, NULL);
    json_put_string(j, "file", p->file);
    if (p->error) json_put_string(j, "error", p->error);
    else put_answer(j, p);
    json_close(j);
}

char *jempp_predictions_json(const JemppPrediction *p, int n, JemppErr *err) {
    Err e = { 0 };
    JsonOut j = { .indent = 2 };
    json_open_array(&j, NULL);
    for (int i = 0; i < n; i++) put_prediction(&j, &p[i]);
    json_close(&j);
    char *text = json_finish(&j, NULL, &e);
    if (!text) api_fail(err, &e);
    return text;
}

static const char *const *names_from(const JemppOptions *o, int first) {
    return o->file ? (const char *const *)o->file + first : NULL;
}

int jempp_predict_files(Jempp *j, const JemppOptions *o, const JemppEvents *ev,
                        JemppPredicted *result, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    ScoredMany r = { 0 };
    const Events events = events_of(ev);
    const Config *c = &o->cfg;
    *result = (JemppPredicted){ 0 };
    if (jempp_check_files(o, err)) return -1;
    int rc = output_scores(c->out, c->force, &e);
    const ScoreJob job = {
        .name = names_from(o, 1), .n = o->n_file - 1, .strict = c->strict, .out = c->out
    };
    if (!rc) rc = score_many(j, &job, &events, &r, &e);
    *result = (JemppPredicted){ r.images, r.unreadable, r.stopped, r.total };
    return rc ? api_fail(err, &e) : 0;
}

typedef struct {
    const Jempp *j;
    float *room;
    JemppOnPrediction *on;
    void *ctx;
} EachRow;

static void on_row(void *ctx, const ScoreRow *row) {
    const EachRow *e = ctx;
    char name[400];
    snprintf(name, sizeof name, "%.300s[%llu]", row->set, (unsigned long long)row->index);
    JemppPrediction p = { .file = row->file ? row->file : name, .label = -1, .in = -1 };
    p.error = row->error;
    if (row->logits) prediction(e->j, row->logits, e->room, &p);
    e->on(e->ctx, &p, row->error);
}

int jempp_predict_each(Jempp *j, const JemppOptions *o, int from, int n, const JemppEvents *ev,
                       JemppOnPrediction *on, void *ctx, JemppPredicted *result, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    ScoredMany r = { 0 };
    const Events events = events_of(ev);
    *result = (JemppPredicted){ 0 };
    if (from < 0 || n < 0 || from > o->n_file || n > o->n_file - from) {
        err_set(&e, ERR_ARG, "%d file%s from number %d on: the options name %d", n, plural(n), from,
                o->n_file);
        return api_fail(err, &e);
    }
    EachRow each = { j, malloc((size_t)j->net.spec.classes * sizeof(float)), on, ctx };
    int rc = each.room ? 0 : err_set(&e, ERR_MEM, "out of memory for predictions");
    const ScoreJob job = {
        .name = names_from(o, from), .n = n, .strict = o->cfg.strict, .on = on_row, .ctx = &each
    };
    if (!rc) rc = score_many(j, &job, &events, &r, &e);
    free(each.room);
    *result = (JemppPredicted){ r.images, r.unreadable, r.stopped, r.total };
    return rc ? api_fail(err, &e) : 0;
}

int jempp_n_samples(const Jempp *j, const JemppOptions *o, JemppErr *err) {
    Err e = { 0 };
    const int n = model_n_samples(j, &o->cfg, &e);
    return n < 0 ? api_fail(err, &e) : n;
}

int jempp_sample(Jempp *j, const JemppOptions *o, const JemppEvents *ev, int n, float *images,
                 int *class_of, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    return model_sample(j, &o->cfg, &events, n, images, class_of, &e) ? api_fail(err, &e) : 0;
}

int jempp_check_picture(const char *path, int force, JemppErr *err) {
    Err e = { 0 };
    return output_picture(path, force, &e) ? api_fail(err, &e) : 0;
}

int jempp_check_animation(const char *path, int force, JemppErr *err) {
    Err e = { 0 };
    return output_animation(path, force, &e) ? api_fail(err, &e) : 0;
}

int jempp_is_images(const char *path) { return output_is_images(path); }

int jempp_check_images(const char *path, int force, JemppErr *err) {
    Err e = { 0 };
    return output_images(path, force, &e) ? api_fail(err, &e) : 0;
}

int jempp_write_images(const Jempp *j, const float *images, const int *class_of, int n,
                       const char *path, const JemppEvents *ev, JemppErr *err) {
    const Events events = events_of(ev);
    Err e = { 0 };
    ImageSource s = { 0 };
    int rc = source_of_floats(&s, model_images(j, images, n), path, &e);
    for (int i = 0; class_of && i < n; i++)
        if (class_of[i] < 0) class_of = NULL;
    s.y = class_of;
    if (!rc) rc = source_write(&s, path, &events, &e);
    source_close(&s);
    return rc ? api_fail(err, &e) : 0;
}

int jempp_write_grid(const Jempp *j, const float *images, int n, int columns, int zoom,
                     const char *path, JemppErr *err) {
    Err e = { 0 };
    Image im = { 0 };
    int rc = image_grid(&im, model_images(j, images, n), (Grid){ columns, 2, zoom }, &e);
    if (!rc && ends_with(path, ".webp")) rc = image_write_webp(&im, 1, 1, path, &e);
    else if (!rc) rc = image_write_png(&im, path, &e);
    image_free(&im);
    return rc ? api_fail(err, &e) : 0;
}

char *jempp_preview(const Jempp *j, const float *images, int n, int columns, int width) {
    Err e = { 0 };
    Image im = { 0 };
    char *text = NULL;
    if (!image_grid(&im, model_images(j, images, n), (Grid){ columns, 1, 1 }, &e))
        text = image_text(&im, width);
    image_free(&im);
    return text;
}

int jempp_export(Jempp *j, const JemppOptions *o, const char *path, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    Config cfg = j->cfg;                                    // without the folders of this machine
    cfg.data_dir[0] = cfg.out[0] = cfg.init[0] = cfg.inception[0] = 0;
    if (strchr(cfg.data, ':')) cfg.data[0] = 0;             // folder:DIR, cifar-file:FILE
    if (o->cfg.chain_length > 0) cfg.chain_length = o->cfg.chain_length;
    if (o->cfg.chain_step > 0) cfg.chain_step = o->cfg.chain_step;
    if (output_model(path, j->path, o->cfg.force, &e)) return api_fail(err, &e);
    ModelFormat format;
    if (model_format(path, &format, &e)) return api_fail(err, &e);
    if (format == FILE_ONNX) {
        const int chains = o->cfg.chain_length > 0 || o->cfg.chain_step > 0;
        if (o->cfg.half) err_set(&e, ERR_ARG, "--half: not for .onnx, which has 32-bit weights");
        else if (chains)
            err_set(&e, ERR_ARG, "--chain-length, --chain-step: not for .onnx, without chains");
        return o->cfg.half || chains || onnx_write(j, path, &e) ? api_fail(err, &e) : 0;
    }
    const ModelCard card = model_card(j, &cfg);
    return model_save(&j->net, &card, o->cfg.half, path, &e) ? api_fail(err, &e) : 0;
}

char *jempp_eval(Jempp *j, const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    Config cfg = o->cfg;
    (void)data_absolute(cfg.data, sizeof cfg.data, NULL);   // as a run has it, where it fits
    char *text = eval_text(j, &cfg, &events, &e);
    if (e.kind) api_fail(err, &e);
    return text;
}
