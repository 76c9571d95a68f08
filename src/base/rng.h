// rng.h - random numbers as a function: (seed, stream, step, sub, index) -> number.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").
// Nothing is stored and nothing advances, so the numbers are the same on every device and with any
// number of threads, and resuming a run needs no generator state. The functions are inline so that
// host code and CUDA kernels compile the same source.
#ifndef RNG_H
#define RNG_H
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RNG_FN static inline __host__ __device__
#else
#define RNG_FN static inline
#endif

typedef struct {
    uint64_t seed;
    uint32_t stream;      // what the numbers are for: enum below
    uint32_t step;        // training iteration, epoch, parameter number ...
    uint32_t sub;         // a step within the step
} Rng;

enum {                    // streams; a number once given is never reused: old runs must resume
    RNG_INIT = 1, RNG_SPLIT, RNG_EPOCH, RNG_EPOCH2, RNG_AUGMENT, RNG_AUGMENT2, RNG_SLOT, RNG_REINIT,
    RNG_START, RNG_LANGEVIN, RNG_LABEL, RNG_SHAPES, RNG_EVAL, RNG_ATTACK, RNG_BENCH, RNG_TEST,
    RNG_SUBSET, RNG_REAL, RNG_WEIGHT_NOISE
};

RNG_FN void rng_block(Rng k, uint32_t block, uint32_t out[4]) {
    uint32_t c0 = block, c1 = k.step, c2 = k.sub, c3 = k.stream;
    uint32_t k0 = (uint32_t)k.seed, k1 = (uint32_t)(k.seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

// The number of element `i`; elements 4b .. 4b+3 share block b.
RNG_FN uint32_t rng_u32(Rng k, uint64_t i) {
    uint32_t r[4];
    rng_block(k, (uint32_t)(i >> 2), r);
    return r[i & 3];
}

RNG_FN float rng_to_unit(uint32_t u) { return (float)(u >> 8) * 0x1p-24f; }            // [0, 1)

RNG_FN float rng_uniform(Rng k, uint64_t i) { return rng_to_unit(rng_u32(k, i)); }

// 0 .. n-1, n > 0; off from uniform by less than n / 2^32.
RNG_FN uint32_t rng_below(Rng k, uint64_t i, uint32_t n) {
    return (uint32_t)(((uint64_t)rng_u32(k, i) * n) >> 32);
}

// Four standard normals, those of elements 4*block .. 4*block+3 (Box and Muller, 24 bits each).
RNG_FN void rng_normal4(Rng k, uint32_t block, float out[4]) {
    uint32_t r[4];
    rng_block(k, block, r);
    for (int j = 0; j < 4; j += 2) {
        float rad = sqrtf(-2.0f * logf(((float)(r[j] >> 8) + 0.5f) * 0x1p-24f));
        float ang = 6.283185307179586f * rng_to_unit(r[j + 1]);
        out[j] = rad * cosf(ang);
        out[j + 1] = rad * sinf(ang);
    }
}

enum { RNG_FARTHEST = 6 };    // no normal is farther from 0: 24 bits end at sqrt(50 ln 2) = 5.89

RNG_FN float rng_normal(Rng k, uint64_t i) {
    float z[4];
    rng_normal4(k, (uint32_t)(i >> 2), z);
    return z[i & 3];
}

// Where element i of 0 .. n-1 goes under a random permutation chosen by k: a four-round Feistel
// network over the next even power of two, walked until it lands below n. Halves of fewer than four
// bits would leave small permutations visibly uneven.
RNG_FN uint32_t rng_perm(Rng k, uint32_t n, uint32_t i) {
    int half = 4;
    while (((uint64_t)1 << (2 * half)) < n) half++;
    uint32_t mask = ((uint32_t)1 << half) - 1;
    do {
        uint32_t l = i >> half, r = i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t f[4];
            rng_block(k, (round << 16) | r, f);
            uint32_t t = l ^ (f[0] & mask);
            l = r;
            r = t;
        }
        i = (l << half) | r;
    } while (i >= n);
    return i;
}
#endif
