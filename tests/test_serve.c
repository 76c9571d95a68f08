// test_serve.c - the live page's server without a network: addresses, who may ask, fair order, logs
// that are followed, pictures.
#include "base/file.h"
#include "run/folder.h"
#include "serve/address.h"
#include "serve/follow.h"
#include "serve/guard.h"
#include "serve/queue.h"
#include "testing.h"
#include <stdio.h>
#include <unistd.h>

// ---- addresses --------------------------------------------------------------------------------

static void a_target_is_taken_apart_and_decoded(void **state) {
    (void)state;
    Target t;
    assert_false(target_parse(&t, "/api/run/a%20b+c?x=1%2B1&y=a+b&z"));
    assert_int_equal(t.n_part, 3);
    assert_string_equal(t.part[2], "a b+c");
    assert_string_equal(target_query(&t, "x"), "1+1");
    assert_string_equal(target_query(&t, "y"), "a b");
    assert_string_equal(target_query(&t, "z"), "");
    assert_null(target_query(&t, "w"));
    assert_false(target_parse(&t, "/"));
    assert_int_equal(t.n_part, 0);
}

static void an_address_that_is_printed_can_be_opened(void **state) {
    (void)state;
    char url[200], machine[64];
    address_url(url, sizeof url, "127.0.0.1", 8080, "");
    assert_string_equal(url, "http://127.0.0.1:8080/");
    address_url(url, sizeof url, "::1", 80, "ab");
    assert_string_equal(url, "http://[::1]:80/?token=ab");
    assert_true(address_is_any("0.0.0.0"));
    assert_true(address_is_any("::"));
    assert_true(address_is_any("0::0"));
    assert_false(address_is_any("127.0.0.1"));
    assert_false(address_is_any("::1"));
    assert_false(address_is_any("localhost"));
    for (int v6 = 0; v6 < 2; v6++) {
        if (address_of_machine(machine, sizeof machine, v6 ? "::" : "0.0.0.0")) continue;
        assert_int_equal(strchr(machine, ':') != NULL, v6);
        assert_false(address_is_any(machine));
        assert_false(is_loopback(machine));
    }
}

static void a_target_cannot_leave_its_folder(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",   "api", "//",   "/a//b", "/..",    "/a/../b", "/%2e%2e/a",      "/a%2Fb",  "/a%5cb",
        "/%", "/%4", "/%zz", "/a%00", "/a%0ab", "/./a",    "/a/b/c/d/e/f/g", "/a/?%0a", "/a?b=%g1"
    };
    Target t;
    for (size_t i = 0; i < LEN(bad); i++)
        if (!target_parse(&t, bad[i])) fail_msg("'%s' was taken", bad[i]);
}

static void a_number_of_a_query_is_within_its_range(void **state) {
    (void)state;
    Target t;
    double v;
    assert_false(target_parse(&t, "/a?low=-1&nan=nan&word=x&good=0.25&none="));
    assert_false(target_number(&t, "good", 0, 1, 9, &v, NULL));
    assert_close(v, 0.25, 0);
    assert_false(target_number(&t, "missing", 0, 1, 9, &v, NULL));
    assert_close(v, 9, 0);
    static const char *const bad[] = { "low", "nan", "word", "none" };
    for (size_t i = 0; i < LEN(bad); i++)
        assert_true(target_number(&t, bad[i], 0, 1, 9, &v, &(Err){ 0 }));
}

// ---- who may ask ------------------------------------------------------------------------------

static int asked(const Guard *g, HttpRequest r) {
    if (!r.method) r.method = "GET";
    return guard_check(g, &r, NULL, &(Err){ 0 });
}

static void only_names_of_this_machine_are_hosts(void **state) {
    (void)state;
    Guard g;
    OK(guard_open(&g, "127.0.0.1", err));
    assert_string_equal(g.token, "");
    static const char *const good[] = { "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:1",
                                        "127.1.2.3" };
    static const char *const bad[] = { "evil.example",   "localhost.evil.example",
                                       "127.0.0.1.evil", "",
                                       "[::1",           "192.168.1.5",
                                       "a:b:c",          "[::1]x" };
    for (size_t i = 0; i < LEN(good); i++)
        if (asked(&g, (HttpRequest){ .host = good[i] })) fail_msg("%s was refused", good[i]);
    for (size_t i = 0; i < LEN(bad); i++)
        if (asked(&g, (HttpRequest){ .host = bad[i] }) != 421) fail_msg("%s was taken", bad[i]);
    assert_int_equal(asked(&g, (HttpRequest){ .host = NULL }), 421);
}

