// image.c - see image.h. The only user of libpng, libjpeg and libwebp.
//
// libpng and libjpeg leave by longjmp. What must survive that lies in a struct of the caller, whose
// one clean-up runs on both ways out; the functions with setjmp change no variable of their own.
#include "base/image.h"
#include "base/file.h"
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <webp/mux.h>

enum { MAX_FILE = 256 << 20, MAX_SCANS = 100 };

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

// ---- decoding

static uint8_t grey(const uint8_t *p) {          // as PIL's convert("L")
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

// n pixels of `from` channels (grey or RGB, 2 and 4 with alpha) to `to` of 1 or 3, over white.
static void convert(uint8_t *dst, int to, const uint8_t *src, int from, size_t n) {
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

// A decoder's working state and its raw result: `channels` of 1 to 4 bytes.
typedef struct {
    const uint8_t *data;
    size_t         n, at;
    const char    *name;
    Err           *err;
    jmp_buf        jump;
    int            w, h, channels;
    uint8_t       *raw;
    uint8_t      **row;
} Decoder;

static int decoder_alloc(Decoder *d, unsigned long w, unsigned long h, int channels) {
    if (w < 1 || h < 1 || w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE)
        return err_set(d->err, ERR_DATA, "%s: a picture of %lu x %lu, expected sides of 1 to %d",
                       d->name, w, h, IMAGE_MAX_SIDE);
    d->w = (int)w;
    d->h = (int)h;
    d->channels = channels;
    const size_t stride = w * (size_t)channels;
    d->raw = malloc(h * stride);
    d->row = malloc(h * sizeof *d->row);
    if (!d->raw || !d->row)
        return err_set(d->err, ERR_MEM, "%s: out of memory for %lu x %lu pixels", d->name, w, h);
    for (size_t y = 0; y < h; y++) d->row[y] = d->raw + y * stride;
    return 0;
}

static void png_failed(png_structp png, png_const_charp msg) {
    Decoder *d = png_get_error_ptr(png);
    err_set(d->err, ERR_DATA, "%s: not a valid PNG: %s", d->name, msg);
    longjmp(d->jump, 1);
}

static void png_warned(png_structp png, png_const_charp msg) { (void)png, (void)msg; }

static void png_take(png_structp png, png_bytep dst, size_t n) {
    Decoder *d = png_get_io_ptr(png);
    if (n > d->n - d->at) png_error(png, "the file ends too early");
    memcpy(dst, d->data + d->at, n);
    d->at += n;
}

static int png_run(Decoder *d, png_structp png, png_infop info) {
    if (setjmp(d->jump)) return -1;
    png_set_read_fn(png, d, png_take);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);      // ours, with our message, are below
    png_read_info(png, info);
    const png_uint_32 w = png_get_image_width(png, info), h = png_get_image_height(png, info);
    png_set_expand(png);                                   // palette, 1 to 4 bits, transparency
    png_set_strip_16(png);
    png_set_interlace_handling(png);
    if (w <= IMAGE_MAX_SIDE && h <= IMAGE_MAX_SIDE) png_read_update_info(png, info);
    if (decoder_alloc(d, w, h, png_get_channels(png, info))) return -1;
    png_read_image(png, d->row);
    png_read_end(png, NULL);                               // a file without its end is refused
    return 0;
}

static int png_decode(Decoder *d) {
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const int rc = info ? png_run(d, png, info)
                        : err_set(d->err, ERR_MEM, "%s: libpng does not start", d->name);
    png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

static void jpeg_failed(j_common_ptr j) {
    Decoder *d = j->client_data;
    char msg[JMSG_LENGTH_MAX];
    j->err->format_message(j, msg);
    err_set(d->err, ERR_DATA, "%s: not a valid JPEG: %s", d->name, msg);
    longjmp(d->jump, 1);
}

// libjpeg fills what is missing with grey and only warns; stray bytes between markers are harmless.
static void jpeg_warned(j_common_ptr j, int level) {
    const int code = j->err->msg_code;
    const int bad = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE;
    if (level < 0 && bad) jpeg_failed(j);
}

// A scan costs a pass over all of the picture and takes but a few bytes of the file.
static void jpeg_progress(j_common_ptr j) {
    Decoder *d = j->client_data;
    if (((struct jpeg_decompress_struct *)j)->input_scan_number <= MAX_SCANS) return;
    err_set(d->err, ERR_DATA, "%s: a JPEG of over %d scans", d->name, MAX_SCANS);
    longjmp(d->jump, 1);
}

static int jpeg_run(Decoder *d, struct jpeg_decompress_struct *j, struct jpeg_progress_mgr *watch) {
    if (setjmp(d->jump)) return -1;
    jpeg_create_decompress(j);
    j->progress = watch;
    jpeg_mem_src(j, d->data, d->n);
    jpeg_read_header(j, TRUE);
    if (j->num_components != 1 && j->num_components != 3)
        return err_set(d->err, ERR_DATA, "%s: a JPEG of %d colours (CMYK?), expected grey or RGB",
                       d->name, j->num_components);
    j->out_color_space = j->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    if (decoder_alloc(d, j->image_width, j->image_height, j->num_components)) return -1;
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height)
        jpeg_read_scanlines(j, d->row + j->output_scanline, j->output_height - j->output_scanline);
    jpeg_finish_decompress(j);
    return 0;
}

static int jpeg_decode(Decoder *d) {
    struct jpeg_error_mgr mgr;
    struct jpeg_decompress_struct j = { .err = jpeg_std_error(&mgr), .client_data = d };
    mgr.error_exit = jpeg_failed;
    mgr.emit_message = jpeg_warned;
    struct jpeg_progress_mgr watch = { .progress_monitor = jpeg_progress };
    const int rc = jpeg_run(d, &j, &watch);
    jpeg_destroy_decompress(&j);
    return rc;
}

int image_decode(Image *im, const uint8_t *data, size_t n, const char *name, int c, Err *err) {
    *im = (Image){ 0 };
    Decoder d = { .data = data, .n = n, .name = name, .err = err };
    int rc;
    if (n < 8) rc = err_set(err, ERR_DATA, "%s: %zu bytes, expected a PNG or JPEG file", name, n);
    else if (!png_sig_cmp(data, 0, 8)) rc = png_decode(&d);
    else if (!memcmp(data, "\xff\xd8\xff", 3)) rc = jpeg_decode(&d);
    else
        rc = err_set(err, ERR_DATA, "%s: begins with %02x %02x %02x %02x, expected PNG or JPEG",
                     name, data[0], data[1], data[2], data[3]);
    if (!rc) rc = image_new(im, d.w, d.h, c, err);
    if (!rc) convert(im->p, c, d.raw, d.channels, (size_t)d.w * (size_t)d.h);
    free(d.raw);
    free(d.row);
    return rc;
}

int image_read(Image *im, const char *path, int c, Err *err) {
    *im = (Image){ 0 };
    char *data;
    size_t n;
    if (file_read(path, MAX_FILE, &data, &n, err)) return -1;
    const int rc = image_decode(im, (const uint8_t *)data, n, path, c, err);
    free(data);
    return rc;
}

// ---- encoding

typedef struct {
    Writer w;
    Err *err;
    jmp_buf jump;
} Encoder;

static void png_write_failed(png_structp png, png_const_charp msg) {
    Encoder *e = png_get_error_ptr(png);
    err_set(e->err, ERR_IO, "%s: libpng: %s", e->w.path, msg);
    longjmp(e->jump, 1);
}

static void png_give(png_structp png, png_bytep src, size_t n) {
    Encoder *e = png_get_io_ptr(png);
    write_bytes(&e->w, src, n);
}

static void png_flush_later(png_structp png) { (void)png; }

static int png_write_run(Encoder *e, png_structp png, png_infop info, const Image *im) {
    if (setjmp(e->jump)) return -1;
    png_set_write_fn(png, e, png_give, png_flush_later);
    png_set_IHDR(png, info, (png_uint_32)im->w, (png_uint_32)im->h, 8,
                 im->c == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    const size_t stride = (size_t)im->w * (size_t)im->c;
    for (size_t y = 0; y < (size_t)im->h; y++) png_write_row(png, im->p + y * stride);
    png_write_end(png, info);
    return 0;
}

int image_write_png(const Image *im, const char *path, Err *err) {
    Encoder e = { .w = writer_open(path), .err = err };
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &e, png_write_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const int rc = info ? png_write_run(&e, png, info, im)
                        : err_set(err, ERR_MEM, "%s: libpng does not start", path);
    png_destroy_write_struct(&png, &info);
    if (!rc) return writer_close(&e.w, err);
    writer_cancel(&e.w);
    return rc;
}

static int webp_add(WebPAnimEncoder *enc, const Image *im, int at_ms) {
    const size_t n = (size_t)im->w * (size_t)im->h;
    WebPConfig config;
    WebPPicture pic;
    if (!WebPConfigInit(&config) || !WebPConfigLosslessPreset(&config, 3)) return -1;
    if (!WebPPictureInit(&pic)) return -1;
    pic.width = im->w;
    pic.height = im->h;
    pic.use_argb = 1;
    uint8_t *rgb = malloc(3 * n);
    if (rgb) convert(rgb, 3, im->p, im->c, n);
    const int ok = rgb && WebPPictureImportRGB(&pic, rgb, 3 * im->w) &&
                   WebPAnimEncoderAdd(enc, &pic, at_ms, &config);
    WebPPictureFree(&pic);
    free(rgb);
    return ok ? 0 : -1;
}

static int webp_encode(WebPAnimEncoder *enc, const Image *frame, int n, int ms, WebPData *out) {
    for (int i = 0; i < n; i++)
        if (webp_add(enc, &frame[i], i * ms)) return -1;
    if (!WebPAnimEncoderAdd(enc, NULL, n * ms, NULL)) return -1;     // says when the last one ends
    return WebPAnimEncoderAssemble(enc, out) ? 0 : -1;
}

int image_write_webp(const Image *frame, int n, int ms, const char *path, Err *err) {
    if (n < 1 || ms < 1 || (int64_t)n * ms > INT32_MAX)
        return err_set(err, ERR_ARG, "%s: an animation of %d pictures of %d ms", path, n, ms);
    for (int i = 1; i < n; i++)
        if (frame[i].w != frame[0].w || frame[i].h != frame[0].h)
            return err_set(err, ERR_ARG, "%s: picture %d is %d x %d, expected %d x %d", path, i,
                           frame[i].w, frame[i].h, frame[0].w, frame[0].h);
    WebPAnimEncoderOptions options;
    WebPAnimEncoder *enc = NULL;
    if (WebPAnimEncoderOptionsInit(&options)) {
        options.anim_params.loop_count = 0;            // endless
        enc = WebPAnimEncoderNew(frame[0].w, frame[0].h, &options);
    }
    if (!enc)
        return err_set(err, ERR_IO, "%s: libwebp does not start (%d x %d)", path, frame[0].w,
                       frame[0].h);
    WebPData data;
    WebPDataInit(&data);
    int rc = webp_encode(enc, frame, n, ms, &data);
    if (rc) {
        err_set(err, ERR_IO, "%s: libwebp: %s", path, WebPAnimEncoderGetError(enc));
    } else {
        Writer w = writer_open(path);
        write_bytes(&w, data.bytes, data.size);
        rc = writer_close(&w, err);
    }
    WebPDataClear(&data);
    WebPAnimEncoderDelete(enc);
    return rc;
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
    if (side < 1 || w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE)
        return err_set(err, ERR_ARG, "a picture of %d x %d cannot become a square of %d", src->w,
                       src->h, side);
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

int image_grid(Image *im, const float *x, int n, int c, int side, int cols, int gap, int zoom,
               Err *err) {
    *im = (Image){ 0 };
    const int across = cols < n ? cols : n, down = across > 0 ? (n - 1) / across + 1 : 0;
    const double pitch = (double)side * zoom + gap;      // cannot overflow, whatever was asked for
    if (down < 1 || side < 1 || gap < 0 || zoom < 1 || across * pitch + gap > IMAGE_MAX_SIDE ||
        down * pitch + gap > IMAGE_MAX_SIDE)
        return err_set(err, ERR_ARG,
                       "a grid of %d pictures of side %d in %d columns, gap %d, zoom "
                       "%d: at most %d pixels a side",
                       n, side, cols, gap, zoom, IMAGE_MAX_SIDE);
    const int cell = side * zoom + gap;
    if (image_new(im, across * cell + gap, down * cell + gap, c, err)) return -1;
    const size_t len = (size_t)c * (size_t)side * (size_t)side;
    for (int i = 0; i < n; i++)
        grid_cell(im, x + (size_t)i * len, side, gap + i % across * cell, gap + i / across * cell,
                  zoom);
    return 0;
}

// Two pixels, one over the other, in one character: its upper half in the foreground's colour.
static char *text_cell(char *at, const Image *im, int x, int y) {
    uint8_t up[3], low[3];
    const size_t c = (size_t)im->c;
    const uint8_t *p = im->p + ((size_t)y * (size_t)im->w + (size_t)x) * c;
    convert(up, 3, p, im->c, 1);
    at += sprintf(at, "\x1b[38;2;%d;%d;%d", up[0], up[1], up[2]);
    if (y + 1 < im->h) {
        convert(low, 3, p + (size_t)im->w * c, im->c, 1);
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
