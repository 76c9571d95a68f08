// test_train.c - batches and the step of training: bookkeeping, limits, repeatability.
#include "testing.h"
#include "jem/train.h"
#include "run/ckpt.h"
#include "run/train_bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// ---- batches and their augmentation

static void an_epoch_shows_every_image_once(void **state) {
    (void)state;
    Dev dev;
    open_device(&dev, "ref");
    int seen[2][60] = { { 0 } }, index[8], order[2][56];
    for (uint32_t step = 0; step < 14; step++) {                     // two epochs of 7 batches of 8
        const StepState now = { .in.step = step };
        dev.be.pick(&dev, 60, 8, (Rng){ .seed = 1, .stream = RNG_EPOCH }, &now, index);
        for (int i = 0; i < 8; i++)
            seen[step / 7][index[i]]++, order[step / 7][step % 7 * 8 + (uint32_t)i] = index[i];
    }
    for (int e = 0; e < 2; e++) {
        int once = 0;
        for (int i = 0; i < 60; i++) once += seen[e][i] == 1;
        assert_int_equal(once, 56);                              // the last, short batch is dropped
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    dev_close(&dev);
}

static void augmentation_moves_mirrors_and_adds_noise(void **state) {
    (void)state;
    enum { S = 8, N = 400 };
    Dev dev;
    open_device(&dev, "ref");
    uint8_t img[S * S];
    int label = 3, index[N] = { 0 }, y[N], shift[9] = { 0 }, mirrored = 0;
    for (int i = 0; i < S * S; i++) img[i] = (uint8_t)(i % S * 10); // columns tell shift and mirror
    const Bytes set = { 1, 1, S, img, &label };
    real *x = malloc(N * S * S * sizeof *x);
    dev.be.batch(&dev, &set, index, N, (Augment){ 0 }, (Rng){ .seed = 1 }, NULL, x, y);
    for (int i = 0; i < N * S * S; i++) assert_close(x[i], img[i % (S * S)] / 127.5 - 1, 1e-6);
    assert_int_equal(y[N - 1], 3);
    dev.be.batch(&dev, &set, index, N, (Augment){ .pad = 3, .flip = 1 }, (Rng){ .seed = 1 }, NULL,
                 x, y);
    for (int k = 0; k < N; k++) {
        // column value v stands for source column v / 10; the middle two tell direction and offset
        const int a = (int)lround(((double)x[k * S * S + 3] + 1) * 12.75),
                  b = (int)lround(((double)x[k * S * S + 4] + 1) * 12.75);
        const int m = b < a;
        mirrored += m;
        shift[m ? a - 4 + 3 : a - 3 + 3]++;
    }
    assert_close(mirrored, N / 2, 5 * sqrt(N / 4.0));
    for (int i = 0; i < 7; i++) assert_close(shift[i], N / 7.0, 5 * sqrt(N / 7.0));
    dev.be.batch(&dev, &set, index, N, (Augment){ .noise = (real)0.03 }, (Rng){ .seed = 1 }, NULL,
                 x, y);
    double s = 0, q = 0;
    for (int i = 0; i < N * S * S; i++) {
        const double d = (double)x[i] - (img[i % (S * S)] / 127.5 - 1);
        s += d, q += d * d;
    }
    const double n = N * S * S;
    assert_close(s / n, 0, 5 * 0.03 / sqrt(n));
    assert_close(sqrt(q / n), 0.03, 5 * 0.03 / sqrt(2 * n));
    free(x);
    dev_close(&dev);
}

// ---- the step

static Config small_run(void) {
    Config c;
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    c.batch = 8, c.buffer = 40, c.steps = 2, c.px = PX_CLEAN, c.warmup = 0, c.lr = 0.02,
    c.noise = 0.01;
    return c;
}

// A step so short that log p(x) is straight brings what its gradient promised.
static void short_steps_climb_as_promised(void **state) {
    (void)state;
    Config c = small_run();
    Trainer t;
    Dev dev;
    Set set;
    c.noise = 0, c.step_size = 1e-3, c.reinit = 0;
    open_device(&dev, "ref");
    OK(set_load(&set, "shapes", HALF_TRAIN, &(DataOpts){ .side = 8, .seed = 1 }, err));
    OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
    const StepInput in = { .step = 0 };
    dev.be.copy_in(&dev, &t.state->in, &in, sizeof in);
    replay_take(&t.replay, t.sampled->x, t.state);
    const ChainBatch b = { .x = t.sampled->x, .sums = t.sums, .key = { .seed = 1 } };
    const double climb = sample_climb(&t.chain_pass, &t.chain, &b);
    assert_close(climb, 1, 0.05);
    trainer_close(&t);
    set_free(&set);
    dev_close(&dev);
}

// A set of digits is not mirrored, whatever --flip says; a resumed run finds the option as given.
static void the_option_flip_stays_as_given_where_a_set_is_not_mirrored(void **state) {
    (void)state;
    Dev dev;
    Set set;
    open_device(&dev, "ref");
    OK(set_load(&set, "shapes", HALF_TEST, &(DataOpts){ .side = 8, .seed = 1 }, err));
    for (int flip = 0; flip < 2; flip++) {
        Config c = small_run();
        Trainer t;
        c.px = PX_NONE, c.flip = 1, set.flip = flip;
        OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
        assert_int_equal(t.cfg.flip, 1);
        assert_int_equal(t.flip, flip);
        trainer_close(&t);
    }
    set_free(&set);
    dev_close(&dev);
}

// Three epochs of 125 steps or more: drops are at epochs, except where these merge or are no drops.
static void each_drop_of_the_learning_rate_has_a_step_of_its_own(void **state) {
    (void)state;
    static const struct {
        const char *at;
        uint64_t drop[2];
    } run[] = { { "1/3,2/3", { 125, 375 } },        // 1.33 and 2.67 epochs of 4
                { "0.1,0.5", { 50, 250 } },         // 0.4 epochs: not the first
                { "0.45,0.55", { 250, 275 } },      // 1.8 and 2.2: both the second
                { "0.5,0.95", { 250, 475 } } };     // 3.8: not the end
    Dev dev;
    Set set;
    open_device(&dev, "ref");
    OK(set_load(&set, "shapes", HALF_TEST, &(DataOpts){ .side = 8, .seed = 1 }, err));
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        Config c = small_run();
        Trainer t;
        c.px = PX_NONE, c.schedule = SCHED_STEP, c.epochs = 4;
        strcpy(c.decay_at, run[i].at);
        OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
        assert_int_equal(t.schedule.total, 500);
        assert_int_equal(t.schedule.n_drop, 2);
        for (int k = 0; k < 2; k++) assert_int_equal(t.schedule.drop[k], run[i].drop[k]);
        trainer_close(&t);
    }
    set_free(&set);
    dev_close(&dev);
}

