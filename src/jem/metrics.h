// metrics.h - metrics of a classifier and of OOD scores: pure functions of logits, labels and
// numbers. docs/eval.md defines each.
#ifndef METRICS_H
#define METRICS_H
#include "base/err.h"
#include <stddef.h>

enum { ECE_BINS = 20, ROC_POINTS = 200, HIST_BINS = 60, N_PERCENTILE = 101 };
enum { TEMPERATURE_ERRORS = 20 };           // misclassified images that a temperature takes to fit

typedef struct { size_t count; double confidence, right; } Bin;   // images; sums over them

typedef struct {
    size_t n;
    double accuracy, top5;                  // shares of 1
    double nll, brier;                      // nats; sum over classes of squared error, 0 to 2
    double ece, mce, classwise;             // shares of 1: mean gap, largest gap, mean over classes
    double fx;                              // mean LSE: log p(x) up to a constant
    double threshold;                       // 5th percentile of LSE
    float  percentile[N_PERCENTILE];        // 0 to 100 of LSE, ranks rounded down
    Bin    bin[ECE_BINS];                   // by max p(y|x)
} Scores;

void   sort_numbers(double *v, size_t n);   // ascending
double median(const double *sorted, size_t n);
double logsumexp(const float *z, int n);
int    argmax(const float *z, int n);       // of equal ones the first
// Of logits [n][classes] divided by `temperature` (1: as they are).
int    scores_of(Scores *s, const float *logits, const int *y, size_t n, int classes,
                 double temperature, Err *err);
// How many of n images are misclassified.
size_t errors_of(const float *logits, const int *y, size_t n, int classes);
// counts[classes][classes], one row per true class.
void   confusion_of(size_t *counts, const float *logits, const int *y, size_t n, int classes);
// The temperature by which the logits' mean NLL is least, within 1/1000 and 1000.
double temperature_of(const float *logits, const int *y, size_t n, int classes);

// Scores that should be higher for in-distribution images.
typedef enum { SCORE_LOGPX, SCORE_MAXP, SCORE_MAXLOGIT, SCORE_GRADNORM, N_SCORE } ScoreKind;
extern const char *const score_name[N_SCORE];     // "logpx", ... as in eval.json
extern const char *const score_label[N_SCORE];    // "log p(x)", ...

typedef struct {                            // how well a score separates in (higher) from out
    double auroc;                           // ties count half
    double aupr, aupr_out;                  // average precision of in, of out
    double fpr95;                           // false positives where 95 % of in, or more, are found
    int    n_roc;
    double roc[ROC_POINTS][2];              // false, true positive rate
    double lo, hi;                          // histograms span this; their end bins hold the rest
    size_t in[HIST_BINS], out[HIST_BINS];
} Detection;

// Sorts both arrays. All scores must be finite, both counts above 0.
void   detect(Detection *d, double *in, size_t n_in, double *out, size_t n_out);
#endif
