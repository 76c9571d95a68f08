// schema.c - see schema.h.
#include "base/schema.h"
#include "base/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// A value and the way to it.
typedef struct {
    const Json *j; // NULL: missing, or null
    char where[200];
} Place;

typedef struct {
    const char *path;
    const Schema *root;
    const void *root_record;
    Arena *arena;
    Err *err;
    int failed;
} SchemaReader;

static void *value_at(const Field *f, void *record) { return (char *)record + f->at; }
static const void *const_at(const Field *f, const void *record) {
    return (const char *)record + f->at;
}

static void refuse(SchemaReader *r, const Place *p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(SchemaReader *r, const Place *p, const char *fmt, ...) {
    char why[SCHEMA_WHY];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    err_set(r->err, ERR_DATA, "%s: %s: %s", r->path, p->where[0] ? p->where : "the file", why);
    r->failed = 1;
}

static Place member(const Place *p, const char *key) {
    Place m = { .j = json_get(p->j, key) };
    if (json_kind(m.j) == JSON_NULL) m.j = NULL;
    snprintf(m.where, sizeof m.where, "%.150s%s%.40s", p->where, p->where[0] ? "." : "", key);
    return m;
}

static Place item(const Place *p, const Json *j, size_t i) {
    Place m = { .j = json_kind(j) == JSON_NULL ? NULL : j };
    snprintf(m.where, sizeof m.where, "%.170s[%zu]", p->where, i);
    return m;
}

static int expect(SchemaReader *r, const Place *p, JsonKind kind) {
    if (!p->j || r->failed) return 0;
    if (json_kind(p->j) == kind) return 1;
    refuse(r, p, "found %s, expected %s", json_kind_name(json_kind(p->j)), json_kind_name(kind));
    return 0;
}

// ---- the length of an array -----------------------------------------------------------------

static const Field *find(const Schema *s, const char *key) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->field[i].key, key)) return &s->field[i];
    return NULL;
}

static int stored_count(const Schema *s, const Field *f, const void *record, const Schema *root,
                        const void *root_record) {
    if (f->like) {
        const Field *same = find(s, f->like);
        f = same ? same : find(root, f->like);
        if (!same) record = root_record;
    }
    int n;
    memcpy(&n, (const char *)record + f->count, sizeof n);
    return n;
}

// The array's length, checked; 0 where it is missing.
static int array(SchemaReader *r, const Schema *s, const Field *f, void *record, const Place *p) {
    const int most = f->most ? f->most : 1000;
    int n = 0;
    if (expect(r, p, JSON_ARRAY)) {
        const size_t found = json_count(p->j);
        if (found > (size_t)most) refuse(r, p, "%zu items, expected at most %d", found, most);
        else n = (int)found;
    }
    if (!f->like) {
        memcpy((char *)record + f->count, &n, sizeof n);
    } else if (p->j && !r->failed) {
        const int wanted = stored_count(s, f, record, r->root, r->root_record);
        if (n != wanted)
            refuse(r, p, "%d item%s, expected %d, as many as \"%s\" has", n, plural(n), wanted,
                   f->like);
    }
    return r->failed ? 0 : n;
}

static void *room(SchemaReader *r, int n, size_t size) {
    void *p = arena_alloc(r->arena, (size_t)n + 1, size);
    if (!p && !r->failed) {
        err_set(r->err, ERR_MEM, "%s: out of memory", r->path);
        r->failed = 1;
    }
    return p;
}

// ---- reading --------------------------------------------------------------------------------

// Sums that end a rounding error beyond their range are taken as its end.
static double read_number(SchemaReader *r, const Field *f, const Place *p) {
    const double slack = fmin(1e-6 * (f->hi - f->lo), 1e-4);
    double v = NAN;
    if (!p->j || r->failed) return NAN;
    if (json_double(p->j, &v))
        refuse(r, p, "found %s, expected a number from %g to %g", json_kind_name(json_kind(p->j)),
               f->lo, f->hi);
    else if (!(v >= f->lo - slack && v <= f->hi + slack))
        refuse(r, p, "found %g, expected %g to %g", v, f->lo, f->hi);
    return fmin(fmax(v, f->lo), f->hi);
}

