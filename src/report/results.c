// results.c - see results.h. The tables are the format of eval.json: its keys, in their order.
#include "report/results.h"
#include "base/file.h"
#include "base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define COUNT   .lo = 0, .hi = 1e12
#define PART    .lo = 0, .hi = 1
#define PERCENT .lo = 0, .hi = 100
#define ANY     .lo = -1e12, .hi = 1e12
#define SHOWN(text, after, decimals) .label = (text), .unit = (after), .digits = (decimals)

#define FIELD(name, what, T, m, ...) \
    { .key = (name), .kind = (what), .at = offsetof(T, m), __VA_ARGS__ }
#define NUMBER(name, T, m, ...) FIELD(name, FIELD_NUMBER, T, m, __VA_ARGS__)
#define TEXT(name, T, m)        { .key = (name), .kind = FIELD_TEXT, .at = offsetof(T, m) }
#define FLAG(name, T, m)        { .key = (name), .kind = FIELD_FLAG, .at = offsetof(T, m) }
#define SCHEMA(table, T)         { table, sizeof(table) / sizeof *(table), sizeof(T), NULL }
#define SCHEMA_CHECKED(table, T, how) { table, sizeof(table) / sizeof *(table), sizeof(T), how }

#define RUN_FIELDS(T)                                            \
    TEXT("device", T, run.device),                               \
    TEXT("precision", T, run.precision),                         \
    NUMBER("seed", T, run.seed, .lo = 0, .hi = 0x1p53),          \
    TEXT("data", T, run.data)
#define SECONDS_FIELD(T) NUMBER("seconds", T, run.seconds, COUNT)

// ---- accuracy -------------------------------------------------------------------------------

static const Field ACC_FIELDS[] = {
    RUN_FIELDS(AccResult),
    NUMBER("n", AccResult, n, COUNT),
    NUMBER("noise", AccResult, noise, .lo = 0, .hi = 1000),
    NUMBER("refine", AccResult, refine, COUNT),
    NUMBER("draws", AccResult, draws, COUNT),
    NUMBER("top1", AccResult, top1, PERCENT, SHOWN("top-1 accuracy", " %", 2)),
    NUMBER("top5", AccResult, top5, PERCENT, SHOWN("top-5 accuracy", " %", 2)),
    NUMBER("nll", AccResult, nll, ANY, SHOWN("NLL", "", 4)),
    NUMBER("log_px", AccResult, log_px, ANY),
    FIELD("per_class", FIELD_NUMBERS, AccResult, per_class, PERCENT, .like = "classes"),
    FIELD("confusion", FIELD_ROWS, AccResult, confusion, COUNT, .like = "classes"),
    SECONDS_FIELD(AccResult),
};
static const Schema ACC = SCHEMA(ACC_FIELDS, AccResult);

// ---- calibration ----------------------------------------------------------------------------

static const Field BIN_FIELDS[] = {
    NUMBER("lo", CalibrationBin, lo, PART),
    NUMBER("hi", CalibrationBin, hi, PART),
    NUMBER("count", CalibrationBin, count, COUNT),
    NUMBER("confidence", CalibrationBin, confidence, PART),
    NUMBER("accuracy", CalibrationBin, accuracy, PART),
};
static const Schema BIN = SCHEMA(BIN_FIELDS, CalibrationBin);

#define CALIBRATION_FIELDS(T, m, nll_label)                                                 \
    NUMBER("ece", T, m.ece, PERCENT, SHOWN("ECE", " %", 2)),                                \
    NUMBER("mce", T, m.mce, PERCENT, SHOWN("maximum calibration error", " %", 2)),          \
    NUMBER("classwise_ece", T, m.classwise, PERCENT, SHOWN("class-wise ECE", " %", 2)),     \
    NUMBER("brier", T, m.brier, .lo = 0, .hi = 2, SHOWN("Brier score", "", 4)),             \
    NUMBER("nll", T, m.nll, ANY, SHOWN(nll_label, "", 4)),                                  \
    FIELD("reliability", FIELD_LIST, T, m.bin, .count = offsetof(T, m.n_bin), .of = &BIN)

