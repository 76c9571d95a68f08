// plan.c - offsets for blocks with known lifetimes: the largest first, each into the lowest gap
// that is free as long as it lives.
#include "net/net.h"

static int in_the_way(const PlanBlock *a, const PlanBlock *b, int share) {
    int together = !share || (a->born <= b->dies && b->born <= a->dies);
    return together && a->off < b->off + b->bytes && b->off < a->off + a->bytes;
}

// Sorted by size in place of an index: `off` of a block not yet placed is (size_t)-1.
static PlanBlock *largest_unplaced(PlanBlock *b, int n) {
    PlanBlock *best = NULL;
    for (int i = 0; i < n; i++)
        if (b[i].off == (size_t)-1 && (!best || b[i].bytes > best->bytes)) best = &b[i];
    return best;
}

size_t plan_blocks(PlanBlock *b, int n, int share) {
    size_t total = 0;
    for (int i = 0; i < n; i++) b[i].off = (size_t)-1;
    for (int left = n; left > 0; left--) {
        PlanBlock *me = largest_unplaced(b, n);
        me->off = 0;
        for (int i = 0; i < n; i++) {
            if (&b[i] == me || b[i].off == (size_t)-1 || !in_the_way(me, &b[i], share)) continue;
            me->off = b[i].off + b[i].bytes;
            i = -1;                                  // moved up: look at all of them again
        }
        if (me->off + me->bytes > total) total = me->off + me->bytes;
    }
    return total;
}
