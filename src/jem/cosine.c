// cosine.c - see cosine.h.
#include "jem/cosine.h"
#include <math.h>
#include <stdlib.h>

int cosine_open(Cosine *t, int channels, int side, Err *err) {
    const size_t n = (size_t)side * (size_t)side;
    *t = (Cosine){ .channels = channels, .side = side };
    t->basis = malloc(n * sizeof *t->basis);
    t->columns = malloc(n * sizeof *t->columns);
    if (!t->basis || !t->columns) {
        cosine_close(t);
        return err_set(err, ERR_MEM, "out of memory for the cosine transform");
    }
    for (int u = 0; u < side; u++)
        for (int i = 0; i < side; i++)
            t->columns[i * side + u] = t->basis[u * side + i] =
                sqrt((u ? 2.0 : 1.0) / side) * cos(acos(-1) * (i + 0.5) * u / side);
    return 0;
}

void cosine_close(Cosine *t) {
    free(t->basis);
    free(t->columns);
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
static void rows(const double *basis, int n, const double *from, double *to) {
    for (int r = 0; r < n; r++)
        for (int u = 0; u < n; u++) {
            double sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int i = 0; i < n; i++) sum += from[r * n + i] * basis[u * n + i];
            to[u * n + r] = sum;
        }
}

static void planes(const Cosine *t, const double *basis, double *x, double *room) {
    const size_t n = (size_t)t->side * (size_t)t->side;
    for (int c = 0; c < t->channels; c++) {
        rows(basis, t->side, x + (size_t)c * n, room);
        rows(basis, t->side, room, x + (size_t)c * n);
    }
}

void cosine_forward(const Cosine *t, double *x, double *room) {
    colours(t, x, 0);
    planes(t, t->basis, x, room);
}

void cosine_inverse(const Cosine *t, double *x, double *room) {
    planes(t, t->columns, x, room);
    colours(t, x, 1);
}
