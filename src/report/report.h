// report.h - the report layer: the text files of a run folder as structs, figures and one HTML
// page. It reads and writes files of run folders, and uses no network and no device.
#ifndef REPORT_H
#define REPORT_H
#include "base/err.h"

// Draws what log.tsv and eval.json of a folder give into it, as PNG and SVG (names: figures.c).
// ERR_DEV: this build or machine draws no pictures.
int report_pictures(const char *dir, Err *err);

// Writes the page: one HTML file that needs no other, without scripts or outside references. out:
// its name; "": report.html in the folder, and the pictures beside it. Returns malloc'd lines that
// say what was done, or NULL.
char *report_write(const char *dir, const char *out, Err *err);
#endif
