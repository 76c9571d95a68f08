// run_data.h - the image sets that a run's options name: the training and validation split.
#ifndef RUN_DATA_H
#define RUN_DATA_H
#include "conf/config.h"
#include "data/data.h"

DataOpts data_opts(const Config *c, const Events *ev);      // points into c; ev may be NULL
// The images that a run with these options trains and validates on: the same split for everyone who
// asks. Both sets must be freed, after a failure too.
int  run_images(const Config *c, const Events *ev, Set *train, Set *valid, Err *err);
// The same for a run that begins: more training or validation images than there are, where the user
// asked for them, and a single class are refused.
int  new_run_images(const Config *c, const Events *ev, Set *train, Set *valid, Err *err);
// An error where the folder of a run's pictures is gone, which says how to name another place.
int  run_folder_there(const Config *c, Err *err);
// MD5 of the images, labels and class names of both: a resumed run needs the same, and so does an
// evaluation on images that were held out of them.
void images_digest(char hex[33], const Set *train, const Set *valid);
#endif
