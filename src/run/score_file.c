// score_file.c - see score_file.h.
#include "run/score_file.h"
#include "base/json.h"
#include "base/npz.h"
#include "base/text.h"
#include "jem/metrics.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const score_suffix[N_SCORES] = { ".csv", ".jsonl", ".npz" };

int score_format(const char *path, ScoreFormat *format, Err *err) {
    for (*format = 0; *format < N_SCORES; ++*format)
        if (ends_with(path, score_suffix[*format])) return 0;
    return err_set(err, ERR_ARG, "%s: expected a name that ends in .csv, .jsonl or .npz", path);
}

// What follows from one row's logits.
typedef struct {
    int   predicted, known;                   // -1: none
    float p, log_px;
} Answer;

static Answer answer_of(ScoreFile *f, const ScoreRow *row) {
    const int C = f->m->net.spec.classes;
    Answer a = { -1, -1, NAN, NAN };
    for (int k = 0; k < C; k++) f->p[k] = NAN;
    if (!row->logits) return a;
    a.log_px = model_score(f->m, row->logits, f->p);
    a.predicted = argmax(f->p, C);
    a.p = f->p[a.predicted];
    a.known = isnan(f->m->threshold) ? -1 : a.log_px >= f->m->threshold;
    return a;
}

// ---- CSV ------------------------------------------------------------------------------------

