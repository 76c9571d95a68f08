// err.c - see err.h.
#include "base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tame(char *s) {
    for (; *s; s++) {
        const unsigned char c = (unsigned char)s[0], next = (unsigned char)s[1];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) *s = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) s[0] = s[1] = '?';       // U+0080 ...
    }
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

int err_append(Err *err, const char *fmt, ...) {
    if (!err) return -1;
    const size_t n = strlen(err->msg);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg + n, sizeof err->msg - n, fmt, ap);
    va_end(ap);
    tame(err->msg);
    return -1;
}
