// safetensors.c - see safetensors.h.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors files are little-endian and read as they are: not on this host");

#include "base/safetensors.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100 * 1000 * 1000, MAX_DEPTH = 8 };    // the reference implementation's bound

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [ST_F64] = { "F64", 8 }, [ST_F32] = { "F32", 4 }, [ST_F16] = { "F16", 2 },
    [ST_BF16] = { "BF16", 2 }, [ST_I64] = { "I64", 8 }, [ST_I32] = { "I32", 4 },
    [ST_U8] = { "U8", 1 },
};
enum { N_TYPES = sizeof types / sizeof *types };

size_t st_type_size(StType type) { return types[type].size; }

// ---- number formats

static uint32_t bits_of(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

uint16_t f32_to_f16(float v) {
    const uint32_t u = bits_of(v), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));   // NaN stays NaN
    if (mag >= 0x477ff000) return (uint16_t)(sign | 0x7c00);                        // from 65520 on
    if (mag < 0x38800000)      // below 2^-14: 0.5 is spaced as f16's subnormals are, the sum rounds
        return (uint16_t)(sign | (bits_of(float_of(mag) + 0.5f) - bits_of(0.5f)));
    return (uint16_t)(sign | ((mag - 0x38000000 + 0xfff + (mag >> 13 & 1)) >> 13));
}

float f16_to_f32(uint16_t v) {
    const uint32_t sign = (uint32_t)(v & 0x8000) << 16;
    const uint32_t exponent = v >> 10 & 31, fraction = v & 0x3ff;
    if (exponent == 0) return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t f32_to_bf16(float v) {
    const uint32_t u = bits_of(v);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);           // NaN stays NaN
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float bf16_to_f32(uint16_t v) { return float_of((uint32_t)v << 16); }

// ---- reading

static int shape_bytes(StType type, int rank, const uint64_t *shape, uint64_t *bytes) {
    *bytes = types[type].size;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(*bytes, shape[i], bytes)) return -1;
    return 0;
}

static int bad(const St *st, const StTensor *t, const char *what, Err *err) {
    return err_set(err, ERR_DATA, "%s: tensor %s: %s", st->path, t->name, what);
}

static int parse_type(const St *st, StTensor *t, const Json *j, Err *err) {
    const char *dtype = json_string(j);
    if (!dtype) return bad(st, t, "dtype is not a string", err);
    for (int i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].name, dtype)) continue;
        t->type = (StType)i;
        return 0;
    }
    return err_set(err, ERR_DATA,
                   "%s: tensor %s: dtype %s, expected F64, F32, F16, BF16, I64, I32 "
                   "or U8",
                   st->path, t->name, dtype);
}

static int parse_shape(const St *st, StTensor *t, const Json *j, Err *err) {
    if (json_kind(j) != JSON_ARRAY) return bad(st, t, "shape is not a list", err);
    for (const Json *m = json_first(j); m; m = json_next(m)) {
        if (t->rank == ST_MAX_RANK)
            return err_set(err, ERR_DATA, "%s: tensor %s: %zu dimensions, expected at most %d",
                           st->path, t->name, json_count(j), ST_MAX_RANK);
        if (json_u64(m, &t->shape[t->rank++]))
            return bad(st, t, "shape holds what is not a whole number from 0 to 2^53-1", err);
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
                       ", expected within the file's %" PRIu64 " bytes of data",
                       st->path, t->name, t->begin, end, data_bytes);
    t->bytes = end - t->begin;
    if (shape_bytes(t->type, t->rank, t->shape, &need))
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
                   "%s: %" PRIu64 " bytes of data, expected %" PRIu64 " by the header", st->path,
                   data_bytes, end);
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
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, expected a safetensors file",
                       st->path, st->reader.size);
    uint64_t n;
    read_bytes(&st->reader, &n, sizeof n);
    const uint64_t rest = st->reader.size - 8, most = rest < MAX_HEADER ? rest : MAX_HEADER;
    if (n > most)
        return err_set(err, ERR_DATA,
                       "%s: a safetensors header of %" PRIu64 " bytes, expected at most %" PRIu64,
                       st->path, n, most);
    char *text = malloc((size_t)n + 1);
    if (!text) return err_set(err, ERR_MEM, "%s: out of memory for %" PRIu64 " bytes", st->path, n);
    read_bytes(&st->reader, text, (size_t)n);
    Json *doc = NULL;
    int rc = read_failed(st, err) || json_parse(&doc, text, (size_t)n, MAX_DEPTH, st->path, err);
    free(text);
    st->data_at = 8 + n;
    rc = rc || parse_header(st, doc, st->reader.size - st->data_at, err) ? -1 : 0;
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

