/* The bytes of a message: what goes in comes out, the layout stays as it was once released, and
 * whatever else arrives is refused without a guess. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rand.h"
#include "bus/rabbitmq_wire.h"

static struct bus_message any_message(struct rand *r)
{
    return (struct bus_message){
        .event = {.id = rand_u64(r),
                  .type = (enum event_type)rand_below(r, EVENT_TYPE_COUNT),
                  .version = (uint16_t)rand_u64(r),
                  .actor = rand_u64(r),
                  .object = rand_u64(r),
                  .value = (int64_t)rand_u64(r)},
        .rule = (uint16_t)rand_u64(r),
        .lane = (uint16_t)rand_u64(r),
        .tries = (uint16_t)rand_u64(r),
        .cursor = {.part = (enum audience_part)rand_below(r, AUDIENCE_REST + 1),
                   .active_since_ms = (int64_t)rand_u64(r),
                   .started_ms = (int64_t)rand_u64(r),
                   .after = rand_u64(r),
                   .end = rand_below(r, 2) != 0},
        .until = rand_u64(r),
        .kind = (uint8_t)rand_u64(r),
        .slot = rand_u64(r),
        .owner = rand_u64(r),
        .replay = rand_u64(r),
        .term = rand_u64(r),
        .report = {.kind = (uint8_t)rand_below(r, REPORT_FAILED + 1),
                   .error = (uint8_t)rand_below(r, ERR_NO_MEMORY + 1),
                   .at_end = rand_below(r, 2) != 0,
                   .ahead = rand_below(r, 2) != 0,
                   .node = (uint16_t)rand_u64(r),
                   .next = rand_u64(r),
                   .members = (uint32_t)rand_u64(r),
                   .delivered = (uint32_t)rand_u64(r),
                   .repeated = (uint32_t)rand_u64(r),
                   .skipped = (uint32_t)rand_u64(r),
                   .duplicates = (uint32_t)rand_u64(r),
                   .suppressed = (uint32_t)rand_u64(r),
                   .asked_ms = (int64_t)rand_u64(r)},
    };
}

static void assert_same_report(const struct bus_report *a, const struct bus_report *b)
{
    assert_true(a->kind == b->kind && a->error == b->error && a->at_end == b->at_end &&
                a->ahead == b->ahead && a->node == b->node && a->next == b->next);
    assert_true(a->members == b->members && a->delivered == b->delivered &&
                a->repeated == b->repeated && a->skipped == b->skipped &&
                a->duplicates == b->duplicates && a->suppressed == b->suppressed &&
                a->asked_ms == b->asked_ms);
}

static void assert_same(const struct bus_message *a, const struct bus_message *b)
{
    assert_true(a->event.id == b->event.id && a->event.type == b->event.type &&
                a->event.version == b->event.version && a->event.actor == b->event.actor &&
                a->event.object == b->event.object && a->event.value == b->event.value &&
                a->event.subject == b->event.subject);
    assert_true(a->rule == b->rule && a->lane == b->lane && a->tries == b->tries);
    assert_true(a->cursor.part == b->cursor.part && a->cursor.end == b->cursor.end &&
                a->cursor.active_since_ms == b->cursor.active_since_ms &&
                a->cursor.started_ms == b->cursor.started_ms && a->cursor.after == b->cursor.after);
    assert_true(a->until == b->until && a->kind == b->kind && a->slot == b->slot &&
                a->owner == b->owner && a->replay == b->replay && a->term == b->term);
    assert_same_report(&a->report, &b->report);
    assert_null(b->event.card);
    assert_int_equal(b->tag, 0);
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 1);
    for (int i = 0; i < 10000; i++) {
        struct bus_message m = any_message(&r), out;
        int64_t due = (int64_t)(rand_u64(&r) >> 1), out_due;
        m.tag = 99;
        m.event.card = (const struct post_card *)&m;
        if (m.report.kind == REPORT_NONE) { /* a work item has a subject, a report has a `next` */
            m.event.subject = rand_u64(&r);
            m.report.next = 0;
        }
        uint8_t bytes[RABBITMQ_WIRE_SIZE];
        rabbitmq_wire_write(&m, due, bytes);
        assert_true(rabbitmq_wire_read(bytes, sizeof bytes, &out, &out_due));
        assert_same(&m, &out);
        assert_true(due == out_due);
    }
}

