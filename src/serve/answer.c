// answer.c - see answer.h.
#include "serve/answer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char JSON_TYPE[] = "application/json; charset=utf-8";

void answer_begin(JsonOut *j) {
    json_open_object(j, NULL);
    json_put_int(j, "api", API_VERSION);
}

static void no_memory(const Http *http, HttpRequest *r) {
    static const char text[] = "{\"api\":1,\"error\":\"out of memory\"}";
    http->answer(
        r,
        &(HttpAnswer){
            .status = 503, .type = JSON_TYPE, .data = text, .n = sizeof text - 1, .is_static = 1 });
}

// allow: the methods that a status of 405 names, or NULL.
static void finish(const Http *http, HttpRequest *r, int status, const char *allow, JsonOut *j) {
    size_t n;
    json_close(j);
    char *text = json_finish(j, &n, NULL);
    if (!text) {
        no_memory(http, r);
        return;
    }
    HttpAnswer a = { .status = status, .type = JSON_TYPE, .data = text, .n = n };
    if (status == 429 || status == 503) {
        a.header[0].name = "Retry-After";
        a.header[0].value = "1";
    } else if (allow) {
        a.header[0].name = "Allow";
        a.header[0].value = allow;
    }
    http->answer(r, &a);
}

void answer_json(const Http *http, HttpRequest *r, JsonOut *j) { finish(http, r, 200, NULL, j); }

void answer_error(const Http *http, HttpRequest *r, int status, const char *fmt, ...) {
    JsonOut j = { 0 };
    char text[1100];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    answer_begin(&j);
    json_put_string(&j, "error", text);
    finish(http, r, status, NULL, &j);
}

void answer_not_allowed(const Http *http, HttpRequest *r, const char *allow) {
    JsonOut j = { 0 };
    char text[100];
    snprintf(text, sizeof text, "the method %.40s is not allowed here", r->method);
    answer_begin(&j);
    json_put_string(&j, "error", text);
    finish(http, r, 405, allow, &j);
}

void answer_err(const Http *http, HttpRequest *r, int status, const Err *err) {
    answer_error(http, r, err->kind == ERR_MEM ? 503 : status, "%s", err->msg);
}

int answer_event(const Http *http, HttpRequest *r, const char *event, JsonOut *j) {
    size_t n;
    char *data, *text = NULL;
    json_close(j);
    data = json_finish(j, &n, NULL);
    const int size = data ? asprintf(&text, "event: %s\ndata: %s\n\n", event, data) : -1;
    const int rc = size < 0 ? -1 : http->send(r, text, (size_t)size);
    if (size >= 0) free(text);
    free(data);
    return rc;
}
