// test_ops.c - every op of the reference backend against finite differences and closed forms.
#include "testing.h"

static const double tolerance = sizeof(real) == 8 ? 1e-7 : 2e-2;
static const double h = sizeof(real) == 8 ? 1e-6 : 5e-3;

typedef struct {
    Dev     dev;
    Conv    conv;
    Filter  filter;
    Norm    norm;
    Tensor  x, r, y, dx, dy;
    real   *w, *b, *dw, *db, *weight;       // `weight`: the loss is sum(weight * y)
    real   *run, *stats;
    int     is_norm, with_r, pool;
} Case;

static real *reals(size_t n, uint32_t which) {
    real *p = malloc((n + 1) * sizeof *p);
    fill_random(p, n, which, -1, 1);
    return p;
}

static double loss(Case *c) {
    Backend *be = &c->dev.be;
    real *keep = NULL;
    size_t n = tensor_len(&c->x);
    if (c->with_r) {                        // norm_fwd adds r to x in place: work on a copy
        keep = malloc(n * sizeof *keep);
        memcpy(keep, c->x.p, n * sizeof *keep);
    }
    if (c->pool) be->pool_fwd(&c->dev, &c->x, &c->y);
    else if (c->is_norm) be->norm_fwd(&c->dev, &c->norm, &c->x, c->with_r ? &c->r : NULL, &c->y);
    else be->conv_fwd(&c->dev, &c->conv, &c->x, c->b, &c->y);
    double s = 0;
    for (size_t i = 0; i < tensor_len(&c->y); i++)
        s += (double)(c->weight[i] * ((real *)c->y.p)[i]);
    if (keep) memcpy(c->x.p, keep, n * sizeof *keep);
    free(keep);
    return s;
}

// The largest error of gradient g of v over some probes, in units of the gradient's norm.
static double difference(Case *c, real *v, const real *g, size_t n) {
    double worst = 0, size = 0;
    for (size_t i = 0; i < n; i++) size += (double)(g[i] * g[i]);
    const size_t step = n > 60 ? n / 60 : 1;
    for (size_t i = 0; i < n; i += step) {
        const real old = v[i];
        v[i] = old + (real)h;
        double up = loss(c);
        v[i] = old - (real)h;
        double down = loss(c);
        v[i] = old;
        worst = fmax(worst, fabs((up - down) / (2 * h) - (double)g[i]));
    }
    return worst / (sqrt(size / (double)n) + 1e-12);
}

static void set_up(Case *c, int n, int cin, int side, int cout, int oside) {
    open_device(&c->dev, "ref");
    c->x = (Tensor){ n, cin, side, side, reals((size_t)n * cin * side * side, 1) };
    c->r = (Tensor){ n, cin, side, side, reals((size_t)n * cin * side * side, 2) };
    c->dx = (Tensor){ n, cin, side, side, reals((size_t)n * cin * side * side, 3) };
    c->y = (Tensor){ n, cout, oside, oside, reals((size_t)n * cout * oside * oside, 4) };
    c->weight = reals(tensor_len(&c->y), 5);
    c->dy = c->y;
    c->dy.p = c->weight;
}

static void tear_down(Case *c) {
    void *all[] = { c->x.p, c->r.p, c->dx.p, c->y.p, c->weight, c->w,
                    c->b,   c->dw,  c->db,   c->run, c->stats };
    for (size_t i = 0; i < LEN(all); i++) free(all[i]);
    dev_close(&c->dev);
}

