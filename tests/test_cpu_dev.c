// test_cpu_dev.c - the cpu device as a whole: which kernels it chooses and how it keeps the choice,
// the same bits with any number of threads, memory, errors.
#include "cpu_pair.h"
#include "search_case.h"
#include <limits.h>

// ---- counting allocations: what the C library's malloc is asked for while `watching` ------------

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static struct { volatile int watching, count, large; } heap;

static void heap_note(size_t n) {
    if (!heap.watching) return;
    __atomic_add_fetch(&heap.count, 1, __ATOMIC_RELAXED);
    if (n > 4096) __atomic_add_fetch(&heap.large, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n) {
    heap_note(n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    heap_note(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    heap_note(n);
    return __libc_realloc(p, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
    heap_note(n);
    *p = __libc_memalign(align, n);
    return *p ? 0 : 12;
}

void *aligned_alloc(size_t align, size_t n) {
    heap_note(n);
    return __libc_memalign(align, n);
}
#endif

// ---- the choice of kernels ----------------------------------------------------------------------

// Opens every convolution of a network and looks at the names of its kernels: oneDNN's, which own
// ones would hide where they are faster.
static void no_layer_is_slow(const char *model, int channels, int side, StemKind stem) {
    Net net = { 0 };
    NetSpec spec = {
        .channels = channels, .side = side, .classes = 10, .norm = NORM_BATCH, .stem = stem
    };
    OK(net_parse(&spec, model, err) || net_build(&net, &spec, err));
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 2, .conv = CONV_DIRECT });
    real *w = calloc((size_t)640 * 640 * 9, sizeof *w);  // no layer has more
    assert_non_null(w);
    for (int i = 0; i < net.n_op; i++) {
        const Op *op = &net.op[i];
        if (op->kind != OP_CONV) continue;
        Filter f = net.filter[op->filter];
        f.w = w;
        f.impl = NULL;
        Conv c = { .x = net.act[op->x],
                   .y = net.act[op->y],
                   .size = op->size,
                   .size_w = op->size_w,
                   .stride = op->stride,
                   .pad = op->pad,
                   .pad_w = op->pad_w,
                   .x_plain = op->x == 0,
                   .want = WANT_DX | WANT_DW,
                   .filter = &f };
        c.x.n = c.y.n = 2;
        c.x_plain |= c.y_plain = op->y == net.n_act - 1;
        dev.be.conv_open(&dev, &c);
        dev_fine(&dev);
        for (int k = 0; k < 3; k++) {
            assert_non_null(c.how[k]);
            if (strstr(c.how[k], "ref"))
                fail_msg("%s, %d -> %d at %dx%d, direction %d: %s", model, c.x.c, c.y.c, c.x.h,
                         c.x.w, k, c.how[k]);
        }
        dev.be.conv_close(&dev, &c);
        dev.be.filter_close(&dev, &f);
    }
    free(w);
    net_free(&net);
    dev_close(&dev);
}

static void no_convolution_of_a_real_network_is_slow(void **state) {
    (void)state;
    no_layer_is_slow("wrn-28-10", 3, 32, STEM_3X3);
    no_layer_is_slow("wrn-16-2", 3, 32, STEM_3X3);
    no_layer_is_slow("wrn-10-1", 1, 28, STEM_4X4);
    no_layer_is_slow("wrn-16-4", 3, 64, STEM_3X3);
}

// Opens one convolution and returns the names of its kernels, joined, and the choices.
static void names_with(const char *tuning, ConvChoice choice, char names[256], char text[512]) {
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1, .tuning = tuning, .conv = choice });
    real *w = calloc((size_t)32 * 32 * 9, sizeof *w);
    assert_non_null(w);
    Filter f = { 32, 32, 3, 3, w, NULL };
    Conv c = conv_of(&(Case){ 4, 32, 32, 16, 16, 3, 1, 1, 0, 0 }, &f, WANT_DX | WANT_DW);
    dev.be.conv_open(&dev, &c);
    dev_fine(&dev);
    snprintf(names, 256, "%s %s %s", c.how[0], c.how[1], c.how[2]);
    assert_true(snprintf(text, 512, "%s", dev.be.tuning(&dev)) < 512);
    dev.be.conv_close(&dev, &c);
    dev.be.filter_close(&dev, &f);
    free(w);
    dev_close(&dev);
}

