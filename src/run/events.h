// events.h - telling whoever asked for long work; any of it may be NULL.
#ifndef EVENTS_H
#define EVENTS_H
#include "base/err.h"
#include "jempp.h"

static inline void tell_line(const JemppEvents *ev, const char *text) {
    if (ev && ev->line) ev->line(ev->ctx, text);
}

static inline void tell_progress(const JemppEvents *ev, uint64_t done, uint64_t total,
                                 const char *unit, const char *text) {
    if (ev && ev->progress) ev->progress(ev->ctx, 0, done, total, unit, text);
}

static inline int stop_asked(const JemppEvents *ev) { return ev && ev->stop && ev->stop(ev->ctx); }

// -1 where a stop is asked for, which is nobody's mistake.
static inline int stopped(const JemppEvents *ev, Err *err) {
    return stop_asked(ev) ? err_set(err, ERR_IO, "stopped") : 0;
}
#endif
