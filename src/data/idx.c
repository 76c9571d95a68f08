// idx.c - MNIST's IDX files, plain or gzipped; see formats.h.
#include "base/file.h"
#include "data/formats.h"
#include "base/deflate.h"
#include <inttypes.h>

// Checks the header of an IDX file of bytes against the wanted dimensions, of which the first, the
// number of records, is read from it.
static int idx_header(GzFile *z, int rank, uint32_t dim[3], Err *err) {
    uint8_t head[16];
    if (gz_read(z, head, 4, err)) return -1;
    if (head[0] || head[1] || head[2] != 8 || head[3] != rank)
        return err_set(err, ERR_DATA, "%s: starts with %02x%02x%02x%02x, expected 000008%02x",
                       z->path, head[0], head[1], head[2], head[3], rank);
    if (gz_read(z, head + 4, 4 * (size_t)rank, err)) return -1;
    uint64_t bytes = 1;
    for (int i = 0; i < rank; i++) {
        const uint8_t *p = head + 4 + 4 * i;
        const uint32_t n = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (i > 0 && n != dim[i])
            return err_set(err, ERR_DATA, "%s: dimension %d is %" PRIu32 ", expected %" PRIu32,
                           z->path, i, n, dim[i]);
        dim[i] = n;
        bytes *= n;
    }
    if (dim[0] > MAX_PICTURES || bytes > z->size * DEFLATE_MAX_RATIO)
        return err_set(err, ERR_DATA, "%s: %" PRIu32 " records do not fit into %" PRIu64 " bytes",
                       z->path, dim[0], z->size);
    return 0;
}

static int idx_pictures(Set *s, GzFile *z, Err *err) {
    uint32_t dim[3] = { 0, (uint32_t)s->side, (uint32_t)s->side };
    if (idx_header(z, 3, dim, err)) return -1;
    if (dim[0] == 0) return err_set(err, ERR_DATA, "%s: no pictures", z->path);
    if (set_alloc(s, dim[0], err)) return -1;
    return gz_read(z, s->x, (size_t)dim[0] * dim[1] * dim[2], err) ? -1 : gz_end(z, err);
}

static int idx_labels(Set *s, GzFile *z, Err *err) {
    uint32_t dim[3] = { 0 };
    if (idx_header(z, 1, dim, err)) return -1;
    if (dim[0] != s->n)
        return err_set(err, ERR_DATA, "%s: %" PRIu32 " labels for %zu pictures", z->path, dim[0],
                       s->n);
    for (size_t i = 0; i < s->n; i++) {
        uint8_t y;
        if (gz_read(z, &y, 1, err)) return -1;
        if (y >= s->classes) return bad_label(z->path, i, y, 0, s->classes - 1, err);
        s->y[i] = y;
    }
    return gz_end(z, err);
}

int read_idx(Set *s, const char *images, const char *labels, Err *err) {
    GzFile z;
    if (gz_open(&z, images, err)) return -1;
    int rc = idx_pictures(s, &z, err);
    gz_close(&z);
    if (rc || gz_open(&z, labels, err)) return -1;
    rc = idx_labels(s, &z, err);
    gz_close(&z);
    return rc;
}

// A gzip file ends with the length of its contents; a plain one is that long.
int idx_is_whole(const char *path, int rank) {
    GzFile z;
    uint8_t head[16], tail[4];
    if (gz_open(&z, path, NULL)) return 0;
    uint64_t want = 4 + 4 * (uint64_t)rank, n = 1, size = z.size;
    int ok = !gz_read(&z, head, (size_t)want, NULL);
    const int packed = ok && gz_packed(&z);
    gz_close(&z);
    for (int i = 0; ok && i < rank; i++) {
        const uint8_t *p = head + 4 + 4 * i;
        n *= (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    want += n;
    if (packed) {
        Reader r = reader_open(path);
        ok = !r.failed && r.size >= 18;
        if (ok) reader_seek(&r, r.size - 4);
        read_bytes(&r, tail, sizeof tail);
        ok = !reader_close(&r, NULL) && ok;
        size = (uint64_t)tail[0] | (uint64_t)tail[1] << 8 | (uint64_t)tail[2] << 16 |
               (uint64_t)tail[3] << 24;
    }
    return ok && size == want;
}
