// data_files.c - see data_files.h. The only file that knows zlib.
#include "data/data_files.h"
#include "base/file.h"
#include "base/image.h"
#include "base/rng.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <zlib.h>

int set_alloc(Set *s, size_t n, Err *err) {
    if (n < 1 || n > MAX_PICTURES)
        return err_set(err, ERR_DATA, "%s: %zu pictures, expected 1 to %d", s->name, n,
                       MAX_PICTURES);
    const size_t pixels = (size_t)s->c * (size_t)s->side * (size_t)s->side;
    s->n = n;
    s->x = arena_alloc(&s->arena, n, pixels);
    s->y = arena_alloc(&s->arena, n, sizeof *s->y);
    return arena_ok(&s->arena, s->name, err);
}

int number_names(Set *s, Err *err) {
    s->class_name = arena_alloc(&s->arena, (size_t)s->classes, sizeof *s->class_name);
    for (int i = 0; s->class_name && i < s->classes; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%d", i);
        s->class_name[i] = arena_strdup(&s->arena, digits);
    }
    return arena_ok(&s->arena, s->name, err);
}

static int bad_label(const char *path, size_t record, double label, int first, int last, Err *err) {
    return err_set(err, ERR_DATA, "%s: record %zu: label %g, expected %d to %d", path, record,
                   label, first, last);
}

// The size is asked before libraries open a file: a pipe would block them.
static int regular_size(const char *path, uint64_t max, uint64_t *size, Err *err) {
    struct stat st;
    if (stat(path, &st)) return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(err, ERR_IO, "%s: not a regular file", path);
    *size = (uint64_t)st.st_size;
    if (*size <= max) return 0;
    return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, expected at most %" PRIu64, path, *size,
                   max);
}

// ---- CIFAR's records

enum { CIFAR_PIXELS = 3 * 32 * 32 };

static int read_records(Set *s, Reader *r, int label_bytes, size_t at, size_t n, Err *err) {
    for (size_t i = 0; i < n && !r->failed; i++) {
        uint8_t label[2] = { 0 };
        read_bytes(r, label, (size_t)label_bytes);
        read_bytes(r, s->x + (at + i) * CIFAR_PIXELS, CIFAR_PIXELS);
        const int y = s->y[at + i] = label[label_bytes - 1];
        if (y >= s->classes) return bad_label(r->path, i, y, 0, s->classes - 1, err);
    }
    return 0;
}

static int read_batch(Set *s, const char *path, int label_bytes, size_t at, size_t n, Err *err) {
    const uint64_t expected = n * (uint64_t)(label_bytes + CIFAR_PIXELS);
    Reader r = reader_open(path);
    int rc = 0;
    if (!r.failed && r.size != expected)
        rc = err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, expected %" PRIu64, path, r.size,
                     expected);
    if (!rc) rc = read_records(s, &r, label_bytes, at, n, err);
    return reader_close(&r, err) || rc ? -1 : 0;
}

int read_cifar(Set *s, const char path[][MAX_PATH], int n_path, int label_bytes, size_t records,
               Err *err) {
    if (set_alloc(s, (size_t)n_path * records, err)) return -1;
    for (int i = 0; i < n_path; i++)
        if (read_batch(s, path[i], label_bytes, (size_t)i * records, records, err)) return -1;
    return 0;
}

int read_cifar_any(Set *s, const char *path, Err *err) {
    const uint64_t record = 1 + CIFAR_PIXELS;
    uint64_t size = 0;
    if (regular_size(path, MAX_PICTURES * record, &size, err)) return -1;
    if (size == 0 || size % record)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, expected a multiple of %" PRIu64,
                       path, size, record);
    s->c = 3;
    s->side = 32;
    s->flip = 1;
    s->classes = 256;                             // whatever a byte can say, until all were seen
    if (set_alloc(s, size / record, err) || read_batch(s, path, 1, 0, s->n, err)) return -1;
    s->classes = 10;
    for (size_t i = 0; i < s->n; i++)
        if (s->y[i] >= s->classes) s->classes = s->y[i] + 1;
    return number_names(s, err);
}

