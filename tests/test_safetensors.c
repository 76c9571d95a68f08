// test_safetensors.c - round trips, number formats, and files that lie.
#include "base/safetensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "/tmp/jempp_st_XXXXXX";
static char path[64], back[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    snprintf(back, sizeof back, "%s/b.safetensors", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    unlink(back);
    return rmdir(dir);
}

static const float  f32[6] = { 0, 0.5f, 1, 1.5f, 2, 2.5f };
static const double f64[1] = { 0.1 };
static const int64_t i64[2] = { INT64_MIN, INT64_MAX };
static const int32_t i32[1] = { -5 };
static const uint8_t u8[3] = { 0, 128, 255 };
static const uint16_t f16[2] = { 0x3c00, 0xc000 }, bf16[2] = { 0x3f80, 0xc000 };      // 1, -2

// hold: memory for the data until the end, or NULL.
static void write_types(void *hold) {
    StWriter w = st_create(path);
    st_meta_add(&w, "step", "17");
    st_meta_add(&w, "a \"quoted\" key", "line\nbreak, \u00e9");
    st_declare(&w, "i64", ST_I64, 1, (uint64_t[]){ 2 });
    st_declare(&w, "f64", ST_F64, 1, (uint64_t[]){ 1 });
    st_declare(&w, "f32", ST_F32, 2, (uint64_t[]){ 2, 3 });
    st_declare(&w, "empty", ST_F32, 2, (uint64_t[]){ 0, 4 });
    st_declare(&w, "i32", ST_I32, 2, (uint64_t[]){ 1, 1 });
    st_declare(&w, "f16", ST_F16, 1, (uint64_t[]){ 2 });
    st_declare(&w, "bf16", ST_BF16, 1, (uint64_t[]){ 2 });
    st_declare(&w, "u8", ST_U8, 3, (uint64_t[]){ 3, 1, 1 });
    st_declare(&w, "scalar", ST_U8, 0, NULL);
    if (hold) st_hold(&w, hold);
    st_write(&w, i64, sizeof i64);
    st_write(&w, f64, sizeof f64);
    st_write(&w, f32, 10);                               // in parts that cut an element
    st_write(&w, (const char *)f32 + 10, sizeof f32 - 10);
    st_write(&w, NULL, 0);                               // `empty`: may be left out too
    st_write(&w, i32, sizeof i32);
    st_write(&w, f16, sizeof f16);
    st_write(&w, bf16, sizeof bf16);
    st_write(&w, u8, sizeof u8);
    st_write(&w, "*", 1);
    Err err = { 0 };
    assert_int_equal(st_finish(&w, &err), 0);
}

static void write_all_types(void) { write_types(NULL); }

static void assert_raw(St *st, const char *name, StType type, const void *want, uint64_t bytes) {
    char got[64];
    const StTensor *t = st_find(st, name);
    assert_non_null(t);
    assert_int_equal(t->type, type);
    assert_int_equal(st_read_raw(st, t, got, bytes, NULL), 0);
    assert_memory_equal(got, want, bytes);
}

static void every_type_comes_back_as_it_was(void **state) {
    (void)state;
    write_all_types();
    St st;
    Err err = { 0 };
    assert_int_equal(st_open(&st, path, &err), 0);
    assert_int_equal(st.n, 9);
    assert_int_equal(st.data_at % 8, 0);
    assert_raw(&st, "u8", ST_U8, u8, sizeof u8);         // in any order
    assert_raw(&st, "i64", ST_I64, i64, sizeof i64);
    assert_raw(&st, "i32", ST_I32, i32, sizeof i32);
    assert_raw(&st, "f64", ST_F64, f64, sizeof f64);
    assert_raw(&st, "f32", ST_F32, f32, sizeof f32);
    assert_raw(&st, "f16", ST_F16, f16, sizeof f16);
    assert_raw(&st, "bf16", ST_BF16, bf16, sizeof bf16);
    assert_raw(&st, "scalar", ST_U8, "*", 1);
    const StTensor *t = st_find(&st, "u8");
    assert_int_equal(t->rank, 3);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(st_find(&st, "empty")->bytes, 0);
    assert_int_equal(st_find(&st, "scalar")->rank, 0);
    assert_null(st_find(&st, "none"));
    assert_string_equal(st_meta(&st, "step"), "17");
    assert_string_equal(st_meta(&st, "a \"quoted\" key"), "line\nbreak, \u00e9");
    assert_null(st_meta(&st, "none"));
    st_close(&st);
}

static void floats_are_converted_when_read(void **state) {
    (void)state;
    write_all_types();
    St st;
    float f[6];
    double d[6];
    assert_int_equal(st_open(&st, path, NULL), 0);
    assert_int_equal(st_read_f32(&st, st_find(&st, "f64"), f, 1, NULL), 0);
    assert_true(f[0] == 0.1f);
    assert_int_equal(st_read_f64(&st, st_find(&st, "f32"), d, 6, NULL), 0);
    assert_true(d[5] == 2.5);
    assert_int_equal(st_read_f32(&st, st_find(&st, "f32"), f, 6, NULL), 0);
    assert_memory_equal(f, f32, sizeof f);
    assert_int_equal(st_read_f32(&st, st_find(&st, "f16"), f, 2, NULL), 0);
    assert_true(f[0] == 1 && f[1] == -2);
    assert_int_equal(st_read_f64(&st, st_find(&st, "bf16"), d, 2, NULL), 0);
    assert_true(d[0] == 1 && d[1] == -2);
    st_close(&st);
}

static void a_wrong_count_or_type_names_file_tensor_found_and_expected(void **state) {
    (void)state;
    write_all_types();
    St st;
    float f[8];
    Err err = { 0 };
    char want[160];
    assert_int_equal(st_open(&st, path, NULL), 0);
    assert_int_not_equal(st_read_f32(&st, st_find(&st, "f32"), f, 7, &err), 0);
    snprintf(want, sizeof want, "%s: tensor f32: 6 elements, expected 7", path);
    assert_string_equal(err.msg, want);
    err = (Err){ 0 };
    assert_int_not_equal(st_read_f32(&st, st_find(&st, "i32"), f, 1, &err), 0);
    snprintf(want, sizeof want, "%s: tensor i32: dtype I32, expected F64, F32, F16 or BF16", path);
    assert_string_equal(err.msg, want);
    err = (Err){ 0 };
    assert_int_not_equal(st_read_raw(&st, st_find(&st, "u8"), f, 4, &err), 0);
    snprintf(want, sizeof want, "%s: tensor u8: 3 bytes, expected 4", path);
    assert_string_equal(err.msg, want);
    st_close(&st);
}

static void long_tensors_are_converted_in_parts(void **state) {
    (void)state;
    enum { N = 20011 };
    static uint16_t h[N];
    static float f[N];
    for (int i = 0; i < N; i++) h[i] = f32_to_f16((float)(i % 2048));
    StWriter w = st_create(path);
    st_declare(&w, "h", ST_F16, 1, (uint64_t[]){ N });
    st_write(&w, h, sizeof h);
    assert_int_equal(st_finish(&w, NULL), 0);
    St st;
    assert_int_equal(st_open(&st, path, NULL), 0);
    assert_int_equal(st_read_f32(&st, &st.t[0], f, N, NULL), 0);
    for (int i = 0; i < N; i++) assert_true(f[i] == (float)(i % 2048));
    st_close(&st);
}

static void half_precision_is_exact(void **state) {
    (void)state;
    static const struct {
        float f;
        uint16_t h;
    } known[] = {
        { 0, 0 },
        { -0.0f, 0x8000 },
        { 1, 0x3c00 },
        { -2, 0xc000 },
        { 65504, 0x7bff },
        { 0x1p-14f, 0x0400 },
        { 0x1p-24f, 0x0001 },
        { 0x1.ff8p-15f, 0x03ff },
        { INFINITY, 0x7c00 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(f32_to_f16(known[i].f), known[i].h);
        assert_true(f16_to_f32(known[i].h) == known[i].f);
    }
    for (unsigned h = 0; h < 0x10000; h++) {             // every one of them, there and back
        const float f = f16_to_f32((uint16_t)h);
        if (isnan(f)) assert_true(isnan(f16_to_f32(f32_to_f16(f))));
        else assert_int_equal(f32_to_f16(f), h);
    }
}

static void half_precision_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(f32_to_f16(1 + 0x1p-11f), 0x3c00);              // half way, down to even
    assert_int_equal(f32_to_f16(1 + 0x3p-11f), 0x3c02);              // half way, up to even
    assert_int_equal(f32_to_f16(1 + 0x1.002p-11f), 0x3c01);          // just over
    assert_int_equal(f32_to_f16(0x1p-25f), 0);                       // half the smallest
    assert_int_equal(f32_to_f16(0x1.8p-24f), 2);                     // between subnormals 1 and 2
    assert_int_equal(f32_to_f16(0x1.002p-25f), 1);
    assert_int_equal(f32_to_f16(0x1.ffcp-15f), 0x0400);              // subnormal up to normal
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(1e-40f), 0);                         // a subnormal of f32
    assert_int_equal(f32_to_f16(NAN) & 0x7e00, 0x7e00);
}

