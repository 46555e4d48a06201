/* The bytes of one message, little-endian, without gaps:
 *
 *    0  u8  version           16  u64 event id        64  i64 cursor started
 *    1  u8  kind              24  u64 event actor     72  u64 cursor after
 *    2  u16 rule              32  u64 event object    80  u64 until
 *    4  u16 lane              40  i64 event value     88  u64 seat
 *    6  u16 tries             48  i64 due             96  u64 owner
 *    8  u32 event type        56  i64 cursor since   104  u64 replay
 *   12  u16 event version                            112  u32 checksum of all before
 *   14  u8  cursor part
 *   15  u8  cursor end
 *
 * A change of anything here is a new version; the reader of the old one stays as long as queues may
 * hold such messages. */
#include "bus/rabbitmq_wire.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { CHECKSUM_AT = RABBITMQ_WIRE_SIZE - 4 };

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    uint64_t little = htole64(value);
    memcpy(at, &little, bytes);
}

static uint64_t get(const uint8_t *at, size_t bytes)
{
    uint64_t little = 0;
    memcpy(&little, at, bytes);
    return le64toh(little);
}

static uint32_t checksum(const uint8_t *bytes)
{
    return (uint32_t)hash_checksum(bytes, CHECKSUM_AT, RABBITMQ_WIRE_VERSION);
}

static uint32_t type_hashes[EVENT_TYPE_COUNT];
static pthread_once_t type_hashes_once = PTHREAD_ONCE_INIT;

static void fill_type_hashes(void)
{
    for (int t = 0; t < EVENT_TYPE_COUNT; t++) {
        const char *name = event_wire_name((enum event_type)t);
        type_hashes[t] = (uint32_t)hash_checksum(name, strlen(name), 0);
    }
}

static uint32_t type_hash(enum event_type type)
{
    pthread_once(&type_hashes_once, fill_type_hashes);
    CHECK((unsigned)type < EVENT_TYPE_COUNT);
    return type_hashes[type];
}

static bool type_of_hash(uint32_t hash, enum event_type *type)
{
    pthread_once(&type_hashes_once, fill_type_hashes);
    for (int t = 0; t < EVENT_TYPE_COUNT; t++) {
        if (type_hashes[t] == hash) {
            *type = (enum event_type)t;
            return true;
        }
    }
    return false;
}

void rabbitmq_wire_write(const struct bus_message *m, int64_t due_ms,
                         uint8_t out[RABBITMQ_WIRE_SIZE])
{
    put(out + 0, RABBITMQ_WIRE_VERSION, 1);
    put(out + 1, m->kind, 1);
    put(out + 2, m->rule, 2);
    put(out + 4, m->lane, 2);
    put(out + 6, m->tries, 2);
    put(out + 8, type_hash(m->event.type), 4);
    put(out + 12, m->event.version, 2);
    put(out + 14, m->cursor.part, 1);
    put(out + 15, m->cursor.end, 1);
    put(out + 16, m->event.id, 8);
    put(out + 24, m->event.actor, 8);
    put(out + 32, m->event.object, 8);
    put(out + 40, (uint64_t)m->event.value, 8);
    put(out + 48, (uint64_t)due_ms, 8);
    put(out + 56, (uint64_t)m->cursor.active_since_ms, 8);
    put(out + 64, (uint64_t)m->cursor.started_ms, 8);
    put(out + 72, m->cursor.after, 8);
    put(out + 80, m->until, 8);
    put(out + 88, m->seat, 8);
    put(out + 96, m->owner, 8);
    put(out + 104, m->replay, 8);
    put(out + CHECKSUM_AT, checksum(out), 4);
}

bool rabbitmq_wire_read(const uint8_t *bytes, size_t n, struct bus_message *m, int64_t *due_ms)
{
    if (n != RABBITMQ_WIRE_SIZE || bytes[0] != RABBITMQ_WIRE_VERSION ||
        get(bytes + CHECKSUM_AT, 4) != checksum(bytes))
        return false;
    enum event_type type;
    uint64_t part = bytes[14], end = bytes[15];
    int64_t due = (int64_t)get(bytes + 48, 8);
    if (part > AUDIENCE_REST || end > 1 || due < 0 ||
        !type_of_hash((uint32_t)get(bytes + 8, 4), &type))
        return false;
    *due_ms = due;
    *m = (struct bus_message){
        .event = {.id = get(bytes + 16, 8),
                  .type = type,
                  .version = (uint16_t)get(bytes + 12, 2),
                  .actor = get(bytes + 24, 8),
                  .object = get(bytes + 32, 8),
                  .value = (int64_t)get(bytes + 40, 8)},
        .rule = (uint16_t)get(bytes + 2, 2),
        .lane = (uint16_t)get(bytes + 4, 2),
        .tries = (uint16_t)get(bytes + 6, 2),
        .cursor = {.part = (enum audience_part)part,
                   .active_since_ms = (int64_t)get(bytes + 56, 8),
                   .started_ms = (int64_t)get(bytes + 64, 8),
                   .after = get(bytes + 72, 8),
                   .end = end != 0},
        .until = get(bytes + 80, 8),
        .kind = bytes[1],
        .seat = get(bytes + 88, 8),
        .owner = get(bytes + 96, 8),
        .replay = get(bytes + 104, 8),
    };
    return true;
}
