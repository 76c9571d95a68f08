// weights_file.h - a net's weights and running statistics as tensors of a file, by the names that
// PyTorch's state dict of the published network has.
#ifndef WEIGHTS_FILE_H
#define WEIGHTS_FILE_H
#include "base/tensors.h"
#include "net/net.h"

// ---- writing; `in` stands before every name: a group of PyTorch's files, or ""
// Counters come first: they are 8 bytes wide, and tensors lie without gaps.
void declare_counters(StWriter *w, const Net *net, const char *in);
void declare_net(StWriter *w, const Net *net, const char *in, StType type);

enum { DEVICE_OUT_ROOM = 1 << 20 };
typedef struct {                    // from a device into a file
    StWriter *w;
    Dev      *dev;
    int       half;                 // as fp16
    real     *room;                 // [DEVICE_OUT_ROOM], a piece at a time; NULL: w holds its data
} DeviceOut;                        // in memory, and gets all at once

void write_counters(StWriter *w, const Net *net);
void write_net(const DeviceOut *o, const Net *net);
void write_device(const DeviceOut *o, const real *p, size_t n);
void write_half(StWriter *w, const float *v, size_t n);         // host numbers as fp16
int  net_fits_half(const Net *net, Err *err);                   // 0, or an error: some do not fit

// ---- reading
// 0 if the file has all of net's weights and statistics: checked before memory is allocated.
int model_complete(const St *st, const Net *net, Err *err);
// Weights and statistics by PyTorch's names, from any file that has them (ours, or a state dict).
int model_weights(St *st, Net *net, Err *err);
// n numbers of one tensor, from -most to most (FLT_MAX: finite ones), to the device.
int read_device(St *st, const char *name, Dev *dev, real *dst, size_t n, real most, Err *err);
#endif
