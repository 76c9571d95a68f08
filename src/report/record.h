// record.h - what a run folder says in text: log.tsv, run.json, eval.json. Such files may come
// from elsewhere: every size, type and range is checked, and a refusal names file, place, what was
// found and what was expected.
#ifndef RECORD_H
#define RECORD_H
#include "report/results.h"
#include "run/train_log.h"

// ---- log.tsv: one row per step. What a run does not have (a column, a value) is NaN.
typedef struct {
    int     n;                       // rows; 0: no such file, or nothing in it yet
    double *column[N_LOG];
    int     n_diverged;              // times the run diverged (diverged.tsv)
    double *diverged_epoch;          // where each was noticed
} Log;

typedef struct {
    Arena arena;
    Log   log;
    EvalResults eval;
    Json *run;                       // NULL where there is no run.json
} Record;

// Reads what is there of the three; -1 where one of them is wrong or none is there.
int  record_read(Record *r, const char *dir, Err *err);
void record_free(Record *r);
// The run's option of that name, "" where it is not known.
const char *record_option(const Record *r, const char *name);
#endif
