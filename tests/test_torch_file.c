// test_torch_file.c - PyTorch's files: those of two versions, in every format, and those that lie.
// tests/torch_fixtures.py made the files in tests/torch.
#include "base/safetensors.h"
#include "base/torch_file.h"
#include "base/zip.h"
#include "testing.h"
#include <stdio.h>
#include <unistd.h>

static const char *const versions[] = { "113", "27" };
static char dir[] = "/tmp/jempp_torch_XXXXXX", path[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/a.pt", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static const char *fixture(const char *kind, const char *version) {
    static char name[512];
    snprintf(name, sizeof name, "%s/torch/%s-%s.pt", JEMPP_TEST_DIR, kind, version);
    return name;
}

// ---- what PyTorch wrote

static void assert_values(St *st, const char *name, StType type, int rank, const double *want,
                          uint64_t n) {
    double got[32];
    const StTensor *t = st_find(st, name);
    if (!t) fail_msg("%s: there is no %s", st->path, name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->rank, rank);
    OK(st_read_f64(st, t, got, n, err));
    for (uint64_t i = 0; i < n; i++) assert_close(got[i], want[i], 0);
    float single[32];
    OK(st_read_f32(st, t, single, n, err));
    for (uint64_t i = 0; i < n; i++) assert_close(single[i], want[i], 0);
}

static void check_content(St *st) {
    static const double up[] = { 0, 1, 2, 3, 4, 5, 6, 7 }, part[] = { 8, 9, 10, 14, 15, 16 };
    double transposed[24];
    int64_t seven;
    uint8_t bytes[2];
    for (int i = 0; i < 24; i++) transposed[i] = i % 4 * 6 + i / 4;
    assert_values(st, "model.f32", ST_F32, 2, up, 6);
    assert_values(st, "model.f64", ST_F64, 1, up, 2);
    assert_values(st, "model.f16", ST_F16, 1, up, 3);
    assert_values(st, "model.bf16", ST_BF16, 1, up, 3);
    assert_values(st, "model.transposed", ST_F32, 2, transposed, 24);
    assert_values(st, "model.part", ST_F32, 2, part, 6);
    assert_values(st, "model.channels_last", ST_F32, 4, up, 8);
    assert_values(st, "model.parameter", ST_F32, 1, up, 2);
    assert_values(st, "model.empty", ST_F32, 2, up, 0);
    assert_values(st, "list.0", ST_F32, 1, up, 1);
    OK(st_read_raw(st, st_find(st, "model.i64"), &seven, sizeof seven, err));
    assert_int_equal(seven, 7);
    OK(st_read_raw(st, st_find(st, "model.u8"), bytes, 2, err));
    assert_int_equal(bytes[1], 1);
    assert_int_equal(st->n, 12);
    assert_string_equal(st_meta(st, "epoch"), "3");
    assert_string_equal(st_meta(st, "lr"), "0.5");
    assert_string_equal(st_meta(st, "note"), "made here");
}

static void both_versions_formats_and_protocols_are_read(void **state) {
    (void)state;
    static const char *const kinds[] = { "zip", "stream", "protocol4" };
    for (size_t v = 0; v < LEN(versions); v++)
        for (size_t k = 0; k < LEN(kinds); k++) {
            St st;
            OK(tensors_open(&st, fixture(kinds[k], versions[v]), err));
            check_content(&st);
            st_close(&st);
        }
}

static void a_script_is_its_attributes(void **state) {
    (void)state;
    for (size_t v = 0; v < LEN(versions); v++) {
        St st;
        OK(tensors_open(&st, fixture("script", versions[v]), err));
        assert_values(&st, "fc.weight", ST_F32, 2, (double[]){ 0, 1 }, 2);
        assert_values(&st, "norm.running_var", ST_F32, 1, (double[]){ 1 }, 1);
        assert_non_null(st_find(&st, "norm.num_batches_tracked"));
        st_close(&st);
    }
}

// ---- what is written here is read here; tools that have PyTorch compare more (docs/testing.md)

