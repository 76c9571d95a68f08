// metrics.c - see metrics.h.
#include "jem/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double logsumexp(const float *z, int n) {
    double top = (double)z[0], sum = 0;
    for (int i = 1; i < n; i++) top = fmax(top, (double)z[i]);
    for (int i = 0; i < n; i++) sum += exp((double)z[i] - top);
    return top + log(sum);
}

int argmax(const float *z, int n) {
    int best = 0;
    for (int c = 1; c < n; c++)
        if (z[c] > z[best]) best = c;
    return best;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_numbers(double *v, size_t n) { qsort(v, n, sizeof *v, by_value); }

double median(const double *sorted, size_t n) {
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

// ---- classification -----------------------------------------------------------------------------

// The bin (b/20, (b+1)/20] that holds p; by its edges, because p * 20 may round over one.
static int bin_of(double p) {
    int b = 0;
    while (b < ECE_BINS - 1 && p > (double)(b + 1) / ECE_BINS) b++;
    return b;
}

static void bin_add(Bin *bin, double p, int right) {
    Bin *b = &bin[bin_of(p)];
    b->count++;
    b->confidence += p;
    b->right += right;
}

static double mean_gap(const Bin *bin, size_t n) {
    double gap = 0;
    for (int b = 0; b < ECE_BINS; b++) gap += fabs(bin[b].confidence - bin[b].right);
    return gap / (double)n;
}

// How many classes come before y; of equal ones the first leads.
static int place_of(const float *z, int classes, int y) {
    int ahead = 0;
    for (int c = 0; c < classes; c++) ahead += z[c] > z[y] || (c < y && z[c] == z[y]);
    return ahead;
}

// One image's part in everything but the order statistics; `by_class` is a row of bins a class.
static void add_row(Scores *s, Bin *by_class, const float *z, int classes, int y, double t) {
    const int best = argmax(z, classes), place = place_of(z, classes, y);
    double sum = 0, top = 0;
    for (int c = 0; c < classes; c++) sum += exp(((double)z[c] - (double)z[best]) / t);
    for (int c = 0; c < classes; c++) {
        const double p = exp(((double)z[c] - (double)z[best]) / t) / sum, off = p - (c == y);
        s->brier += off * off;
        bin_add(by_class + (size_t)c * ECE_BINS, p, c == y);
        if (c == best) top = p;
    }
    bin_add(s->bin, top, best == y);
    s->accuracy += place == 0;
    s->top5 += place < 5;
    s->nll += log(sum) - ((double)z[y] - (double)z[best]) / t;
}

int scores_of(Scores *s, const float *logits, const int *y, size_t n, int classes,
              double temperature, Err *err) {
    *s = (Scores){ .n = n, .threshold = NAN };
    double *lse = malloc((n + 1) * sizeof *lse);
    Bin *by_class = calloc((size_t)classes * ECE_BINS, sizeof *by_class);
    if (lse && by_class && n) {
        for (size_t i = 0; i < n; i++) {
            const float *z = logits + i * (size_t)classes;
            lse[i] = logsumexp(z, classes);
            s->fx += lse[i] / (double)n;
            add_row(s, by_class, z, classes, y[i], temperature);
        }
        double *mean[] = { &s->accuracy, &s->top5, &s->nll, &s->brier };
        for (int i = 0; i < 4; i++) *mean[i] /= (double)n;
        s->ece = mean_gap(s->bin, n);
        for (int b = 0; b < ECE_BINS; b++)
            if (s->bin[b].count)
                s->mce = fmax(s->mce, fabs(s->bin[b].confidence - s->bin[b].right) /
                                          (double)s->bin[b].count);
        for (int c = 0; c < classes; c++)
            s->classwise += mean_gap(by_class + (size_t)c * ECE_BINS, n) / classes;
        sort_numbers(lse, n);
        s->threshold = lse[(n - 1) / 20];
        for (size_t k = 0; k < N_PERCENTILE; k++)
            s->percentile[k] = (float)lse[(n - 1) * k / (N_PERCENTILE - 1)];
    }
    const int rc = lse && by_class ? 0 : err_set(err, ERR_MEM, "out of memory for %zu scores", n);
    free(lse);
    free(by_class);
    return rc;
}

void confusion_of(size_t *counts, const float *logits, const int *y, size_t n, int classes) {
    memset(counts, 0, (size_t)classes * (size_t)classes * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        const int found = argmax(logits + i * (size_t)classes, classes);
        counts[(size_t)y[i] * (size_t)classes + (size_t)found]++;
    }
}

// d NLL / d b where logits are multiplied by b = 1/T: it grows with b, so its zero is the least
// NLL.
static double nll_slope(const float *logits, const int *y, size_t n, int classes, double b) {
    double slope = 0;
    for (size_t i = 0; i < n; i++) {
        const float *z = logits + i * (size_t)classes;
        const double top = (double)z[argmax(z, classes)];
        double sum = 0, mean = 0;
        for (int c = 0; c < classes; c++) {
            const double p = exp(b * ((double)z[c] - top));
            sum += p;
            mean += p * ((double)z[c] - (double)z[y[i]]);
        }
        slope += mean / sum;
    }
    return slope;
}

size_t errors_of(const float *logits, const int *y, size_t n, int classes) {
    size_t errors = 0;
    for (size_t i = 0; i < n; i++) errors += argmax(logits + i * (size_t)classes, classes) != y[i];
    return errors;
}

double temperature_of(const float *logits, const int *y, size_t n, int classes) {
    double lo = log(1e-3), hi = log(1e3);                     // of b, which is bisected
    for (int i = 0; i < 50; i++) {
        const double middle = (lo + hi) / 2;
        if (nll_slope(logits, y, n, classes, exp(middle)) < 0) lo = middle;
        else hi = middle;
    }
    return exp(-(lo + hi) / 2);
}

// ---- detection ----------------------------------------------------------------------------------

const char *const score_name[N_SCORE] = { "logpx", "maxp", "maxlogit", "gradnorm" };
const char *const score_label[N_SCORE] = { "log p(x)", "max p(y|x)", "max logit",
                                           "-|d log p(x)/dx|" };

typedef struct {
    size_t in, out;
} Above; // how many scores are at or above a threshold

// The next lower threshold below which both arrays (sorted upwards) have been taken: 0 at the end.
static int next_level(Above *a, const double *in, size_t n_in, const double *out, size_t n_out) {
    if (a->in == n_in && a->out == n_out) return 0;
    const double x = a->in < n_in ? in[n_in - 1 - a->in] : -INFINITY,
                 y = a->out < n_out ? out[n_out - 1 - a->out] : -INFINITY, level = fmax(x, y);
    while (a->in < n_in && in[n_in - 1 - a->in] >= level) a->in++;
    while (a->out < n_out && out[n_out - 1 - a->out] >= level) a->out++;
    return 1;
}

static double quantile(const double *sorted, size_t n, double q) {
    return sorted[(size_t)(q * (double)(n - 1) + 0.5)];
}

// A few far values would leave the rest in one bin, so the histograms span all but 1/200 at each
// end.
static void histograms(Detection *d, const double *in, size_t n_in, const double *out,
                       size_t n_out) {
    const double tail = 0.005;
    d->lo = fmin(quantile(in, n_in, tail), quantile(out, n_out, tail));
    d->hi = fmax(quantile(in, n_in, 1 - tail), quantile(out, n_out, 1 - tail));
    if (!(d->hi > d->lo)) d->lo -= 0.5, d->hi += 0.5;
    for (size_t i = 0; i < n_in + n_out; i++) {
        const double v = i < n_in ? in[i] : out[i - n_in],
                     at = floor((v - d->lo) / (d->hi - d->lo) * HIST_BINS);
        const int b = at < 0 ? 0 : at >= HIST_BINS ? HIST_BINS - 1 : (int)at;
        (i < n_in ? d->in : d->out)[b]++;
    }
}

void detect(Detection *d, double *in, size_t n_in, double *out, size_t n_out) {
    memset(d, 0, sizeof *d);
    sort_numbers(in, n_in);
    sort_numbers(out, n_out);
    const double ni = (double)n_in, no = (double)n_out;
    Above was = { 0 }, now = { 0 };
    double last = 0;
    d->fpr95 = NAN;
    d->n_roc = 1;                                             // (0, 0)
    while (next_level(&now, in, n_in, out, n_out)) {
        const double more_in = (double)(now.in - was.in), more_out = (double)(now.out - was.out);
        const double fpr = (double)now.out / no, tpr = (double)now.in / ni;
        d->auroc += more_out * ((double)was.in + more_in / 2);
        d->aupr += more_in * (double)now.in / (double)(now.in + now.out);
        // seen from below, what is still to come is the other side's
        if (n_out > was.out)
            d->aupr_out +=
                more_out * (double)(n_out - was.out) / (double)(n_out - was.out + n_in - was.in);
        if (isnan(d->fpr95) && 20 * now.in >= 19 * n_in) d->fpr95 = fpr;
        const int end = now.in == n_in && now.out == n_out;
        // points lie evenly along the curve, whose two sides sum to 2
        if (end || (fpr + tpr - last >= 2.0 / (ROC_POINTS - 2) && d->n_roc < ROC_POINTS - 1)) {
            d->roc[d->n_roc][0] = fpr;
            d->roc[d->n_roc++][1] = tpr;
            last = fpr + tpr;
        }
        was = now;
    }
    d->auroc /= ni * no;
    d->aupr /= ni;
    d->aupr_out /= no;
    histograms(d, in, n_in, out, n_out);
}
