// sample.c - see sample.h.
#include "jem/sample.h"
#include "dev/watch.h"
#include <math.h>

Chain chain_of(const Config *c) {
    return (Chain){ .steps = c->steps,
                    .move = { .inner = c->inner,
                              .lr = (real)c->step_size,
                              .clip = c->clip > 0 ? (real)c->clip : (real)INFINITY,
                              .noise = (real)c->noise,
                              .clamp = c->clamp },
                    .energy = { .a = !c->conditional, .b = c->conditional } };
}

int chain_same_step(const Chain *a, const Chain *b) {
    const Move *m = &a->move, *n = &b->move;
    return a->energy.a == b->energy.a && a->energy.b == b->energy.b && m->inner == n->inner &&
           m->lr == n->lr && m->clip == n->clip && m->noise == n->noise && m->clamp == n->clamp;
}

Energy class_energy(void) {
    // Of log p(y|x) = z[y] - LSE as little as makes most chains reach their class: with all of it,
    // which is z[y] alone, single pixels run away (docs/samples.md).
    const real guide = (real)0.2;
    return (Energy){ .a = 1 - guide, .b = guide };
}

void sample_step(Pass *p, const Chain *chain, const ChainBatch *b, int k, real *slope) {
    Backend *be = &p->dev->be;
    Tensor images = p->act[0];
    Rng key = b->key;
    images.p = b->x;
    key.sub = (uint32_t)k;
    pass_forward(p, b->x);
    be->head(p->dev, pass_logits(p), b->y, chain->energy, 1, pass_logits_grad(p), b->sums);
    pass_backward(p);                                       // ... the images' gradient
    const Tensor *g = pass_input_grad(p);
    if (slope) be->dot(p->dev, tensor_len(g), g->p, b->x, &slope[0]);
    be->langevin(p->dev, &images, g, chain->move, key, b->now);
    if (slope) be->dot(p->dev, tensor_len(g), g->p, b->x, &slope[1]);
}

real anneal_scale(const Anneal *a, int k) {
    const double t = a->steps > 1 ? (double)k / (a->steps - 1) : 0;
    return (real)(a->first + (a->last - a->first) * t);
}

Move anneal_move(const Anneal *a, Move m, int k) {
    m.lr *= anneal_scale(a, k);
    if (a->pixel > 0) m.clip = (real)fmin((double)m.clip, a->pixel / ((double)m.lr * m.inner));
    return m;
}

double sample_climb(Pass *p, const Chain *chain, const ChainBatch *b) {
    real row[3][N_SUM];
    Backend *be = &p->dev->be;
    sample_step(p, chain, b, 0, b->sums + N_SUM);
    pass_forward(p, b->x);
    be->head(p->dev, pass_logits(p), b->y, chain->energy, 1, NULL, b->sums + 2 * (size_t)N_SUM);
    be->copy_out(p->dev, row, b->sums, sizeof row);
    return climb_share(&chain->energy, row[0], row[2], row[1]);
}

double anneal_length(const Config *c) {
    const double FARTHEST = 400;
    return c->chain_length > 0 ? c->chain_length : fmin(c->steps / fmax(c->reinit, 1e-3), FARTHEST);
}

Anneal anneal_plan(const Config *c, double climb) {
    const double LONGEST = 6, SHORTEST = 0.5, LAST = 0.1;
    const int by_class = c->classes[0] || c->conditional;   // whose gradient drives single pixels
    const double longest = climb < 1 ? 1 / (1 - climb) : LONGEST;
    const double by_climb = fmin(fmax(longest, SHORTEST), LONGEST), far = anneal_length(c);
    const double most = c->chain_step > 0 ? fmax(c->chain_step, LAST) : by_climb;
    const int steps = (int)ceil(2 * far / (most + LAST));
    return (Anneal){ .steps = steps,
                     .first = steps > 1 ? 2 * far / steps - LAST : far,  // they add up to `far`
                     .last = LAST,
                     .pixel = by_class ? 0.15 : 0.3,
                     .longest = most };
}

void sample_run(Pass *p, const Chain *chain, const ChainBatch *b) {
    for (int k = 0; k < chain->steps; k++) sample_step(p, chain, b, k, NULL);
}
