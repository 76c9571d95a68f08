// test_cuda_step.c - the cuda device as a whole: its memory, recordings, steps of training that are
// recorded or not, a rank's through NCCL or not. Without a GPU every test is skipped.
#include "cuda_pair.h"
#include "op_cases.h"
#include "search_case.h"
#include "jem/train.h"

// ---- the device itself -------------------------------------------------------------------------

static void a_recording_does_it_again(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_DEFAULT, NULL);
    Dev *dev = &t.dev[1];
    real *w[2], *g[2], *v[2], got;
    twins(&t, 100, 0, 0, w), twins(&t, 100, 1, 0, g), twins(&t, 100, 0, 0, v);
    StepState *now = now_on(&t, 1, (StepState){ .in.lr = 1 });
    dev->be.record_begin(dev);
    dev->be.sgd(dev, 100, w[1], g[1], v[1], (Sgd){ 0 }, now);
    void *recording = dev->be.record_end(dev);
    dev->be.copy_out(dev, &got, w[1] + 99, sizeof got);
    assert_true(got == 0);                               // noted, not done
    dev->be.replay(dev, recording);
    dev->be.copy_in(dev, now, &(StepState){ .in.lr = 10 }, sizeof(StepState));
    dev->be.replay(dev, recording);
    dev->be.copy_out(dev, &got, w[1] + 99, sizeof got);
    assert_true(got == -11);                             // 1, then 10: StepState is read anew
    dev->be.record_free(dev, recording);
    bufs_free(&t);
    pair_close(&t);
}

static void host_memory_for_copies_holds_them(void **state) {
    (void)state;
    enum { N = 100003 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    Dev *dev = &t.dev[1];
    unsigned char *from = dev->be.host_alloc(dev, N), *to = dev->be.host_alloc(dev, N);
    void *p = buf(&t, 1, N);
    assert_non_null(from);
    assert_non_null(to);
    for (int i = 0; i < N; i++) from[i] = (unsigned char)(i * 7);
    dev->be.copy_in(dev, p, from, N);
    dev->be.copy_out(dev, to, p, N);
    dev_fine(dev);
    assert_memory_equal(from, to, N);
    dev->be.host_free(dev, from);
    dev->be.host_free(dev, to);
    dev->be.host_free(dev, NULL);
    dev_fine(dev);
    bufs_free(&t);
    pair_close(&t);
}

static void too_much_memory_is_an_error_with_the_figure(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_DEFAULT, NULL);
    assert_null(t.dev[1].be.alloc(&t.dev[1], (size_t)1 << 44, "a test"));
    assert_non_null(strstr(t.dev[1].err.msg, "out of GPU memory: 16384.00 GiB for a test"));
    pair_close(&t);
}

// 2^31 pixels are one more than an int can count.
static void sizes_beyond_32_bits_are_right_or_refused(void **state) {
    (void)state;
    const Tensor images = { 1 << 17, 3, 128, 128, NULL };
    assert_int_equal(tensor_pixels(&images), (size_t)1 << 31);
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    Dev *dev = &t.dev[1];
    assert_int_equal(dev->be.tensor_bytes(dev, &images), (size_t)1 << 36);   // 8 floats per pixel
    Filter f = { .out = 8, .in = 3, .size = 3, .size_w = 3 };
    const Case k = { images.n, 3, 8, images.h, images.w, 3, 1, 1, 1, 0 };
    Conv c = conv_of(&k, &f, 0);
    dev->be.conv_open(dev, &c);
    assert_int_equal(dev->err.kind, ERR_ARG);
    assert_non_null(strstr(dev->err.msg, "131072 images of 128x128 pixels at once"));
    pair_close(&t);
}

