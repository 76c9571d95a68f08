// address.c - see address.h.
#include "serve/address.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void address_url(char *dst, size_t n, const char *host, int port, const char *token) {
    const int v6 = strchr(host, ':') != NULL;
    snprintf(dst, n, "http://%s%s%s:%d/%s%s", v6 ? "[" : "", host, v6 ? "]" : "", port,
             token[0] ? "?token=" : "", token);
}

int address_is_any(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) return v4.s_addr == INADDR_ANY;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

// An address that is of use on another machine: link-local ones need the name of an interface.
static int is_useful(const struct ifaddrs *at, int family) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != family) return 0;
    if (!(at->ifa_flags & IFF_UP) || at->ifa_flags & IFF_LOOPBACK) return 0;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr);
}

int address_of_machine(char *dst, size_t n, const char *host) {
    const int family = strchr(host, ':') ? AF_INET6 : AF_INET;
    struct ifaddrs *all;
    if (getifaddrs(&all)) return -1;
    const struct ifaddrs *at = all;
    while (at && !is_useful(at, family)) at = at->ifa_next;
    const void *a = at ? (const void *)at->ifa_addr : NULL;
    const char *text =
        !a ? NULL
        : family == AF_INET
            ? inet_ntop(family, &((const struct sockaddr_in *)a)->sin_addr, dst, (socklen_t)n)
            : inet_ntop(family, &((const struct sockaddr_in6 *)a)->sin6_addr, dst, (socklen_t)n);
    freeifaddrs(all);
    return text ? 0 : -1;
}
