// config.c - see config.h.
#include "base/text.h"
#include "base/text_out.h"
#include "conf/config.h"
#include "conf/nearest.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const OptRow *config_row(const char *name) {
    for (const OptAlias *a = config_aliases; a->former; a++)
        if (!strcmp(a->former, name)) name = a->name;
    for (int i = 0; i < config_n_rows; i++)
        if (!strcmp(config_rows[i].name, name)) return &config_rows[i];
    return NULL;
}

const char *config_former(const char *name) {
    for (const OptAlias *a = config_aliases; a->former; a++)
        if (!strcmp(a->name, name)) return a->former;
    return NULL;
}

int config_unknown(const char *name, const char *where, unsigned commands, Err *err) {
    const char *dashes = where[0] == '-' ? "--" : "", *meant = NULL;
    for (int i = 0; i < config_n_rows; i++)
        if (config_rows[i].commands & commands) nearer(name, config_rows[i].name, &meant);
    if (!meant) return err_set(err, ERR_ARG, "%s: no such option", where);
    return err_set(err, ERR_ARG, "%s: no such option; did you mean %s%s?", where, dashes, meant);
}

// ---- values -------------------------------------------------------------------------------

static void *place(Config *c, const OptRow *row) { return (char *)c + row->at; }
static const void *place_of(const Config *c, const OptRow *row) {
    return (const char *)c + row->at;
}

// The index of `value` among "a|b|c", or -1.
static int choice(const char *choices, const char *value) {
    const size_t n = strlen(value);
    int i = 0;
    for (const char *at = choices; at; i++) {
        const char *bar = strchr(at, '|');
        const size_t len = bar ? (size_t)(bar - at) : strlen(at);
        if (len == n && !memcmp(at, value, n)) return i;
        at = bar ? bar + 1 : NULL;
    }
    return -1;
}

static void choice_name(const char *choices, int i, char *dst, size_t n) {
    for (; i > 0 && choices; i--) choices = strchr(choices, '|') ? strchr(choices, '|') + 1 : NULL;
    snprintf(dst, n, "%.*s", choices ? (int)strcspn(choices, "|") : 1, choices ? choices : "?");
}

static const char *plain_number(const char *s, double *v) {
    char *end;
    if (!*s || !strchr("+-.0123456789", *s)) return NULL; // strtod would take spaces, inf, nan
    *v = strtod(s, &end);
    return end == s || memchr(s, 'x', (size_t)(end - s)) || memchr(s, 'X', (size_t)(end - s)) ? NULL
                                                                                              : end;
}

// 0.03, 4e-4, 8/255
static const char *parse_number(const char *s, double *v) {
    const char *end = plain_number(s, v);
    if (!end || *end != '/') return end;
    double below;
    end = plain_number(end + 1, &below);
    *v /= end ? below : 1;
    return end;
}

static int refuse(const char *value, const char *where, const char *expected, Err *err) {
    return err_set(err, ERR_ARG, "%s: found '%.*s', expected %s%s", where, text_whole(value, 200),
                   value, expected,
                   strchr(value, '#') ? " (comments go on lines of their own)" : "");
}

static int set_number(void *at, const OptRow *row, const char *value, const char *where, Err *err) {
    double v = 0;
    char expected[96];
    const char *end = row->type == T_NUM ? parse_number(value, &v) : plain_number(value, &v);
    const int whole = row->type != T_NUM;
    if (!end || *end || !(v >= row->lo && v <= row->hi) || (whole && v != floor(v))) {
        snprintf(expected, sizeof expected, "a %snumber from %.16g to %.16g", whole ? "whole " : "",
                 row->lo, row->hi);
        return refuse(value, where, expected, err);
    }
    if (row->type == T_INT) *(int *)at = (int)v;
    else *(double *)at = v == 0 ? 0 : v;                           // no minus zero
    return 0;
}

