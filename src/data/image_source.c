// image_source.c - see image_source.h.
#include "data/image_source.h"
#include "base/file.h"
#include "base/md5.h"
#include "base/npz.h"
#include "base/text.h"
#include "data/formats.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t plane(const ImageSource *s) { return (size_t)s->h * (size_t)s->w; }

// ---- opening -----------------------------------------------------------------------------------

// Takes over a set that was loaded.
static void source_of_set(ImageSource *s, Set *set, const char *about) {
    *s = (ImageSource){ .n = set->n,
                        .c = set->c,
                        .h = set->side,
                        .w = set->side,
                        .x = set->x,
                        .y = set->y,
                        .classes = set->classes,
                        .set = *set };
    snprintf(s->about, sizeof s->about, "%s", about);
    *set = (Set){ 0 };
}

int source_of_floats(ImageSource *s, FloatImages of, const char *about, Err *err) {
    *s = (ImageSource){ .n = (size_t)of.n, .c = of.c, .h = of.side, .w = of.side };
    const size_t len = s->n * (size_t)of.c * plane(s);
    uint8_t *bytes = arena_alloc(&s->arena, len + 1, 1);
    snprintf(s->about, sizeof s->about, "%s", about);
    if (arena_ok(&s->arena, about, err)) return -1;
    for (size_t i = 0; i < len; i++) {
        const float v = of.x[i] * 127.5f + 127.5f;               // NaN becomes 0
        bytes[i] = (uint8_t)(v > 255 ? 255 : v > 0 ? (int)(v + 0.5f) : 0);
    }
    s->x = bytes;
    return 0;
}

static int open_folder(ImageSource *s, const char *dir, const Events *ev, Err *err) {
    Image first;
    if (list_pictures(&s->arena, dir, &s->path, &s->n, ev, err) ||
        image_read(&first, s->path[0], 3, err))
        return -1;
    s->c = 3;
    s->h = first.h;
    s->w = first.w;
    image_free(&first);
    snprintf(s->about, sizeof s->about, "%.500s, %zu picture%s", dir, s->n, plural((double)s->n));
    return 0;
}

