// model_chains.c - draws images by fresh chains; see draw.h.
#include "base/image.h"
#include "base/text.h"
#include "data/bytes.h"
#include "data/run_data.h"
#include "run/draw.h"
#include <stdio.h>
#include <stdlib.h>

// What a model keeps from one call to the next.
struct Sampler {
    StartKind kind;             // of the chain starts that are open
    Starts    starts;           // starts.dev NULL: not open
    Bytes     bytes;            // the run's training images on the device, where they were found
    Pass      pass;             // pass.net NULL: not open
    void     *mem;              // the pass's, on the device
    real     *x, *sums;         // on the device: a batch of images; what the head adds up
    int      *y;                // on the device
    real     *host;             // a batch
    Anneal    anneal;           // the steps of fresh chains, as last used
    struct {                    // what was measured for chains ...
        Chain  chain;           // ... of this kind (steps 0: nothing yet), ...
        StartKind start;        // ... from starts of this kind, ...
        int    batch;           // ... in batches of this size
        double climb;
    } known;
};

// ---- what is kept ------------------------------------------------------------------------------

static void close_starts(Sampler *s, Dev *dev) {
    if (s->starts.dev) starts_close(&s->starts);
    bytes_free(&s->bytes, dev);
    s->starts = (Starts){ 0 };
}

static void close_pass(Sampler *s, Dev *dev) {
    pass_close(&s->pass);
    void *all[] = { s->mem, s->x, s->y, s->sums };
    for (int i = 0; i < 4; i++) dev->be.free(dev, all[i]);
    free(s->host);
    s->mem = s->x = s->sums = s->host = NULL;
    s->y = NULL;
}

void sampler_free(Model *m) {
    if (!m->sampler) return;
    close_starts(m->sampler, &m->dev);
    close_pass(m->sampler, &m->dev);
    free(m->sampler);
    m->sampler = NULL;
}

static int starts_from_images(Sampler *s, Model *m, StartKind kind, const Set *set, Err *err) {
    return bytes_upload(&s->bytes, &m->dev, set, err) ||
           starts_open(&s->starts, &m->dev, kind, set, &s->bytes, err);
}

// The approximate Gaussians that a model carries.
static int starts_from_model(Sampler *s, Model *m, StartKind kind, const Events *ev, Err *err) {
    if (!m->starts.n_group)
        return err_set(err, ERR_DATA,
                       "%s: contains no chain starts, and its training images (%s) are not found; "
                       "name their folder with --data-dir, or use --start uniform",
                       m->path, m->cfg.data);
    const int gaussian = m->starts.n_group == 1;
    if (gaussian != (kind == START_GAUSSIAN))
        return err_set(err, ERR_ARG,
                       "%s: contains chain starts for --start %s only, and its training images "
                       "(%s) are not found; name their folder with --data-dir",
                       m->path, gaussian ? "gaussian" : "informative", m->cfg.data);
    tell_line(ev, "chains start from the Gaussians in the model file: training images not found");
    return starts_open_model(&s->starts, &m->dev, kind, m->net.spec.classes, &m->starts, err);
}

// The run's own images give exact starts; without them the model's approximate ones serve.
static int open_starts(Sampler *s, Model *m, StartKind kind, const Events *ev, Err *err) {
    const NetSpec *spec = &m->net.spec;
    s->kind = kind;
    if (kind == START_UNIFORM)
        return starts_open_model(&s->starts, &m->dev, kind, spec->classes,
                                 &(StartsFile){ .channels = spec->channels, .side = spec->side },
                                 err);
    Set set = { 0 }, valid = { 0 };
    Err none = { 0 };
    const int usable = !run_images(&m->cfg, ev, &set, &valid, &none) && set.c == spec->channels &&
                       set.side == spec->side && set.classes == spec->classes;
    set_free(&valid);
    int rc = stopped(ev, err);
    if (!rc && usable) rc = starts_from_images(s, m, kind, &set, err);
    set_free(&set);
    return rc || usable ? rc : starts_from_model(s, m, kind, ev, err);
}

