// jempp.h - joint energy-based models: train a model, classify and score images with it, draw
// samples. The program `jempp` uses this header and nothing else of the library.
//
// Unless they say otherwise, functions return 0 on success and nonzero on failure, with *err
// filled; err may be NULL. Images are floats in [-1, 1], [n][channels][side][side].
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
// One line per device: its description, or why it cannot be used here. free() it.
JEMPP_API char *jempp_devices(void);

// ---- options: named as on the command line, without the dashes ("weight-decay", "4e-4")
typedef struct JemppOptions JemppOptions;
// The defaults of a command: "train", "sample", ... NULL on failure.
JEMPP_API JemppOptions *jempp_options(const char *command, JemppErr *err);
JEMPP_API void  jempp_options_free(JemppOptions *o);
JEMPP_API int   jempp_set(JemppOptions *o, const char *name, const char *value, JemppErr *err);
// Sets the options in argv: presets first, then config files, then all others. Other arguments are
// kept as file names.
JEMPP_API int   jempp_set_args(JemppOptions *o, int argc, char **argv, JemppErr *err);
// Fails unless there are as many file names as the command takes on the command line.
JEMPP_API int   jempp_check_files(const JemppOptions *o, JemppErr *err);
JEMPP_API int   jempp_n_files(const JemppOptions *o);
JEMPP_API const char *jempp_file(const JemppOptions *o, int i);            // NULL: there is none
// The value of an option as text; nonzero if there is no such option.
JEMPP_API int   jempp_get(const JemppOptions *o, const char *name, char *dst, size_t n);
// The text of --help for a command, or for the program (NULL). free() it.
JEMPP_API char *jempp_help(const char *command);
// "options-doc" (docs/options.md), "man", "bash-completion" or "zsh-completion"; NULL for any other
// name. free() it.
JEMPP_API char *jempp_doc(const char *name);

// ---- how long-running work reports progress and learns that it should stop
typedef struct {
    void (*line)(void *ctx, const char *text);              // a message to keep
    void (*progress)(void *ctx, uint64_t first, uint64_t done, uint64_t total, const char *unit,
                     const char *text);                     // first: where this process began
    int  (*stop)(void *ctx);                                // polled between steps; nonzero: stop
    // training: a step's line of log.tsv, the names of its n columns and their values (NaN: empty)
    void (*row)(void *ctx, int n, const char *const *name, const double *value);
    void *ctx;
} JemppEvents;                                              // each callback may be NULL

// Shows events on a stream: a progress bar on a terminal, elsewhere one line every few seconds.
JEMPP_API JemppEvents jempp_terminal(FILE *out);
JEMPP_API void jempp_terminal_close(JemppEvents *ev);
// Columns that UTF-8 text occupies on a terminal.
JEMPP_API int  jempp_text_width(const char *text);
// Copies it to dst[n], without its middle where it has more than `width` columns or does not fit;
// n and width are at least 8. Returns dst.
JEMPP_API const char *jempp_text_shorten(char *dst, size_t n, const char *text, int width);
// Writes a file's name to dst[n] as one word for a shell, in quotes where it needs them. Returns
// dst.
JEMPP_API const char *jempp_shell_word(char *dst, size_t n, const char *name);

// ---- training
typedef struct {
    char     out[512];                                      // the run folder
    uint64_t steps;
    double   seconds, valid_accuracy, test_accuracy, test_ece;   // NaN: unknown
    int      stopped, retries;                              // stopped: by JemppEvents.stop
} JemppTrained;

// The number of this process among those that mpirun or srun started together (docs/scaling.md): 0
// for the one that writes and reports, and for a single process.
JEMPP_API int jempp_rank(void);

JEMPP_API int jempp_train(const JemppOptions *o, const JemppEvents *ev, JemppTrained *result,
                          JemppErr *err);

// ---- a trained model: a run folder, a safetensors file, or a checkpoint of PyTorch's (.pt, .pth)
// One thread at a time uses a model; different models can be used by different threads.
typedef struct Jempp Jempp;
JEMPP_API Jempp *jempp_open(const JemppOptions *o, const char *path, JemppErr *err);
JEMPP_API void   jempp_close(Jempp *j);
JEMPP_API int    jempp_classes(const Jempp *j);
JEMPP_API const char *jempp_class_name(const Jempp *j, int i);
JEMPP_API int    jempp_channels(const Jempp *j);
JEMPP_API int    jempp_side(const Jempp *j);
// The 5th percentile of the validation images' log p(x): below it an image counts as out of
// distribution. NaN: unknown.
JEMPP_API float  jempp_threshold(const Jempp *j);
// A picture file as the model's input: upright (EXIF), short side resized, centre cropped. PNG,
// JPEG or WebP.
JEMPP_API int    jempp_load_image(const Jempp *j, const char *path, float *image, JemppErr *err);
// The same from memory; name is for messages.
JEMPP_API int    jempp_decode_image(const Jempp *j, const void *data, size_t n, const char *name,
                                    float *image, JemppErr *err);

// logits: [n][classes]
JEMPP_API int    jempp_logits(Jempp *j, const float *images, int n, float *logits, JemppErr *err);
// From one image's logits: p(y|x) into p (may be NULL), the softmax at the model's temperature, 1
// where it has none. Returns log p(x) up to a constant: the logits' LogSumExp.
JEMPP_API float  jempp_score(const Jempp *j, const float *logits, float *p);