static int check_bins(const Calibration *c, char why[SCHEMA_WHY]) {
    for (int i = 0; i < c->n_bin; i++) {
        const CalibrationBin *b = &c->bin[i];
        if (b->lo < b->hi && (!i || fabs(b->lo - b[-1].hi) <= 1e-6)) continue;
        return snprintf(why, SCHEMA_WHY, "reliability[%d]: from %g to %g, expected it to begin "
                        "where the bin before ends", i, b->lo, b->hi);
    }
    return 0;
}

static int check_scaled(const void *r, char why[SCHEMA_WHY]) {
    return check_bins(&((const TemperatureScaling *)r)->at_t, why);
}

static int check_ece(const void *r, char why[SCHEMA_WHY]) {
    return check_bins(&((const EceResult *)r)->plain, why);
}

static const Field SCALED_FIELDS[] = {
    NUMBER("t", TemperatureScaling, t, .lo = 0, .hi = 1e6, SHOWN("T", "", 3)),
    NUMBER("n_valid", TemperatureScaling, n_valid, COUNT),
    NUMBER("errors", TemperatureScaling, errors, COUNT),
    CALIBRATION_FIELDS(TemperatureScaling, at_t, "NLL"),
};
static const Schema SCALED = SCHEMA_CHECKED(SCALED_FIELDS, TemperatureScaling, check_scaled);

static const Field ECE_FIELDS[] = {
    RUN_FIELDS(EceResult),
    NUMBER("n", EceResult, n, COUNT),
    NUMBER("bins", EceResult, bins, COUNT),
    CALIBRATION_FIELDS(EceResult, plain, NULL),            // the NLL is among the accuracy's
    FIELD("temperature", FIELD_OBJECT, EceResult, temperature, .of = &SCALED, .null = 1,
          .label = "temperature scaling"),
    SECONDS_FIELD(EceResult),
};
static const Schema ECE = SCHEMA_CHECKED(ECE_FIELDS, EceResult, check_ece);

// ---- out-of-distribution detection ----------------------------------------------------------

static const Field HIST_FIELDS[] = {
    NUMBER("lo", OodScore, hist.lo, ANY),
    NUMBER("hi", OodScore, hist.hi, ANY),
    FIELD("in", FIELD_NUMBERS, OodScore, hist.in, COUNT, .count = offsetof(OodScore, hist.n)),
    FIELD("out", FIELD_NUMBERS, OodScore, hist.out, COUNT, .like = "in"),
};
static const Schema HIST = SCHEMA(HIST_FIELDS, OodScore);

static const Field SCORE_FIELDS[] = {
    NUMBER("auroc", OodScore, auroc, PART),
    NUMBER("aupr", OodScore, aupr, PART),
    NUMBER("aupr_out", OodScore, aupr_out, PART),
    NUMBER("fpr95", OodScore, fpr95, PART),
    FIELD("roc", FIELD_ROWS, OodScore, roc, PART, .count = offsetof(OodScore, n_roc), .columns = 2),
    { .key = "hist", .kind = FIELD_OBJECT, .always = 1, .of = &HIST },      // of the same struct
};

static int check_score(const void *r, char why[SCHEMA_WHY]) {
    const OodScore *s = r;
    if (!s->hist.n || (s->hist.lo < s->hist.hi && s->hist.out)) return 0;
    return snprintf(why, SCHEMA_WHY, "hist: %d bin%s from %g to %g, expected counts of both sets, "
                    "and lo below hi", s->hist.n, plural(s->hist.n), s->hist.lo, s->hist.hi);
}
static const Schema SCORE = SCHEMA_CHECKED(SCORE_FIELDS, OodScore, check_score);