// ---- IDX; zlib reads plain files too

typedef struct {
    gzFile f;
    const char *path;
    uint64_t size;
} Zipped;

// Reads n bytes of the contents, whatever the file would still inflate to.
static int zipped_read(Zipped *z, void *dst, size_t n, Err *err) {
    for (size_t done = 0; done < n;) {
        const size_t left = n - done;
        const int got = gzread(z->f, (char *)dst + done, left < INT_MAX ? (unsigned)left : INT_MAX);
        int code;
        const char *why = gzerror(z->f, &code);
        if (got <= 0 && code != Z_OK)
            return err_set(err, ERR_DATA, "%s: %s", z->path,
                           code == Z_ERRNO ? strerror(errno) : why);
        if (got <= 0)
            return err_set(err, ERR_DATA, "%s: ends after %zu bytes of contents, expected %zu more",
                           z->path, (size_t)gztell(z->f), left);
        done += (size_t)got;
    }
    return 0;
}

// A read past the end also makes zlib compare the checksum.
static int zipped_end(Zipped *z, Err *err) {
    char extra;
    const int got = gzread(z->f, &extra, 1);
    int code;
    const char *why = gzerror(z->f, &code);
    if (got > 0) return err_set(err, ERR_DATA, "%s: longer than its header says", z->path);
    return code == Z_OK ? 0 : err_set(err, ERR_DATA, "%s: %s", z->path, why);
}

static int zipped_open(Zipped *z, const char *path, Err *err) {
    *z = (Zipped){ .path = path };
    if (regular_size(path, (uint64_t)1 << 32, &z->size, err)) return -1;
    z->f = gzopen(path, "rb");
    return z->f ? 0 : err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
}

// Checks the header of an IDX file of bytes against the wanted dimensions, of which the first, the
// number of records, is found out.
static int idx_header(Zipped *z, int rank, uint32_t dim[3], Err *err) {
    uint8_t head[16];
    if (zipped_read(z, head, 4, err)) return -1;
    if (head[0] || head[1] || head[2] != 8 || head[3] != rank)
        return err_set(err, ERR_DATA, "%s: starts with %02x%02x%02x%02x, expected 000008%02x",
                       z->path, head[0], head[1], head[2], head[3], rank);
    if (zipped_read(z, head + 4, 4 * (size_t)rank, err)) return -1;
    uint64_t bytes = 1;
    for (int i = 0; i < rank; i++) {
        const uint8_t *p = head + 4 + 4 * i;
        const uint32_t n = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (i > 0 && n != dim[i])
            return err_set(err, ERR_DATA, "%s: dimension %d is %" PRIu32 ", expected %" PRIu32,
                           z->path, i, n, dim[i]);
        dim[i] = n;
        bytes *= n;
    }
    // No deflate stream grows more than 1032 times, so a lying header is known by its file's size.
    if (dim[0] > MAX_PICTURES || bytes > z->size * 1032)
        return err_set(err, ERR_DATA, "%s: %" PRIu32 " records do not fit into %" PRIu64 " bytes",
                       z->path, dim[0], z->size);
    return 0;
}

static int idx_pictures(Set *s, Zipped *z, Err *err) {
    uint32_t dim[3] = { 0, (uint32_t)s->side, (uint32_t)s->side };
    if (idx_header(z, 3, dim, err)) return -1;
    if (dim[0] == 0) return err_set(err, ERR_DATA, "%s: no pictures", z->path);
    if (set_alloc(s, dim[0], err)) return -1;
    return zipped_read(z, s->x, (size_t)dim[0] * dim[1] * dim[2], err) ? -1 : zipped_end(z, err);
}