void st_close(St *st) {
    reader_close(&st->reader, NULL);
    arena_free(&st->arena);
    st->n = st->n_meta = 0;
    st->t = NULL;
    st->meta = NULL;
}

const StTensor *st_find(const St *st, const char *name) {
    for (int i = 0; i < st->n; i++)
        if (!strcmp(st->t[i].name, name)) return &st->t[i];
    return NULL;
}

const char *st_meta(const St *st, const char *key) {
    for (int i = 0; i < st->n_meta; i++)
        if (!strcmp(st->meta[2 * i], key)) return st->meta[2 * i + 1];
    return NULL;
}

int st_read_raw(St *st, const StTensor *t, void *dst, uint64_t bytes, Err *err) {
    if (t->bytes != bytes)
        return err_set(err, ERR_DATA, "%s: tensor %s: %" PRIu64 " bytes, expected %" PRIu64,
                       st->path, t->name, t->bytes, bytes);
    reader_seek(&st->reader, st->data_at + t->begin);
    read_bytes(&st->reader, dst, (size_t)bytes);
    return read_failed(st, err);
}

static double value_at(StType type, const unsigned char *p) {
    union {
        double d;
        float f;
        uint16_t h;
    } v = { 0 };
    memcpy(&v, p, types[type].size);
    switch (type) {
    case ST_F64: return v.d;
    case ST_F32: return (double)v.f;
    case ST_F16: return (double)f16_to_f32(v.h);
    default:     return (double)bf16_to_f32(v.h);
    }
}

// Into f or d, whichever is not NULL. All smaller types' values are doubles: there is one rounding.
static int read_values(St *st, const StTensor *t, float *f, double *d, uint64_t count, Err *err) {
    const size_t size = types[t->type].size;
    if (t->type > ST_BF16)
        return err_set(err, ERR_DATA, "%s: tensor %s: dtype %s, expected F64, F32, F16 or BF16",
                       st->path, t->name, types[t->type].name);
    if (t->bytes / size != count)
        return err_set(err, ERR_DATA, "%s: tensor %s: %" PRIu64 " elements, expected %" PRIu64,
                       st->path, t->name, t->bytes / size, count);
    unsigned char part[16384];
    reader_seek(&st->reader, st->data_at + t->begin);
    for (uint64_t i = 0; i < count;) {
        const uint64_t left = count - i, most = sizeof part / size, n = left < most ? left : most;
        read_bytes(&st->reader, part, n * size);
        for (uint64_t k = 0; k < n; k++, i++) {
            const double v = value_at(t->type, part + k * size);
            if (f) f[i] = (float)v;
            else d[i] = v;
        }
    }
    return read_failed(st, err);
}

int st_read_f32(St *st, const StTensor *t, float *dst, uint64_t count, Err *err) {
    return read_values(st, t, dst, NULL, count, err);
}

int st_read_f64(St *st, const StTensor *t, double *dst, uint64_t count, Err *err) {
    return read_values(st, t, NULL, dst, count, err);
}

// ---- writing

