// cpu_tune.c - choices between kernels that were made by timing: as text, and in a cache file.
#include "dev/cpu.h"
#include "dev/tune_cache.h"
#include <ctype.h>

enum { MAX_LINE = 96 };

// ---- as text: lines "fwd 32x32 16-160 k3 s1 p1 = winograd" --------------------------------------

int choice_find(const char *text, const char *key) {
    const size_t n = strlen(key);
    for (const char *s = text; s && (s = strstr(s, key)); s += n)
        if ((s == text || s[-1] == '\n') && !strncmp(s + n, " = ", 3)) return s[n + 3] == 'w';
    return -1;
}

int choice_add(char **text, const char *key, int winograd) {
    const size_t old = *text ? strlen(*text) : 0;
    char *more = realloc(*text, old + MAX_LINE);
    if (!more) return -1;
    snprintf(more + old, MAX_LINE, "%s = %s\n", key, winograd ? "winograd" : "direct");
    *text = more;
    return 0;
}

// The text comes out of a file: a line counts only if it is exactly what we would have written.
int choices_read(char **text, const char *from) {
    int rc = 0;
    for (const char *end; from && *from; from = *end ? end + 1 : end) {
        end = strchrnul(from, '\n');
        char line[MAX_LINE], again[2 * MAX_LINE], key[MAX_LINE], dir[4], type[6] = "", how[9];
        int h, w, in, out, k, s, p, used = 0;
        const size_t n = (size_t)(end - from);
        if (n >= sizeof line) continue;
        memcpy(line, from, n);
        line[n] = 0;
        if (sscanf(line, "%3[a-z] %6dx%6d %6d-%6d k%4d s%4d p%4d%n", dir, &h, &w, &in, &out, &k, &s,
                   &p, &used) != 8)
            continue;
        if (!strncmp(line + used, " bf16", 5)) strcpy(type, " bf16");
        if (sscanf(line + used + strlen(type), " = %8[a-z]", how) != 1) continue;
        if (strcmp(dir, "fwd") && strcmp(dir, "dx") && strcmp(dir, "dw")) continue;
        if (strcmp(how, "winograd") && strcmp(how, "direct")) continue;
        snprintf(key, sizeof key, "%s %dx%d %d-%d k%d s%d p%d%s", dir, h, w, in, out, k, s, p,
                 type);
        snprintf(again, sizeof again, "%s = %s", key, how);
        if (strcmp(line, again) || choice_find(*text, key) >= 0) continue;
        rc |= choice_add(text, key, how[0] == 'w');
    }
    return rc;
}

// ---- the cache: one file per kind of processor, number of threads and version of oneDNN ---------

// "AMD EPYC 9654" as "AMD-EPYC-9654"; what a machine does not say is left out.
static void processor_name(char *dst, size_t n) {
    char line[256];
    size_t used = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !used && fgets(line, sizeof line, f)) {
        const char *colon = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        for (const char *s = colon; s && *s && used + 1 < n; s++) {
            if (isalnum((unsigned char)*s)) dst[used++] = *s;
            else if (used && dst[used - 1] != '-') dst[used++] = '-';
        }
    }
    if (f) fclose(f);
    dst[used] = 0;
}

static char *cache_path(const Dev *dev) {
    char file[256], processor[128], version[32];
    processor_name(processor, sizeof processor);
    cpu_dnn_version(version, sizeof version);
    snprintf(file, sizeof file, "cpu-%s%s-%d-%s.txt", processor, cpu_of(dev)->k->isa, dev->threads,
             version);
    return tune_cache_path(file);
}

void cpu_cache_read(Dev *dev) {
    Cpu *cpu = cpu_of(dev);
    cpu->cache = cache_path(dev);
    char *text = tune_cache_read(cpu->cache);
    (void)choices_read(&cpu->cached, text);
    free(text);
}

void cpu_cache_write(const Cpu *cpu) {
    if (cpu->cache && cpu->timed && cpu->cached) tune_cache_write(cpu->cache, cpu->cached);
}