static void check_conv(int size, int stride, int pad, int cin, int cout, int side, int n) {
    Case c = { 0 };
    set_up(&c, n, cin, side, cout, (side + 2 * pad - size) / stride + 1);
    const size_t nw = (size_t)cout * cin * size * size;
    c.w = reals(nw, 6), c.b = reals((size_t)cout, 7), c.dw = reals(nw, 8),
    c.db = reals((size_t)cout, 9);
    c.filter = (Filter){ cout, cin, size, size, c.w, NULL };
    c.conv = (Conv){ .x = c.x,
                     .y = c.y,
                     .size = size,
                     .size_w = size,
                     .stride = stride,
                     .pad = pad,
                     .pad_w = pad,
                     .want = WANT_DX | WANT_DW,
                     .filter = &c.filter };
    c.dev.be.conv_open(&c.dev, &c.conv);
    memset(c.dw, 0, nw * sizeof(real));
    memset(c.db, 0, (size_t)cout * sizeof(real));
    c.dev.be.conv_dx(&c.dev, &c.conv, &c.dy, &c.dx);
    c.dev.be.conv_dw(&c.dev, &c.conv, &c.x, &c.dy, c.dw, c.db);
    assert_less(difference(&c, c.x.p, c.dx.p, tensor_len(&c.x)), tolerance);
    assert_less(difference(&c, c.w, c.dw, nw), tolerance);
    assert_less(difference(&c, c.b, c.db, (size_t)cout), tolerance);
    real before = c.dw[0], twice = 2 * before;
    c.dev.be.conv_dw(&c.dev, &c.conv, &c.x, &c.dy, c.dw, NULL);       // added, not stored
    assert_close(c.dw[0], twice, 1e-4 * fabs((double)twice) + 1e-9);
    tear_down(&c);
}

static void gradients_of_convolutions_match_finite_differences(void **state) {
    (void)state;
    check_conv(3, 1, 1, 3, 5, 6, 2);
    check_conv(3, 2, 1, 4, 3, 7, 3);
    check_conv(1, 1, 0, 3, 4, 5, 1);
    check_conv(1, 2, 0, 2, 3, 6, 2);
    check_conv(4, 2, 1, 1, 3, 8, 2);
    check_conv(1, 1, 0, 16, 10, 1, 3);
}

static void a_convolution_of_ones_counts_its_taps(void **state) {
    (void)state;
    Case c = { 0 };
    set_up(&c, 1, 1, 4, 1, 4);
    c.w = reals(9, 1), c.b = reals(1, 2);
    for (int i = 0; i < 16; i++) ((real *)c.x.p)[i] = 1;
    for (int i = 0; i < 9; i++) c.w[i] = 1;
    c.b[0] = 100;
    c.filter = (Filter){ 1, 1, 3, 3, c.w, NULL };
    c.conv = (Conv){ .x = c.x,
                     .y = c.y,
                     .size = 3,
                     .size_w = 3,
                     .stride = 1,
                     .pad = 1,
                     .pad_w = 1,
                     .filter = &c.filter };
    c.dev.be.conv_fwd(&c.dev, &c.conv, &c.x, c.b, &c.y);
    const real *y = c.y.p;
    assert_true(y[0] == 104 && y[1] == 106 && y[5] == 109 && y[15] == 104);
    tear_down(&c);
}

static void check_norm(int batch_stats, int with_r, int normalise, int add_dx) {
    Case c = { .is_norm = 1, .with_r = with_r };
    set_up(&c, 3, 4, 5, 4, 5);
    c.w = reals(4, 6), c.b = reals(4, 7), c.dw = calloc(4, sizeof(real)),
    c.db = calloc(4, sizeof(real));
    c.run = reals(8, 10), c.stats = reals(8, 11);
    for (int i = 4; i < 8; i++) c.run[i] += 2;
    c.norm = (Norm){ .eps = (real)1e-5,
                     .momentum = (real)0.1,
                     .leak = (real)0.2,
                     .batch_stats = batch_stats,
                     .add_dx = add_dx,
                     .gamma = normalise ? c.w : NULL,
                     .beta = normalise ? c.b : NULL,
                     .run_mean = c.run,
                     .run_var = c.run + 4,
                     .mean = c.stats,
                     .rstd = c.stats + 4 };
    const size_t n = tensor_len(&c.x);
    real *sum = malloc(n * sizeof *sum), *old = malloc(n * sizeof *old);
    loss(&c);                                                  // leaves mean and rstd of x + r
    Tensor s = c.x;
    s.p = sum;
    for (size_t i = 0; i < n; i++) sum[i] = ((real *)c.x.p)[i] + (with_r ? ((real *)c.r.p)[i] : 0);
    memcpy(old, c.dx.p, n * sizeof *old);
    c.dev.be.norm_bwd(&c.dev, &c.norm, &s, &c.dy, &c.dx, normalise ? c.dw : NULL,
                      normalise ? c.db : NULL);
    for (size_t i = 0; add_dx && i < n; i++) ((real *)c.dx.p)[i] -= old[i];
    assert_less(difference(&c, c.x.p, c.dx.p, n), tolerance * (add_dx ? 2 : 1));
    if (with_r) assert_less(difference(&c, c.r.p, c.dx.p, n), tolerance * (add_dx ? 2 : 1));
    if (normalise) assert_less(difference(&c, c.w, c.dw, 4), tolerance);
    if (normalise) assert_less(difference(&c, c.b, c.db, 4), tolerance);
    free(sum);
    free(old);
    tear_down(&c);
}

