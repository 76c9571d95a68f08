// run_view.c - see run_view.h.
#include "serve/run_view.h"
#include "serve/answer.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RECORD = 1 << 20, MAX_TEXT = 1 << 20, MAX_SAMPLES = 20000, MESSAGES = 200 };

// ---- files ------------------------------------------------------------------------------------

char *run_view_file(const char *dir, const char *folder, const char *name, size_t max, size_t *n) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
    int at = open(dir, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (at >= 0 && folder) {
        const int inner = openat(at, folder, flags | O_DIRECTORY);
        close(at);
        at = inner;
    }
    const int fd = at < 0 ? -1 : openat(at, name, flags | O_NONBLOCK);
    struct stat s;
    char *data = NULL;
    if (fd >= 0 && !fstat(fd, &s) && S_ISREG(s.st_mode) && (uint64_t)s.st_size <= max)
        data = malloc((size_t)s.st_size + 1);
    *n = 0;
    for (ssize_t got = 1; data && got > 0 && *n < (size_t)s.st_size; *n += (size_t)got) {
        got = read(fd, data + *n, (size_t)s.st_size - *n);
        if (got < 0) got = 0;
    }
    if (data) data[*n] = 0;
    if (fd >= 0) close(fd);
    if (at >= 0) close(at);
    return data;
}

