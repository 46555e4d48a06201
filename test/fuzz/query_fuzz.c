/* Query parameters on arbitrary bytes: what is found is the decoding of a part of the query, never
 * longer than it, and a second look finds the same. */
#include "base/check.h"
#include "net/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct str names[] = {{"q", 1}, {"limit", 5}, {"cursor", 6}};
    struct http_exchange x = {.query = {(const char *)data, size}};
    arena_init(&x.arena);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct str value = {0}, again = {0};
        bool found = http_query(&x, names[i], &value);
        CHECK(http_query(&x, names[i], &again) == found);
        CHECK((value.ptr == NULL) == (again.ptr == NULL) && str_eq(value, again));
        CHECK(value.len <= size);
        if (found && value.ptr)
            CHECK(value.ptr[value.len] == '\0');
    }
    arena_done(&x.arena);
    return 0;
}