static void run_steps(const Config *c, const char *device, int threads, int n, const char *conv,
                      real *w, real rows[][N_ROW]) {
    Dev dev;
    Trainer t;
    Set set;
    OK(set_load(&set, "shapes", HALF_TRAIN, &(DataOpts){ .side = 8, .seed = 1 }, err));
    const DevOpts o = { .threads = threads,
                        .conv = strcmp(conv, "direct") ? CONV_AUTO : CONV_DIRECT };
    OK(dev_open(&dev, device, &o, NULL, err));
    OK(trainer_open(&t, &dev, NULL, c, &set, 0, err));
    for (int i = 0; i < n; i++) {
        trainer_advance(&t);
        trainer_rows(&t, (uint64_t)i, 1, rows[i]);
    }
    OK(dev_check(&dev, err));
    dev.be.copy_out(&dev, w, t.net.w, 64 * sizeof *w);
    trainer_close(&t);
    set_free(&set);
    dev_close(&dev);
}

static void a_run_repeats_itself_bit_for_bit(void **state) {
    (void)state;
    enum { STEPS = SANITIZED ? 3 : 6 };
    const Config c = small_run();
    real a[64], b[64], ra[STEPS][N_ROW], rb[STEPS][N_ROW];
    static const char *const devices[] = { "ref", "cpu" };
    for (size_t k = 0; k < LEN(devices); k++) {
        if (k && !has_device(devices[k])) continue;
        run_steps(&c, devices[k], 2, STEPS, "direct", a, ra);
        run_steps(&c, devices[k], 2, STEPS, "direct", b, rb);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(ra, rb, sizeof ra);
    }
}

