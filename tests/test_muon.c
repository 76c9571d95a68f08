// test_muon.c - Muon's operations against their formulas, and what its steps do to a network.
#include "testing.h"
#include "dev/dense.h"
#include "dev/sphere.h"
#include "net/net.h"
#include "net/optim.h"

static void products_know_which_factor_is_transposed(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    // [1 2 3; 4 5 6] [1 0; 0 1; 1 1] = [4 5; 10 11], each factor as it is and stored by columns
    const real a[] = { 1, 2, 3, 4, 5, 6 }, at[] = { 1, 4, 2, 5, 3, 6 };
    const real b[] = { 1, 0, 0, 1, 1, 1 }, bt[] = { 1, 0, 1, 0, 1, 1 };
    const double wanted[] = { 4, 5, 10, 11 };
    for (int i = 0; i < 4; i++) {
        real c[] = { 1, 1, 1, 1 };
        const Factor left = { i & 1 ? at : a, i & 1 }, right = { i & 2 ? bt : b, i & 2 };
        dev.be.matmul(&dev, 1, 2, 2, 3, 1, left, right, 0, c);
        for (int k = 0; k < 4; k++) assert_close(c[k], wanted[k], 0);
        dev.be.matmul(&dev, 1, 2, 2, 3, 2, left, right, 1, c);
        for (int k = 0; k < 4; k++) assert_close(c[k], 3 * wanted[k], 0);
    }
    dev_close(&dev);
}

static void matrices_in_a_row_are_apart(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real x[] = { 3, 4, 0, 0, 5, 12 }, y[8];                          // three of two numbers
    dev.be.unit_length(&dev, 3, 2, x);
    const double unit[] = { 0.6, 0.8, 0, 0, 5 / 13.0, 12 / 13.0 };
    for (int i = 0; i < 6; i++) assert_close(x[i], unit[i], 1e-7);
    const real two[] = { 1, 2, 3, 4, 10, 20, 30, 40 };               // two of 2 x 2
    const double wanted[] = { 2.5, 4, 6, 8.5, 20.5, 40, 60, 80.5 };
    dev.be.add_identity(&dev, 2, 2, 2, (real)0.5, two, y);
    for (int i = 0; i < 8; i++) assert_close(y[i], wanted[i], 0);
    dev_close(&dev);
}

static void a_step_on_the_sphere_keeps_the_length_and_halts(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    StepState now = { .in.lr = (real)0.5 };
    real w[] = { 0, 5 };
    const real o[] = { 2, 0 }, none[] = { 0, 0 };
    dev.be.sphere_step(&dev, 2, w, o, (real)1.5, &now);          // 0.75 of its length aside
    assert_close(w[0], -5 * 0.6, 1e-6);                   // tan a = 3/4: sin a = 0.6, cos a = 0.8
    assert_close(w[1], 5 * 0.8, 1e-6);
    dev.be.sphere_step(&dev, 2, w, none, 1, &now);               // no direction, no step
    assert_close(w[0], -3, 1e-6);
    now.halt = HALT_LOSS;
    dev.be.sphere_step(&dev, 2, w, o, 1, &now);
    assert_close(w[0], -3, 1e-6);
    // weights that a step would take to zero stay
    assert_close(sphere_step_of(1, 25, 25, 25).keep, 1, 0);
    assert_close(sphere_step_of(1, 25, 25, 25).move, 0, 0);
    dev_close(&dev);
}

static void momentum_looks_ahead_and_halts(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    StepState now = { 0 };
    real v = 10, u = 0;
    const real g = 1;
    dev.be.nesterov(&dev, 1, &g, &v, &u, (real)0.5, &now);
    assert_close(v, 6, 0);                                // 0.5 * 10 + 1
    assert_close(u, 4, 0);                                // 1 + 0.5 * 6
    now.halt = HALT_LOSS;
    dev.be.nesterov(&dev, 1, &g, &v, &u, (real)0.5, &now);
    assert_close(v, 6, 0);
    dev_close(&dev);
}

// ---- a network ---------------------------------------------------------------------------------

static const NetSpec small = { 10, 1, 3, 8, 5, NORM_BATCH, STEM_3X3 };

typedef struct {
    Dev    dev;
    Net    net;
    real  *before, *after, *g;                           // weights and gradients, on the host
} Fixture;