static int set_flag(void *at, const char *value, const char *where, Err *err) {
    const int i = choice("off|on|no|yes|false|true|0|1", value);
    if (i < 0) return refuse(value, where, "on or off", err);
    *(int *)at = i & 1;
    return 0;
}

// What a text may be is what a line of a file can hold, so that every record can be read back.
static int set_text(void *at, const OptRow *row, const char *value, const char *where, Err *err) {
    const size_t n = strlen(value);
    if (n >= row->size)
        return err_set(err, ERR_ARG, "%s: found %zu bytes, expected at most %zu", where, n,
                       row->size - 1);
    for (const char *s = value; *s; s++)
        if (iscntrl((unsigned char)*s)) return refuse(value, where, "no control characters", err);
    if (n && (value[0] == ' ' || value[n - 1] == ' '))
        return refuse(value, where, "no space at the ends", err);
    if (strchr(row->choices, '|') && choice(row->choices, value) < 0) {
        char expected[160];
        snprintf(expected, sizeof expected, "one of %s", row->choices);
        return refuse(value, where, expected, err);
    }
    memmove(at, value, n + 1);
    return 0;
}

static int set_choice(void *at, const OptRow *row, const char *value, const char *where, Err *err) {
    const int i = choice(row->choices, value);
    char expected[160];
    snprintf(expected, sizeof expected, "one of %s", row->choices);
    if (i < 0) return refuse(value, where, expected, err);
    *(int *)at = i;
    return 0;
}

static int set_row(Config *c, const OptRow *row, const char *value, const char *where, Err *err) {
    switch (row->type) {
    case T_FLAG:   return set_flag(place(c, row), value, where, err);
    case T_INT:
    case T_NUM:
    case T_WHOLE:  return set_number(place(c, row), row, value, where, err);
    case T_TEXT:   return set_text(place(c, row), row, value, where, err);
    case T_CHOICE: return set_choice(place(c, row), row, value, where, err);
    case T_PRESET: return config_preset(c, value, err);
    case T_FILE:   return config_file(c, value, err);
    }
    return -1;
}

static const char *const LENGTHS[] = { "epochs", "iterations", "minutes" };

int config_is_length(const OptRow *row) {
    for (int i = 0; i < 3; i++)
        if (!strcmp(row->name, LENGTHS[i])) return 1;
    return 0;
}

// The one that was set last says how long a run is.
static void set_length(Config *c, const OptRow *row) {
    const double value[] = { c->epochs, c->iterations, c->minutes };
    for (int i = 0; i < 3; i++) {
        if (strcmp(row->name, LENGTHS[i]) != 0 || !(value[i] > 0)) continue;
        if (i != 0) c->epochs = 0;
        if (i != 1) c->iterations = 0;
        if (i != 2) c->minutes = 0;
        for (int k = 0; k < 3; k++)
            if (k != i) c->given[config_row(LENGTHS[k]) - config_rows] = 0;
    }
}

int config_set(Config *c, const char *name, const char *value, const char *where, Err *err) {
    const OptRow *row = config_row(name);
    if (!row) return config_unknown(name, where, ~0u, err);
    if (set_row(c, row, value, where, err)) return -1;
    c->given[row - config_rows] = BY_USER;
    set_length(c, row);
    return 0;
}

void config_defaults(Config *c) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < config_n_rows; i++)
        if (config_rows[i].type != T_PRESET && config_rows[i].type != T_FILE)
            (void)set_row(c, &config_rows[i], config_rows[i].value, config_rows[i].name, NULL);
}

int config_given(const Config *c, const char *name) {
    const OptRow *row = config_row(name);
    return row ? c->given[row - config_rows] : 0;
}

int config_asked(const Config *c, const char *name) { return config_given(c, name) == BY_USER; }

void config_of_run(Config *c) {
    for (size_t i = 0; i < sizeof c->given; i++) c->given[i] = c->given[i] ? BY_PRESET : 0;
}

int config_only(const Config *c, unsigned commands, const char *where, Err *err) {
    for (int i = 0; i < config_n_rows; i++)
        if (c->given[i] && !(config_rows[i].commands & commands))
            return err_set(err, ERR_DATA, "%s: %s: not an option of a run", where,
                           config_rows[i].name);
    return 0;
}

