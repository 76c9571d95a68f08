// test_fidelity.c - from image files to FID: `jempp fid`, the task fid of `jempp eval` and
// `train --fid-every`, on the cpu device, with an Inception network whose weights are made up.
#include "paths.h"
#include "testing.h"
#include "base/file.h"
#include "base/image.h"
#include "base/json.h"
#include "base/npz.h"
#include "base/safetensors.h"
#include "jempp.h"
#include "run/feature_set.h"
#include <stdio.h>
#include <unistd.h>

// Pictures of a folder: one batch of the network. Ten: as many as the Inception Score has splits.
enum { SIDE = 8, PICTURES = 8, TEN = 10 };

static char root[] = "/tmp/jempp_fidelity_XXXXXX";

static const char *in_root(const char *name) { return path_in(root, name); }

// ---- a file of weights --------------------------------------------------------------------------

typedef struct {
    StWriter *declare, *write;          // the pass over the tensors that is under way
    int asked;                          // the first two are asked for again later
    int softmax;                        // whether there is a last layer
} Maker;

static int make_weight(void *ctx, const char *name, int rank, const int *dim, float *dst,
                       Err *err) {
    (void)err;
    Maker *m = ctx;
    const int again = m->asked++ < 2;
    uint64_t shape[4];
    size_t n = 1, fan_in = 1;
    if (!strncmp(name, "net.", 4)) return 1;                  // the TorchScript file's names
    if (!m->softmax && !strncmp(name, "fc.", 3)) return 1;
    for (int i = 0; i < rank; i++) shape[i] = (uint64_t)dim[i], n *= (size_t)dim[i];
    for (int i = 1; i < rank; i++) fan_in *= (size_t)dim[i];
    const int positive = strstr(name, "var") || strstr(name, "bn.weight");
    for (size_t i = 0; i < n; i++) {
        const double u = (double)rng_uniform((Rng){ .seed = 3, .stream = RNG_TEST }, i) - 0.5;
        dst[i] = (float)(positive ? 1 + u : rank > 1 ? 4 * u / sqrt((double)fan_in) : 0.2 * u);
    }
    if (again) return 0;
    if (m->declare) st_declare(m->declare, name, ST_F32, rank, shape);
    if (m->write) st_write(m->write, dst, n * sizeof *dst);
    return 0;
}

static int make_weights(const char *path, int softmax) {
    StWriter w = st_create(path);
    Dev dev;
    open_device(&dev, "ref");
    for (int pass = 0; pass < 2; pass++) {
        Inception in;
        Maker m = { pass ? NULL : &w, pass ? &w : NULL, 0, softmax };
        OK(inception_open(&in, &dev, &(InceptionWeights){ make_weight, &m }, SIDE, SIDE, 1, err));
        inception_close(&in);
    }
    dev_close(&dev);
    OK(st_finish(&w, err));
    return 0;
}

// ---- set-up -------------------------------------------------------------------------------------

static void draw_picture(uint8_t *p, uint32_t which, int k, int dark) {
    const Rng key = { .seed = 4, .stream = RNG_TEST, .step = which, .sub = (uint32_t)k };
    for (size_t i = 0; i < 3 * SIDE * SIDE; i++)
        p[i] = (uint8_t)(rng_below(key, i, 256) >> (dark ? 2 : 0));
}

static void write_pictures(const char *dir, int n, uint32_t which, int dark) {
    char path[300];
    Image im;
    OK(dir_make(in_root(dir), err));
    OK(image_new(&im, SIDE, SIDE, 3, err));
    for (int k = 0; k < n; k++) {
        draw_picture(im.p, which, k, dark);
        snprintf(path, sizeof path, "%s/%02d.png", in_root(dir), k);
        OK(image_write_png(&im, path, err));
    }
    image_free(&im);
}

static int make_root(void **state) {
    (void)state;
    if (!mkdtemp(root)) return -1;
    setenv("XDG_DATA_HOME", in_root("home"), 1);
    unsetenv("JEMPP_DATA");
    write_pictures("ten", TEN, 1, 0);
    write_pictures("bright", PICTURES, 1, 0);
    write_pictures("dark", PICTURES, 2, 1);
    write_pictures("set/a", 6, 3, 0);
    write_pictures("set/b", 6, 4, 1);
    return make_weights(in_root("weights.safetensors"), 1) ||
           make_weights(in_root("plain.safetensors"), 0);
}

