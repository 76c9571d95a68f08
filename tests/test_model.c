// test_model.c - models from strangers: what a file may say, and what it cannot make the program
// do.
#include "testing.h"
#include "base/safetensors.h"
#include "base/torch_file.h"
#include "run/ckpt.h"
#include "jem/weight_noise.h"
#include "jempp.h"
#include "run/model.h"
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

static char good[64], bad[64];
static NetSpec spec = { .depth = 10, .width = 1, .channels = 3, .side = 8, .classes = 3 };

static int make_model(void **state) {
    (void)state;
    snprintf(good, sizeof good, "/tmp/jempp-model-%d-good.safetensors", (int)getpid());
    snprintf(bad, sizeof bad, "/tmp/jempp-model-%d-bad.safetensors", (int)getpid());
    Dev dev;
    Net net;
    Config c;
    const char *names[] = { "cat", "dog", "owl" };
    config_defaults(&c);
    open_device(&dev, "ref");
    spec.norm = NORM_BATCH;
    OK(net_build(&net, &spec, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    const ModelCard card = { .cfg = &c, .class_name = names, .threshold = 1.5, .temperature = 0.5 };
    OK(model_save(&net, &card, 0, good, err));
    net_free(&net);
    dev_close(&dev);
    return 0;
}

static int remove_model(void **state) {
    (void)state;
    remove(good);
    remove(bad);
    return 0;
}

// The good model with one metadata entry replaced and one tensor left out (NULL: none).
static void spoil(const char *key, const char *value, const char *without) {
    St st;
    OK(st_open(&st, good, err));
    StWriter w = st_create(bad);
    for (int i = 0; i < st.n_meta; i++)
        if (!key || strcmp(st.meta[2 * i], key) != 0)
            st_meta_add(&w, st.meta[2 * i], st.meta[2 * i + 1]);
    if (key) st_meta_add(&w, key, value);
    for (int i = 0; i < st.n; i++)
        if (!without || strcmp(st.t[i].name, without) != 0)
            st_declare(&w, st.t[i].name, st.t[i].type, st.t[i].rank, st.t[i].shape);
    for (int i = 0; i < st.n; i++) {
        char *data = malloc(st.t[i].bytes);
        OK(st_read_raw(&st, &st.t[i], data, st.t[i].bytes, err));
        if (!without || strcmp(st.t[i].name, without) != 0) st_write(&w, data, st.t[i].bytes);
        free(data);
    }
    st_close(&st);
    OK(st_finish(&w, err));
}

static int open_model(Model *m, const char *path, Err *err) {
    Config use;
    config_defaults(&use);
    strcpy(use.device, "ref");
    return model_open(m, &use, path, err);
}

static void assert_refused(const char *why) {
    Model m;
    Err err = { 0 };
    assert_int_not_equal(open_model(&m, bad, &err), 0);
    if (!strstr(err.msg, why)) fail_msg("'%s' does not hold '%s'", err.msg, why);
}

// p(y|x) is softened or sharpened, log p(x) is not; without a temperature p is the softmax.
static void a_model_carries_its_temperature(void **state) {
    (void)state;
    const float z[3] = { 1, 2, -1 };
    float p[3];
    Model m;
    OK(open_model(&m, good, err));
    assert_close(m.temperature, 0.5, 0);
    assert_close(jempp_score(&m, z, p), log(exp(1) + exp(2) + exp(-1)), 1e-6);
    assert_close(p[1], exp(4) / (exp(2) + exp(4) + exp(-2)), 1e-6);
    assert_close(p[0] + p[1] + p[2], 1, 1e-6);
    m.temperature = 0;
    assert_close(jempp_score(&m, z, NULL), log(exp(1) + exp(2) + exp(-1)), 1e-6);
    jempp_score(&m, z, p);
    assert_close(p[1], exp(2) / (exp(1) + exp(2) + exp(-1)), 1e-6);
    model_close(&m);
    const char *const wrong[] = { "0", "-1", "nan", "inf", "1e9", "warm", "1 K", "" };
    for (size_t i = 0; i < LEN(wrong); i++) {
        spoil("temperature", wrong[i], NULL);
        assert_refused("expected a number from 0.001 to 1000");
    }
    spoil("temperature", "1000.0000000000001", NULL);     // as a net that knows nothing may have it
    OK(open_model(&m, bad, err));
    model_close(&m);
}

// The good model's tensors as PyTorch's file of another program, each name with a prefix; the last
// metadata is gone with it. With `extra` there is one tensor more, of 4 numbers.
static void as_torch(const char *prefix, const char *extra) {
    St st;
    char name[128];
    OK(st_open(&st, good, err));
    snprintf(bad, sizeof bad, "/tmp/jempp-model-%d-bad.pt", (int)getpid());
    StWriter w = torch_create(bad);
    for (int i = 0; i < st.n; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, st.t[i].name);
        st_declare(&w, name, st.t[i].type, st.t[i].rank, st.t[i].shape);
    }
    if (extra) st_declare(&w, extra, ST_F32, 1, (uint64_t[]){ 4 });
    for (int i = 0; i < st.n; i++) {
        char *data = malloc(st.t[i].bytes);
        OK(st_read_raw(&st, &st.t[i], data, st.t[i].bytes, err));
        st_write(&w, data, st.t[i].bytes);
        free(data);
    }
    if (extra) st_write(&w, (float[4]){ 0 }, 4 * sizeof(float));
    st_close(&st);
    OK(st_finish(&w, err));
}

static void same_weights(Model *a, Model *b) {
    const size_t n = a->net.n_w;
    assert_int_equal(n, b->net.n_w);
    assert_memory_equal(a->net.w, b->net.w, n * sizeof(real));          // of the host: device ref
    assert_memory_equal(a->net.state, b->net.state, a->net.n_state * sizeof(real));
}

static void checkpoints_of_the_published_code_open(void **state) {
    (void)state;
    static const char *const prefix[] = { "", "module.", "model_state_dict/", "state_dict/",
                                          "model_state_dict/module." };
    Model ours, theirs;
    OK(open_model(&ours, good, err));
    for (size_t i = 0; i < LEN(prefix); i++) {
        as_torch(prefix[i], "replay_buffer");
        OK(open_model(&theirs, bad, err));
        same_weights(&ours, &theirs);
        assert_string_equal(theirs.cfg.model, "wrn-10-1");
        assert_string_equal(theirs.class_name[2], "2");
        model_close(&theirs);
        remove(bad);
    }
    model_close(&ours);
    as_torch("", "f.layer4.0.conv1.weight");
    assert_refused("four groups of blocks");
    as_torch("net/", NULL);
    assert_refused("no tensor 'f.conv1.weight'");
    remove(bad);
    snprintf(bad, sizeof bad, "/tmp/jempp-model-%d-bad.safetensors", (int)getpid());
}

static void a_number_too_large_for_16_bits_is_an_error(void **state) {
    (void)state;
    Model a, b;
    Err why = { 0 };
    OK(open_model(&a, good, err));
    const ModelCard card = { .cfg = &a.cfg, .class_name = a.class_name, .threshold = 1.5 };
    real *variance = a.net.state + a.net.stat[1].off + a.net.stat[1].len;
    variance[2] = 65519;
    OK(model_save(&a.net, &card, 1, bad, err));
    OK(open_model(&b, bad, err));
    model_close(&b);
    remove(bad);
    variance[2] = 65520;                // halfway to the next number, which there is not
    assert_true(model_save(&a.net, &card, 1, bad, &why));
    assert_non_null(strstr(why.msg, "running_var' has 65520 at element 2,"));
    assert_int_equal(access(bad, F_OK), -1);
    model_close(&a);
}

static void a_model_in_pytorchs_format_keeps_everything(void **state) {
    (void)state;
    Model a, b;
    char path[96];
    snprintf(path, sizeof path, "%s.pt", bad);
    OK(open_model(&a, good, err));
    const ModelCard card = { .cfg = &a.cfg, .class_name = a.class_name, .threshold = 1.5 };
    OK(model_save(&a.net, &card, 0, path, err));
    OK(open_model(&b, path, err));
    same_weights(&a, &b);
    assert_string_equal(b.class_name[2], "owl");
    assert_close(b.threshold, 1.5, 0);
    assert_int_equal(b.net.spec.side, a.net.spec.side);
    model_close(&b);
    St st;
    OK(tensors_open(&st, path, err));
    assert_non_null(st_find(&st, "yopo_state_dict.f.other_layers.2.0.conv2.bias"));
    assert_non_null(st_find(&st, "yopo_state_dict.f.other_layers.3.num_batches_tracked"));
    assert_non_null(st_find(&st, "yopo_state_dict.f.layer_one.weight"));
    assert_non_null(st_find(&st, "jem_state_dict.f.linear.bias"));
    assert_non_null(st_find(&st, "model_state_dict.energy_output.weight"));
    assert_null(st_find(&st, "model_state_dict.f.linear.bias"));
    st_close(&st);
    remove(path);
    Err why = { 0 };
    assert_true(model_save(&a.net, &card, 0, "/tmp/model.bin", &why));
    assert_non_null(strstr(why.msg, "ends in .safetensors, .pt, .pth or .onnx"));
    assert_int_equal(why.kind, ERR_ARG);
    model_close(&a);
}

static void a_model_carries_its_names_and_threshold(void **state) {
    (void)state;
    Model m;
    OK(open_model(&m, good, err));
    assert_string_equal(m.class_name[2], "owl");
    assert_close(m.threshold, 1.5, 0);
    model_close(&m);
    spoil("classes", "cat", NULL);
    OK(open_model(&m, bad, err));
    assert_string_equal(m.class_name[0], "cat");
    assert_string_equal(m.class_name[2], "2");
    model_close(&m);
    spoil("classes", "\x1b[2Jcat\ndo\x07g\nowl", NULL);          // they are printed by predict
    OK(open_model(&m, bad, err));
    assert_string_equal(m.class_name[0], "?[2Jcat");
    assert_string_equal(m.class_name[1], "do?g");
    model_close(&m);
}

// Else `sample` would write its animation wherever the model's maker liked.
static void a_model_cannot_set_what_belongs_to_the_call(void **state) {
    (void)state;
    spoil("options", "batch = 8\nanimation = /tmp/elsewhere.webp\n", NULL);
    assert_refused("animation: not an option of a run");
    spoil("options", "count = 1000000\n", NULL);
    assert_refused("count: not an option of a run");
}

// A batch is as large as what is asked for, so only sampling needs the run's; what it could not
// have is forgotten with the call.
static void a_failed_allocation_ends_its_call_alone(void **state) {
    (void)state;
    Model m;
    Config use;
    Err why = { 0 };
    float *image = calloc(3 * 256 * 256, sizeof *image), z[3];
    spec.side = 256;
    make_model(NULL);
    spoil("options", "batch = 65535\nstart = uniform\nsteps = 1\n", NULL);
    spec.side = 8;
    make_model(NULL);
    OK(open_model(&m, bad, err));
    OK(model_logits(&m, image, 1, z, err));
    config_defaults(&use);
    for (int i = 0; i < 2; i++) {
        why = (Err){ 0 };
        assert_int_not_equal(model_sample(&m, &use, NULL, 1, image, NULL, &why), 0);
        if (!strstr(why.msg, "GiB for sampling, and the machine has")) fail_msg("%s", why.msg);
    }
    OK(config_set(&use, "batch", "1", "batch", err));
    OK(config_set(&use, "from", "starts", "from", err));
    OK(model_sample(&m, &use, NULL, 1, image, NULL, err));
    model_close(&m);
    free(image);
}

static size_t in_use(void) {
    const struct mallinfo2 i = mallinfo2();
    return i.uordblks + i.hblkhd;
}

// Through the C API, as a server would: what sampling and classifying need is taken once.
static void memory_in_use_stays_flat_over_many_calls(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();                                                 // its allocator does not count
#endif
    const int cpu = has_device("cpu");                      // the reference takes long for few
    const int samples = cpu ? 500 : 100, predictions = cpu ? 2000 : 400;
    JemppErr err = { 0 };
    float image[2 * 3 * 8 * 8] = { 0 }, z[2 * 3];
    spoil("options", "start = uniform\nbatch = 2\nsteps = 1\nreinit = 1\n", NULL);
    JemppOptions *o = jempp_options("sample", &err);
    assert_non_null(o);
    assert_int_equal(jempp_set(o, "device", cpu ? "cpu" : "ref", &err), 0);
    assert_int_equal(jempp_set(o, "steps", "1", &err), 0);
    Jempp *j = jempp_open(o, bad, &err);
    if (!j) fail_msg("%s", err.msg);
    size_t before = 0;
    for (int i = 0; i < samples; i++) {
        if (i == 10) before = in_use();
        if (jempp_sample(j, o, NULL, 1, image, NULL, &err)) fail_msg("%s", err.msg);
    }
    assert_in_range(in_use(), before - 4096, before + 4096);
    for (int i = 0; i < predictions; i++) {
        if (i == 10) before = in_use();
        if (jempp_logits(j, image, 1 + i % 2, z, &err)) fail_msg("%s", err.msg);
    }
    assert_in_range(in_use(), before - 4096, before + 4096);
    jempp_close(j);
    jempp_options_free(o);
}

static double total(const float *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (1 + i % 7);
    return sum;
}

// A model that has drawn before draws what one that was just opened does, with the same steps.
static void draws_as_a_first_call(Model *kept, const Config *use) {
    float image[3 * 3 * 8 * 8];
    Model fresh;
    OK(model_sample(kept, use, NULL, 3, image, NULL, err));
    const double again = total(image, LEN(image)), steps = model_chains(kept).first;
    OK(open_model(&fresh, bad, err));
    OK(model_sample(&fresh, use, NULL, 3, image, NULL, err));
    assert_close(steps, model_chains(&fresh).first, 0);
    model_close(&fresh);
    assert_close(again, total(image, LEN(image)), 0);
}

// What is kept serves the next call only where it fits.
static void a_later_call_draws_what_a_first_one_would(void **state) {
    (void)state;
    static const char *const batch[] = { "2", "4", "2" };
    Model kept;
    spoil("options", "start = uniform\nbatch = 4\n", NULL);
    OK(open_model(&kept, bad, err));
    for (size_t i = 0; i < LEN(batch); i++) {
        Config use;
        config_defaults(&use);
        OK(config_set(&use, "batch", batch[i], "batch", err));
        OK(config_set(&use, "steps", "2", "steps", err));
        draws_as_a_first_call(&kept, &use);
    }
    model_close(&kept);
}

// The length of steps is fitted by chains of the model's own seed, whatever the call's is.
static void fitted_steps_do_not_depend_on_earlier_calls(void **state) {
    (void)state;
    static const char *const seed[] = { "1", "2", "2" }, *const batch[] = { "4", "4", "2" };
    Model kept;
    spoil("options", "start = uniform\nbatch = 4\nsteps = 2\nreinit = 0.5\nstep-size = 20\n", NULL);
    OK(open_model(&kept, bad, err));
    for (size_t i = SANITIZED; i < LEN(seed); i++) {
        Config use;
        config_defaults(&use);
        OK(config_set(&use, "seed", seed[i], "seed", err));
        OK(config_set(&use, "batch", batch[i], "batch", err));
        draws_as_a_first_call(&kept, &use);
    }
    model_close(&kept);
}

// Without training images a model has the starts that it carries, and no others.
// The good model with chain starts of which these tensors are as given.
typedef struct {
    uint64_t groups, dim, kept, len; // of the spectrum; of the index; of the rows of `lower`
    float    sd;                     // the whole spectrum
    int32_t  second;                 // of the index
} OddStarts;

static void add_starts(OddStarts o) {
    enum { D = 3 * 8 * 8, MOST = 3 * D };
    static float zero[MOST], spectrum[MOST];
    static int8_t lower[MOST];
    const int32_t index[] = { 2, o.second, 7 };
    St st;
    spoil(NULL, NULL, NULL);
    OK(st_open(&st, bad, err));
    StWriter w = st_create(bad);
    for (int i = 0; i < st.n_meta; i++) st_meta_add(&w, st.meta[2 * i], st.meta[2 * i + 1]);
    for (int i = 0; i < st.n; i++)
        st_declare(&w, st.t[i].name, st.t[i].type, st.t[i].rank, st.t[i].shape);
    st_declare(&w, "start.mean", ST_F32, 2, (uint64_t[]){ 3, D });
    st_declare(&w, "start.spectrum", ST_F32, 2, (uint64_t[]){ o.groups, o.dim });
    st_declare(&w, "start.index", ST_I32, 1, (uint64_t[]){ o.kept });
    st_declare(&w, "start.lower", ST_I8, 2, (uint64_t[]){ 3, o.len });
    for (int i = 0; i < st.n; i++) {
        char *data = malloc(st.t[i].bytes);
        OK(st_read_raw(&st, &st.t[i], data, st.t[i].bytes, err));
        st_write(&w, data, st.t[i].bytes);
        free(data);
    }
    for (int i = 0; i < MOST; i++) spectrum[i] = o.sd, lower[i] = 90;
    st_write(&w, zero, sizeof zero);
    st_write(&w, spectrum, o.groups * o.dim * sizeof *spectrum);
    st_write(&w, index, o.kept * sizeof *index);
    st_write(&w, lower, 3 * o.len);
    st_close(&st);
    OK(st_finish(&w, err));
}

static void starts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    enum { D = 3 * 8 * 8 };
    const OddStarts right = { 3, D, 3, 6, 0.1f, 5 };
    const struct {
        OddStarts o;
        const char *why;
    } odd[] = {
        { { 1, D, 3, 6, 0.1f, 5 }, "chain starts of another shape" },
        { { 3, D - 1, 3, 6, 0.1f, 5 }, "chain starts of another shape" },
        { { 3, D, 3, 5, 0.1f, 5 }, "chain starts of another shape" },
        { { 3, D, 2, 6, 0.1f, 5 }, "chain starts of another shape" },
        { { 3, D, 0, 0, 0.1f, 5 }, "chain starts of another shape" },
        { { 3, D, 3, 6, 0.1f, 2 }, "'start.index': expected rising numbers from 0 to 191" },
        { { 3, D, 3, 6, 0.1f, -1 }, "'start.index': expected rising numbers" },
        { { 3, D, 2, 3, 0.1f, D }, "'start.index': expected rising numbers" },
        { { 3, D, 3, 6, NAN, 5 }, "tensor 'start.spectrum' has a number that is not finite" },
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        add_starts(odd[i].o);
        assert_refused(odd[i].why);
    }
    Model m;
    add_starts(right);
    OK(open_model(&m, bad, err));
    assert_close(m.starts.spectrum[3 * D - 1], 0.1, 1e-6);
    assert_int_equal(m.starts.index[1], 5);
    assert_int_equal(m.starts.lower[17], 90);
    model_close(&m);
}

