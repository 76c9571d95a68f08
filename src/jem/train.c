// train.c - see train.h. trainer_step is the place to begin reading; train_open.c says which
// batches and terms of the loss there are.
#include "jem/train.h"
#include "jem/attack.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the step --------------------------------------------------------------------------------

void trainer_step(Trainer *t) {
    gather_batches(t); // data set -> labelled, real images
    if (px_active(t)) {
        replay_take(&t->replay, t->sampled->x, t->state); // replay buffer or fresh starts -> x_0
        run_chains(t);                                    // PYLD: x_0 -> x_q
        share_chains(t);                                  // all ranks' x_q, on the way
    }
    if (has_attack(t)) attack_labelled(t); // adversarial training
    compute_gradients(t);                  // forward, head, backward; all ranks
    if (sam_active(t)) sam_gradients(t);   // the same at the perturbed weights
    check_step(t);                         // after a divergence nothing below acts
    optim_step(&t->optim, &t->net, t->state);
    if (px_active(t)) replay_store(&t->replay, t->chains, t->state);
}

static Rng key_of(const Trainer *t, uint32_t stream) {
    return (Rng){ .seed = t->seed, .stream = stream };
}

// Of real images; from: as in Augment.
static Augment augment(const Trainer *t, int from) {
    const Config *c = &t->cfg;
    return (Augment){ .pad = c->pad, .flip = t->flip, .noise = (real)c->sigma, .from = from };
}

// StepInput.first is p(x)'s.
static int labels_from(const Trainer *t) { return t->labels.first - t->px.first; }

void gather_labelled(Trainer *t, uint32_t order, uint32_t noise) {
    Backend *be = &t->dev->be;
    const TrainBatch *b = t->labelled;
    be->pick(t->dev, t->data.n, t->labels.images, key_of(t, order), t->state, t->index);
    be->batch(t->dev, &t->data, t->index + t->labels.first, t->labels.rows,
              augment(t, labels_from(t)), key_of(t, noise), t->state, b->x, b->y);
}

void gather_batches(Trainer *t) {
    Backend *be = &t->dev->be;
    const Augment noisy = augment(t, 0), clean = { 0 };
    const TrainBatch *px = t->px_real;
    gather_labelled(t, RNG_EPOCH, RNG_AUGMENT);
    if (!px_active(t)) return;
    if (t->cfg.px == PX_CLEAN) // the first of them, not augmented
        be->batch(t->dev, &t->data, t->index + t->px.first, t->px.rows, clean,
                  key_of(t, RNG_AUGMENT2), t->state, px->x, px->y);
    if (t->cfg.px == PX_INDEPENDENT) { // others
        be->pick(t->dev, t->data.n, t->px.images, key_of(t, RNG_EPOCH2), t->state, t->px_index);
        be->batch(t->dev, &t->data, t->px_index + t->px.first, t->px.rows, noisy,
                  key_of(t, RNG_AUGMENT2), t->state, px->x, px->y);
    }
}

void run_chains(Trainer *t) {
    const int row[] = { CHAIN_BEFORE, CHAIN_AFTER, t->watch.sampled };
    ChainBatch b = {
        .x = t->sampled->x, .y = t->sampled->y, .key = key_of(t, RNG_LANGEVIN), .now = t->state
    };
    for (int k = 0; k < t->chain.steps; k++) { // the first move is measured (`climb`)
        b.sums = t->sums + row[k < 2 ? k : 2] * N_SUM;
        sample_step(&t->chain_pass, &t->chain, &b, k, k ? NULL : t->sums + CHAIN_SLOPE * N_SUM);
    }
}

void share_chains(Trainer *t) {
    const size_t n = (size_t)t->px.rows * tensor_len(&t->net.act[0]);
    comm_collect(t->comm, t->dev, t->sampled->x, t->chains, n);
}

