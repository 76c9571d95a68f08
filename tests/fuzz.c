// fuzz.c - every reader of outside bytes, fed with such bytes by libFuzzer under the sanitizers.
// The environment variable FUZZ names the reader; without it the names are listed. `make fuzz` runs
// all of them; FUZZ=png build/fuzz/fuzz FILE runs one input again.
#include "base/image.h"
#include "base/json.h"
#include "base/npz.h"
#include "base/safetensors.h"
#include "base/torch_file.h"
#include "data/run_data.h"
#include "jempp.h"
#include "run/ckpt.h"
#include "data/formats.h"
#include "data/fetch.h"
#include "run/feature_set.h"
#include "run/fit.h"
#include "run/model.h"
#include "report/report.h"
#include "serve/follow.h"
#include "serve/guard.h"
#include "serve/queue.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);

// ---- bytes as files

static const char *as_file(int slot, const uint8_t *data, size_t n) {
    static int fd[2] = { -1, -1 };
    static char path[2][32];
    if (fd[slot] < 0) fd[slot] = memfd_create("fuzz", MFD_CLOEXEC);
    if (ftruncate(fd[slot], 0) || pwrite(fd[slot], data, n, 0) != (ssize_t)n) abort();
    snprintf(path[slot], sizeof path[slot], "/proc/self/fd/%d", fd[slot]);
    return path[slot];
}

// Cuts a piece off the front: its length is in the first two bytes.
static size_t cut(const uint8_t **data, size_t *n, const uint8_t **piece) {
    if (*n < 2) return *piece = *data, *n = 0;
    size_t len = (*data)[0] | (size_t)(*data)[1] << 8;
    if (len > *n - 2) len = *n - 2;
    *piece = *data + 2;
    *data += 2 + len;
    *n -= 2 + len;
    return len;
}

static const char *fresh_folder(void) {
    static char dir[64];
    if (dir[0]) dir_remove(dir);
    else snprintf(dir, sizeof dir, "/dev/shm/jempp-fuzz-%d", (int)getpid());
    dir_make(dir, NULL);
    return dir;
}

// ---- containers

static void read_tensors(St *st) {
    Err err = { 0 };
    for (int i = 0; i < st->n; i++) {
        const StTensor *t = &st->t[i];
        const uint64_t count = t->bytes / st_type_size(t->type);
        void *v = malloc((size_t)t->bytes + 8 * (size_t)count + 1);
        if (st_find(st, t->name)->name != t->name) abort();         // names are unique
        st_read_raw(st, t, v, t->bytes, &err);
        st_read_f32(st, t, v, count, &err);
        st_read_f64(st, t, v, count, &err);
        free(v);
    }
    st_close(st);
}

static void feed_safetensors(const uint8_t *data, size_t n) {
    St st;
    if (!st_open(&st, as_file(0, data, n), &(Err){ 0 })) read_tensors(&st);
}

static void feed_torch(const uint8_t *data, size_t n) {
    St st;
    if (!torch_open(&st, as_file(0, data, n), &(Err){ 0 })) read_tensors(&st);
}

static const char *as_zip(const char *name, const uint8_t *data, size_t n, const char *more) {
    static char path[128];
    snprintf(path, sizeof path, "%s/a.zip", fresh_folder());
    Writer w = writer_open(path);
    ZipWriter z = { .w = &w };
    zip_add(&z, name, n, 1, 0);
    zip_put(&z, data, n);
    if (more) {
        zip_add(&z, more, 64, 64, 0);
        zip_put(&z, (char[64]){ 1 }, 64);
    }
    zip_finish(&z);
    if (writer_close(&w, &(Err){ 0 })) abort();
    return path;
}

// A checksum hides what is behind it from libFuzzer: here the bytes get a right one.
static void feed_pickle(const uint8_t *data, size_t n) {
    St st;
    if (!torch_open(&st, as_zip("a/data.pkl", data, n, "a/data/0"), &(Err){ 0 })) read_tensors(&st);
}

static void feed_npz(const uint8_t *data, size_t n) {
    static const char *const name[] = { "arr_0", "mu", "sigma" };
    Zip z;
    NpzArray a;
    Err err = { 0 };
    const int whole = n > 2 && data[0] == 'P' && data[1] == 'K';    // else one array
    if (zip_open(&z, whole ? as_file(0, data, n) : as_zip("arr_0.npy", data, n, NULL), &err))
        return;
    for (int i = 0; i < 3; i++) {
        if (npz_find(&z, name[i], &a, &err) || a.bytes > 1 << 24) continue;
        void *v = malloc((size_t)a.bytes + 8 * (size_t)a.count + 1);
        npz_read(&z, &a, v, &err);
        npz_read_f64(&z, &a, v, &err);
        free(v);
    }
    zip_close(&z);
}

