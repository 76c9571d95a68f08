// arena.h - host memory that is allocated piece by piece and freed at once.
//
// Allocations are zeroed, aligned to 64 bytes and freed together. A failed allocation returns
// NULL and is remembered: allocate everything, then call arena_ok once before using any of it.
#ifndef ARENA_H
#define ARENA_H
#include "base/err.h"
#include <stddef.h>

typedef struct { void *head; size_t bytes; int failed; } Arena;   // {0} is an empty one

// 0 if the machine has `bytes` of memory at all. Operating systems overcommit and kill the program
// later; call this before allocating a size that was read from a file.
int   memory_check(size_t bytes, const char *what, Err *err);

void *arena_alloc(Arena *a, size_t count, size_t size);            // count * size is checked
char *arena_strdup(Arena *a, const char *s);
int   arena_ok(const Arena *a, const char *what, Err *err);        // -1: "out of memory for WHAT"
void  arena_free(Arena *a);                                        // leaves an empty arena
#endif
