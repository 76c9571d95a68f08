// ckpt.c - see ckpt.h.
#include "run/ckpt.h"
#include "base/safetensors.h"
#include "base/torch_file.h"
#include "jem/metrics.h"
#include "run/model_file.h"
#include "run/weights_file.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- complete states ----------------------------------------------------------------------------

static void meta_number(StWriter *w, const char *key, double v) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    st_meta_add(w, key, text);
}

static int meta_read(const St *st, const char *key, double *v, Err *err) {
    const char *text = st_meta(st, key);
    char *end;
    if (!text)
        return err_set(err, ERR_DATA, "%s: no '%s': not a checkpoint to resume from", st->path,
                       key);
    *v = strtod(text, &end);
    return *end || end == text ? err_set(err, ERR_DATA, "%s: '%s' is '%.40s', expected a number",
                                         st->path, key, text)
                               : 0;
}

typedef struct {                    // the numbers of a state, as its metadata has them
    double step, drawn, gap, ce, ce_low, climb, over_margin, chain_steps, auroc, px_began;
    double attempt, lr_scale, sam_boost, seconds, best_accuracy, best_step, validated;
    double diverged_step, diverged_in_a_row;
} StateNumbers;

typedef enum {
    ALWAYS,
    OPTIONAL,                       // files of earlier versions do not have it: see load_state
    IF_CHAINS_GROW,
} Presence;

static const struct {
    const char *key;
    size_t      at;                 // in StateNumbers
    Presence    presence;
    double      end;                // it is a count from 0 to below this; 0: any number
} NUMBERS[] = {
    { "step", offsetof(StateNumbers, step), ALWAYS, 4e9 },
    { "drawn", offsetof(StateNumbers, drawn), ALWAYS, 4.2e9 },
    { "gap", offsetof(StateNumbers, gap), ALWAYS, 0 },
    { "ce", offsetof(StateNumbers, ce), ALWAYS, 0 },
    { "ce_low", offsetof(StateNumbers, ce_low), ALWAYS, 0 },
    { "climb", offsetof(StateNumbers, climb), OPTIONAL, 0 },
    { "behind", offsetof(StateNumbers, over_margin), OPTIONAL, 0 },
    { "chain_steps", offsetof(StateNumbers, chain_steps), IF_CHAINS_GROW, 0 },
    { "auroc", offsetof(StateNumbers, auroc), IF_CHAINS_GROW, 0 },
    { "px_began", offsetof(StateNumbers, px_began), OPTIONAL, 4e9 },
    { "attempt", offsetof(StateNumbers, attempt), ALWAYS, 1001 },
    { "lr_scale", offsetof(StateNumbers, lr_scale), ALWAYS, 0 },
    { "sam_boost", offsetof(StateNumbers, sam_boost), OPTIONAL, 5 },
    { "seconds", offsetof(StateNumbers, seconds), ALWAYS, 0 },
    { "best_accuracy", offsetof(StateNumbers, best_accuracy), ALWAYS, 0 },
    { "best_step", offsetof(StateNumbers, best_step), ALWAYS, 4e9 },
    { "judged", offsetof(StateNumbers, validated), OPTIONAL, 4e9 },
    { "diverged_step", offsetof(StateNumbers, diverged_step), OPTIONAL, 4e9 },
    { "diverged_in_a_row", offsetof(StateNumbers, diverged_in_a_row), OPTIONAL, 1001 },
};
enum { N_NUMBERS = sizeof NUMBERS / sizeof *NUMBERS };

static double *number_at(StateNumbers *n, int i) {
    return (double *)(void *)((char *)n + NUMBERS[i].at);
}

static StateNumbers state_numbers(Trainer *t, const RunState *r) {
    const StepState now = trainer_state(t);
    return (StateNumbers){ .step = (double)t->step,
                           .drawn = t->replay.drawn,
                           .gap = (double)now.gap,
                           .ce = (double)now.ce,
                           .ce_low = (double)now.ce_low,
                           .climb = (double)now.climb,
                           .over_margin = now.over_margin,
                           .chain_steps = t->chain.steps,
                           .auroc = t->length.auroc,
                           .px_began = (double)t->px_began,
                           .attempt = r->attempt,
                           .lr_scale = r->lr_scale,
                           .sam_boost = t->sam_boost,
                           .seconds = r->seconds,
                           .best_accuracy = r->best_accuracy,
                           .best_step = (double)r->best_step,
                           .validated = (double)r->validated,
                           .diverged_step = (double)r->diverged_step,
                           .diverged_in_a_row = r->diverged_in_a_row };
}

// Options of the run, as its files keep them: whether this call resumed it is none.
static char *options_of_run(const Config *c) {
    Config run = *c;
    run.resume = 0;
    return config_dump(&run, CMD_TRAIN);
}

