// folder.c - folders of pictures, one subfolder per class; see formats.h.
#include "base/file.h"
#include "base/file_kind.h"
#include "base/image.h"
#include "base/loop.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/formats.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static int to_planes(uint8_t *dst, Image *whole, const char *name, int side, Err *err) {
    Image square;
    const int rc = image_square(&square, whole, side, err), c = whole->c;
    image_free(whole);
    if (rc) return err_prefix(err, "%s", name);
    const size_t pixels = (size_t)side * (size_t)side;
    for (size_t k = 0; k < (size_t)c; k++)
        for (size_t i = 0; i < pixels; i++) dst[k * pixels + i] = square.p[i * (size_t)c + k];
    image_free(&square);
    return 0;
}

int picture_load(uint8_t *dst, const char *path, int c, int side, Err *err) {
    Image whole;
    return image_read(&whole, path, c, err) || to_planes(dst, &whole, path, side, err);
}

int picture_decode(uint8_t *dst, const uint8_t *data, size_t n, const char *name, int c, int side,
                   Err *err) {
    Image whole;
    return image_decode(&whole, data, n, name, c, err) || to_planes(dst, &whole, name, side, err);
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

int is_picture(const char *dir, const char *name) {
    (void)dir;
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") ||
                   !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".webp"));
}

// Pictures of formats that are not read, by their names.
static int is_other_picture(const char *dir, const char *name) {
    static const char *const suffix[] = { ".gif",  ".bmp", ".tif", ".tiff", ".heic", ".heif",
                                          ".avif", ".jxl", ".jp2", ".ppm",  ".pgm",  ".svg" };
    (void)dir;
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof suffix / sizeof *suffix; i++)
        if (!strcasecmp(dot, suffix[i])) return 1;
    return 0;
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

static int no_subfolders(const char *dir, Err *err) {
    Names found;
    char pictures[64] = "";
    if (!list_names(&found, dir, is_picture, NULL)) {
        if (found.n == 1) snprintf(pictures, sizeof pictures, "a picture but ");
        if (found.n > 1) snprintf(pictures, sizeof pictures, "%d pictures but ", found.n);
        arena_free(&found.arena);
    }
    return err_set(err, ERR_DATA,
                   "%s: %sno subfolder, expected one per class with its pictures in it", dir,
                   pictures);
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
    for (int i = 0; s->class_name && i < s->classes; i++)
        if (s->class_name[i] && strchr(s->class_name[i], '\n'))
            return err_set(err, ERR_DATA, "%s: class %d has a line break in its name", dir, i);
    if (!s->classes) return no_subfolders(dir, err);
    if (s->classes > MAX_CLASSES)
        return err_set(err, ERR_DATA, "%s: %d subfolders, expected one per class, at most %d", dir,
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
    size_t n;
    char first[64]; // name
} Skipped;

typedef struct {
    Arena arena;
    const char **path;
    int *y;
    size_t n, cap;
    Skipped other; // files of other picture formats
} Pictures;

static void skip(Skipped *s, size_t n, const char *first) {
    if (!s->n && n) snprintf(s->first, sizeof s->first, "%s", first);
    s->n += n;
}

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
} ClassPart;

// A tenth of each class is held out, but never all of it, so that training sees every class.
static int in_part(const ClassPart *part, int y, int n, int i) {
    if (!part->cut) return 1;
    const Rng k = { part->seed, RNG_SPLIT, 1, (uint32_t)y }; // set_split has step 0
    const uint32_t held = n > 1 ? (uint32_t)(n + 9) / 10 : 0;
    return (rng_perm(k, (uint32_t)n, (uint32_t)i) < held) == (part->half == HALF_TEST);
}

static int find_others(Skipped *of, const char *dir, Err *err) {
    Names found;
    if (list_names(&found, dir, is_other_picture, err)) return -1;
    skip(of, (size_t)found.n, found.n ? found.name[0] : "");
    arena_free(&found.arena);
    return 0;
}

static void tell_left_out(const Pictures *p, const char *dir, const Events *ev) {
    char line[700];
    const Skipped *s = &p->other;
    if (!s->n) return;
    snprintf(line, sizeof line,
             "note: %.400s: %zu picture%s left out (%s%s): only PNG, JPEG and WebP are read", dir,
             s->n, plural((double)s->n), s->first, s->n > 1 ? ", ..." : "");
    tell_line(ev, line);
}

static int no_picture(const Skipped *other, const char *dir, Err *err) {
    if (!other->n) return err_set(err, ERR_DATA, "%s: no PNG, JPEG or WebP picture", dir);
    return err_set(err, ERR_DATA,
                   "%s: no PNG, JPEG or WebP picture, but %zu of other formats (%s%s)", dir,
                   other->n, other->first, other->n > 1 ? ", ..." : "");
}

