// starts_file.c - see starts_file.h.
//
// The coefficients of photographs are nearly uncorrelated, except for the few low ones that hold
// nearly all of the variance, so keeping the correlations of those alone comes close to the
// whole covariance at a hundredth of its size. Large models have room for more, and their samples
// profit (docs/samples.md).
#include "jem/starts_file.h"
#include "base/rng.h"
#include "dev/dense.h"
#include "jem/groups.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int starts_kept(size_t n_w, int n_group, int dim) {
    const double bytes = (double)n_w * 2 / 6 / n_group, most = floor(sqrt(2 * bytes));
    return (int)fmin(fmax(most, STARTS_KEPT), dim);
}

size_t starts_lower_len(int kept) { return (size_t)kept * ((size_t)kept + 1) / 2; }

static int size_of(const StartsFile *f) { return f->channels * f->side * f->side; }

void starts_file_draw(const StartsFile *f, const Cosine *cosine, uint64_t seed, int number,
                      int group, double *room, real *out) {
    const Rng key = { .seed = seed, .stream = RNG_START, .step = (uint32_t)number };
    const size_t dim = (size_t)size_of(f), len = starts_lower_len(f->kept);
    const float *mean = f->mean + (size_t)group * dim, *sd = f->spectrum + (size_t)group * dim;
    const int8_t *row = f->lower + ((size_t)group + 1) * len;
    double *x = room;
    for (size_t i = 0; i < dim; i++) x[i] = (double)rng_normal(key, i);
    for (int a = f->kept - 1; a >= 0; a--) {           // the last row first: it needs all others
        double sum = 0;
        row -= a + 1;
        for (int b = 0; b <= a; b++) sum += row[b] * x[f->index[b]];
        x[f->index[a]] = sum / STARTS_UNIT;
    }
    for (size_t i = 0; i < dim; i++) x[i] *= (double)sd[i];
    cosine_inverse(cosine, x, room + dim);
    for (size_t i = 0; i < dim; i++) {
        const double v = x[i] + (double)mean[i] + 0.01 * (double)rng_normal(key, dim + i);
        out[i] = (real)fmin(fmax(v, -1), 1);
    }
}

// ---- fitting ------------------------------------------------------------------------------------

typedef struct {
    const uint8_t *pixels;
    Groups         by;
    Cosine         cosine;
    int            dim, kept, most;      // most: images of a group that are used
    float         *z;                    // [most][dim]: coefficients of images
    double        *power;                // [dim]
    double        *cov, *factor;         // [kept][kept]
    double        *column;               // [kept][most]: the kept coefficients of all images
    Arena          arena;
} Fit;

// z[i] = coefficients of the i-th image of group k, less those of the group's mean, for at most
// `most` images. Returns how many, or -1.
static int transform(Fit *t, int k, int most, Err *err) {
    const size_t dim = (size_t)t->dim, plane = (size_t)(t->cosine.side * t->cosine.side);
    const int *rows = t->by.rows + t->by.first[k];
    const int count = t->by.first[k + 1] - t->by.first[k], n = count < most ? count : most;
    const double *mean = t->by.mean + (size_t)k * dim;
    int failed = 0;
    #pragma omp parallel reduction(| : failed)
    {
        double *x = malloc((dim + plane) * sizeof *x);
        failed = !x;
        #pragma omp for
        for (int r = 0; r < n; r++) {
            if (!x) continue;
            const uint8_t *image = t->pixels + (size_t)rows[r] * dim;
            for (size_t i = 0; i < dim; i++) x[i] = pixel_value(image[i]) - mean[i];
            cosine_forward(&t->cosine, x, x + dim);
            for (size_t i = 0; i < dim; i++) t->z[(size_t)r * dim + i] = (float)x[i];
        }
        free(x);
    }
    return failed ? err_set(err, ERR_MEM, "out of memory for chain starts") : n;
}

// Adds the variance of each coefficient of z[0] .. z[n - 1] to power.
static void add_power(Fit *t, int n) {
    const double share = 1. / n;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < t->dim; i++) {
            const double v = (double)t->z[(size_t)r * (size_t)t->dim + (size_t)i];
            t->power[i] += share * v * v;
        }
}

static int falling(const void *a, const void *b) {
    const double x = **(const double *const *)a, y = **(const double *const *)b;
    return x < y ? 1 : x > y ? -1 : *(const double *const *)a < *(const double *const *)b ? -1 : 1;
}

