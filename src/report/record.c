// record.c - see record.h.
#include "report/record.h"
#include "base/file.h"
#include "run/folder.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- tables of numbers --------------------------------------------------------------------

typedef struct {
    const char  *path;
    int          n_name;             // columns that are wanted, by name; others are passed over
    const char *const *name;
    int          required;           // the first so many must be there
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
                    return err_set(err, ERR_DATA, "%s: the column '%s' is there twice", t->path,
                                   name);
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
                        : err_set(err, ERR_DATA, "%s, line %d: %d fields, expected %d", t->path,
                                  number, n, n_field);
}

// A last line without its end is one that a run is still writing: it does not count yet.
static int read_lines(Table *t, char *text, size_t size, Arena *a, Err *err) {
    int which[MAX_COLUMNS], n_field = 0, lines = 0;
    size_t ends = 0;
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

// ---- JSON, checked ------------------------------------------------------------------------

// A value and the way to it: "tasks.ece.reliability[3]".
typedef struct {
    const Json *j;
    char        where[200];
} Node;

typedef struct {
    const char *path;
    Arena      *arena;
    Err        *err;
    int         failed;
} In;

static void refuse(In *in, const Node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(In *in, const Node *n, const char *fmt, ...) {
    char why[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    err_set(in->err, ERR_DATA, "%s: %s: %s", in->path, n->where, why);
    in->failed = 1;
}

static const char *kind_name(const Json *j) {
    static const char *const names[] = { "nothing",  "null",    "true or false", "a number",
                                         "a string", "an array", "an object" };
    return names[json_kind(j)];
}

// The member of that name; null counts as not there.
static Node get(const Node *n, const char *key) {
    Node m = { .j = json_get(n->j, key) };
    if (json_kind(m.j) == JSON_NULL) m.j = NULL;
    snprintf(m.where, sizeof m.where, "%.150s%s%.40s", n->where, n->where[0] ? "." : "", key);
    return m;
}

static Node item(const Node *n, const Json *j, size_t i) {
    Node m = { .j = j };
    snprintf(m.where, sizeof m.where, "%.170s[%zu]", n->where, i);
    return m;
}

static int expect(In *in, const Node *n, JsonKind kind, const char *what) {
    if (!n->j) return 0;
    if (json_kind(n->j) == kind) return 1;
    refuse(in, n, "found %s, expected %s", kind_name(n->j), what);
    return 0;
}

static Node object(In *in, const Node *parent, const char *key) {
    Node n = get(parent, key);
    if (!expect(in, &n, JSON_OBJECT, "an object")) n.j = NULL;
    return n;
}

// Sums that end a rounding error beyond their range are taken as its end.
static double as_number(In *in, const Node *n, double lo, double hi) {
    const double slack = fmin(1e-6 * (hi - lo), 1e-4);
    double v = NAN;
    if (!n->j || json_kind(n->j) == JSON_NULL) return NAN;
    if (json_double(n->j, &v))
        refuse(in, n, "found %s, expected a number from %g to %g", kind_name(n->j), lo, hi);
    else if (!(v >= lo - slack && v <= hi + slack))
        refuse(in, n, "found %g, expected %g to %g", v, lo, hi);
    return fmin(fmax(v, lo), hi);
}

static double number(In *in, const Node *parent, const char *key, double lo, double hi) {
    const Node n = get(parent, key);
    return as_number(in, &n, lo, hi);
}

enum { MANY = 1000 };                                        // classes, bins, points of a curve
#define COUNT_LO_HI 0, 1e12
#define PART_LO_HI 0, 1
#define PERCENT_LO_HI 0, 100
#define ANY_LO_HI -1e12, 1e12

static const char *as_string(In *in, const Node *n) {
    enum { LONGEST = 1000 };
    if (!expect(in, n, JSON_STRING, "a string")) return "";
    if (strlen(json_string(n->j)) > LONGEST) {
        refuse(in, n, "a string of %zu bytes, at most %d are taken", strlen(json_string(n->j)),
               LONGEST);
        return "";
    }
    return json_string(n->j);
}

static const char *string(In *in, const Node *parent, const char *key) {
    const Node n = get(parent, key);
    return as_string(in, &n);
}

// An array of at most `most` items, or of exactly `exactly` where that is not 0; its length.
static int array(In *in, Node *n, int most, int exactly) {
    if (!expect(in, n, JSON_ARRAY, "an array")) return 0;
    const size_t count = json_count(n->j);
    if (exactly && count != (size_t)exactly)
        refuse(in, n, "%zu items, expected %d", count, exactly);
    else if (count > (size_t)most) refuse(in, n, "%zu items, at most %d are taken", count, most);
    else return (int)count;
    return 0;
}

static double *alloc(In *in, int n) {
    double *p = arena_alloc(in->arena, (size_t)n + 1, sizeof *p);
    if (!p) {
        err_set(in->err, ERR_MEM, "%s: out of memory", in->path);
        in->failed = 1;
    }
    return p;
}

static double *numbers_of(In *in, Node *n, int most, int exactly, int *count, double lo,
                          double hi) {
    *count = array(in, n, most, exactly);
    double *v = alloc(in, *count);
    size_t i = 0;
    for (const Json *j = *count ? json_first(n->j) : NULL; j && v && !in->failed;
         j = json_next(j), i++) {
        const Node m = item(n, j, i);
        v[i] = as_number(in, &m, lo, hi);
    }
    return v;
}

static double *numbers(In *in, const Node *parent, const char *key, int exactly, int *count,
                       double lo, double hi) {
    Node n = get(parent, key);
    return numbers_of(in, &n, MANY, exactly, count, lo, hi);
}

// ---- eval.json: its tasks -------------------------------------------------------------------

static void read_acc(In *in, const Node *tasks, Eval *e) {
    const Node n = object(in, tasks, "acc");
    int count;
    if (!n.j) return;
    e->acc.there = 1;
    e->acc.n = number(in, &n, "n", COUNT_LO_HI);
    e->acc.noise = number(in, &n, "noise", 0, 1000);
    e->acc.refine = number(in, &n, "refine", COUNT_LO_HI);
    e->acc.top1 = number(in, &n, "top1", PERCENT_LO_HI);
    e->acc.top5 = number(in, &n, "top5", PERCENT_LO_HI);
    e->acc.nll = number(in, &n, "nll", ANY_LO_HI);
    e->acc.seconds = number(in, &n, "seconds", COUNT_LO_HI);
    Node per_class = get(&n, "per_class"), confusion = get(&n, "confusion");
    if (per_class.j && !in->failed) {
        e->acc.per_class = numbers_of(in, &per_class, MANY, e->n_class, &count, PERCENT_LO_HI);
        if (!e->n_class && !in->failed) refuse(in, &per_class, "needs the names in \"classes\"");
    }
    if (!confusion.j || in->failed) return;
    const int k = array(in, &confusion, MANY, e->n_class);
    if (!e->n_class && !in->failed) refuse(in, &confusion, "needs the names in \"classes\"");
    double *all = in->failed ? NULL : alloc(in, k * k);
    size_t i = 0;
    for (const Json *j = json_first(confusion.j); j && !in->failed; j = json_next(j), i++) {
        Node row = item(&confusion, j, i);
        const double *v = numbers_of(in, &row, MANY, k, &count, COUNT_LO_HI);
        if (!in->failed && count == k) memcpy(all + i * (size_t)k, v, (size_t)k * sizeof *v);
    }
    e->acc.confusion = all;
}

static void read_calibration(In *in, const Node *n, Calibration *c) {
    Node bins = get(n, "reliability");
    c->ece = number(in, n, "ece", PERCENT_LO_HI);
    c->mce = number(in, n, "mce", PERCENT_LO_HI);
    c->classwise = number(in, n, "classwise_ece", PERCENT_LO_HI);
    c->brier = number(in, n, "brier", 0, 2);
    c->nll = number(in, n, "nll", ANY_LO_HI);
    c->n = bins.j ? array(in, &bins, MANY, 0) : 0;
    c->edge = alloc(in, c->n + 1);
    c->count = alloc(in, c->n);
    c->confidence = alloc(in, c->n);
    c->accuracy = alloc(in, c->n);
    size_t i = 0;
    for (const Json *j = c->n ? json_first(bins.j) : NULL; j && !in->failed;
         j = json_next(j), i++) {
        const Node bin = item(&bins, j, i);
        if (!expect(in, &bin, JSON_OBJECT, "an object")) return;
        const double lo = number(in, &bin, "lo", PART_LO_HI),
                     hi = number(in, &bin, "hi", PART_LO_HI);
        if (in->failed) return;
        if (!(lo < hi) || (i && fabs(lo - c->edge[i]) > 1e-6)) {
            refuse(in, &bin, "from %g to %g, expected it to begin where the one before ends", lo,
                   hi);
            return;
        }
        if (!i) c->edge[0] = lo;
        c->edge[i + 1] = hi;
        c->count[i] = number(in, &bin, "count", COUNT_LO_HI);
        c->confidence[i] = number(in, &bin, "confidence", PART_LO_HI);
        c->accuracy[i] = number(in, &bin, "accuracy", PART_LO_HI);
    }
}

static void read_ece(In *in, const Node *tasks, Eval *e) {
    const Node n = object(in, tasks, "ece");
    if (!n.j) return;
    e->ece.there = 1;
    e->ece.n = number(in, &n, "n", COUNT_LO_HI);
    read_calibration(in, &n, &e->ece.as_is);
    const Node warm = object(in, &n, "temperature");
    if (!warm.j) return;
    e->ece.scaled = 1;
    e->ece.temperature = number(in, &warm, "t", 0, 1e6);
    read_calibration(in, &warm, &e->ece.warm);
}

static void read_score(In *in, const Node *n, OodScore *s) {
    s->there = 1;
    s->auroc = number(in, n, "auroc", PART_LO_HI);
    s->aupr = number(in, n, "aupr", PART_LO_HI);
    s->aupr_out = number(in, n, "aupr_out", PART_LO_HI);
    s->fpr95 = number(in, n, "fpr95", PART_LO_HI);
    Node roc = get(n, "roc");
    if (roc.j) {
        s->n_roc = array(in, &roc, MANY, 0);
        s->fpr = alloc(in, s->n_roc);
        s->tpr = alloc(in, s->n_roc);
        size_t i = 0;
        for (const Json *j = json_first(roc.j); j && !in->failed; j = json_next(j), i++) {
            Node point = item(&roc, j, i);
            int two;
            const double *v = numbers_of(in, &point, 2, 2, &two, PART_LO_HI);
            if (in->failed) return;
            s->fpr[i] = v[0];
            s->tpr[i] = v[1];
        }
    }
    const Node hist = object(in, n, "hist");
    if (!hist.j || in->failed) return;
    const double lo = number(in, &hist, "lo", ANY_LO_HI), hi = number(in, &hist, "hi", ANY_LO_HI);
    int n_out;
    s->in = numbers(in, &hist, "in", 0, &s->n_hist, COUNT_LO_HI);
    s->out = numbers(in, &hist, "out", s->n_hist, &n_out, COUNT_LO_HI);
    if (!in->failed && (!(lo < hi) || !s->n_hist || n_out != s->n_hist))
        refuse(in, &hist, "%d and %d bins from %g to %g, expected as many of both, lo below hi",
               s->n_hist, n_out, lo, hi);
    s->edge = alloc(in, s->n_hist + 1);
    for (int i = 0; !in->failed && i <= s->n_hist; i++) s->edge[i] = lo + (hi - lo) * i / s->n_hist;
}

static void read_ood(In *in, const Node *tasks, Eval *e) {
    enum { MOST = 16 };
    const Node n = object(in, tasks, "ood"), inside = object(in, &n, "in");
    Node sets = get(&n, "sets");
    if (!n.j) return;
    e->ood.there = 1;
    e->ood.in_name = string(in, &inside, "name");
    e->ood.in_n = number(in, &inside, "n", COUNT_LO_HI);
    e->ood.noise = number(in, &n, "noise", 0, 1000);
    e->ood.n_set = sets.j ? array(in, &sets, MOST, 0) : 0;
    e->ood.set = arena_alloc(in->arena, MOST, sizeof *e->ood.set);
    size_t i = 0;
    for (const Json *j = json_first(sets.j); j && e->ood.set && !in->failed;
         j = json_next(j), i++) {
        const Node m = item(&sets, j, i);
        if (!expect(in, &m, JSON_OBJECT, "an object")) return;
        OodSet *s = &e->ood.set[i];
        s->name = string(in, &m, "name");
        s->n = number(in, &m, "n", COUNT_LO_HI);
        const Node scores = object(in, &m, "scores");
        for (int k = 0; k < N_SCORE && !in->failed; k++) {
            const Node score = object(in, &scores, score_name[k]);
            if (score.j) read_score(in, &score, &s->score[k]);
        }
    }
}

static void read_attack(In *in, const Node *tasks, Eval *e) {
    enum { MOST = 16 };
    const Node n = object(in, tasks, "attack");
    Node curves = get(&n, "curves");
    if (!n.j) return;
    e->attack.there = 1;
    e->attack.n = number(in, &n, "n", COUNT_LO_HI);
    e->attack.clean = number(in, &n, "clean", PERCENT_LO_HI);
    e->attack.n_curve = curves.j ? array(in, &curves, MOST, 0) : 0;
    e->attack.curve = arena_alloc(in->arena, MOST, sizeof *e->attack.curve);
    size_t i = 0;
    for (const Json *j = json_first(curves.j); j && e->attack.curve && !in->failed;
         j = json_next(j), i++) {
        const Node m = item(&curves, j, i);
        if (!expect(in, &m, JSON_OBJECT, "an object")) return;
        AttackCurve *c = &e->attack.curve[i];
        int n_accuracy;
        c->norm = string(in, &m, "norm");
        c->attack = string(in, &m, "attack");
        c->loss = string(in, &m, "loss");
        c->steps = number(in, &m, "steps", COUNT_LO_HI);
        c->restarts = number(in, &m, "restarts", COUNT_LO_HI);
        c->step = number(in, &m, "step", COUNT_LO_HI);
        c->step_rule = string(in, &m, "step_rule");
        c->refine = number(in, &m, "refine", COUNT_LO_HI);
        c->draws = number(in, &m, "draws", COUNT_LO_HI);
        c->radius = numbers(in, &m, "radii", 0, &c->n, 0, 1e4);
        c->accuracy = numbers(in, &m, "accuracy", c->n, &n_accuracy, PERCENT_LO_HI);
        if (!in->failed && n_accuracy != c->n)
            refuse(in, &m, "%d radii and %d accuracies", c->n, n_accuracy);
    }
}

// A name that stays inside the folder.
static int plain_name(const char *s) {
    return s[0] && s[0] != '/' && !strstr(s, "..") && strlen(s) < 200;
}

static void read_samples(In *in, const Node *tasks, Eval *e) {
    const Node n = object(in, tasks, "samples");
    Node files = get(&n, "files");
    if (!n.j) return;
    e->samples.there = 1;
    e->samples_json = n.j;
    const int count = files.j ? array(in, &files, 4 * MANY, 0) : 0;
    e->samples.file = arena_alloc(in->arena, (size_t)count + 1, sizeof *e->samples.file);
    for (const Json *j = count ? json_first(files.j) : NULL; j && e->samples.file && !in->failed;
         j = json_next(j)) {
        const Node m = item(&files, j, (size_t)e->samples.n_file);
        const char *name = as_string(in, &m);
        if (!in->failed && !plain_name(name))
            refuse(in, &m, "'%.80s' is no name of a file here", name);
        e->samples.file[e->samples.n_file++] = name;
    }
}

static void read_classes(In *in, const Node *top, Eval *e) {
    Node n = get(top, "classes");
    const int count = n.j ? array(in, &n, MANY, 0) : 0;
    e->class_name = arena_alloc(in->arena, (size_t)count + 1, sizeof *e->class_name);
    for (const Json *j = count ? json_first(n.j) : NULL; j && e->class_name && !in->failed;
         j = json_next(j)) {
        const Node m = item(&n, j, (size_t)e->n_class);
        e->class_name[e->n_class++] = as_string(in, &m);
    }
}

static int read_eval(In *in, const Json *doc, Eval *e) {
    const Node top = { .j = doc };
    double format = NAN;
    if (json_kind(doc) != JSON_OBJECT || json_double(json_get(doc, "jempp_eval"), &format))
        return err_set(in->err, ERR_DATA, "%s: found no \"jempp_eval\": not made by jempp eval",
                       in->path);
    if (format != 1)
        return err_set(in->err, ERR_DATA, "%s: its format is %g, expected 1", in->path, format);
    e->there = 1;
    e->version = string(in, &top, "version");
    e->model = string(in, &top, "model");
    e->net = string(in, &top, "net");
    e->device = string(in, &top, "device");
    e->precision = string(in, &top, "precision");
    e->data = string(in, &top, "data");
    e->seed = number(in, &top, "seed", 0, 0x1p53);
    read_classes(in, &top, e);
    const Node tasks = object(in, &top, "tasks");
    if (!in->failed) read_acc(in, &tasks, e);
    if (!in->failed) read_ece(in, &tasks, e);
    if (!in->failed) read_ood(in, &tasks, e);
    if (!in->failed) read_attack(in, &tasks, e);
    if (!in->failed) read_samples(in, &tasks, e);
    if (!in->failed) e->speed_json = object(in, &tasks, "speed").j;
    return in->failed ? -1 : arena_ok(in->arena, in->path, in->err);
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
    char run[RUN_PATH], eval[RUN_PATH];
    if (!dir_exists(dir)) return err_set(err, ERR_IO, "%s: no such run folder", dir);
    if (run_path(run, dir, RUN_RECORD, err) || run_path(eval, dir, RUN_EVAL, err) ||
        log_read(r, dir, err) || read_doc(&r->run, run, err) || read_doc(&r->eval_doc, eval, err))
        return -1;
    if (r->run && json_kind(r->run) != JSON_OBJECT)
        return err_set(err, ERR_DATA, "%s: found %s, expected an object", run, kind_name(r->run));
    In in = { .path = eval, .arena = &r->arena, .err = err };
    if (r->eval_doc && read_eval(&in, r->eval_doc, &r->eval)) return -1;
    if (!r->log.n && !r->run && !r->eval.there)
        return err_set(err, ERR_DATA, "%s: neither %s nor %s nor %s is there", dir,
                       run_file(RUN_LOG), run_file(RUN_RECORD), run_file(RUN_EVAL));
    return 0;
}

int record_read(Record *r, const char *dir, Err *err) {
    *r = (Record){ 0 };
    if (!read_all(r, dir, err)) return 0;
    record_free(r);
    return -1;
}

void record_free(Record *r) {
    json_free(r->run);
    json_free(r->eval_doc);
    arena_free(&r->arena);
    *r = (Record){ 0 };
}

const char *record_option(const Record *r, const char *name) {
    const char *s = json_string(json_get(json_get(r->run, "options"), name));
    return s ? s : "";
}
