// model.c - see model.h.
#include "run/model.h"
#include "base/file.h"
#include "jem/metrics.h"
#include "run/model_file.h"
#include "run/weights_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- opening -----------------------------------------------------------------------------------

static int read_side(const St *st, NetSpec *s, Err *err) {
    const char *text = st_meta(st, "side");
    if (!text) return 0;
    s->side = atoi(text);
    return s->side == 28 || s->side == 32 || s->side == 64 ||
                   (s->side >= 4 && s->side <= 256 && s->side % 4 == 0)
               ? 0
               : err_set(err, ERR_DATA, "%s: side '%.20s': expected 4 to 256 pixels", st->path,
                         text);
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

// A tensor of the chain starts, with this many numbers, into the model's memory.
static int read_start(Model *m, St *st, const StTensor *t, size_t n, float **to, Err *err) {
    *to = arena_alloc(&m->arena, n, sizeof **to);
    if (arena_ok(&m->arena, "chain starts", err) || st_read_f32(st, t, *to, n, err)) return -1;
    for (size_t i = 0; i < n; i++)
        if (!isfinite((*to)[i]))
            return err_set(err, ERR_DATA, "%s: tensor '%s' has a number that is not finite",
                           st->path, t->name);
    return 0;
}

static int fits(const StTensor *t, int rank, uint64_t a, uint64_t b) {
    return t->rank == rank && t->shape[0] == a && (rank < 2 || t->shape[1] == b);
}

// Which coefficients are correlated, and how.
static int read_correlations(Model *m, St *st, const StTensor *index, const StTensor *lower,
                             int dim, Err *err) {
    StartsFile *s = &m->starts;
    s->kept = (int)index->shape[0];
    s->index = arena_alloc(&m->arena, index->shape[0], sizeof *s->index);
    s->lower = arena_alloc(&m->arena, lower->bytes, 1);
    if (arena_ok(&m->arena, "chain starts", err) ||
        st_read_raw(st, index, s->index, index->bytes, err) ||
        st_read_raw(st, lower, s->lower, lower->bytes, err))
        return -1;
    for (int a = 0; a < s->kept; a++)
        if (s->index[a] >= dim || s->index[a] <= (a ? s->index[a - 1] : -1))
            return err_set(err, ERR_DATA,
                           "%s: tensor 'start.index': expected rising numbers from 0 to %d",
                           st->path, dim - 1);
    return 0;
}

static int read_starts(Model *m, St *st, Err *err) {
    const StTensor *mean = st_find(st, "start.mean"), *factor = st_find(st, "start.factor");
    const StTensor *spectrum = st_find(st, "start.spectrum"), *index = st_find(st, "start.index"),
                   *lower = st_find(st, "start.lower");
    const uint64_t dim = tensor_len(&m->net.act[0]), groups = mean ? mean->shape[0] : 0;
    const int whole = spectrum && index && lower;
    if (!mean || (!whole && !factor)) return 0;
    int good =
        fits(mean, 2, groups, dim) && (groups == 1 || groups == (uint64_t)m->net.spec.classes);
    if (whole)
        good = good && fits(spectrum, 2, groups, dim) && index->type == ST_I32 &&
               lower->type == ST_I8 && index->rank == 1 && index->shape[0] >= 1 &&
               index->shape[0] <= dim &&
               fits(lower, 2, groups, starts_lower_len((int)index->shape[0]));
    else
        good = good && factor->rank == 3 && factor->shape[0] == groups && factor->shape[1] >= 1 &&
               factor->shape[1] <= 4096 && factor->shape[2] == dim;
    if (!good)
        return err_set(err, ERR_DATA, "%s: chain starts of another shape than the model's images",
                       st->path);
    const size_t n = groups * dim;
    StartsFile *s = &m->starts;
    *s = (StartsFile){ .n_group = (int)groups,
                       .rank = whole ? 0 : (int)factor->shape[1],
                       .channels = m->net.spec.channels,
                       .side = m->net.spec.side };
    if (read_start(m, st, mean, n, &s->mean, err)) return -1;
    if (!whole) return read_start(m, st, factor, n * factor->shape[1], &s->factor, err);
    return read_start(m, st, spectrum, n, &s->spectrum, err) ||
           read_correlations(m, st, index, lower, (int)dim, err);
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

static int read_percentiles(Model *m, const St *st, Err *err) {
    const char *text = st_meta(st, "log_px_percentiles");
    if (!text) return 0;
    m->percentile = arena_alloc(&m->arena, N_PERCENTILE, sizeof *m->percentile);
    if (arena_ok(&m->arena, "percentiles", err)) return -1;
    int good = 1;
    for (int k = 0; good && k < N_PERCENTILE; k++) {
        char *end;
        m->percentile[k] = strtof(text, &end);
        good = end != text && isfinite(m->percentile[k]) &&
               (!k || m->percentile[k] >= m->percentile[k - 1]);
        text = end;
    }
    return good && !*text
               ? 0
               : err_set(err, ERR_DATA, "%s: log_px_percentiles: expected %d rising numbers",
                         st->path, N_PERCENTILE);
}

// A file of others has no options: what its network says replaces the defaults.
static void options_of_spec(Config *c, const NetSpec *spec) {
    snprintf(c->model, sizeof c->model, "wrn-%d-%d", spec->depth, spec->width);
    c->norm = spec->norm;
    c->stem = spec->stem;
}

static int model_read(Model *m, const Config *use, St *st, Err *err) {
    const char *threshold = st_meta(st, "threshold"), *images = st_meta(st, "images");
    if (run_options(st, &m->cfg, err) || read_temperature(m, st, err) ||
        read_percentiles(m, st, err))
        return -1;
    m->threshold = threshold ? strtof(threshold, NULL) : NAN;
    snprintf(m->images, sizeof m->images, "%s", images ? images : "");
    // the machine is the user's, not the run's
    memcpy(m->cfg.device, use->device, sizeof m->cfg.device);
    if (use->data_dir[0]) memcpy(m->cfg.data_dir, use->data_dir, sizeof m->cfg.data_dir);
    else if (!dir_exists(m->cfg.data_dir)) m->cfg.data_dir[0] = 0;
    NetSpec spec;
    if (model_file_spec(st, &spec, err) || read_side(st, &spec, err) ||
        net_build(&m->net, &spec, err) || model_complete(st, &m->net, err))
        return -1;
    if (!st_meta(st, "options")) options_of_spec(&m->cfg, &spec);
    const DevOpts o = comm_dev(m->comm, config_dev(use));
    if (dev_open(&m->dev, use->device, &o, NULL, err)) return -1;
    return net_alloc(&m->net, &m->dev, err) || model_weights(st, &m->net, err) ||
           read_names(m, st, err) || read_starts(m, st, err);
}

static int open_file(Model *m, const Config *use, const char *path, Err *err) {
    St st;
    if (run_model_path(m->path, path, err)) return -1;
    if (strcmp(m->path, path)) snprintf(m->run, sizeof m->run, "%s", path);
    if (model_file_open(&st, m->path, err)) return -1;
    const int rc = model_read(m, use, &st, err);
    st_close(&st);
    return rc;
}

int model_open(Model *m, const Config *use, const char *path, Err *err) {
    memset(m, 0, sizeof *m);
    const int rc = open_file(m, use, path, err);
    if (rc) model_close(m);
    return rc;
}

int model_open_shared(Model *m, const Config *use, const char *path, Err *err) {
    memset(m, 0, sizeof *m);
    int rc = comm_open(&m->comm, use->rank_timeout, NULL, err);
    if (!rc) rc = comm_agree(m->comm, open_file(m, use, path, err), err);
    if (!rc) rc = comm_units(m->comm, &m->dev, use->share_gpu, err);
    if (rc) comm_quiet(m->comm, err);
    if (rc) model_close(m);
    return rc;
}

int model_untrained(Model *m, const Config *use, Err *err) {
    NetSpec spec;
    memset(m, 0, sizeof *m);
    m->cfg = *use;
    m->threshold = NAN;
    const St none = { 0 };
    const DevOpts o = config_dev(use);
    const int rc = config_net(&spec, use, 0, 0, 0, err) || net_build(&m->net, &spec, err) ||
                   dev_open(&m->dev, use->device, &o, NULL, err) ||
                   net_alloc(&m->net, &m->dev, err) ||
                   net_init(&m->net, (uint64_t)use->seed, err) || read_names(m, &none, err);
    if (rc) model_close(m);
    return rc ? -1 : 0;
}

void model_close(Model *m) {
    sampler_free(m);
    for (int i = 0; i < N_SCORERS; i++) scorer_close(&m->scorer[i]);
    net_free(&m->net);
    if (m->dev.be.name) dev_close(&m->dev);
    comm_close(m->comm);
    arena_free(&m->arena);
    memset(m, 0, sizeof *m);
}

ModelCard model_card(const Model *m, const Config *options) {
    return (ModelCard){ .cfg = options,
                        .class_name = m->class_name,
                        .threshold = (double)m->threshold,
                        .percentile = m->percentile,
                        .temperature = m->temperature,
                        .starts = m->starts,
                        .images = m->images };
}

int model_has_buffer(const Model *m) {
    char path[RUN_PATH];
    return m->run[0] && m->cfg.px != PX_NONE && !run_path(path, m->run, RUN_LAST, NULL) &&
           file_exists(path);
}

// ---- classifying -------------------------------------------------------------------------------

// A scorer for n images: batches are powers of two, and at most what the device evaluates well at,
// or the run's.
static Scorer *scorer_for(Model *m, int n, Err *err) {
    int k = 0;
    while (1 << k < n) k++;
    Scorer *s = &m->scorer[k];
    const int most = m->cfg.batch > m->dev.be.eval_batch ? m->cfg.batch : m->dev.be.eval_batch;
    const int batch = 1 << k < most ? 1 << k : most;
    const int timed = m->scored > MANY_IMAGES && batch >= 64;
    if (s->net && (s->pass.mode & RUN_FEW) && timed) scorer_close(s);
    if (s->net) return s;
    if (!scorer_open_as(s, &m->net, batch, MODE_INFER | (timed ? 0 : RUN_FEW), NULL, 0, err)) {
        s->comm = m->comm;
        return s;
    }
    scorer_close(s);
    dev_recover(&m->dev);
    return NULL;
}

int model_logits(Model *m, const float *images, int n, float *logits, Err *err) {
    const size_t dim = tensor_len(&m->net.act[0]), C = (size_t)m->net.spec.classes;
    for (int i = 0, some; i < n; i += some) {
        some = n - i < m->cfg.batch ? n - i : m->cfg.batch;
        m->scored += (uint64_t)some;
        Scorer *s = scorer_for(m, some, err);
        if (!s || scorer_images(s, images + (size_t)i * dim, some, logits + (size_t)i * C, err))
            return -1;
    }
    return 0;
}

float model_score(const Model *m, const float *logits, float *p) {
    const int n = m->net.spec.classes;
    const double score = logsumexp(logits, n), t = m->temperature > 0 ? m->temperature : 1;
    for (int i = 0; p && i < n; i++) p[i] = (float)((double)logits[i] / t);
    const double lse = p ? logsumexp(p, n) : 0;
    for (int i = 0; p && i < n; i++) p[i] = (float)exp((double)p[i] - lse);
    return (float)score;
}
