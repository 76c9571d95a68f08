// test_chains.c - where chains start, what the replay buffer keeps of them, how far fresh ones go:
// laws and bookkeeping.
#include "testing.h"
#include "jem/train.h"
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 4, DIM = SIDE * SIDE };

// n grey images of 4 x 4 in two classes, pixels within +-0.2 so that no draw ever meets the clamp.
static void toy_set(Set *s, int n) {
    *s = (Set){ .c = 1, .side = SIDE, .classes = 2, .n = (size_t)n };
    s->x = arena_alloc(&s->arena, (size_t)n * DIM, 1);
    s->y = arena_alloc(&s->arena, (size_t)n, sizeof *s->y);
    const Rng key = { .seed = 9, .stream = RNG_TEST };
    for (int i = 0; i < n; i++) {
        s->y[i] = i % 3 == 0;
        const uint32_t common = rng_below(key, (uint64_t)i * 100, 20);      // neighbours correlate
        for (int k = 0; k < DIM; k++)
            s->x[i * DIM + k] = (uint8_t)(110 + 10 * s->y[i] + common +
                                          rng_below(key, (uint64_t)(i * 100 + k + 1), 12));
    }
}

static double pixel(const Set *s, size_t i, int k) { return s->x[i * DIM + (size_t)k] / 127.5 - 1; }

// Mean and covariance (divided by n) of one class, or of all (cls -1).
static int moments(const Set *s, int cls, double mean[DIM], double cov[DIM][DIM]) {
    int n = 0;
    memset(mean, 0, DIM * sizeof *mean);
    memset(cov, 0, DIM * sizeof *cov);
    for (size_t i = 0; i < s->n; i++) {
        if (cls >= 0 && s->y[i] != cls) continue;
        n++;
        for (int k = 0; k < DIM; k++) mean[k] += pixel(s, i, k);
    }
    for (int k = 0; k < DIM; k++) mean[k] /= n;
    for (size_t i = 0; i < s->n; i++)
        for (int a = 0; a < DIM && (cls < 0 || s->y[i] == cls); a++)
            for (int b = 0; b < DIM; b++)
                cov[a][b] += (pixel(s, i, a) - mean[a]) * (pixel(s, i, b) - mean[b]) / n;
    return n;
}

// Draws many starts of class `cls` and compares every mean and every covariance within six sigma.
static void check_law(const char *device, StartKind kind, int n_images, int cls) {
    enum { DRAWS = 20000 };
    Dev dev;
    Set set;
    Bytes bytes;
    Starts st;
    open_device(&dev, device);
    toy_set(&set, n_images);
    OK(bytes_upload(&bytes, &dev, &set, err));
    OK(starts_open(&st, &dev, kind, &set, &bytes, err));
    real *out = malloc(DRAWS * DIM * sizeof *out),
         *there = dev.be.alloc(&dev, DRAWS * DIM * sizeof *out, "draws");
    int *number = malloc(DRAWS * sizeof *number), *of = malloc(DRAWS * sizeof *of);
    for (int i = 0; i < DRAWS; i++) number[i] = i, of[i] = cls;
    starts_draw(&st, 5, number, of, DRAWS, there, DRAWS);
    dev.be.copy_out(&dev, out, there, DRAWS * DIM * sizeof *out);

    double mean[DIM], cov[DIM][DIM], m[DIM] = { 0 };
    moments(&set, kind == START_GAUSSIAN ? -1 : cls, mean, cov);
    for (int a = 0; a < DIM; a++) cov[a][a] += 1e-4;
    for (int i = 0; i < DRAWS; i++)
        for (int a = 0; a < DIM; a++) m[a] += (double)out[i * DIM + a] / DRAWS;
    for (int a = 0; a < DIM; a++) {
        assert_close(m[a], mean[a], 6 * sqrt(cov[a][a] / DRAWS));
        for (int b = 0; b < DIM; b++) {
            double c = 0;
            for (int i = 0; i < DRAWS; i++)
                c += ((double)out[i * DIM + a] - m[a]) * ((double)out[i * DIM + b] - m[b]) / DRAWS;
            assert_close(c, cov[a][b],
                         6 * sqrt((cov[a][a] * cov[b][b] + cov[a][b] * cov[a][b]) / DRAWS));
        }
    }
    free(out), free(number), free(of);
    dev.be.free(&dev, there);
    starts_close(&st);
    bytes_free(&bytes, &dev);
    set_free(&set);
    dev_close(&dev);
}

