// test_image_source.c - images of sets, folders and memory as bytes of one size.
#include "paths.h"
#include "testing.h"
#include "base/file.h"
#include "base/image.h"
#include "base/npz.h"
#include "data/image_source.h"
#include <stdio.h>
#include <unistd.h>

static char root[] = "/tmp/jempp_source_XXXXXX";

static const char *in_root(const char *name) { return path_in(root, name); }

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    return dir_remove(root);
}

// A picture whose pixels count up from `first`: red, green, blue of the first pixel, then the next.
static void write_picture(const char *path, int w, int h, int c, int first) {
    Image im;
    OK(image_new(&im, w, h, c, err));
    for (int i = 0; i < w * h * c; i++) im.p[i] = (uint8_t)(first + i);
    OK(image_write_png(&im, path, err));
    image_free(&im);
}

static void a_folder_gives_its_pictures_as_planes(void **state) {
    (void)state;
    ImageSource s;
    uint8_t rows[2 * 18];
    OK(dir_make(in_root("flat"), err));
    write_picture(in_root("flat/b.png"), 3, 2, 3, 100);
    write_picture(in_root("flat/a.png"), 3, 2, 1, 10);            // grey
    OK(source_open(&s, in_root("flat"), &(DataOpts){ 0 }, err));
    assert_int_equal(s.n, 2);
    assert_true(s.h == 2 && s.w == 3 && s.c == 3);
    OK(source_read(&s, (uint32_t[]){ 1, 0 }, 2, rows, err));
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 6; i++) {
            assert_int_equal(rows[6 * k + i], 100 + 3 * i + k);
            assert_int_equal(rows[18 + 6 * k + i], 10 + i);
        }
    source_close(&s);
}

static void pictures_lie_in_subfolders_too(void **state) {
    (void)state;
    ImageSource s;
    OK(dir_make(in_root("deep/cat"), err));
    OK(dir_make(in_root("deep/dog"), err));
    write_picture(in_root("deep/cat/1.png"), 4, 4, 3, 0);
    write_picture(in_root("deep/dog/1.png"), 4, 4, 3, 1);
    write_picture(in_root("deep/dog/2.png"), 4, 4, 3, 2);
    OK(source_open(&s, in_root("deep"), &(DataOpts){ 0 }, err));
    assert_int_equal(s.n, 3);
    source_close(&s);
}

static void pictures_of_two_sizes_are_refused(void **state) {
    (void)state;
    ImageSource s;
    Err why = { 0 };
    uint8_t row[48];
    OK(dir_make(in_root("mixed"), err));
    write_picture(in_root("mixed/1.png"), 4, 4, 3, 0);
    write_picture(in_root("mixed/2.png"), 3, 4, 3, 0);
    OK(source_open(&s, in_root("mixed"), &(DataOpts){ 0 }, err));
    assert_int_equal(source_read(&s, (uint32_t[]){ 1 }, 1, row, &why), -1);
    assert_non_null(strstr(why.msg, "2.png: 3 x 4, expected 4 x 4"));
    assert_non_null(strstr(why.msg, "folder:DIR"));
    source_close(&s);
    why = (Err){ 0 };
    OK(dir_make(in_root("empty"), err));
    assert_int_equal(source_open(&s, in_root("empty"), &(DataOpts){ 0 }, &why), -1);
    assert_non_null(strstr(why.msg, "no PNG, JPEG or WebP picture"));
}

static void keep_line(void *ctx, const char *text) { snprintf(ctx, 400, "%s", text); }

static void images_of_another_size_get_a_warning(void **state) {
    (void)state;
    char line[400] = "";
    const Events ev = { .line = keep_line, .ctx = line };
    const ImageSource s = { .about = "drawn, 60 pictures", .n = 60, .c = 3, .h = 32, .w = 32 };
    source_warn_of_size(&s, 32, 32, &ev);
    assert_string_equal(line, "");
    source_warn_of_size(&s, 48, 56, &ev);
    assert_non_null(
        strstr(line, "drawn, 60 pictures, of 32 x 32 pixels, against images of 56 x 48"));
}

static void sets_have_two_halves(void **state) {
    (void)state;
    const DataOpts o = { .seed = 3 };
    ImageSource train, test;
    char a[33], b[33], again[33];
    OK(source_open(&train, "shapes", &o, err));
    OK(source_open(&test, "shapes:test", &o, err));
    assert_non_null(strstr(train.about, "5000 training images"));
    assert_non_null(strstr(test.about, "1000 test images"));
    assert_true(train.y && train.classes == 10);
    OK(source_hash(&train, a, err));
    OK(source_hash(&test, b, err));
    OK(source_hash(&train, again, err));
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    source_close(&train);
    source_close(&test);
    Err err = { 0 };
    assert_int_equal(source_open(&train, "nothing", &o, &err), -1);
    assert_non_null(strstr(err.msg, "no such image set"));
}

static void samples_are_rounded_to_bytes(void **state) {
    (void)state;
    const float x[] = { -1, 1, 0, -2, 2, 0.5f / 127.5f, 0.4f / 127.5f, NAN };
    const uint8_t want[] = { 0, 255, 128, 0, 255, 128, 128, 0 };
    ImageSource s;
    OK(source_of_floats(&s, (FloatImages){ x, 2, 1, 2 }, "samples", err));
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t planes[12];
        OK(source_read(&s, &i, 1, planes, err));
        for (int k = 0; k < 3; k++) assert_memory_equal(planes + 4 * k, want + 4 * i, 4);
    }
    source_close(&s);
}

