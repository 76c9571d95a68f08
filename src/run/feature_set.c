// feature_set.c - see feature_set.h.
#include "run/feature_set.h"
#include "base/file.h"
#include "base/log.h"
#include "base/npz.h"
#include "base/safetensors.h"
#include "data/formats.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = INCEPTION_FEATURES };

void feature_set_free(FeatureSet *s) {
    moments_free(&s->moments);
    free(s->x);
    free(s->logits);
    free(s->y);
    *s = (FeatureSet){ 0 };
}

static int alloc_rows(FeatureSet *s, size_t n, int logits, int labels, Err *err) {
    s->n_x = n;
    if (memory_check(n * DIM * sizeof *s->x, "features of images", err)) return -1;
    s->x = malloc(n * DIM * sizeof *s->x + 1);
    if (logits) s->logits = malloc(n * INCEPTION_CLASSES * sizeof *s->logits + 1);
    if (labels) s->y = malloc(n * sizeof *s->y + 1);
    return s->x && (s->logits || !logits) && (s->y || !labels)
               ? 0
               : err_set(err, ERR_MEM, "out of memory for features of %zu images", n);
}

int feature_set(FeatureSet *s, FeatureNet *f, const ImageSource *from, int with_logits,
                const Events *ev, Err *err) {
    *s = (FeatureSet){ 0 };
    snprintf(s->about, sizeof s->about, "%s", from->about);
    int has_logits = 0;
    int rc = features_prepare(f, from, &has_logits, err) ||
             alloc_rows(s, from->n, with_logits && has_logits, from->y != NULL, err);
    const double began = now_seconds();
    if (!rc) rc = features_of(f, from, s->x, s->logits, ev, err);
    const double computed = now_seconds();
    s->seconds_features = computed - began;
    if (!rc) rc = moments_of(&s->moments, s->x, from->n, DIM, err);
    s->seconds_statistics = now_seconds() - computed;
    if (!rc && s->y && from->y) memcpy(s->y, from->y, from->n * sizeof *s->y);
    if (rc) feature_set_free(s);
    return rc;
}

// ---- references, and their cache ----------------------------------------------------------------

// HOME/fid/IMAGES-WEIGHTS-PRECISION.safetensors: what a figure's reference depends on.
static int cache_path(char dst[MAX_PATH], const FeatureNet *f, const ImageSource *from, Err *err) {
    char home[MAX_PATH], dir[MAX_PATH], md5[33], name[128];
    if (data_home(home, err) || path_join(dir, sizeof dir, home, "fid", err) ||
        dir_make(dir, err) || source_hash(from, md5, err))
        return -1;
    snprintf(name, sizeof name, "%s-%.8s-%s.safetensors", md5, f->sha256, f->precision);
    return path_join(dst, MAX_PATH, dir, name, err);
}

static int has_shape(const StTensor *t, int rank, uint64_t rows, uint64_t columns) {
    return t && t->rank == rank && t->shape[0] == rows && (rank == 1 || t->shape[1] == columns);
}

int feature_cache_read(FeatureSet *s, const char *path, size_t n, Err *err) {
    St st;
    if (st_open(&st, path, err)) return -1;
    const StTensor *mean = st_find(&st, "mu"), *cov = st_find(&st, "sigma"),
                   *x = st_find(&st, "features");
    const size_t rows = n < FID_REFERENCES ? n : FID_REFERENCES;
    int rc = has_shape(mean, 1, DIM, 0) && has_shape(cov, 2, DIM, DIM) && has_shape(x, 2, rows, DIM)
                 ? 0
                 : err_set(err, ERR_DATA, "%s: not a cache of features", path);
    s->moments = (Moments){ .n = n, .dim = DIM };
    if (!rc) rc = alloc_rows(s, rows, 0, 0, err);
    if (!rc) {
        s->moments.mean = malloc(DIM * sizeof(double));
        s->moments.cov = malloc((size_t)DIM * DIM * sizeof(double));
        rc = s->moments.mean && s->moments.cov
                 ? st_read_f64(&st, mean, s->moments.mean, DIM, err) ||
                       st_read_f64(&st, cov, s->moments.cov, (uint64_t)DIM * DIM, err) ||
                       st_read_f32(&st, x, s->x, rows * DIM, err)
                 : err_set(err, ERR_MEM, "out of memory for statistics");
    }
    st_close(&st);
    return rc;
}

static int write_cache(const FeatureSet *s, const char *path, Err *err) {
    const uint64_t dim = DIM, square[] = { DIM, DIM }, rows[] = { s->n_x, DIM };
    char n[32];
    snprintf(n, sizeof n, "%zu", s->moments.n);
    StWriter w = st_create(path);
    st_meta_add(&w, "images", s->about);
    st_meta_add(&w, "n", n);
    st_declare(&w, "mu", ST_F64, 1, &dim);
    st_declare(&w, "sigma", ST_F64, 2, square);
    st_declare(&w, "features", ST_F32, 2, rows);
    st_write(&w, s->moments.mean, DIM * sizeof(double));
    st_write(&w, s->moments.cov, (size_t)DIM * DIM * sizeof(double));
    st_write(&w, s->x, s->n_x * DIM * sizeof *s->x);
    return st_finish(&w, err);
}

