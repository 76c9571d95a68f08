// safetensors.h - named tensors in a file that every ecosystem opens: an 8-byte length, a JSON
// header, the bytes. https://github.com/huggingface/safetensors describes the format.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "base/tensors.h"

// The whole header is checked (bounds, overlaps, gaps, sizes) before anything is used. The tensors
// are in the order in which they lie in the file.
int      st_open(St *st, const char *path, Err *err);
StWriter st_create(const char *path);
#endif
