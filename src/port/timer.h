/* Timers: events that become true at a time, unless they are cancelled before.
 *
 * A timer is set in the transaction that causes it and cancelled in one that makes it void, so it
 * holds exactly while its reason does. When it is due, one transaction takes its row and emits its
 * event (outbox_emit): it fires once, whatever crashes. From there on it is an event like any
 * other, with rules, lanes, retries and replays. Timers fire in the order of their due times, which
 * are wall-clock milliseconds of the store's clock. One that waits costs a row.
 *
 * Of a type and key there is one timer: the account of a digest, the delivery of a fallback. */
#pragma once

#include "port/db.h"

/* Sets it, or moves the one there is. e->id is given when it fires; e->type must be STORED. */
enum err timer_set(struct tx *tx, const struct event *e, uint64_t key, int64_t due_ms);
/* *waited (may be NULL): there was one, and it will not fire. */
enum err timer_cancel(struct tx *tx, enum event_type type, uint64_t key, bool *waited);
