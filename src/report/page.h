// page.h - the report's page while it is written: what its parts share.
#ifndef PAGE_H
#define PAGE_H
#include "report/figures.h"
#include "report/record.h"
#include <stdio.h>

enum { EMBED_MOST = 48 << 20 };      // bytes of sample grids in one page

typedef struct {
    FILE       *out;
    Record      r;
    const char *dir, *system;        // system: the paper's that this run is compared with
    size_t      embedded;
    int         has_model;           // best.safetensors is there
    int         beside;              // the paper has results for this data set
    int         pictures, left_out;
    Err         no_plot;             // why there are no figures, where there are none
} Page;

// page_pictures.c. A grid is a PNG of the run folder; one that is missing or no picture is said to
// be. page_folder: what is in samples/; how many pictures that were.
int  page_figure(Page *p, FigureId id, Err *err);
void page_grid(Page *p, const char *name);
int  page_folder(Page *p);
const char *page_class(const Page *p, const char *name);   // the class that a grid is of, or NULL

// page_results.c
const char *page_data(const Page *p);
const char *page_net(const Page *p);
double page_paper(const Page *p, const char *measure);     // the paper's result; NaN: none
int  page_results(Page *p, Err *err);                      // every section from a run's results
#endif
