#!/usr/bin/env python3
"""GET /v1/feed: its shape, its pages, and what one's acts do to the next read."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0)
_count = [0]


def somebody(**fields):
    _count[0] += 1
    return SERVER.sign_up(f"person.{_count[0]:04d}", **fields)


def write(client, caption="hello"):
    return client.post("/v1/posts", {"caption": caption}).expect(201).json["id"]


def follow(follower, *followees):
    for followee in followees:
        follower.put(f"/v1/accounts/{followee.id}/follow").expect(200)


def feed(client, query=""):
    return shapes.ids(client.get("/v1/feed" + query).expect(200).json["items"])


@test("feed-items-have-author-caption-media-counters-liked-and-time")
def _():
    me, author = somebody(), somebody(display_name="Author")
    author.patch("/v1/me", {"avatar_url": "https://example.org/a.png"}).expect(200)
    follow(me, author)
    post = write(author, "look")
    me.put(f"/v1/posts/{post}/like").expect(200)
    author.post(f"/v1/posts/{post}/comments", {"body": "x"}).expect(201)
    SERVER.drain()
    page = me.get("/v1/feed").expect(200)
    equal(page.headers["content-type"], "application/json")
    items = shapes.listing(page.json, shapes.post)
    equal(len(items), 1)
    shapes.post(items[0], author, id=post, caption="look", like_count=1, comment_count=1, liked=True)
    equal(items[0]["author"]["avatar_url"], "https://example.org/a.png")
    equal(items[0], me.get("/v1/posts/" + post).json)
    equal(page.json["next_cursor"], None)
    shapes.post(author.get("/v1/feed").json["items"][0], author, liked=False, like_count=1)


@test("feed-that-was-just-read-shows-new-names-captions-and-counters-at-once")
def _():
    me, author = somebody(), somebody(display_name="Before")
    follow(me, author)
    post = write(author, 'a "quoted" caption')
    SERVER.drain()

    def shown():
        pages = [me.get("/v1/feed" + query).expect(200).json["items"] for query in ("", "?limit=9") * 2]
        equal(pages[1:], pages[:1] * 3)  # kept, drawn from fragments, or drawn from truth
        return pages[0][0]

    equal((shown()["author"]["display_name"], shown()["caption"]), ("Before", 'a "quoted" caption'))
    author.patch("/v1/me", {"display_name": "After"}).expect(200)
    equal(shown()["author"]["display_name"], "After")
    author.patch("/v1/posts/" + post, {"caption": "changed"}).expect(200)
    equal((shown()["caption"], shown()["author"]["display_name"]), ("changed", "After"))
    for n in (1, 2):
        somebody().put(f"/v1/posts/{post}/like").expect(200)
        equal(shown()["like_count"], n)
    author.patch("/v1/me", {"avatar_url": "https://example.org/b.png"}).expect(200)
    equal(shown()["author"]["avatar_url"], "https://example.org/b.png")


@test("feed-without-a-token-is-401-and-of-a-newcomer-is-empty")
def _():
    SERVER.anonymous.get("/v1/feed").problem(401)
    equal(somebody().get("/v1/feed").expect(200).json, {"items": [], "next_cursor": None})


@test("feed-shows-ones-own-posts-at-once")
def _():
    me = somebody()
    made = []
    for n in range(30):
        made.insert(0, write(me, str(n)))
        equal(feed(me, "?limit=1"), made[:1])  # no waiting for any pipeline
    equal(feed(me, "?limit=100"), made)


@test("feed-is-newest-first-over-all-followed-and-oneself")
def _():
    me, one, two, stranger = (somebody() for _ in range(4))
    follow(me, one, two)
    made = [write(author, str(n)) for n in range(4) for author in (one, me, stranger, two)]
    strange = set(made[2::4])
    SERVER.drain()
    equal(feed(me), [p for p in made[::-1] if p not in strange])
    equal(feed(stranger), sorted(strange, key=int, reverse=True))


@test("feed-pages-of-any-size-join-without-gap-or-repeat")
def _():
    me, authors = somebody(), [somebody() for _ in range(3)]
    follow(me, *authors)
    made = [write(authors[n % 3], str(n)) for n in range(37)]
    SERVER.drain()
    for limit in (1, 2, 7, 12, 36, 37, 38, 100):
        equal(shapes.ids(me.pages("/v1/feed", limit=limit)), made[::-1], f"limit {limit}")
    equal(len(feed(me)), 20)
    for bad in ("0", "101", "-5", "many"):
        me.get("/v1/feed?limit=" + bad).problem(400)


@test("feed-the-link-header-leads-through-all-pages")
def _():
    me = somebody()
    made = [write(me, str(n)) for n in range(7)]
    seen, path = [], "/v1/feed?limit=3"
    while path:
        answer = me.get(path).expect(200)
        seen += shapes.ids(answer.json["items"])
        link = answer.headers.get("link")
        equal(link is None, answer.json["next_cursor"] is None)
        path = link[1:link.index(">")] if link else None
    equal(seen, made[::-1])


@test("feed-pages-are-stable-while-posts-come-and-go")
def _():
    me, author = somebody(), somebody()
    follow(me, author)
    made = [write(author, str(n)) for n in range(12)]
    SERVER.drain()
    page = me.get("/v1/feed?limit=4").json
    seen = shapes.ids(page["items"])
    for n in range(6):
        write(author, f"new {n}")
    SERVER.drain()
    author.delete("/v1/posts/" + seen[-1]).expect(204)  # the one at the cursor
    author.delete("/v1/posts/" + made[3]).expect(204)
    while page["next_cursor"]:
        page = me.get("/v1/feed?limit=4&cursor=" + page["next_cursor"]).expect(200).json
        seen += shapes.ids(page["items"])
    equal(seen, [p for p in made[::-1] if p != made[3]])


@test("feed-cursors-are-ones-own-and-of-this-list")
def _():
    me, other = somebody(), somebody()
    for client in (me, other):
        for n in range(3):
            write(client, str(n))
    cursor = me.get("/v1/feed?limit=1").json["next_cursor"]
    other.get("/v1/feed?cursor=" + cursor).problem(400)
    me.get(f"/v1/accounts/{me.id}/posts?cursor={cursor}").problem(400)
    me.get("/v1/feed?cursor=" + me.get(f"/v1/accounts/{me.id}/posts?limit=1").json["next_cursor"]).problem(400)
    for forged in ("AAAA", "%2e%2e", cursor[:-4] + "AAAA", cursor.swapcase(), "1"):
        me.get("/v1/feed?cursor=" + forged).problem(400)


@test("feed-following-brings-the-authors-posts-and-unfollowing-takes-them-at-the-next-read")
def _():
    me, author, other = somebody(), somebody(), somebody()
    old = [write(author, str(n)) for n in range(5)]
    kept = write(other)
    follow(me, other, author)
    SERVER.drain()
    equal(feed(me), [kept] + old[::-1])
    me.delete(f"/v1/accounts/{author.id}/follow").expect(200)
    equal(feed(me), [kept])
    late = write(author, "unseen")
    SERVER.drain()
    equal(feed(me), [kept])
    follow(me, author)
    SERVER.drain()
    equal(feed(me), [late, kept] + old[::-1])


@test("feed-block-mute-delete-and-suspension-take-effect-at-the-next-read")
def _():
    me = somebody()
    authors = [somebody() for _ in range(5)]
    follow(me, *authors)
    posts = [write(a) for a in authors]
    SERVER.drain()
    wanted = posts[::-1]
    equal(feed(me), wanted)
    acts = [
        lambda: me.put(f"/v1/accounts/{authors[0].id}/mute").expect(200),
        lambda: me.put(f"/v1/accounts/{authors[1].id}/block").expect(200),
        lambda: authors[2].put(f"/v1/accounts/{me.id}/block").expect(200),
        lambda: authors[3].delete("/v1/posts/" + posts[3]).expect(204),
        lambda: SERVER.operator.put(f"/v1/admin/accounts/{authors[4].id}/suspension").expect(204),
    ]
    for n, act in enumerate(acts):
        act()
        wanted.remove(posts[n])
        equal(feed(me), wanted, f"act {n}")
    SERVER.drain()
    equal(feed(me), [])
    me.delete(f"/v1/accounts/{authors[0].id}/mute").expect(200)
    equal(feed(me), [posts[0]], "unmuted")
    SERVER.operator.delete(f"/v1/admin/accounts/{authors[4].id}/suspension").expect(204)
    equal(feed(me), [posts[4], posts[0]], "restored")
    me.delete(f"/v1/accounts/{authors[1].id}/block").expect(200)
    equal(feed(me), [posts[4], posts[0]], "unblocked, but no longer followed")
    follow(me, authors[1])
    SERVER.drain()
    equal(feed(me), [posts[4], posts[1], posts[0]], "followed again")


@test("feed-likes-comments-and-edits-show-at-the-next-read")
def _():
    me, author = somebody(), somebody()
    follow(me, author)
    post = write(author, "v0")
    SERVER.drain()

    def seen():
        item = me.get("/v1/feed").json["items"][0]
        return item["like_count"], item["comment_count"], item["liked"], item["caption"]

    equal(seen(), (0, 0, False, "v0"))
    author.put(f"/v1/posts/{post}/like").expect(200)
    equal(seen(), (1, 0, False, "v0"))
    me.put(f"/v1/posts/{post}/like").expect(200)
    equal(seen(), (2, 0, True, "v0"))
    comment = author.post(f"/v1/posts/{post}/comments", {"body": "x"}).expect(201).json["id"]
    equal(seen(), (2, 1, True, "v0"))
    author.patch("/v1/posts/" + post, {"caption": "v1"}).expect(200)
    equal(seen(), (2, 1, True, "v1"))
    author.delete("/v1/comments/" + comment).expect(204)
    me.delete(f"/v1/posts/{post}/like").expect(200)
    equal(seen(), (1, 0, False, "v1"))
    check(SERVER.alive())


if __name__ == "__main__":
    main()