// To a file and back, and to a folder and back: the same bytes.
static void images_are_written_and_read_back(void **state) {
    (void)state;
    ImageSource s, back;
    float x[3 * 3 * 16];
    char hex[2][33];
    for (size_t i = 0; i < LEN(x); i++) x[i] = (float)i / LEN(x) * 2 - 1;
    for (int grey = 0; grey < 2; grey++) {
        OK(source_of_floats(&s, (FloatImages){ x, 3, grey ? 1 : 3, 4 }, "samples", err));
        OK(source_hash(&s, hex[0], err));
        const char *const to[] = { grey ? "grey.NPZ" : "colour.npz", grey ? "grey" : "colour" };
        for (int k = 0; k < 2; k++) {
            OK(source_write(&s, in_root(to[k]), NULL, err));
            OK(source_open(&back, in_root(to[k]), &(DataOpts){ 0 }, err));
            assert_int_equal(back.n, 3);
            OK(source_hash(&back, hex[1], err));
            assert_string_equal(hex[0], hex[1]);
            source_close(&back);
        }
        source_close(&s);
    }
}

static void labels_are_written_and_read_back(void **state) {
    (void)state;
    const float x[3 * 16] = { 0 };
    const int y[] = { 7, 0, 999 };
    ImageSource s, back;
    OK(source_of_floats(&s, (FloatImages){ x, 3, 1, 4 }, "samples", err));
    s.y = y;
    OK(source_write(&s, in_root("labels.npz"), NULL, err));
    OK(source_open(&back, in_root("labels.npz"), &(DataOpts){ 0 }, err));
    assert_memory_equal(back.y, y, sizeof y);
    assert_int_equal(back.classes, 1000);
    source_close(&back);
    source_close(&s);
}

// An array of that name that other tools wrote for something else is no error.
static void what_cannot_be_labels_is_ignored(void **state) {
    (void)state;
    const struct {
        StType      type;
        uint64_t    n;
        const void *numbers;
        size_t      bytes;
        int         labels;
    } cases[] = {
        { ST_U8, 2, (uint8_t[]){ 1, 0 }, 2, 1 },
        { ST_I32, 2, (int32_t[]){ 1, 0 }, 8, 1 },
        { ST_I64, 2, (int64_t[]){ 1, 0 }, 16, 1 },
        { ST_I64, 2, (int64_t[]){ 0, -1 }, 16, 0 },
        { ST_I64, 2, (int64_t[]){ 0, 1000 }, 16, 0 },
        { ST_I64, 2, (int64_t[]){ 0, (int64_t)1 << 32 }, 16, 0 },
        { ST_I64, 3, (int64_t[]){ 0, 1, 1 }, 24, 0 },
        { ST_F32, 2, (float[]){ 0, 1 }, 8, 0 },
    };
    const uint64_t shape[] = { 2, 4, 4, 1 };
    const uint8_t images[32] = { 0 };
    for (size_t i = 0; i < LEN(cases); i++) {
        NpzWriter w;
        ImageSource s;
        npz_create(&w, in_root("maybe.npz"), 0);
        npz_add(&w, "arr_0", ST_U8, 4, shape);
        npz_write(&w, images, sizeof images);
        npz_add(&w, "arr_1", cases[i].type, 1, &cases[i].n);
        npz_write(&w, cases[i].numbers, cases[i].bytes);
        OK(npz_finish(&w, err));
        OK(source_open(&s, in_root("maybe.npz"), &(DataOpts){ 0 }, err));
        assert_int_equal(s.y != NULL, cases[i].labels);
        assert_true(!s.y || (s.y[0] == 1 && s.y[1] == 0 && s.classes == 2));
        source_close(&s);
    }
}

static void a_stopped_writer_leaves_no_file(void **state) {
    (void)state;
    ImageSource s;
    Err why = { 0 };
    const float x[12] = { 0 };
    OK(source_of_floats(&s, (FloatImages){ x, 1, 3, 2 }, "samples", err));
    const Events stop = { .stop = stop_at_once };
    assert_int_equal(source_write(&s, in_root("none.npz"), &stop, &why) != 0, 1);
    assert_false(file_exists(in_root("none.npz")));
    source_close(&s);
}

static void other_npz_files_are_refused(void **state) {
    (void)state;
    const uint64_t shape[] = { 2, 3, 4, 2 };
    const uint8_t bytes[48] = { 0 };
    for (int rank = 3; rank <= 4; rank++) {                   // [2][3][4]; two channels
        NpzWriter w;
        ImageSource s;
        Err why = { 0 };
        npz_create(&w, in_root("odd.npz"), 0);
        npz_add(&w, "arr_0", ST_U8, rank, shape);
        npz_write(&w, bytes, rank == 3 ? 24 : 48);
        OK(npz_finish(&w, err));
        assert_int_equal(source_open(&s, in_root("odd.npz"), &(DataOpts){ 0 }, &why), -1);
        assert_non_null(strstr(why.msg, rank == 3 ? "arr_0 is uint8 [2][3][4], expected uint8 [n]"
                                                  : "arr_0 is uint8 [2][3][4][2], expected "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_gives_its_pictures_as_planes),
        cmocka_unit_test(pictures_lie_in_subfolders_too),
        cmocka_unit_test(pictures_of_two_sizes_are_refused),
        cmocka_unit_test(images_of_another_size_get_a_warning),
        cmocka_unit_test(sets_have_two_halves),
        cmocka_unit_test(samples_are_rounded_to_bytes),
        cmocka_unit_test(images_are_written_and_read_back),
        cmocka_unit_test(labels_are_written_and_read_back),
        cmocka_unit_test(what_cannot_be_labels_is_ignored),
        cmocka_unit_test(a_stopped_writer_leaves_no_file),
        cmocka_unit_test(other_npz_files_are_refused),
    };
    return cmocka_run_group_tests_name("image source", tests, make_root, remove_root);
}