static void carried_starts_serve_their_own_kind_alone(void **state) {
    (void)state;
    enum { D = 3 * 8 * 8 };
    static float mean[3 * D], factor[3 * D], image[3 * D];
    for (int groups = 1; groups <= 3; groups += 2)
        for (StartKind kind = START_INFORMATIVE; kind <= START_GAUSSIAN; kind++) {
            Model m;
            Config use;
            Err why = { 0 };
            const int fits = groups == (kind == START_GAUSSIAN ? 1 : 3);
            spoil("options", "batch = 4\nsteps = 1\n", NULL);
            OK(open_model(&m, bad, err));
            m.starts = (StartsFile){ .n_group = groups,
                                     .rank = 1,
                                     .channels = 3,
                                     .side = 8,
                                     .mean = mean,
                                     .factor = factor };
            config_defaults(&use);
            OK(config_set(&use, "steps", "1", "steps", err));
            OK(config_set(&use, "start", kind == START_GAUSSIAN ? "gaussian" : "informative",
                          "start", err));
            const int rc = model_sample(&m, &use, NULL, 3, image, NULL, &why);
            if (rc && fits) fail_msg("%s", why.msg);
            if (!fits && (!rc || !strstr(why.msg, "contains"))) fail_msg("'%s'", why.msg);
            model_close(&m);
        }
}