static void gradients_of_norms_match_finite_differences_in_every_mode(void **state) {
    (void)state;
    for (int mode = 0; mode < 16; mode++)
        check_norm(mode & 1, mode >> 1 & 1, mode >> 2 & 1, mode >> 3 & 1);
}

static void running_statistics_move_as_pytorchs(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real v[4] = { 1, 2, 3, 6 }, y[4], run[2] = { 10, 20 }, st[2], gamma = 1, beta = 0;
    Tensor x = { 4, 1, 1, 1, v }, ty = { 4, 1, 1, 1, y };
    Norm o = { .eps = 0,
               .momentum = (real)0.25,
               .leak = (real)0.2,
               .batch_stats = 1,
               .update = 1,
               .gamma = &gamma,
               .beta = &beta,
               .run_mean = run,
               .run_var = run + 1,
               .mean = st,
               .rstd = st + 1 };
    dev.be.norm_fwd(&dev, &o, &x, NULL, &ty);
    assert_close(st[0], 3, 1e-6);                              // biased variance 3.5, unbiased 14/3
    assert_close(st[1], 1 / sqrt(3.5), 1e-6);
    assert_close(run[0], 0.75 * 10 + 0.25 * 3, 1e-5);
    assert_close(run[1], 0.75 * 20 + 0.25 * 14 / 3, 1e-5);
    assert_close(y[3], 3 / sqrt(3.5), 1e-6);
    assert_close(y[0], -0.2 * 2 / sqrt(3.5), 1e-6);
    dev_close(&dev);
}

static void gradients_of_pooling_match_finite_differences(void **state) {
    (void)state;
    Case c = { .pool = 1 };
    set_up(&c, 2, 3, 4, 3, 1);
    c.dev.be.pool_bwd(&c.dev, &c.dy, &c.dx);
    assert_less(difference(&c, c.x.p, c.dx.p, tensor_len(&c.x)), tolerance);
    tear_down(&c);
}

static double head_loss(Dev *dev, const Tensor *z, const int *y, Energy e, double scale) {
    real s[N_SUM];
    dev->be.head(dev, z, y, e, 1, NULL, s);
    return scale * (double)(e.a * s[SUM_LSE] + e.b * s[SUM_ZY] + e.c * s[SUM_LSE2] +
                            (e.d < 0 ? -e.d : e.d) * s[SUM_SOFTPLUS]);
}

static void gradients_of_every_energy_match_finite_differences(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real v[30], g[30], s[N_SUM];
    const int y[3] = { 4, 0, 9 };
    const Energy all[] = {
        { .a = 1, .b = -1 },
        { .a = 1 },
        { .b = 1 },
        { .c = 1 },
        { .d = 1 },
        { .d = -2 },
        { .a = 2, .b = -1, .c = (real)0.3, .d = (real)-0.7 },
    };
    for (size_t k = 0; k < LEN(all); k++) {
        fill_random(v, 30, 20, -2, 2);
        Tensor z = { 3, 10, 1, 1, v }, dz = { 3, 10, 1, 1, g };
        dev.be.head(&dev, &z, y, all[k], (real)0.5, &dz, s);
        for (int i = 0; i < 30; i++) {
            const real old = v[i];
            v[i] = old + (real)h;
            double up = head_loss(&dev, &z, y, all[k], 0.5);
            v[i] = old - (real)h;
            double down = head_loss(&dev, &z, y, all[k], 0.5);
            v[i] = old;
            assert_close(g[i], (up - down) / (2 * h), tolerance);
        }
    }
    dev_close(&dev);
}

