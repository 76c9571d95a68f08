// output.h - whether a file may be written: its suffix says the format, and a file of another kind
// is never replaced unless the user forces it.
#ifndef OUTPUT_H
#define OUTPUT_H
#include "base/err.h"

// Pictures end in .png or .webp.
int output_picture(const char *path, int force, Err *err);
int output_animation(const char *path, int force, Err *err);         // ends in .webp
// Images one by one: FILE.npz, or a folder, with / at its end or existing.
int output_is_images(const char *path);
// Statistics for FID: an npz file.
int output_statistics(const char *path, int force, Err *err);
int output_images(const char *path, int force, Err *err);
// Scores end in .csv, .jsonl or .npz.
int output_scores(const char *path, int force, Err *err);
// A page ends in .html.
int output_page(const char *path, int force, Err *err);
// Models end in .safetensors, .pt, .pth or .onnx. source: the file that the model was read from,
// which is not replaced either.
int output_model(const char *path, const char *source, int force, Err *err);
#endif
