// cmd_info.c - jempp info: a network's operations, parameters and memory.
#include "cli/cli.h"

int cmd_info(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("info", argc, argv, &err);
    if (!o) return cli_fail(&err);
    const int rc = cli_print(jempp_info(o, &err), &err);
    jempp_options_free(o);
    return rc;
}
