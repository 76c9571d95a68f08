// api.h - what the files behind jempp.h share.
#ifndef API_H
#define API_H
#include "jempp.h"
#include "run/config.h"

struct JemppOptions {
    Config   cfg;
    unsigned command;             // CMD_TRAIN, ...
    char   **file;                // [n_file]: what argv held beside options; copies
    int      n_file;
};

int api_fail(JemppErr *to, const Err *from);          // hands an error on; returns -1
#endif
