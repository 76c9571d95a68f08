// test_report.c - the paper's figures, pictures of a run, its report.
#include "base/file.h"
#include "base/image.h"
#include "report/figures.h"
#include "report/paper.h"
#include "report/report.h"
#include "testing.h"
#include <stdio.h>
#include <unistd.h>

static const char LOG[] =
    "step\tepoch\tseconds\tlr\tloss\tce\taccuracy\tfx\tfxq\tgap\tvalid_accuracy\n"
    "0\t0.5\t1\t0.1\t2.5\t2.3\t0.1\t2\t2.1\t0\t\n"
    "1\t1.0\t2\t0.1\tnan\t2.0\t0.3\t3\t2.9\t0.1\t0.4\n"
    "2\t1.5\t3\t0.1\t1.5\t1.3\t0.5\t4\t3.1\t0.2\t\n";

static const char RUN[] =
    "{ \"program\": \"jempp\", \"steps\": 3, \"steps_per_epoch\": 2, \"seconds\": 180,"
    "  \"test_accuracy\": 0.9125, \"test_ece\": 0.0475,"
    "  \"options\": { \"preset\": \"jempp-m5\", \"data\": \"cifar10\","
    "    \"model\": \"wrn-28-10\", \"steps\": \"5\" } }";

static const char EVAL[] =
    "{ \"jempp_eval\": 1, \"version\": \"0.1.0\", \"net\": \"wrn-28-10\", \"device\": \"cpu\", "
    "\"seed\": 1,\n"
    "  \"data\": \"cifar10\", \"classes\": [\"cat\", \"dog\"], \"tasks\": {\n"
    "  \"acc\": { \"n\": 10, \"top1\": 80, \"top5\": null, \"nll\": 0.5, \"per_class\": [80, 80],\n"
    "    \"confusion\": [[4, 1], [1, 4]] },\n"
    "  \"ece\": { \"n\": 10, \"ece\": 5, \"mce\": 9, \"classwise_ece\": 6, \"brier\": 0.3, "
    "\"reliability\": [\n"
    "    { \"lo\": 0, \"hi\": 0.5, \"count\": 0, \"confidence\": null, \"accuracy\": null },\n"
    "    { \"lo\": 0.5, \"hi\": 1, \"count\": 10, \"confidence\": 0.9, \"accuracy\": 0.8 }],\n"
    "    \"temperature\": null },\n"
    "  \"ood\": { \"in\": { \"name\": \"cifar10\", \"n\": 10 }, \"sets\": [{ \"name\": \"svhn\", "
    "\"n\": 10, \"scores\": {\n"
    "    \"logpx\": { \"auroc\": 0.75, \"roc\": [[0, 0], [0.25, 0.75], [1, 1]],\n"
    "      \"hist\": { \"lo\": -2, \"hi\": 6, \"in\": [0, 2, 5, 3], \"out\": [4, 5, 1, 0] } } } }] "
    "},\n"
    "  \"attack\": { \"n\": 10, \"clean\": 80, \"curves\": [{ \"norm\": \"linf\", \"attack\": "
    "\"pgd\", \"loss\": \"ce\",\n"
    "    \"steps\": 40, \"restarts\": 1, \"radii\": [0, 0.0157, 0.0314], \"accuracy\": [80, 40, "
    "10] }] },\n"
    "  \"samples\": { \"files\": [\"grid.png\"], \"steps\": 40 } } }";

// ---- a run folder -------------------------------------------------------------------------

static char dir[] = "/tmp/jempp report 'XXXXXX", at[600];

static const char *in_dir(const char *name) {
    OK(path_join(at, sizeof at, dir, name, err));
    return at;
}

static void put(const char *name, const char *text) {
    Writer w = writer_open(in_dir(name));
    write_bytes(&w, text, strlen(text));
    OK(writer_close(&w, err));
}

static char *get(const char *path) {
    char *text;
    size_t n;
    OK(file_read(path, 1 << 24, &text, &n, err));
    return text;
}

static void put_grid(const char *name) {
    Image im;
    OK(image_new(&im, 6, 4, 3, err));
    OK(image_write_png(&im, in_dir(name), err));
    image_free(&im);
}

static int make_dir(void **state) {
    (void)state;
    return !mkdtemp(dir);
}

static const char *const FILES[] = { "log.tsv",    "diverged.tsv",         "run.json",
                                     "eval.json",  "report.html",          "grid.png",
                                     "other.html", "class-001-best-px.png" };

