// fit.h - a whole training run: data, epochs, validation, checkpoints, log, trouble, the end.
//
// The run folder: run.json (what was run, on what), log.tsv (a line a step), last and prev
// (complete states), best (the model), samples/ (a grid an epoch).
#ifndef FIT_H
#define FIT_H
#include "base/events.h"
#include "conf/config.h"

typedef struct {
    char     out[512];              // the run folder
    uint64_t steps;
    double   seconds, valid_accuracy, test_accuracy, test_ece;      // NaN: unknown
    int      stopped, retries;
} FitResult;

// Trains as c says. Stops early where events->stop says so, with everything saved.
int fit(const Config *c, const Events *events, FitResult *result, Err *err);
#endif
