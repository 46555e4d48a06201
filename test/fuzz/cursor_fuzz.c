/* Cursors: no input but exactly one that we would make is accepted. */
#include <stdint.h>

#include "api/edge/cursor.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t secret[CURSOR_SECRET_BYTES] = "the fuzzer does not know this";
    struct str text = {(const char *)data, size};
    const char *why = NULL;
    uint64_t position = 0;
    enum err e = cursor_read(secret, text, 1, 2, &position, &why);
    char genuine[CURSOR_TEXT_LEN], changed[CURSOR_TEXT_LEN];
    if (e) {
        CHECK(e == ERR_BAD_INPUT && why);
    } else { /* the fuzzer sees every comparison, so it finds the MAC in time: then it must be
                exactly ours */
        cursor_write(secret, &(struct cursor){1, position, 2}, genuine);
        CHECK(size == sizeof genuine && memcmp(data, genuine, size) == 0);
    }

    /* One that is genuine apart from what the input changes in it. */
    cursor_write(secret, &(struct cursor){1, 99, 2}, genuine);
    memcpy(changed, genuine, sizeof changed);
    for (size_t i = 0; i + 1 < size; i += 2)
        changed[data[i] % CURSOR_TEXT_LEN] ^= (char)data[i + 1];
    bool same = memcmp(changed, genuine, sizeof changed) == 0;
    e = cursor_read(secret, (struct str){changed, sizeof changed}, 1, 2, &position, &why);
    CHECK((e == OK) == same);
    return 0;
}