static const char *read_text(SchemaReader *r, const Place *p) {
    enum { LONGEST = 1000 };
    if (!expect(r, p, JSON_STRING)) return "";
    const char *s = json_string(p->j);
    if (strlen(s) > LONGEST) {
        refuse(r, p, "a string of %zu bytes, expected at most %d", strlen(s), LONGEST);
        return "";
    }
    char *copy = arena_strdup(r->arena, s);
    return copy ? copy : "";
}

static double *read_numbers(SchemaReader *r, const Field *f, const Place *p, int n, double *to) {
    size_t i = 0;
    for (const Json *j = n ? json_first(p->j) : NULL; j && to && !r->failed;
         j = json_next(j), i++) {
        const Place m = item(p, j, i);
        to[i] = read_number(r, f, &m);
    }
    return to;
}

static double *read_rows(SchemaReader *r, const Field *f, const Place *p, int n) {
    const int columns = f->columns ? f->columns : n;
    double *to = room(r, n * columns, sizeof *to);
    size_t i = 0;
    for (const Json *j = n ? json_first(p->j) : NULL; j && to && !r->failed;
         j = json_next(j), i++) {
        const Place row = item(p, j, i);
        if (!row.j || !expect(r, &row, JSON_ARRAY)) {
            if (!r->failed) refuse(r, &row, "found null, expected an array");
            break;
        }
        if (json_count(row.j) != (size_t)columns)
            refuse(r, &row, "%zu item%s, expected %d", json_count(row.j),
                   plural((double)json_count(row.j)), columns);
        else read_numbers(r, f, &row, columns, to + i * (size_t)columns);
    }
    return to;
}

static const char **read_texts(SchemaReader *r, const Place *p, int n) {
    const char **to = room(r, n, sizeof *to);
    size_t i = 0;
    for (const Json *j = n ? json_first(p->j) : NULL; j && to && !r->failed;
         j = json_next(j), i++) {
        const Place m = item(p, j, i);
        to[i] = read_text(r, &m);
    }
    return to;
}

static void read_record(SchemaReader *r, const Schema *s, void *record, const Place *p);

static void read_object(SchemaReader *r, const Field *f, void *object, const Place *p) {
    Place o = *p;
    if (!expect(r, p, JSON_OBJECT)) o.j = NULL;
    read_record(r, f->of, object, &o);
    const int there = o.j != NULL;
    if (!f->always) memcpy((char *)object + f->count, &there, sizeof there);
}

static void *read_list(SchemaReader *r, const Field *f, const Place *p, int n) {
    char *to = room(r, n, f->of->size);
    size_t i = 0;
    for (const Json *j = n ? json_first(p->j) : NULL; j && to && !r->failed;
         j = json_next(j), i++) {
        const Place m = item(p, j, i);
        if (expect(r, &m, JSON_OBJECT)) read_record(r, f->of, to + i * f->of->size, &m);
        else if (!r->failed) refuse(r, &m, "found null, expected an object");
    }
    return to;
}

static void read_named(SchemaReader *r, const Field *f, char *objects, const Place *p) {
    Place o = *p;
    if (!expect(r, p, JSON_OBJECT)) o.j = NULL;
    for (int i = 0; i < f->columns; i++) {
        const Place m = member(&o, f->names[i]);
        read_object(r, f, objects + (size_t)i * f->of->size, &m);
    }
}

static void read_field(SchemaReader *r, const Schema *s, const Field *f, void *record,
                       const Place *parent) {
    const Place p = member(parent, f->key);
    void *at = value_at(f, record);
    switch (f->kind) {
    case FIELD_NUMBER: *(double *)at = read_number(r, f, &p); return;
    case FIELD_TEXT: *(const char **)at = read_text(r, &p); return;
    case FIELD_FLAG:
        *(int *)at = 0;
        if (expect(r, &p, JSON_BOOL)) (void)json_bool(p.j, at);
        return;
    case FIELD_OBJECT: read_object(r, f, at, &p); return;
    case FIELD_NAMED: read_named(r, f, at, &p); return;
    default: break;
    }
    const int n = array(r, s, f, record, &p);
    *(void **)at = NULL;
    if (!p.j || r->failed) return;
    if (f->kind == FIELD_NUMBERS)
        *(double **)at = read_numbers(r, f, &p, n, room(r, n, sizeof(double)));
    if (f->kind == FIELD_ROWS) *(double **)at = read_rows(r, f, &p, n);
    if (f->kind == FIELD_TEXTS) *(const char ***)at = read_texts(r, &p, n);
    if (f->kind == FIELD_LIST) *(void **)at = read_list(r, f, &p, n);
}

