// test_config.c - options: the table, texts and files of them, presets, what fits together.
#include "conf/config.h"
#include "api/help.h"
#include "testing.h"
#include <stdio.h>
#include <unistd.h>

static Config defaults(void) {
    Config c;
    config_defaults(&c);
    return c;
}

// Fails unless `text` is refused with a message that holds both words.
static void refused(const char *text, size_t n, const char *word, const char *other) {
    Config c = defaults();
    Err err = { 0 };
    if (!config_text(&c, text, n, "run.conf", &err)) fail_msg("'%s' was taken", text);
    assert_int_equal(err.kind, ERR_ARG);
    if (!strstr(err.msg, word) || !strstr(err.msg, other))
        fail_msg("the message '%s' should hold '%s' and '%s'", err.msg, word, other);
}

static void refused_text(const char *text, const char *word, const char *other) {
    refused(text, strlen(text), word, other);
}

static void taken(Config *c, const char *text) {
    OK(config_text(c, text, strlen(text), "run.conf", err));
}

// ---- the table ----------------------------------------------------------------------------

static void every_default_parses_and_lies_in_its_range(void **state) {
    (void)state;
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        Config c = { 0 };
        char text[1024], again[1024];
        if (row->type == T_PRESET || row->type == T_FILE) continue;
        OK(config_set(&c, row->name, row->value, row->name, err));
        config_value(&c, row, text, sizeof text);
        assert_string_equal(text, row->value);            // the table writes it as the program does
        OK(config_set(&c, row->name, text, row->name, err));
        config_value(&c, row, again, sizeof again);
        assert_string_equal(again, text);
    }
}

static void rows_are_whole_and_their_places_do_not_overlap(void **state) {
    (void)state;
    unsigned char used[sizeof(Config)] = { 0 };
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        const size_t wanted[] = { sizeof(int),  sizeof(int), sizeof(double), sizeof(double),
                                  row->size,    sizeof(int), row->size,      0 };
        assert_true(row->help[0] && row->group[0] && row->commands & CMD_ALL);
        assert_int_equal(row->size, wanted[row->type]);
        assert_true(row->type == T_FLAG || row->type == T_INT || row->type == T_NUM ||
                    row->type == T_WHOLE || row->choices);
        for (size_t k = 0; k < row->size; k++) assert_int_equal(used[row->at + k]++, 0);
        for (int k = 0; k < i; k++) assert_string_not_equal(row->name, config_rows[k].name);
    }
}

static void groups_are_together_so_that_help_shows_each_once(void **state) {
    (void)state;
    for (int i = 1; i < config_n_rows; i++)
        for (int k = 0; k + 1 < i; k++)
            if (strcmp(config_rows[i].group, config_rows[i - 1].group) != 0)
                assert_string_not_equal(config_rows[i].group, config_rows[k].group);
}

static void defaults_are_those_of_the_description(void **state) {
    (void)state;
    const Config c = defaults();
    assert_string_equal(c.model, "wrn-28-10");
    assert_string_equal(c.data, "cifar10");
    assert_int_equal(c.batch, 64);
    assert_int_equal(c.steps, 10);
    assert_int_equal(c.inner, 5);
    assert_true(c.step_size == 0.2 && c.clip == 1 && c.noise == 0 && c.clamp == 1);
    assert_int_equal(c.start, START_INFORMATIVE);
    assert_int_equal(c.px, PX_CLEAN);
    assert_int_equal(c.bn_stats, BN_REAL);
    assert_true(c.bn_momentum == 0.1 && c.reinit == 0.05 && c.sigma == 0.03);
    assert_int_equal(c.buffer, 10000);
    assert_int_equal(c.norm, NORM_BATCH);
    assert_int_equal(c.optimizer, OPTIM_SGD);
    assert_int_equal(c.schedule, SCHED_STEP);
    assert_true(c.lr == 0.1 && c.momentum == 0.9 && c.weight_decay == 4e-4 && c.epochs == 150);
    assert_int_equal(config_given(&c, "steps"), 0);
}

