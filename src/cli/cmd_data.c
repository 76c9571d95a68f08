// cmd_data.c - jempp data: which image sets are here; check one, fetch one.
#include "cli/cli.h"

int cmd_data(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("data", argc, argv, &err);
    if (!o) return cli_fail(&err);
    JemppEvents ev = cli_events();
    char *text = jempp_data(o, &ev, &err);
    jempp_terminal_close(&ev);
    const int rc = cli_print(text, &err);
    jempp_options_free(o);
    return rc;
}
