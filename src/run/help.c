// help.c - see help.h.
#include "run/help.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const Command command_table[] = {
    { "train", CMD_TRAIN, "train a model into a run folder",
      "jempp train [--preset NAME] [--config FILE] [--option value ...]\n"
      "jempp train --resume --out RUN [--option value ...]",
      "jempp train --preset demo --out runs/demo      # a first look, minutes on a CPU\n"
      "jempp train --preset jempp-m10 --data cifar10  # the paper's JEM++\n"
      "jempp train --resume --out runs/demo           # go on where it stopped" },
    { "sample", CMD_SAMPLE, "draw images from a model",
      "jempp sample RUN|MODEL [--count N] [--out grid.png] [--option value ...]",
      "jempp sample runs/demo --count 100 --out grid.png\n"
      "jempp sample runs/demo --class Sneaker,Bag --steps 40\n"
      "jempp sample runs/demo --from buffer --count 1000 --best 64 --by px" },
    { "eval", CMD_EVAL,
      "judge a model: accuracy, calibration, other images, attacks, samples, speed",
      "jempp eval RUN|MODEL [--tasks NAME,...] [--ood SET,...] [--limit N] [--json] [--out DIR]",
      "jempp eval runs/demo                             # everything; eval.json is in the run\n"
      "jempp eval runs/demo --tasks acc,ece --temperature\n"
      "jempp eval runs/first --tasks ood --ood svhn,cifar100,cifar-file:celeba.bin\n"
      "jempp eval runs/first --tasks attack --attacks pgd-linf --radii 0,4/255,8/255 --restarts 5\n"
      "jempp eval model.safetensors --data cifar10 --limit 500 --out look" },
    { "predict", CMD_PREDICT, "classify pictures, and say whether they are of the known kind",
      "jempp predict RUN|MODEL IMAGE... [--json]",
      "jempp predict runs/demo shoe.png\n"
      "jempp predict model.safetensors *.jpg --json" },
    { "export", CMD_EXPORT, "write a model to hand on, with PyTorch's names",
      "jempp export RUN|MODEL OUT.safetensors [--half]",
      "jempp export runs/demo demo.safetensors\n"
      "jempp export runs/demo small.safetensors --half" },
    { "info", CMD_INFO, "operations, parameters and memory of a network",
      "jempp info [RUN|MODEL] [--model NAME] [--batch N] [--json]",
      "jempp info --model wrn-28-10 --batch 64\n"
      "jempp info --model wrn-16-2 --device cpu       # what convolutions need there too\n"
      "jempp info runs/demo" },
    { "bench", CMD_BENCH, "speed of operations and of whole training iterations",
      "jempp bench [--model NAME] [--batch N] [--steps M] [--device NAME] [--json]",
      "jempp bench --model wrn-16-2 --steps 5 --device cpu\n"
      "jempp bench --model wrn-28-10 --px clean --json" },
    { "data", CMD_DATA, "which image sets are here; check one, fetch one",
      "jempp data list\n"
      "jempp data check NAME [--data-dir DIR]\n"
      "jempp data fetch NAME [--data-dir DIR] [--url URL]",
      "jempp data list\n"
      "jempp data fetch cifar10\n"
      "jempp data check folder:pictures" },
    { 0 },
};

const Command *command_find(const char *name) {
    for (const Command *k = command_table; k->name; k++)
        if (!strcmp(k->name, name)) return k;
    return NULL;
}

void command_defaults(const Command *k, Config *c) {
    config_defaults(c);
    if (k->bit == CMD_BENCH) c->px = PX_SHARED; // the cheapest rule, the one others time
    if (k->bit == CMD_SAMPLE) c->steps = FRESH_STEPS;
    if (k->bit == CMD_EVAL) c->attack_steps = EVAL_ATTACK_STEPS;
    if (k->bit == CMD_EVAL) c->data[0] = 0;         // the run's own
}

// ---- one command --------------------------------------------------------------------------

