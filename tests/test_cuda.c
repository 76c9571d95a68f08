// test_cuda.c - the cuda device against the reference device, operation by operation, in fp32
// and bf16: convolutions, norms, pooling. test_cuda_ops.c has the rest of a step's operations,
// test_cuda_step.c whole steps.
//
// Without a GPU every test is skipped.
#include "cuda_pair.h"
#include "op_cases.h"
#include "window_cases.h"
#include <stdio.h>

// ---- convolutions -------------------------------------------------------------------------------

// The directions that own kernels computed, as bits.
static int conv_agrees(Pair *t, const Case *k) {
    char what[5][200];
    static const char *const part[] = { "y", "y without bias", "dx", "dw", "db" };
    static const int direction[] = { 0, 0, 1, 2, 2 };
    ConvRun r;
    int own = 0;
    conv_run(t, k, &r);
    for (int i = 0; i < 3; i++) own |= !strncmp(r.c[1].how[i], "own ", 4) << i;
    for (int i = 0; i < 5; i++)
        snprintf(what[i], sizeof what[i], "%s of conv n%d %d-%d %dx%d k%d s%d p%d plain %d%d (%s)",
                 part[i], k->n, k->in, k->out, k->h, k->w, k->size, k->stride, k->pad, k->x_plain,
                 k->y_plain, r.c[1].how[direction[i]]);
    same_tensor(t, r.y, k->y_plain, t->tol, what[0]);
    same_tensor(t, r.y0, k->y_plain, t->tol, what[1]);
    same_tensor(t, r.dx, k->x_plain, t->tol, what[2]);
    // a few rounded sums may cancel, and then their rounding is all there is
    const int few = t->tol > 1e-3 && r.n_w < 100;
    if (!few) same(t, r.dw, r.n_w, t->tol, what[3]);
    if (!few) same(t, r.db, (size_t)k->out, t->tol, what[4]);
    conv_end(t, r.c, r.f);
    return own;
}

static void odd_convolutions(Pair *t) {
    for (int at = 0; at < 28; at++) {
        const Case k = odd_case(at, at % 7, (at * 3 + at / 7) % 7);
        conv_agrees(t, &k);
    }
}

static void convolutions_of_odd_shapes_agree(void **state) {
    (void)state;
    in_both_types(odd_convolutions);
}

