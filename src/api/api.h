// api.h - the api layer implements jempp.h, for programs and for src/cli. It may use every layer
// below it; this header is what its files share.
#ifndef API_H
#define API_H
#include "base/decimal.h"
#include "base/events.h"
#include "api/commands.h"
#include "jempp.h"

struct JemppOptions {
    Config   cfg;
    const Command *command;
    char   **file;                // [n_file]: what argv held beside options; copies
    int      n_file;
};

static inline Events events_of(const JemppEvents *ev) {
    return ev ? (Events){ ev->line, ev->progress, ev->stop, ev->row, ev->ctx } : (Events){ 0 };
}
int api_fail(JemppErr *to, const Err *from);          // hands an error on; returns -1
#endif
