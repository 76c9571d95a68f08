// events.h - how long-running work reports progress and learns that it should stop. Every callback,
// and the Events pointer itself, may be NULL.
#ifndef EVENTS_H
#define EVENTS_H
#include "base/err.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    void (*line)(void *ctx, const char *text);          // a line worth keeping
    void (*progress)(void *ctx, uint64_t first, uint64_t done, uint64_t total, const char *unit,
                     const char *text);                 // first: where this process began counting
    int  (*stop)(void *ctx);                            // polled between steps; nonzero: stop
    // n named numbers: a line of a table that is being written; NaN: empty
    void (*row)(void *ctx, int n, const char *const *name, const double *value);
    void *ctx;
} Events;

static inline void tell_line(const Events *ev, const char *text) {
    if (ev && ev->line) ev->line(ev->ctx, text);
}

static inline void tell_progress(const Events *ev, uint64_t done, uint64_t total,
                                 const char *unit, const char *text) {
    if (ev && ev->progress) ev->progress(ev->ctx, 0, done, total, unit, text);
}

static inline void tell_row(const Events *ev, int n, const char *const *name,
                            const double *value) {
    if (ev && ev->row) ev->row(ev->ctx, n, name, value);
}

static inline int stop_asked(const Events *ev) { return ev && ev->stop && ev->stop(ev->ctx); }

// -1 with "stopped" in err if a stop was requested.
static inline int stopped(const Events *ev, Err *err) {
    return stop_asked(ev) ? err_set(err, ERR_IO, "stopped") : 0;
}

// A loop that runs on several threads. Callbacks are called by the thread that began it alone.
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
    return l->stopped = stop_asked(l->ev);
}

// After the loop: -1 with "stopped" in err if it was left.
static inline int loop_end(Loop *l, Err *err) {
    if (l->stopped) return err_set(err, ERR_IO, "stopped");
    if (l->total) tell_progress(l->ev, l->total, l->total, l->unit, l->text);
    return 0;
}
#endif
