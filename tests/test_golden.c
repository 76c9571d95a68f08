// test_golden.c - the network against PyTorch: logits, every gradient by name, statistics, steps.
#include "golden.h"
#include "net/optim.h"

enum { BATCH = 6 };

typedef struct {
    Dev    dev;
    Net    net;
    St     st;
    real  *x, *sums;
    int   *y;
    size_t dim;
    double tolerance;
} Fixture;

static const char *device = "ref";

static void set_up(Fixture *f, const char *name) {
    OK(dev_open(&f->dev, device, &(DevOpts){ .threads = 2, .precision = PREC_FP32 }, NULL, err));
    golden_open(&f->st, "net");
    NetSpec s = { 10, 1, 3, 8, 10, strcmp(name, "none") ? NORM_BATCH : NORM_NONE, STEM_3X3 };
    if (!strcmp(name, "stem4")) s.channels = 1, s.side = 12, s.stem = STEM_4X4;
    OK(net_build(&f->net, &s, err));
    OK(net_alloc(&f->net, &f->dev, err));
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.w.", name);
    golden_weights(&f->st, prefix, &f->net);
    size_t n, ny;
    double *x = golden_read(&f->st, name, ".x", &n), *y = golden_read(&f->st, "y", "", &ny);
    int labels[BATCH];
    for (int i = 0; i < BATCH; i++) labels[i] = (int)y[i];
    f->dim = n;
    f->x = f->dev.be.alloc(&f->dev, n * sizeof(real), "images");
    f->y = f->dev.be.alloc(&f->dev, sizeof labels, "labels");
    f->sums = f->dev.be.alloc(&f->dev, N_SUM * sizeof(real), "sums");
    golden_upload(&f->dev, f->x, x, n);
    f->dev.be.copy_in(&f->dev, f->y, labels, sizeof labels);
    free(x), free(y);
    f->tolerance = sizeof(real) == 8 ? 1e-8 : 1e-4;
}

static void tear_down(Fixture *f) {
    f->dev.be.free(&f->dev, f->x);
    f->dev.be.free(&f->dev, f->y);
    f->dev.be.free(&f->dev, f->sums);
    net_free(&f->net);
    st_close(&f->st);
    dev_close(&f->dev);
}

static void *open_pass(Fixture *f, Pass *p, int mode) {
    OK(pass_open(p, &f->net, BATCH, mode, err));
    void *mem = f->dev.be.alloc(&f->dev, p->bytes, "a pass");
    pass_bind(p, mem);
    return mem;
}

// Compares a device array with golden `name`, relative to `size` (0: its own largest element).
static void compare(Fixture *f, const real *p, size_t n, const char *a, const char *b,
                    double size) {
    size_t count;
    double *v = golden_read(&f->st, a, b, &count);
    real *mine = malloc(n * sizeof *mine);
    f->dev.be.copy_out(&f->dev, mine, p, n * sizeof *mine);
    const size_t thin = count < n ? 7 : 1;
    assert_int_equal(count, (n + thin - 1) / thin);
    double scale = size;
    for (size_t i = 0; size == 0 && i < count; i++) scale = fmax(scale, fabs(v[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)mine[i * thin] - v[i]) <= f->tolerance * scale))
            fail_msg("%s: %s%s[%zu] is %.10g, PyTorch has %.10g", device, a, b, i * thin,
                     (double)mine[i * thin], v[i]);
    free(v), free(mine);
}

static double largest_gradient(Fixture *f) {
    real *g = malloc(f->net.n_w * sizeof *g);
    double most = 0;
    f->dev.be.copy_out(&f->dev, g, f->net.dw, f->net.n_w * sizeof *g);
    for (size_t i = 0; i < f->net.n_w; i++) most = fmax(most, fabs((double)g[i]));
    free(g);
    return most;
}

static void check_mode(const char *name, const char *mode_name, int stats) {
    Fixture f;
    Pass p;
    char at[64];
    set_up(&f, name);
    void *mem = open_pass(&f, &p, WANT_DX | WANT_DW | stats);
    Backend *be = &f.dev.be;
    pass_forward(&p, f.x);
    snprintf(at, sizeof at, "%s.%s.", name, mode_name);
    compare(&f, pass_logits(&p)->p, BATCH * 10, at, "logits", 0);

    net_zero_grad(&f.net);
    be->head(&f.dev, pass_logits(&p), NULL, (Energy){ .a = 1 }, 1, pass_logits_grad(&p), f.sums);
    pass_backward(&p);
    compare(&f, pass_input_grad(&p)->p, f.dim, at, "dx", 0);

    const Energy e = { .a = (real)atof(st_meta(&f.st, "a")),
                       .b = (real)atof(st_meta(&f.st, "b")),
                       .c = (real)atof(st_meta(&f.st, "c")) };
    net_zero_grad(&f.net);
    pass_forward(&p, f.x);
    be->head(&f.dev, pass_logits(&p), f.y, e, (real)(1.0 / BATCH), pass_logits_grad(&p), f.sums);
    pass_backward(&p);
    const double most = largest_gradient(&f);
    snprintf(at, sizeof at, "%s.%s.dw.", name, mode_name);
    for (int i = 0; i < f.net.n_par; i++) {
        const Param *par = &f.net.par[i];
        compare(&f, f.net.dw + par->off, par->len, at, par->name, most);
    }
    pass_close(&p);
    be->free(&f.dev, mem);
    tear_down(&f);
}

