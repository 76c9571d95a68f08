// pickle.c - see pickle.h. Python's Lib/pickletools.py describes the opcodes.
#include "base/pickle.h"
#include <stdlib.h>
#include <string.h>

enum { POOL = 4096, MAX_CLASS = 1000 };  // bytes of small things allocated together; of a name

typedef struct {
    Arena         *arena;
    const uint8_t *p;
    size_t         n, at;
    int          (*allowed)(const char *);
    const char    *name;
    Err           *err;
    int            failed;
    char          *pool;
    size_t         pool_left;
    PkNode       **stack;
    size_t         depth, cap;
    size_t        *mark, marks, cap_marks;     // depths of the stack
    PkNode       **memo;
    size_t         memos, cap_memo;            // entries written in turn by MEMOIZE
} Parser;

static void *fail(Parser *k, const char *what) {
    err_set(k->err, ERR_DATA, "%s: damaged pickle: at byte %zu: %s", k->name, k->at, what);
    k->failed = 1;
    return NULL;
}

// ---- memory

static void *small(Parser *k, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (k->pool_left < bytes) {
        k->pool_left = bytes < POOL ? POOL : bytes;
        k->pool = arena_alloc(k->arena, k->pool_left, 1);
        if (arena_ok(k->arena, k->name, k->err)) {
            k->pool_left = 0;
            k->failed = 1;
            return NULL;
        }
    }
    void *mem = k->pool;
    k->pool += bytes;
    k->pool_left -= bytes;
    return mem;
}

static void *grown(Parser *k, void *old, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return old;
    size_t more = *cap ? *cap : 64;
    while (more < need) more *= 2;
    void *mem = realloc(old, more * size);
    if (!mem) {
        err_set(k->err, ERR_MEM, "%s: out of memory for its pickle", k->name);
        k->failed = 1;
        return old;
    }
    memset((char *)mem + *cap * size, 0, (more - *cap) * size);
    *cap = more;
    return mem;
}

static PkNode *node(Parser *k, PkKind kind) {
    PkNode *v = small(k, sizeof *v);
    if (v) v->kind = kind;
    return v;
}

static void append(Parser *k, PkNode *to, PkNode *item) {
    PkCell *c = small(k, sizeof *c);
    if (!c) return;
    c->item = item;
    if (to->last) to->last->next = c;
    else to->first = c;
    to->last = c;
    to->n++;
}

// ---- the stack

static void push(Parser *k, PkNode *v) {
    if (!v) return;
    k->stack = grown(k, k->stack, &k->cap, k->depth + 1, sizeof(PkNode *));
    if (!k->failed) k->stack[k->depth++] = v;
}

static size_t floor_of(const Parser *k) { return k->marks ? k->mark[k->marks - 1] : 0; }

static PkNode *pop(Parser *k) {
    if (k->depth <= floor_of(k)) return fail(k, "nothing is on the stack");
    return k->stack[--k->depth];
}

static PkNode *top(Parser *k) {
    if (k->depth <= floor_of(k)) return fail(k, "nothing is on the stack");
    return k->stack[k->depth - 1];
}

static void push_mark(Parser *k) {
    k->mark = grown(k, k->mark, &k->cap_marks, k->marks + 1, sizeof *k->mark);
    if (!k->failed) k->mark[k->marks++] = k->depth;
}

// Takes the mark away; what lay above it is at stack[result, *end), and off the stack.
static size_t pop_mark(Parser *k, size_t *end) {
    *end = k->depth;
    if (!k->marks) return fail(k, "a mark is missing"), *end;
    return k->depth = k->mark[--k->marks];
}

static PkNode *gather(Parser *k, PkKind kind, size_t from, size_t to) {
    PkNode *v = node(k, kind);
    for (size_t i = from; v && i < to; i++) append(k, v, k->stack[i]);
    return v;
}

static void gather_mark(Parser *k, PkKind kind) {
    size_t to, from = pop_mark(k, &to);
    if (kind == PK_DICT && (to - from) % 2) fail(k, "a dictionary with half an item");
    if (!k->failed) push(k, gather(k, kind, from, to));
}

static void gather_last(Parser *k, size_t n) {
    if (k->depth - floor_of(k) < n) {
        fail(k, "nothing is on the stack");
        return;
    }
    k->depth -= n;
    push(k, gather(k, PK_TUPLE, k->depth, k->depth + n));
}

