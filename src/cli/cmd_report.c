// cmd_report.c - jempp report: a run in one page.
#include "cli/cli.h"

int cmd_report(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("report", argc, argv, &err);
    if (!o) return cli_fail(&err);
    const int rc = cli_print(jempp_report(o, &err), &err);
    jempp_options_free(o);
    return rc;
}