// Images to compare, as jempp fid reads them.
static void feed_images(const uint8_t *data, size_t n) {
    char path[128];
    ImageSource s;
    char hex[33];
    Err err = { 0 };
    const int whole = n > 2 && data[0] == 'P' && data[1] == 'K';    // else one array
    if (whole) {
        snprintf(path, sizeof path, "%s/a.npz", fresh_folder());
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
    } else {
        const char *zip = as_zip("arr_0.npy", data, n, NULL);
        snprintf(path, sizeof path, "%.100s.npz", zip);
        if (rename(zip, path)) abort();
    }
    feature_is_statistics(path);
    if (source_open(&s, path, &(DataOpts){ 0 }, &err)) return;
    source_hash(&s, hex, &err);
    source_close(&s);
}

// Statistics: another program's (npz), or ours (safetensors).
static void feed_statistics(const uint8_t *data, size_t n) {
    FeatureSet s = { 0 };
    Err err = { 0 };
    const char *path = as_file(0, data, n);
    if (!feature_statistics(&s, path, NULL, &err)) feature_set_free(&s);
    s = (FeatureSet){ 0 };
    feature_cache_read(&s, path, 4, &err);
    feature_set_free(&s);
}

static void walk(const Json *j) {
    double d;
    uint64_t u;
    int b;
    json_double(j, &d), json_u64(j, &u), json_bool(j, &b);
    json_at(j, json_count(j)), json_string(j), json_get(j, "step");
    for (const Json *m = json_first(j); m; m = json_next(m)) walk(m);
}

static void feed_json(const uint8_t *data, size_t n) {
    Json *doc;
    if (json_parse(&doc, (const char *)data, n, 8, "fuzz", NULL)) return;
    walk(doc);
    json_free(doc);
}

static void feed_picture(const uint8_t *data, size_t n) {
    for (int c = 1; c <= 3; c += 2) {
        Image im, small;
        if (image_decode(&im, data, n, "fuzz", c, NULL)) continue;
        if (!image_square(&small, &im, 8, NULL)) image_free(&small);
        image_free(&im);
    }
}

static void feed_archive(const uint8_t *data, size_t n) {
    static const FetchSet set = { .name = "fuzz",
                                  .folder = "set",
                                  .member = { { "images.bin", 64 }, { "names.txt", 0 } } };
    fetch_unpack(&set, as_file(0, data, n), fresh_folder(), &(Err){ 0 });
}

// ---- options

// What is read is written as text that reads as the same.
static void check_dump(const Config *c) {
    Config again;
    Err err = { 0 };
    char *text = config_dump(c, CMD_ALL);
    config_defaults(&again);
    if (config_text(&again, text, strlen(text), "dump", &err)) abort();
    char *same = config_dump(&again, CMD_ALL);
    if (strcmp(text, same) != 0) abort();
    free(text);
    free(same);
}

static void feed_options(const uint8_t *data, size_t n) {
    Config c;
    config_defaults(&c);
    if (config_text(&c, (const char *)data, n, "fuzz", NULL)) return;
    config_check(&c, NULL);
    check_dump(&c);
}

// The first byte chooses the command; every line is an argument.
static void feed_arguments(const uint8_t *data, size_t n) {
    static const char *const command[] = { "train",  "sample", "predict", "export",
                                           "info",   "bench",  "data" };
    char *text = calloc(n + 1, 1), *argv[64], *at = text, *word;
    int argc = 0;
    if (n) memcpy(text, data + 1, n - 1);
    while (argc < 64 && (word = strsep(&at, "\n"))) argv[argc++] = word;
    JemppOptions *o = jempp_options(command[n ? data[0] % 7 : 0], NULL);
    jempp_set_args(o, argc, argv, &(JemppErr){ 0 });
    jempp_options_free(o);
    free(text);
}

// ---- image sets

static void feed_idx(const uint8_t *data, size_t n) {
    const uint8_t *piece;
    const size_t len = cut(&data, &n, &piece);
    Set s = { .name = "fuzz", .c = 1, .side = 4, .classes = 10 };
    read_idx(&s, as_file(0, piece, len), as_file(1, data, n), NULL);
    set_free(&s);
}

