/* The scripts' texts.
 *
 * A list of post ids (a timeline, a pull list, a person's likes) is a sorted set. Its entries are
 * ids in 19 digits, scored by their millisecond, so that order by score and then by text is order
 * by id. At its bottom, scored -1, lies its **head**, one more member that says what the list is:
 *
 *     r<floor>                ready: complete above the floor (19 digits)
 *     b<floor><generation>    building: collects pushes until the rebuild ends
 *
 * So the state, the floor and the entries are one key and change in one act. A timeline that is
 * dropped is not a sorted set but the string "d": a plain ZADD to it fails, and a push needs no
 * script to find that out. A key that is missing, or a set without a head, was lost: it reads as
 * dropped.
 *
 * A push is a plain ZADD and may leave more than `cap` entries. Entries above the cap are hidden at
 * once: readers take the newest `cap`, and the newest entry below those is their floor. The script
 * `trim` removes them every now and then.
 *
 * An inbox is a sorted set, too: groups in 19 digits, scored by the latest event's 53 bits, with a
 * head whose floor is always 0. A group that was left while the inbox is built has score 0.
 *
 * People are in one hash for each bucket: which of timeline and inbox are awake, that is, not
 * dropped ('A' both, 'a' the timeline, 'D' the inbox, 'd' neither), and the second of their last
 * visit. Timelines are called 't' and inboxes 'i' where a script is about either.
 *
 * A change of an edge names its event (0: none). The latest event that changed an edge is kept for
 * a while in the "recent" set; an older one that comes late changes nothing. So nodes may apply
 * changes in any order, and again. Scores hold 53 bits: milliseconds and counter of an event's id,
 * without its node.
 *
 * Strings of digits of one length are compared as text: numbers in Lua are doubles. */
#include "view/redis/script.h"

#include <openssl/evp.h>
#include <pthread.h>

#include "base/check.h"

/* clang-format off */
/* For scripts about many edges: each call makes its functions anew. */
#define BASICS                                                                     \
    "local call = redis.call\n"                                                    \
    "local none = string.rep('0', 19)\n"                                           \
    /* makes a list empty and complete, or dropped */                              \
    "local function make(t, empty)\n"                                              \
    "  call('DEL', t)\n"                                                           \
    "  if empty then call('ZADD', t, -1, 'r' .. none)\n"                           \
    "  else call('SET', t, 'd') end\n"                                             \
    "end\n"                                                                        \
    /* makes the account known; its timeline is dropped unless known to be empty */ \
    "local function touch(p, t, id, seen, empty)\n"                                \
    "  if call('HEXISTS', p, id) == 1 then return 0 end\n"                         \
    "  call('HSET', p, id, (empty and 'a' or 'd') .. seen)\n"                      \
    "  make(t, empty)\n"                                                           \
    "  return 1\n"                                                                 \
    "end\n"

