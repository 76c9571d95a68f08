// test_chain_length.c - chains that get longer by the AUROC of f, and chain starts that are
// training images: figures that can be checked by hand, laws of draws, and steps bit for bit.
#include "testing.h"
#include "jem/train.h"

enum { SIDE = 4, DIM = SIDE * SIDE };

// ---- the AUROC and the length ------------------------------------------------------------------

static Config length_options(int batch, double limit) {
    Config c;
    config_defaults(&c);
    c.batch = batch, c.steps = 2, c.steps_max = 4, c.steps_auroc = limit;
    return c;
}

// One look at f of the real and the sampled images; with a single class f is its logit.
static int look(ChainLength *l, int steps, const real *fx, const real *fxq) {
    const Tensor real_logits = { l->rows, 1, 1, 1, (void *)(uintptr_t)fx };
    const Tensor sampled_logits = { l->rows, 1, 1, 1, (void *)(uintptr_t)fxq };
    chain_length_keep(l, 0, &real_logits);
    chain_length_keep(l, 1, &sampled_logits);
    return chain_length_next(l, steps, NULL);
}

static void the_auroc_is_the_share_of_pairs_in_order(void **state) {
    (void)state;
    static const struct {
        real fx[4], fxq[4];
        double auroc;
    } seen[] = {
        { { 5, 6, 7, 8 }, { 1, 2, 3, 4 }, 1 },
        { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, 0 },
        { { 1, 1, 1, 1 }, { 1, 1, 1, 1 }, 0.5 },            // ties count half
        { { 4, 1, 3, 2 }, { 0, 2.5, 9, 9 }, 6.0 / 16 },     // 4 above the first, 2 above the second
    };
    Dev dev;
    open_device(&dev, "ref");
    for (size_t i = 0; i < LEN(seen); i++) {
        ChainLength l;
        const Config c = length_options(4, 1);
        OK(chain_length_open(&l, &dev, &c, 4, 1, err));
        assert_int_equal(look(&l, 2, seen[i].fx, seen[i].fxq), 2);
        assert_close(l.auroc, 0.9 * 0.5 + 0.1 * seen[i].auroc, 1e-12);
        chain_length_close(&l);
    }
    dev_close(&dev);
}

// From 1/2 towards 1 the mean is 1 - 0.9^k / 2, above 3/4 for the first time with k = 7.
static void chains_get_longer_while_the_auroc_stays_above_its_limit(void **state) {
    (void)state;
    const real high[] = { 2, 3 }, low[] = { 0, 1 }, bad[] = { 2, NAN };
    Dev dev;
    ChainLength l;
    const Config c = length_options(2, 0.75);
    open_device(&dev, "ref");
    OK(chain_length_open(&l, &dev, &c, 2, 1, err));
    int steps = 2;
    for (int k = 1; k <= 40; k++) {
        steps = look(&l, steps, high, low);
        assert_int_equal(steps, k < 7 ? 2 : k < 14 ? 3 : 4);        // no longer than --steps-max
    }
    const double before = l.auroc;
    assert_close(before, 1, 0.05);
    assert_int_equal(look(&l, 2, bad, low), 2);             // a divergence changes no length
    assert_true(l.auroc == before);
    assert_int_equal(look(&l, 2, low, high), 3);            // the mean is still above
    for (int k = 0; k < 40; k++) assert_int_equal(look(&l, 2, low, high), 2);
    chain_length_close(&l);
    dev_close(&dev);
}

// ---- steps -------------------------------------------------------------------------------------

static Config small_run(Set *set) {
    Config c;
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    c.batch = 8, c.buffer = 40, c.steps = 1, c.warmup = 0, c.lr = 0.02, c.noise = 0.01;
    OK(set_load(set, "shapes", HALF_TEST, &(DataOpts){ .side = 8, .seed = 1 }, err));
    return c;
}

// 13 steps. by_hand: chains are made longer at step 10, else by an AUROC that was high before.
static void steps_around_a_change(const Config *c, const Set *set, const char *device, int by_hand,
                                  real rows[13][N_ROW], real w[64]) {
    Dev dev;
    Trainer t;
    const DevOpts o = { .threads = 2, .conv = CONV_DIRECT };
    OK(dev_open(&dev, device, &o, NULL, err));
    OK(trainer_open(&t, &dev, NULL, c, set, 0, err));
    if (!by_hand) t.length.auroc = 0.99;
    for (int k = 0; k < 13; k++) {
        if (by_hand && k == 10) trainer_chain_steps(&t, c->steps + 1);
        trainer_advance(&t);
        trainer_rows(&t, (uint64_t)k, 1, rows[k]);
    }
    OK(dev_check(&dev, err));
    dev.be.copy_out(&dev, w, t.net.w, 64 * sizeof *w);
    trainer_close(&t);
    dev_close(&dev);
}

