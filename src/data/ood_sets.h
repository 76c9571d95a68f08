// ood_sets.h - out-of-distribution image sets: other data sets, and synthetic ones.
#ifndef OOD_SETS_H
#define OOD_SETS_H
#include "data/data.h"

enum { OOD_PICTURES = 10000 };            // in a synthetic set
// A set by name; an error unless it has the size and channels of `in`. A synthetic one has at most
// `limit` pictures (0: OOD_PICTURES):
//   the test half of cifar10, cifar100, svhn, mnist, fashion-mnist; folder:DIR; cifar-file:FILE
//   interp     the mean of pictures i and i + 100 of `in`, shuffled: one fewer hundred than it has
//   uniform    every value of every pixel uniform
//   gaussian   every value normal about the middle, sd a quarter of the range
//   constant   one colour per picture, uniform
int ood_load(Set *s, const char *name, const Set *in, size_t limit, const DataOpts *o,
                 Err *err);
// The default of --ood: the names of all sets that are found and have the shape of `in`, ended by
// NULL.
void ood_names(const char *names[16], const Set *in, const char *dir);
#endif
