/* The form of keys and ids. It is stored: to change it is to flush Redis.
 *
 * A key of an account: its kind, the bucket as hash tag, the account ("t{07f}4711"). */
#include "view/redis/keys.h"

#include <pthread.h>
#include <string.h>

#include "base/id.h"
#include "view/redis/slot.h"

static uint16_t slots[BUCKETS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static const char hex[] = "0123456789abcdef";

static void make_slots(void)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        char tag[3] = {hex[i >> 8], hex[i >> 4 & 15], hex[i & 15]};
        slots[i] = crc16(tag, sizeof tag) % SLOT_COUNT;
    }
}

unsigned bucket_of(uint64_t account)
{
    return (unsigned)(account * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

void key_of_bucket(struct key *k, enum key_kind kind, unsigned bucket)
{
    pthread_once(&made, make_slots);
    const char text[] = {(char)kind,       '{', hex[bucket >> 8 & 15], hex[bucket >> 4 & 15],
                         hex[bucket & 15], '}'};
    memcpy(k->text, text, sizeof text);
    k->len = sizeof text;
    k->slot = slots[bucket % BUCKETS];
}

void key_of_account(struct key *k, enum key_kind kind, uint64_t account)
{
    key_of_bucket(k, kind, bucket_of(account));
    k->len = (uint8_t)(k->len + id_format(account, k->text + k->len));
}

void id_digits(uint64_t id, char out[ID_DIGITS])
{
    for (int i = ID_DIGITS - 1; i >= 1; i -= 2) {
        memcpy(out + i - 1, str_digit_pairs + id % 100 * 2, 2);
        id /= 100;
    }
    out[0] = (char)('0' + id % 10);
}

bool id_from_digits(struct str s, uint64_t *id)
{
    return s.len == ID_DIGITS && str_parse_u64(s, id);
}

uint64_t id_score(uint64_t id)
{
    return id >> (ID_NODE_BITS + ID_COUNTER_BITS);
}

uint64_t event_score(uint64_t event)
{
    return id_score(event) << ID_COUNTER_BITS | (event & ((1 << ID_COUNTER_BITS) - 1));
}
