// test_base.c - errors, arenas, files, JSON, progress and threads.
#include "jempp.h"
#include "base/text.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/worker.h"
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "/tmp/jempp_base_XXXXXX";
static char path[64], tmp[72];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    unlink(tmp);
    return rmdir(dir);
}

static void put_file(const char *text) {
    Writer w = writer_open(path);
    write_text(&w, "%s", text);
    assert_int_equal(writer_close(&w, NULL), 0);
}

static void assert_file(const char *text) {
    char *data;
    size_t n;
    assert_int_equal(file_read(path, 1000, &data, &n, NULL), 0);
    assert_string_equal(data, text);
    assert_int_equal(n, strlen(text));
    free(data);
}

// ---- errors

static void the_first_error_stays(void **state) {
    (void)state;
    Err err = { 0 };
    assert_int_equal(err_set(&err, ERR_DATA, "%d bytes", 5), -1);
    assert_int_equal(err_set(&err, ERR_IO, "later"), -1);
    assert_int_equal(err.kind, ERR_DATA);
    assert_string_equal(err.msg, "5 bytes");
    assert_int_equal(err_prefix(&err, "run %s", "a"), -1);
    assert_string_equal(err.msg, "run a: 5 bytes");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody listens"), -1);
}

static void long_and_hostile_messages_are_tamed(void **state) {
    (void)state;
    Err err = { 0 };
    char name[3000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    name[0] = '\x1b';
    err_set(&err, ERR_DATA, "%s", name);
    err_prefix(&err, "%s", "p");
    assert_memory_equal(err.msg, "p: ?x", 5);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void a_reason_stays_however_long_the_name_before_it(void **state) {
    (void)state;
    static const char why[] = ": No such file or directory";
    char name[3000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    memcpy(name, "/home/", 6);
    for (int i = 0; i < 2; i++) {
        Err err = { 0 };
        if (i) err_set(&err, ERR_IO, "weights%s", why), err_prefix(&err, "%s", name);
        else err_set(&err, ERR_IO, "%s%s", name, why);
        assert_memory_equal(err.msg, "/home/x", 7);
        assert_non_null(strstr(err.msg, "x...x"));
        assert_string_equal(err.msg + strlen(err.msg) - strlen(why), why);
    }
}

// A terminal takes U+0080 to U+009F, in UTF-8 two bytes, for control characters as well.
static void control_characters_of_two_bytes_are_tamed(void **state) {
    (void)state;
    char text[] = "a\xc2\x9bJb \xc2\xa0\xc3\x9f\xc2";
    tame(text);
    assert_string_equal(text, "a??Jb \xc2\xa0\xc3\x9f\xc2");
}

// ---- arenas

static void an_arena_gives_zeroed_aligned_memory(void **state) {
    (void)state;
    Arena a = { 0 };
    Err err = { 0 };
    for (size_t n = 0; n < 200; n += 13) {
        char *p = arena_alloc(&a, n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i]++, 0);
    }
    assert_string_equal(arena_strdup(&a, "kept"), "kept");
    assert_int_equal(arena_ok(&a, "test", &err), 0);
    arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.bytes, 0);
}

static void an_arena_remembers_that_it_failed(void **state) {
    (void)state;
    Arena a = { 0 };
    Err err = { 0 };
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));       // the product overflows
    assert_non_null(arena_alloc(&a, 1, 1));
    assert_int_equal(arena_ok(&a, "chains", &err), -1);
    assert_int_equal(err.kind, ERR_MEM);
    assert_non_null(strstr(err.msg, "out of memory for chains"));
    arena_free(&a);
    assert_null(arena_alloc(&a, SIZE_MAX - 10, 1));
    arena_free(&a);
}

// ---- files

static void what_is_written_is_read(void **state) {
    (void)state;
    Writer w = writer_open(path);
    write_text(&w, "%d ", 12);
    write_bytes(&w, "ab", 2);
    assert_int_equal(w.at, 5);
    assert_true(file_exists(tmp));
    assert_int_equal(writer_close(&w, NULL), 0);
    assert_int_equal(writer_close(&w, NULL), 0);         // once more does nothing
    assert_false(file_exists(tmp));
    assert_file("12 ab");
}

