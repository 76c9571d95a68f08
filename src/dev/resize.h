// resize.h - TensorFlow's legacy bilinear resize, the one that FID means: output i lies at
// i * n_in / n_out of the input, with no half pixel, and nothing is averaged where the image gets
// smaller. All devices compile this source, and round as TensorFlow does: to fp32 at each step.
#ifndef RESIZE_H
#define RESIZE_H
#include "base/rng.h"

typedef struct {
    int lo, hi;
    float mix;
} Sample; // between which two pixels, how far from the first

RNG_FN Sample legacy_sample(int i, int n_in, int n_out) {
    const float at = (float)i * (float)((double)n_in / (double)n_out);
    const int lo = (int)at < n_in - 1 ? (int)at : n_in - 1, hi = lo + 1 < n_in ? lo + 1 : lo;
    const Sample s = { lo, hi, at - (float)lo };
    return s;
}

// From rows `top` and `bottom` of bytes, as Inception reads pixels: (v - 128) / 128.
RNG_FN float legacy_mix(const uint8_t *top, const uint8_t *bottom, Sample row, Sample col) {
    const float a = (float)top[col.lo], b = (float)bottom[col.lo];
    const float up = a + ((float)top[col.hi] - a) * col.mix;
    const float low = b + ((float)bottom[col.hi] - b) * col.mix;
    return (up + (low - up) * row.mix - 128) * (1 / 128.0f);
}
#endif
