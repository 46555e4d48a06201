/* Hashes for in-memory tables. hash_u64 is a fast mixer for ids we made ourselves; hash_bytes is
 * SipHash-1-3 under a per-process random key, for anything a peer can choose. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

uint64_t hash_bytes(const void *bytes, size_t n);
uint64_t hash_bytes_keyed(const void *bytes, size_t n, const uint64_t key[2]);
/* Unkeyed, for file checksums; its values are stored and never change. */
uint64_t hash_checksum(const void *bytes, size_t n, uint64_t seed);
