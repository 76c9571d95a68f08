// backend.h - what a device can do.
//
// dev/ holds the devices (ref, cpu, cuda) behind one table of operations on tensors; it uses base/
// and the vendors' libraries, and knows nothing of networks, data sets or files.
//
// A backend is a table of functions; a Dev is one opened device. Operations return nothing: a
// device remembers its first failure in Dev.err and does nothing from then on (dev_check asks).
// Pointers named w, x, y, ... are the device's memory; only copy_in and copy_out cross to the host.
// NULL for a gradient means "not wanted". Gradients of parameters are added to what is there,
// gradients of activations are stored (but see Norm.add_dx).
#ifndef BACKEND_H
#define BACKEND_H
#include "base/err.h"
#include "base/events.h"
#include "base/rng.h"
#include "dev/slots.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#ifndef REAL
#define REAL float                    // the proofs of correctness build with -DREAL=double
#endif
typedef REAL real;

// n images of c channels, h rows, w columns. Images, pooled features and logits are plain: real,
// NCHW, dense. Every other activation is in the device's own layout and type ("opaque"):
// ask tensor_bytes for its size, from_plain and to_plain to look inside.
typedef struct { int n, c, h, w; void *p; } Tensor;

static inline size_t tensor_len(const Tensor *t) {
    return (size_t)t->n * (size_t)t->c * (size_t)t->h * (size_t)t->w;
}
static inline size_t tensor_pixels(const Tensor *t) {          // of all its images
    return (size_t)t->n * (size_t)t->h * (size_t)t->w;
}

enum { WANT_DX = 1, WANT_DW = 2 };    // gradients for the input, for the parameters

typedef struct {                      // a convolution's weights, shared by all passes that use them
    int         out, in, size, size_w;
    const real *w;                    // master copy [out][in][size][size_w]
    void       *impl;                 // the device's packed copies; filters_pack refreshes them
} Filter;

typedef struct {                      // a convolution of one shape, y = conv(x) + bias
    Tensor  x, y;                     // shapes only
    int     size, size_w;             // the kernel's rows and columns
    int     stride, pad, pad_w;       // rows and columns of padding on each side
    int     relu;                     // y = max(0, conv(x) + bias); has no gradients
    int     x_plain, y_plain;         // the stem reads images; the head is plain on both sides
    int     want;                     // gradients that will be computed
    int     run_few;                  // not timed: opening must not cost more than running
    Filter *filter;
    void   *impl;                     // made by conv_open
    const char *how[3];               // names of the implementations: forward, dx, dw (NULL: none)
} Conv;

typedef struct {                      // x += r; y = leaky_relu(gamma * (x - mean) / sd + beta)
    real  eps, momentum, leak;        // momentum: weight of the new batch in the running statistics
    int   batch_stats;                // normalise with the batch's statistics, else running ones
    int   update;                     // move the running statistics (only with batch_stats)
    int   add_dx;                     // norm_bwd adds to dx instead of storing
    const real *gamma, *beta;         // [c]; NULL: no normalisation, leaky ReLU alone
    real *run_mean, *run_var;         // [c]
    real *mean, *rstd;                // [c], written by norm_fwd for norm_bwd
} Norm;

typedef enum { POOL_MEAN, POOL_MAX } PoolKind;
typedef struct {                      // pooling over windows; padding counts neither in a maximum
    PoolKind kind;                    // nor in a mean, which is that of the pixels that are there
    int      size, stride, pad;
} Pool;

typedef struct StepState StepState;
typedef struct {
    real a, b, c;                     // a row's f = a LSE(z) + b z[y] + c LSE(z)^2
    const StepState *now;             // not NULL: while now->over_margin is set ...
    real a_over, b_over;              // ... these replace a and b
    real d;                           // + d softplus(LSE), or for d < 0: - d softplus(-LSE)
} Energy;
// what head adds up over a batch; SUM_SOFTPLUS: of LSE or, for d < 0, of -LSE; 0 where d = 0
enum { SUM_LSE, SUM_ZY, SUM_LSE2, SUM_RIGHT, SUM_SOFTPLUS, N_SUM };

typedef struct {                      // one move of a chain along a gradient
    int   inner;                      // moves that share the gradient
    real  lr, clip;                   // move size; limit on |gradient| (INFINITY: none)
    real  noise;                      // sd of the noise after the moves, 0: none
    int   clamp;                      // keep pixels in [-1, 1] (before the noise)
} Move;

typedef struct {                      // an adversary's reach, in units of x: twice [0, 1] pixels'
    int  l2;                          // the ball's norm: 2, or infinity
    real radius, step;
    int  from;                        // as in Augment
} Attack;

