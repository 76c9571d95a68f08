// doc.c - documents made from the tables of commands, options and presets: docs/options.md, the man
// page, and completions for bash and zsh.
#include "jempp.h"
#include "api/help.h"
#include "base/text_out.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// ---- what they say beside the tables; `this` is to be typed, \* a plain star --------------

static const char RULES[] =
    "On the command line an option is `--name value` or `--name=value`, a switch `--name` or\n"
    "`--no-name`. In a file (`--config FILE`) it is a line `name = value`; a line that begins with "
    "`#`\n"
    "is a comment, and `preset = NAME` may come first. Files override presets, and the command\n"
    "line overrides both. Numbers may be fractions (`8/255`).\n\n"
    "`sample` takes the options of chains from the model's training unless they are given; "
    "without\n"
    "`steps`, fresh chains take a few long steps, chosen for the model.\n"
    "With `--resume` a run keeps its options, except for those marked \\*.\n";

static const struct {
    const char *name, *about;
} ENVIRONMENT[] = {
    { "JEMPP_DATA", "folder of image sets: searched after `data-dir`, and downloaded to" },
    { "OMPI_COMM_WORLD_SIZE`, `PMI_SIZE`, `MV2_COMM_WORLD_SIZE`, `PMIX_RANK`, "
      "`SLURM_STEP_NUM_TASKS",
      "set by `mpirun` and `srun`: several processes that train one model (docs/scaling.md)" },
    { "JEMPP_MODULE_DIR", "folder to search first for modules such as `jempp-cuda.so`" },
    { "TMPDIR", "where ranks other than 0 keep temporary files of `eval`; default: `/tmp`" },
    { "XDG_DATA_HOME", "its folder `jempp` holds image sets; default: `~/.local/share/jempp`" },
    { "XDG_CACHE_HOME", "its folder `jempp` holds kernel choices made by timing; default: "
                        "`~/.cache/jempp`" },
    { "GOMP_SPINCOUNT", "how long waiting CPU threads spin before they sleep; default: 2000, "
                        "unless `OMP_WAIT_POLICY` is set" },
    { "COLUMNS", "the width of the terminal" },
};
enum { N_ENVIRONMENT = sizeof ENVIRONMENT / sizeof *ENVIRONMENT };

static int may_change(const OptRow *row) {
    return row->commands & CMD_TRAIN && row->commands & MAY_CHANGE;
}

static int is_number(const OptRow *row) {
    return row->type == T_INT || row->type == T_NUM || row->type == T_WHOLE;
}

// A text that may be anything has a word in capitals where others have choices.
static int has_choices(const OptRow *row) { return row->choices && strchr(row->choices, '|'); }

static void put_range(FILE *f, const OptRow *row, void put(FILE *, const char *)) {
    if (is_number(row))
        fprintf(f, "%s%.16g to %.16g", row->type == T_NUM ? "" : "whole, ", row->lo, row->hi);
    else if (row->type == T_FLAG) fprintf(f, "on, off");
    else put(f, row->choices);
}

// Calls put for the rows of the table, and before the first of each group begin.
static void each_option(FILE *f, void begin(FILE *, const char *group),
                        void put(FILE *, const OptRow *)) {
    const char *group = "";
    for (int i = 0; i < config_n_rows; i++) {
        if (strcmp(group, config_rows[i].group) != 0) begin(f, config_rows[i].group);
        group = config_rows[i].group;
        put(f, &config_rows[i]);
    }
}

// ---- what an option means, which may differ by command -----------------------------------------

typedef struct {
    const char *help;
    char value[160];                                  // default, where the table has another; or ""
    unsigned commands;                                // bits of those it holds for
} Meaning;

static void meaning_for(const Command *k, const OptRow *row, Meaning *m) {
    Config c;
    const OptNote *note = command_note(k, row->name);
    command_defaults(k, &c);
    *m = (Meaning){ .help = note ? note->help : row->help, .commands = k->bit };
    if (note && note->value) snprintf(m->value, sizeof m->value, "%s", note->value);
    else if (note && help_from_model(k, row)) snprintf(m->value, sizeof m->value, "as in training");
    else config_value(&c, row, m->value, sizeof m->value);
    if (!strcmp(m->value, row->value)) m->value[0] = 0;
}

