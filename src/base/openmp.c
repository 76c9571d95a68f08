// openmp.c - see openmp.h.
//
// OpenMP's threads wait for each other by spinning. On a machine with other work to do that takes
// the time from those they wait for: ten times slower was measured beside a second run. A short
// spin costs nothing when alone. libgomp reads how long to spin from its environment once, when it
// is loaded, and a program that is linked with it has loaded it before main begins. So nothing but
// jempp-cpu.so is linked with it. What GCC calls for a parallel loop is here: it loads libgomp with
// a short spin, and passes the call on. A process that has loaded libgomp already keeps its own
// setting. Where there is no libgomp, loops run on one thread.
#include "base/openmp.h"

#ifdef __clang__ // its code calls a library of its own
void openmp_load(void) {}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef unsigned long long Index;
typedef void Body(void *data);

// libgomp's functions, or those for one thread; written once.
static struct {
    void (*parallel)(Body *, void *, unsigned threads, unsigned flags);
    void (*parallel_loop)(Body *, void *, unsigned threads, long from, long to, long by, long chunk,
                          unsigned flags);
    bool (*loop_start)(long from, long to, long by, long chunk, long *, long *);
    bool (*loop_next)(long *, long *);
    bool (*loop_ull_start)(bool up, Index from, Index to, Index by, Index chunk, Index *, Index *);
    bool (*loop_ull_next)(Index *, Index *);
    void (*loop_end)(void);
    void (*loop_end_nowait)(void);
    void (*barrier)(void);
    void (*critical_start)(void);
    void (*critical_end)(void);
    int (*num_threads)(void);
    int (*thread_num)(void);
} gomp;

// ---- one thread ---------------------------------------------------------------------------------

// What is left of a loop that began together with its parallel part.
static _Thread_local long left_from, left_to;

static void one_parallel(Body *body, void *data, unsigned threads, unsigned flags) {
    (void)threads, (void)flags;
    body(data);
}

static void one_parallel_loop(Body *body, void *data, unsigned threads, long from, long to, long by,
                              long chunk, unsigned flags) {
    (void)threads, (void)by, (void)chunk, (void)flags;
    left_from = from;
    left_to = to;
    body(data);
}

static bool one_start(long from, long to, long by, long chunk, long *first, long *end) {
    (void)chunk;
    *first = from;
    *end = to;
    left_from = left_to = 0;
    return by > 0 ? from < to : from > to;
}

static bool one_next(long *first, long *end) {
    *first = left_from;
    *end = left_to;
    left_from = left_to = 0;
    return *first != *end;
}

static bool one_ull_start(bool up, Index from, Index to, Index by, Index chunk, Index *first,
                          Index *end) {
    (void)by, (void)chunk;
    *first = from;
    *end = to;
    return up ? from < to : from > to;
}

static bool one_ull_next(Index *first, Index *end) {
    (void)first, (void)end;
    return false;
}

static void one_wait(void) {}
static int one_num_threads(void) { return 1; }
static int one_thread_num(void) { return 0; }

static void use_one_thread(void) {
    gomp.parallel = one_parallel;
    gomp.parallel_loop = one_parallel_loop;
    gomp.loop_start = one_start;
    gomp.loop_next = one_next;
    gomp.loop_ull_start = one_ull_start;
    gomp.loop_ull_next = one_ull_next;
    gomp.loop_end = gomp.loop_end_nowait = gomp.barrier = one_wait;
    gomp.critical_start = gomp.critical_end = one_wait;
    gomp.num_threads = one_num_threads;
    gomp.thread_num = one_thread_num;
}

// ---- many ---------------------------------------------------------------------------------------

static void *load_with_short_spin(const char *library) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (lib || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return lib ? lib : dlopen(library, RTLD_NOW);
    setenv("GOMP_SPINCOUNT", "2000", 1);
    lib = dlopen(library, RTLD_NOW);
    unsetenv("GOMP_SPINCOUNT");
    return lib;
}

