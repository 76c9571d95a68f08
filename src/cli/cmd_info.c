// cmd_info.c - jempp info: a network's operations, parameters and memory.
#include "cli/cli.h"

static int info(const JemppOptions *o) {
    JemppErr err = { 0 };
    return cli_print(jempp_info(o, &err), &err);
}

CLI_COMMAND(info, .run = info);
