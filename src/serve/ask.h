// ask.h - which samples a client asks for: the body of POST sample.
#ifndef ASK_H
#define ASK_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum { MAX_CHAINS = 64, MAX_STEPS = 200 };

typedef struct {
    char   class_name[128];         // "": all
    int    count, steps;            // steps 0: fitted to the model
    double seed;
    int    stream;                  // events rather than one answer: not of the body
} SampleAsk;

// From n bytes of JSON; none are the defaults.
int sample_ask(SampleAsk *ask, const uint8_t *body, size_t n, Err *err);
#endif
