// plot_axis.c - see plot_axis.h.
#include "base/plot_axis.h"
#include <math.h>
#include <stdio.h>

// 1, 2 or 5 times a power of ten, so that about `want` steps span the axis.
static double nice_step(double span, int want) {
    const double rough = span / want, p = pow(10, floor(log10(rough))), m = rough / p;
    return p * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static void widen(double v, double *lo, double *hi) {
    if (!isfinite(v)) return;
    if (v < *lo) *lo = v;
    if (v > *hi) *hi = v;
}

// An axis over what the data spans, its ends on ticks; or over what was asked for.
static Axis axis_over(double lo, double hi, double given_lo, double given_hi, int want) {
    const int given = given_lo < given_hi;
    if (given) lo = given_lo, hi = given_hi;
    if (!(lo <= hi)) lo = 0, hi = 1;                       // nothing finite to show
    if (!(hi - lo > 1e-9 * fmax(fabs(lo), fabs(hi)))) {    // all the same
        const double pad = lo != 0 ? fabs(lo) / 2 : 0.5;
        lo -= pad, hi += pad;
    }
    Axis a = { lo, hi, nice_step(hi - lo, want) };
    if (!given) a.lo = floor(lo / a.step) * a.step, a.hi = ceil(hi / a.step) * a.step;
    return a;
}

Axis axis_x(const Panel *p) {
    double lo = INFINITY, hi = -INFINITY;
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < p->series[k].n + is_hist(&p->series[k]); i++)
            if (p->series[k].x) widen(p->series[k].x[i], &lo, &hi);
    Axis a = axis_over(lo, hi, p->x_lo, p->x_hi, 6);
    if (p->x_lo < p->x_hi || !(lo < hi)) return a;
    a.lo = lo, a.hi = hi;                                  // data fills the width
    return a;
}

Axis axis_y(const Panel *p, int want) {
    double lo = INFINITY, hi = -INFINITY;
    for (int k = 0; k < p->n; k++) {
        const Series *s = &p->series[k];
        if (is_hist(s)) widen(0, &lo, &hi);
        for (int i = 0; s->y && s->kind != PLOT_MARKS && i < s->n; i++) widen(s->y[i], &lo, &hi);
    }
    Axis a = axis_over(lo, hi, p->y_lo, p->y_hi, want);
    if (p->y_log) a.step = fmax(1, ceil((a.hi - a.lo) / want));
    return a;
}

void axis_tick_text(char dst[32], double v, double step, int is_log) {
    if (is_log) v = pow(10, v), step = 1;
    const double big = fmax(fabs(v), step);
    if (fabs(v) < step / 1e6) v = 0;
    if (big >= 1e7 || step < 1e-6) snprintf(dst, 32, "%.3g", v);
    else snprintf(dst, 32, "%.*f", step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9), v);
}

int axis_n_ticks(const Axis *a) {
    const double n = floor(a->hi / a->step + 1e-6) - ceil(a->lo / a->step - 1e-6) + 1;
    return n >= 1 && n < 100 ? (int)n : 0;
}

double axis_tick(const Axis *a, int i) { return (ceil(a->lo / a->step - 1e-6) + i) * a->step; }
