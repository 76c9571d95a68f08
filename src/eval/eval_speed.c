// eval_speed.c - the task speed: classification, sampling steps and training iterations, timed.
#include "base/log.h"
#include "data/run_data.h"
#include "eval/task.h"
#include "run/train_bench.h"
#include <math.h>
#include <stdlib.h>

// Milliseconds of one sampling step of a batch of chains, as in training.
static int chain_ms(Evaluation *e, double *ms, Err *err) {
    Net *net = &e->m->net;
    Dev *dev = net->dev;
    const int B = e->m->cfg.batch;
    Pass pass = { 0 };
    int rc = pass_open(&pass, net, B, MODE_SAMPLE, err);
    const size_t bytes = (size_t)B * tensor_len(&net->act[0]) * sizeof(real);
    void *mem = rc ? NULL : dev->be.alloc(dev, pass.bytes, "sampling");
    real *x = dev->be.alloc(dev, bytes, "a batch"),
         *sums = dev->be.alloc(dev, N_SUM * sizeof(real), "sums");
    if (!rc) rc = dev_check(dev, err);
    if (!rc) {
        Chain chain = chain_of(&e->m->cfg);
        chain.energy = (Energy){ .a = 1 };
        pass_bind(&pass, mem);
        dev->be.zero(dev, x, bytes);
        double began = 0;
        for (int k = -3; !rc && (k < 5 || (now_seconds() - began < 1 && k < 100)); k++) {
            if (k == 0) dev->be.sync(dev), began = now_seconds();
            chain.steps = 1;
            sample_run(&pass, &chain, &(ChainBatch){ .x = x, .sums = sums });
            dev->be.sync(dev);
            if (k >= 0) *ms = 1e3 * (now_seconds() - began) / (k + 1);
            rc = stopped(e->ev, err);
        }
        if (!rc) rc = dev_check(dev, err);
    }
    pass_close(&pass);
    void *all[] = { mem, x, sums };
    for (int i = 0; i < 3; i++) dev->be.free(dev, all[i]);
    return rc;
}

// Minutes per epoch, from a few training iterations on noise; NaN where they would take long, or
// the training set is missing.
static double epoch_minutes(Evaluation *e, double step_ms, double *iteration_ms) {
    enum { TIMED = 3, ALL = 7 };
    Config c = e->m->cfg;
    Set train = { 0 }, valid = { 0 };
    Err none = { 0 };
    double ms[TIMED], minutes = NAN;
    *iteration_ms = NAN;
    const int chains = c.px == PX_NONE ? 0 : c.steps;
    c.side = e->m->net.spec.side;
    c.channels = e->m->net.spec.channels;
    c.n_classes = e->m->net.spec.classes;
    c.threads = e->use->threads;
    c.precision = e->use->precision;
    c.conv = e->use->conv;
    if ((chains + 9) * step_ms * ALL < 60e3 &&
        !train_bench(&c, NULL, TIMED, ms, NULL, e->ev, &none))
        *iteration_ms = fmin(ms[0], fmin(ms[1], ms[2]));
    if (!isnan(*iteration_ms) && !run_images(&c, e->ev, &train, &valid, &none))
        minutes = *iteration_ms * (double)(train.n / (size_t)config_labelled(&c)) / 60e3;
    set_free(&train);
    set_free(&valid);
    return minutes;
}

static void tell_timed(const Evaluation *e, int done, const char *what) {
    tell_progress(e->ev, (uint64_t)done, 3, "measurements", what);
}

int task_speed(Evaluation *e, Err *err) {
    const int C = e->m->net.spec.classes;
    double began = 0, step_ms = 0, iteration_ms = 0, lse = 0;
    int n = 0;
    float *z = malloc((size_t)e->batch * (size_t)C * sizeof *z);
    if (!z) return err_set(err, ERR_MEM, "out of memory for logits");
    int rc = 0;
    tell_timed(e, 0, "classification");
    for (int from = 0, k = -1; !rc && (k < 1 || (n < e->n && now_seconds() - began < 10)); k++) {
        const int m = e->n - from < e->batch ? e->n - from : e->batch;
        if (k == 0) began = now_seconds();
        rc = scorer_set(&e->scorer, &e->bytes, from, m, z, err);
        for (int i = 0; i < m; i++) lse += logsumexp(z + (size_t)i * (size_t)C, C);
        if (k >= 0) n += m;
        if (k >= 0) from = from + m < e->n ? from + m : 0;
        if (!rc) rc = stopped(e->ev, err);
    }
    const double rate = n / (now_seconds() - began);
    free(z);
    tell_timed(e, 1, "sampling steps");
    if (rc || chain_ms(e, &step_ms, err)) return -1;
    tell_timed(e, 2, "training iterations");
    const double minutes = epoch_minutes(e, step_ms, &iteration_ms);
    if (stopped(e->ev, err)) return -1;
    tell_timed(e, 3, "");
    e->results.speed = (SpeedResult){ .n = n,
                                      .batch = e->batch,
                                      .images_per_second = rate,
                                      .seconds_per_10000 = 10000 / rate,
                                      .mean_logpx = lse / (n + e->batch),
                                      .chain_batch = e->m->cfg.batch,
                                      .sgld_step_ms = step_ms,
                                      .iteration_ms = iteration_ms,
                                      .minutes_per_epoch = minutes };
    return 0;
}
