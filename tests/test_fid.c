// test_fid.c - distances between sets of features against pytorch-fid's, torch-fidelity's and
// prdc's (by tools/make_golden_fid.py) and against closed forms; the linear algebra below them.
#include "golden.h"
#include "dev/dense.h"
#include "jem/fid.h"
#include <omp.h>
#include <stdio.h>

// ---- linear algebra ----------------------------------------------------------------------------

static double *random_matrix(size_t n, uint32_t which) {
    const Rng key = { .seed = 7, .stream = RNG_TEST, .step = which };
    double *a = malloc((n + 1) * sizeof *a);
    for (size_t i = 0; i < n; i++) a[i] = (double)rng_uniform(key, i) - 0.5;
    return a;
}

static void products_equal_plain_loops(void **state) {
    (void)state;
    const size_t shapes[][3] = {
        { 1, 1, 1 }, { 8, 6, 256 }, { 9, 7, 257 }, { 70, 13, 5 }, { 65, 130, 600 }
    };
    for (size_t s = 0; s < LEN(shapes); s++) {
        const size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        double *a = random_matrix(m * k, 1), *b = random_matrix(k * n, 2),
               *c = random_matrix(m * n, 3), *want = random_matrix(m * n, 3);
        // b is given transposed, so that both kinds of strides are used
        OK(dense_product(c, n, m, n, k, -2, (Dense){ a, k, 1 }, (Dense){ b, 1, n }, err));
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                for (size_t q = 0; q < k; q++) want[i * n + j] -= 2 * a[i * k + q] * b[q * n + j];
                assert_close(c[i * n + j], want[i * n + j], 1e-12);
            }
        free(a), free(b), free(c), free(want);
    }
}

static void a_gram_matrix_is_the_product_with_itself(void **state) {
    (void)state;
    enum { N = 45, K = 31 };
    double *a = random_matrix(N * K, 4), *c = calloc(N * N, sizeof *c),
           *want = calloc(N * N, sizeof *want);
    OK(dense_gram(c, N, K, 0.5, (Dense){ a, K, 1 }, err));
    dense_mirror(c, N);
    OK(dense_product(want, N, N, N, K, 0.5, (Dense){ a, K, 1 }, (Dense){ a, K, 1 }, err));
    for (size_t i = 0; i < N * N; i++) assert_close(c[i], want[i], 1e-14);
    free(a), free(c), free(want);
}

static void a_factor_gives_the_matrix_back_and_shows_its_rank(void **state) {
    (void)state;
    enum { N = 150 };
    for (size_t k = 40; k <= 300; k += 260) {                 // fewer rows than N, and more
        double *a = random_matrix(N * k, 5), *s = calloc(N * N, sizeof *s),
               *keep = malloc(N * N * sizeof *keep), *f = malloc(N * N * sizeof *f);
        size_t rank;
        OK(dense_gram(s, N, k, 1, (Dense){ a, k, 1 }, err));
        memcpy(keep, s, N * N * sizeof *keep);
        OK(dense_factor(s, N, f, &rank, err));
        assert_true(rank >= (k < N ? k : N) && rank < (k < N ? k + 8 : N + 1));
        OK(dense_gram(keep, N, rank, -1, (Dense){ f, 1, N }, err));
        dense_mirror(keep, N);
        for (size_t i = 0; i < N * N; i++) assert_close(keep[i], 0, 1e-12);
        free(a), free(s), free(keep), free(f);
    }
}