// Logits and the images' gradient of a whole network, batch statistics, against the reference.
static void a_network_in_bf16_is_close(void **state) {
    (void)state;
    enum { B = 16 };
    Pair t;
    pair_open(&t, PREC_BF16, NULL);
    const NetSpec spec = { 10, 2, 3, 16, 10, NORM_BATCH, STEM_3X3 };
    real *x[2], *sums[2], *out[2][2];
    Net net[2];
    Pass p[2];
    twins(&t, B * 3 * 256, 0, 0.5, x);
    empty_twins(&t, N_SUM, sums);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t.dev[i];
        OK(net_build(&net[i], &spec, err));
        OK(net_alloc(&net[i], dev, err));
        OK(net_init(&net[i], 1, err));
        OK(pass_open(&p[i], &net[i], B, MODE_TRAIN | WANT_DX, err));
        pass_bind(&p[i], buf(&t, i, p[i].bytes));
        net_zero_grad(&net[i]);
        pass_forward(&p[i], x[i]);
        dev->be.head(dev, pass_logits(&p[i]), NULL, (Energy){ .a = 1 }, 1, pass_logits_grad(&p[i]),
                     sums[i]);
        out[0][i] = buf(&t, i, B * 10 * sizeof(real));
        dev->be.copy(dev, out[0][i], pass_logits(&p[i])->p, B * 10 * sizeof(real));
        pass_backward(&p[i]);                            // its memory may serve again from here on
        out[1][i] = pass_input_grad(&p[i])->p;
    }
    same(&t, out[0], B * 10, 0.03, "logits");
    same(&t, out[1], B * 3 * 256, 0.3, "the images' gradient");
    real *dw[2] = { net[0].dw, net[1].dw }, *stat[2] = { net[0].state, net[1].state };
    same(&t, dw, net[0].n_w, 0.1, "the weights' gradients");
    same(&t, stat, net[0].n_state, 0.01, "running statistics");
    for (int i = 0; i < 2; i++) {
        pass_close(&p[i]);
        net_free(&net[i]);
    }
    bufs_free(&t);
    pair_close(&t);
}

static Set noise_set(int n, int side) {
    const size_t bytes = (size_t)(n * 3 * side * side);
    Set set = { .c = 3, .side = side, .classes = 10, .n = n };
    set.x = arena_alloc(&set.arena, bytes, 1);
    set.y = arena_alloc(&set.arena, (size_t)n, sizeof *set.y);
    for (size_t k = 0; k < bytes; k++) set.x[k] = (uint8_t)(k * 37);
    for (int k = 0; k < n; k++) set.y[k] = k % 10;
    return set;
}

static Set small_set(void) { return noise_set(40, 8); }

// A trainer of the set with batches of c->batch; recorded: its steps may be. Frees the set.
static void trainer_start_with(Trainer *t, Dev *dev, const DevOpts *o, int recorded,
                               const Config *c, Set *set) {
    OK(dev_open(dev, "cuda", o, NULL, err));
    if (!recorded) dev->be.record_begin = NULL;
    OK(trainer_open(t, dev, NULL, c, set, 0, err));
    set_free(set);
}

// The same of the small set with batches of 8.
static void trainer_start(Trainer *t, Dev *dev, const DevOpts *o, int recorded, Config *c) {
    Set set = small_set();
    c->batch = 8, c->buffer = 20;
    trainer_start_with(t, dev, o, recorded, c, &set);
}

// Its weights, malloc'd, and how many; closes trainer and device.
static real *trainer_end(Trainer *t, Dev *dev, size_t *n) {
    *n = t->net.n_w;
    real *w = malloc(*n * sizeof *w);
    assert_non_null(w);
    dev->be.copy_out(dev, w, t->net.w, *n * sizeof *w);
    trainer_close(t);
    dev_close(dev);
    return w;
}

// Ten steps, most of which are recorded and replayed, against ten that are not. With labelled,
// p(x) begins after five.
static void recorded_steps(Precision precision, const char *model, double sam, int sam_images,
                           int labelled, OptimKind optimizer) {
    enum { STEPS = 10 };
    real *w[2];
    uint64_t batches[2];
    size_t n = 0;
    char *tuning = NULL;                                    // the first's choices are the second's
    for (int i = 0; i < 2; i++) {
        Dev dev;
        Trainer t;
        Config c;
        const DevOpts o = { .precision = precision, .deterministic = 1, .tuning = tuning };
        config_defaults(&c);
        strcpy(c.model, model);
        c.steps = 2, c.sam = sam, c.sam_images = sam_images, c.optimizer = optimizer;
        c.iterations = STEPS, c.labelled = labelled, c.px_from = labelled ? 0.5 : 0;
        trainer_start(&t, &dev, &o, !i, &c);
        for (int k = 0; k < STEPS; k++) trainer_advance(&t);
        OK(dev_check(&dev, err));
        assert_true(!t.recording[t.sam_on].work == !!i);
        batches[i] = t.net.batches;
        if (!i) tuning = strdup(dev.be.tuning(&dev));
        w[i] = trainer_end(&t, &dev, &n);
    }
    assert_true(batches[0] == batches[1]);
    assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
    free(tuning);
    free(w[0]);
    free(w[1]);
}

