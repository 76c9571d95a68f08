// backend.c - opens devices by name.
#include "dev/backend.h"
#include "base/module.h"
#include <stdio.h>
#include <string.h>

const char *const dev_names[] = { "cuda", "cpu", "ref", NULL };

static int open_one(Dev *dev, const char *name, const DevOpts *opts, Err *err) {
    memset(dev, 0, sizeof *dev);
    ref_table(&dev->be);
    dev->events = opts->events;
    if (strcmp(name, "ref") != 0) {
        // a function pointer comes out of a library as an object pointer; POSIX says this is how
        BackendModule *fill = NULL;
        if (module_load(name, "jempp_backend", (void **)&fill, err)) return -1;
        if (fill(BACKEND_ABI, sizeof dev->be, &dev->be, err))
            return err_set(err, ERR_DEV, "jempp-%s.so is not a module of this version of jempp",
                           name);
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
        return err_set(err, ERR_ARG, "no such device '%s': expected auto, cpu, cuda or ref", name);
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
    memset(dev, 0, sizeof *dev);
}

int dev_search_end(Dev *dev, Err *err) {
    const int rc = dev_check(dev, err);
    const uint64_t n = (uint64_t)dev->conv_count;
    if (!rc && dev->searched) tell_progress(dev->events, n, n, "convolutions", "");
    if (dev->search_stopped) dev->err = (Err){ 0 };
    return rc;
}

int dev_check(const Dev *dev, Err *err) {
    return dev->err.kind ? err_set(err, dev->err.kind, "%s", dev->err.msg) : 0;
}

void dev_recover(Dev *dev) {
    if (dev->err.kind == ERR_MEM) dev->err = (Err){ 0 };
}