static void bfloat16_is_the_upper_half_of_a_float(void **state) {
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } cases[] = { { 0x3f80, 1 },         { 0x3f81, 1.0078125f }, { 0xc040, -3 },
                  { 0x0001, 0x1p-133f }, { 0x8000, 0 },          { 0x7f7f, 0x1.fep127f },
                  { 0xff80, -INFINITY } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(bf16_to_f32(cases[i].bits) == cases[i].value);
    assert_true(isnan(bf16_to_f32(0x7fc0)));
}

// ---- files that lie

static void put_file(const void *data, size_t n) {
    Writer w = writer_open(path);
    write_bytes(&w, data, n);
    assert_int_equal(writer_close(&w, NULL), 0);
}

static void assert_file_refused(const char *why) {
    St st;
    Err err = { 0 };
    assert_int_not_equal(st_open(&st, path, &err), 0);
    assert_null(st.t);
    assert_non_null(strstr(err.msg, path));
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

static void put_header(const char *json, size_t data_bytes) {
    static const char zeros[64];
    const uint64_t n = strlen(json);
    Writer w = writer_open(path);
    write_bytes(&w, &n, 8);
    write_text(&w, "%s", json);
    write_bytes(&w, zeros, data_bytes);
    assert_int_equal(writer_close(&w, NULL), 0);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    write_all_types();
    char *data;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &data, &n, NULL), 0);
    uint64_t header;
    memcpy(&header, data, sizeof header);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(data, cut);
        assert_file_refused(cut >= 8 && cut < 8 + header ? "truncated" : "expected");
    }
    free(data);
}

