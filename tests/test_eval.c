// test_eval.c - metrics against scikit-learn's, attacks against foolbox's (both by
// tools/make_golden_eval.py) and AutoAttack's (tools/make_golden_apgd.py), and what evaluation is
// made of besides.
#include "golden.h"
#include "jem/robust.h"
#include "base/text.h"
#include "eval/eval.h"
#include "jem/metrics.h"
#include "data/ood_sets.h"
#include <stdio.h>

// Calls `check` with each name of the comma-separated metadata `key`.
static void each_case(St *st, const char *key, void (*check)(St *, const char *)) {
    const char *list = st_meta(st, key);
    assert_non_null(list);
    char text[256], *at = text, *name;
    snprintf(text, sizeof text, "%s", list);
    while ((name = strsep(&at, ","))) check(st, name);
}

static int *golden_ints(St *st, const char *a, const char *b, size_t *n) {
    double *v = golden_read(st, a, b, n);
    int *i = malloc((*n + 1) * sizeof *i);
    for (size_t k = 0; k < *n; k++) i[k] = (int)v[k];
    free(v);
    return i;
}

// ---- metrics -----------------------------------------------------------------------------------

static void check_scores(St *st, const char *name) {
    size_t n, len;
    int *y = golden_ints(st, name, ".y", &n);
    double *v = golden_read(st, name, ".z", &len);
    const int classes = (int)(len / n);
    float *z = malloc(len * sizeof *z);
    for (size_t i = 0; i < len; i++) z[i] = (float)v[i];
    double *want = golden_read(st, name, ".scores", NULL),
           *bins = golden_read(st, name, ".bins", NULL);
    int *counts = golden_ints(st, name, ".confusion", &len);

    Scores s;
    OK(scores_of(&s, z, y, n, classes, 1, err));
    const double found[] = { s.accuracy, s.top5, s.nll, s.brier, s.ece, s.mce, s.classwise };
    for (size_t i = 0; i < LEN(found); i++)
        if (!(fabs(found[i] - want[i]) <= 1e-9 * fmax(1, fabs(want[i]))))
            fail_msg("%s: score %zu is %.12g, expected %.12g", name, i, found[i], want[i]);
    for (int b = 0; b < ECE_BINS; b++) {
        const Bin *bin = &s.bin[b];
        assert_int_equal(bin->count, bins[3 * b]);
        assert_close(bin->confidence, bin->count * bins[3 * b + 1], 1e-9);
        assert_close(bin->right, bin->count * bins[3 * b + 2], 1e-9);
    }
    size_t *mine = malloc(len * sizeof *mine);
    confusion_of(mine, z, y, n, classes);
    for (size_t i = 0; i < len; i++) assert_int_equal(mine[i], counts[i]);
    if (want[7] > 0) {
        const double t = temperature_of(z, y, n, classes);
        assert_close(t, want[7], 1e-5 * want[7]);
        Scores with;
        OK(scores_of(&with, z, y, n, classes, t, err));
        assert_true(with.nll <= s.nll);
    }
    void *all[] = { y, v, z, want, bins, counts, mine };
    for (size_t i = 0; i < LEN(all); i++) free(all[i]);
}

static void scores_equal_scikit_learns(void **state) {
    (void)state;
    St st;
    golden_open(&st, "eval");
    each_case(&st, "cases", check_scores);
    st_close(&st);
}

static void check_detection(St *st, const char *name) {
    size_t n_in, n_out, sum[2] = { 0 };
    double *in = golden_read(st, name, ".in", &n_in), *out = golden_read(st, name, ".out", &n_out),
           *want = golden_read(st, name, ".detect", NULL);
    Detection d;
    detect(&d, in, n_in, out, n_out);
    const double found[] = { d.auroc, d.aupr, d.aupr_out, d.fpr95 };
    for (size_t i = 0; i < LEN(found); i++)
        if (!(fabs(found[i] - want[i]) <= 1e-12))
            fail_msg("%s: figure %zu is %.15g, expected %.15g", name, i, found[i], want[i]);
    for (int b = 0; b < HIST_BINS; b++) sum[0] += d.in[b], sum[1] += d.out[b];
    assert_int_equal(sum[0], n_in);
    assert_int_equal(sum[1], n_out);
    double area = 0;                                         // the thinned curve is still the curve
    for (int i = 1; i < d.n_roc; i++)
        area += (d.roc[i][0] - d.roc[i - 1][0]) * (d.roc[i][1] + d.roc[i - 1][1]) / 2;
    assert_close(area, d.auroc, 0.01);
    assert_close(d.roc[0][0] + d.roc[0][1], 0, 0);
    assert_close(d.roc[d.n_roc - 1][0] + d.roc[d.n_roc - 1][1], 2, 0);
    free(in);
    free(out);
    free(want);
}

