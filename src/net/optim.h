// optim.h - learning rates over a run, and the step that follows them.
#ifndef OPTIM_H
#define OPTIM_H
#include "net/net.h"

typedef enum { SCHED_STEP, SCHED_COSINE, SCHED_LINEAR, SCHED_ONECYCLE } SchedKind;
enum { MAX_DROPS = 8 };

typedef struct {
    SchedKind kind;
    double    lr;
    uint64_t  warmup, total;        // steps; the rate grows as step / warmup first
    int       n_drop;               // SCHED_STEP: the rate is multiplied ...
    uint64_t  drop[MAX_DROPS];      // ... from these steps on ...
    double    factor;               // ... by this
} Schedule;

double schedule_lr(const Schedule *s, uint64_t step);

typedef enum { OPTIM_SGD, OPTIM_ADAM, OPTIM_MUON } OptimKind;

typedef struct {
    OptimKind kind;
    Sgd       sgd;
    Adam      adam;
    real      muon_rate;            // Muon's step as a multiple of StepInput.lr (net/muon.c)
    real      ema_keep;             // 0: no average of the weights
    real     *m, *v;                // moments (Adam), or velocity (v alone); [n_w] or NULL
    real     *avg;                  // averaged weights [n_w], or NULL
    real     *room;                 // what Muon computes its steps in, or NULL
    real     *avg_state;            // running statistics that belong to avg, or NULL
} Optim;

// kind, sgd, adam, muon_rate, ema_keep are set; memory is zeroed, avg = w
int  optim_open(Optim *o, Net *net, Err *err);
void optim_average(Optim *o, Net *net);             // avg = w again
void optim_step(Optim *o, Net *net, const StepState *now);// reads net->dw; ends with net_changed
void optim_close(Optim *o, Net *net);

// muon.c: the numbers that it needs room for; a step of the filters; the filters' parameters, of
// which it returns the first from `from` on, or n_par.
size_t muon_room(const Net *net);
void   muon_step(Optim *o, Net *net, const StepState *now);
int    muon_filter(const Net *net, int from);
#endif