static int empty_dir(void **state) {
    (void)state;
    for (size_t i = 0; i < LEN(FILES); i++) unlink(in_dir(FILES[i]));
    for (int i = 0; i < N_FIGURE; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.png", figure_info[i].file);
        unlink(in_dir(name));
        snprintf(name, sizeof name, "%s.svg", figure_info[i].file);
        unlink(in_dir(name));
    }
    return 0;
}

static int remove_dir(void **state) {
    empty_dir(state);
    return rmdir(dir);
}

// EVAL with the first `from` replaced.
static char *edited(const char *text, const char *from, const char *to) {
    const char *found = strstr(text, from);
    if (!found) fail_msg("the fixture has no '%s'", from);
    char *s = malloc(strlen(text) + strlen(to) + 1);
    sprintf(s, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
    return s;
}

static int draws(void) {
    const Panel panel = { .title = "x" };
    char *data;
    size_t n;
    Err err = { 0 };
    const int rc = plot_draw(&(Figure){ 90, 90, 1, 1, &panel }, PLOT_SVG, &data, &n, &err);
    free(data);
    if (rc) print_message("no pictures: %s\n", err.msg);
    return !rc;
}

static void refused(const char *word, const char *other) {
    Record r;
    Err err = { 0 };
    if (!record_read(&r, dir, &err)) fail_msg("taken, expected '%s'", word);
    if (!strstr(err.msg, word) || !strstr(err.msg, other) || !strstr(err.msg, dir))
        fail_msg("the message '%s' should hold '%s' and '%s'", err.msg, word, other);
}

// ---- the paper's figures ------------------------------------------------------------------

static void figures_are_found_by_system_set_and_measure(void **state) {
    (void)state;
    assert_close(paper_figure("jempp-m10", "cifar10", "acc.top1"), 93.5, 0);
    assert_close(paper_figure("jempp-m10", "cifar100", "acc.top1"), 74.5, 0);
    assert_close(paper_figure("jem", "cifar10", "ece.ece"), 4.2, 0);
    assert_close(paper_figure("jempp-m20", "cifar10", "logpx:celeba"), .89, 0);
    assert_close(paper_figure("softmax", "cifar10", "maxp:interp"), .77, 0);
    assert_true(isnan(paper_figure("softmax", "cifar10", "logpx:interp")));
    assert_true(isnan(paper_figure("jempp-m10", "mnist", "acc.top1")));
    assert_true(isnan(paper_figure("demo", "cifar10", "acc.top1")));
}

static void a_file_stands_for_the_set_that_it_is_named_after(void **state) {
    (void)state;
    assert_close(paper_figure("jempp-m5", "cifar10", "logpx:cifar-file:/d/celeba.bin"), .74, 0);
    assert_close(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celeba.bin"), .78, 0);
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celebabel.bin")));
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "gradnorm:cifar-file:celeba.bin")));
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celeba.bin/other")));
}

static void another_preset_is_compared_with_what_is_nearest(void **state) {
    (void)state;
    assert_string_equal(paper_system("jem", "shared", 20), "jem");
    assert_string_equal(paper_system("demo", "shared", 7), "jempp-m10");
    assert_string_equal(paper_system("", "", 0), "jempp-m10");
    assert_string_equal(paper_system("", "clean", 5), "jempp-m5");
    assert_string_equal(paper_system("pgd-linf", "none", 5), "softmax");
    assert_string_equal(paper_label("jempp-m10"), "JEM++ M=10");
    assert_null(paper_label("demo"));
}

// ---- reading ------------------------------------------------------------------------------

static void a_log_is_read_column_by_column(void **state) {
    (void)state;
    Record r;
    put("log.tsv", LOG);
    put("diverged.tsv", "step\tepoch\tseconds\treason\n2\t1.25\t3\tthe loss\n");
    OK(record_read(&r, dir, err));
    assert_int_equal(r.log.n, 3);
    assert_close(r.log.column[LOG_EPOCH][2], 1.5, 0);
    assert_true(isnan(r.log.column[LOG_LOSS][1]));
    assert_true(isnan(r.log.column[LOG_VALID][0]));
    assert_close(r.log.column[LOG_VALID][1], 0.4, 0);
    assert_int_equal(r.log.n_diverged, 1);
    assert_close(r.log.diverged_epoch[0], 1.25, 0);
    assert_int_equal(r.eval.there, 0);
    record_free(&r);
}