static void longer_chains_begin_after_a_look_and_nothing_else_changes(void **state) {
    (void)state;
    static const char *const devices[] = { "ref", "cpu" };
    Set set;
    Config c = small_run(&set);
    real rows[2][13][N_ROW], w[2][64];
    for (size_t d = 0; d < LEN(devices); d++) {
        if (d && !has_device(devices[d])) continue;
        c.steps_max = 0;
        steps_around_a_change(&c, &set, devices[d], 1, rows[0], w[0]);
        c.steps_max = 3;
        steps_around_a_change(&c, &set, devices[d], 0, rows[1], w[1]);
        for (int k = 0; k < 13; k++) {
            assert_true(rows[1][k][ROW_STEPS] == (k < 10 ? 1 : 2));
            assert_close(rows[1][k][ROW_AUROC], k < 10 ? 0.99 : 0.5, 1e-6);
            assert_less(fabs((double)rows[1][k][ROW_CLIMB]), 1.2);  // of the right sums, M = 1 or 2
            rows[1][k][ROW_AUROC] = rows[0][k][ROW_AUROC];
        }
        assert_memory_equal(rows[1], rows[0], sizeof rows[0]);
        assert_memory_equal(w[1], w[0], sizeof w[0]);
    }
    set_free(&set);
}

// What is kept for the AUROC are the batches of p(x), whichever of them is the real one, and not
// those of SAM's second pass.
static void the_auroc_is_of_the_batches_that_p_x_learns_from(void **state) {
    (void)state;
    Set set;
    Config c = small_run(&set);
    c.steps_max = 3, c.sam = 0.5;
    for (c.px = PX_CLEAN; c.px < PX_NONE; c.px++) {
        Dev dev;
        Trainer t;
        real row[N_ROW];
        double f[2] = { 0 };
        open_device(&dev, "ref");
        OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
        trainer_advance(&t);
        trainer_rows(&t, 0, 1, row);
        for (int i = 0; i < 2 * 8; i++) {
            double sum = 0;
            for (int k = 0; k < 10; k++) sum += exp((double)t.length.logits[i * 10 + k]);
            f[i / 8] += log(sum) / 8;
        }
        assert_close(f[0], row[ROW_FX], 1e-5);
        assert_close(f[1], row[ROW_FXQ], 1e-5);
        trainer_close(&t);
        dev_close(&dev);
    }
    set_free(&set);
}

// ---- chain starts that are training images -----------------------------------------------------

// 60 images in three classes, 10, 20 and 30 of them; all differ.
static void toy_set(Set *s) {
    *s = (Set){ .c = 1, .side = SIDE, .classes = 3, .n = 60 };
    s->x = arena_alloc(&s->arena, 60 * DIM, 1);
    s->y = arena_alloc(&s->arena, 60, sizeof *s->y);
    const Rng key = { .seed = 9, .stream = RNG_TEST };
    for (int i = 0; i < 60; i++) {
        s->y[i] = i % 6 == 0 ? 0 : i % 3 == 1 ? 1 : 2;
        for (int k = 0; k < DIM; k++)
            s->x[i * DIM + k] = (uint8_t)(60 + rng_below(key, (uint64_t)(i * DIM + k), 120));
    }
}

typedef struct {
    const char *device;
    StartKind   kind;
    double      rate, noise;
} Draws;

// n draws, of the classes cls.
static void draw(const Draws *o, const Set *set, const int *cls, int n, real *out) {
    Dev dev;
    Bytes bytes;
    Starts s;
    int *number = malloc((size_t)n * sizeof *number);
    for (int i = 0; i < n; i++) number[i] = i;
    open_device(&dev, o->device);
    OK(bytes_upload(&bytes, &dev, set, err));
    OK(starts_open(&s, &dev, o->kind, set, &bytes, err));
    OK(starts_add_real(&s, &bytes, set->y, o->rate, o->noise, err));
    const size_t len = (size_t)n * DIM * sizeof *out;
    real *there = dev.be.alloc(&dev, len, "draws");
    starts_draw(&s, 5, number, cls, n, there, n);
    dev.be.copy_out(&dev, out, there, len);
    dev.be.free(&dev, there);
    starts_close(&s);
    bytes_free(&bytes, &dev);
    dev_close(&dev);
    free(number);
}

