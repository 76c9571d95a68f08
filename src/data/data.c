// data.c - see data.h: which sets are known, and where they are looked for.
#include "data/data.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "conf/nearest.h"
#include "data/formats.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FORMAT_CIFAR, FORMAT_IDX, FORMAT_SVHN } Format;

typedef struct {
    const char *name, *about;
    Format      format;
    int         c, side, classes, flip;
    const char *const *class_name;
    const char *names_file;           // its lines are the class names where it is present
    const char *unread;               // the publisher's edition that is not supported, or NULL
    const char *folder[3];            // below a data folder, tried in this order
    const char *file[2][6];           // of the training and the test half
    size_t      records[2];           // a file, for FORMAT_CIFAR
} Known;

static const char *const DIGITS[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };
static const char *const CIFAR10_NAME[] = { "airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck" };
static const char *const FASHION_NAME[] = { "T-shirt/top", "Trouser",   "Pullover", "Dress",
                                            "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                            "Bag",         "Ankle boot" };
static const char *const CIFAR100_NAME[] = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm"
};

static const Known KNOWN[] = {
    { .name = "cifar10",
      .about = "60,000 colour photographs, 10 classes, 32 x 32",
      .format = FORMAT_CIFAR,
      .c = 3,
      .side = 32,
      .classes = 10,
      .flip = 1,
      .class_name = CIFAR10_NAME,
      .names_file = "batches.meta.txt",
      .unread = "cifar-10-batches-py",
      .folder = { "cifar-10-batches-bin", "" },
      .file = { { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                  "data_batch_5.bin" },
                { "test_batch.bin" } },
      .records = { 10000, 10000 } },
    { .name = "cifar100",
      .about = "60,000 colour photographs, 100 classes, 32 x 32",
      .format = FORMAT_CIFAR,
      .c = 3,
      .side = 32,
      .classes = 100,
      .flip = 1,
      .class_name = CIFAR100_NAME,
      .names_file = "fine_label_names.txt",
      .unread = "cifar-100-python",
      .folder = { "cifar-100-binary" },
      .file = { { "train.bin" }, { "test.bin" } },
      .records = { 50000, 10000 } },
    { .name = "svhn",
      .about = "99,289 house-number digits in colour, 32 x 32",
      .format = FORMAT_SVHN,
      .c = 3,
      .side = 32,
      .classes = 10,
      .flip = 0,
      .class_name = DIGITS,
      .folder = { "svhn", "SVHN", "" },
      .file = { { "train_32x32.mat" }, { "test_32x32.mat" } } },
    { .name = "mnist",
      .about = "70,000 handwritten digits in grey, 28 x 28",
      .format = FORMAT_IDX,
      .c = 1,
      .side = 28,
      .classes = 10,
      .flip = 0,
      .class_name = DIGITS,
      .folder = { "mnist", "MNIST/raw" },
      .file = { { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
                { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" } } },
    { .name = "fashion-mnist",
      .about = "70,000 pieces of clothing in grey, 28 x 28",
      .format = FORMAT_IDX,
      .c = 1,
      .side = 28,
      .classes = 10,
      .flip = 1,
      .class_name = FASHION_NAME,
      .folder = { "fashion-mnist", "FashionMNIST/raw" },
      .file = { { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
                { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" } } },
};
enum { N_KNOWN = sizeof KNOWN / sizeof *KNOWN };

static const char *const HALF_NAME[] = { "training", "test" };

// ---- where sets are looked for

typedef struct {
    char dir[6][MAX_PATH];
    int n;
} Places;

static void add_place(Places *p, const char *dir) {
    if (dir && *dir && strlen(dir) < MAX_PATH) snprintf(p->dir[p->n++], MAX_PATH, "%s", dir);
}

static int user_folder(char dst[MAX_PATH], Err *err) {
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (xdg && *xdg) return path_join(dst, MAX_PATH, xdg, "jempp", err);
    if (home && *home) return path_join(dst, MAX_PATH, home, ".local/share/jempp", err);
    return err_set(err, ERR_ARG,
                   "no data folder: neither JEMPP_DATA nor XDG_DATA_HOME nor HOME is set; "
                   "--data-dir DIR names one");
}

int data_home(char dst[MAX_PATH], Err *err) {
    const char *own = getenv("JEMPP_DATA");
    return own && *own ? path_join(dst, MAX_PATH, own, "", err) : user_folder(dst, err);
}

static Places places(const char *dir) {
    Places p = { .n = 0 };
    char home[MAX_PATH] = "";
    add_place(&p, dir);
    add_place(&p, getenv("JEMPP_DATA"));
    if (!user_folder(home, NULL)) add_place(&p, home);
    add_place(&p, "/usr/local/share/jempp/data");
    add_place(&p, "/usr/share/jempp/data");
    add_place(&p, "/usr/share/datasets");
    return p;
}

int data_find(char *dst, size_t n, const char *dir, const char *name) {
    const Places p = places(dir);
    for (int i = 0; i < p.n; i++)
        if (!path_join(dst, n, p.dir[i], name, NULL) && file_exists(dst)) return 0;
    return -1;
}

typedef struct {
    char folder[MAX_PATH], path[5][MAX_PATH];
    int n, there;
    const char *missing, *damaged;    // a file's name, or NULL
} FoundSet;

static int find_file(char dst[MAX_PATH], const Known *k, const char *folder, const char *name) {
    if (!path_join(dst, MAX_PATH, folder, name, NULL) && file_exists(dst)) return 1;
    const size_t n = strlen(dst);
    if (k->format != FORMAT_IDX || n + 4 > MAX_PATH) return 0;
    memcpy(dst + n, ".gz", 4);
    return file_exists(dst);
}

static FoundSet find_in(const Known *k, Half half, const char *folder) {
    FoundSet f = { .n = 0 };
    snprintf(f.folder, sizeof f.folder, "%s", folder);
    for (const char *const *name = k->file[half]; *name; name++, f.n++) {
        const int there = find_file(f.path[f.n], k, folder, *name);
        f.there += there;
        if (!there && !f.missing) f.missing = *name;
    }
    return f;
}

// The first folder that has all of the half's files; else the first that has some of them.
static FoundSet find_half(const Known *k, Half half, const Places *p) {
    FoundSet best = { .missing = k->file[half][0] };
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < 3 && k->folder[j]; j++) {
            char folder[MAX_PATH];
            if (path_join(folder, sizeof folder, p->dir[i], k->folder[j], NULL)) continue;
            const FoundSet f = find_in(k, half, folder);
            if (!f.missing) return f;
            if (f.there && !best.there) best = f;
        }
    return best;
}

static int say_missing(const Known *k, Half half, const Places *p, const FoundSet *f, Err *err) {
    if (f->there)
        return err_set(err, ERR_IO, "%s: %s is missing in %s (jempp data fetch %s downloads it)",
                       k->name, f->missing, f->folder, k->name);
    char list[640] = "", hint[160] = "";
    size_t n = 0;
    for (int i = 0; i < p->n; i++) {
        char other[MAX_PATH];
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", p->dir[i]);
        if (k->unread && !path_join(other, sizeof other, p->dir[i], k->unread, NULL) &&
            dir_exists(other))
            snprintf(hint, sizeof hint, "; %s is its Python edition, which is not supported",
                     k->unread);
    }
    return err_set(
        err, ERR_IO,
        "%s: no %s images (jempp data fetch %s downloads them)%s; looked for %s/%s in %s", k->name,
        HALF_NAME[half], k->name, hint, k->folder[0], f->missing, list);
}

// ---- loading

// Line by line, as the publisher wrote them; blank lines at the end do not count.
static int read_names(Set *s, const char *path, Err *err) {
    char *text;
    size_t size;
    if (file_read(path, 1 << 16, &text, &size, err)) return -1;
    int n = 0;
    char *rest = text;
    for (char *line; (line = strtok_r(rest, "\r\n", &rest)); n++)
        if (n < s->classes) s->class_name[n] = arena_strdup(&s->arena, line);
    free(text);
    if (n != s->classes)
        return err_set(err, ERR_DATA, "%s: %d class name%s, expected %d", path, n, plural(n),
                       s->classes);
    return arena_ok(&s->arena, s->name, err);
}

static int class_names(Set *s, const Known *k, const char *folder, Err *err) {
    s->class_name = arena_alloc(&s->arena, (size_t)k->classes, sizeof *s->class_name);
    if (arena_ok(&s->arena, s->name, err)) return -1;
    char path[MAX_PATH];
    if (k->names_file && !path_join(path, sizeof path, folder, k->names_file, NULL) &&
        file_exists(path))
        return read_names(s, path, err);
    memcpy(s->class_name, k->class_name, (size_t)k->classes * sizeof *s->class_name);
    return 0;
}

static int load_known(Set *s, const Known *k, Half half, const DataOpts *o, Err *err) {
    const char *dir = o->dir;
    if (dir && !dir_exists(dir)) return err_set(err, ERR_ARG, "--data-dir %s: no such folder", dir);
    const Places p = places(dir);
    const FoundSet f = find_half(k, half, &p);
    if (f.missing) return say_missing(k, half, &p, &f, err);
    snprintf(s->from, sizeof s->from, "%s", f.folder);
    s->c = k->c;
    s->side = k->side;
    s->classes = k->classes;
    s->flip = k->flip;
    if (class_names(s, k, f.folder, err)) return -1;
    if (o->look_only) return 0;
    switch (k->format) {
    case FORMAT_IDX:  return read_idx(s, f.path[0], f.path[1], err);
    case FORMAT_SVHN: return read_svhn(s, f.path[0], err);
    default:          break;
    }
    return read_cifar(s, f.path, f.n, k->classes > 10 ? 2 : 1, k->records[half], err);
}

static const char *after(const char *s, const char *prefix) {
    const size_t n = strlen(prefix);
    return strncmp(s, prefix, n) ? NULL : s + n;
}

Half set_half(const char *name, size_t *n) {
    static const char test[] = ":test";
    const size_t len = strlen(name), cut = sizeof test - 1;
    const int is_test = len > cut && !strcmp(name + len - cut, test);
    *n = len - (is_test ? cut : 0);
    return is_test ? HALF_TEST : HALF_TRAIN;
}

int check_image_size(const char *name, int its_c, int its_w, int its_h, int c, int side, Err *err) {
    if (its_c == c && its_w == side && its_h == side) return 0;
    return err_set(err, ERR_ARG,
                   "%s: %s images of %d x %d, the model takes %s images of %d x %d; only picture "
                   "files are scaled and converted",
                   name, its_c == 1 ? "grey" : "colour", its_w, its_h, c == 1 ? "grey" : "colour",
                   side, side);
}

int set_shape(const char *name, int *c, int *side, int *classes) {
    for (int i = 0; i < N_KNOWN; i++)
        if (!strcmp(name, KNOWN[i].name)) {
            *c = KNOWN[i].c;
            *side = KNOWN[i].side;
            *classes = KNOWN[i].classes;
            return 0;
        }
    return -1;
}

int set_named(const char *name) {
    size_t n;
    set_half(name, &n);
    for (int i = 0; i < N_KNOWN; i++)
        if (strlen(KNOWN[i].name) == n && !strncmp(name, KNOWN[i].name, n)) return 1;
    const char *path = after(name, "folder:"), *file = after(name, "cifar-file:"), *end = name + n;
    return (n == 6 && !strncmp(name, "shapes", n)) || (path && path < end) || (file && file < end);
}

const char set_names[] = "cifar10, cifar100, svhn, mnist, fashion-mnist, shapes, folder:DIR and "
                         "cifar-file:FILE";

static int no_such_set(const char *name, Err *err) {
    const char *kind = file_kind(name), *meant = NULL;
    nearer(name, "shapes", &meant);
    for (int i = 0; i < N_KNOWN; i++) nearer(name, KNOWN[i].name, &meant);
    if (!kind && meant)
        return err_set(err, ERR_ARG, "%s: no such image set; did you mean %s?", name, meant);
    if (!kind) return err_set(err, ERR_ARG, "%s: no such image set; there are %s", name, set_names);
    if (dir_exists(name))
        return err_set(err, ERR_ARG, "%s: a folder; expected folder:%s for pictures of your own",
                       name, name);
    return err_set(err, ERR_ARG, "%s: is %s, expected an image set: %s", name, kind, set_names);
}

static int load(Set *s, const char *name, Half half, const DataOpts *o, Err *err) {
    if (snprintf(s->name, sizeof s->name, "%s", name) >= (int)sizeof s->name)
        return err_set(err, ERR_ARG, "%s: name too long, at most %zu bytes", name,
                       sizeof s->name - 1);
    if (o->side < 0 || o->side > MAX_SIDE ||
        (o->channels != 0 && o->channels != 1 && o->channels != 3))
        return err_set(
            err, ERR_ARG,
            "%s: pictures of %d x %d with %d channels, expected at most %d x %d with 1 or 3", name,
            o->side, o->side, o->channels, MAX_SIDE, MAX_SIDE);
    if (!*name)
        return err_set(
            err, ERR_ARG,
            "no image set is named: expected --data (an exported model stores no folder)");
    for (int i = 0; i < N_KNOWN; i++)
        if (!strcmp(name, KNOWN[i].name)) return load_known(s, &KNOWN[i], half, o, err);
    const char *path;
    if ((path = after(name, "folder:")) && *path) {
        snprintf(s->from, sizeof s->from, "%s", path);
        return read_folder(s, path, half, o, err);
    }
    if ((path = after(name, "cifar-file:")) && *path) {
        snprintf(s->from, sizeof s->from, "%s", path);
        return read_cifar_any(s, path, err);
    }
    if (strcmp(name, "shapes")) return no_such_set(name, err);
    snprintf(s->from, sizeof s->from, "drawn in memory");
    return draw_shapes(s, half, o, err);
}

int set_load(Set *s, const char *name, Half half, const DataOpts *o, Err *err) {
    *s = (Set){ 0 };
    const int rc = load(s, name, half, o, err);
    if (rc) set_free(s);
    return rc;
}

// ---- what is known

// The first file that is shorter or longer than it should be, by sizes alone: nothing is unpacked.
static const char *damaged_file(const Known *k, Half half, const FoundSet *f) {
    const uint64_t record = (uint64_t)CIFAR_PIXELS + (k->classes > 10 ? 2 : 1);
    for (int i = 0; i < f->n; i++) {
        uint64_t size = 0;
        int ok = !regular_size(f->path[i], UINT64_MAX, &size, NULL);
        if (k->format == FORMAT_CIFAR) ok = ok && size == k->records[half] * record;
        else if (k->format == FORMAT_IDX) ok = ok && idx_is_whole(f->path[i], i ? 1 : 3);
        else ok = ok && svhn_is_whole(f->path[i]);
        if (!ok) return k->file[half][i];
    }
    return NULL;
}

int data_list(const char *dir, SetInfo *info, int max) {
    const Places p = places(dir);
    int n = 0;
    for (; n < N_KNOWN && n < max; n++) {
        const Known *k = &KNOWN[n];
        FoundSet half[] = { find_half(k, HALF_TRAIN, &p), find_half(k, HALF_TEST, &p) };
        for (Half h = HALF_TRAIN; h <= HALF_TEST; h++)
            if (!half[h].missing) half[h].damaged = damaged_file(k, h, &half[h]);
        info[n] = (SetInfo){ .train = !half[0].missing && !half[0].damaged,
                             .test = !half[1].missing && !half[1].damaged,
                             .fetchable = 1 };
        const char *damaged = half[0].damaged ? half[0].damaged : half[1].damaged;
        if (damaged) snprintf(info[n].damaged, sizeof info[n].damaged, "%s", damaged);
        snprintf(info[n].name, sizeof info[n].name, "%s", k->name);
        snprintf(info[n].about, sizeof info[n].about, "%s", k->about);
        if (!half[0].missing || !half[1].missing)
            snprintf(info[n].found, sizeof info[n].found, "%s",
                     half[half[0].missing != NULL].folder);
    }
    if (n < max)
        info[n++] = (SetInfo){
            "shapes", "6,000 coloured shapes, 10 classes, any size", "drawn in memory", "", 1, 1, 0
        };
    return n;
}

void data_label(char dst[32], const char *name) {
    const char *slash = strrchr(name, '/'), *colon = strchr(name, ':');
    const char *from = slash && slash[1] ? slash + 1 : colon ? colon + 1 : name;
    const char *dot = strrchr(from, '.');
    const size_t n = dot && colon ? (size_t)(dot - from) : strlen(from);
    snprintf(dst, 32, "%.*s", n > 31 ? text_whole(from, 31) : (int)n, from);
}

int data_absolute(char *name, size_t n, Err *err) {
    const char *path = after(name, "folder:");
    if (!path) path = after(name, "cifar-file:");
    if (!path || *path == '/') return 0;
    char *whole = realpath(path, NULL);
    if (!whole) return 0;
    const size_t prefix = (size_t)(path - name), length = strlen(whole);
    const int fits = prefix + length < n;
    if (fits) memcpy(name + prefix, whole, length + 1);
    else
        err_set(err, ERR_ARG, "%.20s...: %s has %zu bytes, expected at most %zu", name, whole,
                length, n - 1 - prefix);
    free(whole);
    return !fits;
}
