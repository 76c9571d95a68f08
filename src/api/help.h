// help.h - what --help says about the commands, and the documents made from them and from the
// option table (doc.c).
#ifndef HELP_H
#define HELP_H
#include "api/commands.h"

char *help_text(const char *command);                 // NULL: all commands; malloc'd, or NULL
extern const char HELP_ABOUT[], HELP_EXIT[];          // what jempp is; its exit codes
// "--steps N", "--[no-]clamp", "--px clean|shared"
void  help_usage(const OptRow *row, char *dst, size_t n);
// Whether the default of an option is the value that the model was trained with.
int   help_from_model(const Command *k, const OptRow *row);
const char *help_preset(const Preset *p, int *n);     // what it is, in n characters

// "options-doc" (docs/options.md), "man", "bash-completion" or "zsh-completion"; malloc'd, NULL:
// no such document, or no memory
char *doc_text(const char *name);
#endif
