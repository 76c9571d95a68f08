// torch_tree.h - the tensors and metadata of the tree of values that a PyTorch file's pickle holds.
// Where the numbers lie depends on the file's format: torch_file.c fills that in.
#ifndef TORCH_TREE_H
#define TORCH_TREE_H
#include "base/pickle.h"
#include "base/tensors.h"

enum { TORCH_MAX_NAME = 1000 };

typedef struct {                        // where numbers lie; several tensors may share one
    const char *key;
    size_t      n_key;
    StType      type;
    uint64_t    count, at;              // elements; place in the file
} TorchStorage;

typedef struct {
    StTensor     t;                     // t.begin: elements from its storage's begin
    TorchStorage storage;
} TorchTensor;

typedef struct {
    St           *st;                   // gets the tensors
    Err          *err;
    TorchTensor  *found;
    size_t        n, cap;
    const char  **meta;                 // pairs: key, value
    size_t        n_meta, cap_meta, meta_bytes;
    size_t        nodes;                // values visited
    char          name[TORCH_MAX_NAME + 1];  // the path to the value that is being read
    TorchStorage *storage;              // each once, sorted by key
    size_t        n_storage;
} TorchTree;

// Whether a pickle may name this class: what tensors are made by, and values that mean nothing
// here.
int torch_allowed(const char *class);
// Finds tensors, storages and metadata. Then the caller sets storage[].at, and torch_tree_finish
// hands everything to st.
int  torch_tree_read(TorchTree *w, const PkNode *root);
TorchStorage *torch_tree_storage(const TorchTree *w, const char *key, size_t n_key);   // or NULL
int  torch_tree_finish(TorchTree *w);
void torch_tree_free(TorchTree *w);
// An error that names the file and the value that is being read; returns -1.
int  torch_bad(const TorchTree *w, const char *what);
#endif
