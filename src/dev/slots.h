// slots.h - which slots of the replay buffer a training step takes, and which of its chains start
// afresh. Functions of the step alone, the same on the host and on every device.
#ifndef SLOTS_H
#define SLOTS_H
#include "base/rng.h"

// Without a limit on active chains a step takes any slots, and each of its chains starts afresh
// with probability `rate`. With one, the slots are a ring in a fixed random order, and the chains
// under way a window that moves along it: batch * rate new chains on average start at its front in
// each step, and as many at its back are finished. Either way a chain is moved 1 / rate times on
// average.
typedef struct {
    int   n, classes, batch;
    int   active;                     // chains under way; 0: all n
    float rate;
} Slots;

// The class that owns slot i of n: slots lie class by class, [y n / classes, (y + 1) n / classes).
RNG_FN int slot_class(int i, int n, int classes) {
    return (int)((((int64_t)i + 1) * classes - 1) / n);
}

// How many chains the window has gone past before that step.
RNG_FN uint64_t slots_passed(Slots s, uint64_t step) {
    return (uint64_t)((double)step * s.batch * (double)s.rate);
}

// With a window: how many of the step's first i chains start afresh, spread over the batch.
RNG_FN int slots_fresh_before(Slots s, uint32_t step, int i) {
    const uint64_t fresh = slots_passed(s, (uint64_t)step + 1) - slots_passed(s, step);
    return (int)((uint64_t)i * fresh / (uint64_t)s.batch);
}

// Whether chain i of the step key.step starts afresh.
RNG_FN int slots_is_fresh(Slots s, Rng key, int i) {
    if (!s.active) return rng_uniform(key, (uint64_t)i) < s.rate;
    return slots_fresh_before(s, key.step, i + 1) > slots_fresh_before(s, key.step, i);
}

// The slot of chain i; no two chains of a step have the same.
RNG_FN int slots_of(Slots s, Rng key, int i) {
    if (!s.active) return (int)rng_perm(key, (uint32_t)s.n, (uint32_t)i);
    const Rng order = { .seed = 0, .stream = RNG_SLOT, .step = 0, .sub = 1 };
    const uint64_t back = slots_passed(s, (uint64_t)key.step + 1);
    const int before = slots_fresh_before(s, key.step, i),
              fresh = slots_fresh_before(s, key.step, s.batch), old = s.active - fresh;
    const uint32_t at = slots_is_fresh(s, key, i)
                            ? (uint32_t)(old + before)
                            : rng_perm(key, (uint32_t)old, (uint32_t)(i - before));
    return (int)rng_perm(order, (uint32_t)s.n, (uint32_t)((back + at) % (uint64_t)s.n));
}
#endif