static void reading_is_bounded_and_wants_a_regular_file(void **state) {
    (void)state;
    char *data;
    size_t n;
    Err err = { 0 };
    put_file("12345");
    assert_int_equal(file_read(path, 4, &data, &n, &err), -1);
    assert_non_null(strstr(err.msg, "5 bytes, at most 4"));
    err = (Err){ 0 };
    assert_int_equal(file_read(dir, 4, &data, &n, &err), -1);
    assert_non_null(strstr(err.msg, "a folder, expected a file"));
    err = (Err){ 0 };
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_read(path, 4, &data, &n, &err), -1);       // and does not wait
    assert_non_null(strstr(err.msg, "not a regular file"));
    err = (Err){ 0 };
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_read(path, 4, &data, &n, &err), -1);
    assert_non_null(strstr(err.msg, "No such file"));
}

static void a_reader_that_ran_out_gives_zeros_and_says_so_at_the_end(void **state) {
    (void)state;
    char got[6] = "xxxxx";
    Err err = { 0 };
    put_file("abcdef");
    Reader r = reader_open(path);
    assert_int_equal(r.size, 6);
    reader_seek(&r, 2);
    read_bytes(&r, got, 3);
    assert_memory_equal(got, "cdexx", 5);
    read_bytes(&r, got, 2);                              // one is left
    assert_memory_equal(got, "\0\0exx", 5);
    reader_seek(&r, 0);
    read_bytes(&r, got + 2, 3);
    assert_memory_equal(got, "\0\0\0\0\0", 5);
    assert_int_equal(reader_close(&r, &err), -1);
    assert_non_null(strstr(err.msg, "6 bytes, expected at least 5 + 2"));
    r = reader_open(path);
    reader_seek(&r, 7);
    assert_int_equal(reader_close(&r, NULL), -1);
    r = reader_open("/nowhere/file");
    read_bytes(&r, got, 3);
    assert_int_equal(reader_close(&r, &(Err){ 0 }), -1);
}

static void assert_failed_write_left_the_old(Writer *w, const char *why) {
    Err err = { 0 };
    assert_int_equal(writer_close(w, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, why));
    assert_int_equal(access(tmp, F_OK), -1);
    assert_file("old");
}

static void a_full_disk_is_reported_and_the_old_file_stays(void **state) {
    (void)state;
    static char big[100000];
    put_file("old");
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    Writer w = writer_open(path);
    assert_true(dup2(full, fileno((FILE *)w.f)) >= 0);
    write_bytes(&w, "new", 3);                           // seen when it is flushed
    assert_failed_write_left_the_old(&w, "No space left");
    w = writer_open(path);
    assert_true(dup2(full, fileno((FILE *)w.f)) >= 0);
    close(full);
    write_bytes(&w, big, sizeof big);                    // seen at once
    assert_true(w.failed);
    write_text(&w, "more");
    assert_failed_write_left_the_old(&w, "No space left");
}

static void a_file_over_the_limit_is_reported_and_the_old_file_stays(void **state) {
    (void)state;
    static char big[100000];
    put_file("old");
    struct rlimit was;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    Writer w = writer_open(path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4096, was.rlim_max }), 0);
    write_bytes(&w, big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, handler);
    assert_failed_write_left_the_old(&w, "File too large");
}

// A folder of others may hold a link under the temporary file's name, to a file that is not theirs.
static void a_writer_follows_no_link(void **state) {
    (void)state;
    char other[sizeof path + 8], *data;
    size_t n;
    put_file("new");
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, tmp), 0);
    put_file("mine");
    struct stat s;
    assert_int_equal(lstat(path, &s), 0);
    assert_true(S_ISREG(s.st_mode));
    assert_file("mine");
    assert_int_equal(file_read(other, 100, &data, &n, NULL), 0);
    assert_string_equal(data, "new");
    free(data);
    unlink(other);
}

// The one that was opened last wins; the other says so, and takes nothing away.
static void two_writers_of_one_file_do_not_mix(void **state) {
    (void)state;
    Err err = { 0 };
    put_file("old");
    Writer a = writer_open(path), b = writer_open(path);
    write_text(&a, "from a");
    write_text(&b, "b");
    assert_int_equal(writer_close(&a, &err), -1);
    assert_non_null(strstr(err.msg, "another program"));
    assert_file("old");
    assert_int_equal(writer_close(&b, NULL), 0);
    assert_file("b");
    Writer c = writer_open(path), d = writer_open(path);
    writer_cancel(&c);
    write_text(&d, "d");
    assert_int_equal(writer_close(&d, NULL), 0);
    assert_file("d");
}