// arr_0 [n][h][w][c] to planes.
static int read_npz(ImageSource *s, Zip *z, Err *err) {
    NpzArray a;
    char shape[128];
    if (npz_find(z, "arr_0", &a, err)) return -1;
    if (a.type != ST_U8 || a.rank != 4 || (a.shape[3] != 1 && a.shape[3] != 3) || !a.count ||
        a.shape[1] > IMAGE_MAX_SIDE || a.shape[2] > IMAGE_MAX_SIDE || a.shape[0] > MAX_PICTURES)
        return err_set(
            err, ERR_DATA,
            "%s: arr_0 is %s, expected uint8 [n][height][width][1 or 3], 1 to %d images of at "
            "most %d x %d",
            z->path, npz_shape(&a, shape), MAX_PICTURES, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
    *s = (ImageSource){
        .n = a.shape[0], .h = (int)a.shape[1], .w = (int)a.shape[2], .c = (int)a.shape[3]
    };
    if (memory_check(2 * a.bytes, z->path, err)) return -1;
    uint8_t *raw = malloc(a.bytes), *x = arena_alloc(&s->arena, a.bytes, 1);
    int rc =
        raw && x ? npz_read(z, &a, raw, err) : err_set(err, ERR_MEM, "out of memory for images");
    const size_t c = (size_t)s->c;
    for (size_t i = 0; !rc && i < s->n; i++)
        for (size_t j = 0; j < plane(s); j++)
            for (size_t k = 0; k < c; k++)
                x[(i * c + k) * plane(s) + j] = raw[(i * plane(s) + j) * c + k];
    free(raw);
    s->x = x;
    snprintf(s->about, sizeof s->about, "%.500s, %zu image%s", z->path, s->n, plural((double)s->n));
    return rc;
}

static int64_t whole_number(const NpzArray *a, const uint8_t *raw, size_t i) {
    int32_t narrow = 0;
    int64_t wide = 0;
    if (a->type == ST_U8) return raw[i];
    if (a->type == ST_I32) memcpy(&narrow, raw + i * sizeof narrow, sizeof narrow);
    else memcpy(&wide, raw + i * sizeof wide, sizeof wide);
    return a->type == ST_I32 ? narrow : wide;
}

// arr_1 of other tools need not be labels; then there are none.
static int read_labels(ImageSource *s, Zip *z, Err *err) {
    NpzArray a;
    Err none = { 0 };
    if (!npz_has(z, "arr_1") || npz_find(z, "arr_1", &a, &none) || a.rank != 1 ||
        a.shape[0] != s->n || (a.type != ST_U8 && a.type != ST_I32 && a.type != ST_I64))
        return 0;
    uint8_t *raw = malloc(a.bytes);
    int *y = arena_alloc(&s->arena, s->n, sizeof *y), most = 0;
    int rc =
        raw && y ? npz_read(z, &a, raw, err) : err_set(err, ERR_MEM, "out of memory for labels");
    for (size_t i = 0; !rc && i < s->n; i++) {
        const int64_t label = whole_number(&a, raw, i);
        if (label < 0 || label >= MAX_CLASSES) {
            y = NULL;
            break;
        }
        y[i] = (int)label;
        if (y[i] > most) most = y[i];
    }
    free(raw);
    if (rc || !y) return rc;
    s->y = y;
    s->classes = most + 1;
    return 0;
}

static int open_npz(ImageSource *s, const char *path, Err *err) {
    Zip z;
    if (zip_open(&z, path, err)) return -1;
    const int rc = read_npz(s, &z, err) || read_labels(s, &z, err) ? -1 : 0;
    zip_close(&z);
    return rc;
}

static int open_set(ImageSource *s, const char *name, const DataOpts *o, Err *err) {
    char base[sizeof s->set.name], about[400];
    size_t n;
    const Half half = set_half(name, &n);
    Set set;
    if (n >= sizeof base) return err_set(err, ERR_ARG, "%.80s...: name too long", name);
    snprintf(base, sizeof base, "%.*s", (int)n, name);
    if (set_load(&set, base, half, o, err)) return -1;
    snprintf(about, sizeof about, "%s, %zu %s image%s", base, set.n,
             half == HALF_TEST ? "test" : "training", plural((double)set.n));
    source_of_set(s, &set, about);
    return 0;
}

int source_open(ImageSource *s, const char *name, const DataOpts *o, Err *err) {
    *s = (ImageSource){ 0 };
    int rc;
    if (dir_exists(name)) rc = open_folder(s, name, o->events, err);
    else if (ends_with(name, ".npz") && !set_named(name)) rc = open_npz(s, name, err);
    else rc = open_set(s, name, o, err);
    if (rc) source_close(s);
    return rc;
}

void source_close(ImageSource *s) {
    set_free(&s->set);
    arena_free(&s->arena);
    *s = (ImageSource){ 0 };
}

// The network of FID resizes all images, so what is sharper in one set counts as a difference.
void source_warn_of_size(const ImageSource *s, int h, int w, const Events *ev) {
    char line[400];
    if (s->h == h && s->w == w) return;
    snprintf(line, sizeof line,
             "warning: %.120s, of %d x %d pixels, against images of %d x %d: FID also measures the "
             "difference in resolution; folder:DIR crops and scales pictures, in jempp fid to "
             "--side N",
             s->about, s->w, s->h, w, h);
    tell_line(ev, line);
}

// ---- reading -----------------------------------------------------------------------------------

static int read_picture(const ImageSource *s, size_t i, uint8_t *dst, Err *err) {
    Image im;
    if (image_read(&im, s->path[i], 3, err)) return -1;
    int rc = 0;
    if (im.h != s->h || im.w != s->w)
        rc = err_set(err, ERR_DATA,
                     "%s: %d x %d, expected %d x %d as %s has; folder:DIR with --side N "
                     "crops and scales pictures",
                     s->path[i], im.w, im.h, s->w, s->h, s->path[0]);
    for (size_t k = 0; !rc && k < 3; k++)
        for (size_t j = 0; j < plane(s); j++) dst[k * plane(s) + j] = im.p[3 * j + k];
    image_free(&im);
    return rc;
}

static void copy_bytes(const ImageSource *s, size_t i, uint8_t *dst) {
    const uint8_t *src = s->x + i * (size_t)s->c * plane(s);
    for (size_t k = 0; k < 3; k++)
        memcpy(dst + k * plane(s), src + (s->c == 3 ? k * plane(s) : 0), plane(s));
}

int source_read(const ImageSource *s, const uint32_t *index, size_t n, uint8_t *dst, Err *err) {
    Err first = { 0 };
    _Atomic int failed = 0;
    #pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < n; i++) {
        Err e = { 0 };
        uint8_t *to = dst + i * 3 * plane(s);
        if (s->x) copy_bytes(s, index[i], to);
        else if (!failed && read_picture(s, index[i], to, &e)) {
            failed = 1;
            #pragma omp critical
            err_set(&first, e.kind, "%s", e.msg);
        }
    }
    return failed ? err_set(err, first.kind, "%s", first.msg) : 0;
}

int source_hash(const ImageSource *s, char hex[33], Err *err) {
    enum { PART = 256, PART_BYTES = 16 << 20 };               // images read at a time
    const size_t bytes = 3 * plane(s), fit = PART_BYTES / bytes + 1, part = fit < PART ? fit : PART;
    const int32_t shape[] = { s->h, s->w };
    uint32_t index[PART];
    uint8_t *rows = malloc(part * bytes);
    if (!rows) return err_set(err, ERR_MEM, "out of memory for images");
    Md5 md5 = md5_start();
    md5_add(&md5, shape, sizeof shape);
    int rc = 0;
    for (size_t from = 0; !rc && from < s->n; from += part) {
        const size_t n = s->n - from < part ? s->n - from : part;
        for (size_t i = 0; i < n; i++) index[i] = (uint32_t)(from + i);
        rc = source_read(s, index, n, rows, err);
        md5_add(&md5, rows, n * bytes);
    }
    md5_end(&md5, hex);
    free(rows);
    return rc;
}