static void a_line_that_is_still_being_written_does_not_count(void **state) {
    (void)state;
    Record r;
    put("run.json", RUN);
    put("log.tsv", "step\tepoch\n0\t0.5\n1\t0.");
    OK(record_read(&r, dir, err));
    assert_int_equal(r.log.n, 1);
    record_free(&r);
    put("log.tsv", "");
    OK(record_read(&r, dir, err));
    assert_int_equal(r.log.n, 0);
    record_free(&r);
}

static void a_bad_log_is_refused_with_its_line(void **state) {
    (void)state;
    static const char *const CASES[][3] = {
        { "step\tepoch\n0\tx\n", "line 2: epoch: found 'x'", "expected a number" },
        { "step\tepoch\n0\t1 2\n", "line 2: epoch: found '1 2'", "expected a number" },
        { "step\tepoch\n0\t1\n1\n", "line 3: 1 field,", "expected 2" },
        { "step\tepoch\n0\t1\t2\n", "line 2: 3 fields", "expected 2" },
        { "step\tepoch\n5\t1\n4\t2\n", "line 3: step 4", "after step 5" },
        { "step\tepoch\n-1\t1\n", "line 2: step -1", "from 0 on" },
        { "step\tepoch\nnan\t1\n", "line 2: step nan", "from 0 on" },
        { "step\tloss\n0\t1\n", "no column 'epoch'", "log.tsv" },
        { "step\tepoch\tepoch\n0\t1\t1\n", "duplicate column 'epoch'", "log.tsv" },
        { "\n\n", "no column 'step'", "log.tsv" },
    };
    for (size_t i = 0; i < LEN(CASES); i++) {
        put("log.tsv", CASES[i][0]);
        refused(CASES[i][1], CASES[i][2]);
    }
    Writer w = writer_open(in_dir("log.tsv"));
    write_bytes(&w, "step\tepoch\n0\0\n", 15);
    OK(writer_close(&w, err));
    refused("byte 12 is 0", "log.tsv");
}

static void an_evaluation_is_read_as_it_was_written(void **state) {
    (void)state;
    Record r;
    put("eval.json", EVAL);
    OK(record_read(&r, dir, err));
    const EvalResults *e = &r.eval;
    assert_int_equal(e->n_class, 2);
    assert_string_equal(e->class_name[1], "dog");
    assert_close(e->acc.confusion[1], 1, 0);
    assert_true(isnan(e->acc.top5));
    assert_int_equal(e->ece.plain.n_bin, 2);
    assert_close(e->ece.plain.bin[0].hi, 0.5, 0);
    assert_true(isnan(e->ece.plain.bin[0].accuracy));
    assert_int_equal(e->ece.temperature.there, 0);
    assert_close(e->ood.set[0].score[SCORE_LOGPX].roc[3], 0.75, 0);
    assert_close(e->ood.set[0].score[SCORE_LOGPX].hist.hi, 6, 0);
    assert_int_equal(e->ood.set[0].score[SCORE_MAXP].there, 0);
    assert_close(e->attack.curve[0].accuracy[2], 10, 0);
    assert_string_equal(e->samples.file[0], "grid.png");
    record_free(&r);
}

static void results_are_written_as_they_were_read(void **state) {
    (void)state;
    EvalResults first, again;
    put("eval.json", EVAL);
    OK(results_read(&first, in_dir("eval.json"), err));
    first.acc.nll = INFINITY;                               // JSON has no such number
    char *text = results_text(&first, &(Err){ 0 });
    OK(results_write(&first, in_dir("eval.json"), err));
    OK(results_read(&again, in_dir("eval.json"), err));
    char *same = results_text(&again, &(Err){ 0 });
    assert_string_equal(text, same);
    assert_non_null(strstr(text, "\"nll\": null"));
    assert_non_null(strstr(text, "\"temperature\": null"));
    assert_null(strstr(text, "\"speed\""));                 // a task that was not run
    assert_null(strstr(text, ": inf"));
    assert_true(isnan(again.acc.nll));
    assert_close(again.attack.curve[0].radius[2], 0.0314, 0);
    free(text);
    free(same);
    results_free(&first);
    results_free(&again);
}

