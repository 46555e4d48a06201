/* Pieces of the operator's pictures that more than one answer shows. */
#pragma once

#include "api/edge/api.h"

void status_write_lane(struct json_out *j, const struct lane_stats *lane);
/* Asks the leader for its engine, as this request's caller; blocking. NULL: none answers. The value
 * belongs to the caller. */
json_t *status_ask_engine(struct call *c);
const char *part_state_name(int state);
/* Is it stage two of group messages? */
bool status_is_of_inboxes(const struct freshness_cell *f);
