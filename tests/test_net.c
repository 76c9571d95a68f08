// test_net.c - the uses of one network agree, its gradients are right, and it stays in its memory.
#include "testing.h"
#include "net/net.h"
#include "net/optim.h"

// Counts what the program asks of the C library, to show that a step asks nothing. The sanitizers
// bring their own allocator, so there it is not counted.
#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
enum { COUNTING = 0 };
static int allocations;
#else
enum { COUNTING = 1 };
static int allocations;
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { return allocations++, __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return allocations++, __libc_calloc(n, size); }
void *aligned_alloc(size_t align, size_t n) { return allocations++, __libc_memalign(align, n); }
int posix_memalign(void **p, size_t align, size_t n) {
    allocations++;
    *p = __libc_memalign(align, n);
    return *p ? 0 : 12;
}
#endif

enum { BATCH = 4 };

typedef struct {
    Dev   dev;
    Net   net;
    real *x, *sums;            // on the device
    int  *y;
} Fixture;

static const NetSpec small = { 10, 1, 3, 8, 5, NORM_BATCH, STEM_3X3 };

// Weights and statistics that no symmetry helps: gamma and beta random, variances around 1.5.
static void set_up(Fixture *f, const char *device, const NetSpec *spec) {
    open_device(&f->dev, device);
    OK(net_build(&f->net, spec, err));
    OK(net_alloc(&f->net, &f->dev, err));
    OK(net_init(&f->net, 3, err));
    Net *net = &f->net;
    real *w = malloc(net->n_w * sizeof *w), *s = malloc((net->n_state + 1) * sizeof *s);
    f->dev.be.copy_out(&f->dev, w, net->w, net->n_w * sizeof *w);
    fill_random(s, net->n_state, 1, -0.5, 0.5);
    for (int i = 0; i < net->n_par; i++)
        if (net->par[i].fan_in <= 0) {
            fill_random(w + net->par[i].off, net->par[i].len, 40 + (uint32_t)i, -0.4, 0.4);
            for (size_t k = 0; k < net->par[i].len; k++)
                w[net->par[i].off + k] += net->par[i].fan_in == 0;
        }
    for (int i = 0; i < net->n_stat; i++)
        for (size_t k = 0; k < net->stat[i].len; k++)
            s[net->stat[i].off + net->stat[i].len + k] += (real)1.5;
    f->dev.be.copy_in(&f->dev, net->w, w, net->n_w * sizeof *w);
    f->dev.be.copy_in(&f->dev, net->state, s, net->n_state * sizeof *s);
    net_changed(net);
    const size_t dim = (size_t)(spec->channels * spec->side * spec->side);
    real *x = malloc(BATCH * dim * sizeof *x);
    fill_random(x, BATCH * dim, 2, -1, 1);
    f->x = f->dev.be.alloc(&f->dev, BATCH * dim * sizeof *x, "images");
    f->y = f->dev.be.alloc(&f->dev, BATCH * sizeof *f->y, "labels");
    f->sums = f->dev.be.alloc(&f->dev, N_SUM * sizeof(real), "sums");
    f->dev.be.copy_in(&f->dev, f->x, x, BATCH * dim * sizeof *x);
    f->dev.be.copy_in(&f->dev, f->y, (int[BATCH]){ 3, 1, 4, 1 }, BATCH * sizeof *f->y);
    free(w), free(s), free(x);
}

static void tear_down(Fixture *f) {
    f->dev.be.free(&f->dev, f->x);
    f->dev.be.free(&f->dev, f->y);
    f->dev.be.free(&f->dev, f->sums);
    net_free(&f->net);
    dev_close(&f->dev);
}

static void *open_pass(Fixture *f, Pass *p, int mode) {
    OK(pass_open(p, &f->net, BATCH, mode, err));
    void *mem = f->dev.be.alloc(&f->dev, p->bytes, "a pass");
    assert_non_null(mem);
    memset(mem, 0xff, p->bytes);               // NaN: nothing may lean on what was there before
    pass_bind(p, mem);
    return mem;
}