static void detection_equals_scikit_learns(void **state) {
    (void)state;
    St st;
    golden_open(&st, "eval");
    each_case(&st, "detections", check_detection);
    st_close(&st);
}

static void a_roc_of_many_scores_keeps_to_its_points(void **state) {
    (void)state;
    enum { N = 5000 };
    static double in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = i, out[i] = i - 1000.5;
    Detection d;
    detect(&d, in, N, out, N);
    assert_true(d.n_roc > 100 && d.n_roc <= ROC_POINTS);
    assert_close(d.roc[d.n_roc - 1][1], 1, 0);
}

// ---- attacks -----------------------------------------------------------------------------------

typedef struct {
    St st;
    Dev dev;
    Net net;
    Probe probe;
    size_t n, dim;
    int *y;
    double *x, *u;
    uint8_t *pixels;
} Fixture;

static void set_up(Fixture *f, const char *device, const Refine *refine) {
    const NetSpec spec = { 10, 1, 3, 8, 10, NORM_BATCH, STEM_3X3 };
    size_t n;
    golden_open(&f->st, "eval");
    // a GPU's usual precision would be another classifier than PyTorch's
    const DevOpts o = { .threads = 1, .precision = PREC_FP32 };
    OK(dev_open(&f->dev, device, &o, NULL, err));
    OK(net_build(&f->net, &spec, err));
    OK(net_alloc(&f->net, &f->dev, err));
    golden_weights(&f->st, "w.", &f->net);
    f->y = golden_ints(&f->st, "y", "", &f->n);
    f->x = golden_read(&f->st, "x", "", &n);
    f->u = golden_read(&f->st, "u", "", NULL);
    f->dim = n / f->n;
    f->pixels = malloc(n);
    OK(st_read_raw(&f->st, st_find(&f->st, "x"), f->pixels, n, err));
    OK(probe_open(&f->probe, &f->net, (int)f->n, refine, err));
}

static void tear_down(Fixture *f) {
    probe_close(&f->probe);
    net_free(&f->net);
    dev_close(&f->dev);
    st_close(&f->st);
    void *all[] = { f->y, f->x, f->u, f->pixels };
    for (size_t i = 0; i < LEN(all); i++) free(all[i]);
}

// The images on the device, as a set of bytes.
static Bytes upload(Fixture *f) {
    Dev *dev = &f->dev;
    const Bytes b = { (int)f->n, 3, 8, dev->be.alloc(dev, f->n * f->dim, "images"),
                      dev->be.alloc(dev, f->n * sizeof(int), "labels") };
    dev->be.copy_in(dev, (void *)(uintptr_t)b.x, f->pixels, f->n * f->dim);
    dev->be.copy_in(dev, (void *)(uintptr_t)b.y, f->y, f->n * sizeof(int));
    return b;
}

static void let_go(Fixture *f, Bytes b) {
    f->dev.be.free(&f->dev, (void *)(uintptr_t)b.x);
    f->dev.be.free(&f->dev, (void *)(uintptr_t)b.y);
}

// Every image within radius (pixels in [0, 1]) of where it came from, and in the box, to 1e-6.
static void assert_within(Fixture *f, const real *x, int l2, double radius) {
    for (size_t i = 0; i < f->n; i++) {
        double size = 0;
        for (size_t k = i * f->dim; k < (i + 1) * f->dim; k++) {
            // of the images as the device has them
            const double d = fabs((double)x[k] - (double)(real)f->x[k]) / 2;
            size = l2 ? size + d * d : fmax(size, d);
            assert_true(fabs((double)x[k]) <= 1 + 1e-6);
        }
        assert_true((l2 ? sqrt(size) : size) <= radius + 1e-6);
    }
}

