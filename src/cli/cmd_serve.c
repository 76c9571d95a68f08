// cmd_serve.c - jempp serve: a live page of runs and models.
#include "cli/cli.h"

static int serve(const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    const int failed = jempp_serve(o, &ev, &err);
    jempp_terminal_close(&ev);
    return failed ? cli_fail(&err) : EXIT_DONE;
}

CLI_COMMAND(serve, .run = serve);