// d_1 .. d_n on the diagonal between two reflections: its singular values are |d_i|.
static void singular_values_of_a_reflected_diagonal(void **state) {
    (void)state;
    const size_t shapes[][2] = { { 1, 1 },   { 2, 2 },   { 32, 32 },  { 33, 33 },
                                 { 40, 40 }, { 70, 33 }, { 20, 51 }, { 150, 131 } };
    for (size_t s = 0; s < LEN(shapes); s++) {
        const size_t m = shapes[s][0], n = shapes[s][1], k = m < n ? m : n;
        double *a = calloc(m * n, sizeof *a), *u = random_matrix(m, 6), *v = random_matrix(n, 7),
               *found = malloc(k * sizeof *found), uu = 0, vv = 0;
        for (size_t i = 0; i < m; i++) uu += u[i] * u[i];
        for (size_t i = 0; i < n; i++) vv += v[i] * v[i];
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                for (size_t q = 0; q < k; q++)                // d_q = q / 4: the first is 0
                    a[i * n + j] += (double)q / 4 * ((double)(i == q) - 2 * u[i] * u[q] / uu) *
                                    ((double)(j == q) - 2 * v[j] * v[q] / vv);
        OK(dense_singular(a, m, n, found, err));
        double sum = 0, squares = 0;
        for (size_t q = 0; q < k; q++) sum += found[q], squares += found[q] * found[q];
        assert_close(sum, (double)(k * (k - 1)) / 8, 1e-11);
        assert_close(squares, (double)(k * (k - 1) * (2 * k - 1)) / 96, 1e-9);
        free(a), free(u), free(v), free(found);
    }
}

// ---- against other programs --------------------------------------------------------------------

