// plot_cairo.c - draws plot.h's figures: the module jempp-plot.so. The only user of cairo.
#include "base/plot_axis.h"
#include <cairo/cairo-svg.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    double r, g, b;
} Rgb;

// Vermillion for red, bluish green for green; yellow is left out, white paper swallows it.
static const struct {
    Rgb    colour;
    double dash[4];
    int    n_dash;
    char   marker;
} INKS[N_INK] = {
    [INK_BLUE] = { { 0, .447, .698 }, { 0 }, 0, 'o' },
    [INK_RED] = { { .835, .369, 0 }, { 7, 3 }, 2, 's' },
    [INK_GREEN] = { { 0, .62, .451 }, { 2, 2 }, 2, '^' },
    [INK_PURPLE] = { { .8, .475, .655 }, { 8, 3, 2, 3 }, 4, 'd' },
    [INK_ORANGE] = { { .902, .624, 0 }, { 12, 4 }, 2, 'v' },
    [INK_SKY] = { { .337, .706, .914 }, { 4, 2 }, 2, 'x' },
    [INK_BLACK] = { { 0, 0, 0 }, { 1, 3 }, 2, '+' },
    [INK_GREY] = { { .45, .45, .45 }, { 4, 4 }, 2, 0 },
};

enum {
    TICK_SIZE = 12,
    LABEL_SIZE = 13,
    TITLE_SIZE = 14,
    LEGEND_ROW = 19,
    SAMPLE = 34,
    NAME_ROOM = 120
};

typedef struct {
    double x, y, w, h;
} Box;

static void rgb(cairo_t *c, Rgb k) { cairo_set_source_rgb(c, k.r, k.g, k.b); }
static void grey(cairo_t *c, double v) { rgb(c, (Rgb){ v, v, v }); }

// ---- text ---------------------------------------------------------------------------------

static void font(cairo_t *c, double size, int bold) {
    cairo_select_font_face(c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c, size);
}

static double width_of(cairo_t *c, const char *s) {
    cairo_text_extents_t e;
    cairo_text_extents(c, s, &e);
    return e.x_advance;
}

// s, cut behind a whole character and with "..." where it is wider than `room`.
static const char *fit(cairo_t *c, const char *s, double room, char dst[256]) {
    int n = strlen(s) < 250 ? (int)strlen(s) : 250;
    for (int cut = s[n] != 0;; cut = 1) {
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
        snprintf(dst, 256, "%.*s%s", n, s, cut ? "..." : "");
        if (n == 0 || width_of(c, dst) <= room) return dst;
        n--;
    }
}

// Text with its anchor (0 left, 0.5 middle, 1 right) at x and its baseline at y, rotated by `angle`
// and shortened to `room`.
static void text(cairo_t *c, double x, double y, const char *s, double anchor, double angle,
                 double room) {
    char cut[256];
    fit(c, s, room, cut);
    cairo_save(c);
    cairo_move_to(c, x, y);
    cairo_rotate(c, angle);
    cairo_rel_move_to(c, -anchor * width_of(c, cut), 0);
    cairo_show_text(c, cut);
    cairo_restore(c);
}

// ---- axes ---------------------------------------------------------------------------------

static double at_x(const Box *b, const Axis *a, double v) {
    return b->x + b->w * (v - a->lo) / (a->hi - a->lo);
}

static double at_y(const Box *b, const Axis *a, double v) {
    return b->y + b->h * (1 - (v - a->lo) / (a->hi - a->lo));
}

static void line(cairo_t *c, double x0, double y0, double x1, double y1) {
    cairo_move_to(c, x0, y0);
    cairo_line_to(c, x1, y1);
    cairo_stroke(c);
}

