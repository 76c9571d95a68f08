// test_cpu.c - the cpu device against the reference device, operation by operation. A tensor in
// bf16 may differ from the reference by these shares of its length:
//     5e-3   direct convolutions, norms, pooling: each number is rounded once (2e-3), and weights
//     2e-2   Winograd: its transformed tiles and weights are rounded (1e-2 was measured)
#include "cpu_pair.h"
#include "window_cases.h"
#include "dev/cpu.h"

// ---- convolutions -------------------------------------------------------------------------------

// how: the kernels' name, or NULL for any.
static void conv_agrees(Pair *t, const Case *k, const char *how, double tol) {
    char what[128];
    snprintf(what, sizeof what, "conv n%d %d-%d %dx%d k%d s%d p%d plain %d%d", k->n, k->in, k->out,
             k->h, k->w, k->size, k->stride, k->pad, k->x_plain, k->y_plain);
    ConvRun r;
    if (cpu_of(&t->dev[1])->scratch)    // other convolutions left something there: be it NaN
        memset(cpu_of(&t->dev[1])->scratch, 0xff, t->dev[1].scratch_bytes);
    conv_run(t, k, &r);
    for (int d = 0; how && d < 3; d++) assert_string_equal(r.c[1].how[d], how);
    same_tensor(t, r.y, k->y_plain, tol, what);
    same_tensor(t, r.y0, k->y_plain, tol, what);
    same_tensor(t, r.dx, k->x_plain, tol, what);
    same(r.dw[0], r.dw[1], r.n_w, tol, what);
    same(r.db[0], r.db[1], (size_t)k->out, tol, what);
    conv_end(t, r.c, r.f);
}

static void convolutions_of_odd_shapes_agree(void **state) {
    for (int at = 0; at < 7 * 7 * 4; at++) {
        const Case k = odd_case(at, at / 28, at / 4 % 7);
        conv_agrees(*state, &k, NULL, tol_of(*state, 2e-5, 2e-2));
    }
}

