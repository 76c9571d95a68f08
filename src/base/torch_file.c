// torch_file.c - see torch_file.h.
#include "base/torch_file.h"
#include "base/pickle.h"
#include "base/zip.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NODES = 1 << 20, MAX_TENSORS = 1 << 17, MAX_NAME = 1000 };
enum { MAX_META = 64 << 20 };           // bytes of all names and values: a pickle may repeat them
static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
static const int64_t stream_version = 1001;

static const struct {
    const char *class;
    StType type;
} storages[] = {
    { "torch.FloatStorage", ST_F32 }, { "torch.DoubleStorage", ST_F64 },
    { "torch.HalfStorage", ST_F16 },  { "torch.BFloat16Storage", ST_BF16 },
    { "torch.LongStorage", ST_I64 },  { "torch.IntStorage", ST_I32 },
    { "torch.ShortStorage", ST_I16 }, { "torch.CharStorage", ST_I8 },
    { "torch.ByteStorage", ST_U8 },   { "torch.BoolStorage", ST_BOOL },
};
enum { N_STORAGES = sizeof storages / sizeof *storages };

// What may be named in a pickle: what tensors are made by, and values that mean nothing here.
static int allowed(const char *class) {
    static const char *const known[] = {
        "collections.OrderedDict",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "torch.Size",
        "torch.device",
        "torch.float64",
        "torch.float32",
        "torch.float16",
        "torch.bfloat16",
        "torch.int64",
        "torch.int32",
        "torch.uint8",
        "torch.bool",
        "torch.jit._pickle.build_intlist",
        "torch.jit._pickle.build_doublelist",
        "torch.jit._pickle.build_boollist",
        "torch.jit._pickle.build_tensorlist",
        "torch.jit._pickle.restore_type_tag",
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], class)) return 1;
    for (int i = 0; i < N_STORAGES; i++)
        if (!strcmp(storages[i].class, class)) return 1;
    return !strncmp(class, "__torch__.", 10);
}

// ---- the tree's tensors

typedef struct {                        // where numbers lie; several tensors may share one
    const char *key;
    size_t      n_key;
    StType      type;
    uint64_t    count, at;              // elements; place in the file
} Storage;

typedef struct {
    StTensor t;                         // t.begin: elements from its storage's begin
    Storage  storage;
} FoundTensor;

typedef struct {
    St     *st;
    Err    *err;
    FoundTensor  *found;
    size_t  n, cap, n_meta, cap_meta, nodes, meta_bytes;
    const char **meta;
    char    name[MAX_NAME + 1];
} Walk;

static int bad(const Walk *w, const char *what) {
    return err_set(w->err, ERR_DATA, "%s: %s%s%s", w->st->path, w->name, *w->name ? ": " : "",
                   what);
}

static void *grown(Walk *w, void *old, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return old;
    const size_t more = 2 * n + 64;
    void *mem = realloc(old, more * size);
    if (mem) *cap = more;
    else err_set(w->err, ERR_MEM, "%s: out of memory for its names", w->st->path);
    return mem;
}

static int as_count(const PkNode *v, uint64_t *n) {
    if (!v || v->kind != PK_INT || v->i < 0) return -1;
    *n = (uint64_t)v->i;
    return 0;
}

// ("storage", class, key, device, elements); the stream has a sixth, which is None.
static int read_storage(Walk *w, const PkNode *v, Storage *s) {
    const PkNode *p = v && v->kind == PK_PERSISTENT ? v->a : NULL;
    const PkNode *class = pk_item(p, 1), *key = pk_item(p, 2), *view = pk_item(p, 5);
    if (!p || !pk_is(pk_item(p, 0), "storage") || !class || class->kind != PK_CLASS || !key ||
        key->kind != PK_STRING || as_count(pk_item(p, 4), &s->count) ||
        (view && view->kind != PK_NONE))
        return bad(w, "a tensor without a storage");
    s->key = key->s;
    s->n_key = key->n;
    for (int i = 0; i < N_STORAGES; i++) {
        if (strcmp(storages[i].class, class->s)) continue;
        s->type = storages[i].type;
        if (s->count > INT64_MAX / st_type_size(s->type)) return bad(w, "its storage is too large");
        return 0;
    }
    return err_set(w->err, ERR_DATA, "%s: %s: a storage of class %.100s, which is not read",
                   w->st->path, w->name, class->s);
}

