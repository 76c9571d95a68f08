// sphere.h - a step of a vector of weights on the sphere of all vectors of its length. Every device
// compiles this source.
#ifndef SPHERE_H
#define SPHERE_H
#include "base/rng.h"
#include <math.h>

typedef struct { double keep, move; } SphereStep;                // w = keep w - move o

// w goes rate |w| along -o and is then brought back to its length. Of the sums: w.w, w.o and o.o.
RNG_FN SphereStep sphere_step_of(double rate, double ww, double wo, double oo) {
    SphereStep s = { 1, 0 };
    if (!(ww > 0) || !(oo > 0)) return s;
    const double move = rate * sqrt(ww / oo), length2 = ww - 2 * move * wo + move * move * oo;
    if (!(length2 > 0)) return s;
    s.keep = sqrt(ww / length2);
    s.move = move * s.keep;
    return s;
}
#endif
