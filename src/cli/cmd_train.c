// cmd_train.c - jempp train: a run folder from options and images.
#include "cli/cli.h"
#include <math.h>

static void put_percent(const char *name, double part) {
    if (!isnan(part)) printf(", %s %.2f %%", name, 100 * part);
}

static void print_result(const JemppTrained *t) {
    char word[4 * sizeof t->out];
    printf("%s: %llu step%s in %.0f s", t->out, (unsigned long long)t->steps, cli_plural(t->steps),
           t->seconds);
    put_percent("validation accuracy", t->valid_accuracy);
    put_percent("test accuracy", t->test_accuracy);
    put_percent("calibration error", t->test_ece);
    if (t->retries) printf(", rolled back %d time%s", t->retries, cli_plural((unsigned)t->retries));
    printf("\n");
    if (t->stopped)
        printf("stopped before its end; continue with: jempp train --resume --out %s\n",
               jempp_shell_word(word, sizeof word, t->out));
}

static int train(const JemppOptions *o) {
    JemppErr err = { 0 };
    JemppTrained result = { .valid_accuracy = NAN, .test_accuracy = NAN, .test_ece = NAN };
    JemppEvents ev = cli_events();
    const int failed = jempp_train(o, &ev, &result, &err);
    jempp_terminal_close(&ev);
    if (failed) return cli_fail(&err);
    print_result(&result);
    return EXIT_DONE;
}

CLI_COMMAND(train, .run = train, .shared = 1);
