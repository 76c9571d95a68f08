// cmd_eval.c - jempp eval: the metrics of a model, as a table and as eval.json.
#include "cli/cli.h"

static int evaluate(Jempp *j, const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = jempp_eval(j, o, &ev, &err);
    jempp_terminal_close(&ev);
    const int rc = cli_print(text, &err);
    return rc == EXIT_DONE && err.kind ? cli_fail(&err) : rc;   // computed, and not written
}

CLI_COMMAND(eval, .with_model = evaluate, .shared = 1);