enum { MOST_MEANINGS = 12 };

// Commands that share a meaning are one of the meanings; how many there are.
static int meanings(const OptRow *row, Meaning m[MOST_MEANINGS]) {
    int n = 0, i;
    for (const Command *k = command_table; k->name && n < MOST_MEANINGS; k++) {
        if (!(row->commands & k->bit)) continue;
        meaning_for(k, row, &m[n]);
        for (i = 0; strcmp(m[i].help, m[n].help) != 0 || strcmp(m[i].value, m[n].value) != 0;) i++;
        if (i == n) n++;
        else m[i].commands |= k->bit;
    }
    return n;
}

static void put_commands(FILE *f, unsigned bits, const char *between) {
    const char *before = "";
    for (const Command *k = command_table; k->name; k++) {
        if (!(bits & k->bit)) continue;
        fprintf(f, "%s%s", before, k->name);
        before = between;
    }
}

// ---- docs/options.md ----------------------------------------------------------------------

static void put_escaped(FILE *f, const char *s) {
    for (; *s; s++) fprintf(f, *s == '|' ? "\\%c" : "%c", *s);
}

static void md_group(FILE *f, const char *group) {
    fprintf(f,
            "\n## %s\n\n| option | default | values | what it does | for |\n"
            "| --- | --- | --- | --- | --- |\n",
            group);
}

static void put_meaning(FILE *f, const Meaning *m, void (*put)(FILE *, const char *)) {
    put(f, m->help);
    if (m->value[0]) fprintf(f, "; default: ");
    put(f, m->value);
}

static void md_option(FILE *f, const OptRow *row) {
    fprintf(f, "| `%s`%s | ", row->name, may_change(row) ? " \\*" : "");
    put_escaped(f, row->value);
    fprintf(f, " | ");
    put_range(f, row, put_escaped);
    fprintf(f, " | ");
    Meaning m[MOST_MEANINGS];
    const int n = meanings(row, m);
    for (int i = 0; i < n; i++) {
        if (i) fprintf(f, "<br>");
        if (n > 1) {
            fprintf(f, "**");
            put_commands(f, m[i].commands, ", ");
            fprintf(f, "**: ");
        }
        put_meaning(f, &m[i], put_escaped);
    }
    if (config_former(row->name)) fprintf(f, "; formerly `%s`", config_former(row->name));
    fprintf(f, " | ");
    put_commands(f, row->commands, " ");
    fprintf(f, " |\n");
}

static void options_doc(FILE *f) {
    fprintf(f, "# Options\n\nMade by `jempp options-doc` from the table in `src/conf/options.c`; a "
               "test compares.\n\n");
    fputs(RULES, f);
    each_option(f, md_group, md_option);
    fprintf(f, "\n## environment\n\n| variable | what it does |\n| --- | --- |\n");
    for (int i = 0; i < N_ENVIRONMENT; i++)
        fprintf(f, "| `%s` | %s |\n", ENVIRONMENT[i].name, ENVIRONMENT[i].about);
}

// ---- the man page -------------------------------------------------------------------------

// Text for roff: a dash is typed as such, `this` is bold, and no line begins as a request does.
static void put_roff(FILE *f, const char *s) {
    int bold = 0, at_start = 1;
    for (; *s; s++) {
        if (at_start && (*s == '.' || *s == '\'')) fputs("\\&", f);
        at_start = *s == '\n';
        if (*s == '`') fputs((bold = !bold) ? "\\fB" : "\\fR", f);
        else if (*s == '\\' && s[1] == '*') fputc(*++s, f);
        else if (*s == '\\') fputs("\\e", f);
        else if (*s == '-') fputs("\\-", f);
        else if (s[0] == '\n' && s[1] == '\n') fputs("\n.PP", f);
        else fputc(*s, f);
    }
}

static void man_group(FILE *f, const char *group) { fprintf(f, ".SS \"%s\"\n", group); }

