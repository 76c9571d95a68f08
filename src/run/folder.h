// folder.h - the run folder on disk. This is the only place that knows the names of its files.
#ifndef FOLDER_H
#define FOLDER_H
#include "conf/config.h"

typedef enum {
    RUN_RECORD,                     // run.json: options, data, device, progress
    RUN_LOG,                        // log.tsv: one line per step (run/train_log.h)
    RUN_DIVERGED,                   // diverged.tsv: one line per divergence
    RUN_LAST, RUN_PREV,             // last, prev.safetensors: complete checkpoints (run/ckpt.h)
    RUN_BEST,                       // best.safetensors: the model with the best validation accuracy
    RUN_SAMPLES,                    // samples/: one picture of the replay buffer per epoch
    RUN_EVAL,                       // eval.json: results of `jempp eval`
    RUN_VALID,                      // valid/: a second folder of results, on the validation images
    RUN_SHEETS,                     // sheets/: pictures of `jempp eval`
    RUN_SCORES,                     // scores/: `jempp eval --scores`, one file per set
    RUN_REPORT,                     // report.html
    RUN_MESSAGES,                   // messages.tsv: time and text of what training reported
    RUN_STOP,                       // stop: once it exists, training saves, removes it and ends
    N_RUN_FILE
} RunFile;

enum { RUN_PATH = 600 };            // bytes of a path, its final NUL included

const char *run_file(RunFile file);                             // the name within the folder
// dst gets the path of that file in the run folder `dir`, whether it exists or not.
int run_path(char dst[RUN_PATH], const char *dir, RunFile file, Err *err);
// samples/step-0001000.png: the replay buffer at that step.
int run_sample_path(char dst[RUN_PATH], const char *dir, uint64_t step, Err *err);
int is_run_sample(const char *name);                            // "step-....png"
// An error that says why `dir` is not the folder of a run: missing, a file, or without the file
// `missing`; then the runs in it, if any. Returns -1.
int no_run(const char *dir, const char *missing, Err *err);
// Adds "; runs in it: a, b" to an error: the user may have named the folder above. Returns how
// many there are.
int add_runs(Err *err, const char *dir);
// The model that `path` stands for: RUN/best.safetensors of a run folder, else `path` itself.
int run_model_path(char dst[RUN_PATH], const char *path, Err *err);

// The folder that a run with these options writes to, created if needed: --out, or a name made of
// preset and time. *made: it was not there before.
int run_folder_choose(char *dst, size_t n, int *made, const Config *c, Err *err);
// Locks the folder, for one run at a time; unlocked by closing *lock. A folder that holds a
// checkpoint is rejected unless `resume`. *lock is -1 after a failure.
int run_folder_lock(const char *dir, int resume, int *lock, Err *err);
// Whether a stop was requested by the file RUN_STOP; run_stop_clear removes the request.
int  run_stop_requested(const char *dir);
void run_stop_clear(const char *dir);
// Removes what locking made and, if it was `made`, the folder, as far as they are empty.
void run_folder_drop(const char *dir, int made);
#endif
