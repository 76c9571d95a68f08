// backend.c - opens devices by name; loads the modules that drive them.
#include "dev/backend.h"
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
#endif

const char *const dev_names[] = { "cuda", "cpu", "ref", NULL };

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

// Tries DIR/jempp-NAME.so in each place; the first that exists decides. Before the place that was
// compiled in comes the one near the program, so that an installed tree may be moved.
static void *module_load(const char *name, Err *err) {
    char here[PATH_MAX], near[PATH_MAX + 64], path[PATH_MAX + 128];
    own_dir(here);
    snprintf(near, sizeof near, "%s/" JEMPP_MODULES_NEAR, here);
    const char *env = getenv("JEMPP_MODULE_DIR");
    const char *dirs[] = { env ? env : here, here, near, JEMPP_MODULES };
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        if (snprintf(path, sizeof path, "%s/jempp-%s.so", dirs[i], name) >= (int)sizeof path)
            continue;
        if (access(path, R_OK)) continue;
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) err_set(err, ERR_DEV, "%s", dlerror());
        return lib;
    }
    err_set(err, ERR_DEV, "jempp-%s.so is neither in %s nor in %s: this build has no '%s' device",
            name, dirs[0], JEMPP_MODULES, name);
    return NULL;
}

static int open_one(Dev *dev, const char *name, const DevOpts *opts, Err *err) {
    memset(dev, 0, sizeof *dev);
    dev->be = backend_ref;
    if (strcmp(name, "ref") != 0) {
        dev->module = module_load(name, err);
        if (!dev->module) return -1;
        // a function pointer comes out of dlsym as an object pointer; POSIX says this is how
        BackendModule *fill = NULL;
        *(void **)&fill = dlsym(dev->module, "jempp_backend");
        if (!fill || fill(BACKEND_ABI, sizeof dev->be, &dev->be, err)) {
            err_set(err, ERR_DEV, "jempp-%s.so does not belong to this program", name);
            dlclose(dev->module);
            dev->module = NULL;
            return -1;
        }
    }
    dev->be.open(dev, opts);
    if (!dev->err.kind) return 0;
    err_set(err, dev->err.kind, "%s", dev->err.msg);
    dev_close(dev);
    return -1;
}

int dev_open(Dev *dev, const char *name, const DevOpts *opts, char note[256], Err *err) {
    if (note) note[0] = 0;
    if (strcmp(name, "auto") != 0) {
        for (const char *const *known = dev_names; *known; known++)
            if (!strcmp(name, *known)) return open_one(dev, name, opts, err);
        return err_set(err, ERR_ARG, "device '%s' is not known: auto, cpu, cuda or ref", name);
    }
    Err why = { 0 };
    for (const char *const *known = dev_names; strcmp(*known, "ref") != 0; known++) {
        why = (Err){ 0 };
        if (!open_one(dev, *known, opts, &why)) return 0;
        if (why.kind == ERR_ARG)
            return err_set(err, ERR_ARG, "%s", why.msg); // ref would not do it either
    }
    if (note) snprintf(note, 256, "using the slow reference device: %.200s", why.msg);
    return open_one(dev, "ref", opts, err);
}

void dev_close(Dev *dev) {
    if (dev->be.close) dev->be.close(dev);
    // A module stays loaded: its thread pool may outlive the device, and unloading gains nothing.
    memset(dev, 0, sizeof *dev);
}

int dev_check(const Dev *dev, Err *err) {
    return dev->err.kind ? err_set(err, dev->err.kind, "%s", dev->err.msg) : 0;
}
