// ckpt.h - checkpoints (complete states, to resume a run from) and model files (to use and share).
#ifndef CKPT_H
#define CKPT_H
#include "base/tensors.h"
#include "jem/train.h"

typedef struct {                    // of a checkpoint, beside the trainer's state
    int      attempt;               // how often the run rolled back after a divergence
    double   lr_scale, seconds;     // time spent training so far
    double   best_accuracy;         // on validation images; negative: none yet
    uint64_t best_step, validated;  // validated: the step of the latest validation
    uint64_t diverged_step;         // the furthest step that it diverged at
    int      diverged_in_a_row;     // without a new checkpoint beyond that step
    char     images[33];            // images_digest of a user's own images; "": not known
} RunState;

// A file whose content is complete in the host's memory, so that a thread can write it while
// training continues. One at a time; the memory (as much as the file) is used again. {0} before
// use.
typedef struct {
    StWriter w;                     // opened and declared, if `open`
    int      open;
    void    *data;                  // the device's host_alloc
    size_t   room;                  // of data, in bytes
} Snapshot;

// Snapshot of a complete state: weights, statistics, optimiser, average, buffer, step, seed,
// options, kernel choices. It will be written under a temporary name, then renamed to `path`; the
// one before is kept as `prev` unless NULL, so that a good one always has one of the two names.
int  ckpt_take(Snapshot *s, Trainer *t, const RunState *r, const char *path, const char *prev,
               Err *err);
int  snapshot_write(void *snapshot, Err *err);      // safe on disk at return; a Job's run
void snapshot_drop(void *snapshot);                 // gives up what was not written; a Job's drop
void snapshot_free(Snapshot *s, Dev *dev);          // the memory
int ckpt_load(Trainer *t, RunState *r, const char *path, Err *err);
// The options of a run, from a checkpoint or a model: defaults where it has none. Options that
// belong to a call, such as the name of a file to write, are rejected.
int run_options(const St *st, Config *c, Err *err);
// The options, and the kernel choices (malloc'd), of a checkpoint: needed to open its trainer.
int ckpt_options(const char *path, Config *c, char **tuning, Err *err);

typedef struct {                    // of a model file, beside its weights
    const Config *cfg;
    const char  **class_name;
    double        threshold;        // 5th percentile of validation scores; NaN: unknown
    const float  *percentile;       // of validation scores [N_PERCENTILE]; NULL: unknown
    double        temperature;      // that divides the logits for p(y|x); 0: not known
    StartsFile    starts;           // chain starts; mean NULL: none
    const char   *images;           // images_digest of a user's own images; "": not known
} ModelCard;

// Weights and statistics of net (device) with their card; half: fp16. The suffix of `path` selects
// the format: .safetensors, or PyTorch's .pt and .pth.
int model_save(Net *net, const ModelCard *card, int half, const char *path, Err *err);
// The same as a snapshot, in full precision.
int model_take(Snapshot *s, Net *net, const ModelCard *card, const char *path, Err *err);
#endif
