// torch_file.c - see torch_file.h: the two formats around the pickles, whose contents torch_tree.c
// reads.
#include "base/torch_file.h"
#include "base/text.h"
#include "base/torch_tree.h"
#include "base/zip.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
static const int64_t stream_version = 1001;

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

static int place_in_zip(Zip *z, const char *folder, int n_folder, TorchStorage *s, Err *err) {
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

static int read_zip(TorchTree *w, Zip *z, const ZipEntry *e, const uint8_t *bytes, Arena *nodes) {
    const int n_folder = (int)(strlen(e->name) - strlen("data.pkl"));
    size_t used;
    const PkNode *root =
        pickle_parse(nodes, bytes, (size_t)e->bytes, torch_allowed, &used, z->path, w->err);
    if (!root || check_byte_order(z, e->name, n_folder, w->err) || torch_tree_read(w, root))
        return -1;
    for (size_t i = 0; i < w->n_storage; i++)
        if (place_in_zip(z, e->name, n_folder, &w->storage[i], w->err)) return -1;
    return torch_tree_finish(w);
}

static int open_zip(TorchTree *w, Arena *nodes) {
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
    if (!rc) rc = read_zip(w, &z, e, bytes, nodes);
    if (!rc) {                                      // the archive's reader becomes the file's
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

static int place_in_stream(TorchTree *w, const PkNode *keys, uint64_t at) {
    St *st = w->st;
    size_t placed = 0;
    if (keys->kind != PK_LIST) return torch_bad(w, "its list of storages is missing");
    for (const PkCell *c = keys->first; c; c = c->next) {
        if (c->item->kind != PK_STRING) return torch_bad(w, "a storage without a name");
        TorchStorage *found = torch_tree_storage(w, c->item->s, c->item->n);
        if (!found || found->at)
            return torch_bad(w, "a storage that no tensor names, or a duplicate one");
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
    if (placed != w->n_storage) return torch_bad(w, "a storage is missing");
    if (at == st->reader.size) return 0;
    return err_set(w->err, ERR_DATA, "%s: %" PRIu64 " byte%s after its last storage", st->path,
                   st->reader.size - at, plural((double)(st->reader.size - at)));
}

static int check_stream(TorchTree *w, const PkNode *number, const PkNode *version,
                        const PkNode *info) {
    const PkNode *order = pk_get(info, "little_endian");
    if (number->kind != PK_LONG || number->n != sizeof magic ||
        memcmp(number->s, magic, sizeof magic) != 0)
        return torch_bad(w, "not a PyTorch file");
    if (version->kind != PK_INT || version->i != stream_version)
        return torch_bad(w, "a stream of another version than 1001");
    return order && order->kind == PK_BOOL && order->i ? 0 : torch_bad(w, "not little-endian");
}

static int read_stream(TorchTree *w, const uint8_t *bytes, size_t n, Arena *nodes) {
    const PkNode *part[5];
    size_t at = 0, used;
    for (int i = 0; i < 5; i++, at += used) {
        part[i] =
            pickle_parse(nodes, bytes + at, n - at, torch_allowed, &used, w->st->path, w->err);
        if (!part[i] || (i == 2 && check_stream(w, part[0], part[1], part[2]))) return -1;
    }
    return torch_tree_read(w, part[3]) || place_in_stream(w, part[4], at) || torch_tree_finish(w);
}

static int open_stream(TorchTree *w, Arena *nodes) {
    St *st = w->st;
    st->reader = reader_open(st->path);
    if (read_failed(st, w->err)) return -1;
    const size_t n = st->reader.size < PK_MAX_BYTES ? (size_t)st->reader.size : PK_MAX_BYTES;
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) return err_set(w->err, ERR_MEM, "%s: out of memory", st->path);
    read_bytes(&st->reader, bytes, n);
    const int rc = read_failed(st, w->err) || read_stream(w, bytes, n, nodes);
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
    TorchTree *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, ERR_MEM, "%s: out of memory", path);
    Arena nodes = { 0 };
    w->st = st;
    w->err = err;
    const int rc = kind_of(path) == IS_ZIP ? open_zip(w, &nodes) : open_stream(w, &nodes);
    torch_tree_free(w);
    arena_free(&nodes);
    free(w);
    if (rc) st_close(st);
    return rc;
}
