// cpu_dnn.h - oneDNN as the convolutions of the cpu backend use it. Only cpu_dnn.c and cpu_conv.c
// include its header; that 2.x (Debian 12) and 3.x spell descriptors differently, cpu_dnn.c hides.
#ifndef CPU_DNN_H
#define CPU_DNN_H
#include "dev/cpu.h"
#include <dnnl.h>

enum { FWD, DX, DW };                                     // as in Conv.how
enum { MEM_X, MEM_Y, MEM_W, MEM_B, MEM_SCRATCH, N_MEM };  // what a primitive reads and writes

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t MemDesc;
typedef const_dnnl_memory_desc_t MemDescView;
#else
typedef dnnl_memory_desc_t *MemDesc; // a struct there, a handle in 3.x: put into a box
typedef const dnnl_memory_desc_t *MemDescView;
#endif

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} OneDnn;

typedef struct {                     // one convolution in oneDNN's words
    MemDesc x, y, w, dw, w_plain, b; // w, dw: any layout; dw, w_plain and b: fp32
    dnnl_dims_t stride, before, after;
    int relu;                        // the convolution ends with it, and is for inference alone
} DnnShape;

typedef struct {                     // a primitive and the memory objects it runs on
    dnnl_primitive_t handle;
    dnnl_memory_t    mem[N_MEM];     // NULL: not of this kind
    int              arg[N_MEM];
    size_t           scratch, w;     // bytes
    char             how[48];
} Primitive;

static inline OneDnn *dnn_of(const Dev *dev) { return cpu_of(dev)->dnn; }

int dnn_ok(Dev *dev, dnnl_status_t status, const char *what);       // if not, dev->err says what

DnnShape shape_new(Dev *dev, const Conv *c);
void     shape_free(DnnShape *s);
// How oneDNN would compute one direction; NULL where it has no such kernel.
dnnl_primitive_desc_t describe(Dev *dev, const DnnShape *s, int dir);
MemDescView desc_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what);
size_t      desc_bytes(MemDescView d);

void prim_open(Dev *dev, Primitive *w, int dir, const_dnnl_primitive_desc_t pd, const DnnShape *s);
void prim_close(Primitive *w);
// p: where x, y, w, b and the scratch lie.
void prim_run(Dev *dev, const Primitive *w, const void *const p[N_MEM]);
// Brings x's layout to y's, or adds to what is there.
void reorder_open(Dev *dev, Primitive *w, MemDescView from, MemDescView to, int add);
void reorder_run(Dev *dev, const Primitive *w, const void *from, void *to);
#endif
