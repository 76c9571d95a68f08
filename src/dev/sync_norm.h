// sync_norm.h - batch normalisation over the parts of several ranks, one channel: the same on a
// host and on a GPU.
#ifndef SYNC_NORM_H
#define SYNC_NORM_H
#include "dev/backend.h"
#include <math.h>

// As Backend.norm_join says. All parts have as many pixels.
RNG_FN void norm_join_channel(const Norm *op, const Tensor *x, const real *all, int ranks, int c,
                              real *stats) {
    const double m = (double)x->n * x->h * x->w, n = m * ranks;
    double mean = 0, square = 0;
    for (int r = 0; r < ranks; r++) mean += (double)all[2 * r * x->c + c] / ranks;
    for (int r = 0; r < ranks; r++) {
        const double d = (double)all[2 * r * x->c + c] - mean;
        const double rstd = (double)all[(2 * r + 1) * x->c + c];
        square += m * (fmax(1 / (rstd * rstd) - (double)op->eps, 0.0) + d * d);
    }
    stats[c] = (real)mean;
    stats[x->c + c] = (real)(square / n);
    if (!op->update) return;
    const double k = (double)op->momentum;
    op->run_mean[c] = (real)((1 - k) * (double)op->run_mean[c] + k * mean);
    op->run_var[c] = (real)((1 - k) * (double)op->run_var[c] + k * square / (n > 1 ? n - 1 : 1));
}

typedef struct { real a, b; } NormCenter;        // dx -= a + b x

// With S and D the sums of dz and dz xh over the whole batch of n pixels, what is missing in dx is
// -gamma rstd (S + xh D) / n.
RNG_FN NormCenter norm_center_channel(const Norm *op, const Tensor *x, const real *mine,
                                      const real *all, int ranks, int c, real *dgamma,
                                      real *dbeta) {
    const double n = (double)x->n * x->h * x->w * ranks, rstd = (double)op->rstd[c];
    const double scale = (double)op->gamma[c] * rstd / n, b = scale * rstd * (double)all[c];
    if (dgamma) dgamma[c] += mine[c];
    if (dbeta) dbeta[c] += mine[x->c + c];
    return (NormCenter){ (real)(scale * (double)all[x->c + c] - b * (double)op->mean[c]), (real)b };
}
#endif
