// record.h - what a run folder says in text: log.tsv, run.json, eval.json. Such files may come
// from elsewhere: every size, type and range is checked, and a refusal names file, place, what was
// found and what was expected.
#ifndef RECORD_H
#define RECORD_H
#include "base/arena.h"
#include "base/json.h"
#include "jem/metrics.h"
#include "run/train_log.h"

// ---- log.tsv: one row per step. What a run does not have (a column, a value) is NaN.
typedef struct {
    int     n;                       // rows; 0: no such file, or nothing in it yet
    double *column[N_LOG];
    int     n_diverged;              // times the run left the road (diverged.tsv)
    double *diverged_epoch;          // where each was noticed
} Log;

// ---- eval.json: numbers that are null or missing are NaN, percentages 0..100, the rest 0..1
typedef struct {
    double ece, mce, classwise, brier, nll;
    int    n;                                              // bins
    double *edge;                                          // [n + 1]
    double *count, *confidence, *accuracy;                 // [n]
} Calibration;

typedef struct {
    int    there;
    double auroc, aupr, aupr_out, fpr95;
    int    n_roc, n_hist;                                  // points, bins; 0: none
    double *fpr, *tpr, *edge, *in, *out;                   // edge [n_hist + 1]
} OodScore;

typedef struct { const char *name; double n; OodScore score[N_SCORE]; } OodSet;

typedef struct {
    const char *norm, *attack, *loss, *step_rule;
    double steps, restarts, step, refine, draws;
    int    n;
    double *radius, *accuracy;
} AttackCurve;

typedef struct {
    int          there;                                    // 0: no eval.json
    const char  *version, *model, *net, *device, *precision, *data;    // "" where not said
    double       seed;
    int          n_class;
    const char **class_name;
    struct { int there; double n, noise, refine, top1, top5, nll, seconds;
             double *per_class, *confusion; } acc;         // [n_class], [n_class][n_class], or NULL
    struct { int there, scaled; double n, temperature; Calibration as_is, warm; } ece;
    struct { int there, n_set; const char *in_name; double in_n, noise; OodSet *set; } ood;
    struct { int there, n_curve; double n, clean; AttackCurve *curve; } attack;
    struct { int there, n_file; const char **file; } samples;
    const Json  *samples_json, *speed_json;                // with their settings, or NULL
} Eval;

typedef struct {
    Arena arena;
    Log   log;
    Eval  eval;
    Json *run, *eval_doc;            // run: NULL where there is no run.json
} Record;

// Reads what is there of the three; -1 where one of them is wrong or none is there.
int  record_read(Record *r, const char *dir, Err *err);
void record_free(Record *r);
// The run's option of that name, "" where it is not known.
const char *record_option(const Record *r, const char *name);
#endif