void attack_labelled(Trainer *t) {
    const Config *c = &t->cfg;
    Backend *be = &t->dev->be;
    const AttackPlan plan = { .l2 = c->adversarial == ATTACK_L2, .steps = c->attack_steps };
    Attack ball = attack_ball(&plan, c->attack_radius);
    ball.from = labels_from(t);
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

// The batches of this step and their terms of the loss.
static const Watch *objective(const Trainer *t) {
    return px_active(t) ? &t->watch : &t->classifier;
}

// Adds batch i's part of the loss's gradient by the weights, by pass p; its sums go to row `row`.
// The last one's completes the gradient of this rank.
static void batch_gradient(Trainer *t, int i, Pass *p, int row) {
    const TrainBatch *b = &t->batch[i];
    const int ranks = b->share.images / b->share.rows;
    const Watch *o = objective(t);
    const real mean = 1 / (real)(p->batch * ranks);
    pass_forward(p, b->x);
    if (t->length.most && row != UNREAD && (i == o->px || i == o->sampled))
        chain_length_keep(&t->length, i == o->sampled, pass_logits(p));
    t->dev->be.head(t->dev, pass_logits(p), b->y, o->e[i], mean, pass_logits_grad(p),
                    t->sums + row * N_SUM);
    pass_backward_last(p, i == o->n_batch - 1 ? t->comm : NULL);
}

// With --sam-images, all that the first gradient has to give a sharpness-aware step is a direction.
static int few_images(const Trainer *t) { return sam_active(t) && t->sam_rows; }

static Pass *first_pass(Trainer *t, const TrainBatch *b) {
    if (!few_images(t)) return b->pass;
    return b == t->sampled ? &t->few_sampled : &t->few_real;
}

// Each rank's running statistics moved by its own part of the batch; their mean is what all keep.
void compute_gradients(Trainer *t) {
    net_zero_grad(&t->net);
    for (int i = 0; i < objective(t)->n_batch; i++)
        batch_gradient(t, i, first_pass(t, &t->batch[i]), i);
    comm_reduce(t->comm, t->dev, t->sums, N_SUMS * N_SUM, REDUCE_SUM);
    comm_reduce(t->comm, t->dev, t->net.state, t->net.n_state, REDUCE_MEAN);
    comm_wait(t->comm, t->dev);
}

// The gradient at the worst weights nearby replaces the one at the weights. This second pass leaves
// running statistics and the log's sums alone.
void sam_gradients(Trainer *t) {
    Backend *be = &t->dev->be;
    const double radius = t->cfg.sam * fmax(t->sam_boost, 1);
    be->sam_perturb(t->dev, t->net.n_w, t->net.w, t->net.dw, (real)radius, t->sam_keep);
    net_changed(&t->net);
    net_zero_grad(&t->net);
    for (int i = 0; i < objective(t)->n_batch; i++)
        batch_gradient(t, i, t->batch[i].sam_pass, UNREAD);
    comm_wait(t->comm, t->dev);
    be->copy(t->dev, t->net.w, t->sam_keep, t->net.n_w * sizeof(real));
}

void check_step(Trainer *t) {
    Backend *be = &t->dev->be;
    Watch w = *objective(t);
    for (int i = 0; i < w.n_batch && few_images(t); i++) w.n[i] = t->sam_rows * comm_size(t->comm);
    be->check_finite(t->dev, t->net.n_w, t->net.dw, t->state);
    be->watch(t->dev, &w, t->sums, t->state, t->ring);
}

// ---- around the step -------------------------------------------------------------------------

void trainer_forget(Trainer *t) {
    for (int i = 0; i < 4; i++)
        if (t->recording[i].work) t->dev->be.record_free(t->dev, t->recording[i].work);
    memset(t->recording, 0, sizeof t->recording);
}

// A device that can record does so after two steps of the same work, and then replays it.
static void step_or_replay(Trainer *t) {
    enum { FIRST = 2 };
    Backend *be = &t->dev->be;
    Recording *r = &t->recording[t->sam_on + (px_active(t) ? 0 : 2)];
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

static double share_done(const Trainer *t) { // of the run
    return t->time_share >= 0 ? t->time_share : (double)t->step / (double)t->schedule.total;
}

static void choose_sam(Trainer *t) {
    t->sam_on = t->sam_keep && (t->sam_boost > 0 || share_done(t) >= t->cfg.sam_from);
}

static void choose_px(Trainer *t) {
    if (!px_pending(t) || share_done(t) < t->cfg.px_from) return;
    t->px_began = t->step;
    replay_rewind(&t->replay, t->seed, t->step, t->replay.drawn);
}

double trainer_stronger_sam(const Trainer *t) {
    enum { MOST = 4 };
    if (!t->sam_keep) return t->sam_boost;
    return t->sam_on ? fmin(2 * fmax(t->sam_boost, 1), MOST) : 1;
}

// Of the next step.
static double learning_rate(const Trainer *t) {
    Schedule s = t->schedule;
    const uint64_t since = t->step - t->px_began; // p(x) begins with a warm-up, too
    const double warm = since < s.warmup ? (double)since / (double)s.warmup : 1;
    if (t->time_share < 0 && !t->px_began) return t->lr_scale * schedule_lr(&s, t->step);
    // the schedule follows the clock or the steps, the warm-up always the steps
    s.warmup = 0;
    const double done = t->time_share < 0 ? (double)t->step : t->time_share * (double)s.total;
    return t->lr_scale * warm * schedule_lr(&s, (uint64_t)done);
}

void trainer_advance(Trainer *t) {
    choose_sam(t);
    choose_px(t);
    const uint32_t draws = px_active(t) ? replay_ready(&t->replay, t->step) : 0;
    const StepInput in = { .step = (uint32_t)t->step,
                           .px_began = (uint32_t)t->px_began,
                           .drawn = t->replay.drawn,
                           .lr = (real)learning_rate(t),
                           .first = (uint32_t)t->px.first,
                           .auroc = (real)t->length.auroc,
                           .chain_steps = t->chain.steps };
    t->dev->be.copy_in(t->dev, &t->state->in, &in, sizeof in);
    step_or_replay(t);
    t->replay.drawn += draws;
    t->step++;
    if (t->length.most && px_active(t) && !px_settles(t, t->step) && t->step % LENGTH_EVERY == 0)
        trainer_chain_steps(t, chain_length_next(&t->length, t->chain.steps, t->comm));
}

void trainer_chain_steps(Trainer *t, int steps) {
    if (steps == t->chain.steps) return;
    t->chain.steps = steps;
    watch_first_move(t);
    trainer_forget(t); // they hold the old number
}

void trainer_seed(Trainer *t, int attempt) {
    t->seed = (uint64_t)t->cfg.seed + ((uint64_t)attempt << 53);
    t->replay.seed = t->seed;
    trainer_forget(t); // they hold the old seed
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

// Chains start in [-1, 1], and noise alone takes pixels out of it.
static real farthest_pixel(const Move *m) {
    return m->clamp ? 1 + (real)RNG_FARTHEST * m->noise : FLT_MAX;
}

void trainer_parts(Trainer *t, StatePart part[N_STATE_PART]) {
    const size_t n_w = t->net.n_w, images = (size_t)t->replay.slots.n * t->replay.dim;
    const StatePart all[N_STATE_PART] = {
        { "optim.v", t->optim.v, n_w, FLT_MAX },
        { "optim.m", t->optim.m, n_w, FLT_MAX },
        { "ema.weights", t->optim.avg, n_w, FLT_MAX },
        { "ema.statistics", t->optim.avg_state, t->net.n_state, FLT_MAX },
        { "replay", t->replay.x, images, farthest_pixel(&t->chain.move) }
    };
    memcpy(part, all, sizeof all);
}

// ---- ranks -----------------------------------------------------------------------------------

// Differs where weights, statistics or finished chains do.
static uint64_t checksum(Trainer *t) {
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
    } mine = { t->step, checksum(t) }, *all = comm_answers(c, &mine, sizeof mine);
    int rc = comm_check(c, err);
    for (int r = 1; !rc && r < c->size; r++)
        if (all[r].step != all[0].step || all[r].sum != all[0].sum) {
            c->agreed = 1;
            rc = err_set(err, ERR_DEV,
                         "rank %d no longer has the same weights as rank 0 (before step %llu): "
                         "faulty memory, or a bug in jempp",
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
        double lr_scale, sam_boost, auroc;
        uint64_t px_began;
        uint32_t drawn;
        int chain_steps;
    } host = { t->step,         t->seed,     t->net.batches,  t->lr_scale,   t->sam_boost,
               t->length.auroc, t->px_began, t->replay.drawn, t->chain.steps };
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
    t->sam_boost = host.sam_boost;
    t->px_began = host.px_began;
    t->seed = host.seed;
    t->length.auroc = host.auroc;
    trainer_chain_steps(t, host.chain_steps);
    trainer_forget(t);
    if (has_chains(t)) replay_rewind(&t->replay, t->seed, t->step, host.drawn);
    net_changed(&t->net);
}
