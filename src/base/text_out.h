// text_out.h - a text of any length, written into memory with fprintf.
#ifndef TEXT_OUT_H
#define TEXT_OUT_H
#include "base/err.h"
#include <stddef.h>
#include <stdio.h>

typedef struct {
    FILE       *f;           // what is written here ...
    char       *text;        // ... is found here, n bytes, after text_close
    size_t      n;
    const char *what;        // "a table", for messages
} TextOut;

// t must stay where it is until it is closed.
int text_open(TextOut *t, const char *what, Err *err);
// The text, malloc'd; NULL: there was no memory for all of it.
char *text_close(TextOut *t, Err *err);
#endif
