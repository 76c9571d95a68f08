// cuda_conv.cu - convolutions between opaque activations, by cuDNN. The only file that knows it.
//
// For each shape and direction cuDNN lists engines; each that fits is timed once, the fastest is kept
// (Backend.tuning, and a cache file). A convolution of stride 1 is also a data gradient, of the
// convolution with its filter turned by half a circle and its channels exchanged; which of the two
// forms is faster differs by shape, so both are tried, and filters are packed in both ways.
#include "dev/cuda.cuh"
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FWD, DX, DW };                          // what is asked for, and cuDNN's three operations
enum { UID_X = 1, UID_W, UID_Y };
enum { MAX_TAPS = 9, TILE = 32, MAX_CONFIGS = 96, MAX_KNOBS = 32 };

typedef cudnnBackendDescriptor_t Desc;

typedef struct Plan {
    char   key[96], name[64];
    int    dir, swap, out32;                   // swap: with the turned filter; out32: dw comes in fp32
    int    own;                                // hopper_conv's variant, from 1; 0: cuDNN's plan
    Desc   graph, plan;
    size_t workspace;
    struct Plan *next;
} Plan;

typedef struct {
    cudnnHandle_t handle;
    Plan         *plans;
    cudaEvent_t   start, stop;
} Dnn;

typedef struct {                               // Filter.impl
    void  *a, *b;                              // [out][tap][in]; turned: [in][tap][out]
    float *stem;                               // [in][tap][out], fp32
    size_t bytes;
    void  *table;                              // on the device, of all filters of a pack; the first's
    int    n_table, n_blocks;
} Packed;

typedef struct {
    const Plan *plan[3];
} ConvImpl;

static Dnn *dnn_of(const Dev *dev) { return (Dnn *)cuda_of(dev)->dnn; }
static int fill8(int c) { return (c + 7) / 8 * 8; }

static int dnn_failed(Dev *dev, cudnnStatus_t rc, const char *what) {
    if (rc == CUDNN_STATUS_SUCCESS) return 0;
    return err_set(&dev->err, ERR_DEV, "cuDNN failed at %s: %s", what, cudnnGetErrorString(rc));
}

void cuda_conv_version(char *dst, size_t n) {
    const size_t v = cudnnGetVersion();
    snprintf(dst, n, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

void cuda_conv_start(Dev *dev) {
    if (dev->err.kind) return;
    Dnn *dnn = (Dnn *)calloc(1, sizeof *dnn);
    cuda_of(dev)->dnn = dnn;
    if (!dnn) err_set(&dev->err, ERR_MEM, "out of memory for cuDNN");
    else if (!dnn_failed(dev, cudnnCreate(&dnn->handle), "opening"))
        dnn_failed(dev, cudnnSetStream(dnn->handle, cuda_of(dev)->stream), "opening");
    if (dev->err.kind) return;
    cuda_failed(dev, cudaEventCreate(&dnn->start), "opening");
    cuda_failed(dev, cudaEventCreate(&dnn->stop), "opening");
}

static void destroy(Desc d) {
    if (d) cudnnBackendDestroyDescriptor(d);
}

void cuda_conv_stop(Dev *dev) {
    Dnn *dnn = dnn_of(dev);
    if (!dnn) return;
    for (Plan *p = dnn->plans, *next; p; p = next) {
        next = p->next;
        destroy(p->plan);
        destroy(p->graph);
        free(p);
    }
    if (dnn->start) cudaEventDestroy(dnn->start);
    if (dnn->stop) cudaEventDestroy(dnn->stop);
    if (dnn->handle) cudnnDestroy(dnn->handle);
    free(dnn);
    cuda_of(dev)->dnn = NULL;
}

// ---- descriptors ---------------------------------------------------------------------------------
// Each of these returns NULL where cuDNN refuses: that engine or form is then not for us.

static Desc make(cudnnBackendDescriptorType_t type) {
    Desc d = NULL;
    return cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static int set(Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *v) {
    return d && cudnnBackendSetAttribute(d, name, type, n, v) == CUDNN_STATUS_SUCCESS ? 0 : -1;
}

static int get(Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t most, int64_t *n, void *v) {
    return d && cudnnBackendGetAttribute(d, name, type, most, n, v) == CUDNN_STATUS_SUCCESS ? 0
                                                                                            : -1;
}

static Desc finished(Desc d, int bad) {
    if (!bad && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS) return d;
    destroy(d);
    return NULL;
}

// Dense, channels innermost; dims in cuDNN's order n, c, h, w.
static Desc tensor_desc(int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h,
                        int64_t w) {
    const int64_t dim[4] = { n, c, h, w }, stride[4] = { c * h * w, 1, c * w, c }, align = 16;
    Desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    return finished(d, set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) ||
                           set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim) ||
                           set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride) ||
                           set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) ||
                           set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
}

