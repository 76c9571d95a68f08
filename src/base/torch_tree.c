// torch_tree.c - see torch_tree.h.
#include "base/torch_tree.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NODES = 1 << 20, MAX_TENSORS = 1 << 17 };
enum { MAX_META = 64 << 20 };           // bytes of all names and values: a pickle may repeat them

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

int torch_allowed(const char *class) {
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

// ---- tensors and metadata

int torch_bad(const TorchTree *w, const char *what) {
    return err_set(w->err, ERR_DATA, "%s: %s%s%s", w->st->path, w->name, *w->name ? ": " : "",
                   what);
}

static void *grown(TorchTree *w, void *old, size_t n, size_t *cap, size_t size) {
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
static int read_storage(TorchTree *w, const PkNode *v, TorchStorage *s) {
    const PkNode *p = v && v->kind == PK_PERSISTENT ? v->a : NULL;
    const PkNode *class = pk_item(p, 1), *key = pk_item(p, 2), *view = pk_item(p, 5);
    if (!p || !pk_is(pk_item(p, 0), "storage") || !class || class->kind != PK_CLASS || !key ||
        key->kind != PK_STRING || as_count(pk_item(p, 4), &s->count) ||
        (view && view->kind != PK_NONE))
        return torch_bad(w, "a tensor without a storage");
    s->key = key->s;
    s->n_key = key->n;
    for (int i = 0; i < N_STORAGES; i++) {
        if (strcmp(storages[i].class, class->s)) continue;
        s->type = storages[i].type;
        if (s->count > INT64_MAX / st_type_size(s->type))
            return torch_bad(w, "its storage is too large");
        return 0;
    }
    return err_set(w->err, ERR_DATA, "%s: %s: a storage of class %.100s, which is not read",
                   w->st->path, w->name, class->s);
}

static int read_layout(TorchTree *w, const PkNode *sizes, const PkNode *strides, StTensor *t) {
    if (!sizes || !strides || sizes->kind != PK_TUPLE || strides->kind != PK_TUPLE ||
        sizes->n != strides->n)
        return torch_bad(w, "a tensor without a shape");
    if (sizes->n > ST_MAX_RANK)
        return err_set(w->err, ERR_DATA, "%s: %s: %zu dimensions, expected at most %d", w->st->path,
                       w->name, sizes->n, ST_MAX_RANK);
    for (t->rank = 0; t->rank < (int)sizes->n; t->rank++)
        if (as_count(pk_item(sizes, (size_t)t->rank), &t->shape[t->rank]) ||
            as_count(pk_item(strides, (size_t)t->rank), &t->stride[t->rank]))
            return torch_bad(w, "a size or stride that is not a whole number from 0 on");
    return 0;
}

// Whether every element lies within the storage; finds out whether they lie in order.
static int check_layout(TorchTree *w, StTensor *t, const TorchStorage *s) {
    uint64_t last = t->begin, part, order = 1;
    if (st_shape_bytes(s->type, t->rank, t->shape, &t->bytes))
        return torch_bad(w, "a shape too large");
    const uint64_t count = t->bytes / st_type_size(s->type);
    if (count == 0) {
        t->begin = 0;
        return 0;
    }
    for (int i = t->rank; i-- > 0; order *= t->shape[i]) {
        if (t->shape[i] != 1 && t->stride[i] != order) t->strided = 1;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &part) ||
            __builtin_add_overflow(last, part, &last))
            return torch_bad(w, "strides too large");
    }
    if (last < s->count && count <= s->count) return 0;
    return err_set(w->err, ERR_DATA,
                   "%s: %s: its shape and strides need %" PRIu64
                   " elements, its storage has %" PRIu64,
                   w->st->path, w->name, last < s->count ? count : last + 1, s->count);
}

static int add_tensor(TorchTree *w, const PkNode *args) {
    TorchTensor f = { 0 };
    if (w->n == MAX_TENSORS) return torch_bad(w, "too many tensors");
    if (read_storage(w, pk_item(args, 0), &f.storage)) return -1;
    if (as_count(pk_item(args, 1), &f.t.begin))
        return torch_bad(w, "an offset that is not a whole number from 0 on");
    if (read_layout(w, pk_item(args, 2), pk_item(args, 3), &f.t) ||
        check_layout(w, &f.t, &f.storage))
        return -1;
    f.t.type = f.storage.type;
    f.t.name = arena_strdup(&w->st->arena, *w->name ? w->name : "tensor");
    TorchTensor *mem = grown(w, w->found, w->n, &w->cap, sizeof *mem);
    if (mem) w->found = mem;
    if (!mem || arena_ok(&w->st->arena, w->st->path, w->err)) return -1;
    w->found[w->n++] = f;
    return 0;
}

static int add_meta(TorchTree *w, const PkNode *v) {
    char number[32];
    const char *key = w->name + (strncmp(w->name, "metadata.", 9) ? 0 : 9);
    if (v->kind == PK_INT) snprintf(number, sizeof number, "%" PRId64, v->i);
    if (v->kind == PK_FLOAT) snprintf(number, sizeof number, "%.17g", v->f);
    const char *value = v->kind == PK_STRING ? v->s : number;
    const size_t n = v->kind == PK_STRING ? v->n : strlen(number);
    w->meta_bytes += n + strlen(key);
    if (w->meta_bytes > MAX_META) return torch_bad(w, "too many values");
    const char **mem = grown(w, w->meta, 2 * w->n_meta + 1, &w->cap_meta, sizeof *mem);
    char *text = arena_alloc(&w->st->arena, n + 1, 1), *name = arena_strdup(&w->st->arena, key);
    if (mem) w->meta = mem;
    if (!mem || arena_ok(&w->st->arena, w->st->path, w->err)) return -1;
    memcpy(text, value, n);
    w->meta[2 * w->n_meta] = name;
    w->meta[2 * w->n_meta++ + 1] = text;
    return 0;
}

