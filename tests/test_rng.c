// test_rng.c - Philox against its published answers, and the numbers made from it against chance.
//
// The numbers never change, so neither do these tests' verdicts; bounds are 4 to 5 standard errors.
#include "base/rng.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const Rng key = { .seed = 12345, .stream = RNG_TEST, .step = 7, .sub = 3 };

static void assert_block(Rng k, uint32_t block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t r[4];
    rng_block(k, block, r);
    assert_int_equal(r[0], a);
    assert_int_equal(r[1], b);
    assert_int_equal(r[2], c);
    assert_int_equal(r[3], d);
}

static void philox_gives_the_known_answers_of_random123(void **state) {
    (void)state;
    const uint32_t ones = ~0u;
    assert_block((Rng){ 0 }, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    const Rng full = { .seed = ~0ull, .step = ones, .sub = ones, .stream = ones };
    assert_block(full, ones, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
    const Rng pi = { 0x299f31d0a4093822, 0x03707344, .step = 0x85a308d3, .sub = 0x13198a2e };
    assert_block(pi, 0x243f6a88, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

static void elements_are_the_words_of_their_blocks(void **state) {
    (void)state;
    uint32_t r[4];
    float z[4];
    rng_block(key, 5, r);
    rng_normal4(key, 5, z);
    for (unsigned j = 0; j < 4; j++) {
        assert_int_equal(rng_u32(key, 20 + j), r[j]);
        assert_true(rng_normal(key, 20 + j) == z[j]);
    }
}

static void uniforms_fill_the_unit_interval_evenly(void **state) {
    (void)state;
    enum { N = 1 << 20, BINS = 256 };
    static int count[BINS];
    double mean = 0, square = 0, chi2 = 0;
    for (unsigned i = 0; i < N; i++) {
        const double u = (double)rng_uniform(key, i);
        assert_true(u >= 0 && u < 1);
        count[(int)(u * BINS)]++;
        mean += u / N;
        square += u * u / N;
    }
    for (int b = 0; b < BINS; b++) {
        const double d = count[b] - N / BINS;
        chi2 += d * d / (N / BINS);
    }
    assert_true(fabs(mean - 0.5) < 5 * 0.2887 / 1024);                   // sd / sqrt(N)
    assert_true(fabs(square - mean * mean - 1.0 / 12) < 5 * 0.0745 / 1024);
    assert_true(chi2 > 255 - 5 * 22.6 && chi2 < 255 + 5 * 22.6);    // 255 degrees, sd sqrt(510)
}

static void normals_have_the_moments_and_tails_of_a_normal(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    double m[5] = { 0 };
    int over2 = 0, over4 = 0;
    for (unsigned b = 0; b < N / 4; b++) {
        float z[4];
        rng_normal4(key, b, z);
        for (int j = 0; j < 4; j++) {
            const double v = (double)z[j];
            assert_true(fabs(v) < RNG_FARTHEST);
            for (int k = 1; k <= 4; k++) m[k] += pow(v, k) / N;
            over2 += fabs(v) > 2;
            over4 += fabs(v) > 4;
        }
    }
    assert_true(fabs(m[1]) < 5 * 1.0 / 1024);
    assert_true(fabs(m[2] - 1) < 5 * sqrt(2) / 1024);
    assert_true(fabs(m[3]) < 5 * sqrt(15) / 1024);
    assert_true(fabs(m[4] - 3) < 5 * sqrt(96) / 1024);
    assert_true(abs(over2 - 47711) < 5 * 214);           // 4.550 % of N
    assert_true(over4 > 66 - 5 * 8 && over4 < 66 + 5 * 8);
}

static double correlation(Rng a, Rng b, unsigned shift) {
    enum { N = 1 << 18 };
    double sum = 0;
    for (unsigned i = 0; i < N; i++)
        sum += (double)(rng_normal(a, i) * rng_normal(b, i + shift)) / N;
    return sum;
}

static void neighbours_streams_steps_and_seeds_are_uncorrelated(void **state) {
    (void)state;
    const double bound = 5.0 / 512;                      // 5 / sqrt(N)
    for (unsigned shift = 1; shift <= 5; shift++)
        assert_true(fabs(correlation(key, key, shift)) < bound);
    Rng other[4] = { key, key, key, key };
    other[0].stream++;
    other[1].step++;
    other[2].sub++;
    other[3].seed++;
    for (int i = 0; i < 4; i++) assert_true(fabs(correlation(key, other[i], 0)) < bound);
    assert_true(fabs(correlation(key, key, 0) - 1) < 5 * sqrt(2) / 512);
}

static void below_n_is_even_and_in_range(void **state) {
    (void)state;
    enum { N = 100000, SIDES = 10 };
    int count[SIDES] = { 0 };
    double chi2 = 0;
    for (unsigned i = 0; i < N; i++) {
        const uint32_t v = rng_below(key, i, SIDES);
        assert_true(v < SIDES);
        count[v]++;
    }
    for (int k = 0; k < SIDES; k++) chi2 += (count[k] - 1e4) * (count[k] - 1e4) / 1e4;
    assert_true(chi2 < 9 + 5 * 4.24);                    // 9 degrees, sd sqrt(18)
    assert_int_equal(rng_below(key, 0, 1), 0);
}

static void the_numbers_do_not_depend_on_the_threads(void **state) {
    (void)state;
    enum { N = 10007 };
    static float one[N], two[N];
    #pragma omp parallel for num_threads(1)
    for (int i = 0; i < N; i++) one[i] = rng_normal(key, (uint64_t)i);
    #pragma omp parallel for num_threads(2) schedule(dynamic, 3)
    for (int i = N - 1; i >= 0; i--) two[i] = rng_normal(key, (uint64_t)i);
    assert_memory_equal(one, two, sizeof one);
}

static void a_permutation_reaches_every_place_once(void **state) {
    (void)state;
    static const uint32_t sizes[] = { 1, 2, 3, 10, 1000, 10000, 50000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const uint32_t n = sizes[s];
        char *seen = calloc(n, 1);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t to = rng_perm(key, n, i);
            assert_true(to < n);
            assert_int_equal(seen[to]++, 0);
        }
        free(seen);
    }
}

static void another_key_gives_another_permutation(void **state) {
    (void)state;
    Rng next = key;
    next.step++;
    int same = 0;
    for (uint32_t i = 0; i < 10000; i++)
        same += rng_perm(key, 10000, i) == rng_perm(next, 10000, i);
    assert_true(same < 8);                               // one is expected
}

static void every_place_is_as_likely_as_any_other(void **state) {
    (void)state;
    static const uint32_t sizes[] = { 5, 10, 100, 1000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const uint32_t n = sizes[s], tries = 200 * n, element[] = { 0, n / 2, n - 1 };
        for (int e = 0; e < 3; e++) {
            int *count = calloc(n, sizeof *count);
            for (uint32_t t = 0; t < tries; t++)
                count[rng_perm((Rng){ .seed = 1, .stream = RNG_TEST, .step = t }, n, element[e])]++;
            double chi2 = 0;
            for (uint32_t i = 0; i < n; i++) chi2 += (count[i] - 200.0) * (count[i] - 200.0) / 200;
            assert_true(fabs(chi2 - (n - 1)) < 5 * sqrt(2.0 * (n - 1)));
            free(count);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers_of_random123),
        cmocka_unit_test(elements_are_the_words_of_their_blocks),
        cmocka_unit_test(uniforms_fill_the_unit_interval_evenly),
        cmocka_unit_test(normals_have_the_moments_and_tails_of_a_normal),
        cmocka_unit_test(neighbours_streams_steps_and_seeds_are_uncorrelated),
        cmocka_unit_test(below_n_is_even_and_in_range),
        cmocka_unit_test(the_numbers_do_not_depend_on_the_threads),
        cmocka_unit_test(a_permutation_reaches_every_place_once),
        cmocka_unit_test(another_key_gives_another_permutation),
        cmocka_unit_test(every_place_is_as_likely_as_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
