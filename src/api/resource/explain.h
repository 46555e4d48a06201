/* Why a post is, or is not, in a feed, with what has become of the events that bring it there. */
#pragma once

#include "api/render/explain.h"

/* `found` is what truth_explain found. */
enum err explain_events(struct tx *tx, struct engine *engine, const struct explanation *found,
                        struct explained_events *out);