static int remove_root(void **state) {
    (void)state;
    return dir_remove(root);
}

static void need_cpu(void) {
    if (!has_device("cpu")) skip();                           // the reference takes minutes
}

// ---- events, options, JSON ----------------------------------------------------------------------

typedef struct {
    char lines[4000];
    uint64_t images;                    // that were announced as progress
} Heard;

static void on_line(void *ctx, const char *text) {
    Heard *h = ctx;
    const size_t n = strlen(h->lines);
    snprintf(h->lines + n, sizeof h->lines - n, "%s\n", text);
}

static void on_progress(void *ctx, uint64_t first, uint64_t done, uint64_t total, const char *unit,
                        const char *text) {
    (void)first, (void)text;
    Heard *h = ctx;
    if (done == total && !strcmp(unit, "images")) h->images += total;
}

// Options of a command: device, weights and `set`, name and value by turns, NULL at the end.
static JemppOptions *options(const char *command, const char *const *set) {
    JemppErr err = { 0 };
    JemppOptions *o = jempp_options(command, &err);
    assert_non_null(o);
    int rc = jempp_set(o, "device", "cpu", &err) || jempp_set(o, "conv", "direct", &err) ||
             jempp_set(o, "inception", in_root("weights.safetensors"), &err);
    for (; !rc && *set; set += 2) rc = jempp_set(o, set[0], set[1], &err);
    if (rc) fail_msg("%s", err.msg);
    return o;
}

static Json *parsed(char *text, const JemppErr *why) {
    Json *doc;
    if (!text) fail_msg("%s", why->msg);
    OK(json_parse(&doc, text, strlen(text), 20, "text", err));
    free(text);
    return doc;
}

static double number(const Json *of, const char *key) {
    double v = NAN;
    (void)json_double(json_get(of, key), &v);
    return v;
}

static Json *fid_json_with(const char *option, const char *a, const char *b, Heard *h) {
    const char *const set[] = { "json", "on", option, "on", NULL };
    JemppErr err = { 0 };
    JemppOptions *o = options("fid", set);
    char *argv[] = { (char *)(uintptr_t)a, (char *)(uintptr_t)b };
    *h = (Heard){ 0 };
    if (jempp_set_args(o, 2, argv, &err)) fail_msg("%s", err.msg);
    const JemppEvents ev = { .line = on_line, .progress = on_progress, .ctx = h };
    Json *doc = parsed(jempp_fid(o, &ev, &err), &err);
    jempp_options_free(o);
    return doc;
}

static Json *fid_json(const char *a, const char *b, Heard *h) {
    return fid_json_with(NULL, a, b, h);
}

// The pictures of two folders, in turn, as long as there are any; `second` is the label of the
// second folder's.
static void write_labelled(const char *path, int n, int n_second, uint32_t which, int second) {
    const uint64_t all = (uint64_t)n + (uint64_t)n_second, shape[] = { all, SIDE, SIDE, 3 };
    uint8_t picture[3 * SIDE * SIDE];
    int32_t label[2 * TEN], at = 0;
    NpzWriter w;
    npz_create(&w, in_root(path), 1);
    npz_add(&w, "arr_0", ST_U8, 4, shape);
    for (int k = 0; k < 2 * n; k++) {
        const int dark = k % 2;
        if (dark && k / 2 >= n_second) continue;
        draw_picture(picture, which + (uint32_t)dark, k / 2, dark);
        npz_write(&w, picture, sizeof picture);
        label[at++] = dark ? second : 0;
    }
    npz_add(&w, "arr_1", ST_I32, 1, shape);
    npz_write(&w, label, all * sizeof *label);
    OK(npz_finish(&w, err));
}

// ---- tests --------------------------------------------------------------------------------------

// A command of the shell, in the folder of caches and downloads.
static void at_home(const char *text) {
    char command[600];
    snprintf(command, sizeof command, "cd %s/home/jempp && %s", root, text);
    assert_int_equal(system(command), 0);
}

