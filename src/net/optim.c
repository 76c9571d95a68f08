// optim.c - SGD and Adam on the flat parameter block, Muon (muon.c) on its filters; schedules.
#include "net/optim.h"
#include <math.h>
#include <string.h>

double schedule_lr(const Schedule *s, uint64_t step) {
    const double pi = 3.14159265358979323846, t = s->total ? (double)step / (double)s->total : 0;
    double k = 1;
    switch (s->kind) {
    case SCHED_STEP:
        for (int i = 0; i < s->n_drop; i++)
            if (step >= s->drop[i]) k *= s->factor;
        break;
    case SCHED_COSINE: k = 0.5 * (1 + cos(pi * fmin(t, 1))); break;
    case SCHED_LINEAR: k = fmax(1 - t, 0); break;
    case SCHED_ONECYCLE: {      // from 1/25 up to 1 in 30 % of the run, then down to nearly nothing
        const double low = 1.0 / 25, end = low / 1e4;
        if (t < 0.3) k = 1 + (low - 1) * 0.5 * (1 + cos(pi * t / 0.3));
        else k = end + (1 - end) * 0.5 * (1 + cos(pi * fmin((t - 0.3) / 0.7, 1)));
        break;
    }
    }
    if (step < s->warmup) k *= (double)step / (double)s->warmup;
    return s->lr * k;
}

int optim_open(Optim *o, Net *net, Err *err) {
    Dev *dev = net->dev;
    const size_t bytes = net->n_w * sizeof(real), state = net->n_state * sizeof(real);
    o->m = o->avg = o->avg_state = o->room = NULL;
    o->v = dev->be.alloc(dev, bytes, "the optimiser");
    if (o->kind == OPTIM_ADAM) o->m = dev->be.alloc(dev, bytes, "the optimiser");
    if (o->kind == OPTIM_MUON)
        o->room = dev->be.alloc(dev, muon_room(net) * sizeof(real), "the optimiser");
    if (o->ema_keep > 0) o->avg = dev->be.alloc(dev, bytes, "averaged weights");
    if (o->ema_keep > 0) o->avg_state = dev->be.alloc(dev, state + 1, "averaged statistics");
    if (dev_check(dev, err)) return -1;
    dev->be.zero(dev, o->v, bytes);
    if (o->m) dev->be.zero(dev, o->m, bytes);
    optim_average(o, net);
    return dev_check(dev, err);
}

void optim_average(Optim *o, Net *net) {
    Dev *dev = net->dev;
    if (!o->avg) return;
    dev->be.copy(dev, o->avg, net->w, net->n_w * sizeof(real));
    dev->be.copy(dev, o->avg_state, net->state, net->n_state * sizeof(real));
}

static void sgd_part(Optim *o, Net *net, size_t from, size_t to, const StepState *now) {
    Dev *dev = net->dev;
    if (to > from)
        dev->be.sgd(dev, to - from, net->w + from, net->dw + from, o->v + from, o->sgd, now);
}

// All parameters but Muon's.
static void sgd_beside_muon(Optim *o, Net *net, const StepState *now) {
    size_t from = 0;
    for (int k = muon_filter(net, 0); k < net->n_par; k = muon_filter(net, k + 1)) {
        sgd_part(o, net, from, net->par[k].off, now);
        from = net->par[k].off + net->par[k].len;
    }
    sgd_part(o, net, from, net->n_w, now);
}

void optim_step(Optim *o, Net *net, const StepState *now) {
    Dev *dev = net->dev;
    switch (o->kind) {
    case OPTIM_SGD: sgd_part(o, net, 0, net->n_w, now); break;
    case OPTIM_ADAM: dev->be.adam(dev, net->n_w, net->w, net->dw, o->m, o->v, o->adam, now); break;
    case OPTIM_MUON:
        muon_step(o, net, now);
        sgd_beside_muon(o, net, now);
        break;
    }
    if (o->avg) dev->be.ema(dev, net->n_w, o->avg, net->w, o->ema_keep, now);
    net_changed(net);
}

void optim_close(Optim *o, Net *net) {
    void *all[] = { o->m, o->v, o->avg, o->avg_state, o->room };
    for (int i = 0; i < 5; i++)
        if (net->dev && all[i]) net->dev->be.free(net->dev, all[i]);
    memset(o, 0, sizeof *o);
}
