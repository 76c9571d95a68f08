// test_image.c - pictures: exact round trips, PIL's resizing, and files that lie.
#include "base/image.h"
#include "base/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <zlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>
#include <jpeglib.h>
#include "resize_golden.h"

static char dir[] = "/tmp/jempp_image_XXXXXX";

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    static const char *const names[] = { "a.png", "a.png.tmp", "b", "a.webp" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_dir(names[i]));
    return rmdir(dir);
}

// The picture of resize_golden.py.
static Image source(int w, int h, int c) {
    Image im;
    assert_int_equal(image_new(&im, w, h, c, NULL), 0);
    for (int y = 0, i = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++) im.p[i++] = (uint8_t)(x * 37 + y * 91 + k * 53 + x * y * 7);
    return im;
}

static void assert_same(const Image *a, const Image *b) {
    assert_int_equal(a->w, b->w);
    assert_int_equal(a->h, b->h);
    assert_int_equal(a->c, b->c);
    assert_memory_equal(a->p, b->p, (size_t)(a->w * a->h * a->c));
}

static void put_file(const char *path, const void *data, size_t n) {
    Writer w = writer_open(path);
    write_bytes(&w, data, n);
    assert_int_equal(writer_close(&w, NULL), 0);
}

static void assert_refused(const uint8_t *data, size_t n, const char *why) {
    Image im;
    Err err = { 0 };
    assert_int_not_equal(image_decode(&im, data, n, "some.file", 3, &err), 0);
    assert_null(im.p);
    assert_non_null(strstr(err.msg, "some.file: "));
    assert_non_null(strstr(err.msg, why));
}

static void a_png_comes_back_as_it_was(void **state) {
    (void)state;
    for (int c = 1; c <= 3; c += 2) {
        Image a = source(13, 7, c), b;
        assert_int_equal(image_write_png(&a, in_dir("a.png"), NULL), 0);
        assert_int_equal(image_read(&b, in_dir("a.png"), c, NULL), 0);
        assert_same(&a, &b);
        image_free(&a);
        image_free(&b);
    }
}

static void grey_is_pils_grey_and_becomes_rgb_by_repetition(void **state) {
    (void)state;
    enum { N = sizeof golden_grey / sizeof *golden_grey };
    Image a, grey, rgb;
    assert_int_equal(image_new(&a, N, 1, 3, NULL), 0);
    for (int i = 0; i < N; i++) memcpy(a.p + 3 * i, golden_grey[i], 3);
    assert_int_equal(image_write_png(&a, in_dir("a.png"), NULL), 0);
    assert_int_equal(image_read(&grey, in_dir("a.png"), 1, NULL), 0);
    for (int i = 0; i < N; i++) assert_int_equal(grey.p[i], golden_grey[i][3]);
    assert_int_equal(image_write_png(&grey, in_dir("a.png"), NULL), 0);
    assert_int_equal(image_read(&rgb, in_dir("a.png"), 3, NULL), 0);
    for (int i = 0; i < 3 * N; i++) assert_int_equal(rgb.p[i], golden_grey[i / 3][3]);
    image_free(&a);
    image_free(&grey);
    image_free(&rgb);
}

