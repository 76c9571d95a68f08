// help.h - the commands, and what --help and docs/options.md say about them.
#ifndef HELP_H
#define HELP_H
#include "run/config.h"

typedef struct {
    const char *name;
    unsigned    bit;                                  // CMD_TRAIN, ...
    const char *about;                                // one line
    const char *synopsis, *examples;
} Command;

extern const Command command_table[];                 // NULL at the end
const Command *command_find(const char *name);        // NULL: no such command
void  command_defaults(const Command *k, Config *c);  // bench measures other things than train
char *help_text(const char *command);                 // NULL: all commands; malloc'd, or NULL
char *help_options_doc(void);                         // likewise
#endif