// A network with random gradients.
static void open_net(Fixture *f, const char *device) {
    open_device(&f->dev, device);
    OK(net_build(&f->net, &small, err));
    OK(net_alloc(&f->net, &f->dev, err));
    OK(net_init(&f->net, 3, err));
    const size_t bytes = f->net.n_w * sizeof(real);
    f->before = malloc(bytes), f->after = malloc(bytes), f->g = malloc(bytes);
    fill_random(f->g, f->net.n_w, 5, -1, 1);
}

static void take_step(Fixture *f, Optim o, int halt) {
    Dev *dev = &f->dev;
    const size_t bytes = f->net.n_w * sizeof(real);
    OK(optim_open(&o, &f->net, err));
    dev->be.copy_out(dev, f->before, f->net.w, bytes);
    dev->be.copy_in(dev, f->net.dw, f->g, bytes);
    StepState *now = dev->be.alloc(dev, sizeof *now, "now");
    dev->be.copy_in(dev, now, &(StepState){ .in.lr = (real)0.05, .halt = halt }, sizeof *now);
    optim_step(&o, &f->net, now);
    dev->be.copy_out(dev, f->after, f->net.w, bytes);
    OK(dev_check(dev, err));
    dev->be.free(dev, now);
    optim_close(&o, &f->net);
}

static void set_up(Fixture *f, const char *device, Optim o, int halt) {
    open_net(f, device);
    take_step(f, o, halt);
}

static void tear_down(Fixture *f) {
    free(f->before), free(f->after), free(f->g);
    net_free(&f->net);
    dev_close(&f->dev);
}

static Optim muon(double rate) {                         // of the lr in set_up
    return (Optim){ .kind = OPTIM_MUON,
                    .sgd = { (real)0.9, (real)4e-4 },
                    .muon_rate = (real)(rate / 0.05) };
}

// A rate so high that the old weights do not matter: what is left is the step, as long as the
// filter. Its singular values are alike, and it lies along -g: g step' is symmetric and negative,
// but for `error` in the products.
static void check_step(const Param *p, const real *before, const real *step, const real *g,
                       double error) {
    const size_t n = p->len, m = (size_t)p->dim[0], k = n / m, fewer = m < k ? m : k;
    const double length = reals_distance(before, NULL, n), alike = length / sqrt((double)fewer);
    assert_close(reals_distance(step, NULL, n) / length, 1, 1e-5);
    double *a = malloc(n * sizeof *a), *values = malloc(fewer * sizeof *values), trace = 0;
    for (size_t i = 0; i < n; i++) a[i] = (double)step[i];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j <= i; j++) {
            double here = 0, there = 0, sizes[2] = { 0 };
            for (size_t r = 0; r < k; r++) {
                here += (double)g[i * k + r] * a[j * k + r];
                there += (double)g[j * k + r] * a[i * k + r];
                sizes[0] += fabs((double)g[i * k + r] * a[j * k + r]);
                sizes[1] += fabs((double)g[j * k + r] * a[i * k + r]);
            }
            assert_close(here, there, error * (sizes[0] + sizes[1]));
            trace += i == j ? here : 0;
        }
    assert_less(trace, 0);
    OK(dense_singular(a, m, k, values, err));
    for (size_t i = 0; i < fewer; i++)
        if (!(values[i] > 0.65 * alike && values[i] < 1.35 * alike))
            fail_msg("%s: a singular value of %g, where all would be %g", p->name, values[i],
                     alike);
    free(a), free(values);
}

static void steps_of_filters_are_orthogonal_along_the_gradient(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double error;
    } devices[] = { { "ref", 1e-3 }, { "cpu", 1e-3 }, { "cuda", 5e-3 } }; // in fp32, fp32, tf32
    for (size_t d = 0; d < LEN(devices); d++) {
        if (d && !has_device(devices[d].name)) continue;
        Fixture f;
        int filters = 0;
        set_up(&f, devices[d].name, muon(1e7), 0);
        for (int i = muon_filter(&f.net, 0); i < f.net.n_par; i = muon_filter(&f.net, i + 1)) {
            const Param *p = &f.net.par[i];
            check_step(p, f.before + p->off, f.after + p->off, f.g + p->off, devices[d].error);
            filters++;
        }
        assert_int_equal(filters, 8);                    // three blocks of two, two shortcuts
        tear_down(&f);
    }
}

