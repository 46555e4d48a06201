/* Where a failed CHECK ends: one log line that names the place, then abort(), so that a core dump
 * shows the stack. Nothing is cleaned up on purpose: after one of our own bugs the memory is not to
 * be trusted, and the store is made to survive a sudden death at any moment. */
#include "base/check.h"

#include <stdlib.h>

#include "base/log.h"

noreturn void check_failed(const char *expression, const char *file, int line)
{
    log_error("check failed", LOG_CSTR("expression", expression), LOG_CSTR("file", file),
              LOG_INT("line", line));
    abort();
}
