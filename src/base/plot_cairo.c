// plot_cairo.c - draws plot.h's figures: the module jempp-plot.so, whose files alone use cairo.
#include "base/plot_axis.h"
#include "base/plot_cells.h"
#include <cairo/cairo-svg.h>
#include <math.h>

// ---- axes ---------------------------------------------------------------------------------

static double at_x(const Box *b, const Axis *a, double v) {
    return b->x + b->w * (v - a->lo) / (a->hi - a->lo);
}

static double at_y(const Box *b, const Axis *a, double v) {
    return b->y + b->h * (1 - (v - a->lo) / (a->hi - a->lo));
}

static void draw_axes(cairo_t *c, const Panel *p, const Box *b, const Axis *x, const Axis *y) {
    char s[32];
    pen_font(c, TICK_SIZE, 0);
    cairo_set_line_width(c, 0.7);
    for (int i = 0; i < axis_n_ticks(x); i++) {
        const double v = axis_tick(x, i), at = at_x(b, x, v);
        pen_grey(c, 0.88);
        pen_line(c, at, b->y, at, b->y + b->h);
        axis_tick_text(s, v, x->step, 0);
        pen_grey(c, 0.15);
        pen_text(c, at, b->y + b->h + 16, s, 0.5, 0, 200);
    }
    for (int i = 0; i < axis_n_ticks(y); i++) {
        const double v = axis_tick(y, i), at = at_y(b, y, v);
        pen_grey(c, 0.88);
        pen_line(c, b->x, at, b->x + b->w, at);
        axis_tick_text(s, v, y->step, p->y_log);
        pen_grey(c, 0.15);
        pen_text(c, b->x - 6, at + 4, s, 1, 0, 200);
    }
    pen_font(c, LABEL_SIZE, 0);
    if (p->x_label) pen_text(c, b->x + b->w / 2, b->y + b->h + 35, p->x_label, 0.5, 0, b->w);
}

// ---- series -------------------------------------------------------------------------------

// Of more than 24 points about ten have markers, at other places for each line of a panel.
static void draw_line(cairo_t *c, const Series *s, int turn, const Box *b, const Axis *x,
                      const Axis *y) {
    int pen_down = 0, finite = 0;
    pen_ink(c, s->ink, 1.8);
    for (int i = 0; i < s->n; i++) {
        const int ok = isfinite(s->x[i]) && isfinite(s->y[i]);
        if (ok && pen_down) cairo_line_to(c, at_x(b, x, s->x[i]), at_y(b, y, s->y[i]));
        else if (ok) cairo_move_to(c, at_x(b, x, s->x[i]), at_y(b, y, s->y[i]));
        pen_down = ok;
        finite += ok;
    }
    cairo_stroke(c);
    const int every = finite > 24 ? (finite + 9) / 10 : 1;
    for (int i = 0, seen = 0; i < s->n; i++) {
        if (!isfinite(s->x[i]) || !isfinite(s->y[i])) continue;
        if (seen++ % every == (every > 1 ? turn * every / 4 % every : 0))
            pen_marker(c, s->ink, at_x(b, x, s->x[i]), at_y(b, y, s->y[i]));
    }
    cairo_set_dash(c, NULL, 0, 0);
}

static void draw_hist(cairo_t *c, const Series *s, const Box *b, const Axis *x, const Axis *y,
                      int is_log) {
    const double base = at_y(b, y, is_log ? y->lo : fmax(0, y->lo));
    cairo_new_path(c);
    if (s->kind == PLOT_HIST) cairo_move_to(c, at_x(b, x, s->x[0]), base);
    for (int i = 0; i < s->n; i++) {
        const double l = at_x(b, x, s->x[i]), r = at_x(b, x, s->x[i + 1]);
        const double top = isfinite(s->y[i]) ? at_y(b, y, s->y[i]) : base;
        if (s->kind == PLOT_BARS) {
            if (top != base) cairo_rectangle(c, l, top, r - l, base - top);
            continue;
        }
        cairo_line_to(c, l, top);
        cairo_line_to(c, r, top);
    }
    if (s->kind == PLOT_HIST) cairo_line_to(c, at_x(b, x, s->x[s->n]), base);
    pen_hatch(c, s->ink, b);
    pen_solid(c, s->ink, s->ink == INK_GREEN ? 2 : 1.4);
    cairo_stroke(c);
}

