// eval_data.c - the image sets of an evaluation. See task.h.
#include "data/formats.h"
#include "data/run_data.h"
#include "eval/task.h"
#include <stdio.h>
#include <string.h>

// --limit: the same draw for every task.
int eval_limit(const Evaluation *e, Set *s, Err *err) {
    const size_t n = (size_t)e->use->limit;
    Set part;
    if (!n || n >= s->n) return 0;
    if (set_draw(&part, s, n, eval_seed(e), err)) return -1;
    set_free(s);
    *s = part;
    return 0;
}

static int same_kind(const Evaluation *e, const Set *s, Err *err) {
    const NetSpec *spec = &e->m->net.spec;
    if (check_image_size(s->name, s->c, s->side, s->side, spec->channels, spec->side, err))
        return -1;
    if (s->classes != spec->classes)
        return err_set(err, ERR_ARG, "%s: %d class%s; the model has %d", s->name, s->classes,
                       s->classes == 1 ? "" : "es", spec->classes);
    return 0;
}

DataOpts eval_data_opts(const Evaluation *e) {
    DataOpts o = data_opts(&e->m->cfg, e->ev);
    o.side = e->m->net.spec.side;
    o.channels = e->m->net.spec.channels;
    return o;
}

// The names of --ood, or those that are here: NULL after the last.
typedef struct {
    char        list[sizeof((Config *)0)->ood];
    const char *name[MAX_OOD + 1];
} OodNames;

static int names_of_ood(const Evaluation *e, OodNames *to, Err *err) {
    char *at = to->list;
    int n = 0;
    memset(to, 0, sizeof *to);
    memcpy(to->list, e->use->ood, sizeof to->list);
    if (!to->list[0]) ood_names(to->name, &e->test, eval_data_opts(e).dir);
    for (char *name; to->list[0] && (name = strsep(&at, ","));) {
        if (n == MAX_OOD) return err_set(err, ERR_ARG, "--ood: more than %d sets", (int)MAX_OOD);
        if (!name[0])
            return err_set(err, ERR_ARG, "--ood: found '%s', an empty name in it", e->use->ood);
        to->name[n++] = name;
    }
    return 0;
}

int check_ood(Evaluation *e, Err *err) {
    OodNames of;
    DataOpts o = eval_data_opts(e);
    Set like = { .c = o.channels, .side = o.side };
    o.look_only = 1;
    if (!e->use->ood[0]) return 0;
    if (names_of_ood(e, &of, err)) return -1;
    for (int i = 0; of.name[i]; i++) {
        Set found;
        if (ood_load(&found, of.name[i], &like, 0, &o, err)) return err_prefix(err, "--ood");
        set_free(&found);
    }
    return 0;
}

int eval_load_ood(Evaluation *e, Err *err) {
    OodNames of;
    const DataOpts o = eval_data_opts(e);
    if (names_of_ood(e, &of, err)) return -1;
    for (int i = 0; of.name[i]; i++) {
        if (ood_load(&e->ood[i], of.name[i], &e->test, (size_t)e->use->limit, &o, err) ||
            eval_limit(e, &e->ood[i], err))
            return -1;
        e->n_ood++;
    }
    return 0;
}

// The name of the run's own images. Where these were moved, --data may say where to; then they are
// known by their checksum (same_images).
static const char *own_data(const Evaluation *e) {
    const char *own = e->m->cfg.data;
    const int gone = !own[0] || run_folder_there(&e->m->cfg, NULL),
              moved = e->use->data[0] && (gone || e->use->split == SPLIT_VALID);
    return moved && e->m->images[0] ? e->use->data : own;
}

// A user's own images may have changed since the training. Then they are divided differently, and
// some that are held out now were trained on.
static int same_images(const Evaluation *e, const char *name, const Set *train, const Set *valid,
                       Err *err) {
    char now[33];
    if (!e->m->images[0]) return 0;                 // of a published set, or an old model
    images_digest(now, train, valid);
    if (!strcmp(now, e->m->images)) return 0;
    return err_set(err, ERR_DATA,
                   "%s: the pictures or classes are not those that the run was trained with, and "
                   "would be divided differently; restore them, or evaluate on the test images of "
                   "others: --data folder:DIR with train/ and test/",
                   name);
}