static void man_option(FILE *f, const OptRow *row) {
    char left[160];
    help_usage(row, left, sizeof left);
    fprintf(f, ".TP\n.B ");
    put_roff(f, left);
    fprintf(f, "%s\n", may_change(row) ? " *" : "");
    Meaning m[MOST_MEANINGS];
    const int n = meanings(row, m);
    for (int i = 0; i < n; i++) {
        if (n > 1) {
            fprintf(f, ".I ");
            put_commands(f, m[i].commands, ", ");
            fprintf(f, ":\n");
        }
        put_meaning(f, &m[i], put_roff);
        fprintf(f, "\n.br\n");
    }
    if (is_number(row)) {
        put_range(f, row, put_roff);
        fprintf(f, "; ");
    }
    if (row->value[0]) {
        fprintf(f, "default ");
        put_roff(f, row->value);
        fprintf(f, "; ");
    }
    fprintf(f, "for ");
    put_commands(f, row->commands, " ");
    fprintf(f, "\n");
}

static void man_item(FILE *f, const char *name, const char *about, int n) {
    char text[512];
    snprintf(text, sizeof text, "%.*s\n", n, about);
    fprintf(f, ".TP\n.B ");
    put_roff(f, name);
    fprintf(f, "\n");
    put_roff(f, text);
}

static void man_lines(FILE *f, const char *title, int examples) {
    fprintf(f, ".SH %s\n.nf\n", title);
    for (const Command *k = command_table; k->name; k++) {
        put_roff(f, examples ? k->examples : k->synopsis);
        fprintf(f, "\n");
    }
    fprintf(f, ".fi\n");
}

static void man_page(FILE *f) {
    int n;
    fprintf(f, ".\\\" Made by \"jempp man\" from the tables of src/conf and src/api.\n");
    fprintf(f, ".TH JEMPP 1 \"\" \"jempp " JEMPP_VERSION "\" \"User Commands\"\n"
               ".SH NAME\njempp \\- ");
    put_roff(f, HELP_ABOUT);
    fprintf(f, "\n");
    man_lines(f, "SYNOPSIS", 0);
    fprintf(f, ".SH COMMANDS\n");
    for (const Command *k = command_table; k->name; k++)
        man_item(f, k->name, k->about, (int)strlen(k->about));
    fprintf(f, ".SH OPTIONS\n");
    put_roff(f, RULES);
    each_option(f, man_group, man_option);
    fprintf(f, ".SH PRESETS\n");
    for (const Preset *p = preset_table; p->name; p++) {
        const char *about = help_preset(p, &n);
        man_item(f, p->name, about, n);
    }
    fprintf(f, ".SH ENVIRONMENT\n");
    for (int i = 0; i < N_ENVIRONMENT; i++)
        man_item(f, ENVIRONMENT[i].name, ENVIRONMENT[i].about, (int)strlen(ENVIRONMENT[i].about));
    fprintf(f, ".SH EXIT STATUS\n%s.\n", HELP_EXIT);
    man_lines(f, "EXAMPLES", 1);
}

// ---- completion ---------------------------------------------------------------------------

// The words that may follow a command, by its synopsis: "jempp data list" has "list".
static const char *subcommands(const Command *k, char dst[128]) {
    size_t n = 0;
    dst[0] = 0;
    for (const char *line = k->synopsis; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *word = line + strlen("jempp ") + strlen(k->name) + 1;
        if (islower((unsigned char)*word) && n < 128)
            n += (size_t)snprintf(dst + n, 128 - n, "%s%.*s", n ? " " : "",
                                  (int)strcspn(word, " \n"), word);
    }
    return dst;
}

static void put_choices(FILE *f, const OptRow *row) {
    if (row->type == T_PRESET)
        for (const Preset *p = preset_table; p->name; p++) fprintf(f, "%s ", p->name);
    else
        for (const char *s = row->choices; *s; s++) fputc(*s == '|' ? ' ' : *s, f);
}

static void bash_options(FILE *f, const Command *k) {
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        if (!(row->commands & k->bit)) continue;
        fprintf(f, " --%s", row->name);
        if (row->type == T_FLAG) fprintf(f, " --no-%s", row->name);
    }
}

