// help.c - see help.h.
#include "api/help.h"
#include "base/text_out.h"
#include <stdio.h>
#include <string.h>

const char HELP_ABOUT[] =
    "joint energy-based models: one network that classifies, scores and samples images";
const char HELP_EXIT[] =
    "0 success, 1 failure (predict: also if an image could not be read), 2 usage error,\n"
    "3 training diverged, 130 stopped by SIGINT (Ctrl-C), 143 stopped by SIGTERM";

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

int help_from_model(const Command *k, const OptRow *row) {
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
    const OptNote *note = command_note(k, row->name);
    if (note && note->value) snprintf(value, sizeof value, "%s", note->value);
    else if (help_from_model(k, row)) snprintf(value, sizeof value, "as in training");
    else if (row->type == T_FLAG && !strcmp(value, "off")) value[0] = 0;
    snprintf(right, sizeof right, value[0] ? "%s [%s]" : "%s", note ? note->help : row->help,
             value);
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
        fprintf(f, "  %-13s %.*s\n", p->name, n, about);
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
    fprintf(f,
            "\n  jempp COMMAND --help   usage, examples and options of a command\n"
            "  jempp --version        version, and the devices that can be used\n\n"
            "Exit codes: %s.\n",
            HELP_EXIT);
}

char *help_text(const char *command) {
    const Command *k = command ? command_find(command) : NULL;
    TextOut out;
    if ((command && !k) || text_open(&out, "help", NULL)) return NULL;
    if (k) command_help(out.f, k);
    else all_help(out.f);
    return text_close(&out, NULL);
}
