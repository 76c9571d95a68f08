// starts.c - chain starts, drawn from the images themselves: no covariance, no Cholesky factor.
//
// x0 = mean + n^(-1/2) sum_i z_i (x_i - mean) + 0.01 eta has exactly the law N(mean, Sigma + 1e-4
// I), Sigma being the covariance divided by n, whatever n is (docs/pyld.md).
#include "jem/starts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int groups(StartKind kind, int classes) {
    return kind == START_INFORMATIVE ? classes : kind == START_GAUSSIAN ? 1 : 0;
}

// Sorts images by group: first[k] .. first[k + 1] of rows are group k's.
static void sort_rows(const int *y, int n, int n_group, int *rows, int *first) {
    for (int i = 0; i < n; i++) first[(n_group > 1 ? y[i] : 0) + 1]++;
    for (int k = 0; k < n_group; k++) first[k + 1] += first[k];
    int *at = first + n_group + 1;                           // the caller leaves room for it
    memcpy(at, first, (size_t)n_group * sizeof *at);
    for (int i = 0; i < n; i++) rows[at[n_group > 1 ? y[i] : 0]++] = i;
}

static double pixel(uint8_t v) { return (double)v / 127.5 - 1; }

static void group_mean(const uint8_t *x, const int *rows, int n, int dim, double *mean) {
    for (int i = 0; i < dim; i++) mean[i] = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < dim; i++)
            mean[i] += pixel(x[(size_t)rows[r] * (size_t)dim + (size_t)i]);
    for (int i = 0; i < dim; i++) mean[i] /= n;
}

static int no_image(int k, Err *err) {
    return err_set(err, ERR_DATA, "class %d has no training image to start chains from", k);
}

// Groups, their lists of images and their means, on the host.
typedef struct {
    Arena arena;
    int *rows, *first;
    double *mean;
} Groups;

static int group_images(Groups *f, const uint8_t *pixels, const int *y, int n, int n_group, int dim,
                        Err *err) {
    *f = (Groups){ 0 };
    f->rows = arena_alloc(&f->arena, (size_t)n + 1, sizeof(int));
    f->first = arena_alloc(&f->arena, 2 * (size_t)n_group + 2, sizeof(int));
    f->mean = arena_alloc(&f->arena, (size_t)n_group * (size_t)dim + 1, sizeof(double));
    if (arena_ok(&f->arena, "chain starts", err)) return -1;
    sort_rows(y, n, n_group, f->rows, f->first);
    for (int k = 0; k < n_group; k++) {
        const int count = f->first[k + 1] - f->first[k];
        if (count < 1) return no_image(k, err);
        group_mean(pixels, f->rows + f->first[k], count, dim, f->mean + (size_t)k * (size_t)dim);
    }
    return 0;
}

static int open_common(Starts *s, Dev *dev, StartKind kind, int classes, int n_group, int dim,
                       Err *err) {
    *s = (Starts){ .dev = dev, .kind = kind, .classes = classes, .dim = dim, .n_group = n_group };
    s->g = arena_alloc(&s->arena, (size_t)n_group + 1, sizeof *s->g);
    s->share = arena_alloc(&s->arena, (size_t)classes, sizeof *s->share);
    if (arena_ok(&s->arena, "chain starts", err)) return -1;
    for (int k = 0; k < classes; k++) s->share[k] = (real)(k + 1) / (real)classes;
    s->number = dev->be.alloc(dev, STARTS_AT_ONCE * sizeof(int), "chain starts");
    s->mean =
        dev->be.alloc(dev, ((size_t)n_group * (size_t)dim + 1) * sizeof(real), "chain starts");
    return dev_check(dev, err);
}

// Host doubles or floats become the device's reals.
static int upload_real(Dev *dev, real *dst, const double *d, const float *f, size_t n, Err *err) {
    real *tmp = malloc((n + 1) * sizeof *tmp);
    if (!tmp) return err_set(err, ERR_MEM, "out of memory for chain starts");
    for (size_t i = 0; i < n; i++) tmp[i] = d ? (real)d[i] : (real)f[i];
    dev->be.copy_in(dev, dst, tmp, n * sizeof *tmp);
    dev->be.sync(dev);
    free(tmp);
    return dev_check(dev, err);
}