static void fail(StWriter *w, ErrKind kind, const char *name, const char *why) {
    err_set(&w->w.err, kind, "%s: tensor %s: %s", w->w.path, name, why);
    w->w.failed = 1;
}

StWriter st_create(const char *path) { return (StWriter){ .w = writer_open(path) }; }

// The outgrown array stays in the arena: it is small, and gone with the writer.
static void *grown(StWriter *w, const void *old, int n, int *cap, size_t size) {
    if (n < *cap) return (void *)old;
    *cap = 2 * n + 64;
    void *bigger = arena_alloc(&w->arena, (size_t)*cap, size);
    if (arena_ok(&w->arena, w->w.path, &w->w.err)) w->w.failed = 1;
    else if (n) memcpy(bigger, old, (size_t)n * size);
    return bigger;
}

static const char *kept(StWriter *w, const char *s) {
    const char *copy = arena_strdup(&w->arena, s);
    if (arena_ok(&w->arena, w->w.path, &w->w.err)) w->w.failed = 1;
    return copy;
}

void st_meta_add(StWriter *w, const char *key, const char *value) {
    if (w->w.failed) return;
    if (w->started) {
        fail(w, ERR_ARG, "__metadata__", "added after the first data");
        return;
    }
    w->meta = grown(w, w->meta, w->n_meta, &w->cap_meta, 2 * sizeof *w->meta);
    if (w->w.failed) return;
    w->meta[2 * w->n_meta] = kept(w, key);
    w->meta[2 * w->n_meta++ + 1] = kept(w, value);
}

void st_declare(StWriter *w, const char *name, StType type, int rank, const uint64_t *shape) {
    if (w->w.failed) return;
    StTensor t = { .type = type, .rank = rank };
    if (w->n) t.begin = w->t[w->n - 1].begin + w->t[w->n - 1].bytes;
    if (w->started) fail(w, ERR_ARG, name, "declared after the first data");
    else if (rank < 0 || rank > ST_MAX_RANK) fail(w, ERR_ARG, name, "too many dimensions");
    else if (shape_bytes(type, rank, shape, &t.bytes) || t.begin + t.bytes >= (uint64_t)1 << 53)
        fail(w, ERR_ARG, name, "too large");
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->t[i].name, name)) fail(w, ERR_ARG, name, "declared twice");
    if (w->w.failed) return;
    if (rank) memcpy(t.shape, shape, (size_t)rank * sizeof *shape);
    t.name = kept(w, name);
    w->t = grown(w, w->t, w->n, &w->cap, sizeof *w->t);
    if (!w->w.failed) w->t[w->n++] = t;
}

static void put_tensor(JsonOut *j, const StTensor *t) {
    json_open_object(j, t->name);
    json_put_string(j, "dtype", types[t->type].name);
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
    w->started = 1;
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
    w->data_at = w->w.at;
}

// How much of tensor `at` is still to come; goes on to the next one that has any.
static uint64_t still_to_come(StWriter *w) {
    for (; w->at < w->n; w->at++) {
        const uint64_t left = w->data_at + w->t[w->at].begin + w->t[w->at].bytes - w->w.at;
        if (left) return left;
    }
    return 0;
}

void st_write(StWriter *w, const void *data, size_t bytes) {
    if (!w->started && !w->w.failed) write_header(w);
    if (w->w.failed || bytes == 0) return;
    if (bytes <= still_to_come(w)) write_bytes(&w->w, data, bytes);
    else fail(w, ERR_ARG, w->at < w->n ? w->t[w->at].name : "(end)", "more data than declared");
}

int st_finish(StWriter *w, Err *err) {
    st_write(w, NULL, 0);                        // a file may hold no data
    if (!w->w.failed && still_to_come(w))
        fail(w, ERR_ARG, w->t[w->at].name, "less data than declared");
    const int rc = writer_close(&w->w, err);
    arena_free(&w->arena);
    w->t = NULL;
    w->meta = NULL;
    return rc;
}
