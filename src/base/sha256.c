// sha256.c - see sha256.h. Names as in FIPS 180-4.
#include "base/sha256.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t K[64] = {
    // the first 32 bits of the fractions of the cube roots of the first 64 primes
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static void mix(uint32_t *state, const uint8_t block[64]) {
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4],
                    f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++) w[i] = big_endian(block + 4 * (size_t)i);
    for (int i = 16; i < 64; i++) {
        const uint32_t s0 = right(w[i - 15], 7) ^ right(w[i - 15], 18) ^ w[i - 15] >> 3,
                       s1 = right(w[i - 2], 17) ^ right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 64; i++) {
        const uint32_t s1 = right(e, 6) ^ right(e, 11) ^ right(e, 25), choice = (e & f) ^ (~e & g),
                       t1 = h + s1 + choice + K[i] + w[i];
        const uint32_t s0 = right(a, 2) ^ right(a, 13) ^ right(a, 22),
                       majority = (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + s0 + majority;
    }
    const uint32_t v[8] = { a, b, c, d, e, f, g, h };
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

Sha256 sha256_start(void) {
    return (Sha256){ .d.state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                  0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(Sha256 *s, const void *data, size_t n) { digest_add(&s->d, mix, data, n); }

void sha256_end(Sha256 *s, char hex[65]) {
    const uint64_t bits = s->d.n * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    digest_pad(&s->d, mix, length);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * (size_t)i, 9, "%08x", s->d.state[i]);
}

int sha256_file(const char *path, char hex[65], Err *err) {
    FILE *f = fopen(path, "rb");
    if (!f) return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    Sha256 s = sha256_start();
    char part[1 << 16];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) sha256_add(&s, part, n);
    sha256_end(&s, hex);
    const int bad = ferror(f);
    fclose(f);
    return bad ? err_set(err, ERR_IO, "%s: cannot be read", path) : 0;
}
