/* A row of the books as JSON: in lists of deliveries and in an event's story. */
#pragma once

#include "api/api.h"

void delivery_write(struct json_out *j, const struct book_row *row);
