// module.c - see module.h.
#include "base/module.h"
#include "base/openmp.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef JEMPP_MODULES
#define JEMPP_MODULES "/usr/local/lib/jempp-0"
#define JEMPP_MODULES_NEAR "../lib/jempp-0"           // the same, seen from the installed program
#define JEMPP_MODULES_DEBIAN "/usr/lib/jempp-0"       // where Debian's packages put them
#endif

// The folder of the file that this code is in, program or shared library; "" where nobody knows.
static void own_dir(char dir[PATH_MAX]) {
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    const int known = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP);
    const char *file = known && map->l_name[0] ? map->l_name : "/proc/self/exe";
    if (!realpath(file, dir)) dir[0] = 0;
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
}

// Before the place that was compiled in comes the one near the program, so that an installed tree
// may be moved; after it the usual ones, for a library installed without modules (a wheel).
int module_load(const char *name, const char *symbol, void **function, Err *err) {
    char here[PATH_MAX], near[PATH_MAX + 64], path[PATH_MAX + 128];
    own_dir(here);
    snprintf(near, sizeof near, "%s/" JEMPP_MODULES_NEAR, here);
    const char *env = getenv("JEMPP_MODULE_DIR");
    const char *dirs[] = { env ? env : here,    here, near, JEMPP_MODULES, "/usr/local/lib/jempp-0",
                           JEMPP_MODULES_DEBIAN };
    const size_t n_dir = sizeof dirs / sizeof *dirs;
    for (size_t i = 0; i < n_dir; i++) {
        if (snprintf(path, sizeof path, "%s/jempp-%s.so", dirs[i], name) >= (int)sizeof path)
            continue;
        if (access(path, R_OK)) continue;
        openmp_load();                                // before a module brings it along
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) return err_set(err, ERR_DEV, "%s", dlerror());
        *function = dlsym(lib, symbol);
        if (*function) return 0;
        dlclose(lib);
        return err_set(err, ERR_DEV, "%s is not a module of this version of jempp", path);
    }
    char list[2 * PATH_MAX];
    size_t n = 0;
    list[0] = 0;
    for (size_t i = 0; i < n_dir; i++) {
        size_t k = 0;
        while (strcmp(dirs[k], dirs[i]) != 0) k++;
        if (k < i || dirs[i] == near || n >= sizeof list) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", dirs[i]);
    }
    return err_set(err, ERR_DEV, "no jempp-%s.so in %s: the '%s' module is not installed", name,
                   list, name);
}