static void chain_starts_have_the_mean_and_covariance_of_their_class(void **state) {
    (void)state;
    check_law("ref", START_INFORMATIVE, 120, 1);
    check_law("ref", START_INFORMATIVE, 12, 0);            // fewer images than pixels
    check_law("ref", START_GAUSSIAN, 60, 0);
    if (has_device("cpu")) check_law("cpu", START_INFORMATIVE, 12, 1);
    if (has_device("cpu")) check_law("cpu", START_INFORMATIVE, 120, 0);
}

static void devices_draw_the_same_starts(void **state) {
    (void)state;
    if (!has_device("cpu")) skip();
    enum { DRAWS = 70, N = 300, D = 3 * 10 * 10 };      // an odd length, and more draws than a tile
    real *out[2];
    for (int k = 0; k < 2; k++) {
        Dev dev;
        Set set = { .c = 3, .side = 10, .classes = 3, .n = N };
        Bytes bytes;
        Starts st;
        open_device(&dev, k ? "cpu" : "ref");
        set.x = arena_alloc(&set.arena, N * D, 1);
        set.y = arena_alloc(&set.arena, N, sizeof *set.y);
        const Rng key = { .seed = 2, .stream = RNG_TEST };
        for (int i = 0; i < N * D; i++) set.x[i] = (uint8_t)rng_below(key, (uint64_t)i, 256);
        for (int i = 0; i < N; i++) set.y[i] = i % 3;
        OK(bytes_upload(&bytes, &dev, &set, err));
        OK(starts_open(&st, &dev, START_INFORMATIVE, &set, &bytes, err));
        int number[DRAWS], cls[DRAWS];
        for (int i = 0; i < DRAWS; i++) number[i] = 7 + i, cls[i] = i % 3;
        real *there = dev.be.alloc(&dev, DRAWS * D * sizeof(real), "draws");
        out[k] = malloc(DRAWS * D * sizeof(real));
        starts_draw(&st, 5, number, cls, DRAWS, there, DRAWS);
        dev.be.copy_out(&dev, out[k], there, DRAWS * D * sizeof(real));
        dev.be.free(&dev, there);
        starts_close(&st);
        bytes_free(&bytes, &dev);
        set_free(&set);
        dev_close(&dev);
    }
    assert_less(distance(out[1], out[0], DRAWS * D), 1e-5);
    free(out[0]), free(out[1]);
}

// With every coefficient kept, the Gaussian of a file is that of its images, but for rounding.
static void starts_in_a_model_have_the_covariance_of_its_images(void **state) {
    (void)state;
    Set set;
    toy_set(&set, 600);
    StartsFile f = { .n_group = 2, .kept = DIM, .channels = 1, .side = SIDE };
    double mu[DIM], cov[DIM][DIM], row[DIM][DIM], room[DIM], off = 0, size = 0;
    Cosine cosine;
    OK(starts_file_fit(&set, &f, err));
    OK(cosine_open(&cosine, 1, SIDE, err));
    moments(&set, 1, mu, cov);
    const int8_t *lower = f.lower + starts_lower_len(DIM);
    for (int c = 0; c < DIM; c++) {                     // the image that each normal number adds
        for (int a = 0; a < DIM; a++) {
            const double l = a < c ? 0 : (double)lower[starts_lower_len(a) + (size_t)c];
            row[c][a] = l / STARTS_UNIT * (double)f.spectrum[DIM + a];
        }
        cosine_inverse(&cosine, row[c], room);
    }
    for (int a = 0; a < DIM; a++) {
        assert_int_equal(f.index[a], a);
        assert_close(f.mean[DIM + a], mu[a], 1e-6);
        for (int b = 0; b < DIM; b++) {
            double sum = 0;
            for (int c = 0; c < DIM; c++) sum += row[c][a] * row[c][b];
            off += pow(sum - cov[a][b], 2), size += cov[a][b] * cov[a][b];
        }
    }
    assert_less(sqrt(off / size), 0.02);
    cosine_close(&cosine);
    starts_file_free(&f);
    set_free(&set);
}