static void draw_axes(cairo_t *c, const Panel *p, const Box *b, const Axis *x, const Axis *y) {
    char s[32];
    font(c, TICK_SIZE, 0);
    cairo_set_line_width(c, 0.7);
    for (int i = 0; i < axis_n_ticks(x); i++) {
        const double v = axis_tick(x, i), at = at_x(b, x, v);
        grey(c, 0.88);
        line(c, at, b->y, at, b->y + b->h);
        axis_tick_text(s, v, x->step, 0);
        grey(c, 0.15);
        text(c, at, b->y + b->h + 16, s, 0.5, 0, 200);
    }
    for (int i = 0; i < axis_n_ticks(y); i++) {
        const double v = axis_tick(y, i), at = at_y(b, y, v);
        grey(c, 0.88);
        line(c, b->x, at, b->x + b->w, at);
        axis_tick_text(s, v, y->step, p->y_log);
        grey(c, 0.15);
        text(c, b->x - 6, at + 4, s, 1, 0, 200);
    }
    font(c, LABEL_SIZE, 0);
    if (p->x_label) text(c, b->x + b->w / 2, b->y + b->h + 35, p->x_label, 0.5, 0, b->w);
}

static void draw_frame(cairo_t *c, const Box *b) {
    grey(c, 0.3);
    cairo_set_line_width(c, 1);
    cairo_rectangle(c, b->x, b->y, b->w, b->h);
    cairo_stroke(c);
}

// ---- series -------------------------------------------------------------------------------

static void use_ink(cairo_t *c, Ink ink, double width) {
    rgb(c, INKS[ink].colour);
    cairo_set_line_width(c, width);
    cairo_set_dash(c, INKS[ink].dash, INKS[ink].n_dash, 0);
}

static void marker(cairo_t *c, Ink ink, double x, double y) {
    const double r = 3.4;
    cairo_new_path(c);
    switch (INKS[ink].marker) {
    case 'o': cairo_arc(c, x, y, r, 0, 2 * M_PI); break;
    case 's': cairo_rectangle(c, x - r * 0.9, y - r * 0.9, 1.8 * r, 1.8 * r); break;
    case '^':
    case 'v': {
        const double up = INKS[ink].marker == '^' ? r : -r;
        cairo_move_to(c, x, y - 1.2 * up);
        cairo_line_to(c, x + 1.15 * r, y + 0.9 * up);
        cairo_line_to(c, x - 1.15 * r, y + 0.9 * up);
        cairo_close_path(c);
        break;
    }
    case 'd':
        cairo_move_to(c, x, y - 1.35 * r);
        cairo_line_to(c, x + 1.35 * r, y);
        cairo_line_to(c, x, y + 1.35 * r);
        cairo_line_to(c, x - 1.35 * r, y);
        cairo_close_path(c);
        break;
    case 'x':
    case '+': {
        const double t = INKS[ink].marker == 'x' ? r : 0, u = INKS[ink].marker == 'x' ? r : 1.3 * r;
        cairo_move_to(c, x - u, y - t);
        cairo_line_to(c, x + u, y + t);
        cairo_move_to(c, x - t, y + u);
        cairo_line_to(c, x + t, y - u);
        break;
    }
    default: return;
    }
    cairo_set_dash(c, NULL, 0, 0);
    rgb(c, INKS[ink].colour);
    cairo_set_line_width(c, 1.6);
    if (INKS[ink].marker == 'x' || INKS[ink].marker == '+') cairo_stroke(c);
    else cairo_fill(c);
}

// Of more than 24 points about ten have markers, at other places for each line of a panel.
static void draw_line(cairo_t *c, const Series *s, int turn, const Box *b, const Axis *x,
                      const Axis *y) {
    int pen_down = 0, finite = 0;
    use_ink(c, s->ink, 1.8);
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
            marker(c, s->ink, at_x(b, x, s->x[i]), at_y(b, y, s->y[i]));
    }
    cairo_set_dash(c, NULL, 0, 0);
}

