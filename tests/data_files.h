// data_files.h - a folder of files for each test of image sets: made, damaged, loaded.
#ifndef DATA_FILES_H
#define DATA_FILES_H
#include "paths.h"
#include "data/data.h"
#include "base/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { RECORD = 3073 };                // bytes of a record in a file of CIFAR-10

static char root[] = "/tmp/jempp_data_XXXXXX"; // a fresh folder for each test

static inline const char *in_root(const char *name) { return path_in(root, name); }

static inline int make_root(void **state) {
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    if (!mkdtemp(root)) return -1;
    unsetenv("JEMPP_DATA");
    return setenv("XDG_DATA_HOME", in_root("nothing"), 1); // the user's own sets stay out of this
}

static inline int remove_root(void **state) {
    (void)state;
    return dir_remove(root);
}

static inline const char *named(const char *kind, const char *path) {
    static char name[640];
    snprintf(name, sizeof name, "%s%s", kind, path);
    return name;
}

static inline void make_folder(const char *name) {
    assert_int_equal(dir_make(in_root(name), NULL), 0);
}

static inline void put(const char *name, const void *data, size_t n) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", in_root(name));
    *strrchr(folder, '/') = 0;
    assert_int_equal(dir_make(folder, NULL), 0);
    FILE *f = fopen(in_root(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// Zeros up to `size`: a hole, so that files of the published size cost nothing.
static inline void put_zeros(const char *name, off_t size) {
    put(name, "", 0);
    assert_int_equal(truncate(in_root(name), size), 0);
}

static inline void poke(const char *name, long at, int byte) {
    FILE *f = fopen(in_root(name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, f), byte);
    assert_int_equal(fclose(f), 0);
}

static inline void load(Set *s, const char *name, Half half) {
    Err err = { 0 };
    const DataOpts o = { .dir = root, .seed = 3 };
    if (set_load(s, name, half, &o, &err)) fail_msg("%s", err.msg);
}

static inline void refused(const char *name, Half half, const char *why) {
    Set s;
    Err err = { 0 };
    const DataOpts o = { .dir = root, .seed = 3 };
    assert_int_not_equal(set_load(&s, name, half, &o, &err), 0);
    if (!strstr(err.msg, why)) fail_msg("said \"%s\", expected \"%s\"", err.msg, why);
    assert_null(s.x);
    assert_null(s.arena.head);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
#endif
