// test_cuda.c - the cuda device against the reference device, operation by operation, in fp32
// and bf16.
//
// Outputs start as NaN and have guard bytes behind them. Without a GPU every test is skipped. An
// argument picks tests: test_cuda '*norms*'.
#include "testing.h"
#include "search_case.h"
#include "jem/train.h"
#include "jem/weight_noise.h"
#include <stdio.h>

enum { GUARD = 64, MAX_BUFS = 96 };

// ---- two devices, guarded memory, comparison ----------------------------------------------------

typedef struct {
    char *p;
    size_t bytes;
} Buf;
typedef struct {
    Dev      dev[2];                 // the reference, the GPU
    Buf      buf[MAX_BUFS];          // the GPU's
    void    *host[MAX_BUFS];         // the reference's
    int      n_buf, n_host;
    double   tol;                    // of activations
    uint32_t step;
} Pair;

static void dev_fine(const Dev *dev) { OK(dev_check(dev, err)); }

static int pair_open(Pair *t, Precision precision, const char *tuning) {
    memset(t, 0, sizeof *t);
    if (!has_device("cuda")) skip();
    const DevOpts o = { .precision = precision, .tuning = tuning };
    OK(dev_open(&t->dev[0], "ref", &(DevOpts){ .threads = 2 }, NULL, err));
    OK(dev_open(&t->dev[1], "cuda", &o, NULL, err));
    t->tol = precision == PREC_FP32 ? 1e-4 : 2e-2;
    return 0;
}

static void pair_close(Pair *t) {
    dev_close(&t->dev[0]);
    dev_close(&t->dev[1]);
}

// Memory full of NaN, on the GPU with guard bytes behind it, until bufs_free.
static void *buf(Pair *t, int i, size_t bytes) {
    assert_true(t->n_buf < MAX_BUFS && t->n_host < MAX_BUFS);
    char *host = malloc(bytes + GUARD);
    memset(host, 0xff, bytes);
    memset(host + bytes, 0xa5, GUARD);
    if (!i) return t->host[t->n_host++] = host;
    Dev *dev = &t->dev[1];
    char *p = dev->be.alloc(dev, bytes + GUARD, "a test");
    dev->be.copy_in(dev, p, host, bytes + GUARD);
    dev_fine(dev);
    free(host);
    t->buf[t->n_buf++] = (Buf){ p, bytes };
    return p;
}

static void bufs_free(Pair *t) {
    Dev *dev = &t->dev[1];
    dev->be.sync(dev);
    dev_fine(dev);
    for (int i = 0; i < t->n_buf; i++) {
        unsigned char guard[GUARD];
        dev->be.copy_out(dev, guard, t->buf[i].p + t->buf[i].bytes, GUARD);
        for (int k = 0; k < GUARD; k++)
            if (guard[k] != 0xa5) fail_msg("written past the end of buffer %d", i);
        dev->be.free(dev, t->buf[i].p);
    }
    for (int i = 0; i < t->n_host; i++) free(t->host[i]);
    t->n_buf = t->n_host = 0;
}

static void upload(Pair *t, void *dst, const void *src, size_t bytes) {
    t->dev[1].be.copy_in(&t->dev[1], dst, src, bytes);
}

// What the GPU has at p, in host memory until bufs_free.
static void *fetched(Pair *t, const void *p, size_t bytes) {
    void *host = buf(t, 0, bytes);
    t->dev[1].be.copy_out(&t->dev[1], host, p, bytes);
    dev_fine(&t->dev[1]);
    return host;
}

// n numbers of this mean and standard deviation, the same on both devices.
static void twins(Pair *t, size_t n, double mean, double sd, real *out[2]) {
    const Rng key = { 7, RNG_TEST, t->step++, 0 };
    out[0] = buf(t, 0, n * sizeof(real));
    out[1] = buf(t, 1, n * sizeof(real));
    for (size_t i = 0; i < n; i++) out[0][i] = (real)(mean + sd * (double)rng_normal(key, i));
    upload(t, out[1], out[0], n * sizeof(real));
}

static void empty_twins(Pair *t, size_t n, real *out[2]) {
    out[0] = buf(t, 0, n * sizeof(real));
    out[1] = buf(t, 1, n * sizeof(real));
}

static void twin_ints(Pair *t, size_t n, const int *v, int *out[2]) {
    for (int i = 0; i < 2; i++) out[i] = buf(t, i, n * sizeof(int));
    if (v) memcpy(out[0], v, n * sizeof(int));
    if (v) upload(t, out[1], v, n * sizeof(int));
}

static void empty_pair(Pair *t, Tensor shape, int plain, Tensor out[2]) {
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        out[i] = shape;
        out[i].p = buf(
            t, i, plain ? tensor_len(&shape) * sizeof(real) : dev->be.tensor_bytes(dev, &shape));
    }
}

static void random_pair(Pair *t, Tensor shape, int plain, double mean, Tensor out[2]) {
    real *v[2];
    twins(t, tensor_len(&shape), mean, 1, v);
    empty_pair(t, shape, plain, out);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t->dev[i];
        if (plain) dev->be.copy(dev, out[i].p, v[i], tensor_len(&shape) * sizeof(real));
        else dev->be.from_plain(dev, v[i], &out[i]);
    }
}

static void same(Pair *t, real *const v[2], size_t n, double tol, const char *what) {
    const double d = distance(fetched(t, v[1], n * sizeof(real)), v[0], n);
    if (!(d <= tol)) {
        const real *got = fetched(t, v[1], n * sizeof(real));
        fail_msg("%s: off by %.2e of its length; it begins with %g %g, not %g %g", what, d,
                 (double)got[0], (double)got[n > 1], (double)v[0][0], (double)v[0][n > 1]);
    }
}

