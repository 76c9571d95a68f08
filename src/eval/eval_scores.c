// eval_scores.c - images through the model: logits and OOD scores. See task.h.
#include "data/bytes.h"
#include "eval/task.h"
#include "base/file.h"
#include "run/score_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *eval_alloc(Evaluation *e, size_t n, size_t size, Err *err) {
    void *p = arena_alloc(&e->results.arena, n, size);
    if (!p) (void)arena_ok(&e->results.arena, "results", err);
    return p;
}

// The sd of the noise on an image, or on the copies that are refined.
double eval_noise(const Evaluation *e) {
    return e->use->refine && !config_given(e->use, "input-noise") ? e->m->cfg.sigma
                                                                  : e->use->input_noise;
}

int need_probe(Evaluation *e, Err *err) {
    Refine r = { .chain = chain_of(&e->m->cfg), .draws = e->use->draws };
    r.chain.steps = e->use->refine;
    r.chain.energy = (Energy){ .a = 1 };
    r.noise = (real)eval_noise(e);
    if (e->probe.net) return 0;
    const int rc = probe_open(&e->probe, &e->m->net, e->batch, &r, err);
    e->probe.comm = e->m->comm;
    return rc;
}

// What is wanted of the first n images of a set.
typedef struct {
    const Bytes *set;
    int          n, refined;
    const char  *name;
    float       *logits;              // [n][classes]
    double      *slope;               // [n], or NULL; not of the refined classifier
    const Set   *keep;                // --scores writes this set's; NULL: none
} Sweep;

static int sweep_batch(Evaluation *e, const Sweep *s, int from, int n, Err *err) {
    float *logits = s->logits + (size_t)from * (size_t)eval_classes(e);
    const Rng key = { .seed = eval_seed(e), .stream = RNG_EVAL, .step = (uint32_t)from };
    if (!s->refined && !s->slope) return scorer_set(&e->scorer, s->set, from, n, logits, err);
    int *index = malloc((size_t)n * sizeof *index);
    if (!index) return err_set(err, ERR_MEM, "out of memory for a batch");
    for (int i = 0; i < n; i++) index[i] = from + i;
    // copies to be refined bring their own noise
    probe_load(&e->probe, s->set, index, n, s->refined ? 0 : (real)e->use->input_noise, key);
    free(index);
    if (s->refined) probe_logits(&e->probe, e->probe.x0, n, key, logits);
    else probe_slopes(&e->probe, e->probe.x0, n, logits, s->slope + from);
    return dev_check(&e->m->dev, err);
}

static int check_sweep(const Evaluation *e, const Sweep *s, Err *err) {
    const size_t C = (size_t)eval_classes(e);
    for (size_t i = 0; i < (size_t)s->n * C; i++)
        if (!isfinite(s->logits[i]))
            return err_set(err, ERR_DATA, "%s: a logit of image %zu of %s is not finite",
                           e->m->path, i / C, s->name);
    for (int i = 0; s->slope && i < s->n; i++)
        if (!isfinite(s->slope[i]))
            return err_set(err, ERR_DATA, "%s: the gradient of image %d of %s is not finite",
                           e->m->path, i, s->name);
    return 0;
}

// scores/NAME.csv beside the results. Sets that are called the same get a number.
static int scores_path(Evaluation *e, const Sweep *s, char path[RUN_PATH], Err *err) {
    char dir[RUN_PATH], label[32], name[64];
    data_label(label, s->name);
    for (char *c = label; *c; c++)
        if (strchr("/ ():", *c)) *c = '-';
    int same = 1;
    for (int i = 0; i < e->n_kept && i < MAX_OOD; i++) same += !strcmp(e->kept[i], label);
    if (e->n_kept <= MAX_OOD) memcpy(e->kept[e->n_kept++], label, sizeof label);
    char number[16] = "";
    if (same > 1) snprintf(number, sizeof number, "-%d", same);
    snprintf(name, sizeof name, "%s%s%s", label, number, score_suffix[e->use->scores - 1]);
    return run_path(dir, e->dir, RUN_SCORES, err) || dir_make_inside(dir, err) ||
           path_join(path, RUN_PATH, dir, name, err);
}

// Labels are those of the model's own classes, so other sets have none.
static void keep_scores(Evaluation *e, const Sweep *s) {
    char path[RUN_PATH];
    ScoreFile f;
    if (e->unwritten.kind || scores_path(e, s, path, &e->unwritten) ||
        score_file_open(&f, path, e->m, &e->unwritten))
        return;
    for (int i = 0; i < s->n; i++) {
        const ScoreRow row = { .index = (uint64_t)i,
                               .label = s->keep == &e->test ? s->keep->y[i] : -1,
                               .logits = s->logits + (size_t)i * (size_t)eval_classes(e) };
        score_file_add(&f, &row);
    }
    (void)score_file_close(&f, &e->unwritten);
}