static void metrics_have_labels_and_the_papers_names(void **state) {
    (void)state;
    Record r;
    Metric m[MAX_METRICS];
    put("eval.json", EVAL);
    OK(record_read(&r, dir, err));
    assert_int_equal(results_metrics(&r.eval, TASK_ACC, m), 2);     // top-5 is null
    assert_string_equal(m[0].label, "top-1 accuracy");
    assert_close(paper_figure("jempp-m5", "cifar10", m[0].measure), 91.1, 0);
    assert_close(m[1].value, 0.5, 0);
    assert_int_equal(results_metrics(&r.eval, TASK_SPEED, m), 0);
    r.eval.ece.temperature = (TemperatureScaling){ .there = 1, .t = 2, .at_t = { .ece = 3 } };
    assert_int_equal(results_metrics(&r.eval, TASK_ECE, m), 10);
    assert_string_equal(m[5].label, "temperature scaling: ECE");
    assert_string_equal(m[5].measure, "ece.temperature.ece");
    r.eval.samples.noise = 1e-5;                           // too small for a fixed number of digits
    const int n = results_metrics(&r.eval, TASK_SAMPLES, m);
    assert_string_equal(m[n - 1].text, "1e-05");
    record_free(&r);
}

static void a_rounding_error_beyond_the_range_is_its_end(void **state) {
    (void)state;
    Record r;
    char *text = edited(EVAL, "\"top1\": 80", "\"top1\": 100.0000000001");
    put("eval.json", text);
    OK(record_read(&r, dir, err));
    assert_true(r.eval.acc.top1 == 100);
    record_free(&r);
    free(text);
}

static void a_bad_evaluation_is_refused_with_its_place(void **state) {
    (void)state;
    static const char *const CASES[][4] = {
        { "\"jempp_eval\": 1", "\"jempp_eval\": 2", "its format is 2", "expected 1" },
        { "\"jempp_eval\": 1", "\"other\": 1", "not made by jempp eval", "" },
        { "{ \"jempp_eval\"", "{{ \"jempp_eval\"", "not JSON", "" },
        { "\"top1\": 80", "\"top1\": \"80\"", "tasks.acc.top1: found a string", "a number" },
        { "\"top1\": 80", "\"top1\": 1e300", "tasks.acc.top1: found 1e+300", "0 to 100" },
        { "[\"cat\", \"dog\"]", "[\"cat\", 3]", "classes[1]: found a number", "a string" },
        { "[\"cat\", \"dog\"]", "[\"cat\"]", "tasks.acc.per_class: 2 items", "expected 1" },
        { "[\"cat\", \"dog\"]", "null", "tasks.acc.per_class: 2 items", "classes" },
        { "[80, 80]", "{}", "tasks.acc.per_class: found an object", "an array" },
        { "[[4, 1], [1, 4]]", "[[4, 1]]", "tasks.acc.confusion: 1 item,", "expected 2" },
        { "[[4, 1], [1, 4]]", "[[4, 1], [1]]", "tasks.acc.confusion[1]: 1 item,", "expected 2" },
        { "[[4, 1], [1, 4]]", "[[4, 1], [1, -4]]", "tasks.acc.confusion[1][1]: found -4", "" },
        { "[[4, 1], [1, 4]]", "[[4, 1], 7]", "tasks.acc.confusion[1]: found a number", "an array" },
        { "\"lo\": 0.5", "\"lo\": 0.6", "tasks.ece.reliability[1]: from 0.6 to 1", "begin where" },
        { "\"lo\": 0.5", "\"lo\": null", "tasks.ece.reliability[1]: from nan", "begin where" },
        { "\"temperature\": null", "\"temperature\": 2", "tasks.ece.temperature", "an object" },
        { "[0.25, 0.75]", "[0.25]", "tasks.ood.sets[0].scores.logpx.roc[1]: 1 item,",
          "expected 2" },
        { "[0.25, 0.75]", "[0.25, 1.5]", "roc[1][1]: found 1.5", "0 to 1" },
        { "\"hi\": 6", "\"hi\": -2", "logpx.hist: 4 bins from -2 to -2", "lo below hi" },
        { "[4, 5, 1, 0]", "[4, 5]", "logpx.hist.out: 2 items", "expected 4" },
        { "[0, 2, 5, 3]", "[]", "logpx.hist.out: 4 items", "expected 0" },
        { "[80, 40, 10]", "[80, 40]", "tasks.attack.curves[0].accuracy: 2 items", "expected 3" },
        { "\"norm\": \"linf\"", "\"norm\": 1", "tasks.attack.curves[0].norm", "a string" },
        { "\"grid.png\"", "\"../../etc/passwd\"", "tasks.samples.files[0]",
          "not the name of a file" },
        { "\"grid.png\"", "\"/etc/passwd\"", "tasks.samples.files[0]", "not the name of a file" },
        { "\"tasks\": {", "\"tasks\": [], \"more\": {", "tasks: found an array", "an object" },
    };
    for (size_t i = 0; i < LEN(CASES); i++) {
        char *text = edited(EVAL, CASES[i][0], CASES[i][1]);
        put("eval.json", text);
        refused(CASES[i][2], CASES[i][3]);
        free(text);
    }
    char many[8000] = "[0", *text;
    while (strlen(many) < 7900) strcat(many, ",0");
    strcat(many, "]");
    text = edited(EVAL, "[0, 0.0157, 0.0314]", many);
    put("eval.json", text);
    refused("radii: ", "at most 1000");
    free(text);
    memset(many, 'x', 1500);
    memcpy(many, "\"", 1), memcpy(many + 1499, "\"", 2);
    text = edited(EVAL, "\"svhn\"", many);
    put("eval.json", text);
    refused("tasks.ood.sets[0].name: a string of 1498 bytes", "at most");
    free(text);
}

