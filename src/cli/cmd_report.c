// cmd_report.c - jempp report: a run in one page.
#include "cli/cli.h"

static int report(const JemppOptions *o) {
    JemppErr err = { 0 };
    return cli_print(jempp_report(o, &err), &err);
}

CLI_COMMAND(report, .run = report);
