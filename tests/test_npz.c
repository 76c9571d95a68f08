// test_npz.c - NumPy's npz files: what NumPy wrote, what is written here, and what lies.
// tests/npz_fixtures.py made the files in tests/npz.
#include "base/npz.h"
#include "testing.h"
#include <stdio.h>
#include <unistd.h>

static char dir[] = "/tmp/jempp_npz_XXXXXX", path[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/a.npz", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static const char *fixture(const char *name) {
    static char full[512];
    snprintf(full, sizeof full, "%s/npz/%s", JEMPP_TEST_DIR, name);
    return full;
}

static void assert_counts_up(Zip *z, const char *name, uint64_t n) {
    NpzArray a;
    double v[16];
    OK(npz_find(z, name, &a, err));
    assert_int_equal(a.count, n);
    OK(npz_read_f64(z, &a, v, err));
    for (uint64_t i = 0; i < n; i++) assert_close(v[i], (double)i, 0);
}

static void not_found(Zip *z, const char *name, const char *why) {
    NpzArray a;
    Err err = { 0 };
    if (!npz_find(z, name, &a, &err)) fail_msg("%s was read, expected: %s", name, why);
    if (!strstr(err.msg, why)) fail_msg("'%s', expected: %s", err.msg, why);
    assert_non_null(strstr(err.msg, z->path));
}

static void what_numpy_wrote_is_read(void **state) {
    (void)state;
    static const char *const files[] = { "stored.npz", "deflated.npz" };
    for (size_t f = 0; f < LEN(files); f++) {
        Zip z;
        NpzArray a;
        uint8_t v[96];
        double seven;
        OK(zip_open(&z, fixture(files[f]), err));
        OK(npz_find(&z, "arr_0", &a, err));
        assert_int_equal(a.type, ST_U8);
        assert_int_equal(a.rank, 4);
        assert_int_equal(a.shape[3], 3);
        assert_int_equal(a.bytes, sizeof v);
        OK(npz_read(&z, &a, v, err));
        for (int i = 0; i < 96; i++) assert_int_equal(v[i], i);
        Err why = { 0 };
        assert_true(npz_read_f64(&z, &a, &seven, &why));
        assert_non_null(strstr(why.msg, "type |u1, expected <f8, <f4 or <f2"));
        assert_counts_up(&z, "mu", 3);
        assert_counts_up(&z, "sigma", 9);
        assert_counts_up(&z, "columns", 9);                 // in Fortran's order
        assert_counts_up(&z, "single", 3);
        assert_counts_up(&z, "half", 3);
        assert_counts_up(&z, "empty", 0);
        OK(npz_find(&z, "scalar", &a, err));
        assert_int_equal(a.rank, 0);
        OK(npz_read_f64(&z, &a, &seven, err));
        assert_close(seven, 7, 0);
        not_found(&z, "big", "big-endian (>f8)");
        not_found(&z, "text", "type '<U1'");
        not_found(&z, "complex", "type '<c8'");
        not_found(&z, "pair", "structured");
        not_found(&z, "nothing", "there is no array 'nothing'; found arr_0.npy, ...");
        assert_true(npz_has(&z, "mu") && !npz_has(&z, "nu"));
        zip_close(&z);
    }
}

static void what_is_written_comes_back(void **state) {
    (void)state;
    for (int deflated = 0; deflated < 2; deflated++) {
        enum { N = 100000 };
        static uint8_t x[N], back[N];
        const double mu[2] = { 0, 1 };
        for (int i = 0; i < N; i++) x[i] = (uint8_t)((unsigned)i * (unsigned)i >> 7);
        NpzWriter w;
        npz_create(&w, path, deflated);
        npz_add(&w, "arr_0", ST_U8, 4, (uint64_t[]){ N / 100, 5, 5, 4 });
        npz_write(&w, x, 777);
        npz_write(&w, x + 777, N - 777);
        npz_add(&w, "mu", ST_F64, 1, (uint64_t[]){ 2 });
        npz_write(&w, mu, sizeof mu);
        npz_add(&w, "none", ST_F32, 1, (uint64_t[]){ 0 });
        npz_add(&w, "one", ST_F64, 0, NULL);
        npz_write(&w, mu, sizeof *mu);
        OK(npz_finish(&w, err));
        Zip z;
        NpzArray a;
        OK(zip_open(&z, path, err));
        OK(npz_find(&z, "arr_0", &a, err));
        assert_int_equal(a.shape[0], N / 100);
        OK(npz_read(&z, &a, back, err));
        assert_memory_equal(x, back, N);
        assert_counts_up(&z, "mu", 2);
        assert_counts_up(&z, "none", 0);
        assert_counts_up(&z, "one", 1);
        zip_close(&z);
    }
}