static void convolutions_of_real_shapes_agree(void **state) {
    static const Case real_ones[] = {
        { 3, 16, 16, 32, 32, 3, 1, 1, 0, 0 }, { 2, 16, 32, 28, 28, 3, 1, 1, 0, 0 },
        { 4, 32, 32, 16, 16, 3, 2, 1, 0, 0 }, { 4, 64, 64, 8, 8, 3, 1, 1, 0, 0 },
        { 4, 64, 128, 16, 16, 1, 2, 0, 0, 0 }, { 2, 32, 64, 14, 14, 3, 1, 1, 0, 0 },
        { 3, 160, 160, 12, 12, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(real_ones); i++)
        conv_agrees(*state, &real_ones[i], NULL, tol_of(*state, 1e-4, 2e-2));
}

// As deep in a network of small images: strides step over the whole picture, and windows reach past
// both of its borders.
static void convolutions_of_tiny_images_agree(void **state) {
    static const struct {
        int size, stride, pad;
    } kind[] = { { 1, 1, 0 }, { 1, 2, 0 }, { 3, 1, 1 }, { 3, 2, 1 } };
    for (int at = 0; at < 3 * 3 * 4; at++) {
        const int side = 1 + at / 12, in = 16 << at / 4 % 3, out = at % 4 == 3 ? in : 2 * in;
        const Case k = {
            3, in, out, side, side, kind[at % 4].size, kind[at % 4].stride, kind[at % 4].pad, 0, 0
        };
        conv_agrees(*state, &k, NULL, tol_of(*state, 2e-5, 2e-2));
    }
}

// Every size of picture up to three tiles, one image and several, odd and even numbers of blocks,
// more tiles than are transformed together; batches large enough that sums are cut into pieces,
// with sanitizers of few channels alone.
static void winograd_agrees(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const int channels[] = { 16, 32, 48, 160 };
    int at = 0;
    for (int stride = 1; stride <= 2; stride++)
        for (int side = 1; side <= 12 * stride; side += stride)
            for (int i = 0; i < 4; i++, at++) {
                const int large = side == 12 && (!SANITIZED || i < 2);
                const int many = large ? 21 : 1 + at % 3, wide = (at * 5) % 9 + 1;
                const Case k = {
                    many, channels[i], channels[at / 4 % 3], side, wide, 3, stride, 1, 0, 0
                };
                told(&t->dev[1], t->half, 1 + at % 2, &k, "winograd");
                conv_agrees(t, &k, "own:winograd", tol_of(t, 2e-5, 2e-2));
                dev_close(&t->dev[1]);
            }
    t->dev[1] = usual;
}

static void winograd_leaves_the_rest_to_others(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const Case rest[] = {
        { 2, 20, 32, 8, 8, 3, 1, 1, 0, 0 }, { 2, 32, 20, 8, 8, 3, 1, 1, 0, 0 },
        { 2, 32, 32, 8, 8, 3, 1, 0, 0, 0 }, { 2, 32, 32, 9, 9, 3, 3, 1, 0, 0 },
        { 2, 32, 32, 8, 8, 1, 1, 0, 0, 0 }, { 2, 16, 16, 8, 8, 5, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(rest); i++) {
        real w[1] = { 0 };
        Filter f = { rest[i].out, rest[i].in, rest[i].size, rest[i].size, w, NULL };
        Conv c = conv_of(&rest[i], &f, WANT_DX | WANT_DW);
        told(&t->dev[1], t->half, 1, &rest[i], "winograd");
        conv_agrees(t, &rest[i], NULL, tol_of(t, 2e-5, 5e-3));
        f.w = reals(t, &t->dev[1], (size_t)f.out * f.in * f.size * f.size);
        t->dev[1].be.conv_open(&t->dev[1], &c);
        for (int d = 0; d < 3; d++) assert_null(strstr(c.how[d], "wino"));
        t->dev[1].be.conv_close(&t->dev[1], &c);
        t->dev[1].be.filter_close(&t->dev[1], &f);
        bufs_free(t);
        dev_close(&t->dev[1]);
    }
    t->dev[1] = usual;
}

static void stems_and_heads_agree(void **state) {
    Pair *t = *state;
    for (size_t i = 0; i < LEN(STEMS_AND_HEADS); i++) {
        const Case *k = &STEMS_AND_HEADS[i];
        if (t->half && !k->x_plain && k->y_plain) continue;     // no network has such a one
        conv_agrees(t, k, NULL, tol_of(t, 2e-5, 5e-3));
    }
}

// Where Winograd is not allowed every product is of numbers rounded once.
static void direct_convolutions_agree_closely(void **state) {
    Pair *t = *state;
    const Dev usual = t->dev[1];
    static const Case cases[] = { { 3, 32, 48, 9, 9, 3, 1, 1, 0, 0 },
                                  { 3, 48, 32, 9, 9, 3, 2, 1, 0, 0 },
                                  { 3, 24, 40, 7, 5, 1, 1, 0, 0, 0 } };
    DevOpts o = cpu_opts(t->half, 2);
    o.conv = CONV_DIRECT;
    dev_start(&t->dev[1], "cpu", o);
    for (size_t i = 0; i < LEN(cases); i++) conv_agrees(t, &cases[i], NULL, tol_of(t, 2e-5, 5e-3));
    dev_close(&t->dev[1]);
    t->dev[1] = usual;
}

static void inference_agrees(void **state) {
    Pair *t = *state;
    for (size_t i = 0; i < LEN(RELU_CASES); i++)
        relu_conv_agrees(t, &RELU_CASES[i], tol_of(t, 2e-5, 2e-2));
    windows_agree(t, tol_of(t, 1e-6, 5e-3));
    concats_agree(t, 0);
}

static void packed_weights_follow_the_master_copy(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Case k = { 1, 16, 16, 4, 4, 1, 1, 0, 0, 0 };
    real *w = reals(t, dev, 256), *ones = reals(t, dev, 256), *out = reals(t, dev, 256);
    for (int i = 0; i < 256; i++) w[i] = ones[i] = 1;
    Filter f = { 16, 16, 1, 1, w, NULL };
    Conv a = conv_of(&k, &f, 0), b = conv_of(&k, &f, 0);
    Tensor x = on(t, dev, a.x, 0), y = on(t, dev, a.y, 0);
    dev->be.from_plain(dev, ones, &x);
    dev->be.conv_open(dev, &a);
    for (int i = 0; i < 256; i++) w[i] = 2;
    dev->be.conv_fwd(dev, &a, &x, NULL, &y);
    dev->be.to_plain(dev, &y, out);
    assert_true(out[0] == 16);                           // 16 channels of 1 * 1: not packed yet
    dev->be.filters_pack(dev, &f, 1);
    dev->be.conv_open(dev, &b);                          // shares what was packed
    dev->be.conv_fwd(dev, &b, &x, NULL, &y);
    dev->be.to_plain(dev, &y, out);
    assert_true(out[255] == 32);
    assert_true(dev->packed_bytes == 256 * (t->half ? sizeof(uint16_t) : sizeof(real)));
    dev->be.conv_close(dev, &a);
    dev->be.conv_close(dev, &b);
    dev->be.filter_close(dev, &f);
    bufs_free(t);
}

// ---- norm, pooling, layout ----------------------------------------------------------------------

static void norm_agrees(Pair *t, Tensor shape, int mode) {
    const size_t C = (size_t)shape.c;
    NormRun n;
    norm_run(t, shape, mode, &n);
    same_tensor(t, n.x, 0, 0, n.what);
    same_tensor(t, n.y, 0, tol_of(t, 1e-5, 5e-3), n.what);
    for (int i = 2; i < 7; i++)
        same(n.par[i][0], n.par[i][1], i == 6 ? 2 * C : C, tol_of(t, 1e-5, 1e-4), n.what);
    // with one or two values a channel the gradient is zero, and only round-off is left
    if (!(mode & NO_DX) && shape.n * shape.h * shape.w > 2)
        same_tensor(t, n.dx, 0, tol_of(t, 2e-5, 5e-3), n.what);
    bufs_free(t);
}

static void norms_agree_in_every_mode(void **state) {
    static const int channels[] = { 1, 3, 5, 16, 24, 40, 64 };
    for (int mode = 0, at = 0; mode < N_MODE; mode++)
        for (size_t i = 0; i < 7; i++, at++)
            norm_agrees(*state, (Tensor){ 1 + at % 4, channels[i], 3 + at % 6, 2 + at % 5, NULL },
                        mode);
}

// Sizes at which channel blocks are handled in more than one group.
static void norms_of_large_tensors_agree(void **state) {
    const int mode = HAS_NORM | BATCH_STATS | RESIDUAL | UPDATE;
    norm_agrees(*state, (Tensor){ 24, 48, 32, 32, NULL }, mode);
    norm_agrees(*state, (Tensor){ 24, 40, 32, 32, NULL }, mode | ADD_DX);
    norm_agrees(*state, (Tensor){ 2, 16, 1, 1, NULL }, mode);
    norm_agrees(*state, (Tensor){ 1, 16, 1, 1, NULL }, mode);
}

// A single sweep that adds up squares would lose every digit here.
static void statistics_survive_a_large_mean(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Tensor shape = { 8, 16, 16, 16, NULL };
    const size_t n = tensor_len(&shape);
    real *v = reals(t, dev, n), *stat = reals(t, dev, 32), *one = reals(t, dev, 16),
         *nil = reals(t, dev, 16);
    for (size_t i = 0; i < n; i++) v[i] = i % 2 ? 4097 : 4095;         // mean 4096, variance 1
    for (int c = 0; c < 16; c++) one[c] = 1, nil[c] = 0;
    Tensor x = on(t, dev, shape, 0), y = on(t, dev, shape, 0);
    dev->be.from_plain(dev, v, &x);
    const Norm op = { .leak = (real)0.2,
                      .batch_stats = 1,
                      .gamma = one,
                      .beta = nil,
                      .mean = stat,
                      .rstd = stat + 16 };
    dev->be.norm_fwd(dev, &op, &x, NULL, &y);
    dev->be.to_plain(dev, &y, v);
    for (int c = 0; c < 16; c++) assert_true(stat[c] == 4096 && stat[16 + c] == 1);
    for (size_t i = 0; i < n; i++) assert_true(v[i] == (i % 2 ? (real)1 : -(real)0.2));
    bufs_free(t);
}

static void pooling_agrees_and_layouts_go_there_and_back(void **state) {
    Pair *t = *state;
    static const int channels[] = { 1, 3, 5, 16, 24, 40, 64, 640 };
    for (int i = 0; i < 8; i++) {
        const Tensor shape = { 1 + i % 3, channels[i], 8 - i % 4, 1 + i, NULL },
                     pooled = { shape.n, shape.c, 1, 1, NULL };
        Tensor x[2], y[2], dy[2], dx[2];
        random_pair(t, shape, 0, 1, x);
        random_pair(t, pooled, 1, 0, dy);
        empty_pair(t, pooled, 1, y);
        empty_pair(t, shape, 0, dx);
        same_tensor(t, x, 0, 0, "from_plain and to_plain");
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            dev->be.pool_fwd(dev, &x[k], &y[k]);
            dev->be.pool_bwd(dev, &dy[k], &dx[k]);
        }
        same_tensor(t, y, 1, 1e-6, "pool_fwd");
        same_tensor(t, dx, 0, tol_of(t, 1e-6, 5e-3), "pool_bwd");
        bufs_free(t);
    }
}

// ---- sampling and learning ----------------------------------------------------------------------

static void moves_agree(void **state) {
    Pair *t = *state;
    static const Move moves[] = { { 5, (real)0.2, 1, 0, 1 },
                                  { 1, 1, INFINITY, (real)0.01, 0 },
                                  { 3, (real)0.5, (real)0.3, (real)0.1, 1 } };
    for (int i = 0; i < 3; i++) {
        const Tensor shape = { 3, 1 + 2 * (i & 1), 7, 5, NULL };
        const StepState now = { .in.step = 11 };
        const Rng key = { 3, RNG_TEST, 5, 6 };
        Tensor x[2], g[2];
        random_pair(t, shape, 1, 0, x);
        random_pair(t, shape, 1, 0, g);
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            dev->be.langevin(dev, &x[k], &g[k], moves[i], key, i == 2 ? NULL : &now);
        }
        same_tensor(t, x, 1, 1e-6, "langevin");
        bufs_free(t);
    }
}

