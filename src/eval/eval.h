// eval.h - the evaluation layer: metrics of a trained model (accuracy, calibration, OOD detection,
// robustness, samples, speed), as the struct of results.h and as a table. It uses models and image
// sets, and writes eval.json, figures and sample grids into one folder; docs/eval.md defines the
// metrics.
#ifndef EVAL_H
#define EVAL_H
#include "report/results.h"
#include "run/model.h"

// Runs the tasks of use->tasks. Each one's results are in eval.json as soon as it is finished,
// beside those of earlier calls for the same model. Returns a table of them or, with use->json, the
// file's text; malloc'd. NULL and err: a task failed or was stopped. Text and err: everything was
// computed, and a file could not be written.
char *eval_text(Model *m, const Config *use, const Events *ev, Err *err);

// Results as text for a terminal, beside the paper's for a model with these options.
char *eval_table(const EvalResults *r, const Config *run, Err *err);
#endif
