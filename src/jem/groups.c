// groups.c - see groups.h.
#include "jem/groups.h"
#include <string.h>

int groups_sort(const int *y, int n, int n_group, int *rows, int *first, Err *err) {
    for (int i = 0; i < n; i++) first[(n_group > 1 ? y[i] : 0) + 1]++;
    for (int k = 0; k < n_group; k++) {
        if (!first[k + 1])
            return err_set(err, ERR_DATA, "class %d has no training image to start chains from", k);
        first[k + 1] += first[k];
    }
    int *at = first + n_group + 1;
    memcpy(at, first, (size_t)n_group * sizeof *at);
    for (int i = 0; i < n; i++) rows[at[n_group > 1 ? y[i] : 0]++] = i;
    return 0;
}

static void group_mean(const uint8_t *x, const int *rows, int n, int dim, double *mean) {
    for (int i = 0; i < dim; i++) mean[i] = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < dim; i++)
            mean[i] += pixel_value(x[(size_t)rows[r] * (size_t)dim + (size_t)i]);
    for (int i = 0; i < dim; i++) mean[i] /= n;
}

int groups_open(Groups *g, const Set *set, int n_group, Err *err) {
    const int dim = set->c * set->side * set->side;
    *g = (Groups){ 0 };
    g->rows = arena_alloc(&g->arena, set->n + 1, sizeof(int));
    g->first = arena_alloc(&g->arena, 2 * (size_t)n_group + 2, sizeof(int));
    g->mean = arena_alloc(&g->arena, (size_t)n_group * (size_t)dim + 1, sizeof(double));
    int rc = arena_ok(&g->arena, "chain starts", err) ||
             groups_sort(set->y, (int)set->n, n_group, g->rows, g->first, err);
    for (int k = 0; !rc && k < n_group; k++)
        group_mean(set->x, g->rows + g->first[k], g->first[k + 1] - g->first[k], dim,
                   g->mean + (size_t)k * (size_t)dim);
    if (rc) groups_close(g);
    return rc ? -1 : 0;
}

void groups_close(Groups *g) {
    arena_free(&g->arena);
    *g = (Groups){ 0 };
}
