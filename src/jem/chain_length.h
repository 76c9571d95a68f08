// chain_length.h - chains that get longer while f distinguishes real and sampled images too easily:
// the curriculum of DAT, by the AUROC of f between the two.
#ifndef CHAIN_LENGTH_H
#define CHAIN_LENGTH_H
#include "conf/config.h"
#include "dev/comm.h"

enum { LENGTH_EVERY = 10 };             // steps between two looks at the AUROC

typedef struct {
    int     most;                       // --steps-max; 0: chains keep their length
    double  limit;                      // --steps-auroc
    double  auroc;                      // running mean; starts at 0.5, also after each lengthening
    Dev    *dev;
    int     batch, rows, classes;       // rows: this rank's part of the batch
    real   *logits;                     // on the device: [2][rows][classes], real, then sampled
    real   *seen;                       // the same on the host
    double *own, *all;                  // f: [2][rows]; [ranks][2][rows]
    double *fx, *fxq;                   // [batch]
    Arena   arena;
} ChainLength;

// Nothing is allocated where c has no --steps-max.
int  chain_length_open(ChainLength *l, Dev *dev, const Config *c, int rows, int classes, Err *err);
void chain_length_close(ChainLength *l);
// On the device: keeps the logits of this rank's real (sampled = 0) or sampled (1) images.
void chain_length_keep(ChainLength *l, int sampled, const Tensor *logits);
// After every LENGTH_EVERY-th step: looks at what was kept, of all ranks, and returns how many
// gradient steps chains take from now on, `steps` or one more. Waits for the device.
int  chain_length_next(ChainLength *l, int steps, Comm *comm);
#endif
