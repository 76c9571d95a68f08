// runs.c - see runs.h.
#include "serve/runs.h"
#include "base/decimal.h"
#include "base/file.h"
#include "base/log.h"
#include "serve/answer.h"
#include "serve/run_view.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RUNS = 256, MAX_FOUND = 1 << 16, MAX_SAMPLE = 16 << 20, MAX_STREAMS = 512 };
static const double POLL = 1, LIST = 3, PING = 10, IDLE = 10;         // seconds

typedef enum { ROOT_MODEL, ROOT_RUN, ROOT_FOLDER } RootKind;

typedef struct {
    HttpRequest *q;
    char        run[256];               // "": all
    uint64_t    version;                // of that run, as last sent
    double      sent;
} Stream;

struct Runs {
    const Http *http;
    _Atomic RootKind kind;              // a folder becomes a run when training begins in it
    char       path[RUN_PATH], name[256];
    // the inbox
    pthread_t  thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    int        ending, n_inbox;
    HttpRequest *inbox[MAX_STREAMS];
    // the thread's own
    RunView   *run[MAX_RUNS];
    int        n_run, left_out;
    double     polled, scanned, asked;
    uint64_t   lists;                   // rises when runs come and go
    Stream    *stream[MAX_STREAMS];
    int        n_stream;
};

// ---- which runs there are ---------------------------------------------------------------------

// What makes a folder a run's: it need not have a model yet.
static int is_run(const char *dir) {
    char record[RUN_PATH], log[RUN_PATH];
    return !run_path(record, dir, RUN_RECORD, NULL) && !run_path(log, dir, RUN_LOG, NULL) &&
           (file_exists(record) || file_exists(log));
}

static int is_plain_dir(const char *path) {             // and no link
    struct stat s;
    return !lstat(path, &s) && S_ISDIR(s.st_mode);
}

static RunView *find(Runs *r, const char *name) {
    for (int i = 0; i < r->n_run; i++)
        if (!strcmp(r->run[i]->name, name)) return r->run[i];
    return NULL;
}

static void add_run(Runs *r, const char *name, const char *dir) {
    RunView *v = find(r, name);
    if (!v && r->n_run < MAX_RUNS && (v = calloc(1, sizeof *v))) {
        snprintf(v->name, sizeof v->name, "%s", name);
        snprintf(v->dir, sizeof v->dir, "%s", dir);
        r->run[r->n_run++] = v;
        r->lists++;
    }
    if (v) v->listed = 1;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(RunView *const *)a)->name, (*(RunView *const *)b)->name);
}

typedef struct {
    char    name[256];
    int64_t when;                       // its log was last written
} Found;

static int newest_first(const void *a, const void *b) {
    const Found *x = a, *y = b;
    return x->when != y->when ? (x->when < y->when) - (x->when > y->when)
                              : strcmp(x->name, y->name);
}

// The runs in the folder, at most MAX_FOUND; free() them.
static Found *find_runs(const Runs *r, int *n) {
    Found *found = NULL;
    DIR *d = opendir(r->path);
    *n = 0;
    for (struct dirent *e; d && *n < MAX_FOUND && (e = readdir(d));) {
        char dir[RUN_PATH], log[RUN_PATH];
        struct stat s = { 0 };
        if (e->d_name[0] == '.' || path_join(dir, sizeof dir, r->path, e->d_name, NULL) ||
            !is_plain_dir(dir) || !is_run(dir))
            continue;
        if (*n % 64 == 0) {
            Found *more = realloc(found, ((size_t)*n + 64) * sizeof *more);
            if (!more) break;
            found = more;
        }
        if (!run_path(log, dir, RUN_LOG, NULL)) (void)lstat(log, &s);
        snprintf(found[*n].name, sizeof found->name, "%s", e->d_name);
        found[(*n)++].when = (int64_t)s.st_mtim.tv_sec;
    }
    if (d) closedir(d);
    return found;
}

// Of more runs than can be followed, those that trained last.
static void scan_folder(Runs *r) {
    int n;
    Found *found = find_runs(r, &n);
    const int left_out = n > MAX_RUNS ? n - MAX_RUNS : 0;
    if (left_out) qsort(found, (size_t)n, sizeof *found, newest_first);
    if (left_out != r->left_out) r->lists++;
    r->left_out = left_out;
    for (int i = 0; i < n - left_out; i++) {
        char dir[RUN_PATH];
        if (!path_join(dir, sizeof dir, r->path, found[i].name, NULL))
            add_run(r, found[i].name, dir);
    }
    free(found);
}

