// cmd_predict.c - jempp predict: the class of pictures, and whether they are of the known kind.
#include "cli/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *file, *class_name;
    float       p, score;               // p(y|x); log p(x) up to a constant
    int         in;                     // 1 in, 0 out of distribution, -1 not known
} Answer;

static const char *kind(int in) { return in < 0 ? "?" : in ? "in" : "out"; }

static int predict(Jempp *j, const char *file, Answer *a, JemppErr *err) {
    const int c = jempp_classes(j);
    const size_t side = (size_t)jempp_side(j), n = (size_t)jempp_channels(j) * side * side;
    float *mem = malloc((n + 2 * (size_t)c) * sizeof *mem), *logits = mem ? mem + n : NULL;
    if (!mem) {
        *err = (JemppErr){ JEMPP_ERR_MEM, "out of memory for a picture" };
        return -1;
    }
    int rc = jempp_load_image(j, file, mem, err);
    if (!rc) rc = jempp_logits(j, mem, 1, logits, err);
    if (!rc) {
        float *p = logits + c;
        int best = 0;
        *a = (Answer){ .file = file, .score = jempp_score(j, logits, p) };
        for (int i = 1; i < c; i++)
            if (p[i] > p[best]) best = i;
        a->class_name = jempp_class_name(j, best);
        a->p = p[best];
        a->in = isnan(jempp_threshold(j)) ? -1 : a->score >= jempp_threshold(j);
    }
    free(mem);
    return rc;
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

// A picture that cannot be read is reported and left out; the others are still answered.
static int predict_all(Jempp *j, const JemppOptions *o) {
    const int json = cli_int(o, "json");
    int width = 4, rc = EXIT_DONE, n = 0;
    for (int i = 1; i < jempp_n_files(o); i++)
        if ((int)strlen(jempp_file(o, i)) > width) width = (int)strlen(jempp_file(o, i));
    if (json) printf("[");
    else
        printf("%-*s  %-14s  %8s  %10s  %s\n", width, "file", "class", "p(y|x)", "log p(x)+c",
               "distribution");
    for (int i = 1; i < jempp_n_files(o); i++) {
        JemppErr err = { 0 };
        Answer a;
        if (predict(j, jempp_file(o, i), &a, &err)) rc = cli_fail(&err);
        else if (json) print_json(&a, !n++);
        else print_text(&a, width);
    }
    if (json) printf("\n]\n");
    return rc;
}

int cmd_predict(int argc, char **argv) {
    JemppErr err = { 0 };
    JemppOptions *o = cli_options("predict", argc, argv, &err);
    if (!o) return cli_fail(&err);
    int rc = EXIT_USAGE;
    Jempp *j = NULL;
    if (jempp_n_files(o) < 2)
        fprintf(stderr, "jempp predict: expected a run or model, and pictures\n");
    else if (!(j = jempp_open(o, jempp_file(o, 0), &err))) rc = cli_fail(&err);
    else rc = predict_all(j, o);
    jempp_close(j);
    jempp_options_free(o);
    return rc;
}
