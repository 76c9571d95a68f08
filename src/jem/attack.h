// attack.h - how many images an adversary can have misread within a radius: PGD and FGSM in
// L-infinity and L2. Radii and steps are in units in which pixels go from 0 to 1; images are in
// [-1, 1], so twice that there.
#ifndef ATTACK_H
#define ATTACK_H
#include "base/events.h"
#include "jem/probe.h"

typedef struct {
    int        l2;                    // the ball's norm: 2, or infinity
    int        fgsm;                  // one step of the radius's length from the image itself
    AttackLoss loss;
    int        steps, restarts;
    int        random_start;          // from anywhere in the ball, else from the image
    double     step;                  // 0: 2.5 radius / steps
} AttackPlan;

enum { MAX_RADII = 64 };

Attack attack_reach(const AttackPlan *a, double radius);      // for images in [-1, 1]
// From where x is, up the loss, within the ball around p->x0 and the box; ends early where ev says
// stop.
void   attack_climb(Probe *p, real *x, const AttackPlan *a, double radius, Rng key,
                    const Events *ev);
// accuracy[i]: the share of images 0 .. n of the set (labels y) that are read rightly and still are
// after all restarts at radius[0] .. radius[i], which rise. What a smaller ball broke is broken in
// a larger one.
int    attack_curve(Probe *p, const Bytes *set, const int *y, int n, const AttackPlan *a,
                    const char *name, const double *radius, int n_radius, uint64_t seed,
                    const Events *ev, double *accuracy, Err *err);
#endif
