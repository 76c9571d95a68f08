// openmp.h - OpenMP's run-time library, loaded when it is first needed.
#ifndef OPENMP_H
#define OPENMP_H

// Loads libgomp, so that threads which wait sleep soon. Loops of this library do it by themselves;
// whoever is about to load another library that uses OpenMP calls it before.
void openmp_load(void);
#endif
