// arena.c - see arena.h. Each allocation is a block of its own: address checkers see its ends.
#include "base/arena.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 64 };

typedef struct Block {
    struct Block *next;
} Block; // takes ALIGN bytes; the memory follows

int memory_check(size_t bytes, const char *what, Err *err) {
    const double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)bytes <= all) return 0;
    return err_set(err, ERR_MEM, "out of memory: %.2f GiB for %s, and the machine has %.2f",
                   (double)bytes / 0x1p30, what, all / 0x1p30);
}

void *arena_alloc(Arena *a, size_t count, size_t size) {
    size_t bytes, total;
    void *mem = NULL;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)ALIGN, &total) || total > PTRDIFF_MAX ||
        memory_check(total, "", NULL) || posix_memalign(&mem, ALIGN, total)) {
        a->failed = 1;
        return NULL;
    }
    memset(mem, 0, total);
    Block *b = mem;
    b->next = a->head;
    a->head = b;
    a->bytes += bytes;
    return (char *)mem + ALIGN;
}

char *arena_strdup(Arena *a, const char *s) {
    const size_t n = strlen(s) + 1;
    char *copy = arena_alloc(a, n, 1);
    return copy ? memcpy(copy, s, n) : NULL;
}

int arena_ok(const Arena *a, const char *what, Err *err) {
    if (!a->failed) return 0;
    return err_set(err, ERR_MEM, "out of memory for %s (%zu bytes were granted)", what, a->bytes);
}

void arena_free(Arena *a) {
    for (Block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (Arena){ 0 };
}
