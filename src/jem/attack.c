// attack.c - see attack.h.
#include "jem/attack.h"

Attack attack_ball(const AttackPlan *a, double radius) {
    const double step = a->fgsm ? radius : a->step > 0 ? a->step : 2.5 * radius / a->steps;
    return (Attack){ a->l2, (real)(2 * radius), (real)(2 * step) };
}

void attack_gradient(Pass *p, real *x, const int *y, AttackLoss loss, real *sums) {
    Backend *be = &p->dev->be;
    pass_forward(p, x);
    if (loss == LOSS_MARGIN) be->margin(p->dev, pass_logits(p), y, pass_logits_grad(p));
    else
        be->head(p->dev, pass_logits(p), y, (Energy){ .a = 1, .b = -1 }, 1, pass_logits_grad(p),
                 sums);
    pass_backward(p);
}