static void draw_marks(cairo_t *c, const Series *s, const Box *b, const Axis *x) {
    pen_ink(c, s->ink, 1.6);
    for (int i = 0; i < s->n; i++) {
        if (!isfinite(s->x[i])) continue;
        cairo_move_to(c, at_x(b, x, s->x[i]), b->y);
        cairo_line_to(c, at_x(b, x, s->x[i]), b->y + b->h);
    }
    cairo_stroke(c);
    cairo_set_dash(c, NULL, 0, 0);
}

// ---- panels -------------------------------------------------------------------------------

enum { LEGEND_ROW = 19, SAMPLE = 34 };

// Draws the legend from (x, y) rightwards, in rows; returns its height.
static double legend(cairo_t *c, const Panel *p, double x, double y, double w) {
    double at = 0;
    int rows = 0;
    pen_font(c, TICK_SIZE, 0);
    for (int k = 0; k < p->n; k++) {
        const Series *s = &p->series[k];
        char cut[256];
        if (!s->label) continue;
        pen_fit(c, s->label, w - SAMPLE - 8, cut);
        const double need = SAMPLE + 6 + pen_width(c, cut) + 16;
        if (!rows || at + need - 16 > w) at = 0, rows++;
        const double mid = y + rows * LEGEND_ROW - 10, lx = x + at;
        at += need;
        if (is_hist(s)) {
            const Box sample = { lx, mid - 6, SAMPLE - 6, 12 };
            cairo_rectangle(c, sample.x, sample.y, sample.w, sample.h);
            pen_hatch(c, s->ink, &sample);
            pen_solid(c, s->ink, 1.4);
            cairo_stroke(c);
        } else {
            pen_ink(c, s->ink, 1.8);
            pen_line(c, lx, mid, lx + SAMPLE - 4, mid);
            if (s->kind == PLOT_LINE) pen_marker(c, s->ink, lx + (SAMPLE - 4) / 2.0, mid);
            cairo_set_dash(c, NULL, 0, 0);
        }
        pen_grey(c, 0.1);
        pen_text(c, lx + SAMPLE + 2, mid + 4, cut, 0, 0, w);
    }
    return rows * LEGEND_ROW;
}

static int is_cells(const Panel *p) { return p->n == 1 && p->series[0].kind == PLOT_CELLS; }

static double left_margin(cairo_t *c, const Panel *p, int want) {
    double most = 0;
    if (is_cells(p)) return cells_left(c, p);
    pen_font(c, TICK_SIZE, 0);
    const Axis y = axis_y(p, want);
    for (int i = 0; i < axis_n_ticks(&y); i++) {
        char s[32];
        axis_tick_text(s, axis_tick(&y, i), y.step, p->y_log);
        most = fmax(most, pen_width(c, s));
    }
    return most + (p->y_label ? 34 : 14);
}

static double bottom_margin(cairo_t *c, const Panel *p) {
    return is_cells(p) ? cells_bottom(c, p) : p->x_label ? 46 : 26;
}

static void draw_series(cairo_t *c, const Panel *p, const Box *b, int want) {
    const Axis x = axis_x(p), y = axis_y(p, want);
    draw_axes(c, p, b, &x, &y);
    for (int k = 0; k < p->n; k++) {
        const Series *s = &p->series[k];
        const double over = s->kind == PLOT_LINE ? 4 : 0;         // markers at the edge stay whole
        cairo_save(c);
        cairo_rectangle(c, b->x - over, b->y - over, b->w + 2 * over, b->h + 2 * over);
        cairo_clip(c);
        if (is_hist(s)) draw_hist(c, s, b, &x, &y, p->y_log);
        else if (s->kind == PLOT_MARKS) draw_marks(c, s, b, &x);
        else draw_line(c, s, k, b, &x, &y);
        cairo_restore(c);
    }
    pen_frame(c, b);
}