static void optimisers_agree_and_stand_still_when_halted(void **state) {
    Pair *t = *state;
    const size_t n = 1003;
    for (int halt = 0; halt < 2; halt++) {
        real *w[2], *g[2], *v[2], *m[2], *u[2], *avg[2];
        twins(t, n, 0, 1, w);
        twins(t, n, 0, 1, g);
        twins(t, n, 0, 1, v);
        twins(t, n, 0, 1, m);
        twins(t, n, 5, 1, u);
        twins(t, n, 0, 1, avg);
        const real first = w[1][0], first_avg = avg[1][0];
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            const StepState now = { .in.step = 3, .in.lr = (real)0.1, .halt = halt };
            dev->be.sgd(dev, n, w[k], g[k], v[k], (Sgd){ (real)0.9, (real)4e-4 }, &now);
            dev->be.adam(dev, n, w[k], g[k], m[k], u[k],
                         (Adam){ (real)0.9, (real)0.999, (real)1e-8, (real)0.01 }, &now);
            dev->be.ema(dev, n, avg[k], w[k], (real)0.99, &now);
        }
        assert_true((w[1][0] == first) == halt && (avg[1][0] == first_avg) == halt);
        same(w[0], w[1], n, 1e-6, "weights");
        same(v[0], v[1], n, 1e-6, "momentum");
        same(m[0], m[1], n, 1e-6, "Adam's first moment");
        same(u[0], u[1], n, 1e-6, "Adam's second moment");
        same(avg[0], avg[1], n, 1e-6, "average");
        bufs_free(t);
    }
}