static int open_pass(Sampler *s, Model *m, int batch, Err *err) {
    Dev *dev = &m->dev;
    const size_t B = (size_t)batch, dim = tensor_len(&m->net.act[0]);
    if (pass_open(&s->pass, &m->net, batch, MODE_SAMPLE, err)) return -1;
    s->mem = dev->be.alloc(dev, s->pass.bytes, "sampling");
    s->x = dev->be.alloc(dev, B * dim * sizeof(real), "samples");
    s->y = dev->be.alloc(dev, B * sizeof(int), "samples");
    s->sums = dev->be.alloc(dev, 3 * N_SUM * sizeof(real), "samples");
    if (dev_check(dev, err)) return -1;
    s->host = malloc(B * dim * sizeof *s->host);
    if (!s->host) return err_set(err, ERR_MEM, "out of memory for %d samples", batch);
    pass_bind(&s->pass, s->mem);
    return 0;
}

static int open_noise(Draw *d, Err *err) {
    if (!(d->cfg.weight_noise > 0) || d->cfg.from != FROM_FRESH) return 0;
    return weight_noise_open(&d->noise, &d->m->net, err);
}

// What this call needs and the last one did not leave. A failure closes it, so that the next call
// begins afresh.
static int sampler_open(Draw *d, Err *err) {
    Model *m = d->m;
    if (!m->sampler) m->sampler = calloc(1, sizeof *m->sampler);
    Sampler *s = d->s = m->sampler;
    if (!s) return err_set(err, ERR_MEM, "out of memory for samples");
    const StartKind kind = d->cfg.start;
    if (s->starts.dev && s->kind != kind) close_starts(s, &m->dev);
    if (s->pass.net && s->pass.batch != d->cfg.batch) close_pass(s, &m->dev);
    const int failed = (!s->starts.dev && open_starts(s, m, kind, d->ev, err)) ||
                       (!s->pass.net && open_pass(s, m, d->cfg.batch, err)) || open_noise(d, err) ||
                       stopped(d->ev, err);
    if (failed) {
        close_starts(s, &m->dev);
        close_pass(s, &m->dev);
        dev_recover(&m->dev);
        return -1;
    }
    return 0;
}

// ---- drawing -----------------------------------------------------------------------------------

// A picture of the whole batch as it stands now.
static int add_frame(Draw *d, Err *err) {
    const size_t n = (size_t)d->cfg.batch * tensor_len(&d->m->net.act[0]);
    float *x = malloc(n * sizeof *x);
    Image *more = realloc(d->frame, (size_t)(d->n_frame + 1) * sizeof *more);
    if (more) d->frame = more;
    int rc = x && more ? 0 : err_set(err, ERR_MEM, "out of memory for an animation");
    if (!rc) {
        d->m->dev.be.copy_out(&d->m->dev, d->s->host, d->s->x, n * sizeof(real));
        reals_to_floats(x, d->s->host, n);
        rc = image_grid(&d->frame[d->n_frame], model_images(d->m, x, d->cfg.batch),
                        (Grid){ image_columns(d->cfg.batch), 1, d->cfg.zoom }, err);
        if (!rc) d->n_frame++;
    }
    free(x);
    return rc;
}

// Those images of the batch that will be returned, as they stand now.
static int show_frame(Draw *d, int step, int steps, const int *cls, Err *err) {
    const size_t dim = tensor_len(&d->m->net.act[0]), B = (size_t)d->cfg.batch;
    int n = 0;
    if (!d->watch) return 0;
    weight_noise_remove(&d->noise);         // who watches may classify images meanwhile
    d->m->dev.be.copy_out(&d->m->dev, d->s->host, d->s->x, B * dim * sizeof(real));
    for (int i = 0; i < d->cfg.batch && n < d->n_seen; i++) {
        if (!d->wanted[cls[i]]) continue;
        reals_to_floats(d->seen + (size_t)n * dim, d->s->host + (size_t)i * dim, dim);
        d->seen_class[n++] = cls[i];
    }
    return d->watch->frame(d->watch->ctx, step, steps, n, d->seen, d->seen_class)
               ? err_set(err, ERR_IO, "stopped")
               : 0;
}