// Two pixels each, saved by PIL: RGBA (200, 100, 0, 51) and (10, 20, 30, 0); a palette's red and
// blue; 16-bit grey 0x1234 and 0xabcd.
static const uint8_t alpha_png[] = {
    137, 80, 78,  71,  13,  10, 26, 10,  0,   0,  0,   13, 73,  72,  68, 82, 0,   0,   0,
    2,   0,  0,   0,   1,   8,  6,  0,   0,   0,  244, 34, 127, 138, 0,  0,  0,   17,  73,
    68,  65, 84,  120, 156, 99, 56, 145, 194, 96, 204, 37, 34,  199, 0,  0,  10,  164, 1,
    156, 73, 246, 182, 96,  0,  0,  0,   0,   73, 69,  78, 68,  174, 66, 96, 130,
};
static const uint8_t palette_png[] = {
    137, 80, 78, 71,  13,  10, 26, 10,  0,   0,   0,  13,  73,  72,  68,  82,  0,
    0,   0,  2,  0,   0,   0,  1,  1,   3,   0,   0,  0,   206, 236, 237, 201, 0,
    0,   0,  6,  80,  76,  84, 69, 255, 0,   0,   0,  0,   255, 108, 161, 253, 142,
    0,   0,  0,  10,  73,  68, 65, 84,  120, 156, 99, 112, 0,   0,   0,   66,  0,
    65,  41, 55, 244, 239, 0,  0,  0,   0,   73,  69, 78,  68,  174, 66,  96,  130,
};
static const uint8_t deep_png[] = {
    137, 80,  78,  71, 13, 10,  26,  10, 0,  0,  0,  13,  73,  72,  68, 82,  0, 0,
    0,   2,   0,   0,  0,  1,   16,  0,  0,  0,  0,  129, 217, 252, 21, 0,   0, 0,
    13,  73,  68,  65, 84, 120, 156, 99, 16, 50, 89, 125, 22,  0,   3,  12,  1, 191,
    110, 185, 198, 93, 0,  0,   0,   0,  73, 69, 78, 68,  174, 66,  96, 130,
};

static void assert_decodes(const uint8_t *data, size_t n, const uint8_t want[6]) {
    Image im;
    Err err = { 0 };
    assert_int_equal(image_decode(&im, data, n, "png", 3, &err), 0);
    assert_int_equal(im.w, 2);
    assert_int_equal(im.h, 1);
    assert_memory_equal(im.p, want, 6);
    image_free(&im);
}

static void alpha_palette_and_16_bits_become_8_bit_rgb(void **state) {
    (void)state;
    assert_decodes(alpha_png, sizeof alpha_png, (uint8_t[]){ 244, 224, 204, 255, 255, 255 });
    assert_decodes(palette_png, sizeof palette_png, (uint8_t[]){ 255, 0, 0, 0, 0, 255 });
    assert_decodes(deep_png, sizeof deep_png, (uint8_t[]){ 18, 18, 18, 171, 171, 171 });
}

static void a_png_cut_anywhere_is_refused(void **state) {
    (void)state;
    Image a = source(40, 30, 3);
    char *data;
    size_t n;
    assert_int_equal(image_write_png(&a, in_dir("a.png"), NULL), 0);
    assert_int_equal(file_read(in_dir("a.png"), 1 << 20, &data, &n, NULL), 0);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *part = malloc(cut + 1);         // of its own, so that reading past it is seen
        memcpy(part, data, cut);
        assert_refused(part, cut, cut < 12 ? "expected" : "not a valid PNG");
        free(part);
    }
    free(data);
    image_free(&a);
}

