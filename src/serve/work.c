// work.c - see work.h.
#include "serve/work.h"
#include "base/decimal.h"
#include "base/log.h"
#include "serve/answer.h"
#include "serve/model_view.h"
#include "serve/queue.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const double CHAIN_SECONDS = 600;        // of one request

struct Work {
    const Http *http;
    Runs     *runs;
    Config    cfg;
    pthread_t thread;
    pthread_mutex_t lock;                       // of the queue
    pthread_cond_t  wake;
    Queue     queue;
    int       ending;
    // the thread's own
    ModelView view;
    char      run[256];                         // whose chains are running
};

// ---- answers ---------------------------------------------------------------------------------

static int use_model(Work *w, const char *run, Err *err) {
    return model_view_open(&w->view, &w->cfg, w->runs, run, err);
}

static void answer_model(Work *w, HttpRequest *q) {
    JsonOut j = { 0 };
    answer_begin(&j);
    put_model(&w->view, &j);
    answer_json(w->http, q, &j);
}

static void answer_prediction(Work *w, HttpRequest *q, const float *image, const float *logits) {
    JsonOut j = { 0 };
    answer_begin(&j);
    put_prediction(&w->view, &j, image, logits);
    answer_json(w->http, q, &j);
}

// The jobs whose picture can be read, moved to the front; the others are answered with an error.
static int read_pictures(Work *w, Job **job, int n) {
    const NetSpec *spec = &w->view.model->net.spec;
    const size_t dim = tensor_len(&w->view.model->net.act[0]);
    int good = 0;
    for (int i = 0; i < n; i++) {
        Err why = { 0 };
        HttpRequest *q = job[i]->q;
        if (!picture_input(w->view.images + (size_t)good * dim, q->body, q->n_body, spec->channels,
                           spec->side, job[i]->change, &why)) {
            job[good++] = job[i];
            continue;
        }
        answer_err(w->http, q, 422, &why);
        free(job[i]);
    }
    return good;
}

// Jobs of one model, at most AT_ONCE. A picture that cannot be read does not keep the others.
static void predict(Work *w, Job **job, int n) {
    ModelView *v = &w->view;
    const size_t dim = tensor_len(&v->model->net.act[0]), C = (size_t)v->model->net.spec.classes;
    Err err = { 0 };
    const int good = read_pictures(w, job, n);
    const int failed = good && model_logits(v->model, v->images, good, v->logits, &err);
    for (int i = 0; i < good; i++) {
        HttpRequest *q = job[i]->q;
        if (failed) answer_err(w->http, q, 500, &err);
        else answer_prediction(w, q, v->images + (size_t)i * dim, v->logits + (size_t)i * C);
        free(job[i]);
    }
}

// ---- the queue --------------------------------------------------------------------------------

