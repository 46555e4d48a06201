/* Posts as JSON, and the fragments that make drawing them cheap.
 *
 * Most of a post's JSON is the same whenever it is drawn: its id, its time, its caption and its
 * author. The first to draw them attaches what it drew to their cards, so that the next one copies
 * bytes and looks at none of them. A fragment's first byte says what follows: of a post, its id and
 * time, and then nothing, because its caption may be copied as it is, or the caption's escaped
 * form; of an account, its JSON. An unknown first byte (of another version of this program) counts
 * as none. */
#include "api/render/fragment.h"
#include "api/render/render.h"
#include "base/clock.h"
#include "base/id.h"
#include "model/feed.h"

enum { POST_PLAIN = 'p', POST_ESCAPED = 'e', ACCOUNT_JSON = 'j' };

/* What a post's fragment begins with. Texts of a fixed size, because those are copied fastest. */
struct post_head {
    char kind;
    uint8_t id_len;
    char id[ID_TEXT_MAX];
    char time[TIME_TEXT_LEN];
};

/* What was drawn and is not attached yet. */
struct drawn {
    struct arena *arena;
    struct card_write *writes; /* NULL: nothing is to be attached */
    size_t count;
};

static bool is_plain(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
            return false;
    }
    return true;
}

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

/* The fragment of a post, attached to its card if it is new. */
static struct str draw_fragment(const struct post_card *card, struct drawn *d)
{
    struct str fragment = card->fragments[DIALECT_V1];
    if (fragment.len >= sizeof(struct post_head) &&
        (is_kind(fragment, POST_PLAIN) || is_kind(fragment, POST_ESCAPED)))
        return fragment;
    struct buf escaped;
    buf_init(&escaped, 0);
    bool plain = is_plain(card->caption);
    if (!plain)
        json_escape(&escaped, card->caption);
    fragment.len = sizeof(struct post_head) + escaped.len;
    struct post_head *head = arena_alloc(d->arena, fragment.len);
    *head = (struct post_head){.kind = plain ? POST_PLAIN : POST_ESCAPED};
    head->id_len = (uint8_t)id_format(card->id, head->id);
    time_format(id_time_ms(card->id), head->time);
    if (escaped.len > 0)
        memcpy(head + 1, escaped.ptr, escaped.len);
    fragment.ptr = (const char *)head;
    buf_done(&escaped);
    if (d->writes)
        d->writes[d->count++] = (struct card_write){
            .kind = CARD_ATTACH_POST, .post = card, .dialect = DIALECT_V1, .fragment = fragment};
    return fragment;
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

static char *put(char *to, const char *bytes, size_t n)
{
    memcpy(to, bytes, n);
    return to + n;
}

#define PUT(to, literal) put((to), literal, sizeof(literal) - 1)

static char *put_time(char *to, int64_t wall_ms)
{
    *to++ = '"';
    time_format(wall_ms, to);
    to += TIME_TEXT_LEN;
    *to++ = '"';
    return to;
}

/* Keys, ids, counters and times together stay below this. */
enum { POST_FRAME_MAX = 400 };

static void draw_post(struct json_out *j, const struct feed_item *item, struct drawn *d)
{
    const struct post_card *card = &item->card;
    struct str author = draw_author(&item->author, d), fragment = draw_fragment(card, d);
    const struct post_head *head = (const struct post_head *)fragment.ptr; /* of chars alone */
    struct str caption = card->caption;
    if (head->kind == POST_ESCAPED)
        caption = (struct str){fragment.ptr + sizeof *head, fragment.len - sizeof *head};
    json_raw(j, STR("{\"id\":\""));
    char *start = buf_reserve(j->buf, POST_FRAME_MAX + author.len + caption.len);
    if (!start)
        return;
    char *to = start;
    memcpy(to, head->id, sizeof head->id);
    to = PUT(to + head->id_len, "\",\"author\":");
    to = put(to, author.ptr, author.len);
    to = PUT(to, ",\"caption\":\"");
    to = put(to, caption.ptr, caption.len);
    to = PUT(to, "\",\"media\":[],\"like_count\":");
    to += id_format(card->like_count, to);
    to = PUT(to, ",\"comment_count\":");
    to += id_format(card->comment_count, to);
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
        struct str post = items[i].card.fragments[DIALECT_V1];
        if (!items[i].author.fragments[DIALECT_V1].ptr || !post.ptr)
            return true;
    }
    return false;
}

void render_posts(struct json_out *j, const struct feed_item *items, size_t n, struct cards *cards,
                  struct arena *arena)
{
    struct drawn d = {.arena = arena};
    if (!cards->shared && lacks_fragment(items, n)) /* shared cards keep none */
        d.writes = ARENA_ARRAY(arena, struct card_write, 2 * n);
    for (size_t i = 0; i < n; i++)
        draw_post(j, &items[i], &d);
    if (d.count > 0)
        cards_write(cards, d.writes, d.count);
}