// What tools/make_golden_fid.py calls features.
static float *features(uint32_t which, size_t n, size_t dim, double shift) {
    const Rng key = { .seed = 7, .stream = RNG_TEST, .step = which };
    float *x = malloc((n * dim + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < dim; j++) {
            const double u = (double)rng_uniform(key, i * dim + j),
                         first = (double)rng_uniform(key, i * dim);
            x[i * dim + j] = (float)(shift + u * u + 0.5 * first);
        }
    return x;
}

static int kid_of(Kid *k, const float *x, size_t n, const float *y, size_t m, int dim, int subsets,
                  uint64_t seed, Err *err) {
    const PairOpts o = { .subsets = subsets, .seed = seed };
    return compare_pairs(k, NULL, (Features){ x, n, dim }, (Features){ y, m, dim }, &o, NULL, err);
}

static int prdc_of(Prdc *p, const float *y, size_t m, const float *x, size_t n, int dim, int k,
                   Err *err) {
    const PairOpts o = { .nearest = k };
    return compare_pairs(NULL, p, (Features){ x, n, dim }, (Features){ y, m, dim }, &o, NULL, err);
}

static double fid_of(const float *x, size_t n, const float *y, size_t m, int dim) {
    Moments a, b;
    double found;
    OK(moments_of(&a, x, n, dim, err));
    OK(moments_of(&b, y, m, dim, err));
    OK(frechet_distance(&found, &a, &b, err));
    moments_free(&a);
    moments_free(&b);
    return found;
}

static void check_case(St *st, const char *name) {
    double *shape = golden_read(st, name, ".shape", NULL),
           *want = golden_read(st, name, ".found", NULL);
    const size_t n = (size_t)shape[0], m = (size_t)shape[1];
    const int dim = (int)shape[2];
    float *x = features((uint32_t)shape[3], n, (size_t)dim, 0),
          *y = features((uint32_t)shape[4], m, (size_t)dim, 0.1);
    Prdc p;
    OK(prdc_of(&p, x, n, y, m, dim, PRDC_NEAREST, err));
    double found[] = { fid_of(x, n, y, m, dim), 0, p.precision, p.recall, p.density, p.coverage };
    if (want[1] > 0) {
        Kid k;
        OK(kid_of(&k, x, n, y, m, dim, 1, 1, err));
        assert_int_equal(k.n_all, n);
        found[1] = k.all;
    }
    for (size_t i = 0; i < LEN(found); i++)
        if (!(fabs(found[i] - want[i]) <= 1e-6 * fabs(want[i])))
            fail_msg("%s: figure %zu is %.12g, expected %.12g", name, i, found[i], want[i]);
    free(shape), free(want), free(x), free(y);
}

static void check_score(St *st, const char *name) {
    double *shape = golden_read(st, name, ".shape", NULL),
           *want = golden_read(st, name, ".found", NULL);
    const size_t n = (size_t)shape[0], classes = (size_t)shape[1];
    const Rng key = { .seed = 7, .stream = RNG_TEST, .step = (uint32_t)shape[2] };
    float *z = malloc(n * classes * sizeof *z);
    for (size_t i = 0; i < n * classes; i++) {
        const double u = (double)rng_uniform(key, i);
        z[i] = (float)(6 * (u * u));
    }
    InceptionScore s;
    OK(inception_score(&s, z, n, (int)classes, NULL, IS_SPLITS, err));
    assert_close(s.mean, want[0], 1e-6 * want[0]);
    assert_close(s.sd, want[1], 1e-6 * want[1]);
    free(shape), free(want), free(z);
}

static void figures_equal_other_programs(void **state) {
    (void)state;
    St st;
    golden_open(&st, "fid");
    const struct {
        const char *key;
        void (*check)(St *, const char *);
    } kind[] = { { "cases", check_case }, { "scores", check_score } };
    for (size_t i = 0; i < LEN(kind); i++) {
        char text[256], *at = text, *name;
        snprintf(text, sizeof text, "%s", st_meta(&st, kind[i].key));
        while ((name = strsep(&at, ","))) kind[i].check(&st, name);
    }
    st_close(&st);
}

// ---- closed forms ------------------------------------------------------------------------------

// Gaussians with a diagonal covariance: a sum over dimensions of (difference of means)^2 +
// (difference of standard deviations)^2.
static void distance_of_diagonal_gaussians(void **state) {
    (void)state;
    double mean_a[] = { 1, 2, 3 }, cov_a[] = { 4, 0, 0, 0, 9, 0, 0, 0, 0 };
    double mean_b[] = { 1, 0, 3.5 }, cov_b[] = { 1, 0, 0, 0, 0, 0, 0, 0, 0.25 };
    const Moments a = { 10, 3, mean_a, cov_a }, b = { 10, 3, mean_b, cov_b };
    double found;
    OK(frechet_distance(&found, &a, &b, err));
    assert_close(found, (0 + 1) + (4 + 9) + (0.25 + 0.25), 1e-12);
    OK(frechet_distance(&found, &b, &a, err));
    assert_close(found, 14.5, 1e-12);
}

static void a_set_is_at_no_distance_from_itself(void **state) {
    (void)state;
    const size_t counts[] = { 2, 20, 400 };                   // singular covariances and not
    for (size_t i = 0; i < LEN(counts); i++) {
        float *x = features(20, counts[i], 50, 0);
        assert_close(fid_of(x, counts[i], x, counts[i], 50), 0, 1e-12);
        free(x);
    }
}

// A shift moves the mean alone, and twice the deviations add the trace of the covariance.
static void distance_of_shifted_and_stretched_sets(void **state) {
    (void)state;
    enum { N = 60, DIM = 100 };
    float *x = features(21, N, DIM, 0), *y = malloc(N * DIM * sizeof *y);
    Moments a;
    OK(moments_of(&a, x, N, DIM, err));
    double trace = 0, moved = 0;
    for (size_t i = 0; i < DIM; i++) trace += a.cov[i * DIM + i], moved += a.mean[i] * a.mean[i];
    for (size_t i = 0; i < N * DIM; i++) y[i] = x[i] + 0.5f;
    assert_close(fid_of(x, N, y, N, DIM), DIM * 0.25, 1e-5);
    for (size_t i = 0; i < N * DIM; i++) y[i] = 2 * x[i];
    assert_close(fid_of(x, N, y, N, DIM), moved + trace, 1e-9 * moved);
    moments_free(&a);
    free(x), free(y);
}

static void sets_of_equal_images_have_a_distance(void **state) {
    (void)state;
    const float x[] = { 1, 2, 1, 2, 1, 2 }, y[] = { 4, 6, 4, 6 };
    assert_close(fid_of(x, 3, y, 2, 2), 25, 1e-12);
    const float z[] = { 0, 6, 8, 6 };                         // variance 32 beside none
    assert_close(fid_of(x, 3, z, 2, 2), 25 + 32, 1e-12);
}

static void what_has_no_distance_is_refused(void **state) {
    (void)state;
    float x[] = { 1, NAN, 3, 4 };
    double mean[] = { 0, 0 }, bad[] = { 1, 2, 2, 1 }, good[] = { 1, 0, 0, 1 }, found;
    Moments m;
    Err err = { 0 };
    assert_int_not_equal(moments_of(&m, x, 2, 2, &err), 0);
    assert_non_null(strstr(err.msg, "not finite"));
    err = (Err){ 0 };
    assert_int_not_equal(moments_of(&m, x, 1, 2, &err), 0);
    assert_non_null(strstr(err.msg, "found 1 image,"));
    const Moments a = { 10, 2, mean, bad }, b = { 10, 2, mean, good }, c = { 10, 1, mean, good };
    err = (Err){ 0 };
    assert_int_not_equal(frechet_distance(&found, &a, &b, &err), 0);
    assert_non_null(strstr(err.msg, "not a covariance"));
    err = (Err){ 0 };
    assert_int_not_equal(frechet_distance(&found, &c, &b, &err), 0);
    assert_non_null(strstr(err.msg, "cannot be compared"));
}

static void subsets_scatter_around_the_whole(void **state) {
    (void)state;
    enum { N = 1500, M = 1200, DIM = 8 };
    float *x = features(22, N, DIM, 0), *y = features(23, M, DIM, 0.1);
    Kid k, again;
    OK(kid_of(&k, x, N, y, M, DIM, 20, 1, err));
    assert_int_equal(k.subsets, 20);
    assert_int_equal(k.size, 1000);
    assert_int_equal(k.n_all, M);
    assert_true(k.sd > 0);
    assert_less(k.sd, 0.2 * k.all);
    assert_close(k.mean, k.all, k.sd);
    OK(kid_of(&again, x, N, y, M, DIM, 20, 2, err));
    assert_true(again.mean != k.mean);
    free(x), free(y);
}

// (x.y / dim + 1)^3, summed over pairs of images a[i] and b[j] other than an image with itself.
static double kernels(const float *x, const uint32_t *a, const float *y, const uint32_t *b,
                      size_t n, size_t dim) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            if (x == y && a[i] == b[j]) continue;
            double dot = 0;
            for (size_t k = 0; k < dim; k++)
                dot += (double)x[a[i] * dim + k] * (double)y[b[j] * dim + k];
            dot = dot / (double)dim + 1;
            sum += dot * dot * dot;
        }
    return sum / (double)n / (double)(x == y ? n - 1 : n);
}

