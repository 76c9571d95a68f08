// golden.h - reading tests/golden (made by tools/make_golden.py, which says what is in it).
#ifndef GOLDEN_H
#define GOLDEN_H
#include "testing.h"
#include "base/safetensors.h"
#include "net/net.h"
#include <stdio.h>

#ifndef JEMPP_TEST_DIR
#define JEMPP_TEST_DIR "tests"
#endif

static inline void golden_open(St *st, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", JEMPP_TEST_DIR, file);
    OK(st_open(st, path, err));
}

static inline const StTensor *golden_find(const St *st, const char *a, const char *b) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", a, b);
    return st_find(st, name);
}

static inline size_t golden_count(const StTensor *t) { return t->bytes / st_type_size(t->type); }

// The named tensor as doubles (bytes as pixels in [-1, 1]); malloc'd.
static inline double *golden_read(St *st, const char *a, const char *b, size_t *n) {
    const StTensor *t = golden_find(st, a, b);
    if (!t) fail_msg("the golden file has no '%s%s'", a, b);
    const size_t count = golden_count(t);
    double *v = malloc((count + 1) * sizeof *v);
    if (n) *n = count;
    if (t->type == ST_U8) {
        uint8_t *raw = malloc(count);
        OK(st_read_raw(st, t, raw, count, err));
        for (size_t i = 0; i < count; i++) v[i] = raw[i] / 127.5 - 1;
        free(raw);
    } else if (t->type == ST_I32) {
        int32_t *raw = malloc(4 * count);
        OK(st_read_raw(st, t, raw, 4 * count, err));
        for (size_t i = 0; i < count; i++) v[i] = raw[i];
        free(raw);
    } else OK(st_read_f64(st, t, v, count, err));
    return v;
}

static inline void golden_upload(Dev *dev, real *dst, const double *v, size_t n) {
    real *r = malloc((n + 1) * sizeof *r);
    for (size_t i = 0; i < n; i++) r[i] = (real)v[i];
    dev->be.copy_in(dev, dst, r, n * sizeof *r);
    free(r);
}

// Weights "w.NAME" (those of `prefix` first) and running statistics into a net of the golden shape.
static inline void golden_weights(St *st, const char *prefix, Net *net) {
    for (int i = 0; i < net->n_par; i++) {
        const Param *p = &net->par[i];
        const int own = golden_find(st, prefix, p->name) != NULL;
        size_t n;
        double *v = golden_read(st, own ? prefix : "w.", p->name, &n);
        assert_int_equal(n, p->len);
        golden_upload(net->dev, net->w + p->off, v, n);
        free(v);
    }
    for (int i = 0; i < net->n_stat; i++) {
        static const char *const part[] = { ".running_mean", ".running_var" };
        for (size_t k = 0; k < 2; k++) {
            char name[96];
            size_t n;
            snprintf(name, sizeof name, "%s%s", net->stat[i].name, part[k]);
            double *v = golden_read(st, "w.", name, &n);
            assert_int_equal(n, net->stat[i].len);
            golden_upload(net->dev, net->state + net->stat[i].off + k * n, v, n);
            free(v);
        }
    }
    net_changed(net);
}

// The largest difference of net->state from PREFIX + "f.bn1.running_mean" and so on.
static inline double golden_stat_error(St *st, const char *prefix, Net *net) {
    real *mine = malloc((net->n_state + 1) * sizeof *mine);
    net->dev->be.copy_out(net->dev, mine, net->state, net->n_state * sizeof *mine);
    double worst = 0;
    for (int i = 0; i < net->n_stat; i++) for (size_t k = 0; k < 2; k++) {
        const Stat *s = &net->stat[i];
        char name[96];
        size_t n;
        snprintf(name, sizeof name, "%s.%s", s->name, k ? "running_var" : "running_mean");
        double *v = golden_read(st, prefix, name, &n);
        for (size_t j = 0; j < n; j++) {
            const double d = fabs((double)mine[s->off + k * n + j] - v[j]);
            worst = d > worst || isnan(d) ? d : worst;
        }
        free(v);
    }
    free(mine);
    return worst;
}
#endif
