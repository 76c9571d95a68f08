// test_faults.c - every allocation fails in turn, then every call that makes, writes, syncs or
// renames a file; then files shrink while they are read. What follows is a message or success,
// never a crash; with `make asan` nothing is leaked either. The linker gives this program a malloc,
// fwrite, ... of its own (--wrap in the Makefile), so that the library is the one that is shipped.
// JEMPP_FAULTS=all: not some of the calls that write, but all of them.
#include "base/npz.h"
#include "testing.h"
#include "base/file.h"
#include "base/image.h"
#include "base/log.h"
#include "jempp.h"
#include "data/data.h"
#include "dev/comm.h"
#include "run/feature_set.h"
#include "run/train_log.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- the calls that fail

enum { MEMORY = 1, FILES = 2, READS = 4 };
static int armed, lasting;              // which kinds; whether all later calls fail too
static _Atomic long left;               // calls until one fails
static _Atomic int fired;

static int fails(int kind) {
    if (!(armed & kind)) return 0;
    const long now = --left;            // read once: another thread may call too
    if (now > 0 || (now < 0 && !lasting)) return 0;
    fired = 1;
    errno = kind == MEMORY ? ENOMEM : ENOSPC;
    return 1;
}

static void arm(int kind, long at, int stay) {
    armed = kind;
    left = at;
    lasting = stay;
    fired = 0;
}

#define WRAP(kind, type, name, parameters, arguments, failed)                                      \
    type __real_##name parameters;                                                                 \
    __attribute__((visibility("default"))) type __wrap_##name parameters;                          \
    type __wrap_##name parameters { return fails(kind) ? (failed) : __real_##name arguments; }

WRAP(MEMORY, void *, malloc, (size_t n), (n), NULL)
WRAP(MEMORY, void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(MEMORY, void *, realloc, (void *p, size_t n), (p, n), NULL)
WRAP(MEMORY, void *, aligned_alloc, (size_t to, size_t n), (to, n), NULL)
WRAP(MEMORY, int, posix_memalign, (void **p, size_t to, size_t n), (p, to, n), ENOMEM)
WRAP(MEMORY, char *, strdup, (const char *s), (s), NULL)
WRAP(MEMORY, FILE *, open_memstream, (char **p, size_t *n), (p, n), NULL)
WRAP(FILES, int, open, (const char *path, int how, int mode), (path, how, mode), -1)
WRAP(FILES, FILE *, fopen, (const char *path, const char *how), (path, how), NULL)
WRAP(FILES, FILE *, fdopen, (int fd, const char *how), (fd, how), NULL)
WRAP(FILES, size_t, fwrite, (const void *p, size_t n, size_t m, FILE *f), (p, n, m, f), 0)
WRAP(FILES, int, fflush, (FILE * f), (f), EOF)
WRAP(FILES, int, fclose, (FILE * f), (f), (__real_fclose(f), EOF))
WRAP(FILES, int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
WRAP(FILES, int, ftruncate, (int fd, off_t n), (fd, n), -1)
WRAP(FILES, int, flock, (int fd, int how), (fd, how), -1)

static int sync_ms;                     // a slow disk: how long a sync takes ...
static _Atomic long syncs;              // ... and how many there were
static _Atomic long syncs_elsewhere;    // not in the thread that trains
static pthread_t trains;

// A power cut can undo a rename until its folder is synced: whether that of the checkpoint waits
// for it, and how many times another file was renamed meanwhile.
static _Atomic int unsynced;
static _Atomic long too_early;

int __real_rename(const char *from, const char *to);
__attribute__((visibility("default"))) int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
    if (fails(FILES) || __real_rename(from, to)) return -1;
    too_early += unsynced;
    if (strstr(to, "/last.safetensors")) unsynced = 1;
    return 0;
}

int __real_fsync(int fd);
__attribute__((visibility("default"))) int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    const struct timespec pause = { .tv_nsec = sync_ms * 1000000L };
    struct stat st;
    if (unsynced && !fstat(fd, &st) && S_ISDIR(st.st_mode)) unsynced = 0;
    syncs++;
    syncs_elsewhere += !pthread_equal(pthread_self(), trains);
    if (sync_ms) return nanosleep(&pause, NULL);
    return fails(FILES) ? -1 : __real_fsync(fd);
}

