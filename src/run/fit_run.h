// fit_run.h - a training run in memory, shared by the files that fit.c is made of.
#ifndef FIT_RUN_H
#define FIT_RUN_H
#include "base/events.h"
#include "base/worker.h"
#include "jem/score.h"
#include "run/ckpt.h"
#include "run/folder.h"
#include "run/train_log.h"
#include <stdatomic.h>

// Files that only people read: if one cannot be written, there is one warning, and the run
// continues.
typedef enum { SIDE_LOG, SIDE_EVENTS, SIDE_PICTURE, SIDE_DIVERGED, N_SIDE } SideOutput;
typedef struct {
    Err        why;                          // of the first failure, complete when failed is set
    atomic_int failed;                       // by the thread that writes
} PictureErr;

typedef struct { int stop, save; } Wish;     // what ranks may want at different times

typedef struct {
    Config   cfg;
    const Events *ev;
    Comm    *comm;                   // the ranks that train together; NULL: this process alone
    Events   silent;                 // of ranks other than 0
    char     out[480];               // the run folder
    int      made;                   // this session created it
    int      lock;                   // its lock (run_folder_lock)
    Dev      dev;
    Set      train, valid, test;     // test.n 0: not found
    char     images[33];             // images_digest where the user names a path; else ""
    int      last_damaged;           // the last checkpoint on disk: not to become prev
    int      moved;                  // a resumed run has another path than its checkpoint says
    Bytes    valid_bytes;            // on the device
    Trainer  t;
    Scorer   scorer;
    RunState state;
    TrainLog log;
    Worker  *writer;                 // writes checkpoints, models, pictures and run.json, in order
    Snapshot state_file, model_file; // what it writes of these
    uint64_t state_job, model_job;   // their numbers
    float   *logits;                 // of the validation or the test images
    StartsFile starts;               // chain starts for the model; made once
    double   start, saved_at;        // now_seconds() at the start; seconds of training
    double   looked;                 // now_seconds() when RUN_STOP was last looked for
    uint64_t shown;                  // the first step that was shown live
    double   shown_at;               // now_seconds() then
    uint64_t first_step;             // of this session
    uint64_t saved_step, total;      // total: steps of the whole run, an estimate with --minutes
    int      new_length;             // a resumed run has another than its checkpoint says
    double   valid_accuracy;         // the latest, or NaN
    double   test_accuracy, test_ece;    // of the best model at the end of training, or NaN
    uint64_t over_margin, counted;   // steps of this epoch: over --px-margin, all
    int      told_over_margin;
    int      told_not_saved;         // since the last checkpoint
    double   fid_value;              // the latest FID of the replay buffer, or NaN
    struct FitFid *fid;              // what it needs, once there was one
    PictureErr picture_err;
    int      warned[N_SIDE];
    char     text[240];              // the live line
    char     note[256];              // what opening the device had to say, or ""
} TrainRun;