// Slanted lines over a box, clipped to the path that is set. Each ink has a slant of its own.
static void hatch(cairo_t *c, Ink ink, const Box *b) {
    const double slant = ink % 2 ? 1 : -1, gap = 6;
    cairo_save(c);
    cairo_clip_preserve(c);
    cairo_path_t *outline = cairo_copy_path(c);
    cairo_new_path(c);
    const Rgb k = INKS[ink].colour;
    cairo_set_source_rgba(c, k.r, k.g, k.b, 0.18);
    cairo_paint(c);
    cairo_set_source_rgba(c, k.r, k.g, k.b, 0.55);
    cairo_set_line_width(c, 0.8);
    for (int i = 0; i * gap < b->w + 2 * b->h; i++) {
        const double at = b->x - b->h + i * gap;
        cairo_move_to(c, at, slant > 0 ? b->y : b->y + b->h);
        cairo_line_to(c, at + b->h, slant > 0 ? b->y + b->h : b->y);
    }
    cairo_stroke(c);
    cairo_restore(c);
    cairo_append_path(c, outline);
    cairo_path_destroy(outline);
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
    hatch(c, s->ink, b);
    rgb(c, INKS[s->ink].colour);
    cairo_set_line_width(c, s->ink == INK_GREEN ? 2 : 1.4);
    cairo_stroke(c);
}

static void draw_marks(cairo_t *c, const Series *s, const Box *b, const Axis *x) {
    use_ink(c, s->ink, 1.6);
    for (int i = 0; i < s->n; i++) {
        if (!isfinite(s->x[i])) continue;
        cairo_move_to(c, at_x(b, x, s->x[i]), b->y);
        cairo_line_to(c, at_x(b, x, s->x[i]), b->y + b->h);
    }
    cairo_stroke(c);
    cairo_set_dash(c, NULL, 0, 0);
}

// ---- cells --------------------------------------------------------------------------------

static Rgb shade(double v) {
    v = isfinite(v) ? fmin(fmax(v, 0), 1) : 0;
    const Rgb d = { 0, .22, .42 };                          // dark blue: in grey it reads the same
    const double t = sqrt(v);                               // small shares are what one looks for
    return (Rgb){ 1 - t * (1 - d.r), 1 - t * (1 - d.g), 1 - t * (1 - d.b) };
}

static void cell_names(cairo_t *c, const Panel *p, int n, const Box *b) {
    const double size = b->w / n;
    const int every = size >= 12 ? 1 : (int)ceil(12 / size);
    font(c, fmin(TICK_SIZE, fmax(8, size)), 0);
    grey(c, 0.15);
    for (int i = 0; i < n; i += every) {
        const double mid = (i + 0.5) * size;
        text(c, b->x - 6, b->y + mid + 4, p->names[i], 1, 0, NAME_ROOM);
        text(c, b->x + mid + 4, b->y + b->h + 12, p->names[i], 1, -M_PI / 4, NAME_ROOM);
    }
}

static void shade_bar(cairo_t *c, const Box *b) {
    enum { PARTS = 50 };
    const double x = b->x + b->w + 14, h = b->h / PARTS;
    for (int i = 0; i < PARTS; i++) {
        rgb(c, shade((i + 0.5) / PARTS));
        cairo_rectangle(c, x, b->y + b->h - (i + 1) * h, 14, h + 0.5);
        cairo_fill(c);
    }
    draw_frame(c, &(Box){ x, b->y, 14, b->h });
    font(c, TICK_SIZE, 0);
    for (int i = 0; i <= 4; i++) {
        char s[16];
        snprintf(s, sizeof s, "%d %%", 25 * i);
        text(c, x + 19, b->y + b->h * (1 - i / 4.0) + 4, s, 0, 0, 60);
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
        font(c, fmin(TICK_SIZE, size * 0.4), 0);
        grey(c, v > 30 ? 1 : 0);
        text(c, b->x + (i % n + 0.5) * size, b->y + (i / n + 0.5) * size + 4, percent, 0.5, 0,
             size);
    }
}

// ---- panels -------------------------------------------------------------------------------

