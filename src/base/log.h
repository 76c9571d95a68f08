// log.h - progress of long-running work, for people. Writes only to the stream that it is given.
#ifndef LOG_H
#define LOG_H
#include <stdint.h>
#include <stdio.h>

// On a terminal one line that is redrawn (at most ten times per second): a bar, the rate, the time
// left, and `text`. Elsewhere a plain line at most every `every` seconds and at the end.
typedef struct {
    FILE    *out;            // NULL: silent
    int      terminal;
    double   every, start, last;
    uint64_t first, done, total;   // `first`: where this process began (a resumed run)
    const char *unit;
} Progress;

Progress progress_start(FILE *out, const char *unit, uint64_t first, uint64_t total);
void     progress_at(Progress *p, uint64_t done, const char *text);
void     progress_note(Progress *p, const char *line);      // a lasting line above the bar
void     progress_end(Progress *p, const char *text);
void     format_time(char dst[32], double seconds);          // "3 h 05 min", "4 min 12 s", "12 s"
double   now_seconds(void);                                   // monotonic
#endif