static void no_flipped_byte_crashes_the_reader(void **state) {
    (void)state;
    write_all_types();
    char *data;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &data, &n, NULL), 0);
    for (size_t i = 0; i < 600 && i < n; i++) {
        St st;
        data[i] ^= (char)(1 << i % 8);
        put_file(data, n);
        if (!st_open(&st, path, NULL)) st_close(&st);
        data[i] ^= (char)(1 << i % 8);
    }
    free(data);
}

static void a_header_longer_than_the_file_or_the_bound_is_refused(void **state) {
    (void)state;
    put_file("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_file_refused("a truncated one: its header is longer than the file");
    put_file("\3\0\0\0\0\0\0\0{}", 10);
    assert_file_refused("a truncated one: its header is longer than the file");
    put_file("\1\xe1\xf5\5\0\0\0\0", 8);             // 100,000,001 in a file that is long enough
    assert_int_equal(truncate(path, 100000100), 0);
    assert_file_refused("expected at most 100000000");
    put_file("\0\0\0\0\0\0\0\0", 8);
    assert_file_refused("not JSON");
}

#define T(type, shape, from, to) \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void lying_headers_are_refused_with_what_was_found(void **state) {
    (void)state;
    static const struct {
        const char *json;
        size_t data;
        const char *why;
    } lie[] = {
        { "[]", 0, "not a JSON object" },
        { "{\"x\":1}", 0, "tensor x: entry is not an object" },
        { "{\"x\":{}}", 0, "tensor x: entry is not an object" },
        { "{\"x\":" T("F32", "[1]", "0", "4") "} x", 4, "not JSON: wrong at byte" },
        { "{\"x\":" T("F32", "[1]", "0", "4"), 4, "not JSON" },
        { "{\"x\":" T("F31", "[1]", "0", "4") "}", 4, "tensor x: dtype F31, expected F64" },
        { "{\"x\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is not a" },
        { "{\"x\":" T("F32", "4", "0", "4") "}", 4, "tensor x: shape is not a list" },
        { "{\"x\":" T("F32", "[-1]", "0", "4") "}", 4, "tensor x: shape has" },
        { "{\"x\":" T("F32", "[0.5]", "0", "2") "}", 2, "tensor x: shape has" },
        { "{\"x\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1,
          "tensor x: 9 dimensions, expected at most 8" },
        { "{\"x\":" T("F32", "[4294967296,4294967296,4]", "0", "4") "}", 4, "x: shape too large" },
        { "{\"x\":" T("F32", "[2]", "0", "4") "}", 4, "tensor x: 4 bytes, expected 8" },
        { "{\"x\":" T("F32", "[1]", "0", "8") "}", 8, "tensor x: 8 bytes, expected 4" },
        { "{\"x\":" T("F32", "[1]", "4", "8") "}", 4,
          "tensor x: data_offsets 4 to 8, expected within the file's 4 bytes" },
        { "{\"x\":" T("F32", "[1]", "4", "0") "}", 4, "tensor x: data_offsets 4 to 0" },
        { "{\"x\":" T("F32", "[1]", "-4", "0") "}", 4, "tensor x: data_offsets are not" },
        { "{\"x\":" T("F32", "[1]", "0", "9007199254740993") "}", 4, "x: data_offsets are not" },
        { "{\"x\":" T("F32", "[1]", "0", "1e400") "}", 4, "tensor x: data_offsets are not" },
        { "{\"x\":" T("F32", "[1]", "0,2", "4") "}", 4, "tensor x: data_offsets are not" },
        { "{\"x\":" T("F32", "[1]", "0", "4") ",\"y\":" T("F32", "[1]", "2", "6") "}", 6,
          "tensor y: begins at 2, expected 4 (an overlap)" },
        { "{\"x\":" T("F32", "[1]", "0", "4") ",\"y\":" T("F32", "[1]", "0", "4") "}", 4,
          "begins at 0, expected 4 (an overlap)" },
        { "{\"x\":" T("F32", "[1]", "0", "4") ",\"y\":" T("F32", "[1]", "6", "10") "}", 10,
          "tensor y: begins at 6, expected 4 (a gap)" },
        { "{\"x\":" T("F32", "[1]", "4", "8") "}", 8, "tensor x: begins at 4, expected 0 (a gap)" },
        { "{\"x\":" T("F32", "[1]", "0", "4") "}", 5, "5 bytes of data, expected 4" },
        { "{}", 1, "1 byte of data, expected 0" },
        { "{\"x\":" T("F32", "[1]", "0", "4") ",\"x\":" T("F32", "[1]", "4", "8") "}", 8,
          "duplicate key \"x\"" },
        { "{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[]}}", 0,
          "duplicate key \"dtype\"" },
        { "{\"__metadata__\":[]}", 0, "__metadata__ is not an object" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ a is not a string" },
        { "{\"a\\u0000b\":" T("U8", "[]", "0", "1") "}", 1, "\\u0000" },
        { "{\"\xff\":" T("U8", "[]", "0", "1") "}", 1, "byte 2 is 0xff" },
        { "{\"x\":[[[[[[[[[[1]]]]]]]]]]}", 0, "nested over 8 deep" },
    };
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        put_header(lie[i].json, lie[i].data);
        assert_file_refused(lie[i].why);
    }
}

