/* What an operator switched at the leader's engine, as words in its lease: every node follows them,
 * so that whoever leads next goes on with them. "lanes=small:10:0,cleanup:2:400:stopped". */
#pragma once

#include <stddef.h>

#include "pipe/engine.h"

void switches_write(struct engine *g, char *out, size_t max);
void switches_follow(struct engine *g, const char *words);
