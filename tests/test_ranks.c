// test_ranks.c - ranks as threads of this process: n of them train as one does, to 1e-9 in the
// build in double precision. tests/ranks_test.sh has processes and MPI.
#include "testing.h"
#include "jem/train.h"
#include <pthread.h>
#include <stdio.h>

// In single precision and under sanitizers fewer steps: the other build makes all of them, to 1e-9.
enum { STEPS = SANITIZED || sizeof(real) != 8 ? 3 : 10 };
enum { SIDE = 4, CLASSES = 3, IMAGES = 60, BATCH = 8, MAX_RANKS = 4 };

// ---- a transport between threads ---------------------------------------------------------------

typedef struct {
    pthread_barrier_t meet;
    const void       *p[MAX_RANKS];
} World;

static void meet(Comm *c, const void *p) {
    World *w = c->impl;
    w->p[c->rank] = p;
    pthread_barrier_wait(&w->meet);
}

static void thread_reduce(Comm *c, real *p, size_t n, Reduce how) {
    const World *w = c->impl;
    real *sum = malloc(n * sizeof *sum);
    meet(c, p);
    for (size_t i = 0; i < n; i++) {
        double s = 0;
        for (int r = 0; r < c->size; r++) s += (double)((const real *)w->p[r])[i];
        sum[i] = (real)(how == REDUCE_MEAN ? s / c->size : s);
    }
    meet(c, p);
    memcpy(p, sum, n * sizeof *sum);
    free(sum);
}

static void thread_gather(Comm *c, const void *mine, void *all, size_t bytes) {
    const World *w = c->impl;
    meet(c, mine);
    for (int r = 0; r < c->size; r++) memcpy((char *)all + (size_t)r * bytes, w->p[r], bytes);
    meet(c, mine);
}

static void thread_broadcast(Comm *c, void *p, size_t bytes) {
    const World *w = c->impl;
    meet(c, p);
    if (c->rank) memcpy(p, w->p[0], bytes);
    meet(c, p);
}

static void nothing(Comm *c) { (void)c; }

static const CommOps threads = { thread_reduce, thread_gather, thread_broadcast, nothing, nothing };

// ---- a run of a few steps ----------------------------------------------------------------------

typedef struct Run {
    Config cfg;
    int    ranks;
    void (*work)(struct Run *, Trainer *);    // instead of STEPS steps
    real   row[MAX_RANKS][STEPS][N_ROW];
    real  *w[MAX_RANKS];
    size_t n_w;
    char   said[MAX_RANKS][1024];             // errors
    World  world;
} Run;

typedef struct {
    Run *run;
    int  rank;
} Part;

static void toy_set(Set *s) {
    enum { DIM = SIDE * SIDE };
    *s = (Set){ .c = 1, .side = SIDE, .classes = CLASSES, .n = IMAGES, .flip = 1 };
    s->x = arena_alloc(&s->arena, IMAGES * DIM, 1);
    s->y = arena_alloc(&s->arena, IMAGES, sizeof *s->y);
    const Rng key = { .seed = 3, .stream = RNG_TEST };
    for (int i = 0; i < IMAGES; i++) {
        s->y[i] = i % CLASSES;
        for (int k = 0; k < DIM; k++)
            s->x[i * DIM + k] =
                (uint8_t)(60 * s->y[i] + (int)rng_below(key, (uint64_t)(i * DIM + k), 100));
    }
}

static int take_steps(Run *run, Trainer *t, int rank, Err *err) {
    if (run->work) {
        run->work(run, t);
        return 0;
    }
    for (int i = 0; i < STEPS; i++) {
        trainer_advance(t);
        trainer_rows(t, (uint64_t)i, 1, run->row[rank][i]);
    }
    run->n_w = t->net.n_w;
    run->w[rank] = malloc(t->net.n_w * sizeof(real));
    memcpy(run->w[rank], t->net.w, t->net.n_w * sizeof(real));
    return trainer_same(t, err);
}

