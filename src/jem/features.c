// features.c - see features.h.
#include "jem/features.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/tensors.h"
#include <stdio.h>
#include <string.h>

// A tensor by its name, for inception_open.
static int read_weight(void *ctx, const char *name, int rank, const int *dim, float *dst,
                       Err *err) {
    St *st = ctx;
    const StTensor *t = st_find(st, name);
    uint64_t count = 1;
    if (!t) return 1;
    int same = t->rank == rank;
    for (int i = 0; same && i < rank; i++) {
        same = t->shape[i] == (uint64_t)dim[i];
        count *= t->shape[i];
    }
    if (!same)
        return err_set(err, ERR_DATA, "%s: '%s' has another shape than Inception's", st->path,
                       name);
    return st_read_f32(st, t, dst, count, err);
}

// tf32 is a GPU's: bf16, its default, would move the figures.
static int open_device(FeatureNet *f, const Config *use, Err *err) {
    char note[256] = "";
    Err none = { 0 };
    DevOpts o = comm_dev(f->comm, config_dev(use));
    const int asked = use->precision != PREC_DEFAULT, cuda = !strcmp(use->device, "cuda");
    if (!asked && (cuda || !strcmp(use->device, "auto"))) {
        o.precision = PREC_TF32;
        f->precision = "tf32";
        if (!dev_open(&f->dev, "cuda", &o, note, cuda ? err : &none)) return 0;
        if (cuda) return -1;
        o.precision = PREC_DEFAULT;
    }
    if (dev_open(&f->dev, use->device, &o, note, err)) return -1;
    f->precision = f->dev.be.precision[o.precision];
    return 0;
}

int features_find(char path[FEATURES_PATH], const Config *use, Err *err) {
    if (!use->inception[0])
        return data_inception(path, FEATURES_PATH, use->data_dir[0] ? use->data_dir : NULL, err);
    snprintf(path, FEATURES_PATH, "%s", use->inception);
    return file_exists(path) ? 0 : err_set(err, ERR_IO, "--inception %s: no such file", path);
}

int features_open(FeatureNet *f, Comm *comm, const Config *use, Err *err) {
    *f = (FeatureNet){ .comm = comm };
    if (features_find(f->path, use, err) || sha256_file(f->path, f->sha256, err)) return -1;
    if (!open_device(f, use, err)) return 0;
    *f = (FeatureNet){ 0 };
    return -1;
}

void features_close(FeatureNet *f) {
    if (!f->dev.be.name) return;
    inception_close(&f->net);
    dev_close(&f->dev);
    *f = (FeatureNet){ 0 };
}

int features_prepare(FeatureNet *f, const ImageSource *s, int *has_logits, Err *err) {
    if (f->net.h != s->h || f->net.w != s->w) {
        St st;
        inception_close(&f->net);
        if (tensors_open(&st, f->path, err)) return -1;
        const InceptionWeights weights = { read_weight, &st };
        const int rc = inception_open(&f->net, &f->dev, &weights, s->h, s->w, 0, err);
        st_close(&st);
        if (rc) {
            inception_close(&f->net);
            return err_prefix(err, "%s", f->path);
        }
    }
    if (has_logits) *has_logits = f->net.has_logits;
    return 0;
}

typedef struct {                    // host memory of one batch
    uint32_t *index;
    uint8_t  *images;
    real     *x, *logits;
    Arena     arena;
} Batch;

static int batch_open(Batch *b, const FeatureNet *f, int with_logits, Err *err) {
    const size_t n = (size_t)f->net.batch;
    *b = (Batch){ 0 };
    b->index = arena_alloc(&b->arena, n, sizeof *b->index);
    b->images = arena_alloc(&b->arena, n * 3 * (size_t)f->net.h, (size_t)f->net.w);
    b->x = arena_alloc(&b->arena, n * INCEPTION_FEATURES, sizeof *b->x);
    if (with_logits) b->logits = arena_alloc(&b->arena, n * INCEPTION_CLASSES, sizeof *b->logits);
    return arena_ok(&b->arena, "features", err);
}

static int read_batch(Batch *b, const ImageSource *s, size_t from, size_t n, Err *err) {
    for (size_t k = 0; k < n; k++) b->index[k] = (uint32_t)(from + k);
    return source_read(s, b->index, n, b->images, err);
}

int features_of(FeatureNet *f, const ImageSource *s, float *x, float *logits, const Events *ev,
                Err *err) {
    Batch b = { 0 };
    int rc = features_prepare(f, s, NULL, err) || batch_open(&b, f, logits != NULL, err);
    if (comm_agree(f->comm, rc, err) || rc) return arena_free(&b.arena), -1;
    const size_t most = (size_t)f->net.batch;
    const int n = (int)s->n;
    int first, stop;
    comm_part(f->comm, n, (int)most, &first, &stop);
    const size_t end = (size_t)stop;
    size_t m = end - (size_t)first < most ? end - (size_t)first : most;
    tell_progress(ev, 0, s->n, "images", s->about);
    rc = read_batch(&b, s, (size_t)first, m, err);
    for (size_t i = (size_t)first; !rc && i < end;) {
        const size_t next = i + m, m_next = end - next < most ? end - next : most;
        rc = stopped(ev, err) || inception_start(&f->net, b.images, (int)m, err) ||
             read_batch(&b, s, next, m_next, err) ||   // while a GPU computes
             inception_finish(&f->net, (int)m, b.x, b.logits, err);
        if (rc) break;
        reals_to_floats(x + i * INCEPTION_FEATURES, b.x, m * INCEPTION_FEATURES);
        if (logits)
            reals_to_floats(logits + i * INCEPTION_CLASSES, b.logits, m * INCEPTION_CLASSES);
        i = next;
        m = m_next;
        tell_progress(ev, i, s->n, "images", s->about);
    }
    arena_free(&b.arena);
    if (comm_agree(f->comm, rc, err)) return -1;
    comm_join(f->comm, x, n, (int)most, INCEPTION_FEATURES * sizeof *x);
    if (logits) comm_join(f->comm, logits, n, (int)most, INCEPTION_CLASSES * sizeof *logits);
    return comm_check(f->comm, err);
}
