// worker.h - one thread that runs jobs in the order they are added, while its owner continues.
#ifndef WORKER_H
#define WORKER_H
#include "base/err.h"
#include <stdint.h>

typedef struct Worker Worker;
typedef struct {
    int  (*run)(void *arg, Err *err);       // in the thread
    void (*drop)(void *arg);                // at last, whether it ran or not; may be NULL
    void *arg;
} Job;

Worker *worker_open(Err *err);              // NULL on failure
// Appends a job; waits while WORKER_QUEUE jobs are unfinished. Returns its number, from 1 on. After
// a job has failed, all later ones are dropped without being run.
uint64_t worker_add(Worker *w, Job job);
enum { WORKER_QUEUE = 8 };
// NULL for w is a worker without jobs, which has always been idle.
double worker_idle(Worker *w);              // seconds without a job: 0 while one is unfinished
int worker_check(Worker *w, Err *err);      // 0, or -1 and the error of the job that failed
// Waits for the job of that number and all before it (0: for none); then as worker_check.
int worker_wait(Worker *w, uint64_t job, Err *err);
int worker_wait_all(Worker *w, Err *err);
void worker_close(Worker *w);               // after all jobs
#endif