static void bottomless_json_does_not_exhaust_the_stack(void **state) {
    (void)state;
    enum { N = 1000000 };
    char *deep = malloc(N + 1);
    memset(deep, '[', N);
    deep[N] = 0;
    put_header(deep, 0);
    free(deep);
    assert_file_refused("nested over 8 deep");
}

static void spaces_and_an_empty_file_are_fine(void **state) {
    (void)state;
    St st;
    put_header("{}      ", 0);
    assert_int_equal(st_open(&st, path, NULL), 0);
    assert_int_equal(st.n, 0);
    st_close(&st);
    put_header("{ \"x\" : " T("F32", "[ 1 ]", "0", "4") " }", 4);
    assert_int_equal(st_open(&st, path, NULL), 0);
    st_close(&st);
    assert_int_equal(unlink(path), 0);
    assert_file_refused("No such file");
}

// ---- writers that are used wrongly

static void assert_not_written(StWriter *w, const char *why) {
    Err err = { 0 };
    assert_int_not_equal(st_finish(w, &err), 0);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, why));
    assert_false(file_exists(path));
}

static StWriter one_tensor(void) {
    unlink(path);
    StWriter w = st_create(path);
    st_declare(&w, "x", ST_F32, 1, (uint64_t[]){ 2 });
    return w;
}

