// cmd_export.c - jempp export: a model to hand on.
#include "cli/cli.h"

static int export_to(Jempp *j, const JemppOptions *o) {
    JemppErr err = { 0 };
    if (jempp_export(j, o, jempp_file(o, 1), &err)) return cli_fail(&err);
    printf("%s: written\n", jempp_file(o, 1));
    return EXIT_DONE;
}

int cmd_export(int argc, char **argv) {
    return cli_with_model("export", argc, argv, 2, 2, "a run or model, and a file to write",
                          export_to);
}