static void same_ints(Pair *t, int *const v[2], size_t n) {
    assert_memory_equal(v[0], fetched(t, v[1], n * sizeof(int)), n * sizeof(int));
}

// The channels beyond the last must stay zero, or convolutions would add them up.
static void filling_is_zero(Pair *t, const Tensor *x, const char *what) {
    const size_t bytes = t->dev[1].be.tensor_bytes(&t->dev[1], x),
                 pixels = (size_t)(x->n * x->h * x->w);
    const size_t a_pixel = bytes / pixels, elem = a_pixel / (size_t)((x->c + 7) / 8 * 8);
    const unsigned char *raw = fetched(t, x->p, bytes);
    for (size_t i = 0; i < pixels; i++)
        for (size_t k = (size_t)x->c * elem; k < a_pixel; k++)
            if (raw[i * a_pixel + k] & (k % elem == elem - 1 ? 0x7f : 0xff))
                fail_msg("%s: the channels behind the last are not zero", what);
}

static void same_tensor(Pair *t, Tensor x[2], int plain, double tol, const char *what) {
    const size_t n = tensor_len(&x[0]);
    real *v[2] = { x[0].p, x[1].p };
    if (!plain) {
        filling_is_zero(t, &x[1], what);
        v[1] = buf(t, 1, n * sizeof(real));
        t->dev[1].be.to_plain(&t->dev[1], &x[1], v[1]);
    }
    same(t, v, n, tol, what);
}

static void in_both_types(void (*test)(Pair *)) {
    static const Precision types[] = { PREC_FP32, PREC_BF16 };
    for (size_t i = 0; i < LEN(types); i++) {
        Pair t;
        pair_open(&t, types[i], NULL);
        test(&t);
        pair_close(&t);
    }
}

// ---- convolutions -------------------------------------------------------------------------------

#include "op_cases.h"
#include "window_cases.h"

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

// ---- losses, chains, optimisers: fp32 on every device ------------------------------------------

static StepState *now_on(Pair *t, int i, StepState now) {
    StepState *p = buf(t, i, sizeof now);
    t->dev[i].be.copy_in(&t->dev[i], p, &now, sizeof now);
    return p;
}

static void heads_agree(void **state) {
    (void)state;
    static const int size[][2] = { { 5, 10 }, { 64, 10 }, { 70, 100 }, { 3, 2 }, { 2, 1000 } };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t i = 0; i < LEN(size); i++)
        for (int mode = 0; mode < 12; mode++) {
            const int labels = mode % 2, behind = mode / 2 % 2;
            const Tensor shape = { size[i][0], size[i][1], 1, 1, NULL };
            Tensor z[2], dz[2];
            real *sums[2];
            int *y[2], classes[80];
            for (int k = 0; k < 80; k++) classes[k] = k * 7 % size[i][1];
            twin_ints(&t, (size_t)size[i][0], classes, y);
            random_pair(&t, shape, 1, 3, z);
            empty_pair(&t, shape, 1, dz);
            empty_twins(&t, N_SUM, sums);
            for (int k = 0; k < 2; k++) {
                const Energy e = { .a = (real)0.7,
                                   .b = labels ? -1 : 0,
                                   .c = (real)0.3,
                                   .now = now_on(&t, k, (StepState){ .over_margin = behind }),
                                   .a_over = (real)0.2,
                                   .b_over = (real)-0.1,
                                   .d = (real)(mode / 4 - 1) };
                t.dev[k].be.head(&t.dev[k], &z[k], labels ? y[k] : NULL, e, (real)0.1, &dz[k],
                                 sums[k]);
            }
            same_tensor(&t, dz, 1, 1e-5, "dz");
            same(&t, sums, N_SUM, 1e-5, "sums");
            for (int k = 0; labels && k < 2; k++)
                t.dev[k].be.margin(&t.dev[k], &z[k], y[k], &dz[k]);
            if (labels) same_tensor(&t, dz, 1, 1e-6, "margin");
            bufs_free(&t);
        }
    pair_close(&t);
}

