// fit_init.c - a run that starts from the weights of another model (--init).
#include "base/text.h"
#include "run/fit_run.h"
#include "run/model_file.h"
#include "run/weights_file.h"
#include <stdio.h>
#include <string.h>

static int init_open(const TrainRun *r, St *st, Err *err) {
    char path[RUN_PATH];
    return run_model_path(path, r->cfg.init, err) || model_file_open(st, path, err);
}

int run_init_check(const TrainRun *r, Err *err) {
    St st;
    NetSpec spec;
    if (!r->cfg.init[0] || r->cfg.resume) return 0;
    if (init_open(r, &st, err)) return -1;
    const int rc = model_file_spec(&st, &spec, err);
    st_close(&st);
    return rc;
}

// ---- classes -----------------------------------------------------------------------------------

// The first class names, of those in lines or in a table, as "(a, b, c, ...)"; "" where lines has
// none.
static void list_names(char *dst, size_t n, const char *lines, const char **name, int classes) {
    enum { MOST = 4 };
    size_t at = 0;
    *dst = 0;
    if (!name && !(lines && *lines)) return;
    for (int i = 0; i < classes && i < MOST && at < n; i++) {
        const char *one = name ? name[i] : lines;
        const size_t len = strcspn(one, "\n");
        at += (size_t)snprintf(dst + at, n - at, "%s%.*s", i ? ", " : " (",
                               len > 40 ? text_whole(one, 40) : (int)len, one);
        if (!name) lines += len + (lines[len] == '\n');
    }
    if (at < n) snprintf(dst + at, n - at, classes > MOST ? ", ...)" : ")");
}

static int same_names(const char *lines, const Set *s) {
    for (int i = 0; i < s->classes; i++) {
        const size_t len = strcspn(lines, "\n");
        if (len != strlen(s->class_name[i]) || strncmp(lines, s->class_name[i], len) != 0) return 0;
        lines += len + (lines[len] == '\n');
    }
    return 1;
}

static int compare_classes(const TrainRun *r, const St *st, const NetSpec *spec, Err *err) {
    char its[240], ours[240];
    const char *names = st_meta(st, "classes");
    list_names(its, sizeof its, names, NULL, spec->classes);
    list_names(ours, sizeof ours, NULL, r->train.class_name, r->train.classes);
    if (spec->classes != r->train.classes)
        return err_set(err, ERR_ARG,
                       "--init %s: it has %d classes%s, the data has %d%s: expected data with the "
                       "same classes; without --init a new model is trained",
                       r->cfg.init, spec->classes, its, r->train.classes, ours);
    if (its[0] && !same_names(names, &r->train))
        run_say(r,
                "warning: --init %.200s: its classes%s are not the data's%s: their weights are "
                "taken by number",
                r->cfg.init, its, ours);
    return 0;
}

// ---- the network -------------------------------------------------------------------------------

static const char *stem_name(const NetSpec *s) { return s->stem == STEM_4X4 ? "4x4" : "3x3"; }
static const char *norm_name(const NetSpec *s) { return s->norm == NORM_BATCH ? "batch" : "none"; }

static int compare_nets(const TrainRun *r, const NetSpec *its, Err *err) {
    NetSpec ours;
    char add[120] = "";
    size_t n = 0;
    if (config_net(&ours, &r->cfg, r->train.c, r->train.side, r->train.classes, err)) return -1;
    if (its->channels != ours.channels)
        return err_set(err, ERR_ARG,
                       "--init %s: it is for %s images, the data is %s (--channels converts the "
                       "pictures of folder:)",
                       r->cfg.init, its->channels == 1 ? "grey" : "colour",
                       ours.channels == 1 ? "grey" : "in colour");
    if (its->depth != ours.depth || its->width != ours.width)
        n = (size_t)snprintf(add, sizeof add, " --model wrn-%d-%d", its->depth, its->width);
    if (its->stem != ours.stem)
        n += (size_t)snprintf(add + n, sizeof add - n, " --stem %s", stem_name(its));
    if (its->norm != ours.norm)
        n += (size_t)snprintf(add + n, sizeof add - n, " --norm %s", norm_name(its));
    if (!n) return 0;
    return err_set(err, ERR_ARG,
                   "--init %s: another network than this run's (%s, stem %s, norm %s): expected%s",
                   r->cfg.init, r->cfg.model, stem_name(&ours), norm_name(&ours), add);
}

int run_init_fits(const TrainRun *r, Err *err) {
    St st;
    NetSpec spec;
    if (!r->cfg.init[0] || r->cfg.resume) return 0;
    if (init_open(r, &st, err)) return -1;
    int rc = model_file_spec(&st, &spec, err);
    if (!rc) rc = compare_nets(r, &spec, err) || compare_classes(r, &st, &spec, err);
    st_close(&st);
    return rc;
}

int run_init_weights(TrainRun *r, Err *err) {
    St st;
    if (!r->cfg.init[0]) return 0;
    if (init_open(r, &st, err)) return -1;
    const int rc = model_weights(&st, &r->t.net, err);
    st_close(&st);
    optim_average(&r->t.optim, &r->t.net);
    return rc;
}
