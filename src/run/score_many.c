// score_many.c - see score_many.h.
#include "run/score_many.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/image.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/text.h"
#include "data/formats.h"
#include "data/image_source.h"
#include "data/run_data.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {                     // where images come from
    size_t       n;
    const char  *name;
    const char **path;               // [n] picture files; NULL: a set or an npz file
    ImageSource  images;             // of that
    Arena        arena;
} Source;

typedef struct {
    Model        *m;
    const ScoreJob *job;
    const Events *ev;
    Source       *source;
    int           n_source;
    uint64_t      total;
    Scorer        scorer;
    int           batch;
    Arena         arena;             // of these four:
    uint8_t      *bytes;             // [batch][dim]
    float        *x, *logits;        // [batch][dim], [batch][classes]: those that could be read
    Err          *why;               // [batch]: of those that could not
    ScoreFile     file;              // gets the rows, with job->out
    int           at_once;           // images in the next batch
    ScoredMany   *result;
} Bulk;

// Whether someone waits for each row.
static int is_live(const Bulk *b) { return !b->job->out; }

// ---- sources --------------------------------------------------------------------------------

// A file of one image.
static int is_one_image(const char *name) { return file_exists(name) && !ends_with(name, ".npz"); }

// Pictures that are named one after the other are read in common batches.
static int open_files(Source *s, const char *const *name, int n, Err *err) {
    s->path = arena_alloc(&s->arena, (size_t)n, sizeof *s->path);
    for (; s->path && s->n < (size_t)n && is_one_image(name[s->n]); s->n++)
        s->path[s->n] = arena_strdup(&s->arena, name[s->n]);
    return arena_ok(&s->arena, "file names", err);
}

// A set or an npz file, of the model's size: unlike pictures, its images are not scaled.
static int open_images(Source *s, const Model *m, const char *name, const Events *ev, Err *err) {
    const NetSpec *spec = &m->net.spec;
    ImageSource *from = &s->images;
    DataOpts o = data_opts(&m->cfg, ev);
    o.side = spec->side;
    o.channels = spec->channels;
    if (source_open(from, name, &o, err)) return -1;
    s->n = from->n;
    return check_image_size(name, from->c, from->w, from->h, spec->channels, spec->side, err);
}

// The first of n names, and files that follow it; how many, or -1.
static int open_source(Source *s, const Model *m, const char *const *name, int n, const Events *ev,
                       Err *err) {
    int rc;
    if (!strcmp(*name, "-"))
        return err_set(err, ERR_ARG, "- (standard input) cannot be used with --out");
    if (is_one_image(*name)) return open_files(s, name, n, err) ? -1 : (int)s->n;
    if (dir_exists(*name)) rc = list_pictures(&s->arena, *name, &s->path, &s->n, ev, err);
    else if (file_exists(*name) || set_named(*name)) rc = open_images(s, m, *name, ev, err);
    else if (file_kind(*name))
        return err_set(err, ERR_IO,
                       "%s: is %s, expected a picture, a folder, an image set, an npz file or - "
                       "for standard input",
                       *name, file_kind(*name));
    else if (strpbrk(*name, "./") && !strchr(*name, ':'))
        return err_set(err, ERR_IO, "%s: %s", *name,
                       access(*name, F_OK) && errno != ENOENT && errno != ENOTDIR
                           ? strerror(errno)
                           : "no such file or folder");
    else
        return err_set(err, ERR_IO, "%s: no such file, folder or image set; sets are %s", *name,
                       set_names);
    return rc ? -1 : 1;
}

// The number of the class that a picture's folder is named after, or -1.
static int label_of(const Model *m, const char *path) {
    const char *end = strrchr(path, '/'), *begin = end;
    if (!end) return -1;
    while (begin > path && begin[-1] != '/') begin--;
    for (int k = 0; k < m->net.spec.classes; k++) {
        const size_t n = strlen(m->class_name[k]);
        if (n == (size_t)(end - begin) && !strncmp(m->class_name[k], begin, n)) return k;
    }
    return -1;
}

// ---- batches --------------------------------------------------------------------------------

// Decodes pictures from .. from + n; the bytes of those that can be read are in their places.
// Nonzero: a stop was asked for, and they are not complete.
static int load_pictures(Bulk *b, const Source *s, size_t from, int n) {
    const NetSpec *spec = &b->m->net.spec;
    const size_t dim = tensor_len(&b->m->net.act[0]);
    Loop loop = loop_begin(b->ev, 0, "", "");
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        b->why[i] = (Err){ 0 };
        if (loop_stopped(&loop)) continue;
        (void)picture_load(b->bytes + (size_t)i * dim, s->path[from + (size_t)i], spec->channels,
                           spec->side, &b->why[i]);
    }
    return loop_end(&loop, NULL);
}

static int load_batch(Bulk *b, const Source *s, size_t from, int n, Err *err) {
    const size_t dim = tensor_len(&b->m->net.act[0]);
    const uint8_t *bytes = s->path ? b->bytes : s->images.x + from * dim;
    int readable = 0;
    if (s->path) b->result->stopped = load_pictures(b, s, from, n) != 0;
    else memset(b->why, 0, (size_t)n * sizeof *b->why);
    if (b->result->stopped) return 0;
    for (int i = 0; i < n; i++) {
        if (b->why[i].kind && b->job->strict)
            return err_set(err, b->why[i].kind, "%s", b->why[i].msg);
        if (b->why[i].kind) continue;
        float *x = b->x + (size_t)readable++ * dim;
        for (size_t k = 0; k < dim; k++) x[k] = byte_to_pixel(bytes[(size_t)i * dim + k]);
    }
    if (!readable) return 0;
    return is_live(b) ? model_logits(b->m, b->x, readable, b->logits, err)
                      : scorer_images(&b->scorer, b->x, readable, b->logits, err);
}