static void each_choice_has_the_number_of_its_enum(void **state) {
    (void)state;
    const struct {
        const char *name, *value;
        int wanted;
    } rows[] = {
        { "px", "none", PX_NONE },
        { "px", "independent", PX_INDEPENDENT },
        { "start", "uniform", START_UNIFORM },
        { "prior", "data", PRIOR_DATA },
        { "bn-stats", "all", BN_ALL },
        { "adversarial", "l2", ATTACK_L2 },
        { "from", "centres", FROM_CENTRES },
        { "by", "pyx", BY_PYX },
        { "norm", "none", NORM_NONE },
        { "stem", "4x4", STEM_4X4 },
        { "optimizer", "adam", OPTIM_ADAM },
        { "optimizer", "muon", OPTIM_MUON },
        { "schedule", "onecycle", SCHED_ONECYCLE },
        { "precision", "bf16", PREC_BF16 },
        { "conv", "direct", CONV_DIRECT },
    };
    for (size_t i = 0; i < LEN(rows); i++) {
        Config c = defaults();
        OK(config_set(&c, rows[i].name, rows[i].value, rows[i].name, err));
        const OptRow *row = config_row(rows[i].name);
        assert_int_equal(*(int *)((char *)&c + row->at), rows[i].wanted);
    }
}

static void former_names_are_read_and_never_written(void **state) {
    (void)state;
    Config c = defaults();
    taken(&c, "attack = l2\nattack-radius = 0.5\nattack-step = 0.1\nclasses = 7\n");
    assert_int_equal(c.adversarial, ATTACK_L2);
    assert_true(c.attack_step_size == 0.1);
    assert_int_equal(c.n_classes, 7);
    assert_true(config_given(&c, "adversarial") && config_given(&c, "attack"));
    char *text = config_dump(&c, CMD_ALL);
    assert_non_null(strstr(text, "\nadversarial = l2\n"));
    assert_non_null(strstr(text, "\nnum-classes = 7\n"));
    assert_non_null(strstr(text, "\nattack-step-size = 0.1\n"));
    assert_null(strstr(text, "\nattack = "));
    assert_null(strstr(text, "\nclasses = "));
    free(text);
    refused_text("attack = l2\nadversarial = l2\n", "line 2: adversarial",
                 "already given on line 1");
    for (const OptAlias *a = config_aliases; a->former; a++) {
        assert_ptr_equal(config_row(a->former), config_row(a->name));
        assert_string_equal(config_former(a->name), a->former);
        for (int i = 0; i < config_n_rows; i++)                 // a name means one option
            assert_string_not_equal(config_rows[i].name, a->former);
    }
    assert_null(config_former("steps"));
}

// ---- texts ----------------------------------------------------------------------------------

static void comments_blank_lines_and_carriage_returns_are_skipped(void **state) {
    (void)state;
    Config c = defaults();
    taken(&c, "# a run\r\n\r\n  steps = 7 \r\n\t# more\nclamp=off\n\nattack-radius = 8/255\nout = "
              "my #1 run");
    assert_int_equal(c.steps, 7);
    assert_int_equal(c.clamp, 0);
    assert_close(c.attack_radius, 8.0 / 255, 0);
    assert_string_equal(c.out, "my #1 run");
    assert_true(config_given(&c, "steps") && config_given(&c, "clamp") &&
                !config_given(&c, "inner"));
}

static void what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
    refused_text("steps = 5\nbatch = many\n", "run.conf, line 2: batch",
                 "found 'many', expected a whole number from 1");
    refused_text("steps = 2.5\n", "line 1: steps", "'2.5'");
    refused_text("steps = -1\n", "steps", "from 0 to");
    refused_text("steps = 99999999999999999999\n", "steps", "from 0 to");
    refused_text("lr = nan\n", "lr", "expected a number");
    refused_text("lr = inf\n", "lr", "expected a number");
    refused_text("lr = 0x10\n", "lr", "expected a number");
    refused_text("lr = 1/0\n", "lr", "expected a number");
    refused_text("lr = 0.1 0.2\n", "lr", "expected a number");
    refused_text("lr =\n", "lr", "expected a number");
    refused_text("steps = 5 # five\n", "steps", "comments go on lines of their own");
    refused_text("px = cleam\n", "px", "clean|shared|independent|none");
    refused_text("device = gpu\n", "device", "auto|cpu|cuda|ref");
    refused_text("clamp = maybe\n", "clamp", "on or off");
    refused_text("steps 5\n", "line 1", "option = value");
    refused_text("= 5\n", "line 1", "expected option = value");
    refused_text("seed = 9007199254740992\n", "seed", "9007199254740991");
}

