// cuda.cu - the cuda device: opening, memory, choices made by timing, recording. A module (see
// backend.h).
#include "dev/cuda.cuh"
#include "dev/tune_cache.h"

// ---- failures ----------------------------------------------------------------------------------

int cuda_failed(Dev *dev, cudaError_t rc, const char *what) {
    if (rc == cudaSuccess) return 0;
    cudaGetLastError(); // or it comes up again at the next launch
    err_set(&dev->err, ERR_DEV, "the GPU failed at %s: %s", what, cudaGetErrorString(rc));
    return -1;
}

void cuda_launched(Dev *dev, const char *what) { cuda_failed(dev, cudaGetLastError(), what); }

// ---- memory ------------------------------------------------------------------------------------

static void *mem_alloc(Dev *dev, size_t bytes, const char *what) {
    void *p = NULL;
    if (dev->err.kind) return NULL;
    const cudaError_t rc = cudaMalloc(&p, bytes ? bytes : 1);
    if (rc == cudaErrorMemoryAllocation) {
        size_t left = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&left, &total);
        err_set(&dev->err, ERR_MEM, "out of GPU memory: %.2f GiB for %s, %.2f of %.2f GiB are free",
                (double)bytes / 0x1p30, what, (double)left / 0x1p30, (double)total / 0x1p30);
        return NULL;
    }
    if (cuda_failed(dev, rc, "reserving memory")) return NULL;
#ifdef POISON
    cudaMemsetAsync(p, 0xff, bytes, cuda_of(dev)->stream); // NaN: nothing may rely on fresh memory
#endif
    return p;
}

static void mem_free(Dev *dev, void *p) {
    (void)dev;
    cudaFree(p);
}

// Page-locked, where there is enough of that: copies then run at the bus's full speed.
static void *host_alloc(Dev *dev, size_t bytes) {
    void *p = NULL;
    (void)dev;
    if (cudaMallocHost(&p, bytes ? bytes : 1) == cudaSuccess) return p;
    cudaGetLastError();
    return malloc(bytes ? bytes : 1);
}

static void host_free(Dev *dev, void *p) {
    cudaPointerAttributes about = {};
    (void)dev;
    if (p && !cudaPointerGetAttributes(&about, p) && about.type == cudaMemoryTypeHost)
        cudaFreeHost(p);
    else free(p);
}

template <int N> struct Few { unsigned char b[N]; };

template <int N> static __global__ void few_kernel(unsigned char *dst, Few<N> few, int n) {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) dst[i] = few.b[i];
}

template <int N> static void copy_few(Dev *dev, void *dst, const void *host, size_t bytes) {
    Few<N> few;
    memcpy(few.b, host, bytes);
    few_kernel<N><<<1, 64, 0, cuda_of(dev)->stream>>>((unsigned char *)dst, few, (int)bytes);
    cuda_launched(dev, "a copy to the GPU");
}

// A few bytes travel as a kernel's argument, so that the host does not wait.
static void copy_in(Dev *dev, void *dst, const void *host, size_t bytes) {
    if (dev->err.kind || !bytes) return;
    cudaStream_t s = cuda_of(dev)->stream;
    if (bytes <= 64) copy_few<64>(dev, dst, host, bytes);
    else if (bytes <= 2048) copy_few<2048>(dev, dst, host, bytes);
    else {
        cuda_failed(dev, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, s),
                    "a copy to the GPU");
        cuda_failed(dev, cudaStreamSynchronize(s), "a copy to the GPU"); // host may be gone next
    }
}

static void copy_out(Dev *dev, void *host, const void *src, size_t bytes) {
    if (dev->err.kind || !bytes) return;
    cudaStream_t s = cuda_of(dev)->stream;
    if (dev->linked) cuda_ranks_settle(dev);
    if (dev->err.kind) return;
    if (!cuda_failed(dev, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, s),
                     "a copy from the GPU"))
        cuda_failed(dev, cudaStreamSynchronize(s), "a computation");
}

