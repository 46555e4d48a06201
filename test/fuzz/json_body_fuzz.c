/* Request bodies: whatever comes in, the gate and the parser end, agree about depth, and let only
 * objects through. */
#include <stdint.h>

#include "api/edge/body.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str raw = {(const char *)data, size};
    char detail[200] = "";
    json_t *value = NULL;
    enum err e = body_parse(raw, &value, detail, sizeof detail);
    if (e) {
        CHECK(!value && detail[0] && str_is_utf8(str_of(detail)));
    } else {
        CHECK(json_is_object(value) && body_depth(raw) <= BODY_DEPTH_MAX);
        /* What was let through can be written and read back. */
        char *text = json_dumps(value, JSON_COMPACT);
        CHECK(text);
        json_t *again = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        CHECK(json_equal(value, again));
        json_decref(again);
        free(text);
        json_decref(value);
    }
    (void)body_type_is_json(raw);
    (void)body_type_is_ndjson(raw);
    return 0;
}
