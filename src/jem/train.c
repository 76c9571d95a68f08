// train.c - see train.h. trainer_step is the place to begin reading.
#include "jem/train.h"
#include "jem/attack.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the step --------------------------------------------------------------------------------

void trainer_step(Trainer *t) {
    gather_batches(t);                                      // data set -> labelled, real images
    if (has_chains(t)) {
        replay_take(&t->replay, t->sampled->x, t->state);   // replay buffer or fresh starts -> x_0
        run_chains(t);                                      // PYLD: x_0 -> x_q
        share_chains(t);                                    // all ranks' x_q, on the way
    }
    if (has_attack(t)) attack_labelled(t);                  // adversarial training
    compute_gradients(t);                                   // forward, head, backward; all ranks
    if (sam_active(t)) sam_gradients(t);                    // the same at the perturbed weights
    check_step(t);                                          // after a divergence nothing below acts
    optim_step(&t->optim, &t->net, t->state);
    if (has_chains(t)) replay_store(&t->replay, t->chains, t->state);
}

static Rng key_of(const Trainer *t, uint32_t stream) {
    return (Rng){ .seed = t->seed, .stream = stream };
}

Augment trainer_augment(const Trainer *t) {
    return (Augment){ t->cfg.pad, t->cfg.flip, (real)t->cfg.sigma, t->cfg.cutout };
}

void gather_batches(Trainer *t) {
    Backend *be = &t->dev->be;
    const int B = t->cfg.batch, n = t->rows;                // all ranks pick alike
    const Pick epoch = { PICK_EPOCH, t->data.n, 0 };
    const Augment noisy = trainer_augment(t), clean = { 0 };
    Augment uncut = noisy;                                  // --cutout is of labelled images
    uncut.cutout = 0;
    const TrainBatch *label = t->labelled, *px = t->px_real;
    const int *mine = t->index + t->first;

    be->pick(t->dev, epoch, B, key_of(t, RNG_EPOCH), t->state, t->index, NULL);
    be->batch(t->dev, &t->data, mine, n, noisy, key_of(t, RNG_AUGMENT), t->state, label->x,
              label->y);
    if (t->cfg.px == PX_CLEAN)                              // the same images, not augmented
        be->batch(t->dev, &t->data, mine, n, clean, key_of(t, RNG_AUGMENT2), t->state, px->x,
                  px->y);
    if (t->cfg.px == PX_INDEPENDENT) {                      // others
        be->pick(t->dev, epoch, B, key_of(t, RNG_EPOCH2), t->state, t->px_index, NULL);
        be->batch(t->dev, &t->data, t->px_index + t->first, n, uncut, key_of(t, RNG_AUGMENT2),
                  t->state, px->x, px->y);
    }
}

void run_chains(Trainer *t) {
    const TrainBatch *b = t->sampled;
    const int row[] = { CHAIN_BEFORE, CHAIN_AFTER, t->watch.fake };
    for (int k = 0; k < t->chain.steps; k++)                // the first move is measured (`climb`)
        sample_step(&t->chain_pass, &t->chain, k, b->x, b->y, t->sums + row[k < 2 ? k : 2] * N_SUM,
                    k ? NULL : t->sums + CHAIN_SLOPE * N_SUM, key_of(t, RNG_LANGEVIN), t->state);
}

void share_chains(Trainer *t) {
    const size_t n = (size_t)t->rows * tensor_len(&t->net.act[0]);
    comm_collect(t->comm, t->dev, t->sampled->x, t->chains, n);
}

