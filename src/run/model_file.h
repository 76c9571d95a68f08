// model_file.h - a model's tensors by the names of the published code (f.conv1.weight, ...),
// whatever wraps them: a state dict alone or in a checkpoint, with or without DataParallel's
// "module.".
#ifndef MODEL_FILE_H
#define MODEL_FILE_H
#include "base/tensors.h"
#include "net/net.h"

// Opens a safetensors file or one of PyTorch's; st_close closes it.
int model_file_open(St *st, const char *path, Err *err);
// Depth, width, classes, channels, stem and norm as the tensors' names and shapes tell.
int model_file_spec(const St *st, NetSpec *spec, Err *err);

typedef enum { FILE_SAFETENSORS, FILE_TORCH, FILE_ONNX } ModelFormat;
int model_format(const char *path, ModelFormat *format, Err *err);     // by the name's ending
// Declares what a file for the published classes has beside the net's own tensors, which were
// declared in "model_state_dict/": heads that are not used, the same for the classes that name some
// tensors twice (yopo_state_dict) or have one more head (jem_state_dict), and a buffer of no
// images.
void torch_declare_classes(StWriter *w, const Net *net, StType type);
void torch_write_classes(StWriter *w, const Net *net, StType type);    // after the net's
#endif