static Desc conv_desc(const Conv *c) {
    const int64_t two = 2, stride[2] = { c->stride, c->stride }, pad[2] = { c->pad, c->pad },
                  one[2] = { 1, 1 };
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    Desc d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    return finished(
        d, set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) ||
               set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) ||
               set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two) ||
               set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride) ||
               set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad) ||
               set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad) ||
               set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, one));
}

static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t  alpha, beta, conv, x, w, y;
} OPERATION[3] = {
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
};

// The operation as a graph of one node. Turned round, y takes x's place: a forward convolution is
// then a data gradient and the other way round.
static Desc graph_desc(Dev *dev, const Conv *c, int dir, int swap, int out32) {
    const cudnnDataType_t type = cuda_of(dev)->half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int op = swap ? (dir == FWD ? DX : FWD) : dir;
    const Tensor *x = swap ? &c->y : &c->x, *y = swap ? &c->x : &c->y;
    const float one = 1, none = 0;
    const cudnnHandle_t handle = dnn_of(dev)->handle;
    Desc part[4] = { tensor_desc(UID_X, type, x->n, fill8(x->c), x->h, x->w),
                     tensor_desc(UID_W, dir == DW && out32 ? CUDNN_DATA_FLOAT : type, fill8(y->c),
                                 fill8(x->c), c->size, c->size),
                     tensor_desc(UID_Y, type, y->n, fill8(y->c), y->h, y->w), conv_desc(c) };
    Desc node = make(OPERATION[op].type), graph = NULL;
    node = finished(node,
                    !part[0] || !part[1] || !part[2] || !part[3] ||
                        set(node, OPERATION[op].alpha, CUDNN_TYPE_FLOAT, 1, &one) ||
                        set(node, OPERATION[op].beta, CUDNN_TYPE_FLOAT, 1, &none) ||
                        set(node, OPERATION[op].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part[3]) ||
                        set(node, OPERATION[op].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part[0]) ||
                        set(node, OPERATION[op].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part[1]) ||
                        set(node, OPERATION[op].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part[2]));
    if (node) {
        graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        graph = finished(
            graph,
            set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
                set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &node));
    }
    destroy(node);
    for (int i = 0; i < 4; i++) destroy(part[i]);
    return graph;
}

// ---- engines -------------------------------------------------------------------------------------

typedef struct {                               // an engine and its knobs, as text "e38 k2-5 k14-3"
    int64_t engine, type[MAX_KNOBS], value[MAX_KNOBS];
    int     n;
} Config;

static void config_text(const Config *c, char *dst, size_t n) {
    size_t at = (size_t)snprintf(dst, n, "e%lld", (long long)c->engine);
    for (int i = 0; i < c->n && at < n; i++)
        at += (size_t)snprintf(dst + at, n - at, " k%lld-%lld", (long long)c->type[i],
                               (long long)c->value[i]);
}

static int config_parse(Config *c, const char *s) {
    long long a, b;
    int used = 0;
    memset(c, 0, sizeof *c);
    if (sscanf(s, "e%lld%n", &a, &used) != 1) return -1;
    c->engine = a;
    for (s += used; c->n < MAX_KNOBS && sscanf(s, " k%lld-%lld%n", &a, &b, &used) == 2; s += used) {
        c->type[c->n] = a;
        c->value[c->n++] = b;
    }
    return *s ? -1 : 0;
}

static int config_read(Config *c, Desc d) {
    int64_t n = 0;
    memset(c, 0, sizeof *c);
    Desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), knob[MAX_KNOBS];
    int bad = get(d, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) ||
              get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &c->engine);
    for (int i = 0; i < MAX_KNOBS; i++) knob[i] = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (!bad && !get(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS,
                     &n, knob))
        for (int i = 0; !bad && i < n && i < MAX_KNOBS; i++) {
            cudnnBackendKnobType_t type;
            int64_t one = 0;
            bad = get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                      &type) ||
                  get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                      &c->value[c->n]);
            c->type[c->n++] = type;
        }
    for (int i = 0; i < MAX_KNOBS; i++) destroy(knob[i]);
    destroy(engine);
    return bad;
}

// Whether an engine's arithmetic is what was asked for.
static int engine_allowed(const Cuda *cuda, Desc engine) {
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note))
        return 0;
    for (int64_t i = 0; i < n; i++) switch (note[i]) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (cuda->precision == PREC_FP32) return 0;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return 0;
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
            if (cuda->conv == CONV_DIRECT) return 0;
            break;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (cuda->deterministic) return 0;
            break;
        default: break;
        }
    return 1;
}