static void pages_of_others_are_refused(void **state) {
    (void)state;
    Guard g;
    OK(guard_open(&g, "localhost", err));
    HttpRequest r = { .host = "localhost:8080", .origin = "http://localhost:8080" };
    assert_int_equal(asked(&g, r), 0);
    static const char *const bad[] = { "http://localhost:9", "https://localhost:8080", "null",
                                       "http://evil.example", "http://localhost:8080.evil" };
    for (size_t i = 0; i < LEN(bad); i++) {
        r.origin = bad[i];
        assert_int_equal(asked(&g, r), 403);
    }
    r = (HttpRequest){ .host = "localhost:8080", .method = "POST", .fetch_site = "cross-site" };
    assert_int_equal(asked(&g, r), 403);
    r.fetch_site = "same-origin";
    assert_int_equal(asked(&g, r), 0);
}

static void other_machines_need_the_token(void **state) {
    (void)state;
    Guard g, other;
    OK(guard_open(&g, "0.0.0.0", err));
    OK(guard_open(&other, "0.0.0.0", err));
    assert_int_equal(strlen(g.token), 32);
    assert_string_not_equal(g.token, other.token);
    char bearer[64], cookie[120];
    HttpRequest r = { .host = "192.168.1.5:8080" };
    assert_int_equal(asked(&g, r), 401);
    snprintf(bearer, sizeof bearer, "Bearer %s", g.token);
    r.authorization = bearer;
    assert_int_equal(asked(&g, r), 0);
    bearer[38] ^= 1;
    assert_int_equal(asked(&g, r), 401);
    r.authorization = "Bearer ";
    assert_int_equal(asked(&g, r), 401);
    snprintf(cookie, sizeof cookie, "x=y; %s=%s; z=1", g.cookie, g.token);
    r.cookie = cookie;
    assert_int_equal(asked(&g, r), 0);
    snprintf(cookie, sizeof cookie, "%s=", g.cookie);
    assert_int_equal(asked(&g, r), 401);
    r.method = "GET";
    assert_int_equal(guard_check(&g, &r, g.token, &(Err){ 0 }), 0);
    r.host = "evil.example";
    assert_int_equal(guard_check(&g, &r, g.token, &(Err){ 0 }), 421);
}

// ---- fair order -------------------------------------------------------------------------------

static Job *add(Queue *q, HttpRequest *r, JobKind kind, int expected) {
    Job *job = calloc(1, sizeof *job);
    *job = (Job){ .q = r, .kind = kind };
    assert_int_equal(queue_add(q, job), expected);
    if (!expected) return job;
    free(job);
    return NULL;
}

static void a_client_that_asks_once_does_not_wait_for_all_of_another(void **state) {
    (void)state;
    static HttpRequest greedy = { .peer = "1.1.1.1" }, modest = { .peer = "2.2.2.2" };
    Queue q = { 0 };
    for (int i = 0; i < CLIENT_JOBS; i++) add(&q, &greedy, JOB_PREDICT, 0);
    add(&q, &greedy, JOB_PREDICT, 429);
    Job *mine = add(&q, &modest, JOB_PREDICT, 0), *job;
    int before = 0;
    for (; (job = queue_take(&q, NULL, 1)) != mine; before++) free(job);
    free(mine);
    assert_int_equal(before, 1);
    mine = add(&q, &modest, JOB_PREDICT, 0);     // and again
    for (before = 0; (job = queue_take(&q, NULL, 1)) != mine; before++) free(job);
    free(mine);
    assert_in_range(before, 0, 1);
    while ((job = queue_take(&q, NULL, 1))) free(job);
}