static int verdicts_that_differ(Fixture *f, const AttackPlan *a, double radius,
                                const int *success) {
    Probe *p = &f->probe;
    const size_t len = f->n * f->dim;
    const double scale = 2 * radius / (a->l2 ? sqrt((double)f->dim) : 1);
    real *x = malloc(len * sizeof *x);
    float *z = malloc(f->n * 10 * sizeof *z);
    for (size_t i = 0; i < len; i++) {
        const double start = a->method == METHOD_FGSM ? 0 : scale * f->u[i];
        x[i] = (real)fmin(1, fmax(-1, f->x[i] + start));
    }
    golden_upload(&f->dev, p->x0, f->x, len);
    f->dev.be.copy_in(&f->dev, p->x, x, len * sizeof *x);
    f->dev.be.copy_in(&f->dev, p->y, f->y, f->n * sizeof(int));
    attack_climb(p, p->x, a, radius, (Rng){ 0 }, NULL);
    probe_logits(p, p->x, (int)f->n, (Rng){ 0 }, z);
    f->dev.be.copy_out(&f->dev, x, p->x, len * sizeof *x);
    OK(dev_check(&f->dev, err));
    assert_within(f, x, a->l2, radius);
    int other = 0;
    for (size_t i = 0; i < f->n; i++) other += (argmax(z + 10 * i, 10) != f->y[i]) != success[i];
    free(x);
    free(z);
    return other;
}

static void compare_attacks(const char *device, int only_one_step) {
    static const char *const kinds[] = { "pgd-linf",  "pgd-l2",    "margin-linf",
                                         "margin-l2", "fgsm-linf", "fgsm-l2" };
    Fixture f;
    set_up(&f, device, &(Refine){ .draws = 1 });
    for (size_t k = only_one_step ? 4 : 0; k < LEN(kinds); k++) {
        size_t n, len;
        double *radius = golden_read(&f.st, kinds[k], ".radii", &n);
        int *success = golden_ints(&f.st, kinds[k], ".success", &len), broken = 0;
        const AttackPlan a = { .l2 = k % 2,
                               .method = k >= 4 ? METHOD_FGSM : METHOD_PGD,
                               .loss = k / 2 == 1 ? LOSS_MARGIN : LOSS_CE,
                               .steps = atoi(st_meta(&f.st, "steps")) };
        for (size_t r = only_one_step ? n - 1 : 0; r < n; r++) {
            const int other = verdicts_that_differ(&f, &a, radius[r], success + r * f.n);
            if (other > (int)f.n / 200)
                fail_msg("%s, %s within %g: %d verdicts differ", device, kinds[k], radius[r],
                         other);
        }
        for (size_t i = 0; i < len; i++) broken += success[i];
        assert_true(broken > 50 && broken < 700);               // foolbox had something to say
        free(radius);
        free(success);
    }
    tear_down(&f);
}

static void attacks_equal_foolboxs(void **state) {
    (void)state;
    const int cpu = has_device("cpu");
    if (cpu) compare_attacks("cpu", 0);
    if (has_device("cuda")) compare_attacks("cuda", 0);
    compare_attacks("ref", cpu);                            // slow: all of it where nothing else is
}

static const char *fast_device(void) { return has_device("cpu") ? "cpu" : "ref"; }

static void set_up_uneven(Fixture *f) {                     // its last batch is not full
    set_up(f, fast_device(), &(Refine){ .draws = 1 });
    probe_close(&f->probe);
    OK(probe_open(&f->probe, &f->net, 48, &(Refine){ .draws = 1 }, err));
}

static void a_curve_falls_and_restarts_do_not_raise_it(void **state) {
    (void)state;
    Fixture f;
    set_up_uneven(&f);
    const Bytes set = upload(&f);
    const AttackedImages of = { &set, f.y, (int)f.n };
    CurvePlan c = { .plan = { .steps = 4, .restarts = 1, .random_start = 1 },
                    .radius = { 0, 4 / 255.0, 8 / 255.0, 12 / 255.0 },
                    .n = 4,
                    .seed = 1 };
    AttackPlan *a = &c.plan;
    double once[4], often[4], fixed[4];
    OK(attack_curve(&f.probe, &of, &c, NULL, once, err));
    a->restarts = 4;
    OK(attack_curve(&f.probe, &of, &c, NULL, often, err));
    a->random_start = 0, a->step = 0.5;    // one step leaves the ball, and is projected to its rim
    OK(attack_curve(&f.probe, &of, &c, NULL, fixed, err));
    assert_close(once[0], 1, 0);
    for (int i = 0; i < 4; i++) {
        assert_true(often[i] <= once[i] + 1e-9);
        assert_true(
            !i || (once[i] <= once[i - 1] && often[i] <= often[i - 1] && fixed[i] <= fixed[i - 1]));
    }
    assert_true(once[3] < 0.9 && often[3] < once[3] && fixed[3] < 1);
    let_go(&f, set);
    tear_down(&f);
}

