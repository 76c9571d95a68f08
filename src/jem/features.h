// features.h - images through the Inception network of FID: 2048 numbers per image, and logits
// where the weights have the softmax layer.
#ifndef FEATURES_H
#define FEATURES_H
#include "base/events.h"
#include "conf/config.h"
#include "data/image_source.h"
#include "net/inception.h"

enum { FEATURES_PATH = 512 };

typedef struct {
    Comm     *comm;                 // ranks that share out the images of features_of, or NULL
    Dev       dev;
    Inception net;                  // open for images of the last size that was asked for
    const char *precision;          // of its products: "fp32"
    char      path[FEATURES_PATH], sha256[65];    // the weights' file
} FeatureNet;

// The weights' file: use->inception, else where `jempp data fetch inception` puts it; an error
// where there is none.
int  features_find(char path[FEATURES_PATH], const Config *use, Err *err);
// On a GPU products are in tf32 unless use->precision was given: bf16 would move the figures.
int  features_open(FeatureNet *f, Comm *comm, const Config *use, Err *err);
void features_close(FeatureNet *f);
// Whether the weights give logits. Opens the network for images of the source's size.
int  features_prepare(FeatureNet *f, const ImageSource *s, int *has_logits, Err *err);
// x[s->n][2048] and, where not NULL, logits[s->n][1008].
int  features_of(FeatureNet *f, const ImageSource *s, float *x, float *logits, const Events *ev,
                 Err *err);
#endif
