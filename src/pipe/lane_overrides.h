/* Lanes whose limits an operator changed for good: the table lane_overrides. */
#pragma once

#include "port/db.h"
#include "port/rule.h"

struct lane_override {
    enum lane lane;
    uint32_t concurrency, rate;
    bool stopped;
};

enum err lane_override_keep(struct tx *tx, const struct lane_override *o);
enum err lane_override_forget(struct tx *tx, enum lane lane);
/* All of them; lanes that this program does not know are left out. */
enum err lane_overrides_read(struct tx *tx, struct lane_override out[LANE_COUNT], size_t *n);
