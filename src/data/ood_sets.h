// ood_sets.h - image sets unlike a model's training data, for out-of-distribution
// detection.
#ifndef OOD_SETS_H
#define OOD_SETS_H
#include "data/data.h"

enum { OOD_PICTURES = 10000 };            // in a set that is made up
// A set by name, of the same size and channels as `in` (or refused); one that is made up has at
// most `limit` pictures (0: OOD_PICTURES):
//   the test half of cifar10, cifar100, svhn, mnist, fashion-mnist; folder:DIR; cifar-file:FILE
//   interp     the mean of pictures i and i + 100 of `in`, shuffled: one fewer hundred than it has
//   uniform    every value of every pixel uniform
//   gaussian   every value normal about the middle, sd a quarter of the range
//   constant   one colour a picture, uniform
int ood_load(Set *s, const char *name, const Set *in, size_t limit, const DataOpts *o,
                 Err *err);
// The names worth trying where the user gave none, NULL at the end: those of the shape of `in` that
// are here. Room for 16.
void ood_names(const char *names[16], const Set *in, const char *dir);
#endif