static Desc plan_desc(Dev *dev, Desc graph, const Config *c, size_t *workspace) {
    const cudnnHandle_t handle = dnn_of(dev)->handle;
    Desc knob[MAX_KNOBS], config = NULL, plan = NULL;
    int bad = 0, n = 0;
    Desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine = finished(
        engine,
        set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph) ||
            set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &c->engine));
    if (!engine || !engine_allowed(cuda_of(dev), engine)) {
        destroy(engine);
        return NULL;
    }
    for (; n < c->n && !bad; n++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)c->type[n];
        Desc k = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        knob[n] = finished(
            k, set(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) ||
                   set(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &c->value[n]));
        bad = !knob[n];
    }
    if (!bad) {
        config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config = finished(config, set(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) ||
                                      (n && set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, n, knob)));
    }
    if (config) {
        int64_t got = 0, bytes = 0;
        plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan = finished(
            plan, set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
                      set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
        if (get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                &bytes) ||
            bytes < 0) {
            destroy(plan);
            plan = NULL;
        }
        *workspace = (size_t)bytes;
    }
    for (int i = 0; i < n; i++) destroy(knob[i]);
    destroy(config);
    destroy(engine);
    return plan;
}

// What cuDNN would try, in its own order, without repetitions.
static int configs_list(Desc graph, Config *list) {
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                    CUDNN_HEUR_MODE_FALLBACK };
    int n = 0;
    for (int m = 0; m < 3; m++) {
        Desc found[MAX_CONFIGS], h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        int64_t count = 0;
        h = finished(h, set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            1, &graph) ||
                            set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &modes[m]));
        if (!h) continue;
        for (int i = 0; i < MAX_CONFIGS; i++) found[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS,
                &count, found))
            count = 0;
        for (int i = 0; i < count && i < MAX_CONFIGS && n < MAX_CONFIGS; i++) {
            if (config_read(&list[n], found[i])) continue;
            int k = 0;
            while (k < n && memcmp(&list[k], &list[n], sizeof *list) != 0) k++;
            n += k == n;
        }
        for (int i = 0; i < MAX_CONFIGS; i++) destroy(found[i]);
        destroy(h);
    }
    return n;
}

static cudnnStatus_t own_run(Dev *dev, int own, const Tensor *x, const void *w, const Tensor *y) {
    return hopper_conv(dev, own - 1, x, w, y) ? CUDNN_STATUS_EXECUTION_FAILED
                                              : CUDNN_STATUS_SUCCESS;
}

// x, w, y: by the operation's own roles.
static cudnnStatus_t run(Dev *dev, Desc plan, void *x, void *w, void *y, void *workspace) {
    const int64_t uid[3] = { UID_X, UID_W, UID_Y };
    void *data[3] = { x, w, y };
    Desc pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack = finished(
        pack, set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid) ||
                  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data) ||
                  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    if (!pack) return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t rc = cudnnBackendExecute(dnn_of(dev)->handle, plan, pack);
    destroy(pack);
    return rc;
}

// ---- filters -------------------------------------------------------------------------------------

struct PackItem {
    const float *w;
    void        *a, *b;
    float       *stem;
    int          out, in, taps, first;          // first: its first block
};

// A block packs a tile of 32 x 32 channels, or a stem.
template <class T, int TAPS>
static __device__ void pack_tile(const PackItem &it, int local, float *tile) {
    constexpr int ROW = TILE * TAPS, STRIDE = ROW + 1;
    const int op = (it.out + 7) / 8 * 8, ip = (it.in + 7) / 8 * 8, t = (int)threadIdx.x,
              n = (int)blockDim.x;
    const int across = (ip + TILE - 1) / TILE, o0 = local / across * TILE,
              i0 = local % across * TILE;
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int o = e / ROW, rest = e % ROW;
        tile[o * STRIDE + rest] = o0 + o < it.out && i0 + rest / TAPS < it.in
                                      ? it.w[((size_t)(o0 + o) * it.in + i0) * TAPS + rest]
                                      : 0;
    }
    __syncthreads();
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int i = e % TILE, tap = e / TILE % TAPS, o = e / TILE / TAPS;
        if (o0 + o < op && i0 + i < ip)
            ((T *)it.a)[((size_t)(o0 + o) * TAPS + tap) * ip + i0 + i] =
                (T)tile[o * STRIDE + i * TAPS + tap];
    }
    if (!it.b) return;
    #pragma unroll 4
    for (int e = t; e < TILE * ROW; e += n) {
        const int o = e % TILE, tap = e / TILE % TAPS, i = e / TILE / TAPS;
        if (o0 + o < op && i0 + i < ip)
            ((T *)it.b)[((size_t)(i0 + i) * TAPS + tap) * op + o0 + o] =
                (T)tile[o * STRIDE + i * TAPS + TAPS - 1 - tap];
    }
}

