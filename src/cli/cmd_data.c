// cmd_data.c - jempp data: lists, checks and downloads image sets.
#include "cli/cli.h"

static int data(const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = jempp_data(o, &ev, &err);
    jempp_terminal_close(&ev);
    return cli_print(text, &err);
}

CLI_COMMAND(data, .run = data);
