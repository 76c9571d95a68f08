// bench_inference.c - jempp bench --inference: images in host memory to logits, as callers of
// jempp_logits see it.
#include "api/bench.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text_out.h"
#include "run/model.h"
#include <stdio.h>
#include <stdlib.h>

static const int SIZES[] = { 1, 64, 256 };
enum { N_SIZE = sizeof SIZES / sizeof *SIZES, MOST = 256 };

typedef struct {                     // of one size, in ms
    double median, least;
    int    calls;
} Timing;

// At least 5 calls and half a second of them.
static int time_calls(Model *m, const float *images, int n, float *logits, Timing *t,
                      const Events *ev, Err *err) {
    enum { CALLS = 500 };
    double ms[CALLS], total = 0;
    int i = 0;
    for (; i < CALLS && (i < 5 || total < 500); i++) {
        const double start = now_seconds();
        if (model_logits(m, images, n, logits, err) || stopped(ev, err)) return -1;
        ms[i] = 1e3 * (now_seconds() - start);
        total += ms[i];
    }
    sort_numbers(ms, (size_t)i);
    *t = (Timing){ median(ms, (size_t)i), ms[0], i };
    return 0;
}

// After MANY_IMAGES images kernels are chosen by timing; what is measured comes after that.
static int warm_up(Model *m, const float *images, float *logits, const Events *ev, Err *err) {
    for (int done = 0; done <= MANY_IMAGES; done += MOST)
        if (model_logits(m, images, MOST, logits, err) || stopped(ev, err)) return -1;
    for (int k = 0; k < N_SIZE; k++)
        for (int twice = 0; twice < 2; twice++)
            if (model_logits(m, images, SIZES[k], logits, err) || stopped(ev, err)) return -1;
    return 0;
}

static int measure(Model *m, Timing *t, const Events *ev, Err *err) {
    const size_t n = MOST * tensor_len(&m->net.act[0]);
    const Rng key = { .seed = 1, .stream = RNG_BENCH };
    float *images = malloc(n * sizeof *images),
          *logits = malloc(MOST * (size_t)m->net.spec.classes * sizeof *logits);
    int rc = images && logits ? 0 : err_set(err, ERR_MEM, "out of memory for %d images", MOST);
    for (size_t i = 0; !rc && i < n; i++) images[i] = 2 * (float)rng_uniform(key, i) - 1;
    if (!rc) rc = warm_up(m, images, logits, ev, err);
    for (int k = 0; !rc && k < N_SIZE; k++)
        rc = time_calls(m, images, SIZES[k], logits, &t[k], ev, err);
    free(images);
    free(logits);
    return rc;
}

static char *as_text(const Model *m, const char *device, const Timing *t, Err *err) {
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    FILE *f = out.f;
    fprintf(f, "%s, inference; %s\n\n", m->cfg.model, device);
    fprintf(f, "%15s %12s %12s\n", "images per call", "ms per call", "images/s");
    for (int k = 0; k < N_SIZE; k++)
        fprintf(f, "%15d %12.3f %12.1f  (median of %d, least %.3f)\n", SIZES[k], t[k].median,
                1e3 * SIZES[k] / t[k].median, t[k].calls, t[k].least);
    return text_close(&out, err);
}

static char *as_json(const Model *m, const char *device, const Timing *t, Err *err) {
    JsonOut j = { .indent = 2 };
    json_open_object(&j, NULL);
    json_put_string(&j, "model", m->cfg.model);
    json_put_string(&j, "device", device);
    json_open_array(&j, "inference");
    for (int k = 0; k < N_SIZE; k++) {
        json_open_object(&j, NULL);
        json_put_int(&j, "images", SIZES[k]);
        json_put_double(&j, "ms", t[k].median);
        json_put_double(&j, "min_ms", t[k].least);
        json_put_double(&j, "images_per_second", 1e3 * SIZES[k] / t[k].median);
        json_put_int(&j, "calls", t[k].calls);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    return json_finish(&j, NULL, err);
}

char *bench_inference(const Config *c, const Events *ev, Err *err) {
    Model m;
    Timing t[N_SIZE];
    char device[256], *text = NULL;
    if (model_untrained(&m, c, err)) return NULL;
    m.dev.events = ev;
    snprintf(device, sizeof device, "%s: %s", m.dev.be.name, m.dev.be.describe(&m.dev));
    if (!measure(&m, t, ev, err))
        text = c->json ? as_json(&m, device, t, err) : as_text(&m, device, t, err);
    model_close(&m);
    return text;
}
