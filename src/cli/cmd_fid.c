// cmd_fid.c - jempp fid: how near one set of images is to another.
#include "cli/cli.h"

static int compare(const JemppOptions *o) { return cli_text(o, jempp_fid); }

CLI_COMMAND(fid, .run = compare);
