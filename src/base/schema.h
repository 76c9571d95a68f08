// schema.h - structs as JSON. One table of fields per struct names every key once; the writer
// follows it, and so does the reader, which checks types, ranges and lengths.
#ifndef SCHEMA_H
#define SCHEMA_H
#include "base/arena.h"
#include "base/json.h"

typedef enum {
    FIELD_NUMBER,                // double; NaN: null or missing
    FIELD_TEXT,                  // const char *; "": null or missing
    FIELD_FLAG,                  // int: true or false
    FIELD_NUMBERS,               // double *, [count]
    FIELD_ROWS,                  // double *, [count][columns]: an array of arrays
    FIELD_TEXTS,                 // const char **, [count]
    FIELD_OBJECT,                // a struct
    FIELD_NAMED,                 // an array of structs, [columns]: an object with the keys `names`
    FIELD_LIST,                  // a pointer to structs, [count]: an array of objects
} FieldKind;

typedef struct Schema Schema;

typedef struct {
    const char *key;
    FieldKind   kind;
    size_t      at;              // offset of the value
    size_t      count;           // offset of an array's int count; within an object: of the int
                                 // that says whether it is there
    const char *like;            // instead of a count: as long as this array of the same struct or
                                 // of the outermost one. Such an array may be missing: NULL
    int         most, columns;   // most items (0: 1000); FIELD_ROWS: 0: as many columns as rows
    int         always, null;    // an object without that int; one that is null where missing
    double      lo, hi;          // the range of numbers
    const char *const *names;
    const Schema *of;            // FIELD_OBJECT, FIELD_NAMED, FIELD_LIST
    const char *label, *unit;    // how tables show a number; NULL: they do not
    int         digits;          // after the decimal point; -1: six significant ones
} Field;

enum { SCHEMA_WHY = 300 };

struct Schema {
    const Field *field;
    int          n;
    size_t       size;           // of the struct
    // What single fields do not show: nonzero and "KEY: what is wrong", or 0. May be NULL.
    int (*check)(const void *record, char why[SCHEMA_WHY]);
};

// Fills the whole record; texts and arrays are arena memory. Keys without a field are ignored.
// err names the file, the place ("tasks.ece.reliability[3]"), what was found and what was expected.
int  schema_read(const Schema *s, void *record, const Json *doc, const char *path, Arena *a,
                 Err *err);
void schema_write(const Schema *s, const void *record, JsonOut *j, const char *key);
#endif