// Adds stack[from, to), already off the stack, to the container that is now on top.
static void extend(Parser *k, PkKind kind, size_t from, size_t to) {
    PkNode *v = k->failed ? NULL : top(k);
    if (!v) return;
    if (v->kind != kind) {
        fail(k, kind == PK_DICT ? "items are set in something that is not a dictionary"
                                : "items are appended to something that is not a list");
        return;
    }
    if (kind == PK_DICT && (to - from) % 2) fail(k, "a dictionary with half an item");
    for (size_t i = from; !k->failed && i < to; i++) append(k, v, k->stack[i]);
}

static void extend_mark(Parser *k, PkKind kind) {
    size_t to, from = pop_mark(k, &to);
    extend(k, kind, from, to);
}

static void extend_last(Parser *k, PkKind kind, size_t n) {
    if (k->depth - floor_of(k) < n) {
        fail(k, "nothing is on the stack");
        return;
    }
    k->depth -= n;
    extend(k, kind, k->depth, k->depth + n);
}

// ---- bytes

static const uint8_t *take(Parser *k, uint64_t n) {
    if (n > k->n - k->at) return fail(k, "it ends too early");
    const uint8_t *p = k->p + k->at;
    k->at += (size_t)n;
    return p;
}

static uint64_t number(Parser *k, int bytes) {
    const uint8_t *p = take(k, (uint64_t)bytes);
    uint64_t v = 0;
    for (int i = bytes; p && i-- > 0;) v = v << 8 | p[i];
    return v;
}

static void push_int(Parser *k, PkKind kind, int64_t i) {
    PkNode *v = node(k, kind);
    if (v) v->i = i;
    push(k, v);
}

static void push_text(Parser *k, PkKind kind, uint64_t n) {
    const uint8_t *p = k->failed ? NULL : take(k, n);
    PkNode *v = p ? node(k, kind) : NULL;
    if (!v) return;
    v->s = (const char *)p;
    v->n = (size_t)n;
    push(k, v);
}

static void push_long(Parser *k, uint64_t n) {
    const uint8_t *p = k->failed ? NULL : take(k, n);
    if (!p) return;
    if (n > 8) {
        k->at -= (size_t)n;
        push_text(k, PK_LONG, n);
        return;
    }
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;             // two's complement
    for (uint64_t i = n; i-- > 0;) v = v << 8 | p[i];
    push_int(k, PK_INT, (int64_t)v);
}

static void push_float(Parser *k) {                                 // big-endian, alone of all
    const uint8_t *p = take(k, 8);
    PkNode *v = p ? node(k, PK_FLOAT) : NULL;
    uint64_t bits = 0;
    for (int i = 0; p && i < 8; i++) bits = bits << 8 | p[i];
    if (v) memcpy(&v->f, &bits, sizeof v->f);
    push(k, v);
}

// ---- classes, calls, objects

static void push_class(Parser *k, const char *module, size_t n_module, const char *name, size_t n) {
    if (n_module + n > MAX_CLASS) {
        fail(k, "a class with too long a name");
        return;
    }
    char *text = small(k, n_module + n + 2);
    PkNode *v = text ? node(k, PK_CLASS) : NULL;
    if (!v) return;
    memcpy(text, module, n_module);
    text[n_module] = '.';
    memcpy(text + n_module + 1, name, n);
    v->s = text;
    v->n = n_module + 1 + n;
    if (strlen(text) != v->n || !k->allowed(text)) {
        err_set(k->err, ERR_DATA,
                "%s: holds an object of '%.200s'; only tensors and plain containers are read "
                "(in PyTorch save a state_dict)",
                k->name, text);
        k->failed = 1;
    }
    push(k, v);
}

static void class_of_lines(Parser *k) {
    const uint8_t *line[2];
    size_t len[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        line[i] = k->p + k->at;
        const uint8_t *end = memchr(line[i], '\n', k->n - k->at);
        if (!end) {
            fail(k, "a class without a name");
            return;
        }
        len[i] = (size_t)(end - line[i]);
        k->at += len[i] + 1;
    }
    push_class(k, (const char *)line[0], len[0], (const char *)line[1], len[1]);
}