static void check_statistics(const char *name) {
    Fixture f;
    Pass p;
    char at[64];
    set_up(&f, name);
    void *mem = open_pass(&f, &p, MODE_TRAIN);
    pass_forward(&p, f.x);
    snprintf(at, sizeof at, "%s.stat.", name);
    assert_less(golden_stat_error(&f.st, at, &f.net), f.tolerance);
    pass_close(&p);
    f.dev.be.free(&f.dev, mem);
    tear_down(&f);
}

static void check_steps(const char *name, const char *which) {
    Fixture f;
    Pass p;
    set_up(&f, name);
    void *mem = open_pass(&f, &p, MODE_TRAIN);
    const int none = !strcmp(name, "none"), is_adam = !strcmp(which, ".adam");
    Optim o = { .kind = is_adam                   ? OPTIM_ADAM
                        : !strcmp(which, ".muon") ? OPTIM_MUON
                                                  : OPTIM_SGD,
                .sgd = { (real)0.9, (real)4e-4 },
                .adam = { (real)0.9, (real)0.999, (real)1e-8, (real)4e-4 },
                .muon_rate = 1 };
    OK(optim_open(&o, &f.net, err));
    StepState *now = f.dev.be.alloc(&f.dev, sizeof *now, "now");
    double *wanted = golden_read(&f.st, name, which, NULL);
    for (uint32_t k = 0; k < 6; k++) {
        const StepState host = { .in.step = k,
                                 .in.lr = (real)(is_adam ? 1e-3
                                                 : none  ? 0.01
                                                         : 0.1) };
        f.dev.be.copy_in(&f.dev, now, &host, sizeof host);
        net_zero_grad(&f.net);
        pass_forward(&p, f.x);
        real s[N_SUM];
        f.dev.be.head(&f.dev, pass_logits(&p), f.y, (Energy){ .a = 1, .b = -1 },
                      (real)(1.0 / BATCH), pass_logits_grad(&p), f.sums);
        f.dev.be.copy_out(&f.dev, s, f.sums, sizeof s);
        assert_close(((double)s[SUM_LSE] - (double)s[SUM_ZY]) / BATCH, wanted[k],
                     f.tolerance * fmax(1, wanted[k]));
        pass_backward(&p);
        optim_step(&o, &f.net, now);
    }
    free(wanted);
    optim_close(&o, &f.net);
    f.dev.be.free(&f.dev, now);
    pass_close(&p);
    f.dev.be.free(&f.dev, mem);
    tear_down(&f);
}

static const char *const devices[] = { "ref", "cpu", "cuda" };

static void each_device(void (*test)(void)) {
    for (size_t i = 0; i < LEN(devices); i++) {
        if (i && !has_device(devices[i])) continue;
        device = devices[i];
        test();
    }
}

static void all_modes(void) {
    check_mode("batch", "train", 0);
    check_mode("batch", "eval", STATS_RUNNING);
    check_mode("none", "train", 0);
    check_mode("stem4", "train", 0);
    check_mode("stem4", "eval", STATS_RUNNING);
}

static void logits_and_every_gradient_equal_pytorchs(void **state) {
    (void)state;
    each_device(all_modes);
}

static void all_statistics(void) {
    check_statistics("batch");
    check_statistics("stem4");
}

static void running_statistics_equal_pytorchs(void **state) {
    (void)state;
    each_device(all_statistics);
}

static void all_steps(void) {
    static const char *const nets[] = { "batch", "none", "stem4" };
    for (size_t i = 0; i < LEN(nets); i++) {
        check_steps(nets[i], ".sgd");
        check_steps(nets[i], ".adam");
        if (strcmp(nets[i], "none")) check_steps(nets[i], ".muon");
    }
}

static void losses_of_five_steps_equal_pytorchs(void **state) {
    (void)state;
    each_device(all_steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_every_gradient_equal_pytorchs),
        cmocka_unit_test(running_statistics_equal_pytorchs),
        cmocka_unit_test(losses_of_five_steps_equal_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
