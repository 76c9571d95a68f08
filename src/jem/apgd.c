// apgd.c - see apgd.h. Points and step sizes are kept on the host: a step moves few bytes compared
// with the passes through the network, and no device needs operations for it.
#include "jem/apgd.h"
#include "jem/metrics.h"
#include <math.h>
#include <string.h>

int apgd_open(Apgd *a, Probe *p, Err *err) {
    const size_t n = (size_t)p->batch, len = n * tensor_len(&p->net->act[0]);
    real **image[] = { &a->x0, &a->x, &a->old, &a->next, &a->best, &a->g_best, &a->g, &a->found };
    *a = (Apgd){ .p = p };
    for (size_t i = 0; i < sizeof image / sizeof *image; i++)
        *image[i] = arena_alloc(&a->arena, len, sizeof(real));
    a->y = arena_alloc(&a->arena, n, sizeof *a->y);
    a->target = arena_alloc(&a->arena, n, sizeof *a->target);
    a->logits = arena_alloc(&a->arena, n * (size_t)p->net->spec.classes, sizeof *a->logits);
    a->loss = arena_alloc(&a->arena, n, sizeof *a->loss);
    a->image = arena_alloc(&a->arena, n, sizeof *a->image);
    return arena_ok(&a->arena, "an attack", err);
}

void apgd_close(Apgd *a) { arena_free(&a->arena); }

int apgd_targets(int classes) { return classes - 1 < APGD_TARGETS ? classes - 1 : APGD_TARGETS; }

// ---- one step of one image ----------------------------------------------------------------------

static real clamped(double v, double lo, double hi) {
    return (real)(v < lo ? lo : v > hi ? hi : v);
}

// Into the ball around x0, then into [-1, 1].
static void project(real *x, const real *x0, size_t dim, int l2, double radius) {
    const double size = l2 ? reals_distance(x, x0, dim) : 0;
    const double scale = size > radius ? radius / size : 1;
    for (size_t i = 0; i < dim; i++) {
        const double from = (double)x0[i], d = scale * ((double)x[i] - from);
        x[i] = clamped(from + (l2 ? d : (double)clamped(d, -radius, radius)), -1, 1);
    }
}

// To a->next: along the gradient, of which three quarters are kept and a quarter of the previous
// step is added. Lengths count in [-1, 1].
static void step_image(Apgd *a, size_t i, size_t dim, int l2, double radius, int first) {
    const real *x0 = a->x0 + i * dim, *x = a->x + i * dim, *old = a->old + i * dim;
    const real *g = a->g + i * dim;
    real *to = a->next + i * dim;
    const double step = a->image[i].step, keep = first ? 1 : 0.75;
    const double along = l2 ? step / (reals_distance(g, NULL, dim) + 1e-12) : 0;
    for (size_t k = 0; k < dim; k++) {
        const double slope = (double)g[k];
        const double move = l2 ? along * slope : step * ((slope > 0) - (slope < 0));
        to[k] = (real)((double)x[k] + move);
    }
    project(to, x0, dim, l2, radius);
    for (size_t k = 0; k < dim; k++) {
        const double here = (double)x[k];
        to[k] = (real)(here + keep * ((double)to[k] - here) + (1 - keep) * (here - (double)old[k]));
    }
    project(to, x0, dim, l2, radius);
}

// What the pass at a->x says about one image.
static void note_image(Apgd *a, size_t i, size_t dim) {
    const size_t bytes = dim * sizeof(real), C = (size_t)a->p->net->spec.classes;
    ApgdImage *m = &a->image[i];
    m->loss = a->loss[i];
    m->rises += m->loss > m->last_loss;
    m->last_loss = m->loss;
    if (argmax(a->logits + i * C, (int)C) != a->y[i]) {
        m->wrong = 1;
        memcpy(a->found + i * dim, a->x + i * dim, bytes);
    }
    if (m->loss > m->best) {
        m->best = m->loss;
        memcpy(a->best + i * dim, a->x + i * dim, bytes);
        memcpy(a->g_best + i * dim, a->g + i * dim, bytes);
    }
}