typedef struct {                      // what the host sets before each step
    uint32_t step, drawn;             // this step's number; chain starts used so far
    uint32_t px_began;                // the first step with p(x)
    real     lr;
    uint32_t first;                   // the whole batch's row that is this rank's first
    real     auroc;                   // for the log: of f between real and sampled images so far
    int      chain_steps;             // and the gradient steps of this step's chains
} StepInput;

// What changes from step to step. It lives in the device's memory, so that a recorded step can be
// replayed: in.step is added to the step of every Rng that comes with a StepState, and row i of a
// batch gets the random numbers of row in.first + i.
struct StepState {
    StepInput in;
    int  halt;                        // HALT_NO, or why nothing is learnt or stored any more
    real gap;                         // running mean of |f(x) - f(x_q)|
    real ce, ce_low;                  // running mean of the cross-entropy; its lowest value so far
    real climb;                       // running mean of climb; 0 without chains
    int  over_margin;                 // f(x) - f(x_q) exceeded Watch.px_margin in the last step
};

RNG_FN Energy energy_now(Energy e) {
    if (e.now && e.now->over_margin) {
        e.a = e.a_over;
        e.b = e.b_over;
    }
    return e;
}

RNG_FN double softplus(double v) { return (v > 0 ? v : 0) + log1p(exp(-fabs(v))); }

// The terms of LSE in a row of logits: their derivative by LSE.
RNG_FN double energy_slope(const Energy *e, double lse) {
    const double d = (double)e->d, s = d < 0 ? -lse : lse;
    return (double)e->a + 2 * (double)e->c * lse + (d ? d / (1 + exp(-s)) : 0);
}

RNG_FN double energy_softplus(const Energy *e, double lse) {
    return e->d > 0 ? softplus(lse) : e->d < 0 ? softplus(-lse) : 0;
}

RNG_FN Rng rng_now(Rng key, const StepState *now) {
    if (now) key.step += now->in.step;
    return key;
}

RNG_FN uint64_t checksum_of(uint64_t i, uint32_t word) {         // SplitMix64's mixing
    uint64_t v = (i << 32 ^ word) + 0x9E3779B97F4A7C15u;
    v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9u;
    v = (v ^ v >> 27) * 0x94D049BB133111EBu;
    return v ^ v >> 31;
}

RNG_FN uint32_t first_row(const StepState *now) { return now ? now->in.first : 0; }

typedef struct {                      // an image set on the device
    int            n, c, side;
    const uint8_t *x;                 // [n][c][side][side]
    const int     *y;                 // [n]
} Bytes;

typedef struct {                      // {0}: the image as it is
    int  pad, flip;
    real noise;
    int  from;                        // row i has the random numbers of row in.first + from + i
} Augment;

static inline void reals_to_floats(float *dst, const real *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = (float)src[i];
}

