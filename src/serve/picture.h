// picture.h - a client's picture as a model's input, changed as its sliders say; and pictures as
// text for a page.
#ifndef PICTURE_H
#define PICTURE_H
#include "base/image.h"
#include "base/json.h"

enum { MAX_UPLOAD = 16 << 20 };                             // bytes of a picture

typedef struct { double rotate, noise; } PictureChange;     // degrees; sd as a share of the range

// image: [c][side][side] in [-1, 1]. A picture of over 50 million pixels is refused.
int  picture_input(float *image, const uint8_t *data, size_t n, int c, int side,
                   PictureChange change, Err *err);
// Images as a grid, a PNG in a data: address.
int  picture_put(JsonOut *j, const char *key, FloatImages images, int columns, Err *err);
#endif
