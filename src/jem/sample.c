// sample.c - see sample.h.
#include "jem/sample.h"
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

void sample_step(Pass *p, const Chain *chain, int k, real *x, const int *y, real *sums, real *slope,
                 Rng key, const StepState *now) {
    Backend *be = &p->dev->be;
    Tensor images = p->act[0];
    images.p = x;
    pass_forward(p, x);
    be->head(p->dev, pass_logits(p), y, chain->energy, 1, pass_logits_grad(p), sums);
    pass_backward(p);                                       // ... the images' gradient
    const Tensor *g = pass_input_grad(p);
    key.sub = (uint32_t)k;
    if (slope) be->dot(p->dev, tensor_len(g), g->p, x, &slope[0]);
    be->langevin(p->dev, &images, g, chain->move, key, now);
    if (slope) be->dot(p->dev, tensor_len(g), g->p, x, &slope[1]);
}

void sample_run(Pass *p, const Chain *chain, real *x, const int *y, real *sums, Rng key,
                const StepState *now) {
    for (int k = 0; k < chain->steps; k++) sample_step(p, chain, k, x, y, sums, NULL, key, now);
}