// The next job and, where it is a picture, those that can be classified with it.
static int take(Work *w, Job *batch[AT_ONCE], const char *run, int samples_too) {
    int n = 0;
    pthread_mutex_lock(&w->lock);
    Job *job = queue_take(&w->queue, run, samples_too);
    while (job) {
        batch[n++] = job;
        if (n == AT_ONCE || job->kind != JOB_PREDICT) break;
        job = queue_take(&w->queue, job->run, 0);
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

// Takes a question about the model off the end.
static Job *last_question(Job **batch, int *n) {
    Job *last = *n > 0 ? batch[*n - 1] : NULL;
    if (!last || last->kind != JOB_MODEL) return NULL;
    --*n;
    return last;
}

// Jobs that were taken together: pictures and, at most as the last, a question about the model.
static void do_jobs(Work *w, Job **batch, int n) {
    Err err = { 0 };
    Job *asks = last_question(batch, &n);
    const int failed = use_model(w, asks ? asks->run : batch[0]->run, &err);
    const int status = err.kind == ERR_ARG ? 404 : 500;
    if (!failed && n) predict(w, batch, n);
    for (int i = 0; failed && i < n; i++) {
        answer_err(w->http, batch[i]->q, status, &err);
        free(batch[i]);
    }
    if (!asks) return;
    if (failed) answer_err(w->http, asks->q, status, &err);
    else answer_model(w, asks->q);
    free(asks);
}

// ---- chains -----------------------------------------------------------------------------------

typedef struct {
    Work    *w;
    Job     *job;
    double   start;
    int      gone, late;
} Chains;

static int ending(Work *w) {
    pthread_mutex_lock(&w->lock);
    const int rc = w->ending;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

// Between two steps: a frame for the client that watches, then the pictures of other clients.
static int on_frame(void *ctx, int step, int steps, int n, const float *images,
                    const int *class_of) {
    Chains *c = ctx;
    Work *w = c->w;
    Err err = { 0 };
    JsonOut j = { 0 };
    if (c->job->ask.stream) {
        answer_begin(&j);
        json_put_int(&j, "step", step);
        json_put_int(&j, "steps", steps);
        if (n && put_samples(&w->view, &j, n, images, class_of, &err)) {
            json_drop(&j);
            return 1;
        }
        c->gone = answer_event(w->http, c->job->q, steps ? "frame" : "fitting", &j) != 0;
    }
    Job *batch[AT_ONCE];
    for (int k = 0, some; k < 4 && (some = take(w, batch, w->run, 0)); k++) {
        Job *asks = last_question(batch, &some);
        if (some) predict(w, batch, some);
        if (asks) answer_model(w, asks->q);
        free(asks);
    }
    c->late = now_seconds() - c->start > CHAIN_SECONDS;
    return c->gone || c->late || ending(w);
}

static int sample_options(const Chains *c, Config *use, Err *err) {
    const SampleAsk *ask = &c->job->ask;
    char text[32];
    *use = c->w->cfg;
    memset(use->given, 0, sizeof use->given);
    snprintf(text, sizeof text, "%.0f", ask->seed);
    if (config_set(use, "seed", text, "seed", err)) return -1;
    if (ask->class_name[0] && config_set(use, "class", ask->class_name, "class", err)) return -1;
    snprintf(text, sizeof text, "%d", ask->steps);
    return ask->steps ? config_set(use, "steps", text, "steps", err) : 0;
}

// One batch of chains: more would not fit into the time of a request.
static int chains_at_most(const Model *m, const char *class_name) {
    const int B = m->cfg.batch, C = m->net.spec.classes;
    const int most = *class_name ? B / C : B;
    return most < 1 ? 1 : most < MAX_CHAINS ? most : MAX_CHAINS;
}

static void fail_chains(Chains *c, int status, const Err *err) {
    const Http *http = c->w->http;
    HttpRequest *q = c->job->q;
    if (!c->job->ask.stream) {
        answer_err(http, q, status, err);
        return;
    }
    JsonOut j = { 0 };
    answer_begin(&j);
    json_put_string(&j, "error", err->msg);
    (void)answer_event(http, q, "error", &j);
    http->release(q);
}

static int draw(Chains *c, JsonOut *j, Err *err) {
    ModelView *v = &c->w->view;
    const ChainWatch watch = { on_frame, c };
    Config use;
    const int most = chains_at_most(v->model, c->job->ask.class_name);
    const int n = c->job->ask.count < most ? c->job->ask.count : most;
    float *images = malloc((size_t)n * tensor_len(&v->model->net.act[0]) * sizeof *images);
    int *class_of = malloc((size_t)n * sizeof *class_of);
    int rc = images && class_of ? sample_options(c, &use, err)
                                : err_set(err, ERR_MEM, "out of memory for samples");
    if (!rc) rc = model_sample_watched(v->model, &use, NULL, &watch, n, images, class_of, err);
    if (!rc) {
        answer_begin(j);
        json_put_string(j, "model", v->name);
        json_put_int(j, "count", n);
        json_put_int(j, "steps", model_chains(v->model).steps);
        rc = put_samples(v, j, n, images, class_of, err);
    }
    free(images);
    free(class_of);
    return rc;
}

// If time ran out or the server shuts down, that is the reason, whatever error it led to. Options
// are named without the dashes of the command line.
static void answer_failure(Chains *c, Err *err) {
    int status = err->kind == ERR_ARG ? 400 : 500;
    if (c->late || ending(c->w)) {
        status = 503;
        *err = (Err){ 0 };
        if (c->late) err_set(err, ERR_IO, "the chains took more than %.0f seconds", CHAIN_SECONDS);
        else err_set(err, ERR_IO, "the server is shutting down");
    }
    if (!strncmp(err->msg, "--", 2)) memmove(err->msg, err->msg + 2, strlen(err->msg + 2) + 1);
    fail_chains(c, status, err);
}

static void sample(Work *w, Job *job) {
    Chains c = { .w = w, .job = job, .start = now_seconds() };
    Err err = { 0 };
    JsonOut j = { 0 };
    int rc = use_model(w, job->run, &err);
    snprintf(w->run, sizeof w->run, "%s", job->run);
    if (!rc && w->view.model->cfg.px == PX_NONE)
        rc = err_set(&err, ERR_ARG, "%s was trained without p(x), so it draws no samples",
                     w->view.name);
    if (!rc) rc = draw(&c, &j, &err);
    if (rc) {
        json_drop(&j);
        answer_failure(&c, &err);
    } else if (job->ask.stream) {
        (void)answer_event(w->http, job->q, "done", &j);
        w->http->release(job->q);
    } else {
        answer_json(w->http, job->q, &j);
    }
    free(job);
}

// ---- the thread -------------------------------------------------------------------------------

static void refuse(Work *w, Job **batch, int n) {
    Err err = { 0 };
    err_set(&err, ERR_IO, "the server is shutting down");
    for (int i = 0; i < n; i++) {
        fail_chains(&(Chains){ .w = w, .job = batch[i] }, 503, &err);
        free(batch[i]);
    }
}

static void *work(void *ctx) {
    DECIMAL_POINT;
    Work *w = ctx;
    Job *batch[AT_ONCE];
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->ending && !w->queue.n) pthread_cond_wait(&w->wake, &w->lock);
        const int end = w->ending;
        pthread_mutex_unlock(&w->lock);
        const int n = take(w, batch, NULL, 1);
        if (end && !n) break;
        if (end) refuse(w, batch, n);
        else if (n == 1 && batch[0]->kind == JOB_SAMPLE) sample(w, batch[0]);
        else if (n) do_jobs(w, batch, n);
    }
    model_view_close(&w->view);
    return NULL;
}

int work_open(Work **out, const Config *c, Runs *runs, const Http *http, Err *err) {
    Work *w = *out = calloc(1, sizeof *w);
    if (!w) return err_set(err, ERR_MEM, "out of memory for a model");
    w->cfg = *c;
    w->runs = runs;
    w->http = http;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (!pthread_create(&w->thread, NULL, work, w)) return 0;
    free(w);
    *out = NULL;
    return err_set(err, ERR_IO, "cannot start a thread");
}

void work_stop(Work *w) {
    if (!w || w->ending) return;
    pthread_mutex_lock(&w->lock);
    w->ending = 1;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}

void work_free(Work *w) {
    if (!w) return;
    work_stop(w);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    free(w);
}

// ---- requests ---------------------------------------------------------------------------------

// What a request asks for, taken out of it.
static int read_job(Job *job, const Target *t, const char *what, Err *err) {
    const char *run = target_query(t, "model");
    snprintf(job->run, sizeof job->run, "%s", run ? run : "");
    job->kind = !strcmp(what, "model") ? JOB_MODEL
                : !strcmp(what, "predict") ? JOB_PREDICT
                                           : JOB_SAMPLE;
    if (job->kind == JOB_PREDICT)
        return target_number(t, "rotate", -360, 360, 0, &job->change.rotate, err) ||
               target_number(t, "noise", 0, 1, 0, &job->change.noise, err);
    if (job->kind == JOB_MODEL) return 0;
    if (sample_ask(&job->ask, job->q->body, job->q->n_body, err)) return -1;
    job->ask.stream = job->q->accept && strstr(job->q->accept, "text/event-stream") != NULL;
    return 0;
}

// A stream begins while its job waits, before the thread can take it.
void work_handle(Work *w, HttpRequest *q, const Target *t, const char *what) {
    Job *job = calloc(1, sizeof *job);
    Err err = { 0 };
    if (!job) {
        answer_error(w->http, q, 503, "out of memory");
        return;
    }
    job->q = q;
    if (read_job(job, t, what, &err)) {
        answer_err(w->http, q, 400, &err);
        free(job);
        return;
    }
    pthread_mutex_lock(&w->lock);
    const int ahead = w->queue.n, status = w->ending ? 503 : queue_add(&w->queue, job);
    if (!status && job->ask.stream) {
        JsonOut j = { 0 };
        w->http->stream(q);
        answer_begin(&j);
        json_put_int(&j, "ahead", ahead);
        (void)answer_event(w->http, q, "queued", &j);
    }
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (!status) return;
    if (status == 429)
        answer_error(w->http, q, 429, "too many of your requests are waiting; try again");
    else answer_error(w->http, q, 503, "the server is busy; try again");
    free(job);
}
