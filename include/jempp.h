// jempp.h - joint energy-based models: train one, classify with it, score, sample. The program
// `jempp` uses this header and nothing else of the library.
//
// Functions return 0, or -1 with *err filled. Images are floats in [-1, 1],
// [n][channels][side][side].
#ifndef JEMPP_H
#define JEMPP_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define JEMPP_API __attribute__((visibility("default")))
#else
#define JEMPP_API
#endif

#define JEMPP_VERSION "0.2.0"

enum {
    JEMPP_OK, JEMPP_ERR_ARG, JEMPP_ERR_IO, JEMPP_ERR_DATA, JEMPP_ERR_MEM, JEMPP_ERR_DEV,
    JEMPP_ERR_DIVERGED
};
typedef struct { int kind; char msg[1024]; } JemppErr;      // {0} before use; keeps the first error

JEMPP_API const char *jempp_version(void);                  // JEMPP_VERSION, " (revision)"
// What can compute here, a line for each device, or why it cannot; free() it.
JEMPP_API char *jempp_devices(void);

// ---- options: the names of the command line, without the dashes ("weight-decay", "4e-4")
typedef struct JemppOptions JemppOptions;
// command: "train", "sample", ...
JEMPP_API JemppOptions *jempp_options(const char *command, JemppErr *err);
JEMPP_API int   jempp_set(JemppOptions *o, const char *name, const char *value, JemppErr *err);
// Flags from argv (presets and files named there first, then the flags); the rest are file names.
JEMPP_API int   jempp_set_args(JemppOptions *o, int argc, char **argv, JemppErr *err);
JEMPP_API int   jempp_n_files(const JemppOptions *o);
JEMPP_API const char *jempp_file(const JemppOptions *o, int i);
// -1: no such option
JEMPP_API int   jempp_get(const JemppOptions *o, const char *name, char *dst, size_t n);
JEMPP_API char *jempp_help(const char *command);            // NULL: all commands; free() it
// "options-doc" (docs/options.md), "man", "bash-completion", "zsh-completion"; free() it
JEMPP_API char *jempp_doc(const char *name);
JEMPP_API void  jempp_options_free(JemppOptions *o);

// ---- how long work reports, and is stopped
typedef struct {
    void (*line)(void *ctx, const char *text);              // something worth keeping
    void (*progress)(void *ctx, uint64_t first, uint64_t done, uint64_t total, const char *unit,
                     const char *text);
    int  (*stop)(void *ctx);                                // asked between steps; not 0: end
    void *ctx;
} JemppEvents;                                              // each may be NULL

// Events shown on a stream: on a terminal a bar that is redrawn, elsewhere a line now and then.
JEMPP_API JemppEvents jempp_terminal(FILE *out);
JEMPP_API void jempp_terminal_close(JemppEvents *ev);

typedef struct {
    char     out[512];                                      // the run folder
    uint64_t steps;
    double   seconds, valid_accuracy, test_accuracy, test_ece;   // NaN: not known
    int      stopped, retries;
} JemppTrained;

JEMPP_API int jempp_train(const JemppOptions *o, const JemppEvents *ev, JemppTrained *result,
                          JemppErr *err);

// ---- a trained model: a run folder or a safetensors file
typedef struct Jempp Jempp;
JEMPP_API Jempp *jempp_open(const JemppOptions *o, const char *path, JemppErr *err);
JEMPP_API void   jempp_close(Jempp *j);
JEMPP_API int    jempp_classes(const Jempp *j);
JEMPP_API const char *jempp_class_name(const Jempp *j, int i);
JEMPP_API int    jempp_channels(const Jempp *j);
JEMPP_API int    jempp_side(const Jempp *j);
// 5th percentile of validation scores; NaN: unknown
JEMPP_API float  jempp_threshold(const Jempp *j);
JEMPP_API int    jempp_load_image(const Jempp *j, const char *path, float *image, JemppErr *err);
// logits: [n][classes]
JEMPP_API int    jempp_logits(Jempp *j, const float *images, int n, float *logits, JemppErr *err);
// p(y|x) of one row into p (may be NULL): the softmax at the model's temperature, 1 if it carries
// none. Returns log p(x) up to a constant: the logits' LSE.
JEMPP_API float  jempp_score(const Jempp *j, const float *logits, float *p);
// Draws n images as the options say (from, class, steps, ...); class_of (may be NULL) gets each
// one's class or -1.
JEMPP_API int    jempp_sample(Jempp *j, const JemppOptions *o, const JemppEvents *ev, int n,
                              float *images, int *class_of, JemppErr *err);
JEMPP_API int    jempp_write_grid(const Jempp *j, const float *images, int n, int columns, int zoom,
                                  const char *path, JemppErr *err);
// Coloured text for a terminal; free() it.
JEMPP_API char  *jempp_preview(const Jempp *j, const float *images, int n, int columns, int width);
JEMPP_API int    jempp_export(Jempp *j, const JemppOptions *o, const char *path, JemppErr *err);
// Evaluates the model as the options say (tasks, ood, attacks, ...); results go to eval.json.
// Returns a table of them or, with the option json, the file's text; free() it. Text and err:
// everything was computed, and a file could not be written.
JEMPP_API char  *jempp_eval(Jempp *j, const JemppOptions *o, const JemppEvents *ev, JemppErr *err);

// ---- the rest of the program: text or, with the option json, JSON; free() it
JEMPP_API char *jempp_info(const JemppOptions *o, JemppErr *err);
JEMPP_API char *jempp_bench(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
JEMPP_API char *jempp_data(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
// Writes a run's pictures and its page (the option out, or report.html in the folder).
JEMPP_API char *jempp_report(const JemppOptions *o, JemppErr *err);

#ifdef __cplusplus
}
#endif
#endif