// The mean cross-entropy of the labelled images, by the network as the attack sees it.
static double label_loss(Trainer *t, const real *x) {
    enum { C = 10 };
    real z[8 * C];
    int y[8];
    double loss = 0;
    real *there = t->batch[0].x;
    t->dev->be.copy_in(t->dev, there, x, 8 * 3 * 64 * sizeof *x);
    pass_forward(&t->attack_pass, there);
    t->dev->be.copy_out(t->dev, z, pass_logits(&t->attack_pass)->p, sizeof z);
    t->dev->be.copy_out(t->dev, y, t->batch[0].y, sizeof y);
    for (int i = 0; i < 8; i++) {
        double sum = 0;
        for (int k = 0; k < C; k++) sum += exp((double)z[i * C + k] - (double)z[i * C + y[i]]);
        loss += log(sum) / 8;
    }
    return loss;
}

static void adversarial_training_moves_images_uphill_within_their_ball(void **state) {
    (void)state;
    enum { B = 8, D = 3 * 8 * 8 };
    for (int l2 = 0; l2 < 2; l2++) {
        Dev dev;
        Trainer t;
        Config c;
        Set set;
        real from[B * D], to[B * D];
        config_defaults(&c);
        OK(config_preset(&c, l2 ? "pgd-l2" : "pgd-linf", err));
        strcpy(c.model, "wrn-10-1");
        c.batch = B;
        c.sigma = 0;                                   // noise leaves the box, an attack comes back
        OK(set_load(&set, "shapes", HALF_TRAIN, &(DataOpts){ .side = 8, .seed = 1 }, err));
        open_device(&dev, "ref");
        OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
        gather_batches(&t);
        dev.be.copy_out(&dev, from, t.batch[0].x, sizeof from);
        attack_labelled(&t);
        dev.be.copy_out(&dev, to, t.batch[0].x, sizeof to);
        for (int i = 0; i < B; i++) {
            double sum = 0, most = 0;
            for (int k = i * D; k < (i + 1) * D; k++) {
                const double d = fabs((double)to[k] - (double)from[k]) / 2;
                sum += d * d, most = fmax(most, d);
                assert_less(fabs((double)to[k]), 1 + 1e-6);
            }
            const double went = l2 ? sqrt(sum) : most;
            assert_close(went, c.attack_radius, c.attack_radius / 2); // most of the way, no farther
            assert_less(went, c.attack_radius + 1e-6);
        }
        assert_less(label_loss(&t, from) + 0.1, label_loss(&t, to));
        trainer_close(&t);
        set_free(&set);
        dev_close(&dev);
    }
}

static double first_climb(const Config *c, const Set *set) {
    Dev dev;
    Trainer t;
    real row[N_ROW];
    open_device(&dev, "ref");
    OK(trainer_open(&t, &dev, NULL, c, set, 0, err));
    trainer_advance(&t);
    trainer_rows(&t, 0, 1, row);
    trainer_close(&t);
    dev_close(&dev);
    return (double)row[ROW_CLIMB];
}

// Short moves bring what the slope promises, long ones less, none nothing. After a single step it
// is the batch to learn from that tells, and chains with a class climb its logit.
static void the_log_says_what_chains_gain_by_their_first_move(void **state) {
    (void)state;
    Set set;
    OK(set_load(&set, "shapes", HALF_TEST, &(DataOpts){ .side = 8, .seed = 1 }, err));
    for (int other = 0; other < 2; other++) {
        Config c;
        config_defaults(&c);
        strcpy(c.model, "wrn-10-1");
        c.px = PX_SHARED;
        c.batch = 4;
        c.buffer = 16;
        c.start = START_UNIFORM;
        c.steps = other ? 1 : 2;
        c.conditional = other;
        c.step_size = 0.005;
        assert_close(first_climb(&c, &set), 1, 0.04);
        c.step_size = 5;
        c.clip = 0;
        assert_less(first_climb(&c, &set), 0.9);
        c.step_size = 0;
        assert_true(first_climb(&c, &set) == 0);
    }
    set_free(&set);
}

