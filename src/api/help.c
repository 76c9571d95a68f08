// help.c - see help.h.
#include "api/help.h"
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
    { "report", CMD_REPORT, "a run in pictures, and in one page",
      "jempp report RUN [--out FILE.html]",
      "jempp report runs/demo\n"
      "jempp report runs/demo --out demo.html" },
    { "data", CMD_DATA, "which image sets are here; check one, fetch one",
      "jempp data list\n"
      "jempp data check NAME [--data-dir DIR]\n"
      "jempp data fetch NAME [--data-dir DIR] [--url URL]",
      "jempp data list\n"
      "jempp data fetch cifar10\n"
      "jempp data check folder:pictures" },
    { 0 },
};

const char HELP_ABOUT[] =
    "joint energy-based models: one network that classifies, scores and draws";
const char HELP_EXIT[] = "0 done, 1 failed, 2 asked for wrongly, 3 training diverged";

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

void help_usage(const OptRow *row, char *dst, size_t n) {
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
    help_usage(row, left, sizeof left);
    config_value(c, row, value, sizeof value);
    if (strlen(left) + 3 > LEFT) fprintf(f, "  %s\n%*s", left, LEFT, "");
    else fprintf(f, "  %-*s", LEFT - 2, left);
    if (comes_from_model(k, row)) snprintf(value, sizeof value, "as in training");
    else if (row->type == T_FLAG) value[0] = 0;
    snprintf(right, sizeof right, value[0] ? "%s [%s]" : "%s", row->help, value);
    put_words(f, right);
}

// A preset's file begins "# NAME - what it is.".
const char *help_preset(const Preset *p, int *n) {
    const char *about = p->text + strlen("# ") + strlen(p->name) + strlen(" - ");
    *n = (int)strcspn(about, "\n");
    return about;
}

static void presets_help(FILE *f) {
    int n;
    fprintf(f, "\nPresets:\n");
    for (const Preset *p = preset_table; p->name; p++) {
        const char *about = help_preset(p, &n);
        fprintf(f, "  %-12s %.*s\n", p->name, n, about);
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
            "jempp - %s\n\n"
            "Usage:\n  jempp COMMAND [...] [--option value ...]\n\nCommands:\n",
            HELP_ABOUT);
    for (const Command *k = command_table; k->name; k++)
        fprintf(f, "  %-8s  %s\n", k->name, k->about);
    fprintf(
        f,
        "\n  jempp COMMAND --help   its options\n  jempp --version        which build this is\n\n"
        "Exit codes: %s.\n",
        HELP_EXIT);
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