static void declare_state(StWriter *w, Trainer *t, const RunState *r, StateNumbers *numbers,
                          const char *options) {
    for (int i = 0; i < N_NUMBERS; i++)
        if (NUMBERS[i].presence != IF_CHAINS_GROW || t->length.most)
            meta_number(w, NUMBERS[i].key, *number_at(numbers, i));
    meta_number(w, "channels", t->net.spec.channels);
    meta_number(w, "side", t->net.spec.side);
    if (r->images[0]) st_meta_add(w, "images", r->images);
    st_meta_add(w, "format", "jempp state 1");
    st_meta_add(w, "options", options);
    st_meta_add(w, "tuning", t->dev->be.tuning(t->dev));
    StatePart part[N_STATE_PART];
    trainer_parts(t, part);
    declare_counters(w, &t->net, "");
    declare_net(w, &t->net, "", ST_F32);
    for (int i = 0; i < N_STATE_PART; i++)
        if (part[i].p && part[i].n)
            st_declare(w, part[i].name, ST_F32, 1, &(uint64_t){ part[i].n });
}

// ---- snapshots ---------------------------------------------------------------------------------

// Everything is declared: from here on the writer's data stays in s's memory.
static int snapshot_hold(Snapshot *s, Dev *dev, Err *err) {
    const size_t bytes = (size_t)st_bytes(&s->w);
    if (s->w.w.failed) return snapshot_write(s, err);     // says why
    if (!s->data || bytes > s->room) {
        snapshot_free(s, dev);
        if (memory_check(bytes, "a checkpoint", err)) return -1;
        s->data = dev->be.host_alloc(dev, bytes);
        if (!s->data)
            return err_set(err, ERR_MEM, "out of memory: %.2f GiB for a checkpoint",
                           (double)bytes / 0x1p30);
        s->room = bytes;
    }
    st_hold(&s->w, s->data);
    return 0;
}

void snapshot_free(Snapshot *s, Dev *dev) {
    if (s->data) dev->be.host_free(dev, s->data);
    s->data = NULL;
    s->room = 0;
}

void snapshot_drop(void *snapshot) {
    Snapshot *s = snapshot;
    if (s->open) st_cancel(&s->w);
    s->open = 0;
}

int snapshot_write(void *snapshot, Err *err) {
    Snapshot *s = snapshot;
    s->open = 0;
    return st_finish(&s->w, err);
}

int ckpt_take(Snapshot *s, Trainer *t, const RunState *r, const char *path, const char *prev,
              Err *err) {
    char *options = options_of_run(&t->cfg);
    StateNumbers numbers = state_numbers(t, r);
    int rc = options ? 0 : err_set(err, ERR_MEM, "out of memory for a checkpoint");
    if (!rc) {
        s->w = st_create(path);
        s->open = 1;
        if (prev) writer_keep(&s->w.w, prev);
        declare_state(&s->w, t, r, &numbers, options);
        rc = snapshot_hold(s, t->dev, err);
    }
    if (!rc) {
        const DeviceOut out = { .w = &s->w, .dev = t->dev };
        StatePart part[N_STATE_PART];
        write_counters(&s->w, &t->net);
        write_net(&out, &t->net);
        trainer_parts(t, part);
        for (int i = 0; i < N_STATE_PART; i++)
            if (part[i].p && part[i].n) write_device(&out, part[i].p, part[i].n);
        rc = dev_check(t->dev, err);
    }
    free(options);
    if (rc) snapshot_drop(s);
    return rc;
}

int run_options(const St *st, Config *c, Err *err) {
    const char *text = st_meta(st, "options");
    config_defaults(c);
    if (!text) return 0;
    return config_stored(c, text, st->path, err) || config_only(c, CMD_TRAIN, st->path, err);
}

int ckpt_options(const char *path, Config *c, char **tuning, Err *err) {
    St st;
    if (st_open(&st, path, err)) return -1;
    const char *choices = st_meta(&st, "tuning"), *text = st_meta(&st, "options");
    config_defaults(c);
    const int rc =
        text ? config_text(c, text, strlen(text), path, err) || config_only(c, CMD_TRAIN, path, err)
             : err_set(err, ERR_DATA, "%s: has no 'options': not written by jempp", path);
    config_of_run(c);
    if (tuning) *tuning = !rc && choices ? strdup(choices) : NULL;
    st_close(&st);
    return rc;
}

static int read_numbers(StateNumbers *n, const Trainer *t, const St *st, Err *err) {
    for (int i = 0; i < N_NUMBERS; i++) {
        const Presence p = NUMBERS[i].presence;
        if (p == IF_CHAINS_GROW && !t->length.most) continue;
        if (p == OPTIONAL && !st_meta(st, NUMBERS[i].key)) continue;
        if (meta_read(st, NUMBERS[i].key, number_at(n, i), err)) return -1;
    }
    return 0;
}