static void chains_and_attacks_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    const Tensor shape = { 3, 3, 7, 5, NULL };
    const Rng key = { 3, RNG_TEST, 1, 2 };
    for (int mode = 0; mode < 4; mode++) {
        Tensor x[2], g[2], x1[2];
        random_pair(&t, shape, 1, 0, x);
        random_pair(&t, shape, 1, 0, g);
        empty_pair(&t, shape, 1, x1);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            StepState *now = now_on(&t, i, (StepState){ .in.step = 9 });
            const Move m = { 3, (real)0.2, mode & 1 ? (real)INFINITY : (real)0.5,
                             mode & 2 ? (real)0.1 : 0, mode & 1 };
            const Attack a = { .l2 = mode & 1, .radius = (real)0.3, .step = (real)0.2 };
            dev->be.langevin(dev, &x[i], &g[i], m, key, now);
            dev->be.attack_start(dev, &x1[i], x[i].p, a, key, now);
            dev->be.attack_move(dev, &x1[i], &g[i], x[i].p, a);
        }
        same_tensor(&t, x, 1, 1e-5, "langevin");
        same_tensor(&t, x1, 1, 1e-5, "an attack");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void noise_on_weights_agrees(void **state) {
    (void)state;
    const NetSpec spec = {
        .depth = 10, .width = 2, .channels = 3, .side = 32, .classes = 7, .norm = NORM_BATCH
    };
    const Rng key = { .seed = 3, .stream = RNG_WEIGHT_NOISE, .step = 9 };
    Pair t;
    real *seen[2][2];                               // by device: with noise, and without it again
    size_t n = 0;
    if (pair_open(&t, PREC_BF16, NULL)) return;
    for (int i = 0; i < 2; i++) {
        Net net;
        WeightNoise w;
        OK(net_build(&net, &spec, err));
        OK(net_alloc(&net, &t.dev[i], err));
        OK(net_init(&net, 1, err));
        n = net.n_w;
        OK(weight_noise_open(&w, &net, err));
        for (int k = 0; k < 2; k++) {
            seen[i][k] = malloc(n * sizeof(real));
            if (!k) weight_noise_add(&w, 0.3, key);
            else weight_noise_remove(&w);
            t.dev[i].be.copy_out(&t.dev[i], seen[i][k], net.w, n * sizeof(real));
        }
        dev_fine(&t.dev[i]);
        weight_noise_close(&w);
        net_free(&net);
    }
    for (size_t j = 0; j < n; j++) assert_close(seen[1][0][j], seen[0][0][j], 1e-5);
    assert_memory_equal(seen[1][1], seen[0][1], n * sizeof(real));
    for (int i = 0; i < 4; i++) free(seen[i / 2][i % 2]);
    pair_close(&t);
}

static void dot_products_agree(void **state) {
    (void)state;
    static const size_t size[] = { 1, 33, 1024, 100003 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t k = 0; k < LEN(size); k++) {
        real *a[2], *b[2], *out[2];
        twins(&t, size[k], 3, 1, a);
        twins(&t, size[k], 4, 1, b);
        empty_twins(&t, 1, out);
        for (int i = 0; i < 2; i++) t.dev[i].be.dot(&t.dev[i], size[k], a[i], b[i], out[i]);
        same(&t, out, 1, 1e-5, "a dot product");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void products_of_matrices_agree(void **state) {
    (void)state;
    enum { COUNT = 3 };
    static const int shapes[][3] = {
        { 1, 1, 1 }, { 3, 5, 7 }, { 16, 144, 16 }, { 160, 1440, 160 }
    };
    static const Precision types[] = { PREC_FP32, PREC_BF16 };
    for (size_t k = 0; k < LEN(types); k++) {
        Pair t;
        pair_open(&t, types[k], NULL);
        for (size_t s = 0; s < LEN(shapes); s++)
            for (int how = 0; how < 8; how++) {
                const int m = shapes[s][0], n = shapes[s][1], inner = shapes[s][2];
                real *a[2], *b[2], *c[2];
                twins(&t, (size_t)(COUNT * m * inner), 0, 1, a);
                twins(&t, (size_t)(COUNT * inner * n), 0, 1, b);
                twins(&t, (size_t)(COUNT * m * n), 0, 1, c);
                for (int i = 0; i < 2; i++)
                    t.dev[i].be.matmul(&t.dev[i], COUNT, m, n, inner, (real)1.5,
                                       (Factor){ a[i], how & 1 }, (Factor){ b[i], how >> 1 & 1 },
                                       how >> 2, c[i]);
                same(&t, c, (size_t)(COUNT * m * n), k ? 2e-3 : 1e-5, "a product of matrices");
                bufs_free(&t);
            }
        pair_close(&t);
    }
}

static void steps_that_keep_the_length_agree(void **state) {
    (void)state;
    static const int sizes[] = { 1, 31, 144, 2304, 100001 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t k = 0; k < LEN(sizes); k++)
        for (int halt = 0; halt < 2; halt++) {
            enum { COUNT = 3, SIDE = 24 };
            const size_t n = (size_t)sizes[k], all = COUNT * n;
            real *w[2], *g[2], *v[2], *u[2], *x[2], *square[2], *out[2];
            twins(&t, n, 0, 1, w), twins(&t, n, 0, 1, g), twins(&t, n, 0, 1, v);
            twins(&t, n, 0, 1, u), twins(&t, all, 1, 1, x);
            twins(&t, COUNT * SIDE * SIDE, 0, 1, square);
            empty_twins(&t, COUNT * SIDE * SIDE, out);
            for (int i = 0; i < 2; i++) {
                Dev *dev = &t.dev[i];
                StepState *now = now_on(&t, i, (StepState){ .in.lr = (real)0.1, .halt = halt });
                dev->be.nesterov(dev, n, g[i], v[i], u[i], (real)0.9, now);
                dev->be.sphere_step(dev, n, w[i], u[i], (real)3, now);
                dev->be.unit_length(dev, COUNT, n, x[i]);
                dev->be.add_identity(dev, COUNT, SIDE, 2, (real)0.5, square[i], out[i]);
            }
            same(&t, v, n, 1e-6, "momentum"), same(&t, u, n, 1e-6, "a step");
            same(&t, w, n, 1e-6, "weights on their sphere"), same(&t, x, all, 1e-6, "unit lengths");
            same(&t, out, COUNT * SIDE * SIDE, 1e-6, "the identity added");
            bufs_free(&t);
        }
    pair_close(&t);
}

static void optimisers_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (size_t off = 0; off < 2; off++) {               // aligned, and not
        const size_t n = 1003, len = n - off;
        real *w[2], *g[2], *m[2], *v[2], *avg[2], *keep[2];
        twins(&t, n, 0, 1, w), twins(&t, n, 0, 1, g), twins(&t, n, 0, 1, m),
            twins(&t, n, 2, 0.2, v);
        twins(&t, n, 0, 1, avg), twins(&t, n, 0, 1, keep);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            StepState *now = now_on(&t, i, (StepState){ .in.step = 4, .in.lr = (real)0.1 });
            StepState *halted = now_on(&t, i, (StepState){ .in.lr = 1, .halt = 1 });
            dev->be.sgd(dev, len, w[i] + off, g[i] + off, m[i] + off,
                        (Sgd){ (real)0.9, (real)0.01 }, now);
            dev->be.adam(dev, len, w[i] + off, g[i] + off, m[i] + off, v[i] + off,
                         (Adam){ (real)0.9, (real)0.999, (real)1e-8, (real)0.01 }, now);
            dev->be.ema(dev, len, avg[i] + off, w[i] + off, (real)0.9, now);
            dev->be.sam_perturb(dev, len, w[i] + off, g[i] + off, (real)0.3, keep[i]);
            dev->be.sgd(dev, n, w[i], g[i], m[i], (Sgd){ (real)0.9, 0 }, halted);
            dev->be.ema(dev, n, avg[i], w[i], 0, halted);
            dev->be.check_finite(dev, n, g[i], now);
            StepState seen;
            dev->be.copy_out(dev, &seen, now, sizeof seen);
            assert_int_equal(seen.halt, HALT_NO);
            dev->be.copy_in(dev, g[i] + n - 1, &(real){ (real)NAN }, sizeof(real));
            dev->be.check_finite(dev, n, g[i], now);
            dev->be.copy_out(dev, &seen, now, sizeof seen);
            assert_int_equal(seen.halt, HALT_GRAD);
        }
        same(&t, w, n, 1e-6, "weights"), same(&t, m, n, 1e-6, "momentum"),
            same(&t, v, n, 1e-6, "squares");
        same(&t, avg, n, 1e-6, "averages");
        bufs_free(&t);
    }
    pair_close(&t);
}

