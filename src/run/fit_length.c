// fit_length.c - how far fresh chains of the run's best model should go (docs/pyld.md).
//
// Chains that are too short keep the blur of their starts, those that are too long exaggerate what
// the model looks for. So the length is that at which samples have as much detail as the validation
// images. The length of the steps, which follows from climb, is recorded as well: it should be that
// of chains from exact starts also where the model is used without its training images.
#include "base/file.h"
#include "base/safetensors.h"
#include "jem/detail.h"
#include "run/fit_run.h"
#include "run/model.h"
#include <math.h>
#include <stdlib.h>

enum { IMAGES = 512 };                  // samples of each length

typedef struct {
    Model   m;
    Events  quiet;                      // no messages, but it can be stopped
    double  real;                       // detail of validation images
    float  *x;                          // IMAGES samples
    double  base;                       // the length to begin with
} LengthFit;

static double length_at(const LengthFit *f, double power) { return f->base * pow(1.25, power); }

static int open_detail(Detail *d, const LengthFit *f, Err *err) {
    return detail_open(d, f->m.net.spec.channels, f->m.net.spec.side, err);
}

static int real_detail(LengthFit *f, const Set *valid, Err *err) {
    const size_t dim = tensor_len(&f->m.net.act[0]), most = 4 * (size_t)IMAGES;
    const size_t all = valid->n < most ? valid->n : most;
    Detail d;
    if (open_detail(&d, f, err)) return -1;
    for (size_t i = 0, n; i < all; i += n) {
        n = all - i < IMAGES ? all - i : IMAGES;
        for (size_t k = 0; k < n * dim; k++) f->x[k] = byte_to_pixel(valid->x[i * dim + k]);
        detail_add(&d, f->x, n);
    }
    f->real = detail_value(&d);
    detail_close(&d);
    return 0;
}

static int measure(void *ctx, int power, double *more, double *cost, Err *err) {
    LengthFit *f = ctx;
    const Config as_trained = { 0 };
    Detail d;
    f->m.cfg.chain_length = length_at(f, power);
    if (model_sample(&f->m, &as_trained, &f->quiet, IMAGES, f->x, NULL, err) ||
        open_detail(&d, f, err))
        return -1;
    const Anneal chains = model_chains(&f->m);
    f->m.cfg.chain_step = chains.longest;
    *cost = chains.steps * ceil((double)IMAGES / f->m.cfg.batch);
    detail_add(&d, f->x, IMAGES);
    *more = detail_value(&d) - f->real;
    detail_close(&d);
    return isfinite(*more) ? 0 : err_set(err, ERR_DATA, "samples that are not finite");
}

// Not down: shorter chains have less detail, but not better samples. Nor far up: a blurred model
// gets its images' detail from chains that exaggerate; no model that was measured beyond 1.6 times
// the length to begin with was better off there (docs/samples.md).
int length_search(double *power, DetailAt *detail, void *ctx, double left, Err *err) {
    enum { LENGTHS = 3 };
    double before = 0, more = -1, cost = 0;
    *power = 0;
    for (int i = 0; i < LENGTHS && more < 0 && left > 1.25 * cost; i++) {
        before = more;
        if (detail(ctx, i, &more, &cost, err)) return -1;
        left -= cost;
        *power = i;
    }
    if (*power > 0 && more >= 0) *power -= more / (more - before);
    return 0;
}

// An earlier end of the run may have left its own length in the model.
static int open_fit(LengthFit *f, const TrainRun *r, const char *path, Err *err) {
    if (model_open(&f->m, &r->cfg, path, err)) return -1;
    f->quiet = (Events){ .stop = r->ev ? r->ev->stop : NULL, .ctx = r->ev ? r->ev->ctx : NULL };
    f->m.cfg.chain_length = 0;
    f->m.cfg.chain_step = r->cfg.chain_step;
    f->base = anneal_length(&f->m.cfg);
    f->x = malloc(IMAGES * tensor_len(&f->m.net.act[0]) * sizeof *f->x);
    if (!f->x) return err_set(err, ERR_MEM, "out of memory for samples");
    return real_detail(f, &r->valid, err);
}

// The search may take a twentieth of the gradients that the chains of training took, but rank 0
// does alone what ranks share in training.
static double gradients_allowed(const TrainRun *r) {
    const double taken = (double)(r->t.step - r->t.px_began) * r->cfg.steps;
    return taken / 20 / comm_size(r->comm);
}

static int fit_length(LengthFit *f, const TrainRun *r, const char *path, Err *err) {
    Config options = r->cfg;
    double power;
    if (open_fit(f, r, path, err) || length_search(&power, measure, f, gradients_allowed(r), err))
        return -1;
    options.steps = f->m.cfg.steps;
    options.chain_length = length_at(f, power);
    options.chain_step = f->m.cfg.chain_step;
    const ModelCard card = model_card(&f->m, &options);
    if (model_save(&f->m.net, &card, 0, path, err)) return -1;
    run_say(r, "fresh chains: a total length of %.3g steps of training was chosen for the model",
            options.chain_length);
    return 0;
}

static int is_cheap(const TrainRun *r) {
    return gradients_allowed(r) > ceil((double)IMAGES / r->cfg.batch) * anneal_length(&r->cfg);
}

static int has_length(const char *path, Err *err) {
    St st;
    Config c;
    if (st_open(&st, path, err)) return 0;
    const int found = !run_options(&st, &c, err) && c.chain_length > 0;
    st_close(&st);
    return found;
}

// A run that was complete when it was resumed keeps its model as it is.
void run_fit_length(TrainRun *r) {
    char path[RUN_PATH];
    Err why = { 0 };
    if (!run_writes(r) || !has_chains(&r->t) || r->cfg.chain_length > 0 || r->valid.n < IMAGES ||
        !is_cheap(r) || run_path(path, r->out, RUN_BEST, &why) || !file_exists(path) ||
        (r->t.step == r->first_step && has_length(path, &why)))
        return;
    LengthFit *f = calloc(1, sizeof *f);
    if (!f) err_set(&why, ERR_MEM, "out of memory for samples");
    if ((!f || fit_length(f, r, path, &why)) && !stop_asked(r->ev))
        run_say(r, "note: the length of fresh chains was not fitted: %s", why.msg);
    if (!f) return;
    model_close(&f->m);
    free(f->x);
    free(f);
}
