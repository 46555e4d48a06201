/* Why a post is, or is not, in a feed, with what has become of the events that bring it there. */
#pragma once

#include "model/truth.h"
#include "pipe/event_state.h"

/* Of the posting, and of the reader's follow, which brings earlier posts. An event of id 0 left no
 * trace: everything it did ended long ago. */
struct explained_events {
    struct event_standing posting, follow;
};
/* `found` is what truth_explain found. */
enum err explain_events(struct tx *tx, struct engine *engine, const struct explanation *found,
                        struct explained_events *out);
