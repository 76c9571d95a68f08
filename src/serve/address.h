// address.h - the addresses of a server that a user can open.
#ifndef ADDRESS_H
#define ADDRESS_H
#include <stddef.h>

// "http://HOST:PORT/?token=TOKEN", without the query where there is no token. IPv6 in brackets.
void address_url(char *dst, size_t n, const char *host, int port, const char *token);
// Whether a server on this host listens at every address of the machine ("0.0.0.0", "::").
int  address_is_any(const char *host);
// For such a host, an address by which other machines reach this one: of its first interface that
// is up and no loopback, of the host's family; -1 where there is none.
int  address_of_machine(char *dst, size_t n, const char *host);
#endif
