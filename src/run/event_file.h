// event_file.h - TensorBoard's event files: records of scalars and pictures by step.
#ifndef EVENT_FILE_H
#define EVENT_FILE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    FILE *f;                         // NULL: closed
    char  path[600];
    Err   err;                       // the first failure; then nothing more is written
} EventFile;

// A new file in `dir`; TensorBoard reads all files there, by the time in their names. `wall` is in
// seconds since 1970. note: the end of its name.
int  event_file_open(EventFile *e, const char *dir, double wall, const char *note, Err *err);
// Steps from this one on follow: a reader forgets those that it has, of earlier files too.
void event_file_start(EventFile *e, double wall, uint64_t step);
// The values of one step by name, each under prefix/name; those that are NaN are left out.
void event_file_scalars(EventFile *e, double wall, uint64_t step, const char *prefix, int n,
                        const char *const *name, const double *value);
// A PNG file.
void event_file_picture(EventFile *e, double wall, uint64_t step, const char *tag, const char *png);
int  event_file_flush(EventFile *e, Err *err);
int  event_file_close(EventFile *e, Err *err);
int  is_event_file(const char *name);                    // of TensorBoard's
#endif
