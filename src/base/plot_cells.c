// plot_cells.c - see plot_cells.h.
#include "base/plot_cells.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 120, LABEL_ROOM = 34, BELOW = 46 };

// ---- margins ------------------------------------------------------------------------------------

static double widest_name(cairo_t *c, const Panel *p) {
    double most = 0;
    pen_font(c, TICK_SIZE, 0);
    for (int i = 0; i < p->series[0].n; i++) most = fmax(most, pen_width(c, p->names[i]));
    return fmin(most, NAME_ROOM);
}

double cells_left(cairo_t *c, const Panel *p) { return widest_name(c, p) + LABEL_ROOM; }

// The names of columns are slanted.
double cells_bottom(cairo_t *c, const Panel *p) { return widest_name(c, p) * M_SQRT1_2 + BELOW; }

// ---- drawing ------------------------------------------------------------------------------------

static Rgb shade(double v) {
    v = isfinite(v) ? fmin(fmax(v, 0), 1) : 0;
    const Rgb d = { 0, .22, .42 };                          // dark blue: in grey it reads the same
    const double t = sqrt(v);                               // small shares are what one looks for
    return (Rgb){ 1 - t * (1 - d.r), 1 - t * (1 - d.g), 1 - t * (1 - d.b) };
}

static void cell_names(cairo_t *c, const Panel *p, int n, const Box *b) {
    const double size = b->w / n;
    const int every = size >= 12 ? 1 : (int)ceil(12 / size);
    pen_font(c, fmin(TICK_SIZE, fmax(8, size)), 0);
    pen_grey(c, 0.15);
    for (int i = 0; i < n; i += every) {
        const double mid = (i + 0.5) * size;
        pen_text(c, b->x - 6, b->y + mid + 4, p->names[i], 1, 0, NAME_ROOM);
        pen_text(c, b->x + mid + 4, b->y + b->h + 12, p->names[i], 1, -M_PI / 4, NAME_ROOM);
    }
}

static void shade_bar(cairo_t *c, const Box *b) {
    enum { PARTS = 50 };
    const double x = b->x + b->w + 14, h = b->h / PARTS;
    for (int i = 0; i < PARTS; i++) {
        pen_rgb(c, shade((i + 0.5) / PARTS));
        cairo_rectangle(c, x, b->y + b->h - (i + 1) * h, 14, h + 0.5);
        cairo_fill(c);
    }
    pen_frame(c, &(Box){ x, b->y, 14, b->h });
    pen_font(c, TICK_SIZE, 0);
    for (int i = 0; i <= 4; i++) {
        char s[16];
        snprintf(s, sizeof s, "%d %%", 25 * i);
        pen_text(c, x + 19, b->y + b->h * (1 - i / 4.0) + 4, s, 0, 0, 60);
    }
}

// One small picture, each cell a square of whole pixels: many classes stay a small file.
static void shade_cells(cairo_t *c, const Series *s, const Box *b) {
    const int n = s->n, pixels = n < 640 ? 640 / n : 1, side = n * pixels;
    cairo_surface_t *im = cairo_image_surface_create(CAIRO_FORMAT_RGB24, side, side);
    unsigned char *p = cairo_image_surface_get_data(im);
    if (!p) {
        cairo_surface_destroy(im);
        return;
    }
    cairo_surface_flush(im);
    const int stride = cairo_image_surface_get_stride(im);
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            const Rgb v = shade(s->y[(size_t)(i / pixels) * (size_t)n + (size_t)(k / pixels)]);
            const uint32_t word = (uint32_t)lround(255 * v.r) << 16 |
                                  (uint32_t)lround(255 * v.g) << 8 | (uint32_t)lround(255 * v.b);
            memcpy(p + (size_t)i * (size_t)stride + 4 * (size_t)k, &word, 4);
        }
    cairo_surface_mark_dirty(im);
    cairo_save(c);
    cairo_translate(c, b->x, b->y);
    cairo_scale(c, b->w / side, b->h / side);
    cairo_set_source_surface(c, im, 0, 0);
    cairo_paint(c);
    cairo_restore(c);
    cairo_surface_destroy(im);
}

// Percentages, where a cell has room for one.
static void number_cells(cairo_t *c, const Series *s, const Box *b) {
    const int n = s->n;
    const double size = b->w / n;
    for (int i = 0; size >= 18 && i < n * n; i++) {
        char percent[16];
        const double v = 100 * s->y[i];
        if (!(v >= 0.05)) continue;
        snprintf(percent, sizeof percent, v < 9.95 ? "%.1f" : "%.0f", v);
        pen_font(c, fmin(TICK_SIZE, size * 0.4), 0);
        pen_grey(c, v > 30 ? 1 : 0);
        pen_text(c, b->x + (i % n + 0.5) * size, b->y + (i / n + 0.5) * size + 4, percent, 0.5, 0,
                 size);
    }
}

void cells_draw(cairo_t *c, const Panel *p, const Box *b) {
    const Series *cells = &p->series[0];
    const double label_y = b->y + b->h + cells_bottom(c, p) - 12;
    shade_cells(c, cells, b);
    number_cells(c, cells, b);
    pen_frame(c, b);
    cell_names(c, p, cells->n, b);
    shade_bar(c, b);
    pen_font(c, LABEL_SIZE, 0);
    if (p->x_label) pen_text(c, b->x + b->w / 2, label_y, p->x_label, 0.5, 0, b->w);
}