static void what_is_written_comes_back(void **state) {
    (void)state;
    const float v[] = { 1, 2, 3, 4, 5, 6 };
    const int64_t n = 11;
    StWriter w = torch_create(path);
    st_meta_add(&w, "options", "a = 1\n");
    st_declare(&w, "d/n", ST_I64, 0, NULL);
    st_declare(&w, "d/x.y", ST_F32, 2, (uint64_t[]){ 2, 3 });
    st_declare(&w, "none", ST_F32, 2, (uint64_t[]){ 0, 3 });
    torch_alias(&w, "e/again", "d/x.y");
    st_write(&w, &n, sizeof n);
    st_write(&w, v, 10);                                  // in parts that cut an element
    st_write(&w, (const char *)v + 10, sizeof v - 10);
    OK(st_finish(&w, err));
    St st;
    OK(tensors_open(&st, path, err));
    assert_int_equal(st.n, 4);
    assert_string_equal(st_meta(&st, "options"), "a = 1\n");
    assert_values(&st, "d.x.y", ST_F32, 2, (double[]){ 1, 2, 3, 4, 5, 6 }, 6);
    assert_values(&st, "e.again", ST_F32, 2, (double[]){ 1, 2, 3, 4, 5, 6 }, 6);
    assert_int_equal(st_find(&st, "e.again")->begin, st_find(&st, "d.x.y")->begin);
    assert_int_equal(st_find(&st, "d.x.y")->begin % 64, 0);
    assert_int_equal(st_find(&st, "none")->bytes, 0);
    st_close(&st);
}

static void a_writer_refuses_what_was_not_declared(void **state) {
    (void)state;
    Err err = { 0 };
    StWriter w = torch_create(path);
    st_declare(&w, "x", ST_F32, 1, (uint64_t[]){ 2 });
    torch_alias(&w, "y", "z");
    assert_true(st_finish(&w, &err));
    assert_non_null(strstr(err.msg, "not declared before"));
    err = (Err){ 0 };
    w = torch_create(path);
    st_declare(&w, "x", ST_F32, 1, (uint64_t[]){ 2 });
    st_write(&w, "abcd", 4);
    assert_true(st_finish(&w, &err));
    assert_non_null(strstr(err.msg, "less data than declared"));
}

// ---- files that lie

static void refused(const char *why) {
    St st;
    Err err = { 0 };
    if (!tensors_open(&st, path, &err)) fail_msg("was opened, expected: %s", why);
    if (!strstr(err.msg, why)) fail_msg("'%s', expected: %s", err.msg, why);
    assert_non_null(strstr(err.msg, path));
}

