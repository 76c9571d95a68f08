// info.c - see info.h.
#include "api/info.h"
#include "base/json.h"
#include "base/text.h"
#include "base/text_out.h"
#include "run/ckpt.h"
#include "run/model_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int mode;
} MODES[] = { { "inference", MODE_INFER },
              { "sampling", MODE_SAMPLE },
              { "training", MODE_TRAIN } };
enum { N_MODES = sizeof MODES / sizeof *MODES };

typedef struct {
    Net    net;
    Dev    dev;
    int    on_device;
    int    rows;                            // images per rank
    size_t bytes[N_MODES];                  // what each mode's pass needs
    char   device[256], model[32];
    const Model *m;                         // or NULL
    int    has_options;                     // its file has them:
    Config record;                          // as they are written there
    const char *weights;                    // how its file stores them
} Info;

static void info_free(Info *in) {
    net_free(&in->net);
    if (in->on_device) dev_close(&in->dev);
}

// Opening the passes makes the device choose and pack its convolutions, which says what they take.
static int open_device(Info *in, const Config *c, Err *err) {
    const DevOpts o = config_dev(c);
    if (dev_open(&in->dev, c->device, &o, NULL, err)) return -1;
    in->on_device = 1;
    snprintf(in->device, sizeof in->device, "%s: %s", in->dev.be.name,
             in->dev.be.describe(&in->dev));
    return net_alloc(&in->net, &in->dev, err);
}

static int measure(Info *in, const Config *c, Err *err) {
    Pass pass[N_MODES] = { 0 };
    int rc = strcmp(c->device, "auto") ? open_device(in, c, err) : 0;
    in->rows = c->ranks ? c->batch / c->ranks : c->batch;
    for (int i = 0; !rc && i < N_MODES; i++) {
        rc = in->on_device ? pass_open(&pass[i], &in->net, in->rows, MODES[i].mode, err)
                           : pass_plan(&pass[i], &in->net, in->rows, MODES[i].mode, 1, err);
        in->bytes[i] = pass[i].bytes;
    }
    for (int i = 0; i < N_MODES; i++)
        if (pass[i].net) pass_close(&pass[i]);
    return rc;
}

static size_t op_parameters(const Net *net, const Op *op) {
    return (op->w < 0 ? 0 : net->par[op->w].len) + (op->b < 0 ? 0 : net->par[op->b].len);
}

// What the opened model does not have: options as they were stored, the type of numbers.
static int read_file(Info *in, Err *err) {
    static const char *const names[] = {
        [ST_F64] = "fp64", [ST_F32] = "fp32", [ST_F16] = "fp16", [ST_BF16] = "bf16"
    };
    St st;
    if (!in->m) return 0;
    if (model_file_open(&st, in->m->path, err)) return -1;
    const StTensor *t = st_find(&st, "class_output.weight");
    in->weights = t && t->type <= ST_BF16 ? names[t->type] : "?";
    in->has_options = st_meta(&st, "options") != NULL;
    const int rc = run_options(&st, &in->record, err);
    st_close(&st);
    return rc;
}

static const char *trained_on(const Info *in) {
    return in->has_options && in->record.data[0] ? in->record.data : NULL;
}

// ---- text ---------------------------------------------------------------------------------

static void put_bytes(FILE *f, const char *name, size_t bytes, const char *note) {
    if (bytes >= (size_t)1 << 30)
        fprintf(f, "  %-22s %8.2f GiB%s\n", name, (double)bytes / 0x1p30, note);
    else fprintf(f, "  %-22s %8.2f MiB%s\n", name, (double)bytes / 0x1p20, note);
}

static void put_ops(FILE *f, const Net *net) {
    fprintf(f, "  op  operation                         parameters       MMAC\n");
    for (int i = 0; i < net->n_op; i++) {
        char what[64];
        op_describe(net, &net->op[i], what, sizeof what);
        fprintf(f, "%4d  %-32s %11zu", i, what, op_parameters(net, &net->op[i]));
        const uint64_t macs = op_macs(net, &net->op[i]);
        if (macs) fprintf(f, " %10.2f", (double)macs * 1e-6);
        fprintf(f, "\n");
    }
}

static void put_memory(FILE *f, const Info *in, const Config *c) {
    const size_t w = in->net.n_w * sizeof(real);
    fprintf(f, "\nmemory, batch %d%s, %s\n", in->rows, c->ranks ? " per rank" : "",
            in->on_device ? in->device : "plain fp32 layout");
    put_bytes(f, "weights", w, "  (and as much each for gradients and momentum)");
    for (int i = 0; i < N_MODES; i++) put_bytes(f, MODES[i].name, in->bytes[i], "");
    if (!in->on_device) return;
    put_bytes(f, "convolution scratch", in->dev.scratch_bytes, "");
    put_bytes(f, "packed weights", in->dev.packed_bytes, "");
}

