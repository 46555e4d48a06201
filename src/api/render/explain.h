/* What an explanation is drawn from, besides what the model found. */
#pragma once

#include "model/truth.h"
#include "pipe/event_state.h"

/* Of the posting, and of the reader's follow, which brings earlier posts. An event of id 0 left no
 * trace: everything it did ended long ago. */
struct explained_events {
    struct event_standing posting, follow;
};
