// nearest.h - which name was meant by one that does not exist.
#ifndef NEAREST_H
#define NEAREST_H

// Puts the candidate into *found (NULL at first) where it is like the name, and more than what is
// there.
void nearer(const char *name, const char *candidate, const char **found);
#endif
