// cuda_tune.cu - which kernel computes a convolution fastest. For each shape and direction, cuDNN
// lists engines; those that are allowed and our own kernels are timed once, checked, and the
// fastest is kept (Backend.tuning, and a cache file).
#include "dev/cuda_conv.cuh"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const WHAT = "timing convolutions";

void tune_start(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    cuda_failed(dev, cudaEventCreate(&cuda->start), "opening");
    cuda_failed(dev, cudaEventCreate(&cuda->stop), "opening");
}

static void plan_free(ConvPlan *p) {
    dnn_free(p->plan);
    dnn_free(p->graph);
    free(p);
}

void tune_stop(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    for (ConvPlan *p = cuda->plans, *next; p; p = next) {
        next = p->next;
        plan_free(p);
    }
    cuda->plans = NULL;
    if (cuda->start) cudaEventDestroy(cuda->start);
    if (cuda->stop) cudaEventDestroy(cuda->stop);
}

// ---- what can be used --------------------------------------------------------------------------

static int can_rot180(const Conv *c, int dir) {
    return dir != DW && !c->relu && c->size == c->size_w && c->pad == c->pad_w && c->stride == 1 &&
           2 * c->pad == c->size - 1;
}

// Whether there is such an own kernel; own: its variant, from 1.
static int can_own(const Dev *dev, const Conv *c, int dir, int own) {
    const Tensor *from = dir == FWD ? &c->x : &c->y, *to = dir == FWD ? &c->y : &c->x;
    if (c->relu || c->size != 3 || c->size_w != 3 || c->pad != 1 || c->pad_w != 1) return 0;
    if (dir == DW) return c->stride == 1 && hopper_dw_fits(dev, own - 1, &c->x, &c->y);
    if (c->stride == 2) return hopper_s2_fits(dev, own - 1, dir == DX, &c->x, &c->y);
    return c->stride == 1 && hopper_fits(dev, own - 1, from, to);
}

static size_t own_workspace(const Dev *dev, const Conv *c, int dir, int own) {
    return dir == DW ? hopper_dw_bytes(dev, own - 1, &c->x, &c->y) : 0;
}

int wants_rot180(const Dev *dev, const Conv *c) {
    int own = can_rot180(c, FWD);
    for (int i = 1; i <= HOPPER_S2_VARIANTS && c->stride == 2; i++) own |= can_own(dev, c, DX, i);
    return own;
}

// So little work that any engine will do.
static int is_tiny(const Conv *c) {
    return (double)tensor_len(&c->y) * c->x.c * c->size * c->size_w < 1e7;
}

static cudaError_t own_run(Dev *dev, const ConvPlan *p, const Tensor *x, const PackedFilter *f,
                           const Tensor *y, void *workspace) {
    const int variant = p->own - 1, stride = x->h / y->h;
    if (p->dir == DW) return hopper_dw(dev, variant, x, y, workspace);
    if (stride == 2)
        return p->dir == FWD ? hopper_s2_fwd(dev, variant, x, f->w, y)
                             : hopper_s2_dx(dev, variant, y, f->rot180, x);
    return p->dir == FWD ? hopper_conv(dev, variant, x, f->w, y)
                         : hopper_conv(dev, variant, y, f->rot180, x);
}

int plan_run(Dev *dev, const ConvPlan *p, const Tensor *x, const PackedFilter *f, void *dw,
             const Tensor *y, void *workspace) {
    if (p->own) return (int)own_run(dev, p, x, f, y, workspace);
    void *w = p->dir == DW ? dw : p->rot180 ? f->rot180 : f->w;
    return dnn_run(dev, p->plan, p->rot180 ? y->p : x->p, w, p->rot180 ? x->p : y->p, workspace);
}

int plan_dw_add(Dev *dev, const ConvPlan *p, const Conv *c, const void *part, const void *workspace,
                float *dw) {
    if (p->own) return (int)hopper_dw_add(dev, p->own - 1, &c->x, &c->y, workspace, dw);
    dw_add(dev, c, part, p->out32, dw);
    return 0;
}

int plan_failed(Dev *dev, const ConvPlan *p, int status, const char *what) {
    return p->own ? cuda_failed(dev, (cudaError_t)status, what) : dnn_failed(dev, status, what);
}

// ---- trials ------------------------------------------------------------------------------------

typedef struct {                               // memory to run in, full of random numbers
    const Conv *c;
    Tensor  x, y;
    float  *master, *dw;
    PackedFilter packed;
    void   *part, *workspace;                  // part: what a weight gradient writes
    double *sums;
    size_t  room;                              // the workspace's bytes
} Trial;

static __global__ void noise_kernel(float *p, size_t n, Rng key) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = 2 * rng_uniform(key, i) - 1;
}