static void write_file(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void add(ZipWriter *z, const char *name, const void *data, size_t n, int deflated) {
    zip_add(z, name, n, 64, deflated);
    zip_put(z, data, n);
}

// An archive with this pickle and one storage of 4 floats.
static void archive(const void *pickle, size_t n, const char *order, int deflated) {
    static const float numbers[4];
    Writer w = writer_open(path);
    ZipWriter z = { .w = &w };
    add(&z, "a/data.pkl", pickle, n, deflated);
    add(&z, "a/byteorder", order, strlen(order), 0);
    add(&z, "a/data/0", numbers, sizeof numbers, deflated);
    zip_finish(&z);
    OK(writer_close(&w, err));
}

#define STORAGE(class, key, count)                                                                 \
    "((X\7\0\0\0storagectorch\n" class "\nX\1\0\0\0" key "X\3\0\0\0cpu" count "tQ"
#define BEGIN "ctorch._utils\n_rebuild_tensor_v2\n"
#define TENSOR(class, key, count, offset, shape, stride)                                           \
    BEGIN STORAGE(class, key, count) offset "(" shape "t(" stride "t\x89}tR"
#define FOUR TENSOR("FloatStorage", "0", "K\4", "K\0", "K\4", "K\1")

static void hostile_pickles_are_refused_by_name(void **state) {
    (void)state;
#define CASE(text, why)                                                                            \
    { "\x80\2" text, sizeof("\x80\2" text) - 1, why }
    static const struct {
        const char *pickle;
        size_t n;
        const char *why;
    } cases[] = {
        CASE("cos\nsystem\nX\4\0\0\0trueq\0\x85R.", "'os.system'"),
        CASE("cbuiltins\neval\n(X\1\0\0\0001tR.", "'builtins.eval'"),
        CASE("\x8c\2os\x8c\6system\x93)R.", "'os.system'"),
        CASE("ctorch.nn.modules.linear\nLinear\n)\x81}b.", "'torch.nn.modules.linear.Linear'"),
        CASE("csubprocess\nPopen\n)\x81}b.", "'subprocess.Popen'"),
        CASE("c__torch__x\nA\n)\x81.", "'__torch__x.A'"),
        CASE("cos\nsys\0tem\n)R.", "'os.sys"),
        CASE("(S'a'\ni__main__\nA\n.", "opcode 0x53"),
        CASE("P0\n.", "opcode 0x50"),
        CASE("\x82\1.", "opcode 0x82"),
        CASE("\xff.", "opcode 0xff"),
        CASE("", "ends too early"),
        CASE("}", "ends too early"),
        CASE(".", "exactly one value"),
        CASE("}}.", "exactly one value"),
        CASE("}(.", "exactly one value"),
        CASE("0.", "nothing is on the stack"),
        CASE("\x85.", "nothing is on the stack"),
        CASE("u.", "a mark is missing"),
        CASE("](K\1u.", "not a dictionary"),
        CASE("}K\1a.", "not a list"),
        CASE("}(K\1u.", "half an item"),
        CASE("(K\1d.", "half an item"),
        CASE("K\1)R.", "not a class"),
        CASE("]}b.", "not an object"),
        CASE("h\5.", "never written"),
        CASE("]r\xff\xff\xff\x7f.", "invalid memo index"),
        CASE("X\xff\xff\xff\xff"
             "a.",
             "ends too early"),
        CASE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "a.",
             "ends too early"),
        CASE("\x8b\xff\xff\xff\xff"
             "a.",
             "ends too early"),
        CASE("]q\0h\0a.", "holds itself"),
        CASE("}q\0(X\1\0\0\0ah\0u.", "holds itself"),
        CASE("c__torch__\nA\n)\x81q\0h\0b.", "holds itself"),
        CASE("}(]K\1u.", "neither string nor number"),
        CASE("}(X\2\0\0\0a\0K\1u.", "zero byte"),
        CASE("}(X\1\0\0\0a" FOUR "X\1\0\0\0a" FOUR "u.", "duplicate tensor a"),
        CASE("}(X\3\0\0\0a.b" FOUR "X\1\0\0\0a}X\1\0\0\0b" FOUR "su.", "duplicate tensor a.b"),
        CASE("ctorch._utils\n_rebuild_tensor_v2\n)R.", "without a storage"),
        CASE("ctorch._utils\n_rebuild_parameter\n)R.", "without a tensor"),
        CASE(TENSOR("FloatStorage", "1", "K\4", "K\0", "K\4", "K\1") ".", "no entry a/data/1"),
        CASE(TENSOR("DoubleStorage", "0", "K\4", "K\0", "K\4", "K\1") ".",
             "a/data/0: 16 bytes, expected 32"),
        CASE(TENSOR("FloatStorage", "0", "K\5", "K\0", "K\4", "K\1") ".",
             "a/data/0: 16 bytes, expected 20"),
        CASE(TENSOR("FloatStorage", "0", "J\xff\xff\xff\xff", "K\0", "K\4", "K\1") ".",
             "without a storage"),
        CASE(TENSOR("FloatStorage", "0", "\x8a\x8\0\0\0\0\0\0\0\x40", "K\0", "K\4", "K\1") ".",
             "too large"),
        CASE(TENSOR("ComplexFloatStorage", "0", "K\4", "K\0", "K\4", "K\1") ".",
             "'torch.ComplexFloatStorage'"),
        CASE(TENSOR("Size", "0", "K\4", "K\0", "K\4", "K\1") ".", "torch.Size"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\1", "K\4", "K\1") ".",
             "need 5 elements, its storage has 4"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "K\2", "K\4") ".", "need 5 elements"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "K\5", "K\0") ".", "need 5 elements"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "J\xff\xff\xff\xff", "K\4", "K\1") ".",
             "an offset"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\3", "K\4", "J\xff\xff\xff\xff") ".", "stride"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "J\xff\xff\xff\xff", "K\1") ".", "size"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "\x88", "K\1") ".", "size"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "K\4", "") ".", "without a shape"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "K\1K\1K\1K\1K\1K\1K\1K\1K\1",
                    "K\1K\1K\1K\1K\1K\1K\1K\1K\1") ".",
             "9 dimensions"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "\x8a\5\0\0\0\0\1\x8a\5\0\0\0\0\1",
                    "K\0K\0") ".",
             "too large"),
        CASE(TENSOR("FloatStorage", "0", "K\4", "K\0", "K\3",
                    "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f") ".",
             "elements"),
        CASE("}(X\1\0\0\0a" FOUR
             "X\1\0\0\0b" TENSOR("IntStorage", "0", "K\4", "K\0", "K\4", "K\1") "u.",
             "two types or sizes"),
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        archive(cases[i].pickle, cases[i].n, "little", 0);
        refused(cases[i].why);
    }
    archive("\x80\1}.", 4, "little", 0);
    refused("protocol 2 to 5");
    archive("}.", 2, "little", 0);
    refused("not a pickle");
}

