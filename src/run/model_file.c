// model_file.c - see model_file.h.
#include "run/model_file.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "base/torch_file.h"
#include <stdio.h>
#include <string.h>

// ---- reading

// Tensors under the first of these that holds a model lose the prefix; others keep their names.
static void strip_prefix(St *st) {
    static const char *const prefix[] = { "",
                                          "module.",
                                          "model_state_dict.",
                                          "model_state_dict.module.",
                                          "state_dict.",
                                          "state_dict.module.",
                                          "model.",
                                          "model.module." };
    char name[64];
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        const size_t n = strlen(prefix[i]);
        snprintf(name, sizeof name, "%sf.conv1.weight", prefix[i]);
        if (!st_find(st, name)) continue;
        for (int k = 0; n && k < st->n; k++)
            if (!strncmp(st->t[k].name, prefix[i], n)) st->t[k].name += n;
        return;
    }
}

int model_file_open(St *st, const char *path, Err *err) {
    if (tensors_expected(path, "a model (.safetensors, .pt) or a run folder", err) ||
        tensors_open(st, path, err))
        return -1;
    strip_prefix(st);
    return 0;
}

static const StTensor *must_find(const St *st, const char *name, int rank, Err *err) {
    const StTensor *t = st_find(st, name);
    if (!t)
        err_set(err, ERR_DATA, "%s: no tensor '%s': not a Wide-ResNet as in the published code",
                st->path, name);
    else if (t->rank != rank)
        err_set(err, ERR_DATA, "%s: '%s' has %d dimension%s, expected %d", st->path, name, t->rank,
                plural(t->rank), rank);
    else return t;
    return NULL;
}

static int begins(const St *st, const char *prefix) {
    for (int i = 0; i < st->n; i++)
        if (!strncmp(st->t[i].name, prefix, strlen(prefix))) return 1;
    return 0;
}

// The published code has options that this program has no layers for.
static int refuse_others(const St *st, Err *err) {
    if (begins(st, "f.layer4."))
        return err_set(err, ERR_DATA, "%s: a Wide-ResNet of four groups of blocks, expected three",
                       st->path);
    if (!st_find(st, "f.bn1.weight") && (begins(st, "f.bn1.") || begins(st, "f.layer1.0.bn1.")))
        return err_set(err, ERR_DATA, "%s: its norm is another than batch norm", st->path);
    return 0;
}

int model_file_spec(const St *st, NetSpec *s, Err *err) {
    const StTensor *stem = must_find(st, "f.conv1.weight", 4, err),
                   *first = must_find(st, "f.layer1.0.conv1.weight", 4, err);
    const StTensor *head = must_find(st, "class_output.weight", 2, err);
    if (!stem || !first || !head || refuse_others(st, err)) return -1;
    int blocks = 0;
    char name[64];
    do snprintf(name, sizeof name, "f.layer1.%d.conv1.weight", ++blocks);
    while (blocks < 200 && st_find(st, name));
    if (first->shape[0] > 16 * 64 || head->shape[0] > 1000 || stem->shape[1] > 3)
        return err_set(err, ERR_DATA,
                       "%s: %llu channels, %llu classes, %llu image channels are too many",
                       st->path, (unsigned long long)first->shape[0],
                       (unsigned long long)head->shape[0], (unsigned long long)stem->shape[1]);
    *s = (NetSpec){ .depth = 6 * blocks + 4,
                    .width = (int)first->shape[0] / 16,
                    .channels = (int)stem->shape[1],
                    .side = 32,
                    .classes = (int)head->shape[0],
                    .stem = stem->shape[2] == 4 ? STEM_4X4 : STEM_3X3,
                    .norm = st_find(st, "f.bn1.weight") ? NORM_BATCH : NORM_NONE };
    return 0;
}

// ---- writing

int model_format(const char *path, ModelFormat *format, Err *err) {
    static const struct {
        const char *end;
        ModelFormat format;
    } known[] = { { ".safetensors", FILE_SAFETENSORS },
                  { ".pt", FILE_TORCH },
                  { ".pth", FILE_TORCH },
                  { ".onnx", FILE_ONNX } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!ends_with(path, known[i].end)) continue;
        *format = known[i].format;
        return 0;
    }
    return err_set(err, ERR_ARG,
                   "%s: expected a name that ends in .safetensors, .pt, .pth or .onnx", path);
}

static const char own[] = "model_state_dict/";

static void name_twice(StWriter *w, const char *dict, const char *name, const char *of) {
    char alias[160], target[160];
    snprintf(alias, sizeof alias, "%s/%s", dict, name);
    snprintf(target, sizeof target, "%s%s", own, of);
    torch_alias(w, alias, target);
}

// The yopo class keeps its layers in two more members: the stem, and a list of the others.
static void name_for_yopo(StWriter *w, const char *name) {
    char alias[120];
    name_twice(w, "yopo_state_dict", name, name);
    if (!strncmp(name, "f.conv1.", 8)) snprintf(alias, sizeof alias, "f.layer_one.%s", name + 8);
    else if (!strncmp(name, "f.bn1.", 6))
        snprintf(alias, sizeof alias, "f.other_layers.3.%s", name + 6);
    else if (!strncmp(name, "f.layer", 7) && name[8] == '.')
        snprintf(alias, sizeof alias, "f.other_layers.%d.%s", name[7] - '1', name + 9);
    else return;
    name_twice(w, "yopo_state_dict", alias, name);
}

enum { JEM_CLASSES = 10 };               // of JEM's unused f.linear, whatever the model has
typedef struct {
    const char *name;
    int rank;
    uint64_t shape[2];
} Unused;
enum { N_UNUSED = 4, N_ENERGY = 2 };     // energy_output's, f.linear's

static void unused_heads(const Net *net, Unused u[N_UNUSED]) {
    const uint64_t dim = 64 * (uint64_t)net->spec.width;
    const Unused all[N_UNUSED] = { { "model_state_dict/energy_output.weight", 2, { 1, dim } },
                                   { "model_state_dict/energy_output.bias", 1, { 1 } },
                                   { "jem_state_dict/f.linear.weight", 2, { JEM_CLASSES, dim } },
                                   { "jem_state_dict/f.linear.bias", 1, { JEM_CLASSES } } };
    memcpy(u, all, sizeof all);
}

void torch_declare_classes(StWriter *w, const Net *net, StType type) {
    Unused u[N_UNUSED];
    const int n = w->n;
    unused_heads(net, u);
    for (int i = 0; i < N_UNUSED; i++) st_declare(w, u[i].name, type, u[i].rank, u[i].shape);
    const uint64_t side = (uint64_t)net->spec.side, channels = (uint64_t)net->spec.channels;
    st_declare(w, "replay_buffer", ST_F32, 4, (uint64_t[]){ 0, channels, side, side });
    for (int i = 0; i < n + N_ENERGY && i < w->n; i++) {
        if (strncmp(w->t[i].name, own, sizeof own - 1) != 0) continue;
        const char *name = w->t[i].name + sizeof own - 1;
        name_for_yopo(w, name);
        name_twice(w, "jem_state_dict", name, name);
    }
}

void torch_write_classes(StWriter *w, const Net *net, StType type) {
    static const char zeros[4096];
    Unused u[N_UNUSED];
    unused_heads(net, u);
    for (int i = 0; i < N_UNUSED; i++) {
        uint64_t left;
        st_shape_bytes(type, u[i].rank, u[i].shape, &left);
        for (uint64_t n; left; left -= n)
            st_write(w, zeros, n = left < sizeof zeros ? left : sizeof zeros);
    }
}
