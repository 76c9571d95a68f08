// library.c - see library.h.
#include "base/library.h"
#include <dlfcn.h>
#include <string.h>

int library_load(const Library *lib, const LibraryFunction *wanted, size_t n, Err *err) {
    void *opened = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL);
    if (!opened) return err_set(err, lib->kind, "%s: %s", lib->missing, dlerror());
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(opened, wanted[i].name);
        if (!found)
            return err_set(err, lib->kind, "%s has no %s%s", lib->file, wanted[i].name,
                           lib->advice);
        memcpy(wanted[i].at, &found, sizeof found);      // POSIX: a function's address fits
    }
    return 0;
}