static int rising(const void *a, const void *b) {
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

// The coefficients of the largest variance within groups, by a part of the images.
static int choose(Fit *t, int n_group, int32_t *index, Err *err) {
    const int part = 1 + 2000 / n_group;
    const double **order = malloc((size_t)t->dim * sizeof *order);
    int rc = order ? 0 : err_set(err, ERR_MEM, "out of memory for chain starts");
    memset(t->power, 0, (size_t)t->dim * sizeof *t->power);
    for (int k = 0; !rc && k < n_group; k++) {
        const int n = transform(t, k, part < t->most ? part : t->most, err);
        rc = n < 0;
        if (!rc) add_power(t, n);
    }
    for (int i = 0; !rc && i < t->dim; i++) order[i] = t->power + i;
    if (!rc) {
        qsort(order, (size_t)t->dim, sizeof *order, falling);
        for (int a = 0; a < t->kept; a++) index[a] = (int32_t)(order[a] - t->power);
        qsort(index, (size_t)t->kept, sizeof *index, rising);
    }
    free(order);
    return rc;
}

// cov = the correlations of the kept coefficients of z[0] .. z[n - 1]. A little is added to the
// diagonal, as fewer images than coefficients leave it singular.
static int correlations(Fit *t, int n, const int32_t *index, Err *err) {
    const size_t dim = (size_t)t->dim, kept = (size_t)t->kept;
    for (size_t a = 0; a < kept; a++) {
        const double sd = sqrt(t->power[index[a]]), scale = sd > 0 ? 1 / sd : 0;
        for (int r = 0; r < n; r++)
            t->column[a * (size_t)n + (size_t)r] =
                scale * (double)t->z[(size_t)r * dim + (size_t)index[a]];
    }
    memset(t->cov, 0, kept * kept * sizeof *t->cov);
    if (dense_gram(t->cov, kept, (size_t)n, 1. / n, (Dense){ t->column, (size_t)n, 1 }, err))
        return -1;
    dense_mirror(t->cov, kept);
    for (size_t a = 0; a < kept; a++) t->cov[a * kept + a] = 1.001;
    return 0;
}

// The Cholesky factor of cov, its rows as long as 1, rounded.
static void factorise(Fit *t, int8_t *lower) {
    const int n = t->kept;
    double *f = t->factor;
    for (int a = 0; a < n; a++) {
        double length = 0;
        for (int b = 0; b <= a; b++) {
            double sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int c = 0; c < b; c++) sum += f[a * n + c] * f[b * n + c];
            const double rest = t->cov[a * n + b] - sum;
            f[a * n + b] = a == b ? sqrt(fmax(rest, 1e-6)) : rest / f[b * n + b];
            length += f[a * n + b] * f[a * n + b];
        }
        for (int b = 0; b <= a; b++)
            *lower++ = (int8_t)lrint(STARTS_UNIT * f[a * n + b] / sqrt(length));
    }
}

static int fit_group(Fit *t, StartsFile *f, int k, Err *err) {
    const size_t dim = (size_t)t->dim;
    const double *mean = t->by.mean + (size_t)k * dim;
    const int n = transform(t, k, t->most, err);
    if (n < 0) return -1;
    memset(t->power, 0, dim * sizeof *t->power);
    add_power(t, n);
    if (correlations(t, n, f->index, err)) return -1;
    factorise(t, f->lower + (size_t)k * starts_lower_len(f->kept));
    for (size_t i = 0; i < dim; i++) {
        f->mean[(size_t)k * dim + i] = (float)mean[i];
        f->spectrum[(size_t)k * dim + i] = (float)sqrt(t->power[i]);
    }
    return 0;
}

void starts_file_free(StartsFile *f) {
    free(f->mean);
    free(f->spectrum);
    free(f->index);
    free(f->lower);
    f->mean = f->spectrum = NULL;
    f->index = NULL;
    f->lower = NULL;
}

static int starts_file_alloc(StartsFile *f, Err *err) {
    const size_t groups = (size_t)f->n_group, dim = (size_t)size_of(f);
    f->mean = malloc(groups * dim * sizeof *f->mean);
    f->spectrum = malloc(groups * dim * sizeof *f->spectrum);
    f->index = malloc((size_t)f->kept * sizeof *f->index);
    f->lower = malloc(groups * starts_lower_len(f->kept));
    if (f->mean && f->spectrum && f->index && f->lower) return 0;
    return err_set(err, ERR_MEM, "out of memory for chain starts");
}

int starts_file_fit(const Set *set, StartsFile *f, Err *err) {
    enum { MOST = 5000, NUMBERS = 1 << 26 };   // images of a group; coefficients held at once
    const int dim = size_of(f), room = NUMBERS / dim, most = room < MOST ? room : MOST,
              n = (int)set->n;
    Fit t = { .pixels = set->x, .dim = dim, .kept = f->kept, .most = n < most ? n : most };
    const size_t kept = (size_t)f->kept, square = kept * kept;
    int rc = starts_file_alloc(f, err) || cosine_open(&t.cosine, f->channels, f->side, err) ||
             groups_open(&t.by, set, f->n_group, err);
    if (!rc) {
        t.z = arena_alloc(&t.arena, (size_t)t.most * (size_t)dim, sizeof *t.z);
        t.column = arena_alloc(&t.arena, (size_t)t.most * kept, sizeof *t.column);
        t.power = arena_alloc(&t.arena, (size_t)dim, sizeof *t.power);
        t.cov = arena_alloc(&t.arena, square, sizeof *t.cov);
        t.factor = arena_alloc(&t.arena, square, sizeof *t.factor);
        rc = arena_ok(&t.arena, "chain starts", err) || choose(&t, f->n_group, f->index, err);
    }
    for (int k = 0; !rc && k < f->n_group; k++) rc = fit_group(&t, f, k, err);
    if (rc) starts_file_free(f);
    groups_close(&t.by);
    cosine_close(&t.cosine);
    arena_free(&t.arena);
    return rc;
}