static void class_of_stack(Parser *k) {
    const PkNode *name = pop(k), *module = k->failed ? NULL : pop(k);
    if (!module) return;
    if (name->kind != PK_STRING || module->kind != PK_STRING) fail(k, "a class without a name");
    else push_class(k, module->s, module->n, name->s, name->n);
}

static void call(Parser *k, PkKind kind) {
    PkNode *args = pop(k), *class = k->failed ? NULL : pop(k);
    if (!class) return;
    if (class->kind != PK_CLASS || args->kind != PK_TUPLE) {
        fail(k, "a call of something that is not a class");
        return;
    }
    // a dictionary that remembers its order: its items follow
    if (!strcmp(class->s, "collections.OrderedDict") && args->n == 0) {
        push(k, node(k, PK_DICT));
        return;
    }
    PkNode *v = node(k, kind);
    if (!v) return;
    v->a = class;
    v->b = kind == PK_CALL ? args : NULL;
    push(k, v);
}

// Gives an object its state. What a dictionary carries beside its items is left out.
static void build(Parser *k) {
    PkNode *state = pop(k), *v = k->failed ? NULL : top(k);
    if (!v) return;
    if (v->kind == PK_OBJECT) v->b = state;
    else if (v->kind != PK_DICT) fail(k, "a state for something that is not an object");
}

static void persistent(Parser *k) {
    PkNode *what = pop(k), *v = what ? node(k, PK_PERSISTENT) : NULL;
    if (!v) return;
    v->a = what;
    push(k, v);
}

// ---- the memo

// Every pickler numbers in turn and each entry takes two bytes, so larger numbers cannot be.
static void memo_put(Parser *k, uint64_t i) {
    PkNode *v = k->failed ? NULL : top(k);
    if (!v) return;
    if (i > k->n / 2) {
        fail(k, "an invalid memo index");
        return;
    }
    k->memo = grown(k, k->memo, &k->cap_memo, (size_t)i + 1, sizeof(PkNode *));
    if (k->failed) return;
    k->memo[i] = v;
    k->memos++;
}

static void memo_get(Parser *k, uint64_t i) {
    if (k->failed) return;
    if (i >= k->cap_memo || !k->memo[i]) fail(k, "a memo entry that was never written");
    else push(k, k->memo[i]);
}

// ---- opcodes