void attack_labelled(Trainer *t) {
    const Config *c = &t->cfg;
    Backend *be = &t->dev->be;
    const AttackPlan plan = { .l2 = c->adversarial == ATTACK_L2, .steps = c->attack_steps };
    const Attack ball = attack_ball(&plan, c->attack_radius);
    const TrainBatch *b = t->labelled;
    Tensor x = t->attack_pass.act[0];
    x.p = b->x;
    be->copy(t->dev, t->x0, b->x, tensor_len(&x) * sizeof(real));
    be->attack_start(t->dev, &x, t->x0, ball, key_of(t, RNG_ATTACK), t->state);
    for (int k = 0; k < plan.steps; k++) {
        attack_gradient(&t->attack_pass, b->x, b->y, LOSS_CE, t->sums);
        be->attack_move(t->dev, &x, pass_input_grad(&t->attack_pass), t->x0, ball);
    }
}

// Adds batch i's part of the loss's gradient by the weights, by pass p; its sums go to row `row`.
// The last one's completes the gradient of this rank.
static void batch_gradient(Trainer *t, int i, Pass *p, int row) {
    const TrainBatch *b = &t->batch[i];
    const real mean = 1 / (real)t->cfg.batch;
    pass_forward(p, b->x);
    if (t->length.most && row != UNREAD && (i == t->watch.px || i == t->watch.fake))
        chain_length_keep(&t->length, i == t->watch.fake, pass_logits(p));
    t->dev->be.head(t->dev, pass_logits(p), b->y, b->e, mean, pass_logits_grad(p),
                    t->sums + row * N_SUM);
    pass_backward_last(p, i == t->watch.n_batch - 1 ? t->comm : NULL);
}

// Each rank's running statistics moved by its own part of the batch; their mean is what all keep.
void compute_gradients(Trainer *t) {
    net_zero_grad(&t->net);
    for (int i = 0; i < t->watch.n_batch; i++) batch_gradient(t, i, t->batch[i].pass, i);
    comm_reduce(t->comm, t->dev, t->sums, N_SUMS * N_SUM, REDUCE_SUM);
    comm_reduce(t->comm, t->dev, t->net.state, t->net.n_state, REDUCE_MEAN);
    comm_wait(t->comm, t->dev);
}

// The gradient at the worst weights nearby replaces the one at the weights. This second pass leaves
// running statistics and the log's sums alone.
void sam_gradients(Trainer *t) {
    Backend *be = &t->dev->be;
    be->sam_perturb(t->dev, t->net.n_w, t->net.w, t->net.dw, (real)t->cfg.sam, t->sam_keep);
    net_changed(&t->net);
    net_zero_grad(&t->net);
    for (int i = 0; i < t->watch.n_batch; i++) batch_gradient(t, i, &t->sam_pass, UNREAD);
    comm_wait(t->comm, t->dev);
    be->copy(t->dev, t->net.w, t->sam_keep, t->net.n_w * sizeof(real));
}

void check_step(Trainer *t) {
    Backend *be = &t->dev->be;
    be->check_finite(t->dev, t->net.n_w, t->net.dw, t->state);
    be->watch(t->dev, &t->watch, t->sums, t->state, t->ring);
}

// ---- around the step -------------------------------------------------------------------------

static void forget_recordings(Trainer *t) {
    for (int i = 0; i < 2; i++)
        if (t->recording[i].work) t->dev->be.record_free(t->dev, t->recording[i].work);
    memset(t->recording, 0, sizeof t->recording);
}

// A device that can record does so after two steps alike, and from then on replays the recording.
static void step_or_replay(Trainer *t) {
    enum { FIRST = 2 };
    Backend *be = &t->dev->be;
    Recording *r = &t->recording[t->sam_on];
    if (!be->record_begin || r->alike < FIRST || !comm_records(t->comm, t->dev)) {
        trainer_step(t);
        r->alike++;
        return;
    }
    if (!r->work) {
        const uint64_t before = t->net.batches;
        be->record_begin(t->dev);
        trainer_step(t);
        r->work = be->record_end(t->dev);
        r->batches = t->net.batches - before;
        t->net.batches = before;
    }
    if (r->work) be->replay(t->dev, r->work);
    t->net.batches += r->batches;
}

static double share_done(const Trainer *t) {                // of the run
    return t->time_share >= 0 ? t->time_share : (double)t->step / (double)t->schedule.total;
}