static void no_flipped_byte_crashes_the_png_reader(void **state) {
    (void)state;
    Image a = source(9, 8, 3), b;
    char *data;
    size_t n;
    assert_int_equal(image_write_png(&a, in_dir("a.png"), NULL), 0);
    assert_int_equal(file_read(in_dir("a.png"), 1 << 20, &data, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        data[i] = (char)~data[i];
        if (!image_decode(&b, (uint8_t *)data, n, "x", 3, NULL)) image_free(&b);
        data[i] = (char)~data[i];
    }
    free(data);
    image_free(&a);
}

static void put_be32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t crc_of(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    while (n--) {
        c ^= *p++;
        for (int i = 0; i < 8; i++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}

static void a_png_of_giant_sides_is_refused_before_decoding(void **state) {
    (void)state;
    static const uint32_t sides[][2] = { { 16385, 1 }, { 1, 16385 }, { 0x7fffffff, 0x7fffffff } };
    for (size_t i = 0; i < 3; i++) {
        uint8_t png[sizeof palette_png];
        memcpy(png, palette_png, sizeof png);
        put_be32(png + 16, sides[i][0]);
        put_be32(png + 20, sides[i][1]);
        put_be32(png + 29, crc_of(png + 12, 17));
        char found[64];
        snprintf(found, sizeof found, "%u x %u", sides[i][0], sides[i][1]);
        assert_refused(png, sizeof png, found);
    }
}

static void other_formats_are_refused_by_their_first_bytes(void **state) {
    (void)state;
    static const char list[] = "; supported are PNG, JPEG and WebP";
    static const struct {
        const char *head, *name;
    } other[] = { { "GIF89a......", "a GIF" },
                  { "BM0123456789", "a BMP" },
                  { "II*\0........", "a TIFF" },
                  { "MM\0*........", "a TIFF" },
                  { "....ftypavif", "an AVIF" },
                  { "....ftypheic", "a HEIC" },
                  { "hello, world", "a text file" },
                  { "[1, 2, 3, 4]", "a JSON file" },
                  { "PK\3\4........", "a zip archive" },
                  { "\x80\2........\0", "a Python pickle" },
                  { "\1\2\3\4\5\6\7\1\2\3\4\5", "not a picture of a known format" } };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_refused((const uint8_t *)other[i].head, 12, other[i].name);
        assert_refused((const uint8_t *)other[i].head, 12, list);
    }
    assert_refused((const uint8_t *)"", 0, "0 bytes");
    Image im;
    Err err = { 0 };
    put_file(in_dir("b"), "hello, world", 12);
    assert_int_not_equal(image_read(&im, in_dir("b"), 3, &err), 0);
    assert_non_null(strstr(err.msg, in_dir("b")));
    err = (Err){ 0 };
    assert_int_not_equal(image_read(&im, in_dir("none"), 3, &err), 0);
    assert_non_null(strstr(err.msg, "No such file"));
}

// A smooth picture, which JPEG at quality 100 keeps to within a few levels.
static uint8_t smooth(int x, int y, int k) { return (uint8_t)(40 + 3 * x + 2 * y + 20 * k); }

static unsigned char *make_jpeg(int w, int h, int c, J_COLOR_SPACE space, unsigned long *n) {
    struct jpeg_error_mgr mgr;
    struct jpeg_compress_struct j = { .err = jpeg_std_error(&mgr) };
    unsigned char *out = NULL, *row = malloc((size_t)(w * c));
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &out, n);
    j.image_width = (JDIMENSION)w;
    j.image_height = (JDIMENSION)h;
    j.input_components = c;
    j.in_color_space = space;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    jpeg_start_compress(&j, TRUE);
    for (int y = 0; y < h; y++) {
        for (int i = 0; i < w * c; i++) row[i] = smooth(i / c, y, i % c);
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    free(row);
    return out;
}

static void a_jpeg_is_decoded(void **state) {
    (void)state;
    for (int c = 1; c <= 3; c += 2) {
        unsigned long n = 0;
        unsigned char *data = make_jpeg(24, 16, c, c == 3 ? JCS_RGB : JCS_GRAYSCALE, &n);
        Image im;
        assert_int_equal(image_decode(&im, data, n, "jpg", c, NULL), 0);
        assert_int_equal(im.w, 24);
        assert_int_equal(im.h, 16);
        for (int i = 0; i < 24 * 16 * c; i++)
            assert_true(abs(im.p[i] - smooth(i / c % 24, i / c / 24, i % c)) <= 4);
        image_free(&im);
        free(data);
    }
}

static void a_jpeg_cut_anywhere_is_refused(void **state) {
    (void)state;
    unsigned long n = 0;
    unsigned char *data = make_jpeg(24, 16, 3, JCS_RGB, &n);
    for (unsigned long cut = 0; cut < n; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, data, cut);
        assert_refused(part, cut, cut < 12 ? "expected" : "not a valid JPEG");
        free(part);
    }
    free(data);
}

static void no_flipped_byte_crashes_the_jpeg_reader(void **state) {
    (void)state;
    unsigned long n = 0;
    unsigned char *data = make_jpeg(16, 16, 3, JCS_RGB, &n);
    for (unsigned long i = 0; i < n; i++) {
        Image im;
        data[i] = (unsigned char)~data[i];
        if (!image_decode(&im, data, n, "x", 3, NULL)) image_free(&im);
        data[i] = (unsigned char)~data[i];
    }
    free(data);
}

// Ink as libjpeg stores it with Adobe's marker, 255 - ink: what is left of the light of each
// colour, times what black leaves.
static void a_cmyk_jpeg_is_decoded(void **state) {
    (void)state;
    unsigned long n = 0;
    unsigned char *data = make_jpeg(16, 8, 4, JCS_CMYK, &n);
    Image im;
    assert_int_equal(image_decode(&im, data, n, "jpg", 3, NULL), 0);
    assert_int_equal(im.w, 16);
    for (int i = 0; i < 16 * 8 * 3; i++) {
        const int x = i / 3 % 16, y = i / 3 / 16;
        const int v = smooth(x, y, i % 3) * smooth(x, y, 3) / 255;
        if (abs(im.p[i] - v) > 4) fail_msg("at %d: %d, expected %d", i, im.p[i], v);
    }
    image_free(&im);
    free(data);
}

enum { TIFF = 26 };

// EXIF's contents: a TIFF header and a directory of one entry, in either byte order.
static void put_tiff(uint8_t t[TIFF], int orientation, int big) {
    static const uint8_t little_tiff[] = { 'I', 'I',  42, 0, 8, 0, 0, 0, 1,
                                           0,   0x12, 1,  3, 0, 1, 0, 0, 0 },
                         big_tiff[] = {
                             'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1
                         };
    memset(t, 0, TIFF);
    memcpy(t, big ? big_tiff : little_tiff, sizeof big_tiff);
    t[big ? 19 : 18] = (uint8_t)orientation;
}

// A JPEG with an EXIF marker in front of everything but its first two bytes.
static uint8_t *with_exif(const uint8_t *jpeg, size_t n, int orientation, int big, size_t *size) {
    uint8_t exif[10 + TIFF] = "\xff\xe1\x00\x22"
                              "Exif\0\0"; // 34 bytes follow the marker
    uint8_t *out = malloc(n + sizeof exif);
    put_tiff(exif + 10, orientation, big);
    memcpy(out, jpeg, 2);
    memcpy(out + 2, exif, sizeof exif);
    memcpy(out + 2 + sizeof exif, jpeg + 2, n - 2);
    *size = n + sizeof exif;
    return out;
}

// Where the stored picture's pixel (0, 0) and the next along its row come to lie, of w x h = 24 x
// 16: the table of the EXIF standard, by hand.
static void exif_says_which_side_is_up(void **state) {
    (void)state;
    static const struct {
        int w, h, x0, y0, dx, dy;
    } want[9] = { { 24, 16, 0, 0, 1, 0 },    { 24, 16, 0, 0, 1, 0 },   { 24, 16, 23, 0, -1, 0 },
                  { 24, 16, 23, 15, -1, 0 }, { 24, 16, 0, 15, 1, 0 },  { 16, 24, 0, 0, 0, 1 },
                  { 16, 24, 15, 0, 0, 1 },   { 16, 24, 15, 23, 0, -1 }, { 16, 24, 0, 23, 0, -1 } };
    unsigned long n = 0;
    unsigned char *data = make_jpeg(24, 16, 1, JCS_GRAYSCALE, &n);
    for (int o = 0; o <= 8; o++)
        for (int big = 0; big < 2; big++) {
            size_t size;
            Image im;
            uint8_t *file = with_exif(data, n, o, big, &size);
            assert_int_equal(image_decode(&im, file, size, "jpg", 1, NULL), 0);
            assert_int_equal(im.w, want[o].w);
            assert_int_equal(im.h, want[o].h);
            for (int i = 0; i < 24; i++) {
                const int x = want[o].x0 + i * want[o].dx, y = want[o].y0 + i * want[o].dy;
                assert_true(abs(im.p[y * im.w + x] - smooth(i, 0, 0)) <= 4);
            }
            image_free(&im);
            free(file);
        }
    free(data);
}

static void put_big_endian(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

// A PNG with the chunk eXIf behind its header, which is 33 bytes long.
static uint8_t *png_with_exif(const char *png, size_t n, int orientation, int big, size_t *size) {
    uint8_t chunk[12 + TIFF] = "....eXIf";
    put_big_endian(chunk, TIFF);
    put_tiff(chunk + 8, orientation, big);
    put_big_endian(chunk + 8 + TIFF, (uint32_t)crc32(0, chunk + 4, 4 + TIFF));
    uint8_t *out = malloc(*size = n + sizeof chunk);
    memcpy(out, png, 33);
    memcpy(out + 33, chunk, sizeof chunk);
    memcpy(out + 33 + sizeof chunk, png + 33, n - 33);
    return out;
}

// A text of 8 MB that deflates to 8 kB, many times: nothing here reads such texts.
static void a_png_with_large_compressed_texts_takes_no_memory_for_them(void **state) {
    (void)state;
    enum { TEXTS = 40, SIZE = 7900000 };
    Image im = source(5, 4, 3), back;
    char *png;
    size_t n;
    assert_int_equal(image_encode_png(&im, &png, &n, NULL), 0);
    uLongf packed = compressBound(SIZE);
    uint8_t *text = malloc(SIZE), *chunk = malloc(packed + 18);
    memset(text, 'a', SIZE);
    assert_int_equal(compress(chunk + 12, &packed, text, SIZE), Z_OK);
    free(text);
    memcpy(chunk + 4, "zTXtkey", 8);                       // ends with the method, 0
    chunk[11] = 0;
    memmove(chunk + 13, chunk + 12, packed);
    chunk[12] = 0;
    put_big_endian(chunk, (uint32_t)packed + 5);
    put_big_endian(chunk + 13 + packed, (uint32_t)crc32(0, chunk + 4, (uInt)packed + 9));
    const size_t size = packed + 17;
    uint8_t *file = malloc(n + TEXTS * size), *at = file + 33;
    memcpy(file, png, 33);
    for (int i = 0; i < TEXTS; i++, at += size) memcpy(at, chunk, size);
    memcpy(at, png + 33, n - 33);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(image_decode(&back, file, n + TEXTS * size, "texts", 3, NULL), 0);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 100000);
    assert_same(&im, &back);
    image_free(&im);
    image_free(&back);
    free(file);
    free(chunk);
    free(png);
}

// A WebP in its extended form: VP8X with the flag for EXIF, the picture, EXIF.
static uint8_t *webp_with_exif(const char *webp, size_t n, int orientation, int big, int w, int h,
                               size_t *size) {
    const uint8_t head[30] = { 'R',
                               'I',
                               'F',
                               'F',
                               0,
                               0,
                               0,
                               0,
                               'W',
                               'E',
                               'B',
                               'P',
                               'V',
                               'P',
                               '8',
                               'X',
                               10,
                               0,
                               0,
                               0,
                               8,
                               0,
                               0,
                               0,
                               (uint8_t)(w - 1),
                               0,
                               0,
                               (uint8_t)(h - 1),
                               0,
                               0 };
    uint8_t *out = calloc(1, *size = sizeof head + (n - 12) + 8 + TIFF), *at = out + sizeof head;
    memcpy(out, head, sizeof head);
    memcpy(at, webp + 12, n - 12);
    at += n - 12;
    memcpy(at, (uint8_t[8]){ 'E', 'X', 'I', 'F', TIFF }, 8);
    put_tiff(at + 8, orientation, big);
    for (int i = 0; i < 4; i++) out[4 + i] = (uint8_t)((*size - 8) >> 8 * i);
    return out;
}

// The corners of 2 x 3 pixels tell the eight orientations apart.
static void exif_counts_in_png_and_webp_too(void **state) {
    (void)state;
    static const char *const want[9] = { "123456", "123456", "214365", "654321", "563412",
                                         "135246", "531642", "642531", "246135" };
    Image small = { .w = 2, .h = 3, .c = 3, .p = malloc(18) };
    for (int i = 0; i < 18; i++) small.p[i] = (uint8_t)('1' + i / 3);
    char *png, *webp;
    size_t n_png, n_webp;
    assert_int_equal(image_write_png(&small, in_dir("a.png"), NULL), 0);
    assert_int_equal(image_write_webp(&small, 1, 1, in_dir("a.webp"), NULL), 0);
    assert_int_equal(file_read(in_dir("a.png"), 1 << 20, &png, &n_png, NULL), 0);
    assert_int_equal(file_read(in_dir("a.webp"), 1 << 20, &webp, &n_webp, NULL), 0);
    for (int o = 0; o <= 8; o++)
        for (int i = 0; i < 4; i++) {
            size_t n;
            Image im;
            Err err = { 0 };
            uint8_t *file = i < 2 ? png_with_exif(png, n_png, o, i % 2, &n)
                                  : webp_with_exif(webp, n_webp, o, i % 2, 2, 3, &n);
            if (image_decode(&im, file, n, i < 2 ? "png" : "webp", 1, &err))
                fail_msg("%s", err.msg);
            assert_int_equal(im.w, o < 5 ? 2 : 3);
            assert_memory_equal(im.p, want[o], 6);
            image_free(&im);
            free(file);
        }
    free(png);
    free(webp);
    image_free(&small);
}

static void no_exif_byte_crashes_the_reader(void **state) {
    (void)state;
    unsigned long n = 0;
    size_t size;
    unsigned char *data = make_jpeg(8, 8, 1, JCS_GRAYSCALE, &n);
    uint8_t *file = with_exif(data, n, 6, 0, &size);
    for (size_t i = 12; i < 38; i++)
        for (int v = 0; v < 256; v += 5) {
            Image im;
            const uint8_t old = file[i];
            file[i] = (uint8_t)v;
            if (!image_decode(&im, file, size, "x", 3, NULL)) image_free(&im);
            file[i] = old;
        }
    free(file);
    free(data);
}

static void a_still_webp_is_decoded_and_an_animation_refused(void **state) {
    (void)state;
    Image a[2] = { source(9, 7, 3), source(9, 7, 3) }, b;
    a[1].p[5] ^= 1;
    Err err = { 0 };
    assert_int_equal(image_write_webp(a, 1, 1, in_dir("a.webp"), NULL), 0);
    assert_int_equal(image_read(&b, in_dir("a.webp"), 3, &err), 0);
    assert_same(a, &b);
    image_free(&b);
    char *data;
    size_t n;
    assert_int_equal(file_read(in_dir("a.webp"), 1 << 20, &data, &n, NULL), 0);
    for (size_t cut = 12; cut + 1 < n; cut++) assert_refused((uint8_t *)data, cut, "WebP");
    for (size_t i = 0; i < n; i++) {
        data[i] = (char)~data[i];
        if (!image_decode(&b, (uint8_t *)data, n, "x", 3, NULL)) image_free(&b);
        data[i] = (char)~data[i];
    }
    free(data);
    assert_int_equal(image_write_webp(a, 2, 10, in_dir("a.webp"), NULL), 0);
    assert_int_not_equal(image_read(&b, in_dir("a.webp"), 3, &err), 0);
    assert_non_null(strstr(err.msg, "an animated WebP, expected a still picture"));
    image_free(&a[0]);
    image_free(&a[1]);
}

static void a_giant_jpeg_is_refused(void **state) {
    (void)state;
    unsigned long n;
    unsigned char *data;
    n = 0;
    data = make_jpeg(8, 8, 3, JCS_RGB, &n);
    for (unsigned long i = 0; i + 8 < n; i++)
        if (data[i] == 0xff && data[i + 1] == 0xc0) data[i + 5] = data[i + 6] = 0xf0;  // the height
    assert_refused(data, n, "8 x 61680");
    free(data);
}

// Each scan costs a pass over all of the picture, and takes a few bytes: a small file could keep
// the reader busy for hours. Encoders write about ten.
static void a_jpeg_of_a_thousand_scans_is_refused(void **state) {
    (void)state;
    struct jpeg_error_mgr mgr;
    struct jpeg_compress_struct j = { .err = jpeg_std_error(&mgr) };
    unsigned char *data = NULL, row[16] = { 1, 2, 3 }, *rows = row;
    unsigned long n = 0, from = 0, to;
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &data, &n);
    j.image_width = j.image_height = 16;
    j.input_components = 1;
    j.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&j);
    jpeg_simple_progression(&j);
    jpeg_start_compress(&j, TRUE);
    while (j.next_scanline < 16) jpeg_write_scanlines(&j, &rows, 1);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    while (data[from] != 0xff || data[from + 1] != 0xda) from++;       // the first scan
    for (to = from + 2; data[to] != 0xff || data[to + 1] == 0;) to++;
    const size_t scan = to - from;
    uint8_t *many = malloc(n + 1000 * scan);
    memcpy(many, data, to);
    for (size_t i = 0; i < 1000; i++) memcpy(many + to + i * scan, data + from, scan);
    memcpy(many + to + 1000 * scan, data + to, n - to);
    Image im;
    assert_int_equal(image_decode(&im, data, n, "jpg", 1, NULL), 0);
    image_free(&im);
    assert_refused(many, n + 1000 * scan, "over 100 scans");
    free(many);
    free(data);
}

