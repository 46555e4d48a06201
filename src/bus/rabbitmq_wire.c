/* The bytes of one message, little-endian, without gaps:
 *
 *    0  u8  version           16  u64 event id        64  i64 cursor started
 *    1  u8  kind              24  u64 event actor     72  u64 cursor after
 *    2  u16 rule              32  u64 event object    80  u64 until
 *    4  u16 lane              40  i64 event value     88  u64 slot
 *    6  u16 tries             48  i64 due             96  u64 owner
 *    8  u32 event type        56  i64 cursor since   104  u64 replay
 *   12  u16 event version
 *   14  u8  cursor part
 *   15  u8  cursor end
 *
 *  112  u64 term             144  u32 repeated       164  u16 node
 *  120  u64 next             148  u32 skipped        166  u8  report kind
 *  128  i64 asked            152  u32 duplicates     167  u8  1: at the end, 2: ahead
 *  136  u32 members          156  u32 suppressed     168  u32 checksum of all before
 *  140  u32 delivered        160  u32 error
 *
 * Version 1 ended after `replay`, with its checksum there: such a message has no term and is no
 * report. A change of anything here is a new version; the reader of the old one stays as long as
 * queues may hold such messages. */
#include "bus/rabbitmq_wire.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { CHECKSUM_SIZE = 4 };
enum { FLAG_AT_END = 1, FLAG_AHEAD = 2 };

#define COUNT_ONE(name, cls, http, title) +1
enum { ERR_COUNT = ERR_TABLE(COUNT_ONE) };
#undef COUNT_ONE

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

/* Of all but the checksum itself, in the version that its first byte names. */
static uint32_t checksum(const uint8_t *bytes, size_t n)
{
    return (uint32_t)hash_checksum(bytes, n - CHECKSUM_SIZE, bytes[0]);
}

static uint32_t type_hashes[EVENT_TYPE_COUNT];
static uint32_t error_hashes[ERR_COUNT];
static pthread_once_t hashes_once = PTHREAD_ONCE_INIT;

static uint32_t hash_of(const char *name)
{
    return (uint32_t)hash_checksum(name, strlen(name), 0);
}

static void fill_hashes(void)
{
    for (int t = 0; t < EVENT_TYPE_COUNT; t++)
        type_hashes[t] = hash_of(event_wire_name((enum event_type)t));
    for (int e = 0; e < ERR_COUNT; e++)
        error_hashes[e] = hash_of(err_name((enum err)e));
}

static uint32_t type_hash(enum event_type type)
{
    pthread_once(&hashes_once, fill_hashes);
    CHECK((unsigned)type < EVENT_TYPE_COUNT);
    return type_hashes[type];
}

static uint32_t error_hash(uint8_t error)
{
    pthread_once(&hashes_once, fill_hashes);
    CHECK(error < ERR_COUNT);
    return error_hashes[error];
}

/* An error that only newer programs know is still one, and passes for one that may pass. */
static uint8_t error_of_hash(uint32_t hash)
{
    pthread_once(&hashes_once, fill_hashes);
    for (int e = 0; e < ERR_COUNT; e++) {
        if (error_hashes[e] == hash)
            return (uint8_t)e;
    }
    return ERR_UNAVAILABLE;
}

static bool type_of_hash(uint32_t hash, enum event_type *type)
{
    pthread_once(&hashes_once, fill_hashes);
    for (int t = 0; t < EVENT_TYPE_COUNT; t++) {
        if (type_hashes[t] == hash) {
            *type = (enum event_type)t;
            return true;
        }
    }
    return false;
}

static void write_report(const struct bus_report *r, uint8_t *out)
{
    put(out + 120, r->next, 8);
    put(out + 128, (uint64_t)r->asked_ms, 8);
    put(out + 136, r->members, 4);
    put(out + 140, r->delivered, 4);
    put(out + 144, r->repeated, 4);
    put(out + 148, r->skipped, 4);
    put(out + 152, r->duplicates, 4);
    put(out + 156, r->suppressed, 4);
    put(out + 160, error_hash(r->error), 4);
    put(out + 164, r->node, 2);
    put(out + 166, r->kind, 1);
    put(out + 167, (r->at_end ? FLAG_AT_END : 0) | (r->ahead ? FLAG_AHEAD : 0), 1);
}

static struct bus_report read_report(const uint8_t *bytes)
{
    return (struct bus_report){
        .kind = bytes[166],
        .error = error_of_hash((uint32_t)get(bytes + 160, 4)),
        .at_end = bytes[167] & FLAG_AT_END,
        .ahead = bytes[167] & FLAG_AHEAD,
        .node = (uint16_t)get(bytes + 164, 2),
        .next = get(bytes + 120, 8),
        .members = (uint32_t)get(bytes + 136, 4),
        .delivered = (uint32_t)get(bytes + 140, 4),
        .repeated = (uint32_t)get(bytes + 144, 4),
        .skipped = (uint32_t)get(bytes + 148, 4),
        .duplicates = (uint32_t)get(bytes + 152, 4),
        .suppressed = (uint32_t)get(bytes + 156, 4),
        .asked_ms = (int64_t)get(bytes + 128, 8),
    };
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
    put(out + 88, m->slot, 8);
    put(out + 96, m->owner, 8);
    put(out + 104, m->replay, 8);
    put(out + 112, m->term, 8);
    write_report(&m->report, out);
    put(out + RABBITMQ_WIRE_SIZE - CHECKSUM_SIZE, checksum(out, RABBITMQ_WIRE_SIZE), CHECKSUM_SIZE);
}

/* The version, if the bytes are whole; 0: they are not. */
static int version_of(const uint8_t *bytes, size_t n)
{
    int version = n == RABBITMQ_WIRE_SIZE ? RABBITMQ_WIRE_VERSION : 1;
    bool whole = (n == RABBITMQ_WIRE_SIZE || n == RABBITMQ_WIRE_SIZE_1) && bytes[0] == version &&
                 get(bytes + n - CHECKSUM_SIZE, CHECKSUM_SIZE) == checksum(bytes, n);
    return whole ? version : 0;
}

bool rabbitmq_wire_read(const uint8_t *bytes, size_t n, struct bus_message *m, int64_t *due_ms)
{
    int version = version_of(bytes, n);
    if (version == 0 ||
        (version > 1 && (bytes[166] > REPORT_FAILED || bytes[167] > (FLAG_AT_END | FLAG_AHEAD))))
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
        .slot = get(bytes + 88, 8),
        .owner = get(bytes + 96, 8),
        .replay = get(bytes + 104, 8),
    };
    if (version > 1) {
        m->term = get(bytes + 112, 8);
        m->report = read_report(bytes);
    }
    return true;
}
