// module.h - parts of the program that need a library of their own, loaded on demand.
#ifndef MODULE_H
#define MODULE_H
#include "base/err.h"

// Loads jempp-NAME.so from JEMPP_MODULE_DIR, the folder of this program or library, or the folder
// where modules are installed, and fills *function with what it exports as `symbol`. The first file
// found is used. It stays loaded, because its threads may outlive its use.
int module_load(const char *name, const char *symbol, void **function, Err *err);
#endif