// 30 million weights are 60 MB; a sixth of it for 10 classes is 1 MB each, half a square of 1,414.
static void large_models_keep_more_of_the_covariance(void **state) {
    (void)state;
    assert_int_equal(starts_kept(30000000, 10, 3072), 1414);
    assert_int_equal(starts_kept(2750000, 10, 3072), 448);
    assert_int_equal(starts_kept(1000, 10, 3072), 448);
    assert_int_equal(starts_kept(30000000, 10, 784), 784);
    assert_int_equal(starts_kept(1000, 10, 192), 192);
}

static void few_images_or_constant_ones_still_make_starts(void **state) {
    (void)state;
    for (int constant = 0; constant < 2; constant++) {
        Set set;
        Cosine cosine;
        double room[2 * DIM];
        real out[DIM];
        StartsFile f = { .n_group = 2, .kept = DIM, .channels = 1, .side = SIDE };
        toy_set(&set, 6);
        if (constant) memset(set.x, 100, set.n * DIM);
        OK(starts_file_fit(&set, &f, err));
        OK(cosine_open(&cosine, 1, SIDE, err));
        starts_file_draw(&f, &cosine, 3, 9, 1, room, out);
        for (int i = 0; i < DIM; i++) {
            assert_true(isfinite((double)out[i]));
            if (constant) assert_close(out[i], 100 / 127.5 - 1, 0.06);
        }
        cosine_close(&cosine);
        starts_file_free(&f);
        set_free(&set);
    }
}

static void the_cosine_transform_keeps_lengths_and_knows_cosines(void **state) {
    (void)state;
    enum { N = 6, PLANE = N * N, ALL = 3 * PLANE };
    Cosine t;
    double x[ALL], was[ALL], room[PLANE], before = 0, after = 0;
    const Rng key = { .seed = 3, .stream = RNG_TEST };
    OK(cosine_open(&t, 3, N, err));
    for (int i = 0; i < ALL; i++) was[i] = x[i] = (double)rng_normal(key, (uint64_t)i);
    cosine_forward(&t, x, room);
    for (int i = 0; i < ALL; i++) before += was[i] * was[i], after += x[i] * x[i];
    assert_close(after, before, 1e-10);
    cosine_inverse(&t, x, room);
    for (int i = 0; i < ALL; i++) assert_close(x[i], was[i], 1e-12);
    for (int i = 0; i < ALL; i++)                       // grey, rows alike, two half waves across
        x[i] = cos(acos(-1) * 2 * (i % N + 0.5) / N);
    cosine_forward(&t, x, room);
    for (int i = 0; i < ALL; i++) assert_close(x[i], i == 2 ? sqrt(3 * PLANE / 2.) : 0, 1e-12);
    cosine_close(&t);
}

// The variance of each cosine coefficient of n images x, about their mean.
static void coefficient_variances(const double *x, int n, double var[DIM]) {
    double sum[DIM] = { 0 }, square[DIM] = { 0 }, room[DIM];
    Cosine t;
    OK(cosine_open(&t, 1, SIDE, err));
    for (int i = 0; i < n; i++) {
        double image[DIM];
        memcpy(image, x + (size_t)i * DIM, sizeof image);
        cosine_forward(&t, image, room);
        for (int a = 0; a < DIM; a++) sum[a] += image[a], square[a] += image[a] * image[a];
    }
    for (int a = 0; a < DIM; a++) var[a] = square[a] / n - sum[a] / n * (sum[a] / n);
    cosine_close(&t);
}

