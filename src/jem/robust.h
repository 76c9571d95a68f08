// robust.h - accuracy under attack: PGD, FGSM and APGD in L-infinity and L2 at rising radii.
#ifndef ROBUST_H
#define ROBUST_H
#include "jem/apgd.h"

enum { MAX_RADII = 64 };

// PGD or FGSM: gradient steps from x up the loss, within the ball around p->x0 and the box [-1, 1];
// ends early if ev says stop.
void attack_climb(Probe *p, real *x, const AttackPlan *a, double radius, Rng key,
                  const Events *ev);

typedef struct {                      // images 0 .. n-1 of a set, with their labels y
    const Bytes *set;
    const int   *y;
    int          n;
} AttackedImages;

typedef struct {
    char       name[16];              // "pgd-linf"
    AttackPlan plan;
    double     radius[MAX_RADII];     // rising
    int        n;                     // radii
    uint64_t   seed;
} CurvePlan;

// accuracy[i]: the share of the images that are classified correctly, also after all restarts at
// radius[0] .. radius[i]. An image that is misclassified within a smaller radius is not attacked
// again within a larger one. With APGD each attack is restarted.
int  attack_curve(Probe *p, const AttackedImages *of, const CurvePlan *plan, const Events *ev,
                  double *accuracy, Err *err);
#endif
