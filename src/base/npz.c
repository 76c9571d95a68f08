// npz.c - see npz.h. NumPy's lib/format.py describes an array's header: a magic number, a version,
// a length, and a Python dictionary as text.
#include "base/npz.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 65536, ALIGN = 64 };
static const char magic[] = "\x93NUMPY";

static const char *const descr_of[ST_N_TYPES] = {
    [ST_F64] = "<f8", [ST_F32] = "<f4", [ST_F16] = "<f2", [ST_I64] = "<i8", [ST_I32] = "<i4",
    [ST_I16] = "<i2", [ST_I8] = "|i1",  [ST_U8] = "|u1",  [ST_BOOL] = "|b1",
};

static const char *const word_of[ST_N_TYPES] = {
    [ST_F64] = "float64", [ST_F32] = "float32", [ST_F16] = "float16",
    [ST_I64] = "int64",   [ST_I32] = "int32",   [ST_I16] = "int16",
    [ST_I8] = "int8",     [ST_U8] = "uint8",    [ST_BOOL] = "bool",
};

const char *npz_shape(const NpzArray *a, char dst[128]) {
    int n = snprintf(dst, 128, "%s%s", word_of[a->type], a->rank ? " " : "");
    for (int i = 0; i < a->rank && n < 128; i++)
        n += snprintf(dst + n, 128 - (size_t)n, "[%" PRIu64 "]", a->shape[i]);
    return dst;
}

static int bad(const Zip *z, const char *name, const char *what, Err *err) {
    return err_set(err, ERR_DATA, "%s: array %s: %s", z->path, name, what);
}

// ---- the header's text: {'descr': '|u1', 'fortran_order': False, 'shape': (10, 3), }

static void skip_space(const char **p) { *p += strspn(*p, " \t\n"); }

static int take(const char **p, const char *word) {
    skip_space(p);
    const size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0) return 0;
    *p += n;
    return 1;
}

// 'text' or "text", of less than n bytes.
static int take_string(const char **p, char *dst, size_t n) {
    skip_space(p);
    const char quote = **p;
    if (quote != '\'' && quote != '"') return 0;
    const char *end = strchr(*p + 1, quote);
    if (!end || (size_t)(end - *p) > n) return 0;
    memcpy(dst, *p + 1, (size_t)(end - *p) - 1);
    dst[end - *p - 1] = 0;
    *p = end + 1;
    return 1;
}

static int take_shape(const char **p, NpzArray *a) {
    if (!take(p, "(")) return 0;
    for (a->rank = 0; !take(p, ")");) {
        char *end;
        skip_space(p);
        if (a->rank == ST_MAX_RANK || **p < '0' || **p > '9') return 0;
        a->shape[a->rank++] = strtoull(*p, &end, 10);
        if (end - *p > 18) return 0;
        *p = end;
        take(p, "L");                                       // of Python 2
        if (!take(p, ",")) return take(p, ")");
    }
    return 1;
}

static int parse_type(const Zip *z, NpzArray *a, const char *descr, Err *err) {
    for (int i = 0; i < ST_N_TYPES; i++) {
        if (!descr_of[i] || strcmp(descr_of[i] + 1, descr + (*descr != 0)) != 0) continue;
        if (descr[0] == '>' && st_type_size((StType)i) > 1)
            return err_set(err, ERR_DATA, "%s: array %s: big-endian (%s), expected little-endian",
                           z->path, a->name, descr);
        if (!strchr("<|=>", descr[0])) break;
        a->type = (StType)i;
        return 0;
    }
    return err_set(err, ERR_DATA,
                   "%s: array %s: type '%s', expected numbers of a simple type, as |u1 or <f8",
                   z->path, a->name, descr);
}

