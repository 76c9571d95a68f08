// inflate.h - compressed bytes in: gzip files and deflate streams. The only user of zlib.
#ifndef INFLATE_H
#define INFLATE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

// No deflate stream grows more than this, so a size that a file claims can be checked against the
// file's own before memory is spent.
enum { INFLATE_MAX_RATIO = 1032 };

typedef struct {
    void       *handle;
    const char *path;               // the caller's
    uint64_t    size;               // of the file, as stored
} GzFile;

// A gzip file, or a plain one, which reads as it is.
int  gz_open(GzFile *z, const char *path, Err *err);
void gz_close(GzFile *z);
// Reads n bytes of the contents, however many more there are.
int  gz_read(GzFile *z, void *dst, size_t n, Err *err);
// 0 where the contents end here and their checksum is right.
int  gz_end(GzFile *z, Err *err);

// Inflates the first `want` bytes of a stream (zlib's wrapper); fails where there are fewer, or,
// with `whole`, where there are more or the stream's end is damaged.
int  inflate_bytes(const uint8_t *src, size_t n, uint8_t *dst, size_t want, int whole);
#endif