static void *train_part(void *arg) {
    const Part *me = arg;
    Run *run = me->run;
    Comm comm = { .rank = me->rank, .size = run->ranks, .ops = &threads, .impl = &run->world };
    Dev dev;
    Set set;
    Trainer t = { 0 };
    Err err = { 0 };
    toy_set(&set);
    if (dev_open(&dev, "ref", &(DevOpts){ .threads = 1 }, NULL, &err) ||
        trainer_open(&t, &dev, run->ranks > 1 ? &comm : NULL, &run->cfg, &set, 0, &err) ||
        take_steps(run, &t, me->rank, &err))
        snprintf(run->said[me->rank], sizeof run->said[0], "%s", err.msg);
    trainer_close(&t);
    set_free(&set);
    dev_close(&dev);
    free(comm.stage);
    return NULL;
}

static void run_ranks(Run *run) {
    pthread_t thread[MAX_RANKS];
    Part part[MAX_RANKS];
    pthread_barrier_init(&run->world.meet, NULL, (unsigned)run->ranks);
    for (int r = 0; r < run->ranks; r++) {
        part[r] = (Part){ run, r };
        assert_int_equal(pthread_create(&thread[r], NULL, train_part, &part[r]), 0);
    }
    for (int r = 0; r < run->ranks; r++) pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&run->world.meet);
}

static void run_free(Run *run) {
    for (int r = 0; r < run->ranks; r++) free(run->w[r]);
}

static Config options(const char *text) {
    Config c;
    config_defaults(&c);
    static const char common[] =
        "model = wrn-10-1\nbatch = 8\nbuffer = 30\nsteps = 2\nnoise = 0.01\n"
        "reinit = 0.3\nwarmup = 0\nlr = 0.02\niterations = 10\npad = 1\n"
        "px-margin = 0.001\n";
    OK(config_text(&c, common, strlen(common), "common", err));
    OK(config_text(&c, text, strlen(text), "test", err));
    return c;
}

// Every number of the log, of n ranks and of one.
static void expect_equal(const char *text, int ranks) {
    const double tolerance = sizeof(real) == 8 ? 1e-9 : 1e-5;
    Run one = { .cfg = options(text), .ranks = 1 }, many = { .cfg = one.cfg, .ranks = ranks };
    run_ranks(&one);
    run_ranks(&many);
    for (int r = 0; r < ranks; r++) {
        assert_string_equal(many.said[r], "");
        for (int i = 0; i < STEPS; i++)
            for (int k = 0; k < N_ROW; k++) {
                if (k == ROW_CLIMB) continue;                // a quotient of differences
                const double wanted = (double)one.row[0][i][k];
                assert_close(many.row[r][i][k], wanted, tolerance * (1 + fabs(wanted)));
            }
        assert_memory_equal(many.w[r], many.w[0], many.n_w * sizeof(real));
    }
    assert_less(distance(many.w[0], one.w[0], one.n_w), 10 * tolerance);
    run_free(&one);
    run_free(&many);
}

static void ranks_train_as_one_does_without_norm(void **state) {
    (void)state;
    expect_equal("norm = none\noptimizer = adam\nlr = 1e-3\n", 2);
    expect_equal("norm = none\noptimizer = adam\nlr = 1e-3\npx = independent\nema = 0.9\n"
                 "px-from = 0.2\n",
                 4);
}

static void ranks_train_as_one_does_with_sync_bn(void **state) {
    (void)state;
    expect_equal("sync-bn = on\n", 2);
    expect_equal("sync-bn = on\noptimizer = muon\n", 2);
    expect_equal("sync-bn = on\nbn-stats = all\nsam = 0.5\nlabelled = 12\n", 4);
}

static void classes_and_attacks_are_those_of_the_whole_batch(void **state) {
    (void)state;
    expect_equal("norm = none\noptimizer = adam\nlr = 1e-3\nconditional = on\npxy-weight = 1\n", 2);
    expect_equal("norm = none\noptimizer = adam\nlr = 1e-3\nadversarial = l2\nattack-radius = 0.5\n"
                 "attack-steps = 2\nlabelled = 12\n",
                 4);
}

