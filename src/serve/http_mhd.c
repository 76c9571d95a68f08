// http_mhd.c - the module jempp-serve.so: http.h by libmicrohttpd. One thread carries all
// connections; a request that waits for its answer is suspended. The only user of libmicrohttpd.
#include "serve/http.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct Connection {             // open sockets, for those that send nothing
    struct Connection *next, *before;
    int    fd, reading;                 // reading: the headers of a request
    double since;
} Connection;

typedef struct Server {
    pthread_mutex_t lock;               // of everything below and of all exchanges
    struct MHD_Daemon *daemon;
    HttpOpts   o;
    HttpApp    app;
    Connection *first;
    int        active;                  // requests
    size_t     held;                    // bytes of bodies
    pthread_t  watch;                   // ends connections that take too long
    int        ending;
    pthread_cond_t wake;
} Server;

typedef struct {                        // one request and its answer
    HttpRequest r;                      // first: the server knows this
    Server     *s;
    struct MHD_Connection *c;
    char       *target, *body;
    size_t      size, room, limit;
    double      start;
    int         begun, too_large, counted;
    int         suspended, gone, released;
    int         streams;
    struct MHD_Response *answer;
    int         status;
    char       *text;                   // of a stream, [n_text]: not sent yet
    size_t      n_text, text_room;
} Exchange;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- answers, from any thread ----------------------------------------------------------------

static void resume(Exchange *e) {       // locked
    if (!e->suspended) return;
    e->suspended = 0;
    MHD_resume_connection(e->c);
}

static void add_headers(const Server *s, struct MHD_Response *m, const HttpAnswer *a) {
    for (int i = 0; s->o.header && s->o.header[i][0]; i++)
        MHD_add_response_header(m, s->o.header[i][0], s->o.header[i][1]);
    if (a->type) MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    for (int i = 0; i < HTTP_HEADERS && a->header[i].name; i++)
        MHD_add_response_header(m, a->header[i].name, a->header[i].value);
}

static void answer(HttpRequest *r, const HttpAnswer *a) {
    Exchange *e = (Exchange *)r;
    const int fixed = a->is_static || !a->n;
    struct MHD_Response *m =
        MHD_create_response_from_buffer(a->n, (void *)(uintptr_t)(a->n ? a->data : ""),
                                        fixed ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (m) add_headers(e->s, m, a);
    if (fixed ? !a->n && !a->is_static : !m) free((void *)(uintptr_t)a->data);
    pthread_mutex_lock(&e->s->lock);
    e->answer = m;                      // NULL: no memory, and the connection ends
    e->status = a->status;
    e->released = 1;
    resume(e);
    pthread_mutex_unlock(&e->s->lock);
}

static int keep_text(Exchange *e, const char *text, size_t n) {         // locked
    if (e->n_text + n > e->s->o.stream_bytes) return -1;
    if (e->n_text + n > e->text_room) {
        const size_t room = 2 * (e->n_text + n);
        char *more = realloc(e->text, room);
        if (!more) return -1;
        e->text = more;
        e->text_room = room;
    }
    memcpy(e->text + e->n_text, text, n);
    e->n_text += n;
    return 0;
}

static ssize_t next_text(void *ctx, uint64_t pos, char *dst, size_t max) {
    Exchange *e = ctx;
    (void)pos;
    pthread_mutex_lock(&e->s->lock);
    const size_t n = e->n_text < max ? e->n_text : max;
    ssize_t rc = (ssize_t)n;
    if (n) {
        memcpy(dst, e->text, n);
        memmove(e->text, e->text + n, e->n_text - n);
        e->n_text -= n;
    } else if (e->released) {
        rc = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        e->suspended = 1;
        MHD_suspend_connection(e->c);
    }
    pthread_mutex_unlock(&e->s->lock);
    return rc;
}

static void stream(HttpRequest *r) {
    Exchange *e = (Exchange *)r;
    enum { BLOCK = 16384 };
    const HttpAnswer a = { .type = "text/event-stream" };
    struct MHD_Response *m =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, next_text, e, NULL);
    if (m) add_headers(e->s, m, &a);
    pthread_mutex_lock(&e->s->lock);
    e->answer = m;
    e->status = MHD_HTTP_OK;
    e->streams = 1;
    resume(e);
    pthread_mutex_unlock(&e->s->lock);
}

static int send_text(HttpRequest *r, const char *text, size_t n) {
    Exchange *e = (Exchange *)r;
    pthread_mutex_lock(&e->s->lock);
    const int rc = e->gone || keep_text(e, text, n) ? -1 : 0;
    if (!rc) resume(e);
    pthread_mutex_unlock(&e->s->lock);
    return rc;
}

static void exchange_free(Exchange *e) {
    free(e->target);
    free(e->body);
    free(e->text);
    free(e);
}