static void resizing_equals_pil(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        Image a = source(golden[i].w, golden[i].h, golden[i].c), b;
        const int w = golden[i].to_w, h = golden[i].to_h;
        assert_int_equal(
            golden[i].square ? image_square(&b, &a, w, NULL) : image_resize(&b, &a, w, h, NULL), 0);
        assert_int_equal(b.w, w);
        assert_int_equal(b.h, h);
        assert_memory_equal(b.p, golden[i].p, (size_t)(b.w * b.h * b.c));
        image_free(&a);
        image_free(&b);
    }
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    Image a = source(100, 1, 1), b;
    Err err = { 0 };
    assert_int_equal(image_resize(&b, &a, 0, 5, &err), -1);
    assert_non_null(strstr(err.msg, "0 x 1"));
    err = (Err){ 0 };
    assert_int_equal(image_square(&b, &a, 1000, &err), -1);
    assert_string_equal(err.msg,
                        "a picture of 100 x 1 pixels, with its shorter side scaled to 1000, would "
                        "be 100000 x 1000, and the limit is 16384 pixels per side: crop it first");
    assert_int_equal(image_new(&b, 4, 4, 2, NULL), -1);
    image_free(&a);
}

static void a_grid_has_borders_zoom_and_clamped_values(void **state) {
    (void)state;
    const float x[] = { -1, 1, 0, 7, -9, 0.5f, 1, -1, 0, 0, 0, 0 };      // 3 pictures of 2 x 2
    const FloatImages of = { x, 3, 1, 2 };
    Image im;
    assert_int_equal(image_grid(&im, of, (Grid){ 2, 1, 2 }, NULL), 0);
    assert_int_equal(im.w, 11);                          // 1 + 4 + 1 + 4 + 1
    assert_int_equal(im.h, 11);
    assert_int_equal(im.p[0], 0);                        // the border
    assert_int_equal(im.p[1 * 11 + 1], 0);               // -1
    assert_int_equal(im.p[2 * 11 + 4], 255);             // 1, its lower right copy
    assert_int_equal(im.p[3 * 11 + 1], 128);             // 0
    assert_int_equal(im.p[3 * 11 + 3], 255);             // 7
    assert_int_equal(im.p[1 * 11 + 6], 0);               // -9
    assert_int_equal(im.p[1 * 11 + 8], 191);             // 0.5
    assert_int_equal(im.p[6 * 11 + 1], 128);             // the second row
    assert_int_equal(im.p[6 * 11 + 6], 0);               // no fourth picture
    image_free(&im);
    Err err = { 0 };
    assert_int_equal(image_grid(&im, of, (Grid){ 2, 1, 1 << 30 }, &err), -1);
    assert_non_null(strstr(err.msg, "zoom 1073741824"));
}