static int read_layout(Walk *w, const PkNode *sizes, const PkNode *strides, StTensor *t) {
    if (!sizes || !strides || sizes->kind != PK_TUPLE || strides->kind != PK_TUPLE ||
        sizes->n != strides->n)
        return bad(w, "a tensor without a shape");
    if (sizes->n > ST_MAX_RANK)
        return err_set(w->err, ERR_DATA, "%s: %s: %zu dimensions, expected at most %d", w->st->path,
                       w->name, sizes->n, ST_MAX_RANK);
    for (t->rank = 0; t->rank < (int)sizes->n; t->rank++)
        if (as_count(pk_item(sizes, (size_t)t->rank), &t->shape[t->rank]) ||
            as_count(pk_item(strides, (size_t)t->rank), &t->stride[t->rank]))
            return bad(w, "a size or stride that is not a whole number from 0 on");
    return 0;
}

// Whether every element lies within the storage; finds out whether they lie in order.
static int check_layout(Walk *w, StTensor *t, const Storage *s) {
    uint64_t last = t->begin, part, order = 1;
    if (st_shape_bytes(s->type, t->rank, t->shape, &t->bytes)) return bad(w, "a shape too large");
    const uint64_t count = t->bytes / st_type_size(s->type);
    if (count == 0) {
        t->begin = 0;
        return 0;
    }
    for (int i = t->rank; i-- > 0; order *= t->shape[i]) {
        if (t->shape[i] != 1 && t->stride[i] != order) t->strided = 1;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &part) ||
            __builtin_add_overflow(last, part, &last))
            return bad(w, "strides too large");
    }
    if (last < s->count && count <= s->count) return 0;
    return err_set(w->err, ERR_DATA,
                   "%s: %s: its shape and strides need %" PRIu64
                   " elements, its storage has %" PRIu64,
                   w->st->path, w->name, last < s->count ? count : last + 1, s->count);
}

static int add_tensor(Walk *w, const PkNode *args) {
    FoundTensor f = { 0 };
    if (w->n == MAX_TENSORS) return bad(w, "too many tensors");
    if (read_storage(w, pk_item(args, 0), &f.storage)) return -1;
    if (as_count(pk_item(args, 1), &f.t.begin))
        return bad(w, "an offset that is not a whole number from 0 on");
    if (read_layout(w, pk_item(args, 2), pk_item(args, 3), &f.t) ||
        check_layout(w, &f.t, &f.storage))
        return -1;
    f.t.type = f.storage.type;
    f.t.name = arena_strdup(&w->st->arena, *w->name ? w->name : "tensor");
    FoundTensor *mem = grown(w, w->found, w->n, &w->cap, sizeof *mem);
    if (mem) w->found = mem;
    if (!mem || arena_ok(&w->st->arena, w->st->path, w->err)) return -1;
    w->found[w->n++] = f;
    return 0;
}

static int add_meta(Walk *w, const PkNode *v) {
    char number[32];
    const char *key = w->name + (strncmp(w->name, "metadata.", 9) ? 0 : 9);
    if (v->kind == PK_INT) snprintf(number, sizeof number, "%" PRId64, v->i);
    if (v->kind == PK_FLOAT) snprintf(number, sizeof number, "%.17g", v->f);
    const char *value = v->kind == PK_STRING ? v->s : number;
    const size_t n = v->kind == PK_STRING ? v->n : strlen(number);
    w->meta_bytes += n + strlen(key);
    if (w->meta_bytes > MAX_META) return bad(w, "too many values");
    const char **mem = grown(w, w->meta, 2 * w->n_meta + 1, &w->cap_meta, sizeof *mem);
    char *text = arena_alloc(&w->st->arena, n + 1, 1), *name = arena_strdup(&w->st->arena, key);
    if (mem) w->meta = mem;
    if (!mem || arena_ok(&w->st->arena, w->st->path, w->err)) return -1;
    memcpy(text, value, n);
    w->meta[2 * w->n_meta] = name;
    w->meta[2 * w->n_meta++ + 1] = text;
    return 0;
}

static int walk(Walk *w, const PkNode *v, int depth);

static int walk_named(Walk *w, const char *key, size_t n, const PkNode *v, int depth) {
    const size_t len = strlen(w->name), dot = len > 0;
    if (memchr(key, 0, n)) return bad(w, "a key that holds a zero byte");
    if (len + dot + n > MAX_NAME)
        return bad(w, "a name too long, or a container that holds itself");
    if (dot) w->name[len] = '.';
    memcpy(w->name + len + dot, key, n);
    w->name[len + dot + n] = 0;
    if (walk(w, v, depth + 1)) return -1;
    w->name[len] = 0;
    return 0;
}

