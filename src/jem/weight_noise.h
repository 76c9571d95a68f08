// weight_noise.h - noise on a network's weights while chains climb, so that they climb what many
// networks near this one agree on, and not what this one alone takes for an image.
#ifndef WEIGHT_NOISE_H
#define WEIGHT_NOISE_H
#include "net/net.h"

typedef struct {
    Net  *net;                  // NULL: not open
    real *clean;                // on the device: the weights without noise
    real *rms;                  // the root mean square of each parameter's weights
    int   noisy;                // the weights have noise now
} WeightNoise;

int  weight_noise_open(WeightNoise *w, Net *net, Err *err);
// Replaces the noise, if any, by other noise: its standard deviation is share times the root mean
// square of each convolution's weights, and of the last layer's. Norms have none. One key gives the
// same noise anywhere.
void weight_noise_add(WeightNoise *w, double share, Rng key);
void weight_noise_remove(WeightNoise *w);       // the weights as they were, bit for bit
void weight_noise_close(WeightNoise *w);        // ... too
#endif