static void data_that_was_held_gives_the_same_file(void **state) {
    (void)state;
    uint64_t hold[16];
    char *direct, *held;
    size_t n, m;
    write_all_types();
    assert_int_equal(file_read(path, 4096, &direct, &n, NULL), 0);
    write_types(hold);
    assert_int_equal(file_read(path, 4096, &held, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_memory_equal(direct, held, n);
    free(direct);
    free(held);
}

static void held_data_is_bounded_and_must_be_all_of_it(void **state) {
    (void)state;
    float hold[2];
    StWriter w = one_tensor();
    assert_int_equal(st_bytes(&w), 8);
    st_hold(&w, hold);
    assert_ptr_equal(st_next(&w, 4), hold);
    assert_not_written(&w, "tensor x: less data than declared");
    w = one_tensor();
    st_hold(&w, hold);
    st_write(&w, f32, 8);
    assert_null(st_next(&w, 1));
    assert_not_written(&w, "more data than declared");
    w = one_tensor();
    st_hold(&w, hold);
    st_write(&w, f32, 8);
    st_cancel(&w);
    assert_false(file_exists(path));
}

static void too_little_or_too_much_data_leaves_no_file(void **state) {
    (void)state;
    StWriter w = one_tensor();
    st_write(&w, f32, 4);
    assert_not_written(&w, "tensor x: less data than declared");
    w = one_tensor();
    st_write(&w, f32, 12);
    assert_not_written(&w, "tensor x: more data than declared");
    w = one_tensor();
    st_write(&w, f32, 8);
    st_write(&w, f32, 1);
    assert_not_written(&w, "more data than declared");
}

static void wrong_declarations_leave_no_file(void **state) {
    (void)state;
    StWriter w = one_tensor();
    st_declare(&w, "x", ST_U8, 0, NULL);
    assert_not_written(&w, "tensor x: declared twice");
    w = one_tensor();
    st_write(&w, f32, 8);
    st_declare(&w, "y", ST_U8, 0, NULL);
    assert_not_written(&w, "tensor y: declared after the first data");
    w = one_tensor();
    st_declare(&w, "y", ST_F32, 2, (uint64_t[]){ (uint64_t)1 << 62, 8 });
    assert_not_written(&w, "tensor y: too large");
}

static void many_tensors_fit(void **state) {
    (void)state;
    StWriter w = st_create(path);
    char name[32];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "layer.%d", i);
        st_declare(&w, name, ST_I32, 1, (uint64_t[]){ 1 });
        st_meta_add(&w, name, "v");
    }
    for (int i = 0; i < 500; i++) st_write(&w, &i, sizeof i);
    assert_int_equal(st_finish(&w, NULL), 0);
    St st;
    int v;
    assert_int_equal(st_open(&st, path, NULL), 0);
    assert_int_equal(st_read_raw(&st, st_find(&st, "layer.321"), &v, sizeof v, NULL), 0);
    assert_int_equal(v, 321);
    assert_int_equal(st.n_meta, 500);
    st_close(&st);
}

