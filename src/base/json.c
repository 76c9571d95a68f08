// json.c - see json.h. A Json is a cJSON node under another name.
#include "base/json.h"
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 1 << 20 };       // some 100 MB of nodes

static const cJSON *node(const Json *j) { return (const cJSON *)j; }
static const Json  *json(const cJSON *c) { return (const Json *)c; }

// The length of the UTF-8 character at s, of which n bytes may be read; 0 where there is none.
static size_t utf8_len(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xc2 || u[0] > 0xf4) return 0;
    const size_t len = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    const int overlong = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90);
    const int outside = (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf4 && u[1] > 0x8f);
    return overlong || outside ? 0 : len;
}

// What cJSON would let pass or pay dearly for: checked on the text, before a node exists.
static int check_text(const char *s, size_t n, int max_depth, const char *name, Err *err) {
    int depth = 0, in_string = 0;
    size_t values = 1;
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_len(s + i, n - i);
        if (len == 0 || s[i] == 0)
            return err_set(err, ERR_DATA, "%s: not JSON: byte %zu is 0x%02x", name, i,
                           (unsigned char)s[i]);
        if (in_string && s[i] == '\\' && n - i > 1) {
            if (n - i >= 6 && !memcmp(s + i, "\\u0000", 6))
                return err_set(err, ERR_DATA, "%s: a string holds \\u0000 at byte %zu", name, i);
            len = s[i + 1] == 'u' || s[i + 1] == '"' || s[i + 1] == '\\' ? 2 : 1;
        } else if (s[i] == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            values += s[i] == ',' || s[i] == '[' || s[i] == '{';
            depth += (s[i] == '[' || s[i] == '{') - (s[i] == ']' || s[i] == '}');
        }
        if (depth > max_depth)
            return err_set(err, ERR_DATA, "%s: JSON nested over %d deep at byte %zu", name,
                           max_depth, i);
        if (values > MAX_VALUES)
            return err_set(err, ERR_DATA, "%s: JSON with over %d values", name, MAX_VALUES);
    }
    return 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_keys_here(const cJSON *object, const char *name, Err *err) {
    size_t n = 0;
    for (const cJSON *c = object->child; c; c = c->next) n++;
    const char **key = malloc((n + 1) * sizeof *key);
    if (!key) return err_set(err, ERR_MEM, "%s: out of memory for %zu keys", name, n);
    n = 0;
    for (const cJSON *c = object->child; c; c = c->next) key[n++] = c->string;
    qsort(key, n, sizeof *key, by_text);
    int rc = 0;
    for (size_t i = 1; i < n && !rc; i++)
        if (!strcmp(key[i - 1], key[i]))
            rc = err_set(err, ERR_DATA, "%s: duplicate key \"%s\"", name, key[i]);
    free(key);
    return rc;
}

static int check_keys(const cJSON *c, const char *name, Err *err) {
    if (cJSON_IsObject(c) && check_keys_here(c, name, err)) return -1;
    for (const cJSON *m = c->child; m; m = m->next)
        if (m->child && check_keys(m, name, err)) return -1;
    return 0;
}

int json_parse(Json **doc, const char *text, size_t n, int depth, const char *name, Err *err) {
    *doc = NULL;
    if (!n) return err_set(err, ERR_DATA, "%s: not JSON: empty", name);
    if (check_text(text, n, depth, name, err)) return -1;
    const char *end = text;
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    while (root && end < text + n && strchr(" \t\r\n", *end)) end++;
    if (!root || end != text + n) {
        cJSON_Delete(root);
        return err_set(err, ERR_DATA, "%s: not JSON: wrong at byte %zu of %zu", name,
                       (size_t)(end - text), n);
    }
    if (check_keys(root, name, err)) {
        cJSON_Delete(root);
        return -1;
    }
    *doc = (Json *)root;
    return 0;
}

void json_free(Json *doc) { cJSON_Delete((cJSON *)doc); }