// The step after the first look at the AUROC, whose mean was 0.6 before.
static void look_at_the_auroc(Run *run, Trainer *t) {
    t->length.auroc = 0.6;
    for (int k = 0; k <= LENGTH_EVERY; k++) trainer_advance(t);
    trainer_rows(t, LENGTH_EVERY, 1, run->row[comm_rank(t->comm)][0]);
}

static void chains_get_longer_by_the_auroc_of_the_whole_batch(void **state) {
    (void)state;
    static const char *const limit[] = { "1", "0.5" };      // they never do; they do at once
    for (int i = SANITIZED; i < 2; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "norm = none\noptimizer = adam\nlr = 1e-3\nstart-real = 0.5\nsteps-max = 4\n"
                 "steps-auroc = %s\n",
                 limit[i]);
        Run one = { .cfg = options(text), .ranks = 1, .work = look_at_the_auroc };
        Run many = { .cfg = one.cfg, .ranks = 4, .work = look_at_the_auroc };
        run_ranks(&one);
        run_ranks(&many);
        const real *wanted = one.row[0][0];
        assert_true(wanted[ROW_STEPS] == (i ? 3 : 2));
        if (i) assert_true(wanted[ROW_AUROC] == (real)0.5);
        else assert_less(fabs((double)wanted[ROW_AUROC] - 0.59), 0.05 + 1e-6);   // 0.54 to 0.64
        for (int r = 0; r < 4; r++) {
            assert_true(many.row[r][0][ROW_STEPS] == wanted[ROW_STEPS]);
            assert_true(many.row[r][0][ROW_AUROC] == wanted[ROW_AUROC]);
            assert_close(many.row[r][0][ROW_LOSS], wanted[ROW_LOSS], 1e-4);
        }
        run_free(&one);
        run_free(&many);
    }
}

// Rank 0 alone has read a checkpoint.
static void take_over_the_boost(Run *run, Trainer *t) {
    const int rank = comm_rank(t->comm);
    Err err = { 0 };
    if (!rank) t->sam_boost = 4;
    trainer_broadcast(t);
    if (t->sam_boost != 4) {
        snprintf(run->said[rank], sizeof run->said[0], "sam_boost %g", t->sam_boost);
        return;
    }
    trainer_advance(t);
    if (!t->sam_on || trainer_same(t, &err))
        snprintf(run->said[rank], sizeof run->said[0], "no SAM, or %.900s", err.msg);
}

static void ranks_share_stronger_sam(void **state) {
    (void)state;
    Run run = { .cfg = options("sam = 0.5\nsam-from = 1\n"),
                .ranks = 2,
                .work = take_over_the_boost };
    run_ranks(&run);
    for (int r = 0; r < 2; r++) assert_string_equal(run.said[r], "");
    run_free(&run);
}

// A rank weighs its images by 1 / batch; of its rows alone the loss would be a mean over rows.
static void gradients_of_parts(Run *run, Trainer *t) {
    Comm *comm = t->comm;
    const size_t n = t->net.n_w;
    real *own = malloc(n * sizeof *own), *all = malloc(n * (size_t)run->ranks * sizeof *all);
    const StepInput in = { .first = (uint32_t)t->px.first };   // what trainer_advance begins with
    (void)replay_ready(&t->replay, t->step);
    t->dev->be.copy_in(t->dev, &t->state->in, &in, sizeof in);
    gather_batches(t);
    replay_take(&t->replay, t->sampled->x, t->state);
    t->comm = NULL;                                          // this rank's part alone
    compute_gradients(t);
    memcpy(own, t->net.dw, n * sizeof *own);
    t->comm = comm;
    comm_gather(comm, own, all, n * sizeof *own);
    compute_gradients(t);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;                                     // of gradients of each part's mean loss
        for (int r = 0; r < run->ranks; r++)
            sum += (double)all[(size_t)r * n + i] * t->cfg.batch / t->px.rows;
        own[i] = (real)(sum / run->ranks);
    }
    const double far = distance(t->net.dw, own, n);
    if (!(far < (sizeof(real) == 8 ? 1e-12 : 1e-6)))
        snprintf(run->said[comm->rank], sizeof run->said[0], "gradients differ by %g", far);
    free(own);
    free(all);
}

