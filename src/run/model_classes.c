// model_classes.c - the classes of a model that a list names (--class); their names beside a set's.
// See model.h.
#include "run/model.h"
#include "base/text.h"
#include "conf/nearest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_such_class(const Model *m, const char *name, size_t n_name, Err *err) {
    enum { MOST = 12 };
    const int n = m->net.spec.classes;
    char list[600] = "", one[48], asked[64], meant[80] = "";
    const char *near = NULL;
    const int most = n_name < sizeof asked ? (int)n_name : (int)sizeof asked - 1;
    snprintf(asked, sizeof asked, "%.*s", text_whole(name, most), name);
    for (int i = 0; i < n; i++) nearer(asked, m->class_name[i], &near);
    if (near)
        snprintf(meant, sizeof meant, "did you mean %s? ", text_shorten(one, sizeof one, near, 40));
    for (int i = 0; i < n && i < MOST; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 text_shorten(one, sizeof one, m->class_name[i], 40));
    return err_set(err, ERR_ARG, "--class %s: %sthe model's %d classes are %s%s", asked, meant, n,
                   list, n > MOST ? ", ..." : "");
}

// The class whose name the text begins with, up to a comma or the end: the longest, since names may
// have commas themselves; else the class of that number. Its length in *used; -1: none.
static int first_class(const Model *m, const char *text, size_t *used) {
    const int n = m->net.spec.classes;
    int found = -1;
    char *end;
    *used = 0;
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(m->class_name[i]);
        if (len <= *used || strncmp(text, m->class_name[i], len) != 0) continue;
        if (text[len] && text[len] != ',') continue;
        *used = len;
        found = i;
    }
    if (found >= 0) return found;
    *used = strcspn(text, ",");
    const long number = strtol(text, &end, 10);
    return *used && end == text + *used && number >= 0 && number < n ? (int)number : -1;
}

int model_classes(const Model *m, const char *list, char *wanted, Err *err) {
    const int n = m->net.spec.classes, all = !*list || !strcmp(list, "all");
    int count = all ? n : 0;
    memset(wanted, all, (size_t)n);
    for (size_t used; !all && *list; list += used + (list[used] == ',')) {
        const int i = first_class(m, list, &used);
        if (i < 0) return no_such_class(m, list, used, err);
        count += !wanted[i];
        wanted[i] = 1;
    }
    return count;
}

int model_n_samples(const Model *m, const Config *use, Err *err) {
    char wanted[MODEL_CLASSES];
    const int n = model_classes(m, use->classes, wanted, err);
    if (n < 0) return -1;
    if (use->best || use->worst) return use->best ? use->best : use->worst;
    const int centres = m->starts.n_group == 1 ? 1 : n;     // of one Gaussian, or of each class's
    return use->from == FROM_CENTRES && centres < use->count ? centres : use->count;
}

void model_compare_names(const Model *m, const Set *s, const char *name, const char *what,
                         const char *then, const Events *ev) {
    const int n = m->net.spec.classes;
    char line[900], here[96], there[96];
    int c = 0;
    while (c < s->classes && c < n && !strcmp(s->class_name[c], m->class_name[c])) c++;
    if (c == s->classes) return;
    snprintf(line, sizeof line,
             "warning: %.200s: %s than the model's (class %d is '%s' here, '%s' there); %s", name,
             what, c, text_shorten(here, sizeof here, s->class_name[c], 80),
             text_shorten(there, sizeof there, c < n ? m->class_name[c] : "none", 80), then);
    tell_line(ev, line);
}
