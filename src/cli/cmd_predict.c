// cmd_predict.c - jempp predict: the class of pictures, and whether they are of the known kind.
#include "cli/cli.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *file, *class_name;
    float       p, score;               // p(y|x); log p(x) up to a constant
    int         in;                     // 1 in, 0 out of distribution, -1 not known
} Answer;

static const char *kind(int in) { return in < 0 ? "?" : in ? "in" : "out"; }

static Answer answer(const Jempp *j, const char *file, const float *logits, float *p) {
    Answer a = { .file = file, .score = jempp_score(j, logits, p) };
    int best = 0;
    for (int i = 1; i < jempp_classes(j); i++)
        if (p[i] > p[best]) best = i;
    a.class_name = jempp_class_name(j, best);
    a.p = p[best];
    a.in = isnan(jempp_threshold(j)) ? -1 : a.score >= jempp_threshold(j);
    return a;
}

static void print_text(const Answer *a, int width) {
    printf("%-*s  %-14s  %8.4f  %10.3f  %s\n", width, a->file, a->class_name, (double)a->p,
           (double)a->score, kind(a->in));
}

static void print_quoted(const char *s) {
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') printf("\\%c", *s);
        else if ((unsigned char)*s < 0x20) printf("\\u%04x", (unsigned)*s);
        else putchar(*s);
    }
    putchar('"');
}

static void print_json(const Answer *a, int first) {
    printf(first ? "\n  { \"file\": " : ",\n  { \"file\": ");
    print_quoted(a->file);
    printf(", \"class\": ");
    print_quoted(a->class_name);
    printf(", \"p\": %.9g, \"log_px\": %.9g, \"in\": %s }", (double)a->p, (double)a->score,
           a->in < 0 ? "null"
           : a->in   ? "true"
                     : "false");
}

enum { AT_ONCE = 64 };                  // pictures that go through the network together

typedef struct {
    Jempp *j;
    int    json, width, answered;
    float *images, *logits, *p;
} Job;

// A picture that cannot be read is reported and left out; the others are still answered.
static int predict_some(Job *job, const JemppOptions *o, int from, int to) {
    const size_t side = (size_t)jempp_side(job->j), c = (size_t)jempp_classes(job->j);
    const size_t dim = (size_t)jempp_channels(job->j) * side * side;
    const char *file[AT_ONCE];
    int n = 0, rc = EXIT_DONE;
    JemppErr err = { 0 };
    for (int i = from; i < to; i++) {
        file[n] = jempp_file(o, i);
        if (!jempp_load_image(job->j, file[n], job->images + (size_t)n * dim, &err)) n++;
        else rc = cli_fail(&err);
        err = (JemppErr){ 0 };
    }
    if (n && jempp_logits(job->j, job->images, n, job->logits, &err)) return cli_fail(&err);
    for (int i = 0; i < n; i++) {
        const Answer a = answer(job->j, file[i], job->logits + (size_t)i * c, job->p);
        if (job->json) print_json(&a, !job->answered++);
        else print_text(&a, job->width);
    }
    return rc;
}

static int predict_all(Jempp *j, const JemppOptions *o) {
    const int files = jempp_n_files(o);
    const size_t side = (size_t)jempp_side(j), c = (size_t)jempp_classes(j);
    const size_t images = AT_ONCE * (size_t)jempp_channels(j) * side * side;
    Job job = { .j = j, .json = cli_int(o, "json"), .width = 4 };
    job.images = malloc((images + (AT_ONCE + 1) * c) * sizeof *job.images);
    if (!job.images) return cli_fail(&(JemppErr){ JEMPP_ERR_MEM, "out of memory for pictures" });
    job.logits = job.images + images;
    job.p = job.logits + AT_ONCE * c;
    for (int i = 1; i < files; i++)
        if ((int)strlen(jempp_file(o, i)) > job.width) job.width = (int)strlen(jempp_file(o, i));
    if (job.json) printf("[");
    else
        printf("%-*s  %-14s  %8s  %10s  %s\n", job.width, "file", "class", "p(y|x)", "log p(x)+c",
               "distribution");
    int rc = EXIT_DONE;
    for (int i = 1; i < files; i += AT_ONCE) {
        const int some = predict_some(&job, o, i, i + AT_ONCE < files ? i + AT_ONCE : files);
        if (some != EXIT_DONE) rc = some;
    }
    if (job.json) printf("\n]\n");
    free(job.images);
    return rc;
}

int cmd_predict(int argc, char **argv) {
    return cli_with_model("predict", argc, argv, 2, INT_MAX, "a run or model, and pictures",
                          predict_all);
}
