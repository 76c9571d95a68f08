// bytes.h - the copy of an image set on a device.
#ifndef BYTES_H
#define BYTES_H
#include "data/data.h"
#include "dev/backend.h"

int  bytes_upload(Bytes *b, Dev *dev, const Set *s, Err *err);
void bytes_free(Bytes *b, Dev *dev);
#endif