// --start gaussian: one mean, of no class.
static void one_gaussian_has_one_centre(void **state) {
    (void)state;
    enum { D = 3 * 8 * 8 };
    static float mean[D], image[D];
    for (int i = 0; i < D; i++) mean[i] = (float)i / D;
    static const char *const classes[] = { "all", "2" };
    for (int i = 0; i < 2; i++) {
        Model m;
        Config use;
        int cls = 0;
        OK(open_model(&m, good, err));
        m.starts = (StartsFile){ .n_group = 1, .channels = 3, .side = 8, .mean = mean };
        config_defaults(&use);
        OK(config_set(&use, "from", "centres", "from", err));
        OK(config_set(&use, "class", classes[i], "class", err));
        assert_int_equal(model_n_samples(&m, &use, NULL), 1);
        OK(model_sample(&m, &use, NULL, 1, image, &cls, err));
        assert_int_equal(cls, -1);
        assert_memory_equal(image, mean, sizeof mean);
        m.starts.mean = NULL;
        model_close(&m);
    }
}

static void chains_that_climb_a_class_have_it(void **state) {
    (void)state;
    for (int conditional = 0; conditional < 2; conditional++) {
        float image[3 * 3 * 8 * 8];
        int cls[3];
        Model m;
        Config use;
        spoil("options",
              conditional ? "batch = 4\nstart = uniform\nconditional = on\n"
                          : "batch = 4\nstart = uniform\n",
              NULL);
        OK(open_model(&m, bad, err));
        config_defaults(&use);
        OK(config_set(&use, "steps", "1", "steps", err));
        OK(model_sample(&m, &use, NULL, 3, image, cls, err));
        for (int i = 0; i < 3; i++) assert_int_equal(cls[i], conditional ? i : -1);
        model_close(&m);
    }
}