static void products_of_matrices_agree(void **state) {
    Pair *t = *state;
    static const int shapes[][3] = { { 1, 1, 1 }, { 3, 5, 7 }, { 16, 144, 16 }, { 33, 20, 70 } };
    for (size_t i = 0; i < LEN(shapes); i++)
        for (int how = 0; how < 8; how++) {
            real *c[2];
            const size_t n = product_run(t, shapes[i], how, c);
            same(c[0], c[1], n, 1e-6, "a product of matrices");
            bufs_free(t);
        }
}

static void one_number_that_is_not_finite_halts(void **state) {
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const real bad[] = { NAN, INFINITY, -INFINITY };
    real *g = reals(t, dev, 1001);
    for (int i = 0; i < 1001; i++) g[i] = (real)3e38;
    StepState now = { 0 };
    dev->be.check_finite(dev, 1001, g, &now);
    assert_int_equal(now.halt, HALT_NO);
    for (int i = 0; i < 3; i++) {
        now.halt = 0;
        g[1000 - i * 400] = bad[i];
        dev->be.check_finite(dev, 1001, g, &now);
        assert_int_equal(now.halt, HALT_GRAD);
        g[1000 - i * 400] = 0;
    }
    now.halt = HALT_LOSS;
    g[0] = NAN;
    dev->be.check_finite(dev, 1001, g, &now);
    assert_int_equal(now.halt, HALT_LOSS);               // the first reason stays
    bufs_free(t);
}