static void energies_change_while_chains_are_behind(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    StepState now = { 0 };
    const Energy plain = { .a = 2, .b = -1, .c = 3 }, waiting = { .a = 1, .b = (real)-0.5, .c = 3 },
                 both = { .a = 2, .b = -1, .c = 3, &now, 1, (real)-0.5 };
    const int y[3] = { 4, 0, 9 };
    real v[30], g[2][30], s[N_SUM];
    fill_random(v, 30, 20, -2, 2);
    Tensor z = { 3, 10, 1, 1, v }, dz[2] = { { 3, 10, 1, 1, g[0] }, { 3, 10, 1, 1, g[1] } };
    for (now.over_margin = 0; now.over_margin < 2; now.over_margin++) {
        dev.be.head(&dev, &z, y, now.over_margin ? waiting : plain, 1, &dz[0], s);
        dev.be.head(&dev, &z, y, both, 1, &dz[1], s);
        assert_memory_equal(g[0], g[1], sizeof g[0]);
    }
    dev_close(&dev);
}

static void large_logits_do_not_overflow(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real v[4] = { 1000, 0, -1000, -5000 }, g[4], s[N_SUM];
    const int y[2] = { 0, 1 };
    Tensor z = { 2, 2, 1, 1, v }, dz = { 2, 2, 1, 1, g };
    dev.be.head(&dev, &z, y, (Energy){ .a = 1, .b = -1 }, 1, &dz, s);
    assert_close(s[SUM_LSE], 0, 1e-3);
    assert_close(s[SUM_ZY], -4000, 1e-3);
    assert_close(s[SUM_RIGHT], 1, 0);
    assert_close(g[0], 0, 1e-6);
    assert_close(g[2], 1, 1e-6);
    dev_close(&dev);
}

static void margins_lead_from_the_label_to_the_best_other_class(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    // right by far, wrong, the label first with a tie among the others
    real v[9] = { 5, 1, 2, 1, 9, 0, -3, -7, -7 }, g[9];
    const real want[9] = { -1, 0, 1, -1, 1, 0, -1, 1, 0 };
    const int y[3] = { 0, 0, 0 };
    Tensor z = { 3, 3, 1, 1, v }, dz = { 3, 3, 1, 1, g };
    dev.be.margin(&dev, &z, y, &dz);
    for (int i = 0; i < 9; i++) assert_close(g[i], want[i], 0);
    dev_close(&dev);
}

static void inner_moves_stop_at_the_border(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real x[] = { (real)0.9, (real)-0.5, (real)1.3 }, g[] = { 3, (real)-0.1, (real)-0.5 };
    Tensor tx = { 1, 3, 1, 1, x }, tg = { 1, 3, 1, 1, g };
    Move m = { .inner = 5, .lr = (real)0.2, .clip = 1, .clamp = 1 };
    dev.be.langevin(&dev, &tx, &tg, m, (Rng){ .seed = 1 }, NULL);
    assert_close(x[0], 1, 0);                                  // clipped gradient, clamped pixel
    assert_close(x[1], -0.6, 1e-6);                            // 5 * 0.2 * -0.1 further down
    assert_close(x[2], 0.6, 1e-6);                       // 1.3 - 0.1, clamped to 1, four more moves
    dev_close(&dev);
}

static void the_closed_form_of_the_inner_loop_equals_the_loop(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    enum { N = 4000 };
    real *x = malloc(N * sizeof *x), *g = malloc(N * sizeof *g), *loop = malloc(N * sizeof *loop);
    for (int inner = 1; inner <= 20; inner += 3)
        for (int walls = 0; walls < 2; walls++) {
            fill_random(x, N, 30, -1.5, 1.5);
            fill_random(g, N, 31, -2, 2);
            memcpy(loop, x, N * sizeof *x);
            const real wall = walls ? 1 : INFINITY;
            for (int k = 0; k < inner; k++)
                for (int i = 0; i < N; i++) {
                    real d = (real)0.05 * (real)fmax(-1, fmin(1, (double)g[i]));
                    loop[i] = (real)fmax(-(double)wall, fmin((double)wall, (double)(loop[i] + d)));
                }
            Tensor tx = { 1, N, 1, 1, x }, tg = { 1, N, 1, 1, g };
            Move m = { .inner = inner, .lr = (real)0.05, .clip = 1, .clamp = walls };
            dev.be.langevin(&dev, &tx, &tg, m, (Rng){ .seed = 1 }, NULL);
            for (int i = 0; i < N; i++)
                assert_close(x[i], loop[i], sizeof(real) == 8 ? 1e-14 : 4e-6);
        }
    free(x), free(g), free(loop);
    dev_close(&dev);
}

