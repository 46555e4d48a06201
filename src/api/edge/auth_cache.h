/* The caller of each recent token, kept for a while, so that most requests need no SQL. Bounded,
 * sharded, any thread.
 *
 * Forgetting races with filling: a filler reads truth, the session ends, and then the filler stores
 * what it read. So a filler takes a stamp *before* it reads; every forget is numbered; an entry
 * whose stamp is older than the last forget of its account or key is not valid. */
#pragma once

#include "api/edge/api.h"
#include "base/clock.h"

struct auth_cache;

enum { AUTH_KEY_BYTES = 16 };

struct auth_entry {
    struct caller caller;
    int64_t valid_until_us; /* monotonic: ask truth again from then on */
    int64_t seen_at_us;     /* monotonic: when the account was last marked as seen; kept to the
                               second; see auth_cache_find */
};

struct auth_cache *auth_cache_new(size_t entries_max);
void auth_cache_free(struct auth_cache *c);

uint64_t auth_cache_stamp(struct auth_cache *c); /* before reading truth */
void auth_cache_put(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES], uint64_t stamp,
                    const struct auth_entry *entry);
/* From now on no entry that was filled before is valid for this account or API key. */
void auth_cache_forget(struct auth_cache *c, uint64_t account_or_key);

/* Was there a caller by this key, valid or not any more? */
bool auth_cache_knew(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES]);
void auth_cache_drop(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES]); /* truth has none */

/* True: *caller is filled. *mark_last_seen: the account was not marked within `seen_every_us`;
 * exactly this call must mark it. */
bool auth_cache_find(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES], int64_t now_us,
                     int64_t seen_every_us, struct caller *caller, bool *mark_last_seen);
