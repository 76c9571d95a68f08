// http.h - requests and their answers, apart from the library that carries them. The library,
// libmicrohttpd, is used by a module (jempp-serve.so, http_mhd.c): the program starts where it is
// not installed.
#ifndef HTTP_H
#define HTTP_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *method, *target;        // "GET", "/api/runs?x=%31": as sent
    // headers, NULL where they are missing
    const char *host, *origin, *fetch_site, *cookie, *authorization, *accept;
    char        peer[48];               // the client's address
    const uint8_t *body;                // n_body bytes and a NUL; once all of it has arrived
    size_t      n_body;
} HttpRequest;

enum { HTTP_HEADERS = 4 };
typedef struct {
    int         status;
    const char *type;                   // of the data; NULL: there is none
    const void *data;
    size_t      n;
    int         is_static;              // data stays; else it is malloc'd, and taken over
    struct { const char *name, *value; } header[HTTP_HEADERS];      // copied
} HttpAnswer;

// What the server does with a request. Both are called on the thread that carries the connections
// and must not wait.
typedef struct {
    // The headers have arrived. Returns how large a body may be, or -1 if it answered already.
    long (*begin)(void *ctx, HttpRequest *r);
    // All of it has arrived. It is answered, or made a stream, now or later by any thread.
    void (*handle)(void *ctx, HttpRequest *r);
    // A body is larger than begin said: answers now.
    void (*too_large)(void *ctx, HttpRequest *r, size_t limit);
    void (*busy)(void *ctx, HttpRequest *r);        // too many connections or bytes: answers now
    void *ctx;
} HttpApp;

typedef struct {
    const char *host;                   // address to listen on
    int         port;                   // 0: any that is free
    int         connections;            // with a request; further ones get HttpApp.busy
    size_t      upload_bytes;           // of all bodies together
    int         head_s, body_s;         // seconds that headers, and a body, may take
    size_t      stream_bytes;           // that may wait for a client that reads slowly
    const char *const (*header)[2];     // for every answer; ends with NULL
} HttpOpts;

// A server that runs. A request is used until it was answered or, after stream, until release.
typedef struct Http {
    int   port;
    void *impl;
    void (*answer)(HttpRequest *r, const HttpAnswer *a);
    void (*stream)(HttpRequest *r);                 // begins an answer of events
    // Text of a stream. -1: the client is gone, or too far behind.
    int  (*send)(HttpRequest *r, const char *text, size_t n);
    void (*release)(HttpRequest *r);                // a stream ends after what was sent
    void (*close)(struct Http *h);                  // no request is open any more
} Http;

// What the module exports as "jempp_http".
typedef int HttpModule(size_t opts_size, Http *h, const HttpOpts *o, const HttpApp *app, Err *err);
#endif
