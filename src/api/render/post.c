/* Posts as JSON, and the fragments that make drawing them cheap.
 *
 * Most of a post's JSON is the same whenever it is drawn: its id, its author, its caption and its
 * time. The first to draw them attaches what it drew to the post's card, with the author's ticket,
 * so that the next one copies bytes, looks at none of them and does not read the author. A
 * fragment's first byte says what follows: of a post, its time and then its JSON up to the first
 * counter; of an account, its JSON. An unknown first byte (of another version of this program)
 * counts as none. */
#include "api/render/fragment.h"
#include "api/render/render.h"
#include "base/clock.h"
#include "base/id.h"
#include "model/feed.h"

enum { POST_JSON = 'w', ACCOUNT_JSON = 'j' };

/* What a post's fragment begins with. The time has a fixed size: such is copied fastest. */
struct post_head {
    char kind;
    char time[TIME_TEXT_LEN];
};

/* Fragments that are rendered and not attached yet. */
struct drawn {
    struct arena *arena;
    struct card_write *writes; /* NULL: nothing is to be attached */
    size_t count;
};

/* A copy of `text` behind the byte that says what it is. */
static struct str fragment_of(struct arena *arena, char kind, struct str text)
{
    char *bytes = arena_alloc(arena, text.len + 1);
    bytes[0] = kind;
    if (text.len > 0)
        memcpy(bytes + 1, text.ptr, text.len);
    return (struct str){bytes, text.len + 1};
}

static struct str inside(struct str fragment)
{
    return (struct str){fragment.ptr + 1, fragment.len - 1};
}

static bool is_kind(struct str fragment, char kind)
{
    return fragment.len > 0 && fragment.ptr[0] == kind;
}

static struct str draw_author(const struct account_card *card, struct drawn *d)
{
    struct str fragment = card->fragments[DIALECT_V1];
    if (is_kind(fragment, ACCOUNT_JSON))
        return inside(fragment);
    struct buf text;
    struct json_out j;
    buf_init(&text, 0);
    json_out_init(&j, &text);
    render_account_card(&j, card);
    fragment = fragment_of(d->arena, ACCOUNT_JSON, buf_view(&text));
    buf_done(&text);
    if (d->writes)
        d->writes[d->count++] = (struct card_write){.kind = CARD_ATTACH_ACCOUNT,
                                                    .account = card,
                                                    .dialect = DIALECT_V1,
                                                    .fragment = fragment};
    return inside(fragment);
}

/* The fragment of a post, attached to its card if it is new. */
static struct str draw_fragment(const struct feed_item *item, struct drawn *d)
{
    const struct post_card *card = &item->card;
    struct str fragment = card->fragments[DIALECT_V1];
    struct post_head head = {.kind = POST_JSON};
    char id[ID_TEXT_MAX];
    struct buf text;
    if (is_kind(fragment, POST_JSON))
        return fragment;
    buf_init(&text, 0);
    time_format(id_time_ms(card->id), head.time);
    buf_append(&text, (const char *)&head, sizeof head);
    buf_str(&text, STR("{\"id\":\""));
    buf_append(&text, id, id_format(card->id, id));
    buf_str(&text, STR("\",\"author\":"));
    buf_str(&text, draw_author(&item->author, d));
    buf_str(&text, STR(",\"caption\":\""));
    json_escape(&text, card->caption);
    buf_str(&text, STR("\",\"media\":[],\"like_count\":"));
    fragment = arena_str(d->arena, buf_view(&text));
    buf_done(&text);
    if (d->writes && item->ticketed)
        d->writes[d->count++] = (struct card_write){.kind = CARD_ATTACH_POST,
                                                    .post = card,
                                                    .ticket = item->author_ticket,
                                                    .dialect = DIALECT_V1,
                                                    .fragment = fragment};
    return fragment;
}

static char *put(char *to, const char *bytes, size_t n)
{
    memcpy(to, bytes, n);
    return to + n;
}

#define PUT(to, literal) put((to), literal, sizeof(literal) - 1)

static char *put_count(char *to, uint32_t n)
{
    if (n < 10) {
        *to = (char)('0' + n);
        return to + 1;
    }
    return to + id_format(n, to);
}

static char *put_time(char *to, int64_t wall_ms)
{
    *to++ = '"';
    time_format(wall_ms, to);
    to += TIME_TEXT_LEN;
    *to++ = '"';
    return to;
}

/* Keys, counters and times behind the fragment together stay below this. */
enum { POST_TAIL_MAX = 240 };

static void draw_post(struct json_out *j, const struct feed_item *item, struct drawn *d)
{
    const struct post_card *card = &item->card;
    struct str fragment = draw_fragment(item, d);
    const struct post_head *head = (const struct post_head *)fragment.ptr; /* of chars alone */
    json_raw(j, (struct str){fragment.ptr + sizeof *head, fragment.len - sizeof *head});
    char *start = buf_reserve(j->buf, POST_TAIL_MAX), *to = start;
    if (!start)
        return;
    to = put_count(to, card->like_count);
    to = PUT(to, ",\"comment_count\":");
    to = put_count(to, card->comment_count);
    to = item->liked ? PUT(to, ",\"liked\":true,\"created_at\":\"")
                     : PUT(to, ",\"liked\":false,\"created_at\":\"");
    to = put(to, head->time, sizeof head->time);
    to = PUT(to, "\",\"edited_at\":");
    to = card->edited_at_ms ? put_time(to, card->edited_at_ms) : PUT(to, "null");
    *to++ = '}';
    j->buf->len += (size_t)(to - start);
}

void render_post(struct json_out *j, const struct feed_item *item, struct arena *arena)
{
    struct drawn d = {.arena = arena};
    draw_post(j, item, &d);
}

static bool lacks_fragment(const struct feed_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (items[i].ticketed)
            return true;
    }
    return false;
}

void render_posts(struct json_out *j, const struct feed_item *items, size_t n, struct cards *cards,
                  struct arena *arena)
{
    struct drawn d = {.arena = arena};
    if (lacks_fragment(items, n))
        d.writes = ARENA_ARRAY(arena, struct card_write, 2 * n);
    for (size_t i = 0; i < n; i++)
        draw_post(j, &items[i], &d);
    if (d.count > 0)
        cards_write(cards, d.writes, d.count);
}