static void watches_agree(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    for (int mode = 0; mode < 8; mode++) {
        const Watch o = { .n = { 4, 4, 4 },
                          .n_batch = mode % 2 ? 3 : 1,
                          .e = { { .a = 1, .b = -1 }, { .a = -1, .c = (real)0.1 }, { .a = 1 } },
                          .label = 0,
                          .px = mode % 2 ? 1 : -1,
                          .sampled = mode % 2 ? 2 : -1,
                          .loss_limit = mode == 2 ? (real)1e-3 : 1000,
                          .gap_limit = mode == 3 ? (real)1e-6 : 10,
                          .ce_limit = mode == 6 ? (real)1e-6 : 0,
                          .climb_limit = mode == 7 ? 1 : 0,
                          .px_margin = mode == 1   ? 100
                                       : mode == 3 ? (real)1e-6
                                                   : 0,
                          .up = { .a = 1, .b = (real)0.5 },
                          .after = mode == 1 ? 2 : CHAIN_AFTER,
                          .n_ring = 8 };
        real *sums[2], *ring[2];
        StepState seen[2];
        twins(&t, N_SUMS * N_SUM, 5, 1, sums);
        twins(&t, 8 * N_ROW, 0, 0, ring);
        for (int i = 0; i < 2; i++) {
            if (mode == 5)
                t.dev[i].be.copy_in(&t.dev[i], sums[i], &(real){ (real)NAN }, sizeof(real));
            // the first step, one that is the best so far, one that is not
            const StepState before = { .in.step = mode == 4   ? 0
                                                  : mode == 7 ? 161
                                                              : 61,
                                       .in.lr = (real)0.1,
                                       .gap = 1,
                                       .climb = -50,
                                       .ce = 9,
                                       .ce_low = mode == 1 ? 100 : 0 };
            StepState *now = now_on(&t, i, before);
            t.dev[i].be.watch(&t.dev[i], &o, sums[i], now, ring[i]);
            t.dev[i].be.copy_out(&t.dev[i], &seen[i], now, sizeof seen[i]);
        }
        assert_int_equal(seen[0].halt, seen[1].halt);
        assert_int_equal(seen[0].over_margin, seen[1].over_margin);
        if (mode == 7) assert_int_equal(seen[1].halt, HALT_CLIMB);
        if (mode != 5) {
            same(&t, ring, 8 * N_ROW, 1e-5, "the log");
            assert_close(seen[0].gap, seen[1].gap, 1e-5);
            assert_close(seen[0].climb, seen[1].climb, 1e-5);
            assert_close(seen[0].ce, seen[1].ce, 1e-5);
            assert_close(seen[0].ce_low, seen[1].ce_low, 1e-5);
        }
        bufs_free(&t);
    }
    pair_close(&t);
}

// ---- data --------------------------------------------------------------------------------------

