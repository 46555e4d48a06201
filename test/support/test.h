/* cmocka wants these, in this order, before itself. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define assert_str_equal(got, wanted)                                                              \
    do {                                                                                           \
        struct str got_ = (got), wanted_ = (wanted);                                               \
        assert_int_equal(got_.len, wanted_.len);                                                   \
        assert_memory_equal(got_.ptr, wanted_.ptr, wanted_.len);                                   \
    } while (0)