static int sweep(Evaluation *e, const Sweep *s, Err *err) {
    if ((s->refined || s->slope) && need_probe(e, err)) return -1;
    Comm *comm = e->m->comm;
    int first, end, rc = 0;
    comm_part(comm, s->n, e->batch, &first, &end);
    tell_progress(e->ev, 0, (uint64_t)s->n, "images", s->name);
    for (int i = first; !rc && i < end; i += e->batch) {
        const int n = s->n - i < e->batch ? s->n - i : e->batch;
        rc = sweep_batch(e, s, i, n, err) || stopped(e->ev, err);
        if (!rc) tell_progress(e->ev, (uint64_t)(i + n), (uint64_t)s->n, "images", s->name);
    }
    if (comm_agree(comm, rc, err)) return -1;
    comm_join(comm, s->logits, s->n, e->batch, (size_t)eval_classes(e) * sizeof *s->logits);
    if (s->slope) comm_join(comm, s->slope, s->n, e->batch, sizeof *s->slope);
    if (comm_check(comm, err)) return -1;
    if (check_sweep(e, s, err)) return -1;
    if (s->keep && e->use->scores) keep_scores(e, s);
    return 0;
}

int need_logits(Evaluation *e, Err *err) {
    if (e->logits) return 0;
    const int slopes = eval_wants(e, TASK_OOD) && !e->use->refine;
    float *z = calloc((size_t)e->n * (size_t)eval_classes(e), sizeof *z);
    double *slope = slopes ? calloc((size_t)e->n, sizeof *slope) : NULL;
    const Sweep s = { &e->bytes, e->n, e->use->refine > 0, e->data, z, slope, &e->test };
    int rc = z && (slope || !slopes) ? 0 : err_set(err, ERR_MEM, "out of memory for logits");
    if (!rc) rc = sweep(e, &s, err);
    if (rc) {
        free(z);
        free(slope);
        return rc;
    }
    e->logits = z;
    e->slope = slope;
    return 0;
}

int eval_set_logits(Evaluation *e, const Set *set, const char *name, float *logits, Err *err) {
    Bytes bytes = { 0 };
    int rc = bytes_upload(&bytes, &e->m->dev, set, err);
    Sweep s = { .set = &bytes, .n = (int)set->n, .refined = e->use->refine > 0, .name = name };
    s.logits = logits;
    if (!rc) rc = sweep(e, &s, err);
    bytes_free(&bytes, &e->m->dev);
    return rc;
}

// ---- OOD scores -----------------------------------------------------------------------------

static void fill_scores(double *score, const float *logits, const double *slope, int n, int C) {
    for (int i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)C;
        const double lse = logsumexp(row, C), top = (double)row[argmax(row, C)];
        score[SCORE_LOGPX * n + i] = lse;
        score[SCORE_MAXP * n + i] = exp(top - lse);
        score[SCORE_MAXLOGIT * n + i] = top;
        score[SCORE_GRADNORM * n + i] = slope[i];
    }
}

static int score_bytes(Evaluation *e, const Bytes *bytes, const Set *set, const char *name,
                       double *score, Err *err) {
    const int C = eval_classes(e), n = (int)set->n;
    float *z = calloc((size_t)n * (size_t)C, sizeof *z);
    double *slope = calloc((size_t)n, sizeof *slope);
    const Sweep s = { bytes, n, 0, name, z, slope, set == &e->test ? NULL : set };
    int rc = z && slope ? sweep(e, &s, err)
                        : err_set(err, ERR_MEM, "out of memory for %d images' scores", n);
    if (!rc) fill_scores(score, z, slope, n, C);
    free(z);
    free(slope);
    return rc;
}

int eval_ood_scores(Evaluation *e, const Set *set, double *score, Err *err) {
    if (set) {
        Bytes bytes = { 0 };
        int rc = bytes_upload(&bytes, &e->m->dev, set, err);
        if (!rc) rc = score_bytes(e, &bytes, set, set->name, score, err);
        bytes_free(&bytes, &e->m->dev);
        return rc;
    }
    // the refined classifier's logits are not those of p(x)
    if (e->use->refine) return score_bytes(e, &e->bytes, &e->test, e->data, score, err);
    const int rc = need_logits(e, err);
    if (!rc) fill_scores(score, e->logits, e->slope, e->n, eval_classes(e));
    return rc;
}
