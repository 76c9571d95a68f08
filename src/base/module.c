// module.c - see module.h.
#include "base/module.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef JEMPP_MODULES
#define JEMPP_MODULES "/usr/local/lib/jempp"
#endif

// The folder of the running program, or "" where the system does not tell.
static void program_dir(char dir[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);
    dir[n > 0 ? n : 0] = 0;
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
}

int module_load(const char *name, const char *symbol, void **function, Err *err) {
    char here[PATH_MAX], path[PATH_MAX + 64];
    program_dir(here);
    const char *env = getenv("JEMPP_MODULE_DIR");
    const char *dirs[] = { env ? env : here, here, JEMPP_MODULES };
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        if (snprintf(path, sizeof path, "%s/jempp-%s.so", dirs[i], name) >= (int)sizeof path)
            continue;
        if (access(path, R_OK)) continue;
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) return err_set(err, ERR_DEV, "%s", dlerror());
        *function = dlsym(lib, symbol);
        if (*function) return 0;
        dlclose(lib);
        return err_set(err, ERR_DEV, "%s does not belong to this program", path);
    }
    return err_set(err, ERR_DEV,
                   "jempp-%s.so is neither in %s nor in %s: this build has no '%s' module", name,
                   dirs[0], JEMPP_MODULES, name);
}
