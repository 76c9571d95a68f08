// plot.c - see plot.h. The drawing itself is in plot_cairo.c.
#include "base/plot.h"
#include "base/file.h"
#include "base/module.h"
#include <stdlib.h>

int plot_draw(const Figure *f, PlotFormat format, char **data, size_t *n, Err *err) {
    PlotModule *draw = NULL;
    *data = NULL;
    if (module_load("plot", "jempp_plot", (void **)&draw, err)) return -1;
    FILE *out = open_memstream(data, n);
    int rc = out ? draw(sizeof *f, f, format, out, err) : -1;
    if (!out || fclose(out)) rc = err_set(err, ERR_MEM, "out of memory for a picture");
    if (!rc) return 0;
    free(*data);
    *data = NULL;
    return -1;
}

int plot_write(const Figure *f, PlotFormat format, const char *path, Err *err) {
    char *data;
    size_t n;
    if (plot_draw(f, format, &data, &n, err)) return -1;
    Writer w = writer_open(path);
    write_bytes(&w, data, n);
    free(data);
    return writer_close(&w, err);
}