static const char *shrinks;             // a file that is cut to half its size when the moment comes

static void shrink_if_due(void) {
    struct stat st;
    if (fails(READS) && !stat(shrinks, &st) && truncate(shrinks, st.st_size / 2)) abort();
}

#define WRAP_READ(type, name, parameters, arguments)                                               \
    type __real_##name parameters;                                                                 \
    __attribute__((visibility("default"))) type __wrap_##name parameters;                          \
    type __wrap_##name parameters {                                                                \
        shrink_if_due();                                                                           \
        return __real_##name arguments;                                                            \
    }

WRAP_READ(size_t, fread, (void *p, size_t n, size_t m, FILE *f), (p, n, m, f))
WRAP_READ(int, gzread, (void *f, void *p, unsigned n), (f, p, n))

// ---- a folder of pictures, and runs in it

static char root[64], pictures[96], run_dir[96], spare[96], model[96];
static const char *device = "ref", *cadence = "5";          // the latter: minutes

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/jempp-faults-%d", (int)getpid());
    snprintf(pictures, sizeof pictures, "%s/pictures", root);
    snprintf(run_dir, sizeof run_dir, "%s/run", root);
    snprintf(spare, sizeof spare, "%s/spare", root);
    snprintf(model, sizeof model, "%s/model.safetensors", root);
    for (int i = 0; i < 10; i++) {
        Image im;
        char path[128];
        snprintf(path, sizeof path, "%s/%s", pictures, i % 2 ? "dark" : "light");
        OK(dir_make(path, err));
        snprintf(path + strlen(path), 32, "/%d.png", i);
        OK(image_new(&im, 8, 8, 3, err));
        memset(im.p, 20 * i, 8 * 8 * 3);
        OK(image_write_png(&im, path, err));
        image_free(&im);
    }
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    dir_remove(root);
    return 0;
}

static int set_up;              // the run that is being trained has introduced itself
static void note_line(void *ctx, const char *text) {
    (void)ctx;
    if (strstr(text, ", into ")) set_up = 1;
}
static int after_set_up(void *ctx) { return ctx && set_up; }

// Trains in run_dir to `steps` steps, or only sets up. The answer of jempp_train.
static int train(int steps, int resume, int only_set_up, JemppErr *err) {
    char data[128], iterations[16];
    snprintf(data, sizeof data, "folder:%s", pictures);
    snprintf(iterations, sizeof iterations, "%d", steps);
    const char *const set[][2] = {
        { "data", data },
        { "side", "4" },
        { "pad", "1" },
        { "model", "wrn-10-1" },
        { "batch", "2" },
        { "buffer", "4" },
        { "steps", "1" },
        { "device", device },
        { "threads", "1" },
        { "warmup", "0" },
        { "lr", "0.0001" },
        { "valid-images", "0" },
        { "gap-limit", "0" },
        { "checkpoint-minutes", cadence },
        { "iterations", iterations },
        { "out", run_dir },
        { "decay-factor", "1" },
        { "conv", "direct" },
    };
    JemppOptions *o = jempp_options("train", err);
    if (!o) return -1;
    int rc = 0;
    for (size_t i = 0; !rc && i < LEN(set); i++)
        if (!resume || !strcmp(set[i][0], "iterations") || !strcmp(set[i][0], "out"))
            rc = jempp_set(o, set[i][0], set[i][1], err);
    if (!rc && resume) rc = jempp_set(o, "resume", "on", err);
    JemppTrained result;
    const JemppEvents ev = { .line = note_line,
                             .stop = after_set_up,
                             .ctx = only_set_up ? &result : NULL };
    set_up = 0;
    if (!rc) rc = jempp_train(o, &ev, &result, err);
    if (!rc && !only_set_up) assert_int_equal(result.steps, steps);
    jempp_options_free(o);
    return rc;
}

