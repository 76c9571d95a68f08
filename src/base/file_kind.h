// file_kind.h - what a file is, by how it begins: for messages to someone who named the wrong one.
#ifndef FILE_KIND_H
#define FILE_KIND_H
#include "base/err.h"
#include <stddef.h>

// "a PNG picture", "a text file", ... by the first n bytes (512 are enough), or NULL where they
// tell nothing.
const char *bytes_kind(const unsigned char *head, size_t n);
// The same of what is at a path, which may also be "a folder", "a pipe", "an empty file", "a broken
// link" or "a file of an unknown kind"; NULL where nothing is there.
const char *file_kind(const char *path);
// 0 where the file may hold tensors, as far as its begin tells, or does not exist; else an error
// "PATH: is a PNG picture, expected EXPECTED".
int tensors_expected(const char *path, const char *expected, Err *err);
#endif
