// fit.h - a whole training run. run/ is training on disk, and trained models in use: the run folder
// and its log, checkpoints, recovery after a divergence, the loop over steps; opening a model and
// sampling from it. It uses jem/ and everything below; reports and evaluation are above it.
#ifndef FIT_H
#define FIT_H
#include "base/events.h"
#include "conf/config.h"

typedef struct {
    char     out[512];              // the run folder (run/folder.h)
    uint64_t steps;
    double   seconds, valid_accuracy, test_accuracy, test_ece;      // NaN: unknown
    int      stopped, retries;
} FitResult;

// Trains as c says. Stops early if events->stop says so, with everything saved.
int fit(const Config *c, const Events *events, FitResult *result, Err *err);
#endif