static void a_full_queue_refuses(void **state) {
    (void)state;
    static HttpRequest r[QUEUE_JOBS];
    Queue q = { 0 };
    Job *job;
    for (int i = 0; i < QUEUE_JOBS; i++) {
        snprintf(r[i].peer, sizeof r[i].peer, "%d", i);
        add(&q, &r[i], i < QUEUE_SAMPLES ? JOB_SAMPLE : JOB_PREDICT, 0);
        if (i == QUEUE_SAMPLES) add(&q, &r[200], JOB_SAMPLE, 503);
    }
    add(&q, &(HttpRequest){ .peer = "x" }, JOB_PREDICT, 503);
    job = queue_take(&q, NULL, 0);
    assert_int_equal(job->kind, JOB_PREDICT);
    free(job);
    while ((job = queue_take(&q, NULL, 1))) free(job);
}

static void chains_of_one_client_are_few(void **state) {
    (void)state;
    static HttpRequest r = { .peer = "1.1.1.1" };
    Queue q = { 0 };
    Job *job;
    for (int i = 0; i < CLIENT_SAMPLES; i++) add(&q, &r, JOB_SAMPLE, 0);
    add(&q, &r, JOB_SAMPLE, 429);
    add(&q, &r, JOB_PREDICT, 0);
    while ((job = queue_take(&q, NULL, 1))) free(job);
}

// ---- bodies -----------------------------------------------------------------------------------

static void what_samples_are_asked_for(void **state) {
    (void)state;
    static const char text[] = "{\"class\": \"cat\", \"count\": 4, \"steps\": 10, \"seed\": 7}";
    SampleAsk a;
    OK(sample_ask(&a, (const uint8_t *)text, sizeof text - 1, err));
    assert_string_equal(a.class_name, "cat");
    assert_int_equal(a.count, 4);
    assert_int_equal(a.steps, 10);
    assert_close(a.seed, 7, 0);
    OK(sample_ask(&a, (const uint8_t *)"", 0, err));
    assert_int_equal(a.count, 16);
    assert_int_equal(a.steps, 0);
}

// ---- logs -------------------------------------------------------------------------------------

static char dir[64];
static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_serve.XXXXXX");
    return mkdtemp(dir) == NULL;
}
static int drop_dir(void **state) {
    (void)state;
    char path[RUN_PATH];
    run_path(path, dir, RUN_LOG, NULL);
    unlink(path);
    return rmdir(dir);
}

// Cuts the log back to step `from`, and adds those up to `to` with this loss.
static void write_log(int from, int to, double loss, const char *end) {
    char path[RUN_PATH];
    run_path(path, dir, RUN_LOG, NULL);
    FILE *f = fopen(path, from ? "r+" : "w");
    assert_non_null(f);
    if (!from) fputs("step\tepoch\tseconds\tnew\tloss\tvalid_accuracy\n", f);
    char line[200];
    for (int i = 0; from && i <= from; i++) assert_non_null(fgets(line, sizeof line, f));
    assert_false(fseek(f, ftell(f), SEEK_SET) || ftruncate(fileno(f), ftell(f)));
    for (int i = from; i < to; i++)
        fprintf(f, "%d\t%.4f\t%d\t9\t%g\t%s\n", i, (i + 1) / 10.0, i, loss,
                i % 10 == 9 ? "0.5" : "");
    fputs(end, f);
    fclose(f);
}

static void a_damaged_log_says_where(void **state) {
    (void)state;
    Follow f = { 0 };
    assert_false(follow_poll(&f, dir));                     // no file yet
    write_log(0, 20, 2, "20\tx\t1\t1\t1\t\n");
    assert_true(follow_poll(&f, dir));
    assert_int_equal(f.curve.rows, 20);
    assert_true(strstr(f.error, "line 22") != NULL);
    follow_free(&f);
}

static void a_line_counts_when_it_is_whole(void **state) {
    (void)state;
    Follow f = { 0 };
    write_log(0, 20, 2, "20\t2.1");
    assert_true(follow_poll(&f, dir));
    assert_int_equal(f.curve.rows, 20);
    assert_close(f.curve.last[LOG_LOSS], 2, 0);
    assert_close(f.curve.best_valid, 0.5, 0);
    assert_close(curve_rate(&f.curve), 1, 1e-9);
    assert_false(follow_poll(&f, dir));
    write_log(20, 25, 3, "");
    assert_true(follow_poll(&f, dir));
    assert_int_equal(f.curve.rows, 25);
    follow_free(&f);
}

