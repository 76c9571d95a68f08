// ckpt.h - what a run leaves on disk: complete states to go on from, and models to hand on.
#ifndef CKPT_H
#define CKPT_H
#include "base/safetensors.h"
#include "jem/train.h"

typedef struct {                    // what a run knows beside its trainer's state
    int      attempt;               // how often it went back after trouble
    double   lr_scale, seconds;     // time spent training so far
    double   best_accuracy;         // on validation images; negative: none yet
    uint64_t best_step, judged;     // judged: the step that was validated last
} RunState;

// A complete state: weights, statistics, optimiser, average, buffer, step, seed, options, kernel
// choices. Written beside and renamed; the one before stays as `prev` where that is not NULL.
int ckpt_save(Trainer *t, const RunState *r, const char *path, const char *prev, Err *err);
int ckpt_load(Trainer *t, RunState *r, const char *path, Err *err);
// The options of a run, out of a state or a model: defaults where there are none. Those that belong
// to a call, as the name of a file to write, are refused.
int run_options(const St *st, Config *c, Err *err);
// The options, and the kernel choices (malloc'd), of a state: needed before a trainer can open.
int ckpt_options(const char *path, Config *c, char **tuning, Err *err);

typedef struct {                    // what a model carries beside its weights
    const Config *cfg;
    const char  **class_name;
    double        threshold;        // 5th percentile of validation scores; NaN: unknown
    double        temperature;      // what logits are divided by for p(y|x) in use; 0: not known
    int           n_group, rank;    // chain starts
    const float  *mean, *factor;    // [n_group][dim], [n_group][rank][dim]; NULL: none
} ModelCard;

// Weights and statistics of net (device) with their card; half: fp16.
int model_save(Net *net, const real *w, const real *state, const ModelCard *card, int half,
               const char *path, Err *err);
// 0 if the file has all of net's weights and statistics: asked before memory is spent on them.
int model_complete(const St *st, const Net *net, Err *err);
// Weights and statistics by PyTorch's names, from any file that has them (ours, or a state dict).
int model_weights(St *st, Net *net, Err *err);
#endif
