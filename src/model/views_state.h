/* The state of shared views in truth: how often they have lost something, and up to which loss they
 * were loaded again. While the two numbers differ no node may answer from them. And the store's own
 * name, by which a shared Redis knows whose views it holds. */
#pragma once

#include "port/db.h"

enum { STORE_ID_MAX = 33 /* 32 hex digits and a zero */ };

/* Both are 0 in a store that never had any. */
enum err views_state_read(struct tx *tx, uint64_t *lost, uint64_t *loaded);
/* The views have lost something: counts it, also when others do so at the same moment. *lost: the
 * number of this loss. Blocking. */
enum err views_state_lost(struct db *db, uint64_t *lost);
/* They were loaded after `lost_seen` had been counted. Never falls; in a write. */
enum err views_state_loaded(struct tx *tx, uint64_t lost_seen);

/* Made when it is asked for the first time, by whichever node; the same for ever. Blocking. */
enum err store_id_read(struct db *db, char out[STORE_ID_MAX]);
