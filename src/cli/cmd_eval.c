// cmd_eval.c - jempp eval: what a model is worth, as a table and as eval.json.
#include "cli/cli.h"

static int judge(Jempp *j, const JemppOptions *o, JemppErr *err) {
    JemppEvents ev = cli_events();
    char *text = jempp_eval(j, o, &ev, err);
    jempp_terminal_close(&ev);
    return cli_print(text, err);
}

int cmd_eval(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("eval", argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    Jempp *j = NULL;
    if (jempp_n_files(o) != 1)
        fprintf(stderr, "jempp eval: found %d names, expected one run or model\n",
                jempp_n_files(o));
    else if (!(j = jempp_open(o, jempp_file(o, 0), &err))) rc = cli_fail(&err);
    else rc = judge(j, o, &err);
    jempp_close(j);
    jempp_options_free(o);
    return rc;
}
