// log.c - see log.h.
#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void format_time(char dst[32], double seconds) {
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(dst, 32, "?");
        return;
    }
    const long s = (long)(seconds + 0.5), min = s / 60, h = min / 60;
    if (h >= 48) snprintf(dst, 32, "%ld d %02ld h", h / 24, h % 24);
    else if (h) snprintf(dst, 32, "%ld h %02ld min", h, min % 60);
    else if (min) snprintf(dst, 32, "%ld min %02ld s", min, s % 60);
    else snprintf(dst, 32, "%ld s", s);
}

Progress progress_start(FILE *out, const char *unit, uint64_t first, uint64_t total) {
    const double now = now_seconds();
    return (Progress){ .out = out,
                       .terminal = out && isatty(fileno(out)),
                       .every = 10,
                       .start = now,
                       .last = now - 1e9,
                       .first = first,
                       .done = first,
                       .total = total,
                       .unit = unit };
}

static int width_of(FILE *out) {
    struct winsize ws;
    const char *columns = getenv("COLUMNS");
    const int n = columns ? atoi(columns) : 0;
    if (n > 0) return n;
    return !ioctl(fileno(out), TIOCGWINSZ, &ws) && ws.ws_col > 0 ? ws.ws_col : 80;
}

// Ends s after n characters (a character of UTF-8 is one, whatever its bytes).
static void cut(char *s, int n) {
    for (; *s; s++) {
        if ((*s & 0xc0) == 0x80) continue;
        if (n-- <= 0) break;
    }
    *s = 0;
}

static void bar(char dst[24], uint64_t done, uint64_t total) {
    enum { CELLS = 20 };
    const double part = total ? (double)(done < total ? done : total) / (double)total : 0;
    char cells[CELLS + 1];
    for (int i = 0; i < CELLS; i++) cells[i] = i < (int)(part * CELLS) ? '=' : ' ';
    cells[CELLS] = 0;
    snprintf(dst, 24, "[%s] ", cells);
}

static void draw(const Progress *p, const char *text, int at_end) {
    char line[512], time[32], picture[24] = "";
    const double spent = now_seconds() - p->start;
    const double rate = spent > 0 ? (double)(p->done - p->first) / spent : 0;
    const uint64_t to_go = p->total > p->done ? p->total - p->done : 0;
    if (at_end) format_time(time, spent);
    else format_time(time, rate > 0 ? (double)to_go / rate : -1);
    if (p->terminal) bar(picture, p->done, p->total);
    snprintf(line, sizeof line, "%s%llu/%llu %s  %.3g %s/s  %s%s  %s", picture,
             (unsigned long long)p->done, (unsigned long long)p->total, p->unit, rate, p->unit,
             at_end ? "in " : time, at_end ? time : " left", text ? text : "");
    if (p->terminal) {
        cut(line, width_of(p->out) - 1);         // the last column would wrap on some terminals
        fprintf(p->out, "\r%s\x1b[K", line);
    } else {
        fprintf(p->out, "%s\n", line);
    }
    fflush(p->out);
}

void progress_at(Progress *p, uint64_t done, const char *text) {
    p->done = done;
    if (!p->out) return;
    const double now = now_seconds();
    if (now - p->last < (p->terminal ? 0.1 : p->every)) return;
    p->last = now;
    draw(p, text, 0);
}

void progress_note(Progress *p, const char *line) {
    if (!p->out) return;
    fprintf(p->out, p->terminal ? "\r%s\x1b[K\n" : "%s\n", line);
    if (p->terminal) p->last -= 1;               // the bar comes back with the next progress_at
    fflush(p->out);
}

void progress_end(Progress *p, const char *text) {
    if (!p->out) return;
    draw(p, text, 1);
    if (p->terminal) fprintf(p->out, "\n");
    fflush(p->out);
    p->out = NULL;
}
