// testing.h - what the test programs share: a device, random numbers, how far two arrays differ.
#ifndef TESTING_H
#define TESTING_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dev/backend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__      // tests take several times as long, so the longest do less
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#define LEN(a) (sizeof(a) / sizeof *(a))
#define OK(call)                                                                                   \
    do {                                                                                           \
        Err err_ = { 0 }, *const err = &err_;                                                      \
        if (call) fail_msg("%s", err->msg);                                                        \
    } while (0)

static inline void open_device(Dev *dev, const char *name) {
    OK(dev_open(dev, name, &(DevOpts){ .threads = 2 }, NULL, err));
}

// Whether `name` can be opened here; says so where it cannot.
static inline int has_device(const char *name) {
    Dev dev;
    Err err = { 0 };
    if (sizeof(real) != 4 && strcmp(name, "ref") != 0) return 0;
    if (dev_open(&dev, name, &(DevOpts){ .threads = 2 }, NULL, &err)) {
        print_message("no device '%s': %s\n", name, err.msg);
        return 0;
    }
    dev_close(&dev);
    return 1;
}

static inline void fill_random(real *p, size_t n, uint32_t which, double lo, double hi) {
    const Rng key = { .seed = 7, .stream = RNG_TEST, .step = which };
    for (size_t i = 0; i < n; i++) p[i] = (real)(lo + (hi - lo) * (double)rng_uniform(key, i));
}

// |a - b| / |b| in the Euclidean norm; NaN never compares small.
static inline double distance(const real *a, const real *b, size_t n) {
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        s += (double)b[i] * (double)b[i];
    }
    return sqrt(d / (s + 1e-300));
}

#define assert_close(found, wanted, tolerance)                                                     \
    do {                                                                                           \
        double f_ = (double)(found), w_ = (double)(wanted), t_ = (tolerance);                      \
        if (!(fabs(f_ - w_) <= t_))                                                                \
            fail_msg("%s is %.12g, expected %.12g within %g", #found, f_, w_, t_);                 \
    } while (0)
#define assert_less(found, limit)                                                                  \
    do {                                                                                           \
        double f_ = (double)(found), l_ = (double)(limit);                                         \
        if (!(f_ < l_)) fail_msg("%s is %.6g, expected less than %g", #found, f_, l_);             \
    } while (0)

// JemppEvents.stop of one who wants nothing done.
static inline int stop_at_once(void *ctx) {
    (void)ctx;
    return 1;
}
#endif
