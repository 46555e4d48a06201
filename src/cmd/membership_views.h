/* The views that all nodes share: whether they are to be trusted, and loading them again. */
#pragma once

#include "cmd/membership.h"

/* Reads what truth says of them. */
enum err membership_look_at_views(struct membership *m);
/* Trusts or doubts them, by what was read and when. Any thread, often. */
void membership_decide_doubt(struct membership *m);
