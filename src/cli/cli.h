// cli.h - the cli layer: the program around the library, one cmd_*.c per command. It handles argv,
// signals and the terminal, and uses jempp.h alone.
#ifndef CLI_H
#define CLI_H
#include "jempp.h"

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_DIVERGED, EXIT_SIGNAL = 128 };

// A command: `run` gets its options, which were checked; `with_model` also the model that its first
// argument names. Both return the exit code.
typedef struct {
    const char *name;
    int (*run)(const JemppOptions *o);
    int (*with_model)(Jempp *j, const JemppOptions *o);
    int shared;              // ranks share the work out; else rank 0 does it alone
} CliCommand;

// CLI_COMMAND(eval, .with_model = evaluate) makes `jempp eval` call evaluate. The linker gathers
// the pointers of all files, so that no list of them is kept anywhere; what --help says about a
// command is its record in the library (src/api/commands.c).
#define CLI_COMMAND(title, ...)                                                                    \
    static const CliCommand command_##title = { .name = #title, __VA_ARGS__ };                     \
    __attribute__((used, section("cli_commands"))) static const CliCommand *const entry_##title =  \
        &command_##title

int  cli_int(const JemppOptions *o, const char *name);           // a number or a switch
static inline const char *cli_plural(unsigned long long n) { return n == 1 ? "" : "s"; }
int  cli_fail(const JemppErr *err);                              // prints it; its exit code
// Prints a text that was made by the library and frees it; NULL means that err says why.
int  cli_print(char *text, const JemppErr *err);
// The same for a text that takes long to make, with progress on stderr.
typedef char *CliText(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
int  cli_text(const JemppOptions *o, CliText *make);
JemppEvents cli_events(void);                                    // on stderr; signals stop
int  cli_stopped(void);                                          // nonzero once a signal asked
#endif