static void choices_are_taken_from_the_text_not_timed_again(void **state) {
    (void)state;
    char names[256], text[512], again[512], other[256], flipped[1024] = "";
    names_with(NULL, CONV_AUTO, names, text);
    if (!*text) skip();                                  // no Winograd here, so no choice
    names_with(text, CONV_AUTO, other, again);
    assert_string_equal(text, again);
    assert_string_equal(names, other);
    // the opposite choice for every line cannot come out of a clock
    for (const char *s = text; *s; s = strchr(s, '\n') + 1) {
        const char *value = strstr(s, "= ") + 2;
        snprintf(flipped + strlen(flipped), sizeof flipped - strlen(flipped), "%.*s%s\n",
                 (int)(value - s), s, *value == 'w' ? "direct" : "winograd");
    }
    names_with(flipped, CONV_AUTO, other, again);
    assert_string_equal(flipped, again);
    assert_string_not_equal(names, other);
    names_with(flipped, CONV_DIRECT, other, again);
    assert_null(strstr(other, "wino"));
}

static void broken_choices_are_left_out(void **state) {
    (void)state;
    static const char good[] = "fwd 8x8 16-16 k3 s1 p1 = direct\n";
    static const char text[] =
        "rubbish\n\n= winograd\nfwd 8x8 16-16 k3 s1 p1 = magic\n"
        "up 8x8 16-16 k3 s1 p1 = direct\nfwd 8x8 16-16 k3 s1 p1 = winograd \n"
        "fwd 8x8 16-16 k3 s1 p1 = direct\nfwd 8x8 16-16 k3 s1 p1 = winograd\n"
        "fwd 99999999999999999999x8 16-16 k3 s1 p1 = direct\n%s%n%s\n"
        "a line that goes on and on and on and on and on and on and on and on and on and on and on "
        "and on, without an end";
    Dev dev;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1, .tuning = text });
    assert_string_equal(dev.be.tuning(&dev), good);
    dev_close(&dev);
}

// Runs our own kernels with so many threads and copies all memory they worked on.
static size_t own_kernels(int half, int threads, char *out, size_t room) {
    Pair t = { .step = 100, .half = half };
    dev_start(&t.dev[0], "ref", (DevOpts){ 0 });
    DevOpts o = cpu_opts(half, threads);
    o.conv = CONV_DIRECT;
    dev_start(&t.dev[1], "cpu", o);
    Dev *dev = &t.dev[1];
    const Tensor shape = { 5, 40, 9, 9, NULL }, image = { 5, 3, 9, 9, NULL },
                 row = { 5, 40, 1, 1, NULL };
    Tensor x[2], r[2], dy[2], g[2], img[2], row_y[2];
    real *par[8][2], *w[2], *dw[2], *stem_dw[2], *m[2], *v[2];
    for (int i = 0; i < 8; i++) twins(&t, 40, 1, 0.1, par[i]);
    twins(&t, 1600, 0, 1, w);
    twins(&t, 1600, 0, 1, dw);
    twins(&t, 1600, 0, 1, stem_dw);
    twins(&t, 1600, 0, 1, m);
    twins(&t, 1600, 9, 1, v);
    random_pair(&t, shape, 0, 1, x);
    random_pair(&t, shape, 0, 1, r);
    random_pair(&t, shape, 0, 0, dy);
    random_pair(&t, image, 1, 0, g);
    random_pair(&t, image, 1, 0, img);
    random_pair(&t, row, 1, 0, row_y);
    Tensor y = on(&t, dev, shape, 0), dx = on(&t, dev, shape, 0), dimg = on(&t, dev, image, 1),
           z = on(&t, dev, row, 1), dz = on(&t, dev, row, 1);
    const Norm op = { .eps = (real)1e-5,
                      .momentum = (real)0.1,
                      .leak = (real)0.2,
                      .batch_stats = 1,
                      .update = 1,
                      .gamma = par[0][1],
                      .beta = par[1][1],
                      .run_mean = par[2][1],
                      .run_var = par[3][1],
                      .mean = par[4][1],
                      .rstd = par[5][1] };
    Filter f[2] = { { 40, 3, 3, 3, w[1], NULL }, { 40, 40, 1, 1, w[1], NULL } };
    Conv stem = conv_of(&(Case){ 5, 3, 40, 9, 9, 3, 1, 1, 1, 0 }, &f[0], WANT_DX | WANT_DW);
    Conv head = conv_of(&(Case){ 5, 40, 40, 1, 1, 1, 1, 0, 1, 1 }, &f[1], WANT_DX | WANT_DW);
    dev->be.conv_open(dev, &stem);
    dev->be.conv_open(dev, &head);
    if (half) dev->be.conv_fwd(dev, &stem, &img[1], par[0][1], &y);    // oneDNN's in fp32
    dev->be.norm_fwd(dev, &op, &x[1], &r[1], &y);
    dev->be.norm_bwd(dev, &op, &x[1], &dy[1], &dx, par[6][1], par[7][1]);
    dev->be.conv_dx(dev, &stem, &dx, &dimg);
    dev->be.langevin(dev, &img[1], &dimg, (Move){ 5, (real)0.2, 1, (real)0.1, 1 },
                     (Rng){ 1, RNG_TEST, 0, 0 }, NULL);
    dev->be.pool_fwd(dev, &y, &z);
    dev->be.conv_fwd(dev, &head, &z, par[0][1], &row_y[1]);
    dev->be.conv_dx(dev, &head, &row_y[1], &dz);
    dev->be.conv_dw(dev, &head, &z, &row_y[1], dw[1], par[1][1]);
    dev->be.conv_dw(dev, &stem, &img[1], &dx, stem_dw[1], par[2][1]);
    const StepState now = { .in.step = 1, .in.lr = (real)0.1 };
    dev->be.sgd(dev, 1600, w[1], dw[1], m[1], (Sgd){ (real)0.9, (real)0.1 }, &now);
    dev->be.adam(dev, 1600, w[1], dw[1], m[1], v[1], (Adam){ (real)0.9, (real)0.99, 1, 0 }, &now);
    size_t n = 0;
    for (int i = 0; i < t.n_buf; i++) {
        if (t.buf[i].dev != dev) continue;
        assert_true(n + t.buf[i].bytes <= room);
        memcpy(out + n, t.buf[i].p, t.buf[i].bytes);
        n += t.buf[i].bytes;
    }
    dev->be.conv_close(dev, &stem);
    dev->be.conv_close(dev, &head);
    for (int i = 0; i < 2; i++) dev->be.filter_close(dev, &f[i]);
    bufs_free(&t);
    dev_close(&t.dev[0]);
    dev_close(&t.dev[1]);
    return n;
}

