// api_options.c - jempp.h's options: set one by one, or from a command line.
#include "api/api.h"
#include "base/file_kind.h"
#include <stdlib.h>
#include <string.h>

JemppOptions *jempp_options(const char *command, JemppErr *err) {
    DECIMAL_POINT;
    const Command *k = command_find(command);
    JemppOptions *o = k ? calloc(1, sizeof *o) : NULL;
    Err e = { 0 };
    if (!k) command_unknown(command, &e);
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

// Presets are applied first, then option files, then flags, in whatever order argv has them.
typedef enum { LAYER_PRESET, LAYER_FILE, LAYER_FLAGS, N_LAYER } Layer;

static Layer layer_of(const char *name) {
    const OptRow *row = config_row(name);
    if (row && row->type == T_PRESET) return LAYER_PRESET;
    return row && row->type == T_FILE ? LAYER_FILE : LAYER_FLAGS;
}

// Rejects a second flag that sets the length of the run. (One flag may replace what a preset or a
// file sets.) length: the flag seen so far, or "".
static int one_length(const Arg *a, char length[80], Err *err) {
    const OptRow *row = config_row(a->name);
    if (!row || !config_is_length(row) || strtod(a->value, NULL) <= 0) return 0;
    if (length[0] && strcmp(length, a->where) != 0)
        return err_set(err, ERR_ARG, "%s and %s: both set the length of the run; expected one",
                       length, a->where);
    snprintf(length, 80, "%s", a->where);
    return 0;
}

static int set_layer(JemppOptions *o, Layer layer, int argc, char **argv, Err *err) {
    int only_files = 0;
    char length[80] = "";
    for (int i = 0; i < argc;) {
        Arg a = { .used = 1 };
        if (only_files || argv[i][0] != '-' || !argv[i][1]) {
            if (layer == LAYER_FLAGS && add_file(o, argv[i], err)) return -1;
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
    for (int layer = 0; layer < N_LAYER; layer++)
        if (set_layer(o, (Layer)layer, argc, argv, &e)) return api_fail(err, &e);
    if (!(config_row("buffer")->commands & o->command->bit) && o->cfg.buffer < o->cfg.batch)
        o->cfg.buffer = o->cfg.batch;             // no option of this command should limit another
    if (o->cfg.resume && o->cfg.out[0]) return 0; // the run's own options are still to come
    const int sample = o->command->bit == CMD_SAMPLE, eval = o->command->bit == CMD_EVAL;
    return config_check(&o->cfg, &e) || (sample && config_check_sample(&o->cfg, &e)) ||
                   (eval && config_check_fresh(&o->cfg, &e))
               ? api_fail(err, &e)
               : 0;
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
