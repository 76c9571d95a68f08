// file_kind.c - see file_kind.h.
#include "base/file_kind.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SAFETENSORS[] = "a safetensors file", ZIP[] = "a zip archive",
                  PICKLE[] = "a Python pickle", TEXT[] = "a text file", EMPTY[] = "an empty file",
                  PIPE[] = "a pipe", DEVICE[] = "a device",
                  UNREADABLE[] = "a file that cannot be read",
                  UNKNOWN[] = "a file of an unknown kind";

// Bytes at the begin and, where at is not 0, further ones.
static const struct {
    const char *name, *head;
    size_t n, at;
    const char *more;
} KNOWN[] = {
    { "a PNG picture", "\x89PNG\r\n\x1a\n", 8, 0, "" },
    { "a JPEG picture", "\xff\xd8\xff", 3, 0, "" },
    { "a WebP picture", "RIFF", 4, 8, "WEBP" },
    { "a GIF picture", "GIF8", 4, 0, "" },
    { "a BMP picture", "BM", 2, 0, "" },
    { "a TIFF picture", "II*\0", 4, 0, "" },
    { "a TIFF picture", "MM\0*", 4, 0, "" },
    { "an AVIF picture", "", 0, 4, "ftypavif" },
    { "a HEIC picture", "", 0, 4, "ftyphei" },
    { "a HEIC picture", "", 0, 4, "ftypmif1" },
    { "a JPEG XL picture", "\xff\x0a", 2, 0, "" },
    { "a JPEG XL picture", "\0\0\0\x0cJXL ", 8, 0, "" },
    { "an SVG picture", "<svg", 4, 0, "" },
    { "a PDF document", "%PDF", 4, 0, "" },
    { "an HDF5 file", "\x89HDF\r\n\x1a\n", 8, 0, "" },
    { "a GGUF model", "GGUF", 4, 0, "" },
    { "a NumPy array (.npy)", "\x93NUMPY", 6, 0, "" },
    { "a gzip file", "\x1f\x8b", 2, 0, "" },
    { "a program",
      "\x7f"
      "ELF",
      4, 0, "" },
};

static int has(const unsigned char *head, size_t n, size_t at, const char *bytes, size_t size) {
    return n >= at + size && !memcmp(head + at, bytes, size);
}

// A length below 4 GiB, and a JSON object behind it.
static int is_safetensors(const unsigned char *head, size_t n) {
    return has(head, n, 4, "\0\0\0\0{", 5);
}

// IR version, then the producer's name, its version or the graph: the fields that come first.
static int is_onnx(const unsigned char *head, size_t n) {
    return n > 3 && head[0] == 8 && head[1] && head[1] < 32 &&
           (head[2] == 0x12 || head[2] == 0x1a || head[2] == 0x3a);
}

// The first entry of an archive is named 30 bytes after its begin.
static const char *kind_of_zip(const unsigned char *head, size_t n) {
    const size_t size = n > 30 ? head[26] | (size_t)head[27] << 8 : 0;
    return size > 4 && n >= 30 + size && !memcmp(head + 30 + size - 4, ".npy", 4)
               ? "a NumPy archive (.npz)"
               : ZIP;
}

static const char *kind_of_text(const unsigned char *head, size_t n) {
    size_t i = 0;
    for (; i < n; i++)
        if ((head[i] < 32 && !strchr("\t\n\r\f\x1b", head[i])) || !head[i] || head[i] == 127)
            return NULL;
    for (i = 0; i < n && strchr(" \t\r\n", head[i]);) i++;
    if (i == n) return n ? TEXT : NULL;
    if (n - i > 13 && !strncasecmp((const char *)head + i, "<!doctype html", 14))
        return "an HTML page";
    return head[i] == '{' || head[i] == '[' ? "a JSON file" : TEXT;
}

const char *bytes_kind(const unsigned char *head, size_t n) {
    if (is_safetensors(head, n)) return SAFETENSORS;
    if (has(head, n, 0, "PK\3\4", 4)) return kind_of_zip(head, n);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (has(head, n, 0, KNOWN[i].head, KNOWN[i].n) &&
            has(head, n, KNOWN[i].at, KNOWN[i].more, strlen(KNOWN[i].more)))
            return KNOWN[i].name;
    if (n > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) return PICKLE;
    return is_onnx(head, n) ? "an ONNX model" : kind_of_text(head, n);
}

static const char *kind_of_file(const char *path) {
    unsigned char head[512];
    FILE *f = fopen(path, "rb");
    if (!f) return UNREADABLE;
    const size_t n = fread(head, 1, sizeof head, f);
    const char *kind = ferror(f) ? UNREADABLE : n ? bytes_kind(head, n) : EMPTY;
    fclose(f);
    return kind ? kind : UNKNOWN;
}

const char *file_kind(const char *path) {
    struct stat st;
    if (stat(path, &st)) return !lstat(path, &st) && S_ISLNK(st.st_mode) ? "a broken link" : NULL;
    if (S_ISDIR(st.st_mode)) return "a folder";
    if (S_ISFIFO(st.st_mode)) return PIPE;
    if (S_ISSOCK(st.st_mode)) return "a socket";
    return S_ISREG(st.st_mode) ? kind_of_file(path) : DEVICE;
}

int tensors_expected(const char *path, const char *expected, Err *err) {
    const char *kind = file_kind(path);
    if (!kind || kind == UNKNOWN || kind == UNREADABLE || kind == SAFETENSORS || kind == ZIP ||
        kind == PICKLE)
        return 0;
    return err_set(err, ERR_DATA, "%s: is %s, expected %s", path, kind, expected);
}

int text_expected(const char *path, const char *expected, Err *err) {
    const char *kind = file_kind(path);
    if (!kind || kind == TEXT || kind == EMPTY || kind == PIPE || kind == DEVICE) return 0;
    if (kind == UNREADABLE) return 0;                  // who reads it says why
    return err_set(err, ERR_DATA, "%s: is %s, expected %s", path,
                   kind == UNKNOWN ? "a binary file" : kind, expected);
}