void run_say(const TrainRun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void   utc_now(char when[32]);                      // as 2026-11-16T07:45:00Z
double run_seconds(const TrainRun *r);              // of training, all sessions together
// Whether a state is far enough from all limits of divergence to be rolled back to, or to be the
// best model: gap and cross-entropy at most half way to theirs, climb 0.1 above its limit.
int    run_is_stable(const TrainRun *r, const StepState *now);

static inline int run_writes(const TrainRun *r) { return comm_rank(r->comm) == 0; }

// fit_ranks.c: nothing where this process is alone. Errors of one rank are errors of all.
int  run_open_ranks(TrainRun *r, Err *err);         // first of all; compares options and programs
int  run_share_folder(TrainRun *r, char **tuning, Err *err);     // name, options: rank 0's
int  run_same_images(TrainRun *r, Err *err);
// open on rank 0, then with its kernel choices on the others; connects their devices.
int  run_open_devices(TrainRun *r, int (*open)(TrainRun *, const char *tuning, Err *), char *tuning,
                      Err *err);
void run_share_state(TrainRun *r);                  // rank 0's, of the run and its trainer
Wish run_wish(TrainRun *r, Wish mine);              // all stop if one must; rank 0's clock counts
int  run_ranks_alike(TrainRun *r, int rc, Err *err);    // no failure anywhere, and equal weights
void run_introduce_ranks(const TrainRun *r);
void run_close_ranks(TrainRun *r, int rc, Err *err);

// fit_save.c: checkpoints and run.json
// Takes a snapshot and lets the thread write it. Waits where the one before is still being written;
// a failure to write is an error of the next call here, or of run_saved.
int  run_save(TrainRun *r, Err *err);
int  run_saved(TrainRun *r, Err *err);              // waits until everything is on disk
int  run_write_record(TrainRun *r, Err *err);       // run.json, by the thread
// Reports it if a resumed run uses another device, thread count or library than before.
void run_note_device(const TrainRun *r);
// Uses the newest checkpoint that can be used, or the one before it if `older`; says so where one
// is damaged. Errors of `use` other than ERR_DATA and ERR_IO are returned as they are.
typedef int UseCheckpoint(TrainRun *r, const char *path, void *ctx, Err *err);
int  run_use_checkpoint(TrainRun *r, int older, UseCheckpoint *use, void *ctx, Err *err);
// Options of a resumed run: its own, and those given now that may change. tuning: a char ** for the
// kernel choices (malloc'd).
UseCheckpoint run_resume_options;
UseCheckpoint run_load_state;                       // into the trainer and r->state; ctx NULL
// Says once per session that something for readers could not be written, and why.
void run_warn(TrainRun *r, SideOutput what, const Err *why);
// Adds to an error of writing how to continue: from the checkpoint, when there is room again.
void run_advise(const TrainRun *r, Err *err);
// Brings log and event file up to date; a failure is a warning.
void run_flush_log(TrainRun *r);
// Writes to the log all steps before the current one. valid, fid: measured after the last, or NaN.
void run_write_log(TrainRun *r, double valid, double fid);

// fit_init.c: --init; nothing without it
int  run_init_check(const TrainRun *r, Err *err);   // a model, before anything that takes time
int  run_init_fits(const TrainRun *r, Err *err);    // and of the run's network and classes
int  run_init_weights(TrainRun *r, Err *err);

// fit_epoch.c: validation, the best model, a picture of the replay buffer
// At most `most` slots of it, evenly spread: [*n][dim], malloc'd; NULL on failure.
float *run_slots(const Trainer *t, int most, int *n, Err *err);
int  run_end_epoch(TrainRun *r, Err *err);
// The first step whose model is more than the classifier that --px-from begins with: chains have
// caught up, the learning rate has risen again, and averaged weights have forgotten those of the
// classifier. 0 without it.
uint64_t run_density_from(const TrainRun *r);
// Test accuracy and ECE of the best model, to r and run.json. Replaces the weights: after the last
// step.
int  run_test_best(TrainRun *r, Err *err);

// fit_length.c: chooses how far fresh chains of the best model go, and records it in the model. A
// failure is a note: samples are drawn without it, too.
void run_fit_length(TrainRun *r);
// How much more detail samples have than real images at 1.25^power times the first length, and the
// gradients that it cost to know.
typedef int DetailAt(void *ctx, int power, double *more, double *cost, Err *err);
// The power, from 0 to 6, at which samples have as much detail: tried upwards until they have more,
// then interpolated. The last one tried where they never have, or `left` gradients would not do for
// another.
int length_search(double *power, DetailAt *detail, void *ctx, double left, Err *err);

// fit_fid.c: FID of 5,000 images of the replay buffer (--fid-every)
int  run_fid_check(const TrainRun *r, Err *err);    // whether what it needs is there
int  run_fid_due(const TrainRun *r);                // at this end of an epoch
double run_fid(TrainRun *r);                        // NaN where it failed; says why
void run_fid_close(TrainRun *r);

// fit_recover.c: back to a checkpoint after a divergence (HALT_...), or an error after too many
int  run_roll_back(TrainRun *r, int reason, Err *err);
#endif
