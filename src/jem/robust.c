// robust.c - see robust.h.
#include "jem/robust.h"
#include "base/events.h"
#include "jem/metrics.h"
#include <stdio.h>
#include <stdlib.h>

void attack_climb(Probe *p, real *x, const AttackPlan *a, double radius, Rng key,
                  const Events *ev) {
    Tensor images = p->pass.act[0];
    images.p = x;
    const int steps = a->method == METHOD_FGSM ? 1 : a->steps;
    for (int k = 0; k < steps && !stop_asked(ev); k++) {
        key.sub = (uint32_t)k;
        const Tensor g = probe_gradient(p, x, a->loss, key);
        p->dev->be.attack_move(p->dev, &images, &g, p->x0, attack_ball(a, radius));
    }
}

// ---- the curve ----------------------------------------------------------------------------------

typedef struct {
    Probe *p;
    const AttackedImages *of;
    const CurvePlan *plan;
    const AttackPlan *a;              // the plan's
    const Events *ev;
    int   *alive, n_alive;            // images that nothing has broken yet
    char  *right;                     // of these, after a pass: whether it is still classified well
    float *logits;                    // of a batch
    Apgd   apgd;                      // open with that method
    int    nth;                       // which of its attacks
    Rng    key;                       // key.step: one more for each batch
    uint64_t done, to_go;             // images through the attack; an estimate
} Curve;

static void attack_images(Curve *c, const int *index, int n, double radius) {
    if (!c->apgd.y) {
        attack_climb(c->p, c->p->x, c->a, radius, c->key, c->ev);
        return;
    }
    for (int i = 0; i < c->p->batch; i++) c->apgd.y[i] = c->of->y[index[i < n ? i : n - 1]];
    apgd_run(&c->apgd, c->nth, c->a, radius, c->key, c->ev);
}

// One batch of those alive, attacked within the radius (0: looked at).
static void attack_batch(Curve *c, int from, int n, double radius) {
    Probe *p = c->p;
    Backend *be = &p->dev->be;
    const int C = p->net->spec.classes, *index = c->alive + from;
    Tensor x = p->pass.act[0];
    x.p = p->x;
    probe_load(p, c->of->set, index, n, 0, c->key);
    if (radius > 0 && c->a->random_start && c->a->method != METHOD_FGSM)
        be->attack_start(p->dev, &x, p->x0, attack_ball(c->a, radius), c->key, NULL);
    else be->copy(p->dev, p->x, p->x0, tensor_len(&x) * sizeof(real));
    if (radius > 0) attack_images(c, index, n, radius);
    Rng eval_key = c->key;
    eval_key.stream = RNG_EVAL;
    probe_logits(p, p->x, n, eval_key, c->logits);
    for (int i = 0; i < n; i++)
        c->right[from + i] = argmax(c->logits + (size_t)i * (size_t)C, C) == c->of->y[index[i]];
}

// The total is an estimate, so `more` is above 0 until the end, which attack_curve reports.
static void tell(const Curve *c, uint64_t more, const char *text) {
    tell_progress(c->ev, c->done, c->done + more, "attacks", text);
}

// Ranks share out the batches.
static int one_pass(Curve *c, double radius, Err *err) {
    char text[80];
    const int B = c->p->batch;
    const uint32_t before = c->key.step;
    int first, end, rc = 0, kept = 0;
    snprintf(text, sizeof text, "%s within %.4g", c->plan->name, radius);
    tell(c, c->to_go + 1, text);
    comm_part(c->p->comm, c->n_alive, B, &first, &end);
    for (int i = first; !rc && i < end; i += B) {
        const int n = c->n_alive - i < B ? c->n_alive - i : B;
        c->key.step = before + 1 + (uint32_t)(i / B);
        attack_batch(c, i, n, radius);
        rc = dev_check(c->p->dev, err) || stopped(c->ev, err);
        c->done += (uint64_t)n;
        c->to_go -= (uint64_t)n < c->to_go ? (uint64_t)n : c->to_go;
        if (!rc) tell(c, c->to_go + 1, text);
    }
    if (comm_agree(c->p->comm, rc, err)) return -1;
    comm_join(c->p->comm, c->right, c->n_alive, B, 1);
    c->key.step = before + (uint32_t)((c->n_alive + B - 1) / B);
    for (int i = 0; i < c->n_alive; i++)
        if (c->right[i]) c->alive[kept++] = c->alive[i];
    c->n_alive = kept;
    return comm_check(c->p->comm, err);
}

static int open_curve(Curve *c, Err *err) {
    const size_t n = (size_t)c->of->n, C = (size_t)c->p->net->spec.classes;
    c->alive = malloc(n * sizeof *c->alive);
    c->right = malloc(n + 1);
    c->logits = malloc((size_t)c->p->batch * C * sizeof *c->logits);
    if (!c->alive || !c->right || !c->logits)
        return err_set(err, ERR_MEM, "out of memory for an attack");
    c->n_alive = c->of->n;
    for (int i = 0; i < c->n_alive; i++) c->alive[i] = i;
    return c->a->method == METHOD_APGD ? apgd_open(&c->apgd, c->p, err) : 0;
}

static void close_curve(Curve *c) {
    apgd_close(&c->apgd);
    free(c->alive);
    free(c->right);
    free(c->logits);
}

int attack_curve(Probe *p, const AttackedImages *of, const CurvePlan *plan, const Events *ev,
                 double *accuracy, Err *err) {
    const AttackPlan *a = &plan->plan;
    const int restarts = attack_restarts(a);
    const int targets = a->method == METHOD_APGD ? apgd_targets(p->net->spec.classes) : 0;
    const int passes = restarts * (1 + targets);
    Curve c = { .p = p,
                .of = of,
                .plan = plan,
                .a = a,
                .ev = ev,
                .key = { .seed = plan->seed, .stream = RNG_ATTACK } };
    int rc = open_curve(&c, err);
    if (!rc) rc = one_pass(&c, 0, err);
    for (int r = 0; !rc && r < plan->n; r++) {
        for (int k = 0; !rc && plan->radius[r] > 0 && k < passes; k++) {
            c.nth = k / restarts;
            c.to_go = (uint64_t)c.n_alive * (uint64_t)((plan->n - r) * passes - k);
            rc = one_pass(&c, plan->radius[r], err);
        }
        accuracy[r] = (double)c.n_alive / of->n;
    }
    if (!rc) tell(&c, 0, plan->name);
    close_curve(&c);
    return rc;
}