// p->j NULL: every field as if it were missing.
static void read_record(SchemaReader *r, const Schema *s, void *record, const Place *p) {
    char why[SCHEMA_WHY];
    for (int i = 0; i < s->n; i++) read_field(r, s, &s->field[i], record, p);
    if (!p->j || r->failed || !s->check || !s->check(record, why)) return;
    err_set(r->err, ERR_DATA, "%s: %s%s%s", r->path, p->where, p->where[0] ? "." : "", why);
    r->failed = 1;
}

int schema_read(const Schema *s, void *record, const Json *doc, const char *path, Arena *a,
                Err *err) {
    SchemaReader r = { path, s, record, a, err, 0 };
    const Place top = { .j = doc };
    if (json_kind(doc) != JSON_OBJECT)
        return err_set(err, ERR_DATA, "%s: found %s, expected an object", path,
                       json_kind_name(json_kind(doc)));
    read_record(&r, s, record, &top);
    return r.failed ? -1 : arena_ok(a, path, err);
}

// ---- writing --------------------------------------------------------------------------------

typedef struct {
    JsonOut *j;
    const Schema *root;
    const void *root_record;
} SchemaWriter;

static void write_record(SchemaWriter *w, const Schema *s, const void *record, const char *key);

static void write_object(SchemaWriter *w, const Field *f, const void *object, const char *key) {
    int there = 1;
    if (!f->always) memcpy(&there, (const char *)object + f->count, sizeof there);
    if (there) write_record(w, f->of, object, key);
    else if (f->null) json_put_string(w->j, key, NULL);
}

static void write_numbers(JsonOut *j, const char *key, const double *v, int n) {
    json_open_array(j, key);
    for (int i = 0; i < n; i++) json_put_double(j, NULL, v[i]);
    json_close(j);
}

// A missing array that is as long as another stays missing.
static void write_array(SchemaWriter *w, const Schema *s, const Field *f, const void *record) {
    const void *const array = *(const void *const *)const_at(f, record);
    const int n = array ? stored_count(s, f, record, w->root, w->root_record) : 0,
              columns = f->columns ? f->columns : n;
    if (!array && f->like) return;
    if (f->kind == FIELD_NUMBERS) {
        write_numbers(w->j, f->key, array, n);
        return;
    }
    json_open_array(w->j, f->key);
    for (int i = 0; i < n; i++) {
        const size_t k = (size_t)i;
        if (f->kind == FIELD_ROWS)
            write_numbers(w->j, NULL, (const double *)array + k * (size_t)columns, columns);
        else if (f->kind == FIELD_TEXTS)
            json_put_string(w->j, NULL, ((const char *const *)array)[i]);
        else write_record(w, f->of, (const char *)array + k * f->of->size, NULL);
    }
    json_close(w->j);
}

static void write_field(SchemaWriter *w, const Schema *s, const Field *f, const void *record) {
    const void *at = const_at(f, record);
    const char *text;
    switch (f->kind) {
    case FIELD_NUMBER: json_put_double(w->j, f->key, *(const double *)at); return;
    case FIELD_TEXT:
        text = *(const char *const *)at;
        json_put_string(w->j, f->key, text && text[0] ? text : NULL);
        return;
    case FIELD_FLAG: json_put_bool(w->j, f->key, *(const int *)at); return;
    case FIELD_OBJECT: write_object(w, f, at, f->key); return;
    case FIELD_NAMED:
        json_open_object(w->j, f->key);
        for (int i = 0; i < f->columns; i++)
            write_object(w, f, (const char *)at + (size_t)i * f->of->size, f->names[i]);
        json_close(w->j);
        return;
    default: write_array(w, s, f, record);
    }
}

static void write_record(SchemaWriter *w, const Schema *s, const void *record, const char *key) {
    json_open_object(w->j, key);
    for (int i = 0; i < s->n; i++) write_field(w, s, &s->field[i], record);
    json_close(w->j);
}

void schema_write(const Schema *s, const void *record, JsonOut *j, const char *key) {
    write_record(&(SchemaWriter){ j, s, record }, s, record, key);
}
