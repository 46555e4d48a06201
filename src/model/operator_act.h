/* The record of what operators did: who, what, when and why. */
#pragma once

#include "base/arena.h"
#include "base/str.h"
#include "port/db.h"

enum { OPERATOR_WHY_MAX = 200, OPERATOR_REQUEST_MAX = 1000 };

struct operator_act {
    uint64_t id;
    int64_t at_ms;
    struct str who;     /* "key 12", "account 12", "control socket" */
    struct str act;     /* the operation, such as deliveries_discard */
    struct str target;  /* method and path */
    struct str request; /* its body; what exceeds OPERATOR_REQUEST_MAX is cut */
    struct str why;     /* in the operator's words; "": not said; cut at OPERATOR_WHY_MAX */
};

/* Gives it its id and time. */
enum err operator_act_record(struct tx *tx, const struct operator_act *act);
/* Newest first, below that id; texts are in the arena. */
enum err operator_act_list(struct tx *tx, uint64_t below, struct arena *arena,
                           struct operator_act *out, size_t max, size_t *n);