static void close_pass(Fixture *f, Pass *p, void *mem) {
    pass_close(p);
    f->dev.be.free(&f->dev, mem);
}

static double value(const real *s, Energy e) {
    return ((double)e.a * (double)s[SUM_LSE] + (double)e.b * (double)s[SUM_ZY] +
            (double)e.c * (double)s[SUM_LSE2]) /
           BATCH;
}

// One pass forward; s gets the sums that every energy is made of, the logits' gradient is e's.
static void sum_up(Fixture *f, Pass *p, Energy e, real s[N_SUM]) {
    pass_forward(p, f->x);
    Tensor *dz = pass_logits_grad(p)->p ? pass_logits_grad(p) : NULL;
    f->dev.be.head(&f->dev, pass_logits(p), f->y, e, (real)(1.0 / BATCH), dz, f->sums);
    f->dev.be.copy_out(&f->dev, s, f->sums, N_SUM * sizeof *s);
}

static double run(Fixture *f, Pass *p, Energy e) {
    real s[N_SUM];
    sum_up(f, p, e, s);
    return value(s, e);
}

static const Energy energies[] = { { .a = 1, .b = -1 }, { .a = 1 }, { .b = 1, .c = (real)0.1 } };
enum { ENERGIES = LEN(energies) };

// Finite differences by some of v[0 .. n-1] against the energies' gradients, which begin at
// g[k][at]: off[k] is their distance as a fraction of the gradient's norm.
static void difference(Fixture *f, Pass *p, real *v, real *const *g, size_t at, size_t n,
                       size_t probes, double off[ENERGIES]) {
    const double h = 1e-6;
    double err[ENERGIES] = { 0 }, size[ENERGIES] = { 0 };
    for (size_t j = 0; j < probes; j++) {
        const size_t i = n * j / probes;
        const real old = v[i];
        real up[N_SUM], down[N_SUM];
        v[i] = old + (real)h;
        sum_up(f, p, energies[0], up);
        v[i] = old - (real)h;
        sum_up(f, p, energies[0], down);
        v[i] = old;
        for (size_t k = 0; k < ENERGIES; k++) {
            const double slope = (value(up, energies[k]) - value(down, energies[k])) / (2 * h);
            err[k] += pow(slope - (double)g[k][at + i], 2);
            size[k] += pow((double)g[k][at + i], 2);
        }
    }
    for (size_t k = 0; k < ENERGIES; k++) off[k] = sqrt(err[k] / (size[k] + 1e-300));
}

static void check_gradients(const NetSpec *spec, int stats) {
    Fixture f;
    Pass p;
    set_up(&f, "ref", spec);
    void *mem = open_pass(&f, &p, WANT_DX | WANT_DW | stats);
    const size_t dim = (size_t)(BATCH * spec->channels * spec->side * spec->side);
    real *dx[ENERGIES], *dw[ENERGIES];
    double off[ENERGIES];
    for (size_t k = 0; k < ENERGIES; k++) {
        dx[k] = malloc(dim * sizeof(real)), dw[k] = malloc(f.net.n_w * sizeof(real));
        net_zero_grad(&f.net);
        run(&f, &p, energies[k]);
        pass_backward(&p);
        memcpy(dx[k], pass_input_grad(&p)->p, dim * sizeof(real));
        memcpy(dw[k], f.net.dw, f.net.n_w * sizeof(real));
    }
    difference(&f, &p, f.x, dx, 0, dim, 20, off);
    for (size_t k = 0; k < ENERGIES; k++) assert_less(off[k], 1e-6);
    for (int i = 0; i < f.net.n_par; i++) {
        const Param *par = &f.net.par[i];
        difference(&f, &p, f.net.w + par->off, dw, par->off, par->len, par->len < 3 ? par->len : 3,
                   off);
        for (size_t k = 0; k < ENERGIES; k++) {
            double size = 0;
            for (size_t j = 0; j < par->len; j++) size += pow((double)dw[k][par->off + j], 2);
            // a bias that batch norm removes has no gradient: its finite difference is round-off
            if (size > 0 && off[k] > 1e-5) fail_msg("%s: off by %g of its norm", par->name, off[k]);
            if (size == 0 && off[k] * 1e-150 > 1e-8)
                fail_msg("%s: has a gradient after all", par->name);
        }
    }
    for (size_t k = 0; k < ENERGIES; k++) free(dx[k]), free(dw[k]);
    close_pass(&f, &p, mem);
    tear_down(&f);
}