static void what_is_changed_in_place_is_no_link(void **state) {
    (void)state;
    Err err = { 0 };
    unlink(path);
    FILE *f = file_change(path, "a", &err);
    assert_non_null(f);
    assert_int_equal(ftell(f), 0);
    fputs("ab", f);
    fclose(f);
    f = file_change(path, "a", &err);
    assert_int_equal(ftell(f), 2);                       // it goes on at the end
    fputs("c", f);
    fclose(f);
    f = file_change(path, "r+", &err);
    fputs("A", f);
    fclose(f);
    assert_file("Abc");
    assert_int_equal(symlink(path, tmp), 0);
    assert_null(file_change(tmp, "a", &err));
    assert_non_null(strstr(err.msg, "file.tmp: a link, expected a file"));
    assert_null(file_change(tmp, "r+", NULL));
    assert_file("Abc");
    unlink(tmp);
    assert_int_equal(mkfifo(tmp, 0600), 0);
    assert_null(file_change(tmp, "r+", NULL));
    unlink(tmp);
    assert_int_equal(symlink(dir, tmp), 0);
    assert_int_equal(dir_make(tmp, NULL), 0);
    assert_int_equal(dir_make_inside(tmp, NULL), -1);
    assert_int_equal(dir_make_inside(dir, NULL), 0);
    unlink(tmp);
}

static void a_replaced_file_keeps_its_permissions(void **state) {
    (void)state;
    struct stat s;
    put_file("old");
    assert_int_equal(chmod(path, 0600), 0);
    put_file("new");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_file("new");
}

static void a_cancelled_writer_leaves_nothing(void **state) {
    (void)state;
    put_file("old");
    Writer w = writer_open(path);
    write_text(&w, "new");
    writer_cancel(&w);
    write_text(&w, "ignored");
    assert_int_equal(writer_close(&w, NULL), -1);
    assert_false(file_exists(tmp));
    assert_file("old");
}

static void folders_are_made_with_their_parents(void **state) {
    (void)state;
    char deep[128], part[128];
    Err err = { 0 };
    assert_int_equal(path_join(deep, sizeof deep, dir, "a/b//c/", &err), 0);
    assert_int_equal(dir_make(deep, &err), 0);
    assert_int_equal(dir_make(deep, &err), 0);
    assert_true(dir_exists(deep));
    put_file("x");
    assert_int_equal(path_join(part, sizeof part, path, "d", &err), 0);
    assert_int_equal(dir_make(part, &err), -1);
    assert_non_null(strstr(err.msg, "exists and is not a folder"));
    for (const char *const *p = (const char *const[]){ "a/b/c", "a/b", "a", NULL }; *p; p++) {
        path_join(part, sizeof part, dir, *p, NULL);
        assert_int_equal(rmdir(part), 0);
    }
}

static void paths_are_joined_or_refused(void **state) {
    (void)state;
    char p[8];
    Err err = { 0 };
    assert_int_equal(path_join(p, sizeof p, "ab/", "cde", &err), 0);
    assert_string_equal(p, "ab/cde");
    assert_int_equal(path_join(p, sizeof p, "", "cde", &err), 0);
    assert_string_equal(p, "cde");
    assert_int_equal(path_join(p, sizeof p, "abc", "defg", &err), -1);
    assert_non_null(strstr(err.msg, "abc/defg"));
}

// ---- JSON

static void json_is_read(void **state) {
    (void)state;
    static const char text[] =
        " {\"a\": [1, 2.5, -3], \"s\": \"\\u00e9\\n\", \"t\": true, \"z\": null} ";
    Json *doc;
    Err err = { 0 };
    assert_int_equal(json_parse(&doc, text, sizeof text - 1, 2, "x", &err), 0);
    const Json *a = json_get(doc, "a");
    double d = 0;
    uint64_t u = 0;
    int b = 0;
    assert_int_equal(json_kind(doc), JSON_OBJECT);
    assert_int_equal(json_count(doc), 4);
    assert_int_equal(json_count(a), 3);
    assert_int_equal(json_double(json_at(a, 2), &d), 0);
    assert_true(d == -3);
    assert_int_equal(json_u64(json_at(a, 0), &u), 0);
    assert_int_equal(u, 1);
    assert_int_equal(json_u64(json_at(a, 1), &u), -1);   // not whole
    assert_int_equal(json_u64(json_at(a, 2), &u), -1);   // negative
    assert_null(json_at(a, 3));
    assert_string_equal(json_string(json_get(doc, "s")), "\u00e9\n");
    assert_int_equal(json_bool(json_get(doc, "t"), &b), 0);
    assert_true(b);
    assert_int_equal(json_kind(json_get(doc, "z")), JSON_NULL);
    assert_null(json_get(doc, "A"));                     // case matters
    assert_null(json_string(json_get(json_get(doc, "none"), "b")));
    const char *keys[] = { "a", "s", "t", "z" };
    int i = 0;
    for (const Json *m = json_first(doc); m; m = json_next(m))
        assert_string_equal(json_key(m), keys[i++]);
    json_free(doc);
}

