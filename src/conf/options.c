// options.c - the table of options. Ranges are what makes sense to a computer; whether options fit
// together is config_check's matter.
#include "conf/config.h"
#include <stddef.h>

#define AT(field) offsetof(Config, field), sizeof(((Config *)0)->field)

// A choice is stored through an int: every enum must be as wide.
#define AS_WIDE_AS_INT(type) _Static_assert(sizeof(type) == sizeof(int), #type)
AS_WIDE_AS_INT(Precision);
AS_WIDE_AS_INT(ConvChoice);
AS_WIDE_AS_INT(NormKind);
AS_WIDE_AS_INT(StemKind);
AS_WIDE_AS_INT(StartKind);
AS_WIDE_AS_INT(PriorKind);
AS_WIDE_AS_INT(PxRule);
AS_WIDE_AS_INT(BnRule);
AS_WIDE_AS_INT(OptimKind);
AS_WIDE_AS_INT(SchedKind);
AS_WIDE_AS_INT(AttackKind);
AS_WIDE_AS_INT(AttackLoss);
AS_WIDE_AS_INT(EvalSplit);
AS_WIDE_AS_INT(SampleFrom);
AS_WIDE_AS_INT(SampleBy);

// clang-format off
enum {
    TRAIN = CMD_TRAIN, SAMPLE = CMD_SAMPLE, EXPORT = CMD_EXPORT, BENCH = CMD_BENCH, DATA = CMD_DATA,
    EVAL = CMD_EVAL, REPORT = CMD_REPORT, NETS = TRAIN | BENCH | CMD_INFO,
    MODELS = SAMPLE | EXPORT | EVAL | CMD_PREDICT, INFO = CMD_INFO, DEVICES = NETS | MODELS,
    JSONS = BENCH | DATA | EVAL | INFO | CMD_PREDICT
};

