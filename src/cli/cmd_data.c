// cmd_data.c - jempp data: lists, checks and downloads image sets.
#include "cli/cli.h"

static int data(const JemppOptions *o) { return cli_text(o, jempp_data); }

CLI_COMMAND(data, .run = data);
