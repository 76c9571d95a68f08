// train_open.c - what a training iteration (train.c) works on: the objective as a table of batches
// and terms, the batches and passes in memory, and the schedule.
#include "base/text.h"
#include "jem/train.h"
#include <math.h>
#include <string.h>

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
    const int real_at = own ? 1 : 0, sampled_at = generative ? real_at + 1 : -1;
    t->watch = (Watch){ .e = { { .a = pyx, .b = -pyx } },
                        .n_batch = generative ? sampled_at + 1 : 1,
                        .label = 0,
                        .px = generative ? real_at : -1,
                        .sampled = sampled_at,
                        .up = t->chain.energy,
                        .loss_limit = (real)c->loss_limit,
                        .gap_limit = (real)c->gap_limit,
                        .ce_limit = pyx + pxy > 0 ? (real)c->ce_limit : 0,
                        .climb_limit = (real)c->climb_limit,
                        .px_margin = (real)c->px_margin,
                        .n_ring = N_RING };
    if (generative) {
        Energy *r = &t->watch.e[real_at], *s = &t->watch.e[sampled_at];
        const real bce = c->px_loss == LOSS_BCE ? px : 0, penalty = (real)c->penalty;
        const real diff = px - bce; // by the difference f(x_q) - f(x)
        *r = (Energy){ .a = r->a - diff, .b = r->b - pxy, .c = penalty, .d = -bce };
        *s = c->conditional ? (Energy){ .a = diff, .b = pxy, .c = penalty, .d = bce }
                            : (Energy){ .a = diff + pxy, .c = penalty, .d = bce };
    }
    watch_first_move(t);
    t->labelled = &t->batch[0];
    t->px_real = generative ? &t->batch[real_at] : NULL;
    t->sampled = generative ? &t->batch[sampled_at] : NULL;
    for (int i = 0; i < t->watch.n_batch; i++) {
        if (c->px_margin > 0) reverse_px(&t->watch.e[i], i ? 0 : pyx, t->state);
        TrainBatch *b = &t->batch[i];
        const int other = i && t->px.rows != t->labels.rows;
        b->share = i ? t->px : t->labels;
        b->pass = i == sampled_at ? &t->sampled_pass : other ? &t->px_pass : &t->label_pass;
        b->sam_pass = other ? &t->sam_px : &t->sam_pass;
        t->watch.n[i] = b->share.images;
    }
    t->classifier = t->watch;
    t->classifier.n_batch = 1;
    t->classifier.px = t->classifier.sampled = -1;
    t->classifier.e[0] = (Energy){ .a = pyx, .b = -pyx };
}

