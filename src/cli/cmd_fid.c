// cmd_fid.c - jempp fid: how near one set of images is to another.
#include "cli/cli.h"

static int compare(const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = jempp_fid(o, &ev, &err);
    jempp_terminal_close(&ev);
    return cli_print(text, &err);
}

CLI_COMMAND(fid, .run = compare);
