// test_outputs.c - files for others' programs, byte by byte: protobuf messages, TensorBoard's event
// files, ONNX, scores. tests/interop.py has those programs read them, where they are installed.
#include "testing.h"
#include "base/file.h"
#include "base/image.h"
#include "base/npz.h"
#include "base/protobuf.h"
#include "run/ckpt.h"
#include "run/event_file.h"
#include "run/onnx.h"
#include "run/score_file.h"
#include <stdio.h>
#include <unistd.h>

static char dir[64];

static const char *at(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static uint8_t *contents(const char *path, size_t *n) {
    char *data = NULL;
    OK(file_read(path, 64 << 20, &data, n, err));
    return (uint8_t *)data;
}

// ---- a reader of messages, for the tests alone --------------------------------------------------

typedef struct {
    const uint8_t *p, *end;
} Span;

static uint64_t read_varint(Span *b) {
    uint64_t v = 0;
    for (int shift = 0; b->p < b->end; shift += 7) {
        v |= (uint64_t)(*b->p & 127) << shift;
        if (!(*b->p++ & 128)) return v;
    }
    fail_msg("a number is cut off");
    return 0;
}

typedef struct {
    int      field;
    uint64_t number;                      // of varints
    double   real;                        // of floats and doubles
    Span   bytes;                       // of texts and messages
} Field;

static int next_field(Span *b, Field *f) {
    if (b->p == b->end) return 0;
    const uint64_t key = read_varint(b);
    float single;
    size_t n = 0;
    *f = (Field){ .field = (int)(key >> 3) };
    switch (key & 7) {
    case 0: f->number = read_varint(b); break;
    case 1: memcpy(&f->real, b->p, n = 8); break;
    case 2:
        n = read_varint(b);
        f->bytes = (Span){ b->p, b->p + n };
        break;
    case 5:
        memcpy(&single, b->p, n = 4);
        f->real = (double)single;
        break;
    default: fail_msg("a field of kind %d", (int)(key & 7));
    }
    b->p += n;
    assert_true(b->p <= b->end);
    return 1;
}

static int is_text(Span b, const char *text) {
    return (size_t)(b.end - b.p) == strlen(text) && !memcmp(b.p, text, strlen(text));
}

// The nth field of that number in a message.
static Field field_of(Span b, int field, int nth) {
    Field f;
    while (next_field(&b, &f))
        if (f.field == field && !nth--) return f;
    fail_msg("no field %d", field);
    return f;
}

static int count_fields(Span b, int field) {
    Field f;
    int n = 0;
    while (next_field(&b, &f)) n += f.field == field;
    return n;
}

// ---- messages -----------------------------------------------------------------------------------

static void messages_are_those_of_the_specification(void **state) {
    (void)state;
    Proto m = { 0 }, inner = { 0 };
    proto_int(&m, 1, 150);                                // the specification's own example
    proto_text(&m, 2, "testing");
    proto_int(&inner, 1, 150);
    proto_message(&m, 3, &inner);
    proto_int(&m, 4, -1);                                 // ten bytes
    proto_float(&m, 16, 1);                               // a key of two bytes
    static const uint8_t wanted[] = { 0x08, 0x96, 0x01, 0x12, 0x07, 't',  'e',  's',  't',
                                      'i',  'n',  'g',  0x1a, 0x03, 0x08, 0x96, 0x01, 0x20,
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0x01, 0x85, 0x01, 0,    0,    0x80, 0x3f };
    assert_int_equal(m.n, sizeof wanted);
    assert_memory_equal(m.p, wanted, sizeof wanted);
    proto_free(&m);
}

// ---- event files --------------------------------------------------------------------------------

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

// CRC-32C by its bits, of the most significant first: another way than the writer's.
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu, out = 0;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            const uint32_t top = crc >> 31 ^ (p[i] >> bit & 1u);
            crc = crc << 1 ^ (top ? 0x1edc6f41u : 0);
        }
    for (int bit = 0; bit < 32; bit++) out |= (crc >> bit & 1u) << (31 - bit);
    return ~out;
}