static int check_numbers(StateNumbers *n, const Trainer *t, const St *st, Err *err) {
    if (t->length.most && !(n->chain_steps >= t->cfg.steps && n->chain_steps <= t->length.most &&
                            n->auroc >= 0 && n->auroc <= 1))
        return err_set(
            err, ERR_DATA,
            "%s: chain_steps %g, auroc %g: expected %d to %d steps, an AUROC from 0 to 1", st->path,
            n->chain_steps, n->auroc, t->cfg.steps, t->length.most);
    if (!(n->px_began >= 0 && n->px_began <= n->step))
        return err_set(err, ERR_DATA, "%s: px_began %g: expected 0 to step %g", st->path,
                       n->px_began, n->step);
    for (int i = 0; i < N_NUMBERS; i++) {
        const double v = *number_at(n, i);
        if (NUMBERS[i].end > 0 && !(v >= 0 && v < NUMBERS[i].end))
            return err_set(
                err, ERR_DATA,
                "%s: step %g, best step %g, validated step %g, draws %g, attempt %g, diverged at "
                "step %g, %g times in a row, sam_boost %g: out of range",
                st->path, n->step, n->best_step, n->validated, n->drawn, n->attempt,
                n->diverged_step, n->diverged_in_a_row, n->sam_boost);
    }
    return 0;
}

static void restore_numbers(Trainer *t, RunState *r, const StateNumbers *n) {
    *r = (RunState){ .attempt = (int)n->attempt,
                     .lr_scale = n->lr_scale,
                     .seconds = n->seconds,
                     .best_accuracy = n->best_accuracy,
                     .best_step = (uint64_t)n->best_step,
                     .validated = (uint64_t)n->validated,
                     .diverged_step = (uint64_t)n->diverged_step,
                     .diverged_in_a_row = (int)n->diverged_in_a_row };
    t->step = (uint64_t)n->step;
    t->lr_scale = r->lr_scale;
    t->sam_boost = n->sam_boost;
    t->px_began = (uint64_t)n->px_began;
    trainer_seed(t, r->attempt);
    if (has_chains(t)) replay_rewind(&t->replay, t->seed, t->step, (uint32_t)n->drawn);
    if (t->length.most) {
        trainer_chain_steps(t, (int)n->chain_steps);
        t->length.auroc = n->auroc;
    }
    const StepState now = { .in.step = (uint32_t)t->step,
                            .gap = (real)n->gap,
                            .ce = (real)n->ce,
                            .ce_low = (real)n->ce_low,
                            .climb = (real)n->climb,
                            .over_margin = n->over_margin != 0 };
    t->dev->be.copy_in(t->dev, t->state, &now, sizeof now);
}

static int load_state(Trainer *t, RunState *r, St *st, Err *err) {
    StateNumbers n = { .climb = 1 };        // as in a healthy run; the rest of OPTIONAL: 0
    StatePart part[N_STATE_PART];
    if (read_numbers(&n, t, st, err) || check_numbers(&n, t, st, err) ||
        model_weights(st, &t->net, err))
        return -1;
    trainer_parts(t, part);
    for (int i = 0; i < N_STATE_PART; i++)
        if (part[i].p && part[i].n &&
            read_device(st, part[i].name, t->dev, part[i].p, part[i].n, part[i].most, err))
            return -1;
    restore_numbers(t, r, &n);
    const char *images = st_meta(st, "images");
    snprintf(r->images, sizeof r->images, "%s", images ? images : "");
    return dev_check(t->dev, err);
}

int ckpt_load(Trainer *t, RunState *r, const char *path, Err *err) {
    St st;
    if (st_open(&st, path, err)) return -1;
    const int rc = load_state(t, r, &st, err);
    st_close(&st);
    return rc;
}

// ---- models without the state of a run --------------------------------------------------------

static char *join_names(const char **name, int n) {
    size_t len = 1;
    for (int i = 0; i < n; i++) len += strlen(name[i]) + 1;
    char *text = calloc(len, 1);
    for (int i = 0; text && i < n; i++) {
        if (i) strcat(text, "\n");
        strcat(text, name[i]);
    }
    return text;
}