static void gradients_of_whole_networks_match_finite_differences(void **state) {
    (void)state;
    if (sizeof(real) != 8) skip();             // fp32 is too coarse: the double build runs this
    NetSpec s = small;
    check_gradients(&s, 0);
    check_gradients(&s, STATS_RUNNING);
    s.norm = NORM_NONE;
    check_gradients(&s, 0);
    s = (NetSpec){ 16, 1, 1, 12, 6, NORM_BATCH, STEM_4X4 };
    check_gradients(&s, 0);
    check_gradients(&s, STATS_RUNNING);
}

static void biases_before_a_batch_norm_get_exactly_zero(void **state) {
    (void)state;
    Fixture f;
    Pass p;
    set_up(&f, "ref", &small);
    void *mem = open_pass(&f, &p, MODE_TRAIN);
    net_zero_grad(&f.net);
    run(&f, &p, (Energy){ .a = 1, .b = -1 });
    pass_backward(&p);
    int lost = 0, kept = 0;
    for (int i = 0; i < f.net.n_op; i++) {
        const Op *op = &f.net.op[i];
        if (op->kind != OP_CONV) continue;
        const Param *b = &f.net.par[op->b];
        double size = 0;
        for (size_t k = 0; k < b->len; k++) size += fabs((double)f.net.dw[b->off + k]);
        if (op->bias_lost) assert_true(size == 0), lost++;
        else assert_true(size > 0), kept++;
    }
    assert_int_equal(lost, 9);                 // stem, 3 blocks of 2, 2 shortcuts
    assert_int_equal(kept, 1);                 // the head
    close_pass(&f, &p, mem);
    tear_down(&f);
}

static void check_modes(const char *device) {
    Fixture f;
    Pass both, sampling, training, apart;
    set_up(&f, device, &small);
    void *m[4] = { open_pass(&f, &both, WANT_DX | WANT_DW), open_pass(&f, &sampling, MODE_SAMPLE),
                   open_pass(&f, &training, WANT_DW), NULL };
    OK(pass_open(&apart, &f.net, BATCH, WANT_DX | WANT_DW, err));
    {   // the same pass with every tensor in a place of its own
        Pass roomy;
        OK(pass_plan(&roomy, &f.net, BATCH, WANT_DX | WANT_DW, 0, err));
        assert_true(roomy.bytes > apart.bytes);
        memcpy(apart.act_off, roomy.act_off, (size_t)f.net.n_act * sizeof(size_t));
        memcpy(apart.grad_off, roomy.grad_off, (size_t)f.net.n_act * sizeof(size_t));
        memcpy(apart.stat_off, roomy.stat_off, (size_t)f.net.n_op * sizeof(size_t));
        m[3] = f.dev.be.alloc(&f.dev, roomy.bytes, "a roomy pass");
        memset(m[3], 0xff, roomy.bytes);
        pass_bind(&apart, m[3]);
        pass_close(&roomy);
    }
    Pass *all[] = { &both, &sampling, &training, &apart };
    const size_t bw = f.net.n_w * sizeof(real), bx = BATCH * 3 * 8 * 8 * sizeof(real);
    real logits[4][BATCH * 5], *dw[4], *dx[4];
    for (int k = 0; k < 4; k++) {
        dw[k] = malloc(bw), dx[k] = malloc(bx);
        net_zero_grad(&f.net);
        run(&f, all[k], (Energy){ .a = 1, .b = -1 });
        memcpy(logits[k], pass_logits(all[k])->p, sizeof logits[k]);
        pass_backward(all[k]);
        memcpy(dw[k], f.net.dw, bw);
        if (all[k]->mode & WANT_DX) memcpy(dx[k], pass_input_grad(all[k])->p, bx);
    }
    for (int k = 1; k < 4; k++) assert_memory_equal(logits[0], logits[k], sizeof logits[0]);
    assert_memory_equal(dx[0], dx[1], bx);                 // with and without parameters' gradients
    assert_memory_equal(dx[0], dx[3], bx);                     // sharing memory changes nothing
    assert_memory_equal(dw[0], dw[2], bw);
    assert_memory_equal(dw[0], dw[3], bw);
    for (size_t i = 0; i < f.net.n_w; i++) assert_true(dw[1][i] == 0);
    for (int k = 0; k < 4; k++) {
        close_pass(&f, all[k], m[k]);
        free(dw[k]), free(dx[k]);
    }
    tear_down(&f);
}

