// test_cuda_ops.c - the cuda device against the reference device: losses, chains, optimisers, data;
// in fp32, except for products of matrices. Without a GPU every test is skipped.
#include "cuda_pair.h"
#include "op_cases.h"
#include "jem/weight_noise.h"

// ---- losses, chains, optimisers: fp32 on every device ------------------------------------------

static void heads_agree(void **state) {
    (void)state;
    static const int size[][2] = { { 5, 10 }, { 64, 10 }, { 70, 100 }, { 3, 2 }, { 2, 1000 } };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t i = 0; i < LEN(size); i++)
        for (int mode = 0; mode < 12; mode++) {
            const int labels = mode % 2, behind = mode / 2 % 2;
            const Tensor shape = { size[i][0], size[i][1], 1, 1, NULL };
            Tensor z[2], dz[2];
            real *sums[2];
            int *y[2], classes[80];
            for (int k = 0; k < 80; k++) classes[k] = k * 7 % size[i][1];
            twin_ints(&t, (size_t)size[i][0], classes, y);
            random_pair(&t, shape, 1, 3, z);
            empty_pair(&t, shape, 1, dz);
            empty_twins(&t, N_SUM, sums);
            for (int k = 0; k < 2; k++) {
                const Energy e = { .a = (real)0.7,
                                   .b = labels ? -1 : 0,
                                   .c = (real)0.3,
                                   .now = now_on(&t, k, (StepState){ .over_margin = behind }),
                                   .a_over = (real)0.2,
                                   .b_over = (real)-0.1,
                                   .d = (real)(mode / 4 - 1) };
                t.dev[k].be.head(&t.dev[k], &z[k], labels ? y[k] : NULL, e, (real)0.1, &dz[k],
                                 sums[k]);
            }
            same_tensor(&t, dz, 1, 1e-5, "dz");
            same(&t, sums, N_SUM, 1e-5, "sums");
            for (int k = 0; labels && k < 2; k++)
                t.dev[k].be.margin(&t.dev[k], &z[k], y[k], &dz[k]);
            if (labels) same_tensor(&t, dz, 1, 1e-6, "margin");
            bufs_free(&t);
        }
    pair_close(&t);
}

static void chains_and_attacks_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    const Tensor shape = { 3, 3, 7, 5, NULL };
    const Rng key = { 3, RNG_TEST, 1, 2 };
    for (int mode = 0; mode < 4; mode++) {
        Tensor x[2], g[2], x1[2];
        random_pair(&t, shape, 1, 0, x);
        random_pair(&t, shape, 1, 0, g);
        empty_pair(&t, shape, 1, x1);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            StepState *now = now_on(&t, i, (StepState){ .in.step = 9 });
            const Move m = { 3, (real)0.2, mode & 1 ? (real)INFINITY : (real)0.5,
                             mode & 2 ? (real)0.1 : 0, mode & 1 };
            const Attack a = { .l2 = mode & 1, .radius = (real)0.3, .step = (real)0.2 };
            dev->be.langevin(dev, &x[i], &g[i], m, key, now);
            dev->be.attack_start(dev, &x1[i], x[i].p, a, key, now);
            dev->be.attack_move(dev, &x1[i], &g[i], x[i].p, a);
        }
        same_tensor(&t, x, 1, 1e-5, "langevin");
        same_tensor(&t, x1, 1, 1e-5, "an attack");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void noise_on_weights_agrees(void **state) {
    (void)state;
    const NetSpec spec = {
        .depth = 10, .width = 2, .channels = 3, .side = 32, .classes = 7, .norm = NORM_BATCH
    };
    const Rng key = { .seed = 3, .stream = RNG_WEIGHT_NOISE, .step = 9 };
    Pair t;
    real *seen[2][2];                               // by device: with noise, and without it again
    size_t n = 0;
    if (pair_open(&t, PREC_BF16, NULL)) return;
    for (int i = 0; i < 2; i++) {
        Net net;
        WeightNoise w;
        OK(net_build(&net, &spec, err));
        OK(net_alloc(&net, &t.dev[i], err));
        OK(net_init(&net, 1, err));
        n = net.n_w;
        OK(weight_noise_open(&w, &net, err));
        for (int k = 0; k < 2; k++) {
            seen[i][k] = malloc(n * sizeof(real));
            if (!k) weight_noise_add(&w, 0.3, key);
            else weight_noise_remove(&w);
            t.dev[i].be.copy_out(&t.dev[i], seen[i][k], net.w, n * sizeof(real));
        }
        dev_fine(&t.dev[i]);
        weight_noise_close(&w);
        net_free(&net);
    }
    for (size_t j = 0; j < n; j++) assert_close(seen[1][0][j], seen[0][0][j], 1e-5);
    assert_memory_equal(seen[1][1], seen[0][1], n * sizeof(real));
    for (int i = 0; i < 4; i++) free(seen[i / 2][i % 2]);
    pair_close(&t);
}