// ---- writing ------------------------------------------------------------------------------------

// Image i with its pixels interleaved, as c channels.
static int interleave(const ImageSource *s, uint32_t i, uint8_t *planes, uint8_t *dst, Err *err) {
    if (source_read(s, &i, 1, planes, err)) return -1;
    for (size_t j = 0; j < plane(s); j++)
        for (size_t k = 0; k < (size_t)s->c; k++)
            dst[j * (size_t)s->c + k] = planes[k * plane(s) + j];
    return 0;
}

static int write_npz(const ImageSource *s, const char *path, uint8_t *planes, const Image *im,
                     const Events *ev, Err *err) {
    const uint64_t shape[] = { s->n, (uint64_t)s->h, (uint64_t)s->w, (uint64_t)s->c };
    NpzWriter w;
    int rc = 0;
    npz_create(&w, path, 1);
    npz_add(&w, "arr_0", ST_U8, 4, shape);
    for (uint32_t i = 0; !rc && i < s->n; i++) {
        rc = stopped(ev, err) || interleave(s, i, planes, im->p, err);
        if (!rc) npz_write(&w, im->p, plane(s) * (size_t)s->c);
    }
    if (s->y) npz_add(&w, "arr_1", ST_I64, 1, shape);
    for (size_t i = 0; s->y && i < s->n; i++) {
        const int64_t label = s->y[i];
        npz_write(&w, &label, sizeof label);
    }
    const int end = npz_finish(&w, rc ? NULL : err);           // an incomplete file is not kept
    return rc ? rc : end;
}

// "000012.png": a name that write_folder gives.
static int is_numbered(const struct dirent *e) {
    const size_t n = strspn(e->d_name, "0123456789");
    return n >= 6 && !strcmp(e->d_name + n, ".png");
}

static int is_any_picture(const struct dirent *e) { return is_picture(NULL, e->d_name); }

// How many names of a folder are `wanted`; with `removed` these files are removed.
static int count_names(const char *dir, int wanted(const struct dirent *), int removed) {
    struct dirent **entry;
    char path[MAX_PATH];
    const int n = scandir(dir, &entry, wanted, NULL);
    for (int i = 0; i < n; i++) {
        if (removed && !path_join(path, sizeof path, dir, entry[i]->d_name, NULL)) unlink(path);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return n;
}

// In the folder, or where it would be created. Nothing is changed: several ranks may look at once.
static int may_write_in(const char *dir, Err *err) {
    char at[MAX_PATH];
    if (snprintf(at, sizeof at, "%s", dir) >= (int)sizeof at)
        return err_set(err, ERR_ARG, "%.80s...: name too long", dir);
    while (access(at, F_OK)) {
        char *slash = strrchr(at, '/');
        if (slash && !slash[1]) *slash = 0;                 // one at the end
        else if (slash > at) *slash = 0;
        else snprintf(at, sizeof at, slash ? "/" : ".");
    }
    if (!dir_exists(at)) return err_set(err, ERR_IO, "%s: exists and is not a folder", at);
    return access(at, W_OK | X_OK) ? err_set(err, ERR_IO, "%s: %s", dir, strerror(errno)) : 0;
}

int source_folder(const char *dir, int replace, Err *err) {
    const int n = dir_exists(dir) ? count_names(dir, is_any_picture, 0) : 0;
    if (!replace && n > 0)
        return err_set(err, ERR_ARG,
                       "%s: already has %d picture%s; another --out keeps them apart, --force "
                       "replaces those of an earlier draw (000000.png, ...)",
                       dir, n, plural(n));
    return may_write_in(dir, err);
}

static int write_folder(const ImageSource *s, const char *dir, uint8_t *planes, const Image *im,
                        const Events *ev, Err *err) {
    char path[MAX_PATH], name[32];
    if (dir_make(dir, err)) return -1;
    (void)count_names(dir, is_numbered, 1);           // two draws must not be taken for one
    for (uint32_t i = 0; i < s->n; i++) {
        snprintf(name, sizeof name, "%06u.png", i);
        if (stopped(ev, err) || interleave(s, i, planes, im->p, err) ||
            path_join(path, sizeof path, dir, name, err) || image_write_png(im, path, err))
            return -1;
        tell_progress(ev, i + 1, s->n, "files", dir);
    }
    return 0;
}

int source_write(const ImageSource *s, const char *path, const Events *ev, Err *err) {
    Image im;
    uint8_t *planes = calloc(3 * plane(s) + 1, 1);
    if (!planes) return err_set(err, ERR_MEM, "out of memory for an image");
    int rc = image_new(&im, s->w, s->h, s->c, err);
    if (!rc)
        rc = ends_with(path, ".npz") ? write_npz(s, path, planes, &im, ev, err)
                                     : write_folder(s, path, planes, &im, ev, err);
    image_free(&im);
    free(planes);
    return rc;
}
