// model_sample.c - images from a model, wherever they come from: fresh chains (draw.h), the replay
// buffer, the class centres; and the best or worst of them. See model.h.
#include "base/safetensors.h"
#include "base/text.h"
#include "jem/metrics.h"
#include "run/draw.h"
#include "run/model_file.h"
#include <stdlib.h>
#include <string.h>

// The buffer of a run, or of a published checkpoint; malloc'd.
static float *read_buffer(const Model *m, const char *path, size_t *slots, Err *err) {
    St st;
    const size_t dim = tensor_len(&m->net.act[0]);
    if (m->run[0] ? st_open(&st, path, err) : model_file_open(&st, path, err)) return NULL;
    const StTensor *t = st_find(&st, m->run[0] ? "replay" : "replay_buffer");
    const size_t count = t ? (size_t)(t->bytes / st_type_size(t->type)) : 0;
    *slots = count / dim;
    float *all = *slots && *slots < 100000000 ? malloc(count * sizeof *all) : NULL;
    if (!*slots && !m->run[0])
        err_set(err, ERR_ARG,
                "%s: a model file has no replay buffer; give its run folder, or --from fresh",
                path);
    else if (!all) err_set(err, ERR_DATA, "%s: has no replay buffer", path);
    else if (st_read_f32(&st, t, all, *slots * dim, err)) {
        free(all);
        all = NULL;
    }
    st_close(&st);
    return all;
}

// Images of the buffer, in random order, a batch at a time.
typedef struct {
    float *all;                 // [slots][dim]
    size_t slots;
    float *x, *logits;          // of a batch
    int   *cls;
    Arena  arena;
} Buffer;

// Copies slots number `at` to `at` + m - 1 of that order, and their classes: those of the chains
// or, where chains have none but some are asked for, the predicted ones; -1: neither.
static int buffer_batch(Draw *d, Buffer *b, size_t at, int m, Err *err) {
    const size_t dim = tensor_len(&d->m->net.act[0]);
    const int C = d->m->net.spec.classes, own = d->m->cfg.conditional;
    const Rng key = { .seed = (uint64_t)d->cfg.seed, .stream = RNG_EVAL };
    for (int i = 0; i < m; i++) {
        const uint32_t slot = rng_perm(key, (uint32_t)b->slots, (uint32_t)(at + (size_t)i));
        memcpy(b->x + (size_t)i * dim, b->all + slot * dim, dim * sizeof *b->x);
        b->cls[i] = own ? slot_class((int)slot, (int)b->slots, C) : -1;
    }
    if (own || d->n_wanted == C) return 0;
    if (model_logits(d->m, b->x, m, b->logits, err)) return -1;
    for (int i = 0; i < m; i++) b->cls[i] = argmax(b->logits + (size_t)i * (size_t)C, C);
    return stopped(d->ev, err);
}

static int from_buffer(Draw *d, const Drawn *to, Err *err) {
    char last[RUN_PATH];
    const char *path = d->m->run[0] ? last : d->m->path;
    const size_t dim = tensor_len(&d->m->net.act[0]);
    const size_t B = (size_t)d->cfg.batch;
    Buffer b = { 0 };
    if (d->m->run[0] && run_path(last, d->m->run, RUN_LAST, err)) return -1;
    b.all = read_buffer(d->m, path, &b.slots, err);
    if (!b.all) return -1;
    b.x = arena_alloc(&b.arena, B * dim, sizeof *b.x);
    b.logits = arena_alloc(&b.arena, B * (size_t)d->m->net.spec.classes, sizeof *b.logits);
    b.cls = arena_alloc(&b.arena, B, sizeof *b.cls);
    int rc = arena_ok(&b.arena, "samples", err), have = 0;
    for (size_t i = 0; !rc && i < b.slots && have < to->n; i += B) {
        const int m = (int)(b.slots - i < B ? b.slots - i : B);
        rc = buffer_batch(d, &b, i, m, err);
        for (int k = 0; !rc && k < m && have < to->n; k++) {
            if (b.cls[k] >= 0 && !d->wanted[b.cls[k]]) continue;
            memcpy(to->x + (size_t)have * dim, b.x + (size_t)k * dim, dim * sizeof *to->x);
            to->cls[have++] = b.cls[k];
        }
    }
    arena_free(&b.arena);
    free(b.all);
    if (!rc && have < to->n)
        rc = err_set(err, ERR_ARG, "%s: the replay buffer has %d image%s%s, %d were requested",
                     path, have, plural(have),
                     d->n_wanted < d->m->net.spec.classes ? " of --class" : "", to->n);
    return rc;
}

// One Gaussian for all classes has one mean, of none of them.
static int from_centres(Draw *d, const Drawn *to, Err *err) {
    const size_t dim = tensor_len(&d->m->net.act[0]);
    const int groups = d->m->starts.n_group, by_class = groups == d->m->net.spec.classes;
    int have = 0;
    if (!d->m->starts.mean)
        return err_set(err, ERR_DATA, "%s: contains no class means", d->m->path);
    for (int c = 0; c < groups && have < to->n; c++) {
        if (by_class && !d->wanted[c]) continue;
        memcpy(to->x + (size_t)have * dim, d->m->starts.mean + (size_t)c * dim,
               dim * sizeof *to->x);
        to->cls[have++] = by_class ? c : -1;
    }
    if (have == to->n) return 0;
    return err_set(err, ERR_ARG, "found %d %smean%s, %d were requested", have,
                   by_class ? "class " : "", plural(have), to->n);
}

typedef struct {
    double score;
    int at;
} Ranked;

static int by_score(const void *a, const void *b) {
    const double x = ((const Ranked *)a)->score, y = ((const Ranked *)b)->score;
    return (x < y) - (x > y);
}

