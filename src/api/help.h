// help.h - the commands, what --help says about them, and the documents made from them and from the
// option table (doc.c).
#ifndef HELP_H
#define HELP_H
#include "conf/config.h"

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
extern const char HELP_ABOUT[], HELP_EXIT[];          // what jempp is; its exit codes
// "--steps N", "--[no-]clamp", "--px clean|shared"
void  help_usage(const OptRow *row, char *dst, size_t n);
const char *help_preset(const Preset *p, int *n);     // what it is, in n characters

// "options-doc" (docs/options.md), "man", "bash-completion" or "zsh-completion"; malloc'd, NULL:
// no such document, or no memory
char *doc_text(const char *name);
#endif
