// ref.c - the reference backend: plain loops over plain NCHW tensors, the oracle for every other
// one. Here are the device and its memory; ref_net.c and ref_learn.c have the operations.
#include "dev/ref.h"
#include "base/arena.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- the device and its memory -----------------------------------------------------------

static void dev_nothing(Dev *dev) { (void)dev; }

static void ref_open(Dev *dev, const DevOpts *o) { dev->threads = o->threads > 0 ? o->threads : 1; }

static const char *describe(const Dev *dev) {
    (void)dev;
    return "plain loops, the reference";
}

static const char *tuning(Dev *dev) {
    (void)dev;
    return "";
}

static void *mem_alloc(Dev *dev, size_t bytes, const char *what) {
    if (dev->err.kind || memory_check(bytes, what, &dev->err)) return NULL;
    size_t whole = (bytes + 63) / 64 * 64;
    void *p = whole >= bytes ? aligned_alloc(64, whole ? whole : 64) : NULL;
    if (!p)
        err_set(&dev->err, ERR_MEM, "out of memory: %.2f GiB for %s", (double)bytes / 0x1p30, what);
#ifdef POISON
    if (p) memset(p, 0xff, whole);                   // NaN: nothing may rely on fresh memory
#endif
    return p;
}

static void mem_free(Dev *dev, void *p) {
    (void)dev;
    free(p);
}

static void *host_alloc(Dev *dev, size_t bytes) {
    (void)dev;
    return malloc(bytes ? bytes : 1);
}

static void copy(Dev *dev, void *dst, const void *src, size_t bytes) {
    (void)dev;
    if (bytes) memcpy(dst, src, bytes);
}

static void zero(Dev *dev, void *p, size_t bytes) {
    (void)dev;
    memset(p, 0, bytes);
}

static size_t tensor_bytes(Dev *dev, const Tensor *t) {
    (void)dev;
    return tensor_len(t) * sizeof(real);
}

static void from_plain(Dev *dev, const real *src, Tensor *dst) {
    copy(dev, dst->p, src, tensor_len(dst) * sizeof(real));
}

static void to_plain(Dev *dev, const Tensor *src, real *dst) {
    copy(dev, dst, src->p, tensor_len(src) * sizeof(real));
}

static uint64_t checksum(Dev *dev, const void *p, size_t bytes) {
    (void)dev;
    const uint32_t *word = p;
    uint64_t sum = 0;
    #pragma omp parallel for reduction(+ : sum) if (bytes > MANY)
    for (size_t i = 0; i < bytes / sizeof *word; i++) sum += checksum_of(i, word[i]);
    return sum;
}

void ref_table(Backend *be) {
    *be = (Backend){
        .name = "ref",
        .precision = { "fp32", "fp32", "fp32", "fp32" },
        .host_memory = 1,
        .eval_batch = 64,             // a short last batch should waste little
        .look_every = 1,
        .open = ref_open,
        .close = dev_nothing,
        .describe = describe,
        .tuning = tuning,
        .sync = dev_nothing,
        .alloc = mem_alloc,
        .free = mem_free,
        .host_alloc = host_alloc,
        .host_free = mem_free,
        .copy_in = copy,
        .copy_out = copy,
        .copy = copy,
        .zero = zero,
        .tensor_bytes = tensor_bytes,
        .from_plain = from_plain,
        .to_plain = to_plain,
        .checksum = checksum,
    };
    ref_net_table(be);
    ref_learn_table(be);
    ref_muon_table(be);
}
