// log.c - see log.h.
#include "base/log.h"
#include "base/text.h"
#include <math.h>
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

// "[=====     ] " with that number of cells; nothing where they are too few.
static void bar(char dst[32], uint64_t done, uint64_t total, int cells) {
    const double part = total ? (double)(done < total ? done : total) / (double)total : 0;
    char *at = dst;
    if (cells >= 4) {
        *at++ = '[';
        for (int i = 0; i < cells; i++) *at++ = i < (int)(part * cells) ? '=' : ' ';
        *at++ = ']';
        *at++ = ' ';
    }
    *at = 0;
}

// Puts a part at the end of the line, two spaces after what is there.
static void add(char *line, size_t n, const char *part) {
    const size_t used = strlen(line);
    if (*part) snprintf(line + used, n - used, "%s%s", used ? "  " : "", part);
}

// Three digits: "0.25", "12.3", "456", "12,300", "4,100,000".
static void format_rate(char dst[48], double rate) {
    double step = 1;
    if (rate < 999.5) {
        snprintf(dst, 48, "%.3g", rate);
        return;
    }
    while (rate / step >= 999.5) step *= 10;
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", fmin(rint(rate / step) * step, 1e18));
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) *dst++ = ',';
        *dst++ = digits[i];
    }
    *dst = 0;
}

// In a narrow terminal the bar shrinks first, then the speed goes, then the end of the text.
static void draw(const Progress *p, const char *text, int at_end) {
    enum { CELLS = 20, FRAME = 3 };
    char line[512] = "", full[512] = "", count[96], speed[96] = "", time[48] = "", picture[32];
    const double spent = now_seconds() - p->start;
    const double rate = spent > 0 ? (double)(p->done - p->first) / spent : 0;
    const uint64_t to_go = p->total > p->done ? p->total - p->done : 0;
    snprintf(count, sizeof count, "%llu/%llu %s", (unsigned long long)p->done,
             (unsigned long long)p->total, p->unit);
    if (rate > 0 && (at_end || spent > 0.5)) { // before, it says little
        char t[32], number[48];
        format_rate(number, rate);
        if (spent > 0.5) snprintf(speed, sizeof speed, "%s %s/s", number, p->unit);
        format_time(t, at_end ? spent : (double)to_go / rate);
        snprintf(time, sizeof time, at_end ? "in %s" : "%s left", t);
    }
    const char *const with_speed[] = { count, speed, time, text ? text : "" };
    for (int i = 0; i < 4; i++) {
        add(full, sizeof full, with_speed[i]);
        if (i != 1) add(line, sizeof line, with_speed[i]);
    }
    if (!p->terminal) {
        fprintf(p->out, "%s\n", full);
    } else {
        const int room = width_of(p->out) - 1;   // the last column would wrap on some terminals
        const int left = room - text_width(full) - FRAME;
        bar(picture, p->done, p->total, left < CELLS ? left : CELLS);
        char *shown = text_width(full) <= room ? full : line;
        text_cut(shown, room);
        fprintf(p->out, "\r%s%s\x1b[K", picture, shown);
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