static int walk_items(Walk *w, const PkNode *v, int depth) {
    size_t i = 0;
    char number[24];
    for (const PkCell *c = v->first; c; c = c->next, i++) {
        snprintf(number, sizeof number, "%zu", i);
        if (walk_named(w, number, strlen(number), c->item, depth)) return -1;
    }
    return 0;
}

static int walk_dict(Walk *w, const PkNode *v, int depth) {
    char number[24];
    for (const PkCell *c = v->first; c && c->next; c = c->next->next) {
        const PkNode *key = c->item, *value = c->next->item;
        if (key->kind == PK_INT) snprintf(number, sizeof number, "%" PRId64, key->i);
        else if (key->kind != PK_STRING) return bad(w, "a key that is neither string nor number");
        if (key->kind == PK_STRING ? walk_named(w, key->s, key->n, value, depth)
                                   : walk_named(w, number, strlen(number), value, depth))
            return -1;
    }
    return 0;
}

static int walk_call(Walk *w, const PkNode *v, int depth) {
    if (!strcmp(v->a->s, "torch._utils._rebuild_parameter")) {
        const PkNode *data = pk_item(v->b, 0);
        return data ? walk(w, data, depth + 1) : bad(w, "a parameter without a tensor");
    }
    if (strncmp(v->a->s, "torch._utils._rebuild_tensor", 28) != 0) return 0;
    return add_tensor(w, v->b);
}

// A pickle may use a value in many places, or in itself: depth and number of visits are bounded.
static int walk(Walk *w, const PkNode *v, int depth) {
    if (depth > MAX_DEPTH) return bad(w, "nested too deeply, or a container that holds itself");
    if (++w->nodes > MAX_NODES) return bad(w, "too many values");
    switch (v->kind) {
    case PK_INT:
    case PK_FLOAT:
    case PK_STRING: return add_meta(w, v);
    case PK_TUPLE:
    case PK_LIST:   return walk_items(w, v, depth);
    case PK_DICT:   return walk_dict(w, v, depth);
    case PK_OBJECT: return v->b ? walk(w, v->b, depth + 1) : 0;
    case PK_CALL:   return walk_call(w, v, depth);
    default:        return 0;
    }
}

// ---- storages: a list of which each key is there once

static int by_key(const void *a, const void *b) {
    const Storage *x = a, *y = b;
    const size_t n = x->n_key < y->n_key ? x->n_key : y->n_key;
    const int order = n ? memcmp(x->key, y->key, n) : 0;
    return order ? order : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

static Storage *list_storages(Walk *w, size_t *n) {
    Storage *s = malloc((w->n + 1) * sizeof *s);
    if (!s) {
        err_set(w->err, ERR_MEM, "%s: out of memory for its tensors", w->st->path);
        return NULL;
    }
    for (size_t i = 0; i < w->n; i++) s[i] = w->found[i].storage;
    if (w->n) qsort(s, w->n, sizeof *s, by_key);
    *n = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (!*n || by_key(&s[*n - 1], &s[i])) {
            s[(*n)++] = s[i];
        } else if (s[*n - 1].type != s[i].type || s[*n - 1].count != s[i].count) {
            err_set(w->err, ERR_DATA, "%s: storage %.*s has two types or sizes", w->st->path,
                    (int)(s[i].n_key < 100 ? s[i].n_key : 100), s[i].key);
            free(s);
            return NULL;
        }
    }
    return s;
}

static Storage *find_storage(Storage *s, size_t n, const Storage *key) {
    return n ? bsearch(key, s, n, sizeof *s, by_key) : NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const Walk *w) {
    const char **name = malloc((w->n + 1) * sizeof *name);
    if (!name) return err_set(w->err, ERR_MEM, "%s: out of memory for its names", w->st->path);
    int rc = 0;
    for (size_t i = 0; i < w->n; i++) name[i] = w->found[i].t.name;
    if (w->n) qsort(name, w->n, sizeof *name, by_name);
    for (size_t i = 1; !rc && i < w->n; i++)
        if (!strcmp(name[i], name[i - 1]))
            rc = err_set(w->err, ERR_DATA, "%s: duplicate tensor %s", w->st->path, name[i]);
    free(name);
    return rc;
}

// Everything was found: the tensors' places, and the arrays that St keeps.
static int finish(Walk *w, Storage *s, size_t n) {
    St *st = w->st;
    st->t = arena_alloc(&st->arena, w->n, sizeof *st->t);
    st->meta = arena_alloc(&st->arena, 2 * w->n_meta, sizeof *st->meta);
    if (arena_ok(&st->arena, st->path, w->err) || check_names(w)) return -1;
    for (size_t i = 0; i < w->n; i++) {
        st->t[i] = w->found[i].t;
        st->t[i].begin = find_storage(s, n, &w->found[i].storage)->at +
                         st->t[i].begin * st_type_size(st->t[i].type);
    }
    if (w->n_meta) memcpy(st->meta, w->meta, 2 * w->n_meta * sizeof *st->meta);
    st->n = (int)w->n;
    st->n_meta = (int)w->n_meta;
    return 0;
}

