// task.h - what the tasks of an evaluation share. A task computes its part of e->results from the
// images and the model, and assigns it only once it is complete.
#ifndef TASK_H
#define TASK_H
#include "data/ood_sets.h"
#include "eval/eval.h"
#include "jem/robust.h"
#include "run/feature_set.h"
#include "run/folder.h"

enum { MAX_OOD = 16, MAX_CURVES = 8 };

typedef struct {
    Model        *m;
    const Config *use;                // the user's options
    const Events *ev;
    char      dir[512], file[RUN_PATH];   // where results go; eval.json in it
    int       new_dir;                // dir was not there before
    char      data[300], md5[33];     // name of the images; hash of the model's file
    unsigned  wanted;                 // bits by TaskId
    Set       test;                   // the images that are evaluated (--split)
    Set       valid;                  // to fit a temperature on, where they were loaded
    Bytes     bytes;                  // test, on the device
    int       n, batch;               // images that are evaluated; per batch
    Scorer    scorer;
    Probe     probe;                  // open once need_probe was called
    float    *logits;                 // [n][classes] once need_logits was called
    double   *slope;                  // [n], with the logits where OOD scores will want them
    Set       ood[MAX_OOD];
    int       n_ood, n_curve;
    char      kept[MAX_OOD + 1][32];  // sets whose scores were written (--scores)
    int       n_kept;
    CurvePlan curve[MAX_CURVES];
    ImageSource fid_images;           // what samples are compared with, or ...
    FeatureSet  fid_reference;        // ... its statistics
    Model       classifier;           // of --classifier, where the task samples wants it
    EvalResults results;
    Err       unwritten;              // why files could not be written, if they could not
} Evaluation;

static inline uint64_t eval_seed(const Evaluation *e) { return (uint64_t)e->use->seed; }
static inline int eval_wants(const Evaluation *e, TaskId id) { return e->wanted >> id & 1; }
static inline int eval_classes(const Evaluation *e) { return e->m->net.spec.classes; }

// ---- eval_data.c: image sets
DataOpts eval_data_opts(const Evaluation *e);       // for images of the model's size
int  eval_check_test(const Evaluation *e, Err *err);        // before any image is read
int  eval_load_test(Evaluation *e, Err *err);
int  eval_load_valid(const Evaluation *e, const char *option, Set *valid, Err *err);
int  eval_load_ood(Evaluation *e, Err *err);
int  eval_limit(const Evaluation *e, Set *s, Err *err);    // keeps the images that --limit draws

// ---- eval_scores.c: images through the model, each image once
int  need_probe(Evaluation *e, Err *err);
// The test images' logits, by the classifier that was asked for (noise, refinement).
int  need_logits(Evaluation *e, Err *err);
double eval_noise(const Evaluation *e);
// Logits [n][classes] of the first n images of a set, with --refine by the refined classifier.
int  eval_set_logits(Evaluation *e, const Set *set, const char *name, float *logits, Err *err);
// N_SCORE scores of each image, score[N_SCORE][n]: of the test images (set NULL), or of a set.
int  eval_ood_scores(Evaluation *e, const Set *set, double *score, Err *err);
// n items of memory that lives as long as the results; NULL and err.
void *eval_alloc(Evaluation *e, size_t n, size_t size, Err *err);

// ---- the tasks. check_*: reads its options, before any image is read; prepare_*: loads its
// images, before anything is computed.
int  task_acc(Evaluation *e, Err *err);            // eval_class.c
int  check_temperature(Evaluation *e, Err *err);   // eval_data.c
int  prepare_ece(Evaluation *e, Err *err);
int  task_ece(Evaluation *e, Err *err);
int  check_ood(Evaluation *e, Err *err);           // eval_data.c
int  task_ood(Evaluation *e, Err *err);            // eval_ood.c
int  check_attack(Evaluation *e, Err *err);      // eval_attack.c
int  task_attack(Evaluation *e, Err *err);
int  check_samples(Evaluation *e, Err *err);       // eval_sheets.c
int  task_samples(Evaluation *e, Err *err);
int  task_speed(Evaluation *e, Err *err);          // eval_speed.c
int  check_fid(Evaluation *e, Err *err);           // eval_fid.c
int  prepare_fid(Evaluation *e, Err *err);
int  task_fid(Evaluation *e, Err *err);
#endif