static void sgd_follows_its_formula_and_halts(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real w = 2, g = 1, v = 10;
    StepState now = { .in.lr = (real)0.5 };
    dev.be.sgd(&dev, 1, &w, &g, &v, (Sgd){ (real)0.9, (real)0.25 }, &now);
    assert_close(v, 10.5, 1e-6);                               // 0.9 * 10 + (1 + 0.25 * 2)
    assert_close(w, -3.25, 1e-6);
    now.halt = HALT_LOSS;
    dev.be.sgd(&dev, 1, &w, &g, &v, (Sgd){ (real)0.9, (real)0.25 }, &now);
    assert_close(w, -3.25, 1e-6);
    dev_close(&dev);
}

static void ascending_goes_as_far_as_the_radius_says(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real w[] = { 2, -1, 0, 3 }, g[] = { 2, 3, 5, 0 }, keep[4];
    dev.be.sam_perturb(&dev, 4, w, g, (real)0.5, keep);              // |w g| = |(4, -3, 0, 0)| = 5
    const double wanted[] = { 2 + 0.5 * 4 * 2 / 5, -1 + 0.5 * 1 * 3 / 5, 0, 3 },
                 before[] = { 2, -1, 0, 3 };
    for (int i = 0; i < 4; i++) {
        assert_close(w[i], wanted[i], 1e-6);
        assert_close(keep[i], before[i], 0);
    }
    real none[] = { 0, 0, 0, 0 };                               // flat ground: it stays where it is
    dev.be.sam_perturb(&dev, 4, w, none, (real)0.5, keep);
    for (int i = 0; i < 4; i++) assert_close(w[i], wanted[i], 1e-6);
    dev_close(&dev);
}

static void adams_first_step_has_the_length_of_the_rate(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real w[2] = { 0, 0 }, g[2] = { 5, (real)-0.001 }, m[2] = { 0 }, v[2] = { 0 };
    StepState now = { .in.lr = (real)0.01 };
    dev.be.adam(&dev, 2, w, g, m, v, (Adam){ (real)0.9, (real)0.999, (real)1e-8, 0 }, &now);
    assert_close(w[0], -0.01, 1e-6);
    assert_close(w[1], 0.01, 1e-6);
    dev_close(&dev);
}

static void attacks_stay_in_their_ball_and_box(void **state) {
    (void)state;
    enum { N = 5, D = 48 };
    Dev dev;
    open_device(&dev, "ref");
    real x0[N * D], x[N * D], g[N * D];
    for (int l2 = 0; l2 < 2; l2++) {
        const Attack a = { .l2 = l2,
                           .radius = (real)(l2 ? 0.9 : 0.06),
                           .step = (real)(l2 ? 0.5 : 0.05) };
        fill_random(x0, N * D, 50, -1, 1);
        Tensor tx = { N, 3, 4, 4, x }, tg = { N, 3, 4, 4, g };
        dev.be.attack_start(&dev, &tx, x0, a, (Rng){ .seed = 3 }, NULL);
        for (uint32_t step = 0; step < 5; step++) {
            double most = 0;
            for (int k = 0; k < N; k++) {
                double size = 0;
                for (int i = k * D; i < (k + 1) * D; i++) {
                    const double d = fabs((double)x[i] - (double)x0[i]);
                    size = l2 ? size + d * d : fmax(size, d);
                    assert_true(x[i] >= -1 && x[i] <= 1);
                }
                most = fmax(most, l2 ? sqrt(size) : size);
            }
            assert_true(most <= (double)a.radius + 1e-6);
            if (step == 4) assert_true(most >= 0.5 * (double)a.radius);
            fill_random(g, N * D, 60 + step, -1, 1);
            dev.be.attack_move(&dev, &tx, &tg, x0, a);
        }
    }
    real v = (real)0.3, d = -2, from = (real)0.3;           // one step down a slope: sign, not size
    Tensor tv = { 1, 1, 1, 1, &v }, td = { 1, 1, 1, 1, &d };
    dev.be.attack_move(&dev, &tv, &td, &from, (Attack){ .radius = (real)0.1, .step = (real)0.02 });
    assert_close(v, 0.28, 1e-6);
    dev_close(&dev);
}

