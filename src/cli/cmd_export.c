// cmd_export.c - jempp export: a model as one file.
#include "cli/cli.h"

static int export_to(Jempp *j, const JemppOptions *o) {
    JemppErr err = { 0 };
    if (jempp_export(j, o, jempp_file(o, 1), &err)) return cli_fail(&err);
    printf("%s: written\n", jempp_file(o, 1));
    return EXIT_DONE;
}

CLI_COMMAND(export, .with_model = export_to);