static void an_unknown_option_comes_with_the_nearest_name(void **state) {
    (void)state;
    const struct {
        const char *name, *meant;
    } rows[] = {
        { "stpes", "steps" },         { "weight_decay", "weight-decay" },
        { "optimiser", "optimizer" }, { "bach", "batch" },
        { "epoch", "epochs" },        { "checkpoint-minute", "checkpoint-minutes" },
    };
    for (size_t i = 0; i < LEN(rows); i++) {
        Config c = defaults();
        Err err = { 0 };
        char where[64], wanted[128];
        snprintf(where, sizeof where, "--%s", rows[i].name);
        snprintf(wanted, sizeof wanted, "--%s: no such option; did you mean --%s?", rows[i].name,
                 rows[i].meant);
        assert_int_equal(config_set(&c, rows[i].name, "1", where, &err), -1);
        assert_string_equal(err.msg, wanted);
    }
    refused_text("stpes = 3\n", "run.conf, line 1: stpes", "did you mean steps?");
    Config c = defaults();
    Err err = { 0 };
    assert_int_equal(config_set(&c, "frobnicate", "1", "--frobnicate", &err), -1);
    assert_null(strstr(err.msg, "did you mean"));
    err = (Err){ 0 };
    assert_int_equal(config_preset(&c, "jemp-m10", &err), -1);
    assert_non_null(strstr(err.msg, "did you mean jempp-m10?"));
}

static void an_option_given_twice_is_refused_with_both_lines(void **state) {
    (void)state;
    refused_text("steps = 5\nbatch = 8\n\nsteps = 5\n", "line 4: steps", "already given on line 1");
}

static void hostile_files_are_refused(void **state) {
    (void)state;
    static char big[70000], line[2048], text[700];
    memset(big, '\n', sizeof big);
    refused(big, sizeof big, "70000 bytes", "65536");
    memset(line, 'a', sizeof line);
    refused(line, sizeof line, "line 1", "2048 bytes");
    refused("steps = 5\0\nbatch = 3\n", 21, "line 1", "zero byte");
    refused_text("out = a\x1b[2Jb\n", "out", "control");
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "out = ", 6);
    refused_text(text, "out", "at most 511");
    refused_text("config = other.conf\n", "config", "cannot include another");
    refused_text("steps = 5\npreset = demo\n", "preset", "before all other");
}

static void no_bytes_break_the_reader(void **state) {
    (void)state;
    const Rng key = { .seed = 3, .stream = RNG_TEST };
    const char *const letters = "steps=px lr\n\r#/0159.-e\0\x80";
    for (uint32_t t = 0; t < 2000; t++) {
        char text[64];
        Config c = defaults();
        Err err = { 0 };
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = letters[rng_below(key, (uint64_t)t * sizeof text + i, 25)];
        if (config_text(&c, text, sizeof text, "noise", &err))
            assert_true(err.kind == ERR_ARG && err.msg[0]);
    }
}

static void a_file_is_read_and_a_missing_one_named(void **state) {
    (void)state;
    char path[] = "/tmp/jempp-config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char text[] = "preset = demo\nsteps = 3\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    Config c = defaults();
    OK(config_file(&c, path, err));
    assert_int_equal(c.steps, 3);
    assert_string_equal(c.model, "wrn-10-1");
    assert_string_equal(c.preset, "demo");
    unlink(path);
    Err err = { 0 };
    assert_int_equal(config_file(&c, path, &err), -1);
    assert_non_null(strstr(err.msg, path));
}