static struct bus_message known_message(void)
{
    return (struct bus_message){
        .event = {.id = 0x0102030405060708, .type = EVENT_POST_CREATED, .version = 1, .actor = 2},
        .rule = 0x1122,
        .lane = 3,
        .tries = 4,
        .cursor = {.part = AUDIENCE_ACTIVE, .after = 5},
        .kind = 6,
        .slot = 7,
    };
}

static void sign(uint8_t *bytes, size_t n)
{
    uint32_t sum = (uint32_t)hash_checksum(bytes, n - 4, bytes[0]);
    memcpy(bytes + n - 4, &sum, 4);
}

/* As a program of version 1 wrote it: the same, and nothing after `replay`. */
static void write_version_1(const struct bus_message *m, int64_t due_ms,
                            uint8_t out[RABBITMQ_WIRE_SIZE_1])
{
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    rabbitmq_wire_write(m, due_ms, bytes);
    memcpy(out, bytes, RABBITMQ_WIRE_SIZE_1 - 4);
    out[0] = 1;
    sign(out, RABBITMQ_WIRE_SIZE_1);
}

/* The sum is of what a program of version 1 once wrote. */
static void messages_of_version_1_are_read(void **state)
{
    (void)state;
    struct bus_message m = known_message(), out;
    uint8_t bytes[RABBITMQ_WIRE_SIZE_1];
    int64_t due;
    write_version_1(&m, 8, bytes);
    assert_true(hash_checksum(bytes, sizeof bytes, 0) == UINT64_C(0x7efca9f07466b3ec));
    memset(&out, 0xff, sizeof out);
    assert_true(rabbitmq_wire_read(bytes, sizeof bytes, &out, &due));
    assert_same(&m, &out); /* without a term or a report */
    assert_int_equal(due, 8);
    for (size_t at = 0; at < sizeof bytes; at++) {
        bytes[at] ^= 1;
        assert_false(rabbitmq_wire_read(bytes, sizeof bytes, &out, &due));
        bytes[at] ^= 1;
    }
    bytes[0] = 2; /* of this size there is only version 1 */
    sign(bytes, sizeof bytes);
    assert_false(rabbitmq_wire_read(bytes, sizeof bytes, &out, &due));
}

/* Queues may hold messages of an older program: version 2 must stay as it is. */
static void the_layout_of_version_2_does_not_change(void **state)
{
    (void)state;
    struct bus_message m = known_message();
    m.term = 0x1112131415161718;
    m.report = (struct bus_report){.kind = REPORT_FAILED,
                                   .error = ERR_TIMEOUT,
                                   .ahead = true,
                                   .node = 0x2122,
                                   .next = 9,
                                   .members = 10,
                                   .asked_ms = 11};
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    rabbitmq_wire_write(&m, 8, bytes);
    const uint8_t front[] = {2, 6, 0x22, 0x11, 3, 0, 4, 0};
    assert_memory_equal(bytes, front, sizeof front);
    const uint8_t id[] = {8, 7, 6, 5, 4, 3, 2, 1};
    assert_memory_equal(bytes + 16, id, sizeof id);
    const uint8_t term[] = {0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
    assert_memory_equal(bytes + 112, term, sizeof term);
    const uint8_t back[] = {0x22, 0x21, REPORT_FAILED, 2};
    assert_memory_equal(bytes + 164, back, sizeof back);
    assert_true(hash_checksum(bytes, sizeof bytes, 0) == UINT64_C(0x068cce889d10b4ae));
}

static void every_changed_byte_is_seen(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 2);
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    struct bus_message m = any_message(&r), out = {.rule = 7};
    int64_t due = 42;
    rabbitmq_wire_write(&m, 0, bytes);
    for (size_t at = 0; at < sizeof bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1 << bit);
            assert_false(rabbitmq_wire_read(bytes, sizeof bytes, &out, &due));
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(out.rule, 7); /* untouched */
    assert_int_equal(due, 42);
}

