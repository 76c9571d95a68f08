// cpu.h - what the files of the cpu backend share.
//
// Opaque activations, fp32 or bf16, are blocked by channels, [n][c / lanes][h][w][lanes], and the
// last block is filled up with zeros: a vector register holds one pixel of one block, in oneDNN's
// kernels and in our own. Every operation keeps the filling zero.
#ifndef CPU_H
#define CPU_H
#include "dev/backend.h"

typedef struct {                       // cpu_wino.c: 3x3 convolutions, a table per instruction set
    // the scratch that a convolution, its dx or its dw needs; 0: not one of ours
    size_t (*bytes)(const Conv *c, int dx, int dw, int threads);
    // from x to y, or (dx) from dy to dx, without a bias
    void (*run)(const Conv *c, int dx, const Tensor *x, const float *b, Tensor *y, void *scratch);
    void (*run_dw)(const Conv *c, const Tensor *x, const Tensor *dy, float *dw, void *scratch);
} Winograd;

typedef struct {                       // own convolutions, one table per instruction set
    const char *isa;                   // "AVX-512"
    int         lanes;                 // channels in a block
    // w: the weights as [out / lanes][size][size][in][lanes], which stem_pack makes
    void (*stem_pack)(const Filter *f, float *w);
    void (*stem_fwd)(const Conv *c, const float *w, const Tensor *x, const float *b, Tensor *y);
    void (*stem_dx)(const Conv *c, const float *w, const Tensor *dy, Tensor *dx);
    // part: room for as many floats as packed weights, for each image
    void (*stem_dw)(const Conv *c, const Tensor *x, const Tensor *dy, float *part, float *dw);
    void (*head_fwd)(const float *w, const Tensor *x, const float *b, Tensor *y);
    void (*head_dx)(const float *w, const Tensor *dy, Tensor *dx);
    void (*head_dw)(const Tensor *x, const Tensor *dy, float *dw, float *db);
    void (*bias_grad)(const Tensor *dy, int plain, float *partial, float *db);
    const Winograd *wino;
} CpuKernels;

typedef struct {
    const CpuKernels *k;
    void          *dnn;                // oneDNN's engine and stream
    ConvChoice     conv;
    int            half;               // activations are bf16
    size_t         elem;               // bytes of an activation's element
    char          *tuning;             // choices in use (cpu_tune.c)
    char          *cached, *cache;     // those of earlier timings; the file they are kept in
    int            timed;              // cached has new ones
    char           about[96];
    float         *partial;            // sums of one image each, to be added in a fixed order
    size_t         n_partial;
    void          *scratch;            // dev->scratch_bytes, for the convolution that is running
} Cpu;

static inline Cpu *cpu_of(const Dev *dev) { return dev->impl; }

static inline int blocks_of(const Tensor *t, int lanes) { return (t->c + lanes - 1) / lanes; }

// Floats that sums over a tensor need: two per channel and image, five per channel.
static inline size_t cpu_partial(const Tensor *t, int lanes) {
    return (2 * (size_t)t->n + 5) * (size_t)(blocks_of(t, lanes) * lanes);
}

// cpu.c. Called at the start of every operation: 0 after a failure, else the threads are set.
int cpu_ready(Dev *dev);
// Make room for partial sums of a tensor of this shape; for a convolution's scratch.
void cpu_reserve_partial(Dev *dev, const Tensor *shape);
void cpu_reserve_scratch(Dev *dev, size_t bytes);

// cpu_tune.c. The choice that a text has for a key: 1 Winograd, 0 direct, -1 none.
int  choice_find(const char *text, const char *key);
// Adds one, or all lines of another text that are whole; nonzero: out of memory.
int  choice_add(char **text, const char *key, int winograd);
int  choices_read(char **text, const char *from);
void cpu_cache_read(Dev *dev);
void cpu_cache_write(const Cpu *cpu);

// cpu_ops.c, cpu_pool.c and cpu_starts.c (operations for the table) and cpu_stem.c, compiled for
// each instruction set.
void cpu_ops_bf16(Backend *be);
void cpu_ops_avx512(Backend *be);
void cpu_ops_avx2(Backend *be);
void cpu_ops_base(Backend *be);
void cpu_pool_bf16(Backend *be);
void cpu_pool_avx512(Backend *be);
void cpu_pool_avx2(Backend *be);
void cpu_pool_base(Backend *be);
extern const CpuKernels cpu_kernels_bf16, cpu_kernels_avx512, cpu_kernels_avx2, cpu_kernels_base;

// cpu_dnn.c
typedef enum { ISA_BASE, ISA_AVX2, ISA_AVX512, ISA_BF16 } Isa;
Isa  cpu_dnn_isa(void);                             // what oneDNN will use here
void cpu_dnn_version(char *dst, size_t n);          // "2.6.3"
void cpu_dnn_start(Dev *dev);
void cpu_dnn_stop(Dev *dev);

// cpu_conv.c
void cpu_conv_table(Backend *be);
#endif
