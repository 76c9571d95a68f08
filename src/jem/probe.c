// probe.c - see probe.h.
#include "jem/probe.h"
#include <math.h>
#include <string.h>

int probe_open(Probe *p, Net *net, int batch, const Refine *refine, Err *err) {
    Dev *dev = net->dev;
    const size_t dim = tensor_len(&net->act[0]), C = (size_t)net->spec.classes,
                 bytes = (size_t)batch * dim * sizeof(real);
    *p = (Probe){ .net = net, .dev = dev, .batch = batch, .refine = *refine };
    if (pass_open(&p->pass, net, batch, MODE_ATTACK, err)) return -1;
    real **image[] = { &p->x0, &p->x, &p->copy, &p->mean };
    for (int i = 0; i < 4; i++) *image[i] = dev->be.alloc(dev, bytes, "a batch");
    p->mem = dev->be.alloc(dev, p->pass.bytes, "input gradients");
    p->y = dev->be.alloc(dev, (size_t)batch * sizeof(int), "labels");
    p->index = dev->be.alloc(dev, (size_t)batch * sizeof(int), "a batch");
    p->sums = dev->be.alloc(dev, N_SUM * sizeof(real), "sums");
    p->now = dev->be.alloc(dev, sizeof(StepState), "the step");
    p->rows = arena_alloc(&p->arena, (size_t)batch * (dim > C ? dim : C), sizeof(real));
    p->dz = arena_alloc(&p->arena, (size_t)batch * C, sizeof(real));
    p->numbers = arena_alloc(&p->arena, (size_t)batch, sizeof(int));
    if (arena_ok(&p->arena, "a batch", err) || dev_check(dev, err)) return -1;
    dev->be.zero(dev, p->now, sizeof(StepState));
    pass_bind(&p->pass, p->mem);
    return 0;
}

void probe_close(Probe *p) {
    if (!p->net) return;
    void *all[] = { p->mem, p->x0, p->x, p->copy, p->mean, p->y, p->index, p->sums, p->now };
    pass_close(&p->pass);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) p->dev->be.free(p->dev, all[i]);
    arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

void probe_load(Probe *p, const Bytes *set, const int *index, int n, real noise, Rng key) {
    Backend *be = &p->dev->be;
    for (int i = 0; i < p->batch; i++) p->numbers[i] = index[i < n ? i : n - 1];
    be->copy_in(p->dev, p->index, p->numbers, (size_t)p->batch * sizeof(int));
    be->batch(p->dev, set, p->index, p->batch, (Augment){ .noise = noise }, key, NULL, p->x0, p->y);
}

static size_t image_bytes(const Probe *p) {
    return (size_t)p->batch * tensor_len(&p->net->act[0]) * sizeof(real);
}

// Copy number `draw` of x, refined, to p->copy.
static void refined(Probe *p, const real *x, int draw, Rng key) {
    Backend *be = &p->dev->be;
    Tensor copy = p->pass.act[0];
    copy.p = p->copy;
    // a number for the draw and the caller's own sub, which the chain's steps take over
    key.seed += ((uint64_t)draw << 40) + ((uint64_t)key.sub << 50);
    be->copy(p->dev, p->copy, x, image_bytes(p));
    const Move shake = { .inner = 1, .clip = 1, .noise = p->refine.noise };
    if (shake.noise > 0) be->langevin(p->dev, &copy, &copy, shake, key, NULL);
    key.stream = RNG_LANGEVIN;
    sample_run(&p->pass, &p->refine.chain,
               &(ChainBatch){ .x = p->copy, .sums = p->sums, .key = key });
}

void probe_logits(Probe *p, real *x, int n, Rng key, float *logits) {
    Backend *be = &p->dev->be;
    const size_t count = (size_t)n * (size_t)p->net->spec.classes;
    const int draws = p->refine.chain.steps ? p->refine.draws : 1;
    memset(logits, 0, count * sizeof *logits);
    for (int d = 0; d < draws; d++) {
        if (p->refine.chain.steps) refined(p, x, d, key);
        pass_forward(&p->pass, p->refine.chain.steps ? p->copy : x);
        be->copy_out(p->dev, p->rows, pass_logits(&p->pass)->p, count * sizeof(real));
        for (size_t i = 0; i < count; i++) logits[i] += (float)p->rows[i] / (float)draws;
    }
}

