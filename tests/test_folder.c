// test_folder.c - image sets of folders and of shapes, parts of sets, their names.
#include "data_files.h"
#include "base/image.h"
#include "data/formats.h"

// ---- folders

static void put_picture(const char *name, int w, int h, int r, int g, int b) {
    put(name, "", 0); // makes the folders
    Image im;
    assert_int_equal(image_new(&im, w, h, 3, NULL), 0);
    for (int i = 0; i < w * h; i++) {
        im.p[3 * i] = (uint8_t)r;
        im.p[3 * i + 1] = (uint8_t)g;
        im.p[3 * i + 2] = (uint8_t)b;
    }
    Err err = { 0 };
    if (image_write_png(&im, in_root(name), &err)) fail_msg("%s", err.msg);
    image_free(&im);
}

static void put_halves(void) {
    put_picture("f/train/cat/1.png", 40, 20, 10, 20, 30);
    put_picture("f/train/cat/2.PNG", 20, 40, 11, 21, 31);
    put_picture("f/train/ant/1.png", 32, 32, 12, 22, 32);
    put_picture("f/test/cat/9.png", 8, 8, 13, 23, 33);
    put_picture("f/test/ant/9.png", 64, 64, 14, 24, 34);
}

static void a_folder_has_a_class_a_subfolder_and_pictures_of_any_size(void **state) {
    (void)state;
    put_halves();
    put("f/train/cat/notes.txt", "not a picture", 13);
    put("f/train/cat/.hidden.png", "not a picture", 13);
    Set s;
    load(&s, named("folder:", in_root("f")), HALF_TRAIN);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.classes, 2);
    assert_string_equal(s.class_name[0], "ant");
    assert_string_equal(s.class_name[1], "cat");
    assert_int_equal(s.side, 32);
    const int y[] = { 0, 1, 1 }, red[] = { 12, 10, 11 };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(s.y[i], y[i]);
        for (size_t c = 0; c < 3; c++)
            for (size_t k = 0; k < 1024; k++)
                assert_int_equal(s.x[(i * 3 + c) * 1024 + k], red[i] + 10 * (int)c);
    }
    set_free(&s);
    load(&s, named("folder:", in_root("f")), HALF_TEST);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.x[0], 14);
    set_free(&s);
}

static void a_folder_can_be_read_grey_and_of_another_size(void **state) {
    (void)state;
    put_picture("f/train/cat/1.png", 40, 20, 77, 77, 77);
    put_picture("f/test/cat/1.png", 40, 20, 77, 77, 77);
    const DataOpts o = { .side = 28, .channels = 1 };
    Set s;
    assert_int_equal(set_load(&s, named("folder:", in_root("f")), HALF_TEST, &o, NULL), 0);
    assert_int_equal(s.c, 1);
    assert_int_equal(s.side, 28);
    assert_int_equal(s.x[28 * 28 - 1], 77);
    set_free(&s);
}

static void without_a_test_folder_a_tenth_of_each_class_is_held_out(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "f/%s/%d.png", i < 30 ? "train" : "bus",
                 i); // a class called train
        put_picture(name, 4, 4, i, 0, 0);
    }
    Set train, test;
    load(&train, named("folder:", in_root("f")), HALF_TRAIN);
    load(&test, named("folder:", in_root("f")), HALF_TEST);
    assert_int_equal(train.classes, 2);
    assert_int_equal(train.n, 36);
    assert_int_equal(test.n, 4);
    assert_int_equal(test.y[0], 0);
    assert_int_equal(test.y[1], 1);
    int seen[40] = { 0 };
    for (size_t i = 0; i < train.n; i++) seen[train.x[i * 3072]]++;
    for (size_t i = 0; i < test.n; i++) seen[test.x[i * 3072]]++;
    for (int i = 0; i < 40; i++) assert_int_equal(seen[i], 1);
    set_free(&train);
    set_free(&test);
}

static int n_told;
static char told[32][256];
static void keep_line(void *ctx, const char *text) {
    (void)ctx;
    if (n_told < 32) snprintf(told[n_told++], sizeof told[0], "%s", text);
}

static void a_check_finds_every_problem_and_reports_the_first(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        char name[64];
        snprintf(name, sizeof name, "p/cat/%02d.png", i);
        if (i < 5) put_picture(name, 4, 4, 0, 0, 0);
        else put(name, "no", 2);
    }
    put_picture("p/dog/1.png", 4, 4, 0, 0, 0);
    put_picture("p/dog/2.png", 4, 4, 0, 0, 0);
    make_folder("p/empty");
    const Events ev = { .line = keep_line };
    Problems found = { 0 };
    const DataOpts o = { .side = 4, .events = &ev, .problems = &found };
    n_told = 0;
    for (Half half = HALF_TRAIN; half <= HALF_TEST; half++) {
        Set s;
        assert_int_equal(set_load(&s, named("folder:", in_root("p")), half, &o, NULL), 0);
        set_free(&s);
    }
    assert_int_equal(found.pictures, 32);
    assert_int_equal(found.unreadable, 25);
    assert_int_equal(found.classes, 1);
    assert_int_equal(n_told, MOST_PROBLEMS);
    assert_non_null(strstr(told[0], "/p/empty: no PNG, JPEG or WebP picture"));
    assert_non_null(strstr(told[1], ".png: 2 bytes, expected a PNG"));
    for (int i = 2; i < 20; i++) assert_true(strcmp(told[i - 1], told[i]) < 0);
}

