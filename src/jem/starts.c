// starts.c - chain starts, drawn from the images themselves: no covariance, no Cholesky factor.
//
// x0 = mean + n^(-1/2) sum_i z_i (x_i - mean) + 0.01 eta has exactly the law N(mean, Sigma + 1e-4
// I), Sigma being the covariance divided by n, whatever n is (docs/pyld.md).
#include "jem/starts.h"
#include "jem/groups.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int groups(StartKind kind, int classes) {
    return kind == START_INFORMATIVE ? classes : kind == START_GAUSSIAN ? 1 : 0;
}

static int open_common(Starts *s, Dev *dev, StartKind kind, int classes, int n_group, int dim,
                       Err *err) {
    *s = (Starts){ .dev = dev, .kind = kind, .classes = classes, .dim = dim, .n_group = n_group };
    s->g = arena_alloc(&s->arena, (size_t)n_group + 1, sizeof *s->g);
    s->share = arena_alloc(&s->arena, (size_t)classes, sizeof *s->share);
    if (arena_ok(&s->arena, "chain starts", err)) return -1;
    for (int k = 0; k < classes; k++) s->share[k] = (real)(k + 1) / (real)classes;
    s->number = dev->be.alloc(dev, STARTS_AT_ONCE * sizeof(int), "chain starts");
    return dev_check(dev, err);
}

// Host doubles or floats become the device's reals, in memory of their own.
static int upload(Dev *dev, real **to, const double *d, const float *f, size_t n, Err *err) {
    real *tmp = malloc((n + 1) * sizeof *tmp);
    if (!tmp) return err_set(err, ERR_MEM, "out of memory for chain starts");
    for (size_t i = 0; i < n; i++) tmp[i] = d ? (real)d[i] : (real)f[i];
    *to = dev->be.alloc(dev, n * sizeof *tmp, "chain starts");
    int rc = dev_check(dev, err);
    if (!rc) {
        dev->be.copy_in(dev, *to, tmp, n * sizeof *tmp);
        dev->be.sync(dev);
        rc = dev_check(dev, err);
    }
    free(tmp);
    return rc;
}

int starts_open(Starts *s, Dev *dev, StartKind kind, const Set *set, const Bytes *there, Err *err) {
    const int classes = set->classes, n_group = groups(kind, classes),
              dim = set->c * set->side * set->side;
    if (open_common(s, dev, kind, classes, n_group, dim, err)) return -1;
    int *count = arena_alloc(&s->arena, (size_t)classes, sizeof *count);
    if (arena_ok(&s->arena, "chain starts", err)) return -1;
    for (size_t i = 0; i < set->n; i++) count[set->y[i]]++;
    for (int k = 0, sum = 0; k < classes; k++) s->share[k] = (real)(sum += count[k]) / (real)set->n;
    if (!n_group) return 0;
    Groups f;
    int rc = groups_open(&f, set, n_group, err);
    if (!rc) {
        s->rows = dev->be.alloc(dev, set->n * sizeof(int), "chain starts");
        rc = dev_check(dev, err);
    }
    if (!rc) {
        dev->be.copy_in(dev, s->rows, f.rows, set->n * sizeof(int));
        rc = upload(dev, &s->mean, f.mean, NULL, (size_t)n_group * (size_t)dim, err);
    }
    for (int k = 0; !rc && k < n_group; k++) {
        const int n = f.first[k + 1] - f.first[k];
        s->g[k] = (Gauss){ .n = n,
                           .dim = dim,
                           .bytes = there->x,
                           .rows = s->rows + f.first[k],
                           .mean = s->mean + (size_t)k * (size_t)dim,
                           .scale = (real)(1 / sqrt((double)n)),
                           .jitter = (real)0.01 };
    }
    groups_close(&f);
    return rc;
}

static int open_host(Starts *s, const StartsFile *file, Err *err) {
    enum { MOST = 64, NUMBERS = 1 << 20 };
    const int lot = NUMBERS / s->dim, plane = file->side * file->side;
    s->host.file = file;
    s->host.lot = lot < 1 ? 1 : lot > MOST ? MOST : lot;
    s->host.room = arena_alloc(&s->arena, (size_t)s->host.lot * (size_t)(s->dim + plane),
                               sizeof *s->host.room);
    s->host.images =
        arena_alloc(&s->arena, (size_t)s->host.lot * (size_t)s->dim, sizeof *s->host.images);
    return arena_ok(&s->arena, "chain starts", err) ||
           cosine_open(&s->host.cosine, file->channels, file->side, err);
}

int starts_open_model(Starts *s, Dev *dev, StartKind kind, int classes, const StartsFile *file,
                      Err *err) {
    const int n_group = file->n_group, rank = file->rank;
    const int dim = file->channels * file->side * file->side;
    if (open_common(s, dev, kind, classes, n_group, dim, err)) return -1;
    if (!n_group) return 0;
    if (file->kept) return open_host(s, file, err);
    const size_t n = (size_t)n_group * (size_t)dim;
    if (upload(dev, &s->factor, NULL, file->factor, n * (size_t)rank, err) ||
        upload(dev, &s->mean, NULL, file->mean, n, err))
        return -1;
    for (int k = 0; k < n_group; k++)
        s->g[k] = (Gauss){ .n = rank,
                           .dim = dim,
                           .factor = s->factor + (size_t)k * (size_t)(rank * dim),
                           .mean = s->mean + (size_t)k * (size_t)dim,
                           .scale = 1,
                           .jitter = (real)0.01 };
    return 0;
}