static const Field SET_FIELDS[] = {
    TEXT("name", OodSet, name),
    TEXT("from", OodSet, from),
    NUMBER("n", OodSet, n, COUNT),
    FIELD("scores", FIELD_NAMED, OodSet, score, .names = score_name, .columns = N_SCORE,
          .of = &SCORE),
};
static const Schema SET = SCHEMA(SET_FIELDS, OodSet);

static const Field IN_FIELDS[] = {
    TEXT("name", OodResult, in.name),
    NUMBER("n", OodResult, in.n, COUNT),
};
static const Schema IN_SET = SCHEMA(IN_FIELDS, OodResult);

static const Field OOD_FIELDS[] = {
    RUN_FIELDS(OodResult),
    { .key = "in", .kind = FIELD_OBJECT, .always = 1, .of = &IN_SET },
    NUMBER("noise", OodResult, noise, .lo = 0, .hi = 1000),
    FIELD("sets", FIELD_LIST, OodResult, set, .count = offsetof(OodResult, n_set), .most = 16,
          .of = &SET),
    SECONDS_FIELD(OodResult),
};
static const Schema OOD = SCHEMA(OOD_FIELDS, OodResult);

// ---- attacks --------------------------------------------------------------------------------

static const Field CURVE_FIELDS[] = {
    TEXT("norm", AttackCurve, norm),
    TEXT("attack", AttackCurve, attack),
    TEXT("loss", AttackCurve, loss),
    NUMBER("targets", AttackCurve, targets, COUNT),
    NUMBER("steps", AttackCurve, steps, COUNT),
    NUMBER("restarts", AttackCurve, restarts, COUNT),
    FLAG("random_start", AttackCurve, random_start),
    NUMBER("step", AttackCurve, step, COUNT),
    TEXT("step_rule", AttackCurve, step_rule),
    NUMBER("refine", AttackCurve, refine, COUNT),
    NUMBER("draws", AttackCurve, draws, COUNT),
    FIELD("radii", FIELD_NUMBERS, AttackCurve, radius, .lo = 0, .hi = 1e4,
          .count = offsetof(AttackCurve, n)),
    FIELD("accuracy", FIELD_NUMBERS, AttackCurve, accuracy, PERCENT, .like = "radii"),
};

static int check_curve(const void *r, char why[SCHEMA_WHY]) {
    const AttackCurve *c = r;
    if (!c->n || c->accuracy) return 0;
    return snprintf(why, SCHEMA_WHY, "accuracy: missing, expected %d number%s", c->n,
                    plural(c->n));
}
static const Schema CURVE = SCHEMA_CHECKED(CURVE_FIELDS, AttackCurve, check_curve);

static const Field ATTACK_FIELDS[] = {
    RUN_FIELDS(AttackResult),
    NUMBER("n", AttackResult, n, COUNT),
    NUMBER("clean", AttackResult, clean, PERCENT),
    FIELD("curves", FIELD_LIST, AttackResult, curve, .count = offsetof(AttackResult, n_curve),
          .most = 16, .of = &CURVE),
    SECONDS_FIELD(AttackResult),
};
static const Schema ATTACK = SCHEMA(ATTACK_FIELDS, AttackResult);

// ---- samples and speed ----------------------------------------------------------------------