// Draws the legend from (x, y) rightwards, in rows; returns its height.
static double legend(cairo_t *c, const Panel *p, double x, double y, double w) {
    double at = 0;
    int rows = 0;
    font(c, TICK_SIZE, 0);
    for (int k = 0; k < p->n; k++) {
        const Series *s = &p->series[k];
        char cut[256];
        if (!s->label) continue;
        fit(c, s->label, w - SAMPLE - 8, cut);
        const double need = SAMPLE + 6 + width_of(c, cut) + 16;
        if (!rows || at + need - 16 > w) at = 0, rows++;
        const double mid = y + rows * LEGEND_ROW - 10, lx = x + at;
        at += need;
        if (is_hist(s)) {
            const Box sample = { lx, mid - 6, SAMPLE - 6, 12 };
            cairo_rectangle(c, sample.x, sample.y, sample.w, sample.h);
            hatch(c, s->ink, &sample);
            rgb(c, INKS[s->ink].colour);
            cairo_set_line_width(c, 1.4);
            cairo_stroke(c);
        } else {
            use_ink(c, s->ink, 1.8);
            line(c, lx, mid, lx + SAMPLE - 4, mid);
            if (s->kind == PLOT_LINE) marker(c, s->ink, lx + (SAMPLE - 4) / 2.0, mid);
            cairo_set_dash(c, NULL, 0, 0);
        }
        grey(c, 0.1);
        text(c, lx + SAMPLE + 2, mid + 4, cut, 0, 0, w);
    }
    return rows * LEGEND_ROW;
}

static const Series *cells_of(const Panel *p) {
    return p->n == 1 && p->series[0].kind == PLOT_CELLS ? &p->series[0] : NULL;
}

static double left_margin(cairo_t *c, const Panel *p, int want) {
    double most = 0;
    const Series *cells = cells_of(p);
    font(c, TICK_SIZE, 0);
    if (cells) {
        for (int i = 0; i < cells->n; i++) most = fmax(most, width_of(c, p->names[i]));
        return fmin(most, NAME_ROOM) + 34;
    }
    const Axis y = axis_y(p, want);
    for (int i = 0; i < axis_n_ticks(&y); i++) {
        char s[32];
        axis_tick_text(s, axis_tick(&y, i), y.step, p->y_log);
        most = fmax(most, width_of(c, s));
    }
    return most + (p->y_label ? 34 : 14);
}

// Below cells stand the names of their columns, slanted, and the label of the axis.
static double bottom_margin(cairo_t *c, const Panel *p) {
    const Series *cells = cells_of(p);
    double most = 0;
    if (!cells) return p->x_label ? 46 : 26;
    font(c, TICK_SIZE, 0);
    for (int i = 0; i < cells->n; i++) most = fmax(most, width_of(c, p->names[i]));
    return fmin(most, NAME_ROOM) * M_SQRT1_2 + 46;
}

static void draw_cells(cairo_t *c, const Panel *p, const Box *b, double bottom) {
    const Series *cells = cells_of(p);
    shade_cells(c, cells, b);
    number_cells(c, cells, b);
    draw_frame(c, b);
    cell_names(c, p, cells->n, b);
    shade_bar(c, b);
    font(c, LABEL_SIZE, 0);
    if (p->x_label) text(c, b->x + b->w / 2, b->y + b->h + bottom - 12, p->x_label, 0.5, 0, b->w);
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
    draw_frame(c, b);
}

// From the top: title, legend, the plot; its label stands left of the ticks' numbers.
static void draw_panel(cairo_t *c, const Panel *p, const Box *all, double left) {
    const int is_cells = cells_of(p) != NULL, want = all->h < 200 ? 3 : 5;
    const double right = is_cells ? 78 : 18, bottom = bottom_margin(c, p);
    Box b = { all->x + left, all->y + 8, all->w - left - right, all->h - bottom - 8 };
    if (p->title) {
        b.y += 20, b.h -= 20;
        font(c, TITLE_SIZE, 1);
        grey(c, 0.05);
        text(c, b.x, all->y + 20, p->title, 0, 0, b.w);
    }
    const double rows = legend(c, p, b.x, b.y, b.w);
    b.y += rows + 4, b.h -= rows + 4;
    if (is_cells) b.w = b.h = fmin(b.w, b.h);
    const double label_x = b.x - left_margin(c, p, want) + 14;
    font(c, LABEL_SIZE, 0);
    grey(c, 0.15);
    if (p->y_label) text(c, label_x, b.y + b.h / 2, p->y_label, 0.5, -M_PI / 2, b.h + 20);
    if (is_cells) draw_cells(c, p, &b, bottom);
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
    grey(c, 1);
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