static double squared(const float *x, size_t i, const float *y, size_t j, size_t dim) {
    double sum = 0;
    for (size_t k = 0; k < dim; k++) {
        const double d = (double)x[i * dim + k] - (double)y[j * dim + k];
        sum += d * d;
    }
    return sum;
}

// The distance of x's image i to its nearest neighbour.
static double nearest(const float *x, size_t n, size_t i, size_t dim) {
    double best = INFINITY;
    for (size_t j = 0; j < n; j++)
        if (j != i) best = fmin(best, squared(x, i, x, j, dim));
    return best;
}

// Sets of more images than are multiplied at a time, and not of the same number.
static void pairs_of_large_sets_equal_plain_loops(void **state) {
    (void)state;
    enum { N = 1230, M = 1040, DIM = 3, SUBSETS = 2 };
    float *x = features(27, N, DIM, 0), *y = features(28, M, DIM, 0.05);
    const PairOpts o = { SUBSETS, 1, 5 };
    Kid kid;
    Prdc prdc;
    const Features samples = { x, N, DIM }, reals = { y, M, DIM };
    OK(compare_pairs(&kid, &prdc, samples, reals, &o, NULL, err));
    double found[SUBSETS + 1], precise = 0, recalled = 0, dense = 0, covered = 0;
    for (uint32_t s = 0; s <= SUBSETS; s++) {
        const size_t n = s ? KID_SUBSET : M;
        uint32_t *a = choose_images(N, n, 5, 2 * s, &(Err){ 0 }),
                 *b = choose_images(M, n, 5, 2 * s + 1, &(Err){ 0 });
        found[s] = kernels(x, a, x, a, n, DIM) + kernels(y, b, y, b, n, DIM) -
                   2 * kernels(x, a, y, b, n, DIM);
        free(a), free(b);
    }
    assert_close(kid.all, found[0], 1e-11);
    assert_close(kid.mean, (found[1] + found[2]) / 2, 1e-11);
    double *reach = malloc(N * sizeof *reach);
    for (size_t i = 0; i < N; i++) reach[i] = nearest(x, N, i, DIM);
    int *within = calloc(N, sizeof *within);
    for (size_t j = 0; j < M; j++) {
        const double own = nearest(y, M, j, DIM);
        int is_covered = 0, is_found = 0;
        for (size_t i = 0; i < N; i++) {
            const double d = squared(x, i, y, j, DIM);
            within[i] += d < own;
            is_covered |= d < own;
            is_found |= d < reach[i];
        }
        covered += is_covered;
        recalled += is_found;
    }
    for (size_t i = 0; i < N; i++) precise += within[i] > 0, dense += within[i];
    assert_close(prdc.precision, precise / N, 1e-12);
    assert_close(prdc.density, dense / N, 1e-12);
    assert_close(prdc.recall, recalled / M, 1e-12);
    assert_close(prdc.coverage, covered / M, 1e-12);
    assert_true(precise > 0 && precise < N && recalled > 0 && recalled < M);
    free(x), free(y), free(reach), free(within);
}