static void every_weight_must_be_there_before_memory_is_spent(void **state) {
    (void)state;
    spoil(NULL, NULL, "f.layer3.0.bn2.running_var");
    assert_refused("no tensor 'f.layer3.0.bn2.running_var'");
    spoil(NULL, NULL, "class_output.weight");
    assert_refused("no tensor 'class_output.weight'");
}

// As a flipped bit makes them; before, every answer was "-nan".
static void weights_that_are_not_finite_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *word;
        uint32_t bits;
    } wrong[] = { { "f.layer2.0.conv1.weight", "NaN", 0x7fc00000u },
                  { "class_output.bias", "infinity", 0xff800000u },
                  { "f.bn1.running_var", "NaN", 0xffffffffu } };
    for (size_t i = 0; i < LEN(wrong); i++) {
        St st;
        spoil(NULL, NULL, NULL);
        OK(st_open(&st, bad, err));
        const StTensor *t = st_find(&st, wrong[i].name);
        assert_non_null(t);
        const long at = (long)(st.data_at + t->begin);
        st_close(&st);
        FILE *f = fopen(bad, "r+b");
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        assert_int_equal(fwrite(&wrong[i].bits, 4, 1, f), 1);
        fclose(f);
        char why[128];
        snprintf(why, sizeof why, "%s: tensor '%s' has %s at element 0", bad, wrong[i].name,
                 wrong[i].word);
        assert_refused(why);
    }
}

