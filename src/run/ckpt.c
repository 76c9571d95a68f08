// ckpt.c - see ckpt.h.
#include "run/ckpt.h"
#include "base/torch_file.h"
#include "run/model_file.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const StType real_type = sizeof(real) == 8 ? ST_F64 : ST_F32;

// ---- weights by name ---------------------------------------------------------------------------

// `in` stands before every name: a group of PyTorch's files, or "".
static void declare(StWriter *w, const char *in, const char *name, const char *part, StType type,
                    int rank, const uint64_t *shape) {
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", in, name, part);
    st_declare(w, full, type, rank, shape);
}

static void declare_net(StWriter *w, const Net *net, const char *in, StType type) {
    for (int i = 0; i < net->n_par; i++) {
        uint64_t shape[4];
        for (int k = 0; k < net->par[i].rank; k++) shape[k] = (uint64_t)net->par[i].dim[k];
        declare(w, in, net->par[i].name, "", type, net->par[i].rank, shape);
    }
    for (int i = 0; i < net->n_stat; i++) {
        const uint64_t len = net->stat[i].len;
        declare(w, in, net->stat[i].name, ".running_mean", type, 1, &len);
        declare(w, in, net->stat[i].name, ".running_var", type, 1, &len);
    }
}

// The counters come first: they are 8 bytes wide, and tensors lie without gaps.
static void declare_counters(StWriter *w, const Net *net, const char *in) {
    for (int i = 0; i < net->n_stat; i++)
        declare(w, in, net->stat[i].name, ".num_batches_tracked", ST_I64, 0, NULL);
}

static void write_counters(StWriter *w, const Net *net) {
    const int64_t batches = (int64_t)net->batches;
    for (int i = 0; i < net->n_stat; i++) st_write(w, &batches, sizeof batches);
}

static void write_half(StWriter *w, const real *v, size_t n) {
    uint16_t h[1024];
    for (size_t i = 0; i < n; i += 1024) {
        const size_t m = n - i < 1024 ? n - i : 1024;
        for (size_t k = 0; k < m; k++) h[k] = f32_to_f16((float)v[i + k]);
        st_write(w, h, m * sizeof *h);
    }
}

// A device array: at once to where a writer holds its data, else a piece at a time through `room`
// (n_room reals).
static void write_device(StWriter *w, Dev *dev, const real *p, size_t n, int half, real *room,
                         size_t n_room) {
    if (w->held && !half) {
        void *to = st_next(w, n * sizeof *p);
        if (to) dev->be.copy_out(dev, to, p, n * sizeof *p);
        return;
    }
    for (size_t i = 0; i < n; i += n_room) {
        const size_t m = n - i < n_room ? n - i : n_room;
        dev->be.copy_out(dev, room, p + i, m * sizeof *room);
        if (half) write_half(w, room, m);
        else st_write(w, room, m * sizeof *room);
    }
}

static void write_net(StWriter *w, Net *net, const real *p, const real *state, int half, real *room,
                      size_t n_room) {
    for (int i = 0; i < net->n_par; i++)
        write_device(w, net->dev, p + net->par[i].off, net->par[i].len, half, room, n_room);
    for (int i = 0; i < 2 * net->n_stat; i++) { // mean, variance, mean, ...
        const Stat *s = &net->stat[i / 2];
        write_device(w, net->dev, state + s->off + (i % 2 ? s->len : 0), s->len, half, room,
                     n_room);
    }
}

// Larger numbers would become infinity.
static int fits_half(Dev *dev, const char *name, const real *p, size_t n, Err *err) {
    real *v = malloc((n + 1) * sizeof *v);
    if (!v) return err_set(err, ERR_MEM, "out of memory for '%s'", name);
    int rc = 0;
    dev->be.copy_out(dev, v, p, n * sizeof *v);
    for (size_t i = 0; !rc && i < n; i++)
        if (!((f32_to_f16((float)v[i]) & 0x7fff) < 0x7c00))
            rc = err_set(err, ERR_ARG,
                         "--half: '%s' has %g at element %zu, and 16-bit numbers end at 65504: "
                         "expected a model with 32-bit weights, without --half",
                         name, (double)v[i], i);
    free(v);
    return rc;
}

