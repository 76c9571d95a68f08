// train.h - one training iteration: batch, chain, losses, step. All of it is device work; the host
// only says which step it is. fit.h has the run around it: epochs, checkpoints, trouble.
#ifndef TRAIN_H
#define TRAIN_H
#include "conf/config.h"
#include "data/run_data.h"
#include "jem/replay.h"
#include "jem/sample.h"

enum { N_RING = 1024 };

typedef struct {                  // images that go through the net as a batch of their own
    real  *x;                     // on the device: [batch][dim]
    int   *y;                     // labels, or NULL where no term reads them
    Energy e;                     // its terms, added up
    Pass  *pass;
} TrainBatch;

typedef struct {
    Config   cfg;
    Dev     *dev;
    Net      net;
    Optim    optim;
    Schedule schedule;
    Bytes    data;                // the training images, on the device
    Starts   starts;
    Replay   replay;
    Chain    chain;
    Pass     sampling, real, fake, attack;   // fake: as real, but its statistics may not count
    Pass     above;               // SAM's second look: no statistics count
    void    *mem;                 // which these passes share
    size_t   mem_bytes;
    TrainBatch batch[MAX_BATCHES];
    Watch    watch;
    int     *index, *index2;      // on the device: rows of the training set
    real    *x0;                  // on the device: images before an attack, or NULL
    real    *keep;                // on the device: weights while SAM looks from above, or NULL
    int      sam_on;              // in this step
    StepState     *now;                 // on the device
    real    *sums, *ring;         // on the device: [N_SUMS][N_SUM]; [N_RING][N_ROW]
    uint64_t step;                // the next one
    uint64_t per_epoch;           // steps
    uint64_t seed;                // of this attempt
    double   lr_scale;            // halved after repeated trouble
    double   time_share;          // --minutes: share of the time that is gone; negative: not in use
    void    *recording;           // the device work of a step, where the device can record it
    int      alike;               // steps done since anything but StepState changed
    uint64_t recorded_batches;    // what one step adds to net.batches
} Trainer;

// Opens everything on dev for images of `train`; weights are initialised, the buffer is born unless
// `empty` (a checkpoint will fill it). The set may be freed afterwards.
int  trainer_open(Trainer *t, Dev *dev, const Config *c, const Set *train, int empty, Err *err);
void trainer_close(Trainer *t);
void trainer_step(Trainer *t);                      // ask dev_check and trainer_row now and then
double trainer_lr(const Trainer *t);
void trainer_seed(Trainer *t, int attempt);         // a new random stream for a new attempt
// The log row of a step that lies at most N_RING back.
void trainer_row(Trainer *t, uint64_t step, real row[N_ROW]);
StepState  trainer_now(Trainer *t);

Augment trainer_augment(const Trainer *t);          // of the labelled batch

// The parts of a step, in order, for tests that bring their own batches and chains.
void trainer_gather(Trainer *t);                    // images and chain starts
void trainer_chain(Trainer *t);                     // PYLD
void trainer_attack(Trainer *t);                    // adversarial training: labelled images moved
void trainer_learn(Trainer *t);                     // losses, gradients, optimiser; chains back
#endif
