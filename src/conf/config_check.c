// config_check.c - which options fit together, and which may change when a run is resumed. See
// config.h.
#include "conf/config.h"
#include <string.h>

static int check_length(const Config *c, Err *err) {
    if (c->epochs <= 0 && !c->iterations && c->minutes <= 0)
        return err_set(err, ERR_ARG,
                       "epochs, iterations and minutes are all 0: expected one of them above 0");
    if (c->resume && !c->out[0])
        return err_set(err, ERR_ARG,
                       "--resume: expected --out RUN too, the folder of the run to resume");
    if (c->labelled && c->labelled < c->batch)
        return err_set(err, ERR_ARG, "labelled = %d: expected at least batch = %d, or 0",
                       c->labelled, c->batch);
    if (c->norm == NORM_BATCH && c->batch < 2)
        return err_set(err, ERR_ARG,
                       "batch = 1: batch normalisation needs 2 images or more (or norm = none)");
    return 0;
}

// Options of chains that are not there.
static int check_no_chains(const Config *c, Err *err) {
    if (c->steps_max)
        return err_set(err, ERR_ARG, "steps-max = %d without chains: expected px other than none",
                       c->steps_max);
    if (c->active)
        return err_set(err, ERR_ARG, "active = %d without chains: expected px other than none",
                       c->active);
    if (c->px_from > 0)
        return err_set(err, ERR_ARG, "px-from = %g without p(x): expected px other than none",
                       c->px_from);
    if (c->start_real > 0)
        return err_set(err, ERR_ARG, "start-real = %g without chains: expected px other than none",
                       c->start_real);
    return 0;
}

static int check_chains(const Config *c, Err *err) {
    if (c->px == PX_NONE && c->pxy_weight <= 0) return check_no_chains(c, err);
    if (!c->steps)
        return err_set(
            err, ERR_ARG,
            "steps = 0: chains take 1 step or more (training without chains: px = none; samples "
            "without steps: from = starts)");
    if (c->steps_max && c->steps_max <= c->steps)
        return err_set(err, ERR_ARG, "steps-max = %d: expected more than steps = %d, or 0",
                       c->steps_max, c->steps);
    if (c->step_size <= 0) return err_set(err, ERR_ARG, "step-size = 0: chains would not move");
    if (c->buffer < c->batch)
        return err_set(err, ERR_ARG, "buffer = %d: a batch takes %d different images from it",
                       c->buffer, c->batch);
    if (c->active && (c->active < c->batch || c->active > c->buffer))
        return err_set(err, ERR_ARG, "active = %d: expected 0, or from batch = %d to buffer = %d",
                       c->active, c->batch, c->buffer);
    if (c->active && c->reinit <= 0)
        return err_set(err, ERR_ARG, "active = %d: expected reinit above 0, or no chain ends",
                       c->active);
    return 0;
}

// In sharpness-aware steps the log is of these images, but climb and AUROC are of whole batches.
static int check_sam_images(const Config *c, Err *err) {
    if (c->sam_images > c->batch)
        return err_set(err, ERR_ARG, "sam-images = %d: expected at most batch = %d", c->sam_images,
                       c->batch);
    if (c->px != PX_NONE && (c->steps < 2 || c->steps_max))
        return err_set(err, ERR_ARG, "sam-images = %d: expected steps above 1, and steps-max = 0",
                       c->sam_images);
    return 0;
}

// Whether the option was given by the user, and the other at most by a preset or a resumed run; or
// by one of these, and the other not at all.
static int overrides(const Config *c, const char *option, const char *other) {
    return config_given(c, option) > config_given(c, other);
}

// sam = 0 switches SAM off, whatever a preset says about its details; details without sam are a
// mistake.
static int check_sam(const Config *c, Err *err) {
    if (c->sam > 0) return c->sam_images ? check_sam_images(c, err) : 0;
    const int images = c->sam_images && overrides(c, "sam-images", "sam"),
              from = c->sam_from > 0 && overrides(c, "sam-from", "sam");
    if (!images && !from) return 0;
    return err_set(err, ERR_ARG, "%s without SAM: expected sam above 0, as 1",
                   images ? "sam-images" : "sam-from");
}

// A binary cross-entropy needs no margin, and climbs less in a healthy run than the difference.
void config_settle(Config *c) {
    if (c->px_loss != LOSS_BCE) return;
    if (overrides(c, "px-loss", "px-margin")) c->px_margin = 0;
    if (overrides(c, "px-loss", "climb-limit")) c->climb_limit = 0;
}

