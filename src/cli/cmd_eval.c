// cmd_eval.c - jempp eval: what a model is worth, as a table and as eval.json.
#include "cli/cli.h"

static int judge(Jempp *j, const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = jempp_eval(j, o, &ev, &err);
    jempp_terminal_close(&ev);
    const int rc = cli_print(text, &err);
    return rc == EXIT_DONE && err.kind ? cli_fail(&err) : rc;   // computed, and not written
}

int cmd_eval(int argc, char **argv) {
    return cli_with_model("eval", argc, argv, 1, 1, "one run or model", judge);
}
