// cmd_bench.c - jempp bench: how fast operations and whole iterations are here.
#include "cli/cli.h"

static int bench(const JemppOptions *o) { return cli_text(o, jempp_bench); }

CLI_COMMAND(bench, .run = bench, .shared = 1);