static void choose_sam(Trainer *t) {
    t->sam_on = t->sam_keep && share_done(t) >= t->cfg.sam_from &&
                t->step % (uint64_t)t->cfg.sam_every == 0;
}

void trainer_advance(Trainer *t) {
    choose_sam(t);
    const uint32_t draws = has_chains(t) ? replay_ready(&t->replay, t->step) : 0;
    const StepInput in = { .step = (uint32_t)t->step,
                           .drawn = t->replay.drawn,
                           .lr = (real)trainer_lr(t),
                           .first = (uint32_t)t->first,
                           .auroc = (real)t->length.auroc,
                           .chain_steps = t->chain.steps };
    t->dev->be.copy_in(t->dev, &t->state->in, &in, sizeof in);
    step_or_replay(t);
    t->replay.drawn += draws;
    t->step++;
    if (t->length.most && t->step % LENGTH_EVERY == 0)
        trainer_chain_steps(t, chain_length_next(&t->length, t->chain.steps, t->comm));
}

// The sums after the chains' first move: the second step takes them or, where there is none, the
// batch to learn from.
static int after_first_move(const Trainer *t) {
    return t->chain.steps > 1 ? CHAIN_AFTER : t->watch.fake;
}

void trainer_chain_steps(Trainer *t, int steps) {
    if (steps == t->chain.steps) return;
    t->chain.steps = steps;
    t->watch.after = after_first_move(t);
    forget_recordings(t);                                    // they hold the old number
}

double trainer_lr(const Trainer *t) {
    if (t->time_share < 0) return t->lr_scale * schedule_lr(&t->schedule, t->step);
    // the schedule follows the clock, its warm-up the steps
    Schedule s = t->schedule;
    s.warmup = 0;
    const double warm =
        t->step < t->schedule.warmup ? (double)t->step / (double)t->schedule.warmup : 1;
    return t->lr_scale * warm * schedule_lr(&s, (uint64_t)(t->time_share * (double)s.total));
}

void trainer_seed(Trainer *t, int attempt) {
    t->seed = (uint64_t)t->cfg.seed + ((uint64_t)attempt << 53);
    t->replay.seed = t->seed;
    forget_recordings(t);                                    // it holds the old seed
}

void trainer_rows(Trainer *t, uint64_t step, int n, real *rows) {
    for (int done = 0, m; done < n; done += m) {
        const int at = (int)((step + (uint64_t)done) % N_RING);
        m = n - done < N_RING - at ? n - done : N_RING - at;
        t->dev->be.copy_out(t->dev, rows + (size_t)done * N_ROW, t->ring + (size_t)at * N_ROW,
                            (size_t)m * N_ROW * sizeof *rows);
    }
}

StepState trainer_state(Trainer *t) {
    StepState s = { 0 };
    t->dev->be.copy_out(t->dev, &s, t->state, sizeof s);
    return s;
}

void trainer_parts(Trainer *t, StatePart part[N_STATE_PART]) {
    const size_t n_w = t->net.n_w, images = (size_t)t->replay.n * t->replay.dim;
    const StatePart all[N_STATE_PART] = { { "optim.v", t->optim.v, n_w },
                                          { "optim.m", t->optim.m, n_w },
                                          { "ema.weights", t->optim.avg, n_w },
                                          { "ema.statistics", t->optim.avg_state, t->net.n_state },
                                          { "replay", t->replay.x, images } };
    memcpy(part, all, sizeof all);
}

// ---- ranks -----------------------------------------------------------------------------------

uint64_t trainer_checksum(Trainer *t) {
    Dev *dev = t->dev;
    uint64_t sum = dev->be.checksum(dev, t->net.w, t->net.n_w * sizeof(real));
    sum = 31 * sum + dev->be.checksum(dev, t->net.state, t->net.n_state * sizeof(real));
    if (!has_chains(t)) return sum;
    const size_t n = (size_t)t->cfg.batch * tensor_len(&t->net.act[0]);
    return 31 * sum + dev->be.checksum(dev, t->chains, n * sizeof(real));
}

