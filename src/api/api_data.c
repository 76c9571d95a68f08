// api_data.c - jempp.h's image sets: list, check and fetch them.
#include "api/api.h"
#include "base/json.h"
#include "base/text.h"
#include "base/text_out.h"
#include "data/run_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *data_dir(const Config *c) { return c->data_dir[0] ? c->data_dir : NULL; }

static char *list_json(const SetInfo *info, int n, Err *err) {
    JsonOut j = { .indent = 2 };
    json_open_array(&j, NULL);
    for (int i = 0; i < n; i++) {
        json_open_object(&j, NULL);
        json_put_string(&j, "name", info[i].name);
        json_put_string(&j, "about", info[i].about);
        json_put_bool(&j, "train", info[i].train);
        json_put_bool(&j, "test", info[i].test);
        json_put_bool(&j, "fetchable", info[i].fetchable);
        json_put_string(&j, "found", info[i].found[0] ? info[i].found : NULL);
        json_put_string(&j, "damaged", info[i].damaged[0] ? info[i].damaged : NULL);
        json_close(&j);
    }
    json_close(&j);
    return json_finish(&j, NULL, err);
}

// Which of its images are here.
static const char *parts_found(const SetInfo *s) {
    if (s->damaged[0]) return "damaged";
    if (s->train && s->test) return "yes";
    return s->train ? "training images only" : s->test ? "test images only" : "no";
}

static void put_set(FILE *f, const SetInfo *s) {
    fprintf(f, "%-14s %-58s %s", s->name, s->about, parts_found(s));
    if (s->damaged[0])
        fprintf(f, ": %s in %s is incomplete (jempp data fetch %s)", s->damaged, s->found, s->name);
    else if (s->found[0]) fprintf(f, ": %s", s->found);
    else if (s->fetchable) fprintf(f, " (jempp data fetch %s)", s->name);
    fprintf(f, "\n");
}

static char *data_list_text(const Config *c, Err *err) {
    SetInfo info[16];
    TextOut out;
    const int n = data_list(data_dir(c), info, 16);
    if (c->json) return list_json(info, n, err);
    if (text_open(&out, "a text", err)) return NULL;
    for (int i = 0; i < n; i++) put_set(out.f, &info[i]);
    return text_close(&out, err);
}

static void describe_half(FILE *f, const Set *s, Half half) {
    size_t least = s->n, most = 0;
    for (int k = 0; k < s->classes; k++) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++) n += s->y[i] == k;
        if (n < least) least = n;
        if (n > most) most = n;
    }
    fprintf(f, "%s: %zu %s image%s, %d x %d x %d, %d class%s of %zu", s->name, s->n,
            half == HALF_TRAIN ? "training" : "test", plural((double)s->n), s->c, s->side, s->side,
            s->classes, s->classes == 1 ? "" : "es", least);
    if (least < most) fprintf(f, " to %zu", most);
    fprintf(f, "; %s\n", s->from);
}

// What was reported of a folder's pictures, in one sentence.
static int sum_up(const Problems *p, const char *name, const Events *ev, Err *err) {
    const size_t n = p->unreadable + p->classes;
    char more[64];
    if (!n) return 0;
    snprintf(more, sizeof more, "... and %zu more", n - MOST_PROBLEMS);
    if (n > MOST_PROBLEMS) tell_line(ev, more);
    err_set(err, ERR_DATA, "%s: ", name);
    if (p->classes)
        err_append(err, "%zu class%s without a picture%s", p->classes, p->classes == 1 ? "" : "es",
                   p->unreadable ? ", " : "");
    if (p->unreadable)
        err_append(err, "%zu of %zu picture%s cannot be used", p->unreadable, p->pictures,
                   plural((double)p->pictures));
    return err_append(err, ": replace or remove what is listed above");
}

static char *data_check_text(const Config *c, const char *name, const Events *ev, Err *err) {
    Problems problems = { 0 };
    DataOpts o = data_opts(c, ev);
    o.problems = &problems;
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    int rc = 0;
    for (Half half = HALF_TRAIN; !rc && half <= HALF_TEST; half++) {
        Set s;
        rc = set_load(&s, name, half, &o, err);
        if (rc) break;
        describe_half(out.f, &s, half);
        set_free(&s);
    }
    if (!rc) rc = sum_up(&problems, name, ev, err);
    char *text = text_close(&out, err);
    if (!rc) return text;
    free(text);
    return NULL;
}

static char *inception_text(const Config *c, Err *err) {
    char path[512], *text = NULL;
    if (data_inception(path, sizeof path, data_dir(c), err)) return NULL;
    if (asprintf(&text, "inception: %s\n", path) >= 0) return text;
    err_set(err, ERR_MEM, "out of memory for a text");
    return NULL;
}

static char *data_fetch_text(const Config *c, const char *name, const Events *ev, Err *err) {
    if (data_fetch(name, data_dir(c), c->url[0] ? c->url : NULL, ev, err)) return NULL;
    if (!strcmp(name, "inception")) return inception_text(c, err);
    return data_check_text(c, name, ev, err);
}

static char *data_text(const JemppOptions *o, const Events *ev, Err *err) {
    const char *what = jempp_file(o, 0), *name = jempp_file(o, 1);
    if (what && !strcmp(what, "list") && !name) return data_list_text(&o->cfg, err);
    if (o->cfg.json && what) {
        err_set(err, ERR_ARG, "--json: only for data list");
        return NULL;
    }
    if (what && !strcmp(what, "check") && o->n_file == 2)
        return data_check_text(&o->cfg, name, ev, err);
    if (what && !strcmp(what, "fetch") && o->n_file == 2)
        return data_fetch_text(&o->cfg, name, ev, err);
    err_set(err, ERR_ARG, "data %s%s%s: expected %s", what ? what : "", name ? " " : "",
            name ? name : "", o->command->names);
    return NULL;
}

char *jempp_data(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    char *text = data_text(o, &events, &e);
    if (!text) api_fail(err, &e);
    return text;
}