// The training image that this is, or -1.
static int image_of(const Set *set, const real *x) {
    for (int i = 0; i < (int)set->n; i++) {
        int same = 1;
        for (int k = 0; k < DIM; k++)
            same &= fabs((double)x[k] - (set->x[i * DIM + k] / 127.5 - 1)) < 1e-6;
        if (same) return i;
    }
    return -1;
}

static void check_real_starts(const char *device, StartKind kind) {
    enum { N = 6000 };
    const double rate = 0.3;
    Set set;
    int cls[N], count[60] = { 0 }, found = 0;
    real *out = malloc(N * DIM * sizeof *out), *plain = malloc(N * DIM * sizeof *plain);
    toy_set(&set);
    for (int i = 0; i < N; i++) cls[i] = i % 3;
    draw(&(Draws){ device, kind, rate, 0 }, &set, cls, N, out);
    draw(&(Draws){ device, kind, 0, 0 }, &set, cls, N, plain);
    for (int i = 0; i < N; i++) {
        const int image = image_of(&set, out + i * DIM);
        if (image < 0) {                                    // the others are what they were
            assert_memory_equal(out + i * DIM, plain + i * DIM, DIM * sizeof *out);
            continue;
        }
        assert_int_equal(set.y[image], cls[i]);
        count[image]++;
        found++;
    }
    assert_close(found, N * rate, 5 * sqrt(N * rate * (1 - rate)));
    for (int i = 0; i < 60; i++) {                          // each of its class equally often
        const double wanted = N * rate / 3 / (10.0 * (1 + set.y[i]));
        assert_close(count[i], wanted, 5 * sqrt(wanted));
    }
    free(out), free(plain);
    set_free(&set);
}

static void a_share_of_chain_starts_are_training_images_of_their_class(void **state) {
    (void)state;
    check_real_starts("ref", START_INFORMATIVE);
    check_real_starts("ref", START_UNIFORM);
    if (has_device("cpu")) check_real_starts("cpu", START_GAUSSIAN);
}

static void real_starts_have_the_noise_of_real_images(void **state) {
    (void)state;
    enum { N = 1000 };
    Set set;
    int cls[N];
    double sum = 0, square = 0;
    real *out[2], *clean = malloc(N * DIM * sizeof *clean);
    toy_set(&set);
    for (int i = 0; i < N; i++) cls[i] = i % 3;
    draw(&(Draws){ "ref", START_UNIFORM, 1, 0 }, &set, cls, N, clean);
    for (int d = 0; d < 2; d++) {
        out[d] = malloc(N * DIM * sizeof *out[d]);
        draw(&(Draws){ d && has_device("cpu") ? "cpu" : "ref", START_UNIFORM, 1, 0.03 }, &set, cls,
             N, out[d]);
    }
    assert_less(distance(out[1], out[0], N * DIM), 1e-5);
    for (int i = 0; i < N * DIM; i++) {
        const double z = (double)out[0][i] - (double)clean[i];
        sum += z, square += z * z;
    }
    assert_close(sum / (N * DIM), 0, 5 * 0.03 / sqrt(N * DIM));
    assert_close(sqrt(square / (N * DIM)), 0.03, 5 * 0.03 / sqrt(2.0 * N * DIM));
    free(out[0]), free(out[1]), free(clean);
    set_free(&set);
}

static void a_class_without_images_cannot_start_chains_at_them(void **state) {
    (void)state;
    Dev dev;
    Bytes bytes;
    Starts s;
    Set set;
    Err why = { 0 };
    toy_set(&set);
    for (int i = 0; i < 60; i++) set.y[i] = 2 * (i % 2);
    open_device(&dev, "ref");
    OK(bytes_upload(&bytes, &dev, &set, err));
    OK(starts_open(&s, &dev, START_UNIFORM, &set, &bytes, err));
    assert_int_not_equal(starts_add_real(&s, &bytes, set.y, 0.5, 0, &why), 0);
    assert_string_equal(why.msg, "class 1 has no training image to start chains from");
    starts_close(&s);
    bytes_free(&bytes, &dev);
    set_free(&set);
    dev_close(&dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_auroc_is_the_share_of_pairs_in_order),
        cmocka_unit_test(chains_get_longer_while_the_auroc_stays_above_its_limit),
        cmocka_unit_test(longer_chains_begin_after_a_look_and_nothing_else_changes),
        cmocka_unit_test(the_auroc_is_of_the_batches_that_p_x_learns_from),
        cmocka_unit_test(a_share_of_chain_starts_are_training_images_of_their_class),
        cmocka_unit_test(real_starts_have_the_noise_of_real_images),
        cmocka_unit_test(a_class_without_images_cannot_start_chains_at_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