static void modes_agree_bit_for_bit(void **state) {
    (void)state;
    check_modes("ref");
    if (has_device("cpu")) check_modes("cpu");
}

static void check_shared_block(const char *device) {
    Fixture f;
    Pass sampling, training;
    set_up(&f, device, &small);
    OK(pass_open(&sampling, &f.net, BATCH, MODE_SAMPLE, err));
    OK(pass_open(&training, &f.net, BATCH, WANT_DW, err));
    const size_t bytes = sampling.bytes > training.bytes ? sampling.bytes : training.bytes;
    void *mem = f.dev.be.alloc(&f.dev, bytes, "two passes");
    pass_bind(&sampling, mem);
    pass_bind(&training, mem);
    double first[2], again[2];
    for (int k = 0; k < 4; k++) {
        double *v = k < 2 ? first : again;
        memset(mem, 0xff, bytes);
        Pass *p = k % 2 ? &training : &sampling;
        v[k % 2] = run(&f, p, (Energy){ .a = 1 });
        pass_backward(p);
    }
    assert_true(first[0] == again[0] && first[1] == again[1] && first[0] == first[1]);
    pass_close(&sampling);
    close_pass(&f, &training, mem);
    tear_down(&f);
}

static void passes_that_take_turns_can_share_a_block(void **state) {
    (void)state;
    check_shared_block("ref");
    if (has_device("cpu")) check_shared_block("cpu");
}

static void statistics_move_only_where_the_pass_says_so(void **state) {
    (void)state;
    const int modes[] = { MODE_TRAIN, MODE_SAMPLE, MODE_INFER, MODE_ATTACK };
    for (size_t k = 0; k < LEN(modes); k++) {
        Fixture f;
        Pass p;
        set_up(&f, "ref", &small);
        void *mem = open_pass(&f, &p, modes[k]);
        real *old = malloc(f.net.n_state * sizeof *old);
        memcpy(old, f.net.state, f.net.n_state * sizeof *old);
        run(&f, &p, (Energy){ .a = 1 });
        assert_int_equal(memcmp(old, f.net.state, f.net.n_state * sizeof *old) != 0,
                         modes[k] == MODE_TRAIN);
        assert_int_equal(f.net.batches, modes[k] == MODE_TRAIN);
        free(old);
        close_pass(&f, &p, mem);
        tear_down(&f);
    }
}

static void check_no_allocation(const char *device, OptimKind kind) {
    Fixture f;
    Pass p;
    Optim o = { .kind = kind, .sgd = { (real)0.9, 0 }, .muon_rate = 1, .ema_keep = (real)0.9 };
    set_up(&f, device, &small);
    void *mem = open_pass(&f, &p, WANT_DX | MODE_TRAIN);
    OK(optim_open(&o, &f.net, err));
    StepState *now = f.dev.be.alloc(&f.dev, sizeof *now, "now");
    f.dev.be.copy_in(&f.dev, now, &(StepState){ .in.lr = (real)0.01 }, sizeof *now);
    for (int k = 0; k < 3; k++) {
        const int before = allocations;
        net_zero_grad(&f.net);
        run(&f, &p, (Energy){ .a = 1, .b = -1 });
        pass_backward(&p);
        optim_step(&o, &f.net, now);
        // the first step may wake a thread pool or fill a library's own cache
        if (k > 0 && COUNTING) assert_int_equal(allocations - before, 0);
    }
    OK(dev_check(&f.dev, err));
    f.dev.be.free(&f.dev, now);
    optim_close(&o, &f.net);
    close_pass(&f, &p, mem);
    tear_down(&f);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    check_no_allocation("ref", OPTIM_SGD);
    check_no_allocation("ref", OPTIM_MUON);
    if (!has_device("cpu")) return;
    check_no_allocation("cpu", OPTIM_SGD);
    check_no_allocation("cpu", OPTIM_MUON);
}

