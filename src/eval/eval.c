// eval.c - see eval.h. eval_text is the place to begin reading; TASKS lists what there is.
#include "base/file.h"
#include "base/log.h"
#include "base/md5.h"
#include "base/version.h"
#include "data/bytes.h"
#include "eval/task.h"
#include "report/report.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int (*run)(Evaluation *, Err *);
    int (*check)(Evaluation *, Err *);       // its options; NULL: none
    int (*prepare)(Evaluation *, Err *);     // further images; NULL: none
    int images;                              // it uses the test images
} Task;

// clang-format off
static const Task TASKS[N_TASK] = {          // results.c has their names
    [TASK_ACC] = { task_acc, NULL, NULL, 1 },
    [TASK_ECE] = { task_ece, check_temperature, prepare_ece, 1 },
    [TASK_OOD] = { task_ood, check_ood, eval_load_ood, 1 },
    [TASK_ATTACK] = { task_attack, check_attack, NULL, 1 },
    [TASK_SAMPLES] = { task_samples, check_samples, NULL, 0 },
    [TASK_SPEED] = { task_speed, NULL, NULL, 1 },
    [TASK_FID] = { task_fid, check_fid, prepare_fid, 0 },
};
// clang-format on

// ---- which tasks ----------------------------------------------------------------------------