static void scan(Runs *r) {
    for (int i = 0; i < r->n_run; i++) r->run[i]->listed = 0;
    if (r->kind == ROOT_FOLDER && is_run(r->path)) r->kind = ROOT_RUN;
    if (r->kind == ROOT_RUN) add_run(r, r->name, r->path);
    else if (r->kind == ROOT_FOLDER) scan_folder(r);
    int n = 0;
    for (int i = 0; i < r->n_run; i++) {
        if (r->run[i]->listed) {
            r->run[n++] = r->run[i];
            continue;
        }
        run_view_free(r->run[i]);
        free(r->run[i]);
        r->lists++;
    }
    r->n_run = n;
    qsort(r->run, (size_t)n, sizeof(RunView *), by_name);
}

// The folder of the run of that name, if it has a model, and when that was written; no links.
static int model_folder(const Runs *r, const char *name, char dir[RUN_PATH], struct stat *s) {
    char file[RUN_PATH];
    return strchr(name, '/') || name[0] == '.' || path_join(dir, RUN_PATH, r->path, name, NULL) ||
                   !is_plain_dir(dir) || run_path(file, dir, RUN_BEST, NULL) || lstat(file, s) ||
                   !S_ISREG(s->st_mode)
               ? -1
               : 0;
}

static void set_model(RunModel *m, const char *name, const char *path) {
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->path, sizeof m->path, "%s", path);
}

static int newest_model(const Runs *r, RunModel *m) {
    char dir[RUN_PATH];
    struct stat s;
    time_t newest = 0;
    int found = -1;
    DIR *d = opendir(r->path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (model_folder(r, e->d_name, dir, &s) || s.st_mtim.tv_sec <= newest) continue;
        newest = s.st_mtim.tv_sec;
        set_model(m, e->d_name, dir);
        found = 0;
    }
    if (d) closedir(d);
    return found;
}

int runs_model(Runs *r, const char *name, RunModel *m) {
    char path[RUN_PATH];
    struct stat s;
    if (r->kind == ROOT_FOLDER) {
        if (!*name) return newest_model(r, m);
        if (model_folder(r, name, path, &s)) return -1;
        set_model(m, name, path);
        return 0;
    }
    if (*name && strcmp(name, r->name) != 0) return -1;
    set_model(m, r->name, r->path);
    return r->kind == ROOT_RUN && (run_path(path, r->path, RUN_BEST, NULL) || !file_exists(path));
}

// ---- events -----------------------------------------------------------------------------------

// All runs, in an object that is open.
static void put_runs(const Runs *r, JsonOut *j) {
    static const char *const kind[] = { "model", "run", "folder" };
    json_put_string(j, "kind", kind[r->kind]);
    json_put_int(j, "left_out", r->left_out);
    json_open_array(j, "runs");
    for (int i = 0; i < r->n_run; i++) {
        json_open_object(j, NULL);
        run_view_summary(r->run[i], j);
        json_close(j);
    }
    json_close(j);
}

static int send_runs(Runs *r, Stream *s) {
    JsonOut j = { 0 };
    answer_begin(&j);
    put_runs(r, &j);
    return answer_event(r->http, s->q, "runs", &j);
}

static int send_run(Runs *r, Stream *s, const RunView *v) {
    JsonOut j = { 0 };
    answer_begin(&j);
    run_view_summary(v, &j);
    return answer_event(r->http, s->q, "run", &j);
}

static void drop_stream(Runs *r, int i) {
    r->http->release(r->stream[i]->q);
    free(r->stream[i]);
    r->stream[i] = r->stream[--r->n_stream];
}

static void open_stream(Runs *r, HttpRequest *q, const Target *t) {
    const char *run = target_query(t, "run");
    if (run && !find(r, run)) {
        answer_error(r->http, q, 404, "no run '%.100s'", run);
        return;
    }
    Stream *s = r->n_stream < MAX_STREAMS ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        answer_error(r->http, q, 503, "too many pages are open");
        return;
    }
    *s = (Stream){ .q = q, .sent = now_seconds() };
    snprintf(s->run, sizeof s->run, "%s", run ? run : "");
    r->http->stream(q);
    r->stream[r->n_stream++] = s;
    if (run ? send_run(r, s, find(r, run)) : send_runs(r, s)) drop_stream(r, r->n_stream - 1);
}

