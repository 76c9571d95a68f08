// info.h - a network on paper: its ops, parameters, multiply-adds, and the memory of each mode.
#ifndef INFO_H
#define INFO_H
#include "conf/config.h"

// A network; NULL: the one that the options describe. Text, or JSON with c->json; malloc'd. A
// device other than auto is opened and asked what its layouts and convolutions take; without one,
// memory is counted in plain fp32. `record` (may be NULL) is shown too: the options of the model's
// training.
char *info_text(const NetSpec *spec, const Config *c, const Config *record, Err *err);
#endif
