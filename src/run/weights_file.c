// weights_file.c - see weights_file.h.
#include "run/weights_file.h"
#include "base/text.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// The tests in double precision stop below this layer.
_Static_assert(sizeof(real) == sizeof(float), "files have the device's numbers as they are");

static void declare(StWriter *w, const char *in, const char *name, const char *part, StType type,
                    int rank, const uint64_t *shape) {
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", in, name, part);
    st_declare(w, full, type, rank, shape);
}

// A net's running statistics one by one: mean, variance, mean, ...
typedef struct {
    char   name[96];
    size_t off, n;  // where in net->state, which a net without memory (a plan) does not have
} Statistic;

static Statistic statistic(const Net *net, int i) {
    const Stat *s = &net->stat[i / 2];
    Statistic one = { .off = s->off + (i % 2 ? s->len : 0), .n = s->len };
    snprintf(one.name, sizeof one.name, "%s.running_%s", s->name, i % 2 ? "var" : "mean");
    return one;
}

void declare_net(StWriter *w, const Net *net, const char *in, StType type) {
    for (int i = 0; i < net->n_par; i++) {
        uint64_t shape[4];
        for (int k = 0; k < net->par[i].rank; k++) shape[k] = (uint64_t)net->par[i].dim[k];
        declare(w, in, net->par[i].name, "", type, net->par[i].rank, shape);
    }
    for (int i = 0; i < net->n_stat; i++) {
        const uint64_t len = net->stat[i].len;
        declare(w, in, net->stat[i].name, ".running_mean", type, 1, &len);
        declare(w, in, net->stat[i].name, ".running_var", type, 1, &len);
    }
}

void declare_counters(StWriter *w, const Net *net, const char *in) {
    for (int i = 0; i < net->n_stat; i++)
        declare(w, in, net->stat[i].name, ".num_batches_tracked", ST_I64, 0, NULL);
}

void write_counters(StWriter *w, const Net *net) {
    const int64_t batches = (int64_t)net->batches;
    for (int i = 0; i < net->n_stat; i++) st_write(w, &batches, sizeof batches);
}

void write_half(StWriter *w, const float *v, size_t n) {
    uint16_t h[1024];
    for (size_t i = 0; i < n; i += 1024) {
        const size_t m = n - i < 1024 ? n - i : 1024;
        for (size_t k = 0; k < m; k++) h[k] = f32_to_f16(v[i + k]);
        st_write(w, h, m * sizeof *h);
    }
}

void write_device(const DeviceOut *o, const real *p, size_t n) {
    if (o->w->held && !o->half) {
        void *to = st_next(o->w, n * sizeof *p);
        if (to) o->dev->be.copy_out(o->dev, to, p, n * sizeof *p);
        return;
    }
    for (size_t i = 0; i < n; i += DEVICE_OUT_ROOM) {
        const size_t m = n - i < DEVICE_OUT_ROOM ? n - i : DEVICE_OUT_ROOM;
        o->dev->be.copy_out(o->dev, o->room, p + i, m * sizeof *p);
        if (o->half) write_half(o->w, o->room, m);
        else st_write(o->w, o->room, m * sizeof *p);
    }
}

void write_net(const DeviceOut *o, const Net *net) {
    for (int i = 0; i < net->n_par; i++) write_device(o, net->w + net->par[i].off, net->par[i].len);
    for (int i = 0; i < 2 * net->n_stat; i++) {
        const Statistic s = statistic(net, i);
        write_device(o, net->state + s.off, s.n);
    }
}

// Larger numbers would become infinity.
static int fits_half(Dev *dev, const char *name, const real *p, size_t n, Err *err) {
    real *v = malloc((n + 1) * sizeof *v);
    if (!v) return err_set(err, ERR_MEM, "out of memory for '%s'", name);
    int rc = 0;
    dev->be.copy_out(dev, v, p, n * sizeof *v);
    for (size_t i = 0; !rc && i < n; i++)
        if (!((f32_to_f16(v[i]) & 0x7fff) < 0x7c00))
            rc = err_set(err, ERR_ARG,
                         "--half: '%s' has %g at element %zu, and 16-bit numbers end at 65504: "
                         "expected a model with 32-bit weights, without --half",
                         name, (double)v[i], i);
    free(v);
    return rc;
}

