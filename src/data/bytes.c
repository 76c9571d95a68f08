// bytes.c - see bytes.h.
#include "data/bytes.h"

int bytes_upload(Bytes *b, Dev *dev, const Set *s, Err *err) {
    const size_t bytes = s->n * (size_t)(s->c * s->side * s->side);
    uint8_t *x = dev->be.alloc(dev, bytes, "images");
    int *y = dev->be.alloc(dev, s->n * sizeof *y, "labels");
    *b = (Bytes){ (int)s->n, s->c, s->side, x, y };
    if (dev_check(dev, err)) return -1;
    dev->be.copy_in(dev, x, s->x, bytes);
    dev->be.copy_in(dev, y, s->y, s->n * sizeof *y);
    return dev_check(dev, err);
}

void bytes_free(Bytes *b, Dev *dev) {
    dev->be.free(dev, (void *)(uintptr_t)b->x);
    dev->be.free(dev, (void *)(uintptr_t)b->y);
    *b = (Bytes){ 0 };
}