static void check_batches(int active) {
    enum { N = 50, SIDE = 9, DIM = 3 * SIDE * SIDE, B = 6 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    uint8_t *bytes[2], image[N * DIM];
    int *label[2], *index[2], *y[2], *slot[2], labels[N];
    real *x[2], *rows[2], *pool[2];
    const Rng key = { 5, RNG_TEST, 3, 0 };
    const Slots chains = { .n = N, .classes = 10, .batch = B, .active = active, .rate = 0.5f };
    for (int i = 0; i < N * DIM; i++) image[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < N; i++) labels[i] = i % 10;
    twin_ints(&t, N, labels, label);
    twin_ints(&t, B, NULL, index), twin_ints(&t, B, NULL, y), twin_ints(&t, B, NULL, slot);
    empty_twins(&t, B * DIM, x);
    twins(&t, N * DIM, 0, 1, rows), twins(&t, 16 * DIM, 0, 1, pool);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t.dev[i];
        StepState *now = now_on(&t, i, (StepState){ .in.step = 11, .in.drawn = 14 });
        bytes[i] = buf(&t, i, sizeof image);
        dev->be.copy_in(dev, bytes[i], image, sizeof image);
        const Bytes set = { N, 3, SIDE, bytes[i], label[i] };
        dev->be.pick(dev, N, B, key, now, index[i]);
        dev->be.batch(dev, &set, index[i], B, (Augment){ .pad = 4, .flip = 1, .noise = (real)0.03 },
                      key, now, x[i], y[i]);
        dev->be.rows_put(dev, rows[i], x[i], index[i], B, DIM, now);
        dev->be.slots(dev, chains, key, now, slot[i], y[i]);
        dev->be.rows_get(dev, x[i], rows[i], slot[i], B, DIM);
        dev->be.reinit(dev, x[i], B, DIM, chains, pool[i], 16, key, now);
    }
    same_ints(&t, index, B), same_ints(&t, slot, B), same_ints(&t, y, B);
    same(&t, rows, N * DIM, 1e-5, "rows");
    same(&t, x, B * DIM, 1e-5, "chain starts");
    bufs_free(&t);
    pair_close(&t);
}

static void batches_agree(void **state) {
    (void)state;
    check_batches(0);
    check_batches(20);                                      // chains under way, of N in the buffer
}

static void chain_starts_agree(void **state) {
    (void)state;
    enum { N = 150, DIM = 3 * 7 * 7, DRAWS = 37, OUT = 40 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    uint8_t image[N * DIM];
    int list[DRAWS], chosen[N / 2], *number[2], *which[2];
    real *mean[2], *factor[2], *out[2];
    const Rng key = { 5, RNG_TEST, 3, 0 };
    for (int i = 0; i < N * DIM; i++) image[i] = (uint8_t)rng_u32(key, (uint64_t)i);
    for (int i = 0; i < DRAWS; i++) list[i] = 100 + i;
    for (int i = 0; i < N / 2; i++) chosen[i] = 2 * i;
    for (int kind = 0; kind < 4; kind++) {
        twin_ints(&t, DRAWS, list, number), twin_ints(&t, N / 2, chosen, which);
        twins(&t, DIM, 0, 0.1, mean), twins(&t, 16 * DIM, 0, 0.1, factor),
            twins(&t, OUT * DIM, 0, 0, out);
        for (int i = 0; i < 2; i++) {
            Dev *dev = &t.dev[i];
            uint8_t *bytes = buf(&t, i, sizeof image);
            dev->be.copy_in(dev, bytes, image, sizeof image);
            const Gauss low = { .n = 16,
                                .dim = DIM,
                                .factor = factor[i],
                                .mean = mean[i],
                                .scale = 1,
                                .jitter = (real)0.01 };
            const Gauss full = { .n = N / 2,
                                 .dim = DIM,
                                 .bytes = bytes,
                                 .rows = which[i],
                                 .mean = mean[i],
                                 .scale = (real)(1 / sqrt(N / 2.0)),
                                 .jitter = (real)0.01 };
            const Gauss point = { .dim = DIM, .mean = mean[i], .jitter = (real)0.03 };
            const Gauss *const gauss[] = { &full, &low, &point };
            if (kind < 3) dev->be.gauss(dev, gauss[kind], number[i], DRAWS, key, out[i], OUT);
            else dev->be.uniform(dev, number[i], DRAWS, DIM, key, out[i], OUT);
        }
        same(&t, out, OUT * DIM, 1e-5, "draws");
        bufs_free(&t);
    }
    pair_close(&t);
}

// ---- the device itself -------------------------------------------------------------------------

static void a_recording_does_it_again(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_DEFAULT, NULL);
    Dev *dev = &t.dev[1];
    real *w[2], *g[2], *v[2], got;
    twins(&t, 100, 0, 0, w), twins(&t, 100, 1, 0, g), twins(&t, 100, 0, 0, v);
    StepState *now = now_on(&t, 1, (StepState){ .in.lr = 1 });
    dev->be.record_begin(dev);
    dev->be.sgd(dev, 100, w[1], g[1], v[1], (Sgd){ 0 }, now);
    void *recording = dev->be.record_end(dev);
    dev->be.copy_out(dev, &got, w[1] + 99, sizeof got);
    assert_true(got == 0);                               // noted, not done
    dev->be.replay(dev, recording);
    dev->be.copy_in(dev, now, &(StepState){ .in.lr = 10 }, sizeof(StepState));
    dev->be.replay(dev, recording);
    dev->be.copy_out(dev, &got, w[1] + 99, sizeof got);
    assert_true(got == -11);                             // 1, then 10: StepState is read anew
    dev->be.record_free(dev, recording);
    bufs_free(&t);
    pair_close(&t);
}

static void host_memory_for_copies_holds_them(void **state) {
    (void)state;
    enum { N = 100003 };
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    Dev *dev = &t.dev[1];
    unsigned char *from = dev->be.host_alloc(dev, N), *to = dev->be.host_alloc(dev, N);
    void *p = buf(&t, 1, N);
    assert_non_null(from);
    assert_non_null(to);
    for (int i = 0; i < N; i++) from[i] = (unsigned char)(i * 7);
    dev->be.copy_in(dev, p, from, N);
    dev->be.copy_out(dev, to, p, N);
    dev_fine(dev);
    assert_memory_equal(from, to, N);
    dev->be.host_free(dev, from);
    dev->be.host_free(dev, to);
    dev->be.host_free(dev, NULL);
    dev_fine(dev);
    bufs_free(&t);
    pair_close(&t);
}