static void trial_noise(Dev *dev, Tensor *t, uint32_t which, float *room) {
    const Rng key = { 1, RNG_BENCH, which, 0 };
    t->p = dev->be.alloc(dev, dev->be.tensor_bytes(dev, t), WHAT);
    if (!t->p) return;
    noise_kernel<<<256, 256, 0, cuda_of(dev)->stream>>>(room, tensor_len(t), key);
    dev->be.from_plain(dev, room, t);
}

static void trial_close(Dev *dev, Trial *t) {
    void *all[] = { t->x.p,           t->y.p,  t->master,    t->dw,  t->packed.w,
                    t->packed.rot180, t->part, t->workspace, t->sums };
    cudaStreamSynchronize(cuda_of(dev)->stream);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) dev->be.free(dev, all[i]);
}

static int trial_open(Dev *dev, const Conv *c, Trial *t) {
    enum { ROOM = 256 << 20 };
    const Rng key = { 1, RNG_BENCH, 2, 0 };
    const size_t n = (size_t)c->x.c * c->y.c * c->size * c->size_w;
    const size_t filled = filled_len(c) * sizeof(float);
    const size_t most =
        tensor_len(&c->x) > tensor_len(&c->y) ? tensor_len(&c->x) : tensor_len(&c->y);
    memset(t, 0, sizeof *t);
    t->c = c;
    t->x = c->x;
    t->y = c->y;
    t->room = ROOM > most * sizeof(float) ? ROOM : most * sizeof(float);
    t->workspace = dev->be.alloc(dev, t->room, WHAT);
    t->master = (float *)dev->be.alloc(dev, n * sizeof(float), WHAT);
    t->dw = (float *)dev->be.alloc(dev, n * sizeof(float), WHAT);
    t->packed.w = dev->be.alloc(dev, filled, WHAT);
    t->packed.rot180 = dev->be.alloc(dev, filled, WHAT);
    t->part = dev->be.alloc(dev, filled, WHAT);
    t->sums = (double *)dev->be.alloc(dev, 2 * sizeof(double), WHAT);
    if (!dev->err.kind) {
        trial_noise(dev, &t->x, 0, (float *)t->workspace);
        trial_noise(dev, &t->y, 1, (float *)t->workspace);
        noise_kernel<<<256, 256, 0, cuda_of(dev)->stream>>>(t->master, n, key);
        Filter f = { c->y.c, c->x.c, c->size, c->size_w, t->master, &t->packed };
        filters_pack(dev, &f, 1);
        cudaStreamSynchronize(cuda_of(dev)->stream);
        dev->be.free(dev, t->packed.table);
    }
    if (!dev->err.kind) return 0;
    trial_close(dev, t);
    return -1;
}

// A weight gradient with its addition, which takes different times after different kernels.
static int trial_run(Dev *dev, const ConvPlan *k, const Trial *t) {
    const int bad = plan_run(dev, k, &t->x, &t->packed, t->part, &t->y, t->workspace);
    if (bad || k->dir != DW) return bad;
    return plan_dw_add(dev, k, t->c, t->part, t->workspace, t->dw);
}

static float time_runs(Dev *dev, const ConvPlan *k, const Trial *t, int runs) {
    const Cuda *cuda = cuda_of(dev);
    float ms = INFINITY;
    cudaEventRecord(cuda->start, cuda->stream);
    for (int i = 0; i < runs; i++)
        if (trial_run(dev, k, t)) return INFINITY;
    cudaEventRecord(cuda->stop, cuda->stream);
    if (cudaEventSynchronize(cuda->stop) || cudaEventElapsedTime(&ms, cuda->start, cuda->stop)) {
        cudaGetLastError();
        return INFINITY;
    }
    return ms / (float)runs;
}

// Milliseconds of one run; gives up early on what cannot win. The first run also loads the kernel.
// Inference (few) is timed roughly.
static float time_plan(Dev *dev, const ConvPlan *k, const Trial *t, int few, float best) {
    const float load = 5, hopeless = 3, behind = 1.3f;
    float ms = time_runs(dev, k, t, 1);
    if (!(ms < INFINITY) || ms > load + hopeless * best) return ms;
    ms = time_runs(dev, k, t, 2);
    if (few || ms > behind * best) return ms;
    for (int i = 0; i < 3; i++) ms = fminf(ms, time_runs(dev, k, t, 8));
    return ms;
}

