// version.h - which version of the program this is.
#ifndef VERSION_H
#define VERSION_H

const char *version_text(void);         // "0.1.0 (revision)"; without a revision outside a checkout
#endif
