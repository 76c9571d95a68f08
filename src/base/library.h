// library.h - libraries of the system that the program works without: loaded when they are wanted.
#ifndef LIBRARY_H
#define LIBRARY_H
#include "base/err.h"
#include <stddef.h>

typedef struct {
    const char *file;         // "libcurl.so.4"
    const char *missing;      // said where it cannot be loaded, with the reason behind it
    const char *advice;       // said behind the name of a function that it lacks; ""
    ErrKind     kind;         // of these errors
} Library;

typedef struct {
    const char *name;
    void       *at;           // where its address goes: a pointer to a function
} LibraryFunction;

// It stays loaded.
int library_load(const Library *lib, const LibraryFunction *wanted, size_t n, Err *err);
#endif
