// cmd_export.c - jempp export: a model to hand on.
#include "cli/cli.h"

int cmd_export(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("export", argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    Jempp *j = NULL;
    if (jempp_n_files(o) != 2)
        fprintf(stderr,
                "jempp export: found %d names, expected a run or model, and a file to write\n",
                jempp_n_files(o));
    else if (!(j = jempp_open(o, jempp_file(o, 0), &err)) ||
             jempp_export(j, o, jempp_file(o, 1), &err))
        rc = cli_fail(&err);
    else rc = EXIT_DONE;
    if (rc == EXIT_DONE) printf("%s: written\n", jempp_file(o, 1));
    jempp_close(j);
    jempp_options_free(o);
    return rc;
}
