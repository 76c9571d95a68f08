// err.h - how failures are reported: a kind, which decides the exit code, and a sentence for the
// user.
#ifndef ERR_H
#define ERR_H

typedef enum {
    ERR_NONE,
    ERR_ARG,         // usage error: exit code 2
    ERR_IO,          // the system refused: cannot open, write, map, connect
    ERR_DATA,        // the contents of a file are invalid
    ERR_MEM,         // out of memory, on the host or a device
    ERR_DEV,         // a device or its library failed
    ERR_DIVERGED,    // training diverged and the retries are exhausted: exit code 3
} ErrKind;

enum { ERR_TEXT = 1024 };

typedef struct {
    ErrKind kind;
    char    msg[ERR_TEXT];
} Err;

// Fills err (which may be NULL) unless it already holds an error, and returns -1, so that the
// place that knows the facts can say
//     return err_set(err, ERR_DATA, "%s: %zu bytes, expected %zu", ...);
// Begin with Err err = { 0 }. Control characters (from untrusted files) become '?'. A text that
// does not fit, for example because of a long file name, loses its middle; the reason at its end
// stays.
int err_set(Err *err, ErrKind kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Puts "prefix: " before the message that is already there; returns -1.
int err_prefix(Err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Puts more after the message that is already there; returns -1.
int err_append(Err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Names from untrusted files are printed on terminals, which control characters could manipulate:
// all but line ends and tabs become '?', those that have two bytes in UTF-8 too.
void tame(char *s);
#endif