int starts_open(Starts *s, Dev *dev, StartKind kind, const Bytes *set, const uint8_t *pixels,
                const int *y, int classes, Err *err) {
    const int n_group = groups(kind, classes), dim = set->c * set->side * set->side;
    if (open_common(s, dev, kind, classes, n_group, dim, err)) return -1;
    int *count = arena_alloc(&s->arena, (size_t)classes, sizeof *count);
    if (arena_ok(&s->arena, "chain starts", err)) return -1;
    for (int i = 0; i < set->n; i++) count[y[i]]++;
    for (int k = 0, sum = 0; k < classes; k++) s->share[k] = (real)(sum += count[k]) / (real)set->n;
    if (!n_group) return 0;
    Groups f;
    int rc = group_images(&f, pixels, y, set->n, n_group, dim, err);
    if (!rc) {
        s->rows = dev->be.alloc(dev, (size_t)set->n * sizeof(int), "chain starts");
        rc = dev_check(dev, err);
    }
    if (!rc) {
        dev->be.copy_in(dev, s->rows, f.rows, (size_t)set->n * sizeof(int));
        rc = upload_real(dev, s->mean, f.mean, NULL, (size_t)n_group * (size_t)dim, err);
    }
    for (int k = 0; !rc && k < n_group; k++) {
        const int n = f.first[k + 1] - f.first[k];
        s->g[k] = (Gauss){ .n = n,
                           .dim = dim,
                           .bytes = set->x,
                           .rows = s->rows + f.first[k],
                           .mean = s->mean + (size_t)k * (size_t)dim,
                           .scale = (real)(1 / sqrt((double)n)),
                           .jitter = (real)0.01 };
    }
    arena_free(&f.arena);
    return rc;
}