static void a_folder_that_is_no_run_is_refused(void **state) {
    (void)state;
    Record r;
    Err err = { 0 };
    refused("a folder, but not of a run (no log.tsv, run.json or eval.json in it)", "");
    assert_int_equal(record_read(&r, in_dir("nowhere"), &err), -1);
    assert_non_null(strstr(err.msg, "/nowhere: no such run folder"));
    err = (Err){ 0 };
    put("a.file", "text");
    assert_int_equal(record_read(&r, in_dir("a.file"), &err), -1);
    assert_non_null(strstr(err.msg, ", expected the folder of a run"));
    assert_int_equal(remove(in_dir("a.file")), 0);
    put("run.json", "[]");
    refused("run.json: found an array", "an object");
}

// ---- pictures -----------------------------------------------------------------------------

static int count_colour(const Image *im, int r, int g, int b) {
    int n = 0;
    for (int i = 0; i < im->w * im->h; i++)
        n += abs(im->p[3 * i] - r) < 4 && abs(im->p[3 * i + 1] - g) < 4 &&
             abs(im->p[3 * i + 2] - b) < 4;
    return n;
}

static void every_picture_is_made_in_its_size_with_its_inks(void **state) {
    (void)state;
    static const struct {
        int w, h, rgb[2][3];
    } WANTED[N_FIGURE] = {
        [FIG_CURVES] = { 960, 640, { { 0, 114, 178 }, { 213, 94, 0 } } },
        [FIG_CONFUSION] = { 760, 720, { { 27, 77, 123 }, { 141, 166, 189 } } },
        [FIG_RELIABILITY] = { 480, 600, { { 0, 114, 178 }, { 230, 159, 0 } } },
        [FIG_DENSITY] = { 560, 300, { { 0, 158, 115 }, { 213, 94, 0 } } },
        [FIG_ROC] = { 520, 470, { { 0, 114, 178 }, { 115, 115, 115 } } },
        [FIG_ATTACK] = { 560, 400, { { 0, 114, 178 }, { 115, 115, 115 } } },
    };
    if (!draws()) skip();
    put("log.tsv", LOG);
    put("eval.json", EVAL);
    OK(report_pictures(dir, err));
    for (int i = 0; i < N_FIGURE; i++) {
        char name[64];
        Image im;
        snprintf(name, sizeof name, "%s.png", figure_info[i].file);
        OK(image_read(&im, in_dir(name), 3, err));
        assert_int_equal(im.w, PLOT_SCALE * WANTED[i].w);
        assert_int_equal(im.h, PLOT_SCALE * WANTED[i].h);
        for (int k = 0; k < 2; k++) {
            const int *c = WANTED[i].rgb[k];
            if (count_colour(&im, c[0], c[1], c[2]) < (i == FIG_CONFUSION ? 100000 : 300))
                fail_msg("%s has no (%d, %d, %d)", name, c[0], c[1], c[2]);
        }
        image_free(&im);
        snprintf(name, sizeof name, "%s.svg", figure_info[i].file);
        char *svg = get(in_dir(name));
        assert_non_null(strstr(svg, "<svg "));
        assert_non_null(strstr(svg, "</svg>"));
        free(svg);
    }
}

