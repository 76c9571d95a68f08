// bench.h - how fast a device runs a network: each kind of op, whole passes, training iterations;
// or calls that classify images.
#ifndef BENCH_H
#define BENCH_H
#include "base/events.h"
#include "conf/config.h"

// Text, or JSON with c->json; malloc'd. ev may be NULL.
char *bench_text(const Config *c, const Events *ev, Err *err);
char *bench_inference(const Config *c, const Events *ev, Err *err);      // --inference
#endif
