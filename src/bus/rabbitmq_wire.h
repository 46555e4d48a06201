/* A bus message as bytes, for the broker. A fixed size, a version in front and a checksum at the
 * end: bytes of an unknown version or of another program are recognised and never guessed. Event
 * types and errors travel by a hash of their name, so that nodes of different versions may number
 * them differently. The tag stays behind: it is each driver's own. */
#pragma once

#include "port/bus.h"

enum { RABBITMQ_WIRE_VERSION = 2, RABBITMQ_WIRE_SIZE = 172, RABBITMQ_WIRE_SIZE_1 = 116 };

/* due_ms: not before this wall time; 0: at once. */
void rabbitmq_wire_write(const struct bus_message *m, int64_t due_ms,
                         uint8_t out[RABBITMQ_WIRE_SIZE]);
/* False: not a message of ours that this program knows; *m and *due_ms are then untouched. */
bool rabbitmq_wire_read(const uint8_t *bytes, size_t n, struct bus_message *m, int64_t *due_ms);