static int parse_header(const Zip *z, NpzArray *a, const char *text, Err *err) {
    char key[16], descr[16];
    int seen = 0;                                           // a bit for each of the three
    const char *p = text;
    if (!take(&p, "{")) return bad(z, a->name, "damaged header", err);
    while (!take(&p, "}")) {
        int ok = take_string(&p, key, sizeof key) && take(&p, ":"), what = 0;
        if (ok && !strcmp(key, "descr")) {
            skip_space(&p);
            if (*p == '[') return bad(z, a->name, "a structured type, which is not read", err);
            what = 1, ok = take_string(&p, descr, sizeof descr);
        } else if (ok && !strcmp(key, "fortran_order")) {
            what = 2, a->fortran = take(&p, "True");
            ok = a->fortran || take(&p, "False");
        } else if (ok && !strcmp(key, "shape")) {
            what = 4, ok = take_shape(&p, a);
        }
        if (!ok || !what || seen & what) return bad(z, a->name, "damaged header", err);
        seen |= what;
        if (!take(&p, ",")) {
            if (!take(&p, "}")) return bad(z, a->name, "damaged header", err);
            break;
        }
    }
    return seen == 7 ? parse_type(z, a, descr, err) : bad(z, a->name, "damaged header", err);
}

// ---- reading

static void entry_name(char dst[96], const char *name) { snprintf(dst, 96, "%.64s.npy", name); }

int npz_has(const Zip *z, const char *name) {
    char entry[96];
    entry_name(entry, name);
    return zip_find(z, entry) != NULL;
}

static int read_header(ZipStream *s, Zip *z, NpzArray *a, Err *err) {
    uint8_t head[12];
    if (zip_read(s, head, 10, err)) return -1;
    if (memcmp(head, magic, 6) != 0 || head[6] < 1 || head[6] > 3)
        return bad(z, a->name, "not in NumPy's format of version 1 to 3", err);
    size_t n = head[8] | (size_t)head[9] << 8;
    a->head = 10;
    if (head[6] > 1) {
        if (zip_read(s, head + 10, 2, err)) return -1;
        n |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        a->head = 12;
    }
    if (n > MAX_HEADER) return bad(z, a->name, "a header of more than 65536 bytes", err);
    char *text = malloc(n + 1);
    if (!text) return err_set(err, ERR_MEM, "%s: out of memory for a header", z->path);
    int rc = zip_read(s, text, n, err);
    text[n] = 0;
    if (!rc) rc = parse_header(z, a, text, err);
    a->head += n;
    free(text);
    return rc;
}

static int no_array(const Zip *z, const char *name, Err *err) {
    err_set(err, ERR_DATA, "%s: there is no array '%s'", z->path, name);
    if (z->n) err_append(err, "; found %.80s%s", z->e[0].name, z->n > 1 ? ", ..." : "");
    return -1;
}

int npz_find(Zip *z, const char *name, NpzArray *a, Err *err) {
    char entry[96];
    ZipStream s;
    *a = (NpzArray){ 0 };
    snprintf(a->name, sizeof a->name, "%s", name);
    entry_name(entry, name);
    if (!(a->entry = zip_find(z, entry))) return no_array(z, name, err);
    int rc = zip_begin(&s, z, a->entry, err) || read_header(&s, z, a, err);
    zip_cancel(&s);                                         // the numbers come later
    if (rc) return -1;
    if (st_shape_bytes(a->type, a->rank, a->shape, &a->bytes))
        return bad(z, name, "a shape too large for any file", err);
    a->count = a->bytes / st_type_size(a->type);
    if (a->bytes == a->entry->bytes - a->head) return 0;
    return err_set(err, ERR_DATA,
                   "%s: array %s: %" PRIu64 " bytes, expected %" PRIu64 " by its shape and type",
                   z->path, name, a->entry->bytes - a->head, a->bytes);
}

// From the first index fastest to the last.
static void reorder(const NpzArray *a, const uint8_t *src, uint8_t *dst) {
    const size_t size = st_type_size(a->type);
    uint64_t stride[ST_MAX_RANK], index[ST_MAX_RANK] = { 0 }, at = 0;
    for (int i = 0; i < a->rank; i++) stride[i] = i ? stride[i - 1] * a->shape[i - 1] : 1;
    for (uint64_t k = 0; k < a->count; k++) {
        memcpy(dst + k * size, src + at * size, size);
        for (int i = a->rank; i-- > 0;) {
            at += stride[i];
            if (++index[i] < a->shape[i]) break;
            at -= a->shape[i] * stride[i];
            index[i] = 0;
        }
    }
}