// Without noise all copies are the image itself; without a way to go they stay there.
// ---- APGD ---------------------------------------------------------------------------------------

static void losses_of_logits_match_finite_differences(void **state) {
    (void)state;
    enum { C = 7 };
    const double step = sizeof(real) == 8 ? 1e-6 : 1e-2;
    for (int target = -1; target < C; target++)
        for (int y = 0; y < C; y++) {
            real z[C] = { 1.25f, -0.5f, 3, 0.75f, 2, -2.25f, 0.25f }, dz[C], none[C];
            if (target == y) continue;
            const double loss = attack_loss(z, C, y, target, dz);
            // by hand: the highest is 3, the third and fourth 1.25 and 0.75
            if (target >= 0) assert_close(loss, ((double)z[target] - (double)z[y]) / 2, 1e-6);
            for (int c = 0; c < C; c++) {
                const real keep = z[c];
                z[c] = keep + (real)step;
                const double up = attack_loss(z, C, y, target, none);
                z[c] = keep - (real)step;
                const double down = attack_loss(z, C, y, target, none);
                z[c] = keep;
                assert_close((double)dz[c], (up - down) / (2 * step), 1e-3);
            }
        }
}

// Which of the 200 images the nth attack of APGD breaks from the golden starts.
static void break_images(Fixture *f, Apgd *a, int nth, const AttackPlan *plan, double radius,
                         int *broken) {
    Probe *p = &f->probe;
    const size_t len = f->n * f->dim;
    const double scale = 2 * radius / (plan->l2 ? sqrt((double)f->dim) : 1);
    real *x = malloc(len * sizeof *x);
    float *z = malloc(f->n * 10 * sizeof *z);
    for (size_t i = 0; i < len; i++) x[i] = (real)fmin(1, fmax(-1, f->x[i] + scale * f->u[i]));
    golden_upload(&f->dev, p->x0, f->x, len);
    f->dev.be.copy_in(&f->dev, p->x, x, len * sizeof *x);
    memcpy(a->y, f->y, f->n * sizeof(int));
    apgd_run(a, nth, plan, radius, (Rng){ 0 }, NULL);
    probe_logits(p, p->x, (int)f->n, (Rng){ 0 }, z);
    f->dev.be.copy_out(&f->dev, x, p->x, len * sizeof *x);
    OK(dev_check(&f->dev, err));
    assert_within(f, x, plan->l2, radius);
    for (size_t i = 0; i < f->n; i++) broken[i] |= argmax(z + 10 * i, 10) != f->y[i];
    free(x);
    free(z);
}

static void assert_like_autoattack(Fixture *f, St *st, const char *norm, const char *which,
                                   const int *broken) {
    char name[16];
    snprintf(name, sizeof name, "%s.%s", norm, which);
    size_t n;
    int *want = golden_ints(st, name, "", &n), other = 0, all = 0;
    assert_int_equal(n, f->n);
    for (size_t i = 0; i < f->n; i++) other += broken[i] != want[i], all += want[i];
    free(want);
    assert_true(all > (int)f->n / 5 && all < (int)f->n * 4 / 5);     // AutoAttack had both
    if (other > (int)f->n / 200) fail_msg("%s: %d of %d verdicts differ", name, other, (int)f->n);
}

// Of a path that followed other rules the highest losses would be other ones.
static void assert_losses_like_autoattack(Fixture *f, const Apgd *a, St *st, const char *norm,
                                          const char *which) {
    char name[16];
    snprintf(name, sizeof name, "%s.%s", norm, which);
    size_t n;
    double *want = golden_read(st, name, ".loss", &n);
    int other = 0;
    assert_int_equal(n, f->n);
    for (size_t i = 0; i < n; i++)
        other += !(fabs(a->image[i].best - want[i]) <= 0.005 * fmax(fabs(want[i]), 0.1));
    free(want);
    if (other > (int)n / 10) fail_msg("%s: %d of %d losses differ", name, other, (int)n);
}

