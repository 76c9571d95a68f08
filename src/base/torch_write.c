// torch_write.c - torch_file.h's writer.
#include "base/torch_file.h"
#include "base/zip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

typedef struct Alias {
    const char *name;
    int of;
    struct Alias *next;
} Alias;

typedef struct {
    ZipWriter zip;
    Alias *first, *last;
    int next;                            // the tensor whose entry comes next
} Own;

static const char *const storage_of[ST_N_TYPES] = {
    [ST_F64] = "DoubleStorage",    [ST_F32] = "FloatStorage", [ST_F16] = "HalfStorage",
    [ST_BF16] = "BFloat16Storage", [ST_I64] = "LongStorage",  [ST_I32] = "IntStorage",
    [ST_I16] = "ShortStorage",     [ST_I8] = "CharStorage",   [ST_U8] = "ByteStorage",
    [ST_BOOL] = "BoolStorage",
};

// ---- the pickle, of protocol 2

typedef struct {
    char *p;
    size_t n, cap;
    int failed;
} Text;

static void put(Text *f, const void *src, size_t n) {
    if (!f->failed && f->n + n > f->cap) {
        const size_t cap = 2 * (f->n + n) + 4096;
        char *more = realloc(f->p, cap);
        f->failed = !more;
        if (more) f->p = more, f->cap = cap;
    }
    if (f->failed) return;
    memcpy(f->p + f->n, src, n);
    f->n += n;
}

static void put_ops(Text *f, const char *ops) { put(f, ops, strlen(ops)); }

static void put_string(Text *f, const char *s, size_t n) {
    const uint32_t len = (uint32_t)n;
    put_ops(f, "X");
    put(f, &len, sizeof len);
    put(f, s, n);
}

static void put_number(Text *f, uint64_t v) {
    put_ops(f, "\x8a\x08");
    put(f, &v, sizeof v);                               // below 2^53: the sign bit is clear
}

