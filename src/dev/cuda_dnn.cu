// cuda_dnn.cu - cuDNN's descriptors, engines and execution plans. The only file that includes its
// header.
#include "dev/cuda_conv.cuh"
#include <cudnn.h>
#include <stdio.h>
#include <string.h>

enum { UID_X = 1, UID_W, UID_Y };

static cudnnHandle_t handle_of(const Dev *dev) { return (cudnnHandle_t)cuda_of(dev)->dnn; }

int dnn_failed(Dev *dev, int status, const char *what) {
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    return err_set(&dev->err, ERR_DEV, "cuDNN failed at %s: %s", what,
                   cudnnGetErrorString((cudnnStatus_t)status));
}

void cuda_conv_version(char *dst, size_t n) {
    const size_t v = cudnnGetVersion();
    snprintf(dst, n, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

void dnn_start(Dev *dev) {
    cudnnHandle_t handle = NULL;
    if (dev->err.kind || dnn_failed(dev, cudnnCreate(&handle), "opening")) return;
    cuda_of(dev)->dnn = handle;
    dnn_failed(dev, cudnnSetStream(handle, cuda_of(dev)->stream), "opening");
}

void dnn_stop(Dev *dev) {
    if (cuda_of(dev)->dnn) cudnnDestroy(handle_of(dev));
    cuda_of(dev)->dnn = NULL;
}

void dnn_free(DnnDesc d) {
    if (d) cudnnBackendDestroyDescriptor((cudnnBackendDescriptor_t)d);
}

// ---- descriptors -------------------------------------------------------------------------------
static DnnDesc make(cudnnBackendDescriptorType_t type) {
    DnnDesc d = NULL;
    return cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static int set(DnnDesc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *v) {
    return d && cudnnBackendSetAttribute(d, name, type, n, v) == CUDNN_STATUS_SUCCESS ? 0 : -1;
}

static int get(DnnDesc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t most, int64_t *n, void *v) {
    return d && cudnnBackendGetAttribute(d, name, type, most, n, v) == CUDNN_STATUS_SUCCESS ? 0
                                                                                            : -1;
}

static DnnDesc finished(DnnDesc d, int bad) {
    if (!bad && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS) return d;
    dnn_free(d);
    return NULL;
}

// Dense, channels innermost; dims in cuDNN's order n, c, h, w.
static DnnDesc tensor_desc(int64_t uid, cudnnDataType_t type, int64_t n, int64_t c, int64_t h,
                           int64_t w) {
    const int64_t dim[4] = { n, c, h, w }, stride[4] = { c * h * w, 1, c * w, c }, align = 16;
    DnnDesc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    return finished(d, set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) ||
                           set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim) ||
                           set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride) ||
                           set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) ||
                           set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
}

static DnnDesc conv_desc(const Conv *c) {
    const int64_t two = 2, stride[2] = { c->stride, c->stride }, pad[2] = { c->pad, c->pad_w },
                  one[2] = { 1, 1 };
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    DnnDesc d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
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

// The operation as a graph of one node. With rot180 y and x change roles: a forward convolution is
// then a data gradient and vice versa.
DnnDesc dnn_graph(Dev *dev, const Conv *c, int dir, int rot180, int out32) {
    const cudnnDataType_t type = cuda_of(dev)->half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int op = rot180 ? (dir == FWD ? DX : FWD) : dir;
    const Tensor *x = rot180 ? &c->y : &c->x, *y = rot180 ? &c->x : &c->y;
    const float one = 1, none = 0;
    const cudnnHandle_t handle = handle_of(dev);
    DnnDesc part[4] = { tensor_desc(UID_X, type, x->n, fill8(x->c), x->h, x->w),
                        tensor_desc(UID_W, dir == DW && out32 ? CUDNN_DATA_FLOAT : type,
                                    fill8(y->c), fill8(x->c), c->size, c->size_w),
                        tensor_desc(UID_Y, type, y->n, fill8(y->c), y->h, y->w), conv_desc(c) };
    DnnDesc node = make(OPERATION[op].type), graph = NULL;
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
    dnn_free(node);
    for (int i = 0; i < 4; i++) dnn_free(part[i]);
    return graph;
}

// ---- engines -----------------------------------------------------------------------------------

void config_text(const EngineConfig *c, char *dst, size_t n) {
    size_t at = (size_t)snprintf(dst, n, "e%lld", (long long)c->engine);
    for (int i = 0; i < c->n && at < n; i++)
        at += (size_t)snprintf(dst + at, n - at, " k%lld-%lld", (long long)c->type[i],
                               (long long)c->value[i]);
}

int config_parse(EngineConfig *c, const char *s) {
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

static int config_read(EngineConfig *c, DnnDesc d) {
    int64_t n = 0;
    memset(c, 0, sizeof *c);
    DnnDesc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), knob[MAX_KNOBS];
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
    for (int i = 0; i < MAX_KNOBS; i++) dnn_free(knob[i]);
    dnn_free(engine);
    return bad;
}

// Whether an engine's arithmetic is what was asked for.
static int engine_allowed(const Cuda *cuda, DnnDesc engine) {
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

DnnDesc dnn_plan(Dev *dev, DnnDesc graph, const EngineConfig *c, size_t *workspace) {
    const cudnnHandle_t handle = handle_of(dev);
    DnnDesc knob[MAX_KNOBS], config = NULL, plan = NULL;
    int bad = 0, n = 0;
    DnnDesc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine = finished(
        engine,
        set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph) ||
            set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &c->engine));
    if (!engine || !engine_allowed(cuda_of(dev), engine)) {
        dnn_free(engine);
        return NULL;
    }
    for (; n < c->n && !bad; n++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)c->type[n];
        DnnDesc k = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
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
            dnn_free(plan);
            plan = NULL;
        }
        *workspace = (size_t)bytes;
    }
    for (int i = 0; i < n; i++) dnn_free(knob[i]);
    dnn_free(config);
    dnn_free(engine);
    return plan;
}

// What cuDNN would try, in its own order, without repetitions.
int dnn_configs(DnnDesc graph, EngineConfig *list) {
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                    CUDNN_HEUR_MODE_FALLBACK };
    int n = 0;
    for (int m = 0; m < 3; m++) {
        DnnDesc found[MAX_CONFIGS], h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
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
        for (int i = 0; i < MAX_CONFIGS; i++) dnn_free(found[i]);
        dnn_free(h);
    }
    return n;
}

// x, w, y: as the operation of the graph names them.
int dnn_run(Dev *dev, DnnDesc plan, void *x, void *w, void *y, void *workspace) {
    const int64_t uid[3] = { UID_X, UID_W, UID_Y };
    void *data[3] = { x, w, y };
    DnnDesc pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack = finished(
        pack, set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid) ||
                  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data) ||
                  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    if (!pack) return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t rc = cudnnBackendExecute(handle_of(dev), plan, pack);
    dnn_free(pack);
    return (int)rc;
}