static void release(HttpRequest *r) {
    Exchange *e = (Exchange *)r;
    Server *s = e->s;
    pthread_mutex_lock(&s->lock);
    e->released = 1;
    const int last = e->gone;
    if (!last) resume(e);
    pthread_mutex_unlock(&s->lock);
    if (last) exchange_free(e);
}

// ---- what libmicrohttpd calls ----------------------------------------------------------------

static void *on_target(void *ctx, const char *uri, struct MHD_Connection *c) {
    Exchange *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->s = ctx;
    e->c = c;
    e->start = seconds();
    e->target = strdup(uri);
    e->r.target = e->target ? e->target : "";
    return e;
}

// Percent signs stay: the server decodes targets by itself.
static size_t no_unescape(void *ctx, struct MHD_Connection *c, char *s) {
    (void)ctx, (void)c;
    return strlen(s);
}

static const char *header(Exchange *e, const char *name) {
    return MHD_lookup_connection_value(e->c, MHD_HEADER_KIND, name);
}

static void peer_name(Exchange *e) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(e->c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = i ? i->client_addr : NULL;
    const socklen_t n =
        a && a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (!a || getnameinfo(a, n, e->r.peer, sizeof e->r.peer, NULL, 0, NI_NUMERICHOST))
        snprintf(e->r.peer, sizeof e->r.peer, "?");
}

static Connection *connection_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