static void of_two_folders_the_reference_alone_is_cached(void **state) {
    (void)state;
    need_cpu();
    const char *const set[] = { "json", "on", "inception", in_root("plain.safetensors"), NULL };
    JemppErr err = { 0 };
    JemppOptions *o = options("fid", set);
    char *argv[] = { (char *)(uintptr_t)in_root("ten"), (char *)(uintptr_t)in_root("dark") };
    if (jempp_set_args(o, 2, argv, &err)) fail_msg("%s", err.msg);
    Json *j = parsed(jempp_fid(o, NULL, &err), &err);
    assert_true(number(j, "fid") > 0 && isnan(number(j, "is")));     // there is no softmax
    at_home("test $(ls fid | wc -l) = 1");
    json_free(j);
    jempp_options_free(o);
}

static void two_folders_are_compared_and_the_reference_is_cached(void **state) {
    (void)state;
    need_cpu();
    Heard h;
    Json *j = fid_json(in_root("ten"), in_root("dark"), &h);
    const double fid = number(j, "fid");
    assert_true(fid > 0);
    assert_close(number(j, "n"), TEN, 0);
    assert_close(number(j, "n_reference"), PICTURES, 0);
    assert_true(number(j, "kid") > 0 && number(j, "kid_all") > 0);
    assert_true(number(j, "precision") >= 0 && number(j, "coverage") >= 0);
    assert_close(number(j, "is"), 1, 1e-9);                      // of splits of one image
    assert_non_null(strstr(json_string(json_get(j, "reference")), "dark, 8 pictures"));
    assert_int_equal(strlen(json_string(json_get(j, "weights_sha256"))), 64);
    assert_non_null(strstr(h.lines, "biased upwards"));
    assert_int_equal(h.images, TEN + PICTURES);
    json_free(j);
    j = fid_json(in_root("ten"), in_root("dark"), &h);
    assert_close(number(j, "fid"), fid, 1e-9 * fid);
    assert_int_equal(h.images, TEN);                          // the reference was in the cache
    json_free(j);
    j = fid_json(in_root("dark"), in_root("dark"), &h);
    assert_close(number(j, "fid"), 0, 1e-6 * fid);
    assert_close(number(j, "precision"), 1, 0);
    json_free(j);
}

// The reference's statistics are in the cache: nothing is computed for the file.
static void statistics_are_written_for_other_programs(void **state) {
    (void)state;
    need_cpu();
    Heard h;
    const char *const set[] = { "out", in_root("dark.npz"), NULL };
    JemppErr err = { 0 };
    JemppOptions *o = options("fid", set);
    char *argv[] = { (char *)(uintptr_t)in_root("dark"), (char *)(uintptr_t)in_root("bright") };
    if (jempp_set_args(o, 1, argv, &err)) fail_msg("%s", err.msg);
    char *text = jempp_fid(o, NULL, &err);
    if (!text) fail_msg("%s", err.msg);
    assert_non_null(strstr(text, "dark.npz: mu and sigma of "));
    free(text);
    Json *j = fid_json(in_root("dark.npz"), in_root("dark"), &h);
    assert_close(number(j, "fid"), 0, 1e-6);
    assert_int_equal(h.images, 0);
    json_free(j);
    if (jempp_set_args(o, 1, argv + 1, &err)) fail_msg("%s", err.msg);
    assert_null(jempp_fid(o, NULL, &err));
    assert_non_null(strstr(err.msg, "found two"));
    jempp_options_free(o);
}

// Of many images some are compared one by one: from everywhere, and none of them twice.
static void a_choice_of_images_is_not_the_first(void **state) {
    (void)state;
    enum { N = 100, SOME = 40, DIM = INCEPTION_FEATURES };
    FeatureSet s = { .n_x = N, .x = calloc((size_t)N * DIM, sizeof *s.x) };
    int count[N] = { 0 }, late = 0;
    for (int i = 0; i < N; i++) s.x[i * DIM + DIM - 1] = (float)i;
    float *x = feature_choice(&s, SOME, 1, 0, NULL);
    assert_non_null(x);
    for (int i = 0; i < SOME; i++) {
        const int at = (int)x[i * DIM + DIM - 1];
        assert_int_equal(count[at]++, 0);
        late += at >= SOME;
    }
    assert_in_range(late, SOME / 3, SOME);
    free(x);
    free(s.x);
}