// The same for Winograd: y, dx and dw.
static size_t own_winograd(int half, int threads, int stride, char *out, size_t room) {
    const Case k = { 30, 32, 64, 16, 16, 3, stride, 1, 0, 0 };
    Pair t = { .step = 200, .half = half };
    dev_start(&t.dev[0], "ref", (DevOpts){ 0 });
    told(&t.dev[1], half, threads, &k, "winograd");
    Dev *dev = &t.dev[1];
    real *w[2], *dw[2];
    Tensor x[2], dy[2];
    twins(&t, 64 * 32 * 9, 0, 1, w);
    twins(&t, 64 * 32 * 9, 0, 1, dw);
    Filter f = { 64, 32, 3, 3, w[1], NULL };
    Conv c = conv_of(&k, &f, WANT_DX | WANT_DW);
    random_pair(&t, c.x, 0, 0, x);
    random_pair(&t, c.y, 0, 0, dy);
    Tensor y = on(&t, dev, c.y, 0), dx = on(&t, dev, c.x, 0);
    dev->be.conv_open(dev, &c);
    dev->be.conv_fwd(dev, &c, &x[1], NULL, &y);
    dev->be.conv_dx(dev, &c, &dy[1], &dx);
    dev->be.conv_dw(dev, &c, &x[1], &dy[1], dw[1], NULL);
    const size_t n_y = dev->be.tensor_bytes(dev, &y), n_dx = dev->be.tensor_bytes(dev, &dx),
                 n_dw = (size_t)64 * 32 * 9 * sizeof(real);
    assert_true(n_y + n_dx + n_dw <= room);
    memcpy(out, y.p, n_y);
    memcpy(out + n_y, dx.p, n_dx);
    memcpy(out + n_y + n_dx, dw[1], n_dw);
    dev->be.conv_close(dev, &c);
    dev->be.filter_close(dev, &f);
    bufs_free(&t);
    dev_close(&t.dev[0]);
    dev_close(&t.dev[1]);
    return n_y + n_dx + n_dw;
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    const int half = ((const Pair *)*state)->half;
    enum { ROOM = 4 << 20 };
    char *one = malloc(ROOM), *more = malloc(ROOM);
    assert_true(one && more);
    const size_t n = own_kernels(half, 1, one, ROOM);
    for (int threads = 2; threads <= 5; threads++) {
        assert_true(own_kernels(half, threads, more, ROOM) == n);
        assert_memory_equal(one, more, n);
    }
    for (int stride = 1; stride <= 2; stride++) {
        const size_t all = own_winograd(half, 1, stride, one, ROOM);
        for (int threads = 2; threads <= 7; threads += 5) {
            assert_true(own_winograd(half, threads, stride, more, ROOM) == all);
            assert_memory_equal(one, more, all);
        }
    }
    free(one);
    free(more);
}

