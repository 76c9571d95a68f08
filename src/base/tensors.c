// tensors.c - see tensors.h.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors in files are little-endian and read as they are: not on this host");

#include "base/file_kind.h"
#include "base/safetensors.h"
#include "base/torch_file.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[ST_N_TYPES] = {
    [ST_F64] = { "F64", 8 }, [ST_F32] = { "F32", 4 }, [ST_F16] = { "F16", 2 },
    [ST_BF16] = { "BF16", 2 }, [ST_I64] = { "I64", 8 }, [ST_I32] = { "I32", 4 },
    [ST_I16] = { "I16", 2 }, [ST_I8] = { "I8", 1 }, [ST_U8] = { "U8", 1 },
    [ST_BOOL] = { "BOOL", 1 },
};

size_t st_type_size(StType type) { return types[type].size; }
const char *st_type_name(StType type) { return types[type].name; }

int st_shape_bytes(StType type, int rank, const uint64_t *shape, uint64_t *bytes) {
    *bytes = types[type].size;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(*bytes, shape[i], bytes)) return -1;
    return 0;
}

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

float bf16_to_f32(uint16_t v) { return float_of((uint32_t)v << 16); }

// ---- reading

int tensors_open(St *st, const char *path, Err *err) {
    if (tensors_expected(path, "tensors (.safetensors, .pt)", err)) return -1;
    return torch_is(path) ? torch_open(st, path, err) : st_open(st, path, err);
}

static int read_failed(const St *st, Err *err) {
    return st->reader.failed ? err_set(err, st->reader.err.kind, "%s", st->reader.err.msg) : 0;
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

// Elements that lie out of order are put in order: the part of the file that they lie in is read
// whole.
static int read_strided(St *st, const StTensor *t, unsigned char *dst, Err *err) {
    const size_t size = types[t->type].size, count = (size_t)t->bytes / size;
    uint64_t span = 1, at = 0, index[ST_MAX_RANK] = { 0 };
    for (int i = 0; i < t->rank; i++) span += t->shape[i] ? (t->shape[i] - 1) * t->stride[i] : 0;
    unsigned char *all = malloc((size_t)span * size);
    if (!all) return err_set(err, ERR_MEM, "%s: tensor %s: out of memory", st->path, t->name);
    reader_seek(&st->reader, st->data_at + t->begin);
    read_bytes(&st->reader, all, (size_t)span * size);
    for (size_t k = 0; k < count; k++) {
        memcpy(dst + k * size, all + at * size, size);
        for (int i = t->rank; i-- > 0;) {
            at += t->stride[i];
            if (++index[i] < t->shape[i]) break;
            at -= t->shape[i] * t->stride[i];
            index[i] = 0;
        }
    }
    free(all);
    return read_failed(st, err);
}

int st_read_raw(St *st, const StTensor *t, void *dst, uint64_t bytes, Err *err) {
    if (t->bytes != bytes)
        return err_set(err, ERR_DATA, "%s: tensor %s: %" PRIu64 " bytes, expected %" PRIu64,
                       st->path, t->name, t->bytes, bytes);
    if (t->strided) return bytes ? read_strided(st, t, dst, err) : 0;
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

// Into f or d at i, whichever is not NULL. All smaller types' values are doubles: there is one
// rounding.
static void convert(const StTensor *t, const unsigned char *src, float *f, double *d, uint64_t i,
                    uint64_t n) {
    for (uint64_t k = 0; k < n; k++, i++) {
        const double v = value_at(t->type, src + k * types[t->type].size);
        if (f) f[i] = (float)v;
        else d[i] = v;
    }
}

static int read_in_order(St *st, const StTensor *t, float *f, double *d, Err *err) {
    unsigned char part[16384];
    const uint64_t size = types[t->type].size, count = t->bytes / size, most = sizeof part / size;
    reader_seek(&st->reader, st->data_at + t->begin);
    for (uint64_t i = 0, n; i < count; i += n) {
        n = count - i < most ? count - i : most;
        read_bytes(&st->reader, part, n * size);
        convert(t, part, f, d, i, n);
    }
    return read_failed(st, err);
}

static int read_values(St *st, const StTensor *t, float *f, double *d, uint64_t count, Err *err) {
    const size_t size = types[t->type].size;
    if (t->type > ST_BF16)
        return err_set(err, ERR_DATA, "%s: tensor %s: dtype %s, expected F64, F32, F16 or BF16",
                       st->path, t->name, types[t->type].name);
    if (t->bytes / size != count)
        return err_set(err, ERR_DATA, "%s: tensor %s: %" PRIu64 " elements, expected %" PRIu64,
                       st->path, t->name, t->bytes / size, count);
    if (!t->strided) return read_in_order(st, t, f, d, err);
    unsigned char *raw = malloc((size_t)t->bytes + 1);
    if (!raw) return err_set(err, ERR_MEM, "%s: tensor %s: out of memory", st->path, t->name);
    const int rc = st_read_raw(st, t, raw, t->bytes, err);
    if (!rc) convert(t, raw, f, d, 0, count);
    free(raw);
    return rc;
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
    else if (st_shape_bytes(type, rank, shape, &t.bytes) || t.begin + t.bytes >= (uint64_t)1 << 53)
        fail(w, ERR_ARG, name, "too large");
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->t[i].name, name)) fail(w, ERR_ARG, name, "declared twice");
    if (w->w.failed) return;
    if (rank) memcpy(t.shape, shape, (size_t)rank * sizeof *shape);
    t.name = kept(w, name);
    w->t = grown(w, w->t, w->n, &w->cap, sizeof *w->t);
    if (!w->w.failed) w->t[w->n++] = t;
}

