// plot.h - plots as data, drawn as PNG or SVG.
//
// An ink is a colour (of Okabe and Ito's palette, which colour-blind readers can distinguish), a
// dash and a marker at once, so that lines differ in black and white too. A module (jempp-plot.so)
// draws with cairo, so the program also starts where cairo is not installed.
#ifndef PLOT_H
#define PLOT_H
#include "base/err.h"
#include <stddef.h>
#include <stdio.h>

typedef enum {
    INK_BLUE, INK_RED, INK_GREEN, INK_PURPLE, INK_ORANGE, INK_SKY, INK_BLACK, INK_GREY, N_INK
} Ink;

typedef enum {
    PLOT_LINE,               // through n points (x, y); NaN interrupts it
    PLOT_HIST,               // n heights y between n + 1 edges x: one hatched shape
    PLOT_BARS,               // the same, each bar with its own outline
    PLOT_MARKS,              // n vertical lines at x
    PLOT_CELLS,              // n x n values y in [0, 1] as shades, rows from the top; alone
} PlotKind;

typedef struct {
    PlotKind      kind;
    Ink           ink;
    const char   *label;     // in the legend; NULL: not there
    int           n;
    const double *x, *y;
} Series;

enum { PLOT_SERIES = 20 };
typedef struct {
    const char *title, *x_label, *y_label;      // NULL: none
    double      x_lo, x_hi, y_lo, y_hi;         // what the axes span; lo = hi: what the data does
    int         y_log;                          // y is log10 of a value; ticks show the value
    double      tall;                           // height against the other rows'; 0: 1
    Series      series[PLOT_SERIES];
    int         n;
    const char *const *names;                   // of rows and columns of PLOT_CELLS
} Panel;

typedef struct {
    int          w, h;                          // SVG points; a PNG has PLOT_SCALE pixels for each
    int          columns, n;                    // panels, row by row
    const Panel *panel;
} Figure;

enum { PLOT_SCALE = 2, PLOT_MAX_SIDE = 4096 };
typedef enum { PLOT_PNG, PLOT_SVG } PlotFormat;

// The picture as *n malloc'd bytes. ERR_DEV: this build or this machine draws no pictures.
int plot_draw(const Figure *f, PlotFormat format, char **data, size_t *n, Err *err);
// ... into `path`.
int plot_write(const Figure *f, PlotFormat format, const char *path, Err *err);

// What the module exports as "jempp_plot".
typedef int PlotModule(size_t figure_size, const Figure *f, PlotFormat format, FILE *out, Err *err);
#endif
