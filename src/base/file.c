// file.c - see file.h.
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Not blocking, so that a pipe named by mistake is refused instead of waited for.
static FILE *open_regular(const char *path, uint64_t *size, Err *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct stat s;
    FILE *f = NULL;
    if (fstat(fd, &s)) err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(s.st_mode)) err_set(err, ERR_IO, "%s: a folder, expected a file", path);
    else if (!S_ISREG(s.st_mode)) err_set(err, ERR_IO, "%s: not a regular file", path);
    else if (!(f = fdopen(fd, "rb"))) err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    else *size = (uint64_t)s.st_size;
    if (!f) close(fd);
    return f;
}

int file_read(const char *path, size_t max, char **data, size_t *n, Err *err) {
    uint64_t size;
    FILE *f = open_regular(path, &size, err);
    if (!f) return -1;
    char *text = NULL;
    int rc = -1;
    if (size > max)
        err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, at most %zu are read", path, size, max);
    else if (!(text = malloc((size_t)size + 1)))
        err_set(err, ERR_MEM, "%s: out of memory for %" PRIu64 " bytes", path, size);
    else if (fread(text, 1, (size_t)size, f) != size)
        err_set(err, ERR_IO, "%s: %s", path, ferror(f) ? strerror(errno) : "shrank while read");
    else rc = 0;
    fclose(f);
    if (rc) {
        free(text);
        return rc;
    }
    text[size] = 0;
    *data = text;
    *n = (size_t)size;
    return 0;
}

int file_exists(const char *path) {
    struct stat s;
    return !stat(path, &s) && S_ISREG(s.st_mode);
}

int dir_exists(const char *path) {
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

int path_tilde(const char *path, Err *err) {
    if (strncmp(path, "~/", 2) != 0 || dir_exists("~")) return 0;
    return err_set(err, ERR_ARG,
                   "%s: no such folder; shells replace ~ at the beginning of a word only: expected "
                   "$HOME/%s",
                   path, path + 2);
}

int dir_make(const char *path, Err *err) {
    char part[4096];
    const size_t n = strlen(path);
    if (path_tilde(path, err)) return -1;
    if (n == 0 || n >= sizeof part)
        return err_set(err, ERR_ARG, "%s: %s", path, n ? "folder name too long" : "no folder name");
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        part[i] = 0;
        const int error = mkdir(part, 0777) ? errno : 0;
        if (error && !dir_exists(part))
            return err_set(err, ERR_IO, "%s: %s", part,
                           error == EEXIST ? "exists and is not a folder" : strerror(error));
        part[i] = path[i];
    }
    return 0;
}

int dir_make_inside(const char *path, Err *err) {
    struct stat s;
    if (!lstat(path, &s) && S_ISLNK(s.st_mode))
        return err_set(err, ERR_DATA, "%s: a link, expected a folder", path);
    return dir_make(path, err);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int dir_remove(const char *path) {
    enum { OPEN_AT_ONCE = 16 };
    return dir_exists(path) ? nftw(path, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS) : 0;
}

void *file_change(const char *path, const char *mode, Err *err) {
    const int append = *mode == 'a' ? O_APPEND : 0, how = strchr(mode, '+') ? O_RDWR : O_WRONLY;
    const int fd = open(path, how | append | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat s;
    FILE *f = NULL;
    if (fd < 0 && errno == ELOOP) err_set(err, ERR_DATA, "%s: a link, expected a file", path);
    else if (fd < 0 || fstat(fd, &s)) err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode)) err_set(err, ERR_IO, "%s: not a regular file", path);
    else if ((append && lseek(fd, 0, SEEK_END) < 0) || !(f = fdopen(fd, mode)))
        err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (!f && fd >= 0) close(fd);
    return f;
}

int path_join(char *dst, size_t n, const char *a, const char *b, Err *err) {
    const size_t len = strlen(a);
    const char *between = len == 0 || !*b || a[len - 1] == '/' ? "" : "/";
    const int need = snprintf(dst, n, "%s%s%s", a, between, b);
    if (need >= 0 && (size_t)need < n) return 0;
    return err_set(err, ERR_ARG, "%s/%s: name too long, at most %zu bytes", a, b, n - 1);
}

// ---- reading

Reader reader_open(const char *path) {
    Reader r = { 0 };
    if (snprintf(r.path, sizeof r.path, "%s", path) >= (int)sizeof r.path)
        err_set(&r.err, ERR_ARG, "%s: file name too long", path);
    else r.f = open_regular(path, &r.size, &r.err);
    r.failed = !r.f;
    return r;
}

static void reader_fail(Reader *r, const char *why) {
    err_set(&r->err, ERR_IO, "%s: at byte %" PRIu64 ": %s", r->path, r->at, why);
    r->failed = 1;
}

void read_bytes(Reader *r, void *dst, size_t n) {
    if (n == 0) return;
    if (!r->failed && n > r->size - r->at) {
        err_set(&r->err, ERR_DATA, "%s: %" PRIu64 " byte%s, expected at least %" PRIu64 " + %zu",
                r->path, r->size, plural((double)r->size), r->at, n);
        r->failed = 1;
    }
    if (!r->failed && fread(dst, 1, n, r->f) != n)
        reader_fail(r, ferror((FILE *)r->f) ? strerror(errno) : "the file shrank while read");
    if (r->failed) memset(dst, 0, n);
    else r->at += n;
}