// Keeps the highest (or lowest) of `all` by log p(x) or p(y|x), y being what it was started as or
// looks like.
static int keep_ranked(Draw *d, const Drawn *all, const Drawn *to, Err *err) {
    const size_t dim = tensor_len(&d->m->net.act[0]);
    const int C = d->m->net.spec.classes;
    float *logits = malloc((size_t)all->n * (size_t)C * sizeof *logits);
    Ranked *r = malloc((size_t)all->n * sizeof *r);
    int rc = logits && r ? model_logits(d->m, all->x, all->n, logits, err)
                         : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < all->n; i++) {
        const float *z = logits + (size_t)i * (size_t)C;
        const double lse = logsumexp(z, C);
        const int cls = all->cls[i] >= 0 ? all->cls[i] : argmax(z, C);
        r[i] = (Ranked){ d->cfg.by == BY_PX ? lse : (double)z[cls] - lse, i };
    }
    if (!rc) qsort(r, (size_t)all->n, sizeof *r, by_score);
    for (int i = 0; !rc && i < to->n; i++) {
        const int at = r[d->cfg.worst ? all->n - 1 - i : i].at;
        memcpy(to->x + (size_t)i * dim, all->x + (size_t)at * dim, dim * sizeof *to->x);
        to->cls[i] = all->cls[at];
    }
    free(logits);
    free(r);
    return rc;
}

// The run's options, changed by those of this call. A model's own length of chains was found
// without guidance; chains towards a class climb faster, and arrive sooner.
static int options_of(Draw *d, const Config *use, Err *err) {
    const double GUIDED = 2. / 3;
    d->cfg = d->m->cfg;
    config_take(&d->cfg, use);
    d->steps_given = config_given(use, "steps");
    const Chain now = chain_of(&d->cfg), trained = chain_of(&d->m->cfg);
    if (!(d->cfg.chain_length > 0)) d->cfg.chain_length = d->m->cfg.chain_length;
    const int as_trained = chain_same_step(&now, &trained) && d->cfg.start == d->m->cfg.start &&
                           d->cfg.batch == d->m->cfg.batch;
    if (!(use->chain_step > 0)) d->cfg.chain_step = as_trained ? d->m->cfg.chain_step : 0;
    if (d->cfg.classes[0] && !d->cfg.conditional && !(use->chain_length > 0))
        d->cfg.chain_length *= GUIDED;
    if (d->cfg.best && d->cfg.worst)
        return err_set(err, ERR_ARG, "--best and --worst: one at a time");
    d->n_wanted = model_classes(d->m, d->cfg.classes, d->wanted, err);
    return d->n_wanted < 0 ? -1 : 0;
}

static int draw(Draw *d, const Drawn *to, Err *err) {
    switch (d->cfg.from) {
    case FROM_BUFFER:  return from_buffer(d, to, err);
    case FROM_CENTRES: return from_centres(d, to, err);
    default:           return draw_chains(d, to, err);
    }
}

// Draws --count images and keeps the best or worst.
static int draw_and_rank(Draw *d, const Drawn *to, Err *err) {
    Drawn all = { .n = d->cfg.count };
    if (all.n < to->n)
        return err_set(err, ERR_ARG, "--count %d: expected at least %d, the number to keep", all.n,
                       to->n);
    all.x = malloc((size_t)all.n * tensor_len(&d->m->net.act[0]) * sizeof *all.x);
    all.cls = malloc((size_t)all.n * sizeof *all.cls);
    int rc = all.x && all.cls ? draw(d, &all, err)
                              : err_set(err, ERR_MEM, "out of memory for %d samples", all.n);
    if (!rc) rc = keep_ranked(d, &all, to, err);
    free(all.x);
    free(all.cls);
    return rc;
}

static void draw_free(Draw *d) {
    for (int i = 0; i < d->n_frame; i++) image_free(&d->frame[i]);
    free(d->frame);
    free(d->seen);
    free(d->seen_class);
    free(d);
}

int model_sample(Model *m, const Config *use, const Events *ev, int n, float *images, int *class_of,
                 Err *err) {
    return model_sample_watched(m, use, ev, NULL, n, images, class_of, err);
}

static int watch_chains(Draw *d, const ChainWatch *watch, int n, Err *err) {
    d->watch = watch;
    d->n_seen = n;
    if (!watch) return 0;
    d->seen = malloc(((size_t)n + 1) * tensor_len(&d->m->net.act[0]) * sizeof *d->seen);
    d->seen_class = malloc(((size_t)n + 1) * sizeof *d->seen_class);
    return d->seen && d->seen_class ? 0 : err_set(err, ERR_MEM, "out of memory for %d samples", n);
}

int model_sample_watched(Model *m, const Config *use, const Events *ev, const ChainWatch *watch,
                         int n, float *images, int *class_of, Err *err) {
    Draw *d = calloc(1, sizeof *d);
    int *cls = class_of ? class_of : calloc((size_t)n + 1, sizeof *cls);
    int rc = d && cls ? 0 : err_set(err, ERR_MEM, "out of memory for %d samples", n);
    comm_begin(m->comm);
    if (!rc) {
        d->m = m;
        d->ev = m->dev.events = ev;
        rc = options_of(d, use, err) || watch_chains(d, watch, n, err);
    }
    Drawn to = { .n = n, .cls = cls };
    to.x = images;
    if (!rc) rc = (d->cfg.best || d->cfg.worst ? draw_and_rank : draw)(d, &to, err);
    if (rc && err) comm_quiet(m->comm, err);
    m->dev.events = NULL;
    if (d) draw_free(d);
    if (cls != class_of) free(cls);
    return rc;
}
