// ask.c - see ask.h.
#include "serve/ask.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int read_member(SampleAsk *ask, const Json *m, Err *err) {
    const char *key = json_key(m), *text = json_string(m);
    double v = NAN;
    const int number = !json_double(m, &v) && floor(v) == v;
    if (!strcmp(key, "class") && (text || json_kind(m) == JSON_NULL)) {
        snprintf(ask->class_name, sizeof ask->class_name, "%s", text ? text : "");
        return 0;
    }
    if (!strcmp(key, "count") && number && v >= 1 && v <= MAX_CHAINS) ask->count = (int)v;
    else if (!strcmp(key, "steps") && number && v >= 0 && v <= MAX_STEPS) ask->steps = (int)v;
    else if (!strcmp(key, "seed") && number && v >= 0 && v <= 9007199254740991.0) ask->seed = v;
    else
        return err_set(err, ERR_ARG,
                       "%.40s: expected class (a name), count (1 to %d), steps (0 to "
                       "%d) and seed (a whole number)",
                       key, MAX_CHAINS, MAX_STEPS);
    return 0;
}

int sample_ask(SampleAsk *ask, const uint8_t *body, size_t n, Err *err) {
    Json *doc = NULL;
    *ask = (SampleAsk){ .count = 16, .seed = 1 };
    if (!n) return 0;
    int rc = json_parse(&doc, (const char *)body, n, 4, "the request", err);
    if (!rc && json_kind(doc) != JSON_OBJECT)
        rc = err_set(err, ERR_ARG, "the request: expected an object");
    for (const Json *m = rc ? NULL : json_first(doc); m && !rc; m = json_next(m))
        rc = read_member(ask, m, err);
    json_free(doc);
    return rc;
}