static void bad_json_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "not JSON: empty" },
        { "{", "not JSON" },
        { "{} {}", "wrong at byte 3 of 5" },
        { "[1,]", "not JSON" },
        { "\"\xc3\"", "byte 1 is 0xc3" },
        { "\"\xc0\x80\"", "byte 1 is 0xc0" },
        { "\"\xed\xa0\x80\"", "byte 1 is 0xed" },
        { "[[[1]]]", "nested over 2 deep" },
        { "\"\\u0000\"", "\\u0000" },
        { "[{\"k\":1,\"k\":2}]", "duplicate key \"k\"" },
        { "\"\\\\\\u0000\"", "\\u0000" },
        { "\"abc", "not JSON" },
        { "nul", "not JSON" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Json *doc;
        Err err = { 0 };
        assert_int_equal(json_parse(&doc, bad[i].text, strlen(bad[i].text), 2, "f.json", &err), -1);
        assert_null(doc);
        assert_non_null(strstr(err.msg, "f.json: "));
        if (!strstr(err.msg, bad[i].why))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, bad[i].why);
    }
    Json *doc;
    static const char fine[] = "\"\\\\u0000 [[[[ \\\" [[[[\"";           // not what it looks like
    assert_int_equal(json_parse(&doc, fine, sizeof fine - 1, 2, "f", NULL), 0);
    assert_string_equal(json_string(doc), "\\u0000 [[[[ \" [[[[");
    json_free(doc);
}

static void numbers_that_a_double_cannot_tell_apart_are_not_whole(void **state) {
    (void)state;
    static const char text[] = "[9007199254740991, 9007199254740992, 9007199254740993, 1e300]";
    Json *doc;
    uint64_t u;
    assert_int_equal(json_parse(&doc, text, sizeof text - 1, 1, "x", NULL), 0);
    assert_int_equal(json_u64(json_at(doc, 0), &u), 0);
    assert_true(u == 9007199254740991u);
    for (size_t i = 1; i < 4; i++) assert_int_equal(json_u64(json_at(doc, i), &u), -1);
    json_free(doc);
}

static void json_is_written(void **state) {
    (void)state;
    JsonOut j = { 0 };
    json_open_object(&j, NULL);
    json_put_string(&j, "s", "\"\\\n\t\x01 \u00e9 \xff");
    json_put_string(&j, "none", NULL);
    json_open_array(&j, "n");
    json_put_int(&j, NULL, INT64_MIN);
    json_put_uint(&j, NULL, UINT64_MAX);
    json_put_double(&j, NULL, 0.1);
    json_put_double(&j, NULL, 1.0 / 3);
    json_put_double(&j, NULL, (double)0.3f);
    json_put_double(&j, NULL, NAN);
    json_put_double(&j, NULL, -INFINITY);
    json_put_double(&j, NULL, 1e300);
    json_close(&j);
    json_open_object(&j, "o");
    json_close(&j);
    json_put_bool(&j, "b", 0);
    json_close(&j);
    size_t n;
    char *text = json_finish(&j, &n, NULL);
    assert_string_equal(text, "{\"s\":\"\\\"\\\\\\n\\t\\u0001 \u00e9 \\ufffd\",\"none\":null,"
                              "\"n\":[-9223372036854775808,18446744073709551615,0.1,"
                              "0.33333333333333331,0.30000001192092896,null,null,1e+300],"
                              "\"o\":{},\"b\":false}");
    assert_int_equal(n, strlen(text));
    Json *doc;
    assert_int_equal(json_parse(&doc, text, n, 8, "x", NULL), 0);
    json_free(doc);
    free(text);
}

static void json_can_be_indented(void **state) {
    (void)state;
    JsonOut j = { .indent = 2 };
    json_open_object(&j, NULL);
    json_put_int(&j, "a", 1);
    json_open_array(&j, "b");
    json_put_int(&j, NULL, 2);
    json_close(&j);
    json_close(&j);
    char *text = json_finish(&j, NULL, NULL);
    assert_string_equal(text, "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}");
    free(text);
}

