// test_fetch.c - downloads from a local server that truncates, corrupts, redirects and stalls.
#include "paths.h"
#include "base/file.h"
#include "base/md5.h"
#include "base/sha256.h"
#include "data/fetch.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char root[] = "/tmp/jempp_fetch_XXXXXX"; // root/served: the server's; root/data: the test's
static pid_t server;
static int port;

static const char *in_root(const char *name) { return path_in(root, name); }

static int start_server(void **state) {
    (void)state;
    int out[2];
    static const char *const proxies[] = { "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY" };
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++) unsetenv(proxies[i]);
    if (!mkdtemp(root) || dir_make(in_root("served"), NULL) || pipe(out)) return -1;
    server = fork();
    if (server == 0) {
        dup2(out[1], 1);
        close(out[0]);
        execlp("python3", "python3", JEMPP_TEST_DIR "/fetch_server.py", in_root("served"),
               (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    if (!f || fscanf(f, "%d", &port) != 1) port = 0; // no python3: the tests are skipped
    if (f) fclose(f);
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    return dir_remove(root);
}

static int clean(void **state) {
    (void)state;
    unlink(in_root("served/log"));
    return dir_remove(in_root("data"));
}

static void need_server(void) {
    if (port) return;
    print_message("no python3 to be the server\n");
    skip();
}

static char *contents(const char *name) {
    char *text;
    size_t n;
    Err err = { 0 };
    if (file_read(in_root(name), 1 << 20, &text, &n, &err)) fail_msg("%s", err.msg);
    return text;
}

static void log_is(const char *wanted) {
    char *text = contents("served/log");
    assert_string_equal(text, wanted);
    free(text);
}

static const char *md5_of(const char *name) {
    static char hex[2][33];
    static int turn;
    char *text;
    size_t n;
    Err err = { 0 };
    if (file_read(in_root(name), 1 << 20, &text, &n, &err)) fail_msg("%s", err.msg);
    Md5 m = md5_start();
    md5_add(&m, text, n);
    free(text);
    md5_end(&m, hex[turn ^= 1]);
    return hex[turn];
}

static const char *url_of(const char *path) {
    static char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    return url;
}

// The archive `name` as a set with a file of 102,400 bytes and a text.
static FetchSet archive_set(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "served/%s", name);
    return (FetchSet){ .name = "set",
                       .folder = "set",
                       .url = "http://127.0.0.1:9",
                       .file = { { "set.tar.gz", md5_of(path) } },
                       .member = { { "big.bin", 102400 }, { "names.txt", 0 } } };
}

static FetchSet file_set(void) {
    return (FetchSet){ .name = "set",
                       .folder = "set",
                       .url = "http://127.0.0.1:9",
                       .file = { { "one.bin", md5_of("served/one.bin") },
                                 { "two.bin", md5_of("served/two.bin") } } };
}

enum { PATIENT = 60, IMPATIENT = 2 };  // seconds: a busy machine may keep the server waiting

static void fetched(const FetchSet *f, const char *path) {
    Err err = { 0 };
    if (fetch_set(f, in_root("data"), url_of(path), PATIENT, NULL, &err)) fail_msg("%s", err.msg);
}

static void refused(const FetchSet *f, const char *url, const char *why) {
    Err err = { 0 };
    const int patience = strstr(url, "/stall/") ? IMPATIENT : PATIENT;
    assert_int_equal(fetch_set(f, in_root("data"), url, patience, NULL, &err), -1);
    if (!strstr(err.msg, why)) fail_msg("said \"%s\", expected \"%s\"", err.msg, why);
}

static void is_unpacked(void) {
    struct stat st;
    char *names = contents("data/set/names.txt");
    assert_string_equal(names, "a\nb\n");
    free(names);
    assert_int_equal(stat(in_root("data/set/big.bin"), &st), 0);
    assert_int_equal(st.st_size, 102400);
    assert_false(file_exists(in_root("data/set/set.tar.gz.part")));
}

static void sha256_gives_the_published_sums(void **state) {
    (void)state;
    // FIPS 180-4's examples, and lengths around the end of a block
    const char *const sums[][2] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
          "lmnopqrsmnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    char hex[65];
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        Sha256 s = sha256_start();
        for (const char *p = sums[i][0]; *p; p++) sha256_add(&s, p, 1);
        sha256_end(&s, hex);
        assert_string_equal(hex, sums[i][1]);
    }
    Sha256 s = sha256_start();
    for (int i = 0; i < 1000; i++) {
        char a[1000];
        memset(a, 'a', sizeof a);
        sha256_add(&s, a, sizeof a);
    }
    sha256_end(&s, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// A file may be known by its SHA-256 instead.
static void a_sha256_tells_whole_files_from_others(void **state) {
    (void)state;
    need_server();
    char hex[65], url[64];
    Err err = { 0 };
    assert_int_equal(sha256_file(in_root("served/one.bin"), hex, &err), 0);
    const FetchSet f = { .name = "set", .folder = "set", .file = { { "one.bin", hex } } };
    snprintf(url, sizeof url, "http://127.0.0.1:%d/ok", port);
    assert_int_equal(fetch_set(&f, in_root("data"), url, PATIENT, NULL, &err), 0);
    hex[3] ^= 1;                                              // another file is expected
    err = (Err){ 0 };
    assert_int_equal(fetch_set(&f, in_root("data"), url, PATIENT, NULL, &err), -1);
    assert_non_null(strstr(err.msg, hex));
}

static void md5_gives_the_sums_of_rfc_1321(void **state) {
    (void)state;
    const char *const sums[][2] = {
        { "", "d41d8cd98f00b204e9800998ecf8427e" },
        { "a", "0cc175b9c0f1b6a831c399e269772661" },
        { "abc", "900150983cd24fb0d6963f7d28e17f72" },
        { "message digest", "f96b697d7cb7938d525a2f31aaf161d0" },
        { "abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b" },
        { "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
          "d174ab98d277d9f5a5611c2c9f419d9f" },
        { "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
          "57edf4a22be3c955ac49da2e2107b67a" },
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        char hex[33];
        Md5 m = md5_start();
        for (const char *p = sums[i][0]; *p; p++) md5_add(&m, p, 1);
        md5_end(&m, hex);
        assert_string_equal(hex, sums[i][1]);
    }
}

static void an_archive_is_fetched_checked_and_unpacked(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("good.tar.gz");
    fetched(&f, "/ok/good.tar.gz");
    is_unpacked();
    assert_false(file_exists(in_root("data/set/readme.html"))); // only what is wanted
    fetched(&f, "/ok/good.tar.gz");                             // it is there already
    log_is("/ok/good.tar.gz \n");
}

static void several_files_are_fetched_and_whole_ones_kept(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    fetched(&f, "/ok");
    assert_string_equal(md5_of("data/set/one.bin"), f.file[0].sum);
    assert_int_equal(truncate(in_root("data/set/two.bin"), 10), 0);
    fetched(&f, "/ok/");
    assert_string_equal(md5_of("data/set/two.bin"), f.file[1].sum);
    log_is("/ok/one.bin \n/ok/two.bin \n/ok/two.bin \n");
}

static void a_truncated_download_is_gone_on_with(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    refused(&f, url_of("/cut"), "one.bin: transfer closed with 100000 bytes remaining");
    struct stat st;
    assert_int_equal(stat(in_root("data/set/one.bin.part"), &st), 0);
    assert_int_equal(st.st_size, 100000);
    assert_false(file_exists(in_root("data/set/one.bin")));
    fetched(&f, "/ok");
    assert_string_equal(md5_of("data/set/one.bin"), f.file[0].sum);
    log_is("/cut/one.bin \n/ok/one.bin bytes=100000-\n/ok/two.bin \n");
}

static void a_download_is_not_written_through_a_link(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    FILE *other = fopen(in_root("other"), "wb");
    assert_non_null(other);
    fputs("of others", other);
    fclose(other);
    assert_int_equal(dir_make(in_root("data/set"), NULL), 0);
    assert_int_equal(symlink(in_root("other"), in_root("data/set/one.bin.part")), 0);
    refused(&f, url_of("/ok"), "one.bin.part: a link, expected a file");
    char *text = contents("other");
    assert_string_equal(text, "of others");
    free(text);
}

static void a_server_without_ranges_starts_the_file_anew(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    refused(&f, url_of("/cut"), "transfer closed");
    fetched(&f, "/norange");
    assert_string_equal(md5_of("data/set/one.bin"), f.file[0].sum);
}

static void a_wrong_checksum_is_shown_and_the_next_try_starts_anew(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    char wanted[64];
    snprintf(wanted, sizeof wanted, ", expected %s", f.file[0].sum);
    refused(&f, url_of("/wrong"), "one.bin: MD5 ");
    refused(&f, url_of("/wrong"), wanted);
    assert_false(file_exists(in_root("data/set/one.bin.part")));
    assert_false(file_exists(in_root("data/set/one.bin")));
    fetched(&f, "/ok");
    log_is("/wrong/one.bin \n/wrong/one.bin \n/ok/one.bin \n/ok/two.bin \n");
}

static void a_beginning_that_is_too_long_is_removed(void **state) {
    (void)state;
    need_server();
    const FetchSet f = file_set();
    refused(&f, url_of("/wrong"), "MD5");
    assert_false(dir_exists(in_root("data/set")));       // nothing came that could be kept
    assert_int_equal(dir_make(in_root("data/set"), NULL), 0);
    FILE *part = fopen(in_root("data/set/one.bin.part"), "wb");
    assert_non_null(part);
    for (int i = 0; i < 200001; i++) fputc(i & 255, part);
    fclose(part);
    refused(&f, url_of("/ok"), "one.bin.part: cannot be resumed; removed: try again");
    fetched(&f, "/ok");
}

static void a_whole_download_that_was_not_unpacked_is_not_fetched_again(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("good.tar.gz");
    assert_int_equal(dir_make(in_root("data/set"), NULL), 0);
    assert_int_equal(link(in_root("served/good.tar.gz"), in_root("data/set/set.tar.gz.part")), 0);
    Err err = { 0 };
    if (fetch_set(&f, in_root("data"), "http://127.0.0.1:9/", PATIENT, NULL, &err))
        fail_msg("%s", err.msg);
    is_unpacked();
}

static void redirects_are_followed_but_only_to_http_and_not_for_ever(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("good.tar.gz");
    refused(&f, url_of("/elsewhere/good.tar.gz"), "rotocol");
    refused(&f, url_of("/round/good.tar.gz"), "Maximum (5) redirects followed");
    fetched(&f, "/moved/good.tar.gz");
    is_unpacked();
}

static void what_cannot_be_reached_is_said(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("good.tar.gz");
    refused(&f, url_of("/ok/none.tar.gz"), "/ok/none.tar.gz: HTTP 404");
    char host[80] = "http://"; // labels have at most 63 letters, so nobody need be asked
    memset(host + 7, 'x', 70);
    refused(&f, host, "Could not resolve host: xxx");
    refused(&f, "file:///etc/passwd", "rotocol");
    refused(&f, "http://127.0.0.1:9/x", "onnect");
    assert_false(file_exists(in_root("data/set/set.tar.gz.part")));
}

static void silence_ends_a_download(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("good.tar.gz");
    refused(&f, url_of("/stall/good.tar.gz"), "no data for 2 s");
    fetched(&f, "/ok/good.tar.gz");
    is_unpacked();
}

static void archives_write_nothing_but_the_wanted_members(void **state) {
    (void)state;
    need_server();
    const FetchSet f = archive_set("evil.tar.gz");
    fetched(&f, "/ok/evil.tar.gz");
    is_unpacked();
    assert_false(file_exists(in_root("escaped")));
    assert_false(file_exists(in_root("data/escaped")));
    assert_false(file_exists(in_root("absolute")));
}

static void archives_with_other_contents_are_refused(void **state) {
    (void)state;
    need_server();
    const char *const bad[][2] = {
        { "link.tar.gz", "big.bin: not a plain file in the archive" },
        { "lacking.tar.gz", "no set/names.txt in it" },
        { "other_size.tar.gz", "big.bin: 102399 bytes in the archive, expected 102400" },
        { "long_text.tar.gz", "names.txt: more than 65536 bytes" },
        { "not.tar.gz", "set.tar.gz.part: " },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[64];
        snprintf(path, sizeof path, "/ok/%s", bad[i][0]);
        const FetchSet f = archive_set(bad[i][0]);
        refused(&f, url_of(path), bad[i][1]);
        assert_false(file_exists(in_root("data/set/names.txt")));
        assert_false(file_exists(in_root("data/set/names.txt.tmp")));
        assert_int_equal(dir_remove(in_root("data")), 0);
    }
}

typedef struct {
    int calls;
    uint64_t done, total;
} Seen;

static void note(void *ctx, uint64_t first, uint64_t done, uint64_t total, const char *unit,
                 const char *text) {
    (void)first, (void)text;
    Seen *seen = ctx;
    assert_true(done >= seen->done);
    assert_string_equal(unit, "KiB");
    *seen = (Seen){ seen->calls + 1, done, total };
}

static int when_half_is_there(void *ctx) { return ((const Seen *)ctx)->done >= 90; }

static void progress_counts_up_to_the_whole(void **state) {
    (void)state;
    need_server();
    FetchSet f = file_set();
    f.file[1].name = NULL;
    Seen seen = { 0 };
    refused(&f, url_of("/cut"), "closed");
    const Events ev = { .progress = note, .ctx = &seen };
    assert_int_equal(fetch_set(&f, in_root("data"), url_of("/ok"), PATIENT, &ev, NULL), 0);
    assert_true(seen.calls > 0);
    assert_int_equal(seen.done, 200000 / 1024);
    assert_int_equal(seen.total, 200000 / 1024 + 1);
}

static void a_download_that_is_stopped_is_gone_on_with(void **state) {
    (void)state;
    need_server();
    FetchSet f = file_set();
    f.file[1].name = NULL;
    Err err = { 0 };
    Seen seen = { 0 };
    const Events ev = { .progress = note, .stop = when_half_is_there, .ctx = &seen };
    assert_int_equal(fetch_set(&f, in_root("data"), url_of("/stall"), PATIENT, &ev, &err), -1);
    assert_string_equal(err.msg, "stopped");
    assert_int_equal(err.kind, ERR_IO);
    assert_true(file_exists(in_root("data/set/one.bin.part")));
    fetched(&f, "/ok");
}

static void only_known_sets_can_be_fetched(void **state) {
    (void)state;
    Err err = { 0 };
    assert_int_equal(data_fetch("shapes", in_root("data"), NULL, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "shapes: cannot be fetched; cifar10, cifar100"));
}

static void a_known_set_from_another_place_must_be_the_same(void **state) {
    (void)state;
    need_server();
    Err err = { 0 };
    const char *url = url_of("/ok/good.tar.gz");
    assert_int_equal(data_fetch("cifar10", in_root("data"), url, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "expected c32a1d4ab5d03f1284b67883e8d87530"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(md5_gives_the_sums_of_rfc_1321),
        TEST(sha256_gives_the_published_sums),
        TEST(a_sha256_tells_whole_files_from_others),
        TEST(an_archive_is_fetched_checked_and_unpacked),
        TEST(several_files_are_fetched_and_whole_ones_kept),
        TEST(a_truncated_download_is_gone_on_with),
        TEST(a_download_is_not_written_through_a_link),
        TEST(a_server_without_ranges_starts_the_file_anew),
        TEST(a_wrong_checksum_is_shown_and_the_next_try_starts_anew),
        TEST(a_beginning_that_is_too_long_is_removed),
        TEST(a_whole_download_that_was_not_unpacked_is_not_fetched_again),
        TEST(redirects_are_followed_but_only_to_http_and_not_for_ever),
        TEST(what_cannot_be_reached_is_said),
        TEST(silence_ends_a_download),
        TEST(archives_write_nothing_but_the_wanted_members),
        TEST(archives_with_other_contents_are_refused),
        TEST(progress_counts_up_to_the_whole),
        TEST(a_download_that_is_stopped_is_gone_on_with),
        TEST(only_known_sets_can_be_fetched),
        TEST(a_known_set_from_another_place_must_be_the_same),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
