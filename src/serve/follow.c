// follow.c - see follow.h.
#include "serve/follow.h"
#include "run/folder.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };

// ---- the curve --------------------------------------------------------------------------------

static void point_add(Point *to, const Point *p) {
    for (int k = 0; k < N_LOG; k++) {
        to->sum[k] += p->sum[k];
        to->n[k] += p->n[k];
    }
}

// Full: two points become one.
static void curve_halve(Curve *c) {
    for (int i = 0; i < c->n / 2; i++) {
        c->point[i] = c->point[2 * i];
        point_add(&c->point[i], &c->point[2 * i + 1]);
    }
    c->n /= 2;
    c->rows_per_point *= 2;
}

static void curve_add(Curve *c, const double row[N_LOG]) {
    Point p = { 0 };
    for (int k = 0; k < N_LOG; k++)
        if (!isnan(row[k])) p.sum[k] = row[k], p.n[k] = 1;
    if (c->in_last == c->rows_per_point || !c->n) {
        if (c->n == CURVE_POINTS) curve_halve(c);
        c->point[c->n++] = (Point){ 0 };
        c->in_last = 0;
    }
    point_add(&c->point[c->n - 1], &p);
    c->in_last++;
    memcpy(c->last, row, sizeof c->last);
    if (!isnan(row[LOG_VALID])) {
        c->valid = row[LOG_VALID];
        c->best_valid = fmax(c->best_valid, c->valid);          // fmax takes no NaN
    }
    c->step[c->rows % RATE_ROWS] = row[LOG_STEP];
    c->seconds[c->rows % RATE_ROWS] = row[LOG_SECONDS];
    c->rows++;
}

double curve_mean(const Curve *c, int i, LogColumn k) {
    const Point *p = &c->point[i];
    return p->n[k] ? p->sum[k] / p->n[k] : NAN;
}

double curve_rate(const Curve *c) {
    if (c->rows < 2) return NAN;
    const uint64_t n = c->rows < RATE_ROWS ? c->rows : RATE_ROWS;
    const uint64_t old = (c->rows - n) % RATE_ROWS, now = (c->rows - 1) % RATE_ROWS;
    const double s = c->seconds[now] - c->seconds[old];
    return s > 0 ? (c->step[now] - c->step[old]) / s : NAN;
}

// ---- the file ---------------------------------------------------------------------------------

static int restart(Follow *f) {
    Point *point = f->curve.point ? f->curve.point : malloc(CURVE_POINTS * sizeof *point);
    *f = (Follow){ .curve = {
                       .point = point, .rows_per_point = 1, .valid = NAN, .best_valid = NAN } };
    for (int k = 0; k < N_LOG; k++) f->curve.last[k] = NAN;
    return point ? 0 : -1;
}

void follow_free(Follow *f) {
    free(f->curve.point);
    *f = (Follow){ 0 };
}

static int fail(Follow *f, const char *what) {
    snprintf(f->error, sizeof f->error, "log.tsv, line %llu: %s", (unsigned long long)f->line,
             what);
    return -1;
}

static int read_head(Follow *f, char *line) {
    int found = 0;
    for (char *at = line, *name; (name = strsep(&at, "\t"));) {
        if (f->n_field == (int)(sizeof f->which / sizeof *f->which))
            return fail(f, "too many columns");
        int k = N_LOG - 1;
        while (k >= 0 && strcmp(name, log_name[k]) != 0) k--;
        if (k >= 0) found |= 1 << k;
        f->which[f->n_field++] = k;
    }
    const int needed = 1 << LOG_STEP | 1 << LOG_EPOCH;
    return (found & needed) == needed ? 0 : fail(f, "no columns 'step' and 'epoch'");
}

static int read_row(Follow *f, char *line) {
    double row[N_LOG];
    int n = 0;
    for (int k = 0; k < N_LOG; k++) row[k] = NAN;
    for (char *at = line, *text; (text = strsep(&at, "\t")); n++) {
        if (n == f->n_field) return fail(f, "too many fields");
        char *end;
        const double v = strtod(text, &end);
        if (*end) return fail(f, "expected numbers");
        if (f->which[n] >= 0 && *text && fabs(v) <= 1e15) row[f->which[n]] = v;
    }
    if (n != f->n_field) return fail(f, "too few fields");
    if (!(row[LOG_STEP] >= 0) || !(row[LOG_EPOCH] >= 0) || row[LOG_STEP] <= f->curve.last[LOG_STEP])
        return fail(f, "its step does not follow the one before");
    curve_add(&f->curve, row);
    return 0;
}

static int read_line(Follow *f, char *line) {
    f->line++;
    return f->line == 1 ? read_head(f, line) : read_row(f, line);
}

static void keep_tail(Follow *f, const char *end, size_t n) {
    f->n_tail = n < sizeof f->tail ? (int)n : (int)sizeof f->tail;
    memcpy(f->tail, end - f->n_tail, (size_t)f->n_tail);
}

// What was read before is still there.
static int continues(const Follow *f, int fd, const struct stat *s) {
    char now[sizeof f->tail];
    return f->curve.point && f->dev == s->st_dev && f->ino == s->st_ino && s->st_size >= f->at &&
           pread(fd, now, (size_t)f->n_tail, f->at - f->n_tail) == f->n_tail &&
           !memcmp(now, f->tail, (size_t)f->n_tail);
}

// A last line without its end is one that is still being written.
static int read_on(Follow *f, int fd, char *block) {
    for (;;) {
        const ssize_t n = pread(fd, block, BLOCK, f->at);
        if (n <= 0) return 0;
        char *end = memrchr(block, '\n', (size_t)n);
        if (!end) return n == BLOCK ? fail(f, "too long") : 0;
        if (memchr(block, 0, (size_t)(end - block))) return fail(f, "a NUL byte");
        keep_tail(f, end + 1, (size_t)(end + 1 - block));
        f->at += end + 1 - block;
        for (char *line = block, *stop; line <= end; line = stop + 1) {
            stop = memchr(line, '\n', (size_t)(end - line) + 1);
            *stop = 0;
            if (read_line(f, line)) return -1;
        }
    }
}

int follow_poll(Follow *f, const char *dir) {
    char path[RUN_PATH];
    struct stat s;
    if (run_path(path, dir, RUN_LOG, NULL)) return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const off_t at = f->at;
    int changed = 0;
    if (fd >= 0 && !fstat(fd, &s) && S_ISREG(s.st_mode)) {
        const int goes_on = continues(f, fd, &s);
        if (!goes_on && restart(f)) s.st_size = 0;
        char *block = (!f->error[0] && s.st_size > f->at) ? malloc(BLOCK) : NULL;
        if (block) (void)read_on(f, fd, block);
        free(block);
        f->dev = s.st_dev;
        f->ino = s.st_ino;
        changed = !goes_on || f->at != at;
    }
    if (fd >= 0) close(fd);
    return changed;
}