// The record at b, whose checksums are right; b moves behind it.
static Span next_record(Span *b) {
    uint64_t n;
    uint32_t crc_n, crc;
    memcpy(&n, b->p, 8);
    memcpy(&crc_n, b->p + 8, 4);
    assert_int_equal(crc_n, masked(crc32c(b->p, 8)));
    const Span record = { b->p + 12, b->p + 12 + n };
    assert_true(record.end + 4 <= b->end);
    memcpy(&crc, record.end, 4);
    assert_int_equal(crc, masked(crc32c(record.p, n)));
    b->p = record.end + 4;
    return record;
}

static void an_event_file_has_records_with_checksums(void **state) {
    (void)state;
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283u); // the published value
    EventFile e;
    const char *name[] = { "ce", "acc", "fid" };
    OK(event_file_open(&e, dir, 1700000000, "test", err));
    char path[sizeof e.path];
    strcpy(path, e.path);
    event_file_start(&e, 1700000001, 7);
    event_file_scalars(&e, 1700000002.5, 7, "train", 3, name, (double[]){ 2.25, NAN, 30 });
    const Image im = { .h = 2, .w = 3, .c = 3, .p = (uint8_t[18]){ 1, 2, 3 } };
    OK(image_write_png(&im, at("grid.png"), err));
    event_file_picture(&e, 1700000003, 8, "samples", at("grid.png"));
    OK(event_file_close(&e, err));
    size_t n;
    uint8_t *data = contents(path, &n);
    Span all = { data, data + n };
    Span r = next_record(&all);
    assert_close(field_of(r, 1, 0).real, 1700000000, 0);
    assert_true(is_text(field_of(r, 3, 0).bytes, "brain.Event:2"));
    r = next_record(&all);                                // a session begins at step 7
    assert_int_equal(field_of(r, 2, 0).number, 7);
    assert_int_equal(field_of(field_of(r, 7, 0).bytes, 1, 0).number, 1);
    r = next_record(&all);
    assert_close(field_of(r, 1, 0).real, 1700000002.5, 0);
    const Span summary = field_of(r, 5, 0).bytes;
    assert_int_equal(count_fields(summary, 1), 2);        // NaN is left out
    const Span second = field_of(summary, 1, 1).bytes;
    assert_true(is_text(field_of(second, 1, 0).bytes, "train/fid"));
    assert_close(field_of(second, 2, 0).real, 30, 0);
    r = next_record(&all);
    const Span value = field_of(field_of(r, 5, 0).bytes, 1, 0).bytes;
    const Span image = field_of(value, 4, 0).bytes;
    assert_int_equal(field_of(image, 1, 0).number, 2);
    assert_int_equal(field_of(image, 2, 0).number, 3);
    assert_int_equal(field_of(image, 3, 0).number, 3);
    assert_memory_equal(field_of(image, 4, 0).bytes.p, "\x89PNG", 4);
    assert_ptr_equal(all.p, all.end);
    free(data);
}

static void a_second_of_two_sessions_gives_two_files(void **state) {
    (void)state;
    EventFile a, b;
    OK(event_file_open(&a, dir, 1800000000, "test", err));
    OK(event_file_open(&b, dir, 1800000000, "test", err));
    assert_string_not_equal(a.path, b.path);
    const char *slash = strrchr(b.path, '/');
    assert_true(is_event_file(slash + 1) && !is_event_file("log.tsv"));
    OK(event_file_close(&a, err));
    event_file_picture(&b, 0, 0, "samples", at("nothing.png"));     // the first error is kept
    Err why = { 0 };
    assert_int_not_equal(event_file_close(&b, &why), 0);
    assert_non_null(strstr(why.msg, "nothing.png"));
}

// ---- ONNX ---------------------------------------------------------------------------------------

static const char *const names[] = { "cat", "a \"b\", c" };

static void open_model(Model *m, const char *norm) {
    Config c;
    NetSpec spec = { .depth = 10, .width = 1, .channels = 3, .side = 8, .classes = 2 };
    spec.norm = strcmp(norm, "batch") ? NORM_NONE : NORM_BATCH;
    memset(m, 0, sizeof *m);
    config_defaults(&c);
    open_device(&m->dev, "ref");
    OK(net_build(&m->net, &spec, err));
    OK(net_alloc(&m->net, &m->dev, err));
    OK(net_init(&m->net, 1, err));
    m->class_name = (const char **)names;
    m->threshold = 1.5f;
    m->temperature = 2;
}

