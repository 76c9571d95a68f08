// arena.h - host memory with one owner and one end.
//
// Allocations are zeroed, aligned to 64 bytes and freed together. A failed allocation returns
// NULL and is remembered: allocate everything, then ask once with arena_ok before using any of it.
#ifndef ARENA_H
#define ARENA_H
#include "base/err.h"
#include <stddef.h>

typedef struct { void *head; size_t bytes; int failed; } Arena;   // {0} is an empty one

// 0 if the machine has `bytes` of memory at all. Systems grant more than they have, and end the
// program when it is used; what sizes out of a file ask for is refused before, and told.
int   memory_check(size_t bytes, const char *what, Err *err);

void *arena_alloc(Arena *a, size_t count, size_t size);            // count * size is checked
char *arena_strdup(Arena *a, const char *s);
int   arena_ok(const Arena *a, const char *what, Err *err);        // -1: "out of memory for WHAT"
void  arena_free(Arena *a);                                        // leaves an empty arena
#endif
