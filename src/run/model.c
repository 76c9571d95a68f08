// model.c - see model.h.
#include "run/model.h"
#include "base/file.h"
#include "base/image.h"
#include "run/ckpt.h"
#include "base/events.h"
#include "run/fit.h"
#include "run/folder.h"
#include "jem/metrics.h"
#include "jem/sample.h"
#include "jem/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- opening ---------------------------------------------------------------------------------------

static const StTensor *must_find(const St *st, const char *name, int rank, Err *err) {
    const StTensor *t = st_find(st, name);
    if (!t)
        err_set(err, ERR_DATA, "%s: there is no tensor '%s': not a Wide-ResNet of this kind",
                st->path, name);
    else if (t->rank != rank)
        err_set(err, ERR_DATA, "%s: '%s' has %d dimensions, expected %d", st->path, name, t->rank,
                rank);
    else return t;
    return NULL;
}

// Depth, width, classes, channels, stem and norm as the tensors' names and shapes tell.
static int spec_from_tensors(const St *st, NetSpec *s, Err *err) {
    const StTensor *stem = must_find(st, "f.conv1.weight", 4, err),
                   *first = must_find(st, "f.layer1.0.conv1.weight", 4, err);
    const StTensor *head = must_find(st, "class_output.weight", 2, err);
    if (!stem || !first || !head) return -1;
    int blocks = 0;
    char name[64];
    do snprintf(name, sizeof name, "f.layer1.%d.conv1.weight", ++blocks);
    while (blocks < 200 && st_find(st, name));
    if (first->shape[0] > 16 * 64 || head->shape[0] > 1000 || stem->shape[1] > 3)
        return err_set(err, ERR_DATA,
                       "%s: %llu channels, %llu classes, %llu image channels are too many",
                       st->path, (unsigned long long)first->shape[0],
                       (unsigned long long)head->shape[0], (unsigned long long)stem->shape[1]);
    *s = (NetSpec){ .depth = 6 * blocks + 4,
                    .width = (int)first->shape[0] / 16,
                    .channels = (int)stem->shape[1],
                    .side = 32,
                    .classes = (int)head->shape[0],
                    .stem = stem->shape[2] == 4 ? STEM_4X4 : STEM_3X3,
                    .norm = st_find(st, "f.bn1.weight") ? NORM_BATCH : NORM_NONE };
    return 0;
}

static int read_side(const St *st, NetSpec *s, Err *err) {
    const char *text = st_meta(st, "side");
    if (!text) return 0;
    s->side = atoi(text);
    return s->side == 28 || s->side == 32 || s->side == 64 ||
                   (s->side >= 4 && s->side <= 256 && s->side % 4 == 0)
               ? 0
               : err_set(err, ERR_DATA, "%s: images of '%.20s' pixels a side", st->path, text);
}

static int read_names(Model *m, const St *st, Err *err) {
    const int n = m->net.spec.classes;
    const char *text = st_meta(st, "classes");
    m->class_name = arena_alloc(&m->arena, (size_t)n, sizeof *m->class_name);
    char *names = arena_strdup(&m->arena, text ? text : "");
    if (arena_ok(&m->arena, "class names", err)) return -1;
    tame(names);
    for (int i = 0; i < n; i++) {
        char *end = strchr(names, '\n');
        if (end) *end = 0;
        if (*names) m->class_name[i] = names;
        else {                                              // a state dict has no names
            char *number = arena_alloc(&m->arena, 12, 1);
            if (!number) return arena_ok(&m->arena, "class names", err);
            snprintf(number, 12, "%d", i);
            m->class_name[i] = number;
        }
        names = end ? end + 1 : names + strlen(names);
    }
    return 0;
}

static int read_starts(Model *m, St *st, Err *err) {
    const StTensor *mean = st_find(st, "start.mean"), *factor = st_find(st, "start.factor");
    const uint64_t dim = tensor_len(&m->net.act[0]);
    if (!mean || !factor) return 0;
    if (mean->rank != 2 || factor->rank != 3 || mean->shape[1] != dim || factor->shape[2] != dim ||
        factor->shape[0] != mean->shape[0] || factor->shape[1] < 1 || factor->shape[1] > 4096 ||
        (mean->shape[0] != 1 && mean->shape[0] != (uint64_t)m->net.spec.classes))
        return err_set(err, ERR_DATA, "%s: chain starts of another shape than the model's images",
                       st->path);
    m->n_group = (int)mean->shape[0];
    m->rank = (int)factor->shape[1];
    m->mean = arena_alloc(&m->arena, mean->shape[0] * dim, sizeof(float));
    m->factor = arena_alloc(&m->arena, factor->shape[0] * factor->shape[1] * dim, sizeof(float));
    if (arena_ok(&m->arena, "chain starts", err)) return -1;
    return st_read_f32(st, mean, m->mean, mean->shape[0] * dim, err) ||
                   st_read_f32(st, factor, m->factor, factor->shape[0] * factor->shape[1] * dim,
                               err)
               ? -1
               : 0;
}