static void an_onnx_file_has_the_graph_that_onnx_wants(void **state) {
    (void)state;
    Model m;
    open_model(&m, "batch");
    OK(onnx_write(&m, at("a.onnx"), err));
    size_t n;
    uint8_t *data = contents(at("a.onnx"), &n);
    assert_memory_equal(data, onnx_magic, strlen(onnx_magic));
    const Span model = { data, data + n };              // numbers are those of onnx.proto
    assert_true(is_text(field_of(model, 2, 0).bytes, "jempp"));
    const Span opset = field_of(model, 8, 0).bytes, graph = field_of(model, 7, 0).bytes;
    assert_int_equal(field_of(opset, 2, 0).number, 17);
    assert_int_equal(count_fields(graph, 11), 1);
    assert_true(is_text(field_of(field_of(graph, 11, 0).bytes, 1, 0).bytes, "image"));
    const char *outputs[] = { "logits", "probs", "log_px" };
    assert_int_equal(count_fields(graph, 12), 3);
    for (int i = 0; i < 3; i++)
        assert_true(is_text(field_of(field_of(graph, 12, i).bytes, 1, 0).bytes, outputs[i]));
    // every input of a node is the graph's, a constant, or an earlier node's output
    const int nodes = count_fields(graph, 1), constants = count_fields(graph, 5);
    assert_true(nodes > 10 && constants > 10);
    for (int i = 0; i < nodes; i++) {
        const Span node = field_of(graph, 1, i).bytes;
        for (int k = 0; k < count_fields(node, 1); k++) {
            const Span wanted = field_of(node, 1, k).bytes;
            char name[100];
            snprintf(name, sizeof name, "%.*s", (int)(wanted.end - wanted.p), wanted.p);
            int found = !name[0] || !strcmp(name, "image");
            for (int c = 0; c < constants && !found; c++)
                found = is_text(field_of(field_of(graph, 5, c).bytes, 8, 0).bytes, name);
            for (int j = 0; j < i && !found; j++)
                found = is_text(field_of(field_of(graph, 1, j).bytes, 2, 0).bytes, name);
            if (!found) fail_msg("node %d reads '%s', which nothing gives", i, name);
        }
    }
    int meta = 0;
    for (int i = 0; i < count_fields(model, 14); i++) {
        const Span entry = field_of(model, 14, i).bytes;
        if (is_text(field_of(entry, 1, 0).bytes, "classes"))
            meta += is_text(field_of(entry, 2, 0).bytes, "cat\na \"b\", c");
        if (is_text(field_of(entry, 1, 0).bytes, "threshold"))
            meta += is_text(field_of(entry, 2, 0).bytes, "1.5");
    }
    assert_int_equal(meta, 2);
    free(data);
    net_free(&m.net);
    dev_close(&m.dev);
}

// ---- scores -------------------------------------------------------------------------------------

static const float LOGITS[] = { 2, 0 }; // p = 1 / (1 + e^-1) at temperature 2; LogSumExp 2.126928

static void write_scores(const char *path, Model *m) {
    ScoreFile f;
    OK(score_file_open(&f, path, m, err));
    score_file_add(
        &f, &(ScoreRow){ .file = "a \"b\", c.png", .index = 0, .label = 1, .logits = LOGITS });
    score_file_add(
        &f, &(ScoreRow){ .file = "d.png", .index = 1, .label = -1, .error = "d.png: no picture" });
    score_file_add(&f, &(ScoreRow){ .index = 2, .label = 0, .logits = (float[]){ -3, 0 } });
    OK(score_file_close(&f, err));
}

static void assert_text(const char *path, const char *const *line, size_t n_line) {
    size_t n;
    char *text = (char *)contents(path, &n), *rest = text;
    for (size_t i = 0; i < n_line; i++) {
        const char *found = strsep(&rest, "\n");
        assert_non_null(found);
        if (strcmp(found, line[i]) != 0) fail_msg("%s:%zu: %s", path, i + 1, found);
    }
    assert_string_equal(rest, "");
    free(text);
}