static void the_loss_of_telling_real_from_sampled_is_summed_up(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real z[4] = { 1, 1, 0, 0 }, sums[N_SUMS * N_SUM] = { 0 }, ring[N_ROW];   // LSE: 1 + ln 2, ln 2
    StepState now = { 0 };
    const Watch w = { .n = { 1, 1, 1 },
                      .n_batch = 2,
                      .e = { { .d = -1 }, { .d = 2 } },
                      .sampled = 1,
                      .loss_limit = 1000,
                      .n_ring = 1 };
    for (int i = 0; i < 2; i++) {
        const Tensor row = { 1, 2, 1, 1, z + 2 * i };
        dev.be.head(&dev, &row, NULL, w.e[i], 1, NULL, sums + i * N_SUM);
    }
    dev.be.watch(&dev, &w, sums, &now, ring);
    // -log s(1 + ln 2) - 2 log(1 - s(ln 2)), s(ln 2) being 2/3
    assert_close(ring[ROW_LOSS], log1p(exp(-1) / 2) + 2 * log(3), 1e-6);
    dev_close(&dev);
}

// ---- the divergence check ---------------------------------------------------------------------

static void a_gradient_that_is_not_finite_halts(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    real g[3] = { 1, 2, 3 };
    StepState now = { 0 };
    dev.be.check_finite(&dev, 3, g, &now);
    assert_int_equal(now.halt, HALT_NO);
    g[1] = NAN;
    dev.be.check_finite(&dev, 3, g, &now);
    assert_int_equal(now.halt, HALT_GRAD);
    dev_close(&dev);
}

typedef struct {
    Dev  dev;
    Watch w;
    StepState now;
    real sums[N_SUMS * N_SUM], ring[2 * N_ROW], *row;
} Watched;

// Cross-entropy 3 - 1 of the labelled batch, f(x) = 3, f(x_q) = -5.
static void watch_open(Watched *t) {
    *t = (Watched){ .w = { .n = { 1, 1, 1 },
                           .n_batch = 2,
                           .e = { { .a = 1, .b = -1 }, { .a = 1 } },
                           .label = 0,
                           .px = 0,
                           .sampled = 1,
                           .loss_limit = 1000,
                           .gap_limit = 10,
                           .n_ring = 2 },
                    .now = { .in.step = 51 } };
    t->row = t->ring + N_ROW;                                   // of step 51
    t->sums[SUM_LSE] = 3, t->sums[SUM_ZY] = 1, t->sums[N_SUM + SUM_LSE] = -5;
    open_device(&t->dev, "ref");
}

static void watch_step_of(Watched *t) {
    t->dev.be.watch(&t->dev, &t->w, t->sums, &t->now, t->ring);
}

static void a_step_is_logged_with_its_loss_and_gap(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_NO);
    assert_close(t.now.gap, 0.02 * 8, 1e-6);
    assert_close(t.row[ROW_LOSS], 3 - 1 - 5, 1e-6);
    assert_close(t.row[ROW_CE], 2, 1e-6);
    assert_true(t.row[ROW_CLIMB] == 0);
    assert_int_equal(t.now.over_margin, 0);
    dev_close(&t.dev);
}

static void beyond_the_margin_the_loss_has_other_weights(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    t.w.px_margin = (real)7.5;                                  // f(x) - f(x_q) is 8
    watch_step_of(&t);
    assert_int_equal(t.now.over_margin, 1);
    t.w.e[0].now = t.w.e[1].now = &t.now, t.w.e[0].a_over = 1, t.w.e[0].b_over = -2;
    watch_step_of(&t);
    assert_close(t.row[ROW_LOSS], 3 - 2, 1e-6);
    t.w.px_margin = (real)8.5;
    watch_step_of(&t);
    assert_int_equal(t.now.over_margin, 0);
    dev_close(&t.dev);
}

static void climb_is_what_a_move_gains_of_what_its_slope_promises(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    t.w.up = (Energy){ .a = 1, .b = 3 }, t.w.after = CHAIN_AFTER;
    t.sums[CHAIN_BEFORE * N_SUM + SUM_LSE] = 7, t.sums[CHAIN_AFTER * N_SUM + SUM_LSE] = 9;
    t.sums[CHAIN_BEFORE * N_SUM + SUM_ZY] = 1, t.sums[CHAIN_AFTER * N_SUM + SUM_ZY] = 2;
    t.sums[CHAIN_SLOPE * N_SUM] = -4, t.sums[CHAIN_SLOPE * N_SUM + 1] = 16;
    watch_step_of(&t);
    assert_close(t.row[ROW_CLIMB], 0.25, 1e-6);                 // 2 + 3 * 1 of 20
    dev_close(&t.dev);
}