static void copy(Dev *dev, void *dst, const void *src, size_t bytes) {
    if (dev->err.kind || !bytes) return;
    cuda_failed(dev,
                cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, cuda_of(dev)->stream),
                "a copy");
}

static void zero(Dev *dev, void *p, size_t bytes) {
    if (dev->err.kind || !bytes) return;
    cuda_failed(dev, cudaMemsetAsync(p, 0, bytes, cuda_of(dev)->stream), "zeroing");
}

static void sync(Dev *dev) {
    if (dev->linked && !dev->err.kind) cuda_ranks_settle(dev);
    if (!dev->err.kind)
        cuda_failed(dev, cudaStreamSynchronize(cuda_of(dev)->stream), "a computation");
}

// An outgrown block stays until the device closes: a recording may hold its address. After a
// failure *block is as it was, for the passes that are open.
static int outgrow(Dev *dev, void **block, size_t bytes, const char *what) {
    Cuda *cuda = cuda_of(dev);
    if (*block && cuda->n_old == MAX_OLD)
        return err_set(&dev->err, ERR_DEV, "%s grew too often", what);
    void *more = dev->be.alloc(dev, bytes, what);
    if (!more) return -1;
    if (*block) cuda->old[cuda->n_old++] = *block;
    *block = more;
    return 0;
}

void cuda_reserve_scratch(Dev *dev, size_t bytes) {
    if (bytes <= dev->scratch_bytes || dev->err.kind) return;
    if (!outgrow(dev, &cuda_of(dev)->scratch, bytes, "the convolutions' scratch"))
        dev->scratch_bytes = bytes;
}

void cuda_reserve_partial(Dev *dev, size_t bytes) {
    Cuda *cuda = cuda_of(dev);
    if (bytes <= cuda->partial_bytes || dev->err.kind) return;
    if (!outgrow(dev, (void **)&cuda->partial, bytes, "partial sums")) cuda->partial_bytes = bytes;
}

static size_t tensor_bytes(Dev *dev, const Tensor *t) {
    return vectors_in(t) * 8 * cuda_of(dev)->elem;
}

// ---- biases on their way -----------------------------------------------------------------------

static Pending *find(const Cuda *cuda, const void *p) {
    for (int i = 0; i < cuda->n_pending; i++)
        if (cuda->pending[i].p == p) return (Pending *)&cuda->pending[i];
    return NULL;
}

const float *cuda_pending(const Dev *dev, const void *p) {
    const Pending *at = find(cuda_of(dev), p);
    return at ? at->b : NULL;
}

void cuda_set_pending(Dev *dev, const Tensor *t, const float *b) {
    Cuda *cuda = cuda_of(dev);
    Pending *at = find(cuda, t->p);
    if (!at && !b) return;
    if (at && !b) {
        *at = cuda->pending[--cuda->n_pending];
        return;
    }
    if (!at && cuda->n_pending == MAX_PENDING) {
        err_set(&dev->err, ERR_DEV, "more than %d activations wait for a bias", MAX_PENDING);
        return;
    }
    if (!at) at = &cuda->pending[cuda->n_pending++];
    at->p = t->p;
    at->b = b;
}

template <class T>
static __global__ void bias_kernel(void *x, const float *b, size_t n, int vecs, int c) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        Vec8 v = unpack(pack_load<T>(x, i)), add = vec8_of(b, (int)(i % (size_t)vecs), c);
        #pragma unroll
        for (int k = 0; k < 8; k++) v.v[k] += add.v[k];
        pack_store<T>(x, i, pack<T>(v));
    }
}

void cuda_settle(Dev *dev, const Tensor *t) {
    Cuda *cuda = cuda_of(dev);
    const float *b = cuda_pending(dev, t->p);
    if (!b || dev->err.kind) return;
    const size_t n = vectors_in(t);
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half) bias_kernel<bf16><<<grid, 256, 0, cuda->stream>>>(t->p, b, n, vecs_of(t), t->c);
    else bias_kernel<float><<<grid, 256, 0, cuda->stream>>>(t->p, b, n, vecs_of(t), t->c);
    cuda_launched(dev, "adding a bias");
    cuda_set_pending(dev, t, NULL);
}