static void scores_in_csv_are_quoted_and_read_back_as_the_same_floats(void **state) {
    (void)state;
    Model m;
    open_model(&m, "none");
    write_scores(at("s.csv"), &m);
    static const char *const csv[] = {
        "file,index,label,class,predicted,p,log_px,known,error,prob_0,prob_1,logit_0,logit_1",
        "\"a \"\"b\"\", c.png\",0,1,cat,0,0.731058598,2.12692809,1,,0.731058598,0.268941432,2,0",
        "d.png,1,,,,,,,d.png: no picture,,,,",
        ",2,0,\"a \"\"b\"\", c\",1,0.817574501,0.048587352,0,,0.182425529,0.817574501,-3,0",
    };
    assert_text(at("s.csv"), csv, LEN(csv));
    write_scores(at("s.jsonl"), &m);
    static const char *const jsonl[] = {
        "{\"file\":\"a \\\"b\\\", "
        "c.png\",\"index\":0,\"label\":1,\"class\":\"cat\",\"predicted\":0,"
        "\"p\":0.731058598,\"log_px\":2.12692809,\"known\":true,\"in\":true,"
        "\"probs\":[0.731058598,0.268941432],\"logits\":[2,0]}",
        "{\"file\":\"d.png\",\"index\":1,\"error\":\"d.png: no picture\"}",
        "{\"file\":null,\"index\":2,\"label\":0,\"class\":\"a \\\"b\\\", c\",\"predicted\":1,"
        "\"p\":0.817574501,\"log_px\":0.048587352,\"known\":false,\"in\":false,"
        "\"probs\":[0.182425529,0.817574501],\"logits\":[-3,0]}",
    };
    assert_text(at("s.jsonl"), jsonl, LEN(jsonl));
    net_free(&m.net);
    dev_close(&m.dev);
}

static void read_array(Zip *z, const char *name, uint64_t count, void *dst) {
    NpzArray a;
    OK(npz_find(z, name, &a, err));
    assert_int_equal(a.count, count);
    OK(npz_read(z, &a, dst, err));
}

static void scores_in_npz_are_arrays(void **state) {
    (void)state;
    Model m;
    Zip z;
    open_model(&m, "none");
    write_scores(at("s.npz"), &m);
    OK(zip_open(&z, at("s.npz"), err));
    int64_t whole[3];
    int8_t known[3];
    float log_px[3], logits[6];
    char files[20];
    read_array(&z, "label", 3, whole);
    assert_true(whole[0] == 1 && whole[1] == -1 && whole[2] == 0);
    read_array(&z, "predicted", 3, whole);
    assert_true(whole[0] == 0 && whole[1] == -1 && whole[2] == 1);
    read_array(&z, "known", 3, known);
    assert_true(known[0] == 1 && known[1] == -1 && known[2] == 0);
    read_array(&z, "log_px", 3, log_px);
    assert_close(log_px[0], 2.126928, 1e-6);
    assert_true(isnan(log_px[1]));
    read_array(&z, "logits", 6, logits);
    assert_true(logits[0] == 2 && isnan(logits[2]) && logits[4] == -3);
    read_array(&z, "files", sizeof files, files);
    assert_memory_equal(files, "a \"b\", c.png\0d.png\0", sizeof files);
    zip_close(&z);
    net_free(&m.net);
    dev_close(&m.dev);
}

static void the_suffix_selects_the_format(void **state) {
    (void)state;
    ScoreFormat f;
    Err why = { 0 };
    OK(score_format("a.CSV", &f, err));
    assert_int_equal(f, SCORES_CSV);
    OK(score_format("a.b.npz", &f, err));
    assert_int_equal(f, SCORES_NPZ);
    assert_int_not_equal(score_format("a.txt", &f, &why), 0);
    assert_int_not_equal(score_format(".csv", &f, &why), 0);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/jempp_outputs_XXXXXX");
    return !mkdtemp(dir);
}

static int remove_folder(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_those_of_the_specification),
        cmocka_unit_test(an_event_file_has_records_with_checksums),
        cmocka_unit_test(a_second_of_two_sessions_gives_two_files),
        cmocka_unit_test(an_onnx_file_has_the_graph_that_onnx_wants),
        cmocka_unit_test(scores_in_csv_are_quoted_and_read_back_as_the_same_floats),
        cmocka_unit_test(scores_in_npz_are_arrays),
        cmocka_unit_test(the_suffix_selects_the_format),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