int starts_open_model(Starts *s, Dev *dev, StartKind kind, int classes, const StartsFile *file,
                      Err *err) {
    const int n_group = file->n_group, rank = file->rank;
    const int dim = file->channels * file->side * file->side;
    if (open_common(s, dev, kind, classes, n_group, dim, err)) return -1;
    if (!n_group) return 0;
    if (file->spectrum) {
        s->host.of = *file;
        s->host.image = arena_alloc(&s->arena, (size_t)dim, sizeof *s->host.image);
        s->host.pixels = arena_alloc(&s->arena, (size_t)dim, sizeof *s->host.pixels);
        if (arena_ok(&s->arena, "chain starts", err)) return -1;
        return cosine_open(&s->host.cosine, file->channels, file->side, err);
    }
    const size_t n = (size_t)n_group * (size_t)rank * (size_t)dim;
    s->factor = dev->be.alloc(dev, n * sizeof(real), "chain starts");
    if (dev_check(dev, err) || upload_real(dev, s->factor, NULL, file->factor, n, err) ||
        upload_real(dev, s->mean, NULL, file->mean, (size_t)n_group * (size_t)dim, err))
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
    if (arena_ok(&s->arena, "chain starts", err)) return -1;
    sort_rows(y, set->n, s->classes, rows, first);
    for (int k = 0; k < s->classes; k++)
        if (first[k] == first[k + 1]) return no_image(k, err);
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

// mean + sum_r z_r factor_r + what the spectrum says + 0.01 eta. No device has a cosine transform,
// and this takes no time beside the chain that follows.
static void draw_host(Starts *s, uint64_t seed, int number, int group, real *out, int n_out) {
    const StartsFile *f = &s->host.of;
    const Rng key = { .seed = seed, .stream = RNG_START, .step = (uint32_t)number };
    const size_t dim = (size_t)s->dim, rank = (size_t)f->rank;
    const float *mean = f->mean + (size_t)group * dim;
    const float *factor = f->factor + (size_t)group * rank * dim;
    const float *spectrum = f->spectrum + (size_t)group * dim;
    double *x = s->host.image;
    for (size_t i = 0; i < dim; i++) x[i] = (double)(spectrum[i] * rng_normal(key, i));
    cosine_inverse(&s->host.cosine, x);
    for (size_t r = 0; r < rank; r++) {
        const double z = (double)rng_normal(key, 2 * dim + r);
        for (size_t i = 0; i < dim; i++) x[i] += z * (double)factor[r * dim + i];
    }
    for (size_t i = 0; i < dim; i++) {
        const double v = x[i] + (double)mean[i] + 0.01 * (double)rng_normal(key, dim + i);
        s->host.pixels[i] = (real)fmin(fmax(v, -1), 1);
    }
    s->dev->be.copy_in(s->dev, out + (size_t)(number % n_out) * dim, s->host.pixels,
                       dim * sizeof *out);
    s->dev->be.sync(s->dev);
}

void starts_draw(Starts *s, uint64_t seed, const int *number, const int *cls, int n, real *out,
                 int n_out) {
    const Rng key = { .seed = seed, .stream = RNG_START };
    Dev *dev = s->dev;
    int list[STARTS_AT_ONCE];
    if (s->host.of.spectrum) {
        for (int i = 0; i < n; i++)
            draw_host(s, seed, number[i], s->n_group > 1 ? cls[i] : 0, out, n_out);
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

// ---- the low-rank form -------------------------------------------------------------------------

static double square(const double *v, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += v[i] * v[i];
    return sum;
}

// Leaves of x what is orthogonal to the orthonormal rows of v [rank][dim].
static void take_away(double *x, const double *v, int rank, int dim) {
    for (int a = 0; a < rank; a++) {
        const double *va = v + (size_t)a * (size_t)dim;
        double dot = 0;
        for (int i = 0; i < dim; i++) dot += x[i] * va[i];
        for (int i = 0; i < dim; i++) x[i] -= dot * va[i];
    }
}

// Makes the rows of v [rank][dim] orthonormal; rows that vanish stay zero.
static void orthonormal(double *v, int rank, int dim) {
    for (int a = 0; a < rank; a++) {
        double *va = v + (size_t)a * (size_t)dim;
        const double before = square(va, dim);
        for (int twice = 0; twice < 2; twice++) take_away(va, v, a, dim);
        const double len = square(va, dim);
        const double k = len > 1e-20 * before && len > 0 ? 1 / sqrt(len) : 0;
        for (int i = 0; i < dim; i++) va[i] *= k;
    }
}

// to = Sigma v, rows of v at a time, without forming Sigma: (1/n) sum_i x_i <x_i, v>, x being
// centred.
static void times_covariance(const float *x, int n, int dim, int rank, const double *v,
                             double *to) {
    memset(to, 0, (size_t)rank * (size_t)dim * sizeof *to);
    #pragma omp parallel for
    for (int a = 0; a < rank; a++)
        for (int r = 0; r < n; r++) {
            const float *row = x + (size_t)r * (size_t)dim;
            const double *va = v + (size_t)a * (size_t)dim;
            double *ta = to + (size_t)a * (size_t)dim, dot = 0;
            #pragma omp simd reduction(+ : dot)
            for (int i = 0; i < dim; i++) dot += (double)row[i] * va[i];
            dot /= n;
            #pragma omp simd
            for (int i = 0; i < dim; i++) ta[i] += dot * (double)row[i];
        }
}

// The leading directions v [rank][dim] of x's covariance, each as long as its variance.
static void find_directions(const float *x, int n, int dim, int rank, Rng key, double *v,
                            double *room) {
    enum { SWEEPS = 6 };                       // of block power iteration
    const size_t len = (size_t)rank * (size_t)dim;
    for (size_t i = 0; i < len; i++) v[i] = (double)rng_normal(key, i);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        orthonormal(v, rank, dim);
        times_covariance(x, n, dim, rank, v, room);
        memcpy(v, room, len * sizeof *v);
    }
}

// The standard deviation of each coefficient of what the directions v leave of the images x.
static void find_spectrum(const float *x, int n, int dim, int rank, double *v, Cosine *cosine,
                          double *image, double *power, float *sd) {
    orthonormal(v, rank, dim);
    for (int i = 0; i < dim; i++) power[i] = 0;
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < dim; i++) image[i] = (double)x[(size_t)r * (size_t)dim + (size_t)i];
        take_away(image, v, rank, dim);
        cosine_forward(cosine, image);
        for (int i = 0; i < dim; i++) power[i] += image[i] * image[i];
    }
    for (int i = 0; i < dim; i++) sd[i] = (float)sqrt(power[i] / n);
}

