// main.c - jempp, the program: finds the command, turns errors into exit codes.
#include "cli/cli.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv);
} Entry;

static const Entry COMMANDS[] = {
    { "train", cmd_train },     { "sample", cmd_sample }, { "eval", cmd_eval },
    { "predict", cmd_predict }, { "export", cmd_export }, { "info", cmd_info },
    { "bench", cmd_bench },     { "data", cmd_data },     { "report", cmd_report },
};

// ---- stopping -----------------------------------------------------------------------------

static volatile sig_atomic_t stop_signal;     // what a handler can reach is global by nature

// The first signal asks for an orderly end, the second does not wait for it.
static void on_signal(int sig) {
    if (stop_signal) _exit(128 + sig);
    stop_signal = sig;
}

static int stop_asked(void *ctx) {
    (void)ctx;
    return stop_signal != 0;
}

// A reader that goes away (| head) must not end a training run: writing fails instead.
static void catch_signals(void) {
    struct sigaction stop = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &stop, NULL);                   // a lost terminal is no reason to lose work
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);                // so is a file beyond the user's limit
}

// OpenMP's threads wait for each other by spinning, which on a machine with other work to do takes
// the time from those they wait for: ten times slower was measured beside a second run. A short
// spin costs nothing when alone. The library reads its setting before main begins, so the program
// starts anew.
static void wait_briefly(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (!setenv("GOMP_SPINCOUNT", "2000", 1)) execv("/proc/self/exe", argv);
}                                                     // where that fails, it works all the same

// ---- what the commands share --------------------------------------------------------------

JemppOptions *cli_options(const char *command, int argc, char **argv, JemppErr *err) {
    JemppOptions *o = jempp_options(command, err);
    if (o && !jempp_set_args(o, argc, argv, err)) return o;
    jempp_options_free(o);
    return NULL;
}

int cli_with_model(const char *command, int argc, char **argv, int least, int most,
                   const char *expected, int (*work)(Jempp *, const JemppOptions *)) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options(command, argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    Jempp *j = NULL;
    if (jempp_n_files(o) < least || jempp_n_files(o) > most)
        fprintf(stderr, "jempp %s: found %d names, expected %s\n", command, jempp_n_files(o),
                expected);
    else if (!(j = jempp_open(o, jempp_file(o, 0), &err))) rc = cli_fail(&err);
    else rc = work(j, o);
    jempp_close(j);
    jempp_options_free(o);
    return rc;
}

int cli_no_names(const char *command, const JemppOptions *o) {
    if (!jempp_n_files(o)) return 1;
    fprintf(stderr, "jempp %s: %s: expected options alone\n", command, jempp_file(o, 0));
    return 0;
}

int cli_int(const JemppOptions *o, const char *name) {
    char value[64];
    if (jempp_get(o, name, value, sizeof value)) return 0;
    return strcmp(value, "on") ? atoi(value) : 1;
}

int cli_fail(const JemppErr *err) {
    fprintf(stderr, "jempp: %s\n", err->msg);
    if (err->kind == JEMPP_ERR_ARG) return EXIT_USAGE;
    return err->kind == JEMPP_ERR_DIVERGED ? EXIT_DIVERGED : EXIT_FAILED;
}

int cli_print(char *text, const JemppErr *err) {
    if (!text) return cli_fail(err);
    const size_t n = strlen(text);
    fputs(text, stdout);
    if (n && text[n - 1] != '\n') putchar('\n');
    free(text);
    return EXIT_DONE;
}

JemppEvents cli_events(void) {
    JemppEvents ev = jempp_terminal(stderr);
    ev.stop = stop_asked;
    return ev;
}

// ---- commands -----------------------------------------------------------------------------

static int wants_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return 1;
    return 0;
}

static int print_text(char *text) {
    return cli_print(text, &(JemppErr){ JEMPP_ERR_MEM, "out of memory for a text" });
}

static int print_version(void) {
    printf("jempp %s\n", jempp_version());
    return print_text(jempp_devices());
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--version")) return print_version();
    char *doc = jempp_doc(name);                      // commands for `make install`, not for users
    if (doc) return print_text(doc);
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (!strcmp(name, "help") && argc == 2))
        return print_text(jempp_help(NULL));
    const int help = !strcmp(name, "help");
    if (help) name = argv[2];
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++) {
        if (strcmp(name, COMMANDS[i].name) != 0) continue;
        if (help || wants_help(argc - 2, argv + 2)) return print_text(jempp_help(name));
        return COMMANDS[i].run(argc - 2, argv + 2);
    }
    if (argc < 2) fprintf(stderr, "jempp: expected a command; jempp --help lists them\n");
    else fprintf(stderr, "jempp: %s: no such command; jempp --help lists them\n", name);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    wait_briefly(argv);
    catch_signals();
    const int rc = run(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE) {
        fprintf(stderr, "jempp: cannot write the output: %s\n", strerror(errno));
        return rc ? rc : EXIT_FAILED;
    }
    return rc;
}