static void starts_in_a_model_vary_like_its_images(void **state) {
    (void)state;
    enum { DRAWS = 20000, KEPT = 5, IMAGES = 600 };
    Dev dev;
    Set set;
    Starts st;
    StartsFile f = { .n_group = 2, .kept = KEPT, .channels = 1, .side = SIDE };
    open_device(&dev, "ref");
    toy_set(&set, IMAGES);
    OK(starts_file_fit(&set, &f, err));
    OK(starts_open_model(&st, &dev, START_INFORMATIVE, 2, &f, err));
    real *there = dev.be.alloc(&dev, DRAWS * DIM * sizeof *there, "draws");
    real *out = malloc(DRAWS * DIM * sizeof *out);
    double *x = malloc(DRAWS * DIM * sizeof *x), expected[DIM], found[DIM];
    int *number = malloc(DRAWS * sizeof *number), *of = malloc(DRAWS * sizeof *of), n = 0;
    for (int i = 0; i < DRAWS; i++) number[i] = i, of[i] = 1;
    for (size_t i = 0; i < set.n; i++) {
        for (int k = 0; k < DIM; k++) x[n * DIM + k] = pixel(&set, i, k);
        n += set.y[i];
    }
    coefficient_variances(x, n, expected);
    starts_draw(&st, 5, number, of, DRAWS, there, DRAWS);
    dev.be.copy_out(&dev, out, there, DRAWS * DIM * sizeof *out);
    for (int i = 0; i < DRAWS * DIM; i++) x[i] = (double)out[i];
    coefficient_variances(x, DRAWS, found);
    for (int a = 0; a < DIM; a++)                       // 6 sigma, and rounding
        assert_close(found[a], expected[a] + 1e-4, 0.1 * expected[a]);
    starts_draw(&st, 5, number + 7, of, 1, there, DRAWS);   // a number always gives the same image
    real again[DIM];
    dev.be.copy_out(&dev, again, there + (size_t)7 * DIM, sizeof again);
    assert_memory_equal(again, out + (size_t)7 * DIM, sizeof again);
    free(x), free(out), free(number), free(of);
    dev.be.free(&dev, there);
    starts_close(&st);
    starts_file_free(&f);
    set_free(&set);
    dev_close(&dev);
}

// ---- the buffer

typedef struct {
    Dev dev;
    Set set;
    Bytes bytes;
    Starts starts;
    Replay replay;
    StepState *now;
    real *x;
} Chains;

static void open_chains(Chains *c, int conditional, double rate, int active) {
    Config cfg;
    config_defaults(&cfg);
    cfg.batch = 8, cfg.buffer = 20, cfg.reinit = rate, cfg.conditional = conditional;
    cfg.active = active;
    open_device(&c->dev, "ref");
    toy_set(&c->set, 60);
    OK(bytes_upload(&c->bytes, &c->dev, &c->set, err));
    OK(starts_open(&c->starts, &c->dev, START_INFORMATIVE, &c->set, &c->bytes, err));
    OK(replay_open(&c->replay, &c->starts, &cfg, 3, 2, 0, err));
    c->now = c->dev.be.alloc(&c->dev, sizeof *c->now, "now");
    c->x = c->dev.be.alloc(&c->dev, 8 * DIM * sizeof(real), "x");
}

static void close_chains(Chains *c) {
    c->dev.be.free(&c->dev, c->now);
    c->dev.be.free(&c->dev, c->x);
    replay_close(&c->replay);
    starts_close(&c->starts);
    bytes_free(&c->bytes, &c->dev);
    set_free(&c->set);
    dev_close(&c->dev);
}

static int same_row(const real *a, const real *b) { return memcmp(a, b, DIM * sizeof *a) == 0; }

// Brightness tells the toy classes apart: 110 + ... against 120 + ...
static double brightness(const real *x) {
    double s = 0;
    for (int k = 0; k < DIM; k++) s += (double)x[k];
    return s / DIM;
}

static void chains_begin_anew_as_often_as_asked_and_never_twice_from_one_start(void **state) {
    (void)state;
    enum { STEPS = 2000, MOST = 1200 };
    Chains c;
    open_chains(&c, 0, 0.05, 0);
    real *seen = malloc(MOST * DIM * sizeof *seen);
    int fresh = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint32_t used = replay_ready(&c.replay, step);
        *c.now = (StepState){ .in.step = (uint32_t)step, .in.drawn = c.replay.drawn };
        replay_take(&c.replay, c.x, c.now);
        uint32_t found = 0;
        for (int i = 0; i < 8; i++) {
            for (int k = 0; k < i; k++)
                assert_true(c.replay.slot[i] != c.replay.slot[k]); // no collision
            if (same_row(c.x + i * DIM, c.replay.x + c.replay.slot[i] * DIM)) continue;
            found++;
            assert_true(fresh < MOST);
            for (int k = 0; k < fresh; k++) assert_false(same_row(c.x + i * DIM, seen + k * DIM));
            memcpy(seen + fresh++ * DIM, c.x + i * DIM, DIM * sizeof *seen);
        }
        assert_int_equal(found, used);
        c.replay.drawn += used;
    }
    const double p = 0.05, n = 8.0 * STEPS;
    assert_close(fresh, n * p, 5 * sqrt(n * p * (1 - p)));
    free(seen);
    close_chains(&c);
}

