// tidy.h - read before every file by clang-tidy, which sees one file at a time: what it could not know.
#ifndef TIDY_H
#define TIDY_H
#include "base/err.h"

#define err_set(...)    ((err_set)(__VA_ARGS__), -1)     // so that `rc = err_set(...)` is known not to be 0
#define err_prefix(...) ((err_prefix)(__VA_ARGS__), -1)
#endif
