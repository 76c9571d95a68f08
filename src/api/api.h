// api.h - what the files behind jempp.h share.
#ifndef API_H
#define API_H
#include "base/events.h"
#include "jempp.h"
#include "conf/config.h"

struct JemppOptions {
    Config   cfg;
    unsigned command;             // CMD_TRAIN, ...
    char   **file;                // [n_file]: what argv held beside options; copies
    int      n_file;
};

static inline Events events_of(const JemppEvents *ev) {
    return ev ? (Events){ ev->line, ev->progress, ev->stop, ev->ctx } : (Events){ 0 };
}
int api_fail(JemppErr *to, const Err *from);          // hands an error on; returns -1
#endif
