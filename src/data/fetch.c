// fetch.c - downloads and unpacks published sets. The only file that knows libcurl and libarchive.
//
// A download is written to NAME.part, so that an interrupted one can continue; it gets its name
// once its checksum is right. Members of archives are written beside their names and renamed
// (file.h).
#include "data/fetch.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log.h"
#include "base/md5.h"
#include "base/sha256.h"
#include "data/formats.h"
#include "base/events.h"
#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_URL = 1024, MAX_REDIRECTS = 5, PATIENCE = 30, MAX_TEXT = 1 << 16, CHUNK = 1 << 16 };
static const uint64_t MAX_DOWNLOAD = (uint64_t)1 << 30;

static const FetchSet PUBLISHED[] = {
    { "cifar10",
      "cifar-10-batches-bin",
      "https://www.cs.toronto.edu/~kriz",
      { { "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530" } },
      { { "data_batch_1.bin", 30730000 },
        { "data_batch_2.bin", 30730000 },
        { "data_batch_3.bin", 30730000 },
        { "data_batch_4.bin", 30730000 },
        { "data_batch_5.bin", 30730000 },
        { "test_batch.bin", 30730000 },
        { "batches.meta.txt", 0 } } },
    { "cifar100",
      "cifar-100-binary",
      "https://www.cs.toronto.edu/~kriz",
      { { "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8" } },
      { { "train.bin", 153700000 }, { "test.bin", 30740000 }, { "fine_label_names.txt", 0 } } },
    { "svhn",
      "svhn",
      "http://ufldl.stanford.edu/housenumbers",
      { { "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373" },
        { "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3" } },
      { { 0 } } },
    { "mnist",
      "mnist",
      "https://ossci-datasets.s3.amazonaws.com/mnist",
      { { "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873" },
        { "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432" },
        { "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3" },
        { "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c" } },
      { { 0 } } },
    { "fashion-mnist",
      "fashion-mnist",
      "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
      { { "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d" },
        { "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe" },
        { "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79" },
        { "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310" } },
      { { 0 } } },
    { "inception",
      "inception",
      "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights",
      { { "pt_inception-2015-12-05-6726825d.pth",
          "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2" } },
      { { 0 } } },
};

// ---- libcurl, loaded when something is fetched: the program starts where it is not installed

typedef struct {
    CURL *(*init)(void);
    CURLcode (*setopt)(CURL *, CURLoption, ...);
    CURLcode (*getinfo)(CURL *, CURLINFO, ...);
    CURLcode (*perform)(CURL *);
    const char *(*strerror)(CURLcode);
    void (*cleanup)(CURL *);
} Curl;

static int curl_load(Curl *c, Err *err) {
    static const Library curl = { "libcurl.so.4", "fetching needs libcurl", "", ERR_IO };
    const LibraryFunction wanted[] = {
        { "curl_easy_init", &c->init },       { "curl_easy_setopt", &c->setopt },
        { "curl_easy_getinfo", &c->getinfo }, { "curl_easy_perform", &c->perform },
        { "curl_easy_strerror", &c->strerror }, { "curl_easy_cleanup", &c->cleanup },
    };
    return library_load(&curl, wanted, sizeof wanted / sizeof *wanted, err);
}

// ---- one file over HTTP

typedef struct {
    Curl        lib;
    const char *url;
    char        path[MAX_PATH + 8];   // of the .part
    FILE       *f;                    // appends
    CURL       *curl;
    uint64_t    start, size;          // bytes that were there before; bytes now
    double      heard;                // when something last came
    int         patience;             // seconds
    const Events *ev;
    Err        *err;
} Download;

// A server that does not know ranges sends the whole file: then what was there is discarded.
static int begin_body(Download *d) {
    long status = 0;
    d->lib.getinfo(d->curl, CURLINFO_RESPONSE_CODE, &status);
    if (d->start == 0 || status == 206) return 0;
    d->start = d->size = 0;
    return ftruncate(fileno(d->f), 0) ? err_set(d->err, ERR_IO, "%s: %s", d->path, strerror(errno))
                                      : 0;
}

