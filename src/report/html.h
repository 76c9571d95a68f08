// html.h - pieces of an HTML page, written to a stream.
#ifndef HTML_H
#define HTML_H
#include <stddef.h>
#include <stdio.h>

extern const char html_style[];                                  // the page's CSS
// Text from other people's files: markup is escaped, control characters are replaced.
void html_text(FILE *f, const char *s);
void html_base64(FILE *f, const unsigned char *p, size_t n);
void html_number(FILE *f, double v, int digits, const char *unit);   // a table cell; NaN: a dash
void html_row(FILE *f, const char *name, const char *value);     // a row of two cells; none for ""
#endif