#define PRELUDE                                                                    \
    BASICS                                                                         \
    /* the head of a list, or nil */                                               \
    "local function head(t)\n"                                                     \
    "  local s = redis.pcall('ZRANGE', t, 0, 0)[1]\n"                              \
    "  if s and #s >= 20 then return s end\n"                                      \
    "end\n"                                                                        \
    "local function entries(t)\n"                                                  \
    "  if call('TYPE', t).ok ~= 'zset' then return 0 end\n"                        \
    "  local n = call('ZCARD', t)\n"                                               \
    "  if head(t) then n = n - 1 end\n"                                            \
    "  return n\n"                                                                 \
    "end\n"                                                                        \
    "local function set_floor(t, s, floor)\n"                                      \
    "  if floor <= s:sub(2, 20) then return s end\n"                               \
    "  local new = s:sub(1, 1) .. floor .. s:sub(21)\n"                            \
    "  call('ZREM', t, s)\n"                                                       \
    "  call('ZADD', t, -1, new)\n"                                                 \
    "  return new\n"                                                               \
    "end\n"                                                                        \
    "local function trim(t, s, cap)\n"                                             \
    "  local over = call('ZCARD', t) - 1 - cap\n"                                  \
    "  if over <= 0 then return s end\n"                                           \
    "  local out = call('ZRANGE', t, over, over)[1]\n"                             \
    "  call('ZREMRANGEBYRANK', t, 1, over)\n"                                      \
    "  return set_floor(t, s, out)\n"                                              \
    "end\n"                                                                        \
    /* a new entry; returns how many there are more */                             \
    "local function add_one(t, s, ms, id, cap)\n"                                  \
    "  if id <= s:sub(2, 20) then return 0 end\n"                                  \
    "  local before = call('ZCARD', t)\n"                                          \
    "  call('ZADD', t, ms, id)\n"                                                  \
    "  trim(t, s, tonumber(cap))\n"                                                \
    "  return call('ZCARD', t) - before\n"                                         \
    "end\n"                                                                        \
    /* entries at or below the floor go */                                         \
    "local function cut(t, ms, floor)\n"                                           \
    "  call('ZREMRANGEBYSCORE', t, '0', '(' .. ms)\n"                              \
    "  for _, id in ipairs(call('ZRANGEBYSCORE', t, ms, ms)) do\n"                 \
    "    if id > floor then break end\n"                                           \
    "    call('ZREM', t, id)\n"                                                    \
    "  end\n"                                                                      \
    "end\n"                                                                        \
    /* ARGV[from…]: score, id, score, id, … */                                     \
    "local function add_all(t, from, wanted)\n"                                    \
    "  local add = {}\n"                                                           \
    "  for i = from, #ARGV, 2 do\n"                                                \
    "    if wanted(ARGV[i + 1]) then\n"                                            \
    "      add[#add + 1] = ARGV[i]\n"                                              \
    "      add[#add + 1] = ARGV[i + 1]\n"                                          \
    "    end\n"                                                                    \
    "    if #add == 1000 or (i + 2 > #ARGV and #add > 0) then\n"                   \
    "      call('ZADD', t, 'GT', unpack(add))\n"                                   \
    "      add = {}\n"                                                             \
    "    end\n"                                                                    \
    "  end\n"                                                                      \
    "end\n"                                                                        \
    /* ARGV[from…]: ms, id, ms, id, … complete above the floor */                  \
    "local function merge(t, s, cap, ms, floor, from)\n"                           \
    "  if floor > s:sub(2, 20) then\n"                                             \
    "    s = set_floor(t, s, floor)\n"                                             \
    "    cut(t, ms, floor)\n"                                                      \
    "  end\n"                                                                      \
    "  floor = s:sub(2, 20)\n"                                                     \
    "  add_all(t, from, function(id) return id > floor end)\n"                     \
    "  return trim(t, s, cap)\n"                                                   \
    "end\n"                                                                        \
    "local function awake(person, part)\n"                                         \
    "  return person:find(part == 't' and '^[aA]' or '^[AD]') ~= nil\n"            \
    "end\n"                                                                        \
    "local function with(person, part, on)\n"                                      \
    "  local t, i = awake(person, 't'), awake(person, 'i')\n"                      \
    "  if part == 't' then t = on else i = on end\n"                               \
    "  return (t and (i and 'A' or 'a') or (i and 'D' or 'd')) .. person:sub(2)\n" \
    "end\n"                                                                        \
    "local function put_to_sleep(p, t, id, part)\n"                                \
    "  local n = entries(t)\n"                                                     \
    "  call('SET', t, 'd')\n"                                                      \
    "  call('HSET', p, id, with(call('HGET', p, id) or 'd0', part, false))\n"      \
    "  return n\n"                                                                 \
    "end\n"                                                                        \
    /* is this change older than one that was applied already? */                  \
    "local function late(recent, member, event, keep)\n"                           \
    "  local last = call('ZSCORE', recent, member)\n"                              \
    "  event = tonumber(event)\n"                                                  \
    "  if last and tonumber(last) > event then return true end\n"                  \
    "  if event > 0 then\n"                                                        \
    "    call('ZADD', recent, event, member)\n"                                    \
    "    if call('ZCARD', recent) > 1000 then\n"                                   \
    "      local oldest = event - tonumber(keep) * 4096\n"                         \
    "      call('ZREMRANGEBYSCORE', recent, '-inf', string.format('%.0f', oldest))\n" \
    "    end\n"                                                                    \
    "    call('PEXPIRE', recent, keep)\n"                                          \
    "  end\n"                                                                      \
    "  return false\n"                                                             \
    "end\n"                                                                        \
    /* the newest `max` below (ms, id) or from the top ('') */                     \
    "local function page(t, s, ms, below, max, cap)\n"                             \
    "  local n = call('ZCARD', t) - 1\n"                                           \
    "  local floor = s:sub(2, 20)\n"                                               \
    "  if n > cap then\n"                                                          \
    "    local out = call('ZREVRANGE', t, cap, cap)[1]\n"                          \
    "    if out > floor then floor = out end\n"                                    \
    "    n = cap\n"                                                                \
    "  end\n"                                                                      \
    "  if max > n then max = n end\n"                                              \
    "  if max <= 0 then return floor, {} end\n"                                    \
    "  if below == '' then return floor, call('ZREVRANGE', t, 0, max - 1) end\n"   \
    "  local ids = {}\n"                                                           \
    "  for _, id in ipairs(call('ZREVRANGEBYSCORE', t, ms, ms)) do\n"              \
    "    if id < below and #ids < max then ids[#ids + 1] = id end\n"               \
    "  end\n"                                                                      \
    "  if #ids < max then\n"                                                       \
    "    local older = call('ZREVRANGEBYSCORE', t, '(' .. ms, 0, 'LIMIT', 0, max - #ids)\n" \
    "    for _, id in ipairs(older) do\n"                                          \
    "      ids[#ids + 1] = id\n"                                                   \
    "    end\n"                                                                    \
    "  end\n"                                                                      \
    "  return floor, ids\n"                                                        \
    "end\n"

