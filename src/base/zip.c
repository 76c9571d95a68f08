// zip.c - see zip.h. APPNOTE.TXT describes the format; all of it is little-endian.
#include "base/zip.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_SIG = 0x04034b50, ENTRY_SIG = 0x02014b50, END_SIG = 0x06054b50 };
enum { END64_SIG = 0x06064b50, LOCATOR_SIG = 0x07064b50, EXTRA64 = 1, EXTRA_PAD = 0x4246 };
enum { LOCAL_SIZE = 30, ENTRY_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR_SIZE = 20 };
enum { STORED = 0, DEFLATED = 8, FLAG_ENCRYPTED = 1, FLAG_UTF8 = 0x800 };
enum { MAX_DIRECTORY = 64 << 20, PIECE = 1 << 16 };
static const uint32_t FULL = 0xffffffff;         // "look in the zip64 field"

static uint64_t get(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static void put(uint8_t *p, int n, uint64_t v) {
    for (int i = 0; i < n; i++, v >>= 8) p[i] = (uint8_t)v;
}

// ---- reading: the directory

static int bad(const Zip *z, Err *err, const char *what) {
    return err_set(err, ERR_DATA, "%s: damaged zip archive: %s", z->path, what);
}

static int bad_entry(const Zip *z, const ZipEntry *e, Err *err, const char *what) {
    return err_set(err, ERR_DATA, "%s: damaged zip archive: entry %s: %s", z->path, e->name, what);
}

static int read_failed(const Zip *z, Err *err) {
    return z->reader.failed ? err_set(err, z->reader.err.kind, "%s", z->reader.err.msg) : 0;
}

static int read_at(Zip *z, uint64_t at, void *dst, size_t n, Err *err) {
    reader_seek(&z->reader, at);
    read_bytes(&z->reader, dst, n);
    return read_failed(z, err);
}

typedef struct {
    uint64_t n, bytes, at;              // entries, size and place of the directory
} Directory;

// Numbers that do not fit into the archive's last record stand in a second one before it.
static int read_end64(Zip *z, uint64_t end_at, Directory *d, Err *err) {
    uint8_t loc[LOCATOR_SIZE], end[END64_SIZE];
    if (end_at < LOCATOR_SIZE) return bad(z, err, "no zip64 record");
    if (read_at(z, end_at - LOCATOR_SIZE, loc, sizeof loc, err)) return -1;
    const uint64_t at = get(loc + 8, 8);
    if (get(loc, 4) != LOCATOR_SIG || at > end_at || end_at - at < END64_SIZE + LOCATOR_SIZE)
        return bad(z, err, "no zip64 record");
    if (read_at(z, at, end, sizeof end, err)) return -1;
    if (get(end, 4) != END64_SIG) return bad(z, err, "no zip64 record");
    *d = (Directory){ get(end + 32, 8), get(end + 40, 8), get(end + 48, 8) };
    return 0;
}

// The last record may be followed by a comment of up to 65535 bytes.
static int find_end(Zip *z, uint64_t *at, uint8_t end[END_SIZE], Err *err) {
    const uint64_t size = z->reader.size, most = END_SIZE + 0xffff, n = size < most ? size : most;
    uint8_t *tail = malloc((size_t)n + 1);
    if (!tail) return err_set(err, ERR_MEM, "%s: out of memory", z->path);
    int rc = read_at(z, size - n, tail, (size_t)n, err), found = 0;
    for (uint64_t i = n < END_SIZE ? 0 : n - END_SIZE + 1; !rc && !found && i-- > 0;) {
        if (get(tail + i, 4) != END_SIG || get(tail + i + 20, 2) != n - i - END_SIZE) continue;
        memcpy(end, tail + i, END_SIZE);
        *at = size - n + i;
        found = 1;
    }
    free(tail);
    if (rc || found) return rc;
    return bad(z, err, "its directory is missing (is the file complete?)");
}

static int find_directory(Zip *z, Directory *d, Err *err) {
    uint8_t end[END_SIZE];
    uint64_t end_at = 0;
    if (find_end(z, &end_at, end, err)) return -1;
    *d = (Directory){ get(end + 10, 2), get(end + 12, 4), get(end + 16, 4) };
    if (get(end + 4, 2) || get(end + 6, 2)) return bad(z, err, "in several parts");
    if ((d->n == 0xffff || d->bytes == FULL || d->at == FULL) && read_end64(z, end_at, d, err))
        return -1;
    if (d->at > end_at || d->bytes > end_at - d->at || d->bytes > MAX_DIRECTORY ||
        d->n > d->bytes / ENTRY_SIZE)
        return bad(z, err, "its directory does not fit into the file");
    return 0;
}

// Fields of 32 bits that are full stand in the extra field, in this order.
static int read_extra64(ZipEntry *e, uint64_t *local, const uint8_t *x, size_t n) {
    uint64_t *const field[] = { &e->bytes, &e->packed, local };
    while (n >= 4) {
        const size_t len = get(x + 2, 2);
        if (len > n - 4) return -1;
        if (get(x, 2) == EXTRA64) {
            const uint8_t *p = x + 4, *end = p + len;
            for (int i = 0; i < 3; i++) {
                if (*field[i] != FULL) continue;
                if (end - p < 8) return -1;
                *field[i] = get(p, 8);
                p += 8;
            }
            return 0;
        }
        x += 4 + len;
        n -= 4 + len;
    }
    return -1;
}

// Where the data lies is in a header before it, which must name the same entry.
static int read_local(Zip *z, ZipEntry *e, uint64_t local, uint64_t limit, Err *err) {
    uint8_t head[LOCAL_SIZE];
    char name[256];
    const size_t len = strlen(e->name), part = len < sizeof name ? len : sizeof name;
    if (local > limit || limit - local < LOCAL_SIZE + len)
        return bad_entry(z, e, err, "outside of the file");
    if (read_at(z, local, head, sizeof head, err)) return -1;
    read_bytes(&z->reader, name, part);
    if (read_failed(z, err)) return -1;
    if (get(head, 4) != LOCAL_SIG || get(head + 26, 2) != len || memcmp(name, e->name, part) != 0)
        return bad_entry(z, e, err, "its two headers differ");
    e->at = local + LOCAL_SIZE + len + get(head + 28, 2);
    if (e->at > limit || e->packed > limit - e->at)
        return bad_entry(z, e, err, "outside of the file");
    return 0;
}

static int check_sizes(const Zip *z, const ZipEntry *e, int method, int flags, Err *err) {
    if (flags & FLAG_ENCRYPTED) return bad_entry(z, e, err, "encrypted");
    if (method != STORED && method != DEFLATED)
        return err_set(err, ERR_DATA, "%s: entry %s: compression method %d, expected 0 or 8",
                       z->path, e->name, method);
    if (method == STORED && e->packed != e->bytes)
        return bad_entry(z, e, err, "stored with two sizes");
    if (e->bytes / DEFLATE_MAX_RATIO > e->packed)
        return err_set(err, ERR_DATA,
                       "%s: entry %s: %" PRIu64 " bytes cannot be deflated to %" PRIu64, z->path,
                       e->name, e->bytes, e->packed);
    return 0;
}

// Reads the entry at p of n bytes; its length there goes to *used.
static int read_entry(Zip *z, ZipEntry *e, const uint8_t *p, size_t n, uint64_t limit, size_t *used,
                      Err *err) {
    if (n < ENTRY_SIZE || get(p, 4) != ENTRY_SIG) return bad(z, err, "its directory is truncated");
    const size_t name = get(p + 28, 2), extra = get(p + 30, 2), comment = get(p + 32, 2);
    *used = ENTRY_SIZE + name + extra + comment;
    if (*used > n) return bad(z, err, "its directory is truncated");
    char *text = arena_alloc(&z->arena, name + 1, 1);
    if (arena_ok(&z->arena, z->path, err)) return -1;
    memcpy(text, p + ENTRY_SIZE, name);
    if (strlen(text) != name) return bad(z, err, "a name holds a zero byte");
    *e = (ZipEntry){ .name = text,
                     .crc = (uint32_t)get(p + 16, 4),
                     .packed = get(p + 20, 4),
                     .bytes = get(p + 24, 4),
                     .deflated = get(p + 10, 2) == DEFLATED };
    uint64_t local = get(p + 42, 4);
    if ((e->packed == FULL || e->bytes == FULL || local == FULL) &&
        read_extra64(e, &local, p + ENTRY_SIZE + name, extra))
        return bad_entry(z, e, err, "no zip64 sizes");
    if (check_sizes(z, e, (int)get(p + 10, 2), (int)get(p + 8, 2), err)) return -1;
    return read_local(z, e, local, limit, err);
}

static int by_place(const void *a, const void *b) {
    const ZipEntry *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ZipEntry *)a)->name, ((const ZipEntry *)b)->name);
}

