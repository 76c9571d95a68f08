// search_case.h - the search for kernels is shown and can be stopped; for devices that time
// kernels.
#ifndef SEARCH_CASE_H
#define SEARCH_CASE_H
#include "testing.h"
#include "net/net.h"

typedef struct {
    int reports, stop_after, after_stop;    // stop_after 0: never
    uint64_t done, total;
} SearchSeen;

static void search_progress(void *ctx, uint64_t first, uint64_t done, uint64_t total,
                            const char *unit, const char *text) {
    SearchSeen *s = ctx;
    (void)first, (void)text;
    assert_string_equal(unit, "convolutions");
    assert_true(done >= s->done && done <= total);
    s->after_stop += s->stop_after && s->reports >= s->stop_after;
    s->reports++;
    s->done = done;
    s->total = total;
}

static int search_stop(void *ctx) {
    const SearchSeen *s = ctx;
    return s->stop_after && s->reports >= s->stop_after;
}

static void search_is_shown_and_stops(const char *device) {
    const NetSpec spec = { 10, 1, 3, 32, 10, NORM_BATCH, STEM_3X3 };
    SearchSeen seen = { .stop_after = 3 };
    const Events events = { .progress = search_progress, .stop = search_stop, .ctx = &seen };
    Dev dev;
    Net net;
    Pass p;
    Err stop = { 0 };
    OK(dev_open(&dev, device, &(DevOpts){ .threads = 2, .events = &events }, NULL, err));
    OK(net_build(&net, &spec, err));
    OK(net_alloc(&net, &dev, err));
    OK(net_init(&net, 1, err));
    assert_int_equal(pass_open(&p, &net, 4, MODE_TRAIN, &stop), -1);
    assert_string_equal(stop.msg, "stopped");
    assert_int_equal(seen.reports, 3);
    assert_int_equal(seen.after_stop, 0);
    pass_close(&p);
    seen = (SearchSeen){ 0 };               // the device is as good as before
    OK(pass_open(&p, &net, 4, MODE_TRAIN, err));
    assert_true(seen.reports > 3);
    assert_true(seen.done == seen.total && seen.total == (uint64_t)net.n_filter);
    pass_close(&p);
    seen = (SearchSeen){ 0 };
    OK(pass_open(&p, &net, 4, MODE_TRAIN, err));
    assert_int_equal(seen.reports, 0);      // nothing is timed twice
    void *mem = dev.be.alloc(&dev, p.bytes, "a test");
    const size_t n = tensor_len(&p.act[0]);
    real *x = dev.be.alloc(&dev, n * sizeof(real), "a test"), logits[40];
    dev.be.zero(&dev, x, n * sizeof(real));
    pass_bind(&p, mem);
    pass_forward(&p, x);
    dev.be.copy_out(&dev, logits, pass_logits(&p)->p, sizeof logits);
    OK(dev_check(&dev, err));
    for (int i = 0; i < 40; i++) assert_true(isfinite(logits[i]));
    dev.be.free(&dev, x);
    dev.be.free(&dev, mem);
    pass_close(&p);
    net_free(&net);
    dev_close(&dev);
}
#endif