static int net_fits_half(const Net *net, const real *w, const real *state, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (fits_half(net->dev, net->par[i].name, w + net->par[i].off, net->par[i].len, err))
            return -1;
    for (int i = 0; i < 2 * net->n_stat; i++) {
        const Stat *s = &net->stat[i / 2];
        char name[96];
        snprintf(name, sizeof name, "%s.running_%s", s->name, i % 2 ? "var" : "mean");
        if (fits_half(net->dev, name, state + s->off + (i % 2 ? s->len : 0), s->len, err))
            return -1;
    }
    return 0;
}

// The tensor of that name, if it has n numbers.
static const StTensor *find_numbers(const St *st, const char *name, size_t n, Err *err) {
    const StTensor *t = st_find(st, name);
    const size_t found = t ? (size_t)(t->bytes / st_type_size(t->type)) : 0;
    if (t && found == n) return t;
    if (!t) err_set(err, ERR_DATA, "%s: no tensor '%s'", st->path, name);
    else
        err_set(err, ERR_DATA, "%s: tensor %s: %zu elements, expected %zu", st->path, name, found,
                n);
    return NULL;
}

// Weights with one flipped bit would give NaN for every image, with no word about why.
static int finite_numbers(const St *st, const char *name, const real *v, size_t n, Err *err) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return err_set(err, ERR_DATA,
                           "%s: tensor '%s' has %s at element %zu: the file is damaged", st->path,
                           name, isnan(v[i]) ? "NaN" : "infinity", i);
    return 0;
}

static int read_device(St *st, const char *name, Dev *dev, real *dst, size_t n, Err *err) {
    const StTensor *t = find_numbers(st, name, n, err);
    if (!t) return -1;
    real *v = malloc((n + 1) * sizeof *v);
    if (!v) return err_set(err, ERR_MEM, "out of memory for '%s'", name);
    int rc = sizeof(real) == 8 ? st_read_f64(st, t, (double *)(void *)v, n, err)
                               : st_read_f32(st, t, (float *)(void *)v, n, err);
    if (!rc) rc = finite_numbers(st, name, v, n, err);
    if (!rc) dev->be.copy_in(dev, dst, v, n * sizeof *v);
    dev->be.sync(dev);
    free(v);
    return rc ? rc : dev_check(dev, err);
}

int model_complete(const St *st, const Net *net, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (!find_numbers(st, net->par[i].name, net->par[i].len, err)) return -1;
    for (int i = 0; i < 2 * net->n_stat; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.running_%s", net->stat[i / 2].name, i % 2 ? "var" : "mean");
        if (!st_find(st, name))
            return err_set(err, ERR_DATA,
                           "%s: no tensor '%s': batch normalisation needs running statistics",
                           st->path, name);
        if (!find_numbers(st, name, net->stat[i / 2].len, err)) return -1;
    }
    return 0;
}

int model_weights(St *st, Net *net, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (read_device(st, net->par[i].name, net->dev, net->w + net->par[i].off, net->par[i].len,
                        err))
            return -1;
    for (int i = 0; i < net->n_stat; i++) {
        const Stat *s = &net->stat[i];
        char name[96];
        snprintf(name, sizeof name, "%s.running_mean", s->name);
        if (read_device(st, name, net->dev, net->state + s->off, s->len, err)) return -1;
        snprintf(name, sizeof name, "%s.running_var", s->name);
        if (read_device(st, name, net->dev, net->state + s->off + s->len, s->len, err)) return -1;
        snprintf(name, sizeof name, "%s.num_batches_tracked", s->name);
        const StTensor *t = st_find(st, name);
        int64_t batches = 0;
        if (t && t->type == ST_I64 && st_read_raw(st, t, &batches, sizeof batches, err)) return -1;
        net->batches = batches > 0 ? (uint64_t)batches : 0;
    }
    net_changed(net);
    return dev_check(net->dev, err);
}

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

