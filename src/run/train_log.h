// train_log.h - log.tsv, one line per training step: its columns, for the run that writes it and
// for all who read it, and the writer.
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H
#include "base/events.h"
#include "dev/backend.h"
#include "run/event_file.h"
#include <stdio.h>

typedef enum {
    LOG_STEP, LOG_EPOCH, LOG_SECONDS, LOG_LR, LOG_LOSS, LOG_CE, LOG_ACCURACY, LOG_FX, LOG_FXQ,
    LOG_GAP, LOG_CLIMB, LOG_VALID, LOG_FID, LOG_AUROC, LOG_CHAIN_STEPS, N_LOG
} LogColumn;

extern const char *const log_name[N_LOG];       // of the columns, as in the file's first line

typedef struct {
    FILE    *f;                     // NULL: closed; unbuffered
    long     size;                  // bytes of the file, whole lines
    char    *pending;               // lines that are not in the file yet
    size_t   n_pending, room;
    uint64_t next;                  // the first step that was not added yet
    int      n_column;              // a log that an earlier version began may have fewer than N_LOG
    char     path[600];
    const Events *ev;               // its row gets every line, as numbers; may be NULL
    int      tensorboard;           // write an event file too
    int      chain_length;          // write auroc and chain_steps, of chains that may get longer
    EventFile events;
    double   shown;                 // now_seconds() when readers last got all of it
} TrainLog;

// Opens the run folder's log for appending, cut back to the lines before `step`. While it is open
// the file is locked for writing, so that others can ask whether the run is being trained.
int  train_log_open(TrainLog *log, const char *dir, uint64_t step, Err *err);
typedef struct {                // what a step's device row does not say
    double epoch, seconds;
    double valid, fid;          // validation accuracy and FID of the replay buffer after it, or NaN
    int    px;                  // 0: it had no chains, so what the log says of them is empty
} LogStep;
void train_log_add(TrainLog *log, const LogStep *s, const real row[N_ROW]);     // step log->next
void train_log_picture(TrainLog *log, const char *png);      // in the event file, at the last step
// Writes all lines that were added. Where that fails they stay in memory, for the next try: the
// file has whole lines and no gap.
int  train_log_flush(TrainLog *log, Err *err);
int  train_log_flush_events(TrainLog *log, Err *err);   // after a failure it has no more events
void train_log_show(TrainLog *log);     // the same about once per second, for those who watch
// Whether a process has the log of this run folder open.
int  train_log_is_open(const char *dir);
void train_log_close(TrainLog *log);
#endif
