// plot_cells.h - a square of shaded cells with the names of rows and columns: PLOT_CELLS.
#ifndef PLOT_CELLS_H
#define PLOT_CELLS_H
#include "base/plot_pen.h"

// Margins beside and below the cells: the names and the axes' labels.
double cells_left(cairo_t *c, const Panel *p);
double cells_bottom(cairo_t *c, const Panel *p);
void   cells_draw(cairo_t *c, const Panel *p, const Box *b);
#endif
