// info.h - a network's ops, parameters, multiply-adds and memory in each mode; the contents of a
// model file.
#ifndef INFO_H
#define INFO_H
#include "run/model.h"

// Of a model's network and file; NULL: of the network that the options describe. Text, or JSON with
// c->json; malloc'd. Memory is that of the layouts and convolutions of the device that the options
// name, and with auto that of plain fp32.
char *info_text(const Model *m, const Config *c, Err *err);
#endif
