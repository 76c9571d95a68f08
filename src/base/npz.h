// npz.h - NumPy's npz files: arrays by name, in a zip archive, stored or deflated.
#ifndef NPZ_H
#define NPZ_H
#include "base/tensors.h"
#include "base/zip.h"

typedef struct {
    char     name[64];
    StType   type;
    int      rank;
    uint64_t shape[ST_MAX_RANK];
    uint64_t count, bytes;              // elements, and their size
    int      fortran;                   // the first index runs fastest in the file
    uint64_t head;                      // bytes before the numbers
    const ZipEntry *entry;
} NpzArray;

// ---- reading
int  npz_has(const Zip *z, const char *name);
// Finds an array and checks its header: format version 1 to 3, little-endian numbers of a type that
// StType has, a size that fits. z is an archive that zip_open opened.
int  npz_find(Zip *z, const char *name, NpzArray *a, Err *err);
// "float32 [2][3][32][32]", for messages. Returns dst.
const char *npz_shape(const NpzArray *a, char dst[128]);
// Reads all of it with the last index fastest, whatever the file's order: as it is, dst has
// a->bytes; or as doubles, from F64, F32 or F16, dst has a->count.
int  npz_read(Zip *z, const NpzArray *a, void *dst, Err *err);
int  npz_read_f64(Zip *z, const NpzArray *a, double *dst, Err *err);

// ---- writing: each array is added, then its numbers, in one or more parts
typedef struct {
    Writer    w;
    ZipWriter zip;
    int       deflated;
} NpzWriter;

void npz_create(NpzWriter *n, const char *path, int deflated);
void npz_add(NpzWriter *n, const char *name, StType type, int rank, const uint64_t *shape);
void npz_write(NpzWriter *n, const void *data, size_t bytes);
int  npz_finish(NpzWriter *n, Err *err);                              // atomic, as file.h's
#endif