static size_t on_data(char *data, size_t one, size_t n, void *ctx) {
    (void)one;                                    // always 1
    Download *d = ctx;
    if (d->size == d->start && begin_body(d)) return 0;
    if (d->size + n > MAX_DOWNLOAD) {
        err_set(d->err, ERR_DATA, "%s: more than %" PRIu64 " bytes", d->url, MAX_DOWNLOAD);
        return 0;
    }
    if (fwrite(data, 1, n, d->f) != n) {
        err_set(d->err, ERR_IO, "%s: %s", d->path, strerror(errno));
        return 0;
    }
    d->size += n;
    d->heard = now_seconds();
    return n;
}

static int on_progress(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up,
                       curl_off_t up_now) {
    (void)up, (void)up_now, (void)now;
    const Download *d = ctx;
    const uint64_t whole = d->start + (uint64_t)total;
    if (total > 0) tell_progress(d->ev, d->size >> 10, (whole + 1023) >> 10, "KiB", "");
    if (stopped(d->ev, d->err)) return -1;
    if (now_seconds() - d->heard <= d->patience) return 0;
    return err_set(d->err, ERR_IO, "%s: no data for %d s; the next try continues from there",
                   d->url, d->patience);
}

static void set_options(Download *d, char *why) {
    d->lib.setopt(d->curl, CURLOPT_URL, d->url);
    d->lib.setopt(d->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    d->lib.setopt(d->curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    d->lib.setopt(d->curl, CURLOPT_FOLLOWLOCATION, 1L);
    d->lib.setopt(d->curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    d->lib.setopt(d->curl, CURLOPT_FAILONERROR, 1L);
    d->lib.setopt(d->curl, CURLOPT_CONNECTTIMEOUT, (long)d->patience);
    d->lib.setopt(d->curl, CURLOPT_USERAGENT, "jempp");
    d->lib.setopt(d->curl, CURLOPT_ERRORBUFFER, why);
    d->lib.setopt(d->curl, CURLOPT_WRITEFUNCTION, on_data);
    d->lib.setopt(d->curl, CURLOPT_WRITEDATA, d);
    d->lib.setopt(d->curl, CURLOPT_NOPROGRESS, 0L);
    d->lib.setopt(d->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    d->lib.setopt(d->curl, CURLOPT_XFERINFODATA, d);
}

static int say_failure(const Download *d, CURLcode code, const char *why) {
    if (d->err->kind != ERR_NONE) return -1;      // ours, out of a callback
    long status = 0;
    d->lib.getinfo(d->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_HTTP_RETURNED_ERROR && status == 416) {
        remove(d->path);
        return err_set(d->err, ERR_DATA, "%s: cannot be resumed; removed: try again", d->path);
    }
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return err_set(d->err, ERR_IO, "%s: HTTP %ld", d->url, status);
    return err_set(d->err, ERR_IO, "%s: %s%s", d->url, *why ? why : d->lib.strerror(code),
                   d->size ? "; the next try continues from there" : "");
}

static int transfer(Download *d) {
    d->curl = d->lib.init();
    if (!d->curl) return err_set(d->err, ERR_MEM, "out of memory for a download");
    char why[CURL_ERROR_SIZE] = "", range[32];
    set_options(d, why);
    snprintf(range, sizeof range, "%" PRIu64 "-", d->start);
    if (d->start) d->lib.setopt(d->curl, CURLOPT_RANGE, range);
    d->heard = now_seconds();
    const CURLcode code = d->lib.perform(d->curl);
    int rc = code == CURLE_OK ? 0 : say_failure(d, code, why);
    if (!rc && (fflush(d->f) || fsync(fileno(d->f))))
        rc = err_set(d->err, ERR_IO, "%s: %s", d->path, strerror(errno));
    d->lib.cleanup(d->curl);
    if (rc && d->size == 0) remove(d->path);      // nothing to continue from
    return rc;
}

// In the kind that `like` is of: 32 digits are an MD5, 64 a SHA-256.
static int file_sum(FILE *f, const char *path, const char *like, char hex[65], Err *err) {
    Md5 md5 = md5_start();
    Sha256 sha = sha256_start();
    const int short_one = strlen(like) == 32;
    char buf[CHUNK];
    rewind(f);
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;) {
        if (short_one) md5_add(&md5, buf, n);
        else sha256_add(&sha, buf, n);
    }
    if (short_one) md5_end(&md5, hex);
    else sha256_end(&sha, hex);
    return ferror(f) ? err_set(err, ERR_IO, "%s: cannot be read", path) : 0;
}

static int is_whole(const char *path, const char *sum) {
    FILE *f = file_exists(path) ? fopen(path, "rb") : NULL;
    char hex[65];
    const int yes = f && !file_sum(f, path, sum, hex, NULL) && !strcmp(hex, sum);
    if (f) fclose(f);
    return yes;
}

// The download's file is open and ours alone; what it has so far is kept if it is the beginning.
static int complete(Download *d, const char *sum) {
    char hex[65];
    if (file_sum(d->f, d->path, sum, hex, d->err)) return -1;
    if (!strcmp(hex, sum)) return 0;
    d->start = d->size = (uint64_t)ftello(d->f);
    if (transfer(d) || file_sum(d->f, d->path, sum, hex, d->err)) return -1;
    if (!strcmp(hex, sum)) return 0;
    remove(d->path);
    return err_set(d->err, ERR_DATA, "%s: %s %s, expected %s; the download was removed", d->url,
                   strlen(sum) == 32 ? "MD5" : "SHA-256", hex, sum);
}

static int download(Download *d, const char *sum) {
    if (curl_load(&d->lib, d->err)) return -1;
    d->f = file_change(d->path, "a+", d->err);
    if (!d->f) return -1;
    const int rc = flock(fileno(d->f), LOCK_EX | LOCK_NB)
                       ? err_set(d->err, ERR_IO, "%s: another program is writing it", d->path)
                       : complete(d, sum);
    const int empty = rc && !fseeko(d->f, 0, SEEK_END) && ftello(d->f) == 0;
    if (empty) remove(d->path);
    fclose(d->f);
    return rc;
}

// ---- archives

static int copy_member(struct archive *a, const char *path, uint64_t max, Err *err) {
    Writer w = writer_open(path);
    char buf[CHUNK];
    la_ssize_t n;
    while ((n = archive_read_data(a, buf, sizeof buf)) > 0 && w.at + (uint64_t)n <= max)
        write_bytes(&w, buf, (size_t)n);
    if (n == 0) return writer_close(&w, err);
    writer_cancel(&w);
    if (n < 0) return err_set(err, ERR_DATA, "%s: %s", path, archive_error_string(a));
    return err_set(err, ERR_DATA, "%s: more than %" PRIu64 " bytes", path, max);
}

// The row's number of an entry that is wanted, or -1. Only whole names count, so that nothing in an
// archive can choose where it is written.
static int member_number(const FetchSet *f, struct archive_entry *e) {
    const char *path = archive_entry_pathname(e);
    const size_t n = strlen(f->folder);
    if (!path || strncmp(path, f->folder, n) || path[n] != '/') return -1;
    for (int i = 0; i < FETCH_MAX_FILES && f->member[i].name; i++)
        if (!strcmp(path + n + 1, f->member[i].name)) return i;
    return -1;
}

static int unpack_entry(const FetchSet *f, int i, struct archive *a, struct archive_entry *e,
                        const char *folder, Err *err) {
    const FetchMember *m = &f->member[i];
    if (archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e))
        return err_set(err, ERR_DATA, "%s: not a plain file in the archive", m->name);
    const uint64_t size = (uint64_t)archive_entry_size(e);
    if (m->size && size != m->size)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes in the archive, expected %" PRIu64,
                       m->name, size, m->size);
    char path[MAX_PATH];
    if (path_join(path, sizeof path, folder, m->name, err)) return -1;
    return copy_member(a, path, m->size ? m->size : MAX_TEXT, err);
}

static int unpack_all(const FetchSet *f, struct archive *a, const char *folder, Err *err) {
    int done[FETCH_MAX_FILES] = { 0 }, code;
    struct archive_entry *e;
    while ((code = archive_read_next_header(a, &e)) == ARCHIVE_OK || code == ARCHIVE_WARN) {
        const int i = member_number(f, e);
        if (i >= 0 && unpack_entry(f, i, a, e, folder, err)) return -1;
        if (i >= 0) done[i] = 1;
    }
    if (code != ARCHIVE_EOF) return err_set(err, ERR_DATA, "%s", archive_error_string(a));
    for (int i = 0; i < FETCH_MAX_FILES && f->member[i].name; i++)
        if (!done[i]) return err_set(err, ERR_DATA, "no %s/%s in it", f->folder, f->member[i].name);
    return 0;
}

int fetch_unpack(const FetchSet *f, const char *path, const char *folder, Err *err) {
    struct archive *a = archive_read_new();
    if (!a) return err_set(err, ERR_MEM, "out of memory for an archive");
    archive_read_support_filter_gzip(a);
    archive_read_support_format_tar(a);
    int rc = archive_read_open_filename(a, path, CHUNK) == ARCHIVE_OK
                 ? unpack_all(f, a, folder, err)
                 : err_set(err, ERR_DATA, "%s", archive_error_string(a));
    archive_read_free(a);
    return rc ? err_prefix(err, "%s", path) : 0;
}

// ---- sets

static int has_members(const FetchSet *f, const char *folder) {
    for (int i = 0; i < FETCH_MAX_FILES && f->member[i].name; i++) {
        char path[MAX_PATH];
        struct stat st;
        if (path_join(path, sizeof path, folder, f->member[i].name, NULL) || stat(path, &st))
            return 0;
        if (f->member[i].size && (uint64_t)st.st_size != f->member[i].size) return 0;
    }
    return 1;
}

static int fetch_file(const FetchSet *f, const FetchFile *file, const char *folder, Download *d) {
    char path[MAX_PATH];
    if (path_join(path, sizeof path, folder, file->name, d->err)) return -1;
    const int archive = f->member[0].name != NULL;
    if (archive ? has_members(f, folder) : is_whole(path, file->sum)) return 0;
    snprintf(d->path, sizeof d->path, "%s.part", path);
    if (download(d, file->sum)) return -1;
    if (archive) {
        if (fetch_unpack(f, d->path, folder, d->err)) return -1;
        remove(d->path);
        return 0;
    }
    return rename(d->path, path) ? err_set(d->err, ERR_IO, "%s: %s", path, strerror(errno)) : 0;
}

static int file_url(const FetchSet *f, const FetchFile *file, const char *url, char dst[MAX_URL],
                    Err *err) {
    if (!url || !f->member[0].name)
        return path_join(dst, MAX_URL, url ? url : f->url, file->name, err);
    if (snprintf(dst, MAX_URL, "%s", url) < MAX_URL) return 0;
    return err_set(err, ERR_ARG, "%s: address too long", url);
}

int fetch_set(const FetchSet *f, const char *dir, const char *url, int patience, const Events *ev,
              Err *err) {
    char folder[MAX_PATH], from[MAX_URL];
    const int had_dir = dir_exists(dir);
    if (path_join(folder, sizeof folder, dir, f->folder, err) || dir_make(folder, err)) return -1;
    Err local = { 0 }; // callbacks need one to look into
    int rc = 0;
    for (int i = 0; !rc && i < FETCH_MAX_FILES && f->file[i].name; i++) {
        Download d = { .url = from, .patience = patience, .ev = ev, .err = &local };
        rc = file_url(f, &f->file[i], url, from, &local);
        if (!rc) rc = fetch_file(f, &f->file[i], folder, &d);
    }
    if (!rc) return 0;
    if (!rmdir(folder) && !had_dir) rmdir(dir); // empty ones alone: what came so far stays
    return err_set(err, local.kind, "%s", local.msg);
}

int data_inception(char *dst, size_t n, const char *dir, Err *err) {
    const FetchSet *f = &PUBLISHED[sizeof PUBLISHED / sizeof *PUBLISHED - 1];
    char name[MAX_PATH];
    if (path_join(name, sizeof name, f->folder, f->file[0].name, err)) return -1;
    if (!data_find(dst, n, dir, name)) return 0;
    return err_set(err, ERR_IO,
                   "no weights for the Inception network, which FID and its relatives need: `jempp "
                   "data fetch inception` downloads them, --inception FILE names a file");
}

int data_fetch(const char *name, const char *dir, const char *url, const Events *ev, Err *err) {
    char home[MAX_PATH];
    if (!dir && data_home(home, err)) return -1;
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof *PUBLISHED; i++)
        if (!strcmp(name, PUBLISHED[i].name))
            return fetch_set(&PUBLISHED[i], dir ? dir : home, url, PATIENCE, ev, err);
    return err_set(err, ERR_ARG,
                   "%s: cannot be fetched; cifar10, cifar100, svhn, mnist, fashion-mnist and "
                   "inception (the network of FID) can",
                   name);
}
