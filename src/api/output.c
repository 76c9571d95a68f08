// output.c - see output.h.
#include "api/output.h"
#include "base/file.h"
#include "base/text.h"
#include "data/image_source.h"
#include "run/model_file.h"
#include "run/onnx.h"
#include "run/score_file.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Whether something is there, and its first bytes (zeros where it has fewer or is no file).
static int begins(const char *path, unsigned char head[12]) {
    struct stat st;
    memset(head, 0, 12);
    if (stat(path, &st)) return 0;
    FILE *f = S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    if (f && fread(head, 1, 12, f) < 12) memset(head, 0, 12);
    if (f) fclose(f);
    return 1;
}

static int is_folder(const char *path) {
    struct stat st;
    const size_t n = strlen(path);
    return (n && path[n - 1] == '/') || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

static int refuse(const char *path, const char *kind, Err *err) {
    if (is_folder(path)) return file_writable(path, err);
    return err_set(err, ERR_ARG, "%s: exists and is not %s; --force overwrites it", path, kind);
}

static int may_replace_picture(const char *path, int png, Err *err) {
    unsigned char head[12];
    if (!begins(path, head)) return 0;
    if (png) return memcmp(head, "\x89PNG\r\n\x1a\n", 8) ? refuse(path, "a PNG file", err) : 0;
    return memcmp(head, "RIFF", 4) || memcmp(head + 8, "WEBP", 4) ? refuse(path, "a WebP file", err)
                                                                  : 0;
}

int output_picture(const char *path, int force, Err *err) {
    const int png = ends_with(path, ".png");
    if (!png && !ends_with(path, ".webp"))
        return err_set(
            err, ERR_ARG,
            "%s: expected a name that ends in .png or .webp, or for single images in .npz or /",
            path);
    if (!force && may_replace_picture(path, png, err)) return -1;
    return file_writable(path, err);
}

int output_animation(const char *path, int force, Err *err) {
    if (!ends_with(path, ".webp"))
        return err_set(err, ERR_ARG, "--animation %s: expected a name that ends in .webp", path);
    return output_picture(path, force, err);
}

int output_is_images(const char *path) { return ends_with(path, ".npz") || is_folder(path); }

int output_images(const char *path, int force, Err *err) {
    unsigned char head[12];
    if (is_folder(path)) return source_folder(path, force, err);
    if (!force && begins(path, head) && memcmp(head, "PK", 2) != 0)
        return refuse(path, "an npz file", err);
    return file_writable(path, err);
}

int output_statistics(const char *path, int force, Err *err) {
    if (ends_with(path, ".npz") && !is_folder(path)) return output_images(path, force, err);
    return err_set(err, ERR_ARG, "--out %s: expected a name that ends in .npz", path);
}

int output_scores(const char *path, int force, Err *err) {
    static const char *const magic[N_SCORES] = { "file,index,l", "{\"file\"", "PK\3\4" };
    unsigned char head[12];
    ScoreFormat format;
    if (score_format(path, &format, err)) return -1;
    if (!force && begins(path, head) && memcmp(head, magic[format], strlen(magic[format])) != 0)
        return refuse(path, "a file of scores", err);
    return file_writable(path, err);
}

int output_page(const char *path, int force, Err *err) {
    unsigned char head[12];
    if (!ends_with(path, ".html") && !ends_with(path, ".htm"))
        return err_set(err, ERR_ARG, "%s: expected a name that ends in .html", path);
    if (!force && begins(path, head) && strncasecmp((const char *)head, "<!DOCTYPE ht", 12) != 0)
        return refuse(path, "an HTML page", err);
    return file_writable(path, err);
}

int output_model(const char *path, const char *source, int force, Err *err) {
    unsigned char head[12];
    ModelFormat type;
    if (model_format(path, &type, err) || file_writable(path, err)) return -1;
    if (force || !begins(path, head)) return 0;
    if (same_file(path, source))
        return err_set(err, ERR_ARG,
                       "%s: is the model that is exported; name another file, or --force to "
                       "replace it",
                       path);
    if (type == FILE_ONNX)
        return memcmp(head, onnx_magic, strlen(onnx_magic))
                   ? refuse(path, "an ONNX model that jempp wrote", err)
                   : 0;
    St st;
    if (tensors_open(&st, path, NULL)) return refuse(path, "a model", err);
    const char *format = st_meta(&st, "format");
    const int state = format && !strncmp(format, "jempp state", strlen("jempp state")),
              others = type == FILE_TORCH && !format;
    st_close(&st);
    if (others) return refuse(path, "a model that jempp wrote", err);
    return state ? refuse(path, "a model alone but a checkpoint of a run", err) : 0;
}
