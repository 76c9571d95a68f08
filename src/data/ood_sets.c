// ood_sets.c - see ood_sets.h.
#include "data/ood_sets.h"
#include "base/loop.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/formats.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum { INTERP, UNIFORM, GAUSSIAN, CONSTANT, N_MADE } Made;
static const char *const MADE_NAME[N_MADE] = { "interp", "uniform", "gaussian", "constant" };
enum { APART = 100 };                        // of pictures that are interpolated: a published batch

static int made_kind(const char *name) {
    int i = 0;
    while (i < N_MADE && strcmp(name, MADE_NAME[i]) != 0) i++;
    return i;
}

static uint8_t to_byte(double v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : lrint(v)); }

static int fill_noise(Set *s, Made kind, Rng key, const Events *ev, Err *err) {
    const size_t plane = (size_t)s->side * (size_t)s->side, dim = (size_t)s->c * plane;
    Loop loop = loop_begin(ev, 0, "", "");
    #pragma omp parallel for
    for (size_t i = 0; i < s->n; i++) {
        if (loop_stopped(&loop)) continue;
        Rng k = key;
        k.step = (uint32_t)i;                            // a picture is the same whatever the count
        for (size_t j = 0; j < dim; j++) {
            const uint64_t at = kind == CONSTANT ? j / plane : j;
            s->x[i * dim + j] = kind == GAUSSIAN
                                    ? to_byte(127.5 + 255.0 / 4 * (double)rng_normal(k, at))
                                    : (uint8_t)rng_below(k, at, 256);
        }
    }
    return loop_end(&loop, err);
}

// Stored as bytes as all pictures are: halves go to the even neighbour.
static void fill_interp(Set *s, const Set *in, Rng key) {
    const size_t dim = (size_t)s->c * (size_t)s->side * (size_t)s->side;
    for (size_t i = 0; i < s->n; i++) {
        const uint8_t *a = in->x + rng_perm(key, (uint32_t)in->n, (uint32_t)i) * dim,
                      *b = in->x + rng_perm(key, (uint32_t)in->n, (uint32_t)(i + APART)) * dim;
        for (size_t j = 0; j < dim; j++) s->x[i * dim + j] = to_byte((a[j] + b[j]) / 2.0);
    }
}

static int make_up(Set *s, Made kind, const Set *in, size_t limit, const DataOpts *o, Err *err) {
    size_t n = kind == INTERP ? in->n - APART : OOD_PICTURES;
    if (kind == INTERP && in->n <= APART)
        return err_set(err, ERR_ARG, "interp: %s has %zu picture%s, expected more than %d",
                       in->name, in->n, plural((double)in->n), (int)APART);
    if (limit && limit < n) n = limit;
    *s = (Set){ .c = in->c, .side = in->side, .classes = 1 };
    snprintf(s->from, sizeof s->from, "synthetic");
    if (number_names(s, err) || set_alloc(s, n, err)) return -1;
    const Rng key = { .seed = o->seed, .stream = RNG_EVAL, .sub = (uint32_t)kind + 1 };
    if (kind != INTERP) return fill_noise(s, kind, key, o->events, err);
    fill_interp(s, in, key);
    return stopped(o->events, err);
}

static int read_set(Set *s, const char *name, const Set *in, const DataOpts *o, Err *err) {
    if (strncmp(name, "folder:", 7) != 0 || !name[7]) return set_load(s, name, HALF_TEST, o, err);
    *s = (Set){ 0 };
    snprintf(s->from, sizeof s->from, "%s", name + 7);
    DataOpts alike = *o;
    alike.channels = in->c;
    alike.side = in->side;
    return read_pictures(s, name + 7, &alike, err);
}

int ood_load(Set *s, const char *name, const Set *in, size_t limit, const DataOpts *o, Err *err) {
    const int kind = made_kind(name);
    *s = (Set){ 0 };
    if (o->look_only && kind < N_MADE) return 0;
    int rc =
        kind < N_MADE ? make_up(s, (Made)kind, in, limit, o, err) : read_set(s, name, in, o, err);
    if (!rc) rc = check_image_size(name, s->c, s->side, s->side, in->c, in->side, err);
    snprintf(s->name, sizeof s->name, "%s", name);
    if (rc) set_free(s);
    return rc;
}

void ood_names(const char *names[16], const Set *in, const char *dir) {
    static const struct {
        const char *name;
        int c, side;
    } known[] = { { "svhn", 3, 32 },
                  { "cifar100", 3, 32 },
                  { "cifar10", 3, 32 },
                  { "mnist", 1, 28 },
                  { "fashion-mnist", 1, 28 } };
    SetInfo info[16];
    const int n_info = data_list(dir, info, 16);
    int n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int there = 0;
        for (int k = 0; k < n_info; k++)
            there |= info[k].test && !strcmp(info[k].name, known[i].name);
        if (there && known[i].c == in->c && known[i].side == in->side &&
            strcmp(known[i].name, in->name) != 0)
            names[n++] = known[i].name;
    }
    for (int i = in->n > APART ? INTERP : UNIFORM; i < N_MADE; i++) names[n++] = MADE_NAME[i];
    names[n] = NULL;
}
