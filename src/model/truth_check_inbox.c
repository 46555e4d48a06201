/* Inboxes against truth.
 *
 * An inbox is read as its owner would and compared with the oracle, page by page, the archived
 * groups apart. One that is not in memory is passed over: it is made from truth when it is read.
 * Putting it right is making it anew. */
#include "model/inbox.h"
#include "model/truth_check.h"

enum { GROUPS_SHOWN = 20 };

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct look *l = arg;
    size_t depth = l->check->depth;
    uint64_t *activities = ARENA_ARRAY(&l->check->arena, uint64_t, depth);
    return inbox_from_truth(tx, l->account, UINT64_MAX, l->archived, depth, l->oracle, activities,
                            &l->oracle_count);
}

static enum err read_shown(struct look *l)
{
    struct check *k = l->check;
    struct inbox_page *page = ARENA_NEW(&k->arena, struct inbox_page);
    uint64_t below = UINT64_MAX;
    l->shown_count = 0;
    while (below > 0 && l->shown_count < k->depth) {
        struct arena arena;
        size_t left = k->depth - l->shown_count;
        arena_init(&arena);
        enum err e = inbox_page_read(k->views, k->cards, k->db, l->account, below, l->archived,
                                     left < INBOX_LIMIT_MAX ? left : INBOX_LIMIT_MAX, &arena, page);
        for (size_t i = 0; !e && i < page->count && l->shown_count < k->depth; i++)
            l->shown[l->shown_count++] = page->items[i].group.id;
        arena_done(&arena);
        if (e)
            return e;
        below = page->next_below;
    }
    return OK;
}

static size_t shown_of(size_t n)
{
    return n < GROUPS_SHOWN ? n : GROUPS_SHOWN;
}

/* Both from the first place at which they differ. */
static void report_inbox(struct check *k, const struct look *l)
{
    size_t from = 0;
    while (from < l->oracle_count && from < l->shown_count && l->oracle[from] == l->shown[from])
        from++;
    check_tell(k, &(struct check_difference){.kind = DIFFERENCE_INBOX,
                                             .account = l->account,
                                             .archived = l->archived,
                                             .from = from,
                                             .missing = l->oracle + from,
                                             .missing_count = shown_of(l->oracle_count - from),
                                             .extra = l->shown + from,
                                             .extra_count = shown_of(l->shown_count - from)});
}

/* Also what the cards say of who is in which group. */
static void forget_members(struct check *k, const uint64_t *groups, size_t n)
{
    for (size_t i = 0; i < n && !k->cards->shared; i++)
        cards_write(k->cards, &(struct card_write){.kind = CARD_FORGET_MEMBERS, .id = groups[i]},
                    1);
}

static enum err repair_inbox(struct check *k, struct look *l)
{
    forget_members(k, l->shown, l->shown_count);
    forget_members(k, l->oracle, l->oracle_count);
    enum err e = inbox_rebuild(k->views, k->db, l->account, true);
    if (!e || e == ERR_CONFLICT) /* another has begun to: the next look shows it */
        e = look_at(l);
    if (!e && look_is_same(l))
        k->result->repaired++;
    return e;
}

enum err check_inbox(struct check *k, uint64_t account)
{
    struct inbox_entry first;
    size_t n;
    enum err e = inboxes_read(k->views->inboxes, account, UINT64_MAX, &first, 1, &n);
    if (e) /* dropped, being made, or not known: nothing derived to compare */
        return e == ERR_NEEDS_TRUTH || e == ERR_NOT_FOUND ? OK : e;
    k->result->inboxes++;
    for (int archived = 0; !e && archived < 2; archived++) {
        struct look l = {.check = k,
                         .account = account,
                         .archived = archived,
                         .read_oracle = read_oracle,
                         .read_shown = read_shown};
        e = look_at(&l);
        if (e || look_is_same(&l))
            continue;
        k->result->inbox_errors++;
        report_inbox(k, &l);
        if (k->repair)
            e = repair_inbox(k, &l);
    }
    return e;
}