template <class T> static __global__ void pack_kernel(const PackItem *items, int n) {
    __shared__ float tile[TILE * (TILE * MAX_TAPS + 1)];
    __shared__ PackItem it;
    const int t = (int)threadIdx.x;
    for (int i = t; i < n; i += (int)blockDim.x)
        if (items[i].first <= (int)blockIdx.x &&
            (i + 1 == n || items[i + 1].first > (int)blockIdx.x))
            it = items[i];
    __syncthreads();
    const int op = (it.out + 7) / 8 * 8, local = (int)blockIdx.x - it.first;
    if (it.stem)
        for (int e = t; e < it.in * it.taps * op; e += (int)blockDim.x) {
            const int o = e % op, tap = e / op % it.taps, c = e / op / it.taps;
            it.stem[e] = o < it.out ? it.w[((size_t)o * it.in + c) * it.taps + tap] : 0;
        }
    else if (it.taps == 9) pack_tile<T, 9>(it, local, tile);
    else if (it.taps == 4) pack_tile<T, 4>(it, local, tile);
    else if (it.taps == 1) pack_tile<T, 1>(it, local, tile);
}

// The table of one network's filters, which its first filter owns.
static Packed *table_of(Dev *dev, Filter *f, int n) {
    Packed *owner = NULL;
    int used = 0, blocks = 0;
    for (int i = 0; i < n; i++) {
        Packed *p = (Packed *)f[i].impl;
        if (!p || !(p->a || p->stem)) continue;          // the head uses the master copy
        if (!owner) owner = p;
        used++;
    }
    if (!owner || (owner->table && owner->n_table == used)) return owner;
    PackItem *item = (PackItem *)calloc((size_t)used, sizeof *item);
    if (!item) {
        err_set(&dev->err, ERR_MEM, "out of memory for a table of filters");
        return NULL;
    }
    for (int i = 0, k = 0; i < n; i++) {
        const Packed *p = (const Packed *)f[i].impl;
        if (!p || !(p->a || p->stem)) continue;
        item[k++] = {
            f[i].w, p->a, p->b, p->stem, f[i].out, f[i].in, f[i].size * f[i].size, blocks
        };
        blocks +=
            p->stem ? 1
                    : ((fill8(f[i].out) + TILE - 1) / TILE) * ((fill8(f[i].in) + TILE - 1) / TILE);
    }
    if (owner->table) dev->be.free(dev, owner->table);
    owner->table = dev->be.alloc(dev, (size_t)used * sizeof *item, "a table of filters");
    if (owner->table) dev->be.copy_in(dev, owner->table, item, (size_t)used * sizeof *item);
    owner->n_table = used;
    owner->n_blocks = blocks;
    free(item);
    return owner;
}

static void filters_pack(Dev *dev, Filter *f, int n) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const Packed *t = table_of(dev, f, n);
    if (!t || dev->err.kind || !t->n_blocks) return;
    if (cuda->half)
        pack_kernel<bf16><<<(unsigned)t->n_blocks, 256, 0, cuda->stream>>>(
            (const PackItem *)t->table, t->n_table);
    else
        pack_kernel<float><<<(unsigned)t->n_blocks, 256, 0, cuda->stream>>>(
            (const PackItem *)t->table, t->n_table);
    cuda_launched(dev, "filters_pack");
}

static void filter_close(Dev *dev, Filter *f) {
    Packed *p = (Packed *)f->impl;
    if (!p) return;
    dev->be.free(dev, p->a);
    dev->be.free(dev, p->b);
    dev->be.free(dev, p->stem);
    dev->be.free(dev, p->table);
    dev->packed_bytes -= p->bytes;
    free(p);
    f->impl = NULL;
}

static void *form_alloc(Dev *dev, Packed *p, size_t bytes) {
    void *q = dev->be.alloc(dev, bytes, "packed filters");
    if (!q) return NULL;
    p->bytes += bytes;
    dev->packed_bytes += bytes;
    return q;
}

// dw [out][in][tap] += part [out][tap][in]; a block takes an output channel and 128 inputs.
enum { ADD_TILE = 128, ADD_THREADS = 256 };

template <class T, int TAPS>
static __global__ void dw_add_kernel(const T *part, float *dw, int in) {
    __shared__ float tile[TAPS][ADD_TILE + 1];
    const int ip = (in + 7) / 8 * 8, o = (int)blockIdx.y, i0 = (int)blockIdx.x * ADD_TILE,
              t = (int)threadIdx.x;
    const int here = min(ADD_TILE, in - i0);
    #pragma unroll
    for (int e = t; e < TAPS * ADD_TILE; e += ADD_THREADS)
        if (e % ADD_TILE < here)
            tile[e / ADD_TILE][e % ADD_TILE] =
                (float)part[((size_t)o * TAPS + e / ADD_TILE) * ip + i0 + e % ADD_TILE];
    __syncthreads();
    float *to = dw + ((size_t)o * in + i0) * TAPS;
    #pragma unroll
    for (int e = t; e < ADD_TILE * TAPS; e += ADD_THREADS)
        if (e < here * TAPS) to[e] += tile[e % TAPS][e / TAPS];
}

