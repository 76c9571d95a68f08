// run_view.h - one run folder as JSON: what its files say now. Files that are links are not read:
// a folder from elsewhere could point anywhere.
#ifndef RUN_VIEW_H
#define RUN_VIEW_H
#include "base/json.h"
#include "run/folder.h"
#include "serve/follow.h"

typedef struct { int64_t size, time; uint64_t ino; } Seen;      // of a file, to notice a change

typedef struct {
    char   name[256], dir[RUN_PATH];
    Follow log;
    Seen   seen[N_RUN_FILE];
    Json  *record;                      // run.json, or NULL
    int    training, has_model;         // training: a process writes its log
    int    n_sample;
    uint64_t *sample;                   // steps, rising
    int    n_diverged;
    uint64_t version;                   // rises with every change
    char  *detail;                      // the answer for this version, or NULL
    size_t n_detail;
    int    listed;                      // found by the latest look at the folder
} RunView;

int  run_view_poll(RunView *v);                                 // nonzero: something changed
void run_view_free(RunView *v);
void run_view_summary(const RunView *v, JsonOut *j);            // members of an open object
// All of it as an object with its own "api"; the view's, until it changes. NULL: out of memory.
const char *run_view_detail(RunView *v, size_t *n);
// A file of the folder that is no link, of at most max bytes; malloc'd, NULL: none.
char *run_view_file(const char *dir, const char *folder, const char *name, size_t max, size_t *n);
#endif