// changed[i]: of run i. Each stream hears of what it follows.
static void send_changes(Runs *r, const char *changed, int list_changed) {
    const double now = now_seconds();
    for (int k = r->n_stream - 1; k >= 0; k--) {
        Stream *s = r->stream[k];
        int rc = 0, sent = 0;
        if (list_changed && !s->run[0]) rc = send_runs(r, s), sent = 1;
        for (int i = 0; i < r->n_run && !rc && !sent; i++)
            if (changed[i] && (!s->run[0] || !strcmp(s->run, r->run[i]->name)))
                rc = send_run(r, s, r->run[i]), s->sent = now;
        if (sent) s->sent = now;
        if (!rc && now - s->sent > PING) rc = r->http->send(s->q, ": ping\n\n", 8), s->sent = now;
        if (rc) drop_stream(r, k);
    }
}

static void poll_runs(Runs *r) {
    const double now = now_seconds();
    const uint64_t lists = r->lists;
    char changed[MAX_RUNS];
    if (now - r->scanned >= LIST || !r->n_run) {
        scan(r);
        r->scanned = now;
    }
    for (int i = 0; i < r->n_run; i++) changed[i] = (char)run_view_poll(r->run[i]);
    r->polled = now;
    send_changes(r, changed, lists != r->lists);
}

// ---- requests ---------------------------------------------------------------------------------

static void answer_runs(Runs *r, HttpRequest *q) {
    JsonOut j = { 0 };
    answer_begin(&j);
    put_runs(r, &j);
    answer_json(r->http, q, &j);
}

static void answer_run(Runs *r, HttpRequest *q, RunView *v) {
    size_t n;
    const char *text = run_view_detail(v, &n);
    char *copy = text ? malloc(n + 1) : NULL;
    if (!copy) {
        answer_error(r->http, q, 503, "out of memory");
        return;
    }
    memcpy(copy, text, n + 1);
    r->http->answer(
        q, &(HttpAnswer){
               .status = 200, .type = "application/json; charset=utf-8", .data = copy, .n = n });
}

static void answer_sample(Runs *r, HttpRequest *q, const RunView *v, const char *step) {
    char name[64], *end;
    size_t n = 0;
    const uint64_t at = strtoull(step, &end, 10);
    snprintf(name, sizeof name, "step-%07llu.png", (unsigned long long)at);
    char *data = *end || step[0] < '0' || step[0] > '9'
                     ? NULL
                     : run_view_file(v->dir, run_file(RUN_SAMPLES), name, MAX_SAMPLE, &n);
    if (!data || n < 8 || memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0) {
        free(data);
        answer_error(r->http, q, 404, "no samples of step %.40s", step);
        return;
    }
    r->http->answer(q, &(HttpAnswer){ .status = 200, .type = "image/png", .data = data, .n = n });
}

// The run ends by itself, at its next step.
static void answer_stop(Runs *r, HttpRequest *q, const RunView *v) {
    char path[RUN_PATH];
    if (!train_log_is_open(v->dir)) {
        answer_error(r->http, q, 409, "%s is not being trained", v->name);
        return;
    }
    const int fd = run_path(path, v->dir, RUN_STOP, NULL)
                       ? -1
                       : open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) {
        answer_error(r->http, q, 500, "%s cannot be stopped: %s", v->name, strerror(errno));
        return;
    }
    if (fd >= 0) close(fd);
    JsonOut j = { 0 };
    answer_begin(&j);
    json_put_bool(&j, "stopping", 1);
    answer_json(r->http, q, &j);
}

// run/NAME, run/NAME/sample/STEP or run/NAME/stop; first: the part of the target that is "run".
static void answer_about_run(Runs *r, HttpRequest *q, const Target *t, int first) {
    const int post = !strcmp(q->method, "POST"), n = t->n_part - first;
    const char *name = n > 1 ? t->part[first + 1] : "", *part = n > 2 ? t->part[first + 2] : "";
    RunView *v = n > 1 ? find(r, name) : NULL;
    if (!v) answer_error(r->http, q, 404, "no run '%.100s'", name);
    else if (post && n == 3 && !strcmp(part, "stop")) answer_stop(r, q, v);
    else if (!post && n == 4 && !strcmp(part, "sample")) answer_sample(r, q, v, t->part[first + 3]);
    else if (!post && n == 2) answer_run(r, q, v);
    else answer_error(r->http, q, 404, "there is nothing at this address");
}

