// worker.c - see worker.h.
#include "base/worker.h"
#include "base/decimal.h"
#include "base/log.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct Worker {
    pthread_t       thread;
    pthread_mutex_t lock;               // of all below
    pthread_cond_t  changed;
    Job             job[WORKER_QUEUE];
    uint64_t        added, done;        // jobs; number n lies at job[(n - 1) % WORKER_QUEUE]
    double          idle_since;         // now_seconds()
    int             closing;
    Err             err;                // of the first job that failed
};

static void *work(void *arg) {
    DECIMAL_POINT;
    Worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->done == w->added && !w->closing) pthread_cond_wait(&w->changed, &w->lock);
        if (w->done == w->added) break;
        const Job job = w->job[w->done % WORKER_QUEUE];
        const int skip = w->err.kind != ERR_NONE;
        Err err = { 0 };
        pthread_mutex_unlock(&w->lock);
        const int rc = skip ? 0 : job.run(job.arg, &err);
        if (job.drop) job.drop(job.arg);
        pthread_mutex_lock(&w->lock);
        if (rc) err_set(&w->err, err.kind ? err.kind : ERR_IO, "%s", err.msg);
        w->done++;
        w->idle_since = now_seconds();
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// Signals are for the other threads: their handlers interrupt no write.
static int start(Worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

Worker *worker_open(Err *err) {
    Worker *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, ERR_MEM, "out of memory");
        return NULL;
    }
    w->idle_since = now_seconds();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    const int rc = start(w);
    if (!rc) return w;
    err_set(err, ERR_MEM, "cannot start a thread: %s", strerror(rc));
    free(w);
    return NULL;
}

uint64_t worker_add(Worker *w, Job job) {
    pthread_mutex_lock(&w->lock);
    while (w->added - w->done == WORKER_QUEUE) pthread_cond_wait(&w->changed, &w->lock);
    w->job[w->added++ % WORKER_QUEUE] = job;
    const uint64_t number = w->added;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return number;
}

double worker_idle(Worker *w) {
    if (!w) return INFINITY;
    pthread_mutex_lock(&w->lock);
    const double idle = w->done < w->added ? 0 : now_seconds() - w->idle_since;
    pthread_mutex_unlock(&w->lock);
    return idle;
}

static int first_error(const Worker *w, Err *err) {
    return w->err.kind ? err_set(err, w->err.kind, "%s", w->err.msg) : 0;
}

int worker_check(Worker *w, Err *err) { return worker_wait(w, 0, err); }

int worker_wait(Worker *w, uint64_t job, Err *err) {
    if (!w) return 0;
    pthread_mutex_lock(&w->lock);
    while (w->done < job) pthread_cond_wait(&w->changed, &w->lock);
    const int rc = first_error(w, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int worker_wait_all(Worker *w, Err *err) {
    if (!w) return 0;
    pthread_mutex_lock(&w->lock);
    const uint64_t last = w->added;
    pthread_mutex_unlock(&w->lock);
    return worker_wait(w, last, err);
}

void worker_close(Worker *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
