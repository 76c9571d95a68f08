// deflate.h - compressed bytes: gzip files, deflate streams, their checksum. The only user of zlib.
#ifndef DEFLATE_H
#define DEFLATE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

// No deflate stream grows more than this, so a size that a file claims can be checked against the
// file's own before memory is spent.
enum { DEFLATE_MAX_RATIO = 1032 };

// ---- gzip files
typedef struct {
    void       *handle;
    const char *path;               // the caller's
    uint64_t    size;               // of the file, as stored
} GzFile;

// A gzip file, or a plain one, which reads as it is; at most 4 GiB.
int  gz_open(GzFile *z, const char *path, Err *err);
void gz_close(GzFile *z);
int  gz_packed(GzFile *z);          // nonzero: it is compressed; ask after the first gz_read
// Reads n bytes of the contents, however many more there are.
int  gz_read(GzFile *z, void *dst, size_t n, Err *err);
// 0 where the contents end here and their checksum is right.
int  gz_end(GzFile *z, Err *err);

// ---- streams
// Inflates the first `want` bytes of a stream (zlib's wrapper); fails where there are fewer, or,
// with `whole`, where there are more or the stream's end is damaged.
int  inflate_bytes(const uint8_t *src, size_t n, uint8_t *dst, size_t want, int whole);

// Raw ones, as zip archives hold them.
typedef struct { void *z; int packs; } Deflate;

// packs: 1 to compress, 0 to inflate. -1: out of memory.
int  deflate_open(Deflate *d, int packs);
void deflate_close(Deflate *d);
// Takes from *in and fills *out, and moves both on. `last`: nothing follows what is in *in.
// 0: more input or more room is needed; 1: the end of the stream; -1: the stream is damaged.
int  deflate_step(Deflate *d, const uint8_t **in, size_t *n_in, uint8_t **out, size_t *n_out,
                  int last);
uint32_t crc32_add(uint32_t crc, const void *data, size_t n);          // begins with 0
#endif
