// score_file.h - scores of images as a file: one row per image, as CSV, JSON lines or npz by the
// name's ending. docs/scripts.md describes the columns.
#ifndef SCORE_FILE_H
#define SCORE_FILE_H
#include "base/file.h"
#include "run/model.h"
#include <stdio.h>

typedef enum { SCORES_CSV, SCORES_JSONL, SCORES_NPZ, N_SCORES } ScoreFormat;
extern const char *const score_suffix[N_SCORES];         // ".csv", ...
int score_format(const char *path, ScoreFormat *format, Err *err);

typedef struct {
    const char  *file;               // NULL: an image of ...
    const char  *set;                // ... this set
    uint64_t     index;              // within its folder, set or list of files
    int          label;              // -1: unknown
    const float *logits;             // [classes]; NULL: it could not be read, and ...
    const char  *error;              // ... this is why
} ScoreRow;

typedef struct {
    const Model *m;
    ScoreFormat  format;
    char         path[512];
    Writer       w;                  // CSV and JSON lines
    FILE        *part[3];            // npz: numbers by row, file names, errors; unnamed files
    uint64_t     n;                  // rows
    float       *p;                  // [classes]
    Err          err;                // the first failure; then rows are ignored
} ScoreFile;

// Memory is bounded whatever the number of rows. Close or cancel it, after a failure too.
int  score_file_open(ScoreFile *f, const char *path, const Model *m, Err *err);
void score_file_add(ScoreFile *f, const ScoreRow *row);
int  score_file_failed(const ScoreFile *f, Err *err);    // nonzero: rows are ignored, err says why
int  score_file_close(ScoreFile *f, Err *err);           // atomic, as file.h's
void score_file_cancel(ScoreFile *f);
#endif