// Lists of two, each twice the one before, 40 deep: 2^40 visits.
static void a_pickle_that_unfolds_is_refused(void **state) {
    (void)state;
    char text[400] = "\x80\2]q", *p = text + 4;
    *p++ = 0;
    for (int i = 1; i <= 40; i++) {
        const char more[] = { ']', '(', 'h', (char)(i - 1), 'h', (char)(i - 1), 'e', 'q', (char)i };
        memcpy(p, more, sizeof more);
        p += sizeof more;
    }
    *p++ = 't';                                     // what is left on the stack, as one tuple
    *p++ = '.';
    memmove(text + 3, text + 2, (size_t)(p - text) - 2);
    text[2] = '(';
    archive(text, (size_t)(p - text) + 1, "little", 0);
    refused("too many values");
}

// Few bytes may name one long text many times: each would be copied.
static void a_pickle_that_repeats_long_texts_is_refused(void **state) {
    (void)state;
    enum { LONG = 100000, TIMES = 2000 };
    char *text = malloc(LONG + 5 * TIMES + 100), *p = text;
    const uint32_t n = LONG;
    p = mempcpy(p, "\x80\2](X", 5);
    p = mempcpy(p, &n, sizeof n);
    memset(p, 's', LONG);
    p = mempcpy(p + LONG, "q", 2);
    for (int i = 0; i < TIMES; i++) p = mempcpy(p, "h", 2);
    p = mempcpy(p, "e.", 2);
    archive(text, (size_t)(p - text), "little", 1);
    refused("too many values");
    p = mempcpy(text, "\x80\4(X", 4);
    p = mempcpy(p, &n, sizeof n);
    memset(p, 's', LONG);
    memcpy(p, "__torch__.", 10);
    p = mempcpy(p + LONG, "q\0X\1\0\0\0Bq\1", 10);
    for (int i = 0; i < TIMES; i++) p = mempcpy(p, "h\0h\1\x93", 5);
    p = mempcpy(p, "t.", 2);
    archive(text, (size_t)(p - text), "little", 1);
    refused("a class with too long a name");
    free(text);
}

static void a_good_pickle_is_read_from_the_same_archive(void **state) {
    (void)state;
    static const char good[] = "\x80\2}X\1\0\0\0a" FOUR "s.";
    St st;
    archive(good, sizeof good - 1, "little", 0);
    OK(tensors_open(&st, path, err));
    assert_int_equal(st.n, 1);
    st_close(&st);
    archive(good, sizeof good - 1, "big", 0);
    refused("byte order 'big'");
    archive(good, sizeof good - 1, "little", 1);    // its pickle may be deflated, its storages not
    refused("a/data/0: 16 bytes deflated");
}

static uint8_t *load(const char *name, size_t *n) {
    char *bytes;
    OK(file_read(name, 1 << 20, &bytes, n, err));
    return (uint8_t *)bytes;
}

static void every_cut_is_refused(void **state) {
    (void)state;
    static const char *const kinds[] = { "zip", "stream", "script" };
    for (size_t k = 0; k < LEN(kinds); k++) {
        size_t n;
        uint8_t *bytes = load(fixture(kinds[k], "113"), &n);
        for (size_t i = 0; i < n; i += i < 200 ? 1 : 37) {
            St st;
            write_file(bytes, i);
            if (!tensors_open(&st, path, &(Err){ 0 })) fail_msg("%s cut at %zu", kinds[k], i);
        }
        write_file(bytes, n);
        free(bytes);
    }
    size_t n;
    uint8_t *bytes = load(fixture("stream", "113"), &n), *more = realloc(bytes, n + 1);
    more[n] = 0;
    write_file(more, n + 1);
    refused("1 byte after its last storage");
    free(more);
}

// Whatever bit of a zip archive changes, nothing else is read: the checksums see to it.
static void changed_numbers_are_seen(void **state) {
    (void)state;
    size_t n;
    uint8_t *bytes = load(fixture("zip", "27"), &n);
    St st;
    OK(tensors_open(&st, fixture("zip", "27"), err));
    const size_t at = (size_t)st_find(&st, "model.f32")->begin;
    st_close(&st);
    bytes[at + 3] ^= 1;
    write_file(bytes, n);
    refused("CRC-32");
    free(bytes);
}

// The directory of an archive without a comment.
static uint8_t *directory(uint8_t *bytes, size_t n) {
    uint32_t at;
    memcpy(&at, bytes + n - 22 + 16, sizeof at);
    return bytes + at;
}

