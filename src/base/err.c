// err.c - see err.h.
#include "base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tame(char *s) {
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7f) *s = '?';
}

int err_set(Err *err, ErrKind kind, const char *fmt, ...) {
    if (!err || err->kind != ERR_NONE) return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    tame(err->msg);
    err->kind = kind;
    return -1;
}

int err_prefix(Err *err, const char *fmt, ...) {
    if (!err) return -1;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    const size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": %s", old);
    tame(err->msg);
    return -1;
}
