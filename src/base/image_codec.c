// image_codec.c - pictures as files; see image.h. The only user of libpng, libjpeg and libwebp.
//
// libpng and libjpeg leave by longjmp. What must survive that lies in a struct of the caller, whose
// one clean-up runs on both ways out; the functions with setjmp change no variable of their own.
#include "base/file_kind.h"
#include "base/image.h"
#include "base/file.h"
#include "base/text.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

enum { MAX_FILE = 256 << 20, MAX_SCANS = 100 };

// ---- decoding

// A decoder's working state and its raw result: `channels` of 1 to 4 bytes.
typedef struct {
    const uint8_t *data;
    size_t         n, at;
    const char    *name;
    Err           *err;
    jmp_buf        jump;
    size_t         pixels;                           // at most; 0: no limit
    int            w, h, channels, orientation;      // 1 to 8 as EXIF has it, 0: not said
    uint8_t       *raw;
    uint8_t      **row;
} Decoder;

static int decoder_alloc(Decoder *d, unsigned long w, unsigned long h, int channels) {
    if (w < 1 || h < 1 || w > IMAGE_MAX_SIDE || h > IMAGE_MAX_SIDE)
        return err_set(d->err, ERR_DATA, "%s: a picture of %lu x %lu, expected sides of 1 to %d",
                       d->name, w, h, IMAGE_MAX_SIDE);
    if (d->pixels && w * h > d->pixels)
        return err_set(d->err, ERR_DATA,
                       "%s: a picture of %lu x %lu: at most %zu million pixels "
                       "are accepted",
                       d->name, w, h, d->pixels / 1000000);
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

// ---- EXIF: a TIFF file inside the picture, of which one number matters here

static unsigned tiff_number(const uint8_t *p, int bytes, int big) {
    unsigned v = 0;
    for (int i = 0; i < bytes; i++) v |= (unsigned)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

// Entries of 12 bytes after their count: tag, type (3: 16 bits), number of values, value. Whatever
// does not fit counts as not said.
static int exif_orientation(const uint8_t *p, size_t n) {
    enum { TAG = 0x112, SHORT = 3 };
    if (n >= 6 && !memcmp(p, "Exif\0", 6)) p += 6, n -= 6;
    if (n < 14 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 0;
    const int big = *p == 'M';
    const size_t at = tiff_number(p + 4, 4, big);
    if (at > n - 2) return 0;
    const size_t count = tiff_number(p + at, 2, big);
    for (size_t i = 0; i < count && at + 2 + 12 * (i + 1) <= n; i++) {
        const uint8_t *e = p + at + 2 + 12 * i;
        if (tiff_number(e, 2, big) != TAG || tiff_number(e + 2, 2, big) != SHORT) continue;
        const unsigned v = tiff_number(e + 8, 2, big);
        return v <= 8 ? (int)v : 0;
    }
    return 0;
}

// ---- PNG

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
    // texts and profiles would be inflated and kept: a thousand of 8 MB each, out of 8 kB each
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_AS_DEFAULT, (png_const_bytep) "eXIf", 1);
    png_read_info(png, info);
    const png_uint_32 w = png_get_image_width(png, info), h = png_get_image_height(png, info);
    png_set_expand(png);                                   // palette, 1 to 4 bits, transparency
    png_set_strip_16(png);
    png_set_interlace_handling(png);
    if (w <= IMAGE_MAX_SIDE && h <= IMAGE_MAX_SIDE) png_read_update_info(png, info);
    if (decoder_alloc(d, w, h, png_get_channels(png, info))) return -1;
    png_read_image(png, d->row);
    png_read_end(png, info);                               // a file without its end is refused
    png_bytep exif = NULL;
    png_uint_32 n = 0;
    if (png_get_eXIf_1(png, info, &n, &exif)) d->orientation = exif_orientation(exif, n);
    return 0;
}

static int png_decode(Decoder *d) {
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const int rc = info ? png_run(d, png, info)
                        : err_set(d->err, ERR_MEM, "%s: libpng cannot be initialised", d->name);
    png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

// ---- JPEG

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

// In place, and without a colour profile, as PIL does it. Adobe's programs store ink as 255 - ink.
static void cmyk_to_rgb(Decoder *d, int inverted) {
    const size_t n = (size_t)d->w * (size_t)d->h;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *ink = d->raw + 4 * i;
        const unsigned light = inverted ? ink[3] : 255u - ink[3];
        for (size_t k = 0; k < 3; k++) {
            const unsigned v = inverted ? ink[k] : 255u - ink[k];
            d->raw[3 * i + k] = (uint8_t)((v * light + 127) / 255);
        }
    }
    d->channels = 3;
}

static int jpeg_run(Decoder *d, struct jpeg_decompress_struct *j, struct jpeg_progress_mgr *watch) {
    if (setjmp(d->jump)) return -1;
    jpeg_create_decompress(j);
    j->progress = watch;
    jpeg_mem_src(j, d->data, d->n);
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(j, TRUE);
    for (jpeg_saved_marker_ptr m = j->marker_list; m && !d->orientation; m = m->next)
        d->orientation = exif_orientation(m->data, m->data_length);
    const int n = j->num_components;
    if (n != 1 && n != 3 && n != 4)
        return err_set(d->err, ERR_DATA, "%s: a JPEG of %d channels, expected grey, RGB or CMYK",
                       d->name, n);
    j->out_color_space = n == 1 ? JCS_GRAYSCALE : n == 3 ? JCS_RGB : JCS_CMYK;
    if (decoder_alloc(d, j->image_width, j->image_height, n)) return -1;
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height)
        jpeg_read_scanlines(j, d->row + j->output_scanline, j->output_height - j->output_scanline);
    if (n == 4) cmyk_to_rgb(d, j->saw_Adobe_marker);
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

// ---- WebP

// The length that it says comes before the size of the picture, which may be a gigabyte.
static int webp_decode(Decoder *d) {
    WebPBitstreamFeatures f;
    const size_t whole = 8 + ((size_t)d->data[4] | (size_t)d->data[5] << 8 |
                              (size_t)d->data[6] << 16 | (size_t)d->data[7] << 24);
    if (d->n < whole)
        return err_set(d->err, ERR_DATA, "%s: not a valid WebP: %zu bytes, expected %zu", d->name,
                       d->n, whole);
    if (WebPGetFeatures(d->data, d->n, &f) != VP8_STATUS_OK)
        return err_set(d->err, ERR_DATA, "%s: not a valid WebP", d->name);
    if (f.has_animation)
        return err_set(d->err, ERR_DATA, "%s: an animated WebP, expected a still picture", d->name);
    if (decoder_alloc(d, (unsigned long)f.width, (unsigned long)f.height, f.has_alpha ? 4 : 3))
        return -1;
    const int stride = d->w * d->channels;
    const size_t size = (size_t)d->h * (size_t)stride;
    const uint8_t *done = f.has_alpha ? WebPDecodeRGBAInto(d->data, d->n, d->raw, size, stride)
                                      : WebPDecodeRGBInto(d->data, d->n, d->raw, size, stride);
    if (!done) return err_set(d->err, ERR_DATA, "%s: not a valid WebP", d->name);
    const WebPData all = { d->data, d->n };
    WebPData exif;
    WebPMux *mux = WebPMuxCreate(&all, 0);
    if (mux && WebPMuxGetChunk(mux, "EXIF", &exif) == WEBP_MUX_OK)
        d->orientation = exif_orientation(exif.bytes, exif.size);
    WebPMuxDelete(mux);
    return 0;
}

// ---- any of them

static int not_supported(const Decoder *d) {
    const char *kind = bytes_kind(d->data, d->n < 512 ? d->n : 512);
    return err_set(d->err, ERR_DATA, "%s: is %s; supported are PNG, JPEG and WebP", d->name,
                   kind ? kind : "not a picture of a known format");
}

static int decode_any(Decoder *d) {
    if (d->n < 12)
        return err_set(d->err, ERR_DATA, "%s: %zu byte%s, expected a PNG, JPEG or WebP file",
                       d->name, d->n, plural((double)d->n));
    if (!png_sig_cmp(d->data, 0, 8)) return png_decode(d);
    if (!memcmp(d->data, "\xff\xd8\xff", 3)) return jpeg_decode(d);
    if (!memcmp(d->data, "RIFF", 4) && !memcmp(d->data + 8, "WEBP", 4)) return webp_decode(d);
    return not_supported(d);
}

int image_decode(Image *im, const uint8_t *data, size_t n, const char *name, int c, Err *err) {
    return image_decode_most(im, data, n, name, c, 0, err);
}

int image_decode_most(Image *im, const uint8_t *data, size_t n, const char *name, int c,
                      size_t pixels, Err *err) {
    *im = (Image){ 0 };
    Decoder d = { .data = data, .n = n, .name = name, .pixels = pixels, .err = err };
    int rc = decode_any(&d) || image_new(im, d.w, d.h, c, err);
    if (!rc) {
        image_convert(im->p, c, d.raw, d.channels, (size_t)d.w * (size_t)d.h);
        rc = image_upright(im, d.orientation, err);
        if (rc) image_free(im);
    }
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
    FILE *memory;                                     // NULL: to w
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
    if (e->memory) (void)fwrite(src, 1, n, e->memory);
    else write_bytes(&e->w, src, n);
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

static int png_encode(Encoder *e, const Image *im) {
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, e, png_write_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const int rc = info ? png_write_run(e, png, info, im)
                        : err_set(e->err, ERR_MEM, "%s: libpng cannot be initialised", e->w.path);
    png_destroy_write_struct(&png, &info);
    return rc;
}

int image_encode_png(const Image *im, char **data, size_t *n, Err *err) {
    Encoder e = { .memory = open_memstream(data, n), .err = err };
    if (!e.memory) return err_set(err, ERR_MEM, "out of memory for a picture");
    int rc = png_encode(&e, im);
    if (fclose(e.memory)) rc = err_set(err, ERR_MEM, "out of memory for a picture");
    if (!rc) return 0;
    free(*data);
    *data = NULL;
    return rc;
}

int image_write_png(const Image *im, const char *path, Err *err) {
    Encoder e = { .w = writer_open(path), .err = err };
    const int rc = png_encode(&e, im);
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
    if (rgb) image_convert(rgb, 3, im->p, im->c, n);
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
        return err_set(err, ERR_IO, "%s: libwebp cannot be initialised (%d x %d)", path, frame[0].w,
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