static void an_animation_is_a_webp_with_all_its_frames(void **state) {
    (void)state;
    Image frame[3] = { source(20, 10, 3), source(20, 10, 1), source(20, 10, 3) };
    memset(frame[2].p, 77, 600);
    Err err = { 0 };
    assert_int_equal(image_write_webp(frame, 3, 100, in_dir("a.webp"), &err), 0);
    char *data;
    size_t n, frames = 0;
    assert_int_equal(file_read(in_dir("a.webp"), 1 << 20, &data, &n, NULL), 0);
    assert_memory_equal(data, "RIFF", 4);
    assert_memory_equal(data + 8, "WEBP", 4);
    for (size_t i = 0; i + 4 <= n; i++) frames += !memcmp(data + i, "ANMF", 4);
    assert_int_equal(frames, 3);
    free(data);
    frame[1].w = 10;
    assert_int_equal(image_write_webp(frame, 3, 100, in_dir("a.webp"), &err), -1);
    assert_non_null(strstr(err.msg, "picture 1 is 10 x 10, expected 20 x 10"));
    for (int i = 0; i < 3; i++) image_free(&frame[i]);
}

static void text_shows_two_pixels_a_character(void **state) {
    (void)state;
    Image im;
    assert_int_equal(image_new(&im, 1, 3, 1, NULL), 0);
    im.p[0] = 1;
    im.p[2] = 255;
    char *s = image_text(&im, 80);
    assert_string_equal(s, "\x1b[38;2;1;1;1;48;2;0;0;0m\u2580\x1b[0m\n"
                           "\x1b[38;2;255;255;255m\u2580\x1b[0m\n");
    free(s);
    image_free(&im);
    im = source(200, 100, 3);
    s = image_text(&im, 40);
    size_t lines = 0;
    for (const char *p = s; *p; p++) lines += *p == '\n';
    assert_int_equal(lines, 10);                         // 40 x 20 pixels
    free(s);
    image_free(&im);
}

