/* Assertions that stay on in release builds. They are for our own bugs: nothing that a peer can
 * send may reach one. */
#pragma once

#include <stdnoreturn.h>

/* Logs the place and aborts (log.c). */
noreturn void check_failed(const char *expression, const char *file, int line);

#define CHECK(e) ((e) ? (void)0 : check_failed(#e, __FILE__, __LINE__))

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define CONTAINER_OF(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