static void real_convolutions(Pair *t) {
    static const Case cases[] = {
        { 3, 16, 16, 32, 32, 3, 1, 1, 0, 0 },   { 2, 16, 160, 32, 32, 3, 1, 1, 0, 0 },
        { 4, 32, 32, 16, 16, 3, 2, 1, 0, 0 },   { 4, 64, 128, 16, 16, 1, 2, 0, 0, 0 },
        { 3, 160, 160, 12, 12, 3, 1, 1, 0, 0 }, { 8, 320, 320, 8, 8, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(cases); i++) conv_agrees(t, &cases[i]);
}

static void convolutions_of_real_shapes_agree(void **state) {
    (void)state;
    in_both_types(real_convolutions);
}

// One case with this variant of the own kernels in some directions, whatever is fastest here.
// fits: this GPU has such a kernel, if it is of compute capability 9.0. Others have none: there the
// choices are not taken, and cuDNN is tested once more.
static void agrees_by_own(const Case *k, int variant, int first, int last, int fits) {
    static const char *const name[] = { "fwd", "dx", "dw" };
    char tuning[384] = "";
    Pair t;
    int n = 0;
    for (int dir = first; dir <= last; dir++)
        n += snprintf(tuning + n, sizeof tuning - (size_t)n,
                      "%s n%d %dx%d %d-%d k3 s%d p1 bf16 = own %d\n", name[dir], k->n, k->h, k->w,
                      k->in, k->out, k->stride, variant);
    pair_open(&t, PREC_BF16, tuning);
    const char *gpu = t.dev[1].be.describe(&t.dev[1]);
    const int hopper = strstr(gpu, "H100") || strstr(gpu, "H200");
    const int own = conv_agrees(&t, k);
    for (int dir = first; fits && hopper && dir <= last; dir++)
        if (!(own >> dir & 1))
            fail_msg("%s of conv n%d %d-%d %dx%d s%d: own %d was not used", name[dir], k->n, k->in,
                     k->out, k->h, k->w, k->stride, variant);
    pair_close(&t);
}

static void own_convolutions_agree(void **state) {
    (void)state;
    static const Case cases[] = {
        // with half a chunk of channels, or two images a tile
        { 3, 160, 160, 32, 32, 3, 1, 1, 0, 0 }, { 3, 320, 320, 8, 8, 3, 1, 1, 0, 0 },
        { 2, 96, 128, 16, 24, 3, 1, 1, 0, 0 },  { 3, 128, 128, 24, 8, 3, 1, 1, 0, 0 },
        { 1, 32, 64, 8, 16, 3, 1, 1, 0, 0 },    { 5, 192, 64, 16, 16, 3, 1, 1, 0, 0 },
        { 4, 64, 64, 48, 48, 3, 1, 1, 0, 0 },
    };
    for (int variant = 1; variant <= 7; variant++)
        for (size_t i = 0; i < LEN(cases); i++) agrees_by_own(&cases[i], variant, 0, 1, 0);
}

// Tiles of 16 x 16 pixels, of two images, or of four, with images missing in the last tile.
static void own_convolutions_of_large_tiles_agree(void **state) {
    (void)state;
    static const Case cases[] = {
        { 3, 160, 160, 32, 32, 3, 1, 1, 0, 0 }, { 3, 160, 320, 8, 8, 3, 1, 1, 0, 0 },
        { 1, 320, 160, 48, 16, 3, 1, 1, 0, 0 }, { 3, 160, 160, 16, 24, 3, 1, 1, 0, 0 },
        { 3, 160, 160, 8, 16, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(cases); i++) agrees_by_own(&cases[i], 9, 0, 1, 1);
}

// 16 output channels per block; the data gradient of a network's first convolution has that few.
static void own_convolutions_to_few_channels_agree(void **state) {
    (void)state;
    static const Case from[] = {
        { 3, 16, 160, 32, 32, 3, 1, 1, 0, 0 },
        { 3, 48, 96, 8, 24, 3, 1, 1, 0, 0 },
    };
    static const Case to[] = {
        { 5, 64, 16, 16, 16, 3, 1, 1, 0, 0 },
        { 1, 32, 32, 8, 8, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(from); i++) agrees_by_own(&from[i], 8, 1, 1, 1);
    for (size_t i = 0; i < LEN(to); i++) agrees_by_own(&to[i], 8, 0, 0, 1);
}

// Slices of 64 output channels that are full or not; one chunk of input channels or two, the last
// one full or not. With many output channels few blocks share the tiles, so that one block has more
// than its ring has stages.
static void own_convolutions_with_resident_filters_agree(void **state) {
    (void)state;
    static const Case both[] = {
        { 3, 64, 64, 32, 32, 3, 1, 1, 0, 0 }, { 5, 128, 64, 16, 24, 3, 1, 1, 0, 0 },
        { 1, 16, 64, 16, 8, 3, 1, 1, 0, 0 },  { 7, 128, 128, 16, 16, 3, 1, 1, 0, 0 },
        { 2, 96, 80, 48, 8, 3, 1, 1, 0, 0 },  { 1, 32, 16, 16, 40, 3, 1, 1, 0, 0 },
    };
    static const Case forward[] = {
        { 3, 16, 160, 32, 32, 3, 1, 1, 0, 0 },
        { 99, 16, 640, 16, 8, 3, 1, 1, 0, 0 },
        { 31, 128, 640, 16, 8, 3, 1, 1, 0, 0 },
    };
    for (size_t i = 0; i < LEN(both); i++) agrees_by_own(&both[i], 10, 0, 1, 1);
    for (size_t i = 0; i < LEN(forward); i++) agrees_by_own(&forward[i], 10, 0, 0, 1);
}

// A block's output channels, by variant: 160, 128 and 64, with the input once in shared memory or
// three times. Chunks of 32 input channels that are not full, images of any size, odd numbers of
// images, more tiles than blocks and fewer.
static void own_weight_gradients_agree(void **state) {
    (void)state;
    static const int width[] = { 160, 128, 64 };
    static const Case cases[] = {
        { 1, 160, 160, 32, 32, 3, 1, 1, 0, 0 }, { 3, 16, 160, 12, 12, 3, 1, 1, 0, 0 },
        { 3, 320, 320, 8, 8, 3, 1, 1, 0, 0 },   { 2, 96, 128, 24, 9, 3, 1, 1, 0, 0 },
        { 9, 192, 128, 7, 3, 3, 1, 1, 0, 0 },   { 7, 64, 64, 32, 32, 3, 1, 1, 0, 0 },
        { 2, 40, 64, 5, 11, 3, 1, 1, 0, 0 },    { 1, 8, 64, 1, 1, 3, 1, 1, 0, 0 },
    };
    for (int variant = 1; variant <= 6; variant++)
        for (size_t i = 0; i < LEN(cases); i++)
            if (cases[i].out % width[(variant - 1) % 3] == 0)
                agrees_by_own(&cases[i], variant, 2, 2, 1);
}

// By variant 160, 128 and 64 channels, four warpgroups or two: of an image, or of several.
static void own_convolutions_of_stride_2_agree(void **state) {
    (void)state;
    static const int width[] = { 160, 128, 64 };
    static const Case cases[] = {
        { 3, 160, 160, 32, 32, 3, 2, 1, 0, 0 }, { 3, 320, 320, 16, 16, 3, 2, 1, 0, 0 },
        { 3, 128, 128, 16, 48, 3, 2, 1, 0, 0 }, { 2, 64, 64, 32, 16, 3, 2, 1, 0, 0 },
        { 1, 192, 64, 48, 32, 3, 2, 1, 0, 0 },
    };
    for (int variant = 1; variant <= 6; variant++)
        for (size_t i = 0; i < LEN(cases); i++) {
            const int w = width[(variant - 1) / 2];
            if (cases[i].out % w == 0 && cases[i].in % w == 0)
                agrees_by_own(&cases[i], variant, 0, 1, 1);
        }
}

// Small enough for compute-sanitizer.
static void own_kernels_of_small_shapes_agree(void **state) {
    (void)state;
    const Case plain = { 1, 64, 64, 8, 8, 3, 1, 1, 0, 0 };
    const Case tile = { 1, 64, 64, 16, 8, 3, 1, 1, 0, 0 };
    const Case strided = { 1, 64, 64, 16, 16, 3, 2, 1, 0, 0 };
    const Case few = { 1, 32, 16, 8, 8, 3, 1, 1, 0, 0 };
    const Case wide = { 1, 32, 160, 16, 16, 3, 1, 1, 0, 0 };
    agrees_by_own(&few, 8, 0, 0, 1);
    agrees_by_own(&tile, 10, 0, 1, 1);
    agrees_by_own(&wide, 9, 0, 0, 1);
    agrees_by_own(&plain, 3, 2, 2, 1);
    agrees_by_own(&plain, 6, 2, 2, 1);
    agrees_by_own(&strided, 5, 0, 1, 1);
    agrees_by_own(&strided, 6, 0, 1, 1);
}

static void ends(Pair *t) {
    for (size_t i = 0; i < LEN(STEMS_AND_HEADS); i++) conv_agrees(t, &STEMS_AND_HEADS[i]);
}

static void stems_and_heads_agree(void **state) {
    (void)state;
    in_both_types(ends);
}

// A bias that a convolution leaves to the norm behind it must come out as if it had been added.
static void inference(Pair *t) {
    for (size_t i = 0; i < LEN(RELU_CASES); i++) relu_conv_agrees(t, &RELU_CASES[i], t->tol);
    windows_agree(t, t->tol);
    concats_agree(t, t->tol);
}

static void inference_agrees(void **state) {
    (void)state;
    in_both_types(inference);
}

static void bias_through_norm(Pair *t) {
    const Case k = { 3, 16, 24, 6, 5, 3, 1, 1, 0, 0 };
    for (int mode = 0; mode < 8; mode++) {               // residual, batch statistics, norm
        const int res = mode & 1, stats = mode & 2, gamma = mode & 4;
        real *w[2], *b[2], *par[6][2];
        Tensor x[2], h[2], r[2], y[2], dy[2], dh[2];
        twins(t, 16 * 24 * 9, 0, 0.1, w);
        twins(t, 24, 1, 3, b);
        for (int i = 0; i < 6; i++)
            twins(t, i == 5 ? 48 : 24, i == 3 ? 5 : 0.5, i == 3 ? 0.5 : 1, par[i]);
        Filter f[2] = { { 24, 16, 3, 3, w[0], NULL }, { 24, 16, 3, 3, w[1], NULL } };
        Conv c[2] = { conv_of(&k, &f[0], WANT_DX), conv_of(&k, &f[1], WANT_DX) };
        random_pair(t, c[0].x, 0, 0, x);
        random_pair(t, c[0].y, 0, 0, r);
        random_pair(t, c[0].y, 0, 0.5, dy);
        empty_pair(t, c[0].y, 0, h);
        empty_pair(t, c[0].y, 0, y);
        empty_pair(t, c[0].y, 0, dh);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t->dev[i];
            const Backend *be = &dev->be;
            const Norm op = { .eps = (real)1e-5,
                              .momentum = (real)0.1,
                              .leak = (real)0.2,
                              .batch_stats = !!stats,
                              .update = !!stats,
                              .gamma = gamma ? par[0][i] : NULL,
                              .beta = gamma ? par[1][i] : NULL,
                              .run_mean = par[2][i],
                              .run_var = par[3][i],
                              .mean = par[5][i],
                              .rstd = par[5][i] + 24 };
            be->conv_open(dev, &c[i]);
            be->filters_pack(dev, &f[i], 1);
            be->conv_fwd(dev, &c[i], &x[i], b[i], &h[i]);
            be->norm_fwd(dev, &op, &h[i], res ? &r[i] : NULL, &y[i]);
            be->norm_bwd(dev, &op, &h[i], &dy[i], &dh[i], NULL, NULL);
        }
        same_tensor(t, h, 0, t->tol, "a convolution's output with its bias");
        same_tensor(t, y, 0, t->tol, "the norm of it");
        same_tensor(t, dh, 0, t->tol > 1e-3 ? 0.15 : 3 * t->tol, "its gradient");
        same(t, par[2], 24, t->tol, "running means with a bias");
        if (gamma) same(t, par[5], 48, t->tol, "means with a bias");
        conv_end(t, c, f);
    }
}

static void biases_reach_through_norms(void **state) {
    (void)state;
    in_both_types(bias_through_norm);
}

// ---- norm, pooling, layout ----------------------------------------------------------------------

static void norm_agrees(Pair *t, Tensor shape, int mode) {
    const size_t C = (size_t)shape.c;
    NormRun n;
    norm_run(t, shape, mode, &n);
    const int few =
        shape.n * shape.h * shape.w <= 8; // so few values that their spread is uncertain
    const double tol = few && t->tol > 1e-3 ? 20 * t->tol : t->tol;
    same_tensor(t, n.x, 0, t->tol, n.what);
    same_tensor(t, n.y, 0, tol, n.what);
    for (int i = 2; i < 7; i++)
        same(t, n.par[i], i == 6 ? 2 * C : C, i >= 4 ? 2 * tol : tol, n.what);
    // rounding turns some activations' signs, and the leak is five times smaller than one
    if (!(mode & NO_DX) && !few) same_tensor(t, n.dx, 0, t->tol > 1e-3 ? 0.15 : 3 * tol, n.what);
    bufs_free(t);
}

static void norms(Pair *t) {
    static const Tensor shapes[] = {
        { 2, 3, 3, 5, NULL }, { 3, 24, 8, 8, NULL }, { 1, 40, 7, 3, NULL }, { 5, 16, 4, 4, NULL }
    };
    for (int mode = 0; mode < N_MODE; mode++) norm_agrees(t, shapes[mode % 4], mode);
    const int usual = HAS_NORM | BATCH_STATS | RESIDUAL | UPDATE;
    norm_agrees(t, (Tensor){ 1, 8, 1, 1, NULL }, usual | NO_DX);
    norm_agrees(t, (Tensor){ 16, 160, 32, 32, NULL }, usual | ADD_DX);
    norm_agrees(t, (Tensor){ 32, 640, 8, 8, NULL }, usual);
    norm_agrees(t, (Tensor){ 2, 2048, 4, 4, NULL }, usual);
    // more than shared memory holds, and more than registers beside it
    norm_agrees(t, (Tensor){ 64, 160, 32, 32, NULL }, usual & ~RESIDUAL);
    norm_agrees(t, (Tensor){ 64, 160, 32, 32, NULL }, usual | ADD_DX);
}

static void norms_agree_in_every_mode(void **state) {
    (void)state;
    in_both_types(norms);
}

// Both directions of a norm on the GPU, out[0] the forward's and out[1] the backward's result.
static void norm_on_gpu(Pair *t, NormRun *n, void *const out[2]) {
    Dev *dev = &t->dev[1];
    const size_t C = (size_t)n->x[1].c;
    Tensor y = n->x[1], dx = n->x[1];
    y.p = out[0];
    dx.p = out[1];
    const Norm op = { .eps = (real)1e-5,
                      .leak = (real)0.2,
                      .batch_stats = 1,
                      .gamma = n->par[0][1],
                      .beta = n->par[1][1],
                      .run_mean = n->par[2][1],
                      .run_var = n->par[3][1],
                      .mean = n->par[6][1],
                      .rstd = n->par[6][1] + C };
    dev->be.norm_fwd(dev, &op, &n->x[1], NULL, &y);
    dev->be.norm_bwd(dev, &op, &n->x[1], &n->dy[1], &dx, NULL, NULL);
}

// Kernels of different grids in turn, without a wait in between: a barrier that lets a block pass
// too early, or that the next kernel finds in a wrong state, shows here.
static void norms_in_turn(Pair *t) {
    enum { SHAPES = 5, ROUNDS = 40 };
    static const Tensor shapes[SHAPES] = { { 16, 160, 32, 32, NULL },
                                           { 64, 64, 16, 16, NULL },
                                           { 64, 640, 8, 8, NULL },
                                           { 3, 24, 8, 8, NULL },
                                           { 64, 160, 32, 32, NULL } };
    NormRun n[SHAPES];
    void *out[SHAPES][2][2];                          // the first results, the last; y, dx
    for (int i = 0; i < SHAPES; i++) {
        const size_t C = (size_t)shapes[i].c;
        const size_t bytes = t->dev[1].be.tensor_bytes(&t->dev[1], &shapes[i]);
        for (int k = 0; k < 4; k++) twins(t, C, k == 3 ? 5 : 0.5, k == 3 ? 0.5 : 1, n[i].par[k]);
        twins(t, 2 * C, 0, 1, n[i].par[6]);
        random_pair(t, shapes[i], 0, 2, n[i].x);
        random_pair(t, shapes[i], 0, 0.2, n[i].dy);
        for (int k = 0; k < 4; k++) out[i][k / 2][k % 2] = buf(t, 1, bytes);
        norm_on_gpu(t, &n[i], out[i][0]);
        t->dev[1].be.sync(&t->dev[1]);
    }
    for (int k = 0; k < ROUNDS; k++)
        for (int i = 0; i < SHAPES; i++) norm_on_gpu(t, &n[i], out[i][1]);
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < 2; k++) {
            const size_t bytes = t->dev[1].be.tensor_bytes(&t->dev[1], &shapes[i]);
            void *first = fetched(t, out[i][0][k], bytes), *last = fetched(t, out[i][1][k], bytes);
            assert_memory_equal(first, last, bytes);
        }
    bufs_free(t);
}

static void norms_give_the_same_bits_every_time(void **state) {
    (void)state;
    in_both_types(norms_in_turn);
}

static void far_from_zero(Pair *t) {
    const Tensor shape = { 4, 16, 16, 16, NULL };
    real *par[4][2];
    Tensor x[2], y[2];
    for (int i = 0; i < 4; i++) twins(t, i == 3 ? 32 : 16, i == 2 ? 0 : 1, 0, par[i]);
    random_pair(t, shape, 0, 1000, x);                // squares lose the spread; differences do not
    empty_pair(t, shape, 0, y);
    for (int i = 0; i < 2; i++) {
        const Norm op = { .eps = (real)1e-5,
                          .leak = (real)0.2,
                          .batch_stats = 1,
                          .gamma = par[0][i],
                          .beta = par[1][i],
                          .run_mean = par[2][i],
                          .run_var = par[0][i],
                          .mean = par[3][i],
                          .rstd = par[3][i] + 16 };
        t->dev[i].be.norm_fwd(&t->dev[i], &op, &x[i], NULL, &y[i]);
    }
    if (t->tol < 1e-3) same_tensor(t, y, 0, 1e-3, "a norm of large numbers");
    bufs_free(t);
}

static void statistics_survive_a_large_mean(void **state) {
    (void)state;
    in_both_types(far_from_zero);
}

static void pools(Pair *t) {
    static const Tensor shapes[] = { { 3, 5, 4, 4, NULL },
                                     { 2, 64, 8, 8, NULL },
                                     { 64, 640, 8, 8, NULL } };
    for (size_t i = 0; i < LEN(shapes); i++) {
        const Tensor flat = { shapes[i].n, shapes[i].c, 1, 1, NULL };
        Tensor x[2], y[2], dy[2], dx[2];
        random_pair(t, shapes[i], 0, 1, x);
        random_pair(t, flat, 1, 0, dy);
        empty_pair(t, flat, 1, y);
        empty_pair(t, shapes[i], 0, dx);
        for (int k = 0; k < 2; k++) {
            t->dev[k].be.pool_fwd(&t->dev[k], &x[k], &y[k]);
            t->dev[k].be.pool_bwd(&t->dev[k], &dy[k], &dx[k]);
        }
        same_tensor(t, x, 0, t->tol, "there and back");
        same_tensor(t, y, 1, t->tol, "pool_fwd");
        same_tensor(t, dx, 0, t->tol, "pool_bwd");
        bufs_free(t);
    }
}

static void pooling_and_layouts_agree(void **state) {
    (void)state;
    in_both_types(pools);
}

// test_cuda [PATTERN]: the tests whose names match, with * and ?, such as '*norms*'.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_agree),
        cmocka_unit_test(convolutions_of_real_shapes_agree),
        cmocka_unit_test(own_convolutions_agree),
        cmocka_unit_test(own_convolutions_of_large_tiles_agree),
        cmocka_unit_test(own_convolutions_to_few_channels_agree),
        cmocka_unit_test(own_convolutions_with_resident_filters_agree),
        cmocka_unit_test(own_kernels_of_small_shapes_agree),
        cmocka_unit_test(own_weight_gradients_agree),
        cmocka_unit_test(own_convolutions_of_stride_2_agree),
        cmocka_unit_test(stems_and_heads_agree),
        cmocka_unit_test(inference_agrees),
        cmocka_unit_test(biases_reach_through_norms),
        cmocka_unit_test(norms_agree_in_every_mode),
        cmocka_unit_test(norms_give_the_same_bits_every_time),
        cmocka_unit_test(statistics_survive_a_large_mean),
        cmocka_unit_test(pooling_and_layouts_agree),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