static void a_damaged_cache_is_computed_anew(void **state) {
    (void)state;
    need_cpu();
    Heard h;
    at_home("for f in fid/*; do echo x > $f; done");
    Json *j = fid_json(in_root("bright"), in_root("dark"), &h);
    assert_non_null(strstr(h.lines, "computed again"));
    assert_int_equal(h.images, 2 * PICTURES);
    json_free(j);
}

// What cannot be cached is computed, and the reason is reported.
static void a_cache_that_cannot_be_kept_says_why(void **state) {
    (void)state;
    need_cpu();
    Heard h;
    at_home("mv fid kept && touch fid");
    Json *j = fid_json(in_root("bright"), in_root("dark"), &h);
    const char *line = strstr(h.lines, "statistics could not be cached: ");
    assert_non_null(line);
    assert_non_null(strstr(line, "/jempp/fid"));
    json_free(j);
    at_home("rm fid && mv kept fid");
}

// Statistics in a file, as other programs write them: two Gaussians whose distance is known.
static void statistics_are_compared_without_a_network(void **state) {
    (void)state;
    enum { DIM = INCEPTION_FEATURES, RANK = 256 };    // the other features do not vary
    static double mean[DIM], cov[DIM * DIM];
    const char *const name[] = { "a.npz", "b.npz" };
    for (int k = 0; k < 2; k++) {
        const FeatureSet s = { .moments = { .dim = DIM, .mean = mean, .cov = cov } };
        for (size_t i = 0; i < DIM; i++) mean[i] = k ? 0.5 : 0;
        for (size_t i = 0; i < RANK; i++) cov[i * DIM + i] = k ? 4 : 1;
        OK(feature_statistics_write(&s, in_root(name[k]), err));
    }
    Heard h;
    Json *j = fid_json(in_root("a.npz"), in_root("b.npz"), &h);
    assert_close(number(j, "fid"), DIM * 0.25 + RANK, 1e-8);
    assert_true(isnan(number(j, "kid")) && isnan(number(j, "precision")));
    assert_int_equal(json_kind(json_get(j, "weights")), JSON_NULL);
    assert_non_null(strstr(h.lines, "another resize"));
    json_free(j);
}

static double fid_of_folders(const char *a, const char *b) {
    Heard h;
    Json *j = fid_json(in_root(a), in_root(b), &h);
    const double fid = number(j, "fid");
    json_free(j);
    return fid;
}

// A class's FID is that of its images alone. Where there are fewer than two of them, there is none.
static void classes_are_compared_one_by_one(void **state) {
    (void)state;
    need_cpu();
    Heard h;
    double fid;
    write_labelled("samples.npz", PICTURES, PICTURES, 1, 1);    // the folders bright and dark
    write_labelled("reference.npz", 6, 6, 3, 1);                // set/a and set/b
    write_labelled("one.npz", PICTURES, 1, 1, 1);
    Json *j = fid_json_with("per-class", in_root("samples.npz"), in_root("reference.npz"), &h);
    const Json *by_class = json_get(j, "fid_per_class");
    assert_int_equal(json_count(by_class), 2);
    OK(json_double(json_at(by_class, 0), &fid));
    assert_close(fid, fid_of_folders("bright", "set/a"), 1e-6 * fid);
    OK(json_double(json_at(by_class, 1), &fid));
    assert_close(fid, fid_of_folders("dark", "set/b"), 1e-6 * fid);
    json_free(j);
    j = fid_json_with("per-class", in_root("one.npz"), in_root("reference.npz"), &h);
    by_class = json_get(j, "fid_per_class");
    OK(json_double(json_at(by_class, 0), &fid));
    assert_int_equal(json_double(json_at(by_class, 1), &fid), -1);
    json_free(j);
    j = fid_json(in_root("samples.npz"), in_root("reference.npz"), &h);
    assert_null(json_get(j, "fid_per_class"));
    json_free(j);
}