// linf_targets, l2_targets: 0, the untargeted attack alone.
static void compare_apgd(const char *device, int linf_targets, int l2_targets) {
    static const char *const norms[] = { "linf", "l2" };
    Fixture f;
    St st;
    Apgd a;
    set_up(&f, device, &(Refine){ .draws = 1 });
    golden_open(&st, "apgd");
    OK(apgd_open(&a, &f.probe, err));
    int *broken = malloc(f.n * sizeof *broken);
    for (int k = 0; k < 2; k++) {
        const int targets = k ? l2_targets : linf_targets;
        double *radius = golden_read(&st, norms[k], ".radius", NULL);
        const AttackPlan plan = { .l2 = k,
                                  .method = METHOD_APGD,
                                  .steps = atoi(st_meta(&st, "steps")) };
        memset(broken, 0, f.n * sizeof *broken);
        break_images(&f, &a, 0, &plan, radius[0], broken);
        assert_like_autoattack(&f, &st, norms[k], "ce", broken);
        assert_losses_like_autoattack(&f, &a, &st, norms[k], "ce");
        for (int nth = 1; nth <= targets; nth++) {
            break_images(&f, &a, nth, &plan, radius[0], broken);
            if (nth == 3) assert_losses_like_autoattack(&f, &a, &st, norms[k], "target");
        }
        if (targets == APGD_TARGETS) assert_like_autoattack(&f, &st, norms[k], "all", broken);
        free(radius);
    }
    free(broken);
    apgd_close(&a);
    st_close(&st);
    tear_down(&f);
}

static void apgd_equals_autoattacks(void **state) {
    (void)state;
    const int cpu = has_device("cpu");
    if (cpu) compare_apgd("cpu", SANITIZED ? 0 : APGD_TARGETS, SANITIZED ? 0 : 3);    // slow: 3
    if (has_device("cuda")) compare_apgd("cuda", APGD_TARGETS, APGD_TARGETS);
    if (!cpu) compare_apgd("ref", 0, 0);                    // slower
}

static void apgd_has_at_most_nine_targets(void **state) {
    (void)state;
    assert_int_equal(apgd_targets(4), 3);
    assert_int_equal(apgd_targets(10), 9);
    assert_int_equal(apgd_targets(100), 9);
}

static void an_apgd_curve_falls_below_pgds(void **state) {
    (void)state;
    Fixture f;
    set_up_uneven(&f);
    const Bytes set = upload(&f);
    const AttackedImages of = { &set, f.y, (int)f.n };
    CurvePlan c = { .plan = { .steps = 10, .restarts = 1, .random_start = 1 },
                    .radius = { 0, 8 / 255.0 },
                    .n = 2,
                    .seed = 1 };
    double pgd[2], apgd[2], often[2];
    OK(attack_curve(&f.probe, &of, &c, NULL, pgd, err));
    c.plan.method = METHOD_APGD;
    OK(attack_curve(&f.probe, &of, &c, NULL, apgd, err));
    c.plan.restarts = 2;
    OK(attack_curve(&f.probe, &of, &c, NULL, often, err));
    assert_close(apgd[0], pgd[0], 0);
    assert_true(apgd[1] < apgd[0]);
    assert_true(apgd[1] <= pgd[1]);
    assert_true(often[1] <= apgd[1]);
    let_go(&f, set);
    tear_down(&f);
}

// ---- refinement ---------------------------------------------------------------------------------

static void refinement_that_does_nothing_changes_nothing(void **state) {
    (void)state;
    Fixture f;
    const Refine still = {
        .chain = { .steps = 2, .energy = { .a = 1 }, .move = { .inner = 1, .clip = 1 } }, .draws = 3
    };
    set_up(&f, fast_device(), &still);
    const size_t len = f.n * f.dim;
    float *z[2];
    real *g[2];
    golden_upload(&f.dev, f.probe.x0, f.x, len);
    f.dev.be.copy_in(&f.dev, f.probe.y, f.y, f.n * sizeof(int));
    for (int i = 0; i < 2; i++) {
        f.probe.refine.chain.steps = i ? 0 : 2;
        z[i] = malloc(f.n * 10 * sizeof(float));
        g[i] = malloc(len * sizeof(real));
        probe_logits(&f.probe, f.probe.x0, (int)f.n, (Rng){ 0 }, z[i]);
        const Tensor t = probe_gradient(&f.probe, f.probe.x0, LOSS_CE, (Rng){ 0 });
        f.dev.be.copy_out(&f.dev, g[i], t.p, len * sizeof(real));
    }
    for (size_t i = 0; i < f.n * 10; i++) assert_close(z[0][i], z[1][i], 1e-4);
    assert_less(distance(g[0], g[1], len), 1e-5);
    for (int i = 0; i < 2; i++) free(z[i]), free(g[i]);
    tear_down(&f);
}

