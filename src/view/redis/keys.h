/* Names of keys, the slots they fall into, and ids as text.
 *
 * Everything about one account lies in one slot, so that a script can change it in one act. The
 * hash tag is the account's bucket, one of 4,096, and not the account: what is small (the time of
 * the last visit) can then share a hash with others, and walking over all accounts is walking over
 * the buckets. Buckets are what a cluster can be divided into. */
#pragma once

#include "base/str.h"

enum { SLOT_COUNT = 16384, BUCKETS = 4096, KEY_MAX = 40, ID_DIGITS = 19 };

/* The keys of an account. */
enum key_kind {
    KEY_TIMELINE = 't',
    KEY_BUILDERS = 'b', /* rebuilds under way */
    KEY_INBOX = 'i',    /* its groups */
    KEY_INBOX_BUILDERS = 'j',
    KEY_FOLLOWED = 'f',  /* its followees */
    KEY_MUTED = 'm',     /* its mutes */
    KEY_PULLED = 'c',    /* followees to pull posts from; may hold too many */
    KEY_FOLLOWERS = 'F', /* who follows it, or is a member of it */
    KEY_PULL_LIST = 'l', /* its own posts that are pulled */
    KEY_RECENT = 'r',    /* the latest events that changed its edges */
    /* for a bucket */
    KEY_PEOPLE = 'p', /* account → state and last visit; groups are not in it */
    KEY_SPREAD = 'Q', /* author → how far its followers know of its pull list (spread.c) */
};

/* A number that lives and dies with everything else. */
#define EPOCH_KEY key_named("epoch{fantail}")
/* What nodes publish: a stream, cut off at its old end. */
#define SIGNAL_KEY key_named("signals{fantail}")

struct key {
    char text[KEY_MAX];
    uint8_t len;
    uint16_t slot;
};

unsigned bucket_of(uint64_t account);
struct key key_of_account(enum key_kind kind, uint64_t account);
struct key key_of_bucket(enum key_kind kind, unsigned bucket);
struct key key_named(const char *name);

static inline struct key key_of_people(uint64_t account)
{
    return key_of_bucket(KEY_PEOPLE, bucket_of(account));
}

static inline struct str key_text(const struct key *k)
{
    return (struct str){k->text, k->len};
}

/* Where Redis Cluster keeps a key: CRC16 (XMODEM) modulo SLOT_COUNT. Only what stands between the
 * first '{' and the next '}' counts, when that is not empty. */
uint16_t slot_of(struct str key);
uint16_t crc16(const void *bytes, size_t n);

/* 19 digits: ids have 63 bits. Order as text is order as numbers. */
void id_digits(uint64_t id, char out[ID_DIGITS]);
bool id_from_digits(struct str s, uint64_t *id);
/* The score of a post: its milliseconds. A double holds 53 bits, ids have 63. */
uint64_t id_score(uint64_t id);
/* An event's id without its node: 53 bits, in the same order. */
uint64_t event_score(uint64_t event);