static int idx_labels(Set *s, Zipped *z, Err *err) {
    uint32_t dim[3] = { 0 };
    if (idx_header(z, 1, dim, err)) return -1;
    if (dim[0] != s->n)
        return err_set(err, ERR_DATA, "%s: %" PRIu32 " labels for %zu pictures", z->path, dim[0],
                       s->n);
    for (size_t i = 0; i < s->n; i++) {
        uint8_t y;
        if (zipped_read(z, &y, 1, err)) return -1;
        if (y >= s->classes) return bad_label(z->path, i, y, 0, s->classes - 1, err);
        s->y[i] = y;
    }
    return zipped_end(z, err);
}

int read_idx(Set *s, const char *images, const char *labels, Err *err) {
    Zipped z;
    if (zipped_open(&z, images, err)) return -1;
    int rc = idx_pictures(s, &z, err);
    gzclose(z.f);
    if (rc || zipped_open(&z, labels, err)) return -1;
    rc = idx_labels(s, &z, err);
    gzclose(z.f);
    return rc;
}

// ---- SVHN: two arrays in a MATLAB 5 file
//
// A file is a head of 128 bytes, then arrays as elements: type, size, data. An array may be
// deflated; its data are elements again: flags, dimensions, name, numbers. All is little-endian.

enum { MAT_HEAD = 128, MAT_MAX_BYTES = 512 << 20 };
enum { MAT_UINT8 = 2, MAT_INT32 = 5, MAT_UINT32 = 6, MAT_DOUBLE = 9, MAT_ARRAY = 14, MAT_DEFLATED };

typedef struct {
    uint32_t type;
    size_t n;
    const uint8_t *p;
} Element;
typedef struct {
    char     name;                    // 0 for one of more letters
    int      kind;                    // MATLAB's class, and above it the flag for complex numbers
    size_t   rank;
    uint32_t dim[4];
    Element  numbers;
    uint8_t *owned;                   // what was inflated, or NULL
} Array;

static uint32_t word_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Takes the next element off [*at, end); 0 where there is no whole one. Up to 4 bytes of data may
// share 8 bytes with type and size; all but deflated data are padded to a multiple of 8.
static int next_element(const uint8_t **at, const uint8_t *end, Element *e) {
    const size_t left = (size_t)(end - *at);
    if (left < 8) return 0;
    const uint32_t word = word_at(*at), small = word >> 16;
    *e = small ? (Element){ word & 0xffff, small, *at + 4 }
               : (Element){ word, word_at(*at + 4), *at + 8 };
    if (small > 4 || (!small && e->n > left - 8)) return 0;
    const size_t step = small ? 8 : 8 + e->n + (word == MAT_DEFLATED ? 0 : -e->n % 8);
    *at += step < left ? step : left;
    return 1;
}

// No deflate stream grows more than 1032 times, so a lying size is known before memory is spent.
static uint8_t *inflate_array(const Element *e) {
    z_stream z = { .next_in = (Bytef *)(uintptr_t)e->p, .avail_in = (uInt)e->n };
    uint8_t head[8] = { 0 }, *out = NULL;
    if (inflateInit(&z) != Z_OK) return NULL;
    z.next_out = head;
    z.avail_out = sizeof head;
    inflate(&z, Z_NO_FLUSH);
    const size_t size = z.avail_out ? 0 : word_at(head + 4);
    if (size > 0 && size <= e->n * 1032) out = malloc(sizeof head + size);
    if (out) {
        memcpy(out, head, sizeof head);
        z.next_out = out + sizeof head;
        z.avail_out = (uInt)size;
        if (inflate(&z, Z_FINISH) != Z_STREAM_END || z.avail_out) {
            free(out);
            out = NULL;
        }
    }
    inflateEnd(&z);
    return out;
}