// Chains gain 5 of the 20 that their gradient predicts.
static void watch_climb_of_a_quarter(Watched *t, uint32_t step, real mean) {
    watch_open(t);
    t->w.up = (Energy){ .a = 1 }, t->w.after = CHAIN_AFTER, t->w.climb_limit = (real)0.5;
    t->sums[CHAIN_AFTER * N_SUM + SUM_LSE] = 5, t->sums[CHAIN_SLOPE * N_SUM + 1] = 20;
    t->now.in.step = step, t->now.climb = mean;
}

static void the_mean_of_climb_is_that_of_all_steps_then_of_some_100(void **state) {
    (void)state;
    Watched t;
    watch_climb_of_a_quarter(&t, 0, 0);
    watch_step_of(&t);
    assert_true(t.now.climb == (real)0.25 && t.now.halt == HALT_NO);
    t.now.in.step = 1;
    t.sums[CHAIN_AFTER * N_SUM + SUM_LSE] = 20;
    watch_step_of(&t);
    assert_close(t.now.climb, (0.25 + 1) / 2, 1e-6);
    t.now.in.step = 2;
    watch_step_of(&t);
    assert_close(t.now.climb, (0.25 + 1 + 1) / 3, 1e-6);
    for (uint32_t step = 99; step < 1000; step += 800) {
        t.now.in.step = step, t.now.climb = (real)0.5;
        watch_step_of(&t);
        assert_close(t.now.climb, 0.5 + 0.5 / 100, 1e-6);
    }
    dev_close(&t.dev);
}

// Cross-entropy, gap and climb are not compared with what they were before p(x) began, nor with
// their limits while chains catch up.
static void while_px_settles_the_loss_alone_halts(void **state) {
    (void)state;
    Watched t;
    watch_climb_of_a_quarter(&t, 300, 0);
    t.w.ce_limit = 1, t.w.gap_limit = 1;
    t.now.in.px_began = 300, t.now.ce = t.now.ce_low = (real)0.2;
    watch_step_of(&t);
    assert_true(t.now.climb == (real)0.25 && t.now.ce == 2 && t.now.ce_low == 2);
    t.now.in.step = 300 + 499, t.sums[SUM_ZY] = -99, t.now.gap = 9; // cross-entropy: now 102
    watch_step_of(&t);
    assert_close(t.now.ce, 0.98 * 2 + 0.02 * 102, 1e-5);
    assert_true(t.now.ce_low == t.now.ce && t.now.halt == HALT_NO);
    t.now.in.step = 300 + 500, t.sums[SUM_ZY] = 1, t.now.gap = 0;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_CLIMB);
    t.now.halt = HALT_NO, t.now.climb = 1, t.now.ce_low = t.now.ce - 5;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_CE);
    t.now.halt = HALT_NO, t.now.climb = 1, t.now.ce_low = t.now.ce, t.now.gap = 9;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_GAP);
    t.now.halt = HALT_NO, t.now.in.step = 300 + 1, t.sums[SUM_ZY] = -1e9F;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_LOSS);
    dev_close(&t.dev);
}

static void climb_below_its_limit_halts(void **state) {
    (void)state;
    const struct {
        uint32_t step;
        double   mean, limit;
        int      halt;
    } cases[] = {
        { 100, 0.51, 0.5, HALT_NO },                            // becomes 0.5074
        { 100, 0.50, 0.5, HALT_CLIMB },                         // 0.4975
        { 99, 0.50, 0.5, HALT_NO },                             // too early
        { 100, 0.50, 0, HALT_NO },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        Watched t;
        watch_climb_of_a_quarter(&t, cases[i].step, (real)cases[i].mean);
        t.w.climb_limit = (real)cases[i].limit;
        watch_step_of(&t);
        assert_close(t.now.climb, 0.99 * cases[i].mean + 0.01 * 0.25, 1e-6);
        assert_int_equal(t.now.halt, cases[i].halt);
        dev_close(&t.dev);
    }
}

static void climb_that_is_no_number_halts(void **state) {
    (void)state;
    Watched t;
    watch_climb_of_a_quarter(&t, 100, 1);
    t.sums[CHAIN_AFTER * N_SUM + SUM_LSE] = (real)NAN;
    watch_step_of(&t);
    assert_true(isfinite(t.row[ROW_LOSS]));
    assert_int_equal(t.now.halt, HALT_CLIMB);
    dev_close(&t.dev);
}

