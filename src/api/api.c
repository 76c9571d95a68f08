// api.c - what jempp.h has beside options, image sets and models: help, events on a terminal,
// devices, and the commands that return a text or serve.
#include "api/api.h"
#include "api/bench.h"
#include "api/help.h"
#include "api/info.h"
#include "api/output.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_out.h"
#include "base/version.h"
#include "eval/fid_text.h"
#include "report/report.h"
#include "report/tensorboard.h"
#include "run/model.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>

const char *jempp_version(void) { return version_text(); }

_Static_assert(sizeof(JemppErr) == sizeof(Err) && JEMPP_ERR_DIVERGED == (int)ERR_DIVERGED,
               "JemppErr is Err by another name");

int api_fail(JemppErr *to, const Err *from) {
    if (!to || to->kind != JEMPP_OK) return -1;
    to->kind = (int)from->kind;
    memcpy(to->msg, from->msg, sizeof to->msg);
    return -1;
}

int jempp_rank(void) { return comm_own_rank(); }

char *jempp_help(const char *command) {
    DECIMAL_POINT;
    return help_text(command);
}

char *jempp_doc(const char *name) {
    DECIMAL_POINT;
    return doc_text(name);
}

// ---- events on a terminal -----------------------------------------------------------------

typedef struct {
    FILE    *out;
    Progress bar;
    int      open;
    char     unit[32];
} Terminal;

static void show_line(void *ctx, const char *line) {
    Terminal *t = ctx;
    char text[2048];
    snprintf(text, sizeof text, "%s", line);
    tame(text);                                             // names of files could steer it
    if (t->open) {
        progress_note(&t->bar, text);
    } else {
        fprintf(t->out, "%s\n", text);
        fflush(t->out);
    }
}

static void show_progress(void *ctx, uint64_t first, uint64_t done, uint64_t total,
                          const char *unit, const char *text) {
    Terminal *t = ctx;
    if (!t->open || strcmp(t->unit, unit) != 0) {
        if (t->open) progress_end(&t->bar, "");
        snprintf(t->unit, sizeof t->unit, "%s", unit);
        // what was done before the first call took a time that is not known
        t->bar = progress_start(t->out, t->unit, done < total ? done : first, total);
        t->open = 1;
    }
    t->bar.total = total;                             // an estimate may change on the way
    if (done < total) {
        progress_at(&t->bar, done, text);
    } else {
        t->bar.done = done;
        progress_end(&t->bar, text);
        t->open = 0;
    }
}

JemppEvents jempp_terminal(FILE *out) {
    Terminal *t = calloc(1, sizeof *t);
    if (!t) return (JemppEvents){ 0 };                // silent, but it works
    t->out = out;
    return (JemppEvents){ .line = show_line, .progress = show_progress, .ctx = t };
}

void jempp_terminal_close(JemppEvents *ev) {
    Terminal *t = ev->ctx;
    if (t && t->open) progress_end(&t->bar, "");
    free(t);
    *ev = (JemppEvents){ 0 };
}

int jempp_text_width(const char *text) { return text_width(text); }
const char *jempp_text_shorten(char *dst, size_t n, const char *text, int width) {
    return text_shorten(dst, n, text, width);
}
const char *jempp_shell_word(char *dst, size_t n, const char *name) {
    return shell_word(dst, n, name);
}

// ---- devices, info and bench --------------------------------------------------------------

// The images are as large as those that a preset trains on, unless options say otherwise.
static void take_shape(Config *c) {
    int channels, side, classes;
    if (set_shape(c->data, &channels, &side, &classes)) return;
    if (!c->channels) c->channels = channels;
    if (!c->side) c->side = side;
    if (!c->n_classes) c->n_classes = classes;
}

char *jempp_bench(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    Config c = o->cfg;
    take_shape(&c);
    char *text = bench_text(&c, &events, &e);
    if (!text) api_fail(err, &e);
    return text;
}

static char *compare_sets(const JemppOptions *o, const Events *ev, Err *err) {
    if (o->n_file == 2) return fid_text(&o->cfg, o->file[0], o->file[1], ev, err);
    err_set(err, ERR_ARG, "fid: expected images and their reference, or --out; found '%s' alone",
            o->n_file ? o->file[0] : "");
    return NULL;
}

static char *write_statistics(const JemppOptions *o, const Events *ev, Err *err) {
    if (o->n_file != 1) err_set(err, ERR_ARG, "with --out, expected one set of images; found two");
    else if (!output_statistics(o->cfg.out, o->cfg.force, err))
        return fid_statistics(&o->cfg, o->file[0], ev, err);
    return NULL;
}

char *jempp_fid(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    char *text = *o->cfg.out ? write_statistics(o, &events, &e) : compare_sets(o, &events, &e);
    if (!text) api_fail(err, &e);
    return text;
}

char *jempp_devices(void) {
    TextOut out;
    if (text_open(&out, "a text", NULL)) return NULL;
    for (const char *const *name = dev_names; *name; name++) {
        Dev dev;
        Err why = { 0 };
        if (dev_open(&dev, *name, &(DevOpts){ 0 }, NULL, &why)) {
            fprintf(out.f, "%-4s  unavailable: %s\n", *name, why.msg);
        } else {
            fprintf(out.f, "%-4s  %s\n", *name, dev.be.describe(&dev));
            dev_close(&dev);
        }
    }
    return text_close(&out, NULL);
}

// The model is opened on the plain device, which starts at once; memory is asked of the user's.
static char *info_of_file(const JemppOptions *o, Err *err) {
    static const char *const of_net[] = {
        "model", "norm", "stem", "side", "channels", "num-classes"
    };
    Config use = o->cfg;
    for (size_t i = 0; i < sizeof of_net / sizeof *of_net; i++)
        if (config_asked(&use, of_net[i])) {
            err_set(err, ERR_ARG, "--%s: the network is that of %s; leave it out", of_net[i],
                    o->file[0]);
            return NULL;
        }
    Jempp *j = calloc(1, sizeof *j);
    if (!j) err_set(err, ERR_MEM, "out of memory for a model");
    strcpy(use.device, "ref");
    if (!j || model_open(j, &use, o->file[0], err)) {
        free(j);
        return NULL;
    }
    char *text = info_text(j, &o->cfg, err);
    jempp_close(j);
    return text;
}

char *jempp_info(const JemppOptions *o, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    char *text = NULL;
    if (!jempp_check_files(o, err))
        text = o->n_file ? info_of_file(o, &e) : info_text(NULL, &o->cfg, &e);
    if (!text && e.kind) api_fail(err, &e);
    return text;
}

// ---- report -------------------------------------------------------------------------------

char *jempp_report(const JemppOptions *o, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    char *text = NULL;
    if (o->cfg.out[0] && o->cfg.tensorboard)
        err_set(&e, ERR_ARG, "--out %s: for the page; --tensorboard writes to the run folder",
                o->cfg.out);
    if (e.kind || (o->cfg.out[0] && output_page(o->cfg.out, o->cfg.force, &e))) {
        api_fail(err, &e);
        return NULL;
    }
    if (!jempp_check_files(o, err))
        text = o->cfg.tensorboard ? tensorboard_write(o->file[0], &e)
                                  : report_write(o->file[0], o->cfg.out, &e);
    if (!text && e.kind) api_fail(err, &e);
    return text;
}

// ---- serve --------------------------------------------------------------------------------

int jempp_serve(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    if (jempp_check_files(o, err)) return -1;
    return serve(&o->cfg, jempp_file(o, 0), &events, &e) ? api_fail(err, &e) : 0;
}