static Config tiny_run(Set *set) {
    Config c;
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    c.batch = 4, c.buffer = 16, c.start = START_UNIFORM, c.steps = 1, c.warmup = 0;
    OK(set_load(set, "shapes", HALF_TEST, &(DataOpts){ .side = 8, .seed = 1 }, err));
    return c;
}

// Weights after one step from the same initial state; over: in the step before, f(x) - f(x_q)
// exceeded the margin.
static void one_step(const Config *c, const Set *set, int over, real w[64], real row[N_ROW]) {
    Dev dev;
    Trainer t;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, c, set, 0, err));
    StepState now = trainer_state(&t);
    now.over_margin = over;
    dev.be.copy_in(&dev, t.state, &now, sizeof now);
    trainer_advance(&t);
    trainer_rows(&t, 0, 1, row);
    dev.be.copy_out(&dev, w, t.net.w, 64 * sizeof *w);
    trainer_close(&t);
    dev_close(&dev);
}

static void over_the_margin_the_terms_of_px_change_sign(void **state) {
    (void)state;
    Set set;
    real w[4][64], row[4][N_ROW];
    Config c = tiny_run(&set);
    for (c.px = PX_CLEAN; c.px < PX_NONE; c.px++) {
        Config other = c;
        c.px_margin = 1, other.px_margin = 0, other.penalty = c.penalty = 0.1;
        one_step(&c, &set, 1, w[0], row[0]);
        one_step(&c, &set, 0, w[1], row[1]);
        one_step(&other, &set, 1, w[2], row[2]);
        assert_memory_equal(w[1], w[2], sizeof w[1]);       // below it: as without a margin
        assert_memory_equal(row[1], row[2], sizeof row[1]);
        other.px_weight = -1;
        one_step(&other, &set, 0, w[3], row[3]);
        assert_memory_equal(w[0], w[3], sizeof w[0]);   // over it: p(x), and it alone, reversed
        assert_memory_equal(row[0], row[3], sizeof row[0]);
        assert_true(memcmp(w[0], w[1], sizeof w[0]) != 0);
    }
    set_free(&set);
}

// The gradient after the first step, which changes nothing as the learning rate is 0; malloc'd.
static real *gradient_of(const Config *c, const Set *set, real row[N_ROW], size_t *n) {
    Dev dev;
    Trainer t;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, c, set, 0, err));
    trainer_advance(&t);
    trainer_rows(&t, 0, 1, row);
    *n = t.net.n_w;
    real *dw = malloc(*n * sizeof *dw);
    assert_non_null(dw);
    dev.be.copy_out(&dev, dw, t.net.dw, *n * sizeof *dw);
    trainer_close(&t);
    dev_close(&dev);
    return dw;
}