// ---- the zip format

// The archive's folder, with its slash, is what precedes data.pkl.
static const ZipEntry *find_pickle(const Zip *z, Err *err) {
    static const char tail[] = "data.pkl";
    for (int i = 0; i < z->n; i++) {
        const char *name = z->e[i].name, *slash = strchr(name, '/');
        if (!strcmp(slash ? slash + 1 : name, tail)) return &z->e[i];
    }
    err_set(err, ERR_DATA, "%s: a zip archive without data.pkl: not a PyTorch file", z->path);
    return NULL;
}

static int place_in_zip(Zip *z, const char *folder, int n_folder, Storage *s, Err *err) {
    char name[512];
    const uint64_t bytes = s->count * st_type_size(s->type);
    if (s->n_key > 200 || snprintf(name, sizeof name, "%.*sdata/%.*s", n_folder, folder,
                                   (int)s->n_key, s->key) >= (int)sizeof name)
        return err_set(err, ERR_DATA, "%s: a storage with too long a name", z->path);
    const ZipEntry *e = zip_find(z, name);
    if (!e) return err_set(err, ERR_DATA, "%s: there is no entry %s", z->path, name);
    if (e->bytes != bytes || e->deflated)
        return err_set(err, ERR_DATA,
                       "%s: entry %s: %" PRIu64 " bytes%s, expected %" PRIu64 " stored", z->path,
                       name, e->bytes, e->deflated ? " deflated" : "", bytes);
    s->at = e->at;
    return zip_extract(z, e, NULL, err);
}

static int check_byte_order(Zip *z, const char *folder, int n_folder, Err *err) {
    char name[512], order[8] = { 0 };
    snprintf(name, sizeof name, "%.*sbyteorder", n_folder, folder);
    const ZipEntry *e = zip_find(z, name);
    if (!e) return 0;
    if (e->bytes < sizeof order && zip_extract(z, e, order, err)) return -1;
    return strcmp(order, "little")
               ? err_set(err, ERR_DATA, "%s: byte order '%s', expected 'little'", z->path, order)
               : 0;
}

static int read_zip(Walk *w, Zip *z, const ZipEntry *e, const uint8_t *bytes, Arena *tree) {
    const int n_folder = (int)(strlen(e->name) - strlen("data.pkl"));
    size_t used, n;
    const PkNode *root =
        pickle_parse(tree, bytes, (size_t)e->bytes, allowed, &used, z->path, w->err);
    if (!root || check_byte_order(z, e->name, n_folder, w->err) || walk(w, root, 0)) return -1;
    Storage *s = list_storages(w, &n);
    if (!s) return -1;
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) rc = place_in_zip(z, e->name, n_folder, &s[i], w->err);
    if (!rc) rc = finish(w, s, n);
    free(s);
    return rc;
}

static int open_zip(Walk *w, Arena *tree) {
    Zip z;
    if (zip_open(&z, w->st->path, w->err)) return -1;
    const ZipEntry *e = find_pickle(&z, w->err);
    uint8_t *bytes = NULL;
    int rc = e ? 0 : -1;
    if (!rc && (e->bytes > PK_MAX_BYTES || strlen(e->name) > 256))
        rc = err_set(w->err, ERR_DATA, "%s: data.pkl has %" PRIu64 " bytes, at most %d are read",
                     z.path, e->bytes, PK_MAX_BYTES);
    if (!rc && !(bytes = malloc((size_t)e->bytes + 1)))
        rc = err_set(w->err, ERR_MEM, "%s: out of memory for data.pkl", z.path);
    if (!rc) rc = zip_extract(&z, e, bytes, w->err);
    if (!rc) rc = read_zip(w, &z, e, bytes, tree);
    if (!rc) {                                      // the archive's reader goes on as the file's
        w->st->reader = z.reader;
        z.reader = (Reader){ 0 };
    }
    free(bytes);
    zip_close(&z);
    return rc;
}

// ---- the older stream: five pickles, then the storages, each with its number of elements

static int read_failed(const St *st, Err *err) {
    return st->reader.failed ? err_set(err, st->reader.err.kind, "%s", st->reader.err.msg) : 0;
}

