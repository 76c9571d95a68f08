// detail.c - see detail.h.
#include "jem/detail.h"
#include <math.h>
#include <stdlib.h>

static size_t plane_of(const Detail *d) { return (size_t)d->cosine.side * (size_t)d->cosine.side; }

int detail_open(Detail *d, int channels, int side, Err *err) {
    *d = (Detail){ .channels = channels };
    if (cosine_open(&d->cosine, 1, side, err)) return -1;
    const size_t plane = plane_of(d);
    d->z = calloc(4 * plane, sizeof *d->z);
    if (!d->z) {
        detail_close(d);
        return err_set(err, ERR_MEM, "out of memory for the detail of images");
    }
    d->room = d->z + plane;
    d->sum = d->room + plane;
    d->square = d->sum + plane;
    return 0;
}

void detail_close(Detail *d) {
    cosine_close(&d->cosine);
    free(d->z);
    *d = (Detail){ 0 };
}

void detail_add(Detail *d, const float *x, size_t n) {
    const size_t plane = plane_of(d), C = (size_t)d->channels;
    for (size_t i = 0; i < n; i++, x += C * plane) {
        for (size_t k = 0; k < plane; k++) {
            d->z[k] = 0;
            for (size_t c = 0; c < C; c++) d->z[k] += (double)x[c * plane + k] / (double)C;
        }
        cosine_forward(&d->cosine, d->z, d->room);
        for (size_t k = 0; k < plane; k++) {
            d->sum[k] += d->z[k];
            d->square[k] += d->z[k] * d->z[k];
        }
    }
    d->n += n;
}

// Lower frequencies are what chains keep of their starts, higher ones are largely noise.
static int is_middle(int u, int v, int side) {
    const double waves = 32 * hypot(u, v) / side;
    return waves >= 2 && waves < 13;
}

double detail_value(const Detail *d) {
    const double LEAST = 1e-12;                             // of images that are all alike
    const int side = d->cosine.side;
    double sum = 0;
    int count = 0;
    for (int u = 0; u < side; u++)
        for (int v = 0; v < side; v++) {
            if (!is_middle(u, v, side)) continue;
            const double mean = d->sum[u * side + v] / (double)d->n;
            const double variance = d->square[u * side + v] / (double)d->n - mean * mean;
            sum += variance < LEAST ? log(LEAST) : log(variance);
            count++;
        }
    return sum / count;
}