// ---- layout ------------------------------------------------------------------------------------

static __device__ float get(const float *p, size_t i) { return p[i]; }
static __device__ float get(const bf16 *p, size_t i) { return __bfloat162float(p[i]); }
static __device__ void put(float *p, size_t i, float v) { p[i] = v; }
static __device__ void put(bf16 *p, size_t i, float v) { p[i] = __float2bfloat16(v); }

template <class T>
static __global__ void from_plain_kernel(const float *src, T *dst, size_t n, int c, int filled,
                                         int hw) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const size_t pixel = i / (size_t)filled, image = pixel / (size_t)hw;
        const int ch = (int)(i % (size_t)filled);
        put(dst, i, ch < c ? src[(image * c + ch) * hw + pixel % (size_t)hw] : 0);
    }
}

template <class T>
static __global__ void to_plain_kernel(const T *src, const float *b, float *dst, size_t n, int c,
                                       int filled, int hw) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const size_t plane = i / (size_t)hw, image = plane / (size_t)c;
        const int ch = (int)(plane % (size_t)c);
        dst[i] = get(src, (image * hw + i % (size_t)hw) * filled + ch) + (b ? b[ch] : 0);
    }
}

static void from_plain(Dev *dev, const real *src, Tensor *dst) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const int filled = 8 * vecs_of(dst), hw = dst->h * dst->w;
    const size_t n = 8 * vectors_in(dst);
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half)
        from_plain_kernel<<<grid, 256, 0, cuda->stream>>>(src, (bf16 *)dst->p, n, dst->c, filled,
                                                          hw);
    else
        from_plain_kernel<<<grid, 256, 0, cuda->stream>>>(src, (float *)dst->p, n, dst->c, filled,
                                                          hw);
    cuda_launched(dev, "from_plain");
    cuda_set_pending(dev, dst, NULL);
}

static void to_plain(Dev *dev, const Tensor *src, real *dst) {
    Cuda *cuda = cuda_of(dev);
    if (dev->err.kind) return;
    const int filled = 8 * vecs_of(src), hw = src->h * src->w;
    const size_t n = tensor_len(src);
    const float *b = cuda_pending(dev, src->p);
    const unsigned grid = blocks_for(n, 256);
    if (cuda->half)
        to_plain_kernel<<<grid, 256, 0, cuda->stream>>>((const bf16 *)src->p, b, dst, n, src->c,
                                                        filled, hw);
    else
        to_plain_kernel<<<grid, 256, 0, cuda->stream>>>((const float *)src->p, b, dst, n, src->c,
                                                        filled, hw);
    cuda_launched(dev, "to_plain");
}

// ---- choices made by timing --------------------------------------------------------------------

int cuda_choice(const Cuda *cuda, const char *key, char *how, size_t n) {
    const size_t len = strlen(key);
    for (const char *s = cuda->tuning; s && *s; s = strchr(s, '\n') + 1) { // every line has its end
        if (strncmp(s, key, len) || strncmp(s + len, " = ", 3)) continue;
        s += len + 3;
        const size_t value = (size_t)(strchr(s, '\n') - s);
        if (value >= n) return 0;
        memcpy(how, s, value);
        how[value] = 0;
        return 1;
    }
    return 0;
}

void cuda_choose(Dev *dev, const char *key, const char *how) {
    Cuda *cuda = cuda_of(dev);
    const size_t old = cuda->tuning ? strlen(cuda->tuning) : 0;
    const size_t more = strlen(key) + strlen(how) + 5;
    char *text = (char *)realloc(cuda->tuning, old + more);
    if (!text) {
        err_set(&dev->err, ERR_MEM, "out of memory for the kernel choices");
        return;
    }
    snprintf(text + old, more, "%s = %s\n", key, how);
    cuda->tuning = text;
    cuda->tuning_new = 1;
}