// Takes an array apart; 0 where it is damaged. a->owned is the caller's to free in any case.
static int parse_array(Array *a, Element e) {
    if (e.type == MAT_DEFLATED) {
        const uint8_t *in = a->owned = inflate_array(&e);
        if (!in || !next_element(&in, in + 8 + word_at(in + 4), &e)) return 0;
    }
    Element flags, dims, name;
    const uint8_t *at = e.p, *end = e.p + e.n;
    if (e.type != MAT_ARRAY || !next_element(&at, end, &flags) || !next_element(&at, end, &dims) ||
        !next_element(&at, end, &name) || !next_element(&at, end, &a->numbers) || at != end)
        return 0;
    if (flags.type != MAT_UINT32 || flags.n != 8 || dims.type != MAT_INT32) return 0;
    a->name = name.n == 1 ? (char)*name.p : 0;
    a->kind = (int)(word_at(flags.p) & 0xffff);
    a->rank = dims.n / 4;
    for (size_t i = 0; i < a->rank && i < 4; i++) a->dim[i] = word_at(dims.p + 4 * i);
    return 1;
}

// MATLAB's arrays run down the columns first; ours along the rows.
static int svhn_pictures(Set *s, const Array *a, const char *path, Err *err) {
    const uint32_t *d = a->dim;
    const int shape_ok = a->rank == 4 && d[0] == 32 && d[1] == 32 && d[2] == 3 && d[3] > 0;
    if (!shape_ok || a->kind != 9 || a->numbers.type != MAT_UINT8)
        return err_set(err, ERR_DATA, "%s: X is not an array of 32 x 32 x 3 x n bytes", path);
    if (a->numbers.n != (uint64_t)d[3] * CIFAR_PIXELS)
        return err_set(err, ERR_DATA, "%s: X has %zu bytes for %" PRIu32 " pictures", path,
                       a->numbers.n, d[3]);
    if (set_alloc(s, d[3], err)) return -1;
    const uint8_t *from = a->numbers.p;
    for (size_t plane = 0; plane < s->n * 3; plane++, from += 1024)
        for (size_t i = 0; i < 1024; i++) s->x[plane * 1024 + i] = from[i % 32 * 32 + i / 32];
    return 0;
}

// Labels are bytes, or doubles that MATLAB may have stored as bytes.
static int svhn_labels(Set *s, const Array *a, const char *path, Err *err) {
    const size_t width = a->numbers.type == MAT_DOUBLE ? 8 : 1;
    if (a->numbers.type != MAT_DOUBLE && a->numbers.type != MAT_UINT8)
        return err_set(err, ERR_DATA, "%s: y is not an array of bytes or doubles", path);
    if (a->numbers.n != s->n * width)
        return err_set(err, ERR_DATA, "%s: y has %zu labels, X %zu pictures", path,
                       a->numbers.n / width, s->n);
    for (size_t i = 0; i < s->n; i++) {
        double y = a->numbers.p[i * width];
        if (width == 8) memcpy(&y, a->numbers.p + i * 8, 8);
        if (!(y >= 1 && y <= 10) || y != (int)y) return bad_label(path, i, y, 1, 10, err);
        s->y[i] = (int)y % 10;
    }
    return 0;
}

static int read_arrays(Set *s, const uint8_t *data, size_t n, Array *x, Array *y, const char *path,
                       Err *err) {
    if (n < MAT_HEAD || memcmp(data, "MATLAB 5.0", 10) || memcmp(data + 124, "\x00\x01IM", 4))
        return err_set(err, ERR_DATA, "%s: not a MATLAB 5 file", path);
    for (const uint8_t *at = data + MAT_HEAD; at < data + n;) {
        const size_t offset = (size_t)(at - data);
        Element e;
        Array a = { 0 };
        const int whole = next_element(&at, data + n, &e) && parse_array(&a, e);
        Array *place = a.name == 'X' ? x : a.name == 'y' ? y : NULL;
        if (whole && place && !place->numbers.p) *place = a;
        else free(a.owned);
        if (!whole)
            return err_set(err, ERR_DATA, "%s: the array at byte %zu is damaged", path, offset);
    }
    if (!x->numbers.p || !y->numbers.p)
        return err_set(err, ERR_DATA, "%s: no variable '%s'", path, x->numbers.p ? "y" : "X");
    return svhn_pictures(s, x, path, err) || svhn_labels(s, y, path, err) ? -1 : 0;
}