static const Field SAMPLES_FIELDS[] = {
    RUN_FIELDS(SamplesResult),
    FIELD("files", FIELD_TEXTS, SamplesResult, file, .count = offsetof(SamplesResult, n_file),
          .most = 4000),
    TEXT("from", SamplesResult, from),
    NUMBER("n", SamplesResult, n, COUNT, SHOWN("samples", "", 0)),
    NUMBER("fresh_steps", SamplesResult, fresh_steps, COUNT,
           SHOWN("steps of a fresh chain", "", 0)),
    NUMBER("batch", SamplesResult, batch, COUNT, SHOWN("chains per batch", "", 0)),
    NUMBER("inner", SamplesResult, inner, COUNT, SHOWN("moves per gradient", "", 0)),
    NUMBER("step_size", SamplesResult, step_size, COUNT, SHOWN("step size", "", -1)),
    NUMBER("clip", SamplesResult, clip, COUNT, SHOWN("gradient limit", "", -1)),
    NUMBER("noise", SamplesResult, noise, COUNT, SHOWN("noise", "", -1)),
    NUMBER("page", SamplesResult, page, COUNT),
    FIELD("per_class", FIELD_NUMBERS, SamplesResult, per_class, COUNT, .like = "classes"),
    NUMBER("by_class", SamplesResult, by_class, COUNT, SHOWN("samples drawn by class", "", 0)),
    NUMBER("agreement", SamplesResult, agreement, PERCENT,
           SHOWN("of these the model recognises", " %", 1)),
    NUMBER("classifier_agreement", SamplesResult, classifier_agreement, PERCENT,
           SHOWN("of these the other classifier recognises", " %", 1)),
    TEXT("classifier", SamplesResult, classifier),
    SECONDS_FIELD(SamplesResult),
};

static int is_file_here(const char *name) {                // stays inside the folder
    return name[0] && name[0] != '/' && !strstr(name, "..") && strlen(name) < 200;
}

static int check_files(const void *r, char why[SCHEMA_WHY]) {
    const SamplesResult *s = r;
    for (int i = 0; i < s->n_file; i++) {
        const char *name = s->file[i];
        if (is_file_here(name)) continue;
        return snprintf(why, SCHEMA_WHY,
                        "files[%d]: '%.80s' is not the name of a file in this folder", i, name);
    }
    return 0;
}
static const Schema SAMPLES = SCHEMA_CHECKED(SAMPLES_FIELDS, SamplesResult, check_files);

static const Field SPEED_FIELDS[] = {
    RUN_FIELDS(SpeedResult),
    NUMBER("n", SpeedResult, n, COUNT),
    NUMBER("batch", SpeedResult, batch, COUNT, SHOWN("images per batch", "", 0)),
    NUMBER("images_per_second", SpeedResult, images_per_second, COUNT,
           SHOWN("classification and log p(x), images/s", "", 0)),
    NUMBER("seconds_per_10000", SpeedResult, seconds_per_10000, COUNT),
    NUMBER("mean_logpx", SpeedResult, mean_logpx, ANY),
    NUMBER("chain_batch", SpeedResult, chain_batch, COUNT, SHOWN("chains per batch", "", 0)),
    NUMBER("sgld_step_ms", SpeedResult, sgld_step_ms, COUNT, SHOWN("one sampling step, ms", "", 2)),
    NUMBER("iteration_ms", SpeedResult, iteration_ms, COUNT,
           SHOWN("one training iteration, ms", "", 1)),
    NUMBER("minutes_per_epoch", SpeedResult, minutes_per_epoch, COUNT,
           SHOWN("one epoch, minutes", "", 2)),
    SECONDS_FIELD(SpeedResult),
};
static const Schema SPEED = SCHEMA(SPEED_FIELDS, SpeedResult);

// ---- FID and its relatives ------------------------------------------------------------------