// ---- records ----------------------------------------------------------------------------------

// A value of each row that is not its default.
static void other_value(const OptRow *row, char *dst, size_t n) {
    const char *bar = row->choices ? strrchr(row->choices, '|') : NULL;
    switch (row->type) {
    case T_FLAG:  snprintf(dst, n, "%s", strcmp(row->value, "on") ? "on" : "off"); break;
    case T_INT:
    case T_WHOLE: snprintf(dst, n, "%.0f", row->hi); break;
    case T_NUM:   snprintf(dst, n, "%.17g", row->lo + (row->hi - row->lo) / 3); break;
    default:      snprintf(dst, n, "%s", bar ? bar + 1 : "3/7,4/7"); break;
    }
}

static void what_is_dumped_reads_back_the_same(void **state) {
    (void)state;
    Config c = defaults();
    OK(config_preset(&c, "jem", err));
    for (int i = 0; i < config_n_rows; i++) {
        char value[1024];
        if (config_rows[i].type == T_PRESET || config_rows[i].type == T_FILE) continue;
        other_value(&config_rows[i], value, sizeof value);
        OK(config_set(&c, config_rows[i].name, value, config_rows[i].name, err));
    }
    char *text = config_dump(&c, CMD_ALL);
    assert_non_null(text);
    Config back = defaults();
    taken(&back, text);
    for (int i = 0; i < config_n_rows; i++) {
        const OptRow *row = &config_rows[i];
        const char *a = (const char *)&c + row->at, *b = (const char *)&back + row->at;
        if (row->type == T_TEXT || row->type == T_PRESET) assert_string_equal(a, b);
        else assert_memory_equal(a, b, row->size);
    }
    char *again = config_dump(&back, CMD_ALL);
    assert_string_equal(text, again);
    free(text);
    free(again);
}

static void a_dump_holds_the_options_of_its_commands_alone(void **state) {
    (void)state;
    const Config c = defaults();
    char *text = config_dump(&c, CMD_TRAIN);
    assert_non_null(strstr(text, "weight-decay = 0.0004\n"));
    assert_null(strstr(text, "preview"));
    assert_null(strstr(text, "config"));
    free(text);
}

static void options_that_were_given_can_be_laid_over_others(void **state) {
    (void)state;
    Config model = defaults(), asked = defaults();
    taken(&model, "steps = 20\ninner = 3\n");
    taken(&asked, "steps = 40\n");
    config_take(&model, &asked);
    assert_int_equal(model.steps, 40);
    assert_int_equal(model.inner, 3);
}

// ---- presets ------------------------------------------------------------------------------------

static void every_preset_loads_fits_together_and_says_what_it_is(void **state) {
    (void)state;
    int n = 0;
    for (const Preset *p = preset_table; p->name; p++, n++) {
        char top[80];
        Config c = defaults();
        OK(config_preset(&c, p->name, err));
        OK(config_check(&c, err));
        assert_string_equal(c.preset, p->name);
        snprintf(top, sizeof top, "# %s - ", p->name);
        assert_memory_equal(p->text, top, strlen(top));
    }
    assert_int_equal(n, 17);
}

