// wrn.c - the Wide-ResNet of JEM as a list of ops. Both directions follow from it.
//
// A block's output is the sum of its second convolution and its shortcut. The norm that comes next
// adds the two, because it passes over the data anyway: s = conv2 + shortcut, y = act(norm(s)).
#include "net/net.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    Net *net;
    char name[40];
} WrnBuilder;

static int conv(WrnBuilder *b, int x, int out, int size, int stride, int pad, int head) {
    Net *net = b->net;
    const Tensor t = net->act[x];
    const int fan_in = t.c * size * size;
    Op op = { .kind = OP_CONV,
              .x = x,
              .r = -1,
              .size = size,
              .size_w = size,
              .stride = stride,
              .pad = pad,
              .pad_w = pad,
              .stat = -1,
              .filter = net->n_filter,
              .bias_lost = !head && net->spec.norm == NORM_BATCH };
    const int dim[4] = { out, t.c, size, size };
    op.w = net_param(net, b->name, "weight", dim, head ? 2 : 4, fan_in);
    op.b = net_param(net, b->name, "bias", dim, 1, fan_in);
    net->filter[net->n_filter++] = (Filter){ .out = out, .in = t.c, .size = size, .size_w = size };
    return net_op(net, op, out, (t.h + 2 * pad - size) / stride + 1,
                  (t.w + 2 * pad - size) / stride + 1);
}

static int norm(WrnBuilder *b, int x, int r) {
    Net *net = b->net;
    const Tensor t = net->act[x];
    Op op = { .kind = OP_NORM, .x = x, .r = r, .w = -1, .b = -1, .stat = -1, .filter = -1 };
    if (net->spec.norm == NORM_BATCH) {
        op.w = net_param(net, b->name, "weight", &t.c, 1, 0);
        op.b = net_param(net, b->name, "bias", &t.c, 1, -1);
        op.stat = net->n_stat;
        Stat *s = &net->stat[net->n_stat++];
        *s = (Stat){ .off = net->n_state, .len = (size_t)t.c };
        snprintf(s->name, sizeof s->name, "%s", b->name);
        net->n_state += 2 * s->len;
    }
    return net_op(net, op, t.c, t.h, t.w);
}

// x + r is the block's input (r = -1: x alone). Leaves the parts of the block's output in x and r.
static void block(WrnBuilder *b, int group, int i, int out, int stride, int *x, int *r) {
    char *name = b->name;
    const size_t n = sizeof b->name;
    const int in = b->net->act[*x].c;
    snprintf(name, n, "f.layer%d.%d.bn1", group, i);
    int h = norm(b, *x, *r), shortcut = *x;
    snprintf(name, n, "f.layer%d.%d.shortcut.0", group, i);
    if (in != out || stride != 1) shortcut = conv(b, *x, out, 1, stride, 0, 0);
    snprintf(name, n, "f.layer%d.%d.conv1", group, i);
    h = conv(b, h, out, 3, 1, 1, 0);
    snprintf(name, n, "f.layer%d.%d.bn2", group, i);
    h = norm(b, h, -1);
    snprintf(name, n, "f.layer%d.%d.conv2", group, i);
    *x = conv(b, h, out, 3, stride, 1, 0);
    *r = shortcut;
}

int wrn_build(Net *net, Err *err) {
    const NetSpec *s = &net->spec;
    const int per_group = (s->depth - 4) / 6, blocks = 3 * per_group;
    if (net_reserve(net, 5 * blocks + 4, err)) return -1;

    WrnBuilder b = { net, "f.conv1" };
    net->act[net->n_act++] = (Tensor){ 1, s->channels, s->side, s->side, NULL };
    int r = -1, x = s->stem == STEM_4X4 ? conv(&b, 0, 16, 4, 2, 1, 0) : conv(&b, 0, 16, 3, 1, 1, 0);
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < per_group; i++)
            block(&b, g + 1, i, (16 << g) * s->width, g > 0 && i == 0 ? 2 : 1, &x, &r);
    snprintf(b.name, sizeof b.name, "f.bn1");
    x = norm(&b, x, r);
    x = net_op(net,
               (Op){ .kind = OP_POOL, .x = x, .r = -1, .w = -1, .b = -1, .stat = -1, .filter = -1 },
               net->act[x].c, 1, 1);
    snprintf(b.name, sizeof b.name, "class_output");
    conv(&b, x, s->classes, 1, 1, 0, 1);
    return 0;
}