// Images that are no whole number of vectors; more rows and more draws than go through at a time.
static void chain_starts_agree(void **state) {
    Pair *t = *state;
    enum { SET = 40, ROWS = 300, DIM = 1104, DRAWS = 101 };
    static const struct {
        int rows, dim, draws;
    } cases[] = {
        { 23, 1100, 2 }, { ROWS, DIM, DRAWS }, { 257, 84, 13 }, { 2, 4, 1 }, { 0, 48, 1 }
    };
    static uint8_t bytes[SET * DIM];
    int rows[ROWS], number[DRAWS];
    const Rng key = { 9, RNG_TEST, 2, 0 };
    for (int i = 0; i < SET * DIM; i++) bytes[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < ROWS; i++) rows[i] = (i * 7) % SET;
    for (int k = 0; k < DRAWS; k++) number[k] = 4 + 5 * k;
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        const int n = cases[i / 2].rows, dim = cases[i / 2].dim, draws = cases[i / 2].draws;
        const int out_rows = draws + 1, factor = i % 2;
        real *mean[2], *low[2], *out[2];
        twins(t, (size_t)dim, 0, 0.1, mean);
        twins(t, (size_t)(n + 1) * (size_t)dim, 0, 1, low);
        twins(t, (size_t)out_rows * (size_t)dim, 0, 1, out);
        for (int k = 0; k < 2; k++) {
            Dev *dev = &t->dev[k];
            const Gauss g = { .n = n,
                              .dim = dim,
                              .bytes = bytes,
                              .rows = rows,
                              .factor = factor ? low[k] : NULL,
                              .mean = mean[k],
                              .scale = (real)(0.9 / sqrt(n + 1)),
                              .jitter = (real)0.01 };
            dev->be.gauss(dev, &g, number, draws, key, out[k], out_rows);
        }
        same(out[0], out[1], (size_t)out_rows * (size_t)dim, 1e-5, "gauss");
        bufs_free(t);
    }
}

// ---- a whole network ----------------------------------------------------------------------------