static void without_chains_there_is_no_climb(void **state) {
    (void)state;
    Watched t;
    watch_climb_of_a_quarter(&t, 100, 0);
    t.w.n_batch = 1, t.w.sampled = -1;
    watch_step_of(&t);
    assert_true(t.now.climb == 0 && t.now.halt == HALT_NO);
    dev_close(&t.dev);
}

static void a_dot_product_is_summed(void **state) {
    (void)state;
    Dev dev;
    real sum = 0;
    open_device(&dev, "ref");
    dev.be.dot(&dev, 3, (real[]){ 1, -2, 3 }, (real[]){ 4, 5, 6 }, &sum);
    assert_close(sum, 12, 1e-6);
    dev_close(&dev);
}

static void a_gap_beyond_its_limit_halts(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    t.sums[SUM_LSE] = 900;                                     // finite, and far from its samples
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_GAP);
    dev_close(&t.dev);
}

static void a_classifier_that_forgets_halts(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    t.w.ce_limit = 1;
    t.now.ce = (real)0.5, t.now.ce_low = (real)0.4;
    t.sums[SUM_LSE] = 1, t.sums[SUM_ZY] = (real)0.9, t.sums[N_SUM + SUM_LSE] = 1;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_NO);
    assert_close(t.now.ce, 0.98 * 0.5 + 0.02 * 0.1, 1e-6);
    assert_close(t.now.ce_low, 0.4, 1e-6);
    t.now.ce_low = (real)0.495;
    watch_step_of(&t);
    assert_true(t.now.ce_low == t.now.ce && t.now.halt == HALT_NO);
    t.sums[SUM_LSE] = 3;
    for (int i = 0; i < 40; i++) watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_NO);
    for (int i = 0; i < 15; i++) watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_CE);
    dev_close(&t.dev);
}

static void a_loss_that_is_not_finite_halts(void **state) {
    (void)state;
    Watched t;
    watch_open(&t);
    t.sums[SUM_LSE] = NAN;
    watch_step_of(&t);
    assert_int_equal(t.now.halt, HALT_LOSS);
    dev_close(&t.dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_convolutions_match_finite_differences),
        cmocka_unit_test(a_convolution_of_ones_counts_its_taps),
        cmocka_unit_test(gradients_of_norms_match_finite_differences_in_every_mode),
        cmocka_unit_test(running_statistics_move_as_pytorchs),
        cmocka_unit_test(gradients_of_pooling_match_finite_differences),
        cmocka_unit_test(gradients_of_every_energy_match_finite_differences),
        cmocka_unit_test(energies_change_while_chains_are_behind),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(margins_lead_from_the_label_to_the_best_other_class),
        cmocka_unit_test(inner_moves_stop_at_the_border),
        cmocka_unit_test(the_closed_form_of_the_inner_loop_equals_the_loop),
        cmocka_unit_test(sgd_follows_its_formula_and_halts),
        cmocka_unit_test(ascending_goes_as_far_as_the_radius_says),
        cmocka_unit_test(adams_first_step_has_the_length_of_the_rate),
        cmocka_unit_test(attacks_stay_in_their_ball_and_box),
        cmocka_unit_test(the_loss_of_telling_real_from_sampled_is_summed_up),
        cmocka_unit_test(a_gradient_that_is_not_finite_halts),
        cmocka_unit_test(a_step_is_logged_with_its_loss_and_gap),
        cmocka_unit_test(beyond_the_margin_the_loss_has_other_weights),
        cmocka_unit_test(climb_is_what_a_move_gains_of_what_its_slope_promises),
        cmocka_unit_test(a_dot_product_is_summed),
        cmocka_unit_test(a_gap_beyond_its_limit_halts),
        cmocka_unit_test(a_classifier_that_forgets_halts),
        cmocka_unit_test(the_mean_of_climb_is_that_of_all_steps_then_of_some_100),
        cmocka_unit_test(while_px_settles_the_loss_alone_halts),
        cmocka_unit_test(climb_below_its_limit_halts),
        cmocka_unit_test(climb_that_is_no_number_halts),
        cmocka_unit_test(without_chains_there_is_no_climb),
        cmocka_unit_test(a_loss_that_is_not_finite_halts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
