// weight_noise.c - see weight_noise.h.
#include "jem/weight_noise.h"
#include <math.h>
#include <stdlib.h>

// The root mean square of each parameter, computed on the device.
static int measure(WeightNoise *w, Err *err) {
    const Net *net = w->net;
    Dev *dev = net->dev;
    const size_t bytes = (size_t)net->n_par * sizeof(real);
    real *sums = dev->be.alloc(dev, bytes, "noise on weights");
    if (!sums) return dev_check(dev, err);
    for (int i = 0; i < net->n_par; i++) {
        const real *p = net->w + net->par[i].off;
        dev->be.dot(dev, net->par[i].len, p, p, &sums[i]);
    }
    dev->be.copy_out(dev, w->rms, sums, bytes);
    dev->be.free(dev, sums);
    for (int i = 0; i < net->n_par; i++)
        w->rms[i] = (real)sqrt((double)w->rms[i] / (double)net->par[i].len);
    return dev_check(dev, err);
}

int weight_noise_open(WeightNoise *w, Net *net, Err *err) {
    Dev *dev = net->dev;
    const size_t bytes = net->n_w * sizeof(real);
    *w = (WeightNoise){ .net = net,
                        .clean = dev->be.alloc(dev, bytes, "weights without noise"),
                        .rms = calloc((size_t)net->n_par, sizeof *w->rms) };
    int rc = dev_check(dev, err);
    if (!rc && !w->rms) rc = err_set(err, ERR_MEM, "out of memory for noise on weights");
    if (!rc) dev->be.copy(dev, w->clean, net->w, bytes);
    if (!rc) rc = measure(w, err);
    if (rc) weight_noise_close(w);
    return rc;
}

static void restore(WeightNoise *w) {
    Dev *dev = w->net->dev;
    if (w->noisy) dev->be.copy(dev, w->net->w, w->clean, w->net->n_w * sizeof(real));
    w->noisy = 0;
}

void weight_noise_add(WeightNoise *w, double share, Rng key) {
    Net *net = w->net;
    restore(w);
    for (int i = 0; i < net->n_par; i++) {
        const Param *p = &net->par[i];
        if (p->fan_in <= 0) continue;
        // a Langevin step whose gradient counts for nothing
        Tensor t = { 1, 1, 1, (int)p->len, net->w + p->off };
        const Move only_noise = { .inner = 1, .clip = 1, .noise = (real)share * w->rms[i] };
        key.sub = (uint32_t)i;
        net->dev->be.langevin(net->dev, &t, &t, only_noise, key, NULL);
    }
    w->noisy = 1;
    net_changed(net);
}

void weight_noise_remove(WeightNoise *w) {
    if (!w->noisy) return;
    restore(w);
    net_changed(w->net);
}

void weight_noise_close(WeightNoise *w) {
    if (!w->net) return;
    weight_noise_remove(w);
    w->net->dev->be.free(w->net->dev, w->clean);
    free(w->rms);
    *w = (WeightNoise){ 0 };
}