static void too_much_memory_is_an_error_with_the_figure(void **state) {
    (void)state;
    Pair t;
    pair_open(&t, PREC_DEFAULT, NULL);
    assert_null(t.dev[1].be.alloc(&t.dev[1], (size_t)1 << 44, "a test"));
    assert_non_null(strstr(t.dev[1].err.msg, "out of GPU memory: 16384.00 GiB for a test"));
    pair_close(&t);
}

// 2^31 pixels are one more than an int can count.
static void sizes_beyond_32_bits_are_right_or_refused(void **state) {
    (void)state;
    const Tensor images = { 1 << 17, 3, 128, 128, NULL };
    assert_int_equal(tensor_pixels(&images), (size_t)1 << 31);
    Pair t;
    pair_open(&t, PREC_FP32, NULL);
    Dev *dev = &t.dev[1];
    assert_int_equal(dev->be.tensor_bytes(dev, &images), (size_t)1 << 36);   // 8 floats per pixel
    Filter f = { .out = 8, .in = 3, .size = 3, .size_w = 3 };
    const Case k = { images.n, 3, 8, images.h, images.w, 3, 1, 1, 1, 0 };
    Conv c = conv_of(&k, &f, 0);
    dev->be.conv_open(dev, &c);
    assert_int_equal(dev->err.kind, ERR_ARG);
    assert_non_null(strstr(dev->err.msg, "131072 images of 128x128 pixels at once"));
    pair_close(&t);
}

// Logits and the images' gradient of a whole network, batch statistics, against the reference.
static void a_network_in_bf16_is_close(void **state) {
    (void)state;
    enum { B = 16 };
    Pair t;
    pair_open(&t, PREC_BF16, NULL);
    const NetSpec spec = { 10, 2, 3, 16, 10, NORM_BATCH, STEM_3X3 };
    real *x[2], *sums[2], *out[2][2];
    Net net[2];
    Pass p[2];
    twins(&t, B * 3 * 256, 0, 0.5, x);
    empty_twins(&t, N_SUM, sums);
    for (int i = 0; i < 2; i++) {
        Dev *dev = &t.dev[i];
        OK(net_build(&net[i], &spec, err));
        OK(net_alloc(&net[i], dev, err));
        OK(net_init(&net[i], 1, err));
        OK(pass_open(&p[i], &net[i], B, MODE_TRAIN | WANT_DX, err));
        pass_bind(&p[i], buf(&t, i, p[i].bytes));
        net_zero_grad(&net[i]);
        pass_forward(&p[i], x[i]);
        dev->be.head(dev, pass_logits(&p[i]), NULL, (Energy){ .a = 1 }, 1, pass_logits_grad(&p[i]),
                     sums[i]);
        out[0][i] = buf(&t, i, B * 10 * sizeof(real));
        dev->be.copy(dev, out[0][i], pass_logits(&p[i])->p, B * 10 * sizeof(real));
        pass_backward(&p[i]);                            // its memory may serve again from here on
        out[1][i] = pass_input_grad(&p[i])->p;
    }
    same(&t, out[0], B * 10, 0.03, "logits");
    same(&t, out[1], B * 3 * 256, 0.3, "the images' gradient");
    real *dw[2] = { net[0].dw, net[1].dw }, *stat[2] = { net[0].state, net[1].state };
    same(&t, dw, net[0].n_w, 0.1, "the weights' gradients");
    same(&t, stat, net[0].n_state, 0.01, "running statistics");
    for (int i = 0; i < 2; i++) {
        pass_close(&p[i]);
        net_free(&net[i]);
    }
    bufs_free(&t);
    pair_close(&t);
}

static Set noise_set(int n, int side) {
    const size_t bytes = (size_t)(n * 3 * side * side);
    Set set = { .c = 3, .side = side, .classes = 10, .n = n };
    set.x = arena_alloc(&set.arena, bytes, 1);
    set.y = arena_alloc(&set.arena, (size_t)n, sizeof *set.y);
    for (size_t k = 0; k < bytes; k++) set.x[k] = (uint8_t)(k * 37);
    for (int k = 0; k < n; k++) set.y[k] = k % 10;
    return set;
}

static Set small_set(void) { return noise_set(40, 8); }

// A trainer of the set with batches of c->batch; recorded: its steps may be. Frees the set.
static void trainer_start_with(Trainer *t, Dev *dev, const DevOpts *o, int recorded,
                               const Config *c, Set *set) {
    OK(dev_open(dev, "cuda", o, NULL, err));
    if (!recorded) dev->be.record_begin = NULL;
    OK(trainer_open(t, dev, NULL, c, set, 0, err));
    set_free(set);
}

// The same of the small set with batches of 8.
static void trainer_start(Trainer *t, Dev *dev, const DevOpts *o, int recorded, Config *c) {
    Set set = small_set();
    c->batch = 8, c->buffer = 20;
    trainer_start_with(t, dev, o, recorded, c, &set);
}

// Its weights, malloc'd, and how many; closes trainer and device.
static real *trainer_end(Trainer *t, Dev *dev, size_t *n) {
    *n = t->net.n_w;
    real *w = malloc(*n * sizeof *w);
    assert_non_null(w);
    dev->be.copy_out(dev, w, t->net.w, *n * sizeof *w);
    trainer_close(t);
    dev_close(dev);
    return w;
}

