/* Items of inboxes from cards.
 *
 * An item is two cards and, of a chat, a third: the group with its last message, which all members
 * share; the membership, which only its owner reads; the account of the other one. A message
 * changes the first alone, but for its author, so that one reader's look at truth serves all other
 * members.
 *
 * Each card is filled with tickets that were taken before truth was read (port/cards.h), and
 * forgotten by the commit hook before the write that changed it is answered. So no card is older
 * than any write that was answered before the read began.
 *
 * Two cards may still be of two moments: another reader has read a group in truth after a COMMIT
 * whose event has not been applied yet. What that could show is seen here and left to truth, which
 * has one snapshot: a mark beyond the group's end, and a last message of the reader's own that the
 * mark does not cover.
 *
 * Of a chat the other one's account is known only when truth has been read, too late for a ticket.
 * A chat's members never change: so who it is is kept with the first look, and the rest with the
 * second. */
#include "model/inbox_cards.h"

#include "base/check.h"

/* ---- looking ---- */

static bool belong_together(const struct group_card *g, const struct member_card *m,
                            uint64_t account)
{
    return m->read_seq <= g->seq && m->read_count + m->deleted <= g->messages &&
           m->joined_seq <= g->seq &&
           (g->last_author != account || m->read_seq >= g->last_seq || g->last_seq < m->joined_seq);
}

static void compose(const struct group_card *g, const struct member_card *m,
                    const struct account_card *peer, struct inbox_item *out)
{
    *out = (struct inbox_item){
        .group =
            {
                .id = g->id,
                .kind = (enum group_kind)g->kind,
                .name = g->name,
                .history = (enum group_history)g->history,
                .member_count = g->member_count,
                .seq = g->seq,
                .messages = g->messages,
                .last_seq = g->last_seq,
                .last_id = g->last_id,
                .role = (enum group_role)m->role,
                .joined_seq = m->joined_seq,
                .read_seq = m->read_seq,
                .read_count = m->read_count,
                .joined_id = m->joined_id,
                .muted = m->muted,
                .archived = m->archived,
            },
        .peer = m->peer,
        .unread = g->messages - m->read_count - m->deleted,
        .mentions = m->mentions,
        .deleted = m->deleted,
    };
    out->activity = group_activity(&out->group);
    if (m->peer && !m->peer_hidden)
        out->group.peer = *peer;
    if (g->has_last)
        out->last = (struct group_entry){
            .group = g->id,
            .seq = g->last_seq,
            .kind = ENTRY_MESSAGE,
            .author = g->last_author,
            .client_id = g->last_client_id,
            .body = g->last_body,
            .created_at_ms = g->last_created_at_ms,
            .edited_at_ms = g->last_edited_at_ms,
            .deleted = g->last_deleted,
        };
}

/* The accounts that are shown beside chats; false: not all are known. */
static bool find_peers(const struct inbox_look *look, struct arena *arena,
                       struct account_card *peers)
{
    uint64_t ids[INBOX_LIMIT_MAX];
    struct account_card *found = NULL;
    size_t n = 0;
    for (size_t i = 0; i < look->n; i++) {
        if (look->members[i].peer && !look->members[i].peer_hidden)
            ids[n++] = look->members[i].peer;
    }
    if (n == 0)
        return true;
    found = ARENA_ARRAY(arena, struct account_card, n);
    cards_accounts(look->cards, ids, n, found, arena);
    for (size_t i = 0, at = 0; i < look->n; i++) {
        if (!look->members[i].peer || look->members[i].peer_hidden)
            continue;
        peers[i] = found[at++];
        if (!peers[i].id)
            return false;
    }
    return true;
}

bool inbox_look(struct inbox_look *look, struct cards *cards, uint64_t account,
                const uint64_t *groups, size_t n, struct arena *arena, struct inbox_item *out,
                size_t *count)
{
    CHECK(n <= INBOX_LIMIT_MAX);
    look->cards = cards;
    look->account = account;
    look->groups = groups;
    look->n = n;
    cards_members(cards, account, groups, n, look->members);
    for (size_t i = 0; i < n; i++) {
        if (!look->members[i].group)
            return false;
    }
    struct group_card *found = ARENA_ARRAY(arena, struct group_card, n);
    struct account_card *peers = ARENA_ARRAY(arena, struct account_card, n);
    cards_groups(cards, groups, n, found, arena);
    if (!find_peers(look, arena, peers))
        return false;
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct member_card *m = &look->members[i];
        if (m->left)
            continue;
        if (!found[i].id || !belong_together(&found[i], m, account))
            return false;
        compose(&found[i], m, &peers[i], &out[(*count)++]);
    }
    return true;
}