static void samples_far_away_are_not_precise(void **state) {
    (void)state;
    enum { N = 40, DIM = 5 };
    float *x = features(24, N, DIM, 0), *y = features(24, N, DIM, 100);
    Prdc p;
    OK(prdc_of(&p, x, N, y, N, DIM, 3, err));
    assert_true(p.precision == 0 && p.recall == 0 && p.density == 0 && p.coverage == 0);
    OK(prdc_of(&p, x, N, x, N, DIM, 3, err));
    assert_true(p.precision == 1 && p.recall == 1 && p.coverage == 1);
    Err err = { 0 };
    assert_int_not_equal(prdc_of(&p, x, 3, x, N, DIM, 3, &err), 0);
    assert_non_null(strstr(err.msg, "found 3 images"));
    free(x), free(y);
}

// Equal predictions score 1; certain ones, spread evenly over C classes, score C.
static void scores_of_vague_and_certain_predictions(void **state) {
    (void)state;
    enum { N = 100, C = 5 };
    float z[N * C] = { 0 };
    InceptionScore s;
    OK(inception_score(&s, z, N, C, NULL, 10, err));
    assert_close(s.mean, 1, 1e-12);
    for (int i = 0; i < N; i++) z[i * C + i % C] = 1000;
    OK(inception_score(&s, z, N, C, NULL, 10, err));
    assert_close(s.mean, C, 1e-9);
    assert_close(s.sd, 0, 1e-6);
    uint32_t order[N];                                    // one class in each half: nothing to tell
    for (uint32_t i = 0; i < N; i++) order[i] = i < N / 2 ? 0 : 1;
    OK(inception_score(&s, z, N, C, order, 2, err));
    assert_close(s.mean, 1, 1e-12);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    enum { N = 1100, DIM = 70 };
    float *x = features(25, N, DIM, 0), *y = features(26, N, DIM, 0.1);
    const int threads = omp_get_max_threads();
    double fid[2];
    Kid kid[2];
    Prdc prdc[2];
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(i ? 3 : 1);
        fid[i] = fid_of(x, N, y, N, DIM);
        OK(kid_of(&kid[i], x, N, y, N, DIM, 2, 1, err));
        OK(prdc_of(&prdc[i], x, N, y, N, DIM, 5, err));
    }
    omp_set_num_threads(threads);
    assert_true(fid[0] == fid[1] && kid[0].mean == kid[1].mean && kid[0].all == kid[1].all);
    assert_memory_equal(&prdc[0], &prdc[1], sizeof prdc[0]);
    free(x), free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_plain_loops),
        cmocka_unit_test(a_gram_matrix_is_the_product_with_itself),
        cmocka_unit_test(a_factor_gives_the_matrix_back_and_shows_its_rank),
        cmocka_unit_test(singular_values_of_a_reflected_diagonal),
        cmocka_unit_test(figures_equal_other_programs),
        cmocka_unit_test(distance_of_diagonal_gaussians),
        cmocka_unit_test(a_set_is_at_no_distance_from_itself),
        cmocka_unit_test(distance_of_shifted_and_stretched_sets),
        cmocka_unit_test(sets_of_equal_images_have_a_distance),
        cmocka_unit_test(what_has_no_distance_is_refused),
        cmocka_unit_test(subsets_scatter_around_the_whole),
        cmocka_unit_test(pairs_of_large_sets_equal_plain_loops),
        cmocka_unit_test(samples_far_away_are_not_precise),
        cmocka_unit_test(scores_of_vague_and_certain_predictions),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    return cmocka_run_group_tests_name("fid", tests, NULL, NULL);
}