static void pictures_survive_odd_numbers(void **state) {
    (void)state;
    if (!draws()) skip();
    put("log.tsv", "step\tepoch\tloss\tfxq\n0\t0\t-1e300\tinf\n1\t0\t1e14\t-1e14\n2\t0\tnan\t\n");
    char *text = edited(EVAL, "[4, 5, 1, 0]", "[0, 0, 0, 0]"),
         *more = edited(text, "[[4, 1]", "[[0, 0]");
    put("eval.json", more);
    OK(report_pictures(dir, err));
    free(text);
    free(more);
    text = edited(EVAL, "\"lo\": -2, \"hi\": 6", "\"lo\": -1e12, \"hi\": 1e12");
    more = edited(text, "[0, 0.0157, 0.0314]", "[null, 1e4, 1e4]");
    put("eval.json", more);
    OK(report_pictures(dir, err));
    free(text);
    free(more);
}

// ---- the page -----------------------------------------------------------------------------

// The page without what is in data: URIs.
static char *page_text(const char *name) {
    char *html = get(in_dir(name)), *to = html;
    for (const char *s = html; *s;) {
        if (!strncmp(s, "base64,", 7)) s += strcspn(s, "\"");
        else *to++ = *s++;
    }
    *to = 0;
    return html;
}

static void write_report(const char *out) {
    Err err = { 0 };
    char *said = report_write(dir, out, &err);
    if (!said) fail_msg("%s", err.msg);
    free(said);
}

static int count_words(const char *text, const char *word) {
    int n = 0;
    for (const char *s = text; (s = strstr(s, word)); s++) n++;
    return n;
}

static void the_page_holds_everything_and_refers_to_nothing(void **state) {
    (void)state;
    static const char *const OUTSIDE[] = { "http:", "https:",  "//",    "<script",
                                           "<link", "<iframe", "url(",  "@import",
                                           "file:", "<object", "<embed" };
    put("log.tsv", LOG);
    put("run.json", RUN);
    put("eval.json", EVAL);
    put_grid("grid.png");
    write_report("");
    char *html = page_text("report.html");
    for (size_t i = 0; i < LEN(OUTSIDE); i++)
        if (strstr(html, OUTSIDE[i])) fail_msg("the page has '%s'", OUTSIDE[i]);
    assert_int_equal(count_words(html, "src="), count_words(html, "src=\"data:image/"));
    assert_int_equal(count_words(html, "href="), 0);
    assert_int_equal(count_words(html, "data:image/svg+xml;"), draws() ? N_FIGURE : 0);
    assert_int_equal(count_words(html, "data:image/png;"), 1);
    assert_non_null(strstr(html, "paper: JEM++ M=5"));
    assert_non_null(strstr(html, "<td class=n>80.00 %</td><td class=n>91.10 %</td>"));
    assert_non_null(strstr(html, "<td class=n>0.750</td><td class=n>0.89</td>"));
    assert_non_null(
        strstr(html, "<td class=n>2.00</td><td class=n>12.50</td>")); // minutes an epoch
    assert_non_null(strstr(html, "<td class=n>4/255</td><td class=n>8.01/255</td>"));
    assert_non_null(
        strstr(html, "test accuracy at the end of training</th><td class=n>91.25 %</td>"));
    assert_non_null(strstr(html, "test ECE at the end of training</th><td class=n>4.75 %</td>"));
    assert_non_null(strstr(html, "<b>steps = 5</b>"));
    assert_non_null(strstr(html, "--tasks speed"));
    assert_null(strstr(html, "--tasks acc"));
    free(html);
}

static void the_page_of_a_bare_run_says_what_is_missing(void **state) {
    (void)state;
    put("log.tsv", LOG);
    put("best.safetensors", "a model");
    write_report("");
    char *html = page_text("report.html"), command[200];
    assert_int_equal(count_words(html, " --tasks "), 7);
    assert_null(strstr(html, "paper"));                     // there is nothing to compare with
    // the folder's name has a space and a quote in it, and the command is still one to copy
    snprintf(command, sizeof command,
             "jempp eval &#39;/tmp/jempp report &#39;\\&#39;&#39;%s&#39; --tasks ood",
             strrchr(dir, '\'') + 1);
    assert_non_null(strstr(html, command));
    free(html);
    assert_int_equal(remove(in_dir("best.safetensors")), 0);
}

