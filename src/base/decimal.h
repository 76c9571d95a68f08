// decimal.h - numbers with a decimal point, whatever locale the program around the library has set:
// in many, strtod expects a comma and printf writes one.
#ifndef DECIMAL_H
#define DECIMAL_H
#include <locale.h>

typedef struct { locale_t own, before; } DecimalPoint;

// From here on in this thread, until the end of the block:
//     DECIMAL_POINT;
#define DECIMAL_POINT                                                                              \
    __attribute__((cleanup(decimal_end), unused)) DecimalPoint decimal_point = decimal_begin()

static inline DecimalPoint decimal_begin(void) {
    const locale_t copy = duplocale(uselocale((locale_t)0));
    const locale_t own = copy ? newlocale(LC_NUMERIC_MASK, "C", copy) : copy;
    if (copy && !own) freelocale(copy);
    return (DecimalPoint){ own, own ? uselocale(own) : own };
}

static inline void decimal_end(DecimalPoint *d) {
    if (!d->own) return;
    uselocale(d->before);
    freelocale(d->own);
}
#endif
