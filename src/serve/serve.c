// serve.c - see serve.h. Requests are checked here and handed to the thread that knows.
#include "serve/serve.h"
#include "base/decimal.h"
#include "base/file.h"
#include "base/module.h"
#include "run/model_file.h"
#include "serve/address.h"
#include "serve/answer.h"
#include "serve/picture.h"
#include "serve/work.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct {
    Http  http;
    Guard guard;
    Runs *runs;
    Work *work;
} Server;

// Everything comes from this server, and no other page may show or read it.
static const char *const headers[][2] = {
    { "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
    { "X-Content-Type-Options", "nosniff" },
    { "Cross-Origin-Resource-Policy", "same-origin" },
    { "Referrer-Policy", "no-referrer" },
    { "Cache-Control", "no-store" },
    { NULL, NULL },
};

// ---- which part answers -----------------------------------------------------------------------

typedef struct {
    const char *what, *method;              // after /api/ or /api/v1/
    int  runs;                              // answered by runs.h, else by work.h
    long body;                              // bytes
} Route;

static const Route routes[] = {
    { "runs", "GET", 1, 0 },       { "run", "GET", 1, 0 },
    { "run", "POST", 1, 0 },       { "events", "GET", 1, 0 },
    { "model", "GET", 0, 0 },      { "predict", "POST", 0, MAX_UPLOAD },
    { "sample", "POST", 0, MAX_JSON },
};
enum { N_ROUTE = sizeof routes / sizeof *routes };

static const char *api_part(const Target *t) {
    if (!t->n_part || strcmp(t->part[0], "api") != 0) return NULL;
    const int at = t->n_part > 1 && !strcmp(t->part[1], "v1") ? 2 : 1;
    return at < t->n_part ? t->part[at] : "";
}

// NULL where there is none; then `allow` has the methods that would do, "" for an unknown address.
// HEAD is GET without the data, which is left out when it is sent.
static const Route *find_route(const char *what, const char *method, char allow[32]) {
    const int head = !strcmp(method, "HEAD") && strcmp(what, "events") != 0;
    allow[0] = 0;
    for (int i = 0; i < N_ROUTE; i++) {
        if (strcmp(routes[i].what, what) != 0) continue;
        if (!strcmp(routes[i].method, head ? "GET" : method)) return &routes[i];
        snprintf(allow + strlen(allow), 32 - strlen(allow), "%s%s", allow[0] ? ", " : "",
                 routes[i].method);
    }
    return NULL;
}

static void answer_page(Server *s, HttpRequest *r, const Target *t) {
    const char *name = t->n_part ? t->part[0] : "index.html";
    for (const PageFile *f = page_files; f->name && t->n_part < 2; f++)
        if (!strcmp(f->name, name)) {
            s->http.answer(
                r,
                &(HttpAnswer){
                    .status = 200, .type = f->type, .data = f->data, .n = f->n, .is_static = 1 });
            return;
        }
    answer_error(&s->http, r, 404, "there is nothing at this address");
}

// The address that was printed has the token: the browser keeps it as a cookie, and it leaves the
// address bar.
static void answer_token(Server *s, HttpRequest *r) {
    char cookie[160];
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", s->guard.cookie,
             s->guard.token);
    s->http.answer(r, &(HttpAnswer){ .status = 303,
                                     .header = { { "Location", "/" }, { "Set-Cookie", cookie } } });
}

static int is_get(const HttpRequest *r) {
    return !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
}

// ---- what http.h calls ------------------------------------------------------------------------

static long begin(void *ctx, HttpRequest *r) {
    Server *s = ctx;
    Target t;
    Err err = { 0 };
    int status = 400;
    if (target_parse(&t, r->target)) {
        answer_error(&s->http, r, 400, "the address is not understood");
        return -1;
    }
    const char *token = target_query(&t, "token"), *what = api_part(&t);
    status = guard_check(&s->guard, r, token, &err);
    if (status) {
        answer_error(&s->http, r, status, "%s", err.msg);
        return -1;
    }
    char allow[32] = "GET";
    const Route *route = what ? find_route(what, r->method, allow) : NULL;
    if (route || (!what && is_get(r))) return route ? route->body : 0;
    if (allow[0]) answer_not_allowed(&s->http, r, allow);
    else answer_error(&s->http, r, 404, "there is nothing at this address");
    return -1;
}

static void handle(void *ctx, HttpRequest *r) {
    DECIMAL_POINT;
    Server *s = ctx;
    Target t;
    char allow[32];
    if (target_parse(&t, r->target)) return;                // begin knows better
    const char *what = api_part(&t);
    const Route *route = what ? find_route(what, r->method, allow) : NULL;
    if (route && route->runs) runs_handle(s->runs, r);
    else if (route) work_handle(s->work, r, &t, what);
    else if (s->guard.token[0] && !t.n_part && target_query(&t, "token")) answer_token(s, r);
    else answer_page(s, r, &t);
}

static void too_large(void *ctx, HttpRequest *r, size_t limit) {
    Server *s = ctx;
    if (limit >> 20)
        answer_error(&s->http, r, 413, "too large: at most %zu MiB are accepted", limit >> 20);
    else answer_error(&s->http, r, 413, "too large: at most %zu bytes are accepted", limit);
}

static void busy(void *ctx, HttpRequest *r) {
    Server *s = ctx;
    answer_error(&s->http, r, 503, "too many connections; try again");
}

// ---- the server -------------------------------------------------------------------------------

static int listen_to(Server *s, const Config *c, Err *err) {
    const HttpOpts o = { .host = c->host,
                         .port = c->port,
                         .connections = 512,
                         .upload_bytes = (size_t)256 << 20,
                         .head_s = 20,
                         .body_s = 60,
                         .stream_bytes = (size_t)4 << 20,
                         .header = headers };
    const HttpApp app = { begin, handle, too_large, busy, s };
    HttpModule *start = NULL;
    return guard_open(&s->guard, c->host, err) ||           // before the first request
           module_load("serve", "jempp_http", (void **)&start, err) ||
           start(sizeof o, &s->http, &o, &app, err);
}

// Addresses that can be opened. A server that listens at all of the machine's has one for others,
// and one for this machine.
static void say_address(const Server *s, const Config *c, const Events *ev) {
    char line[700], others[64];
    const int any = address_is_any(c->host);
    const char *here = strchr(c->host, ':') ? "::1" : "127.0.0.1";
    if (any && !address_of_machine(others, sizeof others, c->host)) {
        address_url(line, sizeof line, others, s->http.port, s->guard.token);
        tell_line(ev, line);
    }
    address_url(line, sizeof line, any ? here : c->host, s->http.port, s->guard.token);
    tell_line(ev, line);
}

// A file that is no model is refused now, rather than in every answer.
static int check_model(const char *path, Err *err) {
    St st;
    if (dir_exists(path)) return 0;
    if (model_file_open(&st, path, err)) return -1;
    st_close(&st);
    return 0;
}

int serve(const Config *c, const char *path, const Events *ev, Err *err) {
    Server s = { 0 };
    const struct timespec pause = { .tv_nsec = 100000000 };
    int rc = check_model(path, err) || runs_open(&s.runs, path, &s.http, err) ||
             work_open(&s.work, c, s.runs, &s.http, err) || listen_to(&s, c, err);
    if (!rc) say_address(&s, c, ev);
    while (!rc && !stop_asked(ev)) nanosleep(&pause, NULL);
    work_stop(s.work);                      // clients that wait are answered first
    runs_stop(s.runs);
    if (s.http.close) s.http.close(&s.http);
    work_free(s.work);
    runs_free(s.runs);
    return rc;
}
