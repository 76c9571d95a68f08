// fetch.h - a published set as a table row: what to download, its checksums, what to keep.
#ifndef FETCH_H
#define FETCH_H
#include "data/data.h"

enum { FETCH_MAX_FILES = 8 };

typedef struct { const char *name, *sum; } FetchFile;                // MD5 or SHA-256
typedef struct { const char *name; uint64_t size; } FetchMember;     // size 0: a short text

typedef struct {
    const char *name;                             // of the set
    const char *folder;                           // where its files belong, below the data folder
    const char *url;                              // of the folder that has the files
    FetchFile   file[FETCH_MAX_FILES];            // ends with a NULL name
    FetchMember member[FETCH_MAX_FILES];          // taken out of the one file, a .tar.gz, where
                                                  // they are folder/name; none: files stay files
} FetchSet;

// Completes dir/folder: complete files are kept, interrupted downloads are continued. url replaces
// the row's (of the archive itself where there is one); NULL: the row's. Gives up when nothing
// arrives for `patience` seconds.
int fetch_set(const FetchSet *f, const char *dir, const char *url, int patience,
              const Events *ev, Err *err);
// Takes the row's members, and nothing else, out of the archive at `path` into `folder`.
int fetch_unpack(const FetchSet *f, const char *path, const char *folder, Err *err);
#endif
