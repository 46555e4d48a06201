/* The cluster's hash slots. The polynomial is 0x1021, the start value 0, nothing is reflected; the
 * table is made at compile time's leisure, once, before the first use. */
#include "view/redis/slot.h"

#include <pthread.h>

static uint16_t table[256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned crc = byte << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
        table[byte] = (uint16_t)crc;
    }
}

uint16_t crc16(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    unsigned crc = 0;
    pthread_once(&made, make_table);
    for (size_t i = 0; i < n; i++)
        crc = (crc << 8 ^ table[(crc >> 8 ^ at[i]) & 0xff]) & 0xffff;
    return (uint16_t)crc;
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