static void sizes_that_no_network_has_are_refused(void **state) {
    (void)state;
    static const char *const side[] = { "0", "-8", "7", "260", "99999999999999999999" };
    for (size_t i = 0; i < LEN(side); i++) {
        spoil("side", side[i], NULL);
        assert_refused("expected 4 to 256 pixels");
    }
    spoil("options", "batch = 0\n", NULL);
    assert_refused("batch: found '0', expected a whole number from 1");
    spoil("options", "no such line\n", NULL);
    assert_refused("expected option = value");
}

// Its training may have been on another machine, whose folders are not the user's.
static void a_data_folder_that_is_gone_is_not_looked_into(void **state) {
    (void)state;
    Model m;
    spoil("options", "data = cifar10\ndata-dir = /nowhere/at/all\n", NULL);
    OK(open_model(&m, bad, err));
    assert_string_equal(m.cfg.data_dir, "");
    model_close(&m);
    spoil("options", "data = cifar10\ndata-dir = /tmp\n", NULL);
    OK(open_model(&m, bad, err));
    assert_string_equal(m.cfg.data_dir, "/tmp");
    model_close(&m);
}

static void chains_that_are_stopped_are_no_wrong_argument(void **state) {
    (void)state;
    Model m;
    Config use;
    Err why = { 0 };
    const Events ev = { .stop = stop_at_once };
    float image[3 * 8 * 8];
    config_defaults(&use);
    spoil("options", "start = uniform\nbatch = 2\nsteps = 1\nreinit = 1\n", NULL);
    OK(open_model(&m, bad, err));
    assert_int_not_equal(model_sample(&m, &use, &ev, 1, image, NULL, &why), 0);
    assert_string_equal(why.msg, "stopped");
    assert_int_equal(why.kind, ERR_IO);
    model_close(&m);
}