static uint64_t seed_of(const Config *c) {
    return (uint64_t)c->seed + 0x5a5a;                      // not the training's numbers
}

// Chain starts of one full batch with its classes mixed evenly, also where fewer images are wanted,
// because batch norm makes a sample depend on its batch, and climb is measured on a batch.
static int start_batch(Draw *d, uint64_t seed, int batch_no, int *cls, Err *err) {
    Dev *dev = &d->m->dev;
    const int B = d->cfg.batch, C = d->m->net.spec.classes;
    int *number = malloc((size_t)B * sizeof *number);
    if (!number) return err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; i < B; i++) number[i] = batch_no * B + i, cls[i] = (batch_no * B + i) % C;
    starts_draw(&d->s->starts, seed, number, cls, B, d->s->x, B);
    free(number);
    dev->be.copy_in(dev, d->s->y, cls, (size_t)B * sizeof *cls);
    return 0;
}

// The batch under way, for step k with noise by that seed.
static ChainBatch chains_of(const Draw *d, uint64_t seed, int k) {
    const Sampler *s = d->s;
    return (ChainBatch){
        s->x, s->y, s->sums, { .seed = seed, .stream = RNG_LANGEVIN, .step = (uint32_t)k }, NULL
    };
}

static Chain single_step(const Draw *d) {
    Chain chain = chain_of(&d->cfg);
    chain.steps = 1;
    return chain;
}

// How a model's training steps climb where chains get to: measured on one batch, by the run's seed,
// so that a call's seed chooses its images and not how they are made. Without guidance, with which
// longer steps seem possible, but pixels run away.
static int measure_climb(Draw *d, int *cls, double *climb, Err *err) {
    enum { BEFORE = 32, MEASURED = 8 };
    const Chain chain = single_step(d);
    const uint64_t seed = seed_of(&d->m->cfg);
    *climb = 0;
    if (start_batch(d, seed, 0, cls, err)) return -1;
    for (int k = 0; k < BEFORE + MEASURED; k++) {
        const ChainBatch b = chains_of(d, seed, k);
        const double c = sample_climb(&d->s->pass, &chain, &b);
        if (k >= BEFORE) *climb += c / MEASURED;
        if (show_frame(d, k, 0, cls, err) || stopped(d->ev, err)) return -1;
    }
    return dev_check(&d->m->dev, err);
}

// The same, once for chains of this kind.
static int find_climb(Draw *d, int *cls, Err *err) {
    Sampler *s = d->s;
    const Chain chain = single_step(d);
    if (s->known.chain.steps && chain_same_step(&s->known.chain, &chain) &&
        s->known.start == d->cfg.start && s->known.batch == d->cfg.batch)
        return 0;
    s->known.chain.steps = 0;
    const int rc = measure_climb(d, cls, &s->known.climb, err);
    if (comm_agree(d->m->comm, rc, err)) return -1;
    comm_broadcast(d->m->comm, &s->known.climb, sizeof s->known.climb);
    s->known.chain = chain;
    s->known.start = d->cfg.start;
    s->known.batch = d->cfg.batch;
    return 0;
}

// Steps as the user says, of the training's length; else those that the model says, or as few and
// long as it allows.
static int plan_chains(Draw *d, int *cls, Err *err) {
    Sampler *s = d->s;
    s->anneal = (Anneal){ .steps = d->cfg.steps, .first = 1, .last = 1 };
    if (d->cfg.from == FROM_STARTS) s->anneal.steps = 0;
    if (d->cfg.from == FROM_STARTS || d->steps_given) return 0;
    if (!(d->cfg.chain_step > 0) && find_climb(d, cls, err)) return -1;
    s->anneal = anneal_plan(&d->cfg, s->known.climb);
    char line[128];
    snprintf(line, sizeof line,
             "chains of %d step%s, from %.3g to %.2g times as long as in training", s->anneal.steps,
             plural(s->anneal.steps), s->anneal.first, s->anneal.last);
    tell_line(d->ev, line);
    return 0;
}