static void the_page_of_a_run_without_a_model_suggests_no_evaluation(void **state) {
    (void)state;
    put("log.tsv", LOG);
    write_report("");
    char *html = page_text("report.html");
    assert_null(strstr(html, "jempp eval"));
    assert_non_null(strstr(html, "The run has no model yet: best.safetensors is written after"));
    free(html);
}

static void zero_bytes_at_the_end_of_a_log_are_a_torn_line(void **state) {
    (void)state;
    Record r;
    put("log.tsv", LOG);
    OK(record_read(&r, dir, err));
    const int n = r.log.n;
    record_free(&r);
    FILE *f = fopen(in_dir("log.tsv"), "a");
    assert_non_null(f);
    fwrite("17\t0.5\0\0\0\0", 1, 10, f);
    fclose(f);
    OK(record_read(&r, dir, err));
    assert_int_equal(r.log.n, n);
    record_free(&r);
}

static void fid_stands_beside_the_papers_with_its_weights(void **state) {
    (void)state;
    char *text =
        edited(EVAL, "  \"samples\"",
               "  \"fid\": { \"reference\": \"cifar10, 50000 training images\", "
               "\"weights\": \"w.pth\", \"weights_sha256\": \"6726825d\", \"buffer\": { "
               "\"n\": 10000, \"fid\": 15.4, \"kid\": 0.01, \"is\": 8.1, \"confident\": 0.9, "
               "\"fid_per_class\": [20, null], \"nearest\": \"grid.png\" } },\n  "
               "\"samples\"");
    put("eval.json", text);
    put("run.json", RUN);
    write_report("");
    char *html = page_text("report.html");
    assert_non_null(strstr(html, "FID of the replay buffer</th><td class=n>15.40</td>"
                                 "<td class=n>37.90</td>"));
    assert_non_null(strstr(html, "w.pth, SHA-256 6726825d. Of the replay buffer, the 90 % most"));
    assert_non_null(strstr(html, "<div>cat <b>20.0</b></div>"));
    assert_null(strstr(html, "fresh chains:"));
    char *outside = edited(text, "\"nearest\": \"grid.png\"", "\"nearest\": \"../grid.png\"");
    put("eval.json", outside);
    Err why = { 0 };
    assert_null(report_write(dir, "", &why));
    assert_non_null(strstr(why.msg, "not the name of a file in this folder"));
    free(html), free(text), free(outside);
}

static void a_log_with_fid_has_a_curve_of_it(void **state) {
    (void)state;
    Record r;
    Figure f;
    Arena a = { 0 };
    put("log.tsv", "step\tepoch\tfxq\tvalid_accuracy\tfid\n0\t0.5\t1\t\t\n1\t1\t1\t0.4\t30.5\n");
    OK(record_read(&r, dir, err));
    assert_true(isnan(r.log.column[LOG_FID][0]));
    assert_close(r.log.column[LOG_FID][1], 30.5, 0);
    OK(figure_make(&f, &r, FIG_CURVES, &a, err) != 1);
    assert_int_equal(f.n, 5);
    assert_string_equal(f.panel[4].title, "FID of the replay buffer");
    arena_free(&a);
    record_free(&r);
}

static void foreign_words_are_no_markup(void **state) {
    (void)state;
    char *text = edited(EVAL, "\"cat\"", "\"<script>alert(1)</script>\\u0001\"");
    char *more = edited(text, "\"svhn\"", "\"\\\" onload='x' & <b>\"");
    char *run = edited(RUN, "\"5\"", "\"</style><img src=x>\"");
    put("eval.json", more);
    put("run.json", run);
    write_report("");
    char *html = page_text("report.html");
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "<img src=x"));
    assert_null(strstr(html, "onload='x'"));
    assert_non_null(strstr(html, "&lt;script&gt;alert(1)&lt;/script&gt;\u00b7"));
    assert_non_null(strstr(html, "&quot; onload=&#39;x&#39; &amp; &lt;b&gt;"));
    assert_int_equal(count_words(html, "</style>"), 1);
    free(html);
    free(text);
    free(more);
    free(run);
}

