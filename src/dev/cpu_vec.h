// cpu_vec.h - one pixel of one block of channels as a vector. For the files that are compiled once
// for each instruction set (-DISA=bf16, avx512, avx2, base): what differs is the number of lanes
// and how an activation is stored. `act` is a pixel as it lies in memory (of `elem`s), `vec` the
// same in registers; LOAD and STORE take one to the other. In bf16 that rounds; everywhere else
// they are the same.
#ifndef CPU_VEC_H
#define CPU_VEC_H
#include "dev/cpu.h"

#if defined __AVX512BF16__
enum { L = 16 };
#define ISA_NAME "AVX-512 BF16"
#elif defined __AVX512F__
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
// cpu_starts.c
void FOR_ISA(cpu_gauss_)(Dev *, const Gauss *, const int *number, int n, Rng key, float *out,
                         int n_out);

// A caller's memory need not be aligned for vectors; where it is, nothing is lost.
typedef float vec __attribute__((vector_size(L * 4), aligned(4), may_alias));
typedef int mask __attribute__((vector_size(L * 4), aligned(4), may_alias));

// pos ? a : b, lane by lane. A macro, because a function's vector arguments have no settled ABI.
#define PICK(pos, a, b) ((vec)(((pos) & (mask)(a)) | (~(pos) & (mask)(b))))

// Macros for the same reason.
#ifdef __AVX512BF16__
#include <immintrin.h>
typedef uint16_t elem;
typedef short act __attribute__((vector_size(L * 2), aligned(2), may_alias));

static inline vec bf16_load(const act *p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vec)_mm512_slli_epi32(wide, 16);
}

static inline void bf16_store(act *p, vec v) { *p = (act)_mm512_cvtneps_pbh((__m512)v); }

#define LOAD(p)     bf16_load(p)
#define STORE(p, v) bf16_store(p, v)
#else
typedef float elem;
typedef vec act;
#define LOAD(p)     (*(p))
#define STORE(p, v) (*(p) = (v))
#endif

// A chunk: the pixels of block b of image n.
static inline act *chunk(const Tensor *t, int n, int b) {
    return (act *)t->p + ((size_t)n * blocks_of(t, L) + b) * t->h * t->w;
}

static inline void chunk_sum(const act *x, int hw, vec *sum) {
    vec s[4] = { 0 };                // four chains: an addition takes longer than a load
    int p = 0;
    for (; p + 4 <= hw; p += 4)
        for (int j = 0; j < 4; j++) s[j] += LOAD(&x[p + j]);
    for (; p < hw; p++) s[0] += LOAD(&x[p]);
    *sum = s[0] + s[1] + (s[2] + s[3]);
}
#endif
