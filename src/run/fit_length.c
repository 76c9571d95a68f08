// fit_length.c - how far fresh chains of the run's best model should go (docs/pyld.md).
//
// Chains that are too short keep the blur of their starts, those that are too long exaggerate what
// the model looks for. The model itself can tell: of several lengths, the best is that at which
// the logits of samples are distributed most like those of validation images. The length of the
// steps, which follows from climb, is recorded as well: it should be that of chains from exact
// starts also where the model is used without its training images.
#include "base/file.h"
#include "jem/fid.h"
#include "run/fit_run.h"
#include "run/model.h"
#include <math.h>
#include <stdlib.h>

enum { IMAGES = 512 };                  // samples of each length
// Lengths that the search can try. It only goes up, because the logits of a network that has
// learnt little favour chains that are too short.
enum { LENGTHS = 7 };

typedef struct {
    Model   m;
    Events  quiet;                      // no messages, but it can be stopped
    Moments real;                       // of the validation images' logits
    float  *x, *logits;                 // of IMAGES images
    double  base;                       // the length to begin with
} LengthFit;

static double length_at(const LengthFit *f, int power) { return f->base * pow(1.25, power); }

static int real_moments(LengthFit *f, const Set *valid, Err *err) {
    const size_t dim = tensor_len(&f->m.net.act[0]), C = (size_t)f->m.net.spec.classes;
    float *z = malloc(valid->n * C * sizeof *z);
    int rc = z ? 0 : err_set(err, ERR_MEM, "out of memory for logits");
    for (size_t i = 0, n; !rc && i < valid->n; i += n) {
        n = valid->n - i < IMAGES ? valid->n - i : IMAGES;
        for (size_t k = 0; k < n * dim; k++) f->x[k] = byte_to_pixel(valid->x[i * dim + k]);
        rc = model_logits(&f->m, f->x, (int)n, z + i * C, err);
    }
    if (!rc) rc = moments_of(&f->real, z, valid->n, (int)C, err);
    free(z);
    return rc;
}

// How far the logits of samples of this length are from those of validation images.
static int measure(LengthFit *f, int power, double *to, Err *err) {
    const Config as_trained = { 0 };
    Moments drawn = { 0 };
    f->m.cfg.chain_length = length_at(f, power);
    int rc = model_sample(&f->m, &as_trained, &f->quiet, IMAGES, f->x, NULL, err) ||
             model_logits(&f->m, f->x, IMAGES, f->logits, err) ||
             moments_of(&drawn, f->logits, IMAGES, f->m.net.spec.classes, err);
    if (!rc) rc = frechet_distance(to, &drawn, &f->real, err);
    if (!(f->m.cfg.chain_step > 0)) f->m.cfg.chain_step = model_chains(&f->m).first;
    moments_free(&drawn);
    return rc;
}

// Goes up from the base as long as the distance falls.
static int search(LengthFit *f, int *best, Err *err) {
    double least = INFINITY, d;
    for (int i = 0; i < LENGTHS; i++) {
        if (measure(f, i, &d, err)) return -1;
        if (!(d < least)) return 0;
        least = d;
        *best = i;
    }
    return 0;
}

static int open_fit(LengthFit *f, const TrainRun *r, const char *path, Err *err) {
    if (model_open(&f->m, &r->cfg, path, err)) return -1;
    f->quiet = (Events){ .stop = r->ev ? r->ev->stop : NULL, .ctx = r->ev ? r->ev->ctx : NULL };
    f->m.cfg.weight_noise = 0;              // it raises this distance even where samples improve
    f->base = anneal_length(&f->m.cfg);
    f->x = malloc(IMAGES * tensor_len(&f->m.net.act[0]) * sizeof *f->x);
    f->logits = malloc(IMAGES * (size_t)f->m.net.spec.classes * sizeof *f->logits);
    if (!f->x || !f->logits) return err_set(err, ERR_MEM, "out of memory for samples");
    return real_moments(f, &r->valid, err);
}

static int fit_length(LengthFit *f, const TrainRun *r, const char *path, Err *err) {
    Config options = r->cfg;
    int best = 0;
    if (open_fit(f, r, path, err) || search(f, &best, err)) return -1;
    options.steps = f->m.cfg.steps;
    options.chain_length = length_at(f, best);
    options.chain_step = f->m.cfg.chain_step;
    const ModelCard card = model_card(&f->m, &options);
    if (model_save(&f->m.net, &card, 0, path, err)) return -1;
    run_say(r, "fresh chains: a total length of %.3g steps of training fits the model best",
            options.chain_length);
    return 0;
}

// One length must take less than a twentieth of the gradients that the run's chains took.
static int is_cheap(const TrainRun *r) {
    const double batches = ceil((double)IMAGES / r->cfg.batch);
    return (double)(r->t.step - r->t.px_began) * r->cfg.steps >
           20 * batches * anneal_length(&r->cfg);
}

void run_fit_length(TrainRun *r) {
    char path[RUN_PATH];
    Err why = { 0 };
    if (!run_writes(r) || !has_chains(&r->t) || r->cfg.chain_length > 0 || r->valid.n < IMAGES ||
        !is_cheap(r) || run_path(path, r->out, RUN_BEST, &why) || !file_exists(path))
        return;
    LengthFit *f = calloc(1, sizeof *f);
    if (!f) err_set(&why, ERR_MEM, "out of memory for samples");
    if ((!f || fit_length(f, r, path, &why)) && !stop_asked(r->ev))
        run_say(r, "note: the length of fresh chains was not fitted: %s", why.msg);
    if (!f) return;
    moments_free(&f->real);
    model_close(&f->m);
    free(f->x);
    free(f->logits);
    free(f);
}