static void csv_text(Writer *w, const char *s) {
    if (!s || !s[strcspn(s, ",\"\r\n")]) {
        write_text(w, "%s", s ? s : "");
        return;
    }
    write_bytes(w, "\"", 1);
    for (; *s; s++) write_bytes(w, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    write_bytes(w, "\"", 1);
}

static void csv_number(Writer *w, float v) {
    if (isnan(v)) write_bytes(w, ",", 1);
    else write_text(w, ",%.9g", (double)v);               // reads back as the same float
}

static void csv_head(ScoreFile *f) {
    const int C = f->m->net.spec.classes;
    write_text(&f->w, "file,index,label,class,predicted,p,log_px,known,error");
    for (int k = 0; k < C; k++) write_text(&f->w, ",prob_%d", k);
    for (int k = 0; k < C; k++) write_text(&f->w, ",logit_%d", k);
    write_text(&f->w, "\n");
}

static void csv_row(ScoreFile *f, const ScoreRow *row, const Answer *a) {
    const int C = f->m->net.spec.classes;
    csv_text(&f->w, row->file);
    write_text(&f->w, ",%llu,", (unsigned long long)row->index);
    if (row->label >= 0) write_text(&f->w, "%d", row->label);
    write_text(&f->w, ",");
    if (a->predicted >= 0) csv_text(&f->w, f->m->class_name[a->predicted]);
    write_text(&f->w, ",");
    if (a->predicted >= 0) write_text(&f->w, "%d", a->predicted);
    csv_number(&f->w, a->p);
    csv_number(&f->w, a->log_px);
    write_text(&f->w, a->known < 0 ? "," : ",%d", a->known);
    write_text(&f->w, ",");
    csv_text(&f->w, row->error);
    for (int k = 0; k < C; k++) csv_number(&f->w, f->p[k]);
    for (int k = 0; k < C; k++) csv_number(&f->w, row->logits ? row->logits[k] : NAN);
    write_text(&f->w, "\n");
}

// ---- JSON lines -----------------------------------------------------------------------------

static void json_floats(JsonOut *j, const char *key, const float *v, int n) {
    json_open_array(j, key);
    for (int k = 0; k < n; k++) json_put_float(j, NULL, v[k]);
    json_close(j);
}

static void json_known(JsonOut *j, const char *key, int known) {
    if (known < 0) json_put_string(j, key, NULL);
    else json_put_bool(j, key, known);
}

static void json_row(ScoreFile *f, const ScoreRow *row, const Answer *a) {
    const int C = f->m->net.spec.classes;
    JsonOut j = { 0 };
    json_open_object(&j, NULL);
    json_put_string(&j, "file", row->file);
    json_put_uint(&j, "index", row->index);
    if (row->label >= 0) json_put_int(&j, "label", row->label);
    if (row->error) json_put_string(&j, "error", row->error);
    if (a->predicted >= 0) {
        json_put_string(&j, "class", f->m->class_name[a->predicted]);
        json_put_int(&j, "predicted", a->predicted);
        json_put_float(&j, "p", a->p);
        json_put_float(&j, "log_px", a->log_px);
        json_known(&j, "known", a->known);
        json_known(&j, "in", a->known);                   // the name that 0.1 has for it
        json_floats(&j, "probs", f->p, C);
        json_floats(&j, "logits", row->logits, C);
    }
    json_close(&j);
    size_t n = 0;
    char *text = json_finish(&j, &n, &f->err);
    if (text) write_bytes(&f->w, text, n);
    write_bytes(&f->w, "\n", 1);
    free(text);
}

// ---- npz: arrays, which need the number of rows before them. So rows are kept in a file until the
// end, and each array is one reading of it.

enum { ROWS, FILES, ERRORS };                             // ScoreFile.part

typedef struct {
    int64_t index, label, predicted;
    int8_t  known;
    float   log_px;
} NpzRow;                                                 // probabilities and logits follow it

static size_t row_bytes(const ScoreFile *f) {
    return sizeof(NpzRow) + 2 * (size_t)f->m->net.spec.classes * sizeof(float);
}

static int npz_begin(ScoreFile *f, Err *err) {
    static const char *const name[] = { "rows", "files", "errors" };
    for (int i = 0; i < 3; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s.%s.tmp", f->path, name[i]);
        unlink(path);                                     // left behind, or a link of others
        f->part[i] = fopen(path, "wbx+");
        if (!f->part[i]) return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        unlink(path);
    }
    return 0;
}

static void npz_row(ScoreFile *f, const ScoreRow *row, const Answer *a) {
    const size_t C = (size_t)f->m->net.spec.classes;
    const NpzRow r = { (int64_t)row->index, row->label, a->predicted, (int8_t)a->known, a->log_px };
    const char *file = row->file ? row->file : "", *error = row->error ? row->error : "";
    const float none = NAN;
    int bad = fwrite(&r, sizeof r, 1, f->part[ROWS]) != 1 ||
              fwrite(f->p, sizeof *f->p, C, f->part[ROWS]) != C ||
              fwrite(file, strlen(file) + 1, 1, f->part[FILES]) != 1 ||
              fwrite(error, strlen(error) + 1, 1, f->part[ERRORS]) != 1;
    for (size_t k = 0; !bad && k < C; k++)
        bad = fwrite(row->logits ? &row->logits[k] : &none, sizeof none, 1, f->part[ROWS]) != 1;
    if (bad) err_set(&f->err, ERR_IO, "%s: %s", f->path, strerror(errno));
}

// An array whose rows are `bytes` bytes at `at` of each row.
static void npz_column(ScoreFile *f, NpzWriter *z, const char *name, StType type, size_t at,
                       size_t bytes, char *row) {
    const uint64_t shape[2] = { f->n, bytes / st_type_size(type) };
    npz_add(z, name, type, shape[1] > 1 ? 2 : 1, shape);
    if (fflush(f->part[ROWS]) || fseek(f->part[ROWS], 0, SEEK_SET))
        err_set(&f->err, ERR_IO, "%s: %s", f->path, strerror(errno));
    for (uint64_t i = 0; i < f->n && !f->err.kind; i++) {
        if (fread(row, row_bytes(f), 1, f->part[ROWS]) != 1)
            err_set(&f->err, ERR_IO, "%s: its rows cannot be read back", f->path);
        else npz_write(z, row + at, bytes);
    }
}

// Texts, each with a NUL after it, as one array of bytes.
static void npz_texts(ScoreFile *f, NpzWriter *z, const char *name, FILE *from) {
    char some[4096];
    const int flushed = !fflush(from);
    const uint64_t bytes = (uint64_t)ftello(from);
    npz_add(z, name, ST_U8, 1, &bytes);
    int bad = !flushed || fseek(from, 0, SEEK_SET);
    for (uint64_t left = bytes; left && !bad;) {
        const size_t n = left < sizeof some ? (size_t)left : sizeof some;
        bad = fread(some, n, 1, from) != 1;
        npz_write(z, some, n);
        left -= n;
    }
    if (bad) err_set(&f->err, ERR_IO, "%s: its texts cannot be read back", f->path);
}

static void npz_classes(const ScoreFile *f, NpzWriter *z) {
    uint64_t bytes = 0;
    for (int k = 0; k < f->m->net.spec.classes; k++) bytes += strlen(f->m->class_name[k]) + 1;
    npz_add(z, "classes", ST_U8, 1, &bytes);
    for (int k = 0; k < f->m->net.spec.classes; k++)
        npz_write(z, f->m->class_name[k], strlen(f->m->class_name[k]) + 1);
}

static int npz_end(ScoreFile *f, Err *err) {
    const size_t floats = (size_t)f->m->net.spec.classes * sizeof(float);
    char *row = malloc(row_bytes(f));
    NpzWriter z;
    if (!row) return err_set(err, ERR_MEM, "out of memory for scores");
    npz_create(&z, f->path, 1);
    npz_column(f, &z, "index", ST_I64, offsetof(NpzRow, index), 8, row);
    npz_column(f, &z, "label", ST_I64, offsetof(NpzRow, label), 8, row);
    npz_column(f, &z, "predicted", ST_I64, offsetof(NpzRow, predicted), 8, row);
    npz_column(f, &z, "known", ST_I8, offsetof(NpzRow, known), 1, row);
    npz_column(f, &z, "log_px", ST_F32, offsetof(NpzRow, log_px), 4, row);
    npz_column(f, &z, "probs", ST_F32, sizeof(NpzRow), floats, row);
    npz_column(f, &z, "logits", ST_F32, sizeof(NpzRow) + floats, floats, row);
    npz_classes(f, &z);
    npz_texts(f, &z, "files", f->part[FILES]);
    npz_texts(f, &z, "errors", f->part[ERRORS]);
    free(row);
    if (f->err.kind) {                                    // the old file stays
        z.w.failed = 1;
        z.w.err = f->err;
    }
    return npz_finish(&z, err);
}

// ---- all of them ----------------------------------------------------------------------------

int score_file_open(ScoreFile *f, const char *path, const Model *m, Err *err) {
    *f = (ScoreFile){ .m = m };
    if (score_format(path, &f->format, err)) return -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return err_set(err, ERR_ARG, "%.80s...: name too long", path);
    f->p = malloc((size_t)m->net.spec.classes * sizeof *f->p);
    int rc = f->p ? 0 : err_set(err, ERR_MEM, "out of memory for scores");
    if (!rc && f->format == SCORES_NPZ) rc = npz_begin(f, err);
    if (!rc && f->format != SCORES_NPZ) {
        f->w = writer_open(path);
        if (f->w.failed) rc = err_set(err, f->w.err.kind, "%s", f->w.err.msg);
    }
    if (!rc && f->format == SCORES_CSV) csv_head(f);
    if (rc) score_file_cancel(f);
    return rc;
}

void score_file_add(ScoreFile *f, const ScoreRow *row) {
    static void (*const put[N_SCORES])(ScoreFile *, const ScoreRow *,
                                       const Answer *) = { csv_row, json_row, npz_row };
    if (f->err.kind || f->w.failed) return;
    const Answer a = answer_of(f, row);
    put[f->format](f, row, &a);
    f->n++;
}

int score_file_failed(const ScoreFile *f, Err *err) {
    const Err *why = f->err.kind ? &f->err : &f->w.err;
    return why->kind ? err_set(err, why->kind, "%s", why->msg) : 0;
}

static void free_parts(ScoreFile *f) {
    for (int i = 0; i < 3; i++)
        if (f->part[i]) fclose(f->part[i]);
    free(f->p);
    *f = (ScoreFile){ 0 };
}

int score_file_close(ScoreFile *f, Err *err) {
    int rc;
    if (f->format == SCORES_NPZ) rc = npz_end(f, err);
    else if (f->err.kind) {
        writer_cancel(&f->w);
        rc = err_set(err, f->err.kind, "%s", f->err.msg);
    } else rc = writer_close(&f->w, err);
    free_parts(f);
    return rc;
}

void score_file_cancel(ScoreFile *f) {
    if (f->format != SCORES_NPZ && f->w.f) writer_cancel(&f->w);
    free_parts(f);
}
