// tensorboard.h - a run's log and sample grids as a TensorBoard event file in its folder.
#ifndef TENSORBOARD_H
#define TENSORBOARD_H
#include "base/err.h"

// A line about the file, malloc'd; NULL on failure. Event files that the run wrote while it trained
// are enough: where there are some, it fails.
char *tensorboard_write(const char *dir, Err *err);
#endif
