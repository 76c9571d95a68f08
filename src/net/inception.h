// inception.h - TensorFlow's Inception of 2015-12-05, the network of FID and of the Inception
// Score, as a Net: images to the 2048 features of pool_3 and, where the weights have it, to the
// softmax's logits. For inference alone.
//
// Batch norms (eps 0.001) are folded into the convolutions when the weights are loaded.
#ifndef INCEPTION_H
#define INCEPTION_H
#include "net/net.h"

enum { INCEPTION_SIDE = 299, INCEPTION_FEATURES = 2048, INCEPTION_CLASSES = 1008 };

// Where weights come from. read puts the tensor of that name and shape into dst and returns 0; it
// returns 1 where there is none of that name, and -1 with err filled where it has another shape or
// cannot be read. Names are pytorch-fid's ("Mixed_5b.branch5x5_2.conv.weight", "fc.weight", ...);
// a source without the first of them is asked for those of the TorchScript file
// ("net.layers.mixed.tower.conv_1.weight", ...).
typedef struct {
    int (*read)(void *ctx, const char *name, int rank, const int *dim, float *dst, Err *err);
    void *ctx;
} InceptionWeights;

typedef struct {
    Net      net;
    Pass     pass;
    int      h, w, batch;       // of the images; images in a pass
    int      has_logits;        // the weights came with a softmax layer
    char   (*alias)[40];        // by filter: its name in the TorchScript file
    void    *mem;               // the pass's, on the device
    uint8_t *images;            // [batch][3][h][w], on the device
} Inception;

// Opens the network for images of h rows and w columns with `batch` images in a pass (0: a number
// that suits the device), and loads its weights. inception_close closes it even where this failed.
int  inception_open(Inception *in, Dev *dev, const InceptionWeights *weights, int h, int w,
                   int batch, Err *err);
// images: n x [3][h][w], on the host, n <= batch; a GPU computes while the host goes on.
int  inception_start(Inception *in, const uint8_t *images, int n, Err *err);
// Waits for the n images of the last inception_start. features: [n][2048]; logits: [n][1008], or
// NULL for none (it must be where has_logits is 0). Logits are without the layer's bias, as the
// Inception Score's authors have them.
int  inception_finish(Inception *in, int n, real *features, real *logits, Err *err);
void inception_close(Inception *in);
#endif