// Twelve labelled images and four chains, and the two terms apart: a classifier in batches of
// twelve, and p(x) of four others, of the first four of them, or of all twelve.
static void more_labelled_images_than_px_has(void **state) {
    (void)state;
    enum { BOTH, CLASSIFIER, PX, N };
    Set set;
    size_t n = 0;
    real *dw[N], row[N][N_ROW];
    const Config c = tiny_run(&set);
    static const int of_labels[] = { ROW_CE, ROW_RIGHT }, of_px[] = { ROW_FX, ROW_FXQ, ROW_CLIMB };
    for (int px = PX_CLEAN; px < PX_NONE; px++) {
        for (int i = 0; i < N; i++) {
            Config one = c;
            one.lr = 0, one.labelled = 12, one.px = (PxRule)px;
            if (i == CLASSIFIER) one.px = PX_NONE, one.batch = 12;
            if (i == PX) one.pyx_weight = 0;
            dw[i] = gradient_of(&one, &set, row[i], &n);
        }
        for (size_t k = 0; k < n; k++) dw[PX][k] += dw[CLASSIFIER][k];
        assert_less(distance(dw[BOTH], dw[PX], n), sizeof(real) == 8 ? 1e-12 : 1e-5);
        for (int k = 0; k < 2; k++)
            assert_true(row[BOTH][of_labels[k]] == row[CLASSIFIER][of_labels[k]]);
        for (int k = 0; k < 3; k++) assert_true(row[BOTH][of_px[k]] == row[PX][of_px[k]]);
        assert_close(row[BOTH][ROW_LOSS], row[PX][ROW_LOSS] + row[CLASSIFIER][ROW_LOSS], 1e-5);
        for (int i = 0; i < N; i++) free(dw[i]);
    }
    set_free(&set);
}

static void sam_changes_the_step_and_not_the_log_row(void **state) {
    (void)state;
    Set set;
    real w[4][64], row[4][N_ROW];
    Config c = tiny_run(&set);
    for (int i = 0; i < 4; i++) {
        c.sam = i % 2 ? 2 : 0;
        c.loss_limit = i < 2 ? 1e4 : 1;                     // above it: the step is not taken
        one_step(&c, &set, 0, w[i], row[i]);
    }
    assert_true(memcmp(w[0], w[1], sizeof w[0]) != 0);
    assert_memory_equal(row[0], row[1], sizeof row[0]);     // the log is of the first gradient
    assert_true(row[3][ROW_HALT] == HALT_LOSS);
    assert_memory_equal(w[2], w[3], sizeof w[2]);
    set_free(&set);
}

static void a_step_with_climb_below_its_limit_is_not_taken(void **state) {
    (void)state;
    Dev dev;
    Trainer t;
    Set set;
    real w[2][64], x[2][16 * 3 * 8 * 8];                   // the whole buffer
    Config c = tiny_run(&set);
    c.climb_limit = 0.9;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
    t.step = 100;
    StepState now = trainer_state(&t);
    now.climb = (real)0.8;
    dev.be.copy_in(&dev, t.state, &now, sizeof now);
    for (int i = 0; i < 2; i++) {
        dev.be.copy_out(&dev, w[i], t.net.w, sizeof w[i]);
        dev.be.copy_out(&dev, x[i], t.replay.x, sizeof x[i]);
        if (!i) trainer_advance(&t);
    }
    assert_int_equal(trainer_state(&t).halt, HALT_CLIMB);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    trainer_close(&t);
    dev_close(&dev);
    set_free(&set);
}

// Six steps of a classifier.
static void sam_steps(double sam, double from, int images, real rows[6][N_ROW]) {
    real w[64];
    Config c = small_run();
    c.px = PX_NONE, c.iterations = 6, c.sam = sam, c.sam_from = from, c.sam_images = images;
    run_steps(&c, "ref", 1, 6, "direct", w, rows);
}

static void all_images_or_some_choose_the_direction(void **state) {
    (void)state;
    real rows[3][6][N_ROW];
    sam_steps(2, 0, 0, rows[0]);
    sam_steps(2, 0, 8, rows[1]);                            // the whole batch
    sam_steps(2, 0, 6, rows[2]);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_true(memcmp(rows[0], rows[2], sizeof rows[0]) != 0);
}

static void sam_begins_at_its_share_of_the_run(void **state) {
    (void)state;
    real rows[3][6][N_ROW];
    sam_steps(0, 0, 0, rows[0]);
    sam_steps(2, 0.5, 0, rows[1]);
    sam_steps(2, 0, 0, rows[2]);
    // a step shows in the row of the next
    assert_memory_equal(rows[0], rows[1], 4 * sizeof rows[0][0]);
    assert_true(memcmp(rows[0][4], rows[1][4], sizeof rows[0][4]) != 0);
    assert_true(memcmp(rows[0][1], rows[2][1], sizeof rows[0][1]) != 0);
}

