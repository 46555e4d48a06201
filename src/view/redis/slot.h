/* Where Redis Cluster keeps a key: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384. */
#pragma once

#include <stdint.h>

#include "base/str.h"

enum { SLOT_COUNT = 16384 };

uint16_t crc16(const void *bytes, size_t n);
/* Only what stands between the first '{' and the next '}' counts, when that is not empty. */
uint16_t slot_of(struct str key);
