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

// Moves the images x [batch] in place. The pass must want input gradients; y (device) is read only
// by an energy with labels; sums gets what head adds up. One key gives the same images anywhere.
void sample_run(Pass *p, const Chain *chain, real *x, const int *y, real *sums, Rng key,
                const StepState *now);
// Step k of it. slope (device): NULL, or gets g.x before and after the move.
void sample_step(Pass *p, const Chain *chain, int k, real *x, const int *y, real *sums, real *slope,
                 Rng key, const StepState *now);

// ---- fresh chains: a few long steps cover what chains of the buffer cover in many short ones

typedef struct {
    int    steps;
    double first, last;         // lengths of the first and last step, in training steps
} Anneal;

real anneal_scale(const Anneal *a, int k);      // the length of step k: falls linearly
// Moves x by one step and returns its climb (docs/glossary.md). sums: device memory for 3 N_SUM; x,
// y and the pass as in sample_run.
double sample_climb(Pass *p, const Chain *chain, real *x, const int *y, real *sums, Rng key);
// The steps for a model with this climb: the higher it is, the longer the steps; their total length
// is that of an average chain of the replay buffer, steps / reinit (docs/pyld.md). A step s times
// as long loses s (1 - climb) of what its gradient promised: the first may lose about all.
Anneal anneal_plan(const Config *c, double climb);
#endif
