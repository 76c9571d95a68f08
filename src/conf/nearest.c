// nearest.c - see nearest.h.
#include "conf/nearest.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAME = 32 };

static int same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

// Edit distance, of capitals or not: letters inserted, removed, replaced, or two neighbours
// swapped.
static int edit_distance(const char *a, const char *b) {
    int d[MAX_NAME + 1][MAX_NAME + 1];
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX_NAME || m > MAX_NAME) return MAX_NAME;
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + !same(a[i - 1], b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

// How unlike two names are; one that begins with all of the other is as near as two letters off.
static int unlikeness(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b), shared = n < m ? n : m;
    const int d = edit_distance(a, b);
    return d > 2 && shared >= 3 && !strncasecmp(a, b, shared) ? 2 : d;
}

// Of short names almost all are near.
void nearer(const char *name, const char *candidate, const char **found) {
    const size_t n = strlen(name);
    const int best = *found ? unlikeness(name, *found) : n > 6 ? 4 : n > 4 ? 3 : 2;
    if (unlikeness(name, candidate) < best) *found = candidate;
}