int trainer_same(Trainer *t, Err *err) {
    Comm *c = t->comm;
    if (!c) return 0;
    struct {
        uint64_t step, sum;
    } mine = { t->step, trainer_checksum(t) }, *all = comm_answers(c, &mine, sizeof mine);
    int rc = comm_check(c, err);
    for (int r = 1; !rc && r < c->size; r++)
        if (all[r].step != all[0].step || all[r].sum != all[0].sum) {
            c->agreed = 1;
            rc = err_set(err, ERR_DEV,
                         "rank %d no longer has the same weights as rank 0 (before step %llu): "
                         "faulty memory, or a fault of this program",
                         r, (unsigned long long)t->step);
        }
    free(all);
    return rc;
}

void trainer_broadcast(Trainer *t) {
    Comm *c = t->comm;
    StatePart part[N_STATE_PART];
    if (!c) return;
    struct {
        uint64_t step, seed, batches;
        double   lr_scale, auroc;
        uint32_t drawn;
        int      chain_steps;
    } host = { t->step,         t->seed,         t->net.batches, t->lr_scale,
               t->length.auroc, t->replay.drawn, t->chain.steps };
    comm_broadcast(c, &host, sizeof host);
    comm_copy(c, t->dev, t->net.w, t->net.n_w * sizeof(real));
    comm_copy(c, t->dev, t->net.state, t->net.n_state * sizeof(real));
    trainer_parts(t, part);
    for (int i = 0; i < N_STATE_PART; i++)
        if (part[i].p) comm_copy(c, t->dev, part[i].p, part[i].n * sizeof(real));
    comm_copy(c, t->dev, t->state, sizeof *t->state);
    t->step = host.step;
    t->net.batches = host.batches;
    t->lr_scale = host.lr_scale;
    t->seed = host.seed;
    t->length.auroc = host.auroc;
    trainer_chain_steps(t, host.chain_steps);
    forget_recordings(t);
    if (has_chains(t)) replay_rewind(&t->replay, t->seed, t->step, host.drawn);
    net_changed(&t->net);
}

// ---- opening ---------------------------------------------------------------------------------

// While f(x) - f(x_q) exceeds --px-margin the terms of p(x) and p(x, y) change sign, which brings
// the two back together; those of the classifier and the penalty do not.
static void reverse_px(Energy *e, real pyx, const StepState *now) {
    e->now = now;
    e->a_over = 2 * pyx - e->a;
    e->b_over = -2 * pyx - e->b;
}

