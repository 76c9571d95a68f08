// cpu_vec.h - one pixel of one block of channels as a vector. For the files that are compiled once
// for each instruction set (-DISA=avx512, avx2, base): what differs is the number of lanes.
#ifndef CPU_VEC_H
#define CPU_VEC_H
#include "dev/cpu.h"

#if defined __AVX512F__
enum { L = 16 };
#define ISA_NAME "AVX-512"
#elif defined __AVX2__
enum { L = 8 };
#define ISA_NAME "AVX2"
#else
enum { L = 8 };
#define ISA_NAME "no AVX2"
#endif

// FOR_ISA(cpu_ops_) is cpu_ops_avx512 and so on.
#define FOR_ISA(name)      FOR_ISA_(name, ISA)
#define FOR_ISA_(name, i)  FOR_ISA__(name, i)
#define FOR_ISA__(name, i) name##i

extern const Winograd FOR_ISA(cpu_wino_); // cpu_wino.c

// A caller's memory need not be aligned for vectors; where it is, nothing is lost.
typedef float vec __attribute__((vector_size(L * 4), aligned(4), may_alias));
typedef int mask __attribute__((vector_size(L * 4), aligned(4), may_alias));

// pos ? a : b, lane by lane. A macro, because a function's vector arguments have no settled ABI.
#define PICK(pos, a, b) ((vec)(((pos) & (mask)(a)) | (~(pos) & (mask)(b))))

// A chunk: the pixels of block b of image n.
static inline vec *chunk(const Tensor *t, int n, int b) {
    return (vec *)t->p + ((size_t)n * blocks_of(t, L) + b) * t->h * t->w;
}

static inline void chunk_sum(const vec *x, int hw, vec *sum) {
    vec s[4] = { 0 };                // four chains: an addition takes longer than a load
    int p = 0;
    for (; p + 4 <= hw; p += 4)
        for (int j = 0; j < 4; j++) s[j] += x[p + j];
    for (; p < hw; p++) s[0] += x[p];
    *sum = s[0] + s[1] + (s[2] + s[3]);
}
#endif
