// svhn.c - SVHN's cropped digits: two arrays in a MATLAB 5 file; see formats.h.
//
// A file is a head of 128 bytes, then arrays as elements: type, size, data. An array may be
// deflated; its data are elements again: flags, dimensions, name, numbers. All of it is
// little-endian.
#include "base/file.h"
#include "data/formats.h"
#include "base/deflate.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAT_HEAD = 128, MAT_MAX_BYTES = 512 << 20 };
enum { MAT_UINT8 = 2, MAT_INT32 = 5, MAT_UINT32 = 6, MAT_DOUBLE = 9, MAT_ARRAY = 14, MAT_DEFLATED };

typedef struct {
    uint32_t type;
    size_t n;
    const uint8_t *p;
} Element;
typedef struct {
    char name; // 0 for one of more letters
    int kind;  // MATLAB's class, and above it the flag for complex numbers
    size_t rank;
    uint32_t dim[4];
    Element numbers;
    uint8_t *owned; // what was inflated, or NULL
} Array;

static uint32_t word_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Takes the next element off [*at, end); 0 where there is no whole one. Up to 4 bytes of data may
// share 8 bytes with type and size; all but deflated data are padded to a multiple of 8.
static int next_element(const uint8_t **at, const uint8_t *end, Element *e) {
    const size_t left = (size_t)(end - *at);
    if (left < 8) return 0;
    const uint32_t word = word_at(*at), small = word >> 16;
    *e = small ? (Element){ word & 0xffff, small, *at + 4 }
               : (Element){ word, word_at(*at + 4), *at + 8 };
    if (small > 4 || (!small && e->n > left - 8)) return 0;
    const size_t step = small ? 8 : 8 + e->n + (word == MAT_DEFLATED ? 0 : -e->n % 8);
    *at += step < left ? step : left;
    return 1;
}

// The element that a deflated one holds: type, size, data. NULL where it is damaged.
static uint8_t *inflate_array(const Element *e) {
    uint8_t head[8];
    if (inflate_bytes(e->p, e->n, head, sizeof head, 0)) return NULL;
    const size_t size = word_at(head + 4);
    if (size == 0 || size > e->n * DEFLATE_MAX_RATIO) return NULL;
    uint8_t *out = malloc(sizeof head + size);
    if (out && !inflate_bytes(e->p, e->n, out, sizeof head + size, 1)) return out;
    free(out);
    return NULL;
}

// Takes an array apart; 0 where it is damaged. a->owned is the caller's to free in any case.
static int parse_array(Array *a, Element e) {
    if (e.type == MAT_DEFLATED) {
        const uint8_t *in = a->owned = inflate_array(&e);
        if (!in || !next_element(&in, in + 8 + word_at(in + 4), &e)) return 0;
    }
    Element flags, dims, name;
    const uint8_t *at = e.p, *end = e.p + e.n;
    if (e.type != MAT_ARRAY || !next_element(&at, end, &flags) || !next_element(&at, end, &dims) ||
        !next_element(&at, end, &name) || !next_element(&at, end, &a->numbers) || at != end)
        return 0;
    if (flags.type != MAT_UINT32 || flags.n != 8 || dims.type != MAT_INT32) return 0;
    a->name = name.n == 1 ? (char)*name.p : 0;
    a->kind = (int)(word_at(flags.p) & 0xffff);
    a->rank = dims.n / 4;
    for (size_t i = 0; i < a->rank && i < 4; i++) a->dim[i] = word_at(dims.p + 4 * i);
    return 1;
}