// oneDNN makes a few small objects at each call; our own code none, and nobody anything large.
static void running_allocates_nothing(void **state) {
#ifdef __SANITIZE_ADDRESS__
    (void)state;
    skip();
#else
    Pair *t = *state;
    Dev *dev = &t->dev[1];
    const Case k = { 4, 32, 32, 16, 16, 3, 1, 1, 0, 0 };
    real *w[2], *dw[2], *par[2], *g[2];
    Tensor x[2], y[2], dx[2], img[2];
    twins(t, 32 * 32 * 9, 0, 1, w);
    twins(t, 32 * 32 * 9, 0, 1, dw);
    twins(t, 8 * 32, 1, 0.1, par);
    twins(t, 4 * 3 * 256, 1, 0.1, g);
    Filter f = { 32, 32, 3, 3, w[1], NULL };
    Conv c = conv_of(&k, &f, WANT_DX | WANT_DW);
    random_pair(t, c.x, 0, 0, x);
    random_pair(t, c.y, 0, 0, y);
    random_pair(t, c.y, 0, 0, dx);
    random_pair(t, (Tensor){ 4, 3, 16, 16, NULL }, 1, 0, img);
    Tensor grad = { 4, 3, 16, 16, g[1] }, pooled = { 4, 32, 1, 1, g[1] };
    const Norm op = { .batch_stats = 1,
                      .gamma = par[1],
                      .beta = par[1] + 32,
                      .mean = par[1] + 64,
                      .rstd = par[1] + 96 };
    const StepState now = { 0 };
    dev->be.conv_open(dev, &c);
    for (int i = 0; i < 2; i++) {                        // the first time threads are made
        heap.count = heap.large = 0;
        heap.watching = 1;
        dev->be.norm_fwd(dev, &op, &x[1], &dx[1], &y[1]);
        dev->be.norm_bwd(dev, &op, &x[1], &y[1], &dx[1], par[1] + 128, par[1] + 160);
        dev->be.pool_fwd(dev, &y[1], &pooled);
        dev->be.langevin(dev, &img[1], &grad, (Move){ 5, (real)0.2, 1, (real)0.1, 1 },
                         (Rng){ 1, RNG_TEST, 0, 0 }, &now);
        dev->be.sgd(dev, 32 * 32 * 9, dw[1], w[1], dw[1], (Sgd){ (real)0.9, 0 }, &now);
        heap.watching = 0;
        if (i) assert_int_equal(heap.count, 0);
        heap.watching = 1;
        dev->be.filters_pack(dev, &f, 1);
        dev->be.conv_fwd(dev, &c, &x[1], par[1], &y[1]);
        dev->be.conv_dx(dev, &c, &y[1], &dx[1]);
        dev->be.conv_dw(dev, &c, &x[1], &y[1], dw[1], par[1]);
        heap.watching = 0;
        if (i) assert_int_equal(heap.large, 0);
    }
    dev->be.conv_close(dev, &c);
    dev->be.filter_close(dev, &f);
    bufs_free(t);
#endif
}