// Ten steps, most of which are recorded and replayed, against ten that are not. With labelled,
// p(x) begins after five.
static void recorded_steps(Precision precision, const char *model, double sam, int sam_images,
                           int labelled, OptimKind optimizer) {
    enum { STEPS = 10 };
    real *w[2];
    uint64_t batches[2];
    size_t n = 0;
    char *tuning = NULL;                                    // the first's choices are the second's
    for (int i = 0; i < 2; i++) {
        Dev dev;
        Trainer t;
        Config c;
        const DevOpts o = { .precision = precision, .deterministic = 1, .tuning = tuning };
        config_defaults(&c);
        strcpy(c.model, model);
        c.steps = 2, c.sam = sam, c.sam_images = sam_images, c.optimizer = optimizer;
        c.iterations = STEPS, c.labelled = labelled, c.px_from = labelled ? 0.5 : 0;
        trainer_start(&t, &dev, &o, !i, &c);
        for (int k = 0; k < STEPS; k++) trainer_advance(&t);
        OK(dev_check(&dev, err));
        assert_true(!t.recording[t.sam_on].work == !!i);
        batches[i] = t.net.batches;
        if (!i) tuning = strdup(dev.be.tuning(&dev));
        w[i] = trainer_end(&t, &dev, &n);
    }
    assert_true(batches[0] == batches[1]);
    assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
    free(tuning);
    free(w[0]);
    free(w[1]);
}

static void a_recorded_step_is_the_same_step(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 0, OPTIM_SGD);
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 0, OPTIM_MUON);
    // wide enough for own convolutions
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 0, 0, OPTIM_SGD);
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 4, 0, OPTIM_MUON);
    recorded_steps(PREC_BF16, "wrn-10-4", 2, 4, 12, OPTIM_SGD);
    recorded_steps(PREC_FP32, "wrn-10-1", 0, 0, 12, OPTIM_SGD);
}

// Five plain steps and five sharpness-aware ones of 64 images as CIFAR-10's, with 160 and more
// channels as wrn-28-10 has. w is malloc'd; the choices of kernels in *tuning are taken and
// replaced.
static size_t wide_steps(int recorded, int sam_images, char **tuning, real **w,
                         real rows[10][N_ROW]) {
    enum { STEPS = 10, BATCH = 64 };
    Dev dev;
    Trainer t;
    Config c;
    Set set = noise_set(BATCH + BATCH / 2, 32);
    size_t n = 0;
    const DevOpts o = { .precision = PREC_BF16, .deterministic = 1, .tuning = *tuning };
    config_defaults(&c);
    strcpy(c.model, "wrn-10-10");
    c.batch = BATCH, c.buffer = 100, c.steps = 2, c.iterations = STEPS;
    c.lr = 0.01, c.sam = 2, c.sam_from = 0.5, c.sam_images = sam_images;
    trainer_start_with(&t, &dev, &o, recorded, &c, &set);
    assert_int_equal(t.sam_rows, sam_images == BATCH ? 0 : sam_images);
    for (int k = 0; k < STEPS; k++) trainer_advance(&t);
    OK(dev_check(&dev, err));
    assert_int_equal(trainer_state(&t).halt, HALT_NO);
    for (int i = 0; i < 2; i++) assert_true(!t.recording[i].work == !recorded);
    trainer_rows(&t, 0, STEPS, rows[0]);
    free(*tuning);
    *tuning = strdup(dev.be.tuning(&dev));
    *w = trainer_end(&t, &dev, &n);
    return n;
}

// Two recordings, a plain step's and a sharpness-aware one's, whose first gradient runs through
// passes of their own: of half a batch, and of a number that no tile of images divides.
static void some_images_choose_the_direction_in_recorded_steps(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    static const int images[] = { 64, 32, 24, 17 };
    real *whole = NULL, first[10][N_ROW];
    char *tuning = NULL;
    for (int i = 0; i < 4; i++) {
        real *w[2], rows[2][10][N_ROW];
        const size_t n = wide_steps(1, images[i], &tuning, &w[0], rows[0]);
        wide_steps(0, images[i], &tuning, &w[1], rows[1]);
        assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
        assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
        if (!i) memcpy(first, rows[0], sizeof first);
        assert_memory_equal(rows[0], first, 5 * sizeof first[0]);       // of the plain steps
        // the same weights and images, but fewer of these
        if (i) assert_true(memcmp(rows[0][5], first[5], sizeof first[5]) != 0);
        assert_less(fabs((double)(rows[0][5][ROW_CE] - first[5][ROW_CE])),
                    0.5 * (double)first[5][ROW_CE]);
        if (i) assert_less(distance(w[0], whole, n), 0.1);
        free(w[1]);
        if (i) free(w[0]);
        else whole = w[0];
    }
    free(whole);
    free(tuning);
}

// Fourteen steps in which chains get longer after the tenth: recorded, forgotten, recorded again.
static void chains_that_get_longer_are_recorded_anew(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    enum { STEPS = 14 };
    real *w[2], rows[2][STEPS][N_ROW];
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        Dev dev;
        Trainer t;
        Config c;
        const DevOpts o = { .precision = PREC_FP32, .deterministic = 1, .conv = CONV_DIRECT };
        config_defaults(&c);
        strcpy(c.model, "wrn-10-1");
        c.steps = 1, c.steps_max = 3, c.reinit = 0.5, c.start_real = 0.5;
        trainer_start(&t, &dev, &o, !i, &c);
        t.length.auroc = 0.99;
        for (int k = 0; k < STEPS; k++) {
            trainer_advance(&t);
            trainer_rows(&t, (uint64_t)k, 1, rows[i][k]);
            assert_true(rows[i][k][ROW_STEPS] == (k < 10 ? 1 : 2));
        }
        OK(dev_check(&dev, err));
        assert_true(!t.recording[0].work == !!i);
        w[i] = trainer_end(&t, &dev, &n);
    }
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_memory_equal(w[0], w[1], n * sizeof *w[0]);
    free(w[0]);
    free(w[1]);
}