/* How the end of a rebuild begins: one builder less, and a list that is still its generation's. */
#define ENDING                                                                     \
    "if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end\n"                \
    "local t = KEYS[2]\n"                                                          \
    "local s = head(t)\n"                                                          \
    "local known = call('EXISTS', KEYS[3]) == 1\n"                                 \
    "if known and call('DECR', KEYS[3]) <= 0 then call('DEL', KEYS[3]) end\n"      \
    "if not s then return 1 end\n"                                                 \
    "if s:sub(1, 1) == 'r' then return {0} end\n"                                  \
    "if not known or s:sub(21) ~= ARGV[2] then return 1 end\n"

/* ARGV[2…] into a set, except those that an event has changed. */
#define LOADING                                                                    \
    "local function load(set, recent, mark, how)\n"                                \
    "  local known, add, n = call('EXISTS', recent) == 1, {}, 0\n"                 \
    "  for i = 2, #ARGV do\n"                                                      \
    "    if not (known and call('ZSCORE', recent, mark .. ARGV[i])) then\n"        \
    "      if how == 'ZADD' then add[#add + 1] = '0' end\n"                        \
    "      add[#add + 1] = ARGV[i]\n"                                              \
    "    end\n"                                                                    \
    "    if #add >= 1000 or (i == #ARGV and #add > 0) then\n"                      \
    "      n = n + call(how, set, unpack(add))\n"                                  \
    "      add = {}\n"                                                             \
    "    end\n"                                                                    \
    "  end\n"                                                                      \
    "  return n\n"                                                                 \
    "end\n"

/* ARGV[3…]: event, member, … into a set, except those that a later event has changed; which
 * event did is noted, as by late(). */
#define ADDING                                                                     \
    "local function add(set, recent, mark, how, keep)\n"                           \
    "  local latest, members, marks = call('ZRANGE', recent, -1, -1, 'WITHSCORES')[2], {}, {}\n" \
    "  latest = latest and tonumber(latest) or -1\n"                               \
    "  for i = 3, #ARGV, 2 do\n"                                                   \
    "    local event, member = ARGV[i], ARGV[i + 1]\n"                             \
    "    local last = latest > tonumber(event) and call('ZSCORE', recent, mark .. member)\n" \
    "    if not last or tonumber(last) <= tonumber(event) then\n"                  \
    "      if how == 'ZADD' then members[#members + 1] = '0' end\n"                \
    "      members[#members + 1] = member\n"                                       \
    "      marks[#marks + 1] = event\n"                                            \
    "      marks[#marks + 1] = mark .. member\n"                                   \
    "    end\n"                                                                    \
    "  end\n"                                                                      \
    "  if #members == 0 then return 0 end\n"                                       \
    "  call('ZADD', recent, unpack(marks))\n"                                      \
    "  if call('ZCARD', recent) > 1000 then\n"                                     \
    "    local oldest = tonumber(ARGV[#ARGV - 1]) - tonumber(keep) * 4096\n"       \
    "    call('ZREMRANGEBYSCORE', recent, '-inf', string.format('%.0f', oldest))\n" \
    "  end\n"                                                                      \
    "  call('PEXPIRE', recent, keep)\n"                                            \
    "  return call(how, set, unpack(members))\n"                                   \
    "end\n"

