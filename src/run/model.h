// model.h - a trained model in use: classify, score, sample.
#ifndef MODEL_H
#define MODEL_H
#include "base/image.h"
#include "data/data.h"
#include "jem/metrics.h"
#include "jem/sample.h"
#include "jem/score.h"
#include "jem/starts.h"
#include "run/ckpt.h"
#include "run/folder.h"

typedef struct Sampler Sampler;

enum { N_SCORERS = 32, MANY_IMAGES = 1024, MODEL_CLASSES = 1000 };

typedef struct Jempp {         // Jempp: jempp.h's name for it
    Config   cfg;               // the run's options; device, threads and data-dir are the user's
    char     path[RUN_PATH], run[RUN_PATH];    // run: the folder, or "" for a lone file
    Comm    *comm;              // ranks that share out what is computed; NULL: this process alone
    Dev      dev;
    Net      net;
    Scorer   scorer[N_SCORERS]; // for up to 2^i images at once, opened when needed
    uint64_t scored;            // images so far: past MANY_IMAGES kernels are chosen by timing
    Sampler *sampler;           // what sampling keeps between calls, or NULL
    Arena    arena;
    const char **class_name;
    float    threshold;         // NaN: unknown
    float   *percentile;        // of the validation images' log p(x) [N_PERCENTILE], or NULL
    double   temperature;       // of p(y|x) in use; 0: none known, and 1 is used
    StartsFile starts;          // chain starts that it carries; n_group 0: none
    char     images[33];        // images_digest of a user's own images; "": not known
} Model;

int  model_open(Model *m, const Config *use, const char *path, Err *err);
// The same on several ranks at once (dev/comm.h), which call the functions below together, with the
// same arguments, and get the same results. Errors of one are errors of all.
int  model_open_shared(Model *m, const Config *use, const char *path, Err *err);
// A network with random weights instead of a file's, as the options describe it: for benchmarks.
int  model_untrained(Model *m, const Config *use, Err *err);
void model_close(Model *m);
// n host images of the model's size.
static inline FloatImages model_images(const Model *m, const float *x, int n) {
    return (FloatImages){ x, n, m->net.spec.channels, m->net.spec.side };
}
ModelCard model_card(const Model *m, const Config *options);   // to save it, with these options
int  model_has_buffer(const Model *m);             // it is a run's, with a replay buffer
void sampler_free(Model *m);    // what sampling kept; the next call begins afresh
// Logits [n][classes] of host images [n][dim] in [-1, 1].
int  model_logits(Model *m, const float *images, int n, float *logits, Err *err);
// From one image's logits: p(y|x) into p (may be NULL), the softmax at the model's temperature, 1
// where it has none. Returns log p(x) up to a constant: the logits' LogSumExp.
float model_score(const Model *m, const float *logits, float *p);
// Sets wanted[MODEL_CLASSES] for the classes of a list of names or numbers with commas between, ""
// or "all" for all, and returns how many they are, or -1. A name that has commas is found too.
int  model_classes(const Model *m, const char *list, char *wanted, Err *err);
// Warns where the classes of a set, which `name` names, have other names than the model's: "NAME:
// WHAT than the model's (...); THEN".
void model_compare_names(const Model *m, const Set *s, const char *name, const char *what,
                         const char *then, const Events *ev);
int  model_n_samples(const Model *m, const Config *use, Err *err);     // that `use` asks for, or -1
// Images [n][dim] as `use` says (from, class, count, best, ...); class_of[n]: the class that each
// was started as or, where the buffer's images of a class were asked for, is predicted to have; or
// -1; may be NULL.
int  model_sample(Model *m, const Config *use, const Events *ev, int n, float *images,
                  int *class_of, Err *err);
// The same with fresh chains watched: frame gets their images before each step and after the last,
// in the order in which they are returned. steps 0: these are chains by which the length of steps
// is fitted. Nonzero ends the chains with an error. It may use the model's logits meanwhile.
typedef struct {
    int (*frame)(void *ctx, int step, int steps, int n, const float *images, const int *class_of);
    void *ctx;
} ChainWatch;
int  model_sample_watched(Model *m, const Config *use, const Events *ev, const ChainWatch *watch,
                          int n, float *images, int *class_of, Err *err);
Anneal model_chains(const Model *m);    // the steps of the fresh chains that were drawn last
#endif
