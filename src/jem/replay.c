// replay.c - see replay.h.
#include "jem/replay.h"
#include <string.h>

static Rng slot_key(const Replay *r) { return (Rng){ .seed = r->seed, .stream = RNG_SLOT }; }
static Rng reinit_key(const Replay *r) { return (Rng){ .seed = r->seed, .stream = RNG_REINIT }; }

// Whether chain i of that step starts afresh.
static int is_reinit(const Replay *r, uint64_t step, int i) {
    Rng key = reinit_key(r);
    key.step = (uint32_t)step;
    return slots_is_fresh(r->slots, key, i);
}

// The class of a fresh chain: its slot's where chains have classes, else as the prior says.
static int fresh_class(const Replay *r, uint64_t step, int i, uint32_t number) {
    if (!r->conditional) return starts_class(r->starts, r->prior, r->seed, number);
    Rng key = slot_key(r);
    key.step = (uint32_t)step;
    return slot_class(slots_of(r->slots, key, i), r->slots.n, r->slots.classes);
}

static void fill_with_starts(Replay *r) {
    int number[STARTS_AT_ONCE], cls[STARTS_AT_ONCE];
    const int n = r->slots.n;
    for (int i = 0; i < n && !stop_asked(r->starts->dev->events); i += STARTS_AT_ONCE) {
        const int m = n - i < STARTS_AT_ONCE ? n - i : STARTS_AT_ONCE;
        for (int k = 0; k < m; k++)
            number[k] = i + k, cls[k] = slot_class(i + k, n, r->slots.classes);
        starts_draw(r->starts, r->seed, number, cls, m, r->x, n);
    }
}

int replay_open(Replay *r, Starts *s, const Config *c, uint64_t seed, int classes, int empty,
                Err *err) {
    Dev *dev = s->dev;
    *r = (Replay){ .dev = dev,
                   .starts = s,
                   .slots = { .n = c->buffer,
                              .classes = classes,
                              .batch = c->batch,
                              .active = c->active,
                              .rate = (float)c->reinit },
                   .rows = c->batch,
                   .conditional = c->conditional,
                   .prior = c->prior,
                   .dim = (size_t)s->dim,
                   .seed = seed };
    const int n = c->buffer, batch = c->batch;
    if (n < batch)
        return err_set(err, ERR_ARG, "a buffer of %d is smaller than the batch of %d", n, batch);
    r->n_pool = STARTS_AT_ONCE > 2 * batch ? STARTS_AT_ONCE : 2 * batch;
    r->x = dev->be.alloc(dev, (size_t)n * r->dim * sizeof(real), "the replay buffer");
    r->pool = dev->be.alloc(dev, (size_t)r->n_pool * r->dim * sizeof(real), "chain starts");
    r->slot = dev->be.alloc(dev, (size_t)batch * sizeof(int), "slots");
    r->y = dev->be.alloc(dev, (size_t)batch * sizeof(int), "slots");
    if (dev_check(dev, err)) return -1;
    r->drawn = r->made = (uint32_t)n;                       // the first n draws are the slots' own
    if (!empty) fill_with_starts(r);
    return dev_check(dev, err);
}

void replay_close(Replay *r) {
    void *all[] = { r->x, r->pool, r->slot, r->y };
    for (int i = 0; r->dev && i < 4; i++)
        if (all[i]) r->dev->be.free(r->dev, all[i]);
    memset(r, 0, sizeof *r);
}

// Draws for that step and those ahead until the pool could not hold another step's. Not further
// than FAR: where fresh chains are rare, the pool is hardly ever full.
static void fill_pool(Replay *r, uint64_t step) {
    enum { FAR = 1024 };
    int number[STARTS_AT_ONCE], cls[STARTS_AT_ONCE], m = 0;
    for (; r->ahead < step + FAR; r->ahead++) {
        int need = 0;
        for (int i = 0; i < r->slots.batch; i++) need += is_reinit(r, r->ahead, i);
        if (r->made - r->drawn + (uint32_t)need > (uint32_t)r->n_pool || r->ahead > UINT32_MAX - 1)
            break;
        for (int i = 0; i < r->slots.batch && need; i++) {
            if (!is_reinit(r, r->ahead, i)) continue;
            number[m] = (int)r->made;
            cls[m++] = fresh_class(r, r->ahead, i, r->made++);
            if (m < STARTS_AT_ONCE) continue;
            starts_draw(r->starts, r->seed, number, cls, m, r->pool, r->n_pool);
            m = 0;
        }
        if (r->slots.rate <= 0) {
            r->ahead = UINT32_MAX;
            break;
        }
    }
    if (m) starts_draw(r->starts, r->seed, number, cls, m, r->pool, r->n_pool);
}

uint32_t replay_ready(Replay *r, uint64_t step) {
    if (step >= r->ahead) fill_pool(r, step);
    uint32_t used = 0;
    for (int i = 0; i < r->slots.batch; i++) used += (uint32_t)is_reinit(r, step, i);
    return used;
}

void replay_rewind(Replay *r, uint64_t seed, uint64_t step, uint32_t drawn) {
    r->seed = seed;
    r->ahead = step;
    r->drawn = r->made = drawn;
}

void replay_take(Replay *r, real *x, const StepState *now) {
    Dev *dev = r->dev;
    dev->be.slots(dev, r->slots, slot_key(r), now, r->slot, r->y);
    dev->be.rows_get(dev, x, r->x, r->slot + r->first, r->rows, r->dim);
    dev->be.reinit(dev, x, r->rows, r->dim, r->slots, r->pool, r->n_pool, reinit_key(r), now);
}

void replay_store(Replay *r, const real *x, const StepState *now) {
    r->dev->be.rows_put(r->dev, r->x, x, r->slot, r->slots.batch, r->dim, now);
}