// Bytes of tensor `at` that are still to be written; moves on to the next tensor that has any.
static uint64_t still_to_come(StWriter *w) {
    for (; w->at < w->n; w->at++, w->given = 0)
        if (w->t[w->at].bytes > w->given) return w->t[w->at].bytes - w->given;
    return 0;
}

uint64_t st_bytes(const StWriter *w) {
    return w->n ? w->t[w->n - 1].begin + w->t[w->n - 1].bytes : 0;
}

void st_hold(StWriter *w, void *memory) {
    w->held = memory;
    w->held_room = (size_t)st_bytes(w);
}

void *st_next(StWriter *w, size_t bytes) {
    if (w->w.failed || !w->held) return NULL;
    if (bytes > w->held_room - w->n_held) {
        fail(w, ERR_ARG, "(end)", "more data than declared");
        return NULL;
    }
    w->n_held += bytes;
    return w->held + w->n_held - bytes;
}

static void write_held(StWriter *w) {
    const unsigned char *data = w->held;
    size_t left = w->n_held;
    w->held = NULL;
    while (left && !w->w.failed) {
        const uint64_t whole = still_to_come(w);
        const size_t n = whole && whole < left ? (size_t)whole : left;
        st_write(w, data, n);
        data += n;
        left -= n;
    }
}

void st_write(StWriter *w, const void *data, size_t bytes) {
    if (w->held) {
        void *to = st_next(w, bytes);
        if (to && bytes) memcpy(to, data, bytes);
        return;
    }
    if (!w->started && !w->w.failed) {
        w->started = 1;
        w->format->head(w);
    }
    if (w->w.failed || bytes == 0) return;
    if (bytes > still_to_come(w)) {
        fail(w, ERR_ARG, w->at < w->n ? w->t[w->at].name : "(end)", "more data than declared");
        return;
    }
    w->format->data(w, data, bytes);
    w->given += bytes;
}

static void forget(StWriter *w) {
    arena_free(&w->arena);
    w->t = NULL;
    w->meta = NULL;
}

void st_cancel(StWriter *w) {
    writer_cancel(&w->w);
    forget(w);
}

int st_finish(StWriter *w, Err *err) {
    if (w->held) write_held(w);
    st_write(w, NULL, 0);                        // a file may hold no data
    if (!w->w.failed && still_to_come(w))
        fail(w, ERR_ARG, w->t[w->at].name, "less data than declared");
    if (w->format->tail) w->format->tail(w);
    const int rc = writer_close(&w->w, err);
    forget(w);
    return rc;
}