static void json_that_was_read_is_written_the_same(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,-2.5,0.1,[]],\"b\":{\"c\":null,\"d\":true},"
                               "\"e\":\"x\\ny\",\"f\":{},\"g\":false}";
    Json *doc;
    JsonOut j = { 0 };
    assert_int_equal(json_parse(&doc, text, strlen(text), 8, "x", NULL), 0);
    json_put(&j, NULL, doc);
    char *again = json_finish(&j, NULL, NULL);
    assert_string_equal(again, text);
    free(again);
    json_free(doc);
}

static void json_that_could_not_be_read_is_not_written(void **state) {
    (void)state;
    Err err = { 0 };
    JsonOut j = { 0 };
    json_open_object(&j, NULL);
    json_put_int(&j, NULL, 1);                           // a member without a key
    json_close(&j);
    assert_null(json_finish(&j, NULL, &err));
    assert_int_equal(err.kind, ERR_ARG);
    json_open_array(&j, NULL);                           // never closed
    assert_null(json_finish(&j, NULL, NULL));
    json_close(&j);                                      // never opened
    assert_null(json_finish(&j, NULL, NULL));
    for (int i = 0; i < 40; i++) json_open_array(&j, NULL);
    assert_null(json_finish(&j, NULL, NULL));
}

// ---- progress

