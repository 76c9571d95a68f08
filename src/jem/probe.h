// probe.h - the classifier under attack: logits and their gradient with respect to the image, with
// running statistics, so that an image does not depend on its batch. With JEM's refinement, noisy
// copies of an image first climb log p(x), and their mean logits decide.
#ifndef PROBE_H
#define PROBE_H
#include "jem/attack.h"
#include "jem/sample.h"

typedef struct {
    Chain chain;                // what a copy does; chain.steps 0: no refinement
    int   draws;                // copies
    real  noise;                // sd of the noise on them
} Refine;

typedef struct {
    Net   *net;
    Comm  *comm;                      // ranks that share out attacks; NULL unless set after opening
    Dev   *dev;
    int    batch;
    Refine refine;
    Pass   pass;
    void  *mem;
    real  *x0, *x, *copy, *mean;      // on the device: [batch][dim]; mean: of the copies' gradients
    int   *y, *index;                 // on the device: [batch]
    real  *sums;
    StepState   *now;
    real  *rows, *dz;                 // host: [batch][dim or classes], [batch][classes]
    int   *numbers;                   // host: [batch]
    Arena  arena;
} Probe;

int  probe_open(Probe *p, Net *net, int batch, const Refine *refine, Err *err);
void probe_close(Probe *p);
// Rows index[0 .. n) (host) of the set with noise by key, and their labels, to x0 and y; the last
// one fills the batch.
void probe_load(Probe *p, const Bytes *set, const int *index, int n, real noise, Rng key);
// Logits of the images x (device) to the host: logits[n][classes].
void probe_logits(Probe *p, real *x, int n, Rng key, float *logits);
// The gradient by x of a loss that grows as the images are misclassified. With refinement it is
// taken at the refined copies and handed straight through to x: their mean. Valid until the probe
// is used again.
Tensor probe_gradient(Probe *p, real *x, AttackLoss loss, Rng key);
// The same of attack_loss (attack.h) with labels y and targets (NULL: cross-entropy), host arrays
// of a whole batch; also each image's loss and logits[batch][classes], means over refined copies.
Tensor probe_losses(Probe *p, real *x, const int *y, const int *target, Rng key, double *loss,
                    float *logits);
// Logits [n][classes] and -|d log p(x) / dx| (in units of x) of the first n images of x, from one
// pass and without refinement; their gradients are left in p->rows.
void probe_slopes(Probe *p, real *x, int n, float *logits, double *slope);
#endif