static int draw_batch(Draw *d, int batch_no, int animate, int *cls, Err *err) {
    Dev *dev = &d->m->dev;
    Chain chain = single_step(d);
    if (d->cfg.classes[0] && !d->cfg.conditional) chain.energy = class_energy();
    const Move training = chain.move;
    if (start_batch(d, seed_of(&d->cfg), batch_no, cls, err)) return -1;
    for (int k = 0; k < d->s->anneal.steps; k++) {
        if (animate && add_frame(d, err)) return -1;
        if (show_frame(d, k, d->s->anneal.steps, cls, err)) return -1;
        const ChainBatch b = chains_of(d, seed_of(&d->cfg) + (uint64_t)batch_no, k);
        chain.move = anneal_move(&d->s->anneal, training, k);
        if (d->noise.net) {
            const Rng of_weights = { .seed = b.key.seed,
                                     .stream = RNG_WEIGHT_NOISE,
                                     .step = (uint32_t)k };
            weight_noise_add(&d->noise, d->cfg.weight_noise, of_weights);
        }
        sample_run(&d->s->pass, &chain, &b);
        if (stopped(d->ev, err)) return -1;
    }
    return (animate && add_frame(d, err)) ||
           show_frame(d, d->s->anneal.steps, d->s->anneal.steps, cls, err) || dev_check(dev, err);
}

static int run_batches(Draw *d, const Drawn *to, Err *err) {
    const size_t dim = tensor_len(&d->m->net.act[0]);
    const int n = to->n, B = d->cfg.batch,
              known = d->s->starts.n_group > 1 || d->cfg.classes[0] || d->cfg.conditional;
    // Ranks share out whole batches; where only some classes are wanted, each draws all.
    Comm *comm = d->n_wanted == d->m->net.spec.classes ? d->m->comm : NULL;
    int first, end;
    comm_part(comm, n, B, &first, &end);
    int *cls = malloc((size_t)B * sizeof *cls),
        rc = cls ? plan_chains(d, cls, err) : err_set(err, ERR_MEM, "out of memory for samples");
    tell_progress(d->ev, 0, (uint64_t)n, "images", "");
    for (int have = first, batch_no = first / B; !rc && have < end; batch_no++) {
        rc = draw_batch(d, batch_no, batch_no == 0 && d->cfg.animation[0], cls, err);
        if (rc) break;
        d->m->dev.be.copy_out(&d->m->dev, d->s->host, d->s->x, (size_t)B * dim * sizeof(real));
        for (int i = 0; i < B && have < end; i++) {
            if (!d->wanted[cls[i]]) continue;
            reals_to_floats(to->x + (size_t)have * dim, d->s->host + (size_t)i * dim, dim);
            to->cls[have++] = known ? cls[i] : -1;
        }
        tell_progress(d->ev, (uint64_t)have, (uint64_t)n, "images", "");
    }
    free(cls);
    if (comm_agree(d->m->comm, rc, err)) return -1;
    comm_join(comm, to->x, n, B, dim * sizeof *to->x);
    comm_join(comm, to->cls, n, B, sizeof *to->cls);
    rc = comm_check(comm, err);
    if (!rc && d->cfg.animation[0] && !comm_rank(d->m->comm))
        rc = image_write_webp(d->frame, d->n_frame, 80, d->cfg.animation, err);
    return rc;
}

int draw_chains(Draw *d, const Drawn *to, Err *err) {
    // all fail where one has no memory for it, instead of waiting for its images
    const int rc = comm_agree(d->m->comm, sampler_open(d, err), err) || run_batches(d, to, err);
    weight_noise_close(&d->noise);
    return rc;
}

Anneal model_chains(const Model *m) { return m->sampler ? m->sampler->anneal : (Anneal){ 0 }; }