static const Field IMAGES_FIELDS[] = {
    NUMBER("n", FidImages, figures.n, COUNT, SHOWN("images", "", 0)),
    NUMBER("n_reference", FidImages, figures.n_reference, COUNT),
    NUMBER("fid", FidImages, figures.fid, COUNT, SHOWN("FID", "", 2)),
    NUMBER("kid", FidImages, figures.kid, ANY, SHOWN("KID, mean over subsets", "", 5)),
    NUMBER("kid_sd", FidImages, figures.kid_sd, COUNT, SHOWN("KID, sd over subsets", "", 5)),
    NUMBER("kid_all", FidImages, figures.kid_all, ANY, SHOWN("KID, one subset of all", "", 5)),
    NUMBER("precision", FidImages, figures.precision, PART, SHOWN("precision", "", 3)),
    NUMBER("recall", FidImages, figures.recall, PART, SHOWN("recall", "", 3)),
    NUMBER("density", FidImages, figures.density, COUNT, SHOWN("density", "", 3)),
    NUMBER("coverage", FidImages, figures.coverage, PART, SHOWN("coverage", "", 3)),
    NUMBER("is", FidImages, figures.is, COUNT, SHOWN("Inception Score", "", 2)),
    NUMBER("is_sd", FidImages, figures.is_sd, COUNT,
           SHOWN("Inception Score, sd over splits", "", 2)),
    NUMBER("steps", FidImages, steps, COUNT, SHOWN("steps of a chain", "", 0)),
    NUMBER("confident", FidImages, confident, PART),
    FIELD("fid_per_class", FIELD_NUMBERS, FidImages, per_class, COUNT, .like = "classes"),
    TEXT("nearest", FidImages, nearest),
};

static int check_nearest(const void *r, char why[SCHEMA_WHY]) {
    const char *name = ((const FidImages *)r)->nearest;
    if (is_file_here(name) || !name[0]) return 0;
    return snprintf(why, SCHEMA_WHY, "nearest: '%.80s' is not the name of a file in this folder",
                    name);
}
static const Schema IMAGES = SCHEMA_CHECKED(IMAGES_FIELDS, FidImages, check_nearest);

static const Field FID_FIELDS[] = {
    RUN_FIELDS(FidResult),
    TEXT("reference", FidResult, reference),
    TEXT("weights", FidResult, weights),
    TEXT("weights_sha256", FidResult, sha256),
    TEXT("network_precision", FidResult, network_precision),
    FIELD("buffer", FIELD_OBJECT, FidResult, buffer, .of = &IMAGES, .label = "replay buffer"),
    FIELD("fresh", FIELD_OBJECT, FidResult, fresh, .of = &IMAGES, .label = "fresh chains"),
    SECONDS_FIELD(FidResult),
};
static const Schema FID = SCHEMA(FID_FIELDS, FidResult);

// ---- the file -------------------------------------------------------------------------------

#define TASK(name, m, schema, title)                                                        \
    { .key = (name), .kind = FIELD_OBJECT, .at = offsetof(EvalResults, m), .of = &(schema), \
      .label = (title) }
static const Field TASK_FIELDS[N_TASK] = {                 // each struct begins with TaskRun.there
    [TASK_ACC] = TASK("acc", acc, ACC, "accuracy"),
    [TASK_ECE] = TASK("ece", ece, ECE, "calibration"),
    [TASK_OOD] = TASK("ood", ood, OOD, "out-of-distribution detection"),
    [TASK_ATTACK] = TASK("attack", attack, ATTACK, "robust accuracy"),
    [TASK_SAMPLES] = TASK("samples", samples, SAMPLES, "samples"),
    [TASK_SPEED] = TASK("speed", speed, SPEED, "speed"),
    [TASK_FID] = TASK("fid", fid, FID, "FID, KID, precision and recall, Inception Score"),
};
static const Schema TASKS = SCHEMA(TASK_FIELDS, EvalResults);

static const Field FILE_FIELDS[] = {
    NUMBER("jempp_eval", EvalResults, format, COUNT),
    TEXT("version", EvalResults, version),
    TEXT("model", EvalResults, model),
    TEXT("md5", EvalResults, md5),
    TEXT("net", EvalResults, net),
    TEXT("device", EvalResults, device),
    TEXT("precision", EvalResults, precision),
    NUMBER("seed", EvalResults, seed, .lo = 0, .hi = 0x1p53),
    TEXT("data", EvalResults, data),
    FIELD("classes", FIELD_TEXTS, EvalResults, class_name,
          .count = offsetof(EvalResults, n_class)),
    { .key = "tasks", .kind = FIELD_OBJECT, .always = 1, .of = &TASKS },
};
static const Schema FILE_SCHEMA = SCHEMA(FILE_FIELDS, EvalResults);
// clang-format on

