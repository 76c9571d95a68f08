// picture.c - see picture.h.
#include "serve/picture.h"
#include "base/rng.h"
#include "base/text_out.h"
#include "report/html.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PIXELS = 50000000 };

static int clampi(int v, int hi) { return v < 0 ? 0 : v > hi ? hi : v; }

static float pixel(const Image *im, int x, int y, int k) {
    const size_t at = (size_t)clampi(y, im->h - 1) * (size_t)im->w + (size_t)clampi(x, im->w - 1);
    return im->p[at * (size_t)im->c + (size_t)k];
}

// About the centre, counter-clockwise, bilinear; beyond the edge the pixels there are repeated.
static int rotate(Image *im, double degrees, Err *err) {
    Image to;
    const double a = degrees * acos(-1) / 180, ca = cos(a), sa = sin(a);
    const double mx = (im->w - 1) / 2.0, my = (im->h - 1) / 2.0;
    if (image_new(&to, im->w, im->h, im->c, err)) return -1;
    for (int y = 0; y < im->h; y++)
        for (int x = 0; x < im->w; x++) {
            const double u = mx + ca * (x - mx) - sa * (y - my);
            const double v = my + sa * (x - mx) + ca * (y - my);
            const int i = (int)floor(u), l = (int)floor(v);
            const float fx = (float)(u - i), fy = (float)(v - l);
            for (int k = 0; k < im->c; k++) {
                const float top = pixel(im, i, l, k) * (1 - fx) + pixel(im, i + 1, l, k) * fx;
                const float low =
                    pixel(im, i, l + 1, k) * (1 - fx) + pixel(im, i + 1, l + 1, k) * fx;
                to.p[((size_t)y * (size_t)im->w + (size_t)x) * (size_t)im->c + (size_t)k] =
                    (uint8_t)(top * (1 - fy) + low * fy + 0.5f);
            }
        }
    image_free(im);
    *im = to;
    return 0;
}

// A rotated picture needs what lies around its centre, but not all pixels of a photograph.
static int shrink(Image *im, int side, Err *err) {
    const int least = im->w < im->h ? im->w : im->h, most = 4 * side;
    Image small;
    if (least <= most) return 0;
    const double by = (double)most / least;
    if (image_resize(&small, im, (int)(im->w * by + 0.5), (int)(im->h * by + 0.5), err)) return -1;
    image_free(im);
    *im = small;
    return 0;
}

static void to_input(float *image, const Image *square, double noise) {
    const size_t pixels = (size_t)square->w * (size_t)square->h, c = (size_t)square->c;
    const Rng key = { .seed = 1, .stream = RNG_EVAL };      // the same for every strength
    for (size_t k = 0; k < c; k++)
        for (size_t i = 0; i < pixels; i++) {
            float v = byte_to_pixel(square->p[i * c + k]);
            if (noise > 0) v += 2 * (float)noise * rng_normal(key, k * pixels + i);
            image[k * pixels + i] = fminf(fmaxf(v, -1), 1);
        }
}

int picture_input(float *image, const uint8_t *data, size_t n, int c, int side,
                  PictureChange change, Err *err) {
    Image im, square;
    if (image_decode_most(&im, data, n, "the picture", c, MAX_PIXELS, err)) return -1;
    const int turned = fmod(change.rotate, 360) != 0;
    if ((turned && (shrink(&im, side, err) || rotate(&im, change.rotate, err))) ||
        image_square(&square, &im, side, err)) {
        image_free(&im);
        return -1;
    }
    to_input(image, &square, change.noise);
    image_free(&square);
    image_free(&im);
    return 0;
}

int picture_put(JsonOut *j, const char *key, FloatImages images, int columns, Err *err) {
    Image im;
    char *png;
    size_t size;
    TextOut out;
    if (image_grid(&im, images, (Grid){ .columns = columns, .zoom = 1 }, err)) return -1;
    const int failed = image_encode_png(&im, &png, &size, err);
    image_free(&im);
    if (failed) return -1;
    char *text = NULL;
    if (!text_open(&out, "a picture", err)) {
        fputs("data:image/png;base64,", out.f);
        html_base64(out.f, (const unsigned char *)png, size);
        text = text_close(&out, err);
    }
    free(png);
    if (!text) return -1;
    json_put_string(j, key, text);
    free(text);
    return 0;
}
