// api.c - the public header's part around the model: options, events, info, bench, data.
#include "api/api.h"
#include "base/file_kind.h"
#include "base/version.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "api/bench.h"
#include "data/run_data.h"
#include "api/help.h"
#include "api/output.h"
#include "eval/fid_text.h"
#include "api/info.h"
#include "run/model.h"
#include "report/report.h"
#include "report/tensorboard.h"
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

// ---- options ------------------------------------------------------------------------------

int jempp_rank(void) { return comm_own_rank(); }

JemppOptions *jempp_options(const char *command, JemppErr *err) {
    DECIMAL_POINT;
    const Command *k = command_find(command);
    JemppOptions *o = k ? calloc(1, sizeof *o) : NULL;
    Err e = { 0 };
    if (!k) err_set(&e, ERR_ARG, "%.64s: no such command", command);
    else if (!o) err_set(&e, ERR_MEM, "out of memory for options");
    if (!o) {
        api_fail(err, &e);
        return NULL;
    }
    command_defaults(k, &o->cfg);
    o->command = k;
    return o;
}

void jempp_options_free(JemppOptions *o) {
    if (!o) return;
    for (int i = 0; i < o->n_file; i++) free(o->file[i]);
    free(o->file);
    free(o);
}

// Sets one option of this command; `where` is how the user wrote it.
static int set(JemppOptions *o, const char *name, const char *value, const char *where, Err *err) {
    const OptRow *row = config_row(name);
    if (!row) {
        Err why = { 0 };
        (void)config_unknown(name, where, o->command->bit, &why);
        return err_set(err, ERR_ARG, strchr(why.msg, '?') ? "%s" : "%s; jempp %s --help lists them",
                       why.msg, o->command->name);
    }
    if (!(row->commands & o->command->bit)) {
        char takers[160] = "";
        for (const Command *k = command_table; k->name; k++)
            if (row->commands & k->bit)
                snprintf(takers + strlen(takers), sizeof takers - strlen(takers), "%s%s",
                         takers[0] ? ", " : "", k->name);
        return err_set(err, ERR_ARG, "%s: not an option of jempp %s; it is for %s", where,
                       o->command->name, takers);
    }
    return config_set(&o->cfg, name, value, where, err);
}

int jempp_set(JemppOptions *o, const char *name, const char *value, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    return set(o, name, value, name, &e) ? api_fail(err, &e) : 0;
}

// One argument, taken apart.
typedef struct {
    char        name[64], where[80];      // "steps", "--steps"
    const char *value;                    // NULL: a file
    int         used;                     // arguments that it took
} Arg;

// "--steps 5", "--steps=5", "--clamp", "--no-clamp"
static int take(Arg *a, char *const *argv, int left, unsigned command, Err *err) {
    const char *text = argv[0] + 2, *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : strlen(text);
    snprintf(a->name, sizeof a->name, "%.*s", n < 64 ? (int)n : 63, text);
    snprintf(a->where, sizeof a->where, "--%s", a->name);
    a->used = 1;
    a->value = equals ? equals + 1 : NULL;
    const OptRow *row = config_row(a->name);
    const OptRow *negated = strncmp(a->name, "no-", 3) ? NULL : config_row(a->name + 3);
    if (!row && negated && negated->type == T_FLAG && !equals) {
        memmove(a->name, a->name + 3, strlen(a->name + 3) + 1);
        a->value = "off";
    } else if (row && row->type == T_FLAG && !equals) {
        a->value = "on";
    } else if (row && !equals && row->commands & command) {
        if (left < 2) return err_set(err, ERR_ARG, "%s: expected a value after it", a->where);
        a->value = argv[1];
        a->used = 2;
    } else if (!a->value) {
        a->value = "";                    // no option of this command: set says so
    }
    return 0;
}

static int add_file(JemppOptions *o, const char *name, Err *err) {
    if (!*name)
        return err_set(err, ERR_ARG, "%s: argument %d is empty; expected %s", o->command->name,
                       o->n_file + 1, o->command->names);
    char **more = realloc(o->file, ((size_t)o->n_file + 1) * sizeof *more);
    if (more) o->file = more;
    if (!more || !(o->file[o->n_file] = strdup(name)))
        return err_set(err, ERR_MEM, "out of memory for options");
    o->n_file++;
    return 0;
}

