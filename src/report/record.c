// record.c - see record.h.
#include "report/record.h"
#include "base/file.h"
#include "base/text.h"
#include "run/folder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- tables of numbers --------------------------------------------------------------------

typedef struct {
    const char  *path;
    int          n_name;             // columns that are wanted, by name; others are passed over
    const char *const *name;
    int          required;           // how many of the first columns must be there
    int          n;
    double     **column;             // [n_name], each [n]
} Table;

enum { MAX_ROWS = 5000000, MAX_COLUMNS = 64 };

static char *next_field(char **at) {
    char *field = *at;
    if (!field) return NULL;
    *at = strchr(field, '\t');
    if (*at) *(*at)++ = 0;
    return field;
}

// Which wanted column each of the file's is, -1 for none; how many the file has.
static int read_head(const Table *t, char *line, int which[MAX_COLUMNS], Err *err) {
    int n = 0, found = 0;
    for (char *at = line, *name; (name = next_field(&at)); n++) {
        if (n == MAX_COLUMNS)
            return err_set(err, ERR_DATA, "%s: over %d columns", t->path, MAX_COLUMNS);
        which[n] = -1;
        for (int k = 0; k < t->n_name; k++)
            if (!strcmp(name, t->name[k])) {
                if (found & 1 << k)
                    return err_set(err, ERR_DATA, "%s: duplicate column '%s'", t->path, name);
                which[n] = k;
                found |= 1 << k;
            }
    }
    for (int k = 0; k < t->required; k++)
        if (!(found & 1 << k))
            return err_set(err, ERR_DATA, "%s: its first line has no column '%s'", t->path,
                           t->name[k]);
    return n;
}

// Training may print nan and inf: not errors, but nothing that can be drawn.
static int read_field(const Table *t, const char *text, const char *name, int line, double *v,
                      Err *err) {
    char *end;
    *v = NAN;
    if (!*text) return 0;
    const double x = strtod(text, &end);
    if (end == text || *end)
        return err_set(err, ERR_DATA, "%s, line %d: %s: found '%.40s', expected a number", t->path,
                       line, name, text);
    if (fabs(x) <= 1e15) *v = x;
    return 0;
}

static int read_row(const Table *t, char *line, int number, const int *which, int n_field,
                    Err *err) {
    int n = 0;
    for (char *at = line, *text; (text = next_field(&at)); n++)
        if (n < n_field && which[n] >= 0 &&
            read_field(t, text, t->name[which[n]], number, &t->column[which[n]][number - 2], err))
            return -1;
    return n == n_field ? 0
                        : err_set(err, ERR_DATA, "%s, line %d: %d field%s, expected %d", t->path,
                                  number, n, plural(n), n_field);
}

// A last line without its end is one that a run is still writing, or was when the machine failed,
// which may leave zero bytes: it does not count.
static int read_lines(Table *t, char *text, size_t size, Arena *a, Err *err) {
    int which[MAX_COLUMNS], n_field = 0, lines = 0;
    size_t ends = 0;
    while (size && !text[size - 1]) size--;
    for (size_t i = 0; i < size; i++) {
        if (!text[i]) return err_set(err, ERR_DATA, "%s: byte %zu is 0: not a text", t->path, i);
        ends += text[i] == '\n';
    }
    if (ends > MAX_ROWS)
        return err_set(err, ERR_DATA, "%s: %zu lines, at most %d are read", t->path, ends,
                       MAX_ROWS);
    if (ends == 0) return 0;
    t->n = (int)ends - 1;
    t->column = arena_alloc(a, (size_t)t->n_name, sizeof *t->column);
    for (int k = 0; t->column && k < t->n_name; k++) {
        t->column[k] = arena_alloc(a, (size_t)t->n + 1, sizeof **t->column);
        for (int i = 0; t->column[k] && i < t->n; i++) t->column[k][i] = NAN;
    }
    if (arena_ok(a, t->path, err)) return -1;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (++lines == 1) n_field = read_head(t, line, which, err);
        if (n_field < 0 || (lines > 1 && read_row(t, line, lines, which, n_field, err))) return -1;
    }
    return 0;
}

