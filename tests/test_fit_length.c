// test_fit_length.c - a run finds out how far fresh chains of its model should go.
#include "testing.h"
#include "base/file.h"
#include "base/md5.h"
#include "base/safetensors.h"
#include "jem/detail.h"
#include "run/fit.h"
#include "run/fit_run.h"
#include "run/model.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

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
    c.px = PX_SHARED, c.warmup = 10, c.iterations = 45, c.stem = STEM_4X4, c.step_size = 1;
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

// Detail that grows evenly, from `first`; every length costs 10.
typedef struct {
    double first, slope;
    int    tried;
} Line;

static int detail_on_a_line(void *ctx, int power, double *more, double *cost, Err *why) {
    Line *l = ctx;
    l->tried++;
    *more = l->first + l->slope * power;
    *cost = 10;
    return l->slope < 0 ? err_set(why, ERR_DATA, "falls") : 0;
}

static void the_search_goes_up_to_where_detail_is_that_of_images(void **state) {
    (void)state;
    const struct {
        Line   line;
        double left, power;
        int    tried;
    } cases[] = {
        { { .first = -1.5, .slope = 1 }, 1000, 1.5, 3 },
        { { .first = -1, .slope = 1 }, 1000, 1, 2 },            // exactly
        { { .first = 0.5, .slope = 1 }, 1000, 0, 1 },           // it does not go down
        { { .first = -9, .slope = 1 }, 1000, 2, 3 },            // nor far up
        { { .first = -2.5, .slope = 1 }, 30, 1, 2 },            // 10 left, the next costs 12.5
    };
    double power;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Line l = cases[i].line;
        OK(length_search(&power, detail_on_a_line, &l, cases[i].left, err));
        assert_close(power, cases[i].power, 1e-12);
        assert_int_equal(l.tried, cases[i].tried);
    }
    Line falls = { .slope = -1 };
    Err why = { 0 };
    assert_int_not_equal(length_search(&power, detail_on_a_line, &falls, 1000, &why), 0);
    assert_string_equal(why.msg, "falls");
}

static void a_run_finds_a_length_for_its_model(void **state) {
    (void)state;
    Config c = short_chains();
    Model m;
    train(&c);
    assert_non_null(strstr(line, "a total length of"));
    OK(model_open(&m, &c, out, err));
    const double found = m.cfg.chain_length, start = c.steps / c.reinit;
    assert_true(found >= start && found <= 1.0001 * start * pow(1.25, 2));
    assert_true(m.cfg.chain_step > 0 && m.cfg.chain_step <= 6);
    model_close(&m);
    remove_run();
}

// The options in its model; the file's MD5 to hash.
static int stored(const char *option, char hash[33]) {
    char path[96];
    char *text;
    size_t n;
    St st;
    snprintf(path, sizeof path, "%s/best.safetensors", out);
    OK(file_read(path, 1 << 24, &text, &n, err));
    Md5 md5 = md5_start();
    md5_add(&md5, text, n);
    md5_end(&md5, hash);
    free(text);
    OK(st_open(&st, path, err));
    const int found = strstr(st_meta(&st, "options"), option) != NULL;
    st_close(&st);
    return found;
}

static void a_complete_run_that_is_resumed_keeps_its_model(void **state) {
    (void)state;
    Config c = short_chains();
    char before[33], after[33];
    train(&c);
    assert_true(stored("\nresume = off\n", before));
    c.resume = 1;
    train(&c);
    assert_string_equal(line, "");
    stored("", after);
    assert_string_equal(after, before);
    OK(config_text(&c, "iterations = 46\n", 16, "test", err));
    train(&c);
    assert_non_null(strstr(line, "a total length of"));
    assert_true(stored("\nresume = off\n", after));        // which says nothing of this call
    remove_run();
}

static void a_length_that_is_given_is_kept(void **state) {
    (void)state;
    Config c = short_chains();
    Model m;
    c.chain_length = 7, c.iterations = 5;
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
    c.iterations = 20;
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
        cmocka_unit_test(the_search_goes_up_to_where_detail_is_that_of_images),
        cmocka_unit_test(a_run_finds_a_length_for_its_model),
        cmocka_unit_test(a_complete_run_that_is_resumed_keeps_its_model),
        cmocka_unit_test(a_length_that_is_given_is_kept),
        cmocka_unit_test(a_short_run_spends_no_time_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