// Before it the run is that of a classifier, and the buffer waits.
static void px_begins_at_its_share_of_the_run(void **state) {
    (void)state;
    enum { STEPS = 6, BEFORE = 3 };
    Dev dev;
    Trainer t[2];
    Set set;
    real w[2][64], row[2][N_ROW], x[2][16];
    Config c = tiny_run(&set);
    c.iterations = STEPS, c.steps = 2;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    for (int i = 0; i < 2; i++) {
        Config one = c;
        if (i) one.px = PX_NONE;
        else one.px = PX_SHARED, one.px_from = 0.5;             // whose terms share a batch
        OK(trainer_open(&t[i], &dev, NULL, &one, &set, 0, err));
    }
    dev.be.copy_out(&dev, x[0], t[0].replay.x, sizeof x[0]);
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < 2; i++) {
            trainer_advance(&t[i]);
            trainer_rows(&t[i], (uint64_t)k, 1, row[i]);
            dev.be.copy_out(&dev, w[i], t[i].net.w, sizeof w[i]);
        }
        assert_int_equal(px_active(&t[0]), k >= BEFORE);
        assert_true((memcmp(w[0], w[1], sizeof w[0]) == 0) == (k < BEFORE));
        assert_true((row[0][ROW_CLIMB] == 0) == (k < BEFORE));
        if (k < BEFORE) assert_memory_equal(row[0], row[1], 8 * sizeof row[0][0]);
    }
    assert_true(t[0].px_began == BEFORE && t[0].replay.drawn >= (uint32_t)c.buffer);
    for (int i = 0; i < 2; i++) trainer_close(&t[i]);
    dev_close(&dev);
    set_free(&set);
}

// Six steps, of which the second trainer takes over the last three from a checkpoint.
static void resume_in_the_middle(const Config *c, const Set *set, double boost) {
    char path[] = "/tmp/jempp_train_XXXXXX";
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    Dev dev;
    Trainer t[2];
    Snapshot file = { 0 };
    RunState run = { .lr_scale = 1, .best_accuracy = -1 }, read;
    real w[2][64];
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    for (int i = 0; i < 2; i++) OK(trainer_open(&t[i], &dev, NULL, c, set, i, err));
    t[0].sam_boost = boost;
    for (int i = 0; i < 3; i++) trainer_advance(&t[0]);
    OK(ckpt_take(&file, &t[0], &run, path, NULL, err));
    OK(snapshot_write(&file, err));
    OK(ckpt_load(&t[1], &read, path, err));
    assert_true(t[1].sam_boost == boost && t[1].px_began == t[0].px_began);
    assert_true(trainer_state(&t[1]).climb == trainer_state(&t[0]).climb);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) trainer_advance(&t[i]);
        dev.be.copy_out(&dev, w[i], t[i].net.w, sizeof w[i]);
        trainer_close(&t[i]);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    snapshot_free(&file, &dev);
    dev_close(&dev);
    remove(path);
}

// Loads a checkpoint of the trainer that was just written.
static int load_own_checkpoint(Trainer *t, Err *why) {
    char path[] = "/tmp/jempp_train_XXXXXX";
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    Snapshot file = { 0 };
    RunState run = { .lr_scale = 1 }, read;
    OK(ckpt_take(&file, t, &run, path, NULL, err));
    OK(snapshot_write(&file, err));
    const int rc = ckpt_load(t, &read, path, why);
    snapshot_free(&file, t->dev);
    remove(path);
    return rc;
}

static void a_checkpoint_whose_px_began_after_it_is_refused(void **state) {
    (void)state;
    Dev dev;
    Trainer t;
    Set set;
    Err why = { 0 };
    const Config c = tiny_run(&set);
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
    t.px_began = 7;
    assert_int_equal(load_own_checkpoint(&t, &why), -1);
    assert_non_null(strstr(why.msg, "px_began 7: expected 0 to step 0"));
    trainer_close(&t);
    dev_close(&dev);
    set_free(&set);
}