static void the_first_failure_stays_and_stops_the_device(void **state) {
    (void)state;
    Dev dev;
    Err err = { 0 };
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1 });
    real w[16] = { 0 }, v[16] = { 1 };
    Filter f = { 4, 4, 1, 1, w, NULL };
    Conv c = conv_of(&(Case){ 1, 4, 4, 1, 1, 1, 1, 0, 1, 1 }, &f, 0);
    dev.be.conv_open(&dev, &c);
    Tensor x = c.x, y = c.y;
    x.p = w;
    y.p = v;
    dev.be.conv_dx(&dev, &c, &y, &x);                    // was not asked for
    dev.be.conv_fwd(&dev, &c, &x, NULL, &y);
    assert_int_equal(dev_check(&dev, &err), -1);
    assert_int_equal(err.kind, ERR_DEV);
    assert_true(v[0] == 1);                              // nothing ran
    assert_null(dev.be.alloc(&dev, 64, "nothing"));
    dev.be.conv_close(&dev, &c);
    dev.be.filter_close(&dev, &f);
    dev_close(&dev);
}

// What could not be had is forgotten with dev_recover; passes that are open keep what they need.
static void a_failed_reservation_leaves_open_passes_usable(void **state) {
    (void)state;
    const NetSpec spec = { 10, 1, 3, 8, 10, NORM_BATCH, STEM_3X3 };
    Err why = { 0 };
    Dev dev;
    Net net;
    Pass p, huge;
    dev_start(&dev, "cpu", (DevOpts){ .threads = 1, .conv = CONV_DIRECT });
    OK(net_build(&net, &spec, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    OK(pass_open(&p, &net, 2, MODE_SAMPLE, err));
    void *mem = dev.be.alloc(&dev, p.bytes, "a pass"),
         *x = dev.be.alloc(&dev, 2 * 3 * 64 * sizeof(real), "images");
    memset(x, 0, 2 * 3 * 64 * sizeof(real));
    pass_bind(&p, mem);
    assert_int_not_equal(pass_open(&huge, &net, INT_MAX, MODE_SAMPLE, &why), 0);
    assert_int_equal(why.kind, ERR_MEM);
    pass_close(&huge);
    dev_recover(&dev);
    pass_forward(&p, x);
    OK(dev_check(&dev, err));
    pass_close(&p);
    dev.be.free(&dev, mem);
    dev.be.free(&dev, x);
    net_free(&net);
    dev_close(&dev);
}

// bf16 too, with its reason, where the processor has no instructions for it.
static void tf32_is_refused(void **state) {
    (void)state;
    Dev dev;
    Err err = { 0 };
    assert_int_equal(dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_TF32 }, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_ARG);
    err = (Err){ 0 };
    if (!dev_open(&dev, "cpu", &(DevOpts){ .precision = PREC_BF16 }, NULL, &err)) {
        dev_close(&dev);
        return;
    }
    assert_int_equal(err.kind, ERR_ARG);
    assert_non_null(strstr(err.msg, "AVX512_BF16"));
}

static void the_device_says_what_it_runs_on(void **state) {
    Pair *t = *state;
    const char *about = t->dev[1].be.describe(&t->dev[1]);
    assert_int_equal(strncmp(about, "2 threads, ", 11), 0);
    assert_non_null(strstr(about, "oneDNN "));
}

// Winograd everywhere, as text: the largest scratch there can be, and no time spent on choosing.
static void wrn_28_10_needs_little_scratch(void **state) {
    (void)state;
    const NetSpec spec = { 28, 10, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    static const char *const dirs[] = { "fwd", "dx", "dw" };
    char text[16384];
    size_t n = 0;
    Net net;
    OK(net_build(&net, &spec, err));
    for (int i = 0; i < net.n_op; i++) {
        const Op *op = &net.op[i];
        const Tensor *x = &net.act[op->x];
        for (int d = 0; op->kind == OP_CONV && op->size == 3 && d < 3; d++)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "%s %dx%d %d-%d k3 s%d p1 = winograd\n",
                                 dirs[d], x->h, x->w, x->c, net.act[op->y].c, op->stride);
    }
    assert_true(n < sizeof text);
    Dev dev;
    Pass p;
    OK(dev_open(&dev, "cpu", &(DevOpts){ .threads = 2, .tuning = text }, NULL, err));
    OK(net_alloc(&net, &dev, err));
    dev.be.zero(&dev, net.w, net.n_w * sizeof(real));
    OK(pass_open(&p, &net, 64, WANT_DX | MODE_TRAIN, err));
    print_message("scratch %.3f GiB, packed weights %.3f GiB\n", (double)dev.scratch_bytes / 0x1p30,
                  (double)dev.packed_bytes / 0x1p30);
    assert_less((double)dev.scratch_bytes / 0x1p30, 0.35);
    assert_less((double)p.bytes / 0x1p30, 1.4);
    pass_close(&p);
    net_free(&net);
    dev_close(&dev);
}

static void the_search_for_kernels_is_shown_and_stops(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);               // nothing is known, nothing is kept
    search_is_shown_and_stops("cpu");
}

