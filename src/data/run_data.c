// run_data.c - see run_data.h.
#include "data/run_data.h"
#include "base/file.h"
#include "base/md5.h"
#include "base/text.h"
#include <string.h>

DataOpts data_opts(const Config *c, const Events *ev) {
    return (DataOpts){ .dir = c->data_dir[0] ? c->data_dir : NULL,
                       .side = c->side,
                       .channels = c->channels,
                       .seed = (uint64_t)c->seed,
                       .events = ev };
}

static size_t held_out(const Config *c, const Set *all) {
    const size_t most = all->n / 5, asked = (size_t)c->valid_images;
    return asked < most ? asked : most;             // small sets keep four fifths for training
}

// A preset's numbers are for larger sets than a user's may be: only the user's own are refused.
static int check_new(const Config *c, const Set *all, Err *err) {
    const size_t valid = held_out(c, all), left = all->n - valid;
    if (all->classes < 2)
        return err_set(err, ERR_DATA, "%s: 1 class ('%s'), expected at least 2", all->name,
                       all->class_name[0]);
    if (c->side && c->side != all->side && config_asked(c, "side"))
        return err_set(err, ERR_ARG,
                       "--side %d: the images of %s are %d x %d; --side is for folder: and shapes",
                       c->side, all->name, all->side, all->side);
    if (c->channels && c->channels != all->c && config_asked(c, "channels"))
        return err_set(err, ERR_ARG,
                       "--channels %d: the images of %s have %d; --channels is for folder:",
                       c->channels, all->name, all->c);
    if (valid < (size_t)c->valid_images && config_asked(c, "valid-images"))
        return err_set(err, ERR_ARG,
                       "--valid-images %d: %s has %zu training image%s, of which at most a fifth "
                       "(%zu) can be held out",
                       c->valid_images, all->name, all->n, plural((double)all->n), valid);
    if (left < (size_t)c->train_images && config_asked(c, "train-images"))
        return err_set(
            err, ERR_ARG,
            "--train-images %d: %s has %zu training image%s, of which %zu are left after "
            "%zu for validation (--valid-images); without --train-images all are used",
            c->train_images, all->name, all->n, plural((double)all->n), left, valid);
    return 0;
}

static size_t images_of(const Set *s, int k) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->y[i] == k;
    return n;
}

// Chains start from the mean of each class, so that all of a class cannot be held out.
static int check_classes(const Config *c, const Set *all, const Set *train, Err *err) {
    const int chains = c->px != PX_NONE || c->pxy_weight > 0;
    for (int k = 0; chains && c->start == START_INFORMATIVE && k < all->classes; k++)
        if (!images_of(train, k))
            return err_set(err, ERR_DATA,
                           "%s: class '%s' has no image left to train on, of %zu: expected more of "
                           "them, fewer --valid-images%s, or --start gaussian",
                           all->name, all->class_name[k], images_of(all, k),
                           c->train_images ? ", more --train-images" : "");
    return 0;
}

// new_run: a user's options, not those of a run that exists and whose split must stay the same.
static int split(const Config *c, int new_run, const Events *ev, Set *train, Set *valid, Err *err) {
    const DataOpts o = data_opts(c, ev);
    Set all = { 0 };
    if (set_load(&all, c->data, HALF_TRAIN, &o, err)) return -1;
    int rc = new_run ? check_new(c, &all, err) : 0;
    if (!rc)
        rc = set_split(&all, held_out(c, &all), (size_t)c->train_images, (uint64_t)c->seed, train,
                       valid, err);
    if (!rc && new_run) rc = check_classes(c, &all, train, err);
    set_free(&all);
    return rc;
}

int run_images(const Config *c, const Events *ev, Set *train, Set *valid, Err *err) {
    return split(c, 0, ev, train, valid, err);
}

int new_run_images(const Config *c, const Events *ev, Set *train, Set *valid, Err *err) {
    return split(c, 1, ev, train, valid, err);
}

int run_folder_there(const Config *c, Err *err) {
    const char *dir = c->data + 7;
    if (strncmp(c->data, "folder:", 7) != 0 || dir_exists(dir)) return 0;
    return err_set(err, ERR_IO,
                   "%s: no such folder; --data folder:DIR names the place of pictures that were "
                   "moved",
                   dir);
}

void images_digest(char hex[33], const Set *train, const Set *valid) {
    const Set *part[] = { train, valid };
    Md5 md5 = md5_start();
    for (int k = 0; k < train->classes; k++)
        md5_add(&md5, train->class_name[k], strlen(train->class_name[k]) + 1);
    for (int i = 0; i < 2; i++) {
        const Set *s = part[i];
        const uint64_t shape[] = { s->n, (uint64_t)s->c, (uint64_t)s->side };
        md5_add(&md5, shape, sizeof shape);
        if (!s->n) continue;
        md5_add(&md5, s->y, s->n * sizeof *s->y);
        md5_add(&md5, s->x, s->n * (size_t)s->c * (size_t)s->side * (size_t)s->side);
    }
    md5_end(&md5, hex);
}