template <class T>
static void dw_add_launch(cudaStream_t s, const Conv *c, const T *part, float *dw) {
    const dim3 grid(blocks_for((size_t)c->x.c, ADD_TILE), (unsigned)c->y.c);
    if (c->size == 3) dw_add_kernel<T, 9><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
    else if (c->size == 2) dw_add_kernel<T, 4><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
    else dw_add_kernel<T, 1><<<grid, ADD_THREADS, 0, s>>>(part, dw, c->x.c);
}

static void dw_add(Dev *dev, const Conv *c, const void *part, int out32, float *dw) {
    if (out32) dw_add_launch(cuda_of(dev)->stream, c, (const float *)part, dw);
    else dw_add_launch(cuda_of(dev)->stream, c, (const bf16 *)part, dw);
    cuda_launched(dev, "conv_dw");
}

// ---- timing --------------------------------------------------------------------------------------

typedef struct {                               // somewhere to run, full of random numbers
    Tensor  x, y;
    float  *master, *dw;
    void   *a, *b, *part, *workspace;          // packed filters; what a weight gradient writes
    double *sums;
    size_t  room;
} Trial;

static __global__ void noise_kernel(float *p, size_t n, Rng key) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = 2 * rng_uniform(key, i) - 1;
}

static void trial_noise(Dev *dev, Tensor *t, uint32_t which, float *room) {
    const Rng key = { 1, RNG_BENCH, which, 0 };
    t->p = dev->be.alloc(dev, dev->be.tensor_bytes(dev, t), "timing convolutions");
    if (!t->p) return;
    noise_kernel<<<256, 256, 0, cuda_of(dev)->stream>>>(room, tensor_len(t), key);
    dev->be.from_plain(dev, room, t);
}

static void trial_close(Dev *dev, Trial *t) {
    void *all[] = { t->x.p, t->y.p, t->master, t->dw, t->a, t->b, t->part, t->workspace, t->sums };
    cudaStreamSynchronize(cuda_of(dev)->stream);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) dev->be.free(dev, all[i]);
}

static int trial_open(Dev *dev, const Conv *c, Trial *t) {
    enum { ROOM = 256 << 20 };
    const Rng key = { 1, RNG_BENCH, 2, 0 };
    const size_t n = (size_t)c->x.c * c->y.c * c->size * c->size;
    const size_t filled = (size_t)fill8(c->x.c) * fill8(c->y.c) * c->size * c->size;
    const size_t most =
        tensor_len(&c->x) > tensor_len(&c->y) ? tensor_len(&c->x) : tensor_len(&c->y);
    const char *what = "timing convolutions";
    memset(t, 0, sizeof *t);
    t->x = c->x;
    t->y = c->y;
    t->room = ROOM > most * sizeof(float) ? ROOM : most * sizeof(float);
    t->workspace = dev->be.alloc(dev, t->room, what);
    t->master = (float *)dev->be.alloc(dev, n * sizeof(float), what);
    t->dw = (float *)dev->be.alloc(dev, n * sizeof(float), what);
    t->a = dev->be.alloc(dev, filled * sizeof(float), what);
    t->b = dev->be.alloc(dev, filled * sizeof(float), what);
    t->part = dev->be.alloc(dev, filled * sizeof(float), what);
    t->sums = (double *)dev->be.alloc(dev, 2 * sizeof(double), what);
    if (!dev->err.kind) {
        trial_noise(dev, &t->x, 0, (float *)t->workspace);
        trial_noise(dev, &t->y, 1, (float *)t->workspace);
        noise_kernel<<<256, 256, 0, cuda_of(dev)->stream>>>(t->master, n, key);
        Packed packed = { t->a, t->b };
        Filter f = { c->y.c, c->x.c, c->size, t->master, &packed };
        filters_pack(dev, &f, 1);
        cudaStreamSynchronize(cuda_of(dev)->stream);
        dev->be.free(dev, packed.table);
    }
    if (!dev->err.kind) return 0;
    trial_close(dev, t);
    return -1;
}

typedef struct {                               // a plan that is being tried
    Desc plan;
    int  dir, swap, out32, own;
} Candidate;

static cudnnStatus_t trial_run(Dev *dev, const Candidate *k, const Trial *t) {
    if (k->own)
        return k->dir == FWD ? own_run(dev, k->own, &t->x, t->a, &t->y)
                             : own_run(dev, k->own, &t->y, t->b, &t->x);
    void *w = k->dir == DW ? t->part : k->swap ? t->b : t->a;
    return run(dev, k->plan, k->swap ? t->y.p : t->x.p, w, k->swap ? t->x.p : t->y.p, t->workspace);
}