static int read_numbers(Zip *z, const NpzArray *a, void *dst, Err *err) {
    ZipStream s;
    uint8_t part[4096];
    int rc = zip_begin(&s, z, a->entry, err);
    for (uint64_t left = a->head, n; !rc && left; left -= n) {
        n = left < sizeof part ? left : sizeof part;
        rc = zip_read(&s, part, (size_t)n, err);
    }
    if (!rc) rc = zip_read(&s, dst, (size_t)a->bytes, err);
    return zip_end(&s, err) || rc;
}

int npz_read(Zip *z, const NpzArray *a, void *dst, Err *err) {
    if (!a->fortran || a->rank < 2) return read_numbers(z, a, dst, err);
    uint8_t *raw = malloc((size_t)a->bytes + 1);
    if (!raw) return err_set(err, ERR_MEM, "%s: array %s: out of memory", z->path, a->name);
    const int rc = read_numbers(z, a, raw, err);
    if (!rc) reorder(a, raw, dst);
    free(raw);
    return rc;
}

int npz_read_f64(Zip *z, const NpzArray *a, double *dst, Err *err) {
    if (a->type > ST_F16)
        return err_set(err, ERR_DATA, "%s: array %s: type %s, expected <f8, <f4 or <f2", z->path,
                       a->name, descr_of[a->type]);
    uint8_t *raw = malloc((size_t)a->bytes + 1);
    if (!raw) return err_set(err, ERR_MEM, "%s: array %s: out of memory", z->path, a->name);
    const int rc = npz_read(z, a, raw, err);
    const size_t size = st_type_size(a->type);
    for (uint64_t i = 0; !rc && i < a->count; i++) {
        float single;
        uint16_t half;
        memcpy(&single, raw + i * size, size < 4 ? size : 4);
        memcpy(&half, raw + i * size, 2);
        if (a->type == ST_F64) memcpy(&dst[i], raw + i * size, 8);
        else dst[i] = (double)(a->type == ST_F32 ? single : f16_to_f32(half));
    }
    free(raw);
    return rc;
}

// ---- writing

void npz_create(NpzWriter *n, const char *path, int deflated) {
    *n = (NpzWriter){ .w = writer_open(path), .deflated = deflated };
    n->zip.w = &n->w;
}

void npz_add(NpzWriter *n, const char *name, StType type, int rank, const uint64_t *shape) {
    char text[512], entry[96];
    uint64_t bytes;
    if (n->w.failed) return;
    if (!descr_of[type] || rank < 0 || rank > ST_MAX_RANK ||
        st_shape_bytes(type, rank, shape, &bytes)) {
        err_set(&n->w.err, ERR_ARG, "%s: array %s cannot be written", n->w.path, name);
        n->w.failed = 1;
        return;
    }
    int len = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                       descr_of[type]);
    for (int i = 0; i < rank; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%" PRIu64 ",%s", shape[i],
                        i + 1 < rank ? " " : "");
    len += snprintf(text + len, sizeof text - (size_t)len, "), }");
    while ((10 + len + 1) % ALIGN) text[len++] = ' ';       // the numbers are aligned
    text[len++] = '\n';
    const uint8_t head[10] = { 0x93, 'N', 'U', 'M',          'P',
                               'Y',  1,   0,   (uint8_t)len, (uint8_t)(len >> 8) };
    entry_name(entry, name);
    zip_add(&n->zip, entry, sizeof head + (uint64_t)len + bytes, 1, n->deflated);
    zip_put(&n->zip, head, sizeof head);
    zip_put(&n->zip, text, (size_t)len);
}

void npz_write(NpzWriter *n, const void *data, size_t bytes) {
    if (bytes && !n->w.failed) zip_put(&n->zip, data, bytes);
}

int npz_finish(NpzWriter *n, Err *err) {
    zip_finish(&n->zip);
    return writer_close(&n->w, err);
}
