// runs.h - the runs of a folder, followed by a thread that also answers every request about them:
// no other thread uses its data.
#ifndef RUNS_H
#define RUNS_H
#include "run/folder.h"
#include "serve/guard.h"

typedef struct Runs Runs;

// path: a run folder, a folder of run folders, or a model file (then there are none).
int  runs_open(Runs **r, const char *path, const Http *http, Err *err);
void runs_stop(Runs *r);       // ends the thread and all streams; further requests get 503
void runs_free(Runs *r);
// Takes over a request: GET runs, run/NAME, run/NAME/sample/STEP, events; POST run/NAME/stop.
void runs_handle(Runs *r, HttpRequest *q);

typedef struct {
    char name[256];            // as the page shows it
    char path[RUN_PATH];       // the run's folder, or a model file
} RunModel;
// The model of a run by its name; "": of the newest run that has one. Nonzero: there is none. From
// any thread.
int  runs_model(Runs *r, const char *name, RunModel *m);
#endif
