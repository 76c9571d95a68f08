// protobuf.h - messages of Protocol Buffers, written: what ONNX and TensorBoard files consist of.
#ifndef PROTOBUF_H
#define PROTOBUF_H
#include <stddef.h>
#include <stdint.h>

typedef struct {                    // one message in memory; {0} begins, proto_free ends
    uint8_t *p;
    size_t   n, cap;
    int      failed;                // out of memory: nothing more is written
} Proto;

void proto_free(Proto *m);
void proto_int(Proto *m, int field, int64_t v);
void proto_float(Proto *m, int field, float v);
void proto_double(Proto *m, int field, double v);
void proto_bytes(Proto *m, int field, const void *v, size_t n);
void proto_text(Proto *m, int field, const char *v);
void proto_message(Proto *m, int field, Proto *inner);       // frees inner
// The beginning of a field of n bytes, which follow by proto_append or are written elsewhere.
void proto_open(Proto *m, int field, uint64_t n);
void proto_append(Proto *m, const void *v, size_t n);
#endif
