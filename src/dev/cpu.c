// cpu.c - the cpu device: opening, memory, the choices made by timing. A module (see backend.h): it
// comes with ref's functions and takes over those that take time.
#include "dev/cpu.h"
#include "base/arena.h"
#include "base/text.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

int cpu_ready(Dev *dev) {
    if (dev->err.kind) return 0;
    omp_set_num_threads(dev->threads); // another device of this process may have set its own
    return 1;
}

// ---- memory -------------------------------------------------------------------------------------

// Large blocks ask for large pages: a pass walks through hundreds of MB.
static void *mem_alloc(Dev *dev, size_t bytes, const char *what) {
    if (dev->err.kind || memory_check(bytes, what, &dev->err)) return NULL;
    const size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
    const size_t whole = (bytes + align - 1) / align * align;
    void *p = NULL;
    if (whole < bytes || posix_memalign(&p, align, whole ? whole : align)) {
        err_set(&dev->err, ERR_MEM, "out of memory: %.2f GiB for %s", (double)bytes / 0x1p30, what);
        return NULL;
    }
    if (align == HUGE_PAGE) madvise(p, whole, MADV_HUGEPAGE);
#ifdef POISON
    memset(p, 0xff, whole); // NaN: nothing may rely on fresh memory
#endif
    return p;
}

static size_t tensor_bytes(Dev *dev, const Tensor *t) {
    const int lanes = cpu_of(dev)->k->lanes;
    cpu_reserve_partial(dev, t); // every activation is asked for before anything runs
    return (size_t)t->n * blocks_of(t, lanes) * t->h * t->w * lanes * cpu_of(dev)->elem;
}

void cpu_reserve_partial(Dev *dev, const Tensor *t) {
    Cpu *cpu = cpu_of(dev);
    const size_t n = cpu_partial(t, cpu->k->lanes);
    if (n <= cpu->n_partial || dev->err.kind) return;
    void *more = dev->be.alloc(dev, n * sizeof(float), "partial sums");
    if (!more) return;                   // passes that are open keep what they have
    dev->be.free(dev, cpu->partial);
    cpu->partial = more;
    cpu->n_partial = n;
}

void cpu_reserve_scratch(Dev *dev, size_t bytes) {
    Cpu *cpu = cpu_of(dev);
    if (bytes <= dev->scratch_bytes || dev->err.kind) return;
    void *more = dev->be.alloc(dev, bytes, "the convolutions' scratch");
    if (!more) return;
    dev->be.free(dev, cpu->scratch);
    cpu->scratch = more;
    dev->scratch_bytes = bytes;
}

// ---- choices made by timing ---------------------------------------------------------------------

static const char *tuning(Dev *dev) {
    const Cpu *cpu = cpu_of(dev);
    return cpu->tuning ? cpu->tuning : "";
}

// ---- the device ---------------------------------------------------------------------------------

// oneDNN and our kernels must agree on the layout, so both follow oneDNN's view of the processor.
#ifdef __x86_64__
static int has_bf16(void) {
    return cpu_dnn_isa() == ISA_BF16 && __builtin_cpu_supports("avx512bf16");
}

static const CpuKernels *kernels_pick(Backend *be, int half) {
    const Isa isa = cpu_dnn_isa();
    if (half) {
        cpu_ops_bf16(be);
        cpu_pool_bf16(be);
        return &cpu_kernels_bf16;
    }
    if (isa >= ISA_AVX512 && __builtin_cpu_supports("avx512vl")) {
        cpu_ops_avx512(be);
        cpu_pool_avx512(be);
        return &cpu_kernels_avx512;
    }
    if (isa >= ISA_AVX2 && __builtin_cpu_supports("fma")) {
        cpu_ops_avx2(be);
        cpu_pool_avx2(be);
        return &cpu_kernels_avx2;
    }
    cpu_ops_base(be);
    cpu_pool_base(be);
    return &cpu_kernels_base;
}
#else
static int has_bf16(void) { return 0; }

static const CpuKernels *kernels_pick(Backend *be, int half) {
    (void)half;
    cpu_ops_base(be);
    cpu_pool_base(be);
    return &cpu_kernels_base;
}
#endif

static void cpu_open(Dev *dev, const DevOpts *o) {
    const int half = o->precision == PREC_BF16;
    if (o->precision == PREC_TF32) {
        err_set(&dev->err, ERR_ARG, "the cpu device computes in fp32 or bf16, not in tf32");
        return;
    }
    if (half && !has_bf16()) {
        err_set(&dev->err, ERR_ARG,
                "this processor cannot compute in bf16: AVX512_BF16 is needed (AMD Zen 4, Intel "
                "Cooper Lake and newer)");
        return;
    }
    Cpu *cpu = dev->impl = calloc(1, sizeof *cpu);
    if (!cpu) {
        err_set(&dev->err, ERR_MEM, "out of memory for the cpu device");
        return;
    }
    cpu->k = kernels_pick(&dev->be, half);
    cpu->half = half;
    cpu->elem = half ? sizeof(uint16_t) : sizeof(float);
    cpu->conv = o->conv;
    dev->threads = dev_threads(o, omp_get_num_procs());
    char version[32];
    cpu_dnn_version(version, sizeof version);
    snprintf(cpu->about, sizeof cpu->about, "%d thread%s, %s, oneDNN %s", dev->threads,
             plural(dev->threads), cpu->k->isa, version);
    if (choices_read(&cpu->tuning, o->tuning))
        err_set(&dev->err, ERR_MEM, "out of memory for the kernel choices");
    cpu_cache_read(dev);
    cpu_dnn_start(dev);
}

static void cpu_close(Dev *dev) {
    Cpu *cpu = cpu_of(dev);
    if (!cpu) return;
    cpu_dnn_stop(dev);
    cpu_cache_write(cpu);
    dev->be.free(dev, cpu->partial);
    dev->be.free(dev, cpu->scratch);
    free(cpu->tuning);
    free(cpu->cached);
    free(cpu->cache);
    free(cpu);
    dev->impl = NULL;
}

static const char *describe(const Dev *dev) { return cpu_of(dev)->about; }

__attribute__((visibility("default"))) BackendModule jempp_backend;

int jempp_backend(int abi, size_t table_size, Backend *be, Err *err) {
    if (abi != BACKEND_ABI || table_size != sizeof *be)
        return err_set(err, ERR_DEV, "jempp-cpu.so was built for another version of this program");
    be->name = "cpu";
    be->open = cpu_open;
    be->close = cpu_close;
    be->describe = describe;
    be->tuning = tuning;
    be->alloc = mem_alloc; // ref's free frees it
    be->tensor_bytes = tensor_bytes;
    be->precision[PREC_BF16] = "bf16";
    kernels_pick(be, 0);
    cpu_conv_table(be);
    return 0;
}
