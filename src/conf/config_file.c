// config_file.c - options out of files, texts and presets: one "option = value" per line. See
// config.h.
#include "base/file.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "conf/config.h"
#include "conf/nearest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 << 10, MAX_LINE = 1024 };

// Options that were removed, and the values at which they changed nothing.
static const struct {
    const char *name, *neutral;
} REMOVED[] = { { "sam-every", "1" }, { "cutout", "0" } };

typedef struct {
    const char *where;
    int line, any;                        // `any`: an option has been set
    int stored;                           // those of a model
    int line_of[sizeof((Config *)0)->given];
} Reading;

static char *trimmed(char *s) {
    while (*s == ' ' || *s == '\t') s++;
    for (size_t n = strlen(s); n && strchr(" \t\r", s[n - 1]); n--) s[n - 1] = 0;
    return s;
}

static int can_be_ignored(const char *name, const char *value, int stored) {
    for (size_t i = 0; i < sizeof REMOVED / sizeof *REMOVED; i++)
        if (!strcmp(REMOVED[i].name, name)) return stored || !strcmp(REMOVED[i].neutral, value);
    return 0;
}

static int read_line(Config *c, Reading *r, char *line, Err *err) {
    char where[768];
    char *name = trimmed(line), *equals = strchr(name, '=');
    if (!*name || *name == '#') return 0;
    if (!equals || equals == name)
        return err_set(err, ERR_ARG, "%s, line %d: found '%.*s', expected option = value", r->where,
                       r->line, text_whole(name, 100), name);
    *equals = 0;
    name = trimmed(name);
    char *value = trimmed(equals + 1);
    snprintf(where, sizeof where, "%.600s, line %d: %.100s", r->where, r->line, name);
    const OptRow *row = config_row(name);
    if (!row && can_be_ignored(name, value, r->stored)) return 0;
    if (!row) return config_unknown(name, where, ~0u, err);
    if (row->type == T_FILE)
        return err_set(err, ERR_ARG, "%s: a config file cannot include another", where);
    if (row->type == T_PRESET && r->any)
        return err_set(err, ERR_ARG, "%s: must come before all other options", where);
    int *first = &r->line_of[row - config_rows];
    if (*first) return err_set(err, ERR_ARG, "%s: already given on line %d", where, *first);
    *first = r->line;
    r->any = 1;
    return config_set(c, name, value, where, err);
}

static int read_text(Config *c, const char *text, size_t n, const char *where, int stored,
                     Err *err) {
    Reading r = { .where = where, .stored = stored };
    if (n > MAX_FILE)
        return err_set(err, ERR_ARG, "%s: %zu bytes, expected at most %d", where, n, (int)MAX_FILE);
    const size_t mark = n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;     // of UTF-8
    for (size_t at = mark; at < n;) {
        char line[MAX_LINE + 1];
        const char *end = memchr(text + at, '\n', n - at);
        const size_t len = end ? (size_t)(end - text) - at : n - at;
        r.line++;
        if (len > MAX_LINE)
            return err_set(err, ERR_ARG, "%s, line %d: %zu bytes, expected at most %d", where,
                           r.line, len, (int)MAX_LINE);
        if (memchr(text + at, 0, len))
            return err_set(err, ERR_ARG, "%s, line %d: a zero byte", where, r.line);
        memcpy(line, text + at, len);
        line[len] = 0;
        if (read_line(c, &r, line, err)) return -1;
        at += len + 1;
    }
    return 0;
}

int config_text(Config *c, const char *text, size_t n, const char *where, Err *err) {
    return read_text(c, text, n, where, 0, err);
}

int config_stored(Config *c, const char *text, const char *where, Err *err) {
    return read_text(c, text, strlen(text), where, 1, err);
}

int config_file(Config *c, const char *path, Err *err) {
    char *text;
    size_t n;
    if (text_expected(path, "lines of the form option = value", err)) return -1;
    if (file_read(path, MAX_FILE, &text, &n, err)) return -1;
    const int rc = config_text(c, text, n, path, err);
    free(text);
    return rc;
}

static int unknown_preset(const char *name, Err *err) {
    int n = 0;
    size_t at = 0;
    char list[512] = "";
    for (; preset_table[n].name; n++)
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", n ? ", " : "",
                                   preset_table[n].name);
    const char *meant = NULL;
    for (int i = 0; i < n; i++) nearer(name, preset_table[i].name, &meant);
    if (meant)
        return err_set(err, ERR_ARG, "preset '%.64s': no such preset; did you mean %s?", name,
                       meant);
    return err_set(err, ERR_ARG, "preset '%.64s': no such preset; there are %s", name, list);
}

int config_preset(Config *c, const char *name, Err *err) {
    char where[96];
    for (const Preset *p = preset_table; p->name; p++) {
        if (strcmp(p->name, name) != 0) continue;
        unsigned char before[sizeof c->given];
        memcpy(before, c->given, sizeof before);
        memset(c->given, 0, sizeof c->given);
        snprintf(where, sizeof where, "preset %s", p->name);
        const int rc = config_text(c, p->text, strlen(p->text), where, err);
        for (size_t i = 0; i < sizeof before; i++)
            c->given[i] = c->given[i] ? BY_PRESET : before[i];
        if (rc) return -1;
        snprintf(c->preset, sizeof c->preset, "%s", p->name);
        c->given[config_row("preset") - config_rows] = BY_USER;
        return 0;
    }
    return unknown_preset(name, err);
}
