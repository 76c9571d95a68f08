// muon.c - Muon: every filter of a convolution as a matrix, each step of which is orthogonal.
//
// A gradient has a few directions that dominate it; a step of SGD follows these, and the others
// hardly learn. Muon replaces the step of a filter [out][in * size * size] by the nearest matrix
// whose singular values are all alike, so that it goes equally far in every direction. The filter
// keeps its length, which would otherwise grow, so the rate is the angle of a step; it is
// meaningless in a block's first filter, because of batch norm, and fixed by design in the others.
// Other parameters, the network's first filter among them, learn by SGD. The matrix is found by
// Newton's and Schulz's iteration, in five rounds of products.
//
// K. Jordan and others, Muon: An optimizer for hidden layers in neural networks, 2024.
#include "net/optim.h"

typedef struct {
    int m, n;
} Shape; // of a filter as a matrix

static Shape shape_of(const Param *p) {
    return (Shape){ p->dim[0], (int)(p->len / (size_t)p->dim[0]) };
}

static size_t area(Shape s) { return (size_t)s.m * (size_t)s.n; }
static int shorter(Shape s) { return s.m < s.n ? s.m : s.n; }

int muon_filter(const Net *net, int from) {
    int k = from;
    while (k < net->n_par && (net->par[k].rank != 4 || k == net->op[0].w)) k++;
    return k;
}

// The next filter of the same shape.
static int alike(const Net *net, int from) {
    const Shape s = shape_of(&net->par[from]);
    int k = muon_filter(net, from + 1);
    for (; k < net->n_par; k = muon_filter(net, k + 1)) {
        const Shape other = shape_of(&net->par[k]);
        if (other.m == s.m && other.n == s.n) break;
    }
    return k;
}

static int first_of_shape(const Net *net, int k) {
    for (int i = muon_filter(net, 0); i < k; i = muon_filter(net, i + 1))
        if (alike(net, i) == k) return 0;
    return 1;
}

static int count_alike(const Net *net, int k) {
    int n = 0;
    for (; k < net->n_par; k = alike(net, k)) n++;
    return n;
}

// Steps before and after a product; four square matrices.
static size_t room_of(Shape s, int count) {
    return (size_t)count * (2 * area(s) + 4 * (size_t)shorter(s) * (size_t)shorter(s));
}

size_t muon_room(const Net *net) {
    size_t most = 1;
    for (int k = muon_filter(net, 0); k < net->n_par; k = muon_filter(net, k + 1)) {
        const size_t room = room_of(shape_of(&net->par[k]), count_alike(net, k));
        if (room > most) most = room;
    }
    return most;
}

// c = scale a b (+ c), of square matrices that commute.
static void product(Dev *dev, int count, int k, real scale, const real *a, const real *b, int add,
                    real *c) {
    dev->be.matmul(dev, count, k, k, k, scale, (Factor){ a, 0 }, (Factor){ b, 0 }, add, c);
}

// What `rounds` rounds multiply x by, from gram = x x^T alone, which is clobbered. A round takes
// each singular value v to a v + b v^3 + c v^5, so x to q x, and gram to q gram q, where
// q = a I + b gram + c gram^2. a, b and c lift small values fast; after five rounds all that were
// not tiny are from 0.68 to 1.13.
static real *factor_of(Dev *dev, int count, int k, int rounds, real *gram) {
    const real a = (real)3.4445, b = (real)-4.775, c = (real)2.0315;
    const size_t n = (size_t)count * (size_t)k * (size_t)k;
    real *all = gram + n, *later = all + n, *other = later + n;
    for (int i = 0; i < rounds; i++) {
        real *q = i ? later : all;                   // the first alone is all that there is
        dev->be.add_identity(dev, count, k, b, a, gram, q);
        product(dev, count, k, c, gram, gram, 1, q);
        if (i) {
            product(dev, count, k, 1, q, all, 0, other);
            real *last = all;
            all = other;
            other = last;
        }
        if (i + 1 == rounds) break;
        product(dev, count, k, 1, q, gram, 0, other);
        product(dev, count, k, 1, other, q, 0, gram);
    }
    return all;
}

// Brings the singular values of each x close to 1: they are between 0 and 1 once its length is 1.
// The rounds work on the Gram matrix of the shorter side, since the other is up to nine times as
// long; what is small drowns in its round-off after some, so it is computed again on the way.
// Returns where the results are, in x or y; both are clobbered.
static real *orthogonalise(Dev *dev, Shape s, int count, real *x, real *y, real *square) {
    static const int rounds[] = { 3, 2 };
    const int tall = s.m > s.n, k = shorter(s), n = tall ? s.m : s.n;
    dev->be.unit_length(dev, count, area(s), x);
    for (int i = 0; i < 2; i++) {
        const Factor of_x = { x, 0 }, of_xt = { x, 1 };
        dev->be.matmul(dev, count, k, k, n, 1, tall ? of_xt : of_x, tall ? of_x : of_xt, 0, square);
        const Factor by = { factor_of(dev, count, k, rounds[i], square), 0 };
        dev->be.matmul(dev, count, s.m, s.n, k, 1, tall ? of_x : by, tall ? by : of_x, 0, y);
        real *other = x;
        x = y;
        y = other;
    }
    return x;
}

// All filters of one shape, of which k is the first.
static void step_shape(Optim *o, Net *net, int first, const StepState *now) {
    Dev *dev = net->dev;
    const Shape s = shape_of(&net->par[first]);
    const int count = count_alike(net, first);
    real *x = o->room, *y = x + (size_t)count * area(s), *square = y + (size_t)count * area(s);
    real *at = x;
    for (int k = first; k < net->n_par; k = alike(net, k), at += area(s)) {
        const size_t off = net->par[k].off;
        dev->be.nesterov(dev, area(s), net->dw + off, o->v + off, at, o->sgd.momentum, now);
    }
    at = orthogonalise(dev, s, count, x, y, square);
    for (int k = first; k < net->n_par; k = alike(net, k), at += area(s))
        dev->be.sphere_step(dev, area(s), net->w + net->par[k].off, at, o->muon_rate, now);
}

void muon_step(Optim *o, Net *net, const StepState *now) {
    for (int k = muon_filter(net, 0); k < net->n_par; k = muon_filter(net, k + 1))
        if (first_of_shape(net, k)) step_shape(o, net, k, now);
}