static int list_class(Pictures *p, const char *dir, const char *name, int y, const ClassPart *part,
                      Err *err) {
    char sub[PATH_MAX], path[PATH_MAX];
    Names found;
    Skipped other = { 0 };
    if (path_join(sub, sizeof sub, dir, name, err) || find_others(&other, sub, err) ||
        list_names(&found, sub, is_picture, err))
        return -1;
    skip(&p->other, other.n, other.first);
    int rc = found.n ? 0 : no_picture(&other, sub, err);
    for (int i = 0; !rc && i < found.n && !p->arena.failed; i++) {
        if (!in_part(part, y, found.n, i)) continue;
        rc = path_join(path, sizeof path, sub, found.name[i], err);
        if (!rc) add_picture(p, path, y);
    }
    arena_free(&found.arena);
    return rc;
}

static void report_problem(const DataOpts *o, size_t *count, const char *text) {
    if (o->problems->unreadable + o->problems->classes < MOST_PROBLEMS) tell_line(o->events, text);
    ++*count;
}

// In the order of the pictures, whichever thread found them. why: malloc'd texts, NULL where all is
// well.
static void report_unreadable(const DataOpts *o, char **why, size_t n) {
    o->problems->pictures += n;
    for (size_t i = 0; i < n; i++)
        if (why[i]) report_problem(o, &o->problems->unreadable, why[i]);
}

static int decode_all(Set *s, const Pictures *p, const DataOpts *o, Err *err) {
    if (set_alloc(s, p->n, err)) return -1;
    char **why = calloc(p->n + 1, sizeof *why);
    if (!why) return err_set(err, ERR_MEM, "out of memory for %zu pictures", p->n);
    Loop loop = loop_begin(o->events, p->n, "pictures", "reading");
    const size_t bytes = (size_t)s->c * (size_t)s->side * (size_t)s->side;
    Err first = { 0 };
    _Atomic int failed = 0;
    #pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < p->n; i++) {
        Err e = { 0 };
        s->y[i] = p->y[i];
        if (loop_stopped(&loop) || failed ||
            !picture_load(s->x + i * bytes, p->path[i], s->c, s->side, &e))
            continue;
        if (o->problems && (why[i] = strdup(e.msg))) continue;
        failed = 1;
        #pragma omp critical
        err_set(&first, e.kind, "%s", e.msg);
    }
    const int rc = failed ? err_set(err, first.kind, "%s", first.msg) : loop_end(&loop, err);
    if (!rc && o->problems) report_unreadable(o, why, p->n);
    for (size_t i = 0; i < p->n; i++) free(why[i]);
    free(why);
    return rc;
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

int folder_has_test(const char *dir) { return is_half(dir, "test"); }

// Beside train/ other folders of folders, such as val/, are no classes and are not read.
static void tell_unused(const char *dir, const Events *ev) {
    char line[700];
    Names found;
    if (list_names(&found, dir, is_folder, NULL)) return;
    for (int i = 0; i < found.n; i++) {
        const char *name = found.name[i];
        if (!strcmp(name, "train") || !strcmp(name, "test") || !is_half(dir, name)) continue;
        snprintf(line, sizeof line,
                 "note: %.400s/%.80s: not used; expected train/ and test/ (validation images are "
                 "held out of train/)",
                 dir, name);
        tell_line(ev, line);
    }
    arena_free(&found.arena);
}

static int no_folder(const char *dir, Err *err) {
    char here[PATH_MAX];
    const char *kind = file_kind(dir);
    if (path_tilde(dir, err)) return -1;
    if (kind) return err_set(err, ERR_ARG, "%s: is %s, expected a folder of pictures", dir, kind);
    if (*dir == '/' || !getcwd(here, sizeof here))
        return err_set(err, ERR_ARG, "%s: no such folder", dir);
    return err_set(err, ERR_ARG, "%s: no such folder in %s", dir, here);
}

// A class that cannot be listed is reported once, although both parts of a cut folder list it.
static int take_class(Pictures *p, const Set *s, const char *dir, int y, const ClassPart *part,
                      const DataOpts *o, Err *err) {
    Err why = { 0 };
    if (!list_class(p, dir, s->class_name[y], y, part, &why)) return 0;
    if (!o->problems) return err_set(err, why.kind, "%s", why.msg);
    if (!part->cut || part->half == HALF_TRAIN) report_problem(o, &o->problems->classes, why.msg);
    return 0;
}

// Where a half's classes are: in train/ or test/, else in dir itself; where there is no test/, the
// halves are cut out of each class. Reads the names of the classes, which both halves must have.
static int find_half(Set *s, const char *dir, char sub[PATH_MAX], ClassPart *part, Err *err) {
    static const char *const name[] = { "train", "test" };
    const Half half = part->half;
    const int has[] = { is_half(dir, "train"), is_half(dir, "test") };
    part->cut = !has[HALF_TEST];
    if (has[HALF_TEST] && !has[half])
        return err_set(err, ERR_DATA, "%s: has test/ but no train/ with one subfolder per class",
                       dir);
    const char *own = has[half] ? name[half] : has[HALF_TRAIN] ? name[HALF_TRAIN] : "";
    if (path_join(sub, PATH_MAX, dir, own, err) || folder_classes(s, sub, err)) return -1;
    if (!has[HALF_TRAIN] || !has[HALF_TEST]) return 0;
    char other[PATH_MAX];
    return path_join(other, sizeof other, dir, name[!half], err) ||
           same_classes(s, sub, other, err);
}