static int check_objective(const Config *c, Err *err) {
    if (c->pxy_weight > 0 && c->px == PX_NONE)
        return err_set(err, ERR_ARG, "pxy-weight = %g: log p(x,y) needs chains, px other than none",
                       c->pxy_weight);
    if (c->pyx_weight <= 0 && (c->px == PX_NONE || (c->px_weight <= 0 && c->pxy_weight <= 0)))
        return err_set(err, ERR_ARG, "all weights are 0: nothing is learnt");
    if (c->px_loss == LOSS_BCE && c->px_margin > 0 && !overrides(c, "px-loss", "px-margin"))
        return err_set(err, ERR_ARG,
                       "px-margin = %g with px-loss = bce: expected 0, because bce needs no margin",
                       c->px_margin);
    if (c->px_from > 0 && c->pyx_weight <= 0)
        return err_set(err, ERR_ARG,
                       "px-from = %g: expected pyx-weight above 0, or nothing is learnt before",
                       c->px_from);
    if (check_sam(c, err)) return -1;
    if (c->adversarial == ATTACK_NONE && c->attack_radius > 0)
        return err_set(err, ERR_ARG,
                       "attack-radius = %g without an attack: expected adversarial = linf or l2",
                       c->attack_radius);
    if (c->adversarial != ATTACK_NONE && c->attack_radius <= 0)
        return err_set(err, ERR_ARG,
                       "adversarial training without a radius: expected attack-radius above 0, as "
                       "8/255");
    return 0;
}

static int check_optimizer(const Config *c, Err *err) {
    if (c->optimizer != OPTIM_MUON)
        return config_asked(c, "muon-lr")
                   ? err_set(err, ERR_ARG, "muon-lr = %g: expected optimizer = muon", c->muon_lr)
                   : 0;
    if (c->norm == NORM_NONE)
        return err_set(err, ERR_ARG,
                       "optimizer = muon with norm = none: expected norm = batch, because Muon "
                       "keeps the length of each filter");
    if (c->lr <= 0)
        return err_set(err, ERR_ARG, "lr = 0 with optimizer = muon: expected lr above 0");
    return 0;
}

int config_check(const Config *c, Err *err) {
    NetSpec spec;
    double at[MAX_DROPS];
    if (net_parse(&spec, c->model, err)) return -1;
    if (c->ranks && (c->batch % c->ranks || c->labelled % c->ranks))
        return err_set(err, ERR_ARG, "ranks = %d: they must divide batch = %d and labelled = %d",
                       c->ranks, c->batch, config_labelled(c));
    if (c->side % 4)
        return err_set(err, ERR_ARG, "side = %d: expected a multiple of 4 up to 256", c->side);
    if (c->channels == 2) return err_set(err, ERR_ARG, "channels = 2: expected 1 or 3, or 0");
    if (config_fractions(c->decay_at, at, MAX_DROPS, err) < 0) return -1;
    return check_length(c, err) || check_chains(c, err) || check_objective(c, err) ||
           check_optimizer(c, err);
}

int config_check_fresh(const Config *c, Err *err) {
    static const char *const planned[] = { "chain-length", "chain-step" };
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        if (config_asked(c, "steps") && config_asked(c, planned[i]))
            return err_set(err, ERR_ARG, "--steps and --%s: expected one of them", planned[i]);
    return 0;
}

int config_check_sample(const Config *c, Err *err) {
    static const char *const of_chains[] = { "animation", "steps", "inner", "step-size",
                                             "clip",      "noise", "clamp", "chain-length",
                                             "chain-step", "weight-noise" };
    for (size_t i = 0; i < sizeof of_chains / sizeof *of_chains; i++)
        if (c->from != FROM_FRESH && config_asked(c, of_chains[i]))
            return err_set(err, ERR_ARG, "--%s without fresh chains: expected --from fresh",
                           of_chains[i]);
    if (config_check_fresh(c, err)) return -1;
    if (c->from == FROM_BUFFER && config_asked(c, "start"))
        return err_set(err, ERR_ARG, "--start without chains: expected --from other than buffer");
    if (c->best && c->worst)
        return err_set(err, ERR_ARG, "--best and --worst: expected one of them");
    if (config_asked(c, "by") && !c->best && !c->worst)
        return err_set(err, ERR_ARG, "--by without a ranking: expected --best N or --worst N too");
    return 0;
}

// Images that were moved: folder:DIR may become another folder:DIR. Whether they are the same
// images is checked once they are read.
static int is_moved(const OptRow *row, const char *was, const char *is) {
    const size_t kind = strcspn(was, ":");
    return !strcmp(row->name, "data") && was[kind] && !strncmp(was, is, kind + 1);
}

int config_same_run(const Config *old, const Config *now, Err *err) {
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        char was[1024], is[1024];
        if (!(row->commands & CMD_TRAIN) || row->commands & MAY_CHANGE) continue;
        config_value(old, row, was, sizeof was);
        config_value(now, row, is, sizeof is);
        if (strcmp(was, is) != 0 && !is_moved(row, was, is))
            return err_set(err, ERR_ARG,
                           "--resume: the run has %s = %s, found %s: a run keeps it; leave %s out, "
                           "or begin a new run in another --out",
                           row->name, was[0] ? was : "(none)", is[0] ? is : "(none)", row->name);
    }
    return 0;
}
