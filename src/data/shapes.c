// shapes.c - a generated set: ten kinds of coloured shapes; see formats.h.
#include "base/loop.h"
#include "base/rng.h"
#include "data/formats.h"
#include <math.h>
#include <string.h>

static const char *const SHAPE_NAME[] = {
    "disc",         "square", "triangle", "ring", "cross", "horizontal stripes", "vertical stripes",
    "checkerboard", "star",   "diamond"
};

// The corner of a five-pointed star, folded onto a tenth of a turn: inside is left of the edge from
// the tip (1, 0) to the notch (0.45 at 36 degrees).
static int in_star(float u, float v) {
    const float r2 = u * u + v * v;
    if (r2 < 0.19f || r2 > 1.01f) return r2 < 1; // within the notches, beyond the tips
    const float turn = 1.2566371f, angle = fmodf(fabsf(atan2f(u, -v)), turn), r = hypotf(u, v);
    const float a = angle < turn / 2 ? angle : turn - angle;
    const float ex = 0.36406f - 1, ey = 0.26450f;
    return ex * r * sinf(a) - ey * (r * cosf(a) - 1) > 0;
}

// (u, v) from the shape's centre, right and down, in units of its radius.
static int inside(int kind, float u, float v) {
    const float au = fabsf(u), av = fabsf(v), r2 = u * u + v * v;
    const int box = au < 1 && av < 1;
    switch (kind) {
    case 0: return r2 < 1;
    case 1: return au < 0.85f && av < 0.85f;
    case 2: return v < 0.8f && au < 0.58f * (v + 1);
    case 3: return r2 < 1 && r2 > 0.3f;
    case 4: return (au < 0.3f && av < 1) || (av < 0.3f && au < 1);
    case 5: return box && (int)((v + 1) * 2.5f) % 2 == 0;
    case 6: return box && (int)((u + 1) * 2.5f) % 2 == 0;
    case 7: return box && ((int)((u + 1) * 2) + (int)((v + 1) * 2)) % 2 == 0;
    case 8: return in_star(u, v);
    default: return 1.5f * au + av < 1.1f;
    }
}

// How far a shape reaches from its centre, in units of its radius, rounded up.
static const float REACH[] = {
    1.01f, 1.21f, 1.32f, 1.01f, 1.05f, 1.42f, 1.42f, 1.42f, 1.01f, 1.11f
};

typedef struct {
    int kind;
    float x, y, radius, co, si;
} Drawing; // co, si: cosine and sine of its rotation, over the radius

// How much of the pixel (dx, dy) away from the shape's centre it covers, by 4 x 4 points.
static float coverage(const Drawing *s, float dx, float dy) {
    const float far = REACH[s->kind] * s->radius + 1.5f; // 1.5: more than a pixel's diagonal
    if (dx * dx + dy * dy > far * far) return 0;
    int hits = 0;
    for (int i = 0; i < 16; i++) {
        const float x = dx + (0.5f + (float)(i % 4)) / 4, y = dy + (0.5f + (float)(i / 4)) / 4;
        hits += inside(s->kind, s->co * x + s->si * y, s->co * y - s->si * x);
    }
    return (float)hits / 16;
}

static Drawing random_shape(int kind, float side, Rng k) {
    const float radius = side * (0.26f + 0.16f * rng_uniform(k, 0)), room = side - 2 * radius;
    const float turn = 0.4f * (rng_uniform(k, 1) - 0.5f);
    return (Drawing){ .kind = kind,
                      .x = radius + room * rng_uniform(k, 2),
                      .y = radius + room * rng_uniform(k, 3),
                      .radius = radius,
                      .co = cosf(turn) / radius,
                      .si = sinf(turn) / radius };
}

// Pixel noise, as photographs have: in uniform colours log p(x) becomes ever steeper, until chains
// overshoot its maxima (docs/pyld.md).
static void add_grain(uint8_t *x, size_t n, Rng k) {
    enum { FIRST = 64 }; // blocks before it belong to the shape
    for (size_t i = 0; i < n; i += 8) {
        uint32_t r[4]; // two bytes a pixel: their sum has a standard deviation of 104.5
        rng_block(k, (uint32_t)(FIRST + i / 8), r);
        for (size_t j = i; j < n && j < i + 8; j++) {
            const int two = (int)(r[(j - i) / 2] >> 16 * ((j - i) % 2) & 0xffff);
            const int v = x[j] + ((two & 255) + (two >> 8) - 255) * 61 / 255;
            x[j] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}

static void draw_shape(uint8_t *x, int side, int kind, Rng k) {
    const Drawing s = random_shape(kind, (float)side, k);
    const float lean = 6.2831853f * rng_uniform(k, 4); // where the ground grows brighter
    const float gx = 40 * cosf(lean) / (float)side, gy = 40 * sinf(lean) / (float)side;
    float ground[3], paint[3];
    for (int c = 0; c < 3; c++) { // half the range apart, give or take: never alike
        ground[c] = 255 * rng_uniform(k, 8 + (uint64_t)c);
        paint[c] = fmodf(ground[c] + 96 + 64 * rng_uniform(k, 12 + (uint64_t)c), 256);
    }
    for (int row = 0; row < side; row++)
        for (int col = 0; col < side; col++) {
            const float dx = (float)col - s.x, dy = (float)row - s.y;
            const float on = coverage(&s, dx, dy), light = gx * dx + gy * dy;
            for (int c = 0; c < 3; c++) {
                const float v = on * paint[c] + (1 - on) * (ground[c] + light) + 0.5f;
                x[(c * side + row) * side + col] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
    add_grain(x, 3 * (size_t)side * (size_t)side, k);
}

int draw_shapes(Set *s, Half half, const DataOpts *o, Err *err) {
    s->c = 3;
    s->side = o->side ? o->side : 32;
    s->classes = (int)(sizeof SHAPE_NAME / sizeof *SHAPE_NAME);
    s->flip = 1;
    s->class_name = arena_alloc(&s->arena, (size_t)s->classes, sizeof *s->class_name);
    if (arena_ok(&s->arena, s->name, err)) return -1;
    memcpy(s->class_name, SHAPE_NAME, sizeof SHAPE_NAME);
    if (o->look_only) return 0;
    if (set_alloc(s, half == HALF_TRAIN ? 5000 : 1000, err)) return -1;
    Loop loop = loop_begin(o->events, 0, "", "");
    #pragma omp parallel for
    for (size_t i = 0; i < s->n; i++) {
        if (loop_stopped(&loop)) continue;
        const Rng k = { o->seed, RNG_SHAPES, half, (uint32_t)i };
        s->y[i] = (int)(i % 10);
        draw_shape(s->x + i * 3 * (size_t)s->side * (size_t)s->side, s->side, s->y[i], k);
    }
    return loop_end(&loop, err);
}
