// cmd_bench.c - jempp bench: how fast operations and whole iterations are here.
#include "cli/cli.h"

static int bench(const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = jempp_bench(o, &ev, &err);
    jempp_terminal_close(&ev);
    return cli_print(text, &err);
}

CLI_COMMAND(bench, .run = bench, .shared = 1);