// What follows an option does not depend on the command. Where no words are given, names of files
// are completed, but not for numbers.
static void bash_values(FILE *f) {
    for (int i = 0; i < config_n_rows; i++) {
        if (config_rows[i].type != T_PRESET && !has_choices(&config_rows[i])) continue;
        fprintf(f, "    --%s) words='", config_rows[i].name);
        put_choices(f, &config_rows[i]);
        fprintf(f, "' ;;\n");
    }
    const char *before = "    ";
    for (int i = 0; i < config_n_rows; i++) {
        if (!is_number(&config_rows[i])) continue;
        fprintf(f, "%s--%s", before, config_rows[i].name);
        before = " | ";
    }
    fprintf(f, ") compopt +o default ;;\n");
}

static void bash_completion(FILE *f) {
    char text[128];
    fprintf(f, "# bash completion for jempp; made by \"jempp bash-completion\"\n"
               "_jempp() {\n"
               "    local words='' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
               "    [[ $prev != = ]] || prev=${COMP_WORDS[COMP_CWORD-2]}\n"
               "    [[ $cur != = ]] || cur=\n"
               "    case $prev in\n");
    bash_values(f);
    fprintf(f, "    *)\n        case $COMP_CWORD,${COMP_WORDS[1]},$cur in\n        1,*) words='");
    for (const Command *k = command_table; k->name; k++) fprintf(f, "%s ", k->name);
    fprintf(f, "help --help --version' ;;\n");
    for (const Command *k = command_table; k->name; k++) {
        fprintf(f, "        *,%s,-*) words='--help", k->name);
        bash_options(f, k);
        fprintf(f, "' ;;\n");
        if (subcommands(k, text)[0]) fprintf(f, "        2,%s,*) words='%s' ;;\n", k->name, text);
    }
    fprintf(f,
            "        esac ;;\n    esac\n"
            "    [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
            "}\ncomplete -o default -F _jempp jempp\n");
}

// Within '...[here]': what ends a quotation, a bracket or a field is escaped.
static void put_zsh(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '\'') fputs("'\\''", f);
        else fprintf(f, strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
    }
}

static void zsh_option(FILE *f, const Command *k, const OptRow *row) {
    const int flag = row->type == T_FLAG;
    const OptNote *note = command_note(k, row->name);
    fprintf(f, " \\\n        '--%s%s[", row->name, flag ? "" : "=");
    put_zsh(f, note ? note->help : row->help);
    fprintf(f, "]");
    if (row->type == T_PRESET || has_choices(row)) {
        fprintf(f, ":%s:(", row->name);
        put_choices(f, row);
        fprintf(f, ")");
    } else if (!flag) {
        fprintf(f, is_number(row) ? ":number:" : ":%s:_files", row->choices);
    }
    fprintf(f, "'");
    if (flag) fprintf(f, " '--no-%s'", row->name);
}

static void zsh_completion(FILE *f) {
    char text[128];
    fprintf(f, "#compdef jempp\n# made by \"jempp zsh-completion\"\n"
               "local -a commands=(\n");
    for (const Command *k = command_table; k->name; k++) {
        fprintf(f, "    '%s:", k->name);
        put_zsh(f, k->about);
        fprintf(f, "'\n");
    }
    fprintf(f, ")\nif ((CURRENT == 2)); then\n    _describe command commands\n    return\nfi\n"
               "local command=$words[2]\nshift words\n((CURRENT--))\ncase $command in\n");
    for (const Command *k = command_table; k->name; k++) {
        fprintf(f, "%s)\n    _arguments '--help[its options]'", k->name);
        for (int i = 0; i < config_n_rows; i++)
            if (config_rows[i].commands & k->bit) zsh_option(f, k, &config_rows[i]);
        if (subcommands(k, text)[0]) fprintf(f, " \\\n        '1:what to do:(%s)'", text);
        fprintf(f, " \\\n        '*:file:_files' ;;\n");
    }
    fprintf(f, "esac\n");
}

static const struct {
    const char *name;
    void (*put)(FILE *);
} DOCS[] = {
    { "options-doc", options_doc },
    { "man", man_page },
    { "bash-completion", bash_completion },
    { "zsh-completion", zsh_completion },
};

char *doc_text(const char *name) {
    enum { N_DOC = sizeof DOCS / sizeof *DOCS };
    TextOut out;
    int i = 0;
    while (i < N_DOC && strcmp(name, DOCS[i].name) != 0) i++;
    if (i == N_DOC || text_open(&out, name, NULL)) return NULL;
    DOCS[i].put(out.f);
    return text_close(&out, NULL);
}
