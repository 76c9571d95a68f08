// guard.c - see guard.h.
#include "serve/guard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

// ---- targets ----------------------------------------------------------------------------------

static int hex_digit(char c) {
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;
    if (c >= '0' && c <= '9') return c - '0';
    return at && at - digits >= 10 ? (int)(at - digits) : -1;
}

// Decodes in place. Control characters are refused, encoded or not.
static int decode(char *s, int plus) {
    char *to = s;
    for (; *s; s++, to++) {
        *to = plus && *s == '+' ? ' ' : *s;
        if (*s == '%') {
            const int high = hex_digit(s[1]), low = high < 0 ? -1 : hex_digit(s[2]);
            if (low < 0) return -1;
            *to = (char)(high * 16 + low);
            s += 2;
        }
        if ((unsigned char)*to < 32 || *to == 127) return -1;
    }
    *to = 0;
    return 0;
}

static int part_is_bad(const char *p) {
    return !*p || !strcmp(p, ".") || !strcmp(p, "..") || strchr(p, '/') || strchr(p, '\\');
}

static int parse_query(Target *t, char *text) {
    for (char *at = text, *item; (item = strsep(&at, "&"));) {
        char *value = strchr(item, '=');
        if (!*item) continue;
        if (t->n_query == MAX_QUERY) return -1;
        if (value) *value++ = 0;
        else value = item + strlen(item);
        if (decode(item, 1) || decode(value, 1)) return -1;
        t->query[t->n_query].name = item;
        t->query[t->n_query++].value = value;
    }
    return 0;
}

int target_parse(Target *t, const char *target) {
    memset(t, 0, sizeof *t);
    const size_t n = strlen(target);
    if (n >= sizeof t->text || target[0] != '/') return -1;
    memcpy(t->text, target, n + 1);
    char *query = strchr(t->text, '?');
    if (query) *query++ = 0;
    if (query && parse_query(t, query)) return -1;
    if (!t->text[1]) return 0;
    for (char *at = t->text + 1, *part; (part = strsep(&at, "/"));) {
        if (t->n_part == MAX_PARTS || decode(part, 0) || part_is_bad(part)) return -1;
        t->part[t->n_part++] = part;
    }
    return 0;
}

const char *target_query(const Target *t, const char *name) {
    for (int i = 0; i < t->n_query; i++)
        if (!strcmp(t->query[i].name, name)) return t->query[i].value;
    return NULL;
}

int target_number(const Target *t, const char *name, double lo, double hi, double other, double *v,
                  Err *err) {
    const char *text = target_query(t, name);
    char *end;
    *v = other;
    if (!text) return 0;
    *v = strtod(text, &end);
    if (end != text && !*end && *v >= lo && *v <= hi) return 0;
    return err_set(err, ERR_ARG, "%s: found '%.40s', expected a number from %g to %g", name, text,
                   lo, hi);
}

// ---- who may ask ------------------------------------------------------------------------------

int is_loopback(const char *host) {
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return !strcasecmp(host, "localhost") || !strcmp(host, "::1");
}

int guard_open(Guard *g, const char *host, Err *err) {
    unsigned char random[20];
    snprintf(g->host, sizeof g->host, "%s", host);
    snprintf(g->cookie, sizeof g->cookie, "jempp");
    g->token[0] = 0;
    if (gethostname(g->machine, sizeof g->machine)) g->machine[0] = 0;
    g->machine[sizeof g->machine - 1] = 0;
    if (is_loopback(host)) return 0;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_set(err, ERR_IO, "no random numbers for a token: %s", strerror(errno));
    for (size_t i = 0; i < 16; i++) snprintf(g->token + 2 * i, 3, "%02x", random[i]);
    snprintf(g->cookie, sizeof g->cookie, "jempp-%02x%02x%02x%02x", random[16], random[17],
             random[18], random[19]);
    return 0;
}

// Takes as long for a wrong token as for one that is nearly right.
static int same_token(const char *a, const char *b) {
    const size_t n = strlen(b);
    if (strlen(a) != n) return 0;
    unsigned differ = 0;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(a[i] ^ b[i]);
    return !differ;
}

// The name in "name:port" or "[::1]:port".
static int host_name(const char *text, char *dst, size_t size) {
    const char *end;
    if (*text == '[') {
        end = strchr(++text, ']');
        if (!end || (end[1] && end[1] != ':')) return -1;
    } else {
        end = text + strcspn(text, ":");
        if (strchr(*end ? end + 1 : end, ':')) return -1;
    }
    if (end == text || (size_t)(end - text) >= size) return -1;
    memcpy(dst, text, (size_t)(end - text));
    dst[end - text] = 0;
    return 0;
}

// A page of others whose name was made to point at this machine has that name in Host: an address
// in numbers cannot be such a name.
static int host_is_ours(const Guard *g, const char *host) {
    char name[256];
    unsigned char room[16];
    if (!host || host_name(host, name, sizeof name)) return 0;
    if (is_loopback(name) || !strcasecmp(name, g->host)) return 1;
    if (!g->token[0]) return 0;
    return inet_pton(AF_INET, name, room) == 1 || inet_pton(AF_INET6, name, room) == 1 ||
           (g->machine[0] && !strcasecmp(name, g->machine));
}

static int has_cookie(const Guard *g, const char *cookie) {
    const size_t n = strlen(g->cookie);
    for (const char *at = cookie; at && *at;) {
        at += strspn(at, "; ");
        const size_t size = strcspn(at, ";");
        char value[64];
        if (size > n + 1 && !strncmp(at, g->cookie, n) && at[n] == '=' &&
            size - n - 1 < sizeof value) {
            memcpy(value, at + n + 1, size - n - 1);
            value[size - n - 1] = 0;
            if (same_token(value, g->token)) return 1;
        }
        at += size;
    }
    return 0;
}

static int has_token(const Guard *g, const HttpRequest *r, const char *token) {
    if (!g->token[0]) return 1;
    if (token && same_token(token, g->token)) return 1;
    if (r->authorization && !strncasecmp(r->authorization, "Bearer ", 7) &&
        same_token(r->authorization + 7, g->token))
        return 1;
    return has_cookie(g, r->cookie);
}

int guard_check(const Guard *g, const HttpRequest *r, const char *token, Err *err) {
    if (!host_is_ours(g, r->host)) {
        err_set(err, ERR_ARG, "Host: %.100s is not a name of this server",
                r->host ? r->host : "(none)");
        return 421;
    }
    const char *origin = r->origin;
    const int same =
        origin && !strncasecmp(origin, "http://", 7) && !strcasecmp(origin + 7, r->host);
    if ((origin && !same) ||
        (r->fetch_site && strcmp(r->fetch_site, "same-origin") != 0 &&
         strcmp(r->fetch_site, "none") != 0 && strcmp(r->method, "GET") != 0)) {
        err_set(err, ERR_ARG, "Origin: requests from other sites are refused");
        return 403;
    }
    if (has_token(g, r, token)) return 0;
    err_set(err, ERR_ARG,
            "a token is needed: open the address that `jempp serve` printed, or send "
            "Authorization: Bearer TOKEN");
    return 401;
}