// Takes over choices made earlier: whole lines of the form "key = how" in plain letters. What a
// line asks for is tried when it is needed, and timed anew where it does not work.
static void choices_read(Dev *dev, const char *text) {
    char line[512], known[512];
    for (const char *end; text && *text; text = *end ? end + 1 : end) {
        end = strchrnul(text, '\n');
        const size_t n = (size_t)(end - text);
        if (n >= sizeof line) continue;
        memcpy(line, text, n);
        line[n] = 0;
        char *eq = strstr(line, " = ");
        if (!eq || strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789=- ") != n) continue;
        *eq = 0;
        if (!cuda_choice(cuda_of(dev), line, known, sizeof known)) cuda_choose(dev, line, eq + 3);
    }
}

static char *cache_path(const char *gpu) {
    char name[128], version[32], file[256];
    size_t n = 0;
    for (; *gpu && n < sizeof name - 1; gpu++)
        if (strchr("-_.", *gpu) || (*gpu >= '0' && *gpu <= '9') ||
            ((*gpu | 32) >= 'a' && (*gpu | 32) <= 'z'))
            name[n++] = *gpu;
    name[n] = 0;
    cuda_conv_version(version, sizeof version);
    snprintf(file, sizeof file, "cuda-%s-%s.txt", name, version);
    return tune_cache_path(file);
}

static void cache_read(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    char *text = tune_cache_read(cuda->cache);
    choices_read(dev, text);
    free(text);
    cuda->tuning_new = 0;
}

static void cache_write(const Cuda *cuda) {
    if (cuda->cache && cuda->tuning_new && cuda->tuning)
        tune_cache_write(cuda->cache, cuda->tuning);
}

static const char *tuning(Dev *dev) {
    const Cuda *cuda = cuda_of(dev);
    return cuda->tuning ? cuda->tuning : "";
}

// ---- recording ---------------------------------------------------------------------------------

static void record_begin(Dev *dev) {
    if (dev->err.kind) return;
    cuda_failed(dev, cudaStreamBeginCapture(cuda_of(dev)->stream, cudaStreamCaptureModeThreadLocal),
                "recording");
}

static void *record_end(Dev *dev) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    const cudaError_t rc = cudaStreamEndCapture(cuda_of(dev)->stream, &graph);
    if (!dev->err.kind && !cuda_failed(dev, rc, "recording"))
        cuda_failed(dev, cudaGraphInstantiate(&exec, graph, 0), "preparing a recording");
    if (graph) cudaGraphDestroy(graph);
    return exec;
}

static void replay(Dev *dev, void *recording) {
    if (!dev->err.kind)
        cuda_failed(dev, cudaGraphLaunch((cudaGraphExec_t)recording, cuda_of(dev)->stream),
                    "a recorded step");
}

static void record_free(Dev *dev, void *recording) {
    if (!recording) return;
    cudaStreamSynchronize(cuda_of(dev)->stream);
    cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

// ---- the device --------------------------------------------------------------------------------

static int gpu_pick(Dev *dev, int unit, cudaDeviceProp *prop) {
    int n = 0, at = 0, version = 0;
    const cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&version))
        return err_set(&dev->err, ERR_DEV, "the GPU's driver is %s: CUDA %d.%d is needed",
                       version ? "too old" : "missing", CUDART_VERSION / 1000,
                       CUDART_VERSION / 10 % 100);
    if (rc == cudaErrorNoDevice || (!rc && !n))
        return err_set(&dev->err, ERR_DEV, "this machine has no NVIDIA GPU");
    if (cuda_failed(dev, rc, "looking for GPUs") ||
        cuda_failed(dev, cudaGetDevice(&at), "looking for GPUs"))
        return -1;
    if (unit) at = (at + unit) % n;
    if ((unit && cuda_failed(dev, cudaSetDevice(at), "choosing a GPU")) ||
        cuda_failed(dev, cudaGetDeviceProperties(prop, at), "looking for GPUs"))
        return -1;
    for (int i = 0; i < 16; i++)
        snprintf(dev->unit + 2 * i, 3, "%02x", (unsigned char)prop->uuid.bytes[i]);
    if (prop->major < 8)
        return err_set(
            &dev->err, ERR_DEV,
            "%s has compute capability %d.%d: 8.0 or later is needed (A100, RTX 30 and newer)",
            prop->name, prop->major, prop->minor);
    return 0;
}

