// err.c - see err.h.
#include "base/err.h"
#include "base/text.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void tame(char *s) {
    for (; *s; s++) {
        const unsigned char c = (unsigned char)s[0], next = (unsigned char)s[1];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) *s = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) s[0] = s[1] = '?';       // U+0080 ...
    }
}

// What does not fit loses its middle: long names stand at the beginning, the reason at the end.
static void put_args(char dst[ERR_TEXT], const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(dst, ERR_TEXT, fmt, ap);
    char *whole = n >= ERR_TEXT ? malloc((size_t)n + 1) : NULL;
    if (whole) {
        vsnprintf(whole, (size_t)n + 1, fmt, again);
        text_shorten(dst, ERR_TEXT, whole, INT_MAX);
    }
    free(whole);
    va_end(again);
}

__attribute__((format(printf, 2, 3))) static void put(char dst[ERR_TEXT], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_args(dst, fmt, ap);
    va_end(ap);
    tame(dst);
}

int err_set(Err *err, ErrKind kind, const char *fmt, ...) {
    if (!err || err->kind != ERR_NONE) return -1;
    va_list ap;
    va_start(ap, fmt);
    put_args(err->msg, fmt, ap);
    va_end(ap);
    tame(err->msg);
    err->kind = kind;
    return -1;
}

int err_prefix(Err *err, const char *fmt, ...) {
    if (!err) return -1;
    const Err old = *err;
    char prefix[ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    put_args(prefix, fmt, ap);
    va_end(ap);
    put(err->msg, "%s: %s", prefix, old.msg);
    return -1;
}

int err_append(Err *err, const char *fmt, ...) {
    if (!err) return -1;
    const Err old = *err;
    char more[ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    put_args(more, fmt, ap);
    va_end(ap);
    put(err->msg, "%s%s", old.msg, more);
    return -1;
}
