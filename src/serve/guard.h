// guard.h - parses the target of a request, and checks the headers that show where it comes from
// (Host, Origin, token). Pure functions of untrusted bytes.
#ifndef GUARD_H
#define GUARD_H
#include "serve/http.h"

enum { MAX_PARTS = 6, MAX_QUERY = 8, MAX_TARGET = 1024 };

// "/api/run/a%20b?x=1" as parts "api", "run", "a b" and query x = "1", percent signs decoded.
typedef struct {
    int   n_part, n_query;
    char *part[MAX_PARTS];
    struct { char *name, *value; } query[MAX_QUERY];
    char  text[MAX_TARGET];
} Target;

// 0, or -1 for a target that is not understood: too long or too many parts, a control character, a
// part that is empty, "." or "..", or holds a slash.
int target_parse(Target *t, const char *target);
const char *target_query(const Target *t, const char *name);      // NULL: it has none
// A number within [lo, hi]; `other` where there is none; -1 with err for anything else.
int target_number(const Target *t, const char *name, double lo, double hi, double other, double *v,
                  Err *err);

typedef struct {
    char host[256];                     // as --host says
    char machine[256];                  // the machine's own name
    char token[40];                     // "": none is needed
    char cookie[40];                    // the name of the cookie that carries it: random, because
                                        // servers on two ports of a machine share their cookies
} Guard;

// Draws a token where one is needed.
int guard_open(Guard *g, const char *host, Err *err);
int is_loopback(const char *host);
// 0, or an HTTP status with a sentence in err: a Host that is not ours (a page of others that was
// made to point here), an Origin that is not that Host, no token. has_token: of the query.
int guard_check(const Guard *g, const HttpRequest *r, const char *token, Err *err);
#endif