static void pictures_of_subfolders_are_listed_and_a_note_names_those_without(void **state) {
    (void)state;
    put_picture("p/cat/1.png", 4, 4, 0, 0, 0);
    put_picture("p/cat/more/2.png", 4, 4, 0, 0, 0);
    make_folder("p/ant");
    make_folder("p/bee");
    const Events ev = { .line = keep_line };
    const char **path;
    size_t n;
    Arena arena;
    Err err = { 0 };
    n_told = 0;
    assert_int_equal(list_pictures(&arena, in_root("p"), &path, &n, &ev, &err), 0);
    assert_int_equal(n, 1);
    assert_non_null(strstr(path[0], "p/cat/1.png"));
    assert_int_equal(n_told, 1);
    assert_non_null(
        strstr(told[0], "/p: 2 subfolders without PNG, JPEG and WebP pictures (ant, ...)"));
    arena_free(&arena);
    assert_int_equal(list_pictures(&arena, in_root("p/cat"), &path, &n, &ev, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(n_told, 2);
    assert_non_null(strstr(told[1], "/p/cat: 1 subfolder beside its pictures not read (more)"));
    arena_free(&arena);
    put("q/ant/1.gif", "", 0);
    assert_int_equal(list_pictures(&arena, in_root("q"), &path, &n, &ev, &err), -1);
    assert_non_null(strstr(err.msg, "/q: no PNG, JPEG or WebP picture, but 1 of other formats"));
    arena_free(&arena);
}

static void an_unreadable_picture_is_named(void **state) {
    (void)state;
    put_halves();
    put("f/train/cat/3.jpg", "\xff\xd8\xff\xe0 nothing", 12);
    refused(named("folder:", in_root("f")), HALF_TRAIN, "f/train/cat/3.jpg");
}

static void a_class_without_pictures_is_named(void **state) {
    (void)state;
    put_halves();
    make_folder("f/train/bee");
    make_folder("f/test/bee");
    put("f/train/bee/readme.txt", "none yet", 8);
    refused(named("folder:", in_root("f")), HALF_TRAIN,
            "f/train/bee: no PNG, JPEG or WebP picture");
}

static void a_class_is_not_blamed_for_the_formats_of_another(void **state) {
    (void)state;
    put_halves();
    put("f/train/ant/1.gif", "", 0);
    make_folder("f/train/bee");
    make_folder("f/test/bee");
    Set s;
    Err err = { 0 };
    assert_int_not_equal(
        set_load(&s, named("folder:", in_root("f")), HALF_TRAIN, &(DataOpts){ 0 }, &err), 0);
    assert_non_null(strstr(err.msg, "f/train/bee: no PNG, JPEG or WebP picture"));
    assert_null(strstr(err.msg, "other formats"));
    put("f/train/bee/1.gif", "", 0);
    refused(named("folder:", in_root("f")), HALF_TRAIN,
            "f/train/bee: no PNG, JPEG or WebP picture, but 1 of other formats (1.gif)");
}

static void both_halves_of_a_folder_have_the_same_classes(void **state) {
    (void)state;
    put_halves();
    make_folder("f/test/dog");
    refused(named("folder:", in_root("f")), HALF_TRAIN, "f/train: no class 'dog', which is in");
    refused(named("folder:", in_root("f")), HALF_TEST, "f/train: no class 'dog', which is in");
    put_picture("f/train/dog/1.png", 4, 4, 0, 0, 0);
    make_folder("f/train/bee");
    refused(named("folder:", in_root("f")), HALF_TEST, "f/test: no class 'bee', which is in");
}

static void a_folder_without_classes_or_with_too_many_is_refused(void **state) {
    (void)state;
    put_picture("f/1.png", 4, 4, 0, 0, 0);
    refused(named("folder:", in_root("f")), HALF_TRAIN,
            "/f: a picture but no subfolder, expected one per class with its pictures in it");
    refused(in_root("f"), HALF_TRAIN, "/f: a folder; expected folder:");
    make_folder("bare");
    refused(named("folder:", in_root("bare")), HALF_TRAIN, "/bare: no subfolder, expected one");
    refused(named("folder:", in_root("none")), HALF_TRAIN, "none: no such folder");
    put_picture("g/test/cat/1.png", 4, 4, 0, 0, 0);
    refused(named("folder:", in_root("g")), HALF_TRAIN, "has test/ but no train/");
    put_picture("h/cat/1.png", 4, 4, 0, 0, 0);
    refused(named("folder:", in_root("h")), HALF_TEST, "too few pictures to hold some out");
    for (int i = 0; i < 1001; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/%d", i);
        make_folder(name);
    }
    refused(named("folder:", in_root("many")), HALF_TRAIN, "1001 subfolders");
}

// ---- shapes, parts, names

static void shapes_depend_on_the_seed_and_the_half_alone(void **state) {
    (void)state;
    const DataOpts o = { .seed = 5, .side = 16 }, other = { .seed = 6, .side = 16 };
    const size_t bytes = 3 * 16 * 16;
    Set a, b, c, d;
    assert_int_equal(set_load(&a, "shapes", HALF_TRAIN, &o, NULL), 0);
    assert_int_equal(set_load(&b, "shapes", HALF_TRAIN, &o, NULL), 0);
    assert_int_equal(set_load(&c, "shapes", HALF_TRAIN, &other, NULL), 0);
    assert_int_equal(set_load(&d, "shapes", HALF_TEST, &o, NULL), 0);
    assert_int_equal(a.n, 5000);
    assert_int_equal(d.n, 1000);
    assert_memory_equal(a.x, b.x, a.n * bytes);
    int same_seed = 0, same_half = 0, count[10] = { 0 };
    for (size_t i = 0; i < d.n; i++) {
        same_seed += !memcmp(a.x + i * bytes, c.x + i * bytes, bytes);
        same_half += !memcmp(a.x + i * bytes, d.x + i * bytes, bytes);
        count[d.y[i]]++;
    }
    assert_int_equal(same_seed, 0);
    assert_int_equal(same_half, 0);
    for (int i = 0; i < 10; i++) assert_int_equal(count[i], 100);
    assert_string_equal(a.class_name[8], "star");
    set_free(&a);
    set_free(&b);
    set_free(&c);
    set_free(&d);
}

static void every_shape_stands_out_from_its_ground(void **state) {
    (void)state;
    Set s;
    load(&s, "shapes", HALF_TEST);
    for (size_t i = 0; i < s.n; i++) {
        int low = 255, high = 0;
        for (size_t k = 0; k < 1024; k++) {
            const int v = s.x[i * 3072 + k];
            if (v < low) low = v;
            if (v > high) high = v;
        }
        assert_true(high - low >= 60);
    }
    set_free(&s);
}

static void a_split_parts_the_pictures_by_seed(void **state) {
    (void)state;
    put_zeros("mine.bin", 200 * RECORD);
    for (int i = 0; i < 200; i++) poke("mine.bin", i * RECORD + 1, i);
    for (int i = 0; i < 200; i++) poke("mine.bin", i * RECORD, i % 7);
    Set all, train, valid, again, rest;
    load(&all, named("cifar-file:", in_root("mine.bin")), HALF_TRAIN);
    assert_int_equal(set_split(&all, 50, 0, 9, &train, &valid, NULL), 0);
    assert_int_equal(train.n, 150);
    assert_int_equal(valid.n, 50);
    int seen[200] = { 0 };
    for (size_t i = 0; i < 150; i++) seen[train.x[i * 3072]]++;
    for (size_t i = 0; i < 50; i++) seen[valid.x[i * 3072]]++;
    for (int i = 0; i < 200; i++) assert_int_equal(seen[i], 1);
    for (size_t i = 0; i < 50; i++) assert_int_equal(valid.y[i], valid.x[i * 3072] % 7);
    assert_int_equal(set_split(&all, 50, 20, 9, &rest, &again, NULL), 0);
    assert_int_equal(rest.n, 20);
    assert_memory_equal(again.x, valid.x, 50 * 3072);
    assert_memory_equal(rest.x, train.x, 20 * 3072);
    set_free(&rest);
    set_free(&again);
    assert_int_equal(set_split(&all, 50, 0, 10, &rest, &again, NULL), 0);
    assert_memory_not_equal(again.x, valid.x, 50 * 3072);
    set_free(&all); // parts own what they hold
    assert_string_equal(valid.class_name[3], "3");
    set_free(&rest);
    set_free(&again);
    set_free(&train);
    set_free(&valid);
}

static void a_split_without_training_pictures_is_refused(void **state) {
    (void)state;
    put_zeros("mine.bin", 3 * RECORD);
    Set all, train, valid;
    Err err = { 0 };
    load(&all, named("cifar-file:", in_root("mine.bin")), HALF_TRAIN);
    assert_int_equal(set_split(&all, 3, 0, 1, &train, &valid, &err), -1);
    assert_non_null(strstr(err.msg, "3 of 3 pictures for validation leave none to train on"));
    assert_int_equal(set_split(&all, 0, 0, 1, &train, &valid, NULL), 0);
    assert_int_equal(valid.n, 0);
    set_free(&valid);
    set_free(&train);
    set_free(&all);
}

static void a_selection_keeps_the_order_and_refuses_what_is_not_there(void **state) {
    (void)state;
    put_zeros("mine.bin", 3 * RECORD);
    for (int i = 0; i < 3; i++) poke("mine.bin", i * RECORD, i);
    Set all, part;
    Err err = { 0 };
    load(&all, named("cifar-file:", in_root("mine.bin")), HALF_TRAIN);
    assert_int_equal(set_select(&part, &all, (uint32_t[]){ 2, 0, 2 }, 3, NULL), 0);
    assert_int_equal(part.y[0], 2);
    assert_int_equal(part.y[1], 0);
    assert_int_equal(part.y[2], 2);
    set_free(&part);
    assert_int_equal(set_select(&part, &all, (uint32_t[]){ 0, 3 }, 2, &err), -1);
    assert_non_null(strstr(err.msg, "picture 3 of 3 was requested"));
    assert_null(part.arena.head);
    set_free(&all);
}

static void names_and_options_that_cannot_be_are_refused(void **state) {
    (void)state;
    char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    refused("cifar11", HALF_TRAIN, "cifar11: no such image set; did you mean cifar10?");
    refused("CIFAR100", HALF_TRAIN, "did you mean cifar100?");
    refused("imagenet", HALF_TRAIN, "imagenet: no such image set; there are cifar10,");
    refused("folder:", HALF_TRAIN, "no such image set");
    refused(longer, HALF_TRAIN, "name too long");
    Set s;
    Err err = { 0 }, err2 = { 0 };
    assert_int_equal(set_load(&s, "shapes", HALF_TRAIN, &(DataOpts){ .side = 5000 }, &err), -1);
    assert_non_null(strstr(err.msg, "5000 x 5000"));
    const DataOpts gone = { .dir = in_root("gone") };
    assert_int_equal(set_load(&s, "mnist", HALF_TRAIN, &gone, &err2), -1);
    assert_non_null(strstr(err2.msg, "gone: no such folder"));
}

static void a_folder_is_stored_by_its_absolute_path(void **state) {
    (void)state;
    char name[256], here[512], want[300];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(root), 0);
    make_folder("mnist");
    snprintf(name, sizeof name, "folder:mnist");
    assert_int_equal(data_absolute(name, sizeof name, NULL), 0);
    char *whole = realpath("mnist", NULL);
    snprintf(want, sizeof want, "folder:%s", whole);
    assert_string_equal(name, want);
    assert_int_equal(data_absolute(name, sizeof name, NULL), 0);
    assert_string_equal(name, want);
    snprintf(name, sizeof name, "cifar10");
    assert_int_equal(data_absolute(name, sizeof name, NULL), 0);
    assert_string_equal(name, "cifar10");
    Err err = { 0 };
    char small[16] = "folder:mnist";
    assert_int_not_equal(data_absolute(small, sizeof small, &err), 0);
    assert_non_null(strstr(err.msg, whole));
    free(whole);
    Set s;
    err = (Err){ 0 };
    assert_int_not_equal(set_load(&s, "folder:nosuch", HALF_TRAIN, &(DataOpts){ 0 }, &err), 0);
    assert_non_null(strstr(err.msg, "nosuch: no such folder in /"));
    assert_int_equal(chdir(here), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_folder_has_a_class_a_subfolder_and_pictures_of_any_size),
        TEST(a_folder_can_be_read_grey_and_of_another_size),
        TEST(without_a_test_folder_a_tenth_of_each_class_is_held_out),
        TEST(an_unreadable_picture_is_named),
        TEST(a_check_finds_every_problem_and_reports_the_first),
        TEST(pictures_of_subfolders_are_listed_and_a_note_names_those_without),
        TEST(a_class_without_pictures_is_named),
        TEST(a_class_is_not_blamed_for_the_formats_of_another),
        TEST(both_halves_of_a_folder_have_the_same_classes),
        TEST(a_folder_without_classes_or_with_too_many_is_refused),
        TEST(shapes_depend_on_the_seed_and_the_half_alone),
        TEST(every_shape_stands_out_from_its_ground),
        TEST(a_split_parts_the_pictures_by_seed),
        TEST(a_split_without_training_pictures_is_refused),
        TEST(a_selection_keeps_the_order_and_refuses_what_is_not_there),
        TEST(names_and_options_that_cannot_be_are_refused),
        TEST(a_folder_is_stored_by_its_absolute_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
