// cpu_wino_line.h - Winograd's transforms in one dimension, for cpu_wino.c alone.
//
// In one dimension, four outputs of a filter of three taps follow from six products: both sides are
// polynomials, known by their values at the points 0, a, -a, b, -b and infinity. Two taps need only
// the last five. With stride 2, tap 1 meets the even pixels alone, taps 0 and 2 the odd ones: four
// products and five.
#ifndef CPU_WINO_LINE_H
#define CPU_WINO_LINE_H
#include "dev/cpu_vec.h"

// What takes a Kind is inlined where that is a constant, so that one case of it is left.
#define INLINE static inline __attribute__((always_inline))

// What a tile reads, by stride: x (or, with stride 1, dy for dx: the same with the rotated filter);
// dy for dx; dy for dw.
typedef enum { X1, X2, DX2, DW1, DW2 } Kind;

typedef struct {                     // a tile in one dimension
    int in, positions;               // values read; positions they become
    int step, before;                // from tile to tile; the first one begins before the border
    int out;                         // values that the positions become
} WinoTile;

INLINE WinoTile tile_of(Kind k) {
    static const WinoTile tile[] = { [X1] = { 6, 6, 4, 1, 4 },
                                     [X2] = { 9, 9, 8, 1, 4 },
                                     [DX2] = { 5, 9, 4, 0, 8 },
                                     [DW1] = { 4, 6, 4, 0, 0 },
                                     [DW2] = { 4, 9, 4, 0, 0 } };
    return tile[k];
}

enum { MOST = 9, WEIGHTS = 6 };      // positions in one dimension; those with their own weights

// Points of about 1 whose squares are exact: the error is half that of 1 and 2.
#define A  0.625f
#define B  1.5f
#define AA (A * A)
#define BB (B * B)

// The transform of values s apart: four of them give the points a, -a, b, -b ...
INLINE void at_points(const vec *x, int s, vec *v, size_t sv) {
    const vec even_a = x[3 * s] - BB * x[s], odd_a = A * x[2 * s] - A * BB * x[0];
    const vec even_b = x[3 * s] - AA * x[s], odd_b = B * x[2 * s] - AA * B * x[0];
    v[0] = even_a + odd_a;
    v[sv] = even_a - odd_a;
    v[2 * sv] = even_b + odd_b;
    v[3 * sv] = even_b - odd_b;
}

// ... five give infinity or, since it is the same mirrored, 0.
INLINE void at_end(const vec *x, int s, vec *v) {
    *v = x[4 * s] - (AA + BB) * x[2 * s] + AA * BB * x[0];
}

// The transpose of from_points.
INLINE void gradient_at_points(const vec *y, int s, vec *v, size_t sv) {
    const vec even_a = y[0] + AA * y[2 * s], odd_a = A * y[s] + A * AA * y[3 * s];
    const vec even_b = y[0] + BB * y[2 * s], odd_b = B * y[s] + B * BB * y[3 * s];
    v[0] = even_a + odd_a;
    v[sv] = even_a - odd_a;
    v[2 * sv] = even_b + odd_b;
    v[3 * sv] = even_b - odd_b;
}

INLINE void copy(const vec *x, int s, int n, vec *v, size_t sv) {
    for (int i = 0; i < n; i++) v[i * sv] = x[i * s];
}

// The values that a tile reads, s apart, to its positions, sv apart.
INLINE void read_line(Kind k, const vec *x, int s, vec *v, size_t sv) {
    switch (k) {
    case X1:
        at_end(x, s, v);
        at_points(x + s, s, v + sv, sv);
        at_end(x + s, s, v + 5 * sv);
        break;
    case X2:
        at_points(x, 2 * s, v, sv);
        at_end(x, 2 * s, v + 4 * sv);
        copy(x + s, 2 * s, 4, v + 5 * sv, sv);
        break;
    case DX2:
        at_points(x, s, v, sv);
        at_end(x, s, v + 4 * sv);
        copy(x, s, 4, v + 5 * sv, sv);
        break;
    case DW1:
        *v = x[0];
        gradient_at_points(x, s, v + sv, sv);
        v[5 * sv] = x[3 * s];
        break;
    case DW2:
        gradient_at_points(x, s, v, sv);
        v[4 * sv] = x[3 * s];
        copy(x, s, 4, v + 5 * sv, sv);
        break;
    }
}

INLINE void from_points(const vec *m, int s, vec y[4]) {
    const vec sum_a = m[0] + m[s], dif_a = m[0] - m[s];
    const vec sum_b = m[2 * s] + m[3 * s], dif_b = m[2 * s] - m[3 * s];
    y[0] = sum_a + sum_b;
    y[1] = A * dif_a + B * dif_b;
    y[2] = AA * sum_a + BB * sum_b;
    y[3] = A * AA * dif_a + B * BB * dif_b;
}

// The positions m, s apart, to the values that a tile writes, sy apart.
INLINE void write_line(Kind k, const vec *m, int s, vec *y, size_t sy) {
    vec z[4];
    from_points(k == X1 ? m + s : m, s, z);
    z[3] += k == X1 ? m[5 * s] : m[4 * s];
    if (k == X1) z[0] += m[0];
    for (int i = 0; k == X2 && i < 4; i++) z[i] += m[(5 + i) * s];
    copy(z, 1, 4, k == DX2 ? y + sy : y, k == DX2 ? 2 * sy : sy);
    if (k == DX2) copy(m + 5 * s, s, 4, y, 2 * sy);  // even pixels; the others are odd
}

// Three taps to the weights of six positions, with the common factors of the points.
#define N3A (2 * AA * (AA - BB))
#define N3B (2 * BB * (BB - AA))
#define N2A (2 * A * (AA - BB))
#define N2B (2 * B * (BB - AA))
static const float TAPS[3][WEIGHTS][3] = {
    [X1] = { { 1 / (AA * BB), 0, 0 },
             { 1 / N3A, A / N3A, AA / N3A },
             { 1 / N3A, -A / N3A, AA / N3A },
             { 1 / N3B, B / N3B, BB / N3B },
             { 1 / N3B, -B / N3B, BB / N3B },
             { 0, 0, 1 } },
    [X2] = { { 1 / N2A, 0, A / N2A },
             { -1 / N2A, 0, A / N2A },
             { 1 / N2B, 0, B / N2B },
             { -1 / N2B, 0, B / N2B },
             { 0, 0, 1 },
             { 0, 1, 0 } },
    [DX2] = { { A / N2A, 0, 1 / N2A },
              { A / N2A, 0, -1 / N2A },
              { B / N2B, 0, 1 / N2B },
              { B / N2B, 0, -1 / N2B },
              { 1, 0, 0 },
              { 0, 1, 0 } },
};
#endif
