// text_out.c - see text_out.h.
#include "base/text_out.h"
#include <stdlib.h>

int text_open(TextOut *t, const char *what, Err *err) {
    *t = (TextOut){ .what = what };
    t->f = open_memstream(&t->text, &t->n);
    return t->f ? 0 : err_set(err, ERR_MEM, "out of memory for %s", what);
}

char *text_close(TextOut *t, Err *err) {
    const int failed = ferror(t->f);
    if (!fclose(t->f) && !failed) return t->text;
    free(t->text);
    err_set(err, ERR_MEM, "out of memory for %s", t->what);
    return NULL;
}
