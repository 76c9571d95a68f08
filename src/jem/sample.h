// sample.h - moves images uphill in the model's log-density: SGLD, proximal SGLD, PYLD.
#ifndef SAMPLE_H
#define SAMPLE_H
#include "conf/config.h"

typedef struct {
    int    steps;               // gradient steps M
    Move   move;                // what each does (docs/pyld.md: N inner moves cost nothing)
    Energy energy;              // whose gradient: {1, 0, 0} log p(x), {0, 1, 0} log p(x | y)
} Chain;

// What chains climb to become images of a given class y: LSE + 0.2 log p(y|x).
Energy class_energy(void);
Chain chain_of(const Config *c);
int   chain_same_step(const Chain *a, const Chain *b);     // whatever their number of steps

typedef struct {                // a batch of images, on the device, that chains move in place
    real            *x;         // [batch][dim]
    const int       *y;         // read only by an energy with labels; else NULL
    real            *sums;      // [N_SUM]: gets what head adds up
    Rng              key;       // of the noise: one key gives the same images anywhere
    const StepState *now;       // of training, or NULL
} ChainBatch;

// Moves the images by all steps of the chain. The pass must want input gradients.
void sample_run(Pass *p, const Chain *chain, const ChainBatch *b);
// Step k of it. slope (device): NULL, or gets g.x before and after the move.
void sample_step(Pass *p, const Chain *chain, const ChainBatch *b, int k, real *slope);

// ---- fresh chains: a few long steps cover what chains of the buffer cover in many short ones

typedef struct {
    int    steps;
    double first, last;         // lengths of the first and last step, in training steps
    double pixel;               // the farthest that a step moves a pixel; 0: no limit
    double longest;             // what the first step was allowed
} Anneal;

real anneal_scale(const Anneal *a, int k);      // the length of step k: falls linearly
Move anneal_move(const Anneal *a, Move training, int k);    // what step k does
// Moves the images by one step and returns its climb (docs/glossary.md). b->sums has [3][N_SUM].
double sample_climb(Pass *p, const Chain *chain, const ChainBatch *b);
// How far fresh chains go, in training steps: `chain_length` or, where that is 0, as far as an
// average chain of the replay buffer, steps / reinit.
double anneal_length(const Config *c);
// The steps for a model with this climb: the higher it is, the longer the steps, unless
// `chain_step` says how long the first is. Their total length is anneal_length (docs/pyld.md). A
// step s times as long loses s (1 - climb) of what its gradient promised: the first may lose about
// all. Single pixels, which long steps would drive to black or white, move by 0.3 at most; by 0.15
// if chains climb towards a class.
Anneal anneal_plan(const Config *c, double climb);
#endif
