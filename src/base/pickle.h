// pickle.h - Python's pickles as a tree of plain values. Nothing is executed: a call or an object
// is a node that names its class, and classes that the caller does not allow are refused by name.
#ifndef PICKLE_H
#define PICKLE_H
#include "base/arena.h"
#include <stdint.h>

typedef enum {
    PK_NONE, PK_BOOL, PK_INT, PK_FLOAT,
    PK_LONG,        // more than 64 bits: s, n are its little-endian bytes
    PK_STRING,      // s, n: not terminated
    PK_BYTES,
    PK_TUPLE, PK_LIST,
    PK_DICT,        // keys and values in turn; an OrderedDict is one
    PK_CLASS,       // s: "module.name", terminated
    PK_CALL,        // a: the class, b: the arguments, a tuple
    PK_OBJECT,      // a: the class, b: its state, or NULL
    PK_PERSISTENT,  // a: the tuple that says what is kept outside of the pickle
} PkKind;

typedef struct PkNode PkNode;
typedef struct PkCell { PkNode *item; struct PkCell *next; } PkCell;
struct PkNode {
    PkKind  kind;
    size_t  n;                          // bytes, or items of a container
    union {
        int64_t     i;                  // also of PK_BOOL
        double      f;
        const char *s;
        struct { PkCell *first, *last; };
        struct { PkNode *a, *b; };
    };
};

enum { PK_MAX_BYTES = 8 << 20 };

// Parses one pickle of protocol 2 to 5 at `bytes`; how many it took goes to *used. Its strings
// point into `bytes`, everything else is in the arena. `name` is for messages. The tree may share
// nodes, and a container may hold itself: who walks it must count.
PkNode *pickle_parse(Arena *arena, const uint8_t *bytes, size_t n,
                     int (*allowed)(const char *class), size_t *used, const char *name, Err *err);

int     pk_is(const PkNode *node, const char *string);                 // a string, this one
PkNode *pk_item(const PkNode *container, size_t i);                    // NULL where there is none
PkNode *pk_get(const PkNode *dict, const char *key);                   // NULL likewise
#endif
