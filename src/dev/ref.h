// ref.h - what the files of the reference backend share. Its tensors are plain, NCHW.
#ifndef REF_H
#define REF_H
#include "dev/backend.h"

enum { MANY = 100000 };                               // fewer elements are not shared among threads

static inline real *plane(const Tensor *t, int n, int c) {
    return (real *)t->p + ((size_t)n * t->c + c) * t->h * t->w;
}

void ref_net_table(Backend *be);                      // ref_net.c
void ref_learn_table(Backend *be);                    // ref_learn.c
void ref_muon_table(Backend *be);                     // ref_muon.c
#endif