float *feature_choice(const FeatureSet *s, size_t n, uint64_t seed, uint32_t which, Err *err) {
    uint32_t *row = choose_images(s->n_x, n, seed, which, err);
    float *x = row ? malloc(n * DIM * sizeof *x + 1) : NULL;
    if (row && !x) err_set(err, ERR_MEM, "out of memory for features");
    for (size_t i = 0; x && i < n; i++)
        memcpy(x + i * DIM, s->x + row[i] * (size_t)DIM, DIM * sizeof *x);
    free(row);
    return x;
}

// Keeps the features of some images.
static int keep_some(FeatureSet *s, Err *err) {
    if (s->n_x <= FID_REFERENCES) return 0;
    float *x = feature_choice(s, FID_REFERENCES, 0, 0, err);
    if (!x) return -1;
    free(s->x);
    free(s->y);
    s->x = x;
    s->y = NULL;
    s->n_x = FID_REFERENCES;
    return 0;
}

int feature_reference(FeatureSet *s, FeatureNet *f, const ImageSource *from, const Events *ev,
                      Err *err) {
    char path[MAX_PATH], line[MAX_PATH + sizeof err->msg + 64];
    Err none = { 0 };
    *s = (FeatureSet){ 0 };
    const int cache = !cache_path(path, f, from, &none) && !comm_rank(f->comm);
    int known = 0;
    if (cache && file_exists(path)) {
        snprintf(s->about, sizeof s->about, "%s", from->about);
        known = !feature_cache_read(s, path, from->n, &none);
        if (!known) {
            feature_set_free(s);
            snprintf(line, sizeof line, "%s; computed again", none.msg);
            tell_line(ev, line);
        }
    }
    comm_broadcast(f->comm, &known, sizeof known);
    if (known) return comm_check(f->comm, err);
    if (feature_set(s, f, from, 0, ev, err)) return -1;
    if (keep_some(s, err)) {
        feature_set_free(s);
        return -1;
    }
    if (cache) none = (Err){ 0 };                            // that of a damaged cache was told
    if (comm_rank(f->comm)) return 0;
    if (cache && !write_cache(s, path, &none)) return 0;
    snprintf(line, sizeof line, "statistics could not be cached: %s", none.msg);
    tell_line(ev, line);
    return 0;
}

// ---- statistics of other programs ---------------------------------------------------------------

int feature_is_statistics(const char *path) {
    Zip z;
    const size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 4, ".npz") != 0 || zip_open(&z, path, NULL)) return 0;
    const int yes = npz_has(&z, "mu");
    zip_close(&z);
    return yes;
}

static int read_statistics(FeatureSet *s, Zip *z, Err *err) {
    NpzArray mean, cov;
    if (npz_find(z, "mu", &mean, err) || npz_find(z, "sigma", &cov, err)) return -1;
    if (mean.rank != 1 || mean.shape[0] != DIM || cov.rank != 2 || cov.shape[0] != DIM ||
        cov.shape[1] != DIM)
        return err_set(err, ERR_DATA, "%s: expected mu of %d numbers and sigma of %d x %d", z->path,
                       DIM, DIM, DIM);
    s->moments = (Moments){ .dim = DIM };
    s->moments.mean = malloc(DIM * sizeof(double));
    s->moments.cov = malloc((size_t)DIM * DIM * sizeof(double));
    if (!s->moments.mean || !s->moments.cov)
        return err_set(err, ERR_MEM, "out of memory for statistics");
    return npz_read_f64(z, &mean, s->moments.mean, err) ||
           npz_read_f64(z, &cov, s->moments.cov, err);
}

int feature_statistics(FeatureSet *s, const char *path, const Events *ev, Err *err) {
    Zip z;
    tell_line(ev, "warning: statistics from other programs may be based on another resize, which "
                  "shifts FID");
    *s = (FeatureSet){ 0 };
    if (zip_open(&z, path, err)) return -1;
    snprintf(s->about, sizeof s->about, "%.500s, statistics", path);
    const int rc = read_statistics(s, &z, err);
    zip_close(&z);
    if (rc) feature_set_free(s);
    return rc;
}

int feature_statistics_write(const FeatureSet *s, const char *path, Err *err) {
    const uint64_t shape[] = { DIM, DIM };
    NpzWriter w;
    npz_create(&w, path, 0);
    npz_add(&w, "mu", ST_F64, 1, shape);
    npz_write(&w, s->moments.mean, DIM * sizeof(double));
    npz_add(&w, "sigma", ST_F64, 2, shape);
    npz_write(&w, s->moments.cov, (size_t)DIM * DIM * sizeof(double));
    return npz_finish(&w, err);
}

// ---- figures ------------------------------------------------------------------------------------

