// test_train.c - chain starts, the replay buffer, the step: laws, bookkeeping, repeatability.
#include "testing.h"
#include "jem/train.h"
#include "run/ckpt.h"
#include "run/train_bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

// ---- augmentation and batches

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

static Config small_run(void);

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
    real w[2][64], row[2][N_ROW], x[2][DIM];
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

static void a_checkpoint_whose_px_began_after_it_is_refused(void **state) {
    (void)state;
    char path[] = "/tmp/jempp_train_XXXXXX";
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    Dev dev;
    Trainer t;
    Set set;
    Snapshot file = { 0 };
    RunState run = { .lr_scale = 1 }, read;
    Err why = { 0 };
    const Config c = tiny_run(&set);
    OK(dev_open(&dev, "ref", &(DevOpts){ 0 }, NULL, err));
    OK(trainer_open(&t, &dev, NULL, &c, &set, 0, err));
    t.px_began = 7;
    OK(ckpt_take(&file, &t, &run, path, NULL, err));
    OK(snapshot_write(&file, err));
    assert_int_equal(ckpt_load(&t, &read, path, &why), -1);
    assert_non_null(strstr(why.msg, "px_began 7: expected 0 to step 0"));
    snapshot_free(&file, &dev);
    trainer_close(&t);
    dev_close(&dev);
    set_free(&set);
    remove(path);
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
        cmocka_unit_test(draws_past_two_billion_stay_in_the_pool),
        cmocka_unit_test(an_epoch_shows_every_image_once),
        cmocka_unit_test(augmentation_moves_mirrors_and_adds_noise),
        cmocka_unit_test(fresh_chains_come_as_far_as_those_of_the_buffer),
        cmocka_unit_test(a_long_step_moves_no_pixel_far),
        cmocka_unit_test(short_steps_climb_as_promised),
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
        cmocka_unit_test(a_late_start_of_px_survives_a_checkpoint),
        cmocka_unit_test(all_images_or_some_choose_the_direction),
        cmocka_unit_test(timing_of_iterations_can_be_stopped),
        cmocka_unit_test(small_images_and_large_batches_can_be_timed),
        cmocka_unit_test(another_number_of_threads_changes_round_off_alone),
        cmocka_unit_test(devices_take_the_same_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
