// tensors.h - named tensors in a file, whatever its format: safetensors, or PyTorch's .pt and .pth.
#ifndef TENSORS_H
#define TENSORS_H
#include "base/arena.h"
#include "base/file.h"

typedef enum {
    ST_F64, ST_F32, ST_F16, ST_BF16, ST_I64, ST_I32, ST_I16, ST_I8, ST_U8, ST_BOOL, ST_N_TYPES
} StType;
enum { ST_MAX_RANK = 8 };

typedef struct {
    const char *name;
    StType      type;
    int         rank;
    uint64_t    shape[ST_MAX_RANK];
    uint64_t    begin, bytes;          // where it lies in the data part
    int         strided;               // not in order: element i0, i1, ... is at begin plus the
    uint64_t    stride[ST_MAX_RANK];   // sum of i * stride, in elements
} StTensor;

// ---- reading
typedef struct {
    Arena     arena;
    char      path[512];
    Reader    reader;
    uint64_t  data_at;                 // file offset of the data part
    int       n, n_meta;
    StTensor *t;
    const char **meta;                 // n_meta pairs: key, value
} St;

// Opens a file of any format, known by how it begins. Everything but the numbers is checked before
// anything is used: bounds, sizes, names.
int  tensors_open(St *st, const char *path, Err *err);
void st_close(St *st);
const StTensor *st_find(const St *st, const char *name);              // NULL where there is none
const char     *st_meta(const St *st, const char *key);               // NULL likewise
// Reads t's elements in order, as they are / converted from F64, F32, F16 or BF16. `count` is how
// many the caller expects; another number is an error that names file, tensor, found and expected.
int st_read_raw(St *st, const StTensor *t, void *dst, uint64_t bytes, Err *err);
int st_read_f32(St *st, const StTensor *t, float *dst, uint64_t count, Err *err);
int st_read_f64(St *st, const StTensor *t, double *dst, uint64_t count, Err *err);

// ---- writing: declare everything, then write the data in the order of declaration. Declare the
// larger types first: in safetensors tensors lie without gaps, and some readers map them and want
// them aligned. A format's own file creates its writer.
typedef struct StWriter StWriter;
typedef struct {
    void (*head)(StWriter *w);                                        // all that precedes the data
    void (*data)(StWriter *w, const void *data, size_t bytes);        // a part of tensor `at`
    void (*tail)(StWriter *w);                                        // after the data
} StFormat;

struct StWriter {
    const StFormat *format;
    void     *own;                     // the format's
    Arena     arena;
    Writer    w;
    int       n, cap, at, started;     // `at`: the tensor that st_write writes next
    uint64_t  given;                   // of its bytes
    StTensor *t;
    int       n_meta, cap_meta;        // pairs
    const char **meta;
    unsigned char *held;               // st_hold's memory, or NULL
    size_t    n_held, held_room;
};

void st_meta_add(StWriter *w, const char *key, const char *value);
void st_declare(StWriter *w, const char *name, StType type, int rank, const uint64_t *shape);
void st_write(StWriter *w, const void *data, size_t bytes);           // the next tensor, or a part
int  st_finish(StWriter *w, Err *err);                                // atomic, as file.h's
void st_cancel(StWriter *w);                                          // as file.h's
// Once everything is declared: data is kept in memory, of at least st_bytes(w), and st_finish
// writes it, in another thread if you like. st_next returns where the next `bytes` go, for the
// caller to fill in; NULL where they do not fit or nothing is held.
uint64_t st_bytes(const StWriter *w);
void  st_hold(StWriter *w, void *memory);
void *st_next(StWriter *w, size_t bytes);

size_t      st_type_size(StType type);
const char *st_type_name(StType type);                                // "F32"
int         st_shape_bytes(StType type, int rank, const uint64_t *shape, uint64_t *bytes);
uint16_t f32_to_f16(float v);                                         // round to nearest even
float    f16_to_f32(uint16_t v);
float    bf16_to_f32(uint16_t v);
#endif
