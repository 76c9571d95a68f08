// safetensors.c - see safetensors.h.
#include "base/safetensors.h"
#include "base/json.h"
#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100 * 1000 * 1000, MAX_DEPTH = 8 };    // the reference implementation's bound

// ---- reading

static int bad(const St *st, const StTensor *t, const char *what, Err *err) {
    return err_set(err, ERR_DATA, "%s: tensor %s: %s", st->path, t->name, what);
}

static int parse_type(const St *st, StTensor *t, const Json *j, Err *err) {
    const char *dtype = json_string(j);
    if (!dtype) return bad(st, t, "dtype is not a string", err);
    for (int i = 0; i < ST_N_TYPES; i++) {
        if (strcmp(st_type_name((StType)i), dtype)) continue;
        t->type = (StType)i;
        return 0;
    }
    return err_set(err, ERR_DATA,
                   "%s: tensor %s: dtype %s, expected F64, F32, F16, BF16, I64, I32, I16, I8, U8 "
                   "or BOOL",
                   st->path, t->name, dtype);
}

static int parse_shape(const St *st, StTensor *t, const Json *j, Err *err) {
    if (json_kind(j) != JSON_ARRAY) return bad(st, t, "shape is not a list", err);
    for (const Json *m = json_first(j); m; m = json_next(m)) {
        if (t->rank == ST_MAX_RANK)
            return err_set(err, ERR_DATA, "%s: tensor %s: %zu dimensions, expected at most %d",
                           st->path, t->name, json_count(j), ST_MAX_RANK);
        if (json_u64(m, &t->shape[t->rank++]))
            return bad(st, t, "shape has something other than whole numbers from 0 to 2^53-1", err);
    }
    return 0;
}

static int parse_offsets(const St *st, StTensor *t, const Json *j, uint64_t data_bytes, Err *err) {
    uint64_t end, need;
    if (json_kind(j) != JSON_ARRAY || json_count(j) != 2 || json_u64(json_at(j, 0), &t->begin) ||
        json_u64(json_at(j, 1), &end))
        return bad(st, t, "data_offsets are not two whole numbers from 0 to 2^53-1", err);
    if (t->begin > end || end > data_bytes)
        return err_set(err, ERR_DATA,
                       "%s: tensor %s: data_offsets %" PRIu64 " to %" PRIu64
                       ", expected within the file's %" PRIu64
                       " bytes of data (is the file complete?)",
                       st->path, t->name, t->begin, end, data_bytes);
    t->bytes = end - t->begin;
    if (st_shape_bytes(t->type, t->rank, t->shape, &need))
        return bad(st, t, "shape too large for any file", err);
    if (need != t->bytes)
        return err_set(err, ERR_DATA,
                       "%s: tensor %s: %" PRIu64 " bytes, expected %" PRIu64
                       " by its shape and dtype",
                       st->path, t->name, t->bytes, need);
    return 0;
}

static int parse_tensor(const St *st, StTensor *t, const Json *j, uint64_t data_bytes, Err *err) {
    if (json_kind(j) != JSON_OBJECT || json_count(j) != 3)
        return bad(st, t, "entry is not an object of dtype, shape and data_offsets", err);
    if (parse_type(st, t, json_get(j, "dtype"), err)) return -1;
    if (parse_shape(st, t, json_get(j, "shape"), err)) return -1;
    return parse_offsets(st, t, json_get(j, "data_offsets"), data_bytes, err);
}