// Entries that share bytes would make a small archive large.
static int check_entries(Zip *z, Err *err) {
    if (z->n) qsort(z->e, (size_t)z->n, sizeof *z->e, by_place);
    for (int i = 1; i < z->n; i++)
        if (z->e[i].at < z->e[i - 1].at + z->e[i - 1].packed)
            return bad_entry(z, &z->e[i], err, "overlaps another");
    if (z->n) qsort(z->e, (size_t)z->n, sizeof *z->e, by_name);
    for (int i = 1; i < z->n; i++)
        if (!strcmp(z->e[i].name, z->e[i - 1].name))
            return bad_entry(z, &z->e[i], err, "has a duplicate name");
    return 0;
}

static int read_directory(Zip *z, Err *err) {
    Directory d;
    if (read_failed(z, err) || find_directory(z, &d, err)) return -1;
    uint8_t *all = malloc((size_t)d.bytes + 1);
    z->e = arena_alloc(&z->arena, (size_t)d.n, sizeof *z->e);
    int rc = all ? arena_ok(&z->arena, z->path, err)
                 : err_set(err, ERR_MEM, "%s: out of memory for its directory", z->path);
    if (!rc) rc = read_at(z, d.at, all, (size_t)d.bytes, err);
    for (size_t at = 0, used = 0; !rc && (uint64_t)z->n < d.n; at += used)
        rc = read_entry(z, &z->e[z->n++], all + at, (size_t)d.bytes - at, d.at, &used, err);
    free(all);
    return rc ? -1 : check_entries(z, err);
}

