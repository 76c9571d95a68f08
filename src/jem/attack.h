// attack.h - one adversarial attack (PGD, FGSM) as a set of numbers, and the gradient that it
// follows. Radii and steps are in units in which pixels go from 0 to 1; images are in [-1, 1],
// where they count twice.
#ifndef ATTACK_H
#define ATTACK_H
#include "conf/config.h"

typedef struct {
    int        l2;                    // the ball's norm: 2, or infinity
    int        fgsm;                  // one step of the radius's length from the image itself
    AttackLoss loss;
    int        steps, restarts;
    int        random_start;          // from a random point of the ball, else from the image
    double     step;                  // 0: 2.5 radius / steps
} AttackPlan;

Attack attack_ball(const AttackPlan *a, double radius);       // for images in [-1, 1]
// To pass_input_grad: the gradient by the images x of a loss that grows as they are misclassified.
void   attack_gradient(Pass *p, real *x, const int *y, AttackLoss loss, real *sums);
#endif
