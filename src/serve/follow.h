// follow.h - a run's log.tsv while it grows: every row is read once and added to a curve of at most
// CURVE_POINTS points, so that memory does not grow with the run.
#ifndef FOLLOW_H
#define FOLLOW_H
#include "run/train_log.h"
#include <sys/types.h>

enum { CURVE_POINTS = 1024, RATE_ROWS = 64 };

typedef struct { double sum[N_LOG]; unsigned n[N_LOG]; } Point;      // over rows; NaN left out

typedef struct {
    int      n, rows_per_point;         // points; a power of two
    int      in_last;                   // rows of the last point
    Point   *point;                     // [CURVE_POINTS]
    uint64_t rows;
    double   last[N_LOG];               // the newest row; NaN: there is none
    double   best_valid, valid;         // the best and the newest validation accuracy, or NaN
    double   step[RATE_ROWS], seconds[RATE_ROWS];       // of the newest rows, a ring
} Curve;

typedef struct {
    Curve  curve;
    dev_t  dev;                         // the file that was read ...
    ino_t  ino;
    off_t  at;                          // ... up to here, where a line ends
    char   tail[64];                    // the last bytes before it: a run that rolls back cuts the
    int    n_tail;                      // log, and may have written past `at` again
    int    which[64], n_field;          // LogColumn of each of the file's columns, or -1
    uint64_t line;
    char   error[200];                  // "": none
} Follow;

// Reads what is new in the folder's log. Nonzero: something changed.
int  follow_poll(Follow *f, const char *dir);
void follow_free(Follow *f);
double curve_mean(const Curve *c, int i, LogColumn k);         // of point i; NaN: nothing
double curve_rate(const Curve *c);                              // steps per second; NaN: unknown
#endif