void reader_seek(Reader *r, uint64_t at) {
    if (r->failed || at == r->at) return;
    if (at > r->size) {
        err_set(&r->err, ERR_DATA, "%s: %" PRIu64 " byte%s, expected at least %" PRIu64, r->path,
                r->size, plural((double)r->size), at);
        r->failed = 1;
    } else if (fseeko(r->f, (off_t)at, SEEK_SET)) {
        reader_fail(r, strerror(errno));
    } else {
        r->at = at;
    }
}

int reader_close(Reader *r, Err *err) {
    if (r->f) fclose(r->f);
    r->f = NULL;
    return r->failed ? err_set(err, r->err.kind, "%s", r->err.msg) : 0;
}

// ---- writing

static void writer_fail(Writer *w, int error) {
    err_set(&w->err, ERR_IO, "%s: %s", w->path, strerror(error));
    w->failed = 1;
}

// A file that has the temporary name already is left over from a crash, or a link that someone put
// there: it is removed, not written to.
static int open_new(const char *tmp, const char *path) {
    struct stat old;
    unlink(tmp);
    const int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && !stat(path, &old) && S_ISREG(old.st_mode)) (void)fchmod(fd, old.st_mode & 0777);
    return fd;
}

Writer writer_open(const char *path) {
    Writer w = { 0 };
    if (snprintf(w.path, sizeof w.path, "%s", path) >= (int)sizeof w.path) {
        err_set(&w.err, ERR_ARG, "%s: file name too long", path);
        w.failed = 1;
        return w;
    }
    snprintf(w.tmp, sizeof w.tmp, "%s.tmp", w.path);
    const int fd = open_new(w.tmp, path);
    struct stat s;
    if (fd >= 0 && !fstat(fd, &s)) w.inode = s.st_ino;
    if (fd >= 0) w.f = fdopen(fd, "wb");
    if (!w.f) {
        if (errno == EEXIST)
            err_set(&w.err, ERR_IO, "%s: cannot be written, because %s exists", w.path, w.tmp);
        writer_fail(&w, errno);
        if (fd >= 0) {
            close(fd);
            unlink(w.tmp);
        }
    }
    return w;
}

void writer_keep(Writer *w, const char *old) {
    if (w->failed || snprintf(w->old, sizeof w->old, "%s", old) < (int)sizeof w->old) return;
    err_set(&w->err, ERR_ARG, "%s: file name too long", old);
    w->failed = 1;
}

void write_bytes(Writer *w, const void *src, size_t n) {
    if (w->failed || n == 0) return;
    if (fwrite(src, 1, n, w->f) != n) writer_fail(w, errno);
    else w->at += n;
}

void write_text(Writer *w, const char *fmt, ...) {
    if (w->failed) return;
    va_list ap;
    va_start(ap, fmt);
    const int n = vfprintf(w->f, fmt, ap);
    va_end(ap);
    if (n < 0) writer_fail(w, errno);
    else w->at += (uint64_t)n;
}

void write_over(Writer *w, uint64_t at, const void *src, size_t n) {
    if (w->failed) return;
    if (fseeko(w->f, (off_t)at, SEEK_SET) || fwrite(src, 1, n, w->f) != n ||
        fseeko(w->f, (off_t)w->at, SEEK_SET))
        writer_fail(w, errno);
}

// The new name is safe only when the folder that holds it is on disk too.
static int sync_folder(const char *path, Err *err) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash) strcpy(dir, ".");
    else slash[slash == dir] = 0;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = fd < 0 || fsync(fd) ? errno : 0;
    if (fd >= 0) close(fd);
    // Some file systems do not sync folders, and say EINVAL; some folders may be written, not read.
    if (error == 0 || error == EINVAL || error == EACCES) return 0;
    return err_set(err, ERR_IO, "%s: %s", dir, strerror(error));
}

// Whether the temporary name is still this writer's: a second one of the same file takes it over.
static int has_name(const Writer *w) {
    struct stat s;
    return !lstat(w->tmp, &s) && s.st_ino == w->inode;
}

int writer_close(Writer *w, Err *err) {
    FILE *f = w->f;
    if (f) {
        const int ours = has_name(w);
        w->f = NULL;
        if (!w->failed && (fflush(f) || fsync(fileno(f)))) writer_fail(w, errno);
        if (fclose(f) && !w->failed) writer_fail(w, errno);
        if (!w->failed && !ours) {
            err_set(&w->err, ERR_IO, "%s: another program is writing it too", w->path);
            w->failed = 1;
        }
        if (!w->failed && w->old[0] && file_exists(w->path) && rename(w->path, w->old))
            writer_fail(w, errno);
        if (!w->failed && rename(w->tmp, w->path)) writer_fail(w, errno);
        if (w->failed && ours) unlink(w->tmp);
    }
    if (w->failed) return err_set(err, w->err.kind, "%s", w->err.msg);
    return f ? sync_folder(w->path, err) : 0;
}

void writer_cancel(Writer *w) {
    if (w->f) {
        if (has_name(w)) unlink(w->tmp);
        fclose(w->f);
    }
    *w = (Writer){ .failed = 1 };
    err_set(&w->err, ERR_IO, "writing was cancelled");
}

int file_writable(const char *path, Err *err) {
    if (dir_exists(path))
        return err_set(err, ERR_ARG, "%s: is a folder, expected the name of a file", path);
    Writer w = writer_open(path);
    const int rc = w.failed ? err_set(err, w.err.kind, "%s", w.err.msg) : 0;
    writer_cancel(&w);
    return rc;
}
