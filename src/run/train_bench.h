// train_bench.h - the time of whole training iterations.
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H
#include "base/events.h"
#include "conf/config.h"

// ms[n]: milliseconds of each of n iterations on random images, after a warm-up; ev may stop it.
// cpu_ms[n], or NULL: processor time of all threads. comm: ranks that divide the batch, or NULL.
int train_bench(const Config *c, Comm *comm, int n, double *ms, double *cpu_ms, const Events *ev,
                Err *err);
#endif