// Whether the candidate computes what it should, into memory full of NaN. What it leaves in one of
// the trial's tensors are other random numbers, which does no harm.
static int is_right(Dev *dev, const Conv *c, const ConvPlan *k, const Trial *t) {
    const Tensor *out = k->dir == FWD ? &t->y : &t->x;
    cudaStream_t s = cuda_of(dev)->stream;
    if (k->dir == DW) {
        cudaMemsetAsync(t->part, 0xff, filled_len(c) * sizeof(float), s);
        if (k->own) cudaMemsetAsync(t->workspace, 0xff, k->workspace, s);
        dev->be.zero(dev, t->dw, (size_t)c->x.c * c->y.c * c->size * c->size_w * sizeof(float));
    } else cudaMemsetAsync(out->p, 0xff, dev->be.tensor_bytes(dev, out), s);
    if (trial_run(dev, k, t)) return 0;
    const double off = conv_probe(dev, c, k->dir, &t->x, &t->y, t->master, t->dw, t->sums);
    return off < (cuda_of(dev)->half ? 2e-2 : cuda_of(dev)->precision == PREC_TF32 ? 5e-3 : 1e-4);
}

// Whether it can become part of a recorded step: some engines of fp32 cannot.
static int can_record(Dev *dev, const ConvPlan *k, const Trial *t) {
    cudaStream_t s = cuda_of(dev)->stream;
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)) return 0;
    const int bad = trial_run(dev, k, t);
    const int broken = cudaStreamEndCapture(s, &graph) != cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();                               // a failed trial is no failure of the device
    return !bad && !broken;
}

// ---- the search --------------------------------------------------------------------------------

typedef struct {
    float ms;
    ConvPlan plan;                             // dir, rot180, out32, own
    EngineConfig config;
} FastestPlan;

// Takes a candidate over where it is faster and right.
static void consider(Dev *dev, const Conv *c, const ConvPlan *k, const EngineConfig *config,
                     const Trial *t, FastestPlan *best) {
    const float ms = time_plan(dev, k, t, c->relu, best->ms);
    if (!(ms < best->ms) || !can_record(dev, k, t) || !is_right(dev, c, k, t)) return;
    best->ms = ms;
    best->plan = *k;
    if (config) best->config = *config;
}

// Whether the engine can be used at all.
static int consider_engine(Dev *dev, const Conv *c, DnnDesc graph, ConvPlan k,
                           const EngineConfig *config, const Trial *t, FastestPlan *best) {
    k.plan = dnn_plan(dev, graph, config, &k.workspace);
    const int usable = k.plan && k.workspace <= t->room;
    if (usable) consider(dev, c, &k, config, t, best);
    dnn_free(k.plan);
    return usable;
}

static double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// cuDNN lists what it expects to be fastest first, and preparing a plan takes longer than timing
// it. So a form's search ends with its time, or after many engines in a row that were no faster;
// both bounds are tighter where an own kernel is the fastest so far. Inference runs too shortly for
// a long search: the first few are timed.
typedef struct {
    double end;                                // clock_ms()
    int    tried, in_vain;                     // engines that can be used; the last ones in a row
} FormSearch;

static int is_enough(const Conv *c, const FastestPlan *best, const FormSearch *s) {
    enum { PATIENCE = 16 };
    if (!(best->ms < INFINITY)) return 0;
    if (is_tiny(c) || (c->relu && s->tried >= 3)) return 1;
    return clock_ms() > s->end || s->in_vain >= (best->plan.own ? PATIENCE / 2 : PATIENCE);
}

// Every engine for every form of the direction: with and without the rotated filter, or weight
// gradients in fp32 and in bf16.
static void consider_engines(Dev *dev, const Conv *c, int dir, const char *key, const Trial *t,
                             EngineConfig *list, FastestPlan *best) {
    enum { FORM_MS = 200 };
    const int forms = can_rot180(c, dir) || (dir == DW && cuda_of(dev)->half) ? 2 : 1;
    for (int form = 0; form < forms; form++) {
        ConvPlan k = {};
        k.dir = dir;
        k.rot180 = dir != DW && form;
        k.out32 = dir == DW && !form;
        FormSearch s = { clock_ms() + FORM_MS / (best->plan.own ? 2 : 1), 0, 0 };
        DnnDesc graph = dnn_graph(dev, c, dir, k.rot180, k.out32);
        const int count = graph ? dnn_configs(graph, list) : 0;
        for (int i = 0; i < count && !dev_searching(dev, key); i++) {
            if (is_enough(c, best, &s)) break;
            const float before = best->ms;
            const int usable = consider_engine(dev, c, graph, k, &list[i], t, best);
            s.tried += usable;
            s.in_vain = best->ms < before ? 0 : s.in_vain + usable;
        }
        dnn_free(graph);
    }
}

static void consider_own(Dev *dev, const Conv *c, int dir, const char *key, const Trial *t,
                         FastestPlan *best) {
    for (int own = 1; own <= MOST_OWN_VARIANTS && !dev_searching(dev, key); own++) {
        if (!can_own(dev, c, dir, own)) continue;
        ConvPlan k = {};
        k.dir = dir;
        k.own = own;
        k.workspace = own_workspace(dev, c, dir, own);
        if (k.workspace <= t->room) consider(dev, c, &k, NULL, t, best);
    }
}