// A whole network in bf16 against the same in fp32: logits and every gradient. Rounding changes the
// sign of some activations, and with it their gradients: at random weights, behind 13 of them,
// these are off by a tenth or more with direct convolutions already. Winograd's may be five times
// as far.
static void a_network_in_bf16_is_close_to_fp32(void **state) {
    (void)state;
    enum { N = 16 };
    const NetSpec spec = { 16, 2, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    real *out[3][3] = { 0 };
    size_t n[3] = { 0 };
    for (int half = 0; half < 3; half++) {               // fp32; bf16; bf16 and direct
        Dev dev;
        Net net;
        Pass p;
        DevOpts o = cpu_opts(half > 0, 2);
        o.conv = half == 2 ? CONV_DIRECT : CONV_AUTO;
        dev_start(&dev, "cpu", o);
        OK(net_build(&net, &spec, err));
        OK(net_alloc(&net, &dev, err));
        OK(net_init(&net, 3, err));
        OK(pass_open(&p, &net, N, MODE_TRAIN | WANT_DX, err));
        void *mem = dev.be.alloc(&dev, p.bytes, "a test");
        real *x = dev.be.alloc(&dev, tensor_len(&p.act[0]) * sizeof(real), "a test");
        OK(dev_check(&dev, err));
        const Rng key = { 5, RNG_TEST, 0, 0 };
        for (size_t i = 0; i < tensor_len(&p.act[0]); i++) x[i] = 2 * (real)rng_uniform(key, i) - 1;
        pass_bind(&p, mem);
        net_zero_grad(&net);
        pass_forward(&p, x);
        const Tensor *z = pass_logits(&p), *g = pass_input_grad(&p);
        n[0] = tensor_len(z), n[1] = tensor_len(g), n[2] = net.n_w;
        for (int k = 0; k < 3; k++) out[half][k] = malloc(n[k] * sizeof(real));
        memcpy(out[half][0], z->p, n[0] * sizeof(real));
        real *dz = pass_logits_grad(&p)->p;
        for (size_t i = 0; i < n[0]; i++) dz[i] = i % 10 == i / 10 % 10;
        pass_backward(&p);
        OK(dev_check(&dev, err));
        memcpy(out[half][1], g->p, n[1] * sizeof(real));
        memcpy(out[half][2], net.dw, n[2] * sizeof(real));
        dev.be.free(&dev, mem);
        dev.be.free(&dev, x);
        pass_close(&p);
        net_free(&net);
        dev_close(&dev);
    }
    static const char *const what[] = { "logits", "input gradient", "weight gradients" };
    static const double tol[] = { 0.01, 0.3, 0.2 };
    for (int k = 0; k < 3; k++) {
        const double direct = distance(out[2][k], out[0][k], n[k]);
        const double any = distance(out[1][k], out[0][k], n[k]);
        print_message("%s: off by %.3f direct, %.3f\n", what[k], direct, any);
        assert_less(direct, tol[k]);
        assert_less(any, 5 * direct);
        for (int i = 0; i < 3; i++) free(out[i][k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_agree),
        cmocka_unit_test(convolutions_of_real_shapes_agree),
        cmocka_unit_test(convolutions_of_tiny_images_agree),
        cmocka_unit_test(direct_convolutions_agree_closely),
        cmocka_unit_test(stems_and_heads_agree),
        cmocka_unit_test(packed_weights_follow_the_master_copy),
        cmocka_unit_test(norms_agree_in_every_mode),
        cmocka_unit_test(norms_of_large_tensors_agree),
        cmocka_unit_test(statistics_survive_a_large_mean),
        cmocka_unit_test(pooling_agrees_and_layouts_go_there_and_back),
        cmocka_unit_test(moves_agree),
        cmocka_unit_test(optimisers_agree_and_stand_still_when_halted),
        cmocka_unit_test(products_of_matrices_agree),
        cmocka_unit_test(one_number_that_is_not_finite_halts),
        cmocka_unit_test(chain_starts_agree),
        cmocka_unit_test(winograd_agrees),
        cmocka_unit_test(winograd_leaves_the_rest_to_others),
        cmocka_unit_test(inference_agrees),
    };
    const struct CMUnitTest half[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_agree),
        cmocka_unit_test(convolutions_of_real_shapes_agree),
        cmocka_unit_test(convolutions_of_tiny_images_agree),
        cmocka_unit_test(direct_convolutions_agree_closely),
        cmocka_unit_test(stems_and_heads_agree),
        cmocka_unit_test(packed_weights_follow_the_master_copy),
        cmocka_unit_test(norms_agree_in_every_mode),
        cmocka_unit_test(norms_of_large_tensors_agree),
        cmocka_unit_test(pooling_agrees_and_layouts_go_there_and_back),
        cmocka_unit_test(winograd_agrees),
        cmocka_unit_test(winograd_leaves_the_rest_to_others),
        cmocka_unit_test(a_network_in_bf16_is_close_to_fp32),
        cmocka_unit_test(inference_agrees),
    };
    int failed = cmocka_run_group_tests(tests, pair_open, pair_close);
    if (has_bf16()) failed += cmocka_run_group_tests(half, half_pair_open, pair_close);
    return failed ? failed : again_with_avx2("test_cpu");
}
