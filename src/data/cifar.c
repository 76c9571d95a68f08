// cifar.c - CIFAR's binary records; see formats.h.
#include "base/file.h"
#include "base/text.h"
#include "data/formats.h"
#include <inttypes.h>

static int read_records(Set *s, Reader *r, int label_bytes, size_t at, size_t n, Err *err) {
    for (size_t i = 0; i < n && !r->failed; i++) {
        uint8_t label[2] = { 0 };
        read_bytes(r, label, (size_t)label_bytes);
        read_bytes(r, s->x + (at + i) * CIFAR_PIXELS, CIFAR_PIXELS);
        const int y = s->y[at + i] = label[label_bytes - 1];
        if (y >= s->classes) return bad_label(r->path, i, y, 0, s->classes - 1, err);
    }
    return 0;
}

static int read_batch(Set *s, const char *path, int label_bytes, size_t at, size_t n, Err *err) {
    const uint64_t expected = n * (uint64_t)(label_bytes + CIFAR_PIXELS);
    Reader r = reader_open(path);
    int rc = 0;
    if (!r.failed && r.size != expected)
        rc = err_set(err, ERR_DATA, "%s: %" PRIu64 " byte%s, expected %" PRIu64, path, r.size,
                     plural((double)r.size), expected);
    if (!rc) rc = read_records(s, &r, label_bytes, at, n, err);
    return reader_close(&r, err) || rc;
}

int read_cifar(Set *s, const char path[][MAX_PATH], int n_path, int label_bytes, size_t records,
               Err *err) {
    if (set_alloc(s, (size_t)n_path * records, err)) return -1;
    for (int i = 0; i < n_path; i++)
        if (read_batch(s, path[i], label_bytes, (size_t)i * records, records, err)) return -1;
    return 0;
}

int read_cifar_any(Set *s, const char *path, Err *err) {
    const uint64_t record = 1 + CIFAR_PIXELS;
    uint64_t size = 0;
    if (regular_size(path, MAX_PICTURES * record, &size, err)) return -1;
    if (size == 0 || size % record)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " byte%s, expected a multiple of %" PRIu64,
                       path, size, plural((double)size), record);
    s->c = 3;
    s->side = 32;
    s->flip = 1;
    s->classes = 256; // whatever a byte can say, until all were seen
    if (set_alloc(s, size / record, err) || read_batch(s, path, 1, 0, s->n, err)) return -1;
    s->classes = 10;
    for (size_t i = 0; i < s->n; i++)
        if (s->y[i] >= s->classes) s->classes = s->y[i] + 1;
    return number_names(s, err);
}
