// sha256.h - SHA-256 (FIPS 180-4).
#ifndef SHA256_H
#define SHA256_H
#include "base/digest.h"
#include "base/err.h"

typedef struct { Digest d; } Sha256;

Sha256 sha256_start(void);
void   sha256_add(Sha256 *s, const void *data, size_t n);
void   sha256_end(Sha256 *s, char hex[65]);             // 64 lower-case digits and a NUL
// Of a whole file.
int    sha256_file(const char *path, char hex[65], Err *err);
#endif