int zip_open(Zip *z, const char *path, Err *err) {
    *z = (Zip){ .reader = reader_open(path) };
    snprintf(z->path, sizeof z->path, "%s", path);
    const int rc = read_directory(z, err);
    if (rc) zip_close(z);
    return rc;
}

void zip_close(Zip *z) {
    reader_close(&z->reader, NULL);
    arena_free(&z->arena);
    z->n = 0;
    z->e = NULL;
}

const ZipEntry *zip_find(const Zip *z, const char *name) {
    const ZipEntry key = { .name = name };
    return z->n ? bsearch(&key, z->e, (size_t)z->n, sizeof *z->e, by_name) : NULL;
}

// ---- reading: contents

int zip_begin(ZipStream *s, Zip *z, const ZipEntry *e, Err *err) {
    *s = (ZipStream){ .zip = z, .e = e };
    if (!e->deflated) return 0;
    s->buffer = malloc(PIECE);
    if (s->buffer && !deflate_open(&s->inflate, 0)) return 0;
    s->failed = 1;
    return err_set(err, ERR_MEM, "%s: out of memory", z->path);
}

static int inflate_piece(ZipStream *s, uint8_t *dst, size_t n, Err *err) {
    while (n) {
        const uint64_t left = s->e->packed - s->taken;
        if (!s->n_in && left) {
            s->n_in = left < PIECE ? (size_t)left : PIECE;
            s->in = s->buffer;
            if (read_at(s->zip, s->e->at + s->taken, s->buffer, s->n_in, err)) return -1;
            s->taken += s->n_in;
        }
        const size_t in = s->n_in, out = n;
        const int rc = deflate_step(&s->inflate, &s->in, &s->n_in, &dst, &n, 0);
        if (rc < 0) return bad_entry(s->zip, s->e, err, "its deflate stream is damaged");
        if (n && (rc || (in == s->n_in && out == n)))
            return bad_entry(s->zip, s->e, err, "shorter than its size");
    }
    return 0;
}

int zip_read(ZipStream *s, void *dst, size_t n, Err *err) {
    if (s->failed) return -1;
    const uint64_t left = s->e->bytes - s->given;
    s->failed = 1;
    if (n > left)
        return err_set(err, ERR_DATA, "%s: entry %s: %" PRIu64 " bytes, expected at least %" PRIu64,
                       s->zip->path, s->e->name, s->e->bytes, s->given + n);
    if (s->e->deflated ? inflate_piece(s, dst, n, err)
                       : read_at(s->zip, s->e->at + s->given, dst, n, err))
        return -1;
    s->given += n;
    if (n) s->crc = crc32_add(s->crc, dst, n);
    s->failed = 0;
    return 0;
}