// Bytes that a rank sends, and receives, in one step: an all-reduce sends each share to the rank
// that sums it, and the sums back; finished chains go from each rank to all others.
typedef struct {
    size_t gradients, chains, statistics, buffer;
} Exchange;

static Exchange exchange_of(const Info *in, const Config *c) {
    const size_t n = (size_t)c->ranks, dim = tensor_len(&in->net.act[0]);
    return (Exchange){ .gradients = 2 * in->net.n_w * sizeof(real) / n * (n - 1),
                       .chains = (size_t)in->rows * dim * sizeof(real) * (n - 1),
                       .statistics = 2 * in->net.n_state * sizeof(real) / n * (n - 1),
                       .buffer = (size_t)c->batch * dim * sizeof(real) };
}

static void put_exchange(FILE *f, const Info *in, const Config *c) {
    const Exchange e = exchange_of(in, c);
    put_bytes(f, "finished chains", e.buffer, "  (of all ranks, for the replay buffer)");
    fprintf(f, "\nsent per rank and step, %d rank%s, batch %d\n", c->ranks, plural(c->ranks),
            c->batch);
    put_bytes(f, "gradients", e.gradients, "  (twice with SAM)");
    put_bytes(f, "finished chains", e.chains, "");
    put_bytes(f, "running statistics", e.statistics, "");
}

// Names between commas, in lines of at most 96 columns; one that has a comma itself in quotes. Long
// ones lose their middle.
static void put_classes(FILE *f, const Model *m) {
    enum { INDENT = 19, MOST = 96 };
    int at = INDENT;
    fprintf(f, "  %-16s ", "classes");
    for (int i = 0; i < m->net.spec.classes; i++) {
        char name[256];
        text_shorten(name, sizeof name, m->class_name[i], MOST - INDENT - 3);
        const char *quote = strchr(name, ',') ? "\"" : "",
                   *end = i + 1 < m->net.spec.classes ? "," : "\n";
        const int width = text_width(name) + 2 * (*quote != 0) + 1;
        if (i && at + width > MOST) fprintf(f, "\n%*s", at = INDENT, "");
        else if (i) fputc(' ', f);
        fprintf(f, "%s%s%s%s", quote, name, quote, end);
        at += width + 1;
    }
}

static void put_file(FILE *f, const Info *in) {
    const Model *m = in->m;
    const char *data = trained_on(in);
    fprintf(f, "  %-16s %s\n  %-16s %s\n", "file", m->path, "weights", in->weights);
    fprintf(f, "  %-16s %s\n", "trained on", data ? data : "the file does not say");
    put_classes(f, m);
    if (m->temperature > 0)
        fprintf(f, "  %-16s %.4g (p(y|x) is the softmax of the logits divided by it)\n",
                "temperature", m->temperature);
    else fprintf(f, "  %-16s none fitted\n", "temperature");
    if (!isnan(m->threshold))
        fprintf(f, "  %-16s %.4g (out of distribution: log p(x) + c below it)\n", "threshold",
                (double)m->threshold);
    else fprintf(f, "  %-16s none: OOD images are not detected\n", "threshold");
    if (m->starts.n_group)
        fprintf(f, "  %-16s a Gaussian%s, with %d %s\n", "chain starts",
                m->starts.n_group > 1 ? " per class" : "",
                m->starts.kept ? m->starts.kept : m->starts.rank,
                m->starts.kept ? "correlated cosine coefficients" : "leading directions");
    if (m->cfg.chain_length > 0)
        fprintf(f, "  %-16s %.3g chain steps of training\n", "fresh chains", m->cfg.chain_length);
    fputc('\n', f);
}

static void put_record(FILE *f, const Config *record) {
    char *options = config_dump(record, CMD_TRAIN);
    if (options) fprintf(f, "\ntraining options\n%s", options);
    free(options);
}

static char *as_text(const Info *in, const Config *c, Err *err) {
    const Net *net = &in->net;
    TextOut out;
    if (text_open(&out, "a text", err)) return NULL;
    FILE *f = out.f;
    fprintf(f, "%s, %dx%dx%d images, %d classes%s\n\n", in->model, net->spec.channels,
            net->spec.side, net->spec.side, net->spec.classes,
            net->spec.norm == NORM_NONE ? ", no normalisation" : "");
    if (in->m) put_file(f, in);
    put_ops(f, net);
    fprintf(f, "\n%d ops, %.2f M parameters, %.3g GMAC per image\n", net->n_op,
            (double)net->n_w * 1e-6, (double)net_macs(net) * 1e-9);
    put_memory(f, in, c);
    if (c->ranks) put_exchange(f, in, c);
    if (in->has_options) put_record(f, &in->record);
    return text_close(&out, err);
}

