// eval_attack.c - the task attack: accuracy under attack against the radius.
#include "data/bytes.h"
#include "eval/task.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ATTACKED = 1000 };             // images, where --limit does not say

// ---- which attacks --------------------------------------------------------------------------

static const char *const METHODS[] = {
    [METHOD_PGD] = "pgd", [METHOD_FGSM] = "fgsm", [METHOD_APGD] = "apgd"
};
enum { N_METHOD = sizeof METHODS / sizeof *METHODS };

static int read_name(AttackPlan *a, const char *name, Err *err) {
    for (int m = 0; m < N_METHOD; m++) {
        const size_t n = strlen(METHODS[m]);
        if (strncmp(name, METHODS[m], n) != 0) continue;
        *a = (AttackPlan){ .method = (AttackMethod)m, .l2 = !strcmp(name + n, "-l2") };
        if (a->l2 || !strcmp(name + n, "-linf")) return 0;
    }
    return err_set(err, ERR_ARG,
                   "--attacks: found '%s', expected some of "
                   "pgd-linf,pgd-l2,fgsm-linf,fgsm-l2,apgd-linf,apgd-l2",
                   name);
}

// APGD takes a thousand steps at each: the radii of published comparisons alone.
static void usual_radii(CurvePlan *c) {
    static const double linf[] = { 0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16 };
    const int apgd = c->plan.method == METHOD_APGD, l2 = c->plan.l2;
    c->n = apgd ? 3 : (int)(sizeof linf / sizeof *linf);
    for (int i = 0; i < c->n; i++) {
        if (apgd) c->radius[i] = l2 ? i / 4.0 : 4 * i / 255.0;
        else c->radius[i] = l2 ? i / 10.0 : linf[i] / 255;
    }
}

static int read_radii(const Evaluation *e, CurvePlan *c, Err *err) {
    const char *text = e->use->radii;
    // no two images are farther apart than this
    const double most = c->plan.l2 ? sqrt((double)tensor_len(&e->m->net.act[0])) : 1;
    char expected[128];
    snprintf(expected, sizeof expected,
             "numbers that rise from 0 to at most %.4g for %s (pixels go from 0 to 1)", most,
             c->name);
    const RisingNumbers radii = { "--radii", 0, most, expected };
    double *first = c->radius + 1;            // 0 always comes first: the clean accuracy
    int n = config_rising(text, &radii, first, MAX_RADII - 1, err);
    if (n < 0) return -1;
    if (first[0] > 0) first--, n++;
    memmove(c->radius, first, (size_t)n * sizeof *first);
    c->n = n;
    return 0;
}

static int read_curve(Evaluation *e, CurvePlan *c, const char *name, Err *err) {
    const Config *u = e->use;
    if (read_name(&c->plan, name, err)) return -1;
    const int apgd = c->plan.method == METHOD_APGD;
    if (apgd && eval_classes(e) < DLR_CLASSES)
        return err_set(err, ERR_ARG,
                       "--attacks %s: found a model of %d classes, expected at least %d: its DLR "
                       "loss is of the four highest logits",
                       name, eval_classes(e), DLR_CLASSES);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->plan.loss = u->attack_loss;
    c->plan.steps = apgd && !config_given(u, "attack-steps") ? APGD_STEPS : u->attack_steps;
    c->plan.restarts = u->restarts;
    c->plan.random_start = u->random_start;
    c->plan.step = u->attack_step_size;
    if (u->radii[0]) return read_radii(e, c, err);
    usual_radii(c);
    return 0;
}

int check_attack(Evaluation *e, Err *err) {
    char list[sizeof e->use->attacks], *at = list, *name;
    snprintf(list, sizeof list, "%s", e->use->attacks);
    while ((name = strsep(&at, ","))) {
        if (e->n_curve == MAX_CURVES)
            return err_set(err, ERR_ARG, "--attacks: more than %d", (int)MAX_CURVES);
        CurvePlan *c = &e->curve[e->n_curve];
        c->seed = eval_seed(e) + (uint64_t)e->n_curve++;
        if (read_curve(e, c, name, err)) return -1;
    }
    return 0;
}

// ---- what they find -------------------------------------------------------------------------

// accuracy[n]: 0..1, from the attack.
static int put_curve(Evaluation *e, AttackCurve *to, const CurvePlan *c, const double *accuracy,
                     Err *err) {
    const AttackPlan *a = &c->plan;
    const int fgsm = a->method == METHOD_FGSM, apgd = a->method == METHOD_APGD;
    *to = (AttackCurve){ .norm = a->l2 ? "l2" : "linf",
                         .attack = METHODS[a->method],
                         .loss = apgd                     ? "ce, then targeted dlr"
                                 : a->loss == LOSS_MARGIN ? "margin"
                                                          : "ce",
                         .targets = apgd ? apgd_targets(eval_classes(e)) : NAN,
                         .steps = fgsm ? 1 : a->steps,
                         .restarts = attack_restarts(a),
                         .random_start = !fgsm && a->random_start,
                         .step = a->step > 0 && a->method == METHOD_PGD ? a->step : NAN,
                         .step_rule = fgsm          ? "the radius"
                                      : apgd        ? "adaptive size"
                                      : a->step > 0 ? "fixed"
                                                    : "2.5 radius / steps",
                         .refine = e->use->refine,
                         .draws = e->use->refine ? e->use->draws : 1,
                         .n = c->n,
                         .radius = eval_alloc(e, (size_t)c->n, sizeof(double), err),
                         .accuracy = eval_alloc(e, (size_t)c->n, sizeof(double), err) };
    if (!to->radius || !to->accuracy) return -1;
    for (int i = 0; i < c->n; i++) {
        to->radius[i] = c->radius[i];
        to->accuracy[i] = 100 * accuracy[i];
    }
    return 0;
}

static int run_attacks(Evaluation *e, const AttackedImages *of, Err *err) {
    double accuracy[MAX_RADII] = { 0 };
    AttackResult r = { .n = of->n, .n_curve = e->n_curve };
    r.curve = eval_alloc(e, (size_t)e->n_curve, sizeof *r.curve, err);
    int rc = r.curve ? need_probe(e, err) : -1;
    for (int i = 0; !rc && i < e->n_curve; i++) {
        const CurvePlan *c = &e->curve[i];
        rc = attack_curve(&e->probe, of, c, e->ev, accuracy, err);
        if (!rc) rc = put_curve(e, &r.curve[i], c, accuracy, err);
        if (!i) r.clean = 100 * accuracy[0];
    }
    if (!rc) e->results.attack = r;
    return rc;
}

int task_attack(Evaluation *e, Err *err) {
    if (e->use->limit || e->n <= ATTACKED)
        return run_attacks(e, &(AttackedImages){ &e->bytes, e->test.y, e->n }, err);
    Set some;                                            // those of --limit 1000
    Bytes bytes = { 0 };
    if (set_draw(&some, &e->test, ATTACKED, eval_seed(e), err)) return -1;
    int rc = bytes_upload(&bytes, &e->m->dev, &some, err);
    if (!rc) rc = run_attacks(e, &(AttackedImages){ &bytes, some.y, ATTACKED }, err);
    bytes_free(&bytes, &e->m->dev);
    set_free(&some);
    return rc;
}
