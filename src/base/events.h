// events.h - how long-running work reports progress and learns that it should stop. Every callback,
// and the Events pointer itself, may be NULL.
#ifndef EVENTS_H
#define EVENTS_H
#include "base/err.h"
#include <stdint.h>

typedef struct {
    void (*line)(void *ctx, const char *text);          // a message to keep
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
#endif
