// cli.h - what the commands share. They know argv and jempp.h, nothing else of the library.
#ifndef CLI_H
#define CLI_H
#include "jempp.h"

// argv without program and command; the exit code is returned
int cmd_train(int argc, char **argv);
int cmd_sample(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_report(int argc, char **argv);

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_DIVERGED };

// The command's options with argv on top, or NULL with *err filled.
JemppOptions *cli_options(const char *command, int argc, char **argv, JemppErr *err);
int  cli_int(const JemppOptions *o, const char *name);           // a number or a switch
int  cli_fail(const JemppErr *err);                              // prints it; its exit code
// Prints a text that was made by the library and frees it; NULL means that err says why.
int  cli_print(char *text, const JemppErr *err);
// Opens the model that the first of the names is, does the work with it, closes it; `expected` says
// what the names should have been where they are not `least` to `most`. The exit code.
int  cli_with_model(const char *command, int argc, char **argv, int least, int most,
                    const char *expected, int (*work)(Jempp *, const JemppOptions *));
int  cli_no_names(const char *command, const JemppOptions *o);   // 0: there are, which is printed
JemppEvents cli_events(void);                                    // on stderr; signals stop
#endif
