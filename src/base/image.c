// image.c - see image.h: memory, resizing, grids. image_codec.c has the file formats.
#include "base/image.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int image_new(Image *im, int w, int h, int c, Err *err) {
    *im = (Image){ 0 };
    if (w < 1 || h < 1 || w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE || (c != 1 && c != 3))
        return err_set(err, ERR_ARG,
                       "a picture of %d x %d with %d channels: sides are 1 to %d, "
                       "channels 1 or 3",
                       w, h, c, IMAGE_MAX_SIDE);
    uint8_t *p = calloc((size_t)w * (size_t)h, (size_t)c);
    if (!p) return err_set(err, ERR_MEM, "out of memory for a picture of %d x %d", w, h);
    *im = (Image){ w, h, c, p };
    return 0;
}

void image_free(Image *im) {
    free(im->p);
    *im = (Image){ 0 };
}

// ---- colours

static uint8_t grey(const uint8_t *p) {          // as PIL's convert("L")
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

void image_convert(uint8_t *dst, int to, const uint8_t *src, int from, size_t n) {
    const int colours = from > 2 ? 3 : 1;
    for (size_t i = 0; i < n; i++, src += from, dst += to) {
        uint8_t v[3];
        const unsigned alpha = from == colours ? 255 : src[colours];
        for (int k = 0; k < 3; k++)
            v[k] = (uint8_t)((src[colours == 3 ? k : 0] * alpha + 255 * (255 - alpha) + 127) / 255);
        if (to == 3) memcpy(dst, v, 3);
        else *dst = colours == 3 ? grey(v) : v[0];
    }
}

// ---- orientation

// EXIF's numbers: 2 mirrored, 3 upside down, 4 both; 5 to 8 as 1 to 4 with rows for columns.
int image_upright(Image *im, int orientation, Err *err) {
    if (orientation < 2 || orientation > 8) return 0;
    const int swapped = orientation > 4, kind = swapped ? orientation - 4 : orientation;
    static const int LEFT[2][5] = { { 0, 0, 1, 1, 0 }, { 0, 0, 0, 1, 1 } };
    static const int UP[2][5] = { { 0, 0, 0, 1, 1 }, { 0, 0, 1, 1, 0 } };
    Image out;
    if (image_new(&out, swapped ? im->h : im->w, swapped ? im->w : im->h, im->c, err)) return -1;
    const size_t c = (size_t)im->c;
    uint8_t *to = out.p;
    for (int y = 0; y < out.h; y++)
        for (int x = 0; x < out.w; x++, to += c) {
            int sx = swapped ? y : x, sy = swapped ? x : y;
            if (LEFT[swapped][kind]) sx = im->w - 1 - sx;
            if (UP[swapped][kind]) sy = im->h - 1 - sy;
            memcpy(to, im->p + ((size_t)sy * (size_t)im->w + (size_t)sx) * c, c);
        }
    image_free(im);
    *im = out;
    return 0;
}

// ---- resizing: PIL's arithmetic (Resample.c), weights of 22 bits, bytes between the two passes

enum { WEIGHT_BITS = 22 };

typedef struct {
    int n, taps;
    int *first, *count;
    int32_t *k;
} Weights; // k[n][taps]

static void weights_free(Weights *w) {
    free(w->first);
    free(w->count);
    free(w->k);
}

// One output's weights: a triangle about its centre, two outputs wide (two inputs when enlarging).
static void weigh(Weights *w, int i, int in, double scale, double *v) {
    const double support = scale > 1 ? scale : 1, centre = (i + 0.5) * scale;
    const int lo = (int)(centre - support + 0.5), hi = (int)(centre + support + 0.5);
    const int first = lo > 0 ? lo : 0, count = (hi < in ? hi : in) - first;
    double sum = 0;
    for (int k = 0; k < count; k++) {
        const double x = fabs((k + first - centre + 0.5) * (1 / support));
        v[k] = x < 1 ? 1 - x : 0;
        sum += v[k];
    }
    int32_t *weight = w->k + (size_t)i * (size_t)w->taps;
    for (int k = 0; k < count; k++) weight[k] = (int32_t)(0.5 + v[k] / sum * (1 << WEIGHT_BITS));
    w->first[i] = first;
    w->count[i] = count;
}

static int weights_make(Weights *w, int in, int out) {
    const double scale = (double)in / out;
    const int taps = (int)ceil(scale > 1 ? scale : 1) * 2 + 1;
    *w = (Weights){ .n = out, .taps = taps };
    w->first = malloc((size_t)out * sizeof *w->first);
    w->count = malloc((size_t)out * sizeof *w->count);
    w->k = malloc((size_t)out * (size_t)taps * sizeof *w->k);
    double *v = malloc((size_t)taps * sizeof *v);
    const int ok = w->first && w->count && w->k && v;
    for (int i = 0; ok && i < out; i++) weigh(w, i, in, scale, v);
    free(v);
    return ok ? 0 : -1;
}

// Output `out` of a line whose samples lie `step` bytes apart.
static void resample(uint8_t *dst, const uint8_t *src, const Weights *w, size_t out, size_t step) {
    const int32_t *k = w->k + out * (size_t)w->taps;
    int32_t sum = 1 << (WEIGHT_BITS - 1);
    src += (size_t)w->first[out] * step;
    for (int t = 0; t < w->count[out]; t++) sum += src[(size_t)t * step] * k[t];
    sum >>= WEIGHT_BITS;
    *dst = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void pass_across(Image *dst, const Image *src, const Weights *w) {
    const size_t c = (size_t)src->c, in = (size_t)src->w * c, out = (size_t)dst->w * c;
    for (size_t y = 0; y < (size_t)dst->h; y++)
        for (size_t x = 0; x < out; x++)
            resample(dst->p + y * out + x, src->p + y * in + x % c, w, x / c, c);
}

static void pass_down(Image *dst, const Image *src, const Weights *w) {
    const size_t stride = (size_t)src->w * (size_t)src->c;
    for (size_t y = 0; y < (size_t)dst->h; y++)
        for (size_t x = 0; x < stride; x++)
            resample(dst->p + y * stride + x, src->p + x, w, y, stride);
}

int image_resize(Image *dst, const Image *src, int w, int h, Err *err) {
    Image wide;
    *dst = (Image){ 0 };
    if (image_new(&wide, w, src->h, src->c, err)) return -1;
    Weights across = { 0 }, down = { 0 };
    int rc = image_new(dst, w, h, src->c, err);
    if (!rc && (weights_make(&across, src->w, w) || weights_make(&down, src->h, h)))
        rc = err_set(err, ERR_MEM, "out of memory to resize a picture to %d x %d", w, h);
    if (!rc) {                                   // equal sides have weights of one: a copy
        pass_across(&wide, src, &across);
        pass_down(dst, &wide, &down);
    } else {
        image_free(dst);
    }
    weights_free(&across);
    weights_free(&down);
    image_free(&wide);
    return rc;
}

// Python's int(round(d / 2.0)): halves go to the even side.
static int half_of(int d) { return d / 2 + (d & 1 & (d / 2)); }

int image_square(Image *dst, const Image *src, int side, Err *err) {
    *dst = (Image){ 0 };
    const int64_t w = src->h > src->w ? side : (int64_t)side * src->w / src->h;
    const int64_t h = src->h > src->w ? (int64_t)side * src->h / src->w : side;
    if (side < 1) return err_set(err, ERR_ARG, "a square of %d pixels, expected at least 1", side);
    if (w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE)
        return err_set(err, ERR_DATA,
                       "a picture of %d x %d pixels, with its shorter side scaled to %d, would be "
                       "%" PRId64 " x %" PRId64 ", and the limit is %d pixels per side: crop it "
                       "first",
                       src->w, src->h, side, w, h, IMAGE_MAX_SIDE);
    Image all;
    if (image_resize(&all, src, (int)w, (int)h, err)) return -1;
    const int rc = image_new(dst, side, side, src->c, err);
    const size_t x = (size_t)half_of(all.w - side), y = (size_t)half_of(all.h - side);
    const size_t c = (size_t)src->c, row = (size_t)side * c, stride = (size_t)all.w * c;
    for (size_t i = 0; !rc && i < (size_t)side; i++)
        memcpy(dst->p + i * row, all.p + (y + i) * stride + x * c, row);
    image_free(&all);
    return rc;
}

// ---- showing

static uint8_t to_byte(float v) {
    return v > -1 ? v < 1 ? (uint8_t)((v + 1) * 127.5f + 0.5f) : 255 : 0;      // NaN is black
}

static void grid_cell(Image *im, const float *x, int side, int left, int top, int zoom) {
    for (int i = 0; i < side * zoom; i++) {
        uint8_t *p = im->p + ((size_t)(top + i) * (size_t)im->w + (size_t)left) * (size_t)im->c;
        for (int j = 0; j < side * zoom; j++)
            for (int k = 0; k < im->c; k++)
                *p++ = to_byte(x[((size_t)k * (size_t)side + (size_t)(i / zoom)) * (size_t)side +
                                 (size_t)(j / zoom)]);
    }
}

int image_columns(int n) {
    int columns = 1;
    while (columns * columns < n) columns++;
    return columns;
}

int image_grid(Image *im, FloatImages of, Grid grid, Err *err) {
    *im = (Image){ 0 };
    const int n = of.n, side = of.side, gap = grid.gap, zoom = grid.zoom;
    const int across = grid.columns < n ? grid.columns : n,
              down = across > 0 ? (n - 1) / across + 1 : 0;
    const double pitch = (double)side * zoom + gap;      // cannot overflow, whatever was asked for
    if (down < 1 || side < 1 || gap < 0 || zoom < 1 || across * pitch + gap > IMAGE_MAX_SIDE ||
        down * pitch + gap > IMAGE_MAX_SIDE)
        return err_set(err, ERR_ARG,
                       "a grid of %d pictures of side %d in %d columns, gap %d, zoom "
                       "%d: at most %d pixels wide and high",
                       n, side, grid.columns, gap, zoom, IMAGE_MAX_SIDE);
    const int cell = side * zoom + gap;
    if (image_new(im, across * cell + gap, down * cell + gap, of.c, err)) return -1;
    const size_t len = (size_t)of.c * (size_t)side * (size_t)side;
    for (int i = 0; i < n; i++)
        grid_cell(im, of.x + (size_t)i * len, side, gap + i % across * cell,
                  gap + i / across * cell, zoom);
    return 0;
}

// Two pixels, one over the other, in one character: its upper half in the foreground's colour.
static char *text_cell(char *at, const Image *im, int x, int y) {
    uint8_t up[3], low[3];
    const size_t c = (size_t)im->c;
    const uint8_t *p = im->p + ((size_t)y * (size_t)im->w + (size_t)x) * c;
    image_convert(up, 3, p, im->c, 1);
    at += sprintf(at, "\x1b[38;2;%d;%d;%d", up[0], up[1], up[2]);
    if (y + 1 < im->h) {
        image_convert(low, 3, p + (size_t)im->w * c, im->c, 1);
        at += sprintf(at, ";48;2;%d;%d;%d", low[0], low[1], low[2]);
    }
    return at + sprintf(at, "m\u2580");
}

char *image_text(const Image *im, int cols) {
    enum { CELL = 48, END = 8 };                 // the longest cell has 41 bytes, a line's end 5
    Image small = { 0 };
    if (cols < 1) return NULL;
    if (im->w > cols) {
        const int h = (int)((int64_t)im->h * cols / im->w);
        if (image_resize(&small, im, cols, h > 0 ? h : 1, NULL)) return NULL;
        im = &small;
    }
    const size_t lines = ((size_t)im->h + 1) / 2;
    char *text = malloc(lines * ((size_t)im->w * CELL + END) + 1);
    char *at = text;
    for (int y = 0; text && y < im->h; y += 2) {
        for (int x = 0; x < im->w; x++) at = text_cell(at, im, x, y);
        at += sprintf(at, "\x1b[0m\n");
    }
    image_free(&small);
    return text;
}