void config_take(Config *c, const Config *from) {
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        if (!from->given[i]) continue;
        memcpy(place(c, row), place_of(from, row), row->size);
        c->given[i] = from->given[i];
        set_length(c, row);
    }
}

// The shortest text that reads as the same number.
static void number_text(double v, char *dst, size_t n) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(dst, n, "%.*g", digits, v);
        if (strtod(dst, NULL) == v) return;
    }
}

void config_value(const Config *c, const OptRow *row, char *dst, size_t n) {
    const void *at = place_of(c, row);
    switch (row->type) {
    case T_FLAG:   snprintf(dst, n, "%s", *(const int *)at ? "on" : "off"); break;
    case T_INT:    snprintf(dst, n, "%d", *(const int *)at); break;
    case T_NUM:    number_text(*(const double *)at, dst, n); break;
    case T_WHOLE:  snprintf(dst, n, "%.0f", *(const double *)at); break;
    case T_CHOICE: choice_name(row->choices, *(const int *)at, dst, n); break;
    case T_TEXT:
    case T_PRESET: snprintf(dst, n, "%s", (const char *)at); break;
    case T_FILE:   snprintf(dst, n, "%s", ""); break;
    }
}

char *config_dump(const Config *c, unsigned commands) {
    char value[1024];
    TextOut out;
    if (text_open(&out, "options", NULL)) return NULL;
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        config_value(c, row, value, sizeof value);
        if (!(row->commands & commands) || row->type == T_FILE) continue;
        if (row->type == T_PRESET && !value[0]) continue;
        fprintf(out.f, "%s = %s\n", row->name, value);
    }
    return text_close(&out, NULL);
}

void config_json(const Config *c, JsonOut *j) {
    char value[1024];
    json_open_object(j, "options");
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        if (!(row->commands & CMD_TRAIN) || row->type == T_FILE) continue;
        config_value(c, row, value, sizeof value);
        json_put_string(j, row->name, value);
    }
    json_close(j);
}

// ---- what is opened with them ---------------------------------------------------------------

DevOpts config_dev(const Config *c) {
    return (DevOpts){ .threads = c->threads,
                      .conv = c->conv,
                      .precision = c->precision,
                      .deterministic = c->deterministic };
}

static int first_of(int a, int b, int otherwise) { return a ? a : b ? b : otherwise; }

int config_net(NetSpec *spec, const Config *c, int channels, int side, int classes, Err *err) {
    *spec = (NetSpec){ .channels = first_of(channels, c->channels, 3),
                       .side = first_of(side, c->side, 32),
                       .classes = first_of(classes, c->n_classes, 10),
                       .norm = c->norm,
                       .stem = c->stem };
    return net_parse(spec, c->model, err);
}

// ---- lists of numbers ---------------------------------------------------------------------

int config_rising(const char *text, const RisingNumbers *of, double *dst, int max, Err *err) {
    int n = 0;
    for (const char *s = text; *s; n++) {
        double v = 0;
        const char *end = parse_number(s, &v);
        if (!end || (*end && *end != ',') || (*end == ',' && !end[1]) ||
            !(v >= of->lo && v <= of->hi) || (n && v <= dst[n - 1]))
            return err_set(err, ERR_ARG, "%s: found '%s', expected %s", of->name, text,
                           of->expected);
        if (n == max)
            return err_set(err, ERR_ARG, "%s: '%s' has more than %d", of->name, text, max);
        dst[n] = v;
        s = *end ? end + 1 : end;
    }
    return n;
}

int config_fractions(const char *text, double *dst, int max, Err *err) {
    const RisingNumbers fractions = { "decay-at", nextafter(0, 1), nextafter(1, 0),
                                      "rising fractions below 1, as 1/3,2/3,5/6" };
    return config_rising(text, &fractions, dst, max, err);
}
