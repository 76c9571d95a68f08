// zip.h - zip archives, as PyTorch's files and NumPy's npz are: stored or deflated, zip64 included.
#ifndef ZIP_H
#define ZIP_H
#include "base/arena.h"
#include "base/deflate.h"
#include "base/file.h"

typedef struct {
    const char *name;
    uint64_t    at, packed, bytes;     // the data's place in the file; its size there and inflated
    uint32_t    crc;
    int         deflated;
} ZipEntry;

// ---- reading: the whole directory is checked before anything is used (bounds, overlaps, sizes
// that no deflate stream can have, names twice); encrypted and multi-part archives are refused
typedef struct {
    Arena     arena;
    char      path[512];
    Reader    reader;
    int       n;
    ZipEntry *e;                       // by name
} Zip;

int  zip_open(Zip *z, const char *path, Err *err);
void zip_close(Zip *z);
const ZipEntry *zip_find(const Zip *z, const char *name);              // NULL where there is none

// An entry's contents, a piece at a time; one at a time. zip_end reads what is left and compares
// size and checksum; it frees the stream and must be called after a failure too.
typedef struct {
    Zip            *zip;
    const ZipEntry *e;
    Deflate         inflate;
    uint64_t        taken, given;      // bytes read from the file, bytes handed out
    uint32_t        crc;
    int             failed;
    const uint8_t  *in;
    size_t          n_in;
    uint8_t        *buffer;
} ZipStream;

int zip_begin(ZipStream *s, Zip *z, const ZipEntry *e, Err *err);
int zip_read(ZipStream *s, void *dst, size_t n, Err *err);
int zip_end(ZipStream *s, Err *err);
void zip_cancel(ZipStream *s);                             // instead: whatever is left is not read
// The whole entry; dst has e->bytes. dst NULL: the checksum alone.
int zip_extract(Zip *z, const ZipEntry *e, void *dst, Err *err);

// ---- writing, through a writer that the caller opens and closes; errors stay in it
typedef struct {
    Writer   *w;
    Arena     arena;
    int       n, cap, open, big;       // big: the entry's sizes may need 64 bits
    uint64_t  given;                   // of the entry
    ZipEntry *e;
    uint64_t *head;                    // each entry's local header
    Deflate   pack;
} ZipWriter;

// The entry that follows has `bytes` bytes, which zip_put brings. Data that is stored begins at a
// multiple of `align`.
void zip_add(ZipWriter *z, const char *name, uint64_t bytes, int align, int deflated);
void zip_put(ZipWriter *z, const void *data, size_t n);
void zip_finish(ZipWriter *z);         // the directory; frees
#endif