static void a_run_that_rolled_back_is_read_again(void **state) {
    (void)state;
    Follow f = { 0 };
    write_log(0, 30, 2, "");
    assert_true(follow_poll(&f, dir));
    write_log(10, 40, 7, "");                              // cut, and longer than before
    assert_true(follow_poll(&f, dir));
    assert_int_equal(f.curve.rows, 40);
    assert_close(curve_mean(&f.curve, 9, LOG_LOSS), 2, 0);
    assert_close(curve_mean(&f.curve, 10, LOG_LOSS), 7, 0);
    follow_free(&f);
}

static void a_curve_has_a_limited_number_of_points(void **state) {
    (void)state;
    Follow f = { 0 };
    write_log(0, 5000, 2, "");
    assert_true(follow_poll(&f, dir));
    assert_int_equal(f.curve.rows, 5000);
    assert_int_equal(f.curve.rows_per_point, 8);
    assert_int_equal(f.curve.n, 625);
    assert_close(curve_mean(&f.curve, 0, LOG_STEP), 3.5, 0);
    assert_close(curve_mean(&f.curve, 624, LOG_STEP), 4995.5, 0);
    follow_free(&f);
}

static void an_open_log_is_seen_without_a_lock(void **state) {
    (void)state;
    TrainLog log = { 0 };
    assert_false(train_log_is_open(dir));
    OK(train_log_open(&log, dir, 0, err));
    OK(train_log_flush(&log, err));
    assert_true(train_log_is_open(dir));
    train_log_close(&log);
    assert_false(train_log_is_open(dir));
}

// ---- pictures ---------------------------------------------------------------------------------

static void a_picture_is_rotated_about_its_centre(void **state) {
    (void)state;
    enum { S = 8 };
    Image im;
    char *png;
    size_t n;
    float x[S * S], y[S * S], z[S * S];
    OK(image_new(&im, S, S, 1, err));
    im.p[1 * S + 2] = 255;
    OK(image_encode_png(&im, &png, &n, err));
    image_free(&im);
    OK(picture_input(x, (uint8_t *)png, n, 1, S, (PictureChange){ 0, 0 }, err));
    OK(picture_input(y, (uint8_t *)png, n, 1, S, (PictureChange){ 90, 0 }, err));
    OK(picture_input(z, (uint8_t *)png, n, 1, S, (PictureChange){ 0, 0.2 }, err));
    assert_close(x[1 * S + 2], 1, 0);
    assert_close(y[5 * S + 1], 1, 0);                       // counter-clockwise
    double changed = 0;
    for (int i = 0; i < S * S; i++) {
        assert_true(z[i] >= -1 && z[i] <= 1);
        changed += fabs((double)z[i] - (double)x[i]);
    }
    assert_true(changed > 1);
    Err why = { 0 };
    assert_true(picture_input(x, (uint8_t *)png, n / 2, 1, S, (PictureChange){ 0, 0 }, &why));
    free(png);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_taken_apart_and_decoded),
        cmocka_unit_test(an_address_that_is_printed_can_be_opened),
        cmocka_unit_test(a_target_cannot_leave_its_folder),
        cmocka_unit_test(a_number_of_a_query_is_within_its_range),
        cmocka_unit_test(only_names_of_this_machine_are_hosts),
        cmocka_unit_test(pages_of_others_are_refused),
        cmocka_unit_test(other_machines_need_the_token),
        cmocka_unit_test(a_client_that_asks_once_does_not_wait_for_all_of_another),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(chains_of_one_client_are_few),
        cmocka_unit_test(what_samples_are_asked_for),
        cmocka_unit_test_setup_teardown(a_damaged_log_says_where, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_line_counts_when_it_is_whole, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_run_that_rolled_back_is_read_again, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_curve_has_a_limited_number_of_points, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(an_open_log_is_seen_without_a_lock, make_dir, drop_dir),
        cmocka_unit_test(a_picture_is_rotated_about_its_centre),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