// What is fitted is within 1/1000 and 1000, but for rounding.
static int read_temperature(Model *m, const St *st, Err *err) {
    const char *text = st_meta(st, "temperature");
    char *end;
    if (!text) return 0;
    m->temperature = strtod(text, &end);
    if (!*end && m->temperature > 9e-4 && m->temperature < 1001) return 0;
    return err_set(err, ERR_DATA,
                   "%s: its temperature is '%.40s': expected a number from 0.001 to 1000", st->path,
                   text);
}

static int model_read(Model *m, const Config *use, St *st, Err *err) {
    const char *threshold = st_meta(st, "threshold");
    if (run_options(st, &m->cfg, err) || read_temperature(m, st, err)) return -1;
    m->threshold = threshold ? strtof(threshold, NULL) : NAN;
    // the machine is the user's, not the run's
    memcpy(m->cfg.device, use->device, sizeof m->cfg.device);
    if (use->data_dir[0]) memcpy(m->cfg.data_dir, use->data_dir, sizeof m->cfg.data_dir);
    else if (!dir_exists(m->cfg.data_dir)) m->cfg.data_dir[0] = 0;
    NetSpec spec;
    if (spec_from_tensors(st, &spec, err) || read_side(st, &spec, err) ||
        net_build(&m->net, &spec, err) || model_complete(st, &m->net, err))
        return -1;
    const DevOpts o = { .threads = use->threads,
                        .conv = (ConvChoice)use->conv,
                        .precision = (Precision)use->precision,
                        .deterministic = use->deterministic };
    if (dev_open(&m->dev, use->device, &o, NULL, err)) return -1;
    return net_alloc(&m->net, &m->dev, err) || model_weights(st, &m->net, err) ||
                   read_names(m, st, err) || read_starts(m, st, err) ||
                   scorer_open(&m->scorer, &m->net, m->cfg.batch, NULL, 0, err)
               ? -1
               : 0;
}

int model_open(Model *m, const Config *use, const char *path, Err *err) {
    St st;
    memset(m, 0, sizeof *m);
    if (run_model_path(m->path, path, err)) return -1;
    if (strcmp(m->path, path)) snprintf(m->run, sizeof m->run, "%s", path);
    if (st_open(&st, m->path, err)) return -1;
    const int rc = model_read(m, use, &st, err);
    st_close(&st);
    if (rc) model_close(m);
    return rc;
}

void model_close(Model *m) {
    scorer_close(&m->scorer);
    net_free(&m->net);
    if (m->dev.be.name) dev_close(&m->dev);
    arena_free(&m->arena);
    memset(m, 0, sizeof *m);
}

// ---- sampling ----------------------------------------------------------------------------------------

typedef struct {
    Model *m;
    Config  cfg;                // the run's, with what the user gave for this call
    const Events *ev;
    Starts  starts;
    Set     set;                // the run's training images, where they are found
    Bytes   bytes;
    Pass    pass;
    void   *mem;
    real   *x, *sums;           // on the device
    int    *y;
    real   *host;               // a batch
    char    wanted[1000];       // by class
    int     n_wanted;
    Image  *frame;              // of the animation
    int     n_frame;
} Sampler;

static int choose_classes(Sampler *s, Err *err) {
    const Model *m = s->m;
    const int n = m->net.spec.classes;
    char list[sizeof s->cfg.classes], *at = list, *name;
    memset(s->wanted, s->cfg.classes[0] ? 0 : 1, sizeof s->wanted);
    s->n_wanted = s->cfg.classes[0] ? 0 : n;
    snprintf(list, sizeof list, "%s", s->cfg.classes);
    while ((name = strsep(&at, ",")) && *name) {
        int i = 0;
        char *end;
        const long number = strtol(name, &end, 10);
        while (i < n && strcmp(m->class_name[i], name) != 0) i++;
        if (i == n && !*end && number >= 0 && number < n) i = (int)number;
        if (i == n)
            return err_set(err, ERR_ARG, "--class %s: the model has no such class (%s, %s, ...)",
                           name, m->class_name[0], m->class_name[1]);
        s->n_wanted += !s->wanted[i];
        s->wanted[i] = 1;
    }
    return 0;
}

