// score.c - see score.h.
#include "jem/score.h"
#include <stdlib.h>
#include <string.h>

int scorer_open(Scorer *s, Net *net, int batch, void *shared, size_t bytes, Err *err) {
    return scorer_open_as(s, net, batch, MODE_INFER, shared, bytes, err);
}

int scorer_open_as(Scorer *s, Net *net, int batch, int mode, void *shared, size_t bytes, Err *err) {
    *s = (Scorer){ .net = net, .batch = batch };
    Dev *dev = net->dev;
    const size_t dim = tensor_len(&net->act[0]),
                 wide = dim > (size_t)net->spec.classes ? dim : (size_t)net->spec.classes;
    if (pass_open(&s->pass, net, batch, mode, err)) return -1;
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
    reals_to_floats(logits, s->rows, (size_t)n * C);
    return dev_check(dev, err);
}

// All ranks' parts, unless one of them failed.
static int join_logits(Scorer *s, int rc, int n, float *logits, Err *err) {
    if (comm_agree(s->comm, rc, err)) return -1;
    comm_join(s->comm, logits, n, s->batch, (size_t)s->net->spec.classes * sizeof *logits);
    return comm_check(s->comm, err);
}

int scorer_set(Scorer *s, const Bytes *set, int first, int n, float *logits, Err *err) {
    Dev *dev = s->net->dev;
    const size_t C = (size_t)s->net->spec.classes;
    int from, end, *index = malloc((size_t)s->batch * sizeof *index),
                   rc = index ? 0 : err_set(err, ERR_MEM, "out of memory");
    comm_part(s->comm, n, s->batch, &from, &end);
    for (int i = from; !rc && i < end; i += s->batch) {
        const int m = n - i < s->batch ? n - i : s->batch;
        for (int k = 0; k < s->batch; k++)
            index[k] = first + i + (k < m ? k : 0); // fill a short batch
        dev->be.copy_in(dev, s->index, index, (size_t)s->batch * sizeof *index);
        const Rng key = { .seed = s->seed, .stream = RNG_EVAL, .step = (uint32_t)(first + i) };
        dev->be.batch(dev, set, s->index, s->batch, (Augment){ .noise = s->noise }, key, NULL, s->x,
                      NULL);
        rc = run_batch(s, m, logits + (size_t)i * C, err);
    }
    free(index);
    return join_logits(s, rc, n, logits, err);
}

int scorer_images(Scorer *s, const float *x, int n, float *logits, Err *err) {
    Dev *dev = s->net->dev;
    const size_t dim = tensor_len(&s->net->act[0]), C = (size_t)s->net->spec.classes;
    int from, end, rc = 0;
    comm_part(s->comm, n, s->batch, &from, &end);
    for (int i = from; !rc && i < end; i += s->batch) {
        const int m = n - i < s->batch ? n - i : s->batch;
        for (int k = 0; k < s->batch; k++)
            for (size_t j = 0; j < dim; j++)
                s->rows[(size_t)k * dim + j] = (real)x[(size_t)(i + (k < m ? k : 0)) * dim + j];
        dev->be.copy_in(dev, s->x, s->rows, (size_t)s->batch * dim * sizeof(real));
        rc = run_batch(s, m, logits + (size_t)i * C, err);
    }
    return join_logits(s, rc, n, logits, err);
}