static void times_are_written_for_people(void **state) {
    (void)state;
    static const struct {
        double s;
        const char *text;
    } known[] = {
        { 0, "0 s" },
        { 12.4, "12 s" },
        { 59.6, "1 min 00 s" },
        { 252, "4 min 12 s" },
        { 3 * 3600 + 300, "3 h 05 min" },
        { 50 * 3600, "2 d 02 h" },
        { -1, "?" },
        { NAN, "?" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char s[32];
        format_time(s, known[i].s);
        assert_string_equal(s, known[i].text);
    }
}

static void elsewhere_progress_is_a_plain_line_now_and_then(void **state) {
    (void)state;
    char *text;
    size_t n;
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    Progress p = progress_start(f, "step", 100, 1000);
    p.start -= 1;
    assert_false(p.terminal);
    for (uint64_t i = 101; i <= 200; i++) progress_at(&p, i, "loss 1.5");
    progress_note(&p, "saved");
    progress_end(&p, "done");
    progress_end(&p, "done");                            // once more does nothing
    fclose(f);
    assert_int_equal(file_read(path, 4096, &text, &n, NULL), 0);
    assert_memory_equal(text, "101/1000 step  ", 15);
    assert_non_null(strstr(text, " left  loss 1.5\nsaved\n200/1000 step  "));
    assert_non_null(strstr(text, "step/s  in 1 s  done\n"));
    free(text);
}

// What a terminal of so many columns shows half-way through ten steps; the caller frees it.
static char *shown_in(const char *columns, const char *unit, const char *text) {
    char *line;
    size_t n;
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    setenv("COLUMNS", columns, 1);
    Progress p = progress_start(f, unit, 0, 10);
    p.terminal = 1;
    p.start -= 5;                                        // one a second
    progress_at(&p, 5, text);
    fclose(f);
    unsetenv("COLUMNS");
    assert_int_equal(file_read(path, 4096, &line, &n, NULL), 0);
    assert_int_equal(line[0], '\r');
    assert_string_equal(line + n - 3, "\x1b[K");
    line[n - 3] = 0;
    return line;
}

static void a_terminals_line_is_never_longer_than_the_terminal(void **state) {
    (void)state;
    char *line = shown_in("30", "step", "\u00e9\u00e9\u00e9\u00e9 and much more than fits");
    assert_int_equal(text_width(line + 1), 29);
    free(line);
}

// Wide characters take two columns, marks none: no line may wrap, nor end within a character.
static void a_terminals_line_counts_columns(void **state) {
    (void)state;
    static const char *const text[] = {
        "\u5317\u4eac\u5317\u4eac\u5317\u4eac\u5317\u4eac\u5317\u4eac",
        "\U0001f600\U0001f600\U0001f600\U0001f600\U0001f600",
        "e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301"
    };
    for (int i = 0; i < 3; i++)
        for (int columns = 22; columns < 30; columns++) {
            char width[16];
            snprintf(width, sizeof width, "%d", columns);
            char *line = shown_in(width, "it", text[i]);
            assert_true(text_width(line + 1) <= columns - 1);
            assert_true(text_width(line + 1) >= columns - 2 || strstr(line, text[i]));
            const char *shown = strstr(line, "left  ") + 6;
            assert_memory_equal(shown, text[i], strlen(shown));
            assert_int_equal(text_whole(shown, (int)strlen(shown)), strlen(shown));
            assert_int_not_equal(line[strlen(line) - 1], 'e' * (i == 2));     // without its accent
            free(line);
        }
}

// The bar shrinks before the time left and the losses go; then the speed goes.
static void a_narrow_terminal_loses_the_bar_first(void **state) {
    (void)state;
    char *line = shown_in("80", "it", "ce 1.234");
    assert_non_null(strstr(line, "\r[==========          ] 5/10 it  "));
    free(line);
    line = shown_in("50", "it", "ce 1.234");
    assert_non_null(strstr(line, "\r[====="));
    assert_non_null(strstr(line, "/s  5 s left  ce 1.234"));
    assert_int_equal(text_width(line + 1), 49);
    free(line);
    line = shown_in("40", "it", "ce 1.234");
    assert_null(strchr(line, '['));
    assert_non_null(strstr(line, "/s  5 s left  ce 1.234"));
    free(line);
    line = shown_in("32", "it", "ce 1.234");
    assert_string_equal(line, "\r5/10 it  5 s left  ce 1.234");
    free(line);
}

// "3.98e+03 images/s" and "0 images/s  ? left" were shown before.
static void speeds_are_plain_numbers_and_unknown_ones_are_left_out(void **state) {
    (void)state;
    char *text;
    size_t n;
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    Progress p = progress_start(f, "images", 0, 100000);
    progress_at(&p, 0, "");
    p.start -= 10;
    progress_end(
        &(Progress){ .out = f, .start = p.start, .done = 39800, .total = 39800, .unit = "images" },
        "");
    fclose(f);
    assert_int_equal(file_read(path, 4096, &text, &n, NULL), 0);
    assert_int_equal(strncmp(text, "0/100000 images\n", 16), 0);
    assert_non_null(strstr(text, "39800/39800 images  3,980 images/s  in 10 s\n"));
    free(text);
}

// How the end of a task of so many images in so many seconds is shown; the caller frees it.
static char *shown_end(uint64_t images, double seconds) {
    char *text;
    size_t n;
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    progress_end(&(Progress){ .out = f,
                              .start = now_seconds() - seconds,
                              .done = images,
                              .total = images,
                              .unit = "images" },
                 "");
    fclose(f);
    assert_int_equal(file_read(path, 4096, &text, &n, NULL), 0);
    return text;
}

// "4103967 images/s" was shown of a moment.
static void speeds_have_three_digits_and_none_is_made_of_a_moment(void **state) {
    (void)state;
    static const struct {
        uint64_t images;
        const char *line;
    } cases[] = { { 25, "25/25 images  0.25 images/s  in 1 min 40 s\n" },
                  { 99970, "99970/99970 images  1,000 images/s  in 1 min 40 s\n" },
                  { 1234567, "1234567/1234567 images  12,300 images/s  in 1 min 40 s\n" },
                  { 410396700,
                    "410396700/410396700 images  4,100,000 images/s  in 1 min 40 s\n" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = shown_end(cases[i].images, 100);
        assert_string_equal(text, cases[i].line);
        free(text);
    }
    char *text = shown_end(1000000, 0.25);
    assert_string_equal(text, "1000000/1000000 images  in 0 s\n");
    free(text);
}

// What was done before the first report is not part of the speed.
static void a_task_that_begins_late_has_the_speed_of_what_follows(void **state) {
    (void)state;
    char *text;
    size_t n;
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    JemppEvents ev = jempp_terminal(f);
    ev.progress(ev.ctx, 0, 2000000, 4000000, "images", "");
    usleep(600000);
    ev.progress(ev.ctx, 0, 2000006, 4000000, "images", "");
    jempp_terminal_close(&ev);
    fclose(f);
    assert_int_equal(file_read(path, 4096, &text, &n, NULL), 0);
    const char *speed = strstr(text, "2000006/4000000 images  ");
    assert_non_null(speed);
    assert_true(atof(speed + strlen("2000006/4000000 images  ")) <= 10);
    assert_null(strchr(text, ','));
    free(text);
}

static void without_a_stream_progress_is_silent(void **state) {
    (void)state;
    Progress p = progress_start(NULL, "step", 0, 10);
    progress_at(&p, 5, "x");
    progress_note(&p, "x");
    progress_end(&p, NULL);
    assert_int_equal(p.done, 5);
}

static void a_name_is_one_word_for_a_shell(void **state) {
    (void)state;
    static const char *const cases[][2] = { { "runs/a-1.b", "runs/a-1.b" },
                                            { "", "''" },
                                            { "my run", "'my run'" },
                                            { "it's", "'it'\\''s'" },
                                            { "gr\u00f6\u00dfe", "'gr\u00f6\u00dfe'" },
                                            { "$(rm x)", "'$(rm x)'" } };
    char word[64], little[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(shell_word(word, sizeof word, cases[i][0]), cases[i][1]);
    assert_true(strlen(shell_word(little, sizeof little, "'''' '''' ''''")) < sizeof little);
}

static void more_is_put_after_a_message(void **state) {
    (void)state;
    Err err = { 0 };
    err_set(&err, ERR_DATA, "a.png: no");
    assert_int_equal(err_append(&err, "; %d others\033", 3), -1);
    assert_string_equal(err.msg, "a.png: no; 3 others?");
    for (int i = 0; i < 200; i++) err_append(&err, "%s", "0123456789");
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void text_is_as_wide_as_a_terminal_shows_it(void **state) {
    (void)state;
    assert_int_equal(text_width(""), 0);
    assert_int_equal(text_width("cat"), 3);
    assert_int_equal(text_width("gr\u00f6\u00dfe"), 5);
    assert_int_equal(text_width("\u5317\u4eac.png"), 8);
    assert_int_equal(text_width("e\u0301"), 1);                   // a combining accent
    assert_int_equal(text_width("\xff\xc3"), 2);                  // no UTF-8, and cut short
    assert_int_equal(text_width("\U0001f600"), 2);
}

static void part_of_a_text_has_whole_characters(void **state) {
    (void)state;
    assert_int_equal(text_whole("cat", 9), 3);
    assert_int_equal(text_whole("cat", 2), 2);
    assert_int_equal(text_whole("gr\u00f6", 3), 2);
    assert_int_equal(text_whole("gr\u00f6", 4), 4);
    assert_int_equal(text_whole("\U0001f600", 3), 0);
    assert_int_equal(text_whole("\xf0\x9f\x98", 3), 3);             // no UTF-8: single bytes
}

static void long_text_is_cut_in_the_middle(void **state) {
    (void)state;
    char s[64], little[12];
    assert_string_equal(text_shorten(s, sizeof s, "0123456789", 10), "0123456789");
    assert_string_equal(text_shorten(s, sizeof s, "0123456789a", 10), "0123...89a");
    // each takes two columns: seven are left for both ends
    assert_string_equal(text_shorten(s, sizeof s, "\u5317\u4eac\u5317\u4eac\u5317\u4eac", 10),
                        "\u5317\u4eac...\u4eac");
    assert_string_equal(text_shorten(s, sizeof s, "\u00e4bcdefgh\u00efj\u00e9l", 8),
                        "\u00e4bc...\u00e9l");
    // an accent goes with its letter: the beginning has its own, the end no other's
    assert_string_equal(text_shorten(s, sizeof s, "abe\u0301defge\u0301ij", 8), "abe\u0301...ij");
    // few bytes: characters of three are not divided
    assert_string_equal(text_shorten(little, sizeof little, "\u5317\u4eac\u5317\u4eac", 99),
                        "\u5317...\u4eac");
    assert_string_equal(text_shorten(s, sizeof s, "\xff\xff\xff\xff\xff\xff\xff\xff\xff", 8),
                        "\xff\xff\xff...\xff\xff");
}

// ---- jobs in a thread

typedef struct {
    int fails, ran, dropped, *order;
} TestJob;

static int run_job(void *arg, Err *err) {
    TestJob *j = arg;
    j->ran = ++*j->order;
    return j->fails ? err_set(err, ERR_IO, "job %d failed", j->ran) : 0;
}

static void drop_job(void *arg) { ((TestJob *)arg)->dropped++; }

static void jobs_run_in_their_order_and_none_after_a_failure(void **state) {
    (void)state;
    enum { N = 3 * WORKER_QUEUE, BAD = N - 4 };
    int order = 0;
    Err err = { 0 };
    TestJob job[N] = { 0 };
    Worker *w = worker_open(&err);
    assert_non_null(w);
    assert_int_equal(worker_wait_all(w, &err), 0);
    for (int i = 0; i < N; i++) {
        job[i] = (TestJob){ .fails = i == BAD, .order = &order };
        assert_int_equal(worker_add(w, (Job){ run_job, drop_job, &job[i] }), i + 1);
        if (i == 4) assert_int_equal(worker_wait(w, 5, &err), 0);
        if (i == 4) assert_int_equal(job[4].ran, 5);
    }
    assert_int_not_equal(worker_wait_all(w, &err), 0);
    assert_string_equal(err.msg, "job 21 failed");
    for (int i = 0; i < N; i++) {
        assert_int_equal(job[i].ran, i <= BAD ? i + 1 : 0);
        assert_int_equal(job[i].dropped, 1);
    }
    err = (Err){ 0 };
    assert_int_not_equal(worker_check(w, &err), 0);
    worker_close(w);
    worker_close(NULL);
}

static void closing_waits_for_all_jobs(void **state) {
    (void)state;
    int order = 0;
    TestJob job[5];
    Worker *w = worker_open(NULL);
    for (int i = 0; i < 5; i++) {
        job[i] = (TestJob){ .order = &order };
        worker_add(w, (Job){ run_job, NULL, &job[i] });
    }
    worker_close(w);
    assert_int_equal(order, 5);
}

static int read_byte(void *arg, Err *err) {
    char byte;
    return read(*(int *)arg, &byte, 1) == 1 ? 0 : err_set(err, ERR_IO, "no byte");
}

static void time_with_a_job_is_not_idle(void **state) {
    (void)state;
    int end[2];
    assert_int_equal(pipe(end), 0);
    Worker *w = worker_open(NULL);
    worker_add(w, (Job){ read_byte, NULL, &end[0] });
    assert_true(worker_idle(w) == 0);
    const double before = now_seconds();
    assert_int_equal(write(end[1], "x", 1), 1);
    assert_int_equal(worker_wait_all(w, NULL), 0);
    const double idle = worker_idle(w);
    assert_true(idle >= 0 && idle <= now_seconds() - before);
    worker_close(w);
    assert_true(isinf(worker_idle(NULL)));
    close(end[0]);
    close(end[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_as_wide_as_a_terminal_shows_it),
        cmocka_unit_test(part_of_a_text_has_whole_characters),
        cmocka_unit_test(long_text_is_cut_in_the_middle),
        cmocka_unit_test(a_name_is_one_word_for_a_shell),
        cmocka_unit_test(more_is_put_after_a_message),
        cmocka_unit_test(the_first_error_stays),
        cmocka_unit_test(long_and_hostile_messages_are_tamed),
        cmocka_unit_test(a_reason_stays_however_long_the_name_before_it),
        cmocka_unit_test(control_characters_of_two_bytes_are_tamed),
        cmocka_unit_test(an_arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(an_arena_remembers_that_it_failed),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(reading_is_bounded_and_wants_a_regular_file),
        cmocka_unit_test(a_reader_that_ran_out_gives_zeros_and_says_so_at_the_end),
        cmocka_unit_test(a_full_disk_is_reported_and_the_old_file_stays),
        cmocka_unit_test(a_file_over_the_limit_is_reported_and_the_old_file_stays),
        cmocka_unit_test(a_writer_follows_no_link),
        cmocka_unit_test(two_writers_of_one_file_do_not_mix),
        cmocka_unit_test(what_is_changed_in_place_is_no_link),
        cmocka_unit_test(a_replaced_file_keeps_its_permissions),
        cmocka_unit_test(a_cancelled_writer_leaves_nothing),
        cmocka_unit_test(folders_are_made_with_their_parents),
        cmocka_unit_test(paths_are_joined_or_refused),
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(bad_json_is_refused_with_its_place),
        cmocka_unit_test(numbers_that_a_double_cannot_tell_apart_are_not_whole),
        cmocka_unit_test(json_is_written),
        cmocka_unit_test(json_can_be_indented),
        cmocka_unit_test(json_that_was_read_is_written_the_same),
        cmocka_unit_test(json_that_could_not_be_read_is_not_written),
        cmocka_unit_test(times_are_written_for_people),
        cmocka_unit_test(elsewhere_progress_is_a_plain_line_now_and_then),
        cmocka_unit_test(a_terminals_line_is_never_longer_than_the_terminal),
        cmocka_unit_test(a_terminals_line_counts_columns),
        cmocka_unit_test(a_narrow_terminal_loses_the_bar_first),
        cmocka_unit_test(speeds_are_plain_numbers_and_unknown_ones_are_left_out),
        cmocka_unit_test(speeds_have_three_digits_and_none_is_made_of_a_moment),
        cmocka_unit_test(a_task_that_begins_late_has_the_speed_of_what_follows),
        cmocka_unit_test(without_a_stream_progress_is_silent),
        cmocka_unit_test(jobs_run_in_their_order_and_none_after_a_failure),
        cmocka_unit_test(closing_waits_for_all_jobs),
        cmocka_unit_test(time_with_a_job_is_not_idle),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