/* Scripts say how counts changed, as numbers in a fixed order; the driver adds them up. */
static const char *const texts[SCRIPT_COUNT] = {

/* KEYS people, timeline, inbox  ARGV id, seen, "1": these are empty and complete
 * → new? */
[SCRIPT_account] = PRELUDE
    "local empty = ARGV[3] == '1'\n"
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], ARGV[2], empty)\n"
    "local s = call('HGET', KEYS[1], ARGV[1])\n"
    "if new == 1 then\n"
    "  s = with(s, 'i', empty)\n"
    "  call('HSET', KEYS[1], ARGV[1], s)\n"
    "  make(KEYS[3], empty)\n"
    "end\n"
    "if tonumber(s:sub(2)) < tonumber(ARGV[2]) then\n"
    "  call('HSET', KEYS[1], ARGV[1], s:sub(1, 1) .. ARGV[2])\n"
    "end\n"
    "return new\n",

/* KEYS people, timeline, set, recent  ARGV id, other, on, event, keep, mark in recent
 * → {new account?, members added − removed} */
[SCRIPT_edge] = PRELUDE
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "if late(KEYS[4], ARGV[6] .. ARGV[2], ARGV[4], ARGV[5]) then return {new, 0} end\n"
    "if ARGV[3] == '1' then return {new, call('SADD', KEYS[3], ARGV[2])} end\n"
    "return {new, -call('SREM', KEYS[3], ARGV[2])}\n",

/* KEYS people, timeline, followers, recent, pull list
 * ARGV author, follower (19 digits), on, event, keep
 * → {new account?, followers added − removed, has a pull list?} */
[SCRIPT_followed] = PRELUDE
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "local pulled = call('EXISTS', KEYS[5])\n"
    "if late(KEYS[4], 'b' .. ARGV[2], ARGV[4], ARGV[5]) then return {new, 0, pulled} end\n"
    "if ARGV[3] == '1' then return {new, call('ZADD', KEYS[3], 0, ARGV[2]), pulled} end\n"
    "return {new, -call('ZREM', KEYS[3], ARGV[2]), pulled}\n",

/* Many edges of one account, of no event.
 * KEYS people, timeline, followed, recent  ARGV id, followed…  → {new account?, added} */
[SCRIPT_load_followed] = BASICS LOADING
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "return {new, load(KEYS[3], KEYS[4], 'f', 'SADD')}\n",

/* KEYS people, timeline, followers, recent, pull list  ARGV author, follower (19 digits)…
 * → {new account?, added, has a pull list?} */
[SCRIPT_load_followers] = BASICS LOADING
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "return {new, load(KEYS[3], KEYS[4], 'b', 'ZADD'), call('EXISTS', KEYS[5])}\n",

/* Many edges of one account, each with its event, at most 1000.
 * KEYS people, timeline, followed, recent  ARGV id, keep, (event, followed)…
 * → {new account?, added} */
[SCRIPT_many_followed] = BASICS ADDING
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "return {new, add(KEYS[3], KEYS[4], 'f', 'SADD', ARGV[2])}\n",

/* KEYS people, timeline, followers, recent, pull list
 * ARGV author, keep, (event, follower (19 digits))…  → {new account?, added, has a pull list?} */
[SCRIPT_many_followers] = BASICS ADDING
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "return {new, add(KEYS[3], KEYS[4], 'b', 'ZADD', ARGV[2]), call('EXISTS', KEYS[5])}\n",

/* KEYS people, timeline, inbox, recent  ARGV id, group, on, event, keep, activity
 * → {new account?, entries of a ready inbox} */
[SCRIPT_member] = PRELUDE
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "if late(KEYS[4], 'i' .. ARGV[2], ARGV[4], ARGV[5]) then return {new, 0} end\n"
    "local s = head(KEYS[3])\n"
    "if not s then return {new, 0} end\n"
    "local n\n"
    "if ARGV[3] == '1' then\n"
    "  n = call('ZADD', KEYS[3], 'GT', ARGV[6], ARGV[2])\n"
    "else\n"
    "  n = -call('ZREM', KEYS[3], ARGV[2])\n"
    "  if s:sub(1, 1) == 'b' then call('ZADD', KEYS[3], 0, ARGV[2]) end\n"
    "end\n"
    "return {new, s:sub(1, 1) == 'r' and n or 0}\n",

