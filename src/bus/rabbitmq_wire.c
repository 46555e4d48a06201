/* The bytes of one message, little-endian, without gaps. The tables below say where each member is.
 *
 * A work item has no `next`: the event's subject travels there. A report needs none, as the leader
 * has the event.
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

/* Members that are written as they are: place, bytes, member. */
/* clang-format off */
#define MEMBERS(X)                    \
    X(  1, 1, kind)                   \
    X(  2, 2, rule)                   \
    X(  4, 2, lane)                   \
    X(  6, 2, tries)                  \
    X( 12, 2, event.version)          \
    X( 14, 1, cursor.part)            \
    X( 15, 1, cursor.end)             \
    X( 16, 8, event.id)               \
    X( 24, 8, event.actor)            \
    X( 32, 8, event.object)           \
    X( 40, 8, event.value)            \
    X( 56, 8, cursor.active_since_ms) \
    X( 64, 8, cursor.started_ms)      \
    X( 72, 8, cursor.after)           \
    X( 80, 8, until)                  \
    X( 88, 8, slot)                   \
    X( 96, 8, owner)                  \
    X(104, 8, replay)

/* Since version 2. */
#define REPORT_MEMBERS(X)             \
    X(112, 8, term)                   \
    X(120, 8, report.next)            \
    X(128, 8, report.asked_ms)        \
    X(136, 4, report.members)         \
    X(140, 4, report.delivered)       \
    X(144, 4, report.repeated)        \
    X(148, 4, report.skipped)         \
    X(152, 4, report.duplicates)      \
    X(156, 4, report.suppressed)      \
    X(164, 2, report.node)            \
    X(166, 1, report.kind)

/* The others. The checksum stands at the end. */
enum {
    AT_VERSION = 0,
    AT_TYPE = 8,    /* four bytes of a hash of the event type's name */
    AT_PART = 14,
    AT_END = 15,
    AT_DUE = 48,    /* eight bytes */
    AT_ERROR = 160, /* four bytes of a hash of the error's name */
    AT_NEXT = 120,  /* eight bytes */
    AT_REPORT = 166,
    AT_FLAGS = 167,
};
/* clang-format on */

enum { CHECKSUM_SIZE = 4 };
enum { FLAG_AT_END = 1, FLAG_AHEAD = 2 };

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
    return (uint32_t)hash_checksum(bytes, n - CHECKSUM_SIZE, bytes[AT_VERSION]);
}

/* ---- names ---- */

static uint32_t type_hashes[EVENT_TYPE_COUNT], error_hashes[ERR_COUNT];

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

static void make_hashes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_hashes);
}

/* `otherwise` when none has it. */
static int find_hash(const uint32_t *hashes, int count, uint64_t hash, int otherwise)
{
    int i = 0;
    while (i < count && hashes[i] != hash)
        i++;
    return i < count ? i : otherwise;
}

/* ---- messages ---- */

void rabbitmq_wire_write(const struct bus_message *m, int64_t due_ms,
                         uint8_t out[RABBITMQ_WIRE_SIZE])
{
    const struct bus_report *r = &m->report;
    make_hashes();
    CHECK((unsigned)m->event.type < EVENT_TYPE_COUNT && r->error < ERR_COUNT);
#define PUT(at, bytes, member) put(out + (at), (uint64_t)m->member, bytes);
    MEMBERS(PUT)
    REPORT_MEMBERS(PUT)
#undef PUT
    out[AT_VERSION] = RABBITMQ_WIRE_VERSION;
    put(out + AT_TYPE, type_hashes[m->event.type], 4);
    put(out + AT_DUE, (uint64_t)due_ms, 8);
    put(out + AT_ERROR, error_hashes[r->error], 4);
    out[AT_FLAGS] = (uint8_t)((r->at_end ? FLAG_AT_END : 0) | (r->ahead ? FLAG_AHEAD : 0));
    if (r->kind == REPORT_NONE)
        put(out + AT_NEXT, m->event.subject, 8);
    put(out + RABBITMQ_WIRE_SIZE - CHECKSUM_SIZE, checksum(out, RABBITMQ_WIRE_SIZE), CHECKSUM_SIZE);
}

/* The version, if the bytes are whole; 0: they are not. */
static int version_of(const uint8_t *bytes, size_t n)
{
    int version = n == RABBITMQ_WIRE_SIZE ? RABBITMQ_WIRE_VERSION : 1;
    bool whole = (n == RABBITMQ_WIRE_SIZE || n == RABBITMQ_WIRE_SIZE_1) &&
                 bytes[AT_VERSION] == version &&
                 get(bytes + n - CHECKSUM_SIZE, CHECKSUM_SIZE) == checksum(bytes, n);
    return whole ? version : 0;
}

bool rabbitmq_wire_read(const uint8_t *bytes, size_t n, struct bus_message *m, int64_t *due_ms)
{
    int version = version_of(bytes, n);
    if (version == 0 || bytes[AT_PART] > AUDIENCE_REST || bytes[AT_END] > 1)
        return false;
    if (version > 1 &&
        (bytes[AT_REPORT] > REPORT_FAILED || bytes[AT_FLAGS] > (FLAG_AT_END | FLAG_AHEAD)))
        return false;
    make_hashes();
    int type = find_hash(type_hashes, EVENT_TYPE_COUNT, get(bytes + AT_TYPE, 4), -1);
    int64_t due = (int64_t)get(bytes + AT_DUE, 8);
    if (type < 0 || due < 0)
        return false;
    *due_ms = due;
    *m = (struct bus_message){.event = {.type = (enum event_type)type}};
#define GET(at, size, member) m->member = (__typeof__(m->member))get(bytes + (at), size);
    MEMBERS(GET)
    if (version == 1)
        return true;
    REPORT_MEMBERS(GET)
#undef GET
    /* An error that only newer programs know counts as one that passes by itself. */
    m->report.error =
        (uint8_t)find_hash(error_hashes, ERR_COUNT, get(bytes + AT_ERROR, 4), ERR_UNAVAILABLE);
    m->report.at_end = bytes[AT_FLAGS] & FLAG_AT_END;
    m->report.ahead = bytes[AT_FLAGS] & FLAG_AHEAD;
    if (m->report.kind == REPORT_NONE) {
        m->event.subject = m->report.next;
        m->report.next = 0;
    }
    return true;
}
