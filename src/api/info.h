// info.h - a network on paper: its ops, parameters, multiply-adds, and the memory of each mode; of
// a model, what its file holds.
#ifndef INFO_H
#define INFO_H
#include "run/model.h"

// Of a model's network and file; NULL: of the network that the options describe. Text, or JSON with
// c->json; malloc'd. A device other than auto is opened and asked what its layouts and convolutions
// take; without one, memory is counted in plain fp32.
char *info_text(const Model *m, const Config *c, Err *err);
#endif