/* KEYS members, recent  ARGV member, on, event, keep
 * → {members added − removed, groups that have members} */
[SCRIPT_joined] = PRELUDE
    "if late(KEYS[2], 'b' .. ARGV[1], ARGV[3], ARGV[4]) then return {0, 0} end\n"
    "local before, n = call('EXISTS', KEYS[1]), 0\n"
    "if ARGV[2] == '1' then n = call('ZADD', KEYS[1], 0, ARGV[1])\n"
    "else n = -call('ZREM', KEYS[1], ARGV[1]) end\n"
    "return {n, call('EXISTS', KEYS[1]) - before}\n",

/* KEYS inbox  ARGV activity, group  → entries of a ready inbox */
[SCRIPT_message] = PRELUDE
    "local s = head(KEYS[1])\n"
    "if not s then return 0 end\n"
    "local n = call('ZADD', KEYS[1], 'GT', ARGV[1], ARGV[2])\n"
    "return s:sub(1, 1) == 'r' and n or 0\n",

/* KEYS hidden, recent  ARGV id, on, event, keep */
[SCRIPT_hide] = PRELUDE
    "if late(KEYS[2], ARGV[1], ARGV[3], ARGV[4]) then return 0 end\n"
    "return call(ARGV[2] == '1' and 'SADD' or 'SREM', KEYS[1], ARGV[1])\n",

/* KEYS people, timeline, pull list, spread  ARGV id, ms, post, pull?, cap, pull cap
 * → {new account?, entries, new list?, must it be spread to the followers?} */
[SCRIPT_posted] = PRELUDE
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "local added, lists, tell = 0, 0, 0\n"
    "local s = head(KEYS[2])\n"
    "if s then added = add_one(KEYS[2], s, ARGV[2], ARGV[3], ARGV[5]) end\n"
    "if ARGV[4] == '1' then\n"
    "  s = head(KEYS[3])\n"
    "  if not s then\n"
    "    s = 'r' .. none\n"
    "    call('ZADD', KEYS[3], -1, s)\n"
    "    lists = 1\n"
    "  end\n"
    "  add_one(KEYS[3], s, ARGV[2], ARGV[3], ARGV[6])\n"
    "  tell = call('HGET', KEYS[4], ARGV[1]) == 'd' and 0 or 1\n"
    "end\n"
    "return {new, added, lists, tell}\n",

/* KEYS spread, followers  ARGV author, generation, max
 * → {state, {followers}}: "d", or generation and position (spread.c) */
[SCRIPT_spread_page] =
    "local call = redis.call\n"
    "call('HSETNX', KEYS[1], ARGV[1], ARGV[2] .. string.rep('0', 19))\n"
    "local s = call('HGET', KEYS[1], ARGV[1])\n"
    "if s == 'd' then return {s, {}} end\n"
    "return {s, call('ZRANGEBYLEX', KEYS[2], '(' .. s:sub(20), '+', 'LIMIT', 0, ARGV[3])}\n",

/* KEYS spread  ARGV author, state before, state after  → was it that before? */
[SCRIPT_spread_end] =
    "if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end\n"
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])\n"
    "return 1\n",

/* KEYS people, timeline, pull list  ARGV id, post  → {new account?, entries} */
[SCRIPT_unposted] = PRELUDE
    "local new = touch(KEYS[1], KEYS[2], ARGV[1], '0', false)\n"
    "local n = 0\n"
    "if head(KEYS[2]) then n = -call('ZREM', KEYS[2], ARGV[2]) end\n"
    "call('ZREM', KEYS[3], ARGV[2])\n"
    "return {new, n}\n",

/* KEYS timeline  ARGV cap  → entries removed */
[SCRIPT_trim] =
    "if redis.call('ZCARD', KEYS[1]) - 1 <= tonumber(ARGV[1]) then return 0 end\n" /* mostly */
    PRELUDE
    "local s = head(KEYS[1])\n"
    "if not s then return 0 end\n"
    "local before = call('ZCARD', KEYS[1])\n"
    "trim(KEYS[1], s, tonumber(ARGV[1]))\n"
    "return before - call('ZCARD', KEYS[1])\n",

