// results.h - the results of an evaluation: one struct, and eval.json, which results.c reads and
// writes by one table of fields. To add a task: a TaskId and a struct here, its fields there, and a
// row of TASKS with the function that computes it in eval/eval.c.
//
// Numbers that are null or missing are NaN, texts "". Percentages are 0..100, other rates 0..1.
#ifndef RESULTS_H
#define RESULTS_H
#include "base/schema.h"
#include "jem/metrics.h"
#include "run/feature_set.h"

typedef enum {                       // in the order in which they run and are shown
    TASK_ACC, TASK_ECE, TASK_OOD, TASK_ATTACK, TASK_SAMPLES, TASK_SPEED, TASK_FID, N_TASK
} TaskId;

typedef struct {                     // how a task was run; every task's results begin with it
    int         there;               // 0: it was not
    const char *device, *precision, *data;
    double      seed, seconds;
} TaskRun;

typedef struct {
    TaskRun run;
    double  n, noise, refine, draws;               // images; sd; steps and copies of a refinement
    double  top1, top5, nll, log_px;               // top5: above 10 classes
    double *per_class, *confusion;                 // [n_class], [n_class][n_class]: true, predicted
} AccResult;

typedef struct { double lo, hi, count, confidence, accuracy; } CalibrationBin;

typedef struct {
    double          ece, mce, classwise, brier, nll;
    int             n_bin;
    CalibrationBin *bin;
} Calibration;

typedef struct { int there; double t, n_valid, errors; Calibration at_t; } TemperatureScaling;

typedef struct {
    TaskRun            run;
    double             n, bins;
    Calibration        plain;                      // T = 1
    TemperatureScaling temperature;
} EceResult;

typedef struct {
    int     there;
    double  auroc, aupr, aupr_out, fpr95;
    int     n_roc;
    double *roc;                                   // [n_roc][2]: false, true positive rate
    struct { double lo, hi; int n; double *in, *out; } hist;      // n equal bins; counts
} OodScore;

typedef struct { const char *name, *from; double n; OodScore score[N_SCORE]; } OodSet;

typedef struct {
    TaskRun run;
    struct { const char *name; double n; } in;
    double  noise;
    int     n_set;
    OodSet *set;
} OodResult;

typedef struct {
    const char *norm, *attack, *loss, *step_rule;
    double      steps, restarts, step, refine, draws;      // step: NaN: by step_rule
    double      targets;                                   // of a targeted attack, else NaN
    int         random_start, n;
    double     *radius, *accuracy;                         // [n]
} AttackCurve;

typedef struct {
    TaskRun      run;
    double       n, clean;
    int          n_curve;
    AttackCurve *curve;
} AttackResult;

typedef struct {
    TaskRun      run;
    int          n_file;
    const char **file;                             // within the folder
    const char  *from;                             // "buffer" or "fresh"
    double       n, fresh_steps, batch, inner, step_size, clip, noise, page;
    double      *per_class;                        // [n_class]
    // of the samples drawn by class, how many (in per cent) are classified as it: by the model, and
    // by another one, "" and NaN where there was none
    double       by_class, agreement, classifier_agreement;
    const char  *classifier;
} SamplesResult;

typedef struct {
    TaskRun run;
    double  n, batch, images_per_second, seconds_per_10000, mean_logpx;
    double  chain_batch, sgld_step_ms, iteration_ms, minutes_per_epoch;
} SpeedResult;

typedef struct {                     // of the replay buffer, of fresh chains
    int         there;
    FidFigures  figures;
    double      steps;               // of fresh chains
    double      confident;           // the share of images, the most confident ones, that was taken
    double     *per_class;           // FID by class [n_class], or NULL
    const char *nearest;             // a picture of samples above their nearest training images
} FidImages;

typedef struct {
    TaskRun     run;
    const char *reference, *weights, *sha256, *network_precision;
    FidImages   buffer, fresh;
} FidResult;

typedef struct {
    Arena         arena;             // texts and arrays
    int           there;             // 0: no eval.json
    double        format, seed;
    const char   *version, *model, *md5, *net, *device, *precision, *data;
    int           n_class;
    const char  **class_name;
    AccResult     acc;
    EceResult     ece;
    OodResult     ood;
    AttackResult  attack;
    SamplesResult samples;
    SpeedResult   speed;
    FidResult     fid;
} EvalResults;

const char *task_name(TaskId id);                  // as in --tasks and eval.json
const char *task_title(TaskId id);                 // for headings: "calibration"
TaskRun    *results_task(EvalResults *r, TaskId id);

// Reads a file; a missing one gives empty results. The file may come from elsewhere: sizes, types
// and ranges are checked.
int   results_read(EvalResults *r, const char *path, Err *err);
// The file's text, malloc'd; NULL and err where memory is short.
char *results_text(const EvalResults *r, Err *err);
int   results_write(const EvalResults *r, const char *path, Err *err);
void  results_free(EvalResults *r);

// The single numbers of a task that tables show, as far as they are known.
typedef struct {
    char        label[80], measure[64];            // measure: "acc.top1", as paper_figure takes it
    char        text[48];                          // the value with its unit: "93.10 %"
    double      value;
    const char *unit;                              // "" or " %"
    int         digits;                            // after the decimal point; -1: as %g
} Metric;
enum { MAX_METRICS = 32 };
int results_metrics(const EvalResults *r, TaskId id, Metric m[MAX_METRICS]);    // how many
#endif