static float time_runs(Dev *dev, const Candidate *k, const Trial *t, int runs) {
    Dnn *dnn = dnn_of(dev);
    cudaStream_t s = cuda_of(dev)->stream;
    float ms = INFINITY;
    cudaEventRecord(dnn->start, s);
    for (int i = 0; i < runs; i++)
        if (trial_run(dev, k, t) != CUDNN_STATUS_SUCCESS) return INFINITY;
    cudaEventRecord(dnn->stop, s);
    if (cudaEventSynchronize(dnn->stop) || cudaEventElapsedTime(&ms, dnn->start, dnn->stop)) {
        cudaGetLastError();
        return INFINITY;
    }
    return ms / (float)runs;
}

// Milliseconds of one run; gives up early on what cannot win.
static float time_plan(Dev *dev, const Candidate *k, const Trial *t, float best) {
    float ms = time_runs(dev, k, t, 1);
    if (!(ms < INFINITY)) return ms;
    ms = time_runs(dev, k, t, 2);
    if (ms > 1.5f * best) return ms;
    for (int i = 0; i < 3; i++) ms = fminf(ms, time_runs(dev, k, t, 8));
    return ms;
}

// Whether the candidate computes what it should, into memory full of NaN. What it leaves in one of the
// trial's tensors are other random numbers, which does no harm.
static int is_right(Dev *dev, const Conv *c, const Candidate *k, const Trial *t) {
    const Tensor *out = k->dir == FWD ? &t->y : &t->x;
    const size_t filled = (size_t)fill8(c->x.c) * fill8(c->y.c) * c->size * c->size;
    if (k->dir == DW) cudaMemsetAsync(t->part, 0xff, filled * sizeof(float), cuda_of(dev)->stream);
    else cudaMemsetAsync(out->p, 0xff, dev->be.tensor_bytes(dev, out), cuda_of(dev)->stream);
    if (trial_run(dev, k, t) != CUDNN_STATUS_SUCCESS) return 0;
    if (k->dir == DW) {
        dev->be.zero(dev, t->dw, (size_t)c->x.c * c->y.c * c->size * c->size * sizeof(float));
        dw_add(dev, c, t->part, k->out32, t->dw);
    }
    const double off = conv_probe(dev, c, k->dir, &t->x, &t->y, t->master, t->dw, t->sums);
    return off < (cuda_of(dev)->half ? 2e-2 : cuda_of(dev)->precision == PREC_TF32 ? 5e-3 : 1e-4);
}

// Whether it can become part of a recorded step: some engines of fp32 cannot.
static int can_record(Dev *dev, const Candidate *k, const Trial *t) {
    cudaStream_t s = cuda_of(dev)->stream;
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)) return 0;
    const int bad = trial_run(dev, k, t) != CUDNN_STATUS_SUCCESS;
    const int broken = cudaStreamEndCapture(s, &graph) != cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();                                   // a failed trial is no failure of the device
    return !bad && !broken;
}

// So little work that any engine will do.
static int is_tiny(const Conv *c) {
    return (double)tensor_len(&c->y) * c->x.c * c->size * c->size < 1e7;
}

static int can_swap(const Conv *c, int dir) {
    return dir != DW && c->stride == 1 && 2 * c->pad == c->size - 1;
}

static int can_own(const Dev *dev, const Conv *c, int dir, int own) {
    const Tensor *from = dir == FWD ? &c->x : &c->y, *to = dir == FWD ? &c->y : &c->x;
    return can_swap(c, dir) && c->size == 3 && hopper_fits(dev, own - 1, from, to);
}

typedef struct {
    float ms;
    int form, own;
    Config config;
} Best;

// Takes a candidate over where it is faster and right.
static void consider_own(Dev *dev, const Conv *c, int dir, const Trial *t, Best *best) {
    for (int own = 1; own <= HOPPER_VARIANTS; own++) {
        if (!can_own(dev, c, dir, own)) continue;
        const Candidate k = { NULL, dir, 0, 0, own };
        const float ms = time_plan(dev, &k, t, best->ms);
        if (ms < best->ms && can_record(dev, &k, t) && is_right(dev, c, &k, t))
            *best = { ms, 0, own };
    }
}

static void consider(Dev *dev, const Conv *c, Desc graph, int dir, int form, const Config *config,
                     const Trial *t, Best *best) {
    size_t bytes = 0;
    Candidate k = { plan_desc(dev, graph, config, &bytes), dir, dir != DW && form,
                    dir == DW && !form, 0 };
    if (k.plan && bytes <= t->room) {
        const float ms = time_plan(dev, &k, t, best->ms);
        if (ms < best->ms && can_record(dev, &k, t) && is_right(dev, c, &k, t))
            *best = { ms, form, 0, *config };
    }
    destroy(k.plan);
}