typedef struct {
    const char *file;                                       // the caller's, for JSON
    int         label;
    const char *class_name;                                 // the model's
    float       p, log_px;                                  // p(y|x); log p(x) up to a constant
    int         in;                                         // in distribution: 1, 0, or -1: unknown
    const char *error;                                      // why there is no answer, or NULL
} JemppPrediction;
// Fills all but `file` of p[n].
JEMPP_API int    jempp_predict(Jempp *j, const float *images, int n, JemppPrediction *p,
                               JemppErr *err);
// An array of objects, those with an error of `file` and `error` alone; free() it. NULL on failure.
JEMPP_API char  *jempp_predictions_json(const JemppPrediction *p, int n, JemppErr *err);

typedef struct {
    uint64_t images, unreadable;        // rows; of these, images that could not be read
    int      stopped;                   // by ev, before the end
    uint64_t total;                     // images of all files, folders and sets
} JemppPredicted;
// Writes scores of the pictures, folders, npz files of images (arr_0) and image sets that the
// options name after the model to the file of the option out: .csv, .jsonl or .npz.
JEMPP_API int    jempp_predict_files(Jempp *j, const JemppOptions *o, const JemppEvents *ev,
                                     JemppPredicted *result, JemppErr *err);

// The same with a call for each row, for the files number from .. from + n - 1 of the options
// (jempp_file), all of which must be there. p->file, which is SET[INDEX] for an image of a set, is
// valid during the call. error (also p->error): why a picture could not be read, and then only
// p->file is set; else NULL.
typedef void JemppOnPrediction(void *ctx, const JemppPrediction *p, const char *error);
JEMPP_API int    jempp_predict_each(Jempp *j, const JemppOptions *o, int from, int n,
                                    const JemppEvents *ev, JemppOnPrediction *on, void *ctx,
                                    JemppPredicted *result, JemppErr *err);

// The number of images that the options request (count, best, worst; one per class with from =
// centres), or -1.
JEMPP_API int    jempp_n_samples(const Jempp *j, const JemppOptions *o, JemppErr *err);
// Draws n images as the options say (from, class, steps, ...). class_of[n] (may be NULL) gets the
// class of each chain's start, or the predicted class of an image of the buffer if the options name
// a class; -1: none. Buffers are kept for the next call.
JEMPP_API int    jempp_sample(Jempp *j, const JemppOptions *o, const JemppEvents *ev, int n,
                              float *images, int *class_of, JemppErr *err);
// Fails unless the path ends in .png or .webp and, without force, holds no other kind of file yet.
JEMPP_API int    jempp_check_picture(const char *path, int force, JemppErr *err);
// The same for the option animation: it ends in .webp.
JEMPP_API int    jempp_check_animation(const char *path, int force, JemppErr *err);
// Writes a grid of images as PNG or WebP, by the path's suffix.
JEMPP_API int    jempp_write_grid(const Jempp *j, const float *images, int n, int columns, int zoom,
                                  const char *path, JemppErr *err);
// Whether a path is one for single images: FILE.npz, or a folder (it exists, or ends in /).
JEMPP_API int    jempp_is_images(const char *path);
// Fails if, without force, another kind of file is there, or the folder has pictures already.
JEMPP_API int    jempp_check_images(const char *path, int force, JemppErr *err);
// Writes single images, rounded to bytes: to FILE.npz as arr_0 [n][side][side][channels] and their
// classes as arr_1 [n], else to a folder as 000000.png, ...; those of an earlier call are removed
// first. class_of[n]: NULL, or the classes as jempp_sample gives them; no arr_1 where one is -1.
JEMPP_API int    jempp_write_images(const Jempp *j, const float *images, const int *class_of, int n,
                                    const char *path, const JemppEvents *ev, JemppErr *err);
// A grid as coloured text for a terminal; free() it.
JEMPP_API char  *jempp_preview(const Jempp *j, const float *images, int n, int columns, int width);
// Writes the model to one file. The path ends in .safetensors, .pt, .pth or .onnx; without the
// option force, neither the model's own file nor a file of another kind is replaced.
JEMPP_API int    jempp_export(Jempp *j, const JemppOptions *o, const char *path, JemppErr *err);
// Evaluates the model as the options say (tasks, ood, attacks, ...); results go to eval.json.
// Returns a table of them or, with the option json, the file's text; free() it. If err is set as
// well, everything was computed, but a file could not be written.
JEMPP_API char  *jempp_eval(Jempp *j, const JemppOptions *o, const JemppEvents *ev, JemppErr *err);

// ---- the other commands: text or, with the option json, JSON; free() it. NULL on failure.
JEMPP_API char *jempp_info(const JemppOptions *o, JemppErr *err);
JEMPP_API char *jempp_bench(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
// FID, KID, precision and recall between the images that the two files of the options name; with
// the option out, the statistics of the images that one file names are written there.
JEMPP_API char *jempp_fid(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
JEMPP_API char *jempp_data(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);
// Writes a run's figures and its page (the option out, else report.html in the folder).
JEMPP_API char *jempp_report(const JemppOptions *o, JemppErr *err);
// Serves a live page and a JSON API of the run, folder of runs or model that the options name,
// until ev->stop is nonzero. Its address is reported by ev->line.
JEMPP_API int   jempp_serve(const JemppOptions *o, const JemppEvents *ev, JemppErr *err);

#ifdef __cplusplus
}
#endif
#endif