// The objective as a table: which batches there are, and what each adds to the loss.
//   cross-entropy                 pyx (LSE - z[y])          on the labelled batch
//   -log p(x)    real - sampled   px (-LSE), px (+LSE)      on p(x)'s real batch and on x_q
//   the same by --px-loss bce     px softplus(-LSE), px softplus(+LSE)
//   -log p(x, y) real - sampled   pxy (-z[y]), pxy (+z[y])  the same (+LSE if chains have no class)
//   energy penalty                c LSE^2                   on both
static void objective(Trainer *t) {
    const Config *c = &t->cfg;
    const int generative = c->px != PX_NONE, own = generative && c->px != PX_SHARED;
    const real pyx = (real)c->pyx_weight, px = (real)c->px_weight, pxy = (real)c->pxy_weight;
    t->batch[0].e = (Energy){ .a = pyx, .b = -pyx };
    const int real_at = own ? 1 : 0, fake_at = generative ? real_at + 1 : -1;
    if (generative) {
        Energy *r = &t->batch[real_at].e, *f = &t->batch[fake_at].e;
        const real bce = c->px_loss == LOSS_BCE ? px : 0, penalty = (real)c->penalty;
        const real step = px - bce;                         // by the difference f(x_q) - f(x)
        *r = (Energy){ .a = r->a - step, .b = r->b - pxy, .c = penalty, .d = -bce };
        *f = c->conditional ? (Energy){ .a = step, .b = pxy, .c = penalty, .d = bce }
                            : (Energy){ .a = step + pxy, .c = penalty, .d = bce };
    }
    t->watch = (Watch){ .n = c->batch,
                        .n_batch = generative ? fake_at + 1 : 1,
                        .label = 0,
                        .px = generative ? real_at : -1,
                        .fake = fake_at,
                        .up = t->chain.energy,
                        .loss_limit = (real)c->loss_limit,
                        .gap_limit = (real)c->gap_limit,
                        .ce_limit = pyx + pxy > 0 ? (real)c->ce_limit : 0,
                        .px_margin = (real)c->px_margin,
                        .n_ring = N_RING };
    t->watch.after = after_first_move(t);
    t->labelled = &t->batch[0];
    t->px_real = generative ? &t->batch[real_at] : NULL;
    t->sampled = generative ? &t->batch[fake_at] : NULL;
    for (int i = 0; i < t->watch.n_batch; i++) {
        if (c->px_margin > 0) reverse_px(&t->batch[i].e, i ? 0 : pyx, t->state);
        t->watch.e[i] = t->batch[i].e;
        t->batch[i].pass = i == fake_at ? &t->sampled_pass : &t->real_pass;
    }
}

static int open_batches(Trainer *t, Err *err) {
    Dev *dev = t->dev;
    const size_t B = (size_t)t->cfg.batch, dim = (size_t)(t->data.c * t->data.side * t->data.side);
    const size_t rows = (size_t)t->rows;
    for (int i = 0; i < t->watch.n_batch; i++) {
        TrainBatch *b = &t->batch[i];
        b->x = dev->be.alloc(dev, rows * dim * sizeof(real), "a batch");
        const int labels = b == t->labelled || b->e.b != 0;     // a term reads them
        if (labels && b != t->sampled) b->y = dev->be.alloc(dev, rows * sizeof(int), "labels");
        if (t->cfg.conditional && b == t->sampled) b->y = t->replay.y + t->first;
    }
    if (has_chains(t))
        t->chains =
            t->comm ? dev->be.alloc(dev, B * dim * sizeof(real), "finished chains") : t->sampled->x;
    t->index = dev->be.alloc(dev, B * sizeof(int), "a batch");
    t->px_index = dev->be.alloc(dev, B * sizeof(int), "a batch");
    t->sums = dev->be.alloc(dev, N_SUMS * N_SUM * sizeof(real), "sums");
    t->ring = dev->be.alloc(dev, N_RING * N_ROW * sizeof(real), "the log");
    if (dev_check(dev, err)) return -1;
    dev->be.zero(dev, t->state, sizeof(StepState));
    dev->be.zero(dev, t->sums, N_SUMS * N_SUM * sizeof(real));
    dev->be.zero(dev, t->ring, N_RING * N_ROW * sizeof(real));
    if (t->comm && has_chains(t)) dev->be.zero(dev, t->chains, B * dim * sizeof(real));
    return 0;
}