int net_fits_half(const Net *net, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (fits_half(net->dev, net->par[i].name, net->w + net->par[i].off, net->par[i].len, err))
            return -1;
    for (int i = 0; i < 2 * net->n_stat; i++) {
        const Statistic s = statistic(net, i);
        if (fits_half(net->dev, s.name, net->state + s.off, s.n, err)) return -1;
    }
    return 0;
}

// The tensor of that name, if it has n numbers.
static const StTensor *find_numbers(const St *st, const char *name, size_t n, Err *err) {
    const StTensor *t = st_find(st, name);
    const size_t found = t ? (size_t)(t->bytes / st_type_size(t->type)) : 0;
    if (t && found == n) return t;
    if (!t) err_set(err, ERR_DATA, "%s: no tensor '%s'", st->path, name);
    else
        err_set(err, ERR_DATA, "%s: tensor %s: %zu element%s, expected %zu", st->path, name, found,
                plural((double)found), n);
    return NULL;
}

// Weights with one flipped bit would give NaN for every image, with no word about why.
static int check_numbers(const St *st, const char *name, const real *v, size_t n, real most,
                         Err *err) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            return err_set(err, ERR_DATA,
                           "%s: tensor '%s' has %s at element %zu: the file is damaged", st->path,
                           name, isnan(v[i]) ? "NaN" : "infinity", i);
        if (fabs((double)v[i]) > (double)most)
            return err_set(
                err, ERR_DATA,
                "%s: tensor '%s' has %g at element %zu, expected %g to %g: the file is damaged",
                st->path, name, (double)v[i], i, -(double)most, (double)most);
    }
    return 0;
}

int read_device(St *st, const char *name, Dev *dev, real *dst, size_t n, real most, Err *err) {
    const StTensor *t = find_numbers(st, name, n, err);
    if (!t) return -1;
    real *v = malloc((n + 1) * sizeof *v);
    if (!v) return err_set(err, ERR_MEM, "out of memory for '%s'", name);
    int rc = st_read_f32(st, t, v, n, err);
    if (!rc) rc = check_numbers(st, name, v, n, most, err);
    if (!rc) dev->be.copy_in(dev, dst, v, n * sizeof *v);
    dev->be.sync(dev);
    free(v);
    return rc ? rc : dev_check(dev, err);
}

int model_complete(const St *st, const Net *net, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (!find_numbers(st, net->par[i].name, net->par[i].len, err)) return -1;
    for (int i = 0; i < 2 * net->n_stat; i++) {
        const Statistic s = statistic(net, i);
        if (!st_find(st, s.name))
            return err_set(err, ERR_DATA,
                           "%s: no tensor '%s': batch normalisation needs running statistics",
                           st->path, s.name);
        if (!find_numbers(st, s.name, s.n, err)) return -1;
    }
    return 0;
}

int model_weights(St *st, Net *net, Err *err) {
    for (int i = 0; i < net->n_par; i++)
        if (read_device(st, net->par[i].name, net->dev, net->w + net->par[i].off, net->par[i].len,
                        FLT_MAX, err))
            return -1;
    for (int i = 0; i < 2 * net->n_stat; i++) {
        const Statistic s = statistic(net, i);
        if (read_device(st, s.name, net->dev, net->state + s.off, s.n, FLT_MAX, err)) return -1;
    }
    for (int i = 0; i < net->n_stat; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.num_batches_tracked", net->stat[i].name);
        const StTensor *t = st_find(st, name);
        int64_t batches = 0;
        if (t && t->type == ST_I64 && st_read_raw(st, t, &batches, sizeof batches, err)) return -1;
        net->batches = batches > 0 ? (uint64_t)batches : 0;
    }
    net_changed(net);
    return dev_check(net->dev, err);
}
