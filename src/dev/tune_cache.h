// tune_cache.h - the cache file of choices that a device made by timing: lines "KEY = CHOICE" in
// jempp/FILE of the user's cache folder. A cache that cannot be read or written costs time and
// nothing else. Modules of devices compile it in, so it is C and C++.
#ifndef TUNE_CACHE_H
#define TUNE_CACHE_H
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TUNE_CACHE_MOST = 1 << 20 };     // bytes of a cache file that are read

// NULL: the user has no folder for it.
static inline char *tune_cache_path(const char *file) {
    char path[1024];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const int own = xdg && *xdg;
    if (!own && !(home && *home)) return NULL;
    const int n = snprintf(path, sizeof path, "%s%s/jempp/%s", own ? xdg : home,
                           own ? "" : "/.cache", file);
    return n < (int)sizeof path ? strdup(path) : NULL;
}

// Its text, which the caller frees, or NULL.
static inline char *tune_cache_read(const char *path) {
    FILE *f = path ? fopen(path, "r") : NULL;
    char *text = f ? (char *)malloc(TUNE_CACHE_MOST) : NULL;
    if (text) text[fread(text, 1, TUNE_CACHE_MOST - 1, f)] = 0;
    if (f) fclose(f);
    return text;
}

// The folder of the cache, made where it is missing and locked, or -1. A lock that others keep for
// a second is not waited for.
static inline int tune_cache_lock(char *path) {
    char *last = strrchr(path, '/');
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    *last = 0;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *last = '/';
    struct timespec nap = { 0, 10000000 };
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && i < 100; i++) nanosleep(&nap, NULL);
    return fd;
}

// Whether a text has a line of the same key as this one, which ends at `end`.
static inline int tune_cache_has(const char *text, const char *line, const char *end) {
    const char *eq = strstr(line, " = ");
    if (!eq || eq > end) return 1;                          // not a choice: nothing to keep
    const size_t n = (size_t)(eq - line) + 3;
    for (const char *s = text; *s; s = strchr(s, '\n') + 1) // every line of ours has its end
        if (!strncmp(s, line, n)) return 1;
    return 0;
}

// Ours, and what other processes have added since it was read.
static inline void tune_cache_write(char *path, const char *ours) {
    char tmp[1100];
    const int lock = tune_cache_lock(path);
    char *old = tune_cache_read(path);
    snprintf(tmp, sizeof tmp, "%s.%d.tmp", path, (int)getpid());
    FILE *f = fopen(tmp, "w");
    if (f) {
        int bad = fputs(ours, f) < 0;
        for (const char *s = old, *end; s && (end = strchr(s, '\n')); s = end + 1)
            if (!tune_cache_has(ours, s, end))
                bad |= fwrite(s, 1, (size_t)(end - s) + 1, f) != (size_t)(end - s) + 1;
        if (fclose(f) || bad || rename(tmp, path)) remove(tmp);
    }
    if (lock >= 0) close(lock);
    free(old);
}
#endif
