// work.c - see work.h.
#include "serve/work.h"
#include "base/decimal.h"
#include "base/image.h"
#include "base/log.h"
#include "run/model.h"
#include "serve/answer.h"
#include "serve/queue.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { AT_ONCE = 32 };
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
    Model    *model;                            // NULL: none is open
    char      run[256], name[256];              // as asked for; what it is called
    struct stat file;                           // of the model that is open
    float    *images, *logits;                  // [AT_ONCE]
};

// ---- the model --------------------------------------------------------------------------------

static void close_model(Work *w) {
    if (!w->model) return;
    model_close(w->model);
    free(w->model);
    free(w->images);
    free(w->logits);
    w->model = NULL;
    w->images = w->logits = NULL;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// The model of a run, opened again when training has replaced it.
static int use_model(Work *w, const char *run, Err *err) {
    char path[RUN_PATH], file[RUN_PATH], name[256];
    struct stat now = { 0 };
    if (runs_model(w->runs, run, name, sizeof name, path, sizeof path))
        return *run ? err_set(err, ERR_ARG, "no model '%.100s'", run)
                    : err_set(err, ERR_ARG,
                              "there is no model yet: it is written after the first "
                              "validation");
    if (run_model_path(file, path, err)) return -1;
    if (stat(file, &now)) return err_set(err, ERR_IO, "%s: cannot be read", name);
    if (w->model && !strcmp(w->name, name) && same_file(&now, &w->file)) return 0;
    close_model(w);
    Model *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, ERR_MEM, "out of memory for a model");
    if (model_open(m, &w->cfg, path, err)) return free(m), -1;
    const size_t dim = tensor_len(&m->net.act[0]), C = (size_t)m->net.spec.classes;
    w->model = m;
    w->file = now;
    snprintf(w->name, sizeof w->name, "%s", name);
    w->images = malloc(AT_ONCE * dim * sizeof *w->images);
    w->logits = malloc((AT_ONCE + 1) * C * sizeof *w->logits);
    if (w->images && w->logits) return 0;
    close_model(w);
    return err_set(err, ERR_MEM, "out of memory for pictures");
}

// The share of validation images, in percent, whose log p(x) is below; NaN: unknown.
static double percent_below(const Model *m, double log_px) {
    const float *p = m->percentile;
    if (!p) return NAN;
    int k = 0;
    while (k < N_PERCENTILE && (double)p[k] < log_px) k++;
    if (k == 0 || k == N_PERCENTILE) return k ? 100 : 0;
    return k - 1 + (log_px - (double)p[k - 1]) / (double)(p[k] - p[k - 1]);
}

static void answer_model(Work *w, HttpRequest *q) {
    const Model *m = w->model;
    const NetSpec *spec = &m->net.spec;
    JsonOut j = { 0 };
    answer_begin(&j);
    json_put_string(&j, "name", w->name);
    json_put_string(&j, "network", m->cfg.model);
    json_put_string(&j, "data", m->cfg.data);
    json_put_string(&j, "device", m->dev.be.describe((Dev *)(uintptr_t)&m->dev));
    json_put_uint(&j, "parameters", m->net.n_w);
    json_put_int(&j, "channels", spec->channels);
    json_put_int(&j, "side", spec->side);
    json_put_float(&j, "threshold", m->threshold);
    json_put_bool(&j, "samples", m->cfg.px != PX_NONE);
    json_put_int(&j, "max_upload", MAX_UPLOAD);
    json_open_array(&j, "classes");
    for (int i = 0; i < spec->classes; i++) json_put_string(&j, NULL, m->class_name[i]);
    json_close(&j);
    json_open_array(&j, "percentiles");
    for (int i = 0; m->percentile && i < N_PERCENTILE; i++)
        json_put_float(&j, NULL, m->percentile[i]);
    json_close(&j);
    answer_json(w->http, q, &j);
}

// ---- pictures ---------------------------------------------------------------------------------

// For someone who has never heard of densities.
static void put_words(JsonOut *j, const char *name, double p, int known, double below) {
    char text[600], sure[32] = "more than 99";              // a model is never 100 % sure
    if (p <= 0.99) snprintf(sure, sizeof sure, "%.0f", 100 * p);
    int n = p >= 0.5 ? snprintf(text, sizeof text,
                                "This looks like: %.100s (the model is %s %% "
                                "sure).",
                                name, sure)
                     : snprintf(text, sizeof text,
                                "The model is undecided. Its best guess: %.100s "
                                "(%.0f %%).",
                                name, 100 * p);
    char *end = text + n;
    const size_t room = sizeof text - (size_t)n;
    if (known < 0)
        snprintf(end, room, " The model file does not say which pictures are familiar to it.");
    else if (known && isnan(below))
        snprintf(end, room, " It is the sort of picture that the model was trained on.");
    else if (known)
        snprintf(end, room,
                 " It is the sort of picture that the model was trained on: of 100 "
                 "pictures kept aside in training, %.0f look less typical.",
                 below);
    else if (isnan(below))
        snprintf(end, room,
                 " But it is unlike the pictures that the model was trained on, so do "
                 "not rely on this answer.");
    else
        snprintf(end, room,
                 " But it is unlike the pictures that the model was trained on: of 100 "
                 "pictures kept aside in training, %.0f look more typical. Do not rely on this "
                 "answer.",
                 100 - below);
    json_put_string(j, "words", text);
}