// A preset lies below files, files below flags, wherever they stand in argv.
static int layer_of(const char *name) {
    const OptRow *row = config_row(name);
    return row && row->type == T_PRESET ? 0 : row && row->type == T_FILE ? 1 : 2;
}

// Of flags that say how long a run is, one: that of a preset or a file may be replaced by it.
static int one_length(const Arg *a, char length[80], Err *err) {
    const OptRow *row = config_row(a->name);
    if (!row || !config_is_length(row) || strtod(a->value, NULL) <= 0) return 0;
    if (length[0] && strcmp(length, a->where) != 0)
        return err_set(err, ERR_ARG, "%s and %s: both set the length of the run; expected one",
                       length, a->where);
    snprintf(length, 80, "%s", a->where);
    return 0;
}

static int set_layer(JemppOptions *o, int layer, int argc, char **argv, Err *err) {
    int only_files = 0;
    char length[80] = "";
    for (int i = 0; i < argc;) {
        Arg a = { .used = 1 };
        if (only_files || argv[i][0] != '-' || !argv[i][1]) {
            if (layer == 2 && add_file(o, argv[i], err)) return -1;
        } else if (!strcmp(argv[i], "--")) {
            only_files = 1;
        } else if (argv[i][1] != '-') {
            return err_set(err, ERR_ARG,
                           file_kind(argv[i]) ? "%s: no such option; write ./%s for the file"
                                              : "%s: no such option; options begin with two dashes",
                           argv[i], argv[i]);
        } else {
            if (take(&a, argv + i, argc - i, o->command->bit, err)) return -1;
            if (layer_of(a.name) == layer &&
                (set(o, a.name, a.value, a.where, err) || one_length(&a, length, err)))
                return -1;
        }
        i += a.used;
    }
    return 0;
}

int jempp_set_args(JemppOptions *o, int argc, char **argv, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    for (int layer = 0; layer < 3; layer++)
        if (set_layer(o, layer, argc, argv, &e)) return api_fail(err, &e);
    if (o->cfg.resume && o->cfg.out[0]) return 0; // the run's own options are still to come
    return config_check(&o->cfg, &e) ? api_fail(err, &e) : 0;
}

int jempp_check_files(const JemppOptions *o, JemppErr *err) {
    Err e = { 0 };
    const char *const *names = (const char *const *)o->file;
    return command_names(o->command, names, o->n_file, &e) ? api_fail(err, &e) : 0;
}

int jempp_n_files(const JemppOptions *o) { return o->n_file; }

const char *jempp_file(const JemppOptions *o, int i) {
    return i >= 0 && i < o->n_file ? o->file[i] : NULL;
}

int jempp_get(const JemppOptions *o, const char *name, char *dst, size_t n) {
    DECIMAL_POINT;
    const OptRow *row = config_row(name);
    if (!row) return -1;
    config_value(&o->cfg, row, dst, n);
    return 0;
}

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

static char *finish(FILE *f, char **text, Err *err) {
    if (f && !fclose(f)) return *text;
    free(*text);
    err_set(err, ERR_MEM, "out of memory for a text");
    return NULL;
}

// ---- devices, info and bench --------------------------------------------------------------

char *jempp_bench(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    char *text = bench_text(&o->cfg, &events, &e);
    if (!text) api_fail(err, &e);
    return text;
}

char *jempp_fid(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    char *text = NULL;
    const char *out = o->cfg.out;
    if (o->n_file == (*out ? 1 : 2))
        text = !*out ? fid_text(&o->cfg, o->file[0], o->file[1], &events, &e)
               : output_statistics(out, o->cfg.force, &e)
                   ? NULL
                   : fid_statistics(&o->cfg, o->file[0], &events, &e);
    else if (*out) err_set(&e, ERR_ARG, "with --out, expected one set of images; found two");
    else
        err_set(&e, ERR_ARG, "fid: expected images and their reference, or --out; found '%s' alone",
                o->n_file ? o->file[0] : "");
    if (!text) api_fail(err, &e);
    return text;
}

