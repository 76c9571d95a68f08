// plot_pen.c - see plot_pen.h.
#include "base/plot_pen.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

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

void pen_rgb(cairo_t *c, Rgb k) { cairo_set_source_rgb(c, k.r, k.g, k.b); }
void pen_grey(cairo_t *c, double v) { pen_rgb(c, (Rgb){ v, v, v }); }

// ---- text ---------------------------------------------------------------------------------

void pen_font(cairo_t *c, double size, int bold) {
    cairo_select_font_face(c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c, size);
}

double pen_width(cairo_t *c, const char *s) {
    cairo_text_extents_t e;
    cairo_text_extents(c, s, &e);
    return e.x_advance;
}

const char *pen_fit(cairo_t *c, const char *s, double room, char dst[256]) {
    int n = strlen(s) < 250 ? (int)strlen(s) : 250;
    for (int cut = s[n] != 0;; cut = 1) {
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
        snprintf(dst, 256, "%.*s%s", n, s, cut ? "..." : "");
        if (n == 0 || pen_width(c, dst) <= room) return dst;
        n--;
    }
}

void pen_text(cairo_t *c, double x, double y, const char *s, double anchor, double angle,
              double room) {
    char cut[256];
    pen_fit(c, s, room, cut);
    cairo_save(c);
    cairo_move_to(c, x, y);
    cairo_rotate(c, angle);
    cairo_rel_move_to(c, -anchor * pen_width(c, cut), 0);
    cairo_show_text(c, cut);
    cairo_restore(c);
}

// ---- lines and areas ------------------------------------------------------------------------

void pen_line(cairo_t *c, double x0, double y0, double x1, double y1) {
    cairo_move_to(c, x0, y0);
    cairo_line_to(c, x1, y1);
    cairo_stroke(c);
}

void pen_frame(cairo_t *c, const Box *b) {
    pen_grey(c, 0.3);
    cairo_set_line_width(c, 1);
    cairo_rectangle(c, b->x, b->y, b->w, b->h);
    cairo_stroke(c);
}

void pen_ink(cairo_t *c, Ink ink, double width) {
    pen_rgb(c, INKS[ink].colour);
    cairo_set_line_width(c, width);
    cairo_set_dash(c, INKS[ink].dash, INKS[ink].n_dash, 0);
}

void pen_solid(cairo_t *c, Ink ink, double width) {
    pen_rgb(c, INKS[ink].colour);
    cairo_set_line_width(c, width);
    cairo_set_dash(c, NULL, 0, 0);
}

void pen_marker(cairo_t *c, Ink ink, double x, double y) {
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
    pen_solid(c, ink, 1.6);
    if (INKS[ink].marker == 'x' || INKS[ink].marker == '+') cairo_stroke(c);
    else cairo_fill(c);
}

void pen_hatch(cairo_t *c, Ink ink, const Box *b) {
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