// What a gradient is of; `target`, `loss` and `logits` where the host computes the loss.
typedef struct {
    AttackLoss kind;
    const int *y, *target;            // host: [batch]
    double    *loss;                  // [batch]; NULL: the device computes loss `kind`
    float     *logits;
} Goal;

// To pass_input_grad; adds losses and logits, divided by the number of copies.
static void goal_gradient(Probe *p, real *x, const Goal *goal, int copies) {
    Backend *be = &p->dev->be;
    const int C = p->net->spec.classes;
    if (!goal->loss) {
        attack_gradient(&p->pass, x, p->y, goal->kind, p->sums);
        return;
    }
    const size_t row = (size_t)C, count = (size_t)p->batch * row;
    pass_forward(&p->pass, x);
    be->copy_out(p->dev, p->rows, pass_logits(&p->pass)->p, count * sizeof(real));
    for (int i = 0; i < p->batch; i++) {
        const size_t at = (size_t)i * row;
        const int target = goal->target ? goal->target[i] : -1;
        goal->loss[i] += attack_loss(p->rows + at, C, goal->y[i], target, p->dz + at) / copies;
    }
    for (size_t i = 0; i < count; i++) goal->logits[i] += (float)p->rows[i] / (float)copies;
    be->copy_in(p->dev, pass_logits_grad(&p->pass)->p, p->dz, count * sizeof(real));
    pass_backward(&p->pass);
}

static Tensor mean_gradient(Probe *p, real *x, const Goal *goal, Rng key) {
    Backend *be = &p->dev->be;
    Tensor mean = *pass_input_grad(&p->pass);
    if (!p->refine.chain.steps) {
        goal_gradient(p, x, goal, 1);
        return mean;
    }
    for (int d = 0; d < p->refine.draws; d++) {
        refined(p, x, d, key);
        goal_gradient(p, p->copy, goal, p->refine.draws);
        const real *g = pass_input_grad(&p->pass)->p;
        if (!d) be->copy(p->dev, p->mean, g, image_bytes(p));
        else be->ema(p->dev, tensor_len(&mean), p->mean, g, (real)d / (real)(d + 1), p->now);
    }
    mean.p = p->mean;
    return mean;
}

Tensor probe_gradient(Probe *p, real *x, AttackLoss loss, Rng key) {
    return mean_gradient(p, x, &(Goal){ .kind = loss }, key);
}

Tensor probe_losses(Probe *p, real *x, const int *y, const int *target, Rng key, double *loss,
                    float *logits) {
    memset(loss, 0, (size_t)p->batch * sizeof *loss);
    memset(logits, 0, (size_t)p->batch * (size_t)p->net->spec.classes * sizeof *logits);
    return mean_gradient(p, x, &(Goal){ .y = y, .target = target, .loss = loss, .logits = logits },
                         key);
}

void probe_slopes(Probe *p, real *x, int n, float *logits, double *slope) {
    Backend *be = &p->dev->be;
    const size_t dim = tensor_len(&p->net->act[0]);
    const size_t count = (size_t)n * (size_t)p->net->spec.classes;
    pass_forward(&p->pass, x);
    be->copy_out(p->dev, p->rows, pass_logits(&p->pass)->p, count * sizeof(real));
    reals_to_floats(logits, p->rows, count);
    be->head(p->dev, pass_logits(&p->pass), NULL, (Energy){ .a = 1 }, 1, pass_logits_grad(&p->pass),
             p->sums);
    pass_backward(&p->pass);
    be->copy_out(p->dev, p->rows, pass_input_grad(&p->pass)->p, (size_t)n * dim * sizeof(real));
    #pragma omp parallel for
    for (int i = 0; i < n; i++) {
        double s = 0;
        for (size_t k = 0; k < dim; k++) {
            const double g = (double)p->rows[(size_t)i * dim + k];
            s += g * g;
        }
        slope[i] = -sqrt(s);
    }
}
