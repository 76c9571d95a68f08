// config.h - every option of the program, once: one table row gives the flag, the line in a config
// file, the help, docs/options.md, and the record in run folders and checkpoints. conf/ is options
// and presets, and what is opened from them; it knows device and network options (dev/, net/) and
// reads files, but opens no device and no data.
#ifndef CONFIG_H
#define CONFIG_H
#include "base/json.h"
#include "dev/backend.h"
#include "net/net.h"
#include "net/optim.h"

typedef enum { PX_CLEAN, PX_SHARED, PX_INDEPENDENT, PX_NONE } PxRule;     // real images for p(x)
typedef enum { LOSS_DIFFERENCE, LOSS_BCE } PxLoss;
typedef enum { START_INFORMATIVE, START_GAUSSIAN, START_UNIFORM } StartKind;
typedef enum { PRIOR_UNIFORM, PRIOR_DATA } PriorKind;
typedef enum { BN_REAL, BN_ALL } BnRule;                                    // who updates them
typedef enum { ATTACK_NONE, ATTACK_LINF, ATTACK_L2 } AttackKind;
typedef enum { LOSS_CE, LOSS_MARGIN } AttackLoss;
typedef enum { FROM_FRESH, FROM_BUFFER, FROM_STARTS, FROM_CENTRES } SampleFrom;
typedef enum { BY_PX, BY_PYX } SampleBy;
typedef enum { SPLIT_TEST, SPLIT_VALID } EvalSplit;            // which images are evaluated

// Flags and choices are as wide as an int, which is how the option table writes them.
typedef struct {
    // run
    char   preset[64], data[256], data_dir[512], out[512], init[512];
    int    resume;
    char   device[16];
    int    threads;
    Precision  precision;
    ConvChoice conv;
    int    deterministic;
    // several processes that train together
    int    sync_bn, share_gpu, ranks;
    double rank_timeout;
    double seed;                    // a whole number below 2^53
    // network
    char   model[32];
    NormKind norm;
    StemKind stem;
    int    side;                    // 0: as the data has it
    int    n_classes, channels;     // 0: as the data has them
    // length
    int    batch, labelled, iterations;     // labelled 0: as batch
    double epochs, minutes;
    int    train_images, valid_images;
    // chains
    int    steps, steps_max, inner; // steps_max 0: chains keep their length
    double steps_auroc;
    double step_size, clip, noise;  // clip 0: no limit
    double chain_length, chain_step, weight_noise;    // of fresh chains
    int    clamp;
    StartKind start;
    PriorKind prior;
    int    buffer, active;          // active 0: all of the buffer's chains
    int    conditional;
    double reinit, start_real;
    // objective
    PxRule px;
    PxLoss px_loss;
    double px_weight, pyx_weight, pxy_weight, penalty, px_margin, px_from;
    double sigma;                   // noise on real images
    int    pad, flip;
    BnRule bn_stats;
    double bn_momentum;
    // optimisation
    OptimKind optimizer;
    SchedKind schedule;
    int    warmup;
    double lr, muon_lr, momentum, weight_decay, decay_factor, ema, sam, sam_from;
    int    sam_images;
    char   decay_at[64];            // fractions of the run: "1/3,2/3,5/6"
    // adversarial training
    AttackKind adversarial;
    int    attack_steps;
    double attack_radius;           // in [0, 1] pixel units
    // evaluation
    char   tasks[128], ood[1024], attacks[128], radii[512];
    char   inception[512], reference[512], classifier[512];
    double confident, fid_every;
    int    per_class;
    EvalSplit split;
    int    limit, temperature, refine, draws, page;
    AttackLoss attack_loss;
    int    restarts, random_start;
    double input_noise, attack_step_size;
    // divergence
    double gap_limit, ce_limit, climb_limit, loss_limit, checkpoint_minutes;
    int    retries;
    // using a model: sample, predict, export, bench, data, ...
    int    count, best, worst;
    SampleFrom from;
    SampleBy by;
    int    json, half, force, zoom, columns, preview, strict, tensorboard, inference;
    int    scores;                  // of eval: 0 none, else 1 + ScoreFormat
    char   classes[256], animation[512], url[1024];
    char   host[256];
    int    port;
    // which rows were set by the user, a preset or a file: not by config_defaults; BY_...
    unsigned char given[128];
} Config;

// Config.given; 0: a default. What a resumed run was stored with counts as a preset's.
enum { BY_PRESET = 1, BY_USER = 2 };

typedef enum {
    T_FLAG, T_INT, T_NUM,           // T_NUM may be a fraction: 8/255
    T_WHOLE,                        // a whole number in a double
    T_TEXT, T_CHOICE,               // a text with choices must be one of them
    T_PRESET, T_FILE,               // sets many options; only a preset's name is stored
} OptType;

