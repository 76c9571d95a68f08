// formats.c - what the readers share; see formats.h.
#include "data/formats.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int set_alloc(Set *s, size_t n, Err *err) {
    if (n < 1 || n > MAX_PICTURES)
        return err_set(err, ERR_DATA, "%s: %zu pictures, expected 1 to %d", s->name, n,
                       MAX_PICTURES);
    const size_t pixels = (size_t)s->c * (size_t)s->side * (size_t)s->side;
    s->n = n;
    s->x = arena_alloc(&s->arena, n, pixels);
    s->y = arena_alloc(&s->arena, n, sizeof *s->y);
    return arena_ok(&s->arena, s->name, err);
}

int number_names(Set *s, Err *err) {
    s->class_name = arena_alloc(&s->arena, (size_t)s->classes, sizeof *s->class_name);
    for (int i = 0; s->class_name && i < s->classes; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%d", i);
        s->class_name[i] = arena_strdup(&s->arena, digits);
    }
    return arena_ok(&s->arena, s->name, err);
}

int bad_label(const char *path, size_t record, double label, int first, int last, Err *err) {
    return err_set(err, ERR_DATA, "%s: record %zu: label %g, expected %d to %d", path, record,
                   label, first, last);
}

int regular_size(const char *path, uint64_t max, uint64_t *size, Err *err) {
    struct stat st;
    if (stat(path, &st)) return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(err, ERR_IO, "%s: not a regular file", path);
    *size = (uint64_t)st.st_size;
    if (*size <= max) return 0;
    return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, expected at most %" PRIu64, path, *size,
                   max);
}