static int open_batches(Trainer *t, Err *err) {
    Dev *dev = t->dev;
    const size_t B = (size_t)t->cfg.batch, dim = (size_t)(t->data.c * t->data.side * t->data.side);
    for (int i = 0; i < t->watch.n_batch; i++) {
        TrainBatch *b = &t->batch[i];
        const size_t rows = (size_t)b->share.rows;
        b->x = dev->be.alloc(dev, rows * dim * sizeof(real), "a batch");
        const int labels = b == t->labelled || t->watch.e[i].b != 0; // a term reads them
        if (labels && b != t->sampled) b->y = dev->be.alloc(dev, rows * sizeof(int), "labels");
        if (t->cfg.conditional && b == t->sampled) b->y = t->replay.y + t->px.first;
    }
    if (has_chains(t))
        t->chains =
            t->comm ? dev->be.alloc(dev, B * dim * sizeof(real), "finished chains") : t->sampled->x;
    t->index = dev->be.alloc(dev, (size_t)t->labels.images * sizeof(int), "a batch");
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

// The passes share their memory, as one follows the other.
static int open_passes(Trainer *t, Err *err) {
    const int L = t->labels.rows, B = t->px.rows, few = t->sam_rows,
              all = t->cfg.bn_stats == BN_ALL ? STATS_UPDATE : 0, chains = has_chains(t),
              sam = t->cfg.sam > 0, own = chains && L != B,
              attack = t->cfg.adversarial != ATTACK_NONE;
    const struct {
        Pass *pass;
        int wanted, rows, mode;
    } passes[] = {
        { &t->label_pass, 1, L, MODE_TRAIN },
        { &t->px_pass, own && t->px_real != t->labelled, B, MODE_TRAIN },
        { &t->sampled_pass, chains, B, WANT_DW | all },
        { &t->chain_pass, chains, B, MODE_SAMPLE | all },
        { &t->attack_pass, attack, L, MODE_SAMPLE },
        { &t->sam_pass, sam, L, WANT_DW },
        { &t->sam_px, sam && own, B, WANT_DW },
        { &t->few_real, few, few, MODE_TRAIN },
        { &t->few_sampled, few && chains, few, WANT_DW | all },
    };
    const int n = sizeof passes / sizeof *passes;
    for (int i = 0; i < n; i++) {
        Pass *p = passes[i].pass;
        if (!passes[i].wanted) continue;
        if (pass_open(p, &t->net, passes[i].rows, passes[i].mode, err)) return -1;
        if (t->cfg.sync_bn && pass_sync(p, t->comm, err)) return -1;
        if (p->bytes > t->mem_bytes) t->mem_bytes = p->bytes;
    }
    Backend *be = &t->dev->be;
    if (sam) t->sam_keep = be->alloc(t->dev, t->net.n_w * sizeof(real), "weights before SAM");
    if (attack)
        t->x0 = be->alloc(t->dev, (size_t)L * tensor_len(&t->net.act[0]) * sizeof(real),
                          "images before an attack");
    t->mem = be->alloc(t->dev, t->mem_bytes, "activations and their gradients");
    if (dev_check(t->dev, err)) return -1;
    t->sam_on = sam && t->cfg.sam_from <= 0;
    for (int i = 0; i < n; i++)
        if (passes[i].wanted) pass_bind(passes[i].pass, t->mem);
    return 0;
}

// Fractions of the run become steps: those at which the nearest epochs begin, where these are steps
// of their own.
static int place_drops(Schedule *s, const char *text, uint64_t per_epoch, Err *err) {
    double at[MAX_DROPS];
    s->n_drop = config_fractions(text, at, MAX_DROPS, err);
    if (s->n_drop < 0) return -1;
    const int whole = s->total >= 3 * per_epoch; // shorter runs drop between epochs too
    for (int i = 0; i < s->n_drop; i++) {
        const double step = at[i] * (double)s->total;
        const uint64_t epoch = (uint64_t)llround(step / (double)per_epoch) * per_epoch,
                       before = i ? s->drop[i - 1] : 0;
        const int own = epoch > before && epoch < s->total;
        s->drop[i] = whole && own ? epoch : (uint64_t)llround(step);
    }
    return 0;
}

static int open_schedule(Trainer *t, Err *err) {
    const Config *c = &t->cfg;
    t->per_epoch = (uint64_t)(t->data.n / t->labels.images);
    if (!t->per_epoch)
        return err_set(err, ERR_ARG,
                       "found %d training image%s, fewer than a batch of %d: expected a smaller "
                       "--%s",
                       t->data.n, plural(t->data.n), t->labels.images,
                       t->labels.images > c->batch ? "labelled" : "batch");
    const double steps = c->iterations > 0 ? c->iterations : c->epochs * (double)t->per_epoch;
    if (!(steps < 4e9))
        return err_set(err, ERR_ARG, "%.0f steps: a run can have at most 4e9", steps);
    if (!(c->minutes > 0) && llround(steps) < 1)
        return err_set(err, ERR_ARG,
                       "--epochs %g: less than one step; an epoch of %d training image%s has %d",
                       c->epochs, t->data.n, plural(t->data.n), (int)t->per_epoch);
    t->schedule = (Schedule){ .kind = c->schedule,
                              .lr = c->lr,
                              .warmup = (uint64_t)c->warmup,
                              .total = (uint64_t)llround(steps),
                              .factor = c->decay_factor };
    if (c->minutes > 0) t->schedule.total = 1000000; // parts of the time (learning_rate)
    t->time_share = c->minutes > 0 ? 0 : -1;
    return place_drops(&t->schedule, c->decay_at, c->minutes > 0 ? 1 : t->per_epoch, err);
}

// A rank's share of the images that an option gives: a batch of their own to the norms.
static int share_images(const Trainer *t, const char *option, int images, Share *s, Err *err) {
    const int n = comm_size(t->comm), rows = images / n;
    *s = (Share){ images, rows, rows * comm_rank(t->comm) };
    if (rows * n != images)
        return err_set(err, ERR_ARG, "%s = %d: %d ranks must divide it", option, images, n);
    if (rows != 1 || t->cfg.norm != NORM_BATCH || t->cfg.sync_bn) return 0;
    err_set(err, ERR_ARG, "%s = %d: batch normalisation needs 2 images", option, images);
    return n > 1 ? err_append(err, " per rank, found %d ranks", n) : -1;
}

static int divide_batch(Trainer *t, Err *err) {
    const Config *c = &t->cfg;
    Share few;
    if (share_images(t, "batch", c->batch, &t->px, err) ||
        share_images(t, "labelled", config_labelled(c), &t->labels, err) ||
        share_images(t, "sam-images", c->sam > 0 ? c->sam_images : 0, &few, err))
        return -1;
    t->sam_rows = few.images < t->labels.images ? few.rows : 0;
    return 0;
}

int trainer_open(Trainer *t, Dev *dev, Comm *comm, const Config *c, const Set *train, int empty,
                 Err *err) {
    memset(t, 0, sizeof *t);
    if (c->pad >= train->side)
        return err_set(err, ERR_ARG,
                       "pad = %d: images of %dx%d can be shifted by %d pixel%s at most", c->pad,
                       train->side, train->side, train->side - 1, plural(train->side - 1));
    t->cfg = *c;
    t->flip = c->flip && train->flip;
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
                        .muon_rate = (real)(c->muon_lr / c->lr),
                        .ema_keep = (real)c->ema };
    t->state = dev->be.alloc(dev, sizeof(StepState), "the step");
    objective(t);
    if (dev_check(dev, err) || net_alloc(&t->net, dev, err) ||
        net_init(&t->net, (uint64_t)c->seed, err) || stopped(dev->events, err) ||
        bytes_upload(&t->data, dev, train, err) || open_schedule(t, err))
        return -1;
    if (has_chains(t) &&
        (starts_open(&t->starts, dev, c->start, train, &t->data, err) ||
         starts_add_real(&t->starts, &t->data, train->y, c->start_real, c->sigma, err) ||
         stopped(dev->events, err) ||
         replay_open(&t->replay, &t->starts, c, t->seed, train->classes, empty, err) ||
         stopped(dev->events, err)))
        return -1;
    if (has_chains(t) && chain_length_open(&t->length, dev, c, t->px.rows, train->classes, err))
        return -1;
    t->replay.first = t->px.first;
    t->replay.rows = t->px.rows;
    if (open_batches(t, err) || open_passes(t, err) || optim_open(&t->optim, &t->net, err))
        return -1;
    return dev_check(dev, err);
}

void trainer_close(Trainer *t) {
    Dev *dev = t->dev;
    if (!dev) return;
    trainer_forget(t);
    enum { N = 9 };
    Pass *passes[N] = { &t->chain_pass,   &t->label_pass, &t->px_pass,
                        &t->sampled_pass, &t->sam_pass,   &t->sam_px,
                        &t->attack_pass,  &t->few_real,   &t->few_sampled };
    for (int i = 0; i < N; i++) pass_close(passes[i]);
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
