// text.h - text for people: its width on a terminal, plurals, names of files.
#ifndef TEXT_H
#define TEXT_H
#include <stddef.h>

// Columns that UTF-8 text takes: combining marks none, East Asian wide characters and emoji two. A
// byte that is no UTF-8 takes one.
int text_width(const char *s);
// Spaces that fill it up to `width` columns, for "%s%*s"; never negative.
int text_fill(const char *s, int width);
// Copies s to dst[n], without its middle ("a long be...the end") where it has more columns than
// `width` or does not fit; n and width are at least 8. No character is divided. Returns dst.
const char *text_shorten(char *dst, size_t n, const char *s, int width);
// Ends s after at most `width` columns, behind a whole character and its marks.
void text_cut(char *s, int width);
// How many of the first `most` bytes of s are whole characters, for "%.*s".
int text_whole(const char *s, int most);
// Nonzero: s is longer than its ending `suffix`, in capitals or not.
int ends_with(const char *s, const char *suffix);
// The ending of a noun after a number, as in "%zu image%s": none for 1.
const char *plural(double n);
// A file's name as one word for a shell, in quotes where it needs them: for commands that messages
// suggest. Returns dst.
const char *shell_word(char *dst, size_t n, const char *name);
#endif