static int open_passes(Trainer *t, Err *err) {
    const int B = t->rows, all = t->cfg.bn_stats == BN_ALL ? STATS_UPDATE : 0;
    if (pass_open(&t->real_pass, &t->net, B, MODE_TRAIN, err)) return -1;
    t->mem_bytes = t->real_pass.bytes;
    if (t->cfg.sam > 0) {
        if (pass_open(&t->sam_pass, &t->net, B, WANT_DW, err)) return -1;
        if (t->sam_pass.bytes > t->mem_bytes) t->mem_bytes = t->sam_pass.bytes;
        t->sam_keep = t->dev->be.alloc(t->dev, t->net.n_w * sizeof(real), "weights before SAM");
        t->sam_on = t->cfg.sam_from <= 0;
    }
    if (has_chains(t)) {
        if (pass_open(&t->sampled_pass, &t->net, B, WANT_DW | all, err) ||
            pass_open(&t->chain_pass, &t->net, B, MODE_SAMPLE | all, err))
            return -1;
        if (t->chain_pass.bytes > t->mem_bytes) t->mem_bytes = t->chain_pass.bytes;
    }
    if (t->cfg.adversarial != ATTACK_NONE) {
        if (pass_open(&t->attack_pass, &t->net, B, MODE_SAMPLE, err)) return -1;
        if (t->attack_pass.bytes > t->mem_bytes) t->mem_bytes = t->attack_pass.bytes;
        t->x0 = t->dev->be.alloc(t->dev, (size_t)B * tensor_len(&t->net.act[0]) * sizeof(real),
                                 "images before an attack");
    }
    Pass *all_passes[] = { &t->real_pass, &t->sampled_pass, &t->chain_pass, &t->attack_pass,
                           &t->sam_pass };
    for (int i = 0; t->cfg.sync_bn && i < 5; i++)
        if (all_passes[i]->net && pass_sync(all_passes[i], t->comm, err)) return -1;
    t->mem = t->dev->be.alloc(t->dev, t->mem_bytes, "activations and their gradients");
    if (dev_check(t->dev, err)) return -1;
    pass_bind(&t->real_pass, t->mem);
    if (t->sam_keep) pass_bind(&t->sam_pass, t->mem);
    if (has_chains(t)) pass_bind(&t->sampled_pass, t->mem);
    if (has_chains(t)) pass_bind(&t->chain_pass, t->mem);
    if (t->x0) pass_bind(&t->attack_pass, t->mem);
    return 0;
}

// Fractions of the run become the steps at which those epochs begin.
static int place_drops(Schedule *s, const char *text, uint64_t per_epoch, Err *err) {
    double at[MAX_DROPS];
    s->n_drop = config_fractions(text, at, MAX_DROPS, err);
    if (s->n_drop < 0) return -1;
    for (int i = 0; i < s->n_drop; i++) {
        const double step = at[i] * (double)s->total;
        const int whole =
            s->total >= 3 * per_epoch; // a run of an epoch or two has none to wait for
        s->drop[i] = whole ? (uint64_t)llround(step / (double)per_epoch) * per_epoch
                           : (uint64_t)llround(step);
    }
    return 0;
}

static int open_schedule(Trainer *t, Err *err) {
    const Config *c = &t->cfg;
    t->per_epoch = (uint64_t)(t->data.n / c->batch);
    if (!t->per_epoch)
        return err_set(
            err, ERR_ARG,
            "%d training images are fewer than a batch of %d: expected a smaller --batch",
            t->data.n, c->batch);
    const double steps = c->iterations > 0 ? c->iterations : c->epochs * (double)t->per_epoch;
    if (!(steps < 4e9))
        return err_set(err, ERR_ARG, "%.0f steps: a run can have at most 4e9", steps);
    if (!(c->minutes > 0) && llround(steps) < 1)
        return err_set(err, ERR_ARG,
                       "--epochs %g: less than one step; an epoch of %d training images has %d",
                       c->epochs, t->data.n, (int)t->per_epoch);
    t->schedule = (Schedule){ .kind = c->schedule,
                              .lr = c->lr,
                              .warmup = (uint64_t)c->warmup,
                              .total = (uint64_t)llround(steps),
                              .factor = c->decay_factor };
    if (c->minutes > 0) t->schedule.total = 1000000;        // parts of the time, see trainer_lr
    t->time_share = c->minutes > 0 ? 0 : -1;
    return place_drops(&t->schedule, c->decay_at, c->minutes > 0 ? 1 : t->per_epoch, err);
}