static void a_sample_grid_that_is_no_picture_is_named(void **state) {
    (void)state;
    put("eval.json", EVAL);
    write_report("");
    char *html = page_text("report.html");
    assert_non_null(strstr(html, "grid.png: No such file"));
    free(html);
    put("grid.png", "GIF89a");
    write_report("");
    html = page_text("report.html");
    assert_non_null(strstr(html, "grid.png: "));
    assert_int_equal(count_words(html, "data:image/png;"), 0);
    free(html);
}

static void pages_of_classes_carry_their_names_and_fold_away(void **state) {
    (void)state;
    char *text = edited(EVAL, "\"grid.png\"", "\"class-001-best-px.png\", \"grid.png\"");
    put("eval.json", text);
    put_grid("grid.png");
    put_grid("class-001-best-px.png");
    write_report("");
    char *html = page_text("report.html");
    const char *folded = strstr(html, "<details>"), *plain = strstr(html, "<figcaption>grid.png");
    assert_true(folded && plain && plain < folded);
    assert_non_null(strstr(folded, "<figcaption>dog: highest p(x): class-001-best-px.png"));
    free(html);
    free(text);
}

static void a_page_elsewhere_leaves_the_folder_alone(void **state) {
    (void)state;
    char other[600];
    put("log.tsv", LOG);
    snprintf(other, sizeof other, "%s", in_dir("other.html"));
    write_report(other);
    assert_true(file_exists(other));
    assert_false(file_exists(in_dir("report.html")));
    assert_false(file_exists(in_dir("curves.png")));
}

static void without_the_module_the_page_says_so(void **state) {
    (void)state;
    char *before = getenv("JEMPP_MODULE_DIR") ? strdup(getenv("JEMPP_MODULE_DIR")) : NULL;
    Err err = { 0 };
    put("log.tsv", LOG);
    setenv("JEMPP_MODULE_DIR", dir, 1);
    if (report_pictures(dir, &err)) {
        assert_int_equal(err.kind, ERR_DEV);
        assert_non_null(strstr(err.msg, "jempp-plot.so"));
        err = (Err){ 0 };
        char *said = report_write(dir, "", &err);
        assert_non_null(said);
        assert_non_null(strstr(said, "plots are left out: no jempp-plot.so"));
        free(said);
        char *html = page_text("report.html");
        assert_non_null(strstr(html, "The picture is left out: no jempp-plot.so"));
        free(html);
    } else {
        print_message("one is installed: it was used\n");
    }
    if (before) setenv("JEMPP_MODULE_DIR", before, 1);
    else unsetenv("JEMPP_MODULE_DIR");
    free(before);
}

#define IN_DIR(test) cmocka_unit_test_teardown(test, empty_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_found_by_system_set_and_measure),
        cmocka_unit_test(a_file_stands_for_the_set_that_it_is_named_after),
        cmocka_unit_test(another_preset_is_compared_with_what_is_nearest),
        IN_DIR(a_log_is_read_column_by_column),
        IN_DIR(a_line_that_is_still_being_written_does_not_count),
        IN_DIR(a_bad_log_is_refused_with_its_line),
        IN_DIR(an_evaluation_is_read_as_it_was_written),
        IN_DIR(results_are_written_as_they_were_read),
        IN_DIR(metrics_have_labels_and_the_papers_names),
        IN_DIR(a_rounding_error_beyond_the_range_is_its_end),
        IN_DIR(a_bad_evaluation_is_refused_with_its_place),
        IN_DIR(a_folder_that_is_no_run_is_refused),
        IN_DIR(every_picture_is_made_in_its_size_with_its_inks),
        IN_DIR(pictures_survive_odd_numbers),
        IN_DIR(the_page_holds_everything_and_refers_to_nothing),
        IN_DIR(the_page_of_a_bare_run_says_what_is_missing),
        IN_DIR(the_page_of_a_run_without_a_model_suggests_no_evaluation),
        IN_DIR(zero_bytes_at_the_end_of_a_log_are_a_torn_line),
        IN_DIR(fid_stands_beside_the_papers_with_its_weights),
        IN_DIR(a_log_with_fid_has_a_curve_of_it),
        IN_DIR(foreign_words_are_no_markup),
        IN_DIR(a_sample_grid_that_is_no_picture_is_named),
        IN_DIR(pages_of_classes_carry_their_names_and_fold_away),
        IN_DIR(a_page_elsewhere_leaves_the_folder_alone),
        IN_DIR(without_the_module_the_page_says_so),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