static void train_ok(int steps, int resume) {
    JemppErr err = { 0 };
    if (train(steps, resume, 0, &err)) fail_msg("%s", err.msg);
}

// Options of a use of the model; NULL, with err filled, where one fails.
static JemppOptions *use_options(JemppErr *err) {
    JemppOptions *o = jempp_options("sample", err);
    if (o && (jempp_set(o, "device", device, err) || jempp_set(o, "steps", "1", err) ||
              jempp_set(o, "best", "1", err) || jempp_set(o, "count", "2", err))) {
        jempp_options_free(o);
        return NULL;
    }
    return o;
}

// Opens the model, classifies, samples.
static int use_model(JemppErr *err) {
    JemppOptions *o = use_options(err);
    Jempp *j = o ? jempp_open(o, model, err) : NULL;
    float images[2 * 3 * 4 * 4] = { 0 }, logits[4];
    char out[128];
    snprintf(out, sizeof out, "%s/out", root);
    const int rc = !j || jempp_logits(j, images, 2, logits, err) ||
                   jempp_sample(j, o, NULL, 1, images, NULL, err) ||
                   jempp_write_grid(j, images, 1, 1, 1, out, err);
    jempp_close(j);
    jempp_options_free(o);
    return rc ? -1 : 0;
}

// Opens the model and exports it in both formats; of the latter's allocations the one `at` fails.
static int export_model(long at, JemppErr *err) {
    JemppOptions *o = use_options(err);
    Jempp *j = o ? jempp_open(o, model, err) : NULL;
    if (!j) fail_msg("%s", err->msg);
    char ours[128], theirs[128];
    snprintf(ours, sizeof ours, "%s/out.safetensors", root);
    snprintf(theirs, sizeof theirs, "%s/out.pt", root);
    arm(MEMORY, at, 0);
    const int rc = jempp_export(j, o, ours, err) || jempp_export(j, o, theirs, err);
    armed = 0;
    jempp_close(j);
    jempp_options_free(o);
    return rc ? -1 : 0;
}

static void check(int rc, const JemppErr *err, const char *what, long at) {
    armed = 0;
    if (rc && !fired) fail_msg("%s: %s", what, err->msg);
    if (rc && (err->kind == JEMPP_OK || !err->msg[0]))
        fail_msg("%s: call %ld failed and nobody said so", what, at);
}

static void nothing_half_written_in(const char *dir) {
    char command[256];
    snprintf(command, sizeof command, "test -z \"$(find %s -name '*.tmp')\"", dir);
    assert_int_equal(system(command), 0);
}

static void copy_all(const char *from, const char *to) {
    char command[256];
    dir_remove(to);
    snprintf(command, sizeof command, "cp -r %s %s", from, to);
    assert_int_equal(system(command), 0);
}

// ---- tests

// Each allocation is made to fail in turn; under the sanitizers, which take minutes, each third.
enum { EVERY = SANITIZED ? 3 : 1 };

static void set_up_without_memory(void) {
    long at = 0;
    do {
        JemppErr err = { 0 };
        dir_remove(run_dir);
        arm(MEMORY, at += EVERY, 0);
        check(train(1, 0, 1, &err), &err, "set-up", at);
    } while (fired);
    assert_true(at > 100);
    print_message("%s: up to %ld allocations\n", device, at - 1);
}

static void every_allocation_of_a_set_up_may_fail(void **state) {
    (void)state;
    set_up_without_memory();
}

// The device's module is linked as this program is, beside it (faults/ in the Makefile).
static void every_allocation_of_a_set_up_of_the_cpu_may_fail(void **state) {
    (void)state;
    char dir[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 32);
    assert_true(n > 0);
    dir[n] = 0;
    strcpy(strrchr(dir, '/'), "/../faults");
    setenv("JEMPP_MODULE_DIR", dir, 1);
    if (!has_device("cpu")) skip();
    device = "cpu";
    set_up_without_memory();
    device = "ref";
}