static void put_tensor(Text *f, const StTensor *t, int key) {
    char number[16];
    uint64_t stride[ST_MAX_RANK], step = 1;
    snprintf(number, sizeof number, "%d", key);
    put_ops(f, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(f, "storage", 7);
    put_ops(f, "ctorch\n");
    put_ops(f, storage_of[t->type]);
    put_ops(f, "\n");
    put_string(f, number, strlen(number));
    put_string(f, "cpu", 3);
    put_number(f, t->bytes / st_type_size(t->type));
    put(f, "tQK", 4);                                   // and the offset, a zero byte
    for (int i = t->rank; i-- > 0; step *= t->shape[i] ? t->shape[i] : 1) stride[i] = step;
    put_ops(f, "(");
    for (int i = 0; i < t->rank; i++) put_number(f, t->shape[i]);
    put_ops(f, "t(");
    for (int i = 0; i < t->rank; i++) put_number(f, stride[i]);
    put_ops(f, "t\x89");                                // no gradient wanted, no hooks
    put_ops(f, "ccollections\nOrderedDict\n)RtR");
}

static size_t group_of(const char *name) {              // length of what is before the slash
    const char *slash = strchr(name, '/');
    return slash ? (size_t)(slash - name) : 0;
}

// Names in the order of declaration, aliases after them.
typedef struct {
    const char *name;
    int of;
} Item;

static void put_group(Text *f, const StWriter *w, const Item *item, int n, int from) {
    const size_t len = group_of(item[from].name);
    put_string(f, item[from].name, len);
    put_ops(f, "}(");
    for (int i = from; i < n; i++) {
        const char *name = item[i].name;
        if (group_of(name) != len || strncmp(name, item[from].name, len) != 0) continue;
        put_string(f, name + len + 1, strlen(name) - len - 1);
        put_tensor(f, &w->t[item[i].of], item[i].of);
    }
    put_ops(f, "u");
}

static int is_new_group(const Item *item, int i) {
    const size_t len = group_of(item[i].name);
    for (int k = 0; k < i; k++)
        if (group_of(item[k].name) == len && !strncmp(item[k].name, item[i].name, len)) return 0;
    return 1;
}

static void put_pickle(Text *f, const StWriter *w, const Item *item, int n) {
    put_ops(f, "\x80\x02}(");
    for (int i = 0; i < n; i++) {
        if (!group_of(item[i].name)) {
            put_string(f, item[i].name, strlen(item[i].name));
            put_tensor(f, &w->t[item[i].of], item[i].of);
        } else if (is_new_group(item, i)) {
            put_group(f, w, item, n, i);
        }
    }
    if (w->n_meta) {
        put_string(f, "metadata", 8);
        put_ops(f, "}(");
        for (int i = 0; i < 2 * w->n_meta; i++) put_string(f, w->meta[i], strlen(w->meta[i]));
        put_ops(f, "u");
    }
    put_ops(f, "u.");
}

// ---- the archive

static void fail(StWriter *w, ErrKind kind, const char *what) {
    err_set(&w->w.err, kind, "%s: %s", w->w.path, what);
    w->w.failed = 1;
}

static Own *own_of(StWriter *w) {
    if (!w->own) w->own = arena_alloc(&w->arena, 1, sizeof(Own));
    if (arena_ok(&w->arena, w->w.path, &w->w.err)) w->w.failed = 1;
    return w->own;
}

static void add_entry(StWriter *w, const char *name, const void *data, size_t n) {
    Own *own = w->own;
    zip_add(&own->zip, name, n, ALIGN, 0);
    zip_put(&own->zip, data, n);
}

static void head(StWriter *w) {
    Own *own = own_of(w);
    if (w->w.failed) return;
    own->zip.w = &w->w;
    int n = w->n;
    for (const Alias *a = own->first; a; a = a->next) n++;
    Item *item = malloc(((size_t)n + 1) * sizeof *item);
    Text text = { .failed = !item };
    n = w->n;
    for (int i = 0; item && i < n; i++) item[i] = (Item){ w->t[i].name, i };
    for (const Alias *a = own->first; item && a; a = a->next) item[n++] = (Item){ a->name, a->of };
    if (item) put_pickle(&text, w, item, n);
    if (text.failed) {
        fail(w, ERR_MEM, "out of memory for its names");
    } else {
        add_entry(w, "archive/data.pkl", text.p, text.n);
        add_entry(w, "archive/byteorder", "little", 6);
        add_entry(w, "archive/version", "3\n", 2);
    }
    free(text.p);
    free(item);
}

// Entries of the tensors up to `to`; those before it have no bytes.
static void begin_entries(StWriter *w, int to) {
    Own *own = w->own;
    for (; own->next < to && !w->w.failed; own->next++) {
        char name[40];
        snprintf(name, sizeof name, "archive/data/%d", own->next);
        zip_add(&own->zip, name, w->t[own->next].bytes, ALIGN, 0);
    }
}

static void data(StWriter *w, const void *bytes, size_t n) {
    begin_entries(w, w->at + 1);
    zip_put(&((Own *)w->own)->zip, bytes, n);
}

static void tail(StWriter *w) {
    Own *own = w->own;
    if (!own || !own->zip.w) return;
    begin_entries(w, w->n);
    zip_finish(&own->zip);
}

StWriter torch_create(const char *path) {
    static const StFormat format = { .head = head, .data = data, .tail = tail };
    return (StWriter){ .format = &format, .w = writer_open(path) };
}

void torch_alias(StWriter *w, const char *name, const char *of) {
    Own *own = w->w.failed ? NULL : own_of(w);
    if (!own) return;
    Alias *a = arena_alloc(&w->arena, 1, sizeof *a);
    char *copy = arena_strdup(&w->arena, name);
    if (arena_ok(&w->arena, w->w.path, &w->w.err)) w->w.failed = 1;
    if (!a || !copy) return;
    a->name = copy;
    while (a->of < w->n && strcmp(w->t[a->of].name, of) != 0) a->of++;
    if (a->of == w->n || w->started) {
        fail(w, ERR_ARG, "a second name for a tensor that was not declared before");
        return;
    }
    if (own->last) own->last->next = a;
    else own->first = a;
    own->last = a;
}
