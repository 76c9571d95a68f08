// cuda_conv.cuh - what the files of convolutions between opaque activations share:
//
//     cuda_conv.cu   the operations
//     cuda_tune.cu   which kernel computes a shape fastest, by timing
//     cuda_pack.cu   filters in the layouts that the kernels read, and their gradients back
//     cuda_dnn.cu    cuDNN's descriptors, engines and plans
//
// A convolution of stride 1 is also a data gradient: that of the convolution with its filter
// rotated by 180 degrees (rot180) and its channels exchanged. Which of the two forms is faster
// differs by shape, so both are tried, and filters are packed in both ways.
#ifndef CUDA_CONV_CUH
#define CUDA_CONV_CUH
#include "dev/cuda.cuh"

enum { FWD, DX, DW };                          // what is asked for, and cuDNN's three operations
enum { MAX_TAPS = 9, MAX_CONFIGS = 96, MAX_KNOBS = 32 };

typedef void *DnnDesc;                         // a descriptor of cuDNN's backend API

typedef struct {                               // an engine and its knobs
    int64_t engine, type[MAX_KNOBS], value[MAX_KNOBS];
    int     n;
} EngineConfig;

typedef struct ConvPlan {                      // how a direction of a shape is computed
    char    key[96], name[64];
    int     dir, out32;                        // out32: dw comes in fp32
    int     rot180;                            // as the opposite operation with the rotated filter
    int     own;                               // an own kernel's variant, from 1; 0: cuDNN's plan
    DnnDesc graph, plan;
    size_t  workspace;
    struct ConvPlan *next;
} ConvPlan;

typedef struct {                               // Filter.impl
    void  *w, *rot180;                         // [out][tap][in]; rotated: [in][tap][out]
    float *stem;                               // [in][tap][out], fp32
    size_t bytes;
    void  *table;                              // on the device: all filters of a pack; the first's
    int    n_table, n_blocks;
} PackedFilter;

static inline int fill8(int c) { return (c + 7) / 8 * 8; }
static inline size_t filled_len(const Conv *c) {  // numbers of a packed filter
    return (size_t)fill8(c->x.c) * fill8(c->y.c) * c->size * c->size_w;
}

// cuda_dnn.cu: the only file that includes cudnn.h. Descriptors are NULL where cuDNN refuses: that
// engine or form then cannot be used.
void dnn_start(Dev *dev);
void dnn_stop(Dev *dev);
int  dnn_failed(Dev *dev, int status, const char *what);   // of dnn_run: 0, or the device's error
void dnn_free(DnnDesc d);                                  // may be NULL
DnnDesc dnn_graph(Dev *dev, const Conv *c, int dir, int rot180, int out32);
DnnDesc dnn_plan(Dev *dev, DnnDesc graph, const EngineConfig *c, size_t *workspace);
int  dnn_configs(DnnDesc graph, EngineConfig *list);       // at most MAX_CONFIGS
int  dnn_run(Dev *dev, DnnDesc plan, void *x, void *w, void *y, void *workspace);
void config_text(const EngineConfig *c, char *dst, size_t n);    // "e38 k2-5 k14-3"
int  config_parse(EngineConfig *c, const char *s);               // -1: no such text

// cuda_pack.cu
void filters_pack(Dev *dev, Filter *f, int n);
void filter_close(Dev *dev, Filter *f);
void filter_forms(Dev *dev, const Conv *c, int by_dnn, int rot180);  // reserves the packed copies
void dw_add(Dev *dev, const Conv *c, const void *part, int out32, float *dw);

// cuda_tune.cu
void tune_start(Dev *dev);
void tune_stop(Dev *dev);
int  wants_rot180(const Dev *dev, const Conv *c);          // whether any plan uses that form
// The plan of a direction: one already made, or from a choice made earlier, or by timing. NULL:
// there is none, and plain loops must do (or the device failed, or was stopped).
const ConvPlan *plan_for(Dev *dev, const Conv *c, int dir);
// Runs it on x, y and the filter's packed copies; a weight gradient goes to dw, [out][tap][in], or
// stays in the workspace, until plan_dw_add adds it to the master's. The status is for plan_failed:
// 0, or the device's error.
int  plan_run(Dev *dev, const ConvPlan *p, const Tensor *x, const PackedFilter *f, void *dw,
              const Tensor *y, void *workspace);
int  plan_dw_add(Dev *dev, const ConvPlan *p, const Conv *c, const void *part,
                 const void *workspace, float *dw);
int  plan_failed(Dev *dev, const ConvPlan *p, int status, const char *what);
#endif