// None at all is an error, unless what is wrong with every class was reported already.
static int list_half(Pictures *p, const Set *s, const char *sub, const ClassPart *part,
                     const DataOpts *o, Err *err) {
    for (int i = 0; i < s->classes; i++)
        if (take_class(p, s, sub, i, part, o, err)) return -1;
    if (arena_ok(&p->arena, s->name, err)) return -1;
    if (p->n || (o->problems && o->problems->classes)) return 0;
    return err_set(err, ERR_DATA, "%s: too few pictures to hold some out for testing", sub);
}

// The first picture that cannot be read ends it: then there is a command that lists all of them.
static int decode_half(Set *s, const Pictures *p, const DataOpts *o, Err *err) {
    char word[PATH_MAX];
    if (!p->n || !decode_all(s, p, o, err)) return 0;
    if (err && err->kind != ERR_MEM && !stop_asked(o->events))
        err_append(err, "; jempp data check %s lists all such pictures",
                   shell_word(word, sizeof word, s->name));
    return -1;
}

int read_folder(Set *s, const char *dir, Half half, const DataOpts *o, Err *err) {
    char sub[PATH_MAX];
    ClassPart part = { .half = half, .seed = o->seed };
    if (!dir_exists(dir)) return no_folder(dir, err);
    if (find_half(s, dir, sub, &part, err)) return -1;
    s->c = o->channels ? o->channels : 3;
    s->side = o->side ? o->side : 32;
    s->flip = 1;
    Pictures p = { 0 };
    int rc = list_half(&p, s, sub, &part, o, err);
    if (!rc && !o->look_only) {
        tell_left_out(&p, sub, o->events);
        if (half == HALF_TRAIN && strcmp(sub, dir)) tell_unused(dir, o->events);   // it has train/
        rc = decode_half(s, &p, o, err);
    }
    arena_free(&p.arena);
    return rc;
}

static void tell_subfolders(const Skipped *s, const char *dir, const char *what, const Events *ev) {
    char line[700];
    if (!s->n) return;
    snprintf(line, sizeof line, "note: %.400s: %zu subfolder%s %s (%s%s)", dir, s->n,
             plural((double)s->n), what, s->first, s->n > 1 ? ", ..." : "");
    tell_line(ev, line);
}

// One subfolder without pictures is no error where another has some.
static int pictures_below(Pictures *p, const char *dir, const Names *sub, const Events *ev,
                          Err *err) {
    const ClassPart all = { .cut = 0 };
    Skipped empty = { 0 };
    for (int i = 0; i < sub->n; i++) {
        Err why = { 0 };
        if (!list_class(p, dir, sub->name[i], 0, &all, &why)) continue;
        if (why.kind != ERR_DATA) return err_set(err, why.kind, "%s", why.msg);
        skip(&empty, 1, sub->name[i]);
    }
    if (empty.n == (size_t)sub->n) return no_picture(&p->other, dir, err);
    tell_subfolders(&empty, dir, "without PNG, JPEG and WebP pictures", ev);
    return 0;
}

// Every picture of a folder, or of its subfolders where it has none itself.
static int pictures_in(Pictures *p, const char *dir, const Events *ev, Err *err) {
    const ClassPart all = { .cut = 0 };
    Names own, sub;
    if (!dir_exists(dir)) return no_folder(dir, err);
    if (list_names(&own, dir, is_picture, err)) return -1;
    arena_free(&own.arena);
    if (list_names(&sub, dir, is_folder, err)) return -1;
    const int flat = own.n || !sub.n;
    int rc = flat ? list_class(p, dir, "", 0, &all, err) : pictures_below(p, dir, &sub, ev, err);
    if (!rc && flat && sub.n) {
        Skipped unread = { 0 };
        skip(&unread, (size_t)sub.n, sub.name[0]);
        tell_subfolders(&unread, dir, "beside its pictures not read", ev);
    }
    arena_free(&sub.arena);
    return rc ? rc : arena_ok(&p->arena, dir, err);
}

int read_pictures(Set *s, const char *dir, const DataOpts *o, Err *err) {
    if (folder_has_test(dir)) return read_folder(s, dir, HALF_TEST, o, err);
    Pictures p = { 0 };
    int rc = pictures_in(&p, dir, o->look_only ? NULL : o->events, err);
    *s = (Set){ .arena = s->arena, .c = o->channels, .side = o->side, .classes = 1 };
    snprintf(s->from, sizeof s->from, "%s", dir);
    if (!rc) rc = number_names(s, err);
    if (!rc && !o->look_only) tell_left_out(&p, dir, o->events);
    if (!rc && !o->look_only) rc = decode_all(s, &p, o, err);
    arena_free(&p.arena);
    return rc;
}

int list_pictures(Arena *arena, const char *dir, const char ***path, size_t *n, const Events *ev,
                  Err *err) {
    Pictures p = { 0 };
    const int rc = pictures_in(&p, dir, ev, err);
    if (!rc) tell_left_out(&p, dir, ev);
    *path = p.path;
    *n = p.n;
    *arena = p.arena;
    return rc;
}
