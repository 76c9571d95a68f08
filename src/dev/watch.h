// watch.h - from the sums of a training step: a row for the log, and whether the run diverges.
// Every device compiles this source.
#ifndef WATCH_H
#define WATCH_H
#include "dev/backend.h"
#include <math.h>

RNG_FN real watch_mean(real mean, double v) { return (real)(0.98 * (double)mean + 0.02 * v); }

// Climb has dips of ten to forty steps that pass by themselves (docs/stability.md), so its mean is
// a longer one; n: steps before this one, and the mean of the first ones is that of all so far.
RNG_FN real watch_climb_mean(real mean, uint32_t n, double v) {
    const double share = n < 100 ? 1. / (n + 1) : 1. / 100;
    return (real)((double)mean + share * (v - (double)mean));
}

// Climb (docs/glossary.md): the increase of f in the chains' first move divided by the increase
// that the gradient predicts. Near 1 for short moves, 1/2 where a move ends on the maximum,
// negative where f decreases.
// up: what chains climb; from, to: its sums before and after the move; slope: g.x before and after.
RNG_FN double climb_share(const Energy *up, const real *from, const real *to, const real *slope) {
    const double predicted = (double)slope[1] - (double)slope[0];
    const double increase = (double)up->a * ((double)to[SUM_LSE] - (double)from[SUM_LSE]) +
                            (double)up->b * ((double)to[SUM_ZY] - (double)from[SUM_ZY]);
    return predicted > 0 ? increase / predicted : 0;
}

RNG_FN double watch_climb(const Watch *o, const real *sums) {
    if (o->sampled < 0) return 0;
    return climb_share(&o->up, sums + CHAIN_BEFORE * N_SUM, sums + o->after * N_SUM,
                       sums + CHAIN_SLOPE * N_SUM);
}

// Whether the running mean of climb is less than `above` above its limit, or not a number.
RNG_FN int climb_below(const Watch *o, const StepState *now, double above) {
    return o->sampled >= 0 && o->climb_limit > 0 &&
           !((double)now->climb >= (double)o->climb_limit + above);
}

// The first step that may halt by climb: by then its mean is one of enough steps.
enum { CLIMB_FROM = 100 };
// Where p(x) begins late (--px-from) chains have to catch up with the classifier, which gets worse
// meanwhile: for this many steps the loss alone is compared with its limit.
enum { PX_SETTLES = 500 };

RNG_FN void watch_step(const Watch *o, const real *sums, StepState *now, real *ring) {
    const int real_at = o->px < 0 ? o->label : o->px;
    double loss = 0;
    for (int i = 0; i < o->n_batch; i++) {
        const real *s = sums + i * N_SUM;
        const Energy e = energy_now(o->e[i]);
        loss += ((double)e.a * (double)s[SUM_LSE] + (double)e.b * (double)s[SUM_ZY] +
                 (double)e.c * (double)s[SUM_LSE2] + fabs((double)e.d) * (double)s[SUM_SOFTPLUS]) /
                o->n[i];
    }
    const real *label = sums + o->label * N_SUM;
    const double ce = (double)(label[SUM_LSE] - label[SUM_ZY]) / o->n[o->label];
    const double fx = (double)sums[real_at * N_SUM + SUM_LSE] / o->n[real_at];
    const double fxq =
        o->sampled < 0 ? 0 : (double)sums[o->sampled * N_SUM + SUM_LSE] / o->n[o->sampled];
    const uint32_t px_step = now->in.step - now->in.px_began;
    const int chains = o->sampled >= 0, late = chains && now->in.px_began;
    const int begins = !now->in.step || (late && !px_step), settles = late && px_step < PX_SETTLES;
    if (chains && px_step >= 50) now->gap = watch_mean(now->gap, fabs(fx - fxq));
    now->ce = begins ? (real)ce : watch_mean(now->ce, ce);
    if (begins || settles || now->ce < now->ce_low) now->ce_low = now->ce;
    const double climb = watch_climb(o, sums);
    if (chains) now->climb = watch_climb_mean(now->climb, px_step, climb);
    // written so that NaN does not pass
    now->over_margin = chains && o->px_margin > 0 && !(fx - fxq <= (double)o->px_margin);
    if (!now->halt && !(fabs(loss) <= (double)o->loss_limit)) now->halt = HALT_LOSS;
    const int limited = !now->halt && !settles;
    if (limited && o->gap_limit > 0 && !(now->gap <= o->gap_limit)) now->halt = HALT_GAP;
    else if (limited && o->ce_limit > 0 && !(now->ce - now->ce_low <= o->ce_limit))
        now->halt = HALT_CE;
    else if (limited && px_step >= CLIMB_FROM && climb_below(o, now, 0)) now->halt = HALT_CLIMB;
    real *row = ring + (size_t)(now->in.step % (uint32_t)o->n_ring) * N_ROW;
    row[ROW_STEP] = (real)now->in.step;
    row[ROW_LR] = now->in.lr;
    row[ROW_LOSS] = (real)loss;
    row[ROW_CE] = (real)ce;
    row[ROW_RIGHT] = (real)((double)label[SUM_RIGHT] / o->n[o->label]);
    row[ROW_FX] = (real)fx;
    row[ROW_FXQ] = (real)fxq;
    row[ROW_GAP] = now->gap;
    row[ROW_CLIMB] = (real)climb;
    row[ROW_HALT] = (real)now->halt;
    row[ROW_AUROC] = now->in.auroc;
    row[ROW_STEPS] = (real)now->in.chain_steps;
}
#endif