// Two sides of at most FID_REFERENCES images.
static int pairs_of_some(FidFigures *f, Features a, Features b, uint64_t seed, const Events *ev,
                         Err *err) {
    Kid kid;
    Prdc prdc;
    const PairOpts o = { KID_SUBSETS, PRDC_NEAREST, seed };
    const int enough = a.n > PRDC_NEAREST && b.n > PRDC_NEAREST;
    if (compare_pairs(&kid, enough ? &prdc : NULL, a, b, &o, ev, err)) return -1;
    f->kid = kid.mean;
    f->kid_sd = kid.sd;
    f->kid_all = kid.all;
    if (!enough) return 0;
    f->precision = prdc.precision;
    f->recall = prdc.recall;
    f->density = prdc.density;
    f->coverage = prdc.coverage;
    return 0;
}

static int pairs_of(FidFigures *f, const FeatureSet *a, const FeatureSet *b, uint64_t seed,
                    const Events *ev, Err *err) {
    enum { MOST = FID_REFERENCES };
    float *some_a = a->n_x > MOST ? feature_choice(a, MOST, seed, 0, err) : NULL,
          *some_b = b->n_x > MOST ? feature_choice(b, MOST, seed, 1, err) : NULL;
    int rc = (a->n_x > MOST && !some_a) || (b->n_x > MOST && !some_b) ? -1 : 0;
    const Features of_a = { some_a ? some_a : a->x, some_a ? MOST : a->n_x, DIM },
                   of_b = { some_b ? some_b : b->x, some_b ? MOST : b->n_x, DIM };
    if (!rc) rc = pairs_of_some(f, of_a, of_b, seed, ev, err);
    free(some_a);
    free(some_b);
    return rc;
}

static int score_of(FidFigures *f, const FeatureSet *s, uint64_t seed, Err *err) {
    uint32_t *order = choose_images(s->n_x, s->n_x, seed, 0, err);
    InceptionScore score;
    const int rc =
        order ? inception_score(&score, s->logits, s->n_x, INCEPTION_CLASSES, order, IS_SPLITS, err)
              : -1;
    free(order);
    if (rc) return -1;
    f->is = score.mean;
    f->is_sd = score.sd;
    return 0;
}

int fid_figures(FidFigures *f, const FeatureSet *images, const FeatureSet *reference, uint64_t seed,
                const Events *ev, Err *err) {
    *f = (FidFigures){ .n = (double)images->moments.n,
                       .n_reference = (double)reference->moments.n,
                       .kid = NAN,
                       .kid_sd = NAN,
                       .kid_all = NAN,
                       .precision = NAN,
                       .recall = NAN,
                       .density = NAN,
                       .coverage = NAN,
                       .is = NAN,
                       .is_sd = NAN };
    const double began = now_seconds();
    if (frechet_distance(&f->fid, &images->moments, &reference->moments, err)) return -1;
    const double found = now_seconds();
    f->seconds_fid = found - began;
    if (images->x && reference->x && pairs_of(f, images, reference, seed, ev, err)) return -1;
    f->seconds_pairs = now_seconds() - found;
    if (images->logits && images->n_x >= IS_SPLITS && score_of(f, images, seed, err)) return -1;
    return 0;
}

// The rows of class c to dst; how many they are.
static size_t rows_of_class(float *dst, const FeatureSet *s, int c) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_x; i++)
        if (s->y[i] == c) memcpy(dst + n++ * DIM, s->x + i * (size_t)DIM, DIM * sizeof *dst);
    return n;
}

static int class_distance(double *fid, int c, const FeatureSet *images, const FeatureSet *reference,
                          float *room, Err *err) {
    Moments a = { 0 }, b = { 0 };
    *fid = NAN;
    size_t n = rows_of_class(room, images, c);
    if (n < 2) return 0;
    int rc = moments_of(&a, room, n, DIM, err);
    n = rc ? 0 : rows_of_class(room, reference, c);
    if (n >= 2) {
        rc = moments_of(&b, room, n, DIM, err);
        if (!rc) rc = frechet_distance(fid, &a, &b, err);
    }
    moments_free(&a);
    moments_free(&b);
    return rc;
}

int fid_by_class(double *fid, int classes, const FeatureSet *images, const FeatureSet *reference,
                 const Events *ev, Err *err) {
    const size_t most = images->n_x > reference->n_x ? images->n_x : reference->n_x;
    float *room = malloc(most * DIM * sizeof *room + 1);
    int rc = room ? 0 : err_set(err, ERR_MEM, "out of memory for features");
    for (int c = 0; !rc && c < classes; c++) {
        tell_progress(ev, (uint64_t)c, (uint64_t)classes, "classes", "FID by class");
        rc = stopped(ev, err);
        if (!rc) rc = class_distance(&fid[c], c, images, reference, room, err);
    }
    if (!rc) tell_progress(ev, (uint64_t)classes, (uint64_t)classes, "classes", "FID by class");
    free(room);
    return rc;
}