static void cuda_open(Dev *dev, const DevOpts *o) {
    cudaDeviceProp prop;
    char version[32];
    if (gpu_pick(dev, o->unit, &prop)) return;
    Cuda *cuda = (Cuda *)calloc(1, sizeof *cuda);
    dev->impl = cuda;
    if (!cuda) {
        err_set(&dev->err, ERR_MEM, "out of memory for the cuda device");
        return;
    }
    cuda->precision = o->precision;
    cuda->half = o->precision == PREC_DEFAULT || o->precision == PREC_BF16;
    cuda->elem = cuda->half ? sizeof(bf16) : sizeof(float);
    cuda->conv = o->conv;
    cuda->deterministic = o->deterministic;
    cuda->hopper = prop.major == 9 && prop.minor == 0;
    cuda->early = prop.major >= 9;
    cuda->sms = prop.multiProcessorCount;
    cuda->smem = (int)prop.sharedMemPerBlockOptin;
    dev->threads = o->threads > 0 ? o->threads : 1;
    if (cuda_failed(dev, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                    "opening"))
        return;
    cuda_conv_version(version, sizeof version);
    snprintf(cuda->about, sizeof cuda->about, "%.60s, %d multiprocessors, %.0f GiB, cuDNN %s, %s",
             prop.name, cuda->sms, (double)prop.totalGlobalMem / 0x1p30, version,
             dev->be.precision[o->precision]);
    choices_read(dev, o->tuning);
    cuda->cache = cache_path(prop.name);
    cache_read(dev);
    cuda_norm_start(dev);
    cuda_conv_start(dev);
}

static void cuda_close(Dev *dev) {
    Cuda *cuda = cuda_of(dev);
    if (!cuda) return;
    if (cuda->stream && dev->linked != LINK_LOST) cudaStreamSynchronize(cuda->stream);
    cuda_ranks_close(dev);
    cuda_muon_close(dev);
    cuda_conv_stop(dev);
    cache_write(cuda);
    for (int i = 0; i < cuda->n_old; i++) cudaFree(cuda->old[i]);
    cudaFree(cuda->scratch);
    cudaFree(cuda->partial);
    cudaFree(cuda->barrier);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda->tuning);
    free(cuda->cache);
    free(cuda);
    dev->impl = NULL;
}

static const char *describe(const Dev *dev) { return cuda_of(dev)->about; }

extern "C" __attribute__((visibility("default"))) int jempp_backend(int abi, size_t table_size,
                                                                    Backend *be, Err *err) {
    if (abi != BACKEND_ABI || table_size != sizeof *be)
        return err_set(err, ERR_DEV, "jempp-cuda.so was built for another version of this program");
    be->name = "cuda";
    be->precision[PREC_DEFAULT] = be->precision[PREC_BF16] = "bf16";
    be->precision[PREC_TF32] = "tf32";
    be->host_memory = 0;
    be->eval_batch = 256;
    be->look_every = 50;
    be->open = cuda_open;
    be->close = cuda_close;
    be->describe = describe;
    be->tuning = tuning;
    be->sync = sync;
    be->alloc = mem_alloc;
    be->free = mem_free;
    be->host_alloc = host_alloc;
    be->host_free = host_free;
    be->copy_in = copy_in;
    be->copy_out = copy_out;
    be->copy = copy;
    be->zero = zero;
    be->tensor_bytes = tensor_bytes;
    be->from_plain = from_plain;
    be->to_plain = to_plain;
    be->record_begin = record_begin;
    be->record_end = record_end;
    be->replay = replay;
    be->record_free = record_free;
    cuda_ops_table(be);
    cuda_data_table(be);
    cuda_muon_table(be);
    cuda_ranks_table(be);
    cuda_window_table(be);
    cuda_norm_table(be);
    cuda_pool_table(be);
    cuda_conv_table(be);
    return 0;
}
