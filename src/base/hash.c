/* Two hashes against different enemies. hash_bytes is SipHash-1-3 under a key drawn once per
 * process: a peer that chooses the bytes cannot choose the bucket. hash_checksum guards files
 * against broken disks, not against people: four independent lanes, each step of which can be
 * undone, so that a change confined to one 8-byte word always changes the result; it runs at memory
 * speed. Files store its value, so it must never change. */
#include "base/hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie in memory");

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t load_word(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* The last 0 … 7 bytes, the rest zero. */
static uint64_t load_tail(const unsigned char *p, size_t n)
{
    uint64_t word = 0;
    if (n > 0)
        memcpy(&word, p, n);
    return word;
}

/* ---- SipHash-1-3 ---- */

static uint64_t process_key[2];
static pthread_once_t process_key_once = PTHREAD_ONCE_INIT;

static void draw_process_key(void)
{
    CHECK(getrandom(process_key, sizeof process_key, 0) == (ssize_t)sizeof process_key);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint64_t hash_bytes_keyed(const void *bytes, size_t n, const uint64_t key[2])
{
    const unsigned char *p = bytes;
    uint64_t v[4] = {
        key[0] ^ UINT64_C(0x736f6d6570736575),
        key[1] ^ UINT64_C(0x646f72616e646f6d),
        key[0] ^ UINT64_C(0x6c7967656e657261),
        key[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word = load_word(p);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = load_tail(p, left) | (uint64_t)n << 56;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_bytes(const void *bytes, size_t n)
{
    pthread_once(&process_key_once, draw_process_key);
    return hash_bytes_keyed(bytes, n, process_key);
}

/* ---- the checksum ---- */

static inline uint64_t stir(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * UINT64_C(0x9fb21c651e98df25);
    return lane ^ lane >> 32;
}

uint64_t hash_checksum(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t a = hash_u64(seed + 1), b = hash_u64(seed + 2), c = hash_u64(seed + 3),
             d = hash_u64(seed + 4);
    size_t left = n;
    for (; left >= 32; left -= 32, p += 32) {
        a = stir(a, load_word(p));
        b = stir(b, load_word(p + 8));
        c = stir(c, load_word(p + 16));
        d = stir(d, load_word(p + 24));
    }
    for (; left >= 8; left -= 8, p += 8)
        a = stir(a, load_word(p));
    b = stir(b, load_tail(p, left));
    /* Each lane enters by a bijection of the sum, so that no single one can cancel out. */
    uint64_t sum = stir(n, a);
    sum = stir(sum, b);
    sum = stir(sum, c);
    return hash_u64(stir(sum, d));
}