typedef struct {
    const char *name;               // "weight-decay": --weight-decay 4e-4, weight-decay = 4e-4
    OptType     type;
    size_t      at, size;           // where in Config
    const char *value;              // default
    double      lo, hi;
    const char *choices;            // "clean|shared|none", in the enum's order; for free text a
                                    // placeholder in capitals: "DIR"
    unsigned    commands;           // CMD_TRAIN | ...
    const char *group, *help;
} OptRow;

enum { CMD_TRAIN = 1, CMD_SAMPLE = 2, CMD_PREDICT = 4, CMD_EXPORT = 8, CMD_INFO = 16,
       CMD_BENCH = 32, CMD_DATA = 64, CMD_EVAL = 128, CMD_REPORT = 256, CMD_FID = 512,
       CMD_SERVE = 1024, CMD_ALL = 2047,
       MAY_CHANGE = 1 << 16 };      // with --resume
enum { EVAL_ATTACK_STEPS = 40, EVAL_CHAINS = 10000 };

typedef struct { const char *former, *name; } OptAlias;
extern const OptAlias config_aliases[];                         // ends with NULL

typedef struct { const char *name, *text; } Preset;
extern const Preset preset_table[];                             // from presets/; ends with NULL

extern const OptRow config_rows[];
extern const int    config_n_rows;

void config_defaults(Config *c);
const OptRow *config_row(const char *name);     // also by a former name; NULL: no such option
const char *config_former(const char *name);    // the former name of an option, or NULL
int config_is_length(const OptRow *row);        // it says how long a run is: epochs, ...
// One option as text. Of epochs, iterations and minutes the last that is set above 0 clears the
// others. `where` begins an error message ("a.conf, line 3: steps", "--steps").
int  config_set(Config *c, const char *name, const char *value, const char *where, Err *err);
// The error for a name that no option has: it offers the nearest that one of `commands` has.
int  config_unknown(const char *name, const char *where, unsigned commands, Err *err);
// Lines "key = value"; a line that begins with # is a comment; `preset` must come first.
int  config_text(Config *c, const char *text, size_t n, const char *where, Err *err);
// The same of a model that has been trained: options that no longer exist are left out.
int  config_stored(Config *c, const char *text, const char *where, Err *err);
int  config_file(Config *c, const char *path, Err *err);
int  config_preset(Config *c, const char *name, Err *err);     // a compiled-in file of presets/
void config_value(const Config *c, const OptRow *row, char *dst, size_t n);
// 0, or an error that names the first given option that none of `commands` has.
int  config_only(const Config *c, unsigned commands, const char *where, Err *err);
int  config_given(const Config *c, const char *name);           // BY_..., or 0: a default
int  config_asked(const Config *c, const char *name);           // nonzero: BY_USER
void config_take(Config *c, const Config *from);                // copies what is given in `from`
void config_of_run(Config *c);                                  // what is given is a resumed run's
// "0,4/255,8/255" -> rising numbers; how many, or -1 with err.
typedef struct {
    const char *name;                     // of the option, for errors: "NAME: found TEXT, ...
    double      lo, hi;                   // all within
    const char *expected;                 // ... expected EXPECTED"
} RisingNumbers;
int  config_rising(const char *text, const RisingNumbers *of, double *dst, int max, Err *err);
// "1/3,2/3,5/6" -> rising numbers within (0, 1); how many, or -1 with err.
int  config_fractions(const char *text, double *dst, int max, Err *err);
// Labelled images of a training step.
static inline int config_labelled(const Config *c) { return c->labelled ? c->labelled : c->batch; }
// What a device and a network are opened with. 0 for channels, side or classes: as the options say,
// else 3 x 32 x 32 and 10 classes.
DevOpts config_dev(const Config *c);
int  config_net(NetSpec *spec, const Config *c, int channels, int side, int classes, Err *err);
// All options that `commands` has, one line "key = value" each; malloc'd.
char *config_dump(const Config *c, unsigned commands);
void config_json(const Config *c, JsonOut *j);   // those of a run, as the member "options"
// An error if options contradict each other (chains without steps, an attack without
// a radius, ...).
int  config_check(const Config *c, Err *err);
int  config_check_sample(const Config *c, Err *err);    // those of `jempp sample`
int  config_check_fresh(const Config *c, Err *err);     // those of fresh chains, wherever drawn
// What of a preset gives way to the user's options, once config_check has passed them: its margin
// and climb-limit to --px-loss bce.
void config_settle(Config *c);
// 0, or an error that names the first option that differs and cannot change on --resume.
int  config_same_run(const Config *old, const Config *now, Err *err);
#endif
