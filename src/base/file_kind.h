// file_kind.h - recognises a file by its first bytes, for messages about a wrong file.
#ifndef FILE_KIND_H
#define FILE_KIND_H
#include "base/err.h"
#include <stddef.h>

// "a PNG picture", "a text file", ... by the first n bytes (512 are enough); NULL: unknown.
const char *bytes_kind(const unsigned char *head, size_t n);
// The same of what is at a path, which may also be "a folder", "a pipe", "an empty file", "a broken
// link", "a file that cannot be read" or "a file of an unknown kind"; NULL where nothing is there.
const char *file_kind(const char *path);
// 0 if the file does not exist or, by its first bytes, may hold tensors; else an error "PATH: is a
// PNG picture, expected EXPECTED".
int tensors_expected(const char *path, const char *expected, Err *err);
// Likewise 0 if it may hold text. A file of an unknown kind "is a binary file".
int text_expected(const char *path, const char *expected, Err *err);
#endif