int starts_add_real(Starts *s, const Bytes *set, const int *y, double rate, double noise,
                    Err *err) {
    if (rate <= 0) return 0;
    int *rows = arena_alloc(&s->arena, (size_t)set->n, sizeof *rows);
    int *first = arena_alloc(&s->arena, 2 * (size_t)s->classes + 2, sizeof *first);
    if (arena_ok(&s->arena, "chain starts", err) ||
        groups_sort(y, set->n, s->classes, rows, first, err))
        return -1;
    s->real.rate = (real)rate;
    s->real.noise = (real)noise;
    s->real.set = *set;
    s->real.rows = rows;
    s->real.first = first;
    s->real.image = s->dev->be.alloc(s->dev, (size_t)s->dim * sizeof(real), "chain starts");
    return dev_check(s->dev, err);
}

void starts_close(Starts *s) {
    void *all[] = { s->rows, s->number, s->mean, s->factor, s->real.image };
    for (int i = 0; s->dev && i < 5; i++)
        if (all[i]) s->dev->be.free(s->dev, all[i]);
    cosine_close(&s->host.cosine);
    arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

int starts_class(const Starts *s, PriorKind prior, uint64_t seed, uint32_t number) {
    const Rng key = { .seed = seed, .stream = RNG_LABEL, .step = number };
    if (prior == PRIOR_UNIFORM) return (int)rng_below(key, 0, (uint32_t)s->classes);
    const real u = (real)rng_uniform(key, 0);
    int k = 0;
    while (k < s->classes - 1 && u >= s->share[k]) k++;
    return k;
}

static Rng real_key(uint64_t seed, int number) {
    return (Rng){ .seed = seed, .stream = RNG_REAL, .step = (uint32_t)number };
}

static int is_real(const Starts *s, uint64_t seed, int number) {
    return s->real.rate > 0 && (real)rng_uniform(real_key(seed, number), 0) < s->real.rate;
}

// A training image of class cls with noise: it is the mean of a Gaussian that varies by the noise
// alone.
static void draw_real(Starts *s, uint64_t seed, int number, int cls, real *out, int n_out) {
    const Rng which = real_key(seed, number), key = { .seed = seed, .stream = RNG_START };
    Dev *dev = s->dev;
    const int *mine = s->real.rows + s->real.first[cls];
    const int n = s->real.first[cls + 1] - s->real.first[cls];
    const int list[] = { mine[rng_below(which, 1, (uint32_t)n)], number };
    const Gauss g = { .dim = s->dim, .mean = s->real.image, .jitter = s->real.noise };
    dev->be.copy_in(dev, s->number, list, sizeof list);
    dev->be.batch(dev, &s->real.set, s->number, 1, (Augment){ 0 }, key, NULL, s->real.image, NULL);
    dev->be.gauss(dev, &g, s->number + 1, 1, key, out, n_out);
}

// No device has a cosine transform, and this takes little time beside the chains that follow.
static void draw_on_host(Starts *s, uint64_t seed, const int *number, const int *cls, int n,
                         real *out, int n_out) {
    const StartsFile *file = s->host.file;
    const size_t dim = (size_t)s->dim, room = dim + (size_t)(file->side * file->side);
    #pragma omp parallel for
    for (int i = 0; i < n; i++)
        starts_file_draw(file, &s->host.cosine, seed, number[i], s->n_group > 1 ? cls[i] : 0,
                         s->host.room + (size_t)i * room, s->host.images + (size_t)i * dim);
    for (int i = 0; i < n; i++)
        s->dev->be.copy_in(s->dev, out + draw_row(number[i], n_out) * dim,
                           s->host.images + (size_t)i * dim, dim * sizeof *out);
    s->dev->be.sync(s->dev);
}

void starts_draw(Starts *s, uint64_t seed, const int *number, const int *cls, int n, real *out,
                 int n_out) {
    const Rng key = { .seed = seed, .stream = RNG_START };
    Dev *dev = s->dev;
    int list[STARTS_AT_ONCE];
    if (s->host.file) {
        for (int i = 0; i < n; i += s->host.lot)
            draw_on_host(s, seed, number + i, cls + i, n - i < s->host.lot ? n - i : s->host.lot,
                         out, n_out);
        return;
    }
    for (int i = 0; i < n; i++)
        if (is_real(s, seed, number[i])) draw_real(s, seed, number[i], cls[i], out, n_out);
    for (int k = 0; k < (s->n_group ? s->n_group : 1); k++)
        for (int i = 0, m = 0; i <= n; i++) {                 // i == n: flush
            if (i < n && (s->n_group < 2 || cls[i] == k) && !is_real(s, seed, number[i]))
                list[m++] = number[i];
            if (!m || (i < n && m < STARTS_AT_ONCE)) continue;
            dev->be.copy_in(dev, s->number, list, (size_t)m * sizeof *list);
            if (s->n_group) dev->be.gauss(dev, &s->g[k], s->number, m, key, out, n_out);
            else dev->be.uniform(dev, s->number, m, (size_t)s->dim, key, out, n_out);
            m = 0;
        }
}