static void load(void) {
    const struct {
        const char *name;
        void **function;
    } part[] = {
        { "GOMP_parallel", (void **)&gomp.parallel },
        { "GOMP_parallel_loop_nonmonotonic_dynamic", (void **)&gomp.parallel_loop },
        { "GOMP_loop_nonmonotonic_dynamic_start", (void **)&gomp.loop_start },
        { "GOMP_loop_nonmonotonic_dynamic_next", (void **)&gomp.loop_next },
        { "GOMP_loop_ull_nonmonotonic_dynamic_start", (void **)&gomp.loop_ull_start },
        { "GOMP_loop_ull_nonmonotonic_dynamic_next", (void **)&gomp.loop_ull_next },
        { "GOMP_loop_end", (void **)&gomp.loop_end },
        { "GOMP_loop_end_nowait", (void **)&gomp.loop_end_nowait },
        { "GOMP_barrier", (void **)&gomp.barrier },
        { "GOMP_critical_start", (void **)&gomp.critical_start },
        { "GOMP_critical_end", (void **)&gomp.critical_end },
        { "omp_get_num_threads", (void **)&gomp.num_threads },
        { "omp_get_thread_num", (void **)&gomp.thread_num },
    };
    const size_t n = sizeof part / sizeof *part;
    void *lib = load_with_short_spin("libgomp.so.1");
    size_t found = 0;
    while (lib && found < n && (*part[found].function = dlsym(lib, part[found].name))) found++;
    if (found < n) use_one_thread();
}

void openmp_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

// ---- what the compiler calls --------------------------------------------------------------------

void GOMP_parallel(Body *, void *, unsigned, unsigned);
void GOMP_parallel_loop_nonmonotonic_dynamic(Body *, void *, unsigned, long, long, long, long,
                                             unsigned);
bool GOMP_loop_nonmonotonic_dynamic_start(long, long, long, long, long *, long *);
bool GOMP_loop_nonmonotonic_dynamic_next(long *, long *);
bool GOMP_loop_ull_nonmonotonic_dynamic_start(bool, Index, Index, Index, Index, Index *, Index *);
bool GOMP_loop_ull_nonmonotonic_dynamic_next(Index *, Index *);
void GOMP_loop_end(void);
void GOMP_loop_end_nowait(void);
void GOMP_barrier(void);
void GOMP_critical_start(void);
void GOMP_critical_end(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);

void GOMP_parallel(Body *body, void *data, unsigned threads, unsigned flags) {
    openmp_load();
    gomp.parallel(body, data, threads, flags);
}

void GOMP_parallel_loop_nonmonotonic_dynamic(Body *body, void *data, unsigned threads, long from,
                                             long to, long by, long chunk, unsigned flags) {
    openmp_load();
    gomp.parallel_loop(body, data, threads, from, to, by, chunk, flags);
}

// What follows runs in one of those two's bodies: it is loaded.
bool GOMP_loop_nonmonotonic_dynamic_start(long from, long to, long by, long chunk, long *first,
                                          long *end) {
    return gomp.loop_start(from, to, by, chunk, first, end);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *first, long *end) {
    return gomp.loop_next(first, end);
}

bool GOMP_loop_ull_nonmonotonic_dynamic_start(bool up, Index from, Index to, Index by, Index chunk,
                                              Index *first, Index *end) {
    return gomp.loop_ull_start(up, from, to, by, chunk, first, end);
}

bool GOMP_loop_ull_nonmonotonic_dynamic_next(Index *first, Index *end) {
    return gomp.loop_ull_next(first, end);
}

void GOMP_loop_end(void) { gomp.loop_end(); }
void GOMP_loop_end_nowait(void) { gomp.loop_end_nowait(); }
void GOMP_barrier(void) { gomp.barrier(); }
void GOMP_critical_start(void) { gomp.critical_start(); }
void GOMP_critical_end(void) { gomp.critical_end(); }
int omp_get_num_threads(void) { return gomp.num_threads(); }
int omp_get_thread_num(void) { return gomp.thread_num(); }
#endif