static void presets_differ_as_the_paper_says(void **state) {
    (void)state;
    const struct {
        const char *name;
        int steps, inner, start, norm, optimizer, px, bn_stats;
    } rows[] = {
        { "jempp-m5", 5, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "jempp-m10", 10, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "jempp-m20", 20, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "no-prox", 10, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "adam", 10, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_ADAM, PX_INDEPENDENT, BN_ALL },
        { "random-bn", 10, 5, START_UNIFORM, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "random-nobn", 10, 5, START_UNIFORM, NORM_NONE, OPTIM_ADAM, PX_INDEPENDENT, BN_REAL },
        { "info-nobn", 10, 5, START_INFORMATIVE, NORM_NONE, OPTIM_ADAM, PX_INDEPENDENT, BN_REAL },
        { "jem-info-bn", 20, 1, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_INDEPENDENT, BN_ALL },
        { "jem", 20, 1, START_UNIFORM, NORM_NONE, OPTIM_ADAM, PX_INDEPENDENT, BN_REAL },
        { "softmax", 0, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_NONE, BN_REAL },
        { "demo", 5, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_SGD, PX_SHARED, BN_REAL },
        { "cifar10-fast", 5, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_MUON, PX_CLEAN, BN_REAL },
        { "cifar100-fast", 5, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_MUON, PX_CLEAN, BN_REAL },
        { "svhn-fast", 5, 5, START_INFORMATIVE, NORM_BATCH, OPTIM_MUON, PX_CLEAN, BN_REAL },
    };
    for (size_t i = 0; i < LEN(rows); i++) {
        Config c = defaults();
        OK(config_preset(&c, rows[i].name, err));
        const int found[] = { c.steps, c.inner, c.start, c.norm, c.optimizer, c.px, c.bn_stats };
        assert_memory_equal(found, &rows[i].steps, sizeof found);
        if (c.optimizer == OPTIM_ADAM) assert_close(c.lr, 1e-4, 0);
    }
    Config c = defaults();
    OK(config_preset(&c, "no-prox", err));
    assert_true(c.clip == 0 && c.clamp);
    c = defaults();
    OK(config_preset(&c, "svhn-fast", err));
    assert_string_equal(c.data, "svhn");
    assert_true(!c.flip && c.sam == 2 && c.px_margin == 1 && c.climb_limit == 0.7);
    c = defaults();
    OK(config_preset(&c, "jem", err));
    assert_true(c.clip == 0 && !c.clamp && c.noise == 0.01 && c.step_size == 1 &&
                c.weight_decay == 0);
}

// ---- what fits together ------------------------------------------------------------------------

static void unfit(const char *text, const char *word) {
    Config c = defaults();
    Err err = { 0 };
    taken(&c, text);
    if (!config_check(&c, &err)) fail_msg("'%s' passed", text);
    assert_int_equal(err.kind, ERR_ARG);
    if (!strstr(err.msg, word)) fail_msg("'%s' should hold '%s'", err.msg, word);
}

static void what_does_not_fit_together_is_refused(void **state) {
    (void)state;
    Config c = defaults();
    OK(config_check(&c, err));
    unfit("steps = 0\n", "px = none");
    unfit("step-size = 0\n", "not move");
    unfit("steps-max = 10\n", "steps-max = 10: expected more than steps = 10, or 0");
    unfit("px = none\nsteps-max = 20\n", "steps-max = 20 without chains");
    unfit("active = 63\n", "active = 63: expected 0, or from batch = 64 to buffer = 10000");
    unfit("active = 10001\n", "active = 10001: expected 0, or from batch = 64 to buffer = 10000");
    unfit("active = 1000\nreinit = 0\n", "active = 1000: expected reinit above 0");
    unfit("px = none\nstart-real = 0.5\n", "start-real = 0.5 without chains");
    unfit("px = none\npx-from = 0.1\n", "px-from = 0.1 without p(x): expected px other than none");
    unfit("pyx-weight = 0\npx-from = 0.1\n", "px-from = 0.1: expected pyx-weight above 0");
    unfit("muon-lr = 0.01\n", "muon-lr = 0.01: expected optimizer = muon");
    unfit("optimizer = muon\nnorm = none\n", "optimizer = muon with norm = none: expected norm");
    unfit("optimizer = muon\nlr = 0\n", "lr = 0 with optimizer = muon: expected lr above 0");
    unfit("labelled = 63\n", "labelled = 63: expected at least batch = 64, or 0");
    unfit("labelled = 129\nranks = 2\n",
          "ranks = 2: they must divide batch = 64 and labelled = 129");
    unfit("buffer = 32\n", "64 different");
    unfit("adversarial = linf\n", "attack-radius");
    unfit("attack-radius = 0.5\n", "adversarial = linf or l2");
    unfit("sam-from = 0.5\n", "expected sam above 0");
    unfit("sam-images = 8\n", "expected sam above 0");
    unfit("sam = 2\nsam-images = 65\n", "expected at most batch = 64");
    unfit("sam = 2\nsam-images = 8\nsteps = 1\n", "expected steps above 1");
    unfit("px-loss = bce\npx-margin = 1\n", "needs no margin");
    unfit("px = none\npyx-weight = 0\n", "nothing is learnt");
    unfit("px = none\npxy-weight = 1\n", "needs chains");
    unfit("batch = 1\n", "norm = none");
    unfit("epochs = 0\n", "expected one of them");
    unfit("resume = on\n", "--out RUN");
    unfit("model = resnet\n", "wrn-DEPTH-WIDTH");
    unfit("decay-at = 2/3,1/3\n", "rising");
    unfit("decay-at = 1/3,\n", "rising");
    unfit("decay-at = 1/3;2/3\n", "rising");
    unfit("decay-at = .1,.2,.3,.4,.5,.6,.7,.8,.9\n", "more than 8");
}