static void dot_products_agree(void **state) {
    (void)state;
    static const size_t size[] = { 1, 33, 1024, 100003 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t k = 0; k < LEN(size); k++) {
        real *a[2], *b[2], *out[2];
        twins(&t, size[k], 3, 1, a);
        twins(&t, size[k], 4, 1, b);
        empty_twins(&t, 1, out);
        for (int i = 0; i < 2; i++) t.dev[i].be.dot(&t.dev[i], size[k], a[i], b[i], out[i]);
        same(&t, out, 1, 1e-5, "a dot product");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void products_of_matrices_agree(void **state) {
    (void)state;
    static const int shapes[][3] = {
        { 1, 1, 1 }, { 3, 5, 7 }, { 16, 144, 16 }, { 160, 1440, 160 }
    };
    static const Precision types[] = { PREC_FP32, PREC_BF16 };
    for (size_t k = 0; k < LEN(types); k++) {
        Pair t;
        pair_open(&t, types[k], NULL);
        for (size_t s = 0; s < LEN(shapes); s++)
            for (int how = 0; how < 8; how++) {
                real *c[2];
                const size_t n = product_run(&t, shapes[s], how, c);
                same(&t, c, n, k ? 2e-3 : 1e-5, "a product of matrices");
                bufs_free(&t);
            }
        pair_close(&t);
    }
}

static void steps_that_keep_the_length_agree(void **state) {
    (void)state;
    static const int sizes[] = { 1, 31, 144, 2304, 100001 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t k = 0; k < LEN(sizes); k++)
        for (int halt = 0; halt < 2; halt++) {
            enum { COUNT = 3, SIDE = 24 };
            const size_t n = (size_t)sizes[k], all = COUNT * n;
            real *w[2], *g[2], *v[2], *u[2], *x[2], *square[2], *out[2];
            twins(&t, n, 0, 1, w), twins(&t, n, 0, 1, g), twins(&t, n, 0, 1, v);
            twins(&t, n, 0, 1, u), twins(&t, all, 1, 1, x);
            twins(&t, COUNT * SIDE * SIDE, 0, 1, square);
            empty_twins(&t, COUNT * SIDE * SIDE, out);
            for (int i = 0; i < 2; i++) {
                Dev *dev = &t.dev[i];
                StepState *now = now_on(&t, i, (StepState){ .in.lr = (real)0.1, .halt = halt });
                dev->be.nesterov(dev, n, g[i], v[i], u[i], (real)0.9, now);
                dev->be.sphere_step(dev, n, w[i], u[i], (real)3, now);
                dev->be.unit_length(dev, COUNT, n, x[i]);
                dev->be.add_identity(dev, COUNT, SIDE, 2, (real)0.5, square[i], out[i]);
            }
            same(&t, v, n, 1e-6, "momentum"), same(&t, u, n, 1e-6, "a step");
            same(&t, w, n, 1e-6, "weights on their sphere"), same(&t, x, all, 1e-6, "unit lengths");
            same(&t, out, COUNT * SIDE * SIDE, 1e-6, "the identity added");
            bufs_free(&t);
        }
    pair_close(&t);
}

static void optimisers_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t off = 0; off < 2; off++) {               // aligned, and not
        const size_t n = 1003, len = n - off;
        real *w[2], *g[2], *m[2], *v[2], *avg[2], *keep[2];
        twins(&t, n, 0, 1, w), twins(&t, n, 0, 1, g), twins(&t, n, 0, 1, m),
            twins(&t, n, 2, 0.2, v);
        twins(&t, n, 0, 1, avg), twins(&t, n, 0, 1, keep);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            StepState *now = now_on(&t, i, (StepState){ .in.step = 4, .in.lr = (real)0.1 });
            StepState *halted = now_on(&t, i, (StepState){ .in.lr = 1, .halt = 1 });
            dev->be.sgd(dev, len, w[i] + off, g[i] + off, m[i] + off,
                        (Sgd){ (real)0.9, (real)0.01 }, now);
            dev->be.adam(dev, len, w[i] + off, g[i] + off, m[i] + off, v[i] + off,
                         (Adam){ (real)0.9, (real)0.999, (real)1e-8, (real)0.01 }, now);
            dev->be.ema(dev, len, avg[i] + off, w[i] + off, (real)0.9, now);
            dev->be.sam_perturb(dev, len, w[i] + off, g[i] + off, (real)0.3, keep[i]);
            dev->be.sgd(dev, n, w[i], g[i], m[i], (Sgd){ (real)0.9, 0 }, halted);
            dev->be.ema(dev, n, avg[i], w[i], 0, halted);
            dev->be.check_finite(dev, n, g[i], now);
            StepState seen;
            dev->be.copy_out(dev, &seen, now, sizeof seen);
            assert_int_equal(seen.halt, HALT_NO);
            dev->be.copy_in(dev, g[i] + n - 1, &(real){ (real)NAN }, sizeof(real));
            dev->be.check_finite(dev, n, g[i], now);
            dev->be.copy_out(dev, &seen, now, sizeof seen);
            assert_int_equal(seen.halt, HALT_GRAD);
        }
        same(&t, w, n, 1e-6, "weights"), same(&t, m, n, 1e-6, "momentum"),
            same(&t, v, n, 1e-6, "squares");
        same(&t, avg, n, 1e-6, "averages");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void watches_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (int mode = 0; mode < 8; mode++) {
        const Watch o = { .n = { 4, 4, 4 },
                          .n_batch = mode % 2 ? 3 : 1,
                          .e = { { .a = 1, .b = -1 }, { .a = -1, .c = (real)0.1 }, { .a = 1 } },
                          .label = 0,
                          .px = mode % 2 ? 1 : -1,
                          .sampled = mode % 2 ? 2 : -1,
                          .loss_limit = mode == 2 ? (real)1e-3 : 1000,
                          .gap_limit = mode == 3 ? (real)1e-6 : 10,
                          .ce_limit = mode == 6 ? (real)1e-6 : 0,
                          .climb_limit = mode == 7 ? 1 : 0,
                          .px_margin = mode == 1   ? 100
                                       : mode == 3 ? (real)1e-6
                                                   : 0,
                          .up = { .a = 1, .b = (real)0.5 },
                          .after = mode == 1 ? 2 : CHAIN_AFTER,
                          .n_ring = 8 };
        real *sums[2], *ring[2];
        StepState seen[2];
        twins(&t, N_SUMS * N_SUM, 5, 1, sums);
        twins(&t, 8 * N_ROW, 0, 0, ring);
        for (int i = 0; i < 2; i++) {
            if (mode == 5)
                t.dev[i].be.copy_in(&t.dev[i], sums[i], &(real){ (real)NAN }, sizeof(real));
            // the first step, one that is the best so far, one that is not
            const StepState before = { .in.step = mode == 4   ? 0
                                                  : mode == 7 ? 161
                                                              : 61,
                                       .in.lr = (real)0.1,
                                       .gap = 1,
                                       .climb = -50,
                                       .ce = 9,
                                       .ce_low = mode == 1 ? 100 : 0 };
            StepState *now = now_on(&t, i, before);
            t.dev[i].be.watch(&t.dev[i], &o, sums[i], now, ring[i]);
            t.dev[i].be.copy_out(&t.dev[i], &seen[i], now, sizeof seen[i]);
        }
        assert_int_equal(seen[0].halt, seen[1].halt);
        assert_int_equal(seen[0].over_margin, seen[1].over_margin);
        if (mode == 7) assert_int_equal(seen[1].halt, HALT_CLIMB);
        if (mode != 5) {
            same(&t, ring, 8 * N_ROW, 1e-5, "the log");
            assert_close(seen[0].gap, seen[1].gap, 1e-5);
            assert_close(seen[0].climb, seen[1].climb, 1e-5);
            assert_close(seen[0].ce, seen[1].ce, 1e-5);
            assert_close(seen[0].ce_low, seen[1].ce_low, 1e-5);
        }
        bufs_free(&t);
    }
    pair_close(&t);
}

