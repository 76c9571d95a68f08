// fit_fid.c - FID of the replay buffer while a run trains (--fid-every).
#include "data/run_data.h"
#include "run/feature_set.h"
#include "run/fit_run.h"
#include <math.h>
#include <stdlib.h>

enum { IMAGES = 5000 };

struct FitFid {
    FeatureNet net;
    FeatureSet reference;
};

int run_fid_check(const TrainRun *r, Err *err) {
    char weights[FEATURES_PATH];
    const Config *c = &r->cfg;
    if (!(c->fid_every > 0)) return 0;
    if (c->px == PX_NONE)
        return err_set(err, ERR_ARG, "--fid-every: without chains (--px none) there is no buffer");
    return features_find(weights, c, err);
}

int run_fid_due(const TrainRun *r) {
    const double every = r->cfg.fid_every, epoch = (double)r->t.step / (double)r->t.per_epoch;
    if (!(every > 0) || !px_active(&r->t) || !r->t.step) return 0;
    return floor(epoch / every) > floor((epoch - 1) / every) || r->t.step >= r->total;
}

void run_fid_close(TrainRun *r) {
    if (!r->fid) return;
    features_close(&r->fid->net);
    feature_set_free(&r->fid->reference);
    free(r->fid);
    r->fid = NULL;
}

// The network, and the features of the training set: of all its images, as `jempp eval` has it.
static int fid_open(TrainRun *r, Err *err) {
    const DataOpts o = data_opts(&r->cfg, r->ev);
    ImageSource s;
    r->fid = calloc(1, sizeof *r->fid);
    if (!r->fid) return err_set(err, ERR_MEM, "out of memory for FID");
    int open = features_open(&r->fid->net, r->comm, &r->cfg, err);
    if (!open) open = source_open(&s, r->cfg.data, &o, err);
    if (comm_agree(r->comm, open, err)) {
        if (!open) source_close(&s);                        // another rank's failure
        return -1;
    }
    const int rc = feature_reference(&r->fid->reference, &r->fid->net, &s, r->ev, err);
    source_close(&s);
    return rc;
}

// Slots of the buffer as bytes.
static int buffer_images(const TrainRun *r, ImageSource *s, Err *err) {
    const Trainer *t = &r->t;
    int n;
    float *x = run_slots(t, IMAGES, &n, err);
    const int rc = x ? source_of_floats(s, (FloatImages){ x, n, t->data.c, t->data.side },
                                        "FID of the replay buffer", err)
                     : -1;
    free(x);
    return rc;
}

static int measure(TrainRun *r, double *fid, Err *err) {
    ImageSource s;
    FeatureSet f = { 0 };
    const int open = (!r->fid && fid_open(r, err)) || buffer_images(r, &s, err);
    if (comm_agree(r->comm, open, err)) {
        if (!open) source_close(&s);                        // another rank's failure
        return -1;
    }
    int rc = feature_set(&f, &r->fid->net, &s, 0, r->ev, err);
    if (!rc && run_writes(r))
        rc = frechet_distance(fid, &f.moments, &r->fid->reference.moments, err);
    feature_set_free(&f);
    source_close(&s);
    return comm_agree(r->comm, rc, err);
}

double run_fid(TrainRun *r) {
    double fid = NAN;
    Err why = { 0 };
    if (!measure(r, &fid, &why)) return fid;
    run_fid_close(r);
    comm_begin(r->comm);
    if (!stop_asked(r->ev)) run_say(r, "note: FID could not be computed: %s", why.msg);
    return NAN;
}