// ---- JSON ---------------------------------------------------------------------------------

static void json_file(JsonOut *j, const Info *in) {
    const Model *m = in->m;
    json_put_string(j, "file", m->path);
    json_put_string(j, "weights", in->weights);
    json_put_string(j, "trained_on", trained_on(in));
    json_open_array(j, "class_names");
    for (int i = 0; i < m->net.spec.classes; i++) json_put_string(j, NULL, m->class_name[i]);
    json_close(j);
    json_put_double(j, "temperature", m->temperature > 0 ? m->temperature : NAN);
    json_put_double(j, "threshold", (double)m->threshold);
    json_put_int(j, "chain_start_coefficients", m->starts.kept);
    json_put_int(j, "chain_start_rank", m->starts.rank);
    json_put_double(j, "chain_step", m->cfg.chain_step > 0 ? m->cfg.chain_step : NAN);
    json_put_double(j, "chain_length", m->cfg.chain_length > 0 ? m->cfg.chain_length : NAN);
}

static void json_memory(JsonOut *j, const Info *in) {
    json_open_object(j, "bytes");
    json_put_uint(j, "weights", in->net.n_w * sizeof(real));
    for (int i = 0; i < N_MODES; i++) json_put_uint(j, MODES[i].name, in->bytes[i]);
    if (in->on_device) {
        json_put_uint(j, "convolution_scratch", in->dev.scratch_bytes);
        json_put_uint(j, "packed_weights", in->dev.packed_bytes);
    }
    json_close(j);
}

static void json_exchange(JsonOut *j, const Info *in, const Config *c) {
    const Exchange e = exchange_of(in, c);
    json_put_int(j, "ranks", c->ranks);
    json_put_int(j, "batch_per_rank", in->rows);
    json_open_object(j, "sent_bytes");
    json_put_uint(j, "gradients", e.gradients);
    json_put_uint(j, "chains", e.chains);
    json_put_uint(j, "statistics", e.statistics);
    json_close(j);
}

static void json_ops(JsonOut *j, const Net *net) {
    json_open_array(j, "ops");
    for (int i = 0; i < net->n_op; i++) {
        char what[64];
        op_describe(net, &net->op[i], what, sizeof what);
        json_open_object(j, NULL);
        json_put_string(j, "op", what);
        json_put_uint(j, "parameters", op_parameters(net, &net->op[i]));
        json_put_uint(j, "macs", op_macs(net, &net->op[i]));
        json_close(j);
    }
    json_close(j);
}

static char *as_json(const Info *in, const Config *c, Err *err) {
    const Net *net = &in->net;
    JsonOut j = { .indent = 2 };
    json_open_object(&j, NULL);
    json_put_string(&j, "model", in->model);
    json_put_int(&j, "channels", net->spec.channels);
    json_put_int(&j, "side", net->spec.side);
    json_put_int(&j, "classes", net->spec.classes);
    json_put_string(&j, "norm", net->spec.norm == NORM_NONE ? "none" : "batch");
    json_put_string(&j, "stem", net->spec.stem == STEM_4X4 ? "4x4" : "3x3");
    if (in->m) json_file(&j, in);
    json_put_uint(&j, "parameters", net->n_w);
    json_put_uint(&j, "macs", net_macs(net));
    json_put_int(&j, "batch", c->batch);
    json_put_string(&j, "device", in->on_device ? in->device : NULL);
    json_memory(&j, in);
    if (c->ranks) json_exchange(&j, in, c);
    if (in->has_options) config_json(&in->record, &j);
    json_ops(&j, net);
    json_close(&j);
    return json_finish(&j, NULL, err);
}

char *info_text(const Model *m, const Config *c, Err *err) {
    Info *in = calloc(1, sizeof *in);
    NetSpec described;
    char *text = NULL;
    if (!in) {
        err_set(err, ERR_MEM, "out of memory for a text");
        return NULL;
    }
    in->m = m;
    if ((m || !config_net(&described, c, 0, 0, 0, err)) && !read_file(in, err) &&
        !net_build(&in->net, m ? &m->net.spec : &described, err)) {
        snprintf(in->model, sizeof in->model, "wrn-%d-%d", in->net.spec.depth, in->net.spec.width);
        if (!measure(in, c, err)) text = c->json ? as_json(in, c, err) : as_text(in, c, err);
    }
    info_free(in);
    free(in);
    return text;
}