// ---- data --------------------------------------------------------------------------------------

static void check_batches(int active) {
    enum { N = 50, SIDE = 9, DIM = 3 * SIDE * SIDE, B = 6 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    uint8_t *bytes[2], image[N * DIM];
    int *label[2], *index[2], *y[2], *slot[2], labels[N];
    real *x[2], *rows[2], *pool[2];
    const Rng key = { 5, RNG_TEST, 3, 0 };
    const Slots chains = { .n = N, .classes = 10, .batch = B, .active = active, .rate = 0.5f };
    for (int i = 0; i < N * DIM; i++) image[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < N; i++) labels[i] = i % 10;
    twin_ints(&t, N, labels, label);
    twin_ints(&t, B, NULL, index), twin_ints(&t, B, NULL, y), twin_ints(&t, B, NULL, slot);
    empty_twins(&t, B * DIM, x);
    twins(&t, N * DIM, 0, 1, rows), twins(&t, 16 * DIM, 0, 1, pool);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t.dev[i];
        StepState *now = now_on(&t, i, (StepState){ .in.step = 11, .in.drawn = 14 });
        bytes[i] = buf(&t, i, sizeof image);
        dev->be.copy_in(dev, bytes[i], image, sizeof image);
        const Bytes set = { N, 3, SIDE, bytes[i], label[i] };
        dev->be.pick(dev, N, B, key, now, index[i]);
        dev->be.batch(dev, &set, index[i], B, (Augment){ .pad = 4, .flip = 1, .noise = (real)0.03 },
                      key, now, x[i], y[i]);
        dev->be.rows_put(dev, rows[i], x[i], index[i], B, DIM, now);
        dev->be.slots(dev, chains, key, now, slot[i], y[i]);
        dev->be.rows_get(dev, x[i], rows[i], slot[i], B, DIM);
        dev->be.reinit(dev, x[i], B, DIM, chains, pool[i], 16, key, now);
    }
    same_ints(&t, index, B), same_ints(&t, slot, B), same_ints(&t, y, B);
    same(&t, rows, N * DIM, 1e-5, "rows");
    same(&t, x, B * DIM, 1e-5, "chain starts");
    bufs_free(&t);
    pair_close(&t);
}

