// torch_file.h - PyTorch's .pt and .pth files: the zip format, the stream that was written before
// 1.6, and the parameters of TorchScript archives. Pickles in them are read as data, never
// executed.
#ifndef TORCH_FILE_H
#define TORCH_FILE_H
#include "base/tensors.h"

int torch_is(const char *path);                        // 1: begins as one of PyTorch's files does
// A tensor's name is the path to it: keys, attributes and indices joined by dots, so that {"model":
// {"fc.weight": ...}} holds "model.fc.weight". Strings and numbers become metadata likewise (less
// "metadata." where the path begins so). Classes other than tensors and containers are refused.
int torch_open(St *st, const char *path, Err *err);

// Writes the zip format: a dictionary, in which tensors named "group/name" are in a dictionary of
// their own, and metadata in "metadata". torch.load opens it with weights_only=True.
StWriter torch_create(const char *path);
// The file names tensor `of` a second time; its data is there once.
void torch_alias(StWriter *w, const char *name, const char *of);
#endif