static void say(const Sampler *s, const char *text) { tell_line(s->ev, text); }

// The run's own images give exact starts; without them the model's low-rank ones serve.
static int open_starts(Sampler *s, Err *err) {
    Model *m = s->m;
    const Config *c = &m->cfg;
    const NetSpec *spec = &m->net.spec;
    const int dim = (int)tensor_len(&m->net.act[0]);
    const StartKind kind = (StartKind)s->cfg.start;
    Set valid = { 0 };
    Err none = { 0 };
    if (kind == START_UNIFORM)
        return starts_open_model(&s->starts, &m->dev, kind, spec->classes, 0, dim, 0, NULL, NULL,
                                 err);
    const int found = !fit_images(c, &s->set, &valid, &none);
    set_free(&valid);
    if (found && s->set.c == spec->channels && s->set.side == spec->side &&
        s->set.classes == spec->classes)
        return bytes_upload(&s->bytes, &m->dev, &s->set, err) ||
                       starts_open(&s->starts, &m->dev, kind, &s->bytes, s->set.x, s->set.y,
                                   spec->classes, err)
                   ? -1
                   : 0;
    if (!m->n_group)
        return err_set(err, ERR_DATA,
                       "%s: carries no chain starts and its training images (%s) are not found; "
                       "--data-dir says where they are, --start uniform does without",
                       m->path, c->data);
    char line[128];
    snprintf(line, sizeof line,
             "chains start from the model's own rank-%d factors: its training images are not here",
             m->rank);
    say(s, line);
    return starts_open_model(&s->starts, &m->dev, kind, spec->classes, m->n_group, dim, m->rank,
                             m->mean, m->factor, err);
}

static int sampler_open(Sampler *s, Err *err) {
    Model *m = s->m;
    Dev *dev = &m->dev;
    const size_t B = (size_t)s->cfg.batch, dim = tensor_len(&m->net.act[0]);
    s->host = arena_alloc(&m->arena, B * dim, sizeof(real));
    if (arena_ok(&m->arena, "samples", err) || open_starts(s, err) ||
        pass_open(&s->pass, &m->net, s->cfg.batch, MODE_SAMPLE, err))
        return -1;
    s->mem = dev->be.alloc(dev, s->pass.bytes, "sampling");
    s->x = dev->be.alloc(dev, B * dim * sizeof(real), "samples");
    s->y = dev->be.alloc(dev, B * sizeof(int), "samples");
    s->sums = dev->be.alloc(dev, N_SUM * sizeof(real), "samples");
    if (dev_check(dev, err)) return -1;
    pass_bind(&s->pass, s->mem);
    return 0;
}

static void sampler_close(Sampler *s) {
    Dev *dev = &s->m->dev;
    pass_close(&s->pass);
    void *all[] = { s->mem, s->x, s->y, s->sums };
    for (int i = 0; i < 4; i++) dev->be.free(dev, all[i]);
    starts_close(&s->starts);
    bytes_free(&s->bytes, dev);
    set_free(&s->set);
    for (int i = 0; i < s->n_frame; i++) image_free(&s->frame[i]);
    free(s->frame);
}

static void to_floats(float *dst, const real *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = (float)src[i];
}

// A picture of the whole batch as it stands now.
static int add_frame(Sampler *s, Err *err) {
    const size_t n = (size_t)s->cfg.batch * tensor_len(&s->m->net.act[0]);
    const NetSpec *spec = &s->m->net.spec;
    float *x = malloc(n * sizeof *x);
    Image *more = realloc(s->frame, (size_t)(s->n_frame + 1) * sizeof *more);
    if (more) s->frame = more;
    int rc = x && more ? 0 : err_set(err, ERR_MEM, "out of memory for an animation");
    if (!rc) {
        s->m->dev.be.copy_out(&s->m->dev, s->host, s->x, n * sizeof(real));
        to_floats(x, s->host, n);
        int cols = 1;
        while (cols * cols < s->cfg.batch) cols++;
        rc = image_grid(&s->frame[s->n_frame], x, s->cfg.batch, spec->channels, spec->side, cols, 1,
                        s->cfg.zoom, err);
        if (!rc) s->n_frame++;
    }
    free(x);
    return rc;
}