static void declare_state(StWriter *w, Trainer *t, const RunState *r, const StepState *now,
                          const char *options) {
    meta_number(w, "step", (double)t->step);
    meta_number(w, "drawn", t->replay.drawn);
    meta_number(w, "gap", (double)now->gap);
    meta_number(w, "ce", (double)now->ce);
    meta_number(w, "ce_low", (double)now->ce_low);
    meta_number(w, "behind", now->over_margin);
    if (t->length.most) {
        meta_number(w, "chain_steps", t->chain.steps);
        meta_number(w, "auroc", t->length.auroc);
    }
    meta_number(w, "attempt", r->attempt);
    meta_number(w, "lr_scale", r->lr_scale);
    meta_number(w, "seconds", r->seconds);
    meta_number(w, "best_accuracy", r->best_accuracy);
    meta_number(w, "best_step", (double)r->best_step);
    meta_number(w, "judged", (double)r->validated);
    meta_number(w, "diverged_step", (double)r->diverged_step);
    meta_number(w, "diverged_in_a_row", r->diverged_in_a_row);
    meta_number(w, "channels", t->net.spec.channels);
    meta_number(w, "side", t->net.spec.side);
    st_meta_add(w, "format", "jempp state 1");
    st_meta_add(w, "options", options);
    st_meta_add(w, "tuning", t->dev->be.tuning(t->dev));
    StatePart part[N_STATE_PART];
    trainer_parts(t, part);
    declare_counters(w, &t->net, "");
    declare_net(w, &t->net, "", real_type);
    for (int i = 0; i < N_STATE_PART; i++)
        if (part[i].p && part[i].n)
            st_declare(w, part[i].name, real_type, 1, &(uint64_t){ part[i].n });
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

// `path` from the file that is complete on disk; the checkpoint before it becomes s->prev. At every
// moment a good one exists under one of the two names.
static int put_in_place(const Snapshot *s, Err *err) {
    if (s->prev[0] && file_exists(s->path) && rename(s->path, s->prev))
        return err_set(err, ERR_IO, "%s: cannot rename: %s", s->path, strerror(errno));
    if (rename(s->fresh, s->path))
        return err_set(err, ERR_IO, "%s: cannot rename: %s", s->fresh, strerror(errno));
    return 0;
}

int snapshot_write(void *snapshot, Err *err) {
    Snapshot *s = snapshot;
    s->open = 0;
    return st_finish(&s->w, err) || (s->fresh[0] && put_in_place(s, err)) ? -1 : 0;
}

static int name_snapshot(Snapshot *s, const char *path, const char *prev, Err *err) {
    const int n = snprintf(s->path, sizeof s->path, "%s", path),
              m = snprintf(s->prev, sizeof s->prev, "%s", prev ? prev : ""),
              k = snprintf(s->fresh, sizeof s->fresh, "%s.new", path);
    const int most = (int)sizeof s->path;
    return n < most && m < most && k < most ? 0
                                            : err_set(err, ERR_ARG, "%s: file name too long", path);
}

int ckpt_take(Snapshot *s, Trainer *t, const RunState *r, const char *path, const char *prev,
              Err *err) {
    char *options = config_dump(&t->cfg, CMD_TRAIN);
    const StepState now = trainer_state(t);
    int rc = options ? 0 : err_set(err, ERR_MEM, "out of memory for a checkpoint");
    if (!rc) rc = name_snapshot(s, path, prev, err);
    if (!rc) {
        s->w = st_create(s->fresh);
        s->open = 1;
        declare_state(&s->w, t, r, &now, options);
        rc = snapshot_hold(s, t->dev, err);
    }
    if (!rc) {
        write_counters(&s->w, &t->net);
        write_net(&s->w, &t->net, t->net.w, t->net.state, 0, NULL, 0);
        StatePart part[N_STATE_PART];
        trainer_parts(t, part);
        for (int i = 0; i < N_STATE_PART; i++)
            if (part[i].p && part[i].n)
                write_device(&s->w, t->dev, part[i].p, part[i].n, 0, NULL, 0);
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
    return config_text(c, text, strlen(text), st->path, err) ||
           config_only(c, CMD_TRAIN, st->path, err);
}

int ckpt_options(const char *path, Config *c, char **tuning, Err *err) {
    St st;
    if (st_open(&st, path, err)) return -1;
    const char *choices = st_meta(&st, "tuning");
    const int rc = st_meta(&st, "options")
                       ? run_options(&st, c, err)
                       : err_set(err, ERR_DATA, "%s: has no 'options': not written by jempp", path);
    if (tuning) *tuning = choices ? strdup(choices) : NULL;
    st_close(&st);
    return rc;
}

static int load_chain_length(Trainer *t, const St *st, Err *err) {
    double steps, auroc;
    if (!t->length.most) return 0;
    if (meta_read(st, "chain_steps", &steps, err) || meta_read(st, "auroc", &auroc, err)) return -1;
    if (!(steps >= t->cfg.steps && steps <= t->length.most && auroc >= 0 && auroc <= 1))
        return err_set(
            err, ERR_DATA,
            "%s: chain_steps %g, auroc %g: expected %d to %d steps, an AUROC from 0 to 1", st->path,
            steps, auroc, t->cfg.steps, t->length.most);
    trainer_chain_steps(t, (int)steps);
    t->length.auroc = auroc;
    return 0;
}

static int load_state(Trainer *t, RunState *r, St *st, Err *err) {
    double step, drawn, gap, ce, ce_low, attempt, best_step, validated = 0, behind = 0;
    double diverged_step = 0, in_a_row = 0;
    if (meta_read(st, "step", &step, err) || meta_read(st, "drawn", &drawn, err) ||
        meta_read(st, "gap", &gap, err) || meta_read(st, "ce", &ce, err) ||
        meta_read(st, "ce_low", &ce_low, err) || meta_read(st, "attempt", &attempt, err) ||
        meta_read(st, "lr_scale", &r->lr_scale, err) ||
        meta_read(st, "seconds", &r->seconds, err) ||
        meta_read(st, "best_accuracy", &r->best_accuracy, err) ||
        meta_read(st, "best_step", &best_step, err) ||
        (st_meta(st, "judged") && meta_read(st, "judged", &validated, err)) ||
        (st_meta(st, "behind") && meta_read(st, "behind", &behind, err)) ||
        (st_meta(st, "diverged_step") && meta_read(st, "diverged_step", &diverged_step, err)) ||
        (st_meta(st, "diverged_in_a_row") && meta_read(st, "diverged_in_a_row", &in_a_row, err)) ||
        load_chain_length(t, st, err) || model_weights(st, &t->net, err))
        return -1;
    if (!(step >= 0 && step < 4e9 && drawn >= 0 && drawn < 4.2e9 && attempt >= 0 &&
          attempt <= 1000 && best_step >= 0 && best_step < 4e9 && validated >= 0 &&
          validated < 4e9 && diverged_step >= 0 && diverged_step < 4e9 && in_a_row >= 0 &&
          in_a_row <= 1000))
        return err_set(
            err, ERR_DATA,
            "%s: step %g, best step %g, validated step %g, draws %g, attempt %g, diverged at step "
            "%g, %g times in a row: out of range",
            st->path, step, best_step, validated, drawn, attempt, diverged_step, in_a_row);
    StatePart part[N_STATE_PART];
    trainer_parts(t, part);
    for (int i = 0; i < N_STATE_PART; i++)
        if (part[i].p && part[i].n &&
            read_device(st, part[i].name, t->dev, part[i].p, part[i].n, err))
            return -1;
    r->attempt = (int)attempt;
    r->best_step = (uint64_t)best_step;
    r->validated = (uint64_t)validated;
    r->diverged_step = (uint64_t)diverged_step;
    r->diverged_in_a_row = (int)in_a_row;
    t->step = (uint64_t)step;
    t->lr_scale = r->lr_scale;
    trainer_seed(t, r->attempt);
    if (has_chains(t)) replay_rewind(&t->replay, t->seed, t->step, (uint32_t)drawn);
    const StepState now = { .in.step = (uint32_t)t->step,
                            .gap = (real)gap,
                            .ce = (real)ce,
                            .ce_low = (real)ce_low,
                            .over_margin = behind != 0 };
    t->dev->be.copy_in(t->dev, t->state, &now, sizeof now);
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

static void write_floats(StWriter *w, const float *v, size_t n) {
    uint16_t h[1024]; // chain starts need no more than fp16
    for (size_t i = 0; i < n; i += 1024) {
        const size_t m = n - i < 1024 ? n - i : 1024;
        for (size_t k = 0; k < m; k++) h[k] = f32_to_f16(v[i + k]);
        st_write(w, h, m * sizeof *h);
    }
}

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
}

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
    write_floats(w, s->mean, groups * dim);
    if (s->factor) write_floats(w, s->factor, groups * (size_t)s->rank * dim);
    if (!kept) return;
    write_floats(w, s->spectrum, groups * dim);
    st_write(w, s->index, kept * sizeof *s->index);
    st_write(w, s->lower, groups * starts_lower_len(s->kept));
}

// Weights and card through the writer that *out becomes; s: held in its memory, else in the file.
static int write_model(StWriter *out, Snapshot *s, Net *net, const real *w, const real *state,
                       const ModelCard *card, int half, const char *path, Err *err) {
    enum { ROOM = 1 << 20 };
    ModelFormat format;
    if (model_format(path, &format, err)) return -1;
    char *options = config_dump(card->cfg, CMD_TRAIN),
         *names = join_names(card->class_name, net->spec.classes);
    real *room = s ? NULL : malloc(ROOM * sizeof *room);
    int rc =
        options && names && (s || room) ? 0 : err_set(err, ERR_MEM, "out of memory for a model");
    if (!rc) {
        const int torch = format == FILE_TORCH;
        const char *in = torch ? "model_state_dict/" : "";
        const StType type = half ? ST_F16 : real_type;
        const size_t dim = tensor_len(&net->act[0]);
        *out = torch ? torch_create(path) : st_create(path);
        if (s) s->open = 1;
        declare_card(out, net, card, options, names);
        declare_counters(out, net, in);
        declare_net(out, net, in, type);
        if (torch) torch_declare_classes(out, net, type);
        declare_starts(out, &card->starts, dim);
        if (s) rc = snapshot_hold(s, net->dev, err);
        if (!rc) {
            write_counters(out, net);
            write_net(out, net, w, state, half, room, ROOM);
            if (torch) torch_write_classes(out, net, type);
            write_starts(out, &card->starts, dim);
        }
    }
    free(options);
    free(names);
    free(room);
    return rc ? rc : dev_check(net->dev, err);
}

int model_save(Net *net, const real *w, const real *state, const ModelCard *card, int half,
               const char *path, Err *err) {
    StWriter out = { 0 };
    if (half && net_fits_half(net, w, state, err)) return -1;
    const int rc = write_model(&out, NULL, net, w, state, card, half, path, err);
    if (rc && out.format) st_cancel(&out);
    return rc ? rc : st_finish(&out, err);
}

int model_take(Snapshot *s, Net *net, const ModelCard *card, const char *path, Err *err) {
    s->fresh[0] = 0;
    const int rc = write_model(&s->w, s, net, net->w, net->state, card, 0, path, err);
    if (rc) snapshot_drop(s);
    return rc;
}
