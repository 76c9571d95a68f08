// paper.h - the results that the paper reports (WRN-28-10), to compare ours with.
#ifndef PAPER_H
#define PAPER_H

// The result of `system` (a preset's name) trained on `data`. A measure is TASK.KEY of eval.json
// ("acc.top1", "ece.ece", "fid.buffer.fid", "fid.buffer.is", "speed.minutes_per_epoch"), or the
// AUROC of a score against a set by its name in `jempp eval`: "logpx:SET", "maxp:SET" ("svhn",
// "interp", "cifar100", "celeba", "cifar-file:DIR/celeba.bin"). NaN: the paper has none.
double paper_figure(const char *system, const char *data, const char *measure);

// The paper's system that a run is compared with: its preset where the paper has that, else what
// its options are nearest to, else JEM++ with M = 10, the paper's own choice. Never NULL.
const char *paper_system(const char *preset, const char *px, int steps);
const char *paper_label(const char *system);          // "JEM++ M=10"; NULL: not the paper's
#endif