// Times everything that computes this direction and writes the winner's text to how; 0 where there is one.
static int fastest(Dev *dev, const Conv *c, int dir, char *how, size_t n) {
    Trial t;
    Best best = { INFINITY };
    Config *list = (Config *)calloc(MAX_CONFIGS, sizeof *list);
    if (!list || trial_open(dev, c, &t)) {
        free(list);
        return -1;
    }
    consider_own(dev, c, dir, &t, &best);
    const int forms = can_swap(c, dir) || (dir == DW && cuda_of(dev)->half) ? 2 : 1;
    for (int form = 0; form < forms && !(is_tiny(c) && best.ms < INFINITY); form++) {
        Desc graph = graph_desc(dev, c, dir, dir != DW && form, dir == DW && !form);
        const int count = graph ? configs_list(graph, list) : 0;
        for (int i = 0; i < count && !(is_tiny(c) && best.ms < INFINITY); i++)
            consider(dev, c, graph, dir, form, &list[i], &t, &best);
        destroy(graph);
    }
    if (best.own) snprintf(how, n, "own %d", best.own);
    else if (best.ms < INFINITY) {
        char text[256];
        config_text(&best.config, text, sizeof text);
        snprintf(how, n, "%s %s",
                 dir == DW   ? (best.form ? "w16" : "w32")
                 : best.form ? "turned"
                             : "as-is",
                 text);
    }
    trial_close(dev, &t);
    free(list);
    return best.ms < INFINITY ? 0 : -1;
}

static Plan *plan_make(Dev *dev, const Conv *c, int dir, const char *key, const char *how) {
    char form[16];
    int used = 0;
    Config config;
    int own = 0;
    if (sscanf(how, "own %d", &own) == 1 && !can_own(dev, c, dir, own)) return NULL;
    if (sscanf(how, "%15s %n", form, &used) != 1 || (!own && config_parse(&config, how + used)))
        return NULL;
    const int swap = !strcmp(form, "turned"), out32 = !strcmp(form, "w32");
    if ((swap && !can_swap(c, dir)) || (dir == DW) != (form[0] == 'w')) return NULL;
    Plan *p = (Plan *)calloc(1, sizeof *p);
    if (!p) return NULL;
    snprintf(p->key, sizeof p->key, "%s", key);
    p->dir = dir;
    p->own = own;
    if (own) {
        snprintf(p->name, sizeof p->name, "%s", how);
        return p;
    }
    snprintf(p->name, sizeof p->name, "%s e%lld", form, (long long)config.engine);
    p->swap = swap;
    p->out32 = out32 || !cuda_of(dev)->half;
    p->graph = graph_desc(dev, c, dir, swap, p->out32);
    p->plan = p->graph ? plan_desc(dev, p->graph, &config, &p->workspace) : NULL;
    if (p->plan) return p;
    destroy(p->graph);
    free(p);
    return NULL;
}

// The plan of a direction: one already made, or from a choice made earlier, or by timing. NULL: cuDNN
// has none, and plain loops must do.
static const Plan *plan_for(Dev *dev, const Conv *c, int dir) {
    static const char *const names[] = { "fwd", "dx", "dw" }, *const types[] = { "bf16", "fp32",
                                                                                 "tf32", "bf16" };
    Dnn *dnn = dnn_of(dev);
    const Cuda *cuda = cuda_of(dev);
    char key[96], how[320];
    snprintf(key, sizeof key, "%s n%d %dx%d %d-%d k%d s%d p%d %s%s%s", names[dir], c->x.n, c->x.h,
             c->x.w, c->x.c, c->y.c, c->size, c->stride, c->pad, types[cuda->precision],
             cuda->deterministic ? " exact" : "", cuda->conv == CONV_DIRECT ? " direct" : "");
    for (Plan *p = dnn->plans; p; p = p->next)
        if (!strcmp(p->key, key)) return p;
    Plan *p = cuda_choice(cuda, key, how, sizeof how) ? plan_make(dev, c, dir, key, how) : NULL;
    if (!p && !fastest(dev, c, dir, how, sizeof how)) {
        p = plan_make(dev, c, dir, key, how);
        if (p) cuda_choose(dev, key, how);
    }
    if (!p) return NULL;
    p->next = dnn->plans;
    dnn->plans = p;
    return p;
}

// ---- the operations ------------------------------------------------------------------------------

static int by_cudnn(const Conv *c) {
    return !c->x_plain && !c->y_plain && c->size * c->size <= MAX_TAPS;
}
static size_t align256(size_t n) { return (n + 255) / 256 * 256; }

static size_t dw_bytes(const Conv *c) {
    return align256((size_t)fill8(c->x.c) * fill8(c->y.c) * c->size * c->size * sizeof(float));
}