static void every_allocation_of_a_resumed_run_may_fail(void **state) {
    (void)state;
    long at = 0;
    dir_remove(run_dir);
    train_ok(2, 0);
    do {
        JemppErr err = { 0 };
        arm(MEMORY, at += EVERY, 0);
        check(train(2, 1, 1, &err), &err, "resuming", at);
    } while (fired);
    assert_true(at > 100);
    print_message("up to %ld allocations\n", at - 1);
    train_ok(3, 1);
}

static void make_model(void) {
    char best[128];
    dir_remove(run_dir);
    train_ok(2, 0);
    snprintf(best, sizeof best, "%s/best.safetensors", run_dir);
    copy_all(best, model);
}

static void every_allocation_in_using_a_model_may_fail(void **state) {
    (void)state;
    long at = 0;
    make_model();
    do {
        JemppErr err = { 0 };
        arm(MEMORY, at += EVERY, 0);
        check(use_model(&err), &err, "a model", at);
    } while (fired);
    assert_true(at > 100);
    print_message("up to %ld allocations\n", at - 1);
}

// A model stays in use after a call that ran out of memory, with noise on its weights or without.
static void a_model_draws_again_after_any_failed_allocation(void **state) {
    (void)state;
    JemppErr err = { 0 };
    float images[2 * 3 * 4 * 4] = { 0 };
    long at = 0;
    make_model();
    JemppOptions *o = use_options(&err);
    assert_int_equal(jempp_set(o, "weight-noise", "0.3", &err), 0);
    do {
        Jempp *j = jempp_open(o, model, &err);
        assert_non_null(j);
        arm(MEMORY, at += EVERY, 0);
        const int rc = jempp_sample(j, o, NULL, 1, images, NULL, &err);
        check(rc, &err, "a draw", at);
        err = (JemppErr){ 0 };
        if (jempp_sample(j, o, NULL, 1, images, NULL, &err)) fail_msg("%ld: %s", at, err.msg);
        jempp_close(j);
    } while (fired);
    assert_true(at > 10);
    jempp_options_free(o);
}

static void every_allocation_of_an_export_may_fail(void **state) {
    (void)state;
    long at = 0;
    JemppErr none = { 0 };
    make_model();
    check(export_model(LONG_MAX, &none), &none, "an export", 0);    // files to look at and replace
    do {
        JemppErr err = { 0 };
        at += EVERY;
        check(export_model(at, &err), &err, "an export", at);
    } while (fired);
    assert_true(at > 100);
    print_message("up to %ld allocations\n", at - 1);
}

static void every_allocation_in_reading_pytorchs_files_may_fail(void **state) {
    (void)state;
    static const char *const files[] = { "torch/zip-27.pt", "torch/stream-27.pt",
                                         "npz/deflated.npz" };
    for (int i = 0; i < 3; i++) {
        char path[512];
        long at = 0;
        snprintf(path, sizeof path, "%s/%s", JEMPP_TEST_DIR, files[i]);
        do {
            St st;
            Zip z;
            NpzArray a;
            Err err = { 0 };
            double v[9];
            arm(MEMORY, at += EVERY, 0);
            int rc = i < 2 ? tensors_open(&st, path, &err) : zip_open(&z, path, &err);
            if (!rc && i < 2) st_close(&st);
            if (!rc && i == 2) {
                rc = npz_find(&z, "columns", &a, &err) || npz_read_f64(&z, &a, v, &err);
                zip_close(&z);
            }
            armed = 0;
            if (fired && !(rc && err.msg[0])) fail_msg("%s: call %ld: no error", path, at);
        } while (fired);
        assert_true(at > 3);
    }
}