// Chains are kept in [-1, 1] but for the noise, which is never more than six times its sd.
static void a_pixel_where_no_chain_ends_is_refused(void **state) {
    (void)state;
    static const struct {
        double noise;
        int clamp;
        real pixel;
        const char *why;
    } cases[] = { { 0, 1, -1, NULL },
                  { 0, 1, 1e30f, "'replay' has 1e+30 at element 3, expected -1 to 1" },
                  { 0.5, 1, 4, NULL },
                  { 0.5, 1, -4.5f, "'replay' has -4.5 at element 3, expected -4 to 4" },
                  { 0, 0, 1e30f, NULL } };
    Dev dev;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Trainer t;
        Set set;
        Err why = { 0 };
        Config c = tiny_run(&set);
        c.noise = cases[i].noise, c.clamp = cases[i].clamp;
        OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
        dev.be.copy_in(&dev, t.replay.x + 3, &cases[i].pixel, sizeof cases[i].pixel);
        assert_int_equal(load_own_checkpoint(&t, &why), cases[i].why ? -1 : 0);
        if (cases[i].why) assert_non_null(strstr(why.msg, cases[i].why));
        trainer_close(&t);
        set_free(&set);
    }
    dev_close(&dev);
}

static void stronger_sam_survives_a_checkpoint(void **state) {
    (void)state;
    Set set;
    Config c = tiny_run(&set);
    c.iterations = 6, c.sam = 0.5, c.sam_from = 1;
    resume_in_the_middle(&c, &set, 2);
    set_free(&set);
}

static void a_late_start_of_px_survives_a_checkpoint(void **state) {
    (void)state;
    static const double from[] = { 0.3, 0.6 };                 // before and after the checkpoint
    Set set;
    Config c = tiny_run(&set);
    c.iterations = 6, c.warmup = 3;
    for (int i = 0; i < 2; i++) {
        c.px_from = from[i];
        resume_in_the_middle(&c, &set, 0);
    }
    set_free(&set);
}

// Six steps with sam_boost from the first on; row i + 1 shows what step i learnt.
static void boosted_steps(double sam, double from, double boost, real rows[6][N_ROW]) {
    Dev dev;
    Trainer t;
    Set set;
    Config c = tiny_run(&set);
    c.iterations = 6, c.sam = sam, c.sam_from = from;
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
    t.sam_boost = boost;
    for (int i = 0; i < 6; i++) trainer_advance(&t);
    trainer_rows(&t, 0, 6, rows[0]);
    trainer_close(&t);
    dev_close(&dev);
    set_free(&set);
}

static void a_boost_begins_sam_and_multiplies_its_radius(void **state) {
    (void)state;
    real rows[4][6][N_ROW];
    boosted_steps(1, 0, 0, rows[0]);
    boosted_steps(1, 0.9, 1, rows[1]);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    boosted_steps(4, 0, 0, rows[2]);
    boosted_steps(1, 0.9, 4, rows[3]);
    assert_memory_equal(rows[2], rows[3], sizeof rows[2]);
    assert_true(memcmp(rows[0], rows[2], sizeof rows[0]) != 0);
    boosted_steps(0, 0, 0, rows[0]);
    boosted_steps(0, 0, 4, rows[1]);                        // there is no SAM
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
}