static void conv_open(Dev *dev, Conv *c) {
    const Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    ConvImpl *impl = (ConvImpl *)calloc(1, sizeof *impl);
    Packed *packed = (Packed *)(c->filter->impl ? c->filter->impl : calloc(1, sizeof *packed));
    c->impl = impl;
    c->filter->impl = packed;
    if (!impl || !packed) {
        err_set(&dev->err, ERR_MEM, "out of memory for a convolution");
        return;
    }
    const int want[3] = { 1, c->want & WANT_DX, c->want & WANT_DW };
    for (int dir = 0; dir < 3; dir++) {
        c->how[dir] = NULL;
        if (!want[dir] || dev->err.kind) continue;
        const Plan *p = by_cudnn(c) ? plan_for(dev, c, dir) : NULL;
        impl->plan[dir] = p;
        c->how[dir] = p ? p->name : c->x_plain ? "own" : "loops";
        if (p) cuda_reserve_scratch(dev, align256(p->workspace) + (dir == DW ? dw_bytes(c) : 0));
    }
    const size_t filled = (size_t)fill8(c->x.c) * fill8(c->y.c) * c->size * c->size;
    const int stem = c->x_plain && !c->y_plain;
    // both forms, wanted or not: what another pass chooses must not change the table of filters
    if (by_cudnn(c) && !packed->a) packed->a = form_alloc(dev, packed, filled * cuda->elem);
    if (by_cudnn(c) && !packed->b && can_swap(c, FWD))
        packed->b = form_alloc(dev, packed, filled * cuda->elem);
    if (stem && !packed->stem)
        packed->stem =
            (float *)form_alloc(dev, packed, filled / fill8(c->x.c) * c->x.c * sizeof(float));
    if (stem && want[DW]) cuda_reserve_partial(dev, stem_partial(c));
}

static void conv_close(Dev *dev, Conv *c) {
    (void)dev;
    free(c->impl);
    c->impl = NULL;
}

static const float *own_weights(const Conv *c) {
    const Packed *p = (const Packed *)c->filter->impl;
    return p->stem ? p->stem : c->filter->w;
}

static void *workspace(const Cuda *cuda, size_t before) { return (char *)cuda->scratch + before; }

static void conv_fwd(Dev *dev, const Conv *c, const Tensor *x, const real *b, Tensor *y) {
    if (dev->err.kind) return;
    const Plan *p = ((const ConvImpl *)c->impl)->plan[FWD];
    const Packed *f = (const Packed *)c->filter->impl;
    if (!c->x_plain) cuda_settle(dev, x);
    if (!p) {
        stem_fwd(dev, c, own_weights(c), x, b, y);
        if (!c->y_plain) cuda_set_pending(dev, y, NULL);
        return;
    }
    dnn_failed(dev,
               p->own ? own_run(dev, p->own, x, f->a, y)
                      : run(dev, p->plan, p->swap ? y->p : x->p, p->swap ? f->b : f->a,
                            p->swap ? x->p : y->p, workspace(cuda_of(dev), 0)),
               "conv_fwd");
    cuda_set_pending(dev, y, b);
}

static void conv_dx(Dev *dev, const Conv *c, const Tensor *dy, Tensor *dx) {
    if (dev->err.kind) return;
    const Plan *p = ((const ConvImpl *)c->impl)->plan[DX];
    const Packed *f = (const Packed *)c->filter->impl;
    if (!p) stem_dx(dev, c, own_weights(c), dy, dx);
    else
        dnn_failed(dev,
                   p->own ? own_run(dev, p->own, dy, f->b, dx)
                          : run(dev, p->plan, p->swap ? dy->p : dx->p, p->swap ? f->b : f->a,
                                p->swap ? dx->p : dy->p, workspace(cuda_of(dev), 0)),
                   "conv_dx");
    if (!c->x_plain) cuda_set_pending(dev, dx, NULL);
}

static void conv_dw(Dev *dev, const Conv *c, const Tensor *x, const Tensor *dy, real *dw,
                    real *db) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const Plan *p = ((const ConvImpl *)c->impl)->plan[DW];
    if (!c->x_plain) cuda_settle(dev, x);
    if (db) bias_grad(dev, c, dy, db);
    if (!p) {
        stem_dw(dev, c, x, dy, dw);
        return;
    }
    dnn_failed(dev, run(dev, p->plan, x->p, cuda->scratch, dy->p, workspace(cuda, dw_bytes(c))),
               "conv_dw");
    dw_add(dev, c, cuda->scratch, p->out32, dw);
}

void cuda_conv_table(Backend *be) {
    be->filters_pack = filters_pack;
    be->filter_close = filter_close;
    be->conv_open = conv_open;
    be->conv_close = conv_close;
    be->conv_fwd = conv_fwd;
    be->conv_dx = conv_dx;
    be->conv_dw = conv_dw;
}
