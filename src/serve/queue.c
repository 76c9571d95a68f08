// queue.c - see queue.h. A client's jobs get turns one after another, beginning with the turn that
// is on: one that asks once waits for at most one job of each other.
#include "serve/queue.h"
#include <string.h>

int queue_add(Queue *q, Job *job) {
    int mine = 0, samples = 0, my_samples = 0;
    uint64_t last = q->turn;
    for (int i = 0; i < q->n; i++) {
        const Job *k = q->job[i];
        const int same = !strcmp(k->q->peer, job->q->peer), sample = k->kind == JOB_SAMPLE;
        mine += same;
        samples += sample;
        my_samples += same && sample;
        if (same && k->turn > last) last = k->turn;
    }
    const int sample = job->kind == JOB_SAMPLE;
    if (mine >= CLIENT_JOBS || (sample && my_samples >= CLIENT_SAMPLES)) return 429;
    if (q->n == QUEUE_JOBS || (sample && samples >= QUEUE_SAMPLES)) return 503;
    job->turn = last + 1;
    job->arrival = q->arrivals++;
    q->job[q->n++] = job;
    return 0;
}

Job *queue_take(Queue *q, const char *run, int samples_too) {
    int best = -1;
    for (int i = 0; i < q->n; i++) {
        const Job *k = q->job[i], *b = best < 0 ? NULL : q->job[best];
        if ((run && strcmp(run, k->run) != 0) || (!samples_too && k->kind == JOB_SAMPLE)) continue;
        if (!b || k->turn < b->turn || (k->turn == b->turn && k->arrival < b->arrival)) best = i;
    }
    if (best < 0) return NULL;
    Job *job = q->job[best];
    q->job[best] = q->job[--q->n];
    if (job->turn > q->turn) q->turn = job->turn;
    return job;
}
