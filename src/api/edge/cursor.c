/* A cursor is 36 bytes, 48 characters without any slack bits:
 *
 *     list u32 | position u64 | owner u64 | keyed BLAKE2b of those 20 bytes, first 16 bytes
 *
 * The MAC is compared in constant time and before anything else is looked at, so that a forger
 * learns nothing from the answer. List and owner travel along only to say clearly what is wrong
 * with a genuine cursor in the wrong place. */
#include "api/edge/cursor.h"

#include <sodium.h>

#include "base/hash.h"

enum { FIELDS_BYTES = 4 + 8 + 8, MAC_BYTES = 16, CURSOR_BYTES = FIELDS_BYTES + MAC_BYTES };
_Static_assert(CURSOR_BYTES * 4 / 3 == CURSOR_TEXT_LEN && CURSOR_BYTES % 3 == 0, "no slack bits");

static void store(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t load(const uint8_t *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

static void sign(const uint8_t *secret, const uint8_t fields[FIELDS_BYTES], uint8_t mac[MAC_BYTES])
{
    /* The context keeps these MACs apart from anything else that the secret may ever sign. */
    static const char context[] = "fantail cursor 1";
    crypto_generichash_state state;
    crypto_generichash_init(&state, secret, CURSOR_SECRET_BYTES, MAC_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)context, sizeof context);
    crypto_generichash_update(&state, fields, FIELDS_BYTES);
    crypto_generichash_final(&state, mac, MAC_BYTES);
}

uint32_t cursor_list(const char *route_name, uint64_t subject)
{
    return (uint32_t)hash_checksum(route_name, strlen(route_name), subject);
}

void cursor_write(const uint8_t secret[CURSOR_SECRET_BYTES], const struct cursor *cursor,
                  char out[CURSOR_TEXT_LEN])
{
    uint8_t bytes[CURSOR_BYTES];
    store(bytes, cursor->list, 4);
    store(bytes + 4, cursor->position, 8);
    store(bytes + 12, cursor->owner, 8);
    sign(secret, bytes, bytes + FIELDS_BYTES);
    str_base64url(bytes, sizeof bytes, out);
}

enum err cursor_read(const uint8_t secret[CURSOR_SECRET_BYTES], struct str text, uint32_t list,
                     uint64_t owner, uint64_t *position, const char **why)
{
    uint8_t bytes[CURSOR_BYTES], mac[MAC_BYTES];
    size_t n = 0;
    *why = "cursor is not one of ours: pass next_cursor of the page before, unchanged";
    if (text.len != CURSOR_TEXT_LEN || !str_base64url_decode(text, bytes, sizeof bytes, &n) ||
        n != sizeof bytes)
        return ERR_BAD_INPUT;
    sign(secret, bytes, mac);
    if (sodium_memcmp(mac, bytes + FIELDS_BYTES, MAC_BYTES) != 0)
        return ERR_BAD_INPUT;
    if (load(bytes + 12, 8) != owner) {
        *why = "cursor was made for another caller";
        return ERR_BAD_INPUT;
    }
    if (load(bytes, 4) != list) {
        *why = "cursor belongs to another list";
        return ERR_BAD_INPUT;
    }
    *position = load(bytes + 4, 8);
    return OK;
}