static void a_picture_that_cannot_be_written_is_an_error_with_its_name(void **state) {
    (void)state;
    Image a = source(3, 3, 3);
    Err err = { 0 };
    assert_int_equal(image_write_png(&a, "/nowhere/a.png", &err), -1);
    assert_string_equal(err.msg, "/nowhere/a.png: No such file or directory");
    image_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        // first: it looks at the most memory that was ever used
        cmocka_unit_test(a_png_with_large_compressed_texts_takes_no_memory_for_them),
        cmocka_unit_test(a_png_comes_back_as_it_was),
        cmocka_unit_test(grey_is_pils_grey_and_becomes_rgb_by_repetition),
        cmocka_unit_test(alpha_palette_and_16_bits_become_8_bit_rgb),
        cmocka_unit_test(a_png_cut_anywhere_is_refused),
        cmocka_unit_test(no_flipped_byte_crashes_the_png_reader),
        cmocka_unit_test(a_png_of_giant_sides_is_refused_before_decoding),
        cmocka_unit_test(other_formats_are_refused_by_their_first_bytes),
        cmocka_unit_test(a_jpeg_is_decoded),
        cmocka_unit_test(a_jpeg_cut_anywhere_is_refused),
        cmocka_unit_test(no_flipped_byte_crashes_the_jpeg_reader),
        cmocka_unit_test(a_cmyk_jpeg_is_decoded),
        cmocka_unit_test(exif_says_which_side_is_up),
        cmocka_unit_test(exif_counts_in_png_and_webp_too),
        cmocka_unit_test(no_exif_byte_crashes_the_reader),
        cmocka_unit_test(a_still_webp_is_decoded_and_an_animation_refused),
        cmocka_unit_test(a_giant_jpeg_is_refused),
        cmocka_unit_test(a_jpeg_of_a_thousand_scans_is_refused),
        cmocka_unit_test(resizing_equals_pil),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_grid_has_borders_zoom_and_clamped_values),
        cmocka_unit_test(an_animation_is_a_webp_with_all_its_frames),
        cmocka_unit_test(text_shows_two_pixels_a_character),
        cmocka_unit_test(a_picture_that_cannot_be_written_is_an_error_with_its_name),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