// After `steps` steps since the last checkpoint.
static void check_image(Apgd *a, size_t i, size_t dim, int steps) {
    ApgdImage *m = &a->image[i];
    const int rose_rarely = m->rises <= 0.75 * steps;
    m->halved = rose_rarely || (!m->halved && m->checked >= m->best);
    m->checked = m->best;
    m->rises = 0;
    if (!m->halved) return;
    m->step /= 2;
    memcpy(a->x + i * dim, a->best + i * dim, dim * sizeof(real));
    memcpy(a->g + i * dim, a->g_best + i * dim, dim * sizeof(real));
}

// ---- a batch ------------------------------------------------------------------------------------

static void choose_targets(Apgd *a, int nth, Rng key) {
    Probe *p = a->p;
    const int C = p->net->spec.classes;
    probe_logits(p, p->x0, p->batch, key, a->logits);
    for (int i = 0; i < p->batch; i++) {
        float *z = a->logits + (size_t)i * (size_t)C;
        z[a->y[i]] = -INFINITY;
        for (int k = 0; k < nth; k++) {
            a->target[i] = argmax(z, C);
            z[a->target[i]] = -INFINITY;
        }
    }
}

// Loss, gradient and logits at a->x.
static void look(Apgd *a, const int *target, Rng key, size_t bytes) {
    Backend *be = &a->p->dev->be;
    be->copy_in(a->p->dev, a->p->x, a->x, bytes);
    const Tensor g = probe_losses(a->p, a->p->x, a->y, target, key, a->loss, a->logits);
    be->copy_out(a->p->dev, a->g, g.p, bytes);
}

// Nothing has risen yet; AutoAttack compares the loss after the first step with 0.
static void begin(Apgd *a, size_t dim, double radius) {
    for (size_t i = 0; i < (size_t)a->p->batch; i++) {
        a->image[i] = (ApgdImage){ .step = 2 * radius, .best = -INFINITY };
        memcpy(a->found + i * dim, a->x + i * dim, dim * sizeof(real));
        note_image(a, i, dim);
        a->image[i].checked = a->image[i].best;
        a->image[i].last_loss = a->image[i].rises = 0;
        a->image[i].halved = 1;
    }
}

static int all_wrong(const Apgd *a) {
    if (a->p->refine.chain.steps) return 0;
    for (int i = 0; i < a->p->batch; i++)
        if (!a->image[i].wrong) return 0;
    return 1;
}

static int at_least_one(double v) { return v < 1 ? 1 : (int)v; }

static void ascend(Apgd *a, const int *target, const AttackPlan *plan, double radius, Rng key,
                   const Events *ev) {
    const int n = a->p->batch, least = at_least_one(0.06 * plan->steps),
              less = at_least_one(0.03 * plan->steps);
    const size_t dim = tensor_len(&a->p->net->act[0]), bytes = (size_t)n * dim * sizeof(real);
    int interval = at_least_one(0.22 * plan->steps), since = 0;
    for (int k = 0; k < plan->steps && !all_wrong(a) && !stop_asked(ev); k++) {
        #pragma omp parallel for
        for (int i = 0; i < n; i++) step_image(a, (size_t)i, dim, plan->l2, radius, k == 0);
        real *oldest = a->old;
        a->old = a->x;
        a->x = a->next;
        a->next = oldest;
        key.sub = (uint32_t)(k + 1);
        look(a, target, key, bytes);
        for (int i = 0; i < n; i++) note_image(a, (size_t)i, dim);
        if (++since < interval) continue;
        for (int i = 0; i < n; i++) check_image(a, (size_t)i, dim, since);
        interval = interval - less > least ? interval - less : least;
        since = 0;
    }
}

void apgd_run(Apgd *a, int nth, const AttackPlan *plan, double radius, Rng key, const Events *ev) {
    Probe *p = a->p;
    Backend *be = &p->dev->be;
    const size_t dim = tensor_len(&p->net->act[0]), bytes = (size_t)p->batch * dim * sizeof(real);
    const int *target = nth ? a->target : NULL;
    if (nth) choose_targets(a, nth, key);
    be->copy_out(p->dev, a->x0, p->x0, bytes);
    be->copy_out(p->dev, a->x, p->x, bytes);
    memcpy(a->old, a->x, bytes);
    look(a, target, key, bytes);
    begin(a, dim, 2 * radius);
    ascend(a, target, plan, 2 * radius, key, ev);
    be->copy_in(p->dev, p->x, a->found, bytes);
}
