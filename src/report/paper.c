// paper.c - see paper.h.
#include "report/paper.h"
#include <math.h>
#include <string.h>

// clang-format off
static const struct { const char *system, *label; } SYSTEMS[] = {
    { "jempp-m5",    "JEM++ M=5" },
    { "jempp-m10",   "JEM++ M=10" },
    { "jempp-m20",   "JEM++ M=20" },
    { "jem",         "JEM K=20" },
    { "softmax",     "softmax WRN" },
    { "no-prox",     "JEM++ without proximity" },
    { "adam",        "JEM++ with Adam" },
    { "random-nobn", "JEM++, random starts, no BN" },
    { "info-nobn",   "JEM++, no BN" },
    { "jem-info-bn", "JEM, informative starts, BN" },
};

static const char *const MEASURES[] = {
    "acc.top1", "ece.ece", "fid.buffer.is", "fid.buffer.fid", "speed.minutes_per_epoch",
    "logpx:svhn", "logpx:interp", "logpx:cifar100", "logpx:celeba",
    "maxp:svhn", "maxp:interp", "maxp:cifar100", "maxp:celeba",
};
enum { N_SYSTEMS = sizeof SYSTEMS / sizeof *SYSTEMS,
       N_MEASURES = sizeof MEASURES / sizeof *MEASURES };

// 0: none. The paper gives one calibration error for JEM++ and does not say whether M is 5 or 10.
static const struct { const char *system, *data; double value[N_MEASURES]; } FIGURES[] = {
    { "jempp-m5", "cifar10", { 91.1, 2.35, 7.81, 37.9, 12.5,
        .89, .73, .81, .74, .88, .78, .86, .78 } },
    { "jempp-m10", "cifar10", { 93.5, 2.35, 8.29, 37.1, 20.1,
        .63, .68, .64, .59, .91, .78, .88, .82 } },
    { "jempp-m20", "cifar10", { 94.1, 0, 8.11, 38.0, 32.5,
        .85, .57, .68, .89, .94, .77, .88, .90 } },
    { "jem", "cifar10", { 92.9, 4.2, 8.76, 38.4, 30.1,
        .67, .65, .67, .75, .89, .75, .87, .79 } },
    { "softmax", "cifar10", { 95.8, 0, 0, 0, 0,
        0, 0, 0, 0, .93, .77, .85, .62 } },
    { "no-prox", "cifar10", { 92.9, 0, 7.92, 36.0 } },
    { "adam", "cifar10", { 92.5, 0, 7.65, 42.7 } },
    { "random-nobn", "cifar10", { 88.6, 0, 7.64, 35.1 } },  // it diverged at epoch 28
    { "info-nobn", "cifar10", { 91.1, 0, 7.92, 39.8 } },
    { "jem-info-bn", "cifar10", { 93.0, 0, 8.12, 36.8 } },
    { "jempp-m5", "cifar100", { 72.0, 3.3 } },
    { "jempp-m10", "cifar100", { 74.5, 3.3 } },
    { "jem", "cifar100", { 72.2, 4.87 } },
    { "softmax", "cifar100", { 78.9 } },
    { "jempp-m5", "svhn", { 96.7 } },
    { "jempp-m10", "svhn", { 96.9 } },
    { "jem", "svhn", { 96.7 } },
    { "softmax", "svhn", { 97.0 } },
};
enum { N_FIGURES = sizeof FIGURES / sizeof *FIGURES };
// clang-format on

// A file that carries a set's name stands for that set: "logpx:cifar-file:d/celeba.bin".
static int same_measure(const char *asked, const char *known) {
    if (!strcmp(asked, known)) return 1;
    const char *file = strstr(asked, ":cifar-file:"), *set = strchr(known, ':');
    if (!file || !set || file - asked != set - known || strncmp(asked, known, file - asked))
        return 0;
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file + strlen(":cifar-file:");
    const size_t n = strcspn(name, ".");
    return n == strlen(set + 1) && !memcmp(name, set + 1, n) && name[n] == '.';
}

double paper_figure(const char *system, const char *data, const char *measure) {
    int k = 0, i = 0;
    while (k < N_MEASURES && !same_measure(measure, MEASURES[k])) k++;
    while (i < N_FIGURES && (strcmp(FIGURES[i].system, system) || strcmp(FIGURES[i].data, data)))
        i++;
    if (k == N_MEASURES || i == N_FIGURES || FIGURES[i].value[k] == 0) return NAN;
    return FIGURES[i].value[k];
}

const char *paper_label(const char *system) {
    for (int i = 0; i < N_SYSTEMS; i++)
        if (!strcmp(SYSTEMS[i].system, system)) return SYSTEMS[i].label;
    return NULL;
}

const char *paper_system(const char *preset, const char *px, int steps) {
    if (paper_label(preset)) return preset;
    if (!strcmp(px, "none")) return "softmax";
    return steps == 5 ? "jempp-m5" : steps == 20 ? "jempp-m20" : "jempp-m10";
}