// Steps up log p(x) raise it, and copies that noise sets apart are not all alike.
static void refinement_climbs_log_px(void **state) {
    (void)state;
    Fixture f;
    Refine r = { .chain = { .steps = 3,
                            .energy = { .a = 1 },
                            .move = { .inner = 1, .lr = (real)0.5, .clip = 1, .clamp = 1 } },
                 .draws = 2 };
    set_up(&f, fast_device(), &r);
    const size_t len = f.n * f.dim;
    float *z = malloc(f.n * 10 * sizeof *z), *noisy = malloc(f.n * 10 * sizeof *z);
    double before = 0, after = 0, apart = 0;
    golden_upload(&f.dev, f.probe.x0, f.x, len);
    probe_logits(&f.probe, f.probe.x0, (int)f.n, (Rng){ 0 }, z);
    f.probe.refine.noise = (real)0.1;
    probe_logits(&f.probe, f.probe.x0, (int)f.n, (Rng){ .seed = 1 }, noisy);
    for (size_t i = 0; i < f.n; i++) after += logsumexp(z + 10 * i, 10) / (double)f.n;
    for (size_t i = 0; i < f.n * 10; i++) apart += fabs((double)(z[i] - noisy[i]));
    f.probe.refine.chain.steps = 0;
    probe_logits(&f.probe, f.probe.x0, (int)f.n, (Rng){ 0 }, z);
    for (size_t i = 0; i < f.n; i++) before += logsumexp(z + 10 * i, 10) / (double)f.n;
    assert_true(after > before + 0.1);
    assert_true(apart > 1);
    free(z);
    free(noisy);
    tear_down(&f);
}

// The slope along the gradient is the gradient's length.
static void slopes_match_finite_differences(void **state) {
    (void)state;
    Fixture f;
    set_up(&f, fast_device(), &(Refine){ .draws = 1 });
    const size_t len = f.n * f.dim;
    const double h = 1e-3;
    double *slope = malloc(f.n * sizeof *slope), *moved = malloc(len * sizeof *moved);
    float *z[2] = { malloc(f.n * 10 * sizeof **z), malloc(f.n * 10 * sizeof **z) };
    golden_upload(&f.dev, f.probe.x0, f.x, len);
    probe_slopes(&f.probe, f.probe.x0, (int)f.n, z[0], slope);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < len; i++)
            moved[i] = f.x[i] - (side ? h : -h) * (double)f.probe.rows[i] / slope[i / f.dim];
        golden_upload(&f.dev, f.probe.x, moved, len);
        real *keep = malloc(len * sizeof *keep);               // rows is overwritten by the logits
        memcpy(keep, f.probe.rows, len * sizeof *keep);
        probe_logits(&f.probe, f.probe.x, (int)f.n, (Rng){ 0 }, z[side]);
        memcpy(f.probe.rows, keep, len * sizeof *keep);
        free(keep);
    }
    int close = 0;
    for (size_t i = 0; i < f.n; i++) {
        const double found =
            (logsumexp(z[1] + 10 * i, 10) - logsumexp(z[0] + 10 * i, 10)) / (2 * h);
        assert_true(slope[i] < 0);
        close += fabs(found + slope[i]) < 0.02 * fabs(slope[i]) + 5e-3;
    }
    assert_true(close > (int)f.n * 95 / 100);                  // some step over a kink
    free(slope);
    free(moved);
    free(z[0]);
    free(z[1]);
    tear_down(&f);
}

// ---- a limit ---------------------------------------------------------------------------------

