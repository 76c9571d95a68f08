// plot_pen.h - what the parts of a figure are drawn with: inks, text, lines. Part of jempp-plot.so.
#ifndef PLOT_PEN_H
#define PLOT_PEN_H
#include "base/plot.h"
#include <cairo/cairo.h>

typedef struct { double r, g, b; } Rgb;
typedef struct { double x, y, w, h; } Box;
enum { TICK_SIZE = 12, LABEL_SIZE = 13, TITLE_SIZE = 14 };             // of fonts

void   pen_rgb(cairo_t *c, Rgb k);
void   pen_grey(cairo_t *c, double v);                                 // 0: black, 1: white

void   pen_font(cairo_t *c, double size, int bold);
double pen_width(cairo_t *c, const char *s);
// s, cut behind a whole character and with "..." where it is wider than `room`. Returns dst.
const char *pen_fit(cairo_t *c, const char *s, double room, char dst[256]);
// Text with its anchor (0 left, 0.5 middle, 1 right) at x and its baseline at y, rotated by `angle`
// and shortened to `room`.
void   pen_text(cairo_t *c, double x, double y, const char *s, double anchor, double angle,
                double room);

void   pen_line(cairo_t *c, double x0, double y0, double x1, double y1);
void   pen_frame(cairo_t *c, const Box *b);
void   pen_ink(cairo_t *c, Ink ink, double width);                     // with its dash,
void   pen_solid(cairo_t *c, Ink ink, double width);                   // and without
void   pen_marker(cairo_t *c, Ink ink, double x, double y);
// Slanted lines over a box, clipped to the path that is set. Each ink has a slant of its own.
void   pen_hatch(cairo_t *c, Ink ink, const Box *b);
#endif
