// queue.h - work that waits, in fair order: clients take turns, however much each has asked for.
#ifndef QUEUE_H
#define QUEUE_H
#include "serve/ask.h"
#include "serve/http.h"
#include "serve/picture.h"

typedef enum { JOB_MODEL, JOB_PREDICT, JOB_SAMPLE } JobKind;

typedef struct {
    HttpRequest *q;
    JobKind  kind;
    char     run[256];              // whose model; "": the default
    PictureChange change;
    SampleAsk ask;
    uint64_t turn, arrival;         // the queue's
} Job;

enum { QUEUE_JOBS = 256, CLIENT_JOBS = 64, QUEUE_SAMPLES = 8, CLIENT_SAMPLES = 2 };
typedef struct {
    Job     *job[QUEUE_JOBS];
    int      n;
    uint64_t turn, arrivals;        // turn: of the job that was taken last
} Queue;

// 0, or the status of a refusal: 429 where this client has too much waiting, 503 where all have.
int  queue_add(Queue *q, Job *job);
// The next job, or of those of a kind and model alone (run NULL: of any); NULL: there is none.
Job *queue_take(Queue *q, const char *run, int samples_too);
#endif