// How many kernels are timed when a net is opened.
static int timings(const char *dir, int mode) {
    const NetSpec spec = { 10, 1, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    SearchSeen seen = { 0 };
    const Events events = { .progress = search_progress, .ctx = &seen };
    Dev dev;
    Net net;
    Pass p;
    setenv("XDG_CACHE_HOME", dir, 1);
    OK(dev_open(&dev, "cpu", &(DevOpts){ .threads = 1, .events = &events }, NULL, err));
    OK(net_build(&net, &spec, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    OK(pass_open(&p, &net, 2, mode, err));
    pass_close(&p);
    net_free(&net);
    dev_close(&dev);
    return seen.reports;
}

// Two processes time other layers at the same time; neither undoes what the other has kept.
static void a_cache_keeps_the_timings_of_all(void **state) {
    (void)state;
    char dir[] = "/tmp/jempp_cache_XXXXXX", command[200];
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    const Case k[2] = { { 4, 32, 32, 16, 16, 3, 1, 1, 0, 0 }, { 4, 16, 32, 8, 8, 3, 1, 1, 0, 0 } };
    Dev dev[2];
    for (int i = 0; i < 2; i++) dev_start(&dev[i], "cpu", (DevOpts){ .threads = 1 });
    int timed = 0;
    for (int i = 0; i < 2; i++) {
        real *w = calloc((size_t)32 * 32 * 9, sizeof *w);
        assert_non_null(w);
        Filter f = { k[i].out, k[i].in, 3, 3, w, NULL };
        Conv c = conv_of(&k[i], &f, WANT_DX | WANT_DW);
        dev[i].be.conv_open(&dev[i], &c);
        dev_fine(&dev[i]);
        for (const char *s = dev[i].be.tuning(&dev[i]); *s; s++) timed += *s == '\n';
        dev[i].be.conv_close(&dev[i], &c);
        dev[i].be.filter_close(&dev[i], &f);
        free(w);
    }
    for (int i = 0; i < 2; i++) dev_close(&dev[i]);
    snprintf(command, sizeof command, "test \"$(cat %s/jempp/cpu-*.txt | wc -l)\" = %d", dir,
             timed);
    if (timed) assert_int_equal(system(command), 0);         // no Winograd: nothing is timed
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void timings_are_kept_in_a_cache(void **state) {
    (void)state;
    char dir[] = "/tmp/jempp_cache_XXXXXX", command[200];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(timings(dir, MODE_INFER | RUN_FEW), 0); // one use does not wait for them
    assert_true(timings(dir, MODE_TRAIN) > 3);               // how many depends on their results
    assert_int_equal(timings(dir, MODE_TRAIN), 0);
    assert_true(timings("/dev/null", MODE_TRAIN) > 3);       // where nothing can be kept
    snprintf(command, sizeof command, "sed -i 's/winograd\\|direct/other/' %s/jempp/cpu-*.txt",
             dir);
    assert_int_equal(system(command), 0);
    assert_true(timings(dir, MODE_TRAIN) > 3);               // lines that are not ours do not count
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_convolution_of_a_real_network_is_slow),
        cmocka_unit_test(choices_are_taken_from_the_text_not_timed_again),
        cmocka_unit_test(broken_choices_are_left_out),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(the_first_failure_stays_and_stops_the_device),
        cmocka_unit_test(a_failed_reservation_leaves_open_passes_usable),
        cmocka_unit_test(tf32_is_refused),
        cmocka_unit_test(the_device_says_what_it_runs_on),
        cmocka_unit_test(wrn_28_10_needs_little_scratch),
        cmocka_unit_test(the_search_for_kernels_is_shown_and_stops),
        cmocka_unit_test(timings_are_kept_in_a_cache),
        cmocka_unit_test(a_cache_keeps_the_timings_of_all),
    };
    const struct CMUnitTest half[] = {
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(running_allocates_nothing),
    };
    int failed = cmocka_run_group_tests(tests, pair_open, pair_close);
    if (has_bf16()) failed += cmocka_run_group_tests(half, half_pair_open, pair_close);
    return failed ? failed : again_with_avx2("test_cpu_dev");
}