// Whichever call fails, once or from then on: the run can be gone on with, and no lock was left
// behind.
static void every_call_that_writes_a_checkpoint_may_fail(void **state) {
    (void)state;
    const int thorough = getenv("JEMPP_FAULTS") != NULL;    // the long form
    dir_remove(run_dir);
    train_ok(1, 0);
    copy_all(run_dir, spare);
    for (int stay = 0; stay < 2; stay++) {
        long at = 0;
        int failed = 0;
        do {
            JemppErr err = { 0 }, again = { 0 };
            copy_all(spare, run_dir);
            arm(FILES, at += thorough ? 1 : stay ? 11 : SANITIZED ? 5 : 3, stay);
            const int rc = train(2, 1, 0, &err);
            check(rc, &err, "writing", at);
            failed += rc != 0;
            nothing_half_written_in(run_dir);
            if (train(2, 1, 1, &again)) fail_msg("after call %ld: %s", at, again.msg);
        } while (fired);
        assert_true(failed > 15);
        print_message("%ld calls, %d failures ended the run\n", at - 1, failed);
    }
}

// Writing takes longer than there should be between two checkpoints; that is no reason to write
// again at once, nor to wait.
static void a_slow_disk_does_not_keep_a_run_from_its_steps(void **state) {
    (void)state;
    enum { STEPS = 32, SYNC_MS = 50, EPOCH = 4 };           // an epoch: steps
    dir_remove(run_dir);
    cadence = "0.003";                                      // 180 ms
    sync_ms = SYNC_MS;
    syncs = syncs_elsewhere = 0;
    trains = pthread_self();
    const double began = now_seconds();
    train_ok(STEPS, 0);
    const double worked = now_seconds() - began - 1e-3 * (double)(syncs * SYNC_MS);
    sync_ms = 0;
    cadence = "5";
    // four syncs a checkpoint, four more an epoch: its model, its picture; two for the last record
    assert_less((double)syncs, 4 * (1 + 2 * STEPS / EPOCH + worked / 0.18) + 2);
    assert_int_equal(syncs_elsewhere, syncs);               // training waits for none
}

static void a_checkpoints_name_is_on_disk_before_the_next_file(void **state) {
    (void)state;
    dir_remove(run_dir);
    too_early = 0;
    train_ok(2, 0);
    assert_int_equal(too_early, 0);
    assert_int_equal(unsynced, 0);
}

static void a_run_that_cannot_begin_leaves_nothing_half_written(void **state) {
    (void)state;
    long at = 0;
    do {
        JemppErr err = { 0 };
        dir_remove(run_dir);
        arm(FILES, ++at, 0);
        const int rc = train(1, 0, 1, &err);
        check(rc, &err, "beginning", at);
        if (dir_exists(run_dir)) nothing_half_written_in(run_dir);
    } while (fired);
    assert_true(at > 10);
}

