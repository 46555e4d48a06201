/* The scripts that Redis runs for us: each is one atomic act on the keys of one slot. */
#pragma once

#include "base/str.h"

#define REDIS_SCRIPTS(X)                                                                           \
    X(account)                                                                                     \
    X(member)                                                                                      \
    X(joined)                                                                                      \
    X(message)                                                                                     \
    X(inbox_end)                                                                                   \
    X(inbox_drop)                                                                                  \
    X(edge)                                                                                        \
    X(followed)                                                                                    \
    X(load_followed)                                                                               \
    X(load_followers)                                                                              \
    X(many_followed)                                                                               \
    X(many_followers)                                                                              \
    X(hide)                                                                                        \
    X(posted)                                                                                      \
    X(unposted)                                                                                    \
    X(spread_page)                                                                                 \
    X(spread_end)                                                                                  \
    X(trim)                                                                                        \
    X(home)                                                                                        \
    X(page)                                                                                        \
    X(begin)                                                                                       \
    X(end)                                                                                         \
    X(give_up)                                                                                     \
    X(backfill)                                                                                    \
    X(forget)                                                                                      \
    X(drop)                                                                                        \
    X(raise)                                                                                       \
    X(witness)                                                                                     \
    X(put_card)                                                                                    \
    X(change_card)                                                                                 \
    X(count_card)                                                                                  \
    X(put_likes)                                                                                   \
    X(like)

enum script_id {
#define SCRIPT_ENUM(name) SCRIPT_##name,
    REDIS_SCRIPTS(SCRIPT_ENUM)
#undef SCRIPT_ENUM
        SCRIPT_COUNT
};

struct str script_name(enum script_id id); /* 40 hex digits */
struct str script_text(enum script_id id);
