/* The form of keys and ids. It is stored: to change it is to flush Redis.
 *
 * A key of an account: its kind, the bucket as hash tag, the account ("t{07f}4711"). */
#include "view/redis/keys.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"

static uint16_t crc_table[256];
static uint16_t slots[BUCKETS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static const char hex[] = "0123456789abcdef";

static uint16_t crc_of(const char *bytes, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++)
        crc = (crc << 8 ^ crc_table[(crc >> 8 ^ (uint8_t)bytes[i]) & 0xff]) & 0xffff;
    return (uint16_t)crc;
}

/* The polynomial is 0x1021, the start value 0, nothing is reflected. */
static void make_tables(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned crc = byte << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
        crc_table[byte] = (uint16_t)crc;
    }
    for (unsigned i = 0; i < BUCKETS; i++) {
        char tag[3] = {hex[i >> 8], hex[i >> 4 & 15], hex[i & 15]};
        slots[i] = crc_of(tag, sizeof tag) % SLOT_COUNT;
    }
}

uint16_t crc16(const void *bytes, size_t n)
{
    pthread_once(&made, make_tables);
    return crc_of(bytes, n);
}

uint16_t slot_of(struct str key)
{
    const char *open = key.len > 0 ? memchr(key.ptr, '{', key.len) : NULL;
    if (open) {
        const char *tag = open + 1;
        const char *close = memchr(tag, '}', (size_t)(key.ptr + key.len - tag));
        if (close && close > tag)
            key = (struct str){tag, (size_t)(close - tag)};
    }
    return crc16(key.ptr, key.len) % SLOT_COUNT;
}

unsigned bucket_of(uint64_t account)
{
    return (unsigned)(account * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

struct key key_of_bucket(enum key_kind kind, unsigned bucket)
{
    pthread_once(&made, make_tables);
    struct key k;
    const char text[] = {(char)kind,       '{', hex[bucket >> 8 & 15], hex[bucket >> 4 & 15],
                         hex[bucket & 15], '}'};
    memcpy(k.text, text, sizeof text);
    k.len = sizeof text;
    k.slot = slots[bucket % BUCKETS];
    return k;
}

struct key key_of_account(enum key_kind kind, uint64_t account)
{
    struct key k = key_of_bucket(kind, bucket_of(account));
    k.len = (uint8_t)(k.len + id_format(account, k.text + k.len));
    return k;
}

struct key key_named(const char *name)
{
    struct key k;
    k.len = (uint8_t)snprintf(k.text, sizeof k.text, "%s", name);
    k.slot = slot_of(key_text(&k));
    return k;
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
