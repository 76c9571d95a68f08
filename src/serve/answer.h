// answer.h - the forms of answers: JSON objects with the version of the API, errors, events.
#ifndef ANSWER_H
#define ANSWER_H
#include "base/json.h"
#include "serve/http.h"

enum { API_VERSION = 1 };

// Begins {"api": 1; the caller adds members and ends it with answer_json.
void answer_begin(JsonOut *j);
void answer_json(const Http *http, HttpRequest *r, JsonOut *j);
// {"api": 1, "error": "..."}. 503 and 429 say when to try again.
void answer_error(const Http *http, HttpRequest *r, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// The same for a method that is not allowed; allow: those that are, "GET, POST".
void answer_not_allowed(const Http *http, HttpRequest *r, const char *allow);
// The same for an Err: 503 where memory is short, else `status`.
void answer_err(const Http *http, HttpRequest *r, int status, const Err *err);
// An event of a stream, with the object that j began as its data; -1: the client is gone.
int  answer_event(const Http *http, HttpRequest *r, const char *event, JsonOut *j);
#endif
