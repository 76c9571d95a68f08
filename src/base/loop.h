// loop.h - a loop on several threads that shows progress and can be stopped. Not for C++.
#ifndef LOOP_H
#define LOOP_H
#include "base/events.h"
#include <pthread.h>
#include <stdatomic.h>

// Callbacks are called by the thread that began it alone.
typedef struct {
    const Events *ev;
    pthread_t     caller;
    uint64_t      total;                                // rounds, to show progress; 0: show nothing
    const char   *unit, *text;
    atomic_int    stopped;
    atomic_ullong done;
} Loop;

static inline Loop loop_begin(const Events *ev, uint64_t total, const char *unit,
                              const char *text) {
    return (Loop){ .ev = ev, .caller = pthread_self(), .total = total, .unit = unit, .text = text };
}

// To be called at the beginning of every round; nonzero: leave it, and all others, out.
static inline int loop_stopped(Loop *l) {
    const uint64_t done = l->done++;
    if (l->stopped || !pthread_equal(l->caller, pthread_self())) return l->stopped;
    if (l->total) tell_progress(l->ev, done, l->total, l->unit, l->text);
    l->stopped = stop_asked(l->ev);
    return l->stopped;
}

// After the loop: -1 with "stopped" in err if it was left.
static inline int loop_end(Loop *l, Err *err) {
    if (l->stopped) return err_set(err, ERR_IO, "stopped");
    if (l->total) tell_progress(l->ev, l->total, l->total, l->unit, l->text);
    return 0;
}
#endif
