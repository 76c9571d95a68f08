// html.c - see html.h.
#include "report/html.h"
#include <math.h>

void html_text(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '&') fputs("&amp;", f);
        else if (*s == '<') fputs("&lt;", f);
        else if (*s == '>') fputs("&gt;", f);
        else if (*s == '"') fputs("&quot;", f);
        else if (*s == '\'') fputs("&#39;", f);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f) fputs("\u00b7", f);
        else fputc(*s, f);
    }
}

void html_base64(FILE *f, const unsigned char *p, size_t n) {
    static const char DIGIT[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const unsigned b = i + 1 < n ? p[i + 1] : 0, c = i + 2 < n ? p[i + 2] : 0;
        const unsigned v = (unsigned)p[i] << 16 | b << 8 | c;
        fputc(DIGIT[v >> 18], f);
        fputc(DIGIT[v >> 12 & 63], f);
        fputc(i + 1 < n ? DIGIT[v >> 6 & 63] : '=', f);
        fputc(i + 2 < n ? DIGIT[v & 63] : '=', f);
    }
}

void html_number(FILE *f, double v, int digits, const char *unit) {
    if (isfinite(v)) fprintf(f, "<td class=n>%.*f%s</td>", digits, v, unit);
    else fputs("<td class=n>\u2013</td>", f);
}

void html_row(FILE *f, const char *name, const char *value) {
    if (!value[0]) return;
    fputs("<tr><th scope=row>", f);
    html_text(f, name);
    fputs("</th><td>", f);
    html_text(f, value);
    fputs("</td></tr>\n", f);
}

const char html_style[] =
    ":root{color-scheme:light dark;--back:#fff;--ink:#1b1f24;--soft:#5b6470;--line:#d5dae0;"
    "--stripe:#f5f7f9}\n"
    "@media (prefers-color-scheme:dark){:root{--back:#14171b;--ink:#e8eaed;--soft:#a3acb8;"
    "--line:#3a414b;--stripe:#1d2228}}\n"
    "body{margin:0 auto;max-width:62rem;padding:1.5rem;background:var(--back);color:var(--ink);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{margin:0 0 .2rem;font-size:1.7rem;overflow-wrap:anywhere}h2{margin:2.2rem 0 .6rem;"
    "font-size:1.25rem;border-bottom:1px solid var(--line)}\n"
    "p.soft,figcaption,caption{color:var(--soft);font-size:.9rem}caption{text-align:left}\n"
    "figure{margin:1rem 0}figure img{display:block;max-width:100%;height:auto;background:#fff;"
    "border:1px solid var(--line);border-radius:6px}\n"
    "div.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.92rem;margin:.6rem 0}"
    "th,td{padding:.22rem .7rem;border-bottom:1px solid var(--line);text-align:left;"
    "vertical-align:top}td{overflow-wrap:anywhere}td.n,th.n{text-align:right;"
    "font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "thead th{border-bottom:2px solid var(--line)}tbody "
    "tr:nth-child(even){background:var(--stripe)}"
    "th[scope=row]{font-weight:normal}\n"
    "div.options{columns:3 17rem}div.options div{break-inside:avoid;font-size:.86rem;"
    "overflow-wrap:anywhere}div.options b{color:var(--ink)}div.options div.as{color:var(--soft)}\n"
    "div.grids{display:flex;flex-wrap:wrap;gap:1rem}div.grids "
    "figure{margin:0;max-width:min(100%,29.5rem)}summary{cursor:pointer}"
    "code{background:var(--stripe);padding:.1rem .3rem;border-radius:3px}\n"
    "@media print{:root{--back:#fff;--ink:#000;--soft:#444;--line:#bbb;--stripe:#f4f4f4}"
    "body{max-width:none;padding:0;font-size:10.5pt}figure,tr{break-inside:avoid}"
    "h2,h2+p{break-after:avoid}div.wide{overflow:visible}}\n";