static void sam_becomes_stronger_up_to_four_times(void **state) {
    (void)state;
    real keep;
    const struct {
        int    has, on;
        double boost, then;
    } cases[] = {
        { 1, 0, 0, 1 },                                     // begins
        { 1, 1, 0, 2 },                                     // had begun by --sam-from
        { 1, 1, 1, 2 }, { 1, 1, 2, 4 }, { 1, 1, 4, 4 }, { 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        const Trainer t = { .sam_keep = cases[i].has ? &keep : NULL,
                            .sam_on = cases[i].on,
                            .sam_boost = cases[i].boost };
        assert_true(trainer_stronger_sam(&t) == cases[i].then);
    }
}

static void timing_of_iterations_can_be_stopped(void **state) {
    (void)state;
    Config c;
    Err why = { 0 };
    double ms[2];
    const Events ev = { .stop = stop_at_once };
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    strcpy(c.device, "ref");
    c.batch = 2, c.side = 8, c.buffer = 8, c.steps = 1;
    assert_int_not_equal(train_bench(&c, NULL, 2, ms, NULL, &ev, &why), 0);
    assert_string_equal(why.msg, "stopped");
    OK(train_bench(&c, NULL, 2, ms, NULL, NULL, err));
    assert_true(ms[0] > 0 && ms[1] > 0);
}

static void small_images_and_large_batches_can_be_timed(void **state) {
    (void)state;
    Config c;
    double ms[1];
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    strcpy(c.device, "cpu");
    c.batch = 1001, c.side = 4, c.stem = STEM_4X4, c.steps = 1;
    if (!has_device("cpu")) skip();
    OK(train_bench(&c, NULL, 1, ms, NULL, NULL, err));
}

static void another_number_of_threads_changes_round_off_alone(void **state) {
    (void)state;
    const Config c = small_run();
    if (!has_device("cpu")) skip();
    real a[64], b[64], ra[6][N_ROW], rb[6][N_ROW];
    run_steps(&c, "cpu", 1, 6, "direct", a, ra);
    run_steps(&c, "cpu", 2, 6, "direct", b, rb);
    assert_less(distance(a, b, 64), 1e-4);
    for (int i = 0; i < 6; i++) assert_close(ra[i][ROW_LOSS], rb[i][ROW_LOSS], 1e-3);
}

static void devices_take_the_same_steps(void **state) {
    (void)state;
    if (!has_device("cpu")) skip();
    for (int more = 0; more < 2; more++) {
        Config c = small_run();
        c.labelled = more ? 12 : 0;
        real a[64], b[64], ra[4][N_ROW], rb[4][N_ROW];
        run_steps(&c, "ref", 2, 4, "direct", a, ra);
        run_steps(&c, "cpu", 2, 4, "auto", b, rb);
        assert_less(distance(a, b, 64), 1e-3);
        for (int i = 0; i < 4; i++) assert_close(ra[i][ROW_LOSS], rb[i][ROW_LOSS], 2e-3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_shows_every_image_once),
        cmocka_unit_test(augmentation_moves_mirrors_and_adds_noise),
        cmocka_unit_test(short_steps_climb_as_promised),
        cmocka_unit_test(the_option_flip_stays_as_given_where_a_set_is_not_mirrored),
        cmocka_unit_test(each_drop_of_the_learning_rate_has_a_step_of_its_own),
        cmocka_unit_test(a_run_repeats_itself_bit_for_bit),
        cmocka_unit_test(adversarial_training_moves_images_uphill_within_their_ball),
        cmocka_unit_test(the_log_says_what_chains_gain_by_their_first_move),
        cmocka_unit_test(over_the_margin_the_terms_of_px_change_sign),
        cmocka_unit_test(more_labelled_images_than_px_has),
        cmocka_unit_test(sam_changes_the_step_and_not_the_log_row),
        cmocka_unit_test(a_step_with_climb_below_its_limit_is_not_taken),
        cmocka_unit_test(sam_begins_at_its_share_of_the_run),
        cmocka_unit_test(a_boost_begins_sam_and_multiplies_its_radius),
        cmocka_unit_test(sam_becomes_stronger_up_to_four_times),
        cmocka_unit_test(stronger_sam_survives_a_checkpoint),
        cmocka_unit_test(px_begins_at_its_share_of_the_run),
        cmocka_unit_test(a_checkpoint_whose_px_began_after_it_is_refused),
        cmocka_unit_test(a_pixel_where_no_chain_ends_is_refused),
        cmocka_unit_test(a_late_start_of_px_survives_a_checkpoint),
        cmocka_unit_test(all_images_or_some_choose_the_direction),
        cmocka_unit_test(timing_of_iterations_can_be_stopped),
        cmocka_unit_test(small_images_and_large_batches_can_be_timed),
        cmocka_unit_test(another_number_of_threads_changes_round_off_alone),
        cmocka_unit_test(devices_take_the_same_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
