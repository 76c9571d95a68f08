// version.c - see version.h. The Makefile passes both macros; jempp.h owns the number.
#include "base/version.h"

#ifdef JEMPP_REVISION
const char *version_text(void) { return JEMPP_NUMBER " (" JEMPP_REVISION ")"; }
#else
const char *version_text(void) { return JEMPP_NUMBER; }
#endif