// x [m][n], mirrored in the hyperplane at right angles to a random vector: in its rows' space, or
// its columns'. Its own inverse.
static void mirror(double *x, size_t m, size_t n, int rows) {
    const size_t k = rows ? n : m, others = rows ? m : n, step = rows ? 1 : n, next = rows ? n : 1;
    real *u = malloc(k * sizeof *u);
    double length2 = 0;
    fill_random(u, k, 8, -1, 1);
    for (size_t i = 0; i < k; i++) length2 += (double)u[i] * (double)u[i];
    for (size_t j = 0; j < others; j++) {
        double dot = 0;
        for (size_t i = 0; i < k; i++) dot += (double)u[i] * x[j * next + i * step];
        for (size_t i = 0; i < k; i++) x[j * next + i * step] -= 2 * dot / length2 * (double)u[i];
    }
    free(u);
}

static double five_rounds(double v) {
    for (int i = 0; i < 5; i++) v = 3.4445 * v - 4.775 * pow(v, 3) + 2.0315 * pow(v, 5);
    return v;
}

// Gradients whose singular values, over four decades, and vectors are known: so are the steps'.
static void small_singular_values_are_lifted_as_five_rounds_do(void **state) {
    (void)state;
    static const char *const devices[] = { "ref", "cpu", "cuda" };
    for (size_t d = 0; d < LEN(devices); d++) {
        if (d && !has_device(devices[d])) continue;
        Fixture f;
        open_net(&f, devices[d]);
        const Param *p = &f.net.par[muon_filter(&f.net, 0)];
        const size_t m = (size_t)p->dim[0], n = p->len / m;
        double *x = calloc(p->len, sizeof *x), wanted[64], all2 = 0, length2 = 0;
        assert_true(m < n && m <= LEN(wanted));
        for (size_t i = 0; i < m; i++) {
            x[i * n + i] = wanted[i] = pow(10, -4.0 * (double)i / (double)(m - 1));
            all2 += wanted[i] * wanted[i];
        }
        for (size_t i = 0; i < m; i++) {
            wanted[i] = five_rounds(wanted[i] / sqrt(all2));
            length2 += wanted[i] * wanted[i];
        }
        for (int rows = 0; rows < 2; rows++) mirror(x, m, n, rows);
        for (size_t i = 0; i < p->len; i++) f.g[p->off + i] = (real)x[i];
        take_step(&f, muon(1e7), 0);
        const double length = reals_distance(f.before + p->off, NULL, p->len);
        for (size_t i = 0; i < p->len; i++) x[i] = (double)f.after[p->off + i] / length;
        for (int rows = 2; rows-- > 0;) mirror(x, m, n, rows);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                assert_close(x[i * n + j], i == j ? -wanted[i] / sqrt(length2) : 0,
                             d == 2 ? 0.01 : 1e-4);
        free(x);
        tear_down(&f);
    }
}

static void other_parameters_learn_by_sgd(void **state) {
    (void)state;
    Fixture a, b;
    Optim sgd = muon(0.1);
    sgd.kind = OPTIM_SGD;
    set_up(&a, "ref", muon(0.1), 0);
    set_up(&b, "ref", sgd, 0);
    int others = 0;
    for (int i = 0; i < a.net.n_par; i++) {
        const Param *p = &a.net.par[i];
        const int same = !memcmp(a.after + p->off, b.after + p->off, p->len * sizeof(real));
        assert_int_equal(same, muon_filter(&a.net, i) != i);
        others += same;
    }
    assert_int_equal(others, a.net.n_par - 8);
    tear_down(&a), tear_down(&b);
}

static void a_halted_step_changes_nothing(void **state) {
    (void)state;
    Fixture f;
    set_up(&f, "ref", muon(0.1), HALT_LOSS);
    assert_memory_equal(f.before, f.after, f.net.n_w * sizeof(real));
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_know_which_factor_is_transposed),
        cmocka_unit_test(matrices_in_a_row_are_apart),
        cmocka_unit_test(a_step_on_the_sphere_keeps_the_length_and_halts),
        cmocka_unit_test(momentum_looks_ahead_and_halts),
        cmocka_unit_test(steps_of_filters_are_orthogonal_along_the_gradient),
        cmocka_unit_test(small_singular_values_are_lifted_as_five_rounds_do),
        cmocka_unit_test(other_parameters_learn_by_sgd),
        cmocka_unit_test(a_halted_step_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
