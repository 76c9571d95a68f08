// score.h - a set of images through the classifier, and what its logits are worth.
#ifndef SCORE_H
#define SCORE_H
#include "run/config.h"

typedef struct {                // inference over sets on the device, a batch at a time
    Net  *net;
    Pass  pass;
    void *mem;                  // own, or NULL where it shares a trainer's
    real *x;                    // on the device
    int  *index;
    int   batch;
    real *rows;                 // host: a batch of logits, or of images
    Arena arena;
} Scorer;

// shared: memory that other passes use too, and its size (NULL: the scorer takes its own).
int  scorer_open(Scorer *s, Net *net, int batch, void *shared, size_t bytes, Err *err);
void scorer_close(Scorer *s);
// Logits [n][classes] of images first .. first + n of the set; of host images [n][dim] in [-1, 1].
int  scorer_set(Scorer *s, const Bytes *set, int first, int n, float *logits, Err *err);
int  scorer_images(Scorer *s, const float *x, int n, float *logits, Err *err);

enum { ECE_BINS = 20 };

typedef struct {
    size_t n;
    double accuracy, nll, ece;              // shares of 1; nats
    double fx;                              // mean LSE: log p(x) up to a constant
    double threshold;                       // 5th percentile of LSE
} Scores;

double logsumexp(const float *z, int n);
int    scores_of(Scores *s, const float *logits, const int *y, size_t n, int classes, Err *err);
#endif
