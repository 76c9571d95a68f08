// score.c - see score.h.
#include "run/score.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int scorer_open(Scorer *s, Net *net, int batch, void *shared, size_t bytes, Err *err) {
    *s = (Scorer){ .net = net, .batch = batch };
    Dev *dev = net->dev;
    const size_t dim = tensor_len(&net->act[0]),
                 wide = dim > (size_t)net->spec.classes ? dim : (size_t)net->spec.classes;
    if (pass_open(&s->pass, net, batch, MODE_INFER, err)) return -1;
    if (s->pass.bytes > bytes) shared = s->mem = dev->be.alloc(dev, s->pass.bytes, "inference");
    s->x = dev->be.alloc(dev, (size_t)batch * dim * sizeof(real), "a batch");
    s->index = dev->be.alloc(dev, (size_t)batch * sizeof(int), "a batch");
    s->rows = arena_alloc(&s->arena, (size_t)batch * wide, sizeof(real));
    if (dev_check(dev, err) || arena_ok(&s->arena, "a batch", err)) return -1;
    pass_bind(&s->pass, shared);
    return 0;
}

void scorer_close(Scorer *s) {
    if (!s->net) return;
    Dev *dev = s->net->dev;
    pass_close(&s->pass);
    dev->be.free(dev, s->mem);
    dev->be.free(dev, s->x);
    dev->be.free(dev, s->index);
    arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

// The batch in s->x through the net; the first n rows of logits to the host.
static int run_batch(Scorer *s, int n, float *logits, Err *err) {
    Dev *dev = s->net->dev;
    const size_t C = (size_t)s->net->spec.classes;
    pass_forward(&s->pass, s->x);
    dev->be.copy_out(dev, s->rows, pass_logits(&s->pass)->p, (size_t)n * C * sizeof(real));
    for (size_t i = 0; i < (size_t)n * C; i++) logits[i] = (float)s->rows[i];
    return dev_check(dev, err);
}

int scorer_set(Scorer *s, const Bytes *set, int first, int n, float *logits, Err *err) {
    Dev *dev = s->net->dev;
    int *index = malloc((size_t)s->batch * sizeof *index),
        rc = index ? 0 : err_set(err, ERR_MEM, "out of memory");
    for (int i = 0; !rc && i < n; i += s->batch) {
        const int m = n - i < s->batch ? n - i : s->batch;
        for (int k = 0; k < s->batch; k++)
            index[k] = first + i + (k < m ? k : 0); // fill a short batch
        dev->be.copy_in(dev, s->index, index, (size_t)s->batch * sizeof *index);
        dev->be.batch(dev, set, s->index, s->batch, (Augment){ 0 }, (Rng){ 0 }, NULL, s->x, NULL);
        rc = run_batch(s, m, logits + (size_t)i * (size_t)s->net->spec.classes, err);
    }
    free(index);
    return rc;
}

int scorer_images(Scorer *s, const float *x, int n, float *logits, Err *err) {
    Dev *dev = s->net->dev;
    const size_t dim = tensor_len(&s->net->act[0]);
    for (int i = 0; i < n; i += s->batch) {
        const int m = n - i < s->batch ? n - i : s->batch;
        for (int k = 0; k < s->batch; k++)
            for (size_t j = 0; j < dim; j++)
                s->rows[(size_t)k * dim + j] = (real)x[(size_t)(i + (k < m ? k : 0)) * dim + j];
        dev->be.copy_in(dev, s->x, s->rows, (size_t)s->batch * dim * sizeof(real));
        if (run_batch(s, m, logits + (size_t)i * (size_t)s->net->spec.classes, err)) return -1;
    }
    return 0;
}

double logsumexp(const float *z, int n) {
    double top = (double)z[0], sum = 0;
    for (int i = 1; i < n; i++) top = fmax(top, (double)z[i]);
    for (int i = 0; i < n; i++) sum += exp((double)z[i] - top);
    return top + log(sum);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int scores_of(Scores *s, const float *logits, const int *y, size_t n, int classes, Err *err) {
    double *lse = malloc((n + 1) * sizeof *lse), sure[ECE_BINS] = { 0 }, right[ECE_BINS] = { 0 };
    *s = (Scores){ .n = n };
    if (!lse) return err_set(err, ERR_MEM, "out of memory for %zu scores", n);
    for (size_t i = 0; i < n; i++) {
        const float *z = logits + i * (size_t)classes;
        int best = 0;
        for (int c = 1; c < classes; c++)
            if (z[c] > z[best]) best = c;
        lse[i] = logsumexp(z, classes);
        const double p = exp((double)z[best] - lse[i]);
        int bin = (int)ceil(p * ECE_BINS) - 1;                  // intervals (lo, hi]
        bin = bin < 0 ? 0 : bin >= ECE_BINS ? ECE_BINS - 1 : bin;
        sure[bin] += p;
        right[bin] += best == y[i];
        s->accuracy += (double)(best == y[i]) / (double)n;
        s->nll += (lse[i] - (double)z[y[i]]) / (double)n;
        s->fx += lse[i] / (double)n;
    }
    for (int b = 0; b < ECE_BINS; b++) s->ece += fabs(sure[b] - right[b]) / (double)n;
    qsort(lse, n, sizeof *lse, by_value);
    s->threshold = n ? lse[(n - 1) / 20] : NAN;
    free(lse);
    return 0;
}