static void with_plain_norms_the_gradient_is_the_mean_of_the_parts(void **state) {
    (void)state;
    Run run = { .cfg = options(""), .ranks = 4, .work = gradients_of_parts };
    run_ranks(&run);
    for (int r = 0; r < 4; r++) assert_string_equal(run.said[r], "");
    run_free(&run);
}

static void spoil_one_weight(Run *run, Trainer *t) {
    Err err = { 0 };
    trainer_advance(t);
    if (trainer_same(t, &err)) return;                       // too early: nothing is said
    if (t->comm->rank == 2) t->net.w[17] += t->net.w[17] * (real)1e-6;
    trainer_advance(t);
    (void)trainer_same(t, &err);
    snprintf(run->said[t->comm->rank], sizeof run->said[0], "%s", err.msg);
}

static void a_rank_with_another_weight_is_found(void **state) {
    (void)state;
    Run run = { .cfg = options(""), .ranks = 3, .work = spoil_one_weight };
    run.cfg.batch = 9;
    run_ranks(&run);
    for (int r = 0; r < 3; r++)
        assert_non_null(strstr(run.said[r], "rank 2 no longer has the same weights as rank 0"));
    run_free(&run);
}

// Rank 1 fails where the others already ask further down; then rank 2 does, where all are.
static void fail_alone(Run *run, Trainer *t) {
    Comm *comm = t->comm;
    char *said = run->said[comm->rank];
    for (int who = 1; who < 3; who++) {
        const int fails = comm->rank == who;
        Err err = { 0 };
        int rc = fails ? err_set(&err, ERR_MEM, "out of memory") : 0;
        if (who == 1 && !fails) rc = comm_agree(comm, comm_agree(comm, rc, &err), &err);
        rc = comm_agree(comm, rc, &err);
        int number = 10 + comm->rank;
        comm_broadcast(comm, &number, sizeof number);
        snprintf(said + strlen(said), 200, "%d %.100s, then %d; ", rc, err.msg, number);
        comm_begin(comm);
    }
}

static void a_rank_that_fails_alone_meets_the_others_at_any_depth(void **state) {
    (void)state;
    Run run = { .cfg = options(""), .ranks = 3, .work = fail_alone };
    run.cfg.batch = 9;
    run_ranks(&run);
    for (int r = 0; r < 3; r++)
        assert_string_equal(run.said[r], "-1 rank 1 of 3: out of memory, then 10; "
                                         "-1 rank 2 of 3: out of memory, then 10; ");
    run_free(&run);
}

static void a_batch_that_cannot_be_divided_is_refused(void **state) {
    (void)state;
    Run run = { .cfg = options(""), .ranks = 3 };
    run_ranks(&run);
    assert_string_equal(run.said[1], "batch = 8: 3 ranks must divide it");
    run_free(&run);
}

static void shared_out_items_come_together_again(void **state) {
    (void)state;
    for (int n = 0; n < 40; n++)
        for (int batch = 1; batch < 8; batch += 3) {
            int next = 0, first, end;
            for (int r = 0; r < 4; r++) {
                comm_part(&(Comm){ .rank = r, .size = 4 }, n, batch, &first, &end);
                assert_int_equal(first, next);
                assert_true(first % batch == 0 || first == n);
                next = end;
            }
            assert_int_equal(next, n);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_train_as_one_does_without_norm),
        cmocka_unit_test(ranks_train_as_one_does_with_sync_bn),
        cmocka_unit_test(classes_and_attacks_are_those_of_the_whole_batch),
        cmocka_unit_test(chains_get_longer_by_the_auroc_of_the_whole_batch),
        cmocka_unit_test(ranks_share_stronger_sam),
        cmocka_unit_test(with_plain_norms_the_gradient_is_the_mean_of_the_parts),
        cmocka_unit_test(a_rank_with_another_weight_is_found),
        cmocka_unit_test(a_rank_that_fails_alone_meets_the_others_at_any_depth),
        cmocka_unit_test(a_batch_that_cannot_be_divided_is_refused),
        cmocka_unit_test(shared_out_items_come_together_again),
    };
    setenv("OMP_NUM_THREADS", "1", 1);                       // the ranks are threads enough
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