static void a_command_without_its_names_says_so(void **state) {
    (void)state;
    JemppErr err = { 0 };
    JemppOptions *o = jempp_options("serve", &err);
    assert_int_not_equal(jempp_serve(o, NULL, &err), 0);
    assert_string_equal(err.msg, "serve: expected one run folder, folder of runs, or model file");
    jempp_options_free(o);
    err = (JemppErr){ 0 };
    o = jempp_options("predict", &err);
    JemppPredicted r;
    assert_int_not_equal(jempp_predict_files(NULL, o, NULL, &r, &err), 0);
    assert_non_null(strstr(err.msg, "predict: expected a run folder or model file"));
    jempp_options_free(o);
}

static void no_row(void *ctx, const JemppPrediction *p, const char *error) {
    (void)ctx, (void)p, (void)error;
    fail();
}

static void files_that_were_not_named_are_not_predicted(void **state) {
    (void)state;
    static const int range[][2] = { { 0, 3 }, { 2, 1 }, { -1, 1 }, { 1, INT_MAX }, { 0, -1 } };
    char *argv[] = { "a.png", "b.png" };
    JemppErr err = { 0 };
    JemppPredicted r;
    JemppOptions *o = jempp_options("predict", &err);
    assert_int_equal(jempp_set(o, "device", "ref", &err), 0);
    assert_int_equal(jempp_set_args(o, 2, argv, &err), 0);
    Jempp *j = jempp_open(o, good, &err);
    if (!j) fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        err = (JemppErr){ 0 };
        assert_int_not_equal(
            jempp_predict_each(j, o, range[i][0], range[i][1], NULL, no_row, NULL, &r, &err), 0);
        assert_int_equal(err.kind, JEMPP_ERR_ARG);
        if (!strstr(err.msg, "the options name 2")) fail_msg("'%s'", err.msg);
    }
    jempp_close(j);
    jempp_options_free(o);
}

