// md5.h - MD5 (RFC 1321), to detect damaged downloads; it does not protect against forgery.
#ifndef MD5_H
#define MD5_H
#include "base/digest.h"

typedef struct { Digest d; } Md5;

Md5  md5_start(void);
void md5_add(Md5 *m, const void *data, size_t n);
void md5_end(Md5 *m, char hex[33]);               // 32 lower-case digits and a NUL
#endif
