// digest.h - what MD5 and SHA-256 share: data goes through a function in blocks of 64 bytes, and
// the last of them ends with the length.
#ifndef DIGEST_H
#define DIGEST_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t state[8];
    uint64_t n;                  // bytes so far; the last n % 64 wait in block
    uint8_t  block[64];
} Digest;

typedef void DigestMix(uint32_t *state, const uint8_t block[64]);

static inline void digest_add(Digest *d, DigestMix *mix, const void *data, size_t n) {
    for (const uint8_t *p = data; n > 0;) {
        const size_t at = d->n % 64, part = n < 64 - at ? n : 64 - at;
        if (part < 64) memcpy(d->block + at, p, part);
        d->n += part;
        if (d->n % 64 == 0) mix(d->state, part < 64 ? d->block : p);
        p += part;
        n -= part;
    }
}

// length: the number of bits before the padding, in the digest's byte order.
static inline void digest_pad(Digest *d, DigestMix *mix, const uint8_t length[8]) {
    digest_add(d, mix, "\x80", 1);
    while (d->n % 64 != 56) digest_add(d, mix, "", 1);
    digest_add(d, mix, length, 8);
}
#endif
