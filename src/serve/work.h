// work.h - one model for many clients: a queue in fair order, and one thread that classifies
// pictures and runs chains. Pictures that wait are classified together, and between the steps of
// chains.
#ifndef WORK_H
#define WORK_H
#include "conf/config.h"
#include "serve/runs.h"

typedef struct Work Work;

enum { MAX_JSON = 1 << 16 };    // bytes of a request for samples

int  work_open(Work **w, const Config *c, Runs *runs, const Http *http, Err *err);
void work_stop(Work *w);        // ends the thread; requests that wait, and further ones, get 503
void work_free(Work *w);
// Takes over a request: GET model, POST predict, POST sample.
void work_handle(Work *w, HttpRequest *q, const Target *t, const char *what);
#endif
