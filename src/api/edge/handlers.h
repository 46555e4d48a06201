/* What the route table names, declared from the table itself, and what several resources share. */
#pragma once

#include "api/edge/routes.h"

#define ROUTE(section_, method_, path_, handler_, mode_, policy_, rate_, request_, response_,      \
              success_, flags_, query_, summary_, ...)                                             \
    enum err handler_(struct call *c, struct tx *tx);                                              \
    __VA_ARGS__
#define PREPARE(name) enum err name(struct call *c);
#define RENDER(name)  void name(struct call *c);
#define FIRST(name)   void name(struct call *c);
#define TOGETHER(name)                                                                             \
    enum err name(struct call *const *calls, size_t n, struct tx *tx, bool *taken);
#define REPEAT(name) enum err name(struct call *c, struct tx *tx);
#define LIMIT(name)  extern const struct route_limit name;
#define PAGE(usual, most)
#define STEP(name)                                                                                 \
    void name(struct call **calls, size_t n, void (*done)(struct call * c, enum err e));
#include "api/edge/routes.def"
#undef ROUTE
#undef PREPARE
#undef RENDER
#undef FIRST
#undef TOGETHER
#undef REPEAT
#undef LIMIT
#undef PAGE
#undef STEP

/* accounts.c: {"account":…,"token":…}, 201: the answer of signing up and logging in. */
void call_signed_in(struct call *c, const struct account *account, struct str token);
/* sessions.c: around the check of a password, of the account by this key. ERR_RATE_LIMITED: too
 * many were wrong lately. */
enum err call_begin_guess(struct call *c, uint64_t account_key);
void call_guessed_right(struct call *c, uint64_t account_key);
/* graph.c: the account, for a caller who may know of it: ERR_NOT_FOUND when it is not active or
 * blocks the caller. */
enum err call_find_account(struct call *c, struct tx *tx, uint64_t id, struct account *account,
                           struct relationship *relationship);
/* graph.c: a page of accounts; the next one begins below (or after) its last id. */
void call_list_accounts(struct call *c, const struct account_card *accounts, size_t n,
                        size_t limit);
/* admin.c: an account by id, @username or username. */
enum err account_look_up(struct tx *tx, struct str name, struct arena *arena, struct account *out);