static void other_sizes_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[RABBITMQ_WIRE_SIZE * 2] = {0};
    struct bus_message m = {0};
    int64_t due;
    rabbitmq_wire_write(&m, 0, bytes);
    for (size_t n = 0; n <= sizeof bytes; n++)
        assert_int_equal(rabbitmq_wire_read(bytes, n, &m, &due), n == RABBITMQ_WIRE_SIZE);
    write_version_1(&m, 0, bytes);
    for (size_t n = 0; n <= sizeof bytes; n++)
        assert_int_equal(rabbitmq_wire_read(bytes, n, &m, &due), n == RABBITMQ_WIRE_SIZE_1);
}

/* Writes a byte and makes the checksum right again, as a program of another version would. */
static bool reads_with(size_t at, uint8_t value)
{
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    struct bus_message m = {.event = {.type = EVENT_POST_CREATED}};
    int64_t due;
    rabbitmq_wire_write(&m, 0, bytes);
    bytes[at] = value;
    sign(bytes, sizeof bytes);
    return rabbitmq_wire_read(bytes, sizeof bytes, &m, &due);
}

static void values_that_this_program_does_not_know_are_refused(void **state)
{
    (void)state;
    assert_true(reads_with(0, RABBITMQ_WIRE_VERSION));
    assert_false(reads_with(0, 0));
    assert_false(reads_with(0, 1)); /* in the size of version 2 */
    assert_false(reads_with(0, RABBITMQ_WIRE_VERSION + 1));
    assert_true(reads_with(14, AUDIENCE_REST));
    assert_false(reads_with(14, AUDIENCE_REST + 1));
    assert_true(reads_with(15, 1));
    assert_false(reads_with(15, 2));
    assert_false(reads_with(55, 0x80)); /* a time before 1970 */
    assert_true(reads_with(166, REPORT_FAILED));
    assert_false(reads_with(166, REPORT_FAILED + 1));
    assert_true(reads_with(167, 3));
    assert_false(reads_with(167, 4));
    int known = 0;
    for (int value = 0; value < 256; value++)
        known += reads_with(8, (uint8_t)value); /* of the type's hash */
    assert_int_equal(known, 1);
}

/* Of a newer program: a failure that we have no name for is one that may pass. */
static void an_unknown_error_is_one_to_try_again(void **state)
{
    (void)state;
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    struct bus_message m = {.report = {.kind = REPORT_FAILED, .error = ERR_FORBIDDEN}};
    int64_t due;
    rabbitmq_wire_write(&m, 0, bytes);
    bytes[160] ^= 1;
    sign(bytes, sizeof bytes);
    assert_true(rabbitmq_wire_read(bytes, sizeof bytes, &m, &due));
    assert_int_equal(m.report.error, ERR_UNAVAILABLE);
}

static void random_bytes_are_refused(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 3);
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    struct bus_message m;
    int64_t due;
    for (int i = 0; i < 100000; i++) {
        for (size_t at = 0; at < sizeof bytes; at++)
            bytes[at] = (uint8_t)rand_u64(&r);
        bytes[0] = RABBITMQ_WIRE_VERSION;
        assert_false(rabbitmq_wire_read(bytes, sizeof bytes, &m, &due));
        bytes[0] = 1;
        assert_false(rabbitmq_wire_read(bytes, RABBITMQ_WIRE_SIZE_1, &m, &due));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(messages_of_version_1_are_read),
        cmocka_unit_test(the_layout_of_version_2_does_not_change),
        cmocka_unit_test(every_changed_byte_is_seen),
        cmocka_unit_test(other_sizes_are_refused),
        cmocka_unit_test(values_that_this_program_does_not_know_are_refused),
        cmocka_unit_test(an_unknown_error_is_one_to_try_again),
        cmocka_unit_test(random_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
