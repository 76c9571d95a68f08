// options.c - the table of options. Ranges are those of single values; config_check knows which
// options exclude or need each other.
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
    EVAL = CMD_EVAL, REPORT = CMD_REPORT, PREDICT = CMD_PREDICT, NETS = TRAIN | BENCH | CMD_INFO,
    SERVE = CMD_SERVE, MODELS = SAMPLE | EXPORT | EVAL | CMD_PREDICT | SERVE, INFO = CMD_INFO,
    FID = CMD_FID, DEVICES = NETS | MODELS | FID,
    JSONS = BENCH | DATA | EVAL | INFO | FID | CMD_PREDICT
};

const OptRow config_rows[] = {
    // name, type, where, default, least, most, choices, commands, group, help
    { "preset", T_PRESET, AT(preset), "", 0, 0, "NAME", TRAIN | BENCH | MAY_CHANGE, "run",
      "a named set of options; options given with it override it" },
    { "config", T_FILE, 0, 0, "", 0, 0, "FILE", TRAIN | BENCH | MAY_CHANGE, "run",
      "a file of lines \"option = value\"; flags override it" },
    { "data", T_TEXT, AT(data), "cifar10", 0, 0, "NAME", TRAIN | EVAL, "run",
      "cifar10, cifar100, svhn, mnist, fashion-mnist, shapes, folder:DIR or cifar-file:FILE" },
    { "data-dir", T_TEXT, AT(data_dir), "", 0, 0, "DIR",
      TRAIN | SAMPLE | EVAL | DATA | FID | PREDICT | SERVE | MAY_CHANGE, "run",
      "folder of image sets: searched first, and where downloads go" },
    { "out", T_TEXT, AT(out), "", 0, 0, "PATH",
      TRAIN | SAMPLE | EVAL | REPORT | PREDICT | FID | MAY_CHANGE, "run",
      "output: a run folder, an image file, a page, scores or statistics; empty: a name is "
      "chosen" },
    { "init", T_TEXT, AT(init), "", 0, 0, "MODEL", TRAIN, "run",
      "start from the weights of this run or model" },
    { "resume", T_FLAG, AT(resume), "off", 0, 1, NULL, TRAIN | MAY_CHANGE, "run",
      "continue the run in the folder --out" },
    { "device", T_TEXT, AT(device), "auto", 0, 0, "auto|cpu|cuda|ref", DEVICES | MAY_CHANGE, "run",
      "where to compute; auto: a GPU if there is one, else the CPU; ref: slow reference code" },
    { "threads", T_INT, AT(threads), "0", 0, 1024, NULL, DEVICES | MAY_CHANGE, "run",
      "CPU threads; 0: one per processor" },
    { "precision", T_CHOICE, AT(precision), "auto", 0, 0, "auto|fp32|tf32|bf16", DEVICES, "run",
      "number format of activations and matrix products; auto: bf16 on a GPU, fp32 elsewhere; bf16 "
      "on a CPU needs AVX512_BF16; tf32 is for GPUs" },
    { "conv", T_CHOICE, AT(conv), "auto", 0, 0, "auto|direct", DEVICES, "run",
      "convolution kernels; auto: the fastest, found by timing; direct: never Winograd" },
    { "deterministic", T_FLAG, AT(deterministic), "off", 0, 1, NULL, DEVICES, "run",
      "make results on a GPU bit-for-bit reproducible; slower" },
    { "seed", T_WHOLE, AT(seed), "1", 0, 9007199254740991.0, NULL,
      TRAIN | SAMPLE | EVAL | BENCH | FID, "run", "seed of all random numbers" },
    { "sync-bn", T_FLAG, AT(sync_bn), "off", 0, 1, NULL, TRAIN, "run",
      "with several ranks, normalise with the statistics of the whole batch instead of each rank's "
      "part" },
    { "rank-timeout", T_NUM, AT(rank_timeout), "600", 1, 1e6, NULL,
      TRAIN | SAMPLE | EVAL | BENCH | MAY_CHANGE, "run",
      "seconds that a rank waits for the others before all of them fail" },
    { "share-gpu", T_FLAG, AT(share_gpu), "off", 0, 1, NULL,
      TRAIN | SAMPLE | EVAL | BENCH | MAY_CHANGE, "run",
      "allow several ranks on one GPU, with sums through MPI (for tests)" },
    { "ranks", T_INT, AT(ranks), "0", 0, 65536, NULL, INFO | BENCH, "run",
      "number of ranks" },

    { "model", T_TEXT, AT(model), "wrn-28-10", 0, 0, "NAME", NETS, "network",
      "wide residual network wrn-DEPTH-WIDTH with DEPTH = 6n + 4" },
    { "norm", T_CHOICE, AT(norm), "batch", 0, 0, "none|batch", NETS, "network",
      "batch normalisation, or none as in JEM" },
    { "stem", T_CHOICE, AT(stem), "3x3", 0, 0, "3x3|4x4", NETS, "network",
      "first convolution; 4x4 has stride 2, so the rest costs a quarter" },
    { "side", T_INT, AT(side), "0", 0, 256, NULL, NETS | DATA | FID, "network",
      "width and height of images in pixels, for folder: and shapes; 0: the data set's, else 32" },
    { "channels", T_INT, AT(channels), "0", 0, 3, NULL, NETS | DATA, "network",
      "1 grey or 3 colour, for folder:; 0: the data set's, else 3" },
    { "num-classes", T_INT, AT(n_classes), "0", 0, 1000, NULL, INFO | BENCH, "network",
      "number of classes" },

    { "batch", T_INT, AT(batch), "64", 1, 65535, NULL, NETS | SAMPLE, "length",
      "images per batch; sample: chains per batch, by default as many as in training" },
    { "labelled", T_INT, AT(labelled), "0", 0, 65535, NULL, TRAIN | BENCH, "length",
      "images per training step for the classifier, where p(x) and its chains have --batch; 0: as "
      "many" },
    { "epochs", T_NUM, AT(epochs), "150", 0, 1e6, NULL, TRAIN | MAY_CHANGE, "length",
      "passes over the training images" },
    { "iterations", T_INT, AT(iterations), "0", 0, 2147483647, NULL,
      TRAIN | BENCH | MAY_CHANGE, "length",
      "train: steps, instead of epochs (0: epochs counts); bench: steps that are timed (0: 5)" },
    { "minutes", T_NUM, AT(minutes), "0", 0, 1e7, NULL, TRAIN | MAY_CHANGE, "length",
      "end after this many minutes, with the schedule fitted to them; 0: no limit" },
    { "train-images", T_INT, AT(train_images), "0", 0, 100000000, NULL, TRAIN, "length",
      "number of training images to use; 0: all but the validation images" },
    { "valid-images", T_INT, AT(valid_images), "5000", 0, 100000000, NULL, TRAIN, "length",
      "training images held out for validation (at most a fifth), which selects the best model" },

    { "steps", T_INT, AT(steps), "10", 0, 100000, NULL, TRAIN | SAMPLE | BENCH | EVAL, "chains",
      "gradient steps per chain: M of PYLD-M-N, K of SGLD-K" },
    { "steps-max", T_INT, AT(steps_max), "0", 0, 100000, NULL, TRAIN, "chains",
      "chains get longer by a step, from --steps up to this, each time the running mean of the "
      "AUROC of f between real and sampled images exceeds --steps-auroc; 0: they keep their "
      "length" },
    { "steps-auroc", T_NUM, AT(steps_auroc), "0.75", 0.5, 1, NULL, TRAIN, "chains",
      "limit on that AUROC: 0.5 where f does not distinguish the two, 1 where it always does" },
    { "inner", T_INT, AT(inner), "5", 1, 100000, NULL, TRAIN | SAMPLE | BENCH, "chains",
      "moves along each gradient: N of PYLD-M-N, 1 for SGLD" },
    { "step-size", T_NUM, AT(step_size), "0.2", 0, 1000, NULL, TRAIN | SAMPLE, "chains",
      "step size of one move, with pixels in [-1, 1]" },
    { "clip", T_NUM, AT(clip), "1", 0, 1e6, NULL, TRAIN | SAMPLE, "chains",
      "limit on the gradient of each pixel (the proximity constraint); 0: none" },
    { "noise", T_NUM, AT(noise), "0", 0, 10, NULL, TRAIN | SAMPLE, "chains",
      "standard deviation of the noise added after each step, with pixels in [-1, 1]" },
    { "chain-length", T_NUM, AT(chain_length), "0", 0, 10000, NULL,
      TRAIN | SAMPLE | EVAL | EXPORT, "chains",
      "total length of fresh chains, in chain steps of training; 0: train finds it at its end, "
      "other commands take the model's" },
    { "chain-step", T_NUM, AT(chain_step), "0", 0, 100, NULL,
      TRAIN | SAMPLE | EVAL | EXPORT, "chains",
      "length of the first step of fresh chains, in chain steps of training; the last is 0.1; 0: "
      "by climb, or what the model says" },
    { "weight-noise", T_NUM, AT(weight_noise), "0.2", 0, 10, NULL, SAMPLE | EVAL, "chains",
      "noise on the weights in each step of fresh chains, as a share of the root mean square of "
      "each layer's weights; 0: none" },
    { "clamp", T_FLAG, AT(clamp), "on", 0, 1, NULL, TRAIN | SAMPLE, "chains",
      "keep pixels in [-1, 1]" },
    { "start", T_CHOICE, AT(start), "informative", 0, 0, "informative|gaussian|uniform",
      TRAIN | SAMPLE, "chains",
      "chains start from one Gaussian per class, one for all classes, or uniform noise" },
    { "prior", T_CHOICE, AT(prior), "uniform", 0, 0, "uniform|data", TRAIN, "chains",
      "classes of chain starts: all equally likely, or as frequent as in the training images" },
    { "buffer", T_INT, AT(buffer), "10000", 1, 10000000, NULL, TRAIN, "chains",
      "images in the replay buffer" },
    { "active", T_INT, AT(active), "0", 0, 10000000, NULL, TRAIN, "chains",
      "number of chains that are under way at a time: moved in 1 / --reinit training steps on "
      "average, a chain is finished and stays in the replay buffer, and a new one starts; 0: all "
      "chains of the buffer are under way, and each starts afresh with probability --reinit" },
    { "reinit", T_NUM, AT(reinit), "0.05", 0, 1, NULL, TRAIN, "chains",
      "probability that a chain starts afresh instead of from the replay buffer" },
    { "start-real", T_NUM, AT(start_real), "0", 0, 1, NULL, TRAIN, "chains",
      "probability that a chain starts from a training image, with noise of --sigma, instead of a "
      "draw by --start" },
    { "conditional", T_FLAG, AT(conditional), "off", 0, 1, NULL, TRAIN, "chains",
      "chains follow log p(x|y), the logit of their class, instead of log p(x)" },

    { "px", T_CHOICE, AT(px), "clean", 0, 0, "clean|shared|independent|none", TRAIN | BENCH,
      "objective",
      "real images for p(x): the labelled batch without augmentation, the labelled batch, another "
      "batch; none: no p(x)" },
    { "px-loss", T_CHOICE, AT(px_loss), "difference", 0, 0, "difference|bce", TRAIN, "objective",
      "loss of p(x): f(x_q) - f(x), or the binary cross-entropy (BCE) of classifying images as "
      "real (x) or sampled (x_q) by f, which replaces a preset's --px-margin and "
      "--climb-limit by 0" },
    { "px-from", T_NUM, AT(px_from), "0", 0, 0.9, NULL, TRAIN, "objective",
      "start of p(x), as a fraction of the run; before it the network is trained as a classifier "
      "alone, whose steps take much less time" },
    { "px-weight", T_NUM, AT(px_weight), "1", 0, 1000, NULL, TRAIN, "objective",
      "weight of log p(x)" },
    { "pyx-weight", T_NUM, AT(pyx_weight), "1", 0, 1000, NULL, TRAIN, "objective",
      "weight of log p(y|x), the classifier" },
    { "pxy-weight", T_NUM, AT(pxy_weight), "0", 0, 1000, NULL, TRAIN, "objective",
      "weight of log p(x,y)" },
    { "penalty", T_NUM, AT(penalty), "0", 0, 1000, NULL, TRAIN, "objective",
      "weight of the squared energy of real and sampled images" },
    { "px-margin", T_NUM, AT(px_margin), "0", 0, 1000, NULL, TRAIN, "objective",
      "limit on f(x) - f(x_q): after a step above it the p(x) terms change sign; 0: no limit" },
    { "sigma", T_NUM, AT(sigma), "0.03", 0, 10, NULL, TRAIN, "objective",
      "standard deviation of the noise on real images, with pixels in [-1, 1]" },
    { "pad", T_INT, AT(pad), "4", 0, 64, NULL, TRAIN, "objective",
      "largest random shift of real images in pixels, with mirrored borders" },
    { "flip", T_FLAG, AT(flip), "on", 0, 1, NULL, TRAIN, "objective",
      "mirror real images at random, unless the data set rules it out (digits)" },
    { "bn-stats", T_CHOICE, AT(bn_stats), "real", 0, 0, "real|all", TRAIN, "objective",
      "images that update the running statistics: real ones, or chains as well" },
    { "bn-momentum", T_NUM, AT(bn_momentum), "0.1", 0, 1, NULL, TRAIN, "objective",
      "weight of the new batch in the running statistics" },

    { "optimizer", T_CHOICE, AT(optimizer), "sgd", 0, 0, "sgd|adam|muon", TRAIN | BENCH,
      "optimisation",
      "SGD with momentum, Adam, or Muon: orthogonal steps for the filters of convolutions, SGD for "
      "the rest" },
    { "muon-lr", T_NUM, AT(muon_lr), "0.03", 0, 1, NULL, TRAIN, "optimisation",
      "peak learning rate of filters with --optimizer muon: a step's length as a share of the "
      "filter's; it follows the same schedule as --lr" },
    { "lr", T_NUM, AT(lr), "0.1", 0, 100, NULL, TRAIN, "optimisation",
      "peak learning rate" },
    { "momentum", T_NUM, AT(momentum), "0.9", 0, 0.9999, NULL, TRAIN, "optimisation",
      "momentum of SGD and Muon" },
    { "weight-decay", T_NUM, AT(weight_decay), "0.0004", 0, 10, NULL, TRAIN, "optimisation",
      "weight decay, on all parameters but the filters that Muon trains" },
    { "schedule", T_CHOICE, AT(schedule), "step", 0, 0, "step|cosine|linear|onecycle", TRAIN,
      "optimisation", "learning-rate schedule" },
    { "decay-at", T_TEXT, AT(decay_at), "1/3,2/3,5/6", 0, 0, "FRACTIONS", TRAIN, "optimisation",
      "with --schedule step: when the learning rate drops, as fractions of the run" },
    { "decay-factor", T_NUM, AT(decay_factor), "0.2", 0, 1, NULL, TRAIN, "optimisation",
      "with --schedule step: factor of each drop" },
    { "warmup", T_INT, AT(warmup), "1000", 0, 100000000, NULL, TRAIN, "optimisation",
      "iterations over which the learning rate first rises from 0" },
    { "ema", T_NUM, AT(ema), "0", 0, 0.999999, NULL, TRAIN, "optimisation",
      "decay of the exponential moving average of the weights, per step; 0: no average" },
    { "sam", T_NUM, AT(sam), "0", 0, 100, NULL, TRAIN | BENCH | MAY_CHANGE, "optimisation",
      "radius of sharpness-aware minimisation (adaptive SAM; published: 2), which computes each "
      "gradient twice; 0: off" },
    { "sam-from", T_NUM, AT(sam_from), "0", 0, 1, NULL, TRAIN | MAY_CHANGE, "optimisation",
      "start of sharpness-aware minimisation, as a fraction of the run" },
    { "sam-images", T_INT, AT(sam_images), "0", 0, 100000, NULL, TRAIN | BENCH | MAY_CHANGE,
      "optimisation",
      "images of each batch that choose the direction in which SAM perturbs the weights; 0: all" },

    { "adversarial", T_CHOICE, AT(adversarial), "none", 0, 0, "none|linf|l2", TRAIN, "attacks",
      "adversarial training: PGD on the labelled images, in this norm (evaluation: --attacks)" },
    { "attack-radius", T_NUM, AT(attack_radius), "0", 0, 100, NULL, TRAIN, "attacks",
      "radius of adversarial training, with pixels in [0, 1], such as 8/255" },
    { "attack-steps", T_INT, AT(attack_steps), "10", 1, 10000, NULL, TRAIN | EVAL, "attacks",
      "gradient steps of a PGD attack" },
    { "attacks", T_TEXT, AT(attacks), "pgd-linf,pgd-l2", 0, 0, "NAME,...", EVAL, "attacks",
      "attacks to evaluate, one curve each: pgd-linf, pgd-l2, fgsm-linf, fgsm-l2, apgd-linf, "
      "apgd-l2 (AutoAttack's APGD-CE, then targeted APGD-DLR)" },
    { "radii", T_TEXT, AT(radii), "", 0, 0, "X,...", EVAL, "attacks",
      "radii in ascending order, with pixels in [0, 1]; empty: 11 from 0 to 16/255 in linf and "
      "from 0 to 1 in l2; for apgd 0, 4/255, 8/255 in linf and 0, 0.25, 0.5 in l2" },
    { "attack-loss", T_CHOICE, AT(attack_loss), "ce", 0, 0, "ce|margin", EVAL, "attacks",
      "loss that pgd and fgsm maximise: cross-entropy, or the highest wrong logit minus the true "
      "one" },
    { "attack-step-size", T_NUM, AT(attack_step_size), "0", 0, 100, NULL, EVAL, "attacks",
      "step size of pgd, with pixels in [0, 1]; 0: 2.5 radius / attack-steps" },
    { "restarts", T_INT, AT(restarts), "1", 1, 10000, NULL, EVAL, "attacks",
      "attacks per image and radius, from different random starts; one success is enough" },
    { "random-start", T_FLAG, AT(random_start), "on", 0, 1, NULL, EVAL, "attacks",
      "start pgd at a random point within the radius; off: at the image" },

    { "gap-limit", T_NUM, AT(gap_limit), "10", 0, 1e9, NULL, TRAIN, "divergence",
      "limit on the running mean of |f(x) - f(x_q)|; 0: none" },
    { "ce-limit", T_NUM, AT(ce_limit), "1", 0, 1e9, NULL, TRAIN, "divergence",
      "limit on the rise of the cross-entropy's running mean above its lowest value; 0: none" },
    { "climb-limit", T_NUM, AT(climb_limit), "0", 0, 1, NULL, TRAIN | MAY_CHANGE, "divergence",
      "lower limit on the running mean of climb, below which p(x) is being lost; a rollback for it "
      "makes SAM begin, or doubles its radius; 0: none" },
    { "loss-limit", T_NUM, AT(loss_limit), "10000", 1, 1e30, NULL, TRAIN, "divergence",
      "limit on |loss|" },
    { "retries", T_INT, AT(retries), "5", 0, 1000, NULL, TRAIN | MAY_CHANGE, "divergence",
      "how many times a diverged run rolls back to a checkpoint before it fails" },
    { "checkpoint-minutes", T_NUM, AT(checkpoint_minutes), "5", 0, 1e6, NULL, TRAIN | MAY_CHANGE,
      "divergence", "minutes between checkpoints; 0: after each epoch only" },

    { "tasks", T_TEXT, AT(tasks), "acc,ece,ood,attack,samples,speed", 0, 0, "NAME,...", EVAL,
      "evaluation", "tasks to run: acc, ece, ood, attack, samples, speed, fid" },
    { "split", T_CHOICE, AT(split), "test", 0, 0, "test|valid", EVAL, "evaluation",
      "the test images, or the run's validation images (to choose settings on)" },
    { "limit", T_INT, AT(limit), "0", 0, 100000000, NULL, EVAL, "evaluation",
      "images per set, drawn by seed, stratified by class; 0: all (task attack: 1000)" },
    { "temperature", T_FLAG, AT(temperature), "off", 0, 1, NULL, EVAL, "evaluation",
      "fit the temperature again, on the run's validation images, instead of using the model's" },
    { "input-noise", T_NUM, AT(input_noise), "0", 0, 10, NULL, EVAL, "evaluation",
      "standard deviation of noise on the images of acc, ece and ood (published: 0.03), with "
      "pixels in [-1, 1]" },
    { "refine", T_INT, AT(refine), "0", 0, 10000, NULL, EVAL, "evaluation",
      "chain steps on noisy copies of an image before they are classified (acc, ece, attack)" },
    { "draws", T_INT, AT(draws), "5", 1, 1000, NULL, EVAL, "evaluation",
      "copies per image with --refine; their mean logits decide" },
    { "ood", T_TEXT, AT(ood), "", 0, 0, "NAME,...", EVAL, "evaluation",
      "out-of-distribution sets: as for --data, or interp, uniform, gaussian, constant; empty: all "
      "that are found" },
    { "scores", T_CHOICE, AT(scores), "none", 0, 0, "none|csv|jsonl|npz", EVAL, "evaluation",
      "write logits, p(y|x) and log p(x) of every image to scores/SET, in this format" },
    { "page", T_INT, AT(page), "100", 1, 10000, NULL, EVAL, "evaluation",
      "images per page of a class's best and worst samples" },
    { "classifier", T_TEXT, AT(classifier), "", 0, 0, "MODEL", EVAL, "evaluation",
      "another run or model, for example of the preset softmax: the task samples also counts how "
      "many samples drawn by class it recognises" },
    { "inception", T_TEXT, AT(inception), "", 0, 0, "FILE", TRAIN | EVAL | FID | MAY_CHANGE,
      "evaluation",
      "weights of the Inception network for FID: .pth, .pt or .safetensors; empty: the "
      "file that `jempp data fetch inception` downloaded" },
    { "reference", T_TEXT, AT(reference), "train", 0, 0, "NAME", EVAL, "evaluation",
      "images that the task fid compares samples with: train, test, a folder, or an npz file with "
      "images (arr_0) or statistics (mu, sigma)" },
    { "confident", T_NUM, AT(confident), "1", 0.001, 1, NULL, EVAL, "evaluation",
      "fraction of the replay buffer that the task fid takes: its most confident images" },
    { "per-class", T_FLAG, AT(per_class), "off", 0, 1, NULL, EVAL | FID, "evaluation",
      "also compute the FID of each class: of predicted classes, in jempp fid of labelled ones" },
    { "fid-every", T_NUM, AT(fid_every), "0", 0, 1e6, NULL, TRAIN | MAY_CHANGE, "evaluation",
      "log the FID of 5,000 images of the replay buffer every X epochs; 0: never" },

    { "count", T_INT, AT(count), "64", 1, 1000000, NULL, SAMPLE | EVAL, "output",
      "number of images" },
    { "class", T_TEXT, AT(classes), "", 0, 0, "NAME,...", SAMPLE, "output",
      "classes to draw, by name (which may have commas) or number, or all: chains are guided to "
      "their class, images of the replay buffer are chosen by predicted class; empty: images of "
      "any class" },
    { "from", T_CHOICE, AT(from), "fresh", 0, 0, "fresh|buffer|starts|centres", SAMPLE | EVAL,
      "output", "new chains, the replay buffer, chain starts, or class means" },
    { "best", T_INT, AT(best), "0", 0, 1000000, NULL, SAMPLE, "output",
      "keep the N highest-scoring of --count images; 0: all" },
    { "worst", T_INT, AT(worst), "0", 0, 1000000, NULL, SAMPLE, "output",
      "keep the N lowest-scoring of --count images; 0: all" },
    { "by", T_CHOICE, AT(by), "px", 0, 0, "px|pyx", SAMPLE, "output",
      "score of --best and --worst: log p(x), or p(y|x)" },
    { "zoom", T_INT, AT(zoom), "2", 1, 32, NULL, SAMPLE, "output",
      "magnification of the images in a grid" },
    { "columns", T_INT, AT(columns), "0", 0, 10000, NULL, SAMPLE, "output",
      "images per row of a grid; 0: a nearly square grid" },
    { "preview", T_FLAG, AT(preview), "on", 0, 1, NULL, SAMPLE, "output",
      "show the images in the terminal as well" },
    { "animation", T_TEXT, AT(animation), "", 0, 0, "FILE.webp", SAMPLE, "output",
      "write the chains as an animation" },
    { "half", T_FLAG, AT(half), "off", 0, 1, NULL, EXPORT, "output",
      "16-bit weights: half the size" },
    { "tensorboard", T_FLAG, AT(tensorboard), "off", 0, 1, NULL, TRAIN | REPORT | MAY_CHANGE,
      "output",
      "write TensorBoard event files beside log.tsv" },
    { "strict", T_FLAG, AT(strict), "off", 0, 1, NULL, PREDICT, "output",
      "with --out: fail if a picture cannot be read, instead of writing a row with the error" },
    { "force", T_FLAG, AT(force), "off", 0, 1, NULL, SAMPLE | EXPORT | PREDICT | REPORT | FID,
      "output",
      "replace a file of another kind" },
    { "url", T_TEXT, AT(url), "", 0, 0, "URL", DATA, "output",
      "download from this address instead of the publisher's" },
    { "host", T_TEXT, AT(host), "127.0.0.1", 0, 0, "ADDRESS", SERVE, "output",
      "address to listen on; unless it is a loopback address, every request needs the token that "
      "is printed" },
    { "port", T_INT, AT(port), "8080", 0, 65535, NULL, SERVE, "output",
      "port to listen on; 0: any free port" },
    { "inference", T_FLAG, AT(inference), "off", 0, 1, NULL, BENCH, "output",
      "time the classification of 1, 64 and 256 images instead of training" },
    { "json", T_FLAG, AT(json), "off", 0, 1, NULL, JSONS, "output", "JSON instead of text" },
};

// Names of 0.1. They are read wherever an option is, and never written.
const OptAlias config_aliases[] = {
    { "attack", "adversarial" },
    { "attack-step", "attack-step-size" },
    { "classes", "num-classes" },
    { NULL, NULL },
};
// clang-format on
const int config_n_rows = sizeof config_rows / sizeof *config_rows;
_Static_assert(sizeof config_rows / sizeof *config_rows <= sizeof((Config *)0)->given,
               "Config.given");
