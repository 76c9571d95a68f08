// attack.c - see attack.h.
#include "jem/attack.h"
#include <math.h>

int attack_restarts(const AttackPlan *a) {
    return a->method == METHOD_FGSM || !a->random_start ? 1 : a->restarts;
}

Attack attack_ball(const AttackPlan *a, double radius) {
    double step = a->step > 0 ? a->step : 2.5 * radius / a->steps;
    if (a->method == METHOD_FGSM) step = radius;
    return (Attack){ .l2 = a->l2, .radius = (real)(2 * radius), .step = (real)(2 * step) };
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

static double cross_entropy(const real *z, int classes, int y, real *dz) {
    double most = (double)z[0], sum = 0;
    for (int c = 1; c < classes; c++) most = fmax(most, (double)z[c]);
    for (int c = 0; c < classes; c++) sum += exp((double)z[c] - most);
    for (int c = 0; c < classes; c++) dz[c] = (real)(exp((double)z[c] - most) / sum - (c == y));
    return log(sum) + most - (double)z[y];
}

static double targeted_dlr(const real *z, int classes, int y, int target, real *dz) {
    int rank[DLR_CLASSES] = { 0 };                       // the highest logits, falling
    for (int c = 0; c < classes; c++) {
        int at = c < DLR_CLASSES ? c : DLR_CLASSES;
        for (; at > 0 && z[c] > z[rank[at - 1]]; at--)
            if (at < DLR_CLASSES) rank[at] = rank[at - 1];
        if (at < DLR_CLASSES) rank[at] = c;
        dz[c] = 0;
    }
    const double spread =
        (double)z[rank[0]] - ((double)z[rank[2]] + (double)z[rank[3]]) / 2 + 1e-12;
    const double lead = (double)z[y] - (double)z[target], by_spread = lead / (spread * spread);
    dz[y] -= (real)(1 / spread);
    dz[target] += (real)(1 / spread);
    dz[rank[0]] += (real)by_spread;
    dz[rank[2]] -= (real)(by_spread / 2);
    dz[rank[3]] -= (real)(by_spread / 2);
    return -lead / spread;
}

double attack_loss(const real *z, int classes, int y, int target, real *dz) {
    return target < 0 ? cross_entropy(z, classes, y, dz) : targeted_dlr(z, classes, y, target, dz);
}