static void samples_have_the_options_of_their_origin(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        { "from = buffer\nanimation = a.webp\n", "--animation without fresh chains" },
        { "from = starts\nsteps = 5\n", "--steps without fresh chains: expected --from fresh" },
        { "from = centres\nweight-noise = 0.3\n", "--weight-noise without" },
        { "from = buffer\nstart = gaussian\n", "--start without chains" },
        { "best = 3\nworst = 3\n", "one of them" },
        { "by = pyx\n", "expected --best N or --worst N too" },
    };
    static const char *const right[] = { "steps = 5\nweight-noise = 0.3\n",
                                         "from = starts\nstart = gaussian\n",
                                         "from = buffer\nbest = 3\nby = pyx\n" };
    for (size_t i = 0; i < LEN(wrong); i++) {
        Config c = defaults();
        Err err = { 0 };
        taken(&c, wrong[i][0]);
        assert_true(config_check_sample(&c, &err));
        assert_non_null(strstr(err.msg, wrong[i][1]));
    }
    for (size_t i = 0; i < LEN(right); i++) {
        Config c = defaults();
        taken(&c, right[i]);
        OK(config_check_sample(&c, err));
    }
}

static void sam_of_0_switches_it_off_whatever_a_preset_says(void **state) {
    (void)state;
    Config c = defaults();
    OK(config_preset(&c, "cifar10-fast", err));
    assert_true(c.sam > 0 && c.sam_from > 0);
    taken(&c, "sam = 0\nsam-images = 8\n");
    OK(config_check(&c, err));
}

static void options_of_sam_do_not_switch_it_on_in_a_resumed_run(void **state) {
    (void)state;
    Config run = defaults();
    OK(config_preset(&run, "cifar10-fast", err));
    taken(&run, "sam = 0\n");
    config_of_run(&run);
    OK(config_check(&run, err));                        // the preset's details are no mistake
    static const char *const asked[] = { "sam-from = 0.5\n", "sam-images = 8\n" };
    for (size_t i = 0; i < LEN(asked); i++) {
        Config now = run;
        Err why = { 0 };
        taken(&now, asked[i]);
        assert_true(config_check(&now, &why));
        assert_non_null(strstr(why.msg, "without SAM: expected sam above 0, as 1"));
        taken(&now, "sam = 1\n");
        OK(config_check(&now, err));
    }
}

static void the_margin_and_the_limit_of_a_preset_give_way_to_bce(void **state) {
    (void)state;
    Config c = defaults();
    OK(config_preset(&c, "cifar10-fast", err));
    config_settle(&c);
    assert_true(c.px_margin == 1 && c.climb_limit == 0.7);
    taken(&c, "px-loss = bce\nclimb-limit = 0.3\n");
    OK(config_check(&c, err));
    config_settle(&c);
    assert_true(c.px_margin == 0 && c.climb_limit == 0.3);
    OK(config_preset(&c, "cifar10-fast", err));
    taken(&c, "px-loss = bce\n");
    config_settle(&c);
    assert_true(c.climb_limit == 0);
    taken(&c, "px-margin = 1\n");                       // the user's does not
    assert_true(config_check(&c, NULL));
}