static int unknown_task(const char *name, Err *err) {
    char all[200] = "";
    for (TaskId id = 0; id < N_TASK; id++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", id ? "," : "", task_name(id));
    return err_set(err, ERR_ARG, "--tasks: found '%s', expected some of %s", name, all);
}

static int read_tasks(Evaluation *e, Err *err) {
    char list[sizeof e->use->tasks], *at = list, *name;
    snprintf(list, sizeof list, "%s", e->use->tasks);
    while ((name = strsep(&at, ","))) {
        TaskId id = 0;
        while (id < N_TASK && strcmp(task_name(id), name) != 0) id++;
        if (id == N_TASK) return unknown_task(name, err);
        e->wanted |= 1u << id;
    }
    return 0;
}

// Everything that can be wrong with what was asked for shows here, before an image is read.
static int check_options(Evaluation *e, int *images, Err *err) {
    if (read_tasks(e, err)) return -1;
    for (TaskId id = 0; id < N_TASK; id++) *images |= TASKS[id].images && eval_wants(e, id);
    for (TaskId id = 0; id < N_TASK; id++)
        if (eval_wants(e, id) && TASKS[id].check && TASKS[id].check(e, err)) return -1;
    return *images ? eval_check_test(e, err) : 0;
}

static int prepare(Evaluation *e, int images, Err *err) {
    if (images && eval_load_test(e, err)) return -1;
    for (TaskId id = 0; id < N_TASK; id++)
        if (eval_wants(e, id) && TASKS[id].prepare && TASKS[id].prepare(e, err)) return -1;
    // only now: sets like interp are made of all images
    const int rc = images ? eval_limit(e, &e->test, err) : 0;
    e->n = (int)e->test.n;
    return rc;
}

// ---- the file -------------------------------------------------------------------------------

// Ranks other than 0 write to a temporary folder of their own, which nobody reads.
static int choose_scratch(Evaluation *e, Err *err) {
    const char *tmp = getenv("TMPDIR");
    snprintf(e->dir, sizeof e->dir, "%.400s/jempp-rank-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(e->dir)) return err_set(err, ERR_IO, "%s: %s", e->dir, strerror(errno));
    return run_path(e->file, e->dir, RUN_EVAL, err);
}

// --out; else the run's own folder, where figures on validation images have a place of their own;
// else one named like the model file.
static int name_folder(Evaluation *e, Err *err) {
    const Model *m = e->m;
    char name[256];
    const char *base = strrchr(m->path, '/');
    snprintf(name, sizeof name, "%.240s", base ? base + 1 : m->path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    if (e->use->out[0]) snprintf(e->dir, sizeof e->dir, "%s", e->use->out);
    else if (m->run[0] && e->use->split == SPLIT_VALID)
        return path_join(e->dir, sizeof e->dir, m->run, run_file(RUN_VALID), err);
    else if (m->run[0]) snprintf(e->dir, sizeof e->dir, "%.500s", m->run);
    else snprintf(e->dir, sizeof e->dir, "%s-eval", name);
    return 0;
}

static int choose_folder(Evaluation *e, Err *err) {
    if (name_folder(e, err)) return -1;
    if (comm_rank(e->m->comm)) return choose_scratch(e, err);
    e->new_dir = !dir_exists(e->dir);
    const int rc = dir_make(e->dir, err);
    return rc ? rc : run_path(e->file, e->dir, RUN_EVAL, err);
}

// An evaluation may take hours: whether its results can be written shows before.
static int check_folder(const Evaluation *e, Err *err) {
    Err why = { 0 };
    return file_writable(e->file, &why)
               ? err_set(err, why.kind, "%s (--out DIR writes elsewhere)", why.msg)
               : 0;
}

static int hash_model(Evaluation *e, Err *err) {
    Md5 md5 = md5_start();
    Reader r = reader_open(e->m->path);
    char part[1 << 16];
    for (uint64_t left = r.size; left;) {
        const size_t n = left < sizeof part ? (size_t)left : sizeof part;
        read_bytes(&r, part, n);
        md5_add(&md5, part, n);
        left -= n;
    }
    md5_end(&md5, e->md5);
    return reader_close(&r, err);
}

// Results for the same model stay in the file until the same task is run again. All are on one set,
// so that the paper's can be compared with them.
static int read_earlier(Evaluation *e, Err *err) {
    EvalResults *r = &e->results;
    if (results_read(r, e->file, err))
        return err_append(err, "; remove it, or choose another --out");
    if (r->there && !strcmp(r->md5, e->md5)) {
        if (!r->data[0] || !strcmp(r->data, e->data)) return 0;
        return err_set(err, ERR_ARG,
                       "%s: has results on %s; remove it, or choose another --out for those on %s",
                       e->file, r->data, e->data);
    }
    results_free(r);
    return 0;
}

// Whose results they are; those of the tasks stay.
static int begin_results(Evaluation *e, Err *err) {
    const NetSpec *spec = &e->m->net.spec;
    EvalResults *r = &e->results;
    if (read_earlier(e, err)) return -1;
    char net[32];
    snprintf(net, sizeof net, "wrn-%d-%d", spec->depth, spec->width);
    r->there = 1;
    r->format = 1;
    r->version = version_text();
    r->model = e->m->path;
    r->md5 = e->md5;
    r->net = arena_strdup(&r->arena, net);
    r->device = e->m->dev.be.name;
    r->precision = e->m->dev.be.precision[e->use->precision];
    r->seed = (double)eval_seed(e);
    r->data = e->data;
    r->n_class = spec->classes;
    r->class_name = e->m->class_name;
    return arena_ok(&r->arena, "results", err);
}

static int run_task(Evaluation *e, TaskId id, Err *err) {
    const double began = now_seconds();
    if (comm_agree(e->m->comm, TASKS[id].run(e, err), err)) return -1;
    *results_task(&e->results, id) = (TaskRun){ .there = 1,
                                                .device = e->results.device,
                                                .precision = e->results.precision,
                                                .data = e->results.data,
                                                .seed = e->results.seed,
                                                .seconds = now_seconds() - began };
    if (!e->unwritten.kind) (void)results_write(&e->results, e->file, &e->unwritten);
    return 0;
}

// ---- all of it ------------------------------------------------------------------------------

static int batch_for(const Evaluation *e) {
    const int most = e->m->dev.be.eval_batch;
    return e->n && e->n < most ? e->n : most;
}

static int eval_open(Evaluation *e, Err *err) {
    int images = 0;
    snprintf(e->data, sizeof e->data, "%s%s", e->use->data[0] ? e->use->data : e->m->cfg.data,
             e->use->split == SPLIT_VALID ? " (validation)" : "");
    if (check_options(e, &images, err) || hash_model(e, err) || choose_folder(e, err) ||
        check_folder(e, err) || begin_results(e, err) || prepare(e, images, err))
        return -1;
    e->batch = batch_for(e);
    if (!images) return 0;
    if (scorer_open(&e->scorer, &e->m->net, e->batch, NULL, 0, err)) return -1;
    e->scorer.noise = (real)e->use->input_noise;
    e->scorer.seed = eval_seed(e);
    return bytes_upload(&e->bytes, &e->m->dev, &e->test, err);
}

static void eval_close(Evaluation *e) {
    scorer_close(&e->scorer);
    probe_close(&e->probe);
    bytes_free(&e->bytes, &e->m->dev);
    set_free(&e->test);
    set_free(&e->valid);
    for (int i = 0; i < MAX_OOD; i++) set_free(&e->ood[i]);
    source_close(&e->fid_images);
    feature_set_free(&e->fid_reference);
    model_close(&e->classifier);
    results_free(&e->results);
    free(e->logits);
    free(e->slope);
}

// Figures beside the results. A machine that cannot draw has the results all the same.
static void draw_figures(Evaluation *e) {
    Err err = { 0 };
    char line[sizeof err.msg + 32];
    if (comm_rank(e->m->comm) || e->unwritten.kind || !report_pictures(e->dir, &err)) return;
    if (err.kind != ERR_DEV) e->unwritten = err;
    snprintf(line, sizeof line, "figures left out: %s", err.msg);
    if (err.kind == ERR_DEV) tell_line(e->ev, line);
}

// What was computed is shown, whether or not it could be written.
static char *finish(Evaluation *e, Err *err) {
    draw_figures(e);
    char *text =
        e->use->json ? results_text(&e->results, err) : eval_table(&e->results, &e->m->cfg, err);
    if (text && e->unwritten.kind) *err = e->unwritten;
    return text;
}

// A task that one rank has to leave out is left out by all.
static int share_tasks(Evaluation *e, Err *err) {
    Comm *c = e->m->comm;
    unsigned *all = c ? comm_answers(c, &e->wanted, sizeof *all) : NULL;
    for (int r = 0; all && r < c->size; r++)
        for (TaskId id = 0; id < N_TASK; id++) {
            char line[80];
            if (!eval_wants(e, id) || all[r] >> id & 1) continue;
            snprintf(line, sizeof line, "task %s left out, as on rank %d", task_name(id), r);
            tell_line(e->ev, line);
            e->wanted &= ~(1u << id);
        }
    free(all);
    return comm_check(c, err);
}

static int run_tasks(Evaluation *e, Err *err) {
    int rc = 0, done = 0, all = 0;
    for (TaskId id = 0; id < N_TASK; id++) all += eval_wants(e, id);
    for (TaskId id = 0; !rc && id < N_TASK; id++) {
        if (!eval_wants(e, id)) continue;
        rc = run_task(e, id, err);
        done += !rc;
    }
    if (rc && done && !e->unwritten.kind)
        err_prefix(err, "%d of %d tasks are done and kept in %s", done, all, e->file);
    return rc;
}

char *eval_text(Model *m, const Config *use, const Events *ev, Err *err) {
    Evaluation *e = calloc(1, sizeof *e);
    if (!e) {
        err_set(err, ERR_MEM, "out of memory for an evaluation");
        return NULL;
    }
    e->m = m;
    e->use = use;
    e->ev = ev;
    comm_begin(m->comm);
    const int rc =
        comm_agree(m->comm, eval_open(e, err), err) || share_tasks(e, err) || run_tasks(e, err);
    char *text = rc ? NULL : finish(e, err);
    if (rc) comm_quiet(m->comm, err);
    if (rc && e->new_dir) (void)rmdir(e->dir);              // where nothing was written
    if (comm_rank(m->comm) && e->dir[0]) (void)dir_remove(e->dir);
    eval_close(e);
    free(e);
    return text;
}
