// subset.c - sets in memory and parts of them: images by number, a validation split, a stratified
// sample. See data.h.
#include "base/rng.h"
#include "data/data.h"
#include <stdlib.h>
#include <string.h>

void set_free(Set *s) {
    arena_free(&s->arena);
    *s = (Set){ 0 };
}

int set_select(Set *dst, const Set *src, const uint32_t *index, size_t n, Err *err) {
    *dst = *src;
    dst->arena = (Arena){ 0 };
    dst->n = n;
    const size_t bytes = (size_t)src->c * (size_t)src->side * (size_t)src->side;
    dst->x = arena_alloc(&dst->arena, n, bytes);
    dst->y = arena_alloc(&dst->arena, n, sizeof *dst->y);
    dst->class_name = arena_alloc(&dst->arena, (size_t)src->classes, sizeof *dst->class_name);
    for (int i = 0; dst->class_name && i < src->classes; i++)
        dst->class_name[i] = arena_strdup(&dst->arena, src->class_name[i]);
    int rc = arena_ok(&dst->arena, src->name, err);
    for (size_t i = 0; !rc && i < n; i++) {
        if (index[i] >= src->n) {
            rc = err_set(err, ERR_ARG, "%s: picture %u of %zu was requested", src->name, index[i],
                         src->n);
            break;
        }
        memcpy(dst->x + i * bytes, src->x + index[i] * bytes, bytes);
        dst->y[i] = src->y[index[i]];
    }
    if (rc) set_free(dst);
    return rc;
}

int set_split(const Set *all, size_t n_valid, size_t limit, uint64_t seed, Set *train, Set *valid,
              Err *err) {
    *train = *valid = (Set){ 0 };
    if (n_valid >= all->n)
        return err_set(err, ERR_ARG,
                       "%s: %zu of %zu pictures for validation leave none to train on", all->name,
                       n_valid, all->n);
    uint32_t *index = calloc(all->n, sizeof *index);
    if (!index) return err_set(err, ERR_MEM, "out of memory for %s", all->name);
    const Rng k = { seed, RNG_SPLIT, 0, 0 };
    for (size_t i = 0; i < all->n; i++) index[i] = rng_perm(k, (uint32_t)all->n, (uint32_t)i);
    const size_t rest = all->n - n_valid, n = limit && limit < rest ? limit : rest;
    int rc = set_select(valid, all, index, n_valid, err);
    if (!rc) rc = set_select(train, all, index + n_valid, n, err);
    free(index);
    if (rc) set_free(valid);
    return rc;
}

// ---- a stratified sample

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
