"""Mutants: small ways to break the program, each with the tests that must notice (script/mutations runs them).

A mutant names a function, so that its text need not be long, and the text is found however its lines are broken. Tests are
tried in their order until one fails: the nearest first. When code moves, move its mutant; when a promise goes, its mutant goes.
"""
import collections

Mutant = collections.namedtuple("Mutant", "what file function text instead tests")

SIM = "test/sim/truth_sim 200"
NODES_SIM = "test/sim/nodes_sim 100"
FEED_SIM = "test/sim/feed_histories"
GROUP_SIM = "test/sim/group_histories"
VIEWS, CARDS = "test/contract/views_contract", "test/contract/cards_contract"
DB, BUS, SIGNAL = "test/contract/db_contract", "test/contract/bus_contract", "test/contract/signal_contract"


def pipe(name):
    return f"test/unit/pipe/pipe_{name}_test"


def model(name):
    return f"test/unit/model/model_{name}_test"


def edge(name):
    return f"test/unit/api/edge/api_{name}_test"


def node(name):
    return f"test/unit/node/node_{name}_test"


def api(name):
    """A script that tests the whole program from outside."""
    return f"test/api/{name}_test.py"


def view(name):
    return f"test/unit/view/{name}_test"


MUTANTS = [Mutant(*row) for row in [
    # ---- deliveries happen once ----
    ("what was done is done again: the dedup memory is not asked", "src/pipe/deliver_once.c", "act_outside",
     "if (a->answer == DEDUP_DONE) return OK;", "", [pipe("deliver_once"), SIM]),
    ("an unknown outcome is simply tried again", "src/pipe/deliver_once.c", "act_outside",
     "if (a->answer == DEDUP_UNKNOWN && !is_ordered_again(a)) return ERR_UNKNOWN_COMMIT;", "", [pipe("deliver_once"), SIM]),
    ("a lost answer counts as a failure, not as unknown", "src/pipe/deliver_once.c", "act_outside",
     "if (e && err_class(e) != ERR_CLASS_RECONCILE) {", "if (e) {", [pipe("deliver_once"), SIM]),
    ("a refused act keeps its claim", "src/pipe/deliver_once.c", "act_outside",
     "(void)db_write(db, run_give_back, a, NULL);", "(void)run_give_back;", [pipe("deliver_once"), SIM]),
    ("an act in truth is not confirmed", "src/pipe/deliver_once.c", "run_in_truth",
     "return e ? e : dedup_confirm(tx, a->rule->consumer, &a->key);", "return e;", [pipe("deliver_once"), SIM]),
    ("a duplicate is not counted", "src/pipe/deliver_once.c", "act_once",
     "if (!e && a.answer == DEDUP_DONE) {", "if (e && a.answer == DEDUP_DONE) {", [pipe("deliver_once"), SIM]),
    ("a key that was claimed is claimed again", "src/pipe/dedup.c", "insert",
     "*inserted = !e && changed == 1;", "*inserted = !e && changed <= 1;", [pipe("dedup"), pipe("deliver_once")]),
    ("a shorter retention forgets at once what was promised longer", "src/pipe/dedup.c", "dedup_begin",
     "if (older && r.keep_ms > keep_ms)", "if (!older && r.keep_ms > keep_ms)", [pipe("dedup")]),
    ("all members of one event have one key", "src/pipe/dedup.c", "dedup_key_of", "buf_u64(&text, member);", "(void)member;",
     [pipe("dedup"), pipe("deliver_once")]),
    # ---- what is undone, and its order ----
    ("a key's later events do not wait for the one in the delivery store", "src/pipe/inflight_keys.c", "inflight_pass_on",
     "if (how == EXIT_RECORDED) order_block(&f->order, key, true);", "(void)how;", [pipe("inflight"), SIM]),
    ("events of one key run side by side", "src/pipe/inflight_keys.c", "inflight_admit",
     "} else if (key->at_work != ORDER_NONE) {", "} else if (key->at_work != ORDER_NONE && f->max == 0) {",
     [pipe("inflight"), SIM]),
    ("a lane without order keeps one", "src/pipe/inflight_keys.c", "inflight_is_ordered",
     "return u->rule != RULE_NONE && lane_is_ordered(f->rules[u->rule].lane);", "(void)f; return u->rule != RULE_NONE;",
     [pipe("inflight"), SIM]),
    ("the inflight table takes one more than it may", "src/pipe/inflight.c", "room",
     "return taken < f->max ? f->max - taken : 0;", "return taken <= f->max ? f->max - taken + 1 : 0;", [pipe("inflight")]),
    ("a key that goes forgets that it was blocked", "src/pipe/order.c", "order_drop", "order_block(o, key, false);", "",
     [pipe("order"), pipe("inflight")]),
    ("one key is the same in every lane", "src/pipe/order.c", "order_get",
     "(const uint64_t[]){key_of(key), lane}", "(const uint64_t[]){key_of(key), 0 * lane + 1}", [pipe("order"), pipe("inflight")]),
    # ---- retries ----
    ("retries come at once, without the ladder", "src/pipe/retry.c", "retry_delay_ms",
     "return asked_ms > delay_ms ? asked_ms : delay_ms;", "return asked_ms + 0 * delay_ms;", [pipe("retry"), SIM]),
    ("what the other side asks for is ignored", "src/pipe/retry.c", "retry_delay_ms",
     "return asked_ms > delay_ms ? asked_ms : delay_ms;", "return delay_ms;", [pipe("retry"), SIM]),
    ("the other side may ask for any wait", "src/pipe/retry.c", "retry_delay_ms",
     "asked_ms = RETRY_ASKED_MAX_MS;", "asked_ms = asked_ms - 1;", [pipe("retry")]),
    ("critical deliveries are tried less often", "src/pipe/retry.c", None, "[PRIORITY_CRITICAL] = 6,", "[PRIORITY_CRITICAL] = 5,",
     [pipe("retry"), SIM]),
    ("a claim has no lease: it is due again at once", "src/pipe/delivery_claim.c", "claim_row",
     ".due_ms = l->now_ms + lease_ms,", ".due_ms = l->now_ms + 0 * lease_ms,", [pipe("delivery_store"), SIM]),
    ("what is retrying when its claim ends is forgotten", "src/pipe/delivery_claim.c", "delivery_store_claim",
     "WHERE state IN (1, 2) AND due_at <= $1", "WHERE state = 1 AND due_at <= $1", [pipe("delivery_store"), SIM]),
    ("a retry goes on in the middle of a walk over other views", "src/pipe/delivery_claim.c", "begin_anew",
     "d->cursor.after = 0; d->until = 0;", "", [pipe("delivery_store"), pipe("delivery_model"), SIM]),
    ("an order to try again stays for every later try", "src/pipe/delivery_claim.c", "claim_row",
     ".reason = forced ? \"FORCED\" : NULL", ".reason = forced && l->now_ms < 0 ? \"FORCED\" : NULL", [pipe("delivery_admin")]),
    # ---- the delivery store ----
    ("a key goes on with its newest event", "src/pipe/delivery_ledger.c", "order_key",
     "ORDER BY event_id, id LIMIT 1", "ORDER BY event_id DESC, id LIMIT 1", [pipe("delivery_model"), SIM]),
    ("a delivery that leaves the store is still counted", "src/pipe/delivery_ledger.c", "ledger_remove",
     "error = count(l, e, e->state, e->reason, -1);", "error = OK;", [pipe("delivery_model"), SIM]),
    ("two of one key have a turn", "src/pipe/delivery_ledger.c", "order_key",
     "if (busy && first.state == DELIVERY_DELAYED)", "if (busy && first.state == DELIVERY_DONE)",
     [pipe("delivery_model"), pipe("delivery_admin"), SIM]),
    ("who waits never has a turn", "src/pipe/delivery_ledger.c", "order_key",
     "if (!busy && first.state == DELIVERY_WAITING)", "if (busy && first.state == DELIVERY_WAITING)",
     [pipe("delivery_model"), SIM]),
    # ---- outbox, watermark, commit queue ----
    ("the watermark is not saved with the rows that it settles", "src/pipe/outbox.c", "run_settle",
     "if (!e) e = save_watermark(tx, end);", "(void)save_watermark;", [pipe("outbox"), SIM]),
    ("settling sweeps up events that were released and not delivered", "src/pipe/outbox.c", None,
     "AND deliveries.consumer = '') \"", "AND deliveries.consumer = '-') \"", [pipe("outbox"), SIM]),
    ("events leave the outbox before the views are saved", "src/pipe/watermark.c", "trim",
     "if (stats.saved_position < through) through = stats.saved_position;", "", [pipe("watermark"), SIM]),
    ("settled events are not retained", "src/pipe/watermark.c", "trim",
     "if (g->config.retain_settled_ms > 0 && retained < through) through = retained;", "(void)retained;",
     [pipe("watermark"), SIM]),
    ("an event is offered twice by the commit hook", "src/pipe/commit_queue.c", "commit_queue_push",
     "if (e->id <= atomic_load_explicit(&h->offered, memory_order_relaxed)) return false;", "", [pipe("commit_queue")]),
    ("a full commit queue forgets that it missed an event", "src/pipe/commit_queue.c", "commit_queue_push",
     "atomic_store(&h->missed, e->id);", "", [pipe("commit_queue"), pipe("relay"), SIM]),
    ("what was read from the table stays missed", "src/pipe/commit_queue.c", "commit_queue_read",
     "missed > through ? through + 1 : 0", "missed > 0 ? through + 1 : 0", [pipe("commit_queue"), pipe("relay")]),
    # ---- workers ----
    ("a copy of a message is worked on like the first", "src/pipe/worker.c", "take_up",
     "if (engine_may_repeat(g) && !inflight_take_up(&g->inflight, m)) {",
     "if (engine_may_repeat(g) && !inflight_take_up(&g->inflight, m) && !g->bus) {", [pipe("worker"), pipe("engine"), SIM]),
    ("a replay uses every channel", "src/pipe/worker.c", "take_up", "if (!outcome_allows(g, m)) {",
     "if (!outcome_allows(g, m) && !g->bus) {", [pipe("engine"), pipe("replay"), SIM]),
    ("work of a former leader is done", "src/pipe/worker.c", "is_passed_over", "if (!engine_knows_term(g, m->term)) {",
     "if (!engine_knows_term(g, m->term) && !g->bus) {", [pipe("lead"), NODES_SIM]),
    ("work that only newer programs know is done", "src/pipe/worker.c", "is_passed_over",
     "if (m->rule >= g->rule_count || g->rules[m->rule].on != m->event.type) {", "if (m->rule >= g->rule_count) {",
     [pipe("lead"), NODES_SIM]),
    ("a breaker never opens", "src/pipe/breaker.c", "judge", "if (failed <= total - failed)", "if (failed <= total)",
     [pipe("breaker")]),
    ("one key's failures stop a lane", "src/pipe/breaker.c", "judge", "|| b->key_count < BREAKER_KEYS)", ")", [pipe("breaker")]),
    # ---- leadership and membership ----
    ("a lease is taken although it changed since the look", "src/node/lease.c", "lease_take",
     "WHERE name = $1 AND term = $3 AND holder = $4 AND beat = $5", "WHERE name = $1 AND $3 >= 0 AND $4 >= 0 AND $5 >= 0",
     [node("lease"), NODES_SIM]),
    ("who was silent too long renews all the same", "src/node/lease.c", "lease_renew",
     "if (!lease_is_held(l, now_us)) return ERR_CONFLICT;", "", [node("lease"), NODES_SIM]),
    ("a silent holder keeps the lease for ever", "src/node/lease.c", "lease_is_free",
     "return now_us - l->moved_us >= LEASE_SILENCE_MS * INT64_C(1000);", "return now_us < l->moved_us;",
     [node("lease"), NODES_SIM]),
    ("a new holder keeps the old term", "src/node/lease.c", "lease_take",
     "SET term = term + 1, holder = $2", "SET term = term, holder = $2", [node("lease"), NODES_SIM]),
    ("a node of a newer version is believed", "src/node/peer.c", "is_understood",
     "return !version.ptr || read_number(version, PEER_VERSION, &number);",
     "return !version.ptr || read_number(version, UINT64_MAX, &number);", [node("peer")]),
    ("a lane that the leader stopped goes on elsewhere", "src/node/peer.c", "read_lane",
     "(struct lane_override){true, (uint32_t)c, (uint32_t)r, stopped};",
     "(struct lane_override){true, (uint32_t)c, (uint32_t)r, false && stopped};", [node("peer")]),
    ("a number is taken from a node that still speaks", "src/node/nodes.c", "find_silent",
     "if (now_us - n->moved_us >= NODE_SILENCE_MS * INT64_C(1000))", "if (now_us >= n->moved_us)", [node("nodes"), NODES_SIM]),
    ("silent nodes are never forgotten", "src/node/nodes.c", "run_forget", "if (n->shown.silent_ms >= NODE_FORGET_MS)",
     "if (n->shown.silent_ms >= 1000 * (int64_t)NODE_FORGET_MS)", [node("nodes")]),
    ("a lost change is answered for while other nodes trust the views", "src/node/membership_views.c", "membership_views_lost",
     "pause_ms(m, MEMBER_SUSPECT_MS - for_ms);", "pause_ms(m, 0 * (MEMBER_SUSPECT_MS - for_ms));", [NODES_SIM]),
    ("views are trusted long after the last look at truth", "src/node/membership_views.c", "membership_decide_trust",
     "age_us > MEMBER_TRUST_MS * INT64_C(1000);", "age_us > 10 * MEMBER_TRUST_MS * INT64_C(1000);", [node("membership"), NODES_SIM]),
    # ---- the commit hook ----
    ("an answer goes out before the views have its change", "src/node/commit.c", "committed",
     "event_apply(c->api->views, c->api->cards, &events[i]);", "(void)event_apply;", [api("graph"), api("feed")]),
    ("a session that was ended lives on in the cache of callers", "src/node/commit.c", "committed",
     "auth_committed(c->api->auth, events, n);", "(void)auth_committed;", [api("sessions")]),
    ("open streams do not hear of commits", "src/node/commit.c", "committed",
     "live_committed(c->api->live, events, n);", "(void)live_committed;", [api("stream")]),
    # ---- kept pages ----
    ("a kept page ignores changed cards", "src/api/edge/page_cache.c", "is_right",
     "== OK && same && cards_are_the_same(c, p);", "== OK && same && (cards_are_the_same(c, p) || p->refs > 0);",
     [edge("page_cache")]),
    ("a kept page ignores changed views", "src/api/edge/page_cache.c", "is_right",
     "== OK && same && cards_are_the_same(c, p);", "== OK && (same || !same) && cards_are_the_same(c, p);",
     [edge("page_cache")]),
    ("a page that changed while it was drawn is kept", "src/api/edge/page_cache.c", "end_draft",
     "return !changed_meanwhile(c, draft);", "(void)changed_meanwhile(c, draft); return true;", [edge("page_cache")]),
    ("a page out of truth is kept", "src/api/edge/page_cache.c", "end_draft",
     "if (!page || !draft->good || !page->lasting || page->count > FEED_LIMIT_DEFAULT)",
     "if (!page || !draft->good || page->count > FEED_LIMIT_DEFAULT)", [edge("page_cache")]),
    ("the post beyond the page does not count", "src/api/edge/page_cache.c", "gather_keys",
     "if (page->beyond) keys[n++] = page->beyond;", "", [edge("page_cache")]),
    # ---- groups ----
    ("somebody who left may write", "src/model/group_message.c", None,
     "\"AND left_seq IS NULL) \" \\ \"AND EXISTS (SELECT 1 FROM accounts WHERE id = $2 AND state = 0) \"",
     "\") \" \\\n    \"AND EXISTS (SELECT 1 FROM accounts WHERE id = $2 AND state = 0) \"", [model("group"), GROUP_SIM]),
    ("a message with a client_id of another body is answered as sent", "src/model/group_message.c", "explain_refusal",
     "if (!e && !same)", "if (!e && !same && in->group == 0)", [model("group")]),
    ("who is mentioned need not be a member", "src/model/group_message.c", "mention",
     "if (written != (int64_t)n)", "if (written > (int64_t)n)", [model("group")]),
    ("a newcomer has everything unread", "src/model/group_member.c", "join",
     "\"read_seq, read_count) VALUES ($1, $2, $3, $4, $5, $4, $6) \"",
     "\"read_seq, read_count) VALUES ($1, $2, $3, $4, $5, 0, $6) \"", [model("group"), GROUP_SIM]),
    ("members give roles", "src/model/group_member.c", "change_role", "if (g->role != GROUP_OWNER)",
     "if (g->role == GROUP_MEMBER)", [model("group")]),
    ("a group has two owners", "src/model/group_member.c", "change_role", "if (wanted == GROUP_OWNER)",
     "if (wanted == GROUP_OWNER && actor == account)", [model("group")]),
    ("a block does not keep somebody out of a group", "src/model/group_member.c", "check_newcomer",
     "check_may_meet(tx, actor, account)", "check_may_meet(tx, account, account)", [api("groups")]),
    ("an invitation stays after joining", "src/model/group_member.c", "withdraw",
     "DELETE FROM group_invitations WHERE account_id = $1 AND group_id = $2",
     "DELETE FROM group_invitations WHERE account_id = $2 AND group_id = $1", [model("group")]),
    ("somebody chats with a person who blocks them", "src/model/chat.c", "chat_open",
     "check_may_meet(tx, account, other)", "check_may_meet(tx, other, other)", [api("groups")]),
    ("a fragment is attached to another caption", "src/view/memory/cards.c", "attach_post",
     "if (e && old && str_eq(old->card.caption, e->card.caption)) {", "if (e && old) {", [CARDS]),
    # ---- inboxes ----
    ("a late message moves a group down", "src/view/memory/inbox.c", "inbox_raise_slow",
     "if (activities[at] >= activity)", "if (activities[at] == activity)", [view("inbox"), VIEWS]),
    ("a drop does not spoil the rebuild that runs", "src/view/memory/inbox.c", "inbox_drop",
     "b->spoiled = b->builders > 0;", "b->spoiled = false;", [view("inbox"), VIEWS]),
    ("a group that was left comes back with a rebuild", "src/view/memory/inbox.c", "inbox_leave",
     "if (b->state == INBOX_BUILDING)", "if (b->state == INBOX_BUILDING && group == 0)", [view("inbox"), view("inbox_model")]),
    ("large groups push to everybody", "src/model/group_sinks.c", "is_large",
     "s.members >= env->group_pull_threshold", "s.members > env->group_pull_threshold", [model("group_fanout")]),
    ("who was not here lately keeps a stale inbox", "src/model/group_sinks.c", "push_or_drop",
     "if (!error && drops > 0)", "if (!error && drops > n)", [model("group_fanout"), GROUP_SIM]),
    ("an earlier message outdoes a later one", "src/model/group_sinks.c", "is_outdone",
     "calls[k].event->id > calls[i].event->id", "calls[k].event->id < calls[i].event->id", [model("group_fanout")]),
    # ---- timelines, tombstones, celebrities, follows ----
    ("a deleted post can come back", "src/view/memory/tombstones.c", "tombstones_add", "t->gone_at_ms = now_ms;",
     "t->gone_at_ms = now_ms - TOMBSTONE_MS;", [CARDS]),
    ("a full timeline keeps silent about what it lost", "src/view/memory/timeline.c", "raise_floor",
     "if (id > t->floor)", "if (id > t->floor && id == 0)", [view("timeline"), VIEWS]),
    ("a post below the floor is taken", "src/view/memory/timeline.c", "timeline_add_slow",
     "if (t->state == TIMELINE_DROPPED || id <= t->floor)", "if (t->state == TIMELINE_DROPPED)", [view("timeline"), VIEWS]),
    ("a post is in a timeline twice", "src/view/memory/timeline.c", "timeline_add_slow",
     "if (!newer && find(t, id).found)", "if (!newer && find(t, id).found && id == 0)", [view("timeline"), VIEWS]),
    ("classes change without hysteresis", "src/model/celebrity.c", "is_too_small",
     "followers * 100 < threshold * CELEBRITY_CEASE_PERCENT", "followers < threshold + 0 * CELEBRITY_CEASE_PERCENT",
     [model("celebrity")]),
    ("a celebrity begins one follower too late", "src/model/celebrity.c", "must_cross", "followers >= threshold",
     "followers > threshold", [model("celebrity"), model("follow")]),
    ("somebody follows themselves", "src/model/follow.c", "follow_create", "if (follower == followee)",
     "if (follower == 0 && followee == 0)", [model("follow")]),
    ("a block does not hinder a follow", "src/model/follow.c", "follow_create",
     "check_may_meet(tx, follower, followee)", "check_may_meet(tx, followee, followee)", [model("follow")]),
    # ---- the edge ----
    ("a cursor of another person is taken", "src/api/edge/cursor.c", "cursor_read", "if (load(bytes + 12, 8) != owner) {",
     "if (load(bytes + 12, 8) != owner && owner == 0) {", [edge("cursor")]),
    ("a forged cursor is taken", "src/api/edge/cursor.c", "cursor_read",
     "if (sodium_memcmp(mac, bytes + FIELDS_BYTES, MAC_BYTES) != 0)",
     "if (sodium_memcmp(mac, bytes + FIELDS_BYTES, MAC_BYTES - 8) != 0)", [edge("cursor")]),
    ("a revoked token lives on in the cache", "src/api/edge/auth_cache.c", "is_forgotten",
     "return id != 0 && atomic_load(&c->forgotten[stripe_of(id)]) > stamp;",
     "return id != 0 && atomic_load(&c->forgotten[stripe_of(id)]) > stamp + 1000;", [edge("auth_cache")]),
    ("an expired JWT is taken", "src/api/edge/jwt.c", "claims_fault", "if (now_s >= exp + JWT_LEEWAY_S)",
     "if (now_s >= exp + 10 * JWT_LEEWAY_S)", [edge("jwt")]),
    ("a JWT for another audience is taken", "src/api/edge/jwt.c", "claims_fault",
     "if (audience[0] && !audience_fits(claims, audience))", "if (audience[0] && !audience_fits(claims, audience) && now_s < 0)",
     [edge("jwt")]),
    ("a repeated key with another body is answered as before", "src/api/edge/idempotency.c", "same_body",
     "return memcmp(a, b, IDEMPOTENCY_FINGERPRINT_BYTES) == 0;", "(void)a; (void)b; return true;", [edge("idempotency")]),
    ("a failed answer is kept under its key", "src/api/edge/idempotency.c", "idempotency_keeps",
     "return (status >= 200 && status < 300)", "return (status >= 200 && status < 300) || status == 503", [edge("idempotency")]),
    # ---- signals between nodes ----
    ("a consumer that fell behind is not told that it missed something", "src/signal/local.c", "consume",
     "s->published - at > KEEP;", "s->published - at > UINT64_MAX / 2;", [SIGNAL]),
    ("a cursor of nobody reads from the beginning", "src/signal/local.c", "consume",
     "out->missed = cursor->part[0] != STARTED || ", "out->missed = ", [SIGNAL]),
    ("who has read a batch is not told that there is more", "src/signal/local.c", "consume",
     "out->more = at < s->published;", "out->more = at > s->published;", [SIGNAL]),
    # ---- base, bus, store, limits ----
    ("a removal tears a hole into a map", "src/base/map.c", "map_remove",
     "if (((at - home) & mask) >= ((at - hole) & mask)) {", "if (((at - home) & mask) > ((at - hole) & mask) + mask) {",
     ["test/unit/base/map_test"]),
    ("a bounded cache has no bound", "src/base/cache.c", "make_room", "while (c->bytes + bytes > c->bytes_max) {",
     "while (c->bytes + bytes > 2 * c->bytes_max) {", ["test/unit/base/cache_test", edge("page_cache")]),
    ("ids go backwards with the clock of another node", "src/base/id.c", "id_gen_raise",
     "while (old < last &&", "while (old > last &&", ["test/unit/base/id_test"]),
    ("a full lane takes more", "src/bus/local.c", "local_publish",
     "+ q->taken < l->limit;", "+ q->taken < l->limit + 1;", ["test/unit/bus/bus_local_test", BUS]),
    ("a message that is tried again has no more tries than before", "src/bus/local.c", "local_retry",
     "if (s->message.tries < UINT16_MAX)", "if (s->message.tries > UINT16_MAX / 2)", ["test/unit/bus/bus_local_test", BUS]),
    ("a store of a newer program is opened", "src/db/schema.c", "schema_first_step", "if (version > known)",
     "if (version > known + 1000)", ["test/unit/db/sqlite_schema_test", DB]),
    ("a schema step is left out", "src/db/schema.c", "schema_first_step", "steps[*first].to <= version)",
     "steps[*first].to <= version + 1)", ["test/unit/db/sqlite_schema_test", DB]),
    ("the overload guard lets go at once", "src/ops/overload_guard.c", "level_by_backlog",
     "(before == 2 && backlog > limit - limit / 10)", "(before == 2 && backlog > limit)",
     ["test/unit/ops/ops_overload_guard_test"]),
    ("the reserve is counted as free space", "src/ops/overload_guard.c", "see_room",
     "return free_bytes > c->reserve_bytes ? free_bytes - c->reserve_bytes : 0;", "return free_bytes + 0 * c->reserve_bytes;",
     ["test/unit/ops/ops_overload_guard_test"]),
    ("a rate limit allows twice as much", "src/net/limits.c", "interval_of",
     "NS_PER_S / rate_per_s;", "NS_PER_S / rate_per_s / 2;", ["test/unit/net/net_limits_test"]),
]]
