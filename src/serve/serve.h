// serve.h - the serve layer: a live page and a JSON API over run folders and a model
// (docs/serve.md). One thread carries connections (http.h), one follows runs (runs.h), one uses the
// model (work.h).
#ifndef SERVE_H
#define SERVE_H
#include "base/events.h"
#include "conf/config.h"

// path: a run folder, a folder of runs, or a model file. Reports its address as a line, and serves
// until ev->stop says so.
int serve(const Config *c, const char *path, const Events *ev, Err *err);

// The files of the page, compiled in from src/serve/page; ends with a NULL name.
typedef struct { const char *name, *type; const unsigned char *data; size_t n; } PageFile;
extern const PageFile page_files[];
#endif