static void indented(FILE *f, const char *text) {
    while (*text) {
        const size_t n = strcspn(text, "\n");
        fprintf(f, "  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

// "--steps N", "--[no-]clamp", "--px clean|shared"
static void usage(const OptRow *row, char *dst, size_t n) {
    switch (row->type) {
    case T_FLAG:
        snprintf(dst, n, !strcmp(row->value, "on") ? "--[no-]%s" : "--%s", row->name);
        break;
    case T_INT:
    case T_WHOLE: snprintf(dst, n, "--%s N", row->name); break;
    case T_NUM:   snprintf(dst, n, "--%s X", row->name); break;
    default:      snprintf(dst, n, "--%s %s", row->name, row->choices); break;
    }
}

// A used model brings its own: what its training said holds unless an option says otherwise.
static int comes_from_model(const Command *k, const OptRow *row) {
    return k->bit == CMD_SAMPLE && row->commands & CMD_TRAIN && strcmp(row->name, "steps") != 0 &&
           (!strcmp(row->group, "chains") || !strcmp(row->name, "batch"));
}

enum { LEFT = 31, RIGHT = 68 };                           // columns of an option, of its text

// Words in lines of RIGHT columns; the first line begins where the stream stands.
static void put_words(FILE *f, const char *text) {
    size_t used = 0;
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (used && used + 1 + n > RIGHT) {
            fprintf(f, "\n%*s", LEFT, "");
            used = 0;
        }
        fprintf(f, "%s%.*s", used ? " " : "", (int)n, text);
        used += n + (used > 0);
        text += n + (text[n] == ' ');
    }
    fprintf(f, "\n");
}

static void option_help(FILE *f, const Command *k, const Config *c, const OptRow *row) {
    char left[160], value[1024], right[1400];
    usage(row, left, sizeof left);
    config_value(c, row, value, sizeof value);
    if (strlen(left) + 3 > LEFT) fprintf(f, "  %s\n%*s", left, LEFT, "");
    else fprintf(f, "  %-*s", LEFT - 2, left);
    if (comes_from_model(k, row)) snprintf(value, sizeof value, "as in training");
    else if (row->type == T_FLAG) value[0] = 0;
    snprintf(right, sizeof right, value[0] ? "%s [%s]" : "%s", row->help, value);
    put_words(f, right);
}

// A preset's file begins "# NAME - what it is.".
static void presets_help(FILE *f) {
    fprintf(f, "\nPresets:\n");
    for (const Preset *p = preset_table; p->name; p++) {
        const char *about = p->text + strlen("# ") + strlen(p->name) + strlen(" - ");
        fprintf(f, "  %-12s %.*s\n", p->name, (int)strcspn(about, "\n"), about);
    }
}

static void command_help(FILE *f, const Command *k) {
    Config c;
    command_defaults(k, &c);
    fprintf(f, "jempp %s - %s\n\nUsage:\n", k->name, k->about);
    indented(f, k->synopsis);
    fprintf(f, "\nExamples:\n");
    indented(f, k->examples);
    const char *group = "";
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        if (!(row->commands & k->bit)) continue;
        if (strcmp(group, row->group) != 0) fprintf(f, "\nOptions, %s:\n", row->group);
        group = row->group;
        option_help(f, k, &c, row);
    }
    if (k->bit & (CMD_TRAIN | CMD_BENCH)) presets_help(f);
}

static void all_help(FILE *f) {
    fprintf(f,
            "jempp - joint energy-based models: one network that classifies, scores and draws\n\n"
            "Usage:\n  jempp COMMAND [...] [--option value ...]\n\nCommands:\n");
    for (const Command *k = command_table; k->name; k++)
        fprintf(f, "  %-8s  %s\n", k->name, k->about);
    fprintf(
        f,
        "\n  jempp COMMAND --help   its options\n  jempp --version        which build this is\n\n"
        "Exit codes: 0 done, 1 failed, 2 asked for wrongly, 3 training diverged.\n");
}

char *help_text(const char *command) {
    char *text = NULL;
    size_t n = 0;
    const Command *k = command ? command_find(command) : NULL;
    FILE *f = command && !k ? NULL : open_memstream(&text, &n);
    if (!f) return NULL;
    if (k) command_help(f, k);
    else all_help(f);
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}

// ---- docs/options.md ----------------------------------------------------------------------

static void put_escaped(FILE *f, const char *s) {
    for (; *s; s++) fprintf(f, *s == '|' ? "\\%c" : "%c", *s);
}

static void put_range(FILE *f, const OptRow *row) {
    if (row->type == T_INT || row->type == T_NUM || row->type == T_WHOLE)
        fprintf(f, "%s%.16g to %.16g", row->type == T_NUM ? "" : "whole, ", row->lo, row->hi);
    else if (row->type == T_FLAG) fprintf(f, "on, off");
    else put_escaped(f, row->choices);
}

static void option_doc(FILE *f, const OptRow *row) {
    const int may_change = row->commands & CMD_TRAIN && row->commands & MAY_CHANGE;
    fprintf(f, "| `%s`%s | ", row->name, may_change ? " \\*" : "");
    put_escaped(f, row->value);
    fprintf(f, " | ");
    put_range(f, row);
    fprintf(f, " | ");
    put_escaped(f, row->help);
    fprintf(f, " |");
    for (const Command *k = command_table; k->name; k++)
        if (row->commands & k->bit) fprintf(f, " %s", k->name);
    fprintf(f, " |\n");
}

static const char DOC_TOP[] =
    "# Options\n\n"
    "Made by `jempp options-doc` from the table in `src/run/options.c`; a test compares.\n\n"
    "On the command line an option is `--name value` or `--name=value`, a switch `--name` or\n"
    "`--no-name`. In a file (`--config FILE`) it is a line `name = value`; a line that begins with "
    "`#`\n"
    "is a comment, and `preset = NAME` may come first. A preset comes before files, files before "
    "flags:\n"
    "the later one counts. Numbers may be fractions (`8/255`).\n\n"
    "`sample` takes the options of chains from the model's training unless they are given, but "
    "for\n"
    "`steps`, which are 40 there: fresh chains have further to go than kept ones.\n"
    "`bench` has `px = shared` by default, `eval` 40 `attack-steps` and the run's own `data`. "
    "With\n"
    "`--resume` a run's options stay as they were, except for those marked \\*.\n";

char *help_options_doc(void) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    fputs(DOC_TOP, f);
    const char *group = "";
    for (int i = 0; i < config_n_rows; i++) {
        if (strcmp(group, config_rows[i].group) != 0)
            fprintf(f,
                    "\n## %s\n\n| option | default | values | what it does | for |\n"
                    "| --- | --- | --- | --- | --- |\n",
                    config_rows[i].group);
        group = config_rows[i].group;
        option_doc(f, &config_rows[i]);
    }
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}
