// deflate.c - see deflate.h.
#include "base/deflate.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// ---- gzip files

int gz_open(GzFile *z, const char *path, Err *err) {
    Reader r = reader_open(path);                       // says what is no regular file
    *z = (GzFile){ .path = path, .size = r.size };
    if (reader_close(&r, err)) return -1;
    if (z->size > (uint64_t)1 << 32) return err_set(err, ERR_DATA, "%s: more than 4 GiB", path);
    z->handle = gzopen(path, "rb");
    return z->handle ? 0 : err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
}

void gz_close(GzFile *z) {
    gzclose(z->handle);
    z->handle = NULL;
}

int gz_packed(GzFile *z) { return !gzdirect(z->handle); }

int gz_read(GzFile *z, void *dst, size_t n, Err *err) {
    for (size_t done = 0; done < n;) {
        const size_t left = n - done;
        const unsigned most = left < INT_MAX ? (unsigned)left : INT_MAX;
        const int got = gzread(z->handle, (char *)dst + done, most);
        int code;
        const char *why = gzerror(z->handle, &code);
        if (got <= 0 && code != Z_OK)
            return err_set(err, ERR_DATA, "%s: %s", z->path,
                           code == Z_ERRNO ? strerror(errno) : why);
        if (got <= 0)
            return err_set(err, ERR_DATA,
                           "%s: ends after %zu byte%s of contents, expected %zu more", z->path,
                           (size_t)gztell(z->handle), plural((double)gztell(z->handle)), left);
        done += (size_t)got;
    }
    return 0;
}

// A read past the end also makes zlib compare the checksum.
int gz_end(GzFile *z, Err *err) {
    char extra;
    const int got = gzread(z->handle, &extra, 1);
    int code;
    const char *why = gzerror(z->handle, &code);
    if (got > 0) return err_set(err, ERR_DATA, "%s: longer than its header says", z->path);
    return code == Z_OK ? 0 : err_set(err, ERR_DATA, "%s: %s", z->path, why);
}

// ---- streams

int inflate_bytes(const uint8_t *src, size_t n, uint8_t *dst, size_t want, int whole) {
    if (n > UINT_MAX || want > UINT_MAX) return -1;
    z_stream z = { .next_in = (Bytef *)(uintptr_t)src, .avail_in = (uInt)n };
    if (inflateInit(&z) != Z_OK) return -1;
    z.next_out = dst;
    z.avail_out = (uInt)want;
    const int rc = inflate(&z, whole ? Z_FINISH : Z_SYNC_FLUSH);
    inflateEnd(&z);
    return z.avail_out || (whole && rc != Z_STREAM_END);
}

enum { RAW = -15, MEM_LEVEL = 8 };      // a negative window size: no zlib header around the stream

int deflate_open(Deflate *d, int packs) {
    z_stream *z = calloc(1, sizeof *z);
    *d = (Deflate){ z, packs };
    if (!z) return -1;
    const int rc = packs ? deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, RAW, MEM_LEVEL,
                                        Z_DEFAULT_STRATEGY)
                         : inflateInit2(z, RAW);
    if (rc == Z_OK) return 0;
    free(z);
    d->z = NULL;
    return -1;
}

void deflate_close(Deflate *d) {
    if (!d->z) return;
    if (d->packs) deflateEnd(d->z);
    else inflateEnd(d->z);
    free(d->z);
    d->z = NULL;
}

int deflate_step(Deflate *d, const uint8_t **in, size_t *n_in, uint8_t **out, size_t *n_out,
                 int last) {
    z_stream *z = d->z;
    const uInt take = *n_in < UINT_MAX ? (uInt)*n_in : UINT_MAX,
               room = *n_out < UINT_MAX ? (uInt)*n_out : UINT_MAX;
    z->next_in = (Bytef *)(uintptr_t)*in;
    z->avail_in = take;
    z->next_out = *out;
    z->avail_out = room;
    const int flush = last && take == *n_in ? Z_FINISH : Z_NO_FLUSH,
              rc = d->packs ? deflate(z, flush) : inflate(z, Z_NO_FLUSH);
    if (take) *in = z->next_in;                             // NULL where there is nothing to take
    if (room) *out = z->next_out;
    *n_in -= take - z->avail_in;
    *n_out -= room - z->avail_out;
    if (rc == Z_STREAM_END) return 1;
    return rc == Z_OK || rc == Z_BUF_ERROR ? 0 : -1;
}

uint32_t crc32_add(uint32_t crc, const void *data, size_t n) {
    return (uint32_t)crc32_z(crc, data, n);
}
