// commands.c - see commands.h.
#include "api/commands.h"
#include "conf/nearest.h"
#include <limits.h>
#include <string.h>

static void bench_defaults(Config *c) { c->px = PX_SHARED; } // the cheapest, as others measure it
static void eval_defaults(Config *c) {
    c->attack_steps = EVAL_ATTACK_STEPS;
    c->count = EVAL_CHAINS;
    c->data[0] = 0;                                         // the run's own
}

static const char ONE_MODEL[] = "one run folder or model file";

// clang-format off
static const OptNote TRAIN_NOTES[] = {
    { "data", "images to train on: cifar10, cifar100, svhn, mnist, fashion-mnist, shapes, "
              "folder:DIR or cifar-file:FILE", NULL },
    { "data-dir", "folder to search first for image sets", NULL },
    { "out", "run folder to create, or with --resume to continue",
      "runs/PRESET-DATE or runs/MODEL-DATE" },
    { "batch", "images per training step; chains run in batches of the same size", NULL },
    { "iterations", "training steps, instead of --epochs", "as --epochs says" },
    { "steps", "gradient steps per chain and training step: M of PYLD-M-N, K of SGLD-K", NULL },
    { "chain-length", "total length of fresh chains of the model, in chain steps of training",
      "found at the end of training" },
    { "chain-step", "length of the first step of fresh chains of the model, in chain steps of "
                    "training", "found at the end of training" },
    { "attack-steps", "gradient steps of PGD in adversarial training", NULL },
    { "side", "width and height of images in pixels, for folder: and shapes",
      "the data set's, else 32" },
    { "channels", "1 grey or 3 colour, for folder:", "the data set's, else 3" },
    { 0 },
};
static const OptNote SAMPLE_NOTES[] = {
    { "data-dir", "folder to search first for the training images, which give exact chain starts",
      NULL },
    { "out", "file to write: a grid (.png, .webp) or single images (.npz, or DIR/ for PNG files); "
             "with --class, FILE.npz has labels, too", "samples.png" },
    { "seed", "seed of the chains; the same seed gives the same images", NULL },
    { "force", "replace a file of another kind, or the images of an earlier draw in DIR/", NULL },
    { "batch", "chains per batch; with batch norm, samples are best at the training's batch size",
      NULL },
    { "steps", "gradient steps of a fresh chain, each as long as in training",
      "a few long ones, chosen for the model" },
    { "chain-length", "total length of fresh chains, in chain steps of training",
      "as the model says, else --steps / --reinit of its training" },
    { "chain-step", "length of the first step of fresh chains, in chain steps of training; the "
                    "last is 0.1", "as the model says, else by its climb" },
    { 0 },
};
static const OptNote EVAL_NOTES[] = {
    { "data", "images to evaluate on: cifar10, cifar100, svhn, mnist, fashion-mnist, shapes, "
              "folder:DIR or cifar-file:FILE", "the run's own" },
    { "data-dir", "folder to search first for image sets", NULL },
    { "out", "folder for eval.json, sheets and figures",
      "the run folder, or its folder valid with --split valid; MODEL-eval for a model file" },
    { "attack-steps", "gradient steps of an attack", "40; apgd: 100" },
    { "steps", "gradient steps of a fresh chain (samples, fid), each as long as in training",
      "a few long ones, chosen for the model" },
    { "chain-length", "total length of fresh chains, in chain steps of training",
      "as the model says, else --steps / --reinit of its training" },
    { "chain-step", "length of the first step of fresh chains, in chain steps of training; the "
                    "last is 0.1", "as the model says, else by its climb" },
    { "count", "fresh chains in the task fid", NULL },
    { "from", "samples that the task fid takes: fresh or buffer", "both" },
    { "per-class", "also compute the FID of each predicted class", NULL },
    { 0 },
};
static const OptNote PREDICT_NOTES[] = {
    { "out", "file of scores, one row per image: .csv, .jsonl or .npz",
      "no file; a table is printed" },
    { "data-dir", "folder to search first for image sets", NULL },
    { "json", "print a JSON array instead of a table (with --out: a name that ends in .jsonl)",
      NULL },
    { "force", "replace a file that is not a file of scores", NULL },
    { 0 },
};
static const OptNote EXPORT_NOTES[] = {
    { "chain-length", "total length of fresh chains that the model is to have, in chain steps of "
                      "training", "as it is" },
    { "chain-step", "length of the first step of fresh chains that the model is to have, in chain "
                    "steps of training", "as it is" },
    { "force", "replace a file that is not a model, or the exported model itself", NULL },
    { 0 },
};
static const OptNote INFO_NOTES[] = {
    { "side", "width and height of the images in pixels", "32" },
    { "channels", "image channels: 1 grey or 3 colour", "3" },
    { "num-classes", "number of classes", "10" },
    { "batch", "images per batch, for the memory figures", NULL },
    { "ranks", "print the memory and the traffic of each of N ranks; 0: of one process", NULL },
    { 0 },
};
static const OptNote BENCH_NOTES[] = {
    { "side", "width and height of the images in pixels", "those of the preset's data, else 32" },
    { "channels", "image channels: 1 grey or 3 colour", "those of the preset's data, else 3" },
    { "num-classes", "number of classes", "those of the preset's data, else 10" },
    { "seed", "seed of the random weights and images", NULL },
    { "batch", "images per training step", NULL },
    { "ranks", "1: use NCCL on one GPU, to measure what it adds to a step", NULL },
    { "iterations", "training iterations to time", "5" },
    { "steps", "gradient steps per chain in a training iteration: M of PYLD-M-N", NULL },
    { "px", "real images for p(x): the labelled batch without augmentation (one pass more), the "
            "labelled batch, another batch (one pass more); none: no p(x)", NULL },
    { 0 },
};
static const OptNote REPORT_NOTES[] = {
    { "out", "HTML page to write; if given, the run folder stays unchanged", "RUN/report.html" },
    { "tensorboard", "write a TensorBoard event file of the run's log instead of the page", NULL },
    { "force", "replace a file that is not an HTML page", NULL },
    { 0 },
};
static const OptNote SERVE_NOTES[] = {
    { "data-dir", "folder to search first for the training images, which give exact chain starts",
      NULL },
    { 0 },
};
static const OptNote FID_NOTES[] = {
    { "out", "npz file for the statistics (mu and sigma) of one set of images; other tools read it",
      "none: two sets are compared" },
    { "seed",
      "seed that selects images for KID, precision and recall, and of the test split of folder:",
      NULL },
    { "precision", "number format of matrix products; auto: tf32 on a GPU, fp32 elsewhere", NULL },
    { "force", "replace a file that is not an npz file", NULL },
    { "side", "folder: and shapes: width and height of the images in pixels", "32" },
    { "data-dir", "folder to search first for image sets", NULL },
    { "per-class", "also compute the FID of each class, by the labels of both sets", NULL },
    { 0 },
};
static const OptNote DATA_NOTES[] = {
    { "data-dir", "folder to search first for image sets, and to download to",
      "JEMPP_DATA, else ~/.local/share/jempp" },
    { "side", "folder: and shapes: width and height of the images in pixels", "32" },
    { "channels", "folder: 1 grey or 3 colour", "3" },
    { "json", "JSON instead of text, for data list", NULL },
    { 0 },
};

