// text.c - see text.h.
#include "base/text.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct {
    uint32_t first, last;
} CodeRange;

static const CodeRange ZERO[] = {
    // combining marks, joiners, variation selectors
    { 0x300, 0x36f },   { 0x483, 0x489 },   { 0x591, 0x5bd },   { 0x610, 0x61a },
    { 0x64b, 0x65f },   { 0x6d6, 0x6dc },   { 0x93c, 0x93c },   { 0x941, 0x948 },
    { 0x94d, 0x94d },   { 0xe31, 0xe31 },   { 0xe34, 0xe3a },   { 0xe47, 0xe4e },
    { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff }, { 0x200b, 0x200f }, { 0x20d0, 0x20ff },
    { 0x3099, 0x309a }, { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff },
};
static const CodeRange WIDE[] = {
    // CJK, Hangul, fullwidth forms, emoji
    { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x2e80, 0x303e },   { 0x3041, 0x33ff },
    { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xa000, 0xa4cf },   { 0xac00, 0xd7a3 },
    { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },   { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },
    { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff }, { 0x1f900, 0x1f9ff }, { 0x20000, 0x3fffd },
};

static int within(uint32_t c, const CodeRange *r, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last) return 1;
    return 0;
}

// The code point at s, and how many bytes it has: 1 where they are no UTF-8.
static uint32_t code_point(const unsigned char *s, int *n) {
    const int more = s[0] >= 0xf0 && s[0] < 0xf8 ? 3 : s[0] >= 0xe0 ? 2 : s[0] >= 0xc2 ? 1 : 0;
    uint32_t c = more ? s[0] & (0x3fu >> more) : s[0];
    *n = 1;
    if (s[0] >= 0xf8) return s[0];
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) return s[0];
        c = c << 6 | (s[i] & 0x3fu);
    }
    *n = 1 + more;
    return c;
}

// Columns and bytes of the character at s.
static int char_width(const char *s, int *n) {
    const uint32_t c = code_point((const unsigned char *)s, n);
    if (within(c, WIDE, sizeof WIDE / sizeof *WIDE)) return 2;
    return !within(c, ZERO, sizeof ZERO / sizeof *ZERO);
}

int text_width(const char *s) {
    int width = 0, n;
    for (; *s; s += n) width += char_width(s, &n);
    return width;
}

int text_fill(const char *s, int width) {
    const int own = text_width(s);
    return own < width ? width - own : 0;
}

const char *text_shorten(char *dst, size_t n, const char *s, int width) {
    static const char gap[] = "...";
    enum { GAP = sizeof gap - 1 };
    int columns = text_width(s), own = 0, bytes;
    const size_t len = strlen(s);
    if (columns <= width && len < n) return memcpy(dst, s, len + 1);
    const size_t most = (n - 1 - GAP) / 2;
    const int half = (width - GAP) / 2;
    const char *head = s, *tail = s;
    for (; *head; head += bytes) {
        own += char_width(head, &bytes);
        if (own > width - GAP - half || (size_t)(head - s + bytes) > most) break;
    }
    for (; columns > half || len - (size_t)(tail - s) > most; tail += bytes)
        columns -= char_width(tail, &bytes);
    while (*tail && !char_width(tail, &bytes)) tail += bytes;   // marks of what was left out
    snprintf(dst, n, "%.*s%s%s", (int)(head - s), s, gap, tail);
    return dst;
}

void text_cut(char *s, int width) {
    for (int n; *s; s += n)
        if ((width -= char_width(s, &n)) < 0) break;
    *s = 0;
}

int text_whole(const char *s, int most) {
    int at = 0, n;
    for (; s[at]; at += n) {
        (void)code_point((const unsigned char *)s + at, &n);
        if (at + n > most) break;
    }
    return at;
}

int ends_with(const char *s, const char *suffix) {
    const size_t n = strlen(s), m = strlen(suffix);
    return n > m && !strcasecmp(s + n - m, suffix);
}

const char *plural(double n) { return n == 1 ? "" : "s"; }

const char *shell_word(char *dst, size_t n, const char *name) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    if (*name && !name[strspn(name, plain)]) {
        snprintf(dst, n, "%s", name);
        return dst;
    }
    size_t at = (size_t)snprintf(dst, n, "'");
    for (; *name && at + 6 < n; name++)                 // room for a quote and the end
        at += (size_t)snprintf(dst + at, n - at, *name == '\'' ? "'\\''" : "%c", *name);
    if (at + 1 < n) snprintf(dst + at, n - at, "'");
    return dst;
}
