// test_inception.c - Inception with weights from a seeded generator against pytorch-fid's class,
// the resize against torch-fidelity's (tests/golden, made by tools/make_golden_inception.py), and
// the published weights where JEMPP_INCEPTION names a safetensors file of them.
#include "base/text.h"
#include "golden.h"
#include "net/inception.h"

enum { SEED = 16, STEP_IMAGES = 1000, STEP_RESIZE = 1001 };

// ---- weights as make_golden_inception.py makes them ---------------------------------------------

typedef struct {
    const char *missing;                // names that contain this are not there; NULL: all are
    int script;                         // by the TorchScript file's names
    int asked;
} Seeded;

static uint32_t fnv1a(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static void seeded_range(const char *name, int rank, const int *dim, double *lo, double *hi) {
    double fan_in = 1;
    for (int i = 1; i < rank; i++) fan_in *= dim[i];
    *lo = -0.2;
    *hi = 0.2;
    if (rank > 1) *hi = sqrt(6 / fan_in), *lo = -*hi;
    else if (ends_with(name, "bn.weight") || ends_with(name, "var")) *lo = 0.5, *hi = 1.5;
    else if (!strcmp(name, "fc.bias")) *lo = 0, *hi = 1;
}

static int seeded_read(void *ctx, const char *name, int rank, const int *dim, float *dst,
                       Err *err) {
    (void)err;
    Seeded *s = ctx;
    size_t n = 1;
    double lo, hi;
    s->asked++;
    if (s->missing && strstr(name, s->missing)) return 1;
    if (s->script != !strncmp(name, "net.layers.", 11) && strncmp(name, "fc.", 3) != 0) return 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dim[i];
    seeded_range(name, rank, dim, &lo, &hi);
    const Rng key = { .seed = SEED, .stream = RNG_TEST, .step = fnv1a(name) };
    for (size_t k = 0; k < n; k += 4) {
        uint32_t r[4];
        rng_block(key, (uint32_t)(k / 4), r);
        for (size_t i = k; i < n && i < k + 4; i++)
            dst[i] = (float)(lo + (hi - lo) * (double)rng_to_unit(r[i - k]));
    }
    return 0;
}

static uint8_t *seeded_images(uint32_t step, size_t n) {
    const Rng key = { .seed = SEED, .stream = RNG_TEST, .step = step };
    uint8_t *x = malloc(n);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (uint8_t)(rng_u32(key, i) >> 24);
    return x;
}

// ---- the network --------------------------------------------------------------------------------

static double distance_from(St *st, const char *name, const real *mine, size_t n) {
    size_t count;
    double *v = golden_read(st, name, "", &count), d = 0, s = 0;
    assert_true(count >= n);
    for (size_t i = 0; i < n; i++) {
        d += ((double)mine[i] - v[i]) * ((double)mine[i] - v[i]);
        s += v[i] * v[i];
    }
    free(v);
    return sqrt(d / s);
}

static void run(Inception *in, const uint8_t *x, int n, real *features, real *logits) {
    for (int i = 0; i < n; i += in->batch) {
        const int m = n - i < in->batch ? n - i : in->batch;  // a short batch last
        OK(inception_start(in, x + (size_t)(i * 3 * in->h * in->w), m, err));
        OK(inception_finish(in, m, features + i * INCEPTION_FEATURES,
                            logits ? logits + i * INCEPTION_CLASSES : NULL, err));
    }
}

static void network_agrees(const char *device, Precision precision, int n, int batch,
                           double tolerance) {
    St st;
    Dev dev;
    Inception in;
    if (!has_device(device)) skip();
    golden_open(&st, "inception");
    OK(dev_open(&dev, device, &(DevOpts){ .threads = 2, .precision = precision }, NULL, err));
    uint8_t *x = seeded_images(STEP_IMAGES, (size_t)n * 3 * 299 * 299);
    real *f = malloc((size_t)n * INCEPTION_FEATURES * sizeof *f),
         *z = malloc((size_t)n * INCEPTION_CLASSES * sizeof *z);
    OK(inception_open(&in, &dev, &(InceptionWeights){ seeded_read, &(Seeded){ 0 } }, 299, 299,
                      batch, err));
    assert_int_equal(in.has_logits, 1);
    run(&in, x, n, f, z);
    assert_less(distance_from(&st, "features", f, (size_t)n * INCEPTION_FEATURES), tolerance);
    assert_less(distance_from(&st, "logits", z, (size_t)n * INCEPTION_CLASSES), tolerance);
    inception_close(&in);
    dev_close(&dev);
    st_close(&st);
    free(x), free(f), free(z);
}

static void the_reference_gives_pytorch_fids_features(void **state) {
    (void)state;
    network_agrees("ref", PREC_DEFAULT, 1, 1, 1e-5);
}

static void the_cpu_gives_pytorch_fids_features(void **state) {
    (void)state;
    network_agrees("cpu", PREC_DEFAULT, 2, 2, 1e-5);
}

static void the_gpu_gives_pytorch_fids_features(void **state) {
    (void)state;
    network_agrees("cuda", PREC_FP32, 2, 2, 1e-4);
    network_agrees("cuda", PREC_TF32, 2, 1, 5e-3);
    network_agrees("cuda", PREC_BF16, 2, 3, 5e-2);
}

// Two images as a batch of three, and as two batches of one: the same features.
static void batches_do_not_matter(void **state) {
    (void)state;
    network_agrees("cpu", PREC_DEFAULT, 2, 3, 1e-5);
    network_agrees("cpu", PREC_DEFAULT, 2, 1, 1e-5);
}

static void the_list_is_inceptions(void **state) {
    (void)state;
    Dev dev;
    Inception in;
    open_device(&dev, "ref");
    Seeded s = { .missing = "fc." };
    OK(inception_open(&in, &dev, &(InceptionWeights){ seeded_read, &s }, 32, 32, 1, err));
    const Net *net = &in.net;
    int convs = 0;
    for (int i = 0; i < net->n_op; i++) convs += net->op[i].kind == OP_CONV;
    assert_int_equal(convs, 94);
    assert_int_equal(in.has_logits, 0);
    assert_int_equal(net->features, net->n_act - 1);
    assert_int_equal(net->act[net->features].c, INCEPTION_FEATURES);
    assert_int_equal(net_macs(net) / 1000000, 5711);             // 5.7 G, as the paper says
    Pass p;
    Err why = { 0 };
    assert_int_equal(pass_plan(&p, &in.net, 1, MODE_TRAIN, 1, &why), -1);
    assert_non_null(strstr(why.msg, "inference alone"));
    real f, z;
    why = (Err){ 0 };
    assert_int_equal(inception_finish(&in, 0, &f, &z, &why), -1);
    assert_non_null(strstr(why.msg, "no softmax layer"));
    inception_close(&in);
    dev_close(&dev);
}

// All names of the TorchScript file; it has neither gamma nor softmax.
static void the_torchscript_files_names_are_known(void **state) {
    (void)state;
    Dev dev;
    Inception in;
    open_device(&dev, "ref");
    Seeded s = { .missing = "gamma", .script = 1 };
    OK(inception_open(&in, &dev, &(InceptionWeights){ seeded_read, &s }, 32, 32, 1, err));
    assert_int_equal(s.asked, 3 + 94 * 5 + 1);
    assert_string_equal(in.alias[0], "conv");
    assert_string_equal(in.alias[7], "mixed.tower.conv_1");
    assert_string_equal(in.alias[93], "mixed_10.tower_2_conv");
    inception_close(&in);
    dev_close(&dev);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    static const char *const part[] = { "Mixed_7c.branch3x3_2b.conv.weight",
                                        "Mixed_5b.branch_pool.bn.running_var",
                                        "Conv2d_1a_3x3.conv.weight" };
    Dev dev;
    open_device(&dev, "ref");
    for (size_t i = 0; i < LEN(part); i++) {
        Inception in;
        Err why = { 0 };
        Seeded s = { .missing = part[i] };
        const InceptionWeights w = { seeded_read, &s };
        assert_int_equal(inception_open(&in, &dev, &w, 32, 32, 1, &why), -1);
        assert_non_null(strstr(why.msg, part[i]));
        inception_close(&in);
    }
    Inception in;
    Err why = { 0 };
    assert_int_equal(inception_open(&in, &dev, &(InceptionWeights){ seeded_read, &(Seeded){ 0 } },
                                    0, 32, 1, &why),
                     -1);
    assert_non_null(strstr(why.msg, "0x32"));
    inception_close(&in);
    dev_close(&dev);
}

// ---- the resize ---------------------------------------------------------------------------------

static void resize_agrees(const char *device) {
    static const int size[][5] = {
        { 32, 32, 299, 299, 13 }, { 9, 6, 23, 17, 1 }, { 1, 1, 5, 4, 1 }, { 40, 30, 7, 11, 1 }
    }; // h, w to H, W; rows in the file
    St st;
    Dev dev;
    if (!has_device(device)) skip();
    golden_open(&st, "inception");
    open_device(&dev, device);
    for (size_t i = 0; i < LEN(size); i++) {
        const int *q = size[i];
        char name[32];
        size_t n;
        snprintf(name, sizeof name, "resize.%dx%d", q[2], q[3]);
        double *want = golden_read(&st, name, "", &n);
        uint8_t *bytes = seeded_images(STEP_RESIZE, (size_t)(3 * q[0] * q[1]));
        Tensor x = { 1, 3, q[0], q[1], NULL }, y = { 1, 3, q[2], q[3], NULL };
        const size_t len = tensor_len(&y);
        x.p = dev.be.alloc(&dev, tensor_len(&x), "a test");
        y.p = dev.be.alloc(&dev, len * sizeof(real), "a test");
        dev.be.copy_in(&dev, x.p, bytes, tensor_len(&x));
        dev.be.resize(&dev, &x, &y);
        real *got = malloc(len * sizeof *got);
        dev.be.copy_out(&dev, got, y.p, len * sizeof *got);
        OK(dev_check(&dev, err));
        for (size_t k = 0, at = 0; at < len; at++) {
            if (at / (size_t)q[3] % (size_t)q[2] % (size_t)q[4]) continue;
            assert_true(k < n);
            assert_close(got[at], want[k++], 1e-6);
        }
        dev.be.free(&dev, x.p);
        dev.be.free(&dev, y.p);
        free(got), free(bytes), free(want);
    }
    dev_close(&dev);
    st_close(&st);
}

static void the_resize_is_tensorflows(void **state) {
    (void)state;
    resize_agrees("ref");
    resize_agrees("cpu");
}

static void the_gpus_resize_is_tensorflows(void **state) {
    (void)state;
    resize_agrees("cuda");
}

// ---- the published weights ----------------------------------------------------------------------

static int weights_file_read(void *ctx, const char *name, int rank, const int *dim, float *dst,
                             Err *err) {
    uint64_t n = 1;
    const StTensor *t = st_find(ctx, name);
    for (int i = 0; i < rank; i++) n *= (uint64_t)dim[i];
    return t ? st_read_f32(ctx, t, dst, n, err) : 1;
}

static void the_published_weights_give_the_published_features(void **state) {
    (void)state;
    St st, file;
    Dev dev;
    Inception in;
    const char *path = getenv("JEMPP_INCEPTION");
    if (!path || !has_device("cpu")) skip();
    golden_open(&st, "inception");
    OK(tensors_open(&file, path, err));
    open_device(&dev, "cpu");
    const StTensor *t = st_find(&st, "pictures");
    uint8_t *x = malloc(t->bytes);
    real *f = malloc((size_t)10 * INCEPTION_FEATURES * sizeof *f);
    OK(st_read_raw(&st, t, x, t->bytes, err));
    OK(inception_open(&in, &dev, &(InceptionWeights){ weights_file_read, &file }, 32, 32, 0, err));
    run(&in, x, 10, f, NULL);
    const double off = distance_from(&st, "real", f, (size_t)10 * INCEPTION_FEATURES);
    print_message("the published weights: ten pictures to %.2g\n", off);
    assert_less(off, 1e-4);
    inception_close(&in);
    dev_close(&dev);
    st_close(&st);
    st_close(&file);
    free(x), free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_is_inceptions),
        cmocka_unit_test(the_torchscript_files_names_are_known),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(the_resize_is_tensorflows),
        cmocka_unit_test(the_gpus_resize_is_tensorflows),
        cmocka_unit_test(the_reference_gives_pytorch_fids_features),
        cmocka_unit_test(the_cpu_gives_pytorch_fids_features),
        cmocka_unit_test(the_gpu_gives_pytorch_fids_features),
        cmocka_unit_test(batches_do_not_matter),
        cmocka_unit_test(the_published_weights_give_the_published_features),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