static void answer_prediction(Work *w, const Job *job, const float *image, const float *logits) {
    const Model *m = w->model;
    const NetSpec *spec = &m->net.spec;
    const int C = spec->classes;
    float *p = w->logits + (size_t)AT_ONCE * (size_t)C;
    const double log_px = (double)model_score(m, logits, p), below = percent_below(m, log_px);
    const int top = argmax(p, C), known = isnan(m->threshold) ? -1 : log_px >= (double)m->threshold;
    Err err = { 0 };
    JsonOut j = { 0 };
    answer_begin(&j);
    json_put_string(&j, "model", w->name);
    json_put_string(&j, "class", m->class_name[top]);
    json_put_float(&j, "p", p[top]);
    json_put_double(&j, "log_px", log_px);
    if (known < 0) json_put_string(&j, "known", NULL);
    else json_put_bool(&j, "known", known);
    json_put_double(&j, "percent_below", below);
    put_words(&j, m->class_name[top], (double)p[top], known, below);
    json_open_array(&j, "probabilities");
    for (int i = 0; i < C; i++) json_put_float(&j, NULL, p[i]);
    json_close(&j);
    (void)picture_put(&j, "input", image, 1, spec->channels, spec->side, 1, &err);
    answer_json(w->http, job->q, &j);
}

// Jobs of one model, at most AT_ONCE. A picture that cannot be read does not keep the others.
static void predict(Work *w, Job **job, int n) {
    const NetSpec *spec = &w->model->net.spec;
    const size_t dim = tensor_len(&w->model->net.act[0]), C = (size_t)spec->classes;
    Err err = { 0 };
    int good = 0;
    for (int i = 0; i < n; i++) {
        Err why = { 0 };
        const HttpRequest *q = job[i]->q;
        if (picture_input(w->images + (size_t)good * dim, q->body, q->n_body, spec->channels,
                          spec->side, job[i]->change, &why)) {
            answer_err(w->http, job[i]->q, 422, &why);
            free(job[i]);
        } else {
            job[good++] = job[i];
        }
    }
    const int failed = good && model_logits(w->model, w->images, good, w->logits, &err);
    for (int i = 0; i < good; i++) {
        if (failed) answer_err(w->http, job[i]->q, 500, &err);
        else answer_prediction(w, job[i], w->images + (size_t)i * dim, w->logits + (size_t)i * C);
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

// Members of an open object: the images, their classes and scores.
static int put_images(Work *w, JsonOut *j, int n, const float *images, const int *class_of,
                      Err *err) {
    Model *m = w->model;
    const NetSpec *spec = &m->net.spec;
    const size_t C = (size_t)spec->classes;
    float *logits = malloc((size_t)n * C * sizeof *logits);
    int rc = logits ? model_logits(m, images, n, logits, err)
                    : err_set(err, ERR_MEM, "out of memory for samples");
    json_open_array(j, "class");
    for (int i = 0; !rc && i < n; i++)
        json_put_string(j, NULL, class_of[i] < 0 ? NULL : m->class_name[class_of[i]]);
    json_close(j);
    json_open_array(j, "log_px");
    for (int i = 0; !rc && i < n; i++)
        json_put_float(j, NULL, model_score(m, logits + (size_t)i * C, NULL));
    json_close(j);
    json_put_int(j, "columns", image_columns(n));
    if (!rc)
        rc = picture_put(j, "image", images, n, spec->channels, spec->side, image_columns(n), err);
    free(logits);
    return rc;
}

// Between two steps: a frame for who watches, then pictures of others.
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
        if (n && put_images(w, &j, n, images, class_of, &err)) {
            free(json_finish(&j, NULL, NULL));
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
    Work *w = c->w;
    const ChainWatch watch = { on_frame, c };
    Config use;
    const int most = chains_at_most(w->model, c->job->ask.class_name);
    const int n = c->job->ask.count < most ? c->job->ask.count : most;
    float *images = malloc((size_t)n * tensor_len(&w->model->net.act[0]) * sizeof *images);
    int *class_of = malloc((size_t)n * sizeof *class_of);
    int rc = images && class_of ? sample_options(c, &use, err)
                                : err_set(err, ERR_MEM, "out of memory for samples");
    if (!rc) rc = model_sample_watched(w->model, &use, NULL, &watch, n, images, class_of, err);
    if (!rc) {
        answer_begin(j);
        json_put_string(j, "model", w->name);
        json_put_int(j, "count", n);
        json_put_int(j, "steps", model_chains(w->model).steps);
        rc = put_images(w, j, n, images, class_of, err);
    }
    free(images);
    free(class_of);
    return rc;
}

static void sample(Work *w, Job *job) {
    Chains c = { .w = w, .job = job, .start = now_seconds() };
    Err err = { 0 };
    JsonOut j = { 0 };
    int rc = use_model(w, job->run, &err);
    snprintf(w->run, sizeof w->run, "%s", job->run);
    if (!rc && w->model->cfg.px == PX_NONE)
        rc = err_set(&err, ERR_ARG, "%s was trained without p(x), so it draws no samples", w->name);
    if (!rc) rc = draw(&c, &j, &err);
    if (rc) {
        const int status = err.kind == ERR_ARG ? 400 : 500;
        json_close(&j);
        free(json_finish(&j, NULL, NULL));
        if (c.late || ending(w)) {
            err = (Err){ 0 };
            err_set(&err, ERR_IO,
                    c.late ? "the chains took more than %.0f seconds"
                           : "the server is shutting down",
                    CHAIN_SECONDS);
        }
        if (!strncmp(err.msg, "--", 2)) memmove(err.msg, err.msg + 2, strlen(err.msg + 2) + 1);
        fail_chains(&c, c.late || ending(w) ? 503 : status, &err);
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
    close_model(w);
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
    job->ask.stream = job->q->accept && strstr(job->q->accept, "text/event-stream") != NULL;
    const int stream = job->ask.stream;
    if (sample_ask(&job->ask, job->q->body, job->q->n_body, err)) return -1;
    job->ask.stream = stream;
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
