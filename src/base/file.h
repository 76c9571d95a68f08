// file.h - whole files in, whole files out. A writer replaces its file once all of it is on disk.
#ifndef FILE_H
#define FILE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

// Reads a regular file of at most max bytes into malloc'd memory with a NUL behind it.
int file_read(const char *path, size_t max, char **data, size_t *n, Err *err);
int file_exists(const char *path);
int dir_exists(const char *path);
// A path that still has its ~/, as in --out=~/runs, is an error unless there is a folder "~".
int path_tilde(const char *path, Err *err);
int dir_make(const char *path, Err *err);                    // with its parents; existing is fine
// With all that is in it, if it is there; links are removed, not followed. Nonzero: some is left.
int dir_remove(const char *path);
// The same for one below a folder that others may have made: a link is refused.
int dir_make_inside(const char *path, Err *err);
// A file of such a folder that is changed in place, and made where it is missing, as a FILE; mode
// "r+", "a" or "a+". NULL: it is a link, no regular file, or cannot be opened.
void *file_change(const char *path, const char *mode, Err *err);
// dst of n bytes gets a/b, a where b is ""; -1 where it does not fit.
int path_join(char *dst, size_t n, const char *a, const char *b, Err *err);

// A stream for reading with a sticky error: after the first short read every read yields zeros,
// and reader_close says what was wrong (or sets nothing and returns 0).
typedef struct { void *f; char path[512]; uint64_t size, at; int failed; Err err; } Reader;
Reader reader_open(const char *path);
void   read_bytes(Reader *r, void *dst, size_t n);
void   reader_seek(Reader *r, uint64_t at);
int    reader_close(Reader *r, Err *err);

// Writes to PATH.tmp; writer_close flushes, fsyncs, renames onto PATH and fsyncs the folder. A file
// that is replaced keeps its permissions; a link at PATH is replaced, not followed. After the first
// failure writes do nothing; then writer_close removes the temporary file, leaves PATH as it was,
// and reports the first error.
typedef struct {
    void    *f;
    char     path[512], tmp[520], old[512];
    uint64_t at, inode;                // bytes written; the temporary file's
    int      failed;
    Err      err;
} Writer;
Writer writer_open(const char *path);
// What PATH is now will be renamed to OLD, at the moment before PATH.tmp becomes PATH.
void   writer_keep(Writer *w, const char *old);
void   write_bytes(Writer *w, const void *src, size_t n);
void   write_text(Writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void   write_over(Writer *w, uint64_t at, const void *src, size_t n);   // over bytes written before
int    writer_close(Writer *w, Err *err);
void   writer_cancel(Writer *w);                             // as if it had never been opened
int    file_writable(const char *path, Err *err);            // 0, or -1: a writer would fail
#endif
