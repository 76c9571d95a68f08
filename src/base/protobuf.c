// protobuf.c - see protobuf.h.
#include "base/protobuf.h"
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };      // types on the wire

void proto_append(Proto *m, const void *v, size_t n) {
    if (!m->failed && m->cap - m->n < n) {
        const size_t cap = 2 * (m->n + n) + 64;
        uint8_t *p = realloc(m->p, cap);
        m->failed = !p;
        if (p) m->p = p, m->cap = cap;
    }
    if (m->failed || !n) return;
    memcpy(m->p + m->n, v, n);
    m->n += n;
}

static void varint(Proto *m, uint64_t v) {
    uint8_t some[10];
    size_t n = 0;
    for (; v > 127; v >>= 7) some[n++] = (uint8_t)(v | 128);
    some[n++] = (uint8_t)v;
    proto_append(m, some, n);
}

static void key(Proto *m, int field, int type) { varint(m, (uint64_t)field << 3 | (uint64_t)type); }

void proto_free(Proto *m) {
    free(m->p);
    *m = (Proto){ 0 };
}

void proto_int(Proto *m, int field, int64_t v) {
    key(m, field, VARINT);
    varint(m, (uint64_t)v);
}

void proto_float(Proto *m, int field, float v) {
    key(m, field, FOUR_BYTES);
    proto_append(m, &v, sizeof v);
}

void proto_double(Proto *m, int field, double v) {
    key(m, field, EIGHT_BYTES);
    proto_append(m, &v, sizeof v);
}

void proto_open(Proto *m, int field, uint64_t n) {
    key(m, field, LENGTH);
    varint(m, n);
}

void proto_bytes(Proto *m, int field, const void *v, size_t n) {
    proto_open(m, field, n);
    proto_append(m, v, n);
}

void proto_text(Proto *m, int field, const char *v) { proto_bytes(m, field, v, strlen(v)); }

void proto_message(Proto *m, int field, Proto *inner) {
    proto_bytes(m, field, inner->p, inner->n);
    m->failed |= inner->failed;
    proto_free(inner);
}