static void finished_chains_go_back_to_their_slots(void **state) {
    (void)state;
    Chains c;
    open_chains(&c, 0, 0, 0);
    real *old = malloc(20 * DIM * sizeof *old);
    memcpy(old, c.replay.x, 20 * DIM * sizeof *old);
    *c.now = (StepState){ .in.step = 4 };
    replay_ready(&c.replay, 4);
    replay_take(&c.replay, c.x, c.now);
    for (int i = 0; i < 8 * DIM; i++) c.x[i] = (real)(100 + i / DIM);
    c.now->halt = HALT_GAP;
    replay_store(&c.replay, c.x, c.now);                    // after a divergence nothing is written
    assert_memory_equal(c.replay.x, old, 20 * DIM * sizeof *old);
    c.now->halt = HALT_NO;
    replay_store(&c.replay, c.x, c.now);
    int written = 0;
    for (int s = 0; s < 20; s++) {
        int from = -1;
        for (int i = 0; i < 8; i++)
            if (c.replay.slot[i] == s) from = i;
        written += from >= 0;
        if (from >= 0) assert_true(c.replay.x[s * DIM] == (real)(100 + from));
        else assert_true(same_row(c.replay.x + s * DIM, old + s * DIM));
    }
    assert_int_equal(written, 8);
    free(old);
    close_chains(&c);
}

static void check_classes_of_chains(int active) {
    Chains c;
    open_chains(&c, 1, 0.5, active);
    double mean[2], m[DIM], cov[DIM][DIM];
    for (int k = 0; k < 2; k++) {
        moments(&c.set, k, m, cov);
        mean[k] = 0;
        for (int i = 0; i < DIM; i++) mean[k] += m[i] / DIM;
    }
    double sum[2] = { 0 };
    int count[2] = { 0 };
    for (uint64_t step = 0; step < 300; step++) {
        const uint32_t used = replay_ready(&c.replay, step);
        *c.now = (StepState){ .in.step = (uint32_t)step, .in.drawn = c.replay.drawn };
        replay_take(&c.replay, c.x, c.now);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(c.replay.y[i], c.replay.slot[i] >= 10);
            sum[c.replay.y[i]] += brightness(c.x + i * DIM);
            count[c.replay.y[i]]++;
        }
        c.replay.drawn += used;
    }
    for (int k = 0; k < 2; k++)
        assert_close(sum[k] / count[k], mean[k], 0.25 * fabs(mean[1] - mean[0]));
    close_chains(&c);
}

static void chains_with_a_class_begin_in_it(void **state) {
    (void)state;
    check_classes_of_chains(0);
    check_classes_of_chains(12);
}

// Chains are followed slot by slot: when each began, and how often it was moved.
static void active_chains_are_a_window_that_leaves_finished_ones_behind(void **state) {
    (void)state;
    enum { N = 60, ACTIVE = 24, BATCH = 8, STEPS = 3000 };
    const Slots s = { .n = N, .classes = 3, .batch = BATCH, .active = ACTIVE, .rate = 0.2f };
    Rng slot_key = { .seed = 7, .stream = RNG_SLOT },
        fresh_key = { .seed = 7, .stream = RNG_REINIT };
    int began[N], moved[N], finished = 0, class_seen[3] = { 0 };
    double moves = 0;
    for (int i = 0; i < N; i++) began[i] = 0, moved[i] = 0;
    for (int step = 0; step < STEPS; step++) {
        int taken[N] = { 0 }, fresh = 0;
        slot_key.step = fresh_key.step = (uint32_t)step;
        for (int i = 0; i < BATCH; i++) {
            const int at = slots_of(s, slot_key, i);
            assert_in_range(at, 0, N - 1);
            assert_int_equal(taken[at]++, 0);                   // no collision
            if (slots_is_fresh(s, fresh_key, i)) {
                fresh++;
                if (began[at]) {                                // the ring has come round
                    finished++, moves += moved[at];
                    assert_in_range(step - began[at], 35, 40);  // N / (BATCH * rate) = 37.5
                }
                began[at] = step, moved[at] = 0;
                class_seen[slot_class(at, N, 3)]++;
            } else {
                assert_true(step - began[at] <= 15);            // ACTIVE / (BATCH * rate)
            }
            moved[at]++;
        }
        assert_in_range(fresh, 1, 2);                           // BATCH * rate = 1.6
    }
    assert_close(finished, STEPS * 1.6 - N - ACTIVE, 40);
    assert_close(moves / finished, 5, 0.1);                     // 1 / rate
    for (int k = 0; k < 3; k++) assert_close(class_seen[k], STEPS * 1.6 / 3, 20);
}