/* ---- filling ---- */

void inbox_fill_begin(struct inbox_look *look)
{
    uint64_t keys[3 * INBOX_LIMIT_MAX + 1];
    card_ticket tickets[3 * INBOX_LIMIT_MAX + 1];
    size_t n = 0;
    keys[n++] = cards_inbox_key(look->account);
    for (size_t i = 0; i < look->n; i++) {
        keys[n++] = look->groups[i];
        keys[n++] = cards_members_key(look->groups[i]);
        keys[n++] = look->members[i].peer; /* 0: none */
    }
    (void)cards_tickets(look->cards, keys, n, tickets);
    look->inbox = tickets[0];
    for (size_t i = 0; i < look->n; i++) {
        look->group[i] = tickets[3 * i + 1];
        look->member[i] = tickets[3 * i + 2];
        look->peer[i] = tickets[3 * i + 3];
    }
}

static struct group_card group_card_of(const struct inbox_item *item)
{
    const struct group *g = &item->group;
    const struct group_entry *last = &item->last;
    return (struct group_card){
        .id = g->id,
        .kind = (uint8_t)g->kind,
        .history = (uint8_t)g->history,
        .has_last = last->seq != 0,
        .last_deleted = last->deleted,
        .member_count = g->member_count,
        .seq = g->seq,
        .messages = g->messages,
        .last_seq = g->last_seq,
        .last_id = g->last_id,
        .last_author = last->author,
        .last_created_at_ms = last->created_at_ms,
        .last_edited_at_ms = last->edited_at_ms,
        .name = g->name,
        .last_client_id = last->client_id,
        .last_body = last->body,
    };
}

static struct member_card member_card_of(const struct inbox_look *look, size_t i,
                                         const struct inbox_item *item)
{
    const struct group *g = &item->group;
    return (struct member_card){
        .group = g->id,
        .peer = item->peer,
        .joined_id = g->joined_id,
        .joined_seq = g->joined_seq,
        .read_seq = g->read_seq,
        .read_count = g->read_count,
        .mentions = item->mentions,
        .deleted = item->deleted,
        .members_ticket = look->member[i],
        .peer_ticket = look->peer[i],
        .role = (uint8_t)g->role,
        .muted = g->muted,
        .archived = g->archived,
        .peer_hidden = g->peer.id == 0,
        .stale = item->peer && item->peer != look->members[i].peer,
    };
}

void inbox_fill_end(struct inbox_look *look, const struct inbox_item *rows, size_t count,
                    struct arena *arena)
{
    struct group_card *groups = ARENA_ARRAY(arena, struct group_card, look->n);
    struct member_card *members = ARENA_ARRAY(arena, struct member_card, look->n);
    struct card_write *writes = ARENA_ARRAY(arena, struct card_write, 2 * look->n + 1);
    size_t n = 0, at = 0; /* rows come in the order of the groups, some are left out */
    for (size_t i = 0; i < look->n; i++) {
        if (at == count || rows[at].group.id != look->groups[i]) {
            members[i] = (struct member_card){
                .group = look->groups[i], .left = true, .members_ticket = look->member[i]};
            continue;
        }
        const struct inbox_item *row = &rows[at++];
        groups[i] = group_card_of(row);
        members[i] = member_card_of(look, i, row);
        writes[n++] = (struct card_write){
            .kind = CARD_FILL_GROUP, .ticket = look->group[i], .group = &groups[i]};
        if (row->group.peer.id && !members[i].stale)
            writes[n++] = (struct card_write){
                .kind = CARD_FILL_ACCOUNT, .ticket = look->peer[i], .account = &row->group.peer};
    }
    CHECK(at == count);
    writes[n++] = (struct card_write){.kind = CARD_FILL_MEMBERS,
                                      .ticket = look->inbox,
                                      .viewer = look->account,
                                      .members = members,
                                      .count = look->n};
    cards_write(look->cards, writes, n);
}
