// apgd.h - Auto-PGD as in AutoAttack (Croce and Hein, "Reliable evaluation of adversarial
// robustness with an ensemble of diverse parameter-free attacks", ICML 2020): gradient ascent with
// momentum in an L-infinity or L2 ball. Each image has its own step size, which begins at twice the
// radius; at checkpoints it is halved, and the image restarts from its best point, if the loss rose
// too rarely or did not reach a new best.
#ifndef APGD_H
#define APGD_H
#include "base/events.h"
#include "jem/probe.h"

enum { APGD_STEPS = 100, APGD_TARGETS = 9 };        // AutoAttack's standard evaluation

typedef struct {
    double step;
    double loss, last_loss;                         // here; after the previous step
    double best, checked;                           // highest so far; that at the last checkpoint
    int    rises, halved;                           // since the last checkpoint; at it
    int    wrong;                                   // was misclassified once
} ApgdImage;

typedef struct {
    Probe     *p;
    int       *y, *target;                          // [batch]; the caller fills y
    float     *logits;                              // [batch][classes]
    double    *loss;                                // [batch]
    ApgdImage *image;                               // [batch]
    // [batch][dim]: the ball's centres; this, the previous and the next point; the point of highest
    // loss and the gradients there and here; the latest misclassified point
    real      *x0, *x, *old, *next, *best, *g_best, *g, *found;
    Arena      arena;
} Apgd;

int  apgd_open(Apgd *a, Probe *p, Err *err);
void apgd_close(Apgd *a);
int  apgd_targets(int classes);                     // how many targeted attacks: at most 9
// Attacks the images p->x0, whose labels are a->y, from the starts p->x within the radius (pixels
// in [0, 1]); in p->x they leave the latest misclassified point of the path, or their start. nth 0:
// cross-entropy; 1, 2, ...: targeted DLR, the target being the nth of the other classes by the
// logits of p->x0. Ends early once all are misclassified (not with refinement, which is random), or
// if ev says stop.
void apgd_run(Apgd *a, int nth, const AttackPlan *plan, double radius, Rng key, const Events *ev);
#endif
