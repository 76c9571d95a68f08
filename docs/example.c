// example.c - classifies a picture and draws four samples: example MODEL PICTURE OUT.png
//
// MODEL is a run folder or an exported model. With an installed jempp:
//     cc docs/example.c $(pkg-config --cflags --libs jempp) -o example
#include <jempp.h>
#include <stdlib.h>

static int show(Jempp *j, const JemppOptions *o, const char *picture, const char *out, JemppErr *err) {
    enum { SAMPLES = 4 };
    const int classes = jempp_classes(j), side = jempp_side(j);
    const size_t one = (size_t)jempp_channels(j) * (size_t)(side * side);
    float *image = malloc(SAMPLES * one * sizeof *image);
    float *logits = malloc(2 * (size_t)classes * sizeof *logits);
    int rc = image && logits ? 0 : -1, best = 0;

    if (!rc) rc = jempp_load_image(j, picture, image, err);
    if (!rc) rc = jempp_logits(j, image, 1, logits, err);
    if (!rc) {
        float *p = logits + classes;
        const float score = jempp_score(j, logits, p);      // log p(x), up to the model's log Z
        for (int i = 1; i < classes; i++)
            if (p[i] > p[best]) best = i;
        printf("%s: %s, p(y|x) = %.4f, log p(x) + c = %.3f\n", picture, jempp_class_name(j, best),
               (double)p[best], (double)score);
    }
    if (!rc) rc = jempp_sample(j, o, NULL, SAMPLES, image, NULL, err);
    if (!rc) rc = jempp_write_grid(j, image, SAMPLES, 2, 3, out, err);
    if (!rc) printf("%s: %d samples\n", out, SAMPLES);
    free(image);
    free(logits);
    return rc;
}

int main(int argc, char **argv) {
    JemppErr err = { 0 };
    if (argc != 4) return fprintf(stderr, "usage: example MODEL PICTURE OUT.png\n"), 2;
    JemppOptions *o = jempp_options("sample", &err);
    int rc = !o || jempp_set(o, "steps", "20", &err);
    Jempp *j = rc ? NULL : jempp_open(o, argv[1], &err);
    rc = !j || show(j, o, argv[2], argv[3], &err);
    if (rc) fprintf(stderr, "example: %s\n", err.msg);
    jempp_close(j);
    jempp_options_free(o);
    return rc;
}