static void feed_cifar(const uint8_t *data, size_t n) {
    Set s = { .name = "fuzz" };
    read_cifar_any(&s, as_file(0, data, n), NULL);
    set_free(&s);
}

static void feed_svhn(const uint8_t *data, size_t n) {
    Set s = { .name = "fuzz", .c = 3, .side = 32, .classes = 10 };
    read_svhn(&s, as_file(0, data, n), NULL);
    set_free(&s);
}

// Pieces come in pairs, a path and what is in the file.
static void feed_folder(const uint8_t *data, size_t n) {
    const char *dir = fresh_folder();
    for (int i = 0; n && i < 16; i++) {
        const uint8_t *name, *bytes;
        char path[400];
        const size_t len = cut(&data, &n, &name), size = cut(&data, &n, &bytes);
        snprintf(path, sizeof path, "%s/%.*s", dir, len < 200 ? (int)len : 200, (const char *)name);
        if (strstr(path, "..")) continue;
        char *slash = strrchr(path, '/');
        *slash = 0;
        const int made = !dir_make(path, NULL);
        *slash = '/';
        FILE *f = made ? fopen(path, "wb") : NULL;
        if (f) fwrite(bytes, 1, size, f), fclose(f);
    }
    for (Half half = HALF_TRAIN; half <= HALF_TEST; half++) {
        Set s = { .name = "fuzz" };
        read_folder(&s, dir, half, &(DataOpts){ .side = 8 }, NULL);
        set_free(&s);
    }
}

// The first byte says which file of a run folder the rest is.
static void feed_record(const uint8_t *data, size_t n) {
    static const char *const name[] = { "log.tsv", "run.json", "eval.json", "diverged.tsv" };
    char path[200], page[200];
    const char *dir = fresh_folder();
    if (!n) return;
    snprintf(path, sizeof path, "%s/%s", dir, name[data[0] % 4]);
    snprintf(page, sizeof page, "%s/page.html", dir);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(data + 1, 1, n - 1, f);
    fclose(f);
    free(report_write(dir, page, &(Err){ 0 }));
}

// ---- requests to the live page

// Lines are the target and headers of a request; the rest is its body.
static void feed_request(const uint8_t *data, size_t n) {
    static const Guard open = { .host = "127.0.0.1", .cookie = "jempp-1" };
    static const Guard closed = { .host = "0.0.0.0",
                                  .machine = "here",
                                  .cookie = "jempp-1",
                                  .token = "0123456789abcdef0123456789abcdef" };
    char *text = calloc(n + 1, 1), *at = text, *line[7] = { 0 };
    memcpy(text, data, n);
    for (int i = 0; i < 7; i++) line[i] = at ? strsep(&at, "\n") : NULL;
    const HttpRequest r = { .method = line[0] ? line[0] : "",
                            .target = line[1] ? line[1] : "",
                            .host = line[2],
                            .origin = line[3],
                            .fetch_site = line[4],
                            .cookie = line[5],
                            .authorization = line[6] };
    Target t;
    SampleAsk ask;
    double v;
    if (!target_parse(&t, r.target)) {
        const char *token = target_query(&t, "token");
        for (int i = 0; i < t.n_part; i++)
            if (strchr(t.part[i], '/') || !strcmp(t.part[i], "..") || !t.part[i][0]) abort();
        if (!target_number(&t, "noise", 0, 1, 0, &v, NULL) && !(v >= 0 && v <= 1)) abort();
        guard_check(&open, &r, token, &(Err){ 0 });
        if (!guard_check(&closed, &r, token, &(Err){ 0 }) && !memmem(data, n, closed.token, 32))
            abort();
    }
    if (at && !sample_ask(&ask, (const uint8_t *)at, strlen(at), NULL) &&
        (ask.count < 1 || ask.count > 64 || ask.steps < 0 || ask.steps > 200))
        abort();
    free(text);
}

