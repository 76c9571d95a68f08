// score.h - logits of a whole set of images; jem/metrics.h evaluates them.
#ifndef SCORE_H
#define SCORE_H
#include "conf/config.h"

typedef struct {                // inference over sets on the device, batch by batch
    Net  *net;
    Comm *comm;                 // ranks that share out the batches of a set; NULL unless set after
    Pass  pass;
    void *mem;                  // own, or NULL where it shares a trainer's
    real *x;                    // on the device
    int  *index;
    int   batch;
    real  noise;                // on the images of sets, by seed; 0 unless set after opening
    uint64_t seed;
    real *rows;                 // host: a batch of logits, or of images
    Arena arena;
} Scorer;

// shared: memory that other passes use too, and its size (NULL: the scorer takes its own).
int  scorer_open(Scorer *s, Net *net, int batch, void *shared, size_t bytes, Err *err);
// The same with another mode than MODE_INFER (net.h).
int  scorer_open_as(Scorer *s, Net *net, int batch, int mode, void *shared, size_t bytes, Err *err);
void scorer_close(Scorer *s);
// Logits [n][classes] of images first .. first + n of the set; of host images [n][dim] in [-1, 1].
int  scorer_set(Scorer *s, const Bytes *set, int first, int n, float *logits, Err *err);
int  scorer_images(Scorer *s, const float *x, int n, float *logits, Err *err);
#endif
