// eval.h - what a model is worth: accuracy, calibration, out-of-distribution detection, robustness,
// samples, speed. Results go to eval.json in the run folder, task by task as they finish;
// docs/eval.md defines them.
#ifndef EVAL_H
#define EVAL_H
#include "base/json.h"
#include "run/model.h"

// The finished table, or with use->json the file's text; malloc'd. NULL and err where something
// failed or was stopped: the tasks that were finished are in the file.
char *eval_text(Model *m, const Config *use, const Events *ev, Err *err);

// eval_sheets.c: draws samples into DIR/sheets and describes them in an object that is open.
int   eval_samples(Model *m, const Config *use, const Events *ev, const char *dir, JsonOut *j,
                   Err *err);
// eval_table.c: an eval.json as text for a terminal, beside the paper's figures for a model with
// these options.
char *eval_table(const Json *doc, const Config *run, Err *err);
#endif
