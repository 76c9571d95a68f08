// paper.h - the figures that the paper reports (WRN-28-10), to stand beside ours.
#ifndef PAPER_H
#define PAPER_H

// The figure of `system` (a preset's name) trained on `data`: "acc", "ece" in percent, "is",
// "fid", "minutes" (an epoch); "logpx:SET" and "maxp:SET", the AUROC of that score against a set by
// its name in `jempp eval` ("svhn", "interp", "cifar100", "celeba", "cifar-file:DIR/celeba.bin").
// NaN: the paper has none.
double paper_figure(const char *system, const char *data, const char *measure);

// The paper's system that a run is compared with: its preset where the paper has that, else what
// its options are nearest to, else JEM++ with M = 10, the paper's own choice. Never NULL.
const char *paper_system(const char *preset, const char *px, int steps);
const char *paper_label(const char *system);          // "JEM++ M=10"; NULL: not the paper's
#endif
