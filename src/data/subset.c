// subset.c - set_draw: a part of a set that stands for all of it. See data.h.
#include "base/rng.h"
#include "data/data.h"
#include <stdlib.h>

typedef struct {
    size_t count, take, left;            // images; drawn; remainder of the division
} Share;

// n images over the classes in proportion; what rounding down leaves goes to the largest
// remainders, of equal ones to the first.
static void share_out(Share *s, int classes, size_t n, size_t all) {
    size_t given = 0;
    for (int c = 0; c < classes; c++) {
        s[c].take = n * s[c].count / all;
        s[c].left = n * s[c].count % all;
        given += s[c].take;
    }
    for (; given < n; given++) {
        int best = 0;
        for (int c = 1; c < classes; c++)
            if (s[c].left > s[best].left) best = c;
        s[best].take++;
        s[best].left = 0;
    }
}

// Member number rng_perm(0 .. take) of each class are the drawn ones.
static void mark(char *drawn, const Set *src, const Share *s, uint32_t *members, uint64_t seed) {
    for (int c = 0; c < src->classes; c++) {
        const Rng key = { .seed = seed, .stream = RNG_SUBSET, .step = (uint32_t)c };
        uint32_t n = 0;
        for (size_t i = 0; s[c].take && i < src->n; i++)
            if (src->y[i] == c) members[n++] = (uint32_t)i;
        for (size_t i = 0; i < s[c].take; i++) drawn[members[rng_perm(key, n, (uint32_t)i)]] = 1;
    }
}

int set_draw(Set *dst, const Set *src, size_t n, uint64_t seed, Err *err) {
    Share *share = calloc((size_t)src->classes + 1, sizeof *share);
    uint32_t *index = malloc((src->n + 1) * sizeof *index);
    char *drawn = calloc(src->n + 1, 1);
    int rc = share && index && drawn
                 ? 0
                 : err_set(err, ERR_MEM, "%s: out of memory for a subset", src->name);
    if (!rc) {
        if (n > src->n) n = src->n;
        for (size_t i = 0; i < src->n; i++) share[src->y[i]].count++;   // loaders check labels
        if (src->n) share_out(share, src->classes, n, src->n);
        mark(drawn, src, share, index, seed);
        size_t k = 0;
        for (size_t i = 0; i < src->n; i++)
            if (drawn[i]) index[k++] = (uint32_t)i;
        rc = set_select(dst, src, index, k, err);
    }
    free(share);
    free(index);
    free(drawn);
    return rc;
}
