// inflate.c - see inflate.h.
#include "data/inflate.h"
#include "data/formats.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

int gz_open(GzFile *z, const char *path, Err *err) {
    *z = (GzFile){ .path = path };
    if (regular_size(path, (uint64_t)1 << 32, &z->size, err)) return -1;
    z->handle = gzopen(path, "rb");
    return z->handle ? 0 : err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
}

void gz_close(GzFile *z) {
    gzclose(z->handle);
    z->handle = NULL;
}

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
            return err_set(err, ERR_DATA, "%s: ends after %zu bytes of contents, expected %zu more",
                           z->path, (size_t)gztell(z->handle), left);
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