static void step(Parser *k, int op) {
    switch (op) {
    case 0x80: {                                                   // PROTO
        const uint64_t version = number(k, 1);
        if (!k->failed && (version < 2 || version > 5)) fail(k, "not of protocol 2 to 5");
        break;
    }
    case 0x95: number(k, 8); break;                                // FRAME
    case '(':  push_mark(k); break;                                // MARK
    case '0':                                                      // POP, which takes a mark too
        if (k->marks && k->depth == floor_of(k)) k->marks--;
        else pop(k);
        break;
    case '1':  pop_mark(k, &(size_t){ 0 }); break;                 // POP_MARK
    case '2':  push(k, top(k)); break;                             // DUP
    case 'N':  push(k, node(k, PK_NONE)); break;                   // NONE
    case 0x88: push_int(k, PK_BOOL, 1); break;                     // NEWTRUE
    case 0x89: push_int(k, PK_BOOL, 0); break;                     // NEWFALSE
    case 'J':  push_int(k, PK_INT, (int32_t)number(k, 4)); break;  // BININT
    case 'K':  push_int(k, PK_INT, (int64_t)number(k, 1)); break;  // BININT1
    case 'M':  push_int(k, PK_INT, (int64_t)number(k, 2)); break;  // BININT2
    case 0x8a: push_long(k, number(k, 1)); break;                  // LONG1
    case 0x8b: push_long(k, number(k, 4)); break;                  // LONG4
    case 'G':  push_float(k); break;                               // BINFLOAT
    case 0x8c: push_text(k, PK_STRING, number(k, 1)); break;       // SHORT_BINUNICODE
    case 'X':  push_text(k, PK_STRING, number(k, 4)); break;       // BINUNICODE
    case 0x8d: push_text(k, PK_STRING, number(k, 8)); break;       // BINUNICODE8
    case 'U':  push_text(k, PK_STRING, number(k, 1)); break;       // SHORT_BINSTRING (Python 2)
    case 'T':  push_text(k, PK_STRING, number(k, 4)); break;       // BINSTRING
    case 'C':  push_text(k, PK_BYTES, number(k, 1)); break;        // SHORT_BINBYTES
    case 'B':  push_text(k, PK_BYTES, number(k, 4)); break;        // BINBYTES
    case 0x8e: push_text(k, PK_BYTES, number(k, 8)); break;        // BINBYTES8
    case ')':  push(k, node(k, PK_TUPLE)); break;                  // EMPTY_TUPLE
    case 't':  gather_mark(k, PK_TUPLE); break;                    // TUPLE
    case 0x85: gather_last(k, 1); break;                           // TUPLE1
    case 0x86: gather_last(k, 2); break;                           // TUPLE2
    case 0x87: gather_last(k, 3); break;                           // TUPLE3
    case ']':  push(k, node(k, PK_LIST)); break;                   // EMPTY_LIST
    case 'l':  gather_mark(k, PK_LIST); break;                     // LIST
    case 'a':  extend_last(k, PK_LIST, 1); break;                  // APPEND
    case 'e':  extend_mark(k, PK_LIST); break;                     // APPENDS
    case '}':  push(k, node(k, PK_DICT)); break;                   // EMPTY_DICT
    case 'd':  gather_mark(k, PK_DICT); break;                     // DICT
    case 's':  extend_last(k, PK_DICT, 2); break;                  // SETITEM
    case 'u':  extend_mark(k, PK_DICT); break;                     // SETITEMS
    case 'q':  memo_put(k, number(k, 1)); break;                   // BINPUT
    case 'r':  memo_put(k, number(k, 4)); break;                   // LONG_BINPUT
    case 0x94: memo_put(k, k->memos); break;                       // MEMOIZE
    case 'h':  memo_get(k, number(k, 1)); break;                   // BINGET
    case 'j':  memo_get(k, number(k, 4)); break;                   // LONG_BINGET
    case 'c':  class_of_lines(k); break;                           // GLOBAL
    case 0x93: class_of_stack(k); break;                           // STACK_GLOBAL
    case 'R':  call(k, PK_CALL); break;                            // REDUCE
    case 0x81: call(k, PK_OBJECT); break;                          // NEWOBJ
    case 'b':  build(k); break;                                    // BUILD
    case 'Q':  persistent(k); break;                               // BINPERSID
    default:
        err_set(k->err, ERR_DATA, "%s: its pickle has opcode 0x%02x at byte %zu, which is not read",
                k->name, (unsigned)op, k->at - 1);
        k->failed = 1;
    }
}

static PkNode *result(Parser *k) {
    if (k->failed) return NULL;
    if (k->depth != 1 || k->marks) return fail(k, "it does not end with exactly one value");
    return k->stack[0];
}

PkNode *pickle_parse(Arena *arena, const uint8_t *bytes, size_t n, int (*allowed)(const char *),
                     size_t *used, const char *name, Err *err) {
    Parser k = { .arena = arena, .p = bytes, .n = n, .allowed = allowed, .name = name, .err = err };
    PkNode *v = NULL;
    if (n < 2 || bytes[0] != 0x80) fail(&k, "not a pickle of protocol 2 to 5");
    while (!k.failed) {
        const uint8_t *op = take(&k, 1);
        if (!op) break;
        if (*op == '.') {
            v = result(&k);
            break;
        }
        step(&k, *op);
    }
    *used = k.at;
    free(k.stack);
    free(k.mark);
    free(k.memo);
    return v;
}

// ---- looking at a tree

int pk_is(const PkNode *v, const char *string) {
    return v && v->kind == PK_STRING && v->n == strlen(string) && !memcmp(v->s, string, v->n);
}

PkNode *pk_item(const PkNode *v, size_t i) {
    if (!v || (v->kind != PK_TUPLE && v->kind != PK_LIST && v->kind != PK_DICT)) return NULL;
    PkCell *c = v->first;
    while (c && i--) c = c->next;
    return c ? c->item : NULL;
}

PkNode *pk_get(const PkNode *v, const char *key) {
    if (!v || v->kind != PK_DICT) return NULL;
    for (const PkCell *c = v->first; c && c->next; c = c->next->next)
        if (pk_is(c->item, key)) return c->next->item;
    return NULL;
}
