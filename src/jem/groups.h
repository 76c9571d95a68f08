// groups.h - training images sorted by class, and the mean image of each: what chain starts are
// fitted to.
#ifndef GROUPS_H
#define GROUPS_H
#include "data/data.h"

typedef struct {                          // on the host
    Arena   arena;
    int    *rows, *first;                 // images of group k are rows[first[k]] .. [first[k + 1]]
    double *mean;                         // [n_group][dim]
} Groups;

// n_group: one per class, or 1 for all images. A group without images is an error.
int  groups_open(Groups *g, const Set *set, int n_group, Err *err);
void groups_close(Groups *g);
// The lists alone; first: room for 2 n_group + 2, zeros.
int  groups_sort(const int *y, int n, int n_group, int *rows, int *first, Err *err);

static inline double pixel_value(uint8_t v) { return (double)v / 127.5 - 1; }
#endif