const Command command_table[] = {
    { .name = "train", .bit = CMD_TRAIN, .about = "train a model into a run folder",
      .synopsis = "jempp train [--preset NAME] [--config FILE] [--option value ...]\n"
                  "jempp train --resume --out RUN [--option value ...]",
      .examples = "jempp train --preset demo --out runs/demo      # a first look, minutes on a "
                  "CPU\n"
                  "jempp train --preset jempp-m10 --data cifar10  # the paper's JEM++\n"
                  "jempp train --resume --out runs/demo           # continue where it stopped",
      .names = "options only", .notes = TRAIN_NOTES },
    { .name = "sample", .bit = CMD_SAMPLE, .about = "draw images from a model",
      .synopsis = "jempp sample RUN|MODEL [--count N] [--out grid.png|DIR/|FILE.npz] [--option "
                  "value ...]",
      .examples = "jempp sample runs/demo --count 100 --out grid.png\n"
                  "jempp sample runs/demo --class Sneaker,Bag --steps 40\n"
                  "jempp sample runs/demo --from buffer --count 1000 --best 64 --by px",
      .names = ONE_MODEL, .least = 1, .most = 1,
      .notes = SAMPLE_NOTES },
    { .name = "eval", .bit = CMD_EVAL,
      .about = "evaluate a model: accuracy, calibration, OOD detection, attacks, samples, speed, "
               "FID",
      .synopsis = "jempp eval RUN|MODEL [--tasks NAME,...] [--ood SET,...] [--limit N] [--json] "
                  "[--out DIR]",
      .examples = "jempp eval runs/demo                             # all tasks; writes "
                  "runs/demo/eval.json\n"
                  "jempp eval runs/demo --tasks acc,ece --temperature\n"
                  "jempp eval runs/first --tasks ood --ood svhn,cifar100,cifar-file:celeba.bin\n"
                  "jempp eval runs/first --tasks attack --attacks pgd-linf --radii "
                  "0,4/255,8/255 --restarts 5\n"
                  "jempp eval runs/first --tasks fid --count 50000 --steps 100\n"
                  "jempp eval model.safetensors --data cifar10 --limit 500 --out look",
      .names = ONE_MODEL, .least = 1, .most = 1, .defaults = eval_defaults,
      .notes = EVAL_NOTES },
    { .name = "predict", .bit = CMD_PREDICT,
      .about = "classify pictures, and detect those out of distribution",
      .synopsis = "jempp predict RUN|MODEL IMAGE|FOLDER|FILE.npz|SET... [--json]\n"
                  "jempp predict RUN|MODEL - < IMAGE\n"
                  "jempp predict RUN|MODEL IMAGE|FOLDER|FILE.npz|SET... --out "
                  "SCORES.csv|.jsonl|.npz [--strict]",
      .examples = "jempp predict runs/demo shoe.png\n"
                  "jempp predict model.safetensors *.jpg --json\n"
                  "jempp predict model.safetensors pictures\n"
                  "jempp predict model.safetensors pictures --out scores.csv\n"
                  "jempp predict runs/first cifar10:test --out scores.npz\n"
                  "jempp predict runs/first samples.npz          # arr_0, as sample --out writes\n"
                  "curl -s https://example.org/cat.webp | jempp predict model.safetensors -",
      .names = "a run folder or model file, then one or more pictures, folders, npz files or image "
               "sets (- for standard input)",
      .least = 2, .most = INT_MAX, .notes = PREDICT_NOTES },
    { .name = "export", .bit = CMD_EXPORT,
      .about = "write a model as one file, with PyTorch's tensor names",
      .synopsis = "jempp export RUN|MODEL OUT.safetensors|OUT.pt|OUT.onnx [--half] [--force]",
      .examples = "jempp export runs/demo demo.safetensors\n"
                  "jempp export runs/demo small.safetensors --half\n"
                  "jempp export runs/demo demo.pt\n"
                  "jempp export runs/demo demo.onnx",
      .names = "a run folder or model file, then the file to write", .least = 2, .most = 2,
      .notes = EXPORT_NOTES },
    { .name = "info", .bit = CMD_INFO,
      .about = "operations, parameters and memory of a network; contents of a model file",
      .synopsis = "jempp info [RUN|MODEL] [--model NAME] [--batch N] [--json]",
      .examples = "jempp info --model wrn-28-10 --batch 64\n"
                  "jempp info --model wrn-16-2 --device cpu       # with the scratch memory of its "
                  "convolutions\n"
                  "jempp info runs/demo                           # of a trained model",
      .names = "at most one run folder or model file", .least = 0, .most = 1, .notes = INFO_NOTES },
    { .name = "bench", .bit = CMD_BENCH,
      .about = "measure the speed of operations and of whole training iterations",
      .synopsis = "jempp bench [--model NAME] [--batch N] [--steps M] [--device NAME] [--json]\n"
                  "jempp bench --inference [--model NAME] [--device NAME] [--json]",
      .examples = "jempp bench --model wrn-16-2 --steps 5 --device cpu\n"
                  "jempp bench --model wrn-16-2 --inference\n"
                  "jempp bench --model wrn-28-10 --px clean --json",
      .names = "options only", .defaults = bench_defaults, .notes = BENCH_NOTES },
    { .name = "report", .bit = CMD_REPORT,
      .about = "draw figures of a run, and collect them on one HTML page",
      .synopsis = "jempp report RUN [--out FILE.html]\n"
                  "jempp report RUN --tensorboard",
      .examples = "jempp report runs/demo\n"
                  "jempp report runs/demo --out demo.html",
      .names = "one run folder (jempp serve FOLDER compares several runs)", .least = 1, .most = 1,
      .notes = REPORT_NOTES },
    { .name = "serve", .bit = CMD_SERVE,
      .about = "show a run, several runs or a model on a live page in the browser; JSON API",
      .synopsis = "jempp serve RUN|MODEL|FOLDER [--port N] [--host ADDRESS]",
      .examples = "jempp serve runs/demo                            # http://127.0.0.1:8080/\n"
                  "jempp serve runs                                 # all runs of a folder\n"
                  "jempp serve model.safetensors --port 8000\n"
                  "jempp serve runs --host 0.0.0.0                  # for other machines, with a "
                  "token",
      .names = "one run folder, folder of runs, or model file", .least = 1, .most = 1,
      .notes = SERVE_NOTES },
    { .name = "fid", .bit = CMD_FID,
      .about = "compare two sets of images: FID, KID, precision and recall, Inception Score",
      .synopsis = "jempp fid IMAGES REFERENCE [--inception FILE] [--json]\n"
                  "jempp fid IMAGES --out STATISTICS.npz [--inception FILE]",
      .examples = "jempp fid cifar10:test cifar10                   # test images against "
                  "training images\n"
                  "jempp fid runs/first cifar10                     # a run's replay buffer\n"
                  "jempp fid samples/ pictures/ --json              # two folders of pictures "
                  "of one size\n"
                  "jempp fid samples/ folder:pictures --side 64     # pictures of any size, "
                  "cropped and scaled\n"
                  "jempp fid samples.npz reference.npz              # arr_0, or statistics: mu "
                  "and sigma\n"
                  "jempp fid by-class.npz cifar10 --per-class       # labels: arr_1\n"
                  "jempp fid cifar10 --out cifar10.npz              # writes such statistics",
      .names = "images and their reference: each a set (cifar10, cifar10:test), a folder, an "
               "npz file or a run folder; with --out the images alone", .least = 1, .most = 2,
      .notes = FID_NOTES },
    { .name = "data", .bit = CMD_DATA, .about = "list, check and download image sets",
      .synopsis = "jempp data list\n"
                  "jempp data check NAME [--data-dir DIR]\n"
                  "jempp data fetch NAME [--data-dir DIR] [--url URL]",
      .examples = "jempp data list\n"
                  "jempp data fetch cifar10\n"
                  "jempp data check folder:pictures",
      .names = "list, check NAME or fetch NAME", .least = 1, .most = 2, .notes = DATA_NOTES },
    { 0 },
};
// clang-format on

