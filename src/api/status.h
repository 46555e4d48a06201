/* Pieces of the operator's pictures that more than one answer shows. */
#pragma once

#include "api/api.h"

void status_write_lane(struct json_out *j, const struct lane_stats *lane);
/* "states":{"pending":…,…,"archived":…} */
void status_write_states(struct json_out *j, const struct event_states *states);
/* "brake":{"level","why","free_bytes"}; level 0 and null when nothing is watched. */
void status_write_brake(struct json_out *j, struct api *api);
/* "headline":{"worst_ms","consumer","type","lane","late_means","green","late","behind","stopped",
 * "dead"} */
void status_write_headline(struct json_out *j, const struct freshness_headline *headline);

/* Asks the leader for its engine, as this request's caller; blocking. NULL: none answers. The value
 * belongs to the caller. */
json_t *status_ask_engine(struct call *c);
const char *part_state_name(int state);
/* Is it stage two of group messages? */
bool status_is_of_inboxes(const struct freshness_cell *f);

/* A text, a time or an id that may be missing. */
void status_put_text(struct json_out *j, const char *key, const char *text_or_null);
/* Bytes of a stored row, which may be damaged: null when they are no text. */
void status_put_stored(struct json_out *j, const char *key, struct str bytes);
void status_put_time(struct json_out *j, const char *key, int64_t ms_or_0);
void status_put_id(struct json_out *j, const char *key, uint64_t id_or_0);

/* "12 s", "3 min": for sentences. */
void status_span_text(int64_t ms, char out[32]);