/* KEYS people, timeline, followed, followed with pull lists
 * ARGV id, ms, below, max, cap
 * → 0: no such account; {}: no timeline; {floor, {ids}, {authors}} */
[SCRIPT_home] = PRELUDE
    "local person = call('HGET', KEYS[1], ARGV[1])\n"
    "if not person then return 0 end\n"
    "if not awake(person, 't') then return {} end\n"
    "local s = head(KEYS[2])\n"
    "if not s or s:sub(1, 1) ~= 'r' then return {} end\n"
    "local floor, ids = page(KEYS[2], s, ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))\n"
    "return {floor, ids, call('SINTER', KEYS[4], KEYS[3])}\n",

/* KEYS list  ARGV ms, below, max, cap  → {floor, {ids}}; {}: no such list */
[SCRIPT_page] = PRELUDE
    "local s = head(KEYS[1])\n"
    "if not s then return {} end\n"
    "local floor, ids = page(KEYS[1], s, ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))\n"
    "return {floor, ids}\n",

/* KEYS people, timeline or inbox, builders  ARGV id, anew?, generation, keep, which
 * → 0: no such account; 1: conflict; {generation, entries, was dropped?} */
[SCRIPT_begin] = PRELUDE
    "local person = call('HGET', KEYS[1], ARGV[1])\n"
    "if not person then return 0 end\n"
    "local s = head(KEYS[2])\n"
    "local state = s and s:sub(1, 1)\n"
    "local others = call('EXISTS', KEYS[3])\n"
    "if ARGV[2] == '1' then\n"
    "  if state ~= 'r' or others == 1 then return 1 end\n"
    "elseif state == 'r' then\n"
    "  return 1\n"
    "elseif state == 'b' and others == 1 then\n"
    "  call('INCR', KEYS[3])\n"
    "  call('PEXPIRE', KEYS[3], ARGV[4])\n"
    "  return {s:sub(21), 0, 0}\n"
    "end\n"
    "local n = entries(KEYS[2])\n"
    "call('DEL', KEYS[2])\n"
    "call('ZADD', KEYS[2], -1, 'b' .. none .. ARGV[3])\n"
    "call('SET', KEYS[3], 1, 'PX', ARGV[4])\n"
    "call('HSET', KEYS[1], ARGV[1], with(person, ARGV[5], true))\n"
    "return {ARGV[3], -n, awake(person, ARGV[5]) and 0 or 1}\n",

/* KEYS people, timeline, builders  ARGV id, generation, cap, floor's ms, floor, (ms, post)…
 * → 0: no such account; 1: conflict; {entries} */
[SCRIPT_end] = PRELUDE ENDING
    "local before = call('ZCARD', t)\n"
    "local ready = 'r' .. s:sub(2, 20)\n"
    "call('ZREM', t, s)\n"
    "call('ZADD', t, -1, ready)\n"
    "merge(t, ready, tonumber(ARGV[3]), ARGV[4], ARGV[5], 6)\n"
    "return {call('ZCARD', t) - before}\n",

/* KEYS people, inbox, builders  ARGV id, generation, (activity, group)…
 * → 0: no such account; 1: conflict; {entries: those of a ready inbox only are counted} */
[SCRIPT_inbox_end] = PRELUDE ENDING
    "local left = {}\n"
    "for _, g in ipairs(call('ZRANGEBYSCORE', t, 0, 0)) do left[g] = true end\n"
    "call('ZREM', t, s)\n"
    "call('ZADD', t, -1, 'r' .. none)\n"
    "add_all(t, 3, function(g) return not left[g] end)\n"
    "call('ZREMRANGEBYSCORE', t, 0, 0)\n"
    "return {call('ZCARD', t) - 1}\n",

/* KEYS people, inbox  ARGV id: rebuilds under way will find no inbox, or another generation
 * → {dropped?, entries of a ready inbox} */
[SCRIPT_inbox_drop] = PRELUDE
    "local person = call('HGET', KEYS[1], ARGV[1])\n"
    "if not person then return {0, 0} end\n"
    "local s = head(KEYS[2])\n"
    "local n = put_to_sleep(KEYS[1], KEYS[2], ARGV[1], 'i')\n"
    "return {awake(person, 'i') and 1 or 0, s and s:sub(1, 1) == 'r' and -n or 0}\n",

/* KEYS people, timeline or inbox, builders  ARGV id, generation, which
 * → 0: no such account; 1: conflict; {entries, dropped?} */