JsonKind json_kind(const Json *j) {
    const cJSON *c = node(j);
    if (cJSON_IsNull(c)) return JSON_NULL;
    if (cJSON_IsBool(c)) return JSON_BOOL;
    if (cJSON_IsNumber(c)) return JSON_NUMBER;
    if (cJSON_IsString(c)) return JSON_STRING;
    if (cJSON_IsArray(c)) return JSON_ARRAY;
    return cJSON_IsObject(c) ? JSON_OBJECT : JSON_NONE;
}

const char *json_kind_name(JsonKind kind) {
    static const char *const names[] = { "nothing",  "null",     "true or false", "a number",
                                         "a string", "an array", "an object" };
    return names[kind];
}

const Json *json_get(const Json *object, const char *key) {
    if (!cJSON_IsObject(node(object))) return NULL;
    return json(cJSON_GetObjectItemCaseSensitive(node(object), key));
}

const Json *json_at(const Json *array, size_t i) {
    const Json *item = cJSON_IsArray(node(array)) ? json_first(array) : NULL;
    while (item && i--) item = json_next(item);
    return item;
}

size_t json_count(const Json *j) {
    size_t n = 0;
    for (const Json *m = json_first(j); m; m = json_next(m)) n++;
    return n;
}

const Json *json_first(const Json *j) { return j ? json(node(j)->child) : NULL; }
const Json *json_next(const Json *member) { return json(node(member)->next); }
const char *json_key(const Json *member) { return node(member)->string; }
const char *json_string(const Json *j) { return cJSON_GetStringValue(node(j)); }

int json_double(const Json *j, double *v) {
    if (!cJSON_IsNumber(node(j))) return -1;
    *v = node(j)->valuedouble;
    return 0;
}

// cJSON keeps numbers as doubles: from 2^53 on a whole number may have been another one.
int json_u64(const Json *j, uint64_t *v) {
    double d;
    if (json_double(j, &d) || !(d >= 0 && d < 0x1p53) || d != floor(d)) return -1;
    *v = (uint64_t)d;
    return 0;
}

int json_bool(const Json *j, int *v) {
    if (!cJSON_IsBool(node(j))) return -1;
    *v = cJSON_IsTrue(node(j));
    return 0;
}

// ---- writing

static void put(JsonOut *j, const char *s, size_t n) {
    if (j->failed) return;
    if (n >= j->cap - j->n || !j->text) {
        const size_t cap = 2 * (j->cap + n) + 256;
        char *text = realloc(j->text, cap);
        if (!text) {
            j->failed = ERR_MEM;
            return;
        }
        j->text = text;
        j->cap = cap;
    }
    memcpy(j->text + j->n, s, n);
    j->n += n;
    j->text[j->n] = 0;
}

static void put_text(JsonOut *j, const char *s) { put(j, s, strlen(s)); }

static void put_quoted(JsonOut *j, const char *s) {
    put_text(j, "\"");
    for (size_t n = strlen(s), len; n > 0; s += len, n -= len) {
        char esc[8];
        len = utf8_len(s, n);
        if (len == 0) {
            put_text(j, "\\ufffd");
            len = 1;
        } else if (*s == '"' || *s == '\\') {
            put(j, (char[]){ '\\', *s }, 2);
        } else if (*s == '\n' || *s == '\t') {
            put_text(j, *s == '\n' ? "\\n" : "\\t");
        } else if (len == 1 && ((unsigned char)*s < 0x20 || *s == 0x7f)) {
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)*s);
            put_text(j, esc);
        } else {
            put(j, s, len);
        }
    }
    put_text(j, "\"");
}

static void new_line(JsonOut *j) {
    if (!j->indent) return;
    put_text(j, "\n");
    for (int i = 0; i < j->indent * j->depth; i++) put_text(j, " ");
}

// What comes before a value: the comma after the one before it, and its key.
static void begin(JsonOut *j, const char *key) {
    if (j->failed) return;
    const char last = j->n ? j->text[j->n - 1] : 0;
    const int in_object = j->depth > 0 && j->close[j->depth - 1] == '}';
    if ((key != NULL) != in_object || (j->depth == 0 && j->n > 0)) {
        j->failed = ERR_ARG;             // a programmer's mistake: never write what cannot be read
        return;
    }
    if (j->depth > 0 && last != '{' && last != '[') put_text(j, ",");
    if (j->depth > 0) new_line(j);
    if (!key) return;
    put_quoted(j, key);
    put_text(j, j->indent ? ": " : ":");
}

