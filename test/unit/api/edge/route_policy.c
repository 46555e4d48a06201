/* Not a test itself: compiled by one, to see that a route without a policy does not compile. */
#include "api/edge/routes.h"

#ifndef POLICY_UNDER_TEST
#define POLICY_UNDER_TEST ANYONE
#endif
#define EXPANDED(policy)                                                                           \
    ROUTE_ROW(Posts, GET, "/v1/x", NULL, READ, policy, READ, NULL, "Post", 200, 0, "", "a row")
#define ZERO 0
enum { POLICY_ZERO = 0 };

extern const struct route under_test[];
const struct route under_test[] = {EXPANDED(POLICY_UNDER_TEST)};