// A list has commas between names, and names may have commas themselves.
static void classes_are_found_by_name_number_and_with_commas(void **state) {
    (void)state;
    const char *names[] = { "cat", "cat, wild", "dog", "7", "wild" };
    Model m = { .net.spec.classes = 5, .class_name = names };
    static const struct {
        const char *list, *wanted;
        int n;
    } cases[] = { { "", "11111", 5 },         { "all", "11111", 5 },
                  { "cat", "10000", 1 },      { "cat, wild", "01000", 1 },
                  { "cat,wild", "10001", 2 }, { "dog,cat, wild,cat", "11100", 3 },
                  { "2,0,2", "10100", 2 },    { "7", "00010", 1 }, // a name before a number
                  { "dog,", "00100", 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[MODEL_CLASSES];
        int n = 0;
        OK((n = model_classes(&m, cases[i].list, wanted, err)) < 0);
        assert_int_equal(n, cases[i].n);
        for (int c = 0; c < 5; c++) assert_int_equal(wanted[c], cases[i].wanted[c] - '0');
    }
    static const char *const wrong[] = { "cow", "dog,cow", "cat,wil", "5", "-1", "1x", "," };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char wanted[MODEL_CLASSES];
        Err err = { 0 };
        assert_int_equal(model_classes(&m, wrong[i], wanted, &err), -1);
        assert_non_null(strstr(err.msg, "the model's 5 classes are cat, cat, wild, dog"));
        const int alike = !strcmp(wrong[i], "cat,wil");
        assert_int_equal(strstr(err.msg, "--class wil: did you mean wild? ") != NULL, alike);
    }
}

// ---- noise on the weights while chains run -----------------------------------------------------

static double sum_of_squares(const real *a, const real *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sum;
}

// Independent numbers of every layer: as large as asked for, others with another key, and gone
// again. Norms have none.
static void noise_on_weights_is_as_large_as_asked_for(void **state) {
    (void)state;
    Model m;
    WeightNoise w;
    OK(open_model(&m, good, err));
    Net *net = &m.net;
    real *clean = malloc(net->n_w * sizeof *clean), *once = malloc(net->n_w * sizeof *once);
    memcpy(clean, net->w, net->n_w * sizeof *clean);
    OK(weight_noise_open(&w, net, err));
    const Rng key = { .seed = 5, .stream = RNG_WEIGHT_NOISE, .step = 1 };
    weight_noise_add(&w, 0.25, key);
    memcpy(once, net->w, net->n_w * sizeof *once);
    for (int i = 0; i < net->n_par; i++) {
        const Param *p = &net->par[i];
        const double moved = sum_of_squares(net->w + p->off, clean + p->off, p->len),
                     size = sum_of_squares(clean + p->off, NULL, p->len);
        if (p->fan_in > 0)          // 5 standard deviations of an estimate from len numbers
            assert_close(sqrt(moved / size), 0.25, 0.25 * 5 / sqrt(2.0 * (double)p->len));
        else assert_true(moved == 0);
    }
    weight_noise_add(&w, 0.25, (Rng){ .seed = 5, .stream = RNG_WEIGHT_NOISE, .step = 2 });
    assert_memory_not_equal(net->w, once, net->n_w * sizeof *once);
    weight_noise_add(&w, 0.25, key);                    // in place of the other, not on top of it
    assert_memory_equal(net->w, once, net->n_w * sizeof *once);
    weight_noise_remove(&w);
    assert_memory_equal(net->w, clean, net->n_w * sizeof *clean);
    weight_noise_add(&w, 0.25, key);
    weight_noise_close(&w);
    assert_memory_equal(net->w, clean, net->n_w * sizeof *clean);
    free(clean);
    free(once);
    model_close(&m);
}