[SCRIPT_give_up] = PRELUDE
    "if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end\n"
    "local s = head(KEYS[2])\n"
    "local left = 0\n"
    "if call('EXISTS', KEYS[3]) == 1 then left = call('DECR', KEYS[3]) end\n"
    "if left <= 0 then call('DEL', KEYS[3]) end\n"
    "if not s then return 1 end\n"
    "if s:sub(1, 1) == 'b' and left <= 0 and s:sub(21) == ARGV[2] then\n"
    "  return {-put_to_sleep(KEYS[1], KEYS[2], ARGV[1], ARGV[3]), 1}\n"
    "end\n"
    "return {0, 0}\n",

/* KEYS people, timeline, followed  ARGV id, author, cap, floor's ms, floor, (ms, post)…
 * → 0: no such account; {entries} */
[SCRIPT_backfill] = PRELUDE
    "if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end\n"
    "local s = head(KEYS[2])\n"
    "if not s or call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then return {0} end\n"
    "local before = call('ZCARD', KEYS[2])\n"
    "merge(KEYS[2], s, tonumber(ARGV[3]), ARGV[4], ARGV[5], 6)\n"
    "return {call('ZCARD', KEYS[2]) - before}\n",

/* KEYS people, timeline, followed  ARGV id, author, post…  → 0: no such account; {entries} */
[SCRIPT_forget] = PRELUDE
    "if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end\n"
    "if not head(KEYS[2]) or call('SISMEMBER', KEYS[3], ARGV[2]) == 1 then return {0} end\n"
    "local n = 0\n"
    "for i = 3, #ARGV, 500 do\n"
    "  n = n - call('ZREM', KEYS[2], unpack(ARGV, i, math.min(i + 499, #ARGV)))\n"
    "end\n"
    "return {n}\n",

/* KEYS people, timeline, builders, inbox, its builders  ARGV id, seen before
 * → {timeline dropped?, its entries, inbox dropped?, its entries} */
[SCRIPT_drop] = PRELUDE
    "local person = call('HGET', KEYS[1], ARGV[1])\n"
    "if not person or tonumber(person:sub(2)) >= tonumber(ARGV[2]) then return {0, 0, 0, 0} end\n"
    "local function drop(list, builders, part)\n"
    "  if not awake(person, part) or call('EXISTS', builders) == 1 then return 0, 0 end\n"
    "  return 1, -put_to_sleep(KEYS[1], list, ARGV[1], part)\n"
    "end\n"
    "local t, t_entries = drop(KEYS[2], KEYS[3], 't')\n"
    "local i, i_entries = drop(KEYS[4], KEYS[5], 'i')\n"
    "return {t, t_entries, i, i_entries}\n",

/* KEYS number  ARGV at least → nothing */
[SCRIPT_raise] =
    "local n = redis.call('GET', KEYS[1])\n"
    "if not n or tonumber(n) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end\n"
    "return 0\n",

/* KEYS hidden, witness  ARGV "look", "save", "begin" or "load", now, cluster?, slack, load
 * The witness: when, by which process, of which node. It is sound when that process is still there,
 * or another node has taken over that was there then. A load ends only where its beginning is still
 * noted, for the same process; '0': any load does.
 * → {mark?, sound?, the same process or no witness?, process, history, load ended?} */
[SCRIPT_witness] =
    "local call = redis.call\n"
    "local info = call('INFO', 'server', 'replication')\n"
    "local function say(name) return info:match('\\n' .. name .. ':([^\\r\\n]*)') or '' end\n"
    "local node, run = '', say('run_id')\n"
    "if ARGV[3] == '1' then node = call('CLUSTER', 'MYID') end\n"
    "local mark = call('SISMEMBER', KEYS[1], '0')\n"
    "local at, by, of = (call('GET', KEYS[2]) or ''):match('^(%d+) (%w*) (%w*)$')\n"
    "local sound = 0\n"
    "if at and by == run then\n"
    "  sound = 1\n"
    "elseif at and of ~= node then\n"
    "  local born = tonumber(ARGV[2]) - 1000 * (tonumber(say('uptime_in_seconds')) or 0)\n"
    "  if born <= tonumber(at) + tonumber(ARGV[4]) then sound = 1 end\n"
    "end\n"
    "local loading = 'load ' .. ARGV[5] .. ' ' .. run\n"
    "if ARGV[1] == 'begin' then call('SADD', KEYS[1], loading) end\n"
    "local ended = ARGV[1] == 'load' and (ARGV[5] == '0' or mark == 1 or\n"
    "  call('SREM', KEYS[1], loading) == 1)\n"
    "if ended then call('SADD', KEYS[1], '0') end\n"
    "if ended or (ARGV[1] == 'save' and (sound == 1 or mark == 0)) then\n"
    "  call('SET', KEYS[2], ARGV[2] .. ' ' .. run .. ' ' .. node)\n"
    "end\n"
    "return {mark, sound, (not at or by == run) and 1 or 0, run, say('master_replid'),\n"
    "  ended and 1 or 0}\n",