// One full batch with its classes mixed evenly, because batch norm makes a sample depend on its batch.
static int draw_batch(Sampler *s, int batch_no, int steps, int animate, int *cls, Err *err) {
    Dev *dev = &s->m->dev;
    const int B = s->cfg.batch, C = s->m->net.spec.classes;
    const uint64_t seed = (uint64_t)s->cfg.seed + 0x5a5a;           // not the training's numbers
    int *number = malloc((size_t)B * sizeof *number);
    if (!number) return err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; i < B; i++) number[i] = batch_no * B + i, cls[i] = (batch_no * B + i) % C;
    starts_draw(&s->starts, seed, number, cls, B, s->x, B);
    free(number);
    dev->be.copy_in(dev, s->y, cls, (size_t)B * sizeof *cls);
    Chain chain = chain_of(&s->cfg);
    if (s->cfg.classes[0])
        chain.energy = (Energy){ .b = 1 }; // a class was asked for: climb its logit
    chain.steps = 1;
    for (int k = 0; k < steps; k++) {
        if (animate && add_frame(s, err)) return -1;
        const Rng key = { .seed = seed + (uint64_t)batch_no,
                          .stream = RNG_LANGEVIN,
                          .step = (uint32_t)k };
        sample_run(&s->pass, &chain, s->x, s->y, s->sums, key, NULL);
        if (stopped(s->ev, err)) return -1;
    }
    return animate && add_frame(s, err) ? -1 : dev_check(dev, err);
}

static int from_chains(Sampler *s, int steps, int n, float *images, int *class_of, Err *err) {
    const size_t dim = tensor_len(&s->m->net.act[0]);
    const int B = s->cfg.batch;
    int *cls = malloc((size_t)B * sizeof *cls),
        rc = cls ? 0 : err_set(err, ERR_MEM, "out of memory for samples");
    tell_progress(s->ev, 0, (uint64_t)n, "images", "");
    for (int have = 0, batch_no = 0; !rc && have < n; batch_no++) {
        rc = draw_batch(s, batch_no, steps, batch_no == 0 && s->cfg.animation[0], cls, err);
        if (rc) break;
        s->m->dev.be.copy_out(&s->m->dev, s->host, s->x, (size_t)B * dim * sizeof(real));
        for (int i = 0; i < B && have < n; i++) {
            if (!s->wanted[cls[i]]) continue;
            to_floats(images + (size_t)have * dim, s->host + (size_t)i * dim, dim);
            class_of[have++] = s->starts.n_group > 1 || s->cfg.classes[0] ? cls[i] : -1;
        }
        tell_progress(s->ev, (uint64_t)have, (uint64_t)n, "images", "");
    }
    free(cls);
    if (!rc && s->cfg.animation[0])
        rc = image_write_webp(s->frame, s->n_frame, 80, s->cfg.animation, err);
    return rc;
}

static int from_buffer(Sampler *s, int n, float *images, int *class_of, Err *err) {
    St st;
    char path[RUN_PATH];
    const size_t dim = tensor_len(&s->m->net.act[0]);
    const int C = s->m->net.spec.classes;
    if (!s->m->run[0])
        return err_set(err, ERR_ARG,
                       "%s: a lone model has no buffer; name its run folder, or --from fresh",
                       s->m->path);
    if (run_path(path, s->m->run, RUN_LAST, err) || st_open(&st, path, err)) return -1;
    const StTensor *t = st_find(&st, "replay");
    const size_t count = t ? (size_t)(t->bytes / st_type_size(t->type)) : 0, slots = count / dim;
    float *all = t && slots && slots < 100000000 ? malloc(count * sizeof *all) : NULL;
    int rc = all ? st_read_f32(&st, t, all, slots * dim, err)
                 : err_set(err, ERR_DATA, "%s: has no replay buffer", path);
    st_close(&st);
    const Rng key = { .seed = (uint64_t)s->cfg.seed, .stream = RNG_EVAL };
    int have = 0;
    for (size_t i = 0; !rc && i < slots && have < n; i++) {
        const int slot = (int)rng_perm(key, (uint32_t)slots, (uint32_t)i),
                  c = slot_class(slot, (int)slots, C);
        if (!s->wanted[c]) continue;
        memcpy(images + (size_t)have * dim, all + (size_t)slot * dim, dim * sizeof *images);
        class_of[have++] = s->m->cfg.conditional ? c : -1;
    }
    free(all);
    if (!rc && have < n)
        rc = err_set(err, ERR_ARG, "%s: the buffer has %d such images, %d were asked for", path,
                     have, n);
    return rc;
}

