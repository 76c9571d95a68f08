// starts.h - the initial distribution p0 of chains: one Gaussian per class fitted to the training
// images (or one for all classes, or uniform noise). Draws are numbered: a number always gives the
// same image.
#ifndef STARTS_H
#define STARTS_H
#include "conf/config.h"
#include "jem/starts_file.h"

typedef struct {
    Dev       *dev;
    StartKind  kind;
    int        classes, dim, n_group;     // n_group: one Gaussian per class, or 1
    Gauss     *g;                         // [n_group]
    int       *rows, *number;             // on the device: images sorted by class; scratch
    real      *mean, *factor;             // there too: [n_group][dim]; [n_group][rank][dim] or NULL
    real      *share;                     // [classes], host: class frequencies, cumulated
    struct {                              // starts in a model file, which are drawn on the host
        const StartsFile *file;           // the caller's; NULL: none, or one of 0.1
        Cosine     cosine;
        int        lot;                   // as many at once
        double    *room;                  // [lot][dim + side^2]
        real      *images;                // [lot][dim]
    } host;
    struct {                              // starts that are training images (starts_add_real)
        real   rate, noise;               // how often; sd of the noise on them
        Bytes  set;
        int   *rows, *first;              // host: images of class k are rows[first[k]] ...
        real  *image;                     // on the device: [dim], scratch
    } real;
    Arena      arena;
} Starts;

enum { STARTS_AT_ONCE = 512 };

// From a set's images, which `there` has on the device.
int  starts_open(Starts *s, Dev *dev, StartKind kind, const Set *set, const Bytes *there, Err *err);
// From what a model file holds, which must stay as long as s.
int  starts_open_model(Starts *s, Dev *dev, StartKind kind, int classes, const StartsFile *file,
                       Err *err);
// From now on a draw is, with probability `rate`, a training image of its class with noise.
int  starts_add_real(Starts *s, const Bytes *set, const int *y, double rate, double noise,
                     Err *err);
void starts_close(Starts *s);
// The class of draw `number` where the caller asks for none.
int  starts_class(const Starts *s, PriorKind prior, uint64_t seed, uint32_t number);
// Draws number[i] of class[i] into row draw_row(number[i], n_out) of out (device); the lists
// are the host's.
void starts_draw(Starts *s, uint64_t seed, const int *number, const int *cls, int n, real *out,
                 int n_out);
#endif