/* ---- cards; a version key names the latest change or, if there was none for a while, was made by
 * the first ticket. A deleted post's card is 'G' and when it went, in ms. ---- */

#define GONE                                                                       \
    "local function gone(card, now, keep)\n"                                       \
    "  return type(card) == 'string' and card:sub(1, 1) == 'G' and\n"              \
    "    tonumber(now) - tonumber(card:sub(2)) < tonumber(keep)\n"                 \
    "end\n"

/* KEYS card, version  ARGV ticket, card, life, now, tombstone's life  → put? */
[SCRIPT_put_card] = GONE
    "if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end\n"
    "if gone(redis.call('GET', KEYS[1]), ARGV[4], ARGV[5]) then return 0 end\n"
    "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])\n"
    "return 1\n",

/* KEYS card, version  ARGV version, its life, card or '', its life, now, tombstone's life
 * '' forgets the card, but not that it is gone  → nothing */
[SCRIPT_change_card] = GONE
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])\n"
    "if ARGV[3]:sub(1, 1) ~= 'G' and gone(redis.pcall('GET', KEYS[1]), ARGV[5], ARGV[6]) then\n"
    "  return 0\n"
    "end\n"
    "if ARGV[3] == '' then redis.call('DEL', KEYS[1]) return 0 end\n"
    "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])\n"
    "return 0\n",

/* KEYS card, version  ARGV version, its life, the card's life, (offset, bytes)…  → nothing */
[SCRIPT_count_card] =
    "redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])\n"
    "local card = redis.call('GETRANGE', KEYS[1], 0, 0)\n"
    "if card ~= 'Q' and card ~= 'P' then return 0 end\n"
    "for i = 4, #ARGV, 2 do redis.call('SETRANGE', KEYS[1], ARGV[i], ARGV[i + 1]) end\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[3], 'LT')\n"
    "return 0\n",

/* KEYS likes, version  ARGV ticket, life, cap, floor's ms, floor, (ms, post)…  → put? */
[SCRIPT_put_likes] = PRELUDE
    "if call('GET', KEYS[2]) ~= ARGV[1] then return 0 end\n"
    "call('DEL', KEYS[1])\n"
    "local s = 'r' .. none\n"
    "call('ZADD', KEYS[1], -1, s)\n"
    "merge(KEYS[1], s, tonumber(ARGV[3]), ARGV[4], ARGV[5], 6)\n"
    "call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "return 1\n",

/* KEYS likes, version  ARGV version, its life, on, ms, post, cap  → nothing */
[SCRIPT_like] = PRELUDE
    "call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])\n"
    "local s = head(KEYS[1])\n"
    "if not s then return 0 end\n"
    "if ARGV[3] ~= '1' then return call('ZREM', KEYS[1], ARGV[5]) end\n"
    "add_one(KEYS[1], s, ARGV[4], ARGV[5], ARGV[6])\n"
    "return 1\n",
};
/* clang-format on */

enum { NAME_LEN = 40, SHA1_BYTES = 20 };

static char names[SCRIPT_COUNT][NAME_LEN];
static pthread_once_t named = PTHREAD_ONCE_INIT;

static void name_all(void)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        uint8_t digest[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        CHECK(EVP_Digest(texts[i], strlen(texts[i]), digest, &n, EVP_sha1(), NULL) == 1);
        CHECK(n == SHA1_BYTES);
        str_hex(digest, n, names[i]);
    }
}

struct str script_name(enum script_id id)
{
    pthread_once(&named, name_all);
    return (struct str){names[id], NAME_LEN};
}

struct str script_text(enum script_id id)
{
    return str_of(texts[id]);
}