// 60, 30 and 10 images of three classes, one class after the other, as folders are read.
static void a_draw_keeps_the_shares_of_the_classes(void **state) {
    (void)state;
    enum { N = 100 };
    uint8_t x[N];
    int y[N];
    const char *names[] = { "a", "b", "c" };
    const Set all = {
        .c = 1, .side = 1, .classes = 3, .class_name = names, .n = N, .x = x, .y = y
    };
    for (int i = 0; i < N; i++) x[i] = (uint8_t)i, y[i] = i < 60 ? 0 : i < 90 ? 1 : 2;
    Set s[4];
    const size_t wanted[] = { 10, 10, 10, 15 };
    int other = 0;
    for (int k = 0; k < 4; k++) OK(set_draw(&s[k], &all, wanted[k], k == 2 ? 8 : 7, err));
    static const int shares[] = { 6, 3, 1 };
    int count[3] = { 0 }, more[3] = { 0 }, kept = 0;
    for (int i = 0; i < 10; i++) {
        assert_true(i == 0 || s[0].x[i] > s[0].x[i - 1]);   // in the set's order, none twice
        assert_int_equal(s[0].y[i], y[s[0].x[i]]);
        assert_int_equal(s[0].x[i], s[1].x[i]);             // the same seed
        other += s[0].x[i] != s[2].x[i];
        count[s[0].y[i]]++;
        for (int j = 0; j < 15; j++) kept += s[3].x[j] == s[0].x[i];
    }
    for (int i = 0; i < 15; i++) more[s[3].y[i]]++;         // 9, 4.5, 1.5: the lower class first
    assert_memory_equal(count, shares, sizeof count);
    assert_true(more[0] == 9 && more[1] == 5 && more[2] == 1);
    assert_int_equal(kept, 10);                             // a larger draw holds the smaller one
    assert_true(other > 0);
    for (int k = 0; k < 4; k++) set_free(&s[k]);
    OK(set_draw(&s[0], &all, N + 1, 7, err));
    assert_int_equal(s[0].n, N);
    set_free(&s[0]);
}

// ---- sets from outside -------------------------------------------------------------------------

static void made_up_sets_are_what_they_say(void **state) {
    (void)state;
    const DataOpts o = { .side = 8, .channels = 3, .seed = 3 };
    Set in, s, again;
    OK(set_load(&in, "shapes", HALF_TEST, &o, err));
    const size_t dim = (size_t)(in.c * in.side * in.side);

    OK(ood_load(&s, "interp", &in, 0, &o, err));
    assert_int_equal(s.n, in.n - 100);
    set_free(&s);

    OK(ood_load(&s, "constant", &in, 50, &o, err));
    assert_int_equal(s.n, 50);
    for (size_t i = 0; i < s.n; i++)
        for (size_t k = 0; k < dim; k++)
            assert_int_equal(s.x[i * dim + k], s.x[i * dim + k / 64 * 64]);
    set_free(&s);

    static const char *const noise[] = { "uniform", "gaussian" };
    static const double sd[] = { 73.9, 62.0 };             // of 0 .. 255; of a normal cut at two sd
    for (size_t j = 0; j < 2; j++) {
        double sum = 0, square = 0;
        OK(ood_load(&s, noise[j], &in, 200, &o, err));
        OK(ood_load(&again, noise[j], &in, 20, &o, err));
        assert_memory_equal(s.x, again.x, 20 * dim);         // the same pictures whatever the limit
        for (size_t i = 0; i < 200 * dim; i++) sum += s.x[i], square += s.x[i] * s.x[i];
        const double mean = sum / (double)(200 * dim);
        assert_close(mean, 127.5, 1.5);
        assert_close(sqrt(square / (double)(200 * dim) - mean * mean), sd[j], 2);
        set_free(&s);
        set_free(&again);
    }
    set_free(&in);
}

static void interpolated_pictures_lie_in_the_middle(void **state) {
    (void)state;
    enum { N = 101 };
    uint8_t x[N];
    int y[N] = { 0 };
    Set in = { .name = "two", .c = 1, .side = 1, .classes = 1, .n = N, .x = x, .y = y }, s;
    for (int i = 0; i < N; i++) x[i] = (uint8_t)(2 * i);
    OK(ood_load(&s, "interp", &in, 0, &(DataOpts){ .seed = 1 }, err));
    assert_int_equal(s.n, 1);
    const Rng key = { .seed = 1, .stream = RNG_EVAL, .sub = 1 };
    assert_int_equal(s.x[0], (x[rng_perm(key, N, 0)] + x[rng_perm(key, N, 100)]) / 2);
    set_free(&s);
    Err err = { 0 };
    in.n = 100;
    assert_int_equal(ood_load(&s, "interp", &in, 0, &(DataOpts){ 0 }, &err), -1);
    assert_non_null(strstr(err.msg, "expected more than 100"));
}

// ---- the table ---------------------------------------------------------------------------------

// What is not evaluated again comes out of a file that may be a stranger's.
static void a_table_cannot_steer_the_terminal(void **state) {
    (void)state;
    OodSet set = { .name = "\abell", .n = 1 };
    EvalResults r = { .model = "\033[2J",
                      .net = "",
                      .data = "shapes",
                      .device = "",
                      .precision = "",
                      .ood = { .run = { .there = 1 }, .n_set = 1, .set = &set } };
    set.score[SCORE_LOGPX] = (OodScore){ .there = 1, .auroc = 0.5, .fpr95 = 1 };
    Config c;
    Err why = { 0 };
    config_defaults(&c);
    char *table = eval_table(&r, &c, &why);
    assert_non_null(table);
    assert_non_null(strstr(table, "?[2J"));
    assert_non_null(strstr(table, "?bell "));
    for (const char *p = table; *p; p++) assert_true(*p == '\n' || (*p >= 0x20 && *p < 0x7f));
    free(table);
}