static void a_recorded_step_is_the_same_step(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 0, OPTIM_SGD);
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 0, OPTIM_MUON);
    // wide enough for own convolutions
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 0, 0, OPTIM_SGD);
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 4, 0, OPTIM_MUON);
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 4, 12, OPTIM_SGD);
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 12, OPTIM_SGD);
}

// Five plain steps and five sharpness-aware ones of 64 images as CIFAR-10's, with 160 and more
// channels as wrn-28-10 has. w is malloc'd; the choices of kernels in *tuning are taken and
// replaced.
static size_t wide_steps(int recorded, int sam_images, char **tuning, real **w,
                         real rows[10][N_ROW]) {
    enum { STEPS = 10, BATCH = 64 };
    Dev dev;
    Trainer t;
    Config c;
    Set set = noise_set(BATCH + BATCH / 2, 32);
    size_t n = 0;
    const DevOpts o = { .precision = PREC_BF16, .deterministic = 1, .tuning = *tuning };
    config_defaults(&c);
    strcpy(c.model, "wrn-10-10");
    c.batch = BATCH, c.buffer = 100, c.steps = 2, c.iterations = STEPS;
    c.lr = 0.01, c.sam = 2, c.sam_from = 0.5, c.sam_images = sam_images;
    trainer_start_with(&t, &dev, &o, recorded, &c, &set);
    assert_int_equal(t.sam_rows, sam_images == BATCH ? 0 : sam_images);
    for (int k = 0; k < STEPS; k++) trainer_advance(&t);
    OK(dev_check(&dev, err));
    assert_int_equal(trainer_state(&t).halt, HALT_NO);
    for (int i = 0; i < 2; i++) assert_true(!t.recording[i].work == !recorded);
    trainer_rows(&t, 0, STEPS, rows[0]);
    free(*tuning);
    *tuning = strdup(dev.be.tuning(&dev));
    *w = trainer_end(&t, &dev, &n);
    return n;
}

// Two recordings, a plain step's and a sharpness-aware one's, whose first gradient runs through
// passes of their own: of half a batch, and of a number that no tile of images divides.
static void some_images_choose_the_direction_in_recorded_steps(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    static const int images[] = { 64, 32, 24, 17 };
    real *whole = NULL, first[10][N_ROW];
    char *tuning = NULL;
    for (int i = 0; i < 4; i++) {
        real *w[2], rows[2][10][N_ROW];
        const size_t n = wide_steps(1, images[i], &tuning, &w[0], rows[0]);
        wide_steps(0, images[i], &tuning, &w[1], rows[1]);
        assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
        assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
        if (!i) memcpy(first, rows[0], sizeof first);
        assert_memory_equal(rows[0], first, 5 * sizeof first[0]);       // of the plain steps
        // the same weights and images, but fewer of these
        if (i) assert_true(memcmp(rows[0][5], first[5], sizeof first[5]) != 0);
        assert_less(fabs((double)(rows[0][5][ROW_CE] - first[5][ROW_CE])),
                    0.5 * (double)first[5][ROW_CE]);
        if (i) assert_less(distance(w[0], whole, n), 0.1);
        free(w[1]);
        if (i) free(w[0]);
        else whole = w[0];
    }
    free(whole);
    free(tuning);
}

// Fourteen steps in which chains get longer after the tenth: recorded, forgotten, recorded again.
static void chains_that_get_longer_are_recorded_anew(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    enum { STEPS = 14 };
    real *w[2], rows[2][STEPS][N_ROW];
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        Dev dev;
        Trainer t;
        Config c;
        const DevOpts o = { .precision = PREC_FP32, .deterministic = 1, .conv = CONV_DIRECT };
        config_defaults(&c);
        strcpy(c.model, "wrn-10-1");
        c.steps = 1, c.steps_max = 3, c.reinit = 0.5, c.start_real = 0.5;
        trainer_start(&t, &dev, &o, !i, &c);
        t.length.auroc = 0.99;
        for (int k = 0; k < STEPS; k++) {
            trainer_advance(&t);
            trainer_rows(&t, (uint64_t)k, 1, rows[i][k]);
            assert_true(rows[i][k][ROW_STEPS] == (k < 10 ? 1 : 2));
        }
        OK(dev_check(&dev, err));
        assert_true(!t.recording[0].work == !!i);
        w[i] = trainer_end(&t, &dev, &n);
    }
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
    free(w[0]);
    free(w[1]);
}