static int from_centres(Sampler *s, int n, float *images, int *class_of, Err *err) {
    const size_t dim = tensor_len(&s->m->net.act[0]);
    int have = 0;
    if (!s->m->mean) return err_set(err, ERR_DATA, "%s: carries no class centres", s->m->path);
    for (int c = 0; c < s->m->n_group && have < n; c++) {
        if (!s->wanted[c]) continue;
        memcpy(images + (size_t)have * dim, s->m->mean + (size_t)c * dim, dim * sizeof *images);
        class_of[have++] = c;
    }
    return have == n
               ? 0
               : err_set(err, ERR_ARG, "there are %d class centres, %d were asked for", have, n);
}

typedef struct {
    double score;
    int at;
} Ranked;

static int by_score(const void *a, const void *b) {
    const double x = ((const Ranked *)a)->score, y = ((const Ranked *)b)->score;
    return (x < y) - (x > y);
}

// Keeps the n highest (or lowest) of `drawn` by log p(x) or p(y|x), y being what it was started as or looks like.
static int rank(Sampler *s, int drawn, const float *all, const int *cls, int n, float *images,
                int *class_of, Err *err) {
    const size_t dim = tensor_len(&s->m->net.act[0]);
    const int C = s->m->net.spec.classes;
    float *logits = malloc((size_t)drawn * (size_t)C * sizeof *logits);
    Ranked *r = malloc((size_t)drawn * sizeof *r);
    int rc = logits && r ? scorer_images(&s->m->scorer, all, drawn, logits, err)
                         : err_set(err, ERR_MEM, "out of memory for samples");
    for (int i = 0; !rc && i < drawn; i++) {
        const float *z = logits + (size_t)i * (size_t)C;
        const double lse = logsumexp(z, C);
        double top = (double)z[cls[i] >= 0 ? cls[i] : 0];
        for (int c = 0; cls[i] < 0 && c < C; c++) top = fmax(top, (double)z[c]);
        r[i] = (Ranked){ s->cfg.by == BY_PX ? lse : top - lse, i };
    }
    if (!rc) qsort(r, (size_t)drawn, sizeof *r, by_score);
    for (int i = 0; !rc && i < n; i++) {
        const int at = r[s->cfg.worst ? drawn - 1 - i : i].at;
        memcpy(images + (size_t)i * dim, all + (size_t)at * dim, dim * sizeof *images);
        class_of[i] = cls[at];
    }
    free(logits);
    free(r);
    return rc;
}

// The run's options, changed by what the user gave for this call.
static int options_of(Sampler *s, const Config *use, Err *err) {
    s->cfg = s->m->cfg;
    s->cfg.steps = FRESH_STEPS;
    config_take(&s->cfg, use);
    if (s->cfg.best && s->cfg.worst)
        return err_set(err, ERR_ARG, "--best and --worst: one at a time");
    return choose_classes(s, err);
}

int model_sample(Model *m, const Config *use, const Events *ev, int n, float *images, int *class_of,
                 Err *err) {
    Sampler *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, ERR_MEM, "out of memory for samples");
    s->m = m;
    s->ev = ev;
    int rc = options_of(s, use, err);
    const int pick = s->cfg.best || s->cfg.worst, drawn = pick ? s->cfg.count : n;
    const size_t dim = tensor_len(&m->net.act[0]);
    float *all = images;
    int *cls = calloc((size_t)drawn + 1, sizeof *cls);
    if (!rc && drawn < n)
        rc = err_set(err, ERR_ARG, "of %d images (--count) the %d best cannot be kept", drawn, n);
    if (pick && !rc) all = malloc((size_t)drawn * dim * sizeof *all);
    if (!rc && (!all || !cls)) rc = err_set(err, ERR_MEM, "out of memory for %d samples", drawn);
    const int chains = s->cfg.from == FROM_FRESH || s->cfg.from == FROM_STARTS;
    if (!rc && chains) rc = sampler_open(s, err);
    if (!rc && chains)
        rc = from_chains(s, s->cfg.from == FROM_STARTS ? 0 : s->cfg.steps, drawn, all, cls, err);
    if (!rc && s->cfg.from == FROM_BUFFER) rc = from_buffer(s, drawn, all, cls, err);
    if (!rc && s->cfg.from == FROM_CENTRES) rc = from_centres(s, drawn, all, cls, err);
    if (!rc && pick) rc = rank(s, drawn, all, cls, n, images, cls, err);
    if (!rc && class_of) memcpy(class_of, cls, (size_t)n * sizeof *cls);
    if (pick) free(all);
    free(cls);
    sampler_close(s);
    free(s);
    return rc;
}