// Each rank's rows are a batch of their own to the norms.
static int divide_batch(Trainer *t, Err *err) {
    const int n = comm_size(t->comm);
    const int least = t->cfg.norm == NORM_BATCH && !t->cfg.sync_bn ? 2 : 1;
    t->rows = t->cfg.batch / n;
    t->first = t->rows * comm_rank(t->comm);
    if (t->rows * n != t->cfg.batch)
        return err_set(err, ERR_ARG, "batch = %d: %d ranks must divide it", t->cfg.batch, n);
    if (n > 1 && t->rows < least)
        return err_set(err, ERR_ARG,
                       "batch = %d: batch normalisation needs 2 images per rank, found %d ranks",
                       t->cfg.batch, n);
    return 0;
}

int trainer_open(Trainer *t, Dev *dev, Comm *comm, const Config *c, const Set *train, int empty,
                 Err *err) {
    memset(t, 0, sizeof *t);
    if (c->pad >= train->side)
        return err_set(err, ERR_ARG,
                       "pad = %d: images of %dx%d can be shifted by %d pixels at most", c->pad,
                       train->side, train->side, train->side - 1);
    t->cfg = *c;
    t->cfg.flip = c->flip && train->flip;
    t->dev = dev;
    t->comm = comm;
    t->lr_scale = 1;
    if (divide_batch(t, err)) return -1;
    t->chain = chain_of(c);
    trainer_seed(t, 0);
    NetSpec spec;
    if (config_net(&spec, c, train->c, train->side, train->classes, err) ||
        net_build(&t->net, &spec, err))
        return -1;
    t->net.momentum = (real)c->bn_momentum;
    t->optim = (Optim){ .kind = c->optimizer,
                        .sgd = { (real)c->momentum, (real)c->weight_decay },
                        .adam = { (real)0.9, (real)0.999, (real)1e-8, (real)c->weight_decay },
                        .ema_keep = (real)c->ema };
    t->state = dev->be.alloc(dev, sizeof(StepState), "the step");
    objective(t);
    if (dev_check(dev, err) || net_alloc(&t->net, dev, err) ||
        net_init(&t->net, (uint64_t)c->seed, err) || stopped(dev->events, err) ||
        bytes_upload(&t->data, dev, train, err) || open_schedule(t, err))
        return -1;
    if (has_chains(t) &&
        (starts_open(&t->starts, dev, c->start, &t->data, train->x, train->y, train->classes,
                     err) ||
         starts_add_real(&t->starts, &t->data, train->y, c->start_real, c->sigma, err) ||
         stopped(dev->events, err) ||
         replay_open(&t->replay, &t->starts, c, t->seed, train->classes, empty, err) ||
         stopped(dev->events, err)))
        return -1;
    if (has_chains(t) && chain_length_open(&t->length, dev, c, t->rows, train->classes, err))
        return -1;
    t->replay.first = t->first;
    t->replay.rows = t->rows;
    if (open_batches(t, err) || open_passes(t, err) || optim_open(&t->optim, &t->net, err))
        return -1;
    return dev_check(dev, err);
}

void trainer_close(Trainer *t) {
    Dev *dev = t->dev;
    if (!dev) return;
    forget_recordings(t);
    Pass *passes[] = { &t->chain_pass, &t->real_pass, &t->sampled_pass, &t->sam_pass,
                       &t->attack_pass };
    for (int i = 0; i < 5; i++) pass_close(passes[i]);
    if (t->comm) dev->be.free(dev, t->chains);
    for (int i = 0; i < MAX_BATCHES; i++) {
        dev->be.free(dev, t->batch[i].x);
        if (&t->batch[i] != t->sampled) dev->be.free(dev, t->batch[i].y);
    }
    void *all[] = { t->mem, t->index, t->px_index, t->x0, t->sam_keep, t->state, t->sums, t->ring };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) dev->be.free(dev, all[i]);
    optim_close(&t->optim, &t->net);
    chain_length_close(&t->length);
    replay_close(&t->replay);
    starts_close(&t->starts);
    bytes_free(&t->data, dev);
    net_free(&t->net);
    memset(t, 0, sizeof *t);
}