char *jempp_devices(void) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (const char *const *name = dev_names; f && *name; name++) {
        Dev dev;
        Err why = { 0 };
        if (dev_open(&dev, *name, &(DevOpts){ 0 }, NULL, &why)) {
            fprintf(f, "%-4s  unavailable: %s\n", *name, why.msg);
        } else {
            fprintf(f, "%-4s  %s\n", *name, dev.be.describe(&dev));
            dev_close(&dev);
        }
    }
    return finish(f, &text, NULL);
}

// The model is opened on the plain device, which starts at once; memory is asked of the user's.
static char *info_of_file(const JemppOptions *o, Err *err) {
    Config use = o->cfg;
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
    if (o->cfg.out[0] && output_page(o->cfg.out, o->cfg.force, &e)) {
        api_fail(err, &e);
        return NULL;
    }
    if (!jempp_check_files(o, err))
        text = o->cfg.tensorboard ? tensorboard_write(o->file[0], &e)
                                  : report_write(o->file[0], o->cfg.out, &e);
    if (!text && e.kind) api_fail(err, &e);
    return text;
}

// ---- data ---------------------------------------------------------------------------------

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

static char *data_list_text(const Config *c, Err *err) {
    SetInfo info[16];
    char *text = NULL;
    size_t size;
    const int n = data_list(data_dir(c), info, 16);
    if (c->json) return list_json(info, n, err);
    FILE *f = open_memstream(&text, &size);
    for (int i = 0; f && i < n; i++) {
        const char *half = info[i].damaged[0]            ? "damaged"
                           : info[i].train && info[i].test ? "yes"
                           : info[i].train               ? "training images only"
                           : info[i].test                ? "test images only"
                                                           : "no";
        fprintf(f, "%-14s %-58s %s", info[i].name, info[i].about, half);
        if (info[i].damaged[0])
            fprintf(f, ": %s in %s is incomplete (jempp data fetch %s)", info[i].damaged,
                    info[i].found, info[i].name);
        else if (info[i].found[0]) fprintf(f, ": %s", info[i].found);
        else if (info[i].fetchable) fprintf(f, " (jempp data fetch %s)", info[i].name);
        fprintf(f, "\n");
    }
    return finish(f, &text, err);
}

static void describe_half(FILE *f, const Set *s, Half half) {
    size_t least = s->n, most = 0;
    for (int k = 0; k < s->classes; k++) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++) n += s->y[i] == k;
        if (n < least) least = n;
        if (n > most) most = n;
    }
    fprintf(f, "%s: %zu %s images, %d x %d x %d, %d classes of %zu to %zu; %s\n", s->name, s->n,
            half == HALF_TRAIN ? "training" : "test", s->c, s->side, s->side, s->classes, least,
            most, s->from);
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
        err_append(err, "%zu of %zu pictures cannot be used", p->unreadable, p->pictures);
    return err_append(err, ": replace or remove what is listed above");
}

static char *data_check_text(const Config *c, const char *name, const Events *ev, Err *err) {
    Problems problems = { 0 };
    DataOpts o = data_opts(c, ev);
    o.problems = &problems;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    int rc = f ? 0 : -1;
    for (Half half = HALF_TRAIN; !rc && half <= HALF_TEST; half++) {
        Set s;
        rc = set_load(&s, name, half, &o, err);
        if (rc) break;
        describe_half(f, &s, half);
        set_free(&s);
    }
    if (!rc) rc = sum_up(&problems, name, ev, err);
    text = finish(f, &text, err);
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
    err_set(err, ERR_ARG, "data %s: expected %s", what ? what : "", o->command->names);
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

int jempp_serve(const JemppOptions *o, const JemppEvents *ev, JemppErr *err) {
    DECIMAL_POINT;
    Err e = { 0 };
    const Events events = events_of(ev);
    if (jempp_check_files(o, err)) return -1;
    return serve(&o->cfg, jempp_file(o, 0), &events, &e) ? api_fail(err, &e) : 0;
}
