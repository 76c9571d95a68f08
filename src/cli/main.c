// main.c - jempp, the program: finds the command, turns errors into exit codes.
#include "cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- stopping -----------------------------------------------------------------------------

// What a handler can reach is global by nature: the signal that came, and whether work ended for
// it.
static volatile sig_atomic_t stop_signal, stop_heeded;

// The first signal asks for an orderly end, the second does not wait for it.
static void on_signal(int sig) {
    if (stop_signal) _exit(EXIT_SIGNAL + sig);
    stop_signal = sig;
}

int cli_stopped(void) {
    if (stop_signal) stop_heeded = 1;
    return stop_signal != 0;
}

static int stop_asked(void *ctx) {
    (void)ctx;
    return cli_stopped();
}

// A reader that goes away (| head) must not end a training run: writing fails instead.
static void catch_signals(void) {
    struct sigaction stop = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGUSR1, &stop, NULL);                  // mpirun passes it on to all, and then waits
    sigaction(SIGHUP, &stop, &before);                // a lost terminal is no reason to lose work
    if (before.sa_handler == SIG_IGN) sigaction(SIGHUP, &ignore, NULL);      // nohup: nor to stop
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);                // so is a file beyond the user's limit
}

// ---- what the commands share --------------------------------------------------------------

int cli_int(const JemppOptions *o, const char *name) {
    char value[64];
    if (jempp_get(o, name, value, sizeof value)) return 0;
    return strcmp(value, "on") ? atoi(value) : 1;
}

int cli_fail(const JemppErr *err) {
    if (err->msg[0]) fprintf(stderr, "jempp: %s\n", err->msg);      // else another rank says it
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
    JemppEvents ev = { 0 };
    if (!jempp_rank()) ev = jempp_terminal(stderr);
    ev.stop = stop_asked;
    return ev;
}

int cli_text(const JemppOptions *o, CliText *make) {
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    char *text = make(o, &ev, &err);
    jempp_terminal_close(&ev);
    return cli_print(text, &err);
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

// The linker's names for both ends of the section.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern const CliCommand *const __start_cli_commands[], *const __stop_cli_commands[];

static const CliCommand *find(const char *name) {
    for (const CliCommand *const *k = __start_cli_commands; k != __stop_cli_commands; k++)
        if (!strcmp((*k)->name, name)) return *k;
    return NULL;
}

static int with_model(const CliCommand *k, const JemppOptions *o) {
    JemppErr err = { 0 };
    Jempp *j = jempp_open(o, jempp_file(o, 0), &err);
    const int rc = j ? k->with_model(j, o) : cli_fail(&err);
    jempp_close(j);
    return rc;
}

// One of several ranks: those other than 0 show nothing but errors, and have nothing to do for
// commands that are not shared out.
static int has_part(const CliCommand *k) {
    if (!jempp_rank()) return 1;
    if (!freopen("/dev/null", "w", stdout)) fclose(stdout);
    return k->shared;
}

static int run_command(const CliCommand *k, int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = jempp_options(k->name, &err);
    int rc = EXIT_DONE;
    if (!o || jempp_set_args(o, argc, argv, &err) || jempp_check_files(o, &err)) {
        if (jempp_rank()) sleep(2);                   // rank 0 has most likely the same to say,
        if (jempp_rank() && stop_signal) err.msg[0] = 0;        // and its end ends all
        rc = cli_fail(&err);
    } else if (has_part(k)) {
        rc = k->run ? k->run(o) : with_model(k, o);
    }
    jempp_options_free(o);
    return rc;
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
    const CliCommand *k = find(name);
    if (k && (help || wants_help(argc - 2, argv + 2))) return print_text(jempp_help(name));
    if (k) return run_command(k, argc - 2, argv + 2);
    JemppErr err = { 0 };
    if (argc > 1) jempp_options_free(jempp_options(name, &err));  // fails, and says why
    else err = (JemppErr){ JEMPP_ERR_ARG, "expected a command; jempp --help lists them" };
    return cli_fail(&err);
}

// A standard stream that is closed would be the next file that is opened, and what is printed would
// become part of it. Opened the wrong way round, using it fails as before.
static void keep_streams_apart(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv) {
    keep_streams_apart();
    catch_signals();
    const int rc = run(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE) {
        fprintf(stderr, "jempp: cannot write the output: %s\n", strerror(errno));
        return rc ? rc : EXIT_FAILED;
    }
    return stop_heeded ? EXIT_SIGNAL + stop_signal : rc;
}
