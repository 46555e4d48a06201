/* How many connections each address has open, so that none takes them all. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct peers;

struct peers *peers_new(unsigned connections_max); /* of one address */
void peers_free(struct peers *p);

/* `key`: limits_peer_key of the address. False: it has as many as it may, and this one does not
 * count. */
bool peers_enter(struct peers *p, uint64_t key);
void peers_leave(struct peers *p, uint64_t key); /* of one that counted */
