// draw.h - one call that draws images from a model: model_sample.c chooses, model_chains.c runs
// fresh chains.
#ifndef DRAW_H
#define DRAW_H
#include "base/image.h"
#include "jem/weight_noise.h"
#include "run/model.h"

typedef struct {
    Model   *m;
    Sampler *s;
    Config   cfg;               // the run's, with the options of this call
    int      steps_given;       // by this call, not by the run
    const Events *ev;
    WeightNoise noise;          // while chains run; not open where none is wanted
    char     wanted[MODEL_CLASSES];    // by class
    int      n_wanted;
    const ChainWatch *watch;    // or NULL
    float   *seen;              // [n_seen][dim] images for it, of the classes in seen_class
    int     *seen_class, n_seen;
    Image   *frame;             // of the animation
    int      n_frame;
} Draw;

typedef struct {                // the images that are drawn
    int    n;
    float *x;                   // [n][dim]
    int   *cls;                 // [n]: the class of each, or -1
} Drawn;

// From the ends of fresh chains, or from their starts; their classes are those of the starts.
int draw_chains(Draw *d, const Drawn *to, Err *err);
#endif
