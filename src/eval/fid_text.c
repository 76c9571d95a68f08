// fid_text.c - see fid_text.h.
#include "eval/fid_text.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_out.h"
#include "data/formats.h"
#include "run/feature_set.h"
#include "run/model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Config *use;
    const Events *ev;
    FeatureNet    net;
    ImageSource   images, reference;
    FeatureSet    a, b;                    // of these
    FidFigures    figures;
    int           classes;                 // with --per-class
    double       *by_class;                // [classes]; malloc'd, NULL: not asked for
    double        seconds, seconds_open;   // in all; for the device and the network
} Comparison;

// ---- the two sides ------------------------------------------------------------------------------

static int is_run(const char *path) {
    char last[RUN_PATH];
    return dir_exists(path) && !run_path(last, path, RUN_LAST, NULL) && file_exists(last);
}

// A run's replay buffer, all of it.
static int open_buffer(ImageSource *s, const Comparison *c, const char *path, Err *err) {
    Model *m = calloc(1, sizeof *m);
    Config use = *c->use;
    char about[600];
    float *x = NULL;
    if (!m) return err_set(err, ERR_MEM, "out of memory for a model");
    strcpy(use.device, "ref");                                // nothing is computed with it
    int rc = model_open(m, &use, path, err);
    const int n = rc ? 0 : m->cfg.buffer;
    if (!rc) {
        x = malloc((size_t)n * tensor_len(&m->net.act[0]) * sizeof *x);
        rc = x ? config_set(&use, "from", "buffer", "from", err)
               : err_set(err, ERR_MEM, "out of memory for the replay buffer");
    }
    if (!rc) rc = model_sample(m, &use, NULL, n, x, NULL, err);
    snprintf(about, sizeof about, "%.500s, %d image%s of the replay buffer", path, n, plural(n));
    if (!rc) rc = source_of_floats(s, model_images(m, x, n), about, err);
    free(x);
    model_close(m);
    free(m);
    return rc;
}

// The images of one side, or its statistics into f; then from->n is 0.
static int open_side(FeatureSet *f, ImageSource *from, Comparison *c, const char *name, Err *err) {
    const DataOpts o = { .dir = c->use->data_dir[0] ? c->use->data_dir : NULL,
                         .side = c->use->side,
                         .seed = (uint64_t)c->use->seed,
                         .events = c->ev };
    if (feature_is_statistics(name)) return feature_statistics(f, name, c->ev, err);
    const double began = now_seconds();
    if (!c->net.dev.be.name && features_open(&c->net, NULL, c->use, err)) return -1;
    c->seconds_open += now_seconds() - began;
    return is_run(name) ? open_buffer(from, c, name, err) : source_open(from, name, &o, err);
}

// The reference is compared by its statistics and a choice of features, which are cached; the other
// side's images are seldom compared again. By class all features are needed.
static int take_features(FeatureSet *f, ImageSource *from, Comparison *c, int reference, Err *err) {
    if (!from->n) return 0;
    const double began = now_seconds();
    if (features_prepare(&c->net, from, NULL, err)) return -1;
    c->seconds_open += now_seconds() - began;
    return reference && !c->use->per_class ? feature_reference(f, &c->net, from, c->ev, err)
                                           : feature_set(f, &c->net, from, !reference, c->ev, err);
}

static int has_labels(const ImageSource *s, Err *err) {
    if (s->y) return 0;
    return err_set(err, ERR_ARG,
                   "--per-class: %s: no labels; image sets have them, and npz files with arr_1 "
                   "[n], whole numbers from 0 to %d, as sample --class all --out FILE.npz writes; "
                   "of a run's replay buffer, eval --tasks fid --per-class compares predicted "
                   "classes",
                   s->about, MAX_CLASSES - 1);
}