// A log that is read in two pieces is the same as one that is read at once.
static void feed_follow(const uint8_t *data, size_t n) {
    char path[200];
    const char *dir = fresh_folder();
    Follow twice = { 0 }, once = { 0 };
    snprintf(path, sizeof path, "%s/log.tsv", dir);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(data, 1, n / 2, f);
    fflush(f);
    follow_poll(&twice, dir);
    fwrite(data + n / 2, 1, n - n / 2, f);
    fclose(f);
    follow_poll(&twice, dir);
    follow_poll(&once, dir);
    if (!once.error[0] && (once.curve.rows != twice.curve.rows || once.at != twice.at)) abort();
    for (int i = 0; i < once.curve.n; i++) curve_mean(&once.curve, i, LOG_LOSS);
    if (once.curve.point) curve_rate(&once.curve);
    follow_free(&twice);
    follow_free(&once);
}

// ---- models and states: the sizes are those of tests/fuzz_seeds.sh

static void feed_model(const uint8_t *data, size_t n) {
    Jempp m;
    Config use;
    config_defaults(&use);
    strcpy(use.device, "ref");
    use.threads = 1;
    if (!model_open(&m, &use, as_file(0, data, n), &(Err){ 0 })) model_close(&m);
}

static void feed_state(const uint8_t *data, size_t n) {
    static const char tiny[] = "data = shapes\nside = 8\nmodel = wrn-10-1\nbatch = 8\nbuffer = 10\n"
                               "train-images = 50\ndevice = ref\nthreads = 1\n";
    static Trainer t;
    static Dev dev;
    Config c;
    Err err = { 0 };
    RunState r;
    char *tuning = NULL;
    if (!dev.be.name) {
        Set train, valid;
        config_defaults(&c);
        if (config_text(&c, tiny, strlen(tiny), "fuzz", &err) ||
            run_images(&c, NULL, &train, &valid, &err) ||
            dev_open(&dev, "ref", &(DevOpts){ .threads = 1 }, NULL, &err) ||
            trainer_open(&t, &dev, NULL, &c, &train, 1, &err))
            fprintf(stderr, "%s\n", err.msg), abort();
        set_free(&train);
        set_free(&valid);
    }
    const char *path = as_file(0, data, n);
    if (!ckpt_options(path, &c, &tuning, NULL)) check_dump(&c);
    free(tuning);
    ckpt_load(&t, &r, path, NULL);
}

// ---- the table

typedef struct {
    const char *name;
    void (*feed)(const uint8_t *data, size_t n);
    int has_header;                       // safetensors: a length, text, and much that means little
} Reading;

static const Reading targets[] = {
    { "safetensors", feed_safetensors, 1 },
    { "model", feed_model, 1 },
    { "state", feed_state, 1 },
    { "torch", feed_torch, 0 },
    { "pickle", feed_pickle, 0 },
    { "npz", feed_npz, 0 },
    { "images", feed_images, 0 },
    { "statistics", feed_statistics, 0 },
    { "json", feed_json, 0 },
    { "options", feed_options, 0 },
    { "arguments", feed_arguments, 0 },
    { "png", feed_picture, 0 },
    { "jpeg", feed_picture, 0 },
    { "webp", feed_picture, 0 },
    { "idx", feed_idx, 0 },
    { "cifar", feed_cifar, 0 },
    { "svhn", feed_svhn, 0 },
    { "folder", feed_folder, 0 },
    { "archive", feed_archive, 0 },
    { "record", feed_record, 0 },
    { "request", feed_request, 0 },
    { "follow", feed_follow, 0 },
};
enum { N_TARGETS = sizeof targets / sizeof *targets };
static const Reading *target;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *name = getenv("FUZZ");
    for (int i = 0; i < N_TARGETS; i++) {
        if (!name) puts(targets[i].name);
        else if (!strcmp(name, targets[i].name)) target = &targets[i];
    }
    if (!target) exit(name ? 1 : 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    target->feed(data, n);
    return 0;
}

// Most of a model is numbers, of which none is wrong: seven changes of eight are made to its
// header.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed) {
    uint64_t head = 0;
    if (n >= 8) memcpy(&head, data, 8);
    if (!target->has_header || seed % 8 == 0 || n < 8 || head == 0 || head > n - 8 || max < n)
        return LLVMFuzzerMutate(data, n, max);
    const size_t rest = n - 8 - (size_t)head, room = (size_t)head + (max - n);
    uint8_t *text = malloc(room);
    memcpy(text, data + 8, (size_t)head);
    const uint64_t now = LLVMFuzzerMutate(text, (size_t)head, room);
    memmove(data + 8 + now, data + 8 + head, rest);
    memcpy(data + 8, text, (size_t)now);
    memcpy(data, &now, 8);
    free(text);
    return 8 + (size_t)now + rest;
}
