// cmd_train.c - jempp train: a run folder from options and images.
#include "cli/cli.h"
#include <math.h>

static void put_percent(const char *name, double part) {
    if (!isnan(part)) printf(", %s %.2f %%", name, 100 * part);
}

static void print_result(const JemppTrained *t) {
    printf("%s: %llu steps in %.0f s", t->out, (unsigned long long)t->steps, t->seconds);
    put_percent("validation accuracy", t->valid_accuracy);
    put_percent("test accuracy", t->test_accuracy);
    put_percent("calibration error", t->test_ece);
    if (t->retries) printf(", went back %d time%s", t->retries, t->retries == 1 ? "" : "s");
    printf("\n");
    if (t->stopped)
        printf("stopped before its end; go on with: jempp train --resume --out %s\n", t->out);
}

int cmd_train(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppTrained result = { .valid_accuracy = NAN, .test_accuracy = NAN, .test_ece = NAN };
    JemppOptions *o = cli_options("train", argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    if (cli_no_names("train", o)) {
        JemppEvents ev = cli_events();
        const int failed = jempp_train(o, &ev, &result, &err);
        jempp_terminal_close(&ev);
        rc = failed ? cli_fail(&err) : EXIT_DONE;
    }
    if (!rc) print_result(&result);
    jempp_options_free(o);
    return rc;
}