// A body that is announced as too large is read, up to a point, so that the client can read the
// answer.
static int begin(Exchange *e) {
    Server *s = e->s;
    const char *length = header(e, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const double size = length ? strtod(length, NULL) : 0;
    e->r.host = header(e, MHD_HTTP_HEADER_HOST);
    e->r.origin = header(e, MHD_HTTP_HEADER_ORIGIN);
    e->r.fetch_site = header(e, "Sec-Fetch-Site");
    e->r.cookie = header(e, MHD_HTTP_HEADER_COOKIE);
    e->r.authorization = header(e, MHD_HTTP_HEADER_AUTHORIZATION);
    e->r.accept = header(e, MHD_HTTP_HEADER_ACCEPT);
    peer_name(e);
    e->begun = 1;
    pthread_mutex_lock(&s->lock);
    Connection *k = connection_of(e->c);
    if (k) k->reading = 0;
    e->counted = 1;
    const int busy = ++s->active > s->o.connections;
    pthread_mutex_unlock(&s->lock);
    if (busy) return s->app.busy(s->app.ctx, &e->r), 1;
    const long limit = s->app.begin(s->app.ctx, &e->r);
    if (limit < 0) return 1;
    e->limit = (size_t)limit;
    e->too_large = size > (double)limit;
    if (size > 4 * (double)limit + 65536) return s->app.too_large(s->app.ctx, &e->r, e->limit), 1;
    return 0;
}

static int take_body(Exchange *e, const char *data, size_t n) {
    Server *s = e->s;
    if (seconds() - e->start > s->o.body_s) return -1;
    e->size += n;
    if (e->size > e->limit) e->too_large = 1;
    if (e->too_large) return e->size > 4 * e->limit + 65536 ? -1 : 0;
    if (e->size + 1 > e->room) {
        const size_t room = 2 * e->size + 1 < e->limit + 1 ? 2 * e->size + 1 : e->limit + 1;
        char *more = realloc(e->body, room);
        if (!more) return -1;
        pthread_mutex_lock(&s->lock);
        s->held += room - e->room;
        const int full = s->held > s->o.upload_bytes;
        pthread_mutex_unlock(&s->lock);
        e->body = more;
        e->room = room;
        if (full) return -1;
    }
    memcpy(e->body + e->size - n, data, n);
    return 0;
}

static enum MHD_Result send_answer(Exchange *e) {
    if (!e->answer) return MHD_NO;
    const enum MHD_Result rc = MHD_queue_response(e->c, (unsigned)e->status, e->answer);
    MHD_destroy_response(e->answer);
    e->answer = NULL;
    return rc;
}

static int is_answered(Exchange *e) {
    pthread_mutex_lock(&e->s->lock);
    const int rc = e->released || e->streams;
    pthread_mutex_unlock(&e->s->lock);
    return rc;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **state) {
    (void)ctx, (void)url, (void)version;
    Exchange *e = *state;
    if (!e || !e->target) return MHD_NO;
    Server *s = e->s;
    if (!e->begun) {
        e->c = c;
        e->r.method = method;
        if (!begin(e)) return MHD_YES;
    } else if (*n) {
        const int failed = take_body(e, data, *n);
        *n = 0;
        return failed ? MHD_NO : MHD_YES;
    } else if (!is_answered(e)) {
        if (e->too_large) {
            s->app.too_large(s->app.ctx, &e->r, e->limit);
        } else {
            e->r.body = (const uint8_t *)(e->body ? e->body : "");
            e->r.n_body = e->size;
            if (e->body) e->body[e->size] = 0;
            s->app.handle(s->app.ctx, &e->r);
        }
    }
    pthread_mutex_lock(&s->lock);
    const int ready = e->released || e->streams;
    if (!ready) {
        e->suspended = 1;
        MHD_suspend_connection(c);
    }
    pthread_mutex_unlock(&s->lock);
    return ready ? send_answer(e) : MHD_YES;
}

static void on_completed(void *ctx, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why) {
    Exchange *e = *state;
    (void)ctx, (void)why;
    if (!e) return;
    *state = NULL;
    Server *s = e->s;
    pthread_mutex_lock(&s->lock);
    Connection *k = connection_of(c);
    if (k) *k = (Connection){ k->next, k->before, k->fd, 1, seconds() };
    if (e->counted) s->active--;
    s->held -= e->room;
    e->room = 0;
    e->gone = 1;
    if (e->answer) MHD_destroy_response(e->answer);
    e->answer = NULL;
    const int last = e->released || !e->streams;
    pthread_mutex_unlock(&s->lock);
    if (last) exchange_free(e);
}

static void on_connection(void *ctx, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    Server *s = ctx;
    Connection *k = *socket_context;
    pthread_mutex_lock(&s->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        k = *socket_context = calloc(1, sizeof *k);
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (k) {
            *k = (Connection){ s->first, NULL, i ? i->connect_fd : -1, 1, seconds() };
            if (s->first) s->first->before = k;
            s->first = k;
        }
    } else if (k) {
        if (k->next) k->next->before = k->before;
        if (k->before) k->before->next = k->next;
        else s->first = k->next;
        free(k);
        *socket_context = NULL;
    }
    pthread_mutex_unlock(&s->lock);
}

// Headers that arrive byte by byte would hold a connection for ever.
static void *watch(void *ctx) {
    Server *s = ctx;
    pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec++;
        pthread_cond_timedwait(&s->wake, &s->lock, &t);
        const double now = seconds();
        for (Connection *k = s->first; k; k = k->next)
            if (k->reading && now - k->since > s->o.head_s) (void)shutdown(k->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- opening and closing ----------------------------------------------------------------------

// A socket that listens on the address, or -1.
static int listen_on(const HttpOpts *o, int *port, Err *err) {
    char service[16];
    struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found = NULL;
    snprintf(service, sizeof service, "%d", o->port);
    const int rc = getaddrinfo(o->host, service, &hint, &found);
    if (rc) return err_set(err, ERR_ARG, "--host %s: %s", o->host, gai_strerror(rc));
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const int bad =
        fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 512) ||
        getsockname(fd, (struct sockaddr *)&at, &n) ||
        getnameinfo((struct sockaddr *)&at, n, NULL, 0, service, sizeof service, NI_NUMERICSERV);
    freeaddrinfo(found);
    if (bad) {
        err_set(err, ERR_IO, "cannot listen on %s, port %d: %s%s", o->host, o->port,
                strerror(errno), errno == EADDRINUSE ? "; --port chooses another" : "");
        if (fd >= 0) close(fd);
        return -1;
    }
    *port = atoi(service);
    return fd;
}

static void server_close(Http *h) {
    Server *s = h->impl;
    if (!s) return;
    if (s->daemon) MHD_stop_daemon(s->daemon);
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->watch, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s);
    h->impl = NULL;
}

__attribute__((visibility("default"))) int jempp_http(size_t opts_size, Http *h, const HttpOpts *o,
                                                      const HttpApp *app, Err *err);
int jempp_http(size_t opts_size, Http *h, const HttpOpts *o, const HttpApp *app, Err *err) {
    enum { IDLE_S = 30, POOL = 32768, SPARE = 64 };
    if (opts_size != sizeof *o)
        return err_set(err, ERR_DEV, "jempp-serve.so is of another version than the program");
    Server *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, ERR_MEM, "out of memory for a server");
    *h = (Http){ .impl = s,
                 .answer = answer,
                 .stream = stream,
                 .send = send_text,
                 .release = release,
                 .close = server_close };
    s->o = *o;
    s->app = *app;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t clock;                   // monotonic: setting the time changes nothing
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &clock);
    pthread_condattr_destroy(&clock);
    const int fd = listen_on(o, &h->port, err);
    if (fd < 0 || pthread_create(&s->watch, NULL, watch, s)) {
        if (fd >= 0) close(fd);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->wake);
        free(s);
        h->impl = NULL;
        return err_set(err, ERR_IO, "cannot start a thread");
    }
    s->daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
        MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, s, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(o->connections + SPARE), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL, MHD_OPTION_END);
    if (s->daemon) return 0;
    close(fd);
    server_close(h);
    return err_set(err, ERR_IO, "libmicrohttpd cannot be started");
}
