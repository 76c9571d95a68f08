// train_bench.c - see train_bench.h.
#include "run/train_bench.h"
#include "base/log.h"
#include "jem/train.h"
#include <string.h>
#include <time.h>

// Random images, as many per class as a real set has: only the time matters.
static int random_set(Set *s, const Config *c, Err *err) {
    enum { N = 10000 };
    NetSpec spec;
    if (config_net(&spec, c, 0, 0, 0, err)) return -1;
    *s = (Set){ .c = spec.channels, .side = spec.side, .classes = spec.classes, .flip = 1, .n = N };
    const size_t bytes = N * (size_t)(s->c * s->side * s->side);
    s->x = arena_alloc(&s->arena, bytes + 4, 1);
    s->y = arena_alloc(&s->arena, N, sizeof *s->y);
    if (arena_ok(&s->arena, "random images", err)) return -1;
    const Rng key = { .seed = 1, .stream = RNG_BENCH };
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t r[4];
        rng_block(key, (uint32_t)i, r);
        memcpy(s->x + i, r, 4);
    }
    for (int i = 0; i < N; i++) s->y[i] = i % s->classes;
    return 0;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    Comm  alone;
    Dev   dev;
    Set   set;
    Trainer t;
} TrainBench;

static int bench_open(TrainBench *b, const Config *c, Comm *ranks, const Events *ev, Err *err) {
    Config cfg = *c;
    NetSpec spec;
    const int buffer = cfg.batch > 1000 ? cfg.batch : 1000;
    if (cfg.buffer > buffer) cfg.buffer = buffer;       // filling it takes time, its size none
    if (cfg.active > buffer) cfg.active = buffer;
    if (config_net(&spec, c, 0, 0, 0, err)) return -1;
    if (cfg.pad >= spec.side) cfg.pad = spec.side - 1;
    cfg.sam_from = cfg.px_from = 0;                     // a preset's would leave SAM or p(x) out
    DevOpts o = comm_dev(ranks, config_dev(c));
    o.events = ev;
    int rc = dev_open(&b->dev, c->device, &o, NULL, err) || random_set(&b->set, c, err);
    Comm *comm = ranks;
    if (!rc && !comm && c->ranks == 1) {
        comm = &b->alone;
        rc = comm_connect_alone(comm, &b->dev, err);
    }
    if (!rc) rc = trainer_open(&b->t, &b->dev, comm, &cfg, &b->set, 0, err);
    return comm_agree(ranks, rc, err) || comm_connect(ranks, &b->dev, c->share_gpu, err);
}

int train_bench(const Config *c, Comm *comm, int n, double *ms, double *cpu_ms, const Events *ev,
                Err *err) {
    TrainBench b = { 0 };
    int rc = bench_open(&b, c, comm, ev, err);
    for (int i = -4; !rc && i < n; i++) { // the warm-up: a device records the third step
        b.dev.be.sync(&b.dev);
        const double start = now_seconds(), cpu = cpu_seconds();
        trainer_advance(&b.t);
        b.dev.be.sync(&b.dev);
        if (i >= 0) ms[i] = 1e3 * (now_seconds() - start);
        if (i >= 0 && cpu_ms) cpu_ms[i] = 1e3 * (cpu_seconds() - cpu);
        rc = comm_agree(comm, dev_check(&b.dev, err) || stopped(ev, err), err);
    }
    trainer_close(&b.t);
    set_free(&b.set);
    if (b.dev.be.name) dev_close(&b.dev);
    return rc;
}