// |v - from| in the Euclidean norm; of v itself where from is NULL.
static inline double reals_distance(const real *v, const real *from, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)v[i] - (from ? (double)from[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

// The row of n_out that draw `number` goes to. Numbers are 32 bits wide and may look negative.
RNG_FN size_t draw_row(int number, int n_out) { return (uint32_t)number % (uint32_t)n_out; }

typedef struct {                      // mean + scale * sum_i z_i (row_i - mean) + jitter * z'
    int            n, dim;            // rows, length of one
    const uint8_t *bytes;             // the set's images, v / 127.5 - 1, of which ...
    const int     *rows;              // ... these n are meant; or
    const real    *factor;            // n rows from which the mean is already taken away
    const real    *mean;              // [dim]
    real           scale, jitter;
} Gauss;

// A training step's losses become a row for the log, and are checked for divergence.
enum { ROW_STEP, ROW_LR, ROW_LOSS, ROW_CE, ROW_RIGHT, ROW_FX, ROW_FXQ, ROW_GAP, ROW_CLIMB, ROW_HALT,
       ROW_AUROC, ROW_STEPS, N_ROW };
// Rows of N_SUM: one per batch; then, of the chains' first move, what they climb before and after
// it, and g.x before and after it, whose difference is the increase that the gradient predicts. The
// last row takes sums that are not read.
enum { MAX_BATCHES = 3, CHAIN_BEFORE = MAX_BATCHES, CHAIN_AFTER, CHAIN_SLOPE,
       UNREAD, N_SUMS };
enum { HALT_NO, HALT_LOSS, HALT_GRAD, HALT_GAP, HALT_CE, HALT_CLIMB }; // StepState.halt
typedef struct {
    int    n[MAX_BATCHES], n_batch;   // images in each batch; batches
    Energy e[MAX_BATCHES];            // what each batch's sums stand for in the loss
    Energy up;                        // what chains climb
    int    after;                     // the row of sums after their first move
    int    label, px, sampled;        // batch with labels, p(x)'s real one, x_q; -1: none
    real   loss_limit, gap_limit, ce_limit;   // of |loss|, gap, ce - ce_low; 0: off
    real   climb_limit;               // lower limit of StepState.climb; 0: off
    real   px_margin;                 // limit on f(x) - f(x_q), see --px-margin; 0: none
    int    n_ring;                    // rows in the ring
} Watch;

typedef struct { real momentum, decay; } Sgd;
typedef struct { const real *p; int transposed; } Factor; // of a product of matrices, row-major
typedef struct { real beta1, beta2, eps, decay; } Adam;

typedef enum { CONV_AUTO, CONV_DIRECT } ConvChoice;
typedef enum { PREC_DEFAULT, PREC_FP32, PREC_TF32, PREC_BF16, N_PREC } Precision;

typedef struct {
    int         threads;              // 0: as many as the machine has; -n: an n-th of those
    ConvChoice  conv;
    Precision   precision;
    int         deterministic;
    int         unit;                 // which GPU, counted round where there are fewer
    const char *tuning;               // choices made earlier (Backend.tuning), or NULL
    const Events *events;             // Dev.events
} DevOpts;

typedef struct Dev Dev;
enum { LINK_LOST = 2 };               // Dev.linked

typedef struct Backend {
    const char *name;
    const char *precision[N_PREC];    // what it computes in, by DevOpts.precision: "fp32"
    int         host_memory;          // alloc gives memory that the host can use
    int         eval_batch;           // images per batch that it evaluates well at
    int         look_every;           // training steps between two reads of the device by the host,
                                      // which wait for all work under way
    // a device
    void  (*open)(Dev *, const DevOpts *);
    void  (*close)(Dev *);
    const char *(*describe)(const Dev *);                // "2 threads, AVX-512, oneDNN 2.6.3"
    const char *(*tuning)(Dev *);                        // kernel choices so far, one line each
    void  (*sync)(Dev *);                                // wait for all operations so far
    // memory; alloc returns 64-byte aligned memory that is not zeroed, NULL after a failure
    void *(*alloc)(Dev *, size_t bytes, const char *what);
    void  (*free)(Dev *, void *p);
    // the host's memory that copy_in and copy_out are fastest with, or NULL; no error of the device
    void *(*host_alloc)(Dev *, size_t bytes);
    void  (*host_free)(Dev *, void *p);
    void  (*copy_in)(Dev *, void *dst, const void *host, size_t bytes);
    void  (*copy_out)(Dev *, void *host, const void *src, size_t bytes);
    void  (*copy)(Dev *, void *dst, const void *src, size_t bytes);
    void  (*zero)(Dev *, void *p, size_t bytes);
    size_t (*tensor_bytes)(Dev *, const Tensor *shape);  // of an opaque activation
    void  (*from_plain)(Dev *, const real *src, Tensor *dst);
    void  (*to_plain)(Dev *, const Tensor *src, real *dst);
    // the network
    void  (*filters_pack)(Dev *, Filter *, int n);       // after the weights have changed
    void  (*filter_close)(Dev *, Filter *);
    void  (*conv_open)(Dev *, Conv *);
    void  (*conv_close)(Dev *, Conv *);
    void  (*conv_fwd)(Dev *, const Conv *, const Tensor *x, const real *b, Tensor *y);
    void  (*conv_dx)(Dev *, const Conv *, const Tensor *dy, Tensor *dx);
    void  (*conv_dw)(Dev *, const Conv *, const Tensor *x, const Tensor *dy, real *dw, real *db);
    void  (*norm_fwd)(Dev *, const Norm *, Tensor *x, const Tensor *r, Tensor *y);
    void  (*norm_bwd)(Dev *, const Norm *, const Tensor *x, const Tensor *dy, Tensor *dx,
                      real *dgamma, real *dbeta);
    // A batch that several ranks share (--sync-bn). norm_join: the whole batch's mean and variance
    // to stats [2][c], from every rank's op->mean and op->rstd, all [ranks][2][c]; moves the
    // running statistics if op->update. x: the shape of one rank's part.
    void  (*norm_join)(Dev *, const Norm *, const Tensor *x, const real *all, int ranks,
                       real *stats);
    // norm_center: norm_bwd without op->batch_stats gave dx, and mine [2][c] as dgamma and dbeta;
    // the sums of those over all ranks, all [2][c], complete dx. Adds mine to dgamma and dbeta.
    void  (*norm_center)(Dev *, const Norm *, const Tensor *x, const real *mine, const real *all,
                         int ranks, Tensor *dx, real *dgamma, real *dbeta);
    void  (*pool_fwd)(Dev *, const Tensor *x, Tensor *y);     // mean over h and w, to plain [n][c]
    void  (*pool_bwd)(Dev *, const Tensor *dy, Tensor *dx);
    // inference alone: pooling over windows; channels at .. at + x->c - 1 of y become x, in
    // ascending order; bytes [n][c][h][w] as plain images of y's height and width, bilinear by
    // TensorFlow's legacy rule (source = i * n_in / n_out, no half pixel), then (v - 128) / 128
    void  (*window_fwd)(Dev *, Pool, const Tensor *x, Tensor *y);
    void  (*concat)(Dev *, const Tensor *x, Tensor *y, int at);
    void  (*resize)(Dev *, const Tensor *bytes, Tensor *y);
    // logits z to sums[N_SUM] and, where wanted, dz = scale * df/dz; y may be NULL with b = 0
    void  (*head)(Dev *, const Tensor *z, const int *y, Energy e, real scale, Tensor *dz,
                  real *sums);
    // dz: the gradient of each row's largest z[c], c other than y, less z[y]
    void  (*margin)(Dev *, const Tensor *z, const int *y, Tensor *dz);
    // sampling and learning
    void  (*langevin)(Dev *, Tensor *x, const Tensor *g, Move m, Rng key, const StepState *now);
    void  (*dot)(Dev *, size_t n, const real *a, const real *b, real *out);
    // a random point of the ball around x0; one step up g, back into the ball, then into [-1, 1]
    void  (*attack_start)(Dev *, Tensor *x, const real *x0, Attack a, Rng key,
                          const StepState *now);
    void  (*attack_move)(Dev *, Tensor *x, const Tensor *g, const real *x0, Attack a);
    void  (*sgd)(Dev *, size_t n, real *w, const real *g, real *v, Sgd o, const StepState *now);
    void  (*adam)(Dev *, size_t n, real *w, const real *g, real *m, real *v, Adam o,
                  const StepState *now);
    // Muon (net/muon.c), on `count` matrices that follow one another.
    // c = scale a b (+ c); c is m x n, and k the length of a's rows and b's columns
    void  (*matmul)(Dev *, int count, int m, int n, int k, real scale, Factor a, Factor b, int add,
                    real *c);
    // divides each matrix, of n numbers, by its length (the Frobenius norm)
    void  (*unit_length)(Dev *, int count, size_t n, real *x);
    // y = scale x + shift I; n x n
    void  (*add_identity)(Dev *, int count, int n, real scale, real shift, const real *x, real *y);
    // v = momentum v + g; u = g + momentum v
    void  (*nesterov)(Dev *, size_t n, const real *g, real *v, real *u, real momentum,
                      const StepState *now);
    // w goes |w| rate in.lr along -o and is brought back to its length
    void  (*sphere_step)(Dev *, size_t n, real *w, const real *o, real rate, const StepState *now);
    void  (*ema)(Dev *, size_t n, real *avg, const real *w, real keep, const StepState *now);
    // halt = HALT_GRAD if a value is not finite
    void  (*check_finite)(Dev *, size_t n, const real *g, StepState *now);
    // SAM: w += radius w^2 g / |w g|; saves w in keep; clobbers g
    void  (*sam_perturb)(Dev *, size_t n, real *w, real *g, real radius, real *keep);
    void  (*watch)(Dev *, const Watch *, const real *sums, StepState *now, real *ring);
    // data
    // the next n of the numbers below `from`, in an order shuffled in each epoch
    void  (*pick)(Dev *, int from, int n, Rng key, const StepState *now, int *index);
    // the replay buffer's slots for a step's chains, and their classes (dev/slots.h)
    void  (*slots)(Dev *, Slots s, Rng key, const StepState *now, int *slot, int *y);
    void  (*batch)(Dev *, const Bytes *set, const int *index, int n, Augment a, Rng key,
                   const StepState *now, real *x, int *y);
    void  (*rows_get)(Dev *, real *dst, const real *src, const int *index, int n, size_t dim);
    void  (*rows_put)(Dev *, real *dst, const real *src, const int *index, int n, size_t dim,
                      const StepState *now);
    // each row whose chain starts afresh becomes the next unused row of the pool; n rows from
    // in.first on
    void  (*reinit)(Dev *, real *x, int n, size_t dim, Slots s, const real *pool, int n_pool,
                    Rng key, const StepState *now);
    // draws number[0 .. n) (on the device), clamped to [-1, 1], to row draw_row(number[j], n_out)
    // of out
    void  (*gauss)(Dev *, const Gauss *, const int *number, int n, Rng key, real *out, int n_out);
    void  (*uniform)(Dev *, const int *number, int n, size_t dim, Rng key, real *out, int n_out);
    // sum over words i of p of a hash of (i, p[i]): equal memory, equal number; waits
    uint64_t (*checksum)(Dev *, const void *p, size_t bytes);
    // The device's own link to those of other ranks (NULL: it has none; dev/comm.h). id: 128 bytes
    // that one rank makes for all. reduce and gather start, wait orders what follows behind them.
    int   (*ranks_id)(Dev *, char id[128], Err *err);
    void  (*ranks_open)(Dev *, int rank, int size, const char id[128]);
    void  (*ranks_reduce)(Dev *, real *p, size_t n, int mean);
    void  (*ranks_gather)(Dev *, const real *mine, real *all, size_t n);
    void  (*ranks_wait)(Dev *);
    // Recording (NULL: the device has none). Between begin and end operations are noted, not done;
    // replay repeats them all with the same arguments, and reads again what these point to.
    // copy_in, copy_out, sync, alloc and free stay outside.
    void  (*record_begin)(Dev *);
    void *(*record_end)(Dev *);
    void  (*replay)(Dev *, void *recording);
    void  (*record_free)(Dev *, void *recording);
} Backend;

struct Dev {
    Backend be;
    void   *impl;                     // the backend's own
    int     threads;
    size_t  scratch_bytes, packed_bytes;   // what convolutions took beside the passes' memory
    char    unit[40];                 // names the GPU among all machines' ones; "": none of its own
    int     linked;                   // to the devices of other ranks: 0, 1, or LINK_LOST
    double  link_timeout;             // seconds until the link counts as lost
    Err     err;                      // the first failure
    const Events *events;             // shows the search for kernels, and can stop it; may be NULL
    int     conv_at, conv_count;      // the convolution that is being opened, of how many
    int     searched, search_stopped; // kernels were timed; the user stopped it
};

// While convolutions are opened a device may time kernels, for minutes. Whoever opens several says
// how many (conv_at counts them), so that the search can be shown. A device calls dev_searching
// before it times a kernel, with what it times; nonzero: give up. dev_search_end returns 0, or -1
// and the device's error; a search that the user stopped leaves the device as usable as before.
static inline void dev_search_begin(Dev *dev, int count) {
    dev->conv_at = dev->searched = dev->search_stopped = 0;
    dev->conv_count = count;
}

static inline int dev_searching(Dev *dev, const char *what) {
    if (dev->err.kind) return 1;
    char text[128];
    snprintf(text, sizeof text, "timing kernels: %s", what);
    dev->searched = 1;
    tell_progress(dev->events, (uint64_t)dev->conv_at, (uint64_t)dev->conv_count, "convolutions",
                  text);
    dev->search_stopped = stopped(dev->events, &dev->err) != 0;
    return dev->search_stopped;
}

int dev_search_end(Dev *dev, Err *err);

static inline int dev_threads(const DevOpts *o, int processors) {
    const int share = o->threads < 0 ? processors / -o->threads : processors;
    return o->threads > 0 ? o->threads : share > 0 ? share : 1;
}

void ref_table(Backend *be);                  // ref.c: the functions of the reference

extern const char *const dev_names[];         // all but "auto", the first choice first, then NULL
// Opens "ref", "cpu", "cuda" or "auto": cuda where there is one, else cpu, else ref with the reason
// in `note` (which may be NULL). Others than ref are modules (base/module.h).
int  dev_open(Dev *dev, const char *name, const DevOpts *opts, char note[256], Err *err);
void dev_close(Dev *dev);
// Forgets an allocation that failed, once everything that was allocated along with it is freed.
void dev_recover(Dev *dev);
int  dev_check(const Dev *dev, Err *err);     // 0, or -1 and the device's first error

// What a module (jempp-cpu.so, jempp-cuda.so) exports as "jempp_backend": it changes the table,
// which comes filled with ref's functions. Returns 0, or -1 and why this machine cannot run it.
enum { BACKEND_ABI = (int)sizeof(Dev) << 8 | (int)sizeof(real) };
typedef int BackendModule(int abi, size_t table_size, Backend *be, Err *err);
#endif
