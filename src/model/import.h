/* Bulk import: NDJSON lines {"type":"account"|"follow"|"post"|"like"|"comment", …} in
 * transactions of many lines.
 *   {"type":"account","username":…,"id"?,"display_name"?,"bio"?,"avatar_url"?,"email"?,
 *    "password"?|"password_hash"?,"created_at"?}
 *   {"type":"follow","follower":WHO,"followee":WHO}
 *   {"type":"post","author":WHO,"caption":…,"created_at"?,"id"?}
 *   {"type":"like","account":WHO,"post":ID}
 *   {"type":"comment","author":WHO,"post":ID,"body":…,"created_at"?,"id"?}
 * WHO is an account's id or username. What is there already (the same username, edge or id) is
 * left as it is, so that an import can be run again; a row with "created_at" and no "id" gets an
 * id made from its time and content, always the same. */
#pragma once

#include "base/arena.h"
#include "model/follow.h"
#include "port/db.h"

enum { IMPORT_ERRORS_MAX = 100 }; /* kept; more are only counted */
struct import_error {
    uint64_t line;
    struct str detail; /* in the arena */
};

struct import_result {
    uint64_t accounts, follows, posts, likes, comments, repeated, rejected;
    struct import_error errors[IMPORT_ERRORS_MAX];
    size_t error_count;
};

/* Puts "password_hash" in place of every "password" of the chunk, in `arena`. Slow (argon2):
 * never in a transaction or on a loop. Lines that are not JSON stay as they are, for
 * import_chunk to reject. */
enum err import_hash_passwords(struct str ndjson, struct arena *arena, struct str *out);

/* Runs the lines of one chunk in one transaction. A bad line is counted, skipped and described in
 * the result; line numbers count from first_line. */
enum err import_chunk(struct tx *tx, struct str ndjson, uint64_t first_line,
                      const struct follow_policy *policy, struct arena *arena,
                      struct import_result *result);
