// ref_muon.c - what Muon (net/muon.c) needs of a device, on the reference backend: products of
// matrices, and steps that keep the length of the weights.
#include "dev/ref.h"
#include "dev/sphere.h"

static real at(Factor f, int rows, int columns, int i, int j) {
    return f.p[f.transposed ? j * rows + i : i * columns + j];
}

static void matmul(Dev *dev, int count, int m, int n, int k, real scale, Factor a, Factor b,
                   int add, real *c) {
    (void)dev;
    const size_t step_a = (size_t)m * (size_t)k, step_b = (size_t)k * (size_t)n;
    #pragma omp parallel for collapse(2)
    for (int each = 0; each < count; each++)
        for (int i = 0; i < m; i++) {
            const Factor of_a = { a.p + (size_t)each * step_a, a.transposed },
                         of_b = { b.p + (size_t)each * step_b, b.transposed };
            real *row = c + ((size_t)each * (size_t)m + (size_t)i) * (size_t)n;
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int r = 0; r < k; r++)
                    sum += (double)at(of_a, m, k, i, r) * (double)at(of_b, k, n, r, j);
                row[j] = (real)((double)scale * sum + (add ? (double)row[j] : 0));
            }
        }
}

static void unit_length(Dev *dev, int count, size_t n, real *x) {
    (void)dev;
    #pragma omp parallel for
    for (int each = 0; each < count; each++) {
        real *p = x + (size_t)each * n;
        const double length = reals_distance(p, NULL, n);
        for (size_t i = 0; i < n && length > 0; i++) p[i] = (real)((double)p[i] / length);
    }
}

static void add_identity(Dev *dev, int count, int n, real scale, real shift, const real *x,
                         real *y) {
    (void)dev;
    const size_t size = (size_t)n * (size_t)n;
    for (size_t i = 0; i < (size_t)count * size; i++)
        y[i] = scale * x[i] + (i % size % ((size_t)n + 1) ? 0 : shift);
}

static void nesterov(Dev *dev, size_t n, const real *g, real *v, real *u, real momentum,
                     const StepState *now) {
    (void)dev;
    if (now->halt) return;
    #pragma omp parallel for if (n > MANY)
    for (size_t i = 0; i < n; i++) {
        v[i] = momentum * v[i] + g[i];
        u[i] = g[i] + momentum * v[i];
    }
}

static void sphere_step(Dev *dev, size_t n, real *w, const real *o, real rate,
                        const StepState *now) {
    (void)dev;
    if (now->halt) return;
    double ww = 0, wo = 0, oo = 0;
    for (size_t i = 0; i < n; i++) {
        ww += (double)w[i] * (double)w[i];
        wo += (double)w[i] * (double)o[i];
        oo += (double)o[i] * (double)o[i];
    }
    const SphereStep s = sphere_step_of((double)(rate * now->in.lr), ww, wo, oo);
    #pragma omp parallel for if (n > MANY)
    for (size_t i = 0; i < n; i++) w[i] = (real)(s.keep * (double)w[i] - s.move * (double)o[i]);
}

void ref_muon_table(Backend *be) {
    be->matmul = matmul;
    be->unit_length = unit_length;
    be->add_identity = add_identity;
    be->nesterov = nesterov;
    be->sphere_step = sphere_step;
}