static int place_in_stream(Walk *w, Storage *s, size_t n, const PkNode *keys, uint64_t at) {
    St *st = w->st;
    size_t placed = 0;
    if (keys->kind != PK_LIST) return bad(w, "its list of storages is missing");
    for (const PkCell *c = keys->first; c; c = c->next) {
        if (c->item->kind != PK_STRING) return bad(w, "a storage without a name");
        Storage *found = find_storage(s, n, &(Storage){ .key = c->item->s, .n_key = c->item->n });
        if (!found || found->at)
            return bad(w, "a storage that no tensor names, or a duplicate one");
        uint64_t count, bytes = found->count * st_type_size(found->type);
        reader_seek(&st->reader, at);
        read_bytes(&st->reader, &count, sizeof count);
        if (read_failed(st, w->err)) return -1;
        if (count != found->count || bytes > st->reader.size - at - sizeof count)
            return err_set(w->err, ERR_DATA,
                           "%s: a storage of %" PRIu64 " elements with %" PRIu64
                           " bytes left, expected %" PRIu64 " in %" PRIu64 " bytes",
                           st->path, count, st->reader.size - at - sizeof count, found->count,
                           bytes);
        found->at = at + sizeof count;
        at = found->at + bytes;
        placed++;
    }
    if (placed != n) return bad(w, "a storage is missing");
    if (at == st->reader.size) return 0;
    return err_set(w->err, ERR_DATA, "%s: %" PRIu64 " bytes after its last storage", st->path,
                   st->reader.size - at);
}

static int check_stream(Walk *w, const PkNode *number, const PkNode *version, const PkNode *info) {
    const PkNode *order = pk_get(info, "little_endian");
    if (number->kind != PK_LONG || number->n != sizeof magic ||
        memcmp(number->s, magic, sizeof magic) != 0)
        return bad(w, "not a PyTorch file");
    if (version->kind != PK_INT || version->i != stream_version)
        return bad(w, "a stream of another version than 1001");
    return order && order->kind == PK_BOOL && order->i ? 0 : bad(w, "not little-endian");
}

static int read_stream(Walk *w, const uint8_t *bytes, size_t n, Arena *tree) {
    const PkNode *part[5];
    size_t at = 0, used, count;
    for (int i = 0; i < 5; i++, at += used) {
        part[i] = pickle_parse(tree, bytes + at, n - at, allowed, &used, w->st->path, w->err);
        if (!part[i] || (i == 2 && check_stream(w, part[0], part[1], part[2]))) return -1;
    }
    if (walk(w, part[3], 0)) return -1;
    Storage *s = list_storages(w, &count);
    if (!s) return -1;
    const int rc = place_in_stream(w, s, count, part[4], at) || finish(w, s, count);
    free(s);
    return rc;
}

static int open_stream(Walk *w, Arena *tree) {
    St *st = w->st;
    st->reader = reader_open(st->path);
    if (read_failed(st, w->err)) return -1;
    const size_t n = st->reader.size < PK_MAX_BYTES ? (size_t)st->reader.size : PK_MAX_BYTES;
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) return err_set(w->err, ERR_MEM, "%s: out of memory", st->path);
    read_bytes(&st->reader, bytes, n);
    const int rc = read_failed(st, w->err) || read_stream(w, bytes, n, tree);
    free(bytes);
    return rc;
}

// ---- either

enum { NEITHER, IS_ZIP, IS_STREAM };

// A safetensors file begins with a length, which may look like the begin of a pickle: the stream is
// known by its magic number, whatever the pickle's protocol.
static int kind_of(const char *path) {
    uint8_t head[32] = { 0 };
    Reader r = reader_open(path);
    read_bytes(&r, head, r.size < sizeof head ? (size_t)r.size : sizeof head);
    if (reader_close(&r, NULL)) return NEITHER;
    if (!memcmp(head, "PK\3\4", 4)) return IS_ZIP;
    return memmem(head, sizeof head, magic, sizeof magic) ? IS_STREAM : NEITHER;
}

int torch_is(const char *path) { return kind_of(path) != NEITHER; }

int torch_open(St *st, const char *path, Err *err) {
    *st = (St){ 0 };
    snprintf(st->path, sizeof st->path, "%s", path);
    Walk *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, ERR_MEM, "%s: out of memory", path);
    Arena tree = { 0 };
    w->st = st;
    w->err = err;
    const int rc = kind_of(path) == IS_ZIP ? open_zip(w, &tree) : open_stream(w, &tree);
    arena_free(&tree);
    free(w->found);
    free(w->meta);
    free(w);
    if (rc) st_close(st);
    return rc;
}
