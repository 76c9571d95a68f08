// replay.h - the replay buffer: chains that continue from one training step to the next.
//
// Which slots a step takes, which of its chains start afresh (dev/slots.h), and with which class,
// depends on the seed and the step alone. So the host knows all of it in advance, and keeps a pool
// of fresh chain starts, each used once, without reading from the device.
#ifndef REPLAY_H
#define REPLAY_H
#include "jem/starts.h"

typedef struct {
    Dev     *dev;
    Starts  *starts;
    Slots    slots;
    int      conditional, n_pool;
    int      first, rows;       // of the batch: this rank's part, in the beginning all of it
    PriorKind prior;
    size_t   dim;
    uint64_t seed;
    real    *x, *pool;          // on the device: [slots.n][dim], [n_pool][dim]
    int     *slot, *y;          // on the device: [batch], of the chains under way
    uint32_t drawn, made;       // numbers of the next draw to be used, to be made
    uint64_t ahead;             // the first step whose draws are not in the pool yet
} Replay;

// n slots, filled with chain starts of their classes (empty: left for a checkpoint to fill).
int  replay_open(Replay *r, Starts *s, const Config *c, uint64_t seed, int classes, int empty,
                 Err *err);
void replay_close(Replay *r);
// Before each step, on the host: fills the pool where needed; returns how many draws the step uses.
uint32_t replay_ready(Replay *r, uint64_t step);
void replay_rewind(Replay *r, uint64_t seed, uint64_t step, uint32_t drawn);   // to a checkpoint
// On the device: this rank's chain starts to x [rows][dim]; all finished chains, x [batch][dim],
// back to their slots.
void replay_take(Replay *r, real *x, const StepState *now);
void replay_store(Replay *r, const real *x, const StepState *now);
#endif
