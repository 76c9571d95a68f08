// plot_axis.h - the axes of a panel as numbers: what they span, and where their ticks are.
#ifndef PLOT_AXIS_H
#define PLOT_AXIS_H
#include "base/plot.h"

typedef struct { double lo, hi, step; } Axis;           // step: from tick to tick

// Over what the panel asks for, else over its data. want: about how many ticks the y axis has.
Axis   axis_x(const Panel *p);
Axis   axis_y(const Panel *p, int want);
int    axis_n_ticks(const Axis *a);
double axis_tick(const Axis *a, int i);
void   axis_tick_text(char dst[32], double v, double step, int is_log);

static inline int is_hist(const Series *s) {
    return s->kind == PLOT_HIST || s->kind == PLOT_BARS;
}
#endif