static void the_reference_library_reads_ours_and_we_read_its(void **state) {
    (void)state;
    static const char *const pythons[] = { "python3", "/usr/bin/python3" };
    char command[512];
    for (size_t i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s -c 'import safetensors, numpy' 2>/dev/null",
                 pythons[i]);
        if (system(command)) continue;
        write_all_types();
        const char *slash = strrchr(__FILE__, '/');
        snprintf(command, sizeof command, "%s '%.*ssafetensors_interop.py' '%s' '%s'", pythons[i],
                 slash ? (int)(slash + 1 - __FILE__) : 0, __FILE__, path, back);
        assert_int_equal(system(command), 0);
        St st;
        Err err = { 0 };
        assert_int_equal(st_open(&st, back, &err), 0);
        assert_raw(&st, "i64", ST_I64, i64, sizeof i64);
        assert_raw(&st, "f64", ST_F64, f64, sizeof f64);
        assert_raw(&st, "f32", ST_F32, f32, sizeof f32);
        assert_raw(&st, "f16", ST_F16, f16, sizeof f16);
        assert_raw(&st, "u8", ST_U8, u8, sizeof u8);
        assert_int_equal(st_find(&st, "empty")->shape[1], 4);
        assert_string_equal(st_meta(&st, "from"), "python");
        st_close(&st);
        return;
    }
    print_message("no python3 with safetensors and numpy: skipped\n");
    skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_back_as_it_was),
        cmocka_unit_test(floats_are_converted_when_read),
        cmocka_unit_test(a_wrong_count_or_type_names_file_tensor_found_and_expected),
        cmocka_unit_test(long_tensors_are_converted_in_parts),
        cmocka_unit_test(half_precision_is_exact),
        cmocka_unit_test(half_precision_rounds_to_nearest_even),
        cmocka_unit_test(bfloat16_is_the_upper_half_of_a_float),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(no_flipped_byte_crashes_the_reader),
        cmocka_unit_test(a_header_longer_than_the_file_or_the_bound_is_refused),
        cmocka_unit_test(lying_headers_are_refused_with_what_was_found),
        cmocka_unit_test(bottomless_json_does_not_exhaust_the_stack),
        cmocka_unit_test(spaces_and_an_empty_file_are_fine),
        cmocka_unit_test(data_that_was_held_gives_the_same_file),
        cmocka_unit_test(held_data_is_bounded_and_must_be_all_of_it),
        cmocka_unit_test(too_little_or_too_much_data_leaves_no_file),
        cmocka_unit_test(wrong_declarations_leave_no_file),
        cmocka_unit_test(many_tensors_fit),
        cmocka_unit_test(the_reference_library_reads_ours_and_we_read_its),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