int read_svhn(Set *s, const char *path, Err *err) {
    char *data;
    size_t n;
    if (file_read(path, MAT_MAX_BYTES, &data, &n, err)) return -1;
    Array x = { 0 }, y = { 0 };
    const int rc = read_arrays(s, (const uint8_t *)data, n, &x, &y, path, err);
    free(x.owned);
    free(y.owned);
    free(data);
    return rc;
}

// ---- folders of pictures

int picture_load(uint8_t *dst, const char *path, int c, int side, Err *err) {
    Image whole, square;
    if (image_read(&whole, path, c, err)) return -1;
    const int rc = image_square(&square, &whole, side, err);
    image_free(&whole);
    if (rc) return err_prefix(err, "%s", path);
    const size_t pixels = (size_t)side * (size_t)side;
    for (size_t k = 0; k < (size_t)c; k++)
        for (size_t i = 0; i < pixels; i++) dst[k * pixels + i] = square.p[i * (size_t)c + k];
    image_free(&square);
    return 0;
}

typedef struct {
    Arena arena;
    const char **name;
    int n;
} Names;

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

// By bytes, so that classes have the same numbers in every locale.
static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_picture(const char *dir, const char *name) {
    (void)dir;
    const char *dot = strrchr(name, '.');
    return dot &&
           (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static int is_folder(const char *dir, const char *name) {
    char path[PATH_MAX];
    return !path_join(path, sizeof path, dir, name, NULL) && dir_exists(path);
}

// The names in dir that `wanted` wants, sorted. arena_free(&names->arena) ends them.
static int list_names(Names *names, const char *dir, int wanted(const char *, const char *),
                      Err *err) {
    *names = (Names){ 0 };
    struct dirent **entry;
    const int n = scandir(dir, &entry, visible, by_bytes);
    if (n < 0) return err_set(err, ERR_IO, "%s: %s", dir, strerror(errno));
    names->name = arena_alloc(&names->arena, (size_t)n, sizeof *names->name);
    for (int i = 0; i < n; i++) {
        if (names->name && wanted(dir, entry[i]->d_name))
            names->name[names->n++] = arena_strdup(&names->arena, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    if (!arena_ok(&names->arena, dir, err)) return 0;
    arena_free(&names->arena);
    return -1;
}

// The sorted subfolders of dir as the set's classes.
static int folder_classes(Set *s, const char *dir, Err *err) {
    Names found;
    if (list_names(&found, dir, is_folder, err)) return -1;
    s->classes = found.n;
    s->class_name = arena_alloc(&s->arena, (size_t)found.n, sizeof *s->class_name);
    for (int i = 0; s->class_name && i < found.n; i++)
        s->class_name[i] = arena_strdup(&s->arena, found.name[i]);
    arena_free(&found.arena);
    if (s->classes < 1 || s->classes > MAX_CLASSES)
        return err_set(err, ERR_DATA, "%s: %d subfolders, expected one a class, 1 to %d", dir,
                       s->classes, MAX_CLASSES);
    return arena_ok(&s->arena, s->name, err);
}

static int same_classes(const Set *s, const char *dir, const char *other, Err *err) {
    Names found;
    if (list_names(&found, other, is_folder, err)) return -1;
    int rc = 0;
    for (int i = 0; !rc && (i < s->classes || i < found.n); i++) {
        const char *a = i < s->classes ? s->class_name[i] : NULL,
                   *b = i < found.n ? found.name[i] : NULL;
        if (a && b && !strcmp(a, b)) continue;
        const int only_a = !b || (a && strcmp(a, b) < 0);
        rc = err_set(err, ERR_DATA, "%s: no class '%s', which is in %s", only_a ? other : dir,
                     only_a ? a : b, only_a ? dir : other);
    }
    arena_free(&found.arena);
    return rc;
}

typedef struct {
    Arena arena;
    const char **path;
    int *y;
    size_t n, cap;
} Pictures;

static void add_picture(Pictures *p, const char *path, int y) {
    if (p->n == p->cap) { // doubling: what is left behind is freed at the end
        p->cap = p->cap ? 2 * p->cap : 1024;
        const char **paths = arena_alloc(&p->arena, p->cap, sizeof *paths);
        int *labels = arena_alloc(&p->arena, p->cap, sizeof *labels);
        if (!paths || !labels) return;
        if (p->n) memcpy(paths, p->path, p->n * sizeof *paths);
        if (p->n) memcpy(labels, p->y, p->n * sizeof *labels);
        p->path = paths;
        p->y = labels;
    }
    p->path[p->n] = arena_strdup(&p->arena, path);
    p->y[p->n++] = y;
}

// Which part of each class is taken: all of it, or one side of a cut by seed.
typedef struct {
    int cut;
    Half half;
    uint64_t seed;
} Part;

// A tenth of each class is held out, but never all of it, so that training sees every class.
static int in_part(const Part *part, int y, int n, int i) {
    if (!part->cut) return 1;
    const Rng k = { part->seed, RNG_SPLIT, 1, (uint32_t)y }; // set_split has step 0
    const uint32_t held = n > 1 ? (uint32_t)(n + 9) / 10 : 0;
    return (rng_perm(k, (uint32_t)n, (uint32_t)i) < held) == (part->half == HALF_TEST);
}

static int list_class(Pictures *p, const char *dir, const char *name, int y, const Part *part,
                      Err *err) {
    char sub[PATH_MAX], path[PATH_MAX];
    Names found;
    if (path_join(sub, sizeof sub, dir, name, err) || list_names(&found, sub, is_picture, err))
        return -1;
    int rc = found.n ? 0 : err_set(err, ERR_DATA, "%s: no PNG or JPEG picture", sub);
    for (int i = 0; !rc && i < found.n && !p->arena.failed; i++) {
        if (!in_part(part, y, found.n, i)) continue;
        rc = path_join(path, sizeof path, sub, found.name[i], err);
        if (!rc) add_picture(p, path, y);
    }
    arena_free(&found.arena);
    return rc;
}

static int decode_all(Set *s, const Pictures *p, Err *err) {
    if (set_alloc(s, p->n, err)) return -1;
    const size_t bytes = (size_t)s->c * (size_t)s->side * (size_t)s->side;
    Err first = { 0 };
    _Atomic int failed = 0;
    #pragma omp parallel for schedule(dynamic, 16)
    for (size_t i = 0; i < p->n; i++) {
        Err e = { 0 };
        s->y[i] = p->y[i];
        if (failed || !picture_load(s->x + i * bytes, p->path[i], s->c, s->side, &e)) continue;
        failed = 1;
        #pragma omp critical
        err_set(&first, e.kind, "%s", e.msg);
    }
    return failed ? err_set(err, first.kind, "%s", first.msg) : 0;
}

// A half of its own is a folder of folders: a class of pictures may well be called "train".
static int is_half(const char *dir, const char *name) {
    char path[PATH_MAX];
    Names found;
    if (path_join(path, sizeof path, dir, name, NULL) || !dir_exists(path)) return 0;
    if (list_names(&found, path, is_folder, NULL)) return 0;
    arena_free(&found.arena);
    return found.n > 0;
}

int read_folder(Set *s, const char *dir, Half half, const DataOpts *o, Err *err) {
    if (!dir_exists(dir)) return err_set(err, ERR_ARG, "%s: no such folder", dir);
    const char *name[] = { "train", "test" };
    const int has[] = { is_half(dir, "train"), is_half(dir, "test") };
    const Part part = { .cut = !has[HALF_TEST], .half = half, .seed = o->seed };
    char sub[PATH_MAX], other[PATH_MAX];
    if (has[HALF_TEST] && !has[half])
        return err_set(err, ERR_DATA, "%s: has test/ but no train/ with a subfolder a class", dir);
    const char *own = has[half] ? name[half] : has[HALF_TRAIN] ? name[HALF_TRAIN] : "";
    if (path_join(sub, sizeof sub, dir, own, err) || folder_classes(s, sub, err)) return -1;
    if (has[HALF_TRAIN] && has[HALF_TEST] &&
        (path_join(other, sizeof other, dir, name[!half], err) || same_classes(s, sub, other, err)))
        return -1;
    s->c = o->channels ? o->channels : 3;
    s->side = o->side ? o->side : 32;
    s->flip = 1;
    Pictures p = { 0 };
    int rc = 0;
    for (int i = 0; i < s->classes && !rc; i++)
        rc = list_class(&p, sub, s->class_name[i], i, &part, err);
    if (!rc) rc = arena_ok(&p.arena, s->name, err);
    if (!rc && p.n == 0)
        rc = err_set(err, ERR_DATA, "%s: too few pictures to hold some out for testing", sub);
    if (!rc) rc = decode_all(s, &p, err);
    arena_free(&p.arena);
    return rc;
}

int read_pictures(Set *s, const char *dir, int c, int side, Err *err) {
    const DataOpts o = { .side = side, .channels = c };
    const Part all = { .cut = 0 };
    Names own, sub;
    if (!dir_exists(dir)) return err_set(err, ERR_ARG, "%s: no such folder", dir);
    if (is_half(dir, "test")) return read_folder(s, dir, HALF_TEST, &o, err);
    if (list_names(&own, dir, is_picture, err)) return -1;
    arena_free(&own.arena);
    if (list_names(&sub, dir, is_folder, err)) return -1;
    Pictures p = { 0 };
    const int flat = own.n || !sub.n;
    int rc = flat ? list_class(&p, dir, "", 0, &all, err) : 0;
    for (int i = 0; !flat && i < sub.n && !rc; i++)
        rc = list_class(&p, dir, sub.name[i], 0, &all, err);
    arena_free(&sub.arena);
    *s = (Set){ .arena = s->arena, .c = c, .side = side, .classes = 1 };
    snprintf(s->from, sizeof s->from, "%s", dir);
    if (!rc) rc = arena_ok(&p.arena, dir, err) || number_names(s, err) || decode_all(s, &p, err);
    arena_free(&p.arena);
    return rc ? -1 : 0;
}

// ---- shapes

static const char *const SHAPE_NAME[] = {
    "disc",         "square", "triangle", "ring", "cross", "horizontal stripes", "vertical stripes",
    "checkerboard", "star",   "diamond"
};

// The corner of a five-pointed star, folded onto a tenth of a turn: inside is left of the edge from
// the tip (1, 0) to the notch (0.45 at 36 degrees).
static int in_star(float u, float v) {
    const float turn = 1.2566371f, angle = fmodf(fabsf(atan2f(u, -v)), turn), r = hypotf(u, v);
    const float a = angle < turn / 2 ? angle : turn - angle;
    const float ex = 0.36406f - 1, ey = 0.26450f;
    return ex * r * sinf(a) - ey * (r * cosf(a) - 1) > 0;
}

// (u, v) from the shape's centre, right and down, in units of its radius.
static int inside(int kind, float u, float v) {
    const float au = fabsf(u), av = fabsf(v), r2 = u * u + v * v;
    const int box = au < 1 && av < 1;
    switch (kind) {
    case 0:  return r2 < 1;
    case 1:  return au < 0.85f && av < 0.85f;
    case 2:  return v < 0.8f && au < 0.58f * (v + 1);
    case 3:  return r2 < 1 && r2 > 0.3f;
    case 4:  return (au < 0.3f && av < 1) || (av < 0.3f && au < 1);
    case 5:  return box && (int)((v + 1) * 2.5f) % 2 == 0;
    case 6:  return box && (int)((u + 1) * 2.5f) % 2 == 0;
    case 7:  return box && ((int)((u + 1) * 2) + (int)((v + 1) * 2)) % 2 == 0;
    case 8:  return in_star(u, v);
    default: return 1.5f * au + av < 1.1f;
    }
}

typedef struct {
    int kind;
    float x, y, radius, co, si;
} Shape; // co, si: of its turn, a radius

// How much of the pixel (dx, dy) away from the shape's centre it covers, by 4 x 4 points.
static float coverage(const Shape *s, float dx, float dy) {
    if (dx * dx + dy * dy > (1.5f * s->radius + 2) * (1.5f * s->radius + 2)) return 0;
    int hits = 0;
    for (int i = 0; i < 16; i++) {
        const float x = dx + (0.5f + (float)(i % 4)) / 4, y = dy + (0.5f + (float)(i / 4)) / 4;
        hits += inside(s->kind, s->co * x + s->si * y, s->co * y - s->si * x);
    }
    return (float)hits / 16;
}

static Shape random_shape(int kind, float side, Rng k) {
    const float radius = side * (0.26f + 0.16f * rng_uniform(k, 0)), room = side - 2 * radius;
    const float turn = 0.4f * (rng_uniform(k, 1) - 0.5f);
    return (Shape){ .kind = kind,
                    .x = radius + room * rng_uniform(k, 2),
                    .y = radius + room * rng_uniform(k, 3),
                    .radius = radius,
                    .co = cosf(turn) / radius,
                    .si = sinf(turn) / radius };
}

// Photographs have grain, and densities need it: pictures of even colours alone let log p(x) grow
// steep beyond measure, until chains leap over its ridges (docs/pyld.md).
static void add_grain(uint8_t *x, size_t n, Rng k) {
    enum { FIRST = 64 };              // blocks before it belong to the shape
    for (size_t i = 0; i < n; i += 8) {
        uint32_t r[4];                // two bytes a pixel: their sum has a standard deviation of 104.5
        rng_block(k, (uint32_t)(FIRST + i / 8), r);
        for (size_t j = i; j < n && j < i + 8; j++) {
            const int two = (int)(r[(j - i) / 2] >> 16 * ((j - i) % 2) & 0xffff);
            const int v = x[j] + ((two & 255) + (two >> 8) - 255) * 61 / 255;
            x[j] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}

static void draw_shape(uint8_t *x, int side, int kind, Rng k) {
    const Shape s = random_shape(kind, (float)side, k);
    const float lean = 6.2831853f * rng_uniform(k, 4); // where the ground grows brighter
    const float gx = 40 * cosf(lean) / (float)side, gy = 40 * sinf(lean) / (float)side;
    float ground[3], paint[3];
    for (int c = 0; c < 3; c++) { // half the range apart, give or take: never alike
        ground[c] = 255 * rng_uniform(k, 8 + (uint64_t)c);
        paint[c] = fmodf(ground[c] + 96 + 64 * rng_uniform(k, 12 + (uint64_t)c), 256);
    }
    for (int row = 0; row < side; row++)
        for (int col = 0; col < side; col++) {
            const float dx = (float)col - s.x, dy = (float)row - s.y;
            const float on = coverage(&s, dx, dy), light = gx * dx + gy * dy;
            for (int c = 0; c < 3; c++) {
                const float v = on * paint[c] + (1 - on) * (ground[c] + light) + 0.5f;
                x[(c * side + row) * side + col] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
    add_grain(x, 3 * (size_t)side * (size_t)side, k);
}

int draw_shapes(Set *s, Half half, const DataOpts *o, Err *err) {
    s->c = 3;
    s->side = o->side ? o->side : 32;
    s->classes = (int)(sizeof SHAPE_NAME / sizeof *SHAPE_NAME);
    s->flip = 1;
    s->class_name = arena_alloc(&s->arena, (size_t)s->classes, sizeof *s->class_name);
    if (set_alloc(s, half == HALF_TRAIN ? 5000 : 1000, err)) return -1;
    memcpy(s->class_name, SHAPE_NAME, sizeof SHAPE_NAME);
    #pragma omp parallel for
    for (size_t i = 0; i < s->n; i++) {
        const Rng k = { o->seed, RNG_SHAPES, half, (uint32_t)i };
        s->y[i] = (int)(i % 10);
        draw_shape(s->x + i * 3 * (size_t)s->side * (size_t)s->side, s->side, s->y[i], k);
    }
    return 0;
}
