// commands.h - the commands: one record each says everything about a command but what it does,
// which is one file in src/cli. Its options are the rows of the option table (conf/options.c) that
// have its bit.
#ifndef COMMANDS_H
#define COMMANDS_H
#include "conf/config.h"

// What an option means for one command, where that is more than its row in the table says.
typedef struct {
    const char *option, *help;
    const char *value;                                // default in words; NULL: the table's
} OptNote;

typedef struct {
    const char *name;
    unsigned    bit;                                  // CMD_TRAIN, ...
    const char *about;                                // one line
    const char *synopsis, *examples;
    const char *names;                                // which arguments it takes beside options ...
    int         least, most;                          // ... and how many
    void      (*defaults)(Config *c);                 // its own defaults, or NULL
    const OptNote *notes;                             // ends with a NULL option; or NULL
} Command;

extern const Command command_table[];                 // ends with a NULL name
const Command *command_find(const char *name);        // NULL: no such command
// The error for a name that no command has: it offers the nearest.
int   command_unknown(const char *name, Err *err);
void  command_defaults(const Command *k, Config *c);
const OptNote *command_note(const Command *k, const char *option);    // NULL: the row says it all
// 0 if the command takes n names (run folders, files).
int   command_names(const Command *k, const char *const *name, int n, Err *err);
#endif