static int check_end(ZipStream *s, Err *err) {
    uint8_t part[4096];
    while (s->given < s->e->bytes) {
        const uint64_t left = s->e->bytes - s->given;
        if (zip_read(s, part, left < sizeof part ? (size_t)left : sizeof part, err)) return -1;
    }
    if (s->crc == s->e->crc) return 0;
    return err_set(err, ERR_DATA,
                   "%s: entry %s: CRC-32 %08" PRIx32 ", expected %08" PRIx32
                   ": the file is damaged",
                   s->zip->path, s->e->name, s->crc, s->e->crc);
}

void zip_cancel(ZipStream *s) {
    deflate_close(&s->inflate);
    free(s->buffer);
    s->buffer = NULL;
    s->failed = 1;
}

int zip_end(ZipStream *s, Err *err) {
    const int rc = s->failed ? -1 : check_end(s, err);
    zip_cancel(s);
    return rc;
}

int zip_extract(Zip *z, const ZipEntry *e, void *dst, Err *err) {
    ZipStream s;
    const int rc = zip_begin(&s, z, e, err) || (dst && zip_read(&s, dst, (size_t)e->bytes, err));
    return zip_end(&s, err) || rc;
}

// ---- writing

static void fail(ZipWriter *z, ErrKind kind, const char *what) {
    err_set(&z->w->err, kind, "%s: %s", z->w->path, what);
    z->w->failed = 1;
}

static int make_room(ZipWriter *z) {
    if (z->n < z->cap) return 0;
    const int cap = z->cap ? 2 * z->cap : 64;
    ZipEntry *e = arena_alloc(&z->arena, (size_t)cap, sizeof *e);
    uint64_t *head = arena_alloc(&z->arena, (size_t)cap, sizeof *head);
    if (arena_ok(&z->arena, z->w->path, &z->w->err)) return z->w->failed = 1, -1;
    if (z->n) memcpy(e, z->e, (size_t)z->n * sizeof *e);
    if (z->n) memcpy(head, z->head, (size_t)z->n * sizeof *head);
    z->e = e;
    z->head = head;
    z->cap = cap;
    return 0;
}

// Sizes and checksum are written over the local header once they are known.
static void end_entry(ZipWriter *z) {
    if (!z->open || z->w->failed) return;
    ZipEntry *e = &z->e[z->n - 1];
    uint8_t sizes[12];
    z->open = 0;
    if (e->deflated) {
        zip_put(z, NULL, 0);
        deflate_close(&z->pack);
    }
    if (z->given != e->bytes) fail(z, ERR_ARG, "an entry of another size than announced");
    put(sizes, 4, e->crc);
    put(sizes + 4, 4, z->big ? FULL : e->packed);
    put(sizes + 8, 4, z->big ? FULL : e->bytes);
    write_over(z->w, z->head[z->n - 1] + 14, sizes, sizeof sizes);
    if (!z->big) return;
    uint8_t wide[16];                       // the extra field was laid out for them
    put(wide, 8, e->bytes);
    put(wide + 8, 8, e->packed);
    write_over(z->w, z->head[z->n - 1] + LOCAL_SIZE + strlen(e->name) + 4, wide, sizeof wide);
}

static void put_common(uint8_t *p, const ZipEntry *e, int big) {        // what both headers share
    put(p, 2, big ? 45 : 20);                                           // version that can read it
    put(p + 2, 2, FLAG_UTF8);
    put(p + 4, 2, e->deflated ? DEFLATED : STORED);
    put(p + 8, 2, 0x21);                                                // 1 January 1980, midnight
}

void zip_add(ZipWriter *z, const char *name, uint64_t bytes, int align, int deflated) {
    end_entry(z);
    const size_t len = strlen(name);
    if (len > 0xffff) fail(z, ERR_ARG, "an entry's name is too long");
    // what deflate cannot make smaller may grow by a little
    const int big = bytes >= FULL - (1 << 20) - (deflated ? bytes / 1000 : 0);
    z->big = big;
    z->given = 0;
    if (z->w->failed || make_room(z)) return;
    if (deflated && deflate_open(&z->pack, 1)) {
        fail(z, ERR_MEM, "out of memory");
        return;
    }
    uint8_t head[LOCAL_SIZE] = { 0 }, extra[20 + 4 + 4096] = { 0 };
    size_t n = big ? 20 : 0;
    const uint64_t at = z->w->at + LOCAL_SIZE + len + n;
    if (align > 1 && !deflated && at % (unsigned)align) {
        const size_t pad = (size_t)align - (at + 4) % (size_t)align;
        put(extra + n, 2, EXTRA_PAD);
        put(extra + n + 2, 2, pad);
        n += 4 + pad;
    }
    if (big) put(extra, 2, EXTRA64), put(extra + 2, 2, 16);
    z->e[z->n] = (ZipEntry){ .name = arena_strdup(&z->arena, name),
                             .at = z->w->at + LOCAL_SIZE + len + n,
                             .bytes = bytes,
                             .deflated = deflated };
    z->head[z->n] = z->w->at;
    put(head, 4, LOCAL_SIG);
    put_common(head + 4, &z->e[z->n], big);
    put(head + 26, 2, len);
    put(head + 28, 2, n);
    if (arena_ok(&z->arena, z->w->path, &z->w->err)) z->w->failed = 1;
    write_bytes(z->w, head, sizeof head);
    write_bytes(z->w, name, len);
    write_bytes(z->w, extra, n);
    z->n++;
    z->open = 1;
}