static int file_changed(RunView *v, RunFile file) {
    char path[RUN_PATH];
    struct stat s;
    Seen now = { 0 };
    if (!run_path(path, v->dir, file, NULL) && !lstat(path, &s))
        now = (Seen){ s.st_size, (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec,
                      s.st_ino };
    if (!memcmp(&now, &v->seen[file], sizeof now)) return 0;
    v->seen[file] = now;
    return 1;
}

static void read_record(RunView *v) {
    size_t n;
    char *text = run_view_file(v->dir, NULL, run_file(RUN_RECORD), MAX_RECORD, &n);
    json_free(v->record);
    v->record = NULL;
    if (text && json_parse(&v->record, text, n, 12, run_file(RUN_RECORD), NULL)) v->record = NULL;
    free(text);
}

static int by_step(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Names are as run_sample_path makes them.
static void list_samples(RunView *v) {
    char path[RUN_PATH];
    if (run_path(path, v->dir, RUN_SAMPLES, NULL)) return;
    DIR *d = opendir(path);
    v->n_sample = 0;
    for (struct dirent *e; d && v->n_sample < MAX_SAMPLES && (e = readdir(d));) {
        char name[64], *end;
        if (!is_run_sample(e->d_name)) continue;
        const uint64_t step = strtoull(e->d_name + 5, &end, 10);
        snprintf(name, sizeof name, "step-%07" PRIu64 ".png", step);
        if (strcmp(name, e->d_name) != 0) continue;
        if (v->n_sample % 64 == 0) {
            uint64_t *more = realloc(v->sample, ((size_t)v->n_sample + 64) * sizeof *more);
            if (!more) break;
            v->sample = more;
        }
        v->sample[v->n_sample++] = step;
    }
    if (d) closedir(d);
    if (v->n_sample) qsort(v->sample, (size_t)v->n_sample, sizeof *v->sample, by_step);
}

static void count_diverged(RunView *v) {
    size_t n;
    char *text = run_view_file(v->dir, NULL, run_file(RUN_DIVERGED), MAX_TEXT, &n);
    int lines = 0;
    for (const char *at = text; at && (at = strchr(at, '\n')); at++) lines++;
    v->n_diverged = lines > 1 ? lines - 1 : 0;
    free(text);
}

int run_view_poll(RunView *v) {
    int changed = follow_poll(&v->log, v->dir);
    const int training = train_log_is_open(v->dir);
    if (file_changed(v, RUN_RECORD)) read_record(v), changed = 1;
    if (file_changed(v, RUN_SAMPLES)) list_samples(v), changed = 1;
    if (file_changed(v, RUN_DIVERGED)) count_diverged(v), changed = 1;
    changed |= file_changed(v, RUN_MESSAGES) | file_changed(v, RUN_BEST);
    changed |= training != v->training;
    v->training = training;
    v->has_model = v->seen[RUN_BEST].size > 0;
    if (!changed) return 0;
    v->version++;
    free(v->detail);
    v->detail = NULL;
    return 1;
}

void run_view_free(RunView *v) {
    follow_free(&v->log);
    json_free(v->record);
    free(v->sample);
    free(v->detail);
}

// ---- JSON -------------------------------------------------------------------------------------

static double number_of(const RunView *v, const char *key) {
    double x;
    return json_double(json_get(v->record, key), &x) ? NAN : x;
}

static double option_number(const RunView *v, const char *name) {
    const char *text = json_string(json_get(json_get(v->record, "options"), name));
    return text ? strtod(text, NULL) : NAN;
}

// A run of version 0.1 does not say it; NaN where time ends the run.
static double total_steps(const RunView *v) {
    const double total = number_of(v, "steps_total"), iterations = option_number(v, "iterations");
    if (option_number(v, "minutes") > 0) return NAN;
    if (!isnan(total)) return total;
    if (iterations > 0) return iterations;
    return floor(option_number(v, "epochs") * number_of(v, "steps_per_epoch") + 0.5);
}

static double seconds_left(const RunView *v, double steps) {
    const Curve *c = &v->log.curve;
    const double minutes = option_number(v, "minutes");
    if (!v->training) return NAN;
    if (minutes > 0) return fmax(60 * minutes - c->last[LOG_SECONDS], 0);
    return fmax(steps - c->last[LOG_STEP] - 1, 0) / curve_rate(c);
}

static const char *state_of(const RunView *v, double steps) {
    const double step = v->log.curve.last[LOG_STEP] + 1, minutes = option_number(v, "minutes");
    if (v->training) return "training";
    if (step >= steps || !isnan(number_of(v, "test_accuracy"))) return "finished";
    if (minutes > 0 && v->log.curve.last[LOG_SECONDS] >= 60 * minutes) return "finished";
    return v->log.curve.rows ? "stopped" : "empty";
}

void run_view_summary(const RunView *v, JsonOut *j) {
    const Curve *c = &v->log.curve;
    const double per_epoch = number_of(v, "steps_per_epoch");
    const double steps = total_steps(v);
    json_put_string(j, "name", v->name);
    json_put_uint(j, "version", v->version);
    json_put_string(j, "state", state_of(v, steps));
    json_put_double(j, "step", c->rows ? c->last[LOG_STEP] + 1 : NAN);
    json_put_double(j, "steps_total", steps);
    json_put_double(j, "epoch", c->last[LOG_EPOCH]);
    json_put_double(j, "epochs", steps / per_epoch);
    json_put_double(j, "seconds", c->last[LOG_SECONDS]);
    json_put_double(j, "seconds_left", seconds_left(v, steps));
    json_put_double(j, "steps_per_second", curve_rate(c));
    json_put_double(j, "accuracy", c->last[LOG_ACCURACY]);
    json_put_double(j, "loss", c->last[LOG_LOSS]);
    json_put_double(j, "valid_accuracy", c->valid);
    json_put_double(j, "best_valid_accuracy", c->best_valid);
    json_put_double(j, "test_accuracy", number_of(v, "test_accuracy"));
    json_put_double(j, "test_ece", number_of(v, "test_ece"));
    json_put_int(j, "divergences", v->n_diverged);
    json_put_bool(j, "model", v->has_model);
    json_put_string(j, "error", v->log.error[0] ? v->log.error : NULL);
}

// Six digits are enough to draw a curve.
static double rounded(double v) {
    char text[32];
    if (!isfinite(v)) return NAN;
    snprintf(text, sizeof text, "%.6g", v);
    return strtod(text, NULL);
}

static void put_curves(const RunView *v, JsonOut *j) {
    const Curve *c = &v->log.curve;
    json_put_int(j, "rows_per_point", c->rows_per_point);
    json_open_object(j, "curves");
    for (int k = 0; k < N_LOG; k++) {
        json_open_array(j, log_name[k]);
        for (int i = 0; i < c->n; i++)
            json_put_double(j, NULL, rounded(curve_mean(c, i, (LogColumn)k)));
        json_close(j);
    }
    json_close(j);
}

// The last rows of a small table of text, one object each.
static void put_table(const RunView *v, JsonOut *j, const char *key, RunFile file, int most) {
    size_t n;
    char *text = run_view_file(v->dir, NULL, run_file(file), MAX_TEXT, &n), *name[8];
    int n_name = 0, lines = 0;
    for (const char *at = text; at && (at = strchr(at, '\n')); at++) lines++;
    json_open_array(j, key);
    char *at = text, *head = text ? strsep(&at, "\n") : NULL;
    for (char *field; head && n_name < 8 && (field = strsep(&head, "\t"));) name[n_name++] = field;
    for (char *line; n_name && lines-- > 1 && (line = strsep(&at, "\n"));) {
        if (lines > most || !*line) continue;
        json_open_object(j, NULL);
        for (int k = 0; k < n_name; k++) {
            char *field = k + 1 < n_name ? strsep(&line, "\t") : line, *end;
            const double x = field ? strtod(field, &end) : NAN;
            if (field && *field && !*end) json_put_double(j, name[k], x);
            else json_put_string(j, name[k], field);
        }
        json_close(j);
    }
    json_close(j);
    free(text);
}

const char *run_view_detail(RunView *v, size_t *n) {
    static const char *const facts[] = { "version",     "device",       "device_details",
                                         "parameters",  "train_images", "valid_images",
                                         "test_images", "data_from",    "written",
                                         "best_step" };
    if (!v->detail) {
        JsonOut j = { 0 };
        answer_begin(&j);
        run_view_summary(v, &j);
        put_table(v, &j, "divergence_list", RUN_DIVERGED, 100);
        put_table(v, &j, "messages", RUN_MESSAGES, MESSAGES);
        json_open_array(&j, "samples");
        for (int i = 0; i < v->n_sample; i++) json_put_uint(&j, NULL, v->sample[i]);
        json_close(&j);
        json_open_object(&j, "record");
        for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
            if (json_get(v->record, facts[i]))
                json_put(&j, facts[i], json_get(v->record, facts[i]));
        json_close(&j);
        if (json_kind(json_get(v->record, "options")) == JSON_OBJECT)
            json_put(&j, "options", json_get(v->record, "options"));
        put_curves(v, &j);
        json_close(&j);
        v->detail = json_finish(&j, &v->n_detail, NULL);
    }
    *n = v->n_detail;
    return v->detail;
}
