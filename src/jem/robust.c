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
    const Bytes *set;
    const int *y;
    const AttackPlan *a;
    const Events *ev;
    const char *name;
    int   *alive, n_alive;            // images that nothing has broken yet
    char  *right;                     // of these, after a pass: whether it is still classified well
    float *logits;                    // of a batch
    Apgd   apgd;                      // open with that method
    int    nth;                       // which of its attacks
    Rng    key;                       // key.step: one more for each batch
    uint64_t done, to_go;             // images through the attack; an estimate
} Curve;

static void attack_images(Curve *c, const int *index, int n, double radius) {
    if (c->a->method != METHOD_APGD) {
        attack_climb(c->p, c->p->x, c->a, radius, c->key, c->ev);
        return;
    }
    for (int i = 0; i < c->p->batch; i++) c->apgd.y[i] = c->y[index[i < n ? i : n - 1]];
    apgd_run(&c->apgd, c->nth, c->a, radius, c->key, c->ev);
}

// One batch of those alive, attacked within the radius (0: looked at).
static void attack_batch(Curve *c, int from, int n, double radius) {
    Probe *p = c->p;
    Backend *be = &p->dev->be;
    const int C = p->net->spec.classes, *index = c->alive + from;
    Tensor x = p->pass.act[0];
    x.p = p->x;
    probe_load(p, c->set, index, n, 0, c->key);
    if (radius > 0 && c->a->random_start && c->a->method != METHOD_FGSM)
        be->attack_start(p->dev, &x, p->x0, attack_ball(c->a, radius), c->key, NULL);
    else be->copy(p->dev, p->x, p->x0, tensor_len(&x) * sizeof(real));
    if (radius > 0) attack_images(c, index, n, radius);
    Rng eval_key = c->key;
    eval_key.stream = RNG_EVAL;
    probe_logits(p, p->x, n, eval_key, c->logits);
    for (int i = 0; i < n; i++)
        c->right[from + i] = argmax(c->logits + (size_t)i * (size_t)C, C) == c->y[index[i]];
}

// More is always to go but at the end, which attack_curve tells.
static void tell(const Curve *c, uint64_t more, const char *text) {
    tell_progress(c->ev, c->done, c->done + more, "attacks", text);
}

// Ranks share out the batches.
static int one_pass(Curve *c, double radius, Err *err) {
    char text[80];
    const int B = c->p->batch;
    const uint32_t before = c->key.step;
    int first, end, rc = 0, kept = 0;
    snprintf(text, sizeof text, "%s within %.4g", c->name, radius);
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

int attack_curve(Probe *p, const Bytes *set, const int *y, int n, const AttackPlan *a,
                 const char *name, const double *radius, int n_radius, uint64_t seed,
                 const Events *ev, double *accuracy, Err *err) {
    const int restarts = attack_restarts(a);
    const int targets = a->method == METHOD_APGD ? apgd_targets(p->net->spec.classes) : 0;
    const int passes = restarts * (1 + targets);
    int *alive = malloc((size_t)n * sizeof *alive);
    char *right = malloc((size_t)n + 1);
    float *logits = malloc((size_t)p->batch * (size_t)p->net->spec.classes * sizeof *logits);
    Curve c = { p,
                set,
                y,
                a,
                ev,
                name,
                .alive = alive,
                .n_alive = n,
                .right = right,
                .logits = logits,
                .key = { .seed = seed, .stream = RNG_ATTACK } };
    int rc = alive && right && logits ? 0 : err_set(err, ERR_MEM, "out of memory for an attack");
    if (!rc && a->method == METHOD_APGD) rc = apgd_open(&c.apgd, p, err);
    for (int i = 0; !rc && i < n; i++) alive[i] = i;
    if (!rc) rc = one_pass(&c, 0, err);
    for (int r = 0; !rc && r < n_radius; r++) {
        for (int k = 0; !rc && radius[r] > 0 && k < passes; k++) {
            c.nth = k / restarts;
            c.to_go = (uint64_t)c.n_alive * (uint64_t)((n_radius - r) * passes - k);
            rc = one_pass(&c, radius[r], err);
        }
        accuracy[r] = (double)c.n_alive / n;
    }
    if (!rc) tell(&c, 0, name);
    apgd_close(&c.apgd);
    free(alive);
    free(right);
    free(logits);
    return rc;
}