static int check_labels(Comparison *c, const char *a, const char *b, Err *err) {
    if (!c->use->per_class) return 0;
    if (!c->images.n || !c->reference.n)
        return err_set(err, ERR_ARG, "--per-class: %s has statistics alone, no labels",
                       c->images.n ? b : a);
    if (has_labels(&c->images, err) || has_labels(&c->reference, err)) return -1;
    c->classes = c->reference.classes;
    if (c->images.classes <= c->classes) return 0;
    return err_set(err, ERR_DATA, "--per-class: %s has label %d, expected 0 to %d as %s has",
                   c->images.about, c->images.classes - 1, c->classes - 1, c->reference.about);
}

static void warn_of_bias(const Comparison *c) {
    const FeatureSet *side[] = { &c->a, &c->b };
    char line[800];
    for (int i = 0; i < 2; i++) {
        const size_t n = side[i]->moments.n;
        if (!n || n >= FID_BIASED_BELOW) continue;
        snprintf(line, sizeof line, "warning: %s: FID of fewer than %d images is biased upwards",
                 side[i]->about, FID_BIASED_BELOW);
        tell_line(c->ev, line);
    }
}

// ---- the result ---------------------------------------------------------------------------------

static char *as_json(const Comparison *c, Err *err) {
    const FidFigures *f = &c->figures;
    const struct Number {
        const char *key;
        double v;
    } number[] = { { "n", f->n },
                   { "n_reference", f->n_reference },
                   { "fid", f->fid },
                   { "kid", f->kid },
                   { "kid_sd", f->kid_sd },
                   { "kid_all", f->kid_all },
                   { "precision", f->precision },
                   { "recall", f->recall },
                   { "density", f->density },
                   { "coverage", f->coverage },
                   { "is", f->is },
                   { "is_sd", f->is_sd } };
    const struct Number part[] = {
        { "seconds", c->seconds },
        { "seconds_open", c->seconds_open },
        { "seconds_features", c->a.seconds_features + c->b.seconds_features },
        { "seconds_statistics", c->a.seconds_statistics + c->b.seconds_statistics },
        { "seconds_fid", f->seconds_fid },
        { "seconds_pairs", f->seconds_pairs }
    };
    JsonOut j = { .indent = 1 };
    json_open_object(&j, NULL);
    json_put_string(&j, "images", c->a.about);
    json_put_string(&j, "reference", c->b.about);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        json_put_double(&j, number[i].key, number[i].v);
    if (c->by_class) json_open_array(&j, "fid_per_class");
    for (int i = 0; i < c->classes; i++) json_put_double(&j, NULL, c->by_class[i]);
    if (c->by_class) json_close(&j);
    const int computed = c->net.dev.be.name != NULL;          // or both were statistics
    json_put_string(&j, "weights", computed ? c->net.path : NULL);
    json_put_string(&j, "weights_sha256", computed ? c->net.sha256 : NULL);
    json_put_string(&j, "device", c->net.dev.be.name);
    json_put_string(&j, "network_precision", c->net.precision);
    json_put_uint(&j, "seed", (uint64_t)c->use->seed);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        json_put_double(&j, part[i].key, part[i].v);
    json_close(&j);
    return json_finish(&j, NULL, err);
}

static void put_figures(FILE *out, const FidFigures *f) {
    fprintf(out, "  FID        %9.3f\n", f->fid);
    if (!isnan(f->kid))
        fprintf(out, "  KID        %9.5f  sd %.5f; %.5f in one subset of all\n", f->kid, f->kid_sd,
                f->kid_all);
    if (!isnan(f->precision))
        fprintf(out,
                "  precision  %9.3f\n  recall     %9.3f\n  density    %9.3f\n  coverage   %9.3f\n",
                f->precision, f->recall, f->density, f->coverage);
    if (!isnan(f->is)) fprintf(out, "  IS         %9.3f  sd %.3f\n", f->is, f->is_sd);
}

