// train.h - one training iteration. jem/ is the method: chain starts, replay buffer, sampling, the
// training step, attacks, scores and metrics. It computes on a device that it is given and touches
// no file; run/ has the rest of a training run (epochs, checkpoints, recovery).
#ifndef TRAIN_H
#define TRAIN_H
#include "conf/config.h"
#include "data/bytes.h"
#include "dev/watch.h"
#include "jem/chain_length.h"
#include "jem/replay.h"
#include "jem/sample.h"

enum { N_RING = 1024 };

typedef struct {                  // images of a step, divided among the ranks
    int images, rows, first;      // of all; this rank's are first .. first + rows - 1
} Share;

typedef struct {                  // one batch of images that goes through the net
    Share  share;
    real  *x;                     // on the device: [rows][dim]
    int   *y;                     // labels, or NULL where no term reads them
    Pass  *pass, *sam_pass;
} TrainBatch;

typedef struct {                  // a step's device work, where the device can record it
    void    *work;
    int      alike;               // steps done since anything but StepState changed
    uint64_t batches;             // what one step adds to net.batches
} Recording;

typedef struct {
    Config   cfg;
    Dev     *dev;
    Comm    *comm;                // the ranks that train together; NULL: this process alone
    int      flip;                // whether images are mirrored: asked for, and right for the set
    Share    px, labels;          // the images of p(x) and its chains; those with labels
    Net      net;
    Optim    optim;
    Schedule schedule;
    Bytes    data;                // the training images, on the device
    Starts   starts;
    Replay   replay;
    Chain    chain;
    ChainLength length;           // what may make chain.steps grow
    // modes of the net; only label_pass, px_pass and few_real always update the running statistics.
    // few_*: of sam_rows images. px_pass and sam_px: where --labelled is not --batch
    Pass     label_pass, px_pass, sampled_pass, chain_pass, attack_pass, sam_pass, sam_px, few_real,
             few_sampled;
    void    *mem;                 // which these passes share
    size_t   mem_bytes;
    TrainBatch batch[MAX_BATCHES];
    TrainBatch *labelled, *px_real;     // of these; px_real may be labelled. NULL: no p(x)
    TrainBatch *sampled;          // x_q, the end points of chains; NULL: no p(x)
    Watch    watch;               // the loss: these batches' terms, added up; its limits
    Watch    classifier;          // the same before p(x) begins: the labelled batch alone
    real    *chains;              // on the device: x_q of all ranks, [cfg.batch][dim]
    int     *index, *px_index;    // on the device: rows of the training set
    real    *x0;                  // on the device: images before an attack, or NULL
    real    *sam_keep;            // on the device: weights while SAM perturbs them, or NULL
    int      sam_on;              // in this step
    uint64_t px_began;            // --px-from: the first step with p(x); 0: not yet
    int      sam_rows;            // this rank's rows that choose SAM's direction; 0: all
    StepState *state;             // on the device
    real    *sums, *ring;         // on the device: [N_SUMS][N_SUM]; [N_RING][N_ROW]
    uint64_t step;                // the next one
    uint64_t per_epoch;           // steps
    uint64_t seed;                // of this attempt
    double   lr_scale;            // halved after repeated divergence
    double   sam_boost;           // 0: SAM as the options say; else it is on, with this times --sam
    double   time_share;          // --minutes: share of the time that passed; negative: not used
    Recording recording[4];       // of a plain step, a sharpness-aware one, and both without p(x)
} Trainer;

// The flat arrays beside weights and running statistics that a state consists of, by their names in
// checkpoints; p NULL: not in this run.
typedef struct {
    const char *name;
    real  *p;
    size_t n;
    real   most;                  // |number| in it; FLT_MAX: finite
} StatePart;
enum { N_STATE_PART = 5 };
void trainer_parts(Trainer *t, StatePart part[N_STATE_PART]);

// Opens everything on dev for the images of `train` and initialises the weights. The replay buffer
// is filled with chain starts unless `empty` (a checkpoint will fill it). The set may be freed
// afterwards. comm: the ranks among which each batch is divided, or NULL.
int  trainer_open(Trainer *t, Dev *dev, Comm *comm, const Config *c, const Set *train, int empty,
                  Err *err);
void trainer_close(Trainer *t);
// One iteration: copies the number of the step to the device, runs trainer_step or replays its
// recording, and increments t->step. It returns before the device is done; dev_check shows a
// failure, trainer_state a divergence.
void trainer_advance(Trainer *t);

void trainer_chain_steps(Trainer *t, int steps);     // from the next step on
// The sam_boost to continue with after climb fell below its limit: SAM begins, or its radius
// doubles, up to 4 times --sam. Without SAM nothing changes.
double trainer_stronger_sam(const Trainer *t);
void trainer_seed(Trainer *t, int attempt);         // a new random stream for a new attempt
// The log rows of n steps, rows[n][N_ROW], the first at most N_RING back; waits for the device.
void trainer_rows(Trainer *t, uint64_t step, int n, real *rows);
StepState trainer_state(Trainer *t);                // waits for the device
void trainer_forget(Trainer *t);                    // the recordings, as what they hold has changed
// With ranks: 0 where all have the same weights, statistics and finished chains, or an error that
// names a rank that differs; rank 0's state (everything that a checkpoint holds) to all.
int  trainer_same(Trainer *t, Err *err);
void trainer_broadcast(Trainer *t);

// The sums after the chains' first move: the second step takes them or, where there is none, the
// batch to learn from.
static inline void watch_first_move(Trainer *t) {
    t->watch.after = t->chain.steps > 1 ? CHAIN_AFTER : t->watch.sampled;
}
static inline int has_chains(const Trainer *t) { return t->sampled != NULL; }
// Whether p(x) has still to begin (--px-from).
static inline int px_pending(const Trainer *t) {
    return has_chains(t) && t->cfg.px_from > 0 && !t->px_began;
}
// Whether p(x) began late, and so shortly before that step that chains still catch up.
static inline int px_settles(const Trainer *t, uint64_t step) {
    return t->px_began && step > t->px_began && step < t->px_began + PX_SETTLES;
}
static inline int px_active(const Trainer *t) { return has_chains(t) && !px_pending(t); }
static inline int has_attack(const Trainer *t) { return t->x0 != NULL; }
static inline int sam_active(const Trainer *t) { return t->sam_on; }

// The device work of an iteration, and its parts in order, for tests that bring their own batches.
void trainer_step(Trainer *t);
void gather_batches(Trainer *t);                    // data set -> labelled and p(x)'s real images
// The labelled batch alone; the random streams of its order and its augmentation.
void gather_labelled(Trainer *t, uint32_t order, uint32_t noise);
void run_chains(Trainer *t);                        // PYLD on the sampled batch: x_0 -> x_q
void share_chains(Trainer *t);                      // starts to collect all ranks' x_q
void attack_labelled(Trainer *t);                   // adversarial training: PGD
void compute_gradients(Trainer *t);                 // forward, loss head, backward; sum over ranks
void sam_gradients(Trainer *t);                     // the same at the perturbed weights instead
void check_step(Trainer *t);                        // log row; sets StepState.halt on divergence
#endif