static void a_rewound_buffer_draws_the_same_starts_again(void **state) {
    (void)state;
    Chains c;
    open_chains(&c, 0, 0.3, 0);
    real first[8 * DIM];
    uint32_t drawn = 0;
    for (int again = 0; again < 2; again++) {
        for (uint64_t step = again ? 30 : 0; step < 40; step++) {
            if (step == 30 && !again) drawn = c.replay.drawn;
            const uint32_t used = replay_ready(&c.replay, step);
            *c.now = (StepState){ .in.step = (uint32_t)step, .in.drawn = c.replay.drawn };
            replay_take(&c.replay, c.x, c.now);
            c.replay.drawn += used;
        }
        if (again) assert_memory_equal(first, c.x, sizeof first);
        memcpy(first, c.x, sizeof first);
        replay_rewind(&c.replay, 3, 30, drawn);
    }
    close_chains(&c);
}

// In 6,000 steps with 8 chains each 48 are expected: the pool is filled several times.
static void rare_fresh_chains_start_from_the_draws_of_their_numbers(void **state) {
    (void)state;
    enum { STEPS = 6000 };
    Chains c;
    open_chains(&c, 0, 0.001, 0);
    real *draw = c.dev.be.alloc(&c.dev, DIM * sizeof *draw, "draw");
    int number = 20, found = 0;                             // those before filled the buffer
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint32_t used = replay_ready(&c.replay, step);
        *c.now = (StepState){ .in.step = (uint32_t)step, .in.drawn = c.replay.drawn };
        replay_take(&c.replay, c.x, c.now);
        for (int i = 0; i < 8; i++) {
            if (same_row(c.x + i * DIM, c.replay.x + c.replay.slot[i] * DIM)) continue;
            const int cls = starts_class(&c.starts, c.replay.prior, 3, (uint32_t)number);
            starts_draw(&c.starts, 3, &number, &cls, 1, draw, 1);
            assert_true(same_row(c.x + i * DIM, draw));
            number++, found++;
        }
        c.replay.drawn += used;
    }
    assert_in_range(found, 20, 76);
    c.dev.be.free(&c.dev, draw);
    close_chains(&c);
}

static void a_reinit_of_almost_nothing_looks_a_little_ahead(void **state) {
    (void)state;
    Chains c;
    open_chains(&c, 0, 1e-9, 0);
    for (uint64_t step = 0; step < 3000; step++) c.replay.drawn += replay_ready(&c.replay, step);
    assert_in_range(c.replay.drawn, 20, 21);
    assert_in_range(c.replay.ahead, 3000, 3000 + 2000);
    close_chains(&c);
}

// Numbers of draws are 32 bits, and a checkpoint may hold any of them.
static void draws_past_two_billion_stay_in_the_pool(void **state) {
    (void)state;
    const uint32_t drawn = 3000000000u;
    Chains c;
    open_chains(&c, 0, 1, 0);
    for (int i = 0; i < c.replay.n_pool * DIM; i++) c.replay.pool[i] = 7;
    replay_rewind(&c.replay, 3, 0, drawn);
    assert_int_equal(replay_ready(&c.replay, 0), 8);
    *c.now = (StepState){ .in.drawn = drawn };
    replay_take(&c.replay, c.x, c.now);
    for (int i = 0; i < 8 * DIM; i++) assert_true(fabsf((float)c.x[i]) <= 1);
    close_chains(&c);
}

// ---- steps of fresh chains

