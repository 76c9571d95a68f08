// event_file.c - see event_file.h. Numbers of fields are those of event.proto and summary.proto.
#include "run/event_file.h"
#include "base/file.h"
#include "base/protobuf.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_WALL = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { VALUE = 1, VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_IMAGE = 4 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_CHANNELS = 3, IMAGE_FILE = 4 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };

// CRC-32C, rotated and shifted as TFRecord files want it.
static uint32_t masked_crc(const void *data, size_t n) {
    const uint8_t *p = data;
    uint32_t crc = ~0u;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void write_record(EventFile *e, Proto *event) {
    const uint64_t n = event->n;
    const uint32_t crc_n = masked_crc(&n, sizeof n), crc = masked_crc(event->p, event->n);
    if (event->failed) err_set(&e->err, ERR_MEM, "out of memory for an event");
    if (!e->err.kind &&
        (fwrite(&n, sizeof n, 1, e->f) != 1 || fwrite(&crc_n, sizeof crc_n, 1, e->f) != 1 ||
         fwrite(event->p, event->n, 1, e->f) != 1 || fwrite(&crc, sizeof crc, 1, e->f) != 1))
        err_set(&e->err, ERR_IO, "%s: %s", e->path, strerror(errno));
    proto_free(event);
}

static Proto event_at(double wall, uint64_t step) {
    Proto e = { 0 };
    proto_double(&e, EVENT_WALL, wall);
    proto_int(&e, EVENT_STEP, (int64_t)step);
    return e;
}

int event_file_open(EventFile *e, const char *dir, double wall, const char *note, Err *err) {
    enum { TRIES = 10 };                                     // sessions of the same second
    *e = (EventFile){ 0 };
    for (int i = 0; i < TRIES && !e->f; i++) {
        char name[100];
        snprintf(name, sizeof name, "events.out.tfevents.%010.0f.%d.%s", wall, i, note);
        if (path_join(e->path, sizeof e->path, dir, name, err)) return -1;
        e->f = fopen(e->path, "wbx");
        if (!e->f && errno != EEXIST) break;
    }
    if (!e->f) return err_set(err, ERR_IO, "%s: %s", e->path, strerror(errno));
    Proto first = event_at(wall, 0);
    proto_text(&first, EVENT_VERSION, "brain.Event:2");
    write_record(e, &first);
    return 0;
}

void event_file_start(EventFile *e, double wall, uint64_t step) {
    Proto event = event_at(wall, step), session = { 0 };
    proto_int(&session, SESSION_STATUS, SESSION_START);
    proto_message(&event, EVENT_SESSION, &session);
    write_record(e, &event);
}

void event_file_scalars(EventFile *e, double wall, uint64_t step, const char *prefix, int n,
                        const char *const *name, const double *value) {
    Proto event = event_at(wall, step), summary = { 0 };
    for (int k = 0; k < n; k++) {
        char tag[100];
        Proto v = { 0 };
        if (isnan(value[k])) continue;
        snprintf(tag, sizeof tag, "%s/%s", prefix, name[k]);
        proto_text(&v, VALUE_TAG, tag);
        proto_float(&v, VALUE_SCALAR, (float)value[k]);
        proto_message(&summary, VALUE, &v);
    }
    proto_message(&event, EVENT_SUMMARY, &summary);
    write_record(e, &event);
}

static int64_t big_endian(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | (int64_t)b[3];
}

void event_file_picture(EventFile *e, double wall, uint64_t step, const char *tag,
                        const char *png) {
    enum { MAX_PICTURE = 64 << 20, HEAD = 26 };              // up to the colour type
    char *data = NULL;
    size_t n = 0;
    if (file_read(png, MAX_PICTURE, &data, &n, &e->err)) return;
    if (n < HEAD || memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0) {
        err_set(&e->err, ERR_DATA, "%s: not a PNG file", png);
    } else {
        Proto event = event_at(wall, step), summary = { 0 }, v = { 0 }, image = { 0 };
        proto_int(&image, IMAGE_HEIGHT, big_endian(data + 20));
        proto_int(&image, IMAGE_WIDTH, big_endian(data + 16));
        proto_int(&image, IMAGE_CHANNELS, data[25] == 2 ? 3 : 1);
        proto_bytes(&image, IMAGE_FILE, data, n);
        proto_text(&v, VALUE_TAG, tag);
        proto_message(&v, VALUE_IMAGE, &image);
        proto_message(&summary, VALUE, &v);
        proto_message(&event, EVENT_SUMMARY, &summary);
        write_record(e, &event);
    }
    free(data);
}

int event_file_flush(EventFile *e, Err *err) {
    if (e->f && fflush(e->f)) err_set(&e->err, ERR_IO, "%s: %s", e->path, strerror(errno));
    return e->err.kind ? err_set(err, e->err.kind, "%s", e->err.msg) : 0;
}

int event_file_close(EventFile *e, Err *err) {
    const int rc = event_file_flush(e, err);
    if (e->f) fclose(e->f);
    *e = (EventFile){ 0 };
    return rc;
}

int is_event_file(const char *name) {
    return !strncmp(name, "events.out.tfevents.", strlen("events.out.tfevents."));
}