static void a_writer_counts(void **state) {
    (void)state;
    for (int deflated = 0; deflated < 2; deflated++) {
        NpzWriter w;
        Err err = { 0 };
        npz_create(&w, path, deflated);
        npz_add(&w, "a", ST_F64, 1, (uint64_t[]){ 2 });
        npz_write(&w, "12345678", 8);
        assert_true(npz_finish(&w, &err));
        assert_non_null(strstr(err.msg, "another size than announced"));
    }
    NpzWriter w;
    Err err = { 0 };
    npz_create(&w, path, 0);
    npz_add(&w, "a", ST_BF16, 1, (uint64_t[]){ 2 });
    assert_true(npz_finish(&w, &err));
    assert_non_null(strstr(err.msg, "cannot be written"));
}

// An archive that holds these bytes as array a.
static void archive(const void *bytes, size_t n) {
    Writer w = writer_open(path);
    ZipWriter z = { .w = &w };
    zip_add(&z, "a.npy", n, 1, 0);
    zip_put(&z, bytes, n);
    zip_finish(&z);
    OK(writer_close(&w, err));
}

static void headers_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", "16 bytes, expected 24" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "16 bytes, expected 8" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "damaged" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999,), }",
          "damaged" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,99999999999), }",
          "too large" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2), }", "damaged" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (2", "damaged" },
        { "{'descr': '<f8', 'fortran_order': Falsch, 'shape': (2,), }", "damaged" },
        { "{'descr': '<f8', 'fortran_order': False}", "damaged" },
        { "{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", "damaged" },
        { "{'descr': '<f8', 'more': 1, 'fortran_order': False, 'shape': (2,)}", "damaged" },
        { "{'descr': '<f8' 'fortran_order': False, 'shape': (2,)}", "damaged" },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "type '|O'" },
        { "{'descr': '', 'fortran_order': False, 'shape': (2,)}", "type ''" },
        { "{'descr': 'xf8', 'fortran_order': False, 'shape': (2,)}", "type 'xf8'" },
        { "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}", "structured" },
        { "{'descr': 'a very long type indeed', 'shape': (2,)}", "damaged" },
        { "", "damaged" },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        char bytes[256] = "\x93NUMPY\1";
        const size_t n = strlen(cases[i].text);
        bytes[8] = (char)n;
        memcpy(bytes + 10, cases[i].text, n);
        archive(bytes, 10 + n + 16);
        Zip z;
        OK(zip_open(&z, path, err));
        not_found(&z, "a", cases[i].why);
        zip_close(&z);
    }
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } raw[] = {
        { "\x93NUMPY\1", 7, "7 bytes, expected at least 10" },
        { "\x93NUMPY\4\0\4\0{}  ", 14, "version 1 to 3" },
        { "\x92NUMPY\1\0\4\0{}  ", 14, "version 1 to 3" },
        { "\x93NUMPY\1\0\xff\xff{}  ", 14, "14 bytes, expected at least" },
        { "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "more than 65536 bytes" },
    };
    for (size_t i = 0; i < LEN(raw); i++) {
        Zip z;
        archive(raw[i].bytes, raw[i].n);
        OK(zip_open(&z, path, err));
        not_found(&z, "a", raw[i].why);
        zip_close(&z);
    }
}

static void a_header_of_version_2_is_read(void **state) {
    (void)state;
    char *bytes;
    size_t n;
    OK(file_read(fixture("version2.npy"), 10000, &bytes, &n, err));
    archive(bytes, n);
    free(bytes);
    Zip z;
    NpzArray a;
    OK(zip_open(&z, path, err));
    OK(npz_find(&z, "a", &a, err));
    assert_int_equal(a.bytes, 96);
    zip_close(&z);
}

static void changed_numbers_are_seen(void **state) {
    (void)state;
    static const char *const files[] = { "stored.npz", "deflated.npz" };
    for (size_t f = 0; f < LEN(files); f++) {
        char *bytes;
        size_t n;
        Zip z;
        NpzArray a;
        Err why = { 0 };
        uint8_t v[96];
        OK(file_read(fixture(files[f]), 100000, &bytes, &n, err));
        OK(zip_open(&z, fixture(files[f]), err));
        OK(npz_find(&z, "arr_0", &a, err));
        bytes[a.entry->at + a.entry->packed - 4] ^= 4;
        zip_close(&z);
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, n, file), n);
        fclose(file);
        free(bytes);
        OK(zip_open(&z, path, err));
        OK(npz_find(&z, "arr_0", &a, err));
        assert_true(npz_read(&z, &a, v, &why));
        assert_non_null(strstr(why.msg, "damaged"));
        zip_close(&z);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_wrote_is_read),
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(a_writer_counts),
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(a_header_of_version_2_is_read),
        cmocka_unit_test(changed_numbers_are_seen),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
