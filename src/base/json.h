// json.h - JSON in and out. The only user of cJSON.
#ifndef JSON_H
#define JSON_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

// ---- reading. A node lives as long as its document; every function takes NULL for "not there", so
// that json_string(json_get(json_get(doc, "a"), "b")) needs one check at its end.
typedef struct Json Json;
typedef enum {
    JSON_NONE, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT
} JsonKind;

// Parses n bytes, all of them, nested at most `depth` deep. Refused besides bad syntax: bytes that
// are not UTF-8, "\u0000", a key twice in one object, over 2^20 values. `name` is for messages.
int  json_parse(Json **doc, const char *text, size_t n, int depth, const char *name, Err *err);
void json_free(Json *doc);

JsonKind    json_kind(const Json *j);
const char *json_kind_name(JsonKind kind);                   // for messages: "an array"
const Json *json_get(const Json *object, const char *key);   // NULL where there is none
const Json *json_at(const Json *array, size_t i);            // walks from the front
size_t      json_count(const Json *j);                       // members or items
const Json *json_first(const Json *j);                       // NULL where it is empty
const Json *json_next(const Json *member);
const char *json_key(const Json *member);                    // NULL for an array's item
const char *json_string(const Json *j);                      // NULL where j is no string
int json_double(const Json *j, double *v);                   // 0, or -1 where j is no number
int json_u64(const Json *j, uint64_t *v);                    // ... unless whole and 0 .. 2^53-1
int json_bool(const Json *j, int *v);                        // ... where j is not true or false

// ---- writing. `key` is NULL for an array's items and for the outermost value. Out of memory and
// nesting errors are kept until json_finish.
typedef struct {
    int    indent;                   // spaces a level; 0: all on one line
    char  *text;
    size_t n, cap;
    int    depth, failed;
    char   close[32];                // what ends each open level
} JsonOut;                           // { 0 } or { .indent = 2 } begins

void json_open_object(JsonOut *j, const char *key);
void json_open_array(JsonOut *j, const char *key);
void json_close(JsonOut *j);                                          // the innermost open one
void json_put_string(JsonOut *j, const char *key, const char *v);     // NULL: null
void json_put_int(JsonOut *j, const char *key, int64_t v);
void json_put_uint(JsonOut *j, const char *key, uint64_t v);
// NaN and infinity become null, and a number is written so that it reads back as the same one.
void json_put_double(JsonOut *j, const char *key, double v);
void json_put_float(JsonOut *j, const char *key, float v);
void json_put_bool(JsonOut *j, const char *key, int v);
void json_put(JsonOut *j, const char *key, const Json *v);             // a copy of what was read
// The malloc'd text, *n bytes (n may be NULL) and a NUL, is the caller's; j is empty again.
// NULL and err where something failed.
char *json_finish(JsonOut *j, size_t *n, Err *err);
void  json_drop(JsonOut *j);                                           // the text is not wanted
#endif
