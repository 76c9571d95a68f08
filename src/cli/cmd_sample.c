// cmd_sample.c - jempp sample: draws images from a model, as a picture and on the terminal.
#include "cli/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int columns_for(const JemppOptions *o, int n) {
    const int asked = cli_int(o, "columns");
    return asked ? asked : (int)ceil(sqrt(n));
}

static int terminal_width(void) {
    struct winsize ws;
    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_col > 0 ? ws.ws_col : 80;
}

typedef struct {
    float *x;
    int   *cls, n;
} Drawn;

// Chains without --class need not end as images of the class that they started from.
static int write_images(const Jempp *j, const JemppOptions *o, const Drawn *d, const char *out) {
    char wanted[512];
    JemppErr err = { 0 };
    JemppEvents ev = cli_events();
    jempp_get(o, "class", wanted, sizeof wanted);
    const int failed = jempp_write_images(j, d->x, wanted[0] ? d->cls : NULL, d->n, out, &ev, &err);
    jempp_terminal_close(&ev);
    return failed ? cli_fail(&err) : EXIT_DONE;
}

static int show(const Jempp *j, const JemppOptions *o, const Drawn *d, const char *out,
                const char *animation) {
    JemppErr err = { 0 };
    const int columns = columns_for(o, d->n);
    if (jempp_is_images(out)) {
        const int rc = write_images(j, o, d, out);
        if (rc) return rc;
    } else if (jempp_write_grid(j, d->x, d->n, columns, cli_int(o, "zoom"), out, &err))
        return cli_fail(&err);
    printf("%s: %d image%s\n", out, d->n, cli_plural((unsigned)d->n));
    if (animation[0]) printf("%s: animation of the chains\n", animation);
    if (!cli_int(o, "preview") || !isatty(STDOUT_FILENO)) return EXIT_DONE;
    char *text = jempp_preview(j, d->x, d->n, columns, terminal_width());
    return cli_print(text, &(JemppErr){ JEMPP_ERR_MEM, "out of memory for a preview" });
}

// Whether the files can be written, before images are drawn. Rank 0 writes them; two that tried the
// same name at the same time would be in each other's way.
static int check_files(const char *out, const char *animation, int force, JemppErr *err) {
    if (jempp_rank()) return 0;
    return (jempp_is_images(out) ? jempp_check_images(out, force, err)
                                 : jempp_check_picture(out, force, err)) ||
           (animation[0] && jempp_check_animation(animation, force, err));
}

static int sample(Jempp *j, const JemppOptions *o) {
    JemppErr err = { 0 };
    char out[512], animation[512];
    jempp_get(o, "out", out, sizeof out);
    jempp_get(o, "animation", animation, sizeof animation);
    if (!out[0]) snprintf(out, sizeof out, "samples.png");
    if (!strcmp(out, animation))
        return cli_fail(&(JemppErr){ JEMPP_ERR_ARG, "--out and --animation name the same file" });
    const int n = jempp_n_samples(j, o, &err);
    if (n < 0 || check_files(out, animation, cli_int(o, "force"), &err)) return cli_fail(&err);
    const size_t side = (size_t)jempp_side(j), one = (size_t)jempp_channels(j) * side * side;
    Drawn d = { malloc((size_t)n * one * sizeof *d.x), malloc((size_t)n * sizeof *d.cls + 1), n };
    int rc = EXIT_DONE;
    if (d.x && d.cls) {
        JemppEvents ev = cli_events();
        if (jempp_sample(j, o, &ev, n, d.x, d.cls, &err)) rc = cli_fail(&err);
        jempp_terminal_close(&ev);
        if (!rc && !jempp_rank()) rc = show(j, o, &d, out, animation);
    } else rc = cli_fail(&(JemppErr){ JEMPP_ERR_MEM, "out of memory for the images" });
    free(d.x);
    free(d.cls);
    return rc;
}

CLI_COMMAND(sample, .with_model = sample, .shared = 1);