static void classes_without_labels_are_refused(void **state) {
    (void)state;
    need_cpu();
    write_labelled("third.npz", PICTURES, 2, 1, 2);
    const char *const cases[][3] = {
        { "dark", "reference.npz", "dark, 8 pictures: no labels; image sets have them, and npz" },
        { "samples.npz", "dark", "dark, 8 pictures: no labels" },
        { "run", "reference.npz", "of the replay buffer: no labels" },
        { "samples.npz", "dark.npz", "dark.npz has statistics alone" },
        { "third.npz", "reference.npz", "third.npz, 10 images has label 2, expected 0 to 1 as " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JemppErr err = { 0 };
        const char *const set[] = { "per-class", "on", NULL };
        JemppOptions *o = options("fid", set);
        char a[300], b[300], *argv[] = { a, b };
        snprintf(a, sizeof a, "%s", in_root(cases[i][0]));
        snprintf(b, sizeof b, "%s", in_root(cases[i][1]));
        if (jempp_set_args(o, 2, argv, &err)) fail_msg("%s", err.msg);
        assert_null(jempp_fid(o, NULL, &err));
        if (!strstr(err.msg, cases[i][2])) fail_msg("'%s'", err.msg);
        jempp_options_free(o);
    }
}

static void missing_weights_say_what_to_do(void **state) {
    (void)state;
    JemppErr err = { 0 };
    JemppOptions *o = jempp_options("fid", &err);
    char *argv[] = { (char *)(uintptr_t)in_root("bright"), (char *)(uintptr_t)in_root("dark") };
    assert_int_equal(jempp_set_args(o, 2, argv, &err), 0);
    assert_null(jempp_fid(o, NULL, &err));
    assert_non_null(strstr(err.msg, "jempp data fetch inception"));
    jempp_options_free(o);
}

static void train(const char *out, const char *fid_every) {
    const char *const set[] = { "data",  NULL,     "model",  "wrn-10-1",  "iterations",
                                "4",     "batch",  "4",      "side",      "8",
                                "steps", "1",      "buffer", "8",         "valid-images",
                                "1",     "warmup", "0",      "fid-every", fid_every,
                                "out",   out,      NULL };
    const char *with[LEN(set)];
    char data[300];
    JemppErr err = { 0 };
    JemppTrained result;
    memcpy(with, set, sizeof with);
    snprintf(data, sizeof data, "folder:%s", in_root("set"));
    with[1] = data;
    JemppOptions *o = options("train", with);
    if (jempp_train(o, NULL, &result, &err)) fail_msg("%s", err.msg);
    jempp_options_free(o);
}

static void a_run_logs_fid(void **state) {
    (void)state;
    need_cpu();
    char *text, path[300];
    size_t n;
    train(in_root("run"), "1");
    snprintf(path, sizeof path, "%s", in_root("run/log.tsv"));
    OK(file_read(path, 1 << 16, &text, &n, err));
    const char *line = strstr(text, "valid_accuracy\tfid\n");
    assert_non_null(line);
    int figures = 0;
    for (line = strchr(line, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n');
        figures += end && end[-1] != '\t' && atof(end - 4) >= 0;
    }
    assert_true(figures >= 1);
    free(text);
}

static Json *eval_json(Heard *h, const char *const *set) {
    JemppErr err = { 0 };
    JemppOptions *o = options("eval", set);
    Jempp *m = jempp_open(o, in_root("run"), &err);
    if (!m) fail_msg("%s", err.msg);
    *h = (Heard){ 0 };
    const JemppEvents ev = { .line = on_line, .progress = on_progress, .ctx = h };
    Json *doc = parsed(jempp_eval(m, o, &ev, &err), &err);
    jempp_close(m);
    jempp_options_free(o);
    return doc;
}

// Needs the run of the test before.
static void a_model_is_evaluated(void **state) {
    (void)state;
    need_cpu();
    const char *const set[] = { "json",  "on", "tasks",     "fid", "count", "8",
                                "steps", "2",  "per-class", "on",  NULL };
    Heard h;
    Json *j = eval_json(&h, set);
    const Json *fid = json_get(json_get(j, "tasks"), "fid"), *buffer = json_get(fid, "buffer"),
               *fresh = json_get(fid, "fresh");
    assert_close(number(buffer, "n"), 8, 0);
    assert_true(number(buffer, "fid") > 0);
    assert_close(number(fresh, "n"), 8, 0);
    assert_close(number(fresh, "steps"), 2, 0);
    assert_true(isnan(number(fresh, "is")));                   // fewer images than splits
    assert_int_equal(json_count(json_get(buffer, "fid_per_class")), 2);
    assert_non_null(strstr(json_string(json_get(fid, "reference")), "training images"));
    assert_string_equal(json_string(json_get(buffer, "nearest")), "sheets/nearest-buffer.png");
    assert_true(file_exists(in_root("run/sheets/nearest-buffer.png")));
    json_free(j);

    const char *const half[] = { "json",      "on",  "tasks",     "fid",           "from", "buffer",
                                 "confident", "0.5", "reference", in_root("dark"), NULL };
    j = eval_json(&h, half);
    fid = json_get(json_get(j, "tasks"), "fid");
    assert_close(number(json_get(fid, "buffer"), "n"), 4, 0);
    assert_close(number(json_get(fid, "buffer"), "confident"), 0.5, 0);
    assert_null(json_get(fid, "fresh"));
    json_free(j);
}

// Rejected before anything is drawn.
static void one_image_has_no_fid(void **state) {
    (void)state;
    need_cpu();
    static const char *const cases[][4] = { { "buffer", "limit", "--limit 1: ", "0.5" },
                                            { "fresh", "count", "--count 1: ", "1" } };
    for (int i = 0; i < 2; i++) {
        const char *const set[] = { "tasks", "fid",       "from",      cases[i][0], cases[i][1],
                                    "1",     "confident", cases[i][3], NULL };
        JemppErr err = { 0 };
        JemppOptions *o = options("eval", set);
        Jempp *m = jempp_open(o, in_root("run"), &err);
        if (!m) fail_msg("%s", err.msg);
        char *text = jempp_eval(m, o, NULL, &err);
        if (text || !strstr(err.msg, cases[i][2])) fail_msg("'%s'", err.msg);
        jempp_close(m);
        jempp_options_free(o);
    }
}

// By `jempp fid`, for a reader; the reference is the dark folder's, in the cache.
static void the_replay_buffer_of_a_run_is_compared(void **state) {
    (void)state;
    need_cpu();
    const char *const none[] = { NULL };
    JemppErr err = { 0 };
    JemppOptions *o = options("fid", none);
    char *argv[] = { (char *)(uintptr_t)in_root("run"), (char *)(uintptr_t)in_root("dark") };
    if (jempp_set_args(o, 2, argv, &err)) fail_msg("%s", err.msg);
    char *text = jempp_fid(o, NULL, &err);
    if (!text) fail_msg("%s", err.msg);
    assert_non_null(strstr(text, "/run, 8 images of the replay buffer\nagainst "));
    assert_non_null(strstr(text, "/dark, 8 pictures\n  FID  "));
    assert_non_null(strstr(text, "\n  precision  "));
    assert_non_null(strstr(text, "\nweights: "));
    free(text);
    jempp_options_free(o);
}

// Other tasks are done where the weights are missing.
static void other_tasks_go_on_without_weights(void **state) {
    (void)state;
    need_cpu();
    const char *const set[] = { "json",         "on",  "tasks",         "acc,fid", "inception",
                                "/nowhere.pth", "out", in_root("look"), NULL };
    Heard h;
    Json *j = eval_json(&h, set);
    assert_non_null(json_get(json_get(j, "tasks"), "acc"));
    assert_null(json_get(json_get(j, "tasks"), "fid"));
    assert_non_null(strstr(h.lines, "task fid left out"));
    json_free(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_folders_the_reference_alone_is_cached),   // the first
        cmocka_unit_test(two_folders_are_compared_and_the_reference_is_cached),
        cmocka_unit_test(statistics_are_written_for_other_programs),
        cmocka_unit_test(a_choice_of_images_is_not_the_first),
        cmocka_unit_test(a_damaged_cache_is_computed_anew),
        cmocka_unit_test(a_cache_that_cannot_be_kept_says_why),
        cmocka_unit_test(statistics_are_compared_without_a_network),
        cmocka_unit_test(classes_are_compared_one_by_one),
        cmocka_unit_test(missing_weights_say_what_to_do),
        cmocka_unit_test(a_run_logs_fid),
        cmocka_unit_test(a_model_is_evaluated),
        cmocka_unit_test(one_image_has_no_fid),
        cmocka_unit_test(the_replay_buffer_of_a_run_is_compared),
        cmocka_unit_test(classes_without_labels_are_refused),
        cmocka_unit_test(other_tasks_go_on_without_weights),
    };
    return cmocka_run_group_tests_name("fidelity", tests, make_root, remove_root);
}
