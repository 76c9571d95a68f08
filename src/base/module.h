// module.h - parts of the program that bring a library of their own, loaded when they are wanted.
#ifndef MODULE_H
#define MODULE_H
#include "base/err.h"

// Loads jempp-NAME.so from JEMPP_MODULE_DIR, the folder of the program or library that asks, or
// where modules are installed, and fills *function with what it exports as `symbol`. The first file
// that exists decides. It stays loaded: its threads may outlive its use, and unloading gains
// nothing.
int module_load(const char *name, const char *symbol, void **function, Err *err);
#endif
