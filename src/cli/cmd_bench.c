// cmd_bench.c - jempp bench: how fast operations and whole iterations are here.
#include "cli/cli.h"

int cmd_bench(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("bench", argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    if (cli_no_names("bench", o)) {
        JemppEvents ev = cli_events();
        char *text = jempp_bench(o, &ev, &err);
        jempp_terminal_close(&ev);
        rc = cli_print(text, &err);
    }
    jempp_options_free(o);
    return rc;
}