void zip_put(ZipWriter *z, const void *data, size_t n) {
    if (z->w->failed) return;
    ZipEntry *e = &z->e[z->n - 1];
    if (n) e->crc = crc32_add(e->crc, data, n);
    z->given += n;
    if (!e->deflated) {
        write_bytes(z->w, data, n);
        e->packed += n;
        return;
    }
    uint8_t part[16384];
    const uint8_t *in = data;
    for (int rc = 0; !rc;) {
        uint8_t *out = part;
        size_t room = sizeof part;
        rc = deflate_step(&z->pack, &in, &n, &out, &room, !z->open);
        if (rc < 0) fail(z, ERR_ARG, "cannot be deflated");
        write_bytes(z->w, part, sizeof part - room);
        e->packed += sizeof part - room;
        if (room && !n && z->open) break;
    }
}

static void put_entry(ZipWriter *z, int i) {
    const ZipEntry *e = &z->e[i];
    const uint64_t local = z->head[i];
    const int big = e->bytes >= FULL || e->packed >= FULL || local >= FULL;
    uint8_t p[ENTRY_SIZE] = { 0 }, extra[28];
    put(p, 4, ENTRY_SIG);
    put(p + 4, 2, 45);
    put_common(p + 6, e, big);
    put(p + 16, 4, e->crc);
    put(p + 20, 4, big ? FULL : e->packed);
    put(p + 24, 4, big ? FULL : e->bytes);
    put(p + 28, 2, strlen(e->name));
    put(p + 30, 2, big ? sizeof extra : 0);
    put(p + 42, 4, big ? FULL : local);
    put(extra, 2, EXTRA64);
    put(extra + 2, 2, 24);
    put(extra + 4, 8, e->bytes);
    put(extra + 12, 8, e->packed);
    put(extra + 20, 8, local);
    write_bytes(z->w, p, sizeof p);
    write_bytes(z->w, e->name, strlen(e->name));
    if (big) write_bytes(z->w, extra, sizeof extra);
}

static void put_end(ZipWriter *z, uint64_t at, uint64_t bytes) {
    const uint64_t n = (uint64_t)z->n, end64_at = at + bytes;
    const int big = n >= 0xffff || at >= FULL || bytes >= FULL;
    uint8_t end64[END64_SIZE + LOCATOR_SIZE] = { 0 }, end[END_SIZE] = { 0 };
    put(end64, 4, END64_SIG);
    put(end64 + 4, 8, END64_SIZE - 12);
    put(end64 + 12, 2, 45);
    put(end64 + 14, 2, 45);
    put(end64 + 24, 8, n);
    put(end64 + 32, 8, n);
    put(end64 + 40, 8, bytes);
    put(end64 + 48, 8, at);
    put(end64 + 56, 4, LOCATOR_SIG);
    put(end64 + 64, 8, end64_at);
    put(end64 + 72, 4, 1);
    if (big) write_bytes(z->w, end64, sizeof end64);
    put(end, 4, END_SIG);
    put(end + 8, 2, big ? 0xffff : n);
    put(end + 10, 2, big ? 0xffff : n);
    put(end + 12, 4, big ? FULL : bytes);
    put(end + 16, 4, big ? FULL : at);
    write_bytes(z->w, end, sizeof end);
}

void zip_finish(ZipWriter *z) {
    end_entry(z);
    const uint64_t at = z->w->at;
    for (int i = 0; i < z->n && !z->w->failed; i++) put_entry(z, i);
    put_end(z, at, z->w->at - at);
    deflate_close(&z->pack);
    arena_free(&z->arena);
    z->n = z->cap = 0;
}