static void batches_agree(void **state) {
    (void)state;
    check_batches(0);
    check_batches(20);                                      // chains under way, of N in the buffer
}

static void chain_starts_agree(void **state) {
    (void)state;
    enum { N = 150, DIM = 3 * 7 * 7, DRAWS = 37, OUT = 40 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    uint8_t image[N * DIM];
    int list[DRAWS], chosen[N / 2], *number[2], *which[2];
    real *mean[2], *factor[2], *out[2];
    const Rng key = { 5, RNG_TEST, 3, 0 };
    for (int i = 0; i < N * DIM; i++) image[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < DRAWS; i++) list[i] = 100 + i;
    for (int i = 0; i < N / 2; i++) chosen[i] = 2 * i;
    for (int kind = 0; kind < 4; kind++) {
        twin_ints(&t, DRAWS, list, number), twin_ints(&t, N / 2, chosen, which);
        twins(&t, DIM, 0, 0.1, mean), twins(&t, 16 * DIM, 0, 0.1, factor),
            twins(&t, OUT * DIM, 0, 0, out);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            uint8_t *bytes = buf(&t, i, sizeof image);
            dev->be.copy_in(dev, bytes, image, sizeof image);
            const Gauss low = { .n = 16,
                                .dim = DIM,
                                .factor = factor[i],
                                .mean = mean[i],
                                .scale = 1,
                                .jitter = (real)0.01 };
            const Gauss full = { .n = N / 2,
                                 .dim = DIM,
                                 .bytes = bytes,
                                 .rows = which[i],
                                 .mean = mean[i],
                                 .scale = (real)(1 / sqrt(N / 2.0)),
                                 .jitter = (real)0.01 };
            const Gauss point = { .dim = DIM, .mean = mean[i], .jitter = (real)0.03 };
            const Gauss *const gauss[] = { &full, &low, &point };
            if (kind < 3) dev->be.gauss(dev, gauss[kind], number[i], DRAWS, key, out[i], OUT);
            else dev->be.uniform(dev, number[i], DRAWS, DIM, key, out[i], OUT);
        }
        same(&t, out, OUT * DIM, 1e-5, "draws");
        bufs_free(&t);
    }
    pair_close(&t);
}

// test_cuda_ops [PATTERN]: the tests whose names match, with * and ?.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_agree),
        cmocka_unit_test(chains_and_attacks_agree),
        cmocka_unit_test(noise_on_weights_agrees),
        cmocka_unit_test(dot_products_agree),
        cmocka_unit_test(products_of_matrices_agree),
        cmocka_unit_test(steps_that_keep_the_length_agree),
        cmocka_unit_test(optimisers_agree),
        cmocka_unit_test(watches_agree),
        cmocka_unit_test(batches_agree),
        cmocka_unit_test(chain_starts_agree),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