const Command *command_find(const char *name) {
    for (const Command *k = command_table; k->name; k++)
        if (!strcmp(k->name, name)) return k;
    return NULL;
}

int command_unknown(const char *name, Err *err) {
    const char *meant = NULL;
    for (const Command *k = command_table; k->name; k++) nearer(name, k->name, &meant);
    if (meant)
        return err_set(err, ERR_ARG, "%.64s: no such command; did you mean %s?", name, meant);
    return err_set(err, ERR_ARG, "%.64s: no such command; jempp --help lists them", name);
}

const OptNote *command_note(const Command *k, const char *option) {
    for (const OptNote *n = k->notes; n && n->option; n++)
        if (!strcmp(n->option, option)) return n;
    return NULL;
}

void command_defaults(const Command *k, Config *c) {
    config_defaults(c);
    if (k->defaults) k->defaults(c);
}

int command_names(const Command *k, const char *const *name, int n, Err *err) {
    if (n >= k->least && n <= k->most) return 0;
    if (!n) return err_set(err, ERR_ARG, "%s: expected %s", k->name, k->names);
    if (n < k->least)
        return err_set(err, ERR_ARG, "%s: expected %s; found '%s' alone", k->name, k->names,
                       name[n - 1]);
    return err_set(err, ERR_ARG, "%s: %s: one name too many; expected %s", k->name, name[k->most],
                   k->names);
}