// From the top: title, legend, the plot; its label stands left of the ticks' numbers.
static void draw_panel(cairo_t *c, const Panel *p, const Box *all, double left) {
    const int cells = is_cells(p), want = all->h < 200 ? 3 : 5;
    const double right = cells ? 78 : 18;
    Box b = { all->x + left, all->y + 8, all->w - left - right, all->h - bottom_margin(c, p) - 8 };
    if (p->title) {
        b.y += 20, b.h -= 20;
        pen_font(c, TITLE_SIZE, 1);
        pen_grey(c, 0.05);
        pen_text(c, b.x, all->y + 20, p->title, 0, 0, b.w);
    }
    const double rows = legend(c, p, b.x, b.y, b.w);
    b.y += rows + 4, b.h -= rows + 4;
    if (cells) b.w = b.h = fmin(b.w, b.h);
    const double label_x = b.x - left_margin(c, p, want) + 14;
    pen_font(c, LABEL_SIZE, 0);
    pen_grey(c, 0.15);
    if (p->y_label) pen_text(c, label_x, b.y + b.h / 2, p->y_label, 0.5, -M_PI / 2, b.h + 20);
    if (cells) cells_draw(c, p, &b);
    else draw_series(c, p, &b, want);
}

static double row_height(const Figure *f, int row) {
    double tall = 0;
    for (int i = row * f->columns; i < f->n && i < (row + 1) * f->columns; i++)
        tall = fmax(tall, f->panel[i].tall > 0 ? f->panel[i].tall : 1);
    return tall;
}

// Panels of a figure share their left margin, so that axes stand below each other.
static void draw_figure(cairo_t *c, const Figure *f) {
    const int rows = (f->n + f->columns - 1) / f->columns;
    double total = 0, left = 0, y = 0;
    pen_grey(c, 1);
    cairo_paint(c);
    cairo_set_line_join(c, CAIRO_LINE_JOIN_ROUND);
    for (int r = 0; r < rows; r++) total += row_height(f, r);
    for (int i = 0; i < f->n; i++) left = fmax(left, left_margin(c, &f->panel[i], 5));
    for (int r = 0; r < rows; r++) {
        const double h = f->h * row_height(f, r) / total, w = (double)f->w / f->columns;
        for (int k = 0; k < f->columns && r * f->columns + k < f->n; k++)
            draw_panel(c, &f->panel[r * f->columns + k], &(Box){ k * w, y, w, h }, left);
        y += h;
    }
}

// ---- the module ---------------------------------------------------------------------------

static cairo_status_t give(void *out, const unsigned char *data, unsigned n) {
    return fwrite(data, 1, n, out) == n ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

__attribute__((visibility("default"))) PlotModule jempp_plot;

int jempp_plot(size_t figure_size, const Figure *f, PlotFormat format, FILE *out, Err *err) {
    if (figure_size != sizeof *f)
        return err_set(err, ERR_DEV, "jempp-plot.so was built for another version of this program");
    if (f->w < 1 || f->w > PLOT_MAX_SIDE || f->h < 1 || f->h > PLOT_MAX_SIDE || f->n < 1 ||
        f->columns < 1)
        return err_set(err, ERR_ARG, "a figure of %d x %d with %d panels", f->w, f->h, f->n);
    const int svg = format == PLOT_SVG;
    cairo_surface_t *s =
        svg ? cairo_svg_surface_create_for_stream(give, out, f->w, f->h)
            : cairo_image_surface_create(CAIRO_FORMAT_RGB24, PLOT_SCALE * f->w, PLOT_SCALE * f->h);
    cairo_t *c = cairo_create(s);
    if (!svg) cairo_scale(c, PLOT_SCALE, PLOT_SCALE);
    draw_figure(c, f);
    cairo_status_t rc = cairo_status(c);
    cairo_destroy(c);
    if (!rc && !svg) rc = cairo_surface_write_to_png_stream(s, give, out);
    cairo_surface_finish(s);
    if (!rc) rc = cairo_surface_status(s);
    cairo_surface_destroy(s);
    return rc ? err_set(err, ERR_DEV, "cairo: %s", cairo_status_to_string(rc)) : 0;
}