// Times everything that computes this direction and writes the winner's text to how; 0 where there
// is one.
static int find_fastest(Dev *dev, const Conv *c, int dir, const char *key, char *how, size_t n) {
    Trial t;
    FastestPlan best = { INFINITY };
    EngineConfig *list = (EngineConfig *)calloc(MAX_CONFIGS, sizeof *list);
    if (!list || trial_open(dev, c, &t)) {
        free(list);
        return -1;
    }
    consider_own(dev, c, dir, key, &t, &best);
    consider_engines(dev, c, dir, key, &t, list, &best);
    trial_close(dev, &t);
    free(list);
    if (dev->err.kind || !(best.ms < INFINITY)) return -1;
    if (best.plan.own) {
        snprintf(how, n, "own %d", best.plan.own);
        return 0;
    }
    char text[256];
    config_text(&best.config, text, sizeof text);
    const char *form = dir == DW ? (best.plan.out32 ? "w32" : "w16")
                       : best.plan.rot180 ? "rot180"
                                          : "as-is";
    snprintf(how, n, "%s %s", form, text);
    return 0;
}

// ---- plans -------------------------------------------------------------------------------------

static ConvPlan *plan_make(Dev *dev, const Conv *c, int dir, const char *key, const char *how) {
    char form[16];
    int used = 0, own = 0;
    EngineConfig config;
    if (sscanf(how, "own %d", &own) == 1 && !can_own(dev, c, dir, own)) return NULL;
    if (sscanf(how, "%15s %n", form, &used) != 1 || (!own && config_parse(&config, how + used)))
        return NULL;
    // choices of version 0.1 say "turned"
    const int rot180 = !strcmp(form, "rot180") || !strcmp(form, "turned");
    if ((rot180 && !can_rot180(c, dir)) || (!own && (dir == DW) != (form[0] == 'w'))) return NULL;
    ConvPlan *p = (ConvPlan *)calloc(1, sizeof *p);
    if (!p) return NULL;
    snprintf(p->key, sizeof p->key, "%s", key);
    p->dir = dir;
    p->own = own;
    if (own) {
        p->workspace = own_workspace(dev, c, dir, own);
        snprintf(p->name, sizeof p->name, "%s", how);
        return p;
    }
    snprintf(p->name, sizeof p->name, "%s e%lld", rot180 ? "rot180" : form,
             (long long)config.engine);
    p->rot180 = rot180;
    p->out32 = !strcmp(form, "w32") || !cuda_of(dev)->half;
    p->graph = dnn_graph(dev, c, dir, rot180, p->out32);
    p->plan = p->graph ? dnn_plan(dev, p->graph, &config, &p->workspace) : NULL;
    if (p->plan) return p;
    plan_free(p);
    return NULL;
}

// "k3", or where rows and columns differ "k1x7".
static void pair_text(char dst[24], const char *name, int rows, int cols) {
    if (rows == cols) snprintf(dst, 24, "%s%d", name, rows);
    else snprintf(dst, 24, "%s%dx%d", name, rows, cols);
}

const ConvPlan *plan_for(Dev *dev, const Conv *c, int dir) {
    static const char *const names[] = { "fwd", "dx", "dw" }, *const types[] = { "bf16", "fp32",
                                                                                 "tf32", "bf16" };
    Cuda *cuda = cuda_of(dev);
    char key[96], how[320], kernel[24], pad[24];
    pair_text(kernel, "k", c->size, c->size_w);
    pair_text(pad, "p", c->pad, c->pad_w);
    snprintf(key, sizeof key, "%s n%d %dx%d %d-%d %s s%d %s %s%s%s%s", names[dir], c->x.n, c->x.h,
             c->x.w, c->x.c, c->y.c, kernel, c->stride, pad, types[cuda->precision],
             c->relu ? " relu" : "", cuda->deterministic ? " exact" : "",
             cuda->conv == CONV_DIRECT ? " direct" : "");
    for (const ConvPlan *p = cuda->plans; p; p = p->next)
        if (!strcmp(p->key, key)) return p;
    ConvPlan *p = cuda_choice(cuda, key, how, sizeof how) ? plan_make(dev, c, dir, key, how) : NULL;
    if (!p && !find_fastest(dev, c, dir, key, how, sizeof how)) {
        p = plan_make(dev, c, dir, key, how);
        if (p) cuda_choose(dev, key, how);
    }
    if (!p) return NULL;
    p->next = cuda->plans;
    cuda->plans = p;
    return p;
}
