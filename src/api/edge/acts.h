/* Recording the acts of operators: of every route with ROUTE_RECORDED, once it succeeded. */
#pragma once

#include "api/edge/request.h"

/* Within the act's own transaction. Its failure is the act's. */
enum err act_write(struct request *r, struct tx *tx);
/* After an act that is no transaction, or that the leader did for this node: blocking. What was
 * done is done, so a failure is logged. */
void act_record(struct request *r);