enum { FORMAT = 1, MAX_BYTES = 64 << 20 };

static int read_doc(EvalResults *r, const Json *doc, const char *path, Err *err) {
    double format = NAN;
    if (json_double(json_get(doc, "jempp_eval"), &format))
        return err_set(err, ERR_DATA, "%s: found no \"jempp_eval\": not made by jempp eval", path);
    if (format != FORMAT)
        return err_set(err, ERR_DATA, "%s: its format is %g, expected %d", path, format, FORMAT);
    r->there = 1;
    return schema_read(&FILE_SCHEMA, r, doc, path, &r->arena, err);
}

int results_read(EvalResults *r, const char *path, Err *err) {
    char *text;
    size_t n;
    Json *doc;
    *r = (EvalResults){ .format = FORMAT };
    if (!file_exists(path)) return 0;
    if (file_read(path, MAX_BYTES, &text, &n, err)) return -1;
    int rc = json_parse(&doc, text, n, 12, path, err);
    free(text);
    if (!rc) rc = read_doc(r, doc, path, err);
    json_free(doc);
    if (rc) results_free(r);
    return rc;
}

char *results_text(const EvalResults *r, Err *err) {
    JsonOut j = { .indent = 1 };
    schema_write(&FILE_SCHEMA, r, &j, NULL);
    return json_finish(&j, NULL, err);
}

int results_write(const EvalResults *r, const char *path, Err *err) {
    char *text = results_text(r, err);
    if (!text) return -1;
    Writer w = writer_open(path);
    write_bytes(&w, text, strlen(text));
    write_bytes(&w, "\n", 1);
    free(text);
    return writer_close(&w, err);
}

void results_free(EvalResults *r) {
    arena_free(&r->arena);
    *r = (EvalResults){ 0 };
}

// ---- tasks ----------------------------------------------------------------------------------

const char *task_name(TaskId id) { return TASK_FIELDS[id].key; }
const char *task_title(TaskId id) { return TASK_FIELDS[id].label; }

TaskRun *results_task(EvalResults *r, TaskId id) {
    return (TaskRun *)(void *)((char *)r + TASK_FIELDS[id].at);
}

// Of an object within the task: "temperature scaling: ECE".
static int add_metrics(const Schema *s, const void *record, const char *path, const char *title,
                       Metric *m, int n) {
    for (int i = 0; i < s->n; i++) {
        const Field *f = &s->field[i];
        const void *at = (const char *)record + f->at;
        char key[64];
        snprintf(key, sizeof key, "%.30s.%.30s", path, f->key);
        if (f->kind == FIELD_OBJECT && f->label && *(const int *)at)
            n = add_metrics(f->of, at, key, f->label, m, n);
        if (f->kind != FIELD_NUMBER || !f->label || n == MAX_METRICS) continue;
        const double v = *(const double *)at;
        if (!isfinite(v)) continue;
        m[n] = (Metric){ .value = v, .unit = f->unit, .digits = f->digits };
        memcpy(m[n].measure, key, sizeof key);
        snprintf(m[n].text, sizeof m->text, f->digits < 0 ? "%.*g%s" : "%.*f%s",
                 f->digits < 0 ? 6 : f->digits, v, f->unit);
        snprintf(m[n++].label, sizeof m->label, "%s%s%s", title, title[0] ? ": " : "", f->label);
    }
    return n;
}

int results_metrics(const EvalResults *r, TaskId id, Metric m[MAX_METRICS]) {
    const Field *f = &TASK_FIELDS[id];
    const char *task = (const char *)r + f->at;
    return *(const int *)(const void *)task ? add_metrics(f->of, task, f->key, "", m, 0) : 0;
}