static void open_level(JsonOut *j, const char *key, const char *first, char last) {
    begin(j, key);
    if (j->depth == (int)sizeof j->close) j->failed = ERR_ARG;
    if (j->failed) return;
    put_text(j, first);
    j->close[j->depth++] = last;
}

void json_open_object(JsonOut *j, const char *key) { open_level(j, key, "{", '}'); }
void json_open_array(JsonOut *j, const char *key) { open_level(j, key, "[", ']'); }

void json_close(JsonOut *j) {
    if (j->depth == 0) j->failed = j->failed ? j->failed : ERR_ARG;
    if (j->failed) return;
    const char last = j->text[j->n - 1];
    j->depth--;
    if (last != '{' && last != '[') new_line(j);
    put(j, &j->close[j->depth], 1);
}

void json_put_string(JsonOut *j, const char *key, const char *v) {
    begin(j, key);
    if (v) put_quoted(j, v);
    else put_text(j, "null");
}

void json_put_int(JsonOut *j, const char *key, int64_t v) {
    char s[32];
    snprintf(s, sizeof s, "%" PRId64, v);
    begin(j, key);
    put_text(j, s);
}

void json_put_uint(JsonOut *j, const char *key, uint64_t v) {
    char s[32];
    snprintf(s, sizeof s, "%" PRIu64, v);
    begin(j, key);
    put_text(j, s);
}

static void put_number(JsonOut *j, const char *key, const char *text) {
    char s[40];
    snprintf(s, sizeof s, "%s", text);
    char *comma = strchr(s, ',');        // where the host program has set such a locale
    if (comma) *comma = '.';
    begin(j, key);
    put_text(j, s);
}

void json_put_double(JsonOut *j, const char *key, double v) {
    char s[40] = "null";
    if (isfinite(v)) {
        snprintf(s, sizeof s, "%.9g", v);
        if (strtod(s, NULL) != v) snprintf(s, sizeof s, "%.17g", v);
    }
    put_number(j, key, s);
}

void json_put_float(JsonOut *j, const char *key, float v) {
    char s[40] = "null";
    if (isfinite(v)) snprintf(s, sizeof s, "%.9g", (double)v);
    put_number(j, key, s);
}

void json_put_bool(JsonOut *j, const char *key, int v) {
    begin(j, key);
    put_text(j, v ? "true" : "false");
}

void json_put(JsonOut *j, const char *key, const Json *v) {
    double number = 0;
    int yes = 0;
    switch (json_kind(v)) {
    case JSON_BOOL:
        (void)json_bool(v, &yes);
        json_put_bool(j, key, yes);
        return;
    case JSON_NUMBER:
        (void)json_double(v, &number);
        json_put_double(j, key, number);
        return;
    case JSON_NONE:
    case JSON_NULL:
    case JSON_STRING: json_put_string(j, key, json_string(v)); return;
    case JSON_ARRAY:  json_open_array(j, key); break;
    case JSON_OBJECT: json_open_object(j, key); break;
    }
    for (const Json *m = json_first(v); m; m = json_next(m)) json_put(j, json_key(m), m);
    json_close(j);
}

void json_drop(JsonOut *j) { free(json_finish(j, NULL, NULL)); }

char *json_finish(JsonOut *j, size_t *n, Err *err) {
    char *text = j->text;
    const size_t bytes = j->n;
    const int failed = j->failed ? j->failed : j->depth || !bytes ? ERR_ARG : 0;
    *j = (JsonOut){ .indent = j->indent };
    if (failed) {
        free(text);
        err_set(err, (ErrKind)failed, "%s",
                failed == ERR_MEM ? "out of memory for JSON text" : "JSON text is not well-formed");
        return NULL;
    }
    if (n) *n = bytes;
    return text;
}