// Six steps, from the third on recorded; linked: through NCCL, with this rank alone. w is malloc'd.
static size_t steps_of_one_rank(int linked, int sync_bn, real **w) {
    enum { STEPS = 6 };
    Dev dev;
    Comm comm;
    Trainer t;
    Config c;
    Set set = small_set();
    const DevOpts o = { .precision = PREC_FP32, .deterministic = 1, .conv = CONV_DIRECT };
    OK(dev_open(&dev, "cuda", &o, NULL, err));
    if (linked) OK(comm_connect_alone(&comm, &dev, err));
    config_defaults(&c);
    strcpy(c.model, "wrn-10-2");
    c.batch = 8, c.buffer = 20, c.steps = 2, c.sam = 1, c.sync_bn = sync_bn;
    OK(trainer_open(&t, &dev, linked ? &comm : NULL, &c, &set, 0, err));
    set_free(&set);
    for (int k = 0; k < STEPS; k++) trainer_advance(&t);
    OK(dev_check(&dev, err));
    assert_non_null(t.recording[t.sam_on].work);
    const size_t n = t.net.n_w;
    *w = malloc(n * sizeof **w);
    dev.be.copy_out(&dev, *w, t.net.w, n * sizeof **w);
    OK(dev_check(&dev, err));
    trainer_close(&t);
    dev_close(&dev);
    return n;
}

static int has_nccl(void) {
    Dev dev;
    char id[128];
    Err err = { 0 };
    if (!has_device("cuda")) return 0;
    open_device(&dev, "cuda");
    const int rc = dev.be.ranks_id(&dev, id, &err);
    if (rc) print_message("%s\n", err.msg);
    dev_close(&dev);
    return !rc;
}

static void a_step_through_nccl_is_the_same_step(void **state) {
    (void)state;
    if (!has_nccl()) skip();
    real *plain, *linked, *sync;
    const size_t n = steps_of_one_rank(0, 0, &plain);
    steps_of_one_rank(1, 0, &linked);
    steps_of_one_rank(1, 1, &sync);
    assert_memory_equal(linked, plain, n * sizeof *plain);
    assert_less(distance(sync, plain, n), 1e-3);            // norms in other kernels
    free(plain);
    free(linked);
    free(sync);
}

static void checksums_agree_and_find_one_bit(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    enum { N = 100003 };
    Dev ref, dev;
    real *p = malloc(N * sizeof *p);
    fill_random(p, N, 1, -1, 1);
    open_device(&ref, "ref");
    open_device(&dev, "cuda");
    real *there = dev.be.alloc(&dev, N * sizeof *p, "numbers");
    dev.be.copy_in(&dev, there, p, N * sizeof *p);
    const uint64_t sum = ref.be.checksum(&ref, p, N * sizeof *p);
    assert_true(dev.be.checksum(&dev, there, N * sizeof *p) == sum);
    ((uint32_t *)p)[N - 1] ^= 1;
    dev.be.copy_in(&dev, there, p, N * sizeof *p);
    assert_true(dev.be.checksum(&dev, there, N * sizeof *p) != sum);
    dev.be.free(&dev, there);
    dev_close(&dev);
    dev_close(&ref);
    free(p);
}

static void the_search_for_kernels_is_shown_and_stops(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    const char *before = getenv("XDG_CACHE_HOME");
    char *keep = before ? strdup(before) : NULL;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);               // nothing is known, nothing is kept
    search_is_shown_and_stops("cuda");
    if (keep) setenv("XDG_CACHE_HOME", keep, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(keep);
}

// test_cuda_step [PATTERN]: the tests whose names match, with * and ?.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_that_get_longer_are_recorded_anew),
        cmocka_unit_test(a_recorded_step_is_the_same_step),
        cmocka_unit_test(some_images_choose_the_direction_in_recorded_steps),
        cmocka_unit_test(a_step_through_nccl_is_the_same_step),
        cmocka_unit_test(checksums_agree_and_find_one_bit),
        cmocka_unit_test(the_search_for_kernels_is_shown_and_stops),
        cmocka_unit_test(a_recording_does_it_again),
        cmocka_unit_test(host_memory_for_copies_holds_them),
        cmocka_unit_test(too_much_memory_is_an_error_with_the_figure),
        cmocka_unit_test(sizes_beyond_32_bits_are_right_or_refused),
        cmocka_unit_test(a_network_in_bf16_is_close),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