static int walk(TorchTree *w, const PkNode *v, int depth);

static int walk_named(TorchTree *w, const char *key, size_t n, const PkNode *v, int depth) {
    const size_t len = strlen(w->name), dot = len > 0;
    if (memchr(key, 0, n)) return torch_bad(w, "a key that holds a zero byte");
    if (len + dot + n > TORCH_MAX_NAME)
        return torch_bad(w, "a name too long, or a container that holds itself");
    if (dot) w->name[len] = '.';
    memcpy(w->name + len + dot, key, n);
    w->name[len + dot + n] = 0;
    if (walk(w, v, depth + 1)) return -1;
    w->name[len] = 0;
    return 0;
}

static int walk_items(TorchTree *w, const PkNode *v, int depth) {
    size_t i = 0;
    char number[24];
    for (const PkCell *c = v->first; c; c = c->next, i++) {
        snprintf(number, sizeof number, "%zu", i);
        if (walk_named(w, number, strlen(number), c->item, depth)) return -1;
    }
    return 0;
}

static int walk_dict(TorchTree *w, const PkNode *v, int depth) {
    char number[24];
    for (const PkCell *c = v->first; c && c->next; c = c->next->next) {
        const PkNode *key = c->item, *value = c->next->item;
        if (key->kind == PK_INT) snprintf(number, sizeof number, "%" PRId64, key->i);
        else if (key->kind != PK_STRING)
            return torch_bad(w, "a key that is neither string nor number");
        if (key->kind == PK_STRING ? walk_named(w, key->s, key->n, value, depth)
                                   : walk_named(w, number, strlen(number), value, depth))
            return -1;
    }
    return 0;
}

static int walk_call(TorchTree *w, const PkNode *v, int depth) {
    if (!strcmp(v->a->s, "torch._utils._rebuild_parameter")) {
        const PkNode *data = pk_item(v->b, 0);
        return data ? walk(w, data, depth + 1) : torch_bad(w, "a parameter without a tensor");
    }
    if (strncmp(v->a->s, "torch._utils._rebuild_tensor", 28) != 0) return 0;
    return add_tensor(w, v->b);
}

// A pickle may use a value in many places, or in itself: depth and number of visits are bounded.
static int walk(TorchTree *w, const PkNode *v, int depth) {
    if (depth > MAX_DEPTH)
        return torch_bad(w, "nested too deeply, or a container that holds itself");
    if (++w->nodes > MAX_NODES) return torch_bad(w, "too many values");
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
    const TorchStorage *x = a, *y = b;
    const size_t n = x->n_key < y->n_key ? x->n_key : y->n_key;
    const int order = n ? memcmp(x->key, y->key, n) : 0;
    return order ? order : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

static int list_storages(TorchTree *w) {
    TorchStorage *s = w->storage = malloc((w->n + 1) * sizeof *s);
    size_t n = 0;
    if (!s) return err_set(w->err, ERR_MEM, "%s: out of memory for its tensors", w->st->path);
    for (size_t i = 0; i < w->n; i++) s[i] = w->found[i].storage;
    if (w->n) qsort(s, w->n, sizeof *s, by_key);
    for (size_t i = 0; i < w->n; i++) {
        if (!n || by_key(&s[n - 1], &s[i])) s[n++] = s[i];
        else if (s[n - 1].type != s[i].type || s[n - 1].count != s[i].count)
            return err_set(w->err, ERR_DATA, "%s: storage %.*s has two types or sizes", w->st->path,
                           (int)(s[i].n_key < 100 ? s[i].n_key : 100), s[i].key);
    }
    w->n_storage = n;
    return 0;
}

TorchStorage *torch_tree_storage(const TorchTree *w, const char *key, size_t n_key) {
    const TorchStorage wanted = { .key = key, .n_key = n_key };
    return w->n_storage ? bsearch(&wanted, w->storage, w->n_storage, sizeof wanted, by_key) : NULL;
}

int torch_tree_read(TorchTree *w, const PkNode *root) {
    return walk(w, root, 0) || list_storages(w) ? -1 : 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const TorchTree *w) {
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

int torch_tree_finish(TorchTree *w) {
    St *st = w->st;
    st->t = arena_alloc(&st->arena, w->n, sizeof *st->t);
    st->meta = arena_alloc(&st->arena, 2 * w->n_meta, sizeof *st->meta);
    if (arena_ok(&st->arena, st->path, w->err) || check_names(w)) return -1;
    for (size_t i = 0; i < w->n; i++) {
        const TorchStorage *s = &w->found[i].storage;
        st->t[i] = w->found[i].t;
        st->t[i].begin = torch_tree_storage(w, s->key, s->n_key)->at +
                         st->t[i].begin * st_type_size(st->t[i].type);
    }
    if (w->n_meta) memcpy(st->meta, w->meta, 2 * w->n_meta * sizeof *st->meta);
    st->n = (int)w->n;
    st->n_meta = (int)w->n_meta;
    return 0;
}

void torch_tree_free(TorchTree *w) {
    free(w->found);
    free(w->meta);
    free(w->storage);
}
