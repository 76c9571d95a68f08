// cmd_predict.c - jempp predict: the class of pictures, and whether they are in distribution.
#include "cli/cli.h"
#include <ctype.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_STDIN = 256 << 20, CLASS_COLUMNS = 40 };         // columns: of a class's name at most

typedef struct {
    Jempp *j;
    JemppPrediction *answer;            // [n] with --json; file and error are its own
    int    n, cap;                      // n: rows of the table; with --json elements of the array
    int    json, rc;
    int    file_width, class_width;     // columns
    JemppPredicted sum;                 // of all names so far
} Job;

// At most n bytes; 0 at the end, after a failure, and after a signal, which a read would not notice
// before something comes.
static ssize_t some_of_stdin(char *dst, size_t n) {
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    while (!cli_stopped()) {
        if (poll(&input, 1, 200) <= 0) continue;
        const ssize_t got = read(STDIN_FILENO, dst, n);
        return got > 0 ? got : 0;
    }
    return 0;
}

// All of standard input, which nothing says the length of.
static char *read_stdin(size_t *n, JemppErr *err) {
    char *data = NULL;
    size_t size = 0, room = 0;
    ssize_t got;
    do {
        if (size == room) {
            char *more = room < MAX_STDIN ? realloc(data, room = room ? 2 * room : 1 << 16) : NULL;
            if (!more) {
                free(data);
                err->kind = JEMPP_ERR_IO;
                snprintf(err->msg, sizeof err->msg,
                         "standard input: more than %d MiB, or no memory", MAX_STDIN >> 20);
                return NULL;
            }
            data = more;
        }
        got = some_of_stdin(data + size, room - size);
        size += (size_t)got;
    } while (got > 0);
    *n = size;
    return data;
}

static int wider(int width, const char *text) {
    const int w = jempp_text_width(text);
    return w > width ? w : width;
}

static void print_answer(Job *job, const JemppPrediction *a) {
    const char *in = a->in < 0 ? "?" : a->in ? "in" : "out";
    if (!job->n++)
        printf("%-*s  %-*s  %8s  %10s  %s\n", job->file_width, "file", job->class_width, "class",
               "p(y|x)", "log p(x)+c", "distribution");
    char file[1024];
    snprintf(file, sizeof file, "%s", a->file);
    for (unsigned char *c = (unsigned char *)file; *c; c++) { // it could steer the terminal
        const int c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        if (iscntrl(*c) || c1) *c = '?';
        if (c1) c[1] = '?';
    }
    job->file_width = wider(job->file_width, file);
    char name[256];
    jempp_text_shorten(name, sizeof name, a->class_name, CLASS_COLUMNS);
    printf("%s%*s  %s%*s  %8.4f  %10.3f  %s\n", file, job->file_width - jempp_text_width(file), "",
           name, job->class_width - jempp_text_width(name), "", (double)a->p, (double)a->log_px,
           in);
}

static void keep_answer(Job *job, const JemppPrediction *a) {
    if (job->n == job->cap) {
        job->cap = job->cap ? 2 * job->cap : 64;
        JemppPrediction *more = realloc(job->answer, (size_t)job->cap * sizeof *more);
        if (more) job->answer = more;
        else job->cap = job->n;
    }
    char *file = strdup(a->file), *error = a->error ? strdup(a->error) : NULL;
    if (job->n == job->cap || !file || (a->error && !error)) {
        job->rc = cli_fail(&(JemppErr){ JEMPP_ERR_MEM, "out of memory for predictions" });
        free(file);
        free(error);
        return;
    }
    JemppPrediction *kept = &job->answer[job->n++];
    *kept = *a;
    kept->file = file;
    kept->error = error;
}

// A picture that cannot be read is reported, and has no row; the others are still answered.
static void on_answer(void *ctx, const JemppPrediction *a, const char *error) {
    Job *job = ctx;
    if (error) {
        fprintf(stderr, "jempp: %s\n", error);
        job->rc = EXIT_FAILED;
    }
    if (job->json) keep_answer(job, a);
    else if (!error) print_answer(job, a);
}

static void no_answer(Job *job, const char *name, const JemppErr *err) {
    on_answer(job, &(JemppPrediction){ .file = name, .error = err->msg }, err->msg);
}

// The number of pictures: 0 after a signal.
static unsigned predict_stdin(Job *job) {
    const size_t side = (size_t)jempp_side(job->j),
                 dim = (size_t)jempp_channels(job->j) * side * side;
    JemppErr err = { 0 };
    JemppPrediction a = { .file = "-" };
    size_t n = 0;
    float *image = malloc(dim * sizeof *image);
    char *data = image ? read_stdin(&n, &err) : NULL;
    if (!image) err = (JemppErr){ JEMPP_ERR_MEM, "out of memory for a picture" };
    const int stopped = cli_stopped();
    if (!stopped && (!data || jempp_decode_image(job->j, data, n, "standard input", image, &err) ||
                     jempp_predict(job->j, image, 1, &a, &err)))
        no_answer(job, a.file, &err);
    else if (!stopped) on_answer(job, &a, NULL);
    free(data);
    free(image);
    return !stopped;
}