static void fresh_chains_come_as_far_as_those_of_the_buffer(void **state) {
    (void)state;
    Config c = { .steps = 5, .reinit = 0.05 };              // a hundred training steps on average
    const struct {
        double climb, first;
        int steps;
    } plan[] = {
        { 0.75, 4, 49 }, { 0, 1, 182 }, { -3, 0.5, 334 }, { 1, 6, 33 }, { 1.3, 6, 33 },
    };
    for (size_t i = 0; i < LEN(plan); i++) {
        const Anneal a = anneal_plan(&c, plan[i].climb);
        double far = 0;
        assert_true(a.first <= plan[i].first && a.first > 0.95 * plan[i].first);
        assert_int_equal(a.steps, plan[i].steps);
        assert_close(anneal_scale(&a, 0), a.first, 1e-6);
        assert_close(anneal_scale(&a, a.steps - 1), 0.1, 1e-6);
        for (int k = 0; k < a.steps; k++) far += (double)anneal_scale(&a, k);
        assert_close(far, 100, 1e-4);
        assert_close(a.pixel, 0.3, 0);
        assert_close(a.longest, plan[i].first, 0);
    }
    snprintf(c.classes, sizeof c.classes, "cat");
    assert_close(anneal_plan(&c, 0.75).pixel, 0.15, 0);
    assert_close(anneal_scale(&(Anneal){ .steps = 1, .first = 3, .last = 1 }, 0), 3, 0);
    c.reinit = 0;                                           // never restarted: far, but not forever
    assert_close((anneal_plan(&c, 1).steps * 6.1) / 2, 400, 6);
    c.chain_length = 61;                                     // what the model says
    assert_int_equal(anneal_plan(&c, 1).steps, 20);
    c.chain_step = 3;
    assert_int_equal(anneal_plan(&c, 1).steps, 40);         // 61 / (3.1 / 2) = 39.4
    c.chain_length = 1.5;                                   // one step is as long as the chain
    assert_int_equal(anneal_plan(&c, 1).steps, 1);
    assert_close(anneal_plan(&c, 1).first, 1.5, 0);
    c.chain_length = 100, c.chain_step = 1e-9;              // no step is shorter than the last
    assert_int_equal(anneal_plan(&c, 1).steps, 1000);
    assert_close(anneal_plan(&c, 1).first, 0.1, 1e-12);
}

// Three times as long as five moves of 0.2, a step moves a pixel by 3 g: by 0.15 for a g of 0.05.
static void a_long_step_moves_no_pixel_far(void **state) {
    (void)state;
    const Move training = { .inner = 5, .lr = (real)0.2, .clip = 1 };
    const Anneal any = { .steps = 1, .first = 3, .last = 1 };
    Anneal near = any;
    near.pixel = 0.15;
    const Move free = anneal_move(&any, training, 0), limited = anneal_move(&near, training, 0);
    assert_close(free.lr, 0.6, 1e-6);
    assert_close(free.clip, 1, 0);
    assert_close(limited.lr, 0.6, 1e-6);
    assert_close(limited.clip, 0.05, 1e-6);
    const Move strict = { .inner = 5, .lr = (real)0.2, .clip = (real)0.01 };
    assert_close(anneal_move(&near, strict, 0).clip, 0.01, 1e-9);     // an option that is lower
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_starts_have_the_mean_and_covariance_of_their_class),
        cmocka_unit_test(devices_draw_the_same_starts),
        cmocka_unit_test(starts_in_a_model_have_the_covariance_of_its_images),
        cmocka_unit_test(large_models_keep_more_of_the_covariance),
        cmocka_unit_test(few_images_or_constant_ones_still_make_starts),
        cmocka_unit_test(the_cosine_transform_keeps_lengths_and_knows_cosines),
        cmocka_unit_test(starts_in_a_model_vary_like_its_images),
        cmocka_unit_test(chains_begin_anew_as_often_as_asked_and_never_twice_from_one_start),
        cmocka_unit_test(finished_chains_go_back_to_their_slots),
        cmocka_unit_test(chains_with_a_class_begin_in_it),
        cmocka_unit_test(active_chains_are_a_window_that_leaves_finished_ones_behind),
        cmocka_unit_test(a_rewound_buffer_draws_the_same_starts_again),
        cmocka_unit_test(rare_fresh_chains_start_from_the_draws_of_their_numbers),
        cmocka_unit_test(a_reinit_of_almost_nothing_looks_a_little_ahead),
        cmocka_unit_test(draws_past_two_billion_stay_in_the_pool),
        cmocka_unit_test(fresh_chains_come_as_far_as_those_of_the_buffer),
        cmocka_unit_test(a_long_step_moves_no_pixel_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