static void fractions_are_read_in_order(void **state) {
    (void)state;
    double at[MAX_DROPS];
    Err err = { 0 };
    assert_int_equal(config_fractions("1/3,2/3,0.9", at, MAX_DROPS, &err), 3);
    assert_close(at[0], 1.0 / 3, 0);
    assert_close(at[2], 0.9, 0);
    assert_int_equal(config_fractions("", at, MAX_DROPS, &err), 0);
}

static void a_resumed_run_may_change_its_length_place_and_recovery_alone(void **state) {
    (void)state;
    static const char *const may[] = { "epochs = 7\n",  "iterations = 9\n",
                                       "minutes = 3\n", "device = ref\n",
                                       "threads = 1\n", "data-dir = d\n",
                                       "out = o\n",     "checkpoint-minutes = 1\n",
                                       "zoom = 3\n",    "sam = 2\nsam-images = 32\n",
                                       "climb-limit = 0.5\n", "retries = 10\n" };
    static const char *const may_not[] = { "steps = 7\n",   "lr = 0.2\n",         "seed = 2\n",
                                           "px = shared\n", "model = wrn-16-2\n", "data = svhn\n",
                                           "clamp = off\n" };
    const Config old = defaults();
    for (size_t i = 0; i < LEN(may); i++) {
        Config now = old;
        taken(&now, may[i]);
        OK(config_same_run(&old, &now, err));
    }
    for (size_t i = 0; i < LEN(may_not); i++) {
        Config now = old;
        Err err = { 0 };
        taken(&now, may_not[i]);
        assert_int_equal(config_same_run(&old, &now, &err), -1);
        assert_memory_equal(err.msg, "--resume: the run has ", 22);
    }
    Config now = old;
    Err why = { 0 };
    taken(&now, "init = other\n");
    assert_int_equal(config_same_run(&old, &now, &why), -1);
    assert_non_null(strstr(why.msg, "the run has init = (none), found other: a run keeps it"));
}

// ---- help --------------------------------------------------------------------------------------

static void help_shows_every_option_of_a_command_within_a_hundred_columns(void **state) {
    (void)state;
    for (const Command *k = command_table; k->name; k++) {
        char *text = help_text(k->name), *rest = text;
        assert_non_null(text);
        for (int i = 0; i < config_n_rows; i++) {
            char flag[64];
            snprintf(flag, sizeof flag,
                     config_rows[i].type == T_FLAG && config_rows[i].value[1] == 'n' ? "  --[no-]%s"
                                                                                     : "  --%s",
                     config_rows[i].name);
            if (config_rows[i].commands & k->bit) assert_non_null(strstr(text, flag));
        }
        for (char *line; (line = strsep(&rest, "\n"));)
            if (strlen(line) > 100) fail_msg("%s: %s", k->name, line);
        free(text);
    }
    assert_null(help_text("nonsense"));
}

static void a_note_is_about_an_option_that_the_command_has(void **state) {
    (void)state;
    for (const Command *k = command_table; k->name; k++)
        for (const OptNote *n = k->notes; n && n->option; n++) {
            const OptRow *row = config_row(n->option);
            if (!row || !(row->commands & k->bit)) fail_msg("%s has no --%s", k->name, n->option);
        }
}

static void an_option_is_described_for_the_command_that_is_asked(void **state) {
    (void)state;
    char *train = help_text("train"), *sample = help_text("sample");
    assert_non_null(train);
    assert_non_null(sample);
    assert_non_null(strstr(train, "run folder to create"));
    assert_non_null(strstr(sample, "file to write: a grid (.png, .webp)"));
    assert_null(strstr(sample, "run folder to create"));
    assert_non_null(strstr(sample, "gradient steps of a fresh chain, each as long as in"));
    free(train);
    free(sample);
}