static void answer_one(Runs *r, HttpRequest *q) {
    Target t;
    if (target_parse(&t, q->target)) {
        answer_error(r->http, q, 400, "the address is not understood");
        return;
    }
    const int first = t.n_part > 1 && !strcmp(t.part[1], "v1") ? 2 : 1;    // after "api"
    const char *what = first < t.n_part ? t.part[first] : "";
    if (!strcmp(what, "runs")) answer_runs(r, q);
    else if (!strcmp(what, "events")) open_stream(r, q, &t);
    else answer_about_run(r, q, &t, first);
}

void runs_handle(Runs *r, HttpRequest *q) {
    pthread_mutex_lock(&r->lock);
    const int room = r->n_inbox < MAX_STREAMS && !r->ending;
    if (room) r->inbox[r->n_inbox++] = q;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    if (!room) answer_error(r->http, q, 503, "too many requests are waiting");
}

// ---- the thread -------------------------------------------------------------------------------

// Nobody watches: then nothing is looked at.
static int idle(const Runs *r) { return !r->n_stream && now_seconds() - r->asked > IDLE; }

static int wait_for_work(Runs *r, HttpRequest **batch) {
    pthread_mutex_lock(&r->lock);
    while (!r->ending && !r->n_inbox) {
        if (idle(r)) {
            pthread_cond_wait(&r->wake, &r->lock);
            continue;
        }
        const double left = POLL - (now_seconds() - r->polled);
        if (left <= 0) break;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        const double end = (double)t.tv_nsec * 1e-9 + left;
        t.tv_sec += (time_t)end;
        t.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
        pthread_cond_timedwait(&r->wake, &r->lock, &t);
    }
    const int n = r->n_inbox;
    memcpy(batch, r->inbox, (size_t)n * sizeof(HttpRequest *));
    r->n_inbox = 0;
    pthread_mutex_unlock(&r->lock);
    return n;
}

static void *follow_runs(void *ctx) {
    DECIMAL_POINT;
    Runs *r = ctx;
    HttpRequest *batch[MAX_STREAMS];
    for (;;) {
        const int n = wait_for_work(r, batch);
        if (n) r->asked = now_seconds();
        pthread_mutex_lock(&r->lock);
        const int ending = r->ending;
        pthread_mutex_unlock(&r->lock);
        if (!ending && now_seconds() - r->polled >= POLL) poll_runs(r);
        for (int i = 0; i < n; i++) {
            if (ending) answer_error(r->http, batch[i], 503, "the server is shutting down");
            else answer_one(r, batch[i]);
        }
        if (ending) break;
    }
    while (r->n_stream) drop_stream(r, r->n_stream - 1);
    return NULL;
}

static void base_name(char *dst, size_t n, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(dst, n, "%.250s", slash ? slash + 1 : path);
}

int runs_open(Runs **out, const char *path, const Http *http, Err *err) {
    Runs *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return err_set(err, ERR_MEM, "out of memory for runs");
    char *whole = realpath(path, NULL);
    if (!whole || strlen(whole) >= sizeof r->path) {
        const int why = whole ? ENAMETOOLONG : errno;
        free(whole);
        free(r);
        return err_set(err, ERR_IO, "%s: %s", path, strerror(why));
    }
    snprintf(r->path, sizeof r->path, "%s", whole);
    free(whole);
    base_name(r->name, sizeof r->name, r->path);
    r->http = http;
    r->kind = !dir_exists(r->path) ? ROOT_MODEL : is_run(r->path) ? ROOT_RUN : ROOT_FOLDER;
    r->polled = r->scanned = -1e9;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t clock;                   // monotonic: setting the time changes nothing
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&r->thread, NULL, follow_runs, r)) {
        free(r);
        return err_set(err, ERR_IO, "cannot start a thread");
    }
    *out = r;
    return 0;
}

void runs_stop(Runs *r) {
    if (!r || r->ending) return;
    pthread_mutex_lock(&r->lock);
    r->ending = 1;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
}

void runs_free(Runs *r) {
    if (!r) return;
    runs_stop(r);
    for (int i = 0; i < r->n_run; i++) {
        run_view_free(r->run[i]);
        free(r->run[i]);
    }
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->wake);
    free(r);
}