void starts_file_free(StartsFile *f) {
    free(f->mean);
    free(f->factor);
    free(f->spectrum);
    f->mean = f->factor = f->spectrum = NULL;
}

static int starts_file_alloc(StartsFile *f, size_t dim, Err *err) {
    f->mean = malloc((size_t)f->n_group * dim * sizeof *f->mean);
    f->factor = malloc((size_t)f->n_group * (size_t)f->rank * dim * sizeof *f->factor);
    f->spectrum = malloc((size_t)f->n_group * dim * sizeof *f->spectrum);
    if (f->mean && f->factor && f->spectrum) return 0;
    starts_file_free(f);
    return err_set(err, ERR_MEM, "out of memory for chain starts");
}

int starts_factor(const uint8_t *pixels, const int *y, size_t n, StartsFile *f, Err *err) {
    enum { MOST = 1000 };                      // images per group
    const int rank = f->rank, dim = f->channels * f->side * f->side;
    const size_t len = (size_t)rank * (size_t)dim, most = n < MOST ? n : MOST;
    Groups g = { 0 };
    Cosine cosine = { 0 };
    int rc = starts_file_alloc(f, (size_t)dim, err) ||
             cosine_open(&cosine, f->channels, f->side, err) ||
             group_images(&g, pixels, y, (int)n, f->n_group, dim, err);
    double *v = rc ? NULL : arena_alloc(&g.arena, 2 * len + 2 * (size_t)dim, sizeof *v);
    float *x = rc ? NULL : arena_alloc(&g.arena, most * (size_t)dim, sizeof *x);
    if (!rc) rc = arena_ok(&g.arena, "chain starts", err);
    double *power = v + 2 * len;
    for (int k = 0; !rc && k < f->n_group; k++) {
        const int *rows = g.rows + g.first[k];
        const int count = g.first[k + 1] - g.first[k], used = count < MOST ? count : MOST;
        const double *mu = g.mean + (size_t)k * (size_t)dim;
        const Rng key = { .seed = 1, .stream = RNG_START, .step = (uint32_t)k };
        for (int r = 0; r < used; r++)
            for (int i = 0; i < dim; i++)
                x[(size_t)r * (size_t)dim + (size_t)i] =
                    (float)(pixel(pixels[(size_t)rows[r] * (size_t)dim + (size_t)i]) - mu[i]);
        find_directions(x, used, dim, rank, key, v, v + len);
        for (int a = 0; a < rank; a++) {       // |Sigma v| is the variance along v
            const double *va = v + (size_t)a * (size_t)dim, size = sqrt(square(va, dim));
            const double scale = size > 0 ? 1 / sqrt(size) : 0;     // v / |v| * sqrt(|v|)
            for (int i = 0; i < dim; i++)
                f->factor[(size_t)k * len + (size_t)(a * dim + i)] = (float)(va[i] * scale);
        }
        for (int i = 0; i < dim; i++) f->mean[(size_t)k * (size_t)dim + (size_t)i] = (float)mu[i];
        find_spectrum(x, used, dim, rank, v, &cosine, power + dim, power,
                      f->spectrum + (size_t)k * (size_t)dim);
    }
    if (rc) starts_file_free(f);
    cosine_close(&cosine);
    arena_free(&g.arena);
    return rc;
}