static void columns_of_a_table_align_whatever_the_names(void **state) {
    (void)state;
    OodSet set[] = { { .name = "folder:/a/cats", .n = 1 },
                     { .name = "folder:/a/gr\u00f6\u00dfe \u5317\u4eac", .n = 1 },
                     { .name = "folder:/a/\u5317\u4eac\u5317\u4eac\u5317\u4eac\u5317\u4eac"
                               "\u5317\u4eac\u5317\u4eac",
                       .n = 1 } };
    EvalResults r = { .model = "m",
                      .net = "",
                      .data = "shapes",
                      .device = "",
                      .precision = "",
                      .ood = { .run = { .there = 1 }, .n_set = 3, .set = set } };
    for (int i = 0; i < 3; i++)
        set[i].score[SCORE_LOGPX] = (OodScore){ .there = 1, .auroc = 0.5, .fpr95 = 1 };
    Config c;
    Err why = { 0 };
    int rows = 0;
    config_defaults(&c);
    char *table = eval_table(&r, &c, &why), *rest = table;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *number = strstr(line, " 0.500");
        if (!number) continue;
        *number = 0;
        assert_int_equal(text_width(line), 40);
        rows++;
    }
    assert_int_equal(rows, 3);
    free(table);
}

static void a_table_has_fid_of_each_kind_and_class(void **state) {
    (void)state;
    double per_class[] = { 31.25, 28.5 };
    const char *names[] = { "cat", "\u5317\u4eac" };
    EvalResults r = { .model = "m",
                      .net = "",
                      .data = "shapes",
                      .device = "",
                      .precision = "",
                      .n_class = 2,
                      .class_name = names,
                      .fid = { .run = { .there = 1 },
                               .reference = "cifar10, 50000 training images",
                               .weights = "w.safetensors",
                               .sha256 = "1187e428" } };
    r.fid.buffer = (FidImages){ .there = 1, .figures.fid = 15.4, .confident = 0.9 };
    r.fid.fresh =
        (FidImages){ .there = 1, .figures.fid = 23.4, .confident = 1, .per_class = per_class };
    const char *lines[] = { "replay buffer: FID  ",
                            "fresh chains: FID  ",
                            "of the replay buffer the 90 % most confident images\n",
                            "fresh chains: FID of cat  ",
                            "31.25\n",
                            "28.50\n",
                            "reference: cifar10, 50000 training images\n",
                            "weights: w.safetensors\n",
                            "SHA-256 1187e428\n" };
    Config c;
    Err why = { 0 };
    config_defaults(&c);
    char *table = eval_table(&r, &c, &why);
    assert_non_null(table);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(table, lines[i])) fail_msg("no '%s' in\n%s", lines[i], table);
    assert_null(strstr(table, "replay buffer: FID of"));
    free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_equal_scikit_learns),
        cmocka_unit_test(detection_equals_scikit_learns),
        cmocka_unit_test(a_roc_of_many_scores_keeps_to_its_points),
        cmocka_unit_test(attacks_equal_foolboxs),
        cmocka_unit_test(a_curve_falls_and_restarts_do_not_raise_it),
        cmocka_unit_test(losses_of_logits_match_finite_differences),
        cmocka_unit_test(apgd_equals_autoattacks),
        cmocka_unit_test(apgd_has_at_most_nine_targets),
        cmocka_unit_test(an_apgd_curve_falls_below_pgds),
        cmocka_unit_test(refinement_that_does_nothing_changes_nothing),
        cmocka_unit_test(refinement_climbs_log_px),
        cmocka_unit_test(slopes_match_finite_differences),
        cmocka_unit_test(a_draw_keeps_the_shares_of_the_classes),
        cmocka_unit_test(columns_of_a_table_align_whatever_the_names),
        cmocka_unit_test(a_table_has_fid_of_each_kind_and_class),
        cmocka_unit_test(made_up_sets_are_what_they_say),
        cmocka_unit_test(interpolated_pictures_lie_in_the_middle),
        cmocka_unit_test(a_table_cannot_steer_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