typedef struct {
    Model *m;
    const real *clean;
    int seen;
} CleanWeights;

static int weights_are_clean(void *ctx, int step, int steps, int n, const float *images,
                             const int *class_of) {
    CleanWeights *c = ctx;
    (void)step, (void)steps, (void)n, (void)images, (void)class_of;
    assert_memory_equal(c->m->net.w, c->clean, c->m->net.n_w * sizeof *c->clean);
    return ++c->seen == 4;                              // stops in the middle
}

// Whoever watches chains, or ends them, finds the model's own weights.
static void noise_on_weights_is_for_chains_alone(void **state) {
    (void)state;
    Model m;
    Config use;
    float image[2][3 * 8 * 8];
    spoil("options", "start = uniform\nbatch = 2\nsteps = 5\n", NULL);
    OK(open_model(&m, bad, err));
    real *clean = malloc(m.net.n_w * sizeof *clean);
    memcpy(clean, m.net.w, m.net.n_w * sizeof *clean);
    config_defaults(&use);
    OK(config_set(&use, "steps", "5", "steps", err));
    OK(config_set(&use, "weight-noise", "0.3", "weight-noise", err));
    CleanWeights c = { &m, clean, 0 };
    Err why = { 0 };
    assert_int_not_equal(model_sample_watched(&m, &use, NULL,
                                              &(ChainWatch){ weights_are_clean, &c }, 1, image[0],
                                              NULL, &why),
                         0);
    assert_int_equal(c.seen, 4);
    assert_memory_equal(m.net.w, clean, m.net.n_w * sizeof *clean);
    for (int k = 0; k < 2; k++) {
        OK(config_set(&use, "weight-noise", k ? "0" : "0.3", "weight-noise", err));
        OK(model_sample(&m, &use, NULL, 1, image[k], NULL, err));
        assert_memory_equal(m.net.w, clean, m.net.n_w * sizeof *clean);
    }
    assert_memory_not_equal(image[0], image[1], sizeof image[0]);
    free(clean);
    model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_carries_its_names_and_threshold),
        cmocka_unit_test(classes_are_found_by_name_number_and_with_commas),
        cmocka_unit_test(checkpoints_of_the_published_code_open),
        cmocka_unit_test(a_model_in_pytorchs_format_keeps_everything),
        cmocka_unit_test(a_number_too_large_for_16_bits_is_an_error),
        cmocka_unit_test(a_model_carries_its_temperature),
        cmocka_unit_test(a_model_cannot_set_what_belongs_to_the_call),
        cmocka_unit_test(a_failed_allocation_ends_its_call_alone),
        cmocka_unit_test(memory_in_use_stays_flat_over_many_calls),
        cmocka_unit_test(a_later_call_draws_what_a_first_one_would),
        cmocka_unit_test(fitted_steps_do_not_depend_on_earlier_calls),
        cmocka_unit_test(carried_starts_serve_their_own_kind_alone),
        cmocka_unit_test(one_gaussian_has_one_centre),
        cmocka_unit_test(starts_that_do_not_fit_are_refused),
        cmocka_unit_test(chains_that_climb_a_class_have_it),
        cmocka_unit_test(noise_on_weights_is_as_large_as_asked_for),
        cmocka_unit_test(noise_on_weights_is_for_chains_alone),
        cmocka_unit_test(every_weight_must_be_there_before_memory_is_spent),
        cmocka_unit_test(weights_that_are_not_finite_are_refused_by_name),
        cmocka_unit_test(sizes_that_no_network_has_are_refused),
        cmocka_unit_test(a_data_folder_that_is_gone_is_not_looked_into),
        cmocka_unit_test(chains_that_are_stopped_are_no_wrong_argument),
        cmocka_unit_test(a_command_without_its_names_says_so),
        cmocka_unit_test(files_that_were_not_named_are_not_predicted),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