static int load_own(const Evaluation *e, Set *train, Set *valid, Err *err) {
    Config c = e->m->cfg;
    snprintf(c.data, sizeof c.data, "%s", own_data(e));
    return run_images(&c, e->ev, train, valid, err) || same_images(e, c.data, train, valid, err)
               ? -1
               : 0;
}

// The images that the run held out, for the option that asks for them.
int eval_load_valid(const Evaluation *e, const char *option, Set *valid, Err *err) {
    Set train = { 0 };
    const int rc = load_own(e, &train, valid, err);
    set_free(&train);
    if (rc) return err_prefix(err, "%s", option);
    if (!valid->n)
        return err_set(err, ERR_ARG, "%s: the run held out no validation images", option);
    return same_kind(e, valid, err);
}

// Whether the set is there, and of the model's kind.
static int look_for(const Evaluation *e, const char *name, Half half, Err *err) {
    Set found;
    DataOpts o = eval_data_opts(e);
    o.look_only = 1;
    int rc = set_load(&found, name, half, &o, err);
    if (!rc) rc = same_kind(e, &found, err);
    set_free(&found);
    return rc;
}

static int look_for_own(const Evaluation *e, const char *option, Err *err) {
    const char *name = own_data(e);
    const int gone = name == e->m->cfg.data && run_folder_there(&e->m->cfg, err);
    if (gone && e->use->data[0])
        err_append(err, "; this model is too old to tell whether --data does");
    return gone || look_for(e, name, HALF_TRAIN, err) ? err_prefix(err, "%s", option) : 0;
}

int check_temperature(Evaluation *e, Err *err) {
    return e->use->temperature ? look_for_own(e, "--temperature", err) : 0;
}

int eval_check_test(const Evaluation *e, Err *err) {
    if (e->use->split == SPLIT_VALID) {
        if (e->use->data[0] && !e->m->images[0])
            return err_set(err, ERR_ARG,
                           "--split valid: evaluates the run's own images: expected no --data");
        if (e->use->temperature)
            return err_set(err, ERR_ARG,
                           "--split valid: a temperature is fitted on these images and must be "
                           "evaluated on others: expected no --temperature");
        return look_for_own(e, "--split valid", err);
    }
    if (!e->use->data[0] && run_folder_there(&e->m->cfg, err)) return -1;
    if (!e->use->data[0] && !strncmp(e->data, "cifar-file:", 11))
        return err_set(
            err, ERR_ARG,
            "%s: the model was trained on it, and it has no test images: expected --data", e->data);
    return look_for(e, e->data, HALF_TEST, err);
}

// Test images that are cut out of the run's own pictures are those that it left out only while
// these are the same. Where its folder is gone, --data may name it or others: then it is a warning.
// The validation images that were read on the way are kept for a temperature.
static int check_cut(Evaluation *e, Err *err) {
    const int gone = run_folder_there(&e->m->cfg, NULL);
    const char *name = e->data;
    char line[ERR_TEXT + 16];
    Err why = { 0 };
    Set train = { 0 };
    if (strncmp(name, "folder:", 7) != 0 || folder_has_test(name + 7) || !e->m->images[0] ||
        (!gone && strcmp(name, e->m->cfg.data) != 0))
        return 0;
    const int rc = load_own(e, &train, &e->valid, &why);
    set_free(&train);
    if (rc) set_free(&e->valid);
    if (rc && (!gone || why.kind != ERR_DATA)) return err_set(err, why.kind, "%s", why.msg);
    snprintf(line, sizeof line, "warning: %s", why.msg);
    if (rc) tell_line(e->ev, line);
    return 0;
}

static int load_images(Evaluation *e, Err *err) {
    const DataOpts o = eval_data_opts(e);
    if (e->use->split == SPLIT_VALID) return eval_load_valid(e, "--split valid", &e->test, err);
    const int rc = check_cut(e, err) || set_load(&e->test, e->data, HALF_TEST, &o, err);
    return rc ? rc : same_kind(e, &e->test, err);
}

int eval_load_test(Evaluation *e, Err *err) {
    const int rc = load_images(e, err);
    if (!rc)                                   // whatever they are called
        model_compare_names(e->m, &e->test, e->data, "other class names",
                            "classes are compared by number", e->ev);
    return rc;
}