static void add_rows(Bulk *b, const Source *s, size_t from, int n) {
    const float *logits = b->logits;
    for (int i = 0; i < n; i++) {
        const size_t at = from + (size_t)i;
        ScoreRow row = { .file = s->path ? s->path[at] : NULL, .set = s->name, .index = at };
        row.label = s->path ? label_of(b->m, row.file) : s->images.y ? s->images.y[at] : -1;
        if (b->why[i].kind) row.error = b->why[i].msg;
        else row.logits = logits, logits += b->m->net.spec.classes;
        if (is_live(b)) b->job->on(b->job->ctx, &row);
        else score_file_add(&b->file, &row);
        b->result->images++;
        b->result->unreadable += b->why[i].kind != ERR_NONE;
    }
}

// Rows that someone waits for come in batches that grow while they are quick, so that a stop is
// answered soon whatever the network.
static int score_source(Bulk *b, const Source *s, Err *err) {
    for (size_t i = 0; i < s->n && !b->result->stopped;) {
        const double start = now_seconds();
        const int n = s->n - i < (size_t)b->at_once ? (int)(s->n - i) : b->at_once;
        if (load_batch(b, s, i, n, err)) return -1;
        if (b->result->stopped) break;
        add_rows(b, s, i, n);
        if (!is_live(b) && score_file_failed(&b->file, err)) return -1;
        i += (size_t)n;
        if (!is_live(b)) tell_progress(b->ev, b->result->images, b->total, "images", "");
        if (2 * b->at_once <= b->batch && now_seconds() - start < 0.2) b->at_once *= 2;
        b->result->stopped = b->result->images < b->total && stop_asked(b->ev);
    }
    return 0;
}

// ---- all of it ------------------------------------------------------------------------------

static int bulk_open(Bulk *b, Err *err) {
    enum { FIRST = 8, MOST = 64 };                          // images of batches that grow
    const size_t dim = tensor_len(&b->m->net.act[0]);
    const char *const *name = b->job->name;
    const int n_name = b->job->n;
    b->source = calloc((size_t)n_name + 1, sizeof *b->source);
    if (!b->source) return err_set(err, ERR_MEM, "out of memory for names");
    for (int i = 0, taken; i < n_name; i += taken) {
        Source *s = &b->source[b->n_source++];
        s->name = name[i];
        taken = open_source(s, b->m, name + i, n_name - i, b->ev, err);
        if (taken < 0) return -1;
        if (!s->path && !is_live(b))                // labels mean other classes to such a model
            model_compare_names(b->m, &s->images.set, s->name, "other classes",
                                "labels are numbers of the set's", b->ev);
        b->total += s->n;
    }
    b->result->total = b->total;
    const uint64_t most = is_live(b) ? MOST : (uint64_t)b->m->dev.be.eval_batch;
    b->batch = (int)(b->total < 1 ? 1 : b->total < most ? b->total : most);
    b->at_once = is_live(b) && b->batch > FIRST ? FIRST : b->batch;
    const size_t B = (size_t)b->batch;
    b->bytes = arena_alloc(&b->arena, B, dim);
    b->x = arena_alloc(&b->arena, B * dim, sizeof *b->x);
    b->logits = arena_alloc(&b->arena, B * (size_t)b->m->net.spec.classes, sizeof *b->logits);
    b->why = arena_alloc(&b->arena, B, sizeof *b->why);
    return arena_ok(&b->arena, "a batch of images", err);
}

static int bulk_file(Bulk *b, Err *err) {
    const int mode = MODE_INFER | (b->total > MANY_IMAGES ? 0 : RUN_FEW);
    return score_file_open(&b->file, b->job->out, b->m, err) ||
           scorer_open_as(&b->scorer, &b->m->net, b->batch, mode, NULL, 0, err);
}

static void bulk_close(Bulk *b) {
    scorer_close(&b->scorer);
    for (int i = 0; i < b->n_source; i++) {
        source_close(&b->source[i].images);
        arena_free(&b->source[i].arena);
    }
    free(b->source);
    arena_free(&b->arena);
}

int score_many(Model *m, const ScoreJob *job, const Events *ev, ScoredMany *result, Err *err) {
    Bulk b = { .m = m, .job = job, .ev = ev, .result = result };
    *result = (ScoredMany){ 0 };
    m->dev.events = ev;
    int rc = bulk_open(&b, err);
    if (!rc && job->out) rc = bulk_file(&b, err);
    if (!rc && job->out) tell_progress(ev, 0, b.total, "images", "");
    for (int i = 0; !rc && i < b.n_source; i++) rc = score_source(&b, &b.source[i], err);
    if (!rc && job->out) rc = score_file_close(&b.file, err);
    else if (b.file.m) score_file_cancel(&b.file);
    m->dev.events = NULL;
    bulk_close(&b);
    return rc;
}
