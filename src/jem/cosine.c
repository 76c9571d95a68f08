// cosine.c - see cosine.h.
#include "jem/cosine.h"
#include <math.h>
#include <stdlib.h>

int cosine_open(Cosine *t, int channels, int side, Err *err) {
    const size_t n = (size_t)side * (size_t)side;
    *t = (Cosine){ .channels = channels, .side = side };
    t->basis = malloc(n * sizeof *t->basis);
    t->room = malloc(n * sizeof *t->room);
    if (!t->basis || !t->room) {
        cosine_close(t);
        return err_set(err, ERR_MEM, "out of memory for the cosine transform");
    }
    for (int u = 0; u < side; u++)
        for (int i = 0; i < side; i++)
            t->basis[u * side + i] =
                sqrt((u ? 2.0 : 1.0) / side) * cos(acos(-1) * (i + 0.5) * u / side);
    return 0;
}

void cosine_close(Cosine *t) {
    free(t->basis);
    free(t->room);
    *t = (Cosine){ 0 };
}

// Brightness and two differences of colours; its own inverse is the transpose.
static void colours(const Cosine *t, double *x, int back) {
    static const double q[3][3] = { { 0.5773502691896258, 0.5773502691896258, 0.5773502691896258 },
                                    { 0.7071067811865476, 0, -0.7071067811865476 },
                                    { 0.4082482904638630, -0.8164965809277260,
                                      0.4082482904638630 } };
    const int n = t->side * t->side;
    if (t->channels != 3) return;
    for (int i = 0; i < n; i++) {
        const double v[3] = { x[i], x[n + i], x[2 * n + i] };
        for (int a = 0; a < 3; a++)
            x[a * n + i] = back ? q[0][a] * v[0] + q[1][a] * v[1] + q[2][a] * v[2]
                                : q[a][0] * v[0] + q[a][1] * v[1] + q[a][2] * v[2];
    }
}

// to = the transform of every row of `from`, transposed: twice makes both dimensions.
static void rows(const Cosine *t, const double *from, double *to, int back) {
    const int n = t->side;
    for (int r = 0; r < n; r++)
        for (int u = 0; u < n; u++) {
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += from[r * n + i] * t->basis[back ? i * n + u : u * n + i];
            to[u * n + r] = sum;
        }
}

static void planes(Cosine *t, double *x, int back) {
    const size_t n = (size_t)t->side * (size_t)t->side;
    for (int c = 0; c < t->channels; c++) {
        rows(t, x + (size_t)c * n, t->room, back);
        rows(t, t->room, x + (size_t)c * n, back);
    }
}

void cosine_forward(Cosine *t, double *x) {
    colours(t, x, 0);
    planes(t, x, 0);
}

void cosine_inverse(Cosine *t, double *x) {
    planes(t, x, 1);
    colours(t, x, 1);
}