// No file: a table without rows.
static int table_read(Table *t, Arena *a, Err *err) {
    char *text = NULL;
    size_t size;
    if (!file_exists(t->path)) return 0;
    if (file_read(t->path, (size_t)1 << 29, &text, &size, err)) return -1;
    const int rc = read_lines(t, text, size, a, err);
    free(text);
    return rc;
}

// ---- log.tsv ------------------------------------------------------------------------------

// step and epoch lead; a log whose steps do not rise was put together by something else
static int check_steps(const Table *t, Err *err) {
    for (int i = 0; i < t->n; i++) {
        const double step = t->column[LOG_STEP][i], epoch = t->column[LOG_EPOCH][i];
        if (!(step >= 0) || !(epoch >= 0))
            return err_set(err, ERR_DATA,
                           "%s, line %d: step %g of epoch %g, expected numbers from 0 on", t->path,
                           i + 2, step, epoch);
        if (i && (!(step > t->column[LOG_STEP][i - 1]) || epoch < t->column[LOG_EPOCH][i - 1]))
            return err_set(err, ERR_DATA, "%s, line %d: step %g of epoch %g after step %g of %g",
                           t->path, i + 2, step, epoch, t->column[LOG_STEP][i - 1],
                           t->column[LOG_EPOCH][i - 1]);
    }
    return 0;
}

static int log_read(Record *r, const char *dir, Err *err) {
    char path[RUN_PATH], diverged[RUN_PATH];
    static const char *const DIVERGED[] = { "epoch" };
    if (run_path(path, dir, RUN_LOG, err) || run_path(diverged, dir, RUN_DIVERGED, err)) return -1;
    Table log = { .path = path, .n_name = N_LOG, .name = log_name, .required = LOG_EPOCH + 1 };
    Table bad = { .path = diverged, .n_name = 1, .name = DIVERGED, .required = 1 };
    if (table_read(&log, &r->arena, err) || check_steps(&log, err) ||
        table_read(&bad, &r->arena, err))
        return -1;
    r->log.n = log.n;
    for (int k = 0; log.n && k < N_LOG; k++) r->log.column[k] = log.column[k];
    r->log.n_diverged = bad.n;
    r->log.diverged_epoch = bad.n ? bad.column[0] : NULL;
    return 0;
}

// ---- all of it ------------------------------------------------------------------------------

// No file: *doc is NULL.
static int read_doc(Json **doc, const char *path, Err *err) {
    char *text;
    size_t n;
    *doc = NULL;
    if (!file_exists(path)) return 0;
    if (file_read(path, (size_t)64 << 20, &text, &n, err)) return -1;
    const int rc = json_parse(doc, text, n, 12, path, err);
    free(text);
    return rc;
}

static int read_all(Record *r, const char *dir, Err *err) {
    char run[RUN_PATH], eval[RUN_PATH], files[100];
    if (!dir_exists(dir)) return no_run(dir, "", err);
    if (run_path(run, dir, RUN_RECORD, err) || run_path(eval, dir, RUN_EVAL, err) ||
        log_read(r, dir, err) || read_doc(&r->run, run, err) || results_read(&r->eval, eval, err))
        return -1;
    if (r->run && json_kind(r->run) != JSON_OBJECT)
        return err_set(err, ERR_DATA, "%s: found %s, expected an object", run,
                       json_kind_name(json_kind(r->run)));
    if (r->log.n || r->run || r->eval.there) return 0;
    snprintf(files, sizeof files, "%s, %s or %s", run_file(RUN_LOG), run_file(RUN_RECORD),
             run_file(RUN_EVAL));
    return no_run(dir, files, err);
}

int record_read(Record *r, const char *dir, Err *err) {
    *r = (Record){ 0 };
    if (!read_all(r, dir, err)) return 0;
    record_free(r);
    return -1;
}

void record_free(Record *r) {
    json_free(r->run);
    results_free(&r->eval);
    arena_free(&r->arena);
    *r = (Record){ 0 };
}

const char *record_option(const Record *r, const char *name) {
    const Json *options = json_get(r->run, "options");
    const char *s = json_string(json_get(options, name)), *former = config_former(name);
    if (!s && former) s = json_string(json_get(options, former));    // a run of an older version
    return s ? s : "";
}
