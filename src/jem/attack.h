// attack.h - one adversarial attack (PGD, FGSM, APGD) as a set of numbers, and the losses that it
// raises. Radii and steps are in units in which pixels go from 0 to 1; images are in [-1, 1],
// where they count twice.
#ifndef ATTACK_H
#define ATTACK_H
#include "conf/config.h"

typedef enum {
    METHOD_PGD,
    METHOD_FGSM,                      // one step of the radius's length from the image itself
    METHOD_APGD,                      // AutoAttack's APGD-CE, then targeted APGD-DLR (apgd.h)
} AttackMethod;

typedef struct {
    int          l2;                  // the ball's norm: 2, or infinity
    AttackMethod method;
    AttackLoss   loss;                // not of APGD
    int          steps, restarts;
    int          random_start;        // from a random point of the ball, else from the image
    double       step;                // of PGD; 0: 2.5 radius / steps
} AttackPlan;

int    attack_restarts(const AttackPlan *a);                  // 1 where each would be the same
Attack attack_ball(const AttackPlan *a, double radius);       // for images in [-1, 1]
// To pass_input_grad: the gradient by the images x of a loss that grows as they are misclassified.
void   attack_gradient(Pass *p, real *x, const int *y, AttackLoss loss, real *sums);
// One row of logits z on the host: the cross-entropy of class y (target < 0), or the targeted DLR
// loss, -(z_y - z_target) / (z_(1) - (z_(3) + z_(4)) / 2) with z_(k) the k-th highest of at least
// DLR_CLASSES logits. dz: its gradient by z.
enum { DLR_CLASSES = 4 };
double attack_loss(const real *z, int classes, int y, int target, real *dz);
#endif