static void same_lines(const char *path, int n) {
    char line[512];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_memory_equal(line, "step\tepoch", 10);
    for (int i = 0; i < n; i++) {
        if (!fgets(line, sizeof line, f)) fail_msg("%d lines, expected %d", i, n);
        assert_int_equal(strtol(line, NULL, 10), i);
        assert_non_null(strchr(line, '\n'));
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
}

static void add_rows(TrainLog *log, int n) {
    const real row[N_ROW] = { 0 };
    for (int i = 0; i < n; i++) train_log_add(log, &(LogStep){ 0.5, 1, NAN, NAN, 1 }, row);
}

// Nothing at all is written at first, then parts of lines: a limit on the file's size, as a disk
// that is full.
static void a_log_that_cannot_be_written_waits_for_room(void **state) {
    (void)state;
    TrainLog log = { 0 };
    struct rlimit all, few;
    struct stat st;
    dir_remove(run_dir);
    OK(dir_make(run_dir, err));
    OK(train_log_open(&log, run_dir, 0, err));
    add_rows(&log, 3);
    arm(FILES, 1, 1);
    Err full = { 0 };
    assert_int_equal(train_log_flush(&log, &full), -1);
    assert_non_null(strstr(full.msg, "log.tsv: No space left on device"));
    armed = 0;
    OK(train_log_flush(&log, err));
    same_lines(log.path, 3);

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(stat(log.path, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = all;
    few.rlim_cur = (rlim_t)st.st_size + 70;                 // within the second line
    add_rows(&log, 5);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    full = (Err){ 0 };
    assert_int_equal(train_log_flush(&log, &full), -1);
    same_lines(log.path, 3);                                // no half of a line
    add_rows(&log, 2);
    assert_int_equal(train_log_open(&log, run_dir, 6, &full), 0);      // a rollback: six remain
    add_rows(&log, 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    OK(train_log_flush(&log, err));
    same_lines(log.path, 10);
    train_log_close(&log);
}

// ---- files that shrink

static void put(const char *path, const void *data, size_t n) {
    Writer w = writer_open(path);
    write_bytes(&w, data, n);
    OK(writer_close(&w, err));
}

// Loads `name` again and again while the n bytes at `path` are cut in half at each of the reads in
// turn.
static void shrink(const char *name, const char *path, const void *data, size_t n) {
    long at = 0;
    do {
        Set s;
        Err err = { 0 };
        put(path, data, n);
        shrinks = path;
        arm(READS, ++at, 0);
        const int rc = set_load(&s, name, HALF_TRAIN, &(DataOpts){ .dir = root }, &err);
        armed = 0;
        if (at == 1) assert_int_equal(rc, -1);             // later it may be too late to matter
        if (rc) assert_true(err.kind == ERR_DATA || err.kind == ERR_IO);
        if (rc) assert_non_null(strstr(err.msg, path));
        else set_free(&s);
    } while (fired && at < 60);
}

static void a_data_file_may_shrink_while_it_is_read(void **state) {
    (void)state;
    static uint8_t data[20 * 3073];
    char path[128], name[160];
    snprintf(path, sizeof path, "%s/images.bin", root);
    snprintf(name, sizeof name, "cifar-file:%s", path);
    shrink(name, path, data, sizeof data);
    snprintf(path, sizeof path, "%s/mnist", root);
    OK(dir_make(path, err));
    snprintf(path, sizeof path, "%s/mnist/train-labels-idx1-ubyte", root);
    put(path, (uint8_t[24]){ 0, 0, 8, 1, 0, 0, 0, 16 }, 24);
    snprintf(path, sizeof path, "%s/mnist/train-images-idx3-ubyte", root);
    memcpy(data, (uint8_t[16]){ 0, 0, 8, 3, 0, 0, 0, 16, 0, 0, 0, 28, 0, 0, 0, 28 }, 16);
    shrink("mnist", path, data, 16 + 16 * 28 * 28);
}

static void a_checkpoint_may_shrink_while_it_is_read(void **state) {
    (void)state;
    char last[128];
    snprintf(last, sizeof last, "%s/last.safetensors", run_dir);
    dir_remove(run_dir);
    train_ok(1, 0);
    copy_all(run_dir, spare);
    long at = 0;
    do {
        JemppErr err = { 0 };
        copy_all(spare, run_dir);
        shrinks = last;
        arm(READS, at += 5, 0);
        const int rc = train(1, 1, 1, &err);
        armed = 0;
        if (rc) assert_non_null(strstr(err.msg, "last.safetensors: "));
    } while (fired);
    assert_true(at > 20);
}

// ---- one rank of several

static int exchanged, closed_with;                          // calls; the error's kind at the end

static void count_reduce(Comm *c, real *p, size_t n, Reduce how) {
    (void)c, (void)p, (void)n, (void)how;
    exchanged++;
}
static void count_gather(Comm *c, const void *mine, void *all, size_t bytes) {
    memset(all, 0, (size_t)c->size * bytes);
    memcpy((char *)all + (size_t)c->rank * bytes, mine, bytes);
    exchanged++;
}
static void count_broadcast(Comm *c, void *p, size_t bytes) {
    (void)c, (void)p, (void)bytes;
    exchanged++;
}
static void wait_for_nobody(Comm *c) { (void)c; }
static void note_close(Comm *c) { closed_with = c->err.kind; }

// What it calls from then on, the others would take for the answer to an earlier question.
static void a_rank_without_memory_exchanges_nothing_more(void **state) {
    (void)state;
    static const CommOps ops = { count_reduce, count_gather, count_broadcast, wait_for_nobody,
                                 note_close };
    char results[8] = { 0 };
    for (int at = 0; at < 3; at++) {
        Comm *c = calloc(1, sizeof *c);
        Err err = { 0 };
        *c = (Comm){ .rank = 1, .size = 2, .ops = &ops };
        exchanged = 0;
        arm(MEMORY, 1, 0);
        if (at == 0) comm_join(c, results, 8, 1, 1);
        else if (at == 1) assert_int_equal(comm_agree(c, 0, &err), -1);
        else assert_null(comm_answers(c, &at, sizeof at));
        armed = 0;
        assert_true(fired);
        comm_join(c, results, 8, 1, 1);
        comm_broadcast(c, results, sizeof results);
        assert_int_equal(comm_agree(c, 0, &err), -1);
        assert_int_equal(exchanged, 0);
        assert_int_equal(err.kind, ERR_MEM);
        assert_memory_equal(err.msg, "rank 1 of 2: out of memory for ", 31);
        comm_close(c);
        assert_int_equal(closed_with, ERR_MEM);             // the transport ends the others
    }
}

// Rank 1's answers: it failed, and why.
static void answer_failed(Comm *c, const void *mine, void *all, size_t bytes) {
    static const Err why = { ERR_MEM, "out of memory for features" };
    count_gather(c, mine, all, bytes);
    if (bytes == sizeof(int)) ((int *)all)[1] = 1;
    else if (bytes == sizeof why) ((Err *)all)[1] = why;
}

// Rank 1 has no memory for features; rank 0 has, and learns of it further down. Both exchange the
// same: whether anyone failed, and why.
static void ranks_leave_features_together(void **state) {
    (void)state;
    static const CommOps ops = { count_reduce, answer_failed, count_broadcast, wait_for_nobody,
                                 note_close };
    for (int rank = 0; rank < 2; rank++) {
        Comm c = { .rank = rank, .size = 2, .ops = &ops };
        FeatureNet net = { .comm = &c };
        FeatureSet s;
        Err err = { 0 };
        const ImageSource images = { .n = rank ? (size_t)1 << 45 : 0 };
        exchanged = 0;
        const int rc = feature_set(&s, &net, &images, 0, NULL, &err);
        assert_int_equal(exchanged, rank ? 0 : 2);
        assert_true(rc && comm_agree(&c, rc, &err));
        assert_int_equal(exchanged, 2);
        assert_memory_equal(err.msg, "rank 1 of 2: out of memory", 26);
    }
}

// With an argument, the tests whose names match it.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_set_up_may_fail),
        cmocka_unit_test(every_allocation_of_a_set_up_of_the_cpu_may_fail),
        cmocka_unit_test(every_allocation_of_a_resumed_run_may_fail),
        cmocka_unit_test(every_allocation_in_using_a_model_may_fail),
        cmocka_unit_test(a_model_draws_again_after_any_failed_allocation),
        cmocka_unit_test(every_allocation_of_an_export_may_fail),
        cmocka_unit_test(every_allocation_in_reading_pytorchs_files_may_fail),
        cmocka_unit_test(every_call_that_writes_a_checkpoint_may_fail),
        cmocka_unit_test(a_slow_disk_does_not_keep_a_run_from_its_steps),
        cmocka_unit_test(a_checkpoints_name_is_on_disk_before_the_next_file),
        cmocka_unit_test(a_run_that_cannot_begin_leaves_nothing_half_written),
        cmocka_unit_test(a_log_that_cannot_be_written_waits_for_room),
        cmocka_unit_test(a_data_file_may_shrink_while_it_is_read),
        cmocka_unit_test(a_checkpoint_may_shrink_while_it_is_read),
        cmocka_unit_test(a_rank_without_memory_exchanges_nothing_more),
        cmocka_unit_test(ranks_leave_features_together),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