// MATLAB's arrays run down the columns first; ours along the rows.
static int svhn_pictures(Set *s, const Array *a, const char *path, Err *err) {
    const uint32_t *d = a->dim;
    const int shape_ok = a->rank == 4 && d[0] == 32 && d[1] == 32 && d[2] == 3 && d[3] > 0;
    if (!shape_ok || a->kind != 9 || a->numbers.type != MAT_UINT8)
        return err_set(err, ERR_DATA, "%s: X is not an array of 32 x 32 x 3 x n bytes", path);
    if (a->numbers.n != (uint64_t)d[3] * CIFAR_PIXELS)
        return err_set(err, ERR_DATA, "%s: X has %zu bytes for %" PRIu32 " pictures", path,
                       a->numbers.n, d[3]);
    if (set_alloc(s, d[3], err)) return -1;
    const uint8_t *from = a->numbers.p;
    for (size_t plane = 0; plane < s->n * 3; plane++, from += 1024)
        for (size_t i = 0; i < 1024; i++) s->x[plane * 1024 + i] = from[i % 32 * 32 + i / 32];
    return 0;
}

// Labels are bytes, or doubles that MATLAB may have stored as bytes.
static int svhn_labels(Set *s, const Array *a, const char *path, Err *err) {
    const size_t width = a->numbers.type == MAT_DOUBLE ? 8 : 1;
    if (a->numbers.type != MAT_DOUBLE && a->numbers.type != MAT_UINT8)
        return err_set(err, ERR_DATA, "%s: y is not an array of bytes or doubles", path);
    if (a->numbers.n != s->n * width)
        return err_set(err, ERR_DATA, "%s: y has %zu labels, X %zu pictures", path,
                       a->numbers.n / width, s->n);
    for (size_t i = 0; i < s->n; i++) {
        double y = a->numbers.p[i * width];
        if (width == 8) memcpy(&y, a->numbers.p + i * 8, 8);
        if (!(y >= 1 && y <= 10) || y != (int)y) return bad_label(path, i, y, 1, 10, err);
        s->y[i] = (int)y % 10;
    }
    return 0;
}

static int read_arrays(Set *s, const uint8_t *data, size_t n, Array *x, Array *y, const char *path,
                       Err *err) {
    if (n < MAT_HEAD || memcmp(data, "MATLAB 5.0", 10) || memcmp(data + 124, "\x00\x01IM", 4))
        return err_set(err, ERR_DATA, "%s: not a MATLAB 5 file", path);
    for (const uint8_t *at = data + MAT_HEAD; at < data + n;) {
        const size_t offset = (size_t)(at - data);
        Element e;
        Array a = { 0 };
        const int whole = next_element(&at, data + n, &e) && parse_array(&a, e);
        Array *place = a.name == 'X' ? x : a.name == 'y' ? y : NULL;
        if (whole && place && !place->numbers.p) *place = a;
        else free(a.owned);
        if (!whole)
            return err_set(err, ERR_DATA, "%s: the array at byte %zu is damaged", path, offset);
    }
    if (!x->numbers.p || !y->numbers.p)
        return err_set(err, ERR_DATA, "%s: no variable '%s'", path, x->numbers.p ? "y" : "X");
    return svhn_pictures(s, x, path, err) || svhn_labels(s, y, path, err);
}

int read_svhn(Set *s, const char *path, Err *err) {
    char *data;
    size_t n;
    if (file_read(path, MAT_MAX_BYTES, &data, &n, err)) return -1;
    Array x = { 0 }, y = { 0 };
    const int rc = read_arrays(s, (const uint8_t *)data, n, &x, &y, path, err);
    free(x.owned);
    free(y.owned);
    free(data);
    return rc;
}

// The arrays' sizes, one after another, must end where the file does.
int svhn_is_whole(const char *path) {
    Reader r = reader_open(path);
    uint64_t at = MAT_HEAD;
    int arrays = 0;
    while (!r.failed && at + 8 <= r.size) {
        uint8_t head[8] = { 0 };
        reader_seek(&r, at);
        read_bytes(&r, head, sizeof head);
        const uint32_t n = word_at(head + 4);
        at += 8 + (uint64_t)n + (word_at(head) == MAT_DEFLATED ? 0 : -n % 8);
        arrays++;
    }
    const int whole = !r.failed && arrays >= 2 && at == r.size;
    return !reader_close(&r, NULL) && whole;
}
