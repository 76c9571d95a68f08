// figures.h - the figures of a run, as plot.h draws them.
#ifndef FIGURES_H
#define FIGURES_H
#include "base/plot.h"
#include "report/record.h"

typedef enum {
    FIG_CURVES, FIG_CONFUSION, FIG_RELIABILITY, FIG_DENSITY, FIG_ROC, FIG_ATTACK, N_FIGURE
} FigureId;

typedef struct { const char *file, *title, *caption; } FigureInfo;    // file: without its suffix
extern const FigureInfo figure_info[N_FIGURE];

// 1 and the figure, in arena memory; 0 where the record has nothing for it; -1: out of memory.
int figure_make(Figure *f, const Record *r, FigureId id, Arena *a, Err *err);
#endif
