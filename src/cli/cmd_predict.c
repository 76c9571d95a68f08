// cmd_predict.c - jempp predict: the class of pictures, and whether they are in distribution.
#include "cli/cli.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST = 8, AT_ONCE = 64 };       // pictures that go through the network together
enum { MAX_STDIN = 256 << 20 };

typedef struct {
    Jempp *j;
    size_t dim;                         // floats of an image
    float *images;                      // [AT_ONCE][dim]
    JemppPrediction *answer;            // [files]; of those that could be read, in order
    int    n;                           // answers
    int    json, width;                 // width: columns for file names
} Job;

// All of standard input, which nothing says the length of.
static char *read_stdin(size_t *n, JemppErr *err) {
    char *data = NULL;
    size_t size = 0, room = 0;
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
        size += fread(data + size, 1, room - size, stdin);
    } while (!feof(stdin) && !ferror(stdin) && !cli_stopped());
    *n = size;
    return data;
}

static int load(const Job *job, const char *file, float *image, JemppErr *err) {
    if (strcmp(file, "-") != 0) return jempp_load_image(job->j, file, image, err);
    size_t n = 0;
    char *data = read_stdin(&n, err);
    const int rc = !data || jempp_decode_image(job->j, data, n, "standard input", image, err);
    free(data);
    return rc;
}

static void print_answer(const Job *job, const JemppPrediction *a) {
    const char *in = a->in < 0 ? "?" : a->in ? "in" : "out";
    printf("%s%*s  %s%*s  %8.4f  %10.3f  %s\n", a->file, job->width - jempp_text_width(a->file), "",
           a->class_name, 14 - jempp_text_width(a->class_name), "", (double)a->p, (double)a->log_px,
           in);
}

// A picture that cannot be read is reported and left out; the others are still answered.
static int predict_some(Job *job, const JemppOptions *o, int from, int to) {
    JemppPrediction *answer = job->answer + job->n;
    int n = 0, rc = EXIT_DONE;
    for (int i = from; i < to && !cli_stopped(); i++) {
        JemppErr err = { 0 };
        answer[n].file = jempp_file(o, i);
        if (!load(job, answer[n].file, job->images + (size_t)n * job->dim, &err)) n++;
        else rc = cli_fail(&err);
    }
    if (cli_stopped()) return rc;
    JemppErr err = { 0 };
    if (jempp_predict(job->j, job->images, n, answer, &err)) return cli_fail(&err);
    for (int i = 0; i < n && !job->json; i++) print_answer(job, &answer[i]);
    job->n += n;
    return rc;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Batches grow while they are quick, so that Ctrl-C is answered soon whatever the network.
static int predict_files(Job *job, const JemppOptions *o) {
    const int files = jempp_n_files(o);
    int rc = EXIT_DONE;
    for (int i = 1, n = FIRST, end; i < files && !cli_stopped(); i = end) {
        const double start = seconds();
        end = files - i < n ? files : i + n;
        const int some = predict_some(job, o, i, end);
        if (some != EXIT_DONE) rc = some;
        if (n < AT_ONCE && seconds() - start < 0.2) n *= 2;
    }
    if (!job->json) return rc;
    JemppErr err = { 0 };
    const int printed = cli_print(jempp_predictions_json(job->answer, job->n, &err), &err);
    return rc ? rc : printed;
}

static int predict_to_file(Jempp *j, const JemppOptions *o, const char *out) {
    JemppErr err = { 0 };
    JemppPredicted r;
    JemppEvents ev = cli_events();
    const int failed = jempp_predict_files(j, o, &ev, &r, &err);
    jempp_terminal_close(&ev);
    if (failed) return cli_fail(&err);
    printf("%s: %llu images", out, (unsigned long long)r.images);
    if (r.unreadable) printf(", %llu unreadable", (unsigned long long)r.unreadable);
    printf(r.stopped ? "; stopped before the end\n" : "\n");
    return EXIT_DONE;
}

static int predict(Jempp *j, const JemppOptions *o) {
    char out[512];
    if (!jempp_get(o, "out", out, sizeof out) && out[0]) return predict_to_file(j, o, out);
    const int files = jempp_n_files(o);
    const size_t side = (size_t)jempp_side(j);
    Job job = { .j = j, .json = cli_int(o, "json"), .width = 4 };
    job.dim = (size_t)jempp_channels(j) * side * side;
    job.images = malloc(AT_ONCE * job.dim * sizeof *job.images);
    job.answer = calloc((size_t)files, sizeof *job.answer);
    int rc;
    if (job.images && job.answer) {
        for (int i = 1; i < files; i++) {
            const int width = jempp_text_width(jempp_file(o, i));
            if (width > job.width) job.width = width;
        }
        if (!job.json)
            printf("%-*s  %-14s  %8s  %10s  %s\n", job.width, "file", "class", "p(y|x)",
                   "log p(x)+c", "distribution");
        rc = predict_files(&job, o);
    } else {
        rc = cli_fail(&(JemppErr){ JEMPP_ERR_MEM, "out of memory for pictures" });
    }
    free(job.images);
    free(job.answer);
    return rc;
}

CLI_COMMAND(predict, .with_model = predict);
