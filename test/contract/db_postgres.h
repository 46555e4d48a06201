/* The PostgreSQL rows of the db contract: each folder of a test stands for a schema of its own on
 * one real server. */
#pragma once

#include "db_cases.h"

enum err postgres_open_one(const char *folder, const struct store_limits *limits,
                           struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX]);
enum err postgres_open_many(const char *folder, const struct store_limits *limits,
                            struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX]);
/* The server says that its disk is full, by a trigger: the error is real, the disk is not. */
void postgres_set_full(bool full);
