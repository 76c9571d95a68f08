// net.h - a network is a flat list of ops over numbered tensors.
//
// net/ holds networks as data, the passes that run them, and optimisers; it uses base/ and the
// table of dev/backend.h, and knows no particular device, no data set and no file.
//
// A Net says what is computed; a Pass says how: how many images, which gradients, which statistics,
// on which device. Training, sampling, inference and attacks are Passes over one Net. The forward
// pass walks the list down, the backward pass walks it up.
#ifndef NET_H
#define NET_H
#include "base/arena.h"
#include "dev/comm.h"

typedef enum { NORM_NONE, NORM_BATCH } NormKind;
typedef enum { STEM_3X3, STEM_4X4 } StemKind;     // stride 1 pad 1; stride 2 pad 1

typedef struct {
    int depth, width;           // wrn-DEPTH-WIDTH, depth = 6n + 4
    int channels, side;         // of the images: 1 or 3; 28, 32 or 64
    int classes;                // 2 to 1000
    NormKind norm;
    StemKind stem;
} NetSpec;

// OP_WINDOW, OP_CONCAT and OP_RESIZE, and a convolution with ReLU, have no backward pass.
typedef enum { OP_CONV, OP_NORM, OP_POOL, OP_WINDOW, OP_CONCAT, OP_RESIZE } OpKind;

typedef struct {
    OpKind kind;
    int x, r, y;                // activations: input; residual, added to x in place, or -1; output
    int w, b;                   // parameters (weight and bias, gamma and beta), or -1
    int size, size_w, stride, pad, pad_w;
    int relu;                   // OP_CONV: ReLU after it
    PoolKind pool;              // OP_WINDOW
    int at;                     // OP_CONCAT: y's channel where x begins
    int filter;                 // OP_CONV: which of Net.filter
    int stat;                   // OP_NORM: which pair of Net.stat, or -1
    int add_dx;                 // backward adds to dx, because a later reader of x stored it
    int bias_lost;              // the bias cannot change anything where norms use batch statistics
} Op;

typedef struct {
    char   name[56];            // PyTorch's state-dict name
    int    rank, dim[4];
    size_t off, len;            // in the flat block
    int    fan_in;              // for the initialisation; 0: gamma, -1: beta
} Param;

typedef struct {                // one norm's running mean at off, variance at off + len
    char   name[56];            // "f.layer1.0.bn1"
    size_t off, len;
} Stat;

typedef struct {
    NetSpec spec;
    Arena   arena;
    Op     *op;     int n_op;
    Tensor *act;    int n_act;  // shapes for one image; act[0] the image, the last the logits
    int     features;           // an activation that is there to be read beside the last, or 0
    int     forward_only;       // some op has no backward pass
    Param  *par;    int n_par;
    Stat   *stat;   int n_stat;
    Filter *filter; int n_filter;
    size_t  n_w, n_state;       // lengths of the flat blocks
    real    eps, leak, momentum;
    // on the device, after net_alloc
    Dev    *dev;
    real   *w, *dw, *state;     // parameters, gradients, running statistics
    uint64_t batches;           // PyTorch's num_batches_tracked
} Net;

int  net_parse(NetSpec *spec, const char *model, Err *err);      // "wrn-28-10" -> depth, width
int  net_build(Net *net, const NetSpec *spec, Err *err);         // the list alone: no device yet
int  net_alloc(Net *net, Dev *dev, Err *err);                    // w, dw, state on dev, not filled
int  net_init(Net *net, uint64_t seed, Err *err);                // random weights, fresh statistics
void net_changed(Net *net);                                      // call after w has been written
void net_zero_grad(Net *net);
void net_free(Net *net);
uint64_t net_macs(const Net *net);                               // multiply-adds forward, per image
uint64_t op_macs(const Net *net, const Op *op);
void op_describe(const Net *net, const Op *op, char *dst, size_t n);  // "conv 3x3  16 -> 32  8x8"

enum {                          // Pass.mode, beside WANT_DX and WANT_DW
    STATS_RUNNING = 4,          // normalise with the running statistics
    STATS_UPDATE = 8,           // move the running statistics
    RUN_FEW = 16,               // it runs a few times: kernels are chosen without timing them
    MODE_TRAIN = WANT_DW | STATS_UPDATE,
    MODE_SAMPLE = WANT_DX,
    MODE_INFER = STATS_RUNNING,
    MODE_ATTACK = WANT_DX | STATS_RUNNING,
};

typedef struct {
    Net    *net;
    Dev    *dev;
    int     mode, batch;
    size_t  bytes;              // what it needs; nothing more is allocated by running it
    Tensor *act, *grad;         // by activation number; grad[i].p NULL: not wanted
    Conv   *conv;               // by op
    Norm   *norm;
    size_t *act_off, *grad_off, *stat_off;   // in the memory, (size_t)-1: none
    Comm   *sync;               // ranks whose parts are one batch to the norms, or NULL
    real   *sync_room;          // on the device: what they exchange
    Arena   arena;
} Pass;

// Plans a pass (p->bytes), then opens its convolutions. pass_bind gives it memory: passes that
// never run together may share one block. Nothing but logits, their gradient and the input gradient
// is there for others to read, and only until another pass runs in the same memory.
// pass_plan is the plan alone: the net may have no device; share = 0 gives each tensor memory of
// its own.
int  pass_plan(Pass *p, Net *net, int batch, int mode, int share, Err *err);
int  pass_open(Pass *p, Net *net, int batch, int mode, Err *err);
void pass_bind(Pass *p, void *mem);
// Norms with batch statistics take those of all ranks' batches together (net/sync.c).
int  pass_sync(Pass *p, Comm *comm, Err *err);
void pass_close(Pass *p);
// x: plain images [batch][channels][side][side] on the device (bytes where the first op is
// OP_RESIZE); read again by pass_backward.
void pass_forward(Pass *p, void *x);
void pass_backward(Pass *p);                                 // from logits_grad(p)
// The same, after which no other pass adds to the net's gradients: it starts to sum them over all
// ranks, in buckets, as soon as they are complete. comm_wait must follow.
void pass_backward_last(Pass *p, Comm *comm);
Tensor *pass_logits(Pass *p);
Tensor *pass_logits_grad(Pass *p);
Tensor *pass_input_grad(Pass *p);

// plan.c: gives n blocks an offset each such that blocks alive at the same time do not overlap, and
// returns the total. With share = 0 no two blocks overlap.
typedef struct { int born, dies; size_t bytes, off; } PlanBlock;
size_t plan_blocks(PlanBlock *b, int n, int share);

// Building a list: room for n ops, then parameters and ops one by one. Both return numbers: a
// parameter's, and that of the op's output, a new activation of c channels, h rows and w columns.
int net_reserve(Net *net, int ops, Err *err);
int net_param(Net *net, const char *module, const char *part, const int *dim, int rank,
              int fan_in);
int net_op(Net *net, Op op, int c, int h, int w);

// sync.c: a norm of a pass, forward and backward, as Backend.norm_fwd and norm_bwd.
void sync_norm_fwd(Pass *p, const Norm *op, Tensor *x, const Tensor *r, Tensor *y);
void sync_norm_bwd(Pass *p, const Norm *op, const Tensor *x, const Tensor *dy, Tensor *dx,
                   real *dgamma, real *dbeta);

// wrn.c
int wrn_build(Net *net, Err *err);
#endif
