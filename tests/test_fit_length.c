// test_fit_length.c - a run finds out how far fresh chains of its model should go.
#include "testing.h"
#include "data/run_data.h"
#include "jem/detail.h"
#include "run/fit.h"
#include "run/model.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { IMAGES = 512, DIM = 3 * 8 * 8 };

static char out[64], line[256];

static void keep_line(void *ctx, const char *text) {
    (void)ctx;
    if (strstr(text, "fresh chains")) snprintf(line, sizeof line, "%s", text);
}

// Chains of four steps in training, all of them new each time: too short for samples.
static Config short_chains(void) {
    Config c;
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    strcpy(c.data, "shapes");
    strcpy(c.out, out);
    c.side = 8, c.batch = 256, c.steps = 4, c.reinit = 1, c.buffer = 512, c.valid_images = 600;
    c.px = PX_SHARED, c.warmup = 10, c.iterations = 150, c.stem = STEM_4X4, c.step_size = 1;
    c.threads = 1;
    return c;
}

static void train(const Config *c) {
    const Events ev = { .line = keep_line };
    FitResult r;
    line[0] = 0;
    OK(fit(c, &ev, &r, err));
}

static void remove_run(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", out);
    assert_int_equal(system(command), 0);
}

static double detail(const float *x, size_t n, int channels, int side) {
    Detail d;
    OK(detail_open(&d, channels, side, err));
    detail_add(&d, x, n / 3);                               // in parts as at once
    detail_add(&d, x + n / 3 * (size_t)(channels * side * side), n - n / 3);
    const double value = detail_value(&d);
    detail_close(&d);
    return value;
}

// Noise has the same variance at all frequencies. What is added to every image, or has a lower
// frequency, or no brightness, does not count.
static void detail_is_the_variance_of_middle_frequencies(void **state) {
    (void)state;
    enum { N = 600, SIDE = 16, PLANE = SIDE * SIDE };
    float *x = malloc(N * 3 * PLANE * sizeof *x);
    for (int i = 0; i < N * 3 * PLANE; i++)
        x[i] = (float)(0.1 * (double)rng_normal((Rng){ .seed = 7 }, (uint64_t)i));
    const double noise = detail(x, N, 3, SIDE);
    assert_close(noise, log(0.1 * 0.1 / 3), 0.02);
    for (int i = 0; i < N * 3 * PLANE; i++) {
        const int image = i / (3 * PLANE), channel = i / PLANE % 3, column = i % SIDE;
        const double red_or_blue[] = { 0.5, 0, -0.5 };
        x[i] += 0.3F + (float)(image % 2 * (0.2 + red_or_blue[channel] * column / SIDE));
    }
    assert_close(detail(x, N, 3, SIDE), noise, 1e-5);
    for (int i = 0; i < N * 3 * PLANE; i++) x[i] *= 2;
    assert_close(detail(x, N, 3, SIDE), noise + log(4), 1e-5);
    for (int i = 0; i < N * PLANE; i++) x[i] = (float)(i / 2 % 2);     // all alike
    assert_close(detail(x, 9, 1, 28), log(1e-12), 1e-5);
    for (int i = 0; i < N * PLANE; i++) x[i] = (float)rng_normal((Rng){ .seed = 8 }, (uint64_t)i);
    assert_close(detail(x, N * PLANE / 784, 1, 28), 0, 0.1);            // another size
    x[5] = NAN;
    assert_true(isnan(detail(x, N, 3, SIDE)));
    free(x);
}

// Of samples of that length, less that of the validation images.
static double more_detail(Model *m, double length, const Set *valid) {
    const Config as_trained = { 0 };
    float *x = malloc((valid->n + IMAGES) * DIM * sizeof *x);
    for (size_t i = 0; i < valid->n * DIM; i++) x[i] = byte_to_pixel(valid->x[i]);
    const double of_real = detail(x, valid->n, 3, 8);
    m->cfg.chain_length = length;
    OK(model_sample(m, &as_trained, NULL, IMAGES, x, NULL, err));
    const double of_samples = detail(x, IMAGES, 3, 8);
    free(x);
    return of_samples - of_real;
}

static void chains_are_as_long_as_gives_samples_the_detail_of_images(void **state) {
    (void)state;
    Config c = short_chains();
    Set images = { 0 }, valid = { 0 };
    Model m;
    train(&c);
    assert_non_null(strstr(line, "a total length of"));
    OK(model_open(&m, &c, out, err));
    const double found = m.cfg.chain_length, start = c.steps / c.reinit;
    assert_true(m.cfg.chain_step > 0 && m.cfg.chain_step <= 6);
    OK(run_images(&m.cfg, NULL, &images, &valid, err));
    // up to the first length with more detail, and back to where it is equal
    const double power = log(found / start) / log(1.25), below = floor(power + 1e-6);
    const double first = more_detail(&m, start, &valid),
                 less = more_detail(&m, start * pow(1.25, below), &valid),
                 more = more_detail(&m, start * pow(1.25, below + 1), &valid);
    assert_true(below >= 0 && below <= 6);
    assert_true(first < 0 ? power > 0.1 : power < 1e-6);    // there was time for another length
    if (power - below > 1e-6) {
        assert_true(less < 0 && more >= 0);
        assert_close(power, below - less / (more - less), 1e-4);
    }
    set_free(&images);
    set_free(&valid);
    model_close(&m);
    remove_run();
}

static void a_length_that_is_given_is_kept(void **state) {
    (void)state;
    Config c = short_chains();
    Model m;
    c.chain_length = 7, c.iterations = 20;
    train(&c);
    assert_string_equal(line, "");
    OK(model_open(&m, &c, out, err));
    assert_close(m.cfg.chain_length, 7, 0);
    model_close(&m);
    remove_run();
}

static void a_short_run_spends_no_time_on_it(void **state) {
    (void)state;
    Config c = short_chains();
    Model m;
    c.iterations = 40;
    train(&c);
    assert_string_equal(line, "");
    OK(model_open(&m, &c, out, err));
    assert_close(m.cfg.chain_length, 0, 0);
    model_close(&m);
    remove_run();
}

int main(void) {
    snprintf(out, sizeof out, "/tmp/jempp-fit-length-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detail_is_the_variance_of_middle_frequencies),
        cmocka_unit_test(chains_are_as_long_as_gives_samples_the_detail_of_images),
        cmocka_unit_test(a_length_that_is_given_is_kept),
        cmocka_unit_test(a_short_run_spends_no_time_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