// A file of one image, which an npz file is not.
static int is_picture(const char *name) {
    struct stat st;
    return strcmp(name, "-") != 0 && !stat(name, &st) && S_ISREG(st.st_mode) &&
           !jempp_is_images(name);
}

// How far it came. What is in folders and npz files that were not reached is not known.
static void say_stopped(const Job *job, const JemppOptions *o, int from) {
    unsigned long long total = job->sum.total;
    int folders = 0;
    for (int i = from; i < jempp_n_files(o); i++) {
        const int one = is_picture(jempp_file(o, i)) || !strcmp(jempp_file(o, i), "-");
        total += (unsigned)one;
        folders += !one;
    }
    if (!total) fprintf(stderr, "jempp: stopped before the first image\n");
    else
        fprintf(stderr, "jempp: stopped after %llu of %s%llu image%s\n",
                (unsigned long long)job->sum.images, folders ? "at least " : "", total,
                cli_plural(total));
}

static void add_sum(JemppPredicted *sum, const JemppPredicted *r) {
    sum->images += r->images;
    sum->unreadable += r->unreadable;
    sum->total += r->total;
}

// Files that follow each other are read together; a name that is nothing leaves the others alone.
static void predict_names(Job *job, const JemppOptions *o) {
    const int names = jempp_n_files(o);
    JemppEvents ev = cli_events();
    int end = 1;
    for (int i = 1; i < names && !cli_stopped(); i = end) {
        for (end = i + 1;
             end < names && is_picture(jempp_file(o, i)) && is_picture(jempp_file(o, end));)
            end++;
        JemppErr err = { 0 };
        JemppPredicted r = { .images = 1, .total = 1 };
        if (!strcmp(jempp_file(o, i), "-")) r.images = predict_stdin(job);
        else if (jempp_predict_each(job->j, o, i, end - i, &ev, on_answer, job, &r, &err) &&
                 !cli_stopped())
            no_answer(job, jempp_file(o, i), &err);
        add_sum(&job->sum, &r);
    }
    jempp_terminal_close(&ev);
    if (cli_stopped()) say_stopped(job, o, end);
    else if (job->sum.unreadable && job->sum.images > 1)
        fprintf(stderr, "jempp: %llu of %llu images could not be read\n",
                (unsigned long long)job->sum.unreadable, (unsigned long long)job->sum.images);
}

static int predict_to_file(Jempp *j, const JemppOptions *o, const char *out) {
    JemppErr err = { 0 };
    JemppPredicted r;
    JemppEvents ev = cli_events();
    const int failed = jempp_predict_files(j, o, &ev, &r, &err);
    jempp_terminal_close(&ev);
    if (failed && cli_stopped() && r.total)
        fprintf(stderr, "jempp: stopped after %llu of %llu image%s; %s was not written\n",
                (unsigned long long)r.images, (unsigned long long)r.total, cli_plural(r.total),
                out);
    else if (failed) return cli_fail(&err);
    if (failed) return EXIT_FAILED;
    printf("%s: %llu", out, (unsigned long long)r.images);
    if (r.stopped) printf(" of %llu", (unsigned long long)r.total);
    printf(" image%s", cli_plural(r.stopped ? r.total : r.images));
    if (r.unreadable) printf(", %llu unreadable", (unsigned long long)r.unreadable);
    printf(r.stopped ? "; stopped before the end\n" : "\n");
    return r.unreadable ? EXIT_FAILED : EXIT_DONE;
}

static int predict(Jempp *j, const JemppOptions *o) {
    char out[512];
    const int to_file = !jempp_get(o, "out", out, sizeof out) && out[0];
    if (to_file && cli_int(o, "json"))
        return cli_fail(&(JemppErr){ JEMPP_ERR_ARG, "--json and --out: expected one of them; "
                                                    "--out FILE.jsonl writes JSON" });
    if (to_file) return predict_to_file(j, o, out);
    Job job = { .j = j, .json = cli_int(o, "json"), .file_width = 4, .class_width = 14 };
    for (int i = 1; i < jempp_n_files(o); i++) {            // a folder's files have longer names
        const int more = is_picture(jempp_file(o, i)) || !strcmp(jempp_file(o, i), "-") ? 0 : 16;
        const int width = jempp_text_width(jempp_file(o, i)) + more;
        if (width > job.file_width) job.file_width = width;
    }
    for (int i = 0; i < jempp_classes(j); i++)
        job.class_width = wider(job.class_width, jempp_class_name(j, i));
    if (job.class_width > CLASS_COLUMNS) job.class_width = CLASS_COLUMNS;
    predict_names(&job, o);
    JemppErr err = { 0 };
    const int printed =
        job.json ? cli_print(jempp_predictions_json(job.answer, job.n, &err), &err) : EXIT_DONE;
    for (int i = 0; job.answer && i < job.n; i++) {
        free((char *)(uintptr_t)job.answer[i].file);
        free((char *)(uintptr_t)job.answer[i].error);
    }
    free(job.answer);
    return job.rc ? job.rc : printed;
}

CLI_COMMAND(predict, .with_model = predict);
