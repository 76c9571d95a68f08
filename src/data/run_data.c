// run_data.c - see run_data.h.
#include "data/run_data.h"

DataOpts data_opts(const Config *c) {
    return (DataOpts){ .dir = c->data_dir[0] ? c->data_dir : NULL,
                       .side = c->side,
                       .channels = c->channels,
                       .seed = (uint64_t)c->seed };
}

int run_images(const Config *c, Set *train, Set *valid, Err *err) {
    const DataOpts o = data_opts(c);
    Set all = { 0 };
    if (set_load(&all, c->data, HALF_TRAIN, &o, err)) return -1;
    size_t held_out = (size_t)c->valid_images;
    if (held_out > all.n / 5) held_out = all.n / 5; // small sets keep four fifths for training
    const int rc =
        set_split(&all, held_out, (size_t)c->train_images, (uint64_t)c->seed, train, valid, err);
    set_free(&all);
    return rc;
}

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