// Six steps, from the third on recorded; linked: through NCCL, with this rank alone. w is malloc'd.
static size_t steps_of_one_rank(int linked, int sync_bn, real **w) {
    enum { STEPS = 6 };
    Dev dev;
    Comm comm;
    Trainer t;
    Config c;
    Set set = small_set();
    const DevOpts o = { .precision = PREC_FP32, .deterministic = 1, .conv = CONV_DIRECT };
    OK(dev_open(&dev, "cuda", &o, NULL, err));
    if (linked) OK(comm_connect_alone(&comm, &dev, err));
    config_defaults(&c);
    strcpy(c.model, "wrn-10-2");
    c.batch = 8, c.buffer = 20, c.steps = 2, c.sam = 1, c.sync_bn = sync_bn;
    OK(trainer_open(&t, &dev, linked ? &comm : NULL, &c, &set, 0, err));
    set_free(&set);
    for (int k = 0; k < STEPS; k++) trainer_advance(&t);
    OK(dev_check(&dev, err));
    assert_non_null(t.recording[t.sam_on].work);
    const size_t n = t.net.n_w;
    *w = malloc(n * sizeof **w);
    dev.be.copy_out(&dev, *w, t.net.w, n * sizeof **w);
    OK(dev_check(&dev, err));
    trainer_close(&t);
    dev_close(&dev);
    return n;
}

static int has_nccl(void) {
    Dev dev;
    char id[128];
    Err err = { 0 };
    if (!has_device("cuda")) return 0;
    open_device(&dev, "cuda");
    const int rc = dev.be.ranks_id(&dev, id, &err);
    if (rc) print_message("%s\n", err.msg);
    dev_close(&dev);
    return !rc;
}

static void a_step_through_nccl_is_the_same_step(void **state) {
    (void)state;
    if (!has_nccl()) skip();
    real *plain, *linked, *sync;
    const size_t n = steps_of_one_rank(0, 0, &plain);
    steps_of_one_rank(1, 0, &linked);
    steps_of_one_rank(1, 1, &sync);
    assert_memory_equal(linked, plain, n * sizeof *plain);
    assert_less(distance(sync, plain, n), 1e-3);            // norms in other kernels
    free(plain);
    free(linked);
    free(sync);
}

static void checksums_agree_and_find_one_bit(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    enum { N = 100003 };
    Dev ref, dev;
    real *p = malloc(N * sizeof *p);
    fill_random(p, N, 1, -1, 1);
    open_device(&ref, "ref");
    open_device(&dev, "cuda");
    real *there = dev.be.alloc(&dev, N * sizeof *p, "numbers");
    dev.be.copy_in(&dev, there, p, N * sizeof *p);
    const uint64_t sum = ref.be.checksum(&ref, p, N * sizeof *p);
    assert_true(dev.be.checksum(&dev, there, N * sizeof *p) == sum);
    ((uint32_t *)p)[N - 1] ^= 1;
    dev.be.copy_in(&dev, there, p, N * sizeof *p);
    assert_true(dev.be.checksum(&dev, there, N * sizeof *p) != sum);
    dev.be.free(&dev, there);
    dev_close(&dev);
    dev_close(&ref);
    free(p);
}

static void the_search_for_kernels_is_shown_and_stops(void **state) {
    (void)state;
    if (!has_device("cuda")) skip();
    const char *before = getenv("XDG_CACHE_HOME");
    char *keep = before ? strdup(before) : NULL;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);               // nothing is known, nothing is kept
    search_is_shown_and_stops("cuda");
    if (keep) setenv("XDG_CACHE_HOME", keep, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(keep);
}

// test_cuda [PATTERN]: the tests whose names match, with * and ?.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_that_get_longer_are_recorded_anew),
        cmocka_unit_test(a_recorded_step_is_the_same_step),
        cmocka_unit_test(some_images_choose_the_direction_in_recorded_steps),
        cmocka_unit_test(a_step_through_nccl_is_the_same_step),
        cmocka_unit_test(checksums_agree_and_find_one_bit),
        cmocka_unit_test(the_search_for_kernels_is_shown_and_stops),
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
        cmocka_unit_test(heads_agree),
        cmocka_unit_test(chains_and_attacks_agree),
        cmocka_unit_test(noise_on_weights_agrees),
        cmocka_unit_test(dot_products_agree),
        cmocka_unit_test(products_of_matrices_agree),
        cmocka_unit_test(steps_that_keep_the_length_agree),
        cmocka_unit_test(optimisers_agree),
        cmocka_unit_test(watches_agree),
        cmocka_unit_test(batches_agree),
        cmocka_unit_test(chain_starts_agree),
        cmocka_unit_test(a_recording_does_it_again),
        cmocka_unit_test(host_memory_for_copies_holds_them),
        cmocka_unit_test(too_much_memory_is_an_error_with_the_figure),
        cmocka_unit_test(sizes_beyond_32_bits_are_right_or_refused),
        cmocka_unit_test(a_network_in_bf16_is_close),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