static void meta_percentiles(StWriter *w, const float *v) {
    char text[N_PERCENTILE * 16] = "";
    size_t at = 0;
    for (int k = 0; k < N_PERCENTILE; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.7g", k ? " " : "", (double)v[k]);
    st_meta_add(w, "log_px_percentiles", text);
}

static void declare_card(StWriter *w, const Net *net, const ModelCard *card, const char *options,
                         const char *names) {
    st_meta_add(w, "format", "jempp model 1");
    st_meta_add(w, "options", options);
    st_meta_add(w, "classes", names);
    meta_number(w, "channels", net->spec.channels);
    meta_number(w, "side", net->spec.side);
    if (!isnan(card->threshold)) meta_number(w, "threshold", card->threshold);
    if (card->percentile) meta_percentiles(w, card->percentile);
    if (card->temperature > 0) meta_number(w, "temperature", card->temperature);
    if (card->images && card->images[0]) st_meta_add(w, "images", card->images);
}

// Chain starts need no more than fp16.
static void declare_starts(StWriter *w, const StartsFile *s, uint64_t dim) {
    const uint64_t groups = (uint64_t)s->n_group, rank = (uint64_t)s->rank,
                   kept = (uint64_t)s->kept, len = starts_lower_len(s->kept);
    if (!s->mean) return;
    st_declare(w, "start.mean", ST_F16, 2, (uint64_t[]){ groups, dim });
    if (s->factor) st_declare(w, "start.factor", ST_F16, 3, (uint64_t[]){ groups, rank, dim });
    if (!kept) return;
    st_declare(w, "start.spectrum", ST_F16, 2, (uint64_t[]){ groups, dim });
    st_declare(w, "start.index", ST_I32, 1, (uint64_t[]){ kept });
    st_declare(w, "start.lower", ST_I8, 2, (uint64_t[]){ groups, len });
}

static void write_starts(StWriter *w, const StartsFile *s, size_t dim) {
    const size_t groups = (size_t)s->n_group, kept = (size_t)s->kept;
    if (!s->mean) return;
    write_half(w, s->mean, groups * dim);
    if (s->factor) write_half(w, s->factor, groups * (size_t)s->rank * dim);
    if (!kept) return;
    write_half(w, s->spectrum, groups * dim);
    st_write(w, s->index, kept * sizeof *s->index);
    st_write(w, s->lower, groups * starts_lower_len(s->kept));
}

typedef struct {
    Net *net;
    const ModelCard *card;
    int  half, torch;                // fp16; PyTorch's format
} ModelOut;

// Opens *w and declares everything; nonzero: it was not opened.
static int declare_model(StWriter *w, const ModelOut *m, const char *path, Err *err) {
    const Net *net = m->net;
    const char *in = m->torch ? "model_state_dict/" : "";
    const StType type = m->half ? ST_F16 : ST_F32;
    char *options = options_of_run(m->card->cfg),
         *names = join_names(m->card->class_name, net->spec.classes);
    const int rc = options && names ? 0 : err_set(err, ERR_MEM, "out of memory for a model");
    if (!rc) {
        *w = m->torch ? torch_create(path) : st_create(path);
        declare_card(w, net, m->card, options, names);
        declare_counters(w, net, in);
        declare_net(w, net, in, type);
        if (m->torch) torch_declare_classes(w, net, type);
        declare_starts(w, &m->card->starts, tensor_len(&net->act[0]));
    }
    free(options);
    free(names);
    return rc;
}

// Everything in the order of declaration.
static int write_model(const DeviceOut *o, const ModelOut *m, Err *err) {
    write_counters(o->w, m->net);
    write_net(o, m->net);
    if (m->torch) torch_write_classes(o->w, m->net, m->half ? ST_F16 : ST_F32);
    write_starts(o->w, &m->card->starts, tensor_len(&m->net->act[0]));
    return dev_check(m->net->dev, err);
}

int model_save(Net *net, const ModelCard *card, int half, const char *path, Err *err) {
    StWriter w = { 0 };
    ModelFormat format;
    if ((half && net_fits_half(net, err)) || model_format(path, &format, err)) return -1;
    const ModelOut m = { net, card, half, format == FILE_TORCH };
    real *room = malloc(DEVICE_OUT_ROOM * sizeof *room);
    if (!room) return err_set(err, ERR_MEM, "out of memory for a model");
    int rc = declare_model(&w, &m, path, err);
    if (!rc) rc = write_model(&(DeviceOut){ &w, net->dev, half, room }, &m, err);
    free(room);
    if (!rc) return st_finish(&w, err);
    if (w.format) st_cancel(&w);
    return rc;
}

int model_take(Snapshot *s, Net *net, const ModelCard *card, const char *path, Err *err) {
    ModelFormat format;
    if (model_format(path, &format, err)) return -1;
    const ModelOut m = { net, card, 0, format == FILE_TORCH };
    int rc = declare_model(&s->w, &m, path, err);
    if (rc) return rc;
    s->open = 1;
    rc = snapshot_hold(s, net->dev, err);
    if (!rc) rc = write_model(&(DeviceOut){ &s->w, net->dev, 0, NULL }, &m, err);
    if (rc) snapshot_drop(s);
    return rc;
}