static void wrn_28_10_has_the_published_size(void **state) {
    (void)state;
    Net net;
    OK(net_build(&net, &(NetSpec){ 28, 10, 3, 32, 10, NORM_BATCH, STEM_3X3 }, err));
    assert_int_equal(net.n_w, 36489290);
    assert_close(net_macs(&net) / 1e9, 5.95, 0.01);
    assert_string_equal(net.par[0].name, "f.conv1.weight");
    assert_string_equal(net.par[net.n_par - 1].name, "class_output.bias");
    net_free(&net);
}

static double planned_gib(const NetSpec *spec, int mode) {
    Net net;
    Pass p;
    OK(net_build(&net, spec, err));
    OK(pass_plan(&p, &net, 64, mode, 1, err));
    const double gib = (double)p.bytes / 0x1p30 * 4 / sizeof(real);
    pass_close(&p);
    net_free(&net);
    return gib;
}

static void wrn_28_10_fits_its_memory_plan(void **state) {
    (void)state;
    const NetSpec s = { 28, 10, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    assert_less(planned_gib(&s, MODE_INFER), 0.25);
    assert_less(planned_gib(&s, MODE_SAMPLE), 0.75);
    assert_less(planned_gib(&s, MODE_TRAIN), 1.4);
}

static void blocks_alive_together_never_overlap(void **state) {
    (void)state;
    const Rng key = { .seed = 5, .stream = RNG_TEST };
    PlanBlock b[60];
    for (uint32_t round = 0; round < 50; round++) {
        size_t sum = 0;
        for (uint32_t i = 0; i < LEN(b); i++) {
            const int born = (int)rng_below(key, round * 1000 + 3 * i, 40);
            b[i] = (PlanBlock){ born, born + (int)rng_below(key, round * 1000 + 3 * i + 1, 20),
                                64 * rng_below(key, round * 1000 + 3 * i + 2, 50), 0 };
            sum += b[i].bytes;
        }
        const size_t total = plan_blocks(b, LEN(b), 1);
        assert_true(total <= sum);
        for (size_t i = 0; i < LEN(b); i++)
            for (size_t j = 0; j < i; j++) {
                const int together = b[i].born <= b[j].dies && b[j].born <= b[i].dies;
                assert_false(together && b[i].off < b[j].off + b[j].bytes &&
                             b[j].off < b[i].off + b[i].bytes);
            }
        assert_int_equal(plan_blocks(b, LEN(b), 0), sum);
    }
}

static void a_network_that_cannot_be_is_refused(void **state) {
    (void)state;
    const NetSpec bad[] = {
        { 12, 1, 3, 32, 10, NORM_BATCH, STEM_3X3 }, { 10, 0, 3, 32, 10, NORM_BATCH, STEM_3X3 },
        { 10, 1, 2, 32, 10, NORM_BATCH, STEM_3X3 }, { 10, 1, 3, 30, 10, NORM_BATCH, STEM_3X3 },
        { 10, 1, 3, 32, 1, NORM_BATCH, STEM_3X3 },  { 10, 1, 3, 32, 1001, NORM_BATCH, STEM_3X3 }
    };
    for (size_t i = 0; i < LEN(bad); i++) {
        Net net;
        Err err = { 0 };
        assert_int_equal(net_build(&net, &bad[i], &err), -1);
        assert_int_equal(err.kind, ERR_ARG);
    }
    NetSpec s;
    const char *names[] = { "", "wrn", "wrn-28", "wrn-28-10x", "resnet-18", "wrn--1-2-3" };
    for (size_t i = 0; i < LEN(names); i++) {
        Err err = { 0 };
        assert_int_equal(net_parse(&s, names[i], &err), -1);
        assert_non_null(strstr(err.msg, "wrn-28-10"));
    }
    OK(net_parse(&s, "wrn-40-2", err));
    assert_int_equal(s.depth * 100 + s.width, 4002);
}

static void weights_start_uniform_in_their_bounds(void **state) {
    (void)state;
    Dev dev;
    Net net;
    open_device(&dev, "ref");
    OK(net_build(&net, &(NetSpec){ 10, 2, 3, 32, 10, NORM_BATCH, STEM_3X3 }, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    for (int i = 0; i < net.n_par; i++) {
        const Param *p = &net.par[i];
        double sum = 0, square = 0, most = 0;
        for (size_t k = 0; k < p->len; k++) {
            const double v = (double)net.w[p->off + k];
            sum += v, square += v * v, most = fmax(most, fabs(v));
        }
        if (p->fan_in == 0) assert_true(sum == (double)p->len);
        if (p->fan_in == -1) assert_true(most == 0);
        if (p->fan_in <= 0 || p->len < 1000) continue;
        const double bound = 1 / sqrt(p->fan_in), n = (double)p->len;
        assert_true(most <= bound);
        assert_close(sum / n, 0, 5 * bound / sqrt(3 * n));                     // five sigma
        assert_close(square / n, bound * bound / 3, 5 * bound * bound * sqrt(4.0 / 45 / n));
    }
    net_free(&net);
    dev_close(&dev);
}

static void schedules_pass_through_their_marks(void **state) {
    (void)state;
    Schedule s = { SCHED_STEP, 0.1, 1000, 150 * 703, 3, { 50 * 703, 100 * 703, 125 * 703 }, 0.2 };
    assert_close(schedule_lr(&s, 0), 0, 0);
    assert_close(schedule_lr(&s, 500), 0.05, 1e-12);
    assert_close(schedule_lr(&s, 50 * 703 - 1), 0.1, 1e-12);
    assert_close(schedule_lr(&s, 50 * 703), 0.02, 1e-12);
    assert_close(schedule_lr(&s, 149 * 703), 0.0008, 1e-12);
    s.warmup = 0, s.total = 100, s.kind = SCHED_COSINE;
    assert_close(schedule_lr(&s, 0), 0.1, 1e-12);
    assert_close(schedule_lr(&s, 50), 0.05, 1e-12);
    assert_close(schedule_lr(&s, 100), 0, 1e-12);
    s.kind = SCHED_LINEAR;
    assert_close(schedule_lr(&s, 25), 0.075, 1e-12);
    assert_close(schedule_lr(&s, 200), 0, 0);
    s.kind = SCHED_ONECYCLE;
    assert_close(schedule_lr(&s, 0), 0.004, 1e-12);
    assert_close(schedule_lr(&s, 30), 0.1, 1e-12);
    assert_close(schedule_lr(&s, 100), 0.1 / 25e4, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_whole_networks_match_finite_differences),
        cmocka_unit_test(biases_before_a_batch_norm_get_exactly_zero),
        cmocka_unit_test(modes_agree_bit_for_bit),
        cmocka_unit_test(passes_that_take_turns_can_share_a_block),
        cmocka_unit_test(statistics_move_only_where_the_pass_says_so),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(wrn_28_10_has_the_published_size),
        cmocka_unit_test(wrn_28_10_fits_its_memory_plan),
        cmocka_unit_test(blocks_alive_together_never_overlap),
        cmocka_unit_test(a_network_that_cannot_be_is_refused),
        cmocka_unit_test(weights_start_uniform_in_their_bounds),
        cmocka_unit_test(schedules_pass_through_their_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