static void put_classes(FILE *out, const Comparison *c) {
    char name[256], number[24];
    for (int i = 0; i < c->classes; i++) {
        snprintf(number, sizeof number, "class %d", i);
        const char *known = c->reference.set.class_name ? c->reference.set.class_name[i] : number;
        text_shorten(name, sizeof name, known, 28);
        fprintf(out, "  FID of %s%*s", name, text_fill(name, 28), "");
        if (isnan(c->by_class[i])) fprintf(out, "         -\n");
        else fprintf(out, " %9.3f\n", c->by_class[i]);
    }
}

// Names of files may hold control characters.
static char *tamed(char *text) {
    if (text) tame(text);
    return text;
}

static char *as_text(const Comparison *c, Err *err) {
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    fprintf(out.f, "%s\nagainst %s\n", c->a.about, c->b.about);
    put_figures(out.f, &c->figures);
    put_classes(out.f, c);
    if (c->net.dev.be.name)
        fprintf(out.f, "weights: %s\n         SHA-256 %s; %s, %s\n", c->net.path, c->net.sha256,
                c->net.dev.be.name, c->net.precision);
    return tamed(text_close(&out, err));
}

// Whether --side means something for these images.
static int has_side(const char *name) {
    return !strncmp(name, "folder:", 7) || !strncmp(name, "shapes", 6);
}

static int check_side(const Comparison *c, const char *a, const char *b, Err *err) {
    if (!c->use->side || has_side(a) || (b && has_side(b))) return 0;
    return err_set(err, ERR_ARG, "--side %d: it is for folder:DIR and shapes, found %s%s%s",
                   c->use->side, a, b ? " and " : "", b ? b : "");
}

static int compare_classes(Comparison *c, Err *err) {
    if (!c->use->per_class) return 0;
    c->by_class = malloc((size_t)c->classes * sizeof *c->by_class + 1);
    if (!c->by_class) return err_set(err, ERR_MEM, "out of memory for classes");
    return fid_by_class(c->by_class, c->classes, &c->a, &c->b, c->ev, err);
}

static char *compare(Comparison *c, const char *a, const char *b, Err *err) {
    const double began = now_seconds();
    if (check_side(c, a, b, err) || open_side(&c->b, &c->reference, c, b, err) ||
        open_side(&c->a, &c->images, c, a, err) || check_labels(c, a, b, err))
        return NULL;
    if (c->images.n && c->reference.n)
        source_warn_of_size(&c->images, c->reference.h, c->reference.w, c->ev);
    if (take_features(&c->b, &c->reference, c, 1, err) ||
        take_features(&c->a, &c->images, c, 0, err))
        return NULL;
    warn_of_bias(c);
    if (fid_figures(&c->figures, &c->a, &c->b, (uint64_t)c->use->seed, c->ev, err) ||
        compare_classes(c, err))
        return NULL;
    c->seconds = now_seconds() - began;
    return c->use->json ? as_json(c, err) : as_text(c, err);
}

static char *write_statistics(Comparison *c, const char *a, Err *err) {
    TextOut out;
    if (check_side(c, a, NULL, err) || open_side(&c->b, &c->reference, c, a, err) ||
        take_features(&c->b, &c->reference, c, 1, err) ||
        feature_statistics_write(&c->b, c->use->out, err) || text_open(&out, "a text", err))
        return NULL;
    fprintf(out.f, "%s: mu and sigma of %s\n", c->use->out, c->b.about);
    return tamed(text_close(&out, err));
}

static void comparison_free(Comparison *c) {
    source_close(&c->images);
    source_close(&c->reference);
    feature_set_free(&c->a);
    feature_set_free(&c->b);
    features_close(&c->net);
    free(c->by_class);
}

char *fid_statistics(const Config *use, const char *a, const Events *ev, Err *err) {
    Comparison c = { .use = use, .ev = ev };
    char *text = write_statistics(&c, a, err);
    comparison_free(&c);
    return text;
}

char *fid_text(const Config *use, const char *a, const char *b, const Events *ev, Err *err) {
    Comparison c = { .use = use, .ev = ev };
    char *text = compare(&c, a, b, err);
    comparison_free(&c);
    return text;
}
