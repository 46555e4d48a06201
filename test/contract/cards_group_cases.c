/* The cards contract of groups and what they are to their members. A shared driver keeps neither.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cards_cases.h"

enum { THE_GROUP = 21, ANOTHER_GROUP = 22, THE_CHAT = 23, THE_MEMBER = 31, THE_PEER = 32 };

static void forget(struct fixture *f, enum card_write_kind kind, uint64_t viewer, uint64_t id)
{
    cards_write(f->c, &(struct card_write){.kind = kind, .viewer = viewer, .id = id}, 1);
}

static void fill_group(struct fixture *f, card_ticket ticket, const char *name)
{
    const struct group_card g = {.id = THE_GROUP,
                                 .kind = 1,
                                 .has_last = true,
                                 .member_count = 3,
                                 .seq = 9,
                                 .messages = 4,
                                 .last_seq = 8,
                                 .last_id = 77,
                                 .last_author = THE_MEMBER,
                                 .last_created_at_ms = NOW_MS,
                                 .name = str_of(name),
                                 .last_body = STR("hello")};
    cards_write(f->c, &(struct card_write){.kind = CARD_FILL_GROUP, .ticket = ticket, .group = &g},
                1);
}

static struct group_card get_group(struct fixture *f)
{
    struct group_card g = {0};
    uint64_t id = THE_GROUP;
    cards_groups(f->c, &id, 1, &g, &f->arena);
    return g;
}

void a_group_comes_back_until_it_is_forgotten(void **state)
{
    struct fixture *f = *state;
    card_ticket ticket = cards_ticket(f->c, THE_GROUP);
    assert_int_equal(get_group(f).id, 0);
    fill_group(f, ticket, "birds");
    if (f->c->shared) { /* keeps none: nobody would tell it of a change */
        assert_int_equal(get_group(f).id, 0);
        return;
    }
    struct group_card g = get_group(f);
    assert_int_equal(g.id, THE_GROUP);
    assert_true(str_eq(g.name, STR("birds")) && str_eq(g.last_body, STR("hello")));
    assert_null(g.last_client_id.ptr);
    assert_int_equal(g.seq, 9);
    assert_int_equal(g.last_author, THE_MEMBER);
    forget(f, CARD_FORGET_GROUP, 0, THE_GROUP);
    assert_int_equal(get_group(f).id, 0);
    fill_group(f, ticket, "read before the change");
    assert_int_equal(get_group(f).id, 0);
    fill_group(f, cards_ticket(f->c, THE_GROUP), "fish");
    assert_true(str_eq(get_group(f).name, STR("fish")));
    cards_suspect(f->c, true);
    assert_int_equal(get_group(f).id, 0);
}

static struct member_card member(struct fixture *f, uint64_t group, uint64_t peer, int64_t read_seq)
{
    return (struct member_card){.group = group,
                                .peer = peer,
                                .read_seq = read_seq,
                                .members_ticket = cards_ticket(f->c, cards_members_key(group)),
                                .peer_ticket = cards_ticket(f->c, peer)};
}

static void fill_members(struct fixture *f, card_ticket ticket, const struct member_card *members,
                         size_t n)
{
    cards_write(f->c,
                &(struct card_write){.kind = CARD_FILL_MEMBERS,
                                     .ticket = ticket,
                                     .viewer = THE_MEMBER,
                                     .members = members,
                                     .count = n},
                1);
}

/* What is known of the three groups: a digit each, the mark, or '-'. */
static const char *known_members(struct fixture *f)
{
    static char text[4];
    const uint64_t groups[] = {THE_GROUP, ANOTHER_GROUP, THE_CHAT};
    struct member_card out[3];
    cards_members(f->c, THE_MEMBER, groups, 3, out);
    for (size_t i = 0; i < 3; i++)
        text[i] = out[i].group == groups[i] ? (char)('0' + out[i].read_seq) : '-';
    return text;
}

static void fill_three(struct fixture *f)
{
    const struct member_card three[] = {member(f, THE_GROUP, 0, 1), member(f, ANOTHER_GROUP, 0, 2),
                                        member(f, THE_CHAT, THE_PEER, 3)};
    fill_members(f, cards_ticket(f->c, cards_inbox_key(THE_MEMBER)), three, 3);
}

void members_are_known_until_something_of_them_changes(void **state)
{
    struct fixture *f = *state;
    if (f->c->shared) {
        fill_three(f);
        assert_string_equal(known_members(f), "---");
        return;
    }
    assert_string_equal(known_members(f), "---");
    fill_three(f);
    assert_string_equal(known_members(f), "123");
    forget(f, CARD_FORGET_MEMBER, THE_MEMBER, ANOTHER_GROUP);
    assert_string_equal(known_members(f), "1-3");
    forget(f, CARD_FORGET_MEMBER, THE_PEER, THE_GROUP); /* somebody else's */
    assert_string_equal(known_members(f), "1-3");
    forget(f, CARD_FORGET_MEMBERS, 0, THE_GROUP);
    assert_string_equal(known_members(f), "--3");
    cards_forget_account(f->c, THE_PEER);
    assert_string_equal(known_members(f), "---");
    fill_three(f);
    cards_forget_account(f->c, THE_MEMBER);
    assert_string_equal(known_members(f), "123");
    cards_suspect(f->c, true);
    assert_string_equal(known_members(f), "---");
}

void a_stale_fill_of_members_is_ignored(void **state)
{
    struct fixture *f = *state;
    if (f->c->shared)
        return;
    card_ticket ticket = cards_ticket(f->c, cards_inbox_key(THE_MEMBER));
    struct member_card before = member(f, THE_GROUP, 0, 1);
    forget(f, CARD_FORGET_MEMBER, THE_MEMBER, THE_GROUP);
    fill_members(f, ticket, &before, 1);
    assert_string_equal(known_members(f), "---");
    forget(f, CARD_FORGET_MEMBERS, 0, THE_GROUP);
    ticket = cards_ticket(f->c, cards_inbox_key(THE_MEMBER));
    fill_members(f, ticket, &before, 1); /* of before all of them changed */
    assert_string_equal(known_members(f), "---");
}

void a_fill_keeps_what_it_does_not_speak_of(void **state)
{
    struct fixture *f = *state;
    if (f->c->shared)
        return;
    fill_three(f);
    struct member_card one = member(f, ANOTHER_GROUP, 0, 7), out;
    fill_members(f, cards_ticket(f->c, cards_inbox_key(THE_MEMBER)), &one, 1);
    assert_string_equal(known_members(f), "173");
    one = (struct member_card){.group = THE_CHAT, .peer = THE_PEER, .stale = true};
    fill_members(f, cards_ticket(f->c, cards_inbox_key(THE_MEMBER)), &one, 1);
    assert_string_equal(known_members(f), "17-");
    cards_members(f->c, THE_MEMBER, &(uint64_t){THE_CHAT}, 1, &out);
    assert_int_equal(out.peer, THE_PEER); /* who the other one is does not change */
    for (uint64_t i = 0; i < 1000; i++) { /* bounded, the latest stay */
        one = member(f, 1000 + i, 0, 1);
        fill_members(f, cards_ticket(f->c, cards_inbox_key(THE_MEMBER)), &one, 1);
    }
    assert_string_equal(known_members(f), "---");
    cards_members(f->c, THE_MEMBER, &(uint64_t){1999}, 1, &out);
    assert_int_equal(out.group, 1999);
}
