// model_view.h - the model that clients use, and its answers as JSON.
#ifndef MODEL_VIEW_H
#define MODEL_VIEW_H
#include "base/json.h"
#include "run/model.h"
#include "serve/runs.h"
#include <sys/stat.h>

enum { AT_ONCE = 32 };              // pictures that are classified together

typedef struct {
    Model *model;                   // NULL: none is open
    char   name[256];               // what the model is called
    struct stat file;               // of the model when it was opened
    float *images;                  // room for AT_ONCE
    float *logits;                  // room for AT_ONCE + 1, the last for probabilities
} ModelView;

// Opens the model of a run ("": of the newest that has one) unless it is open already; opens it
// again when training has replaced it. ERR_ARG: there is no such model.
int  model_view_open(ModelView *v, const Config *c, Runs *runs, const char *run, Err *err);
void model_view_close(ModelView *v);

// Each adds members to an open object.
void put_model(const ModelView *v, JsonOut *j);
// Of one picture: class, probabilities, log p(x), and all that in words.
void put_prediction(const ModelView *v, JsonOut *j, const float *image, const float *logits);
// n images as one grid, with their classes (-1: none) and scores.
int  put_samples(ModelView *v, JsonOut *j, int n, const float *images, const int *class_of,
                 Err *err);
#endif