static int parse_meta(St *st, const Json *j, Err *err) {
    if (json_kind(j) != JSON_OBJECT)
        return err_set(err, ERR_DATA, "%s: __metadata__ is not an object", st->path);
    st->meta = arena_alloc(&st->arena, 2 * json_count(j), sizeof *st->meta);
    if (arena_ok(&st->arena, st->path, err)) return -1;
    for (const Json *m = json_first(j); m; m = json_next(m)) {
        if (!json_string(m))
            return err_set(err, ERR_DATA, "%s: __metadata__ %s is not a string", st->path,
                           json_key(m));
        st->meta[2 * st->n_meta] = arena_strdup(&st->arena, json_key(m));
        st->meta[2 * st->n_meta++ + 1] = arena_strdup(&st->arena, json_string(m));
    }
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const StTensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// Sorted, the tensors must lie one behind the other and fill the data part.
static int check_cover(St *st, uint64_t data_bytes, Err *err) {
    if (st->n) qsort(st->t, (size_t)st->n, sizeof *st->t, by_offset);
    uint64_t end = 0;
    for (int i = 0; i < st->n; i++) {
        const StTensor *t = &st->t[i];
        if (t->begin != end)
            return err_set(
                err, ERR_DATA, "%s: tensor %s: begins at %" PRIu64 ", expected %" PRIu64 " (%s)",
                st->path, t->name, t->begin, end, t->begin < end ? "an overlap" : "a gap");
        end += t->bytes;
    }
    if (end == data_bytes) return 0;
    return err_set(err, ERR_DATA,
                   "%s: %" PRIu64 " byte%s of data, expected %" PRIu64 " by the header", st->path,
                   data_bytes, plural((double)data_bytes), end);
}

static int parse_header(St *st, const Json *doc, uint64_t data_bytes, Err *err) {
    if (json_kind(doc) != JSON_OBJECT)
        return err_set(err, ERR_DATA, "%s: the safetensors header is not a JSON object", st->path);
    st->t = arena_alloc(&st->arena, json_count(doc), sizeof *st->t);
    if (arena_ok(&st->arena, st->path, err)) return -1;
    for (const Json *m = json_first(doc); m; m = json_next(m)) {
        if (!strcmp(json_key(m), "__metadata__")) {
            if (parse_meta(st, m, err)) return -1;
            continue;
        }
        StTensor *t = &st->t[st->n++];
        t->name = arena_strdup(&st->arena, json_key(m));
        if (arena_ok(&st->arena, st->path, err)) return -1;
        if (parse_tensor(st, t, m, data_bytes, err)) return -1;
    }
    return arena_ok(&st->arena, st->path, err) ? -1 : check_cover(st, data_bytes, err);
}

static int read_failed(const St *st, Err *err) {
    return st->reader.failed ? err_set(err, st->reader.err.kind, "%s", st->reader.err.msg) : 0;
}

static int read_header(St *st, Err *err) {
    if (read_failed(st, err)) return -1;
    if (st->reader.size < 8)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " byte%s, expected a safetensors file",
                       st->path, st->reader.size, plural((double)st->reader.size));
    uint64_t n;
    read_bytes(&st->reader, &n, sizeof n);
    if (n > st->reader.size - 8)
        return err_set(err, ERR_DATA,
                       "%s: not a safetensors file, or a truncated one: its header is longer than "
                       "the file",
                       st->path);
    if (n > MAX_HEADER)
        return err_set(err, ERR_DATA, "%s: a header of %" PRIu64 " bytes, expected at most %d",
                       st->path, n, (int)MAX_HEADER);
    char *text = malloc((size_t)n + 1);
    if (!text) return err_set(err, ERR_MEM, "%s: out of memory for %" PRIu64 " bytes", st->path, n);
    read_bytes(&st->reader, text, (size_t)n);
    Json *doc = NULL;
    int rc = read_failed(st, err) || json_parse(&doc, text, (size_t)n, MAX_DEPTH, st->path, err);
    free(text);
    st->data_at = 8 + n;
    rc = rc || parse_header(st, doc, st->reader.size - st->data_at, err);
    json_free(doc);
    return rc;
}

int st_open(St *st, const char *path, Err *err) {
    *st = (St){ .reader = reader_open(path) };
    snprintf(st->path, sizeof st->path, "%s", path);
    const int rc = read_header(st, err);
    if (rc) st_close(st);
    return rc;
}

// ---- writing

static void put_tensor(JsonOut *j, const StTensor *t) {
    json_open_object(j, t->name);
    json_put_string(j, "dtype", st_type_name(t->type));
    json_open_array(j, "shape");
    for (int i = 0; i < t->rank; i++) json_put_uint(j, NULL, t->shape[i]);
    json_close(j);
    json_open_array(j, "data_offsets");
    json_put_uint(j, NULL, t->begin);
    json_put_uint(j, NULL, t->begin + t->bytes);
    json_close(j);
    json_close(j);
}

static void write_header(StWriter *w) {
    JsonOut j = { 0 };
    json_open_object(&j, NULL);
    if (w->n_meta) json_open_object(&j, "__metadata__");
    for (int i = 0; i < w->n_meta; i++) json_put_string(&j, w->meta[2 * i], w->meta[2 * i + 1]);
    if (w->n_meta) json_close(&j);
    for (int i = 0; i < w->n; i++) put_tensor(&j, &w->t[i]);
    json_close(&j);
    size_t n;
    char *text = json_finish(&j, &n, &w->w.err);
    if (!text) {
        w->w.failed = 1;
        return;
    }
    const uint64_t padded = (n + 7) / 8 * 8;
    write_bytes(&w->w, &padded, sizeof padded);
    write_bytes(&w->w, text, n);
    write_bytes(&w->w, "       ", padded - n);
    free(text);
}

static void write_data(StWriter *w, const void *data, size_t bytes) {
    write_bytes(&w->w, data, bytes);
}

StWriter st_create(const char *path) {
    static const StFormat format = { .head = write_header, .data = write_data };
    return (StWriter){ .format = &format, .w = writer_open(path) };
}