static void zip_archives_that_lie_are_refused(void **state) {
    (void)state;
    static const char good[] = "\x80\2}X\1\0\0\0a" FOUR "s.";
    archive(good, sizeof good - 1, "little", 0);
    size_t n;
    uint8_t *bytes = load(path, &n), *copy = malloc(n);
    uint8_t *end = bytes + n - 22, *first = directory(bytes, n);
    const struct {
        uint8_t *at;
        int size;
        uint64_t value;
        const char *why;
    } cases[] = {
        { end + 10, 2, 9, "does not fit" },
        { end + 10, 2, 0xffff, "no zip64" },
        { end + 12, 4, 1000000, "does not fit" },
        { end + 12, 4, 140, "truncated" },
        { end + 16, 4, (uint32_t)n, "does not fit" },
        { end + 16, 4, 5, "" },
        { end + 4, 2, 1, "several parts" },
        { end, 4, 0, "directory is missing" },
        { first + 8, 2, 1, "encrypted" },
        { first + 10, 2, 12, "method 12" },
        { first + 10, 2, 8, "deflate stream" },
        { first + 24, 4, 3, "two sizes" },
        { first + 20, 4, 1 << 30, "two sizes" },
        { first + 42, 4, 1 << 30, "outside" },
        { first + 42, 4, 1, "two headers" },
        { first + 28, 2, 60000, "truncated" },
        { first + 46, 1, 0, "zero byte" },
        { first + 46, 1, 'b', "two headers" },
        { first + 24, 4, 0xffffffff, "zip64" },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        memcpy(copy, bytes, n);
        for (int k = 0; k < cases[i].size; k++)
            copy[cases[i].at - bytes + k] = (uint8_t)(cases[i].value >> 8 * k);
        write_file(copy, n);
        refused(cases[i].why);
    }
    free(bytes);
    free(copy);
}

static void a_bomb_is_refused_by_its_size(void **state) {
    (void)state;
    char *zeros = calloc(1, 1 << 20);
    archive(zeros, 1 << 20, "little", 1);
    size_t n;
    uint8_t *bytes = load(path, &n), *first = directory(bytes, n);
    const uint32_t huge = 0xfffffff0;
    memcpy(first + 24, &huge, sizeof huge);
    write_file(bytes, n);
    refused("cannot be deflated");
    free(bytes);
    free(zeros);
    zeros = calloc(1, (8 << 20) + 1);
    archive(zeros, (8 << 20) + 1, "little", 1);
    refused("at most 8388608 are read");
    free(zeros);
}

static void entries_that_share_bytes_or_names_are_refused(void **state) {
    (void)state;
    Writer w = writer_open(path);
    ZipWriter z = { .w = &w };
    add(&z, "a", "1234", 4, 0);
    add(&z, "a", "1234", 4, 0);
    zip_finish(&z);
    OK(writer_close(&w, err));
    refused("duplicate name");
    w = writer_open(path);
    z = (ZipWriter){ .w = &w };
    add(&z, "a", "1234", 4, 0);
    add(&z, "b", "1234", 4, 0);
    zip_finish(&z);
    OK(writer_close(&w, err));
    size_t n;
    uint8_t *bytes = load(path, &n), *first = directory(bytes, n);
    const uint32_t longer = 66;                     // data at 64, the next at 128
    memcpy(first + 20, &longer, 4);
    memcpy(first + 24, &longer, 4);
    write_file(bytes, n);
    refused("overlaps");
    free(bytes);
}

static void a_zip_of_others_says_so(void **state) {
    (void)state;
    Writer w = writer_open(path);
    ZipWriter z = { .w = &w };
    add(&z, "readme.txt", "hello", 5, 1);
    zip_finish(&z);
    OK(writer_close(&w, err));
    refused("without data.pkl");
}

static void a_safetensors_header_of_640_bytes_is_no_pickle(void **state) {
    (void)state;
    char text[8 + 640];
    memset(text, ' ', sizeof text);
    memcpy(text, "\x80\2\0\0\0\0\0\0{}", 10);
    write_file(text, sizeof text);
    St st;
    OK(tensors_open(&st, path, err));
    st_close(&st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_formats_and_protocols_are_read),
        cmocka_unit_test(a_script_is_its_attributes),
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(a_writer_refuses_what_was_not_declared),
        cmocka_unit_test(hostile_pickles_are_refused_by_name),
        cmocka_unit_test(a_pickle_that_unfolds_is_refused),
        cmocka_unit_test(a_pickle_that_repeats_long_texts_is_refused),
        cmocka_unit_test(a_good_pickle_is_read_from_the_same_archive),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(changed_numbers_are_seen),
        cmocka_unit_test(zip_archives_that_lie_are_refused),
        cmocka_unit_test(a_bomb_is_refused_by_its_size),
        cmocka_unit_test(entries_that_share_bytes_or_names_are_refused),
        cmocka_unit_test(a_zip_of_others_says_so),
        cmocka_unit_test(a_safetensors_header_of_640_bytes_is_no_pickle),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
