// test_fit_length.c - a run finds out how far fresh chains of its model should go.
#include "testing.h"
#include "data/run_data.h"
#include "jem/fid.h"
#include "run/fit.h"
#include "run/model.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { IMAGES = 512, DIM = 3 * 8 * 8, CLASSES = 10 };

static char out[64], line[256];

static void keep_line(void *ctx, const char *text) {
    (void)ctx;
    if (strstr(text, "fresh chains")) snprintf(line, sizeof line, "%s", text);
}

// Chains of a single step in training, all of them new each time: far too short for samples.
static Config short_chains(void) {
    Config c;
    config_defaults(&c);
    strcpy(c.model, "wrn-10-1");
    strcpy(c.data, "shapes");
    strcpy(c.out, out);
    c.side = 8, c.batch = 256, c.steps = 1, c.reinit = 1, c.buffer = 512, c.valid_images = 600;
    c.px = PX_SHARED, c.warmup = 10, c.iterations = 41, c.stem = STEM_4X4;
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

static void logit_moments(Model *m, const float *x, int n, Moments *to) {
    float *z = malloc((size_t)n * CLASSES * sizeof *z);
    OK(model_logits(m, x, n, z, err));
    OK(moments_of(to, z, (size_t)n, CLASSES, err));
    free(z);
}

// Of samples of that length from the validation images' logits.
static double logit_distance(Model *m, double length, const Moments *real_images) {
    const Config as_trained = { 0 };
    float *x = malloc(IMAGES * DIM * sizeof *x);
    Moments drawn = { 0 };
    double d;
    m->cfg.chain_length = length;
    m->cfg.weight_noise = 0;
    OK(model_sample(m, &as_trained, NULL, IMAGES, x, NULL, err));
    logit_moments(m, x, IMAGES, &drawn);
    OK(frechet_distance(&d, &drawn, real_images, err));
    moments_free(&drawn);
    free(x);
    return d;
}

static void chains_are_as_long_as_makes_samples_look_real_to_the_model(void **state) {
    (void)state;
    Config c = short_chains();
    Set images = { 0 }, valid = { 0 };
    Moments real_images = { 0 };
    Model m;
    train(&c);
    assert_non_null(strstr(line, "a total length of"));
    OK(model_open(&m, &c, out, err));
    const double found = m.cfg.chain_length, start = 1;         // steps / reinit
    assert_true(found > 0);
    assert_true(m.cfg.chain_step > 0 && m.cfg.chain_step <= 6);
    assert_true(fabs(remainder(log(found / start) / log(1.25), 1)) < 1e-6);
    OK(run_images(&m.cfg, NULL, &images, &valid, err));
    float *x = malloc(valid.n * DIM * sizeof *x);
    for (size_t i = 0; i < valid.n * DIM; i++) x[i] = byte_to_pixel(valid.x[i]);
    logit_moments(&m, x, (int)valid.n, &real_images);
    const double here = logit_distance(&m, found, &real_images),
                 nearer = logit_distance(&m, found / 1.25, &real_images),
                 farther = logit_distance(&m, found * 1.25, &real_images),
                 before = logit_distance(&m, start, &real_images);
    assert_true(here <= before && found > 0.99 * start);
    // its neighbours were not better, or the search ends there
    assert_true(here <= nearer || found < 1.01 * start);
    assert_true(here <= farther || found > pow(1.25, 5.5));
    free(x);
    moments_free(&real_images);
    set_free(&images);
    set_free(&valid);
    model_close(&m);
    remove_run();
}

static void a_length_that_is_given_is_kept(void **state) {
    (void)state;
    Config c = short_chains();
    Model m;
    c.chain_length = 7;
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
        cmocka_unit_test(chains_are_as_long_as_makes_samples_look_real_to_the_model),
        cmocka_unit_test(a_length_that_is_given_is_kept),
        cmocka_unit_test(a_short_run_spends_no_time_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