static void the_length_that_is_set_last_counts(void **state) {
    (void)state;
    Config c, user;
    config_defaults(&c);
    OK(config_set(&c, "minutes", "5", "", err));
    assert_true(c.minutes == 5 && c.epochs == 0 && !config_given(&c, "epochs"));
    OK(config_set(&c, "iterations", "7", "", err));
    assert_true(c.minutes == 0 && c.iterations == 7 && c.epochs == 0);
    OK(config_set(&c, "minutes", "0", "", err));
    assert_int_equal(c.iterations, 7);
    config_defaults(&user);                                 // as --resume --epochs 3
    OK(config_set(&user, "epochs", "3", "", err));
    config_take(&c, &user);
    assert_true(c.epochs == 3 && c.iterations == 0);
}

static void a_presets_options_are_not_the_users(void **state) {
    (void)state;
    Config c;
    config_defaults(&c);
    OK(config_set(&c, "seed", "3", "", err));
    OK(config_preset(&c, "cifar10-fast", err));
    assert_true(config_given(&c, "valid-images") && !config_asked(&c, "valid-images"));
    assert_true(config_asked(&c, "seed") && config_asked(&c, "preset"));
    OK(config_set(&c, "valid-images", "9", "", err));
    assert_true(config_asked(&c, "valid-images"));
}

// Models keep the options that they were trained with.
static void a_removed_option_of_a_model_is_left_out(void **state) {
    (void)state;
    Config c;
    config_defaults(&c);
    OK(config_stored(&c, "sam = 2\nsam-every = 2\n", "model", err));
    assert_true(c.sam == 2);
    OK(config_stored(&c, "pad = 3\ncutout = 8\n", "model", err));
    assert_int_equal(c.pad, 3);
    taken(&c, "sam-every = 1\ncutout = 0\n");           // as if they were not there
    refused_text("sam-every = 2\n", "sam-every", "no such option");
    refused_text("cutout = 8\n", "cutout", "no such option");
    assert_true(config_stored(&c, "sam-evry = 2\n", "model", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_parses_and_lies_in_its_range),
        cmocka_unit_test(a_removed_option_of_a_model_is_left_out),
        cmocka_unit_test(rows_are_whole_and_their_places_do_not_overlap),
        cmocka_unit_test(groups_are_together_so_that_help_shows_each_once),
        cmocka_unit_test(defaults_are_those_of_the_description),
        cmocka_unit_test(each_choice_has_the_number_of_its_enum),
        cmocka_unit_test(former_names_are_read_and_never_written),
        cmocka_unit_test(comments_blank_lines_and_carriage_returns_are_skipped),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(an_unknown_option_comes_with_the_nearest_name),
        cmocka_unit_test(an_option_given_twice_is_refused_with_both_lines),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(no_bytes_break_the_reader),
        cmocka_unit_test(a_file_is_read_and_a_missing_one_named),
        cmocka_unit_test(what_is_dumped_reads_back_the_same),
        cmocka_unit_test(a_dump_holds_the_options_of_its_commands_alone),
        cmocka_unit_test(options_that_were_given_can_be_laid_over_others),
        cmocka_unit_test(every_preset_loads_fits_together_and_says_what_it_is),
        cmocka_unit_test(presets_differ_as_the_paper_says),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(samples_have_the_options_of_their_origin),
        cmocka_unit_test(sam_of_0_switches_it_off_whatever_a_preset_says),
        cmocka_unit_test(options_of_sam_do_not_switch_it_on_in_a_resumed_run),
        cmocka_unit_test(the_margin_and_the_limit_of_a_preset_give_way_to_bce),
        cmocka_unit_test(fractions_are_read_in_order),
        cmocka_unit_test(a_resumed_run_may_change_its_length_place_and_recovery_alone),
        cmocka_unit_test(the_length_that_is_set_last_counts),
        cmocka_unit_test(a_presets_options_are_not_the_users),
        cmocka_unit_test(a_note_is_about_an_option_that_the_command_has),
        cmocka_unit_test(an_option_is_described_for_the_command_that_is_asked),
        cmocka_unit_test(help_shows_every_option_of_a_command_within_a_hundred_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
