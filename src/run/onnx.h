// onnx.h - a model as an ONNX file (opset 17): image [N][channels][side][side] in [0, 1] to logits
// and probs [N][classes] and log_px [N].
#ifndef ONNX_H
#define ONNX_H
#include "run/model.h"

// Class names, threshold and temperature are in the file's metadata.
int onnx_write(const Model *m, const char *path, Err *err);
// The first bytes of such a file.
extern const char onnx_magic[];
#endif