const OptRow config_rows[] = {
    // name, type, where, default, least, most, choices, commands, group, help
    { "preset", T_PRESET, AT(preset), "", 0, 0, "NAME", TRAIN | BENCH | MAY_CHANGE, "run",
      "a named set of options; other options change it" },
    { "config", T_FILE, 0, 0, "", 0, 0, "FILE", TRAIN | BENCH | MAY_CHANGE, "run",
      "a file of lines \"option = value\"; flags override it" },
    { "data", T_TEXT, AT(data), "cifar10", 0, 0, "NAME", TRAIN | EVAL, "run",
      "cifar10, cifar100, svhn, mnist, fashion-mnist, shapes, folder:DIR or cifar-file:FILE" },
    { "data-dir", T_TEXT, AT(data_dir), "", 0, 0, "DIR",
      TRAIN | SAMPLE | EVAL | DATA | MAY_CHANGE, "run",
      "where image sets are looked for first, and fetched to" },
    { "out", T_TEXT, AT(out), "", 0, 0, "PATH",
      TRAIN | SAMPLE | EVAL | REPORT | MAY_CHANGE, "run",
      "what is written: a run's folder, a picture, a page; empty: a name is made up" },
    { "init", T_TEXT, AT(init), "", 0, 0, "MODEL", TRAIN | MAY_CHANGE, "run",
      "start from the weights of this run or model" },
    { "resume", T_FLAG, AT(resume), "off", 0, 1, NULL, TRAIN | MAY_CHANGE, "run",
      "go on with the run in the folder out" },
    { "device", T_TEXT, AT(device), "auto", 0, 0, "auto|cpu|cuda|ref", DEVICES | MAY_CHANGE, "run",
      "what computes; auto: a GPU, else the CPU; ref is slow and plain" },
    { "threads", T_INT, AT(threads), "0", 0, 1024, NULL, DEVICES | MAY_CHANGE, "run",
      "CPU threads; 0: as many as the machine has" },
    { "precision", T_CHOICE, AT(precision), "auto", 0, 0, "auto|fp32|tf32|bf16", DEVICES, "run",
      "of products on a GPU; auto: bf16 there, fp32 elsewhere" },
    { "conv", T_CHOICE, AT(conv), "auto", 0, 0, "auto|direct", DEVICES, "run",
      "convolutions: the fastest found by timing, or never Winograd's" },
    { "deterministic", T_FLAG, AT(deterministic), "off", 0, 1, NULL, DEVICES, "run",
      "the same bits in every run on a GPU too, at some cost" },
    { "seed", T_WHOLE, AT(seed), "1", 0, 9007199254740991.0, NULL, DEVICES, "run",
      "all random numbers follow from it" },

    { "model", T_TEXT, AT(model), "wrn-28-10", 0, 0, "NAME", NETS, "network",
      "wrn-DEPTH-WIDTH, the depth being 6n + 4" },
    { "norm", T_CHOICE, AT(norm), "batch", 0, 0, "none|batch", NETS, "network",
      "batch normalisation, or none as in JEM" },
    { "stem", T_CHOICE, AT(stem), "3x3", 0, 0, "3x3|4x4", NETS, "network",
      "first convolution; 4x4 has stride 2 and makes the rest four times cheaper" },
    { "side", T_INT, AT(side), "0", 0, 256, NULL, NETS | DATA, "network",
      "pixels a side, for folder: and shapes; 0: as the set has it, else 32" },
    { "channels", T_INT, AT(channels), "0", 0, 3, NULL, NETS | DATA, "network",
      "1 grey, 3 colour, for folder:; 0: as the set has it, else 3" },
    { "classes", T_INT, AT(n_classes), "0", 0, 1000, NULL, INFO | BENCH, "network",
      "how many kinds there are; 0: 10" },

    { "batch", T_INT, AT(batch), "64", 1, 65536, NULL, NETS | SAMPLE, "length",
      "images at a time; chains run in batches of the training size" },
    { "epochs", T_NUM, AT(epochs), "150", 0, 1e6, NULL, TRAIN | MAY_CHANGE, "length",
      "times through the training images" },
    { "iterations", T_INT, AT(iterations), "0", 0, 2147483647, NULL,
      TRAIN | BENCH | MAY_CHANGE, "length",
      "steps in place of epochs; in bench, how many are timed; 0: epochs, or 5" },
    { "minutes", T_NUM, AT(minutes), "0", 0, 1e7, NULL, TRAIN | MAY_CHANGE, "length",
      "end after so long, the schedule included; 0: no limit" },
    { "train-images", T_INT, AT(train_images), "0", 0, 100000000, NULL, TRAIN, "length",
      "train on so many at most; 0: all but the validation images" },
    { "valid-images", T_INT, AT(valid_images), "5000", 0, 100000000, NULL, TRAIN, "length",
      "training images held out; the best checkpoint is chosen on them" },

    { "steps", T_INT, AT(steps), "10", 0, 100000, NULL, TRAIN | SAMPLE | BENCH, "chains",
      "gradient steps of a chain: M of PYLD-M-N, K of SGLD-K" },
    { "inner", T_INT, AT(inner), "5", 1, 100000, NULL, TRAIN | SAMPLE | BENCH, "chains",
      "moves along each gradient: N of PYLD-M-N, 1 for SGLD" },
    { "step-size", T_NUM, AT(step_size), "0.2", 0, 1000, NULL, TRAIN | SAMPLE, "chains",
      "of one move, pixels being in [-1, 1]" },
    { "clip", T_NUM, AT(clip), "1", 0, 1e6, NULL, TRAIN | SAMPLE, "chains",
      "limit on a pixel's gradient (the proximity); 0: none" },
    { "noise", T_NUM, AT(noise), "0", 0, 10, NULL, TRAIN | SAMPLE, "chains",
      "standard deviation of the noise after each step" },
    { "clamp", T_FLAG, AT(clamp), "on", 0, 1, NULL, TRAIN | SAMPLE, "chains",
      "keep pixels in [-1, 1]" },
    { "start", T_CHOICE, AT(start), "informative", 0, 0, "informative|gaussian|uniform",
      TRAIN | SAMPLE, "chains",
      "chains begin at draws of a Gaussian per class, one for all, or uniform noise" },
    { "prior", T_CHOICE, AT(prior), "uniform", 0, 0, "uniform|data", TRAIN, "chains",
      "how often a start is of each class: equally, or as in the data" },
    { "buffer", T_INT, AT(buffer), "10000", 1, 10000000, NULL, TRAIN, "chains",
      "images in the replay buffer" },
    { "reinit", T_NUM, AT(reinit), "0.05", 0, 1, NULL, TRAIN, "chains",
      "how often a chain starts afresh instead of from the buffer" },
    { "conditional", T_FLAG, AT(conditional), "off", 0, 1, NULL, TRAIN, "chains",
      "chains climb the logit of their class instead of log p(x)" },

    { "px", T_CHOICE, AT(px), "clean", 0, 0, "clean|shared|independent|none", TRAIN | BENCH,
      "objective", "p(x)'s real images: the batch unaugmented, as it is, another batch; no p(x)" },
    { "px-weight", T_NUM, AT(px_weight), "1", 0, 1000, NULL, TRAIN, "objective",
      "of log p(x)" },
    { "pyx-weight", T_NUM, AT(pyx_weight), "1", 0, 1000, NULL, TRAIN, "objective",
      "of log p(y|x), the classifier" },
    { "pxy-weight", T_NUM, AT(pxy_weight), "0", 0, 1000, NULL, TRAIN, "objective",
      "of log p(x,y)" },
    { "penalty", T_NUM, AT(penalty), "0", 0, 1000, NULL, TRAIN, "objective",
      "of the squared energy of real and sampled images" },
    { "px-margin", T_NUM, AT(px_margin), "0", 0, 1000, NULL, TRAIN, "objective",
      "how far f(x) may rise above f(x_q): beyond it p(x) is unlearnt until chains keep up; "
      "0: no limit" },
    { "sigma", T_NUM, AT(sigma), "0.03", 0, 10, NULL, TRAIN, "objective",
      "noise on real images" },
    { "pad", T_INT, AT(pad), "4", 0, 64, NULL, TRAIN, "objective",
      "random shifts of real images, in pixels; the border is mirrored" },
    { "flip", T_FLAG, AT(flip), "on", 0, 1, NULL, TRAIN, "objective",
      "mirror real images at random, where the set allows it (digits do not)" },
    { "bn-stats", T_CHOICE, AT(bn_stats), "real", 0, 0, "real|all", TRAIN, "objective",
      "which passes move the running statistics: real images alone, or chains too" },
    { "bn-momentum", T_NUM, AT(bn_momentum), "0.1", 0, 1, NULL, TRAIN, "objective",
      "weight of the new batch in the running statistics" },

    { "optimizer", T_CHOICE, AT(optimizer), "sgd", 0, 0, "sgd|adam", TRAIN | BENCH, "learning",
      "SGD with momentum, or Adam" },
    { "lr", T_NUM, AT(lr), "0.1", 0, 100, NULL, TRAIN, "learning",
      "learning rate at its highest" },
    { "momentum", T_NUM, AT(momentum), "0.9", 0, 0.9999, NULL, TRAIN, "learning", "of SGD" },
    { "weight-decay", T_NUM, AT(weight_decay), "0.0004", 0, 10, NULL, TRAIN, "learning",
      "on every parameter" },
    { "schedule", T_CHOICE, AT(schedule), "step", 0, 0, "step|cosine|linear|onecycle", TRAIN,
      "learning", "how the rate falls" },
    { "decay-at", T_TEXT, AT(decay_at), "1/3,2/3,5/6", 0, 0, "FRACTIONS", TRAIN, "learning",
      "when the rate drops in a step schedule, as fractions of the run" },
    { "decay-factor", T_NUM, AT(decay_factor), "0.2", 0, 1, NULL, TRAIN, "learning",
      "what it is multiplied by each time" },
    { "warmup", T_INT, AT(warmup), "1000", 0, 100000000, NULL, TRAIN, "learning",
      "iterations over which the rate first grows" },
    { "ema", T_NUM, AT(ema), "0", 0, 0.999999, NULL, TRAIN, "learning",
      "what a running average of the weights keeps a step; 0: no average" },
    { "sam", T_NUM, AT(sam), "0", 0, 100, NULL, TRAIN | BENCH, "learning",
      "radius of a sharpness-aware step (adaptive SAM; published: 2), which takes every update "
      "batch twice; 0: off" },
    { "sam-from", T_NUM, AT(sam_from), "0", 0, 1, NULL, TRAIN, "learning",
      "when it begins, as a fraction of the run: it matters late" },

    { "attack", T_CHOICE, AT(attack), "none", 0, 0, "none|linf|l2", TRAIN, "attacks",
      "train on images moved to where they are misread most, within a radius" },
    { "attack-radius", T_NUM, AT(attack_radius), "0", 0, 100, NULL, TRAIN, "attacks",
      "in units in which pixels go from 0 to 1: 8/255" },
    { "attack-steps", T_INT, AT(attack_steps), "10", 1, 10000, NULL, TRAIN | EVAL, "attacks",
      "gradient steps of the attack" },
    { "attacks", T_TEXT, AT(attacks), "pgd-linf,pgd-l2", 0, 0, "NAME,...", EVAL, "attacks",
      "a curve each: pgd-linf, pgd-l2, fgsm-linf, fgsm-l2" },
    { "radii", T_TEXT, AT(radii), "", 0, 0, "X,...", EVAL, "attacks",
      "rising, pixels going from 0 to 1; empty: 0 to 16/255 in linf, 0 to 1 in l2" },
    { "attack-loss", T_CHOICE, AT(attack_loss), "ce", 0, 0, "ce|margin", EVAL, "attacks",
      "what is climbed: cross-entropy, or the best wrong logit less the right one" },
    { "attack-step", T_NUM, AT(attack_step), "0", 0, 100, NULL, EVAL, "attacks",
      "length of a step, pixels going from 0 to 1; 0: 2.5 radius / attack-steps" },
    { "restarts", T_INT, AT(restarts), "1", 1, 10000, NULL, EVAL, "attacks",
      "an image is robust if it survives so many attacks" },
    { "random-start", T_FLAG, AT(random_start), "on", 0, 1, NULL, EVAL, "attacks",
      "begin anywhere within the radius, else at the image" },

    { "gap-limit", T_NUM, AT(gap_limit), "10", 0, 1e9, NULL, TRAIN, "care",
      "running mean of |f(x) - f(x_q)| that counts as divergence; 0: not watched" },
    { "ce-limit", T_NUM, AT(ce_limit), "1", 0, 1e9, NULL, TRAIN, "care",
      "how far the running mean of the classifier's loss may rise above its lowest before it "
      "counts as divergence; 0: not watched" },
    { "loss-limit", T_NUM, AT(loss_limit), "10000", 1, 1e30, NULL, TRAIN, "care",
      "a loss that counts as divergence" },
    { "retries", T_INT, AT(retries), "5", 0, 1000, NULL, TRAIN, "care",
      "how often a diverged run goes back to its last good checkpoint" },
    { "checkpoint-minutes", T_NUM, AT(checkpoint_minutes), "5", 0, 1e6, NULL, TRAIN | MAY_CHANGE,
      "care", "time between checkpoints; 0: after each epoch only" },

    { "tasks", T_TEXT, AT(tasks), "acc,ece,ood,attack,samples,speed", 0, 0, "NAME,...", EVAL,
      "evaluation", "what is done" },
    { "split", T_CHOICE, AT(split), "test", 0, 0, "test|valid", EVAL, "evaluation",
      "the test images, or those of the run's that it held out: to choose settings by" },
    { "limit", T_INT, AT(limit), "0", 0, 100000000, NULL, EVAL, "evaluation",
      "images per set, drawn by seed, stratified by class; 0: all, in attacks 1000" },
    { "temperature", T_FLAG, AT(temperature), "off", 0, 1, NULL, EVAL, "evaluation",
      "fit one anew on the run's validation images; else the one that the model carries is used" },
    { "input-noise", T_NUM, AT(input_noise), "0", 0, 10, NULL, EVAL, "evaluation",
      "standard deviation of noise on every image (published: 0.03), pixels in [-1, 1]" },
    { "refine", T_INT, AT(refine), "0", 0, 10000, NULL, EVAL, "evaluation",
      "steps that noisy copies of an image climb before they are classified (acc, ece, attack)" },
    { "draws", T_INT, AT(draws), "5", 1, 1000, NULL, EVAL, "evaluation",
      "such copies; their mean logits decide" },
    { "ood", T_TEXT, AT(ood), "", 0, 0, "NAME,...", EVAL, "evaluation",
      "sets that are not the model's: as data has them, or interp, uniform, gaussian, constant; "
      "empty: those that are here" },
    { "page", T_INT, AT(page), "100", 1, 10000, NULL, EVAL, "evaluation",
      "images on a page of a class's best or worst samples" },

    { "count", T_INT, AT(count), "64", 1, 1000000, NULL, SAMPLE, "output", "how many images" },
    { "class", T_TEXT, AT(classes), "", 0, 0, "NAME,...", SAMPLE, "output",
      "images of these classes alone" },
    { "from", T_CHOICE, AT(from), "fresh", 0, 0, "fresh|buffer|starts|centres", SAMPLE, "output",
      "new chains, the replay buffer, chain starts, or the classes' means" },
    { "best", T_INT, AT(best), "0", 0, 1000000, NULL, SAMPLE, "output",
      "of those drawn keep the so many highest" },
    { "worst", T_INT, AT(worst), "0", 0, 1000000, NULL, SAMPLE, "output", "... or lowest" },
    { "by", T_CHOICE, AT(by), "px", 0, 0, "px|pyx", SAMPLE, "output",
      "... in log p(x), or in p(y|x)" },
    { "zoom", T_INT, AT(zoom), "2", 1, 32, NULL, SAMPLE, "output", "enlarge the pictures" },
    { "columns", T_INT, AT(columns), "0", 0, 10000, NULL, SAMPLE, "output",
      "pictures in a row; 0: as square as it gets" },
    { "preview", T_FLAG, AT(preview), "on", 0, 1, NULL, SAMPLE, "output",
      "show them in the terminal too, where there is one" },
    { "animation", T_TEXT, AT(animation), "", 0, 0, "FILE.webp", SAMPLE, "output",
      "write the chains as an animation" },
    { "half", T_FLAG, AT(half), "off", 0, 1, NULL, EXPORT, "output",
      "weights in 16 bits: half the size" },
    { "force", T_FLAG, AT(force), "off", 0, 1, NULL, SAMPLE | EXPORT, "output",
      "replace a file of another kind, or the model itself" },
    { "url", T_TEXT, AT(url), "", 0, 0, "URL", DATA, "output",
      "fetch from this folder on the net in place of the publisher's" },
    { "json", T_FLAG, AT(json), "off", 0, 1, NULL, JSONS, "output", "JSON instead of text" },
};
// clang-format on
const int config_n_rows = sizeof config_rows / sizeof *config_rows;
_Static_assert(sizeof config_rows / sizeof *config_rows <= sizeof((Config *)0)->given,
               "Config.given");
