/* The snapshot file.
 *
 *     header                                              64 bytes, with its own checksum
 *     block: header (32 bytes), payload, …                one after the other, to the end of the
 * file
 *
 * A block holds the records of a range of slots; the blocks cover slots 0 … accounts-1 in order, so
 * a missing tail shows. A record is everything about one account, or one group:
 *
 *     struct snapshot_record
 *     uint64_t entries[]      the timeline, rising
 *     uint64_t pulls[]        the pull list, falling
 *     uint64_t activities[]   the inbox, rising
 *     uint32_t groups[]       slots: whose activities these are
 *     uint32_t following[]    slots, rising
 *     uint32_t mutes[]        slots, rising
 *     uint32_t members[]      slots, rising; of a group only
 *     padding to 8 bytes
 *
 * Little-endian. Followers are not stored: they follow from `following`.
 *
 * Version 1 knew no groups: its record ends before `inbox`. It is read as one of a time when there
 * were none, so that every inbox is complete; what happened to groups since comes after its
 * position. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_MAGIC       UINT64_C(0x31736e61746e6146) /* "Fantans1" */
#define SNAPSHOT_MARK        UINT64_C(0x6b636f6c62736e66)
#define SNAPSHOT_BLOCK_BYTES (UINT64_C(4) << 20) /* a block is closed when it reaches this */

enum { SNAPSHOT_VERSION = 2, SNAPSHOT_OLDEST_VERSION = 1 };

enum snapshot_flags {
    SNAPSHOT_HIDDEN = 1,
    SNAPSHOT_READY = 2, /* the timeline; otherwise it is dropped */
    SNAPSHOT_PULLED = 4,
    SNAPSHOT_GROUP = 8,
    SNAPSHOT_INBOX_READY = 16 /* otherwise it is dropped */
};

struct snapshot_header {
    uint64_t magic;
    uint32_t version;
    uint32_t accounts;
    uint64_t position;
    int64_t saved_at_ms;
    uint64_t timeline_cap;
    uint64_t pull_cap;
    uint64_t reserved;
    uint64_t checksum; /* of the bytes before it */
};

struct snapshot_block {
    uint64_t mark;
    uint32_t first_slot;
    uint32_t slots;
    uint64_t bytes;    /* of the payload */
    uint64_t checksum; /* of the payload, seeded with first_slot and the position */
};

struct snapshot_record {
    uint64_t id;
    uint64_t floor;
    uint64_t pull_floor;
    uint32_t seen;
    uint32_t flags;
    uint32_t entries;
    uint32_t pulls;
    uint32_t following;
    uint32_t mutes;
    uint32_t inbox;
    uint32_t members;
};

_Static_assert(sizeof(struct snapshot_header) == 64, "as the file has it");
_Static_assert(sizeof(struct snapshot_block) == 32, "as the file has it");
_Static_assert(sizeof(struct snapshot_record) == 56, "as the file has it");

static inline uint64_t snapshot_head_bytes(uint32_t version)
{
    return version == 1 ? offsetof(struct snapshot_record, inbox) : sizeof(struct snapshot_record);
}

/* With its lists. */
static inline uint64_t snapshot_record_bytes(const struct snapshot_record *r, uint32_t version)
{
    uint64_t bytes = snapshot_head_bytes(version) +
                     8 * ((uint64_t)r->entries + r->pulls + r->inbox) +
                     4 * ((uint64_t)r->inbox + r->following + r->mutes + r->members);
    return (bytes + 7) & ~UINT64_C(7);
}

static inline uint64_t snapshot_block_seed(uint64_t position, uint32_t first_slot)
{
    return position ^ ((uint64_t)first_slot << 32);
}
