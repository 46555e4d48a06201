#!/usr/bin/env python3
"""Posts and likes: making, reading, editing, deleting, and doing so safely twice."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0)
ANYONE = SERVER.anonymous
ADA, BOB = SERVER.sign_up("ada", display_name="Ada"), SERVER.sign_up("bob")
_count = [0]


def somebody():
    _count[0] += 1
    return SERVER.sign_up(f"person.{_count[0]:04d}")


def write(client, caption="hello", key=None, **more):
    headers = {"Idempotency-Key": key} if key else None
    return client.post("/v1/posts", {"caption": caption}, headers=headers, **more)


# -- posting ---------------------------------------------------------------------------------------------


@test("posts-create-answers-the-post-and-where-it-is")
def _():
    before = ADA.get("/v1/me").json["post_count"]
    answer = write(ADA, "Hello, world").expect(201)
    made = shapes.post(answer.json, ADA, caption="Hello, world", like_count=0, comment_count=0, liked=False)
    equal(made["author"]["display_name"], "Ada")
    equal(answer.headers["location"], "/v1/posts/" + made["id"])
    equal(ADA.get("/v1/posts/" + made["id"]).expect(200).json, made)
    equal(ANYONE.get("/v1/posts/" + made["id"]).expect(200).json, made)
    equal(ADA.get("/v1/me").json["post_count"], before + 1)
    check(abs(time.time() - time.mktime(time.strptime(made["created_at"][:19], "%Y-%m-%dT%H:%M:%S"))
              + time.timezone) < 60, "created_at is now, in UTC")


@test("posts-captions-take-2200-characters-of-any-script-and-not-one-more")
def _():
    family = "👩‍👩‍👧‍👦"  # seven code points, twenty-five bytes
    for caption in ("x" * 2200, "é" * 2200, "😀" * 2200, family * 314 + "ab", "\u0301" * 2200):
        equal(len(caption), 2200)
        made = write(ADA, caption).expect(201).json
        equal(ADA.get("/v1/posts/" + made["id"]).json["caption"], caption)
        write(ADA, caption + caption[0]).problem(422)
    before = ADA.get("/v1/me").json["post_count"]
    for bad in ("", None, 5, ["x"], {"a": 1}, True, "x" * 2201, "nul \0 inside"):
        write(ADA, bad).expect(400, 422)
    ADA.post("/v1/posts", {}).problem(422)
    equal(ADA.get("/v1/me").json["post_count"], before)


@test("posts-captions-come-back-exactly-as-given")
def _():
    for caption in ('"quoted" \\ back\\slash / slash', "line\nbreak\ttab\rreturn", "</script><b>&amp;", " edges ",
                    "\u2028x\u2029\ufeff", "عربي עברית 日本語 ไทย", "\x01\x1f\x7f", "💥" * 3, "%s%n{}", "\ud7ff\ue000\U0010ffff"):
        made = write(ADA, caption).expect(201).json
        equal(made["caption"], caption)
        equal(ADA.get("/v1/posts/" + made["id"]).json["caption"], caption)
        equal(ADA.get("/v1/feed?limit=1").json["items"][0]["caption"], caption)
        equal(ADA.get(f"/v1/accounts/{ADA.id}/posts?limit=1").json["items"][0]["caption"], caption)
        edited = ADA.patch("/v1/posts/" + made["id"], {"caption": "x" + caption}).expect(200).json
        equal(edited["caption"], "x" + caption)


@test("posts-ids-rise-with-time")
def _():
    made = [write(ADA, str(n)).expect(201).json for n in range(20)]
    equal(shapes.ids(made), sorted(shapes.ids(made), key=int))
    equal(len(set(shapes.ids(made))), 20)
    equal([m["created_at"] for m in made], sorted(m["created_at"] for m in made))


@test("posts-need-an-account")
def _():
    write(ANYONE).problem(401)
    post = write(ADA).json["id"]
    for method, path in (("PATCH", ""), ("DELETE", ""), ("PUT", "/like"), ("DELETE", "/like"), ("POST", "/comments")):
        ANYONE.request(method, f"/v1/posts/{post}{path}", {"caption": "x", "body": "x"}).problem(401)


# -- editing ---------------------------------------------------------------------------------------------


@test("posts-edits-show-at-once-everywhere-and-keep-the-rest")
def _():
    me, fan = somebody(), somebody()
    fan.put(f"/v1/accounts/{me.id}/follow").expect(200)
    post = write(me, "first").expect(201).json
    fan.put(f"/v1/posts/{post['id']}/like").expect(200)
    SERVER.drain()
    equal(fan.get("/v1/feed").json["items"][0]["caption"], "first")
    for caption in ("second", "third", "first"):
        edited = me.patch("/v1/posts/" + post["id"], {"caption": caption}).expect(200).json
        shapes.post(edited, me, caption=caption, id=post["id"], created_at=post["created_at"], like_count=1)
        check(shapes.is_time(edited["edited_at"]) and edited["edited_at"] >= post["created_at"])
        for seen in (fan.get("/v1/feed").json["items"][0], fan.get("/v1/posts/" + post["id"]).json,
                     fan.get(f"/v1/accounts/{me.id}/posts").json["items"][0]):
            shapes.post(seen, me, caption=caption, liked=True, edited_at=edited["edited_at"])
    equal(post["edited_at"], None)


@test("posts-can-be-edited-fifty-times-and-stay-as-they-are-then")
def _():
    me = somebody()
    post = write(me, "first").expect(201).json
    for n in range(50):
        me.patch("/v1/posts/" + post["id"], {"caption": f"edit {n}"}).expect(200)
    check("50 times" in me.patch("/v1/posts/" + post["id"], {"caption": "one more"}).problem(409)["detail"])
    me.patch("/v1/posts/" + post["id"], {"caption": "edit 49"}).expect(200)  # changes nothing
    equal(me.get("/v1/posts/" + post["id"]).expect(200).json["caption"], "edit 49")
    me.delete("/v1/posts/" + post["id"]).expect(204)


@test("posts-edits-are-for-the-author-and-within-the-rules")
def _():
    post = write(ADA, "mine").json["id"]
    BOB.patch("/v1/posts/" + post, {"caption": "his"}).problem(403)
    for bad in ("", "x" * 2201, None, 3):
        ADA.patch("/v1/posts/" + post, {"caption": bad}).problem(422)
    ADA.patch("/v1/posts/1", {"caption": "x"}).problem(404)
    equal(ADA.get("/v1/posts/" + post).json["caption"], "mine")
    ADA.delete("/v1/posts/" + post).expect(204)
    ADA.patch("/v1/posts/" + post, {"caption": "late"}).problem(404)


# -- deleting --------------------------------------------------------------------------------------------


@test("posts-deleted-are-gone-from-every-read-at-once-and-count-no-more")
def _():
    me, fan = somebody(), somebody()
    fan.put(f"/v1/accounts/{me.id}/follow").expect(200)
    keep, gone = write(me, "keep").json["id"], write(me, "gone").json["id"]
    fan.put(f"/v1/posts/{gone}/like").expect(200)
    fan.post(f"/v1/posts/{gone}/comments", {"body": "x"}).expect(201)
    SERVER.drain()
    equal(shapes.ids(fan.get("/v1/feed").json["items"]), [gone, keep])
    BOB.delete("/v1/posts/" + gone).problem(403)
    me.delete("/v1/posts/" + gone).expect(204)
    for client in (me, fan, ANYONE):
        client.get("/v1/posts/" + gone).problem(404)
        client.get(f"/v1/posts/{gone}/comments").problem(404)
        client.get(f"/v1/posts/{gone}/likes").problem(404)
        equal(shapes.ids(client.get(f"/v1/accounts/{me.id}/posts").json["items"]), [keep])
    for client in (me, fan):
        equal(shapes.ids(client.get("/v1/feed").json["items"]), [keep])
    equal(me.get("/v1/me").json["post_count"], 1)
    me.delete("/v1/posts/" + gone).problem(404)
    fan.put(f"/v1/posts/{gone}/like").problem(404)
    fan.delete(f"/v1/posts/{gone}/like").problem(404)
    fan.post(f"/v1/posts/{gone}/comments", {"body": "x"}).problem(404)
    equal(me.get("/v1/me").json["post_count"], 1)


@test("any-post-can-be-deleted-by-an-admin-alone")
def _():
    post = write(ADA, "offending").json["id"]
    for client, status in ((ANYONE, 401), (BOB, 403), (ADA, 403), (SERVER.key("act"), 403), (SERVER.key("admin:read"), 403)):
        client.delete("/v1/admin/posts/" + post).problem(status)
    SERVER.key("admin").delete("/v1/admin/posts/" + post).expect(204)
    ADA.get("/v1/posts/" + post).problem(404)
    SERVER.key("admin").delete("/v1/admin/posts/" + post).problem(404)


# -- likes -----------------------------------------------------------------------------------------------


@test("posts-liking-twice-is-one-like-and-shows-who-liked")
def _():
    post = write(ADA).json["id"]
    for _ in range(2):
        shapes.post(BOB.put(f"/v1/posts/{post}/like").expect(200).json, ADA, like_count=1, liked=True)
    shapes.post(ADA.get("/v1/posts/" + post).json, ADA, like_count=1, liked=False)
    shapes.post(ANYONE.get("/v1/posts/" + post).json, ADA, like_count=1, liked=False)
    shapes.post(ADA.put(f"/v1/posts/{post}/like").expect(200).json, ADA, like_count=2, liked=True)
    equal(set(shapes.ids(shapes.listing(ANYONE.get(f"/v1/posts/{post}/likes").json, shapes.brief))), {ADA.id, BOB.id})
    for _ in range(2):
        shapes.post(BOB.delete(f"/v1/posts/{post}/like").expect(200).json, ADA, like_count=1, liked=False)
    equal(shapes.ids(ANYONE.get(f"/v1/posts/{post}/likes").json["items"]), [ADA.id])
    BOB.put("/v1/posts/1/like").problem(404)
    BOB.get("/v1/posts/1/likes").problem(404)


@test("posts-likes-by-many-at-once-count-exactly")
def _():
    post = write(ADA).json["id"]
    people = [somebody() for _ in range(6)]

    def like(client):
        for _ in range(5):
            client.put(f"/v1/posts/{post}/like").expect(200)
            client.delete(f"/v1/posts/{post}/like").expect(200)
        client.put(f"/v1/posts/{post}/like").expect(200)

    together(like, people)
    for path in (f"/v1/posts/{post}", f"/v1/accounts/{ADA.id}/posts?limit=1", "/v1/feed?limit=1"):
        seen = ADA.get(path).json
        equal((seen["items"][0] if "items" in seen else seen)["like_count"], 6, path)
    for limit in (1, 2, 4, 6):
        equal(sorted(shapes.ids(ANYONE.pages(f"/v1/posts/{post}/likes", limit=limit))), sorted(p.id for p in people))


# -- lists -----------------------------------------------------------------------------------------------


@test("posts-of-an-account-are-newest-first-and-paged-whole")
def _():
    me = somebody()
    made = [write(me, str(n)).json["id"] for n in range(11)]
    path = f"/v1/accounts/{me.id}/posts"
    for limit in (1, 3, 5, 11, 100):
        equal(shapes.ids(ANYONE.pages(path, limit=limit)), made[::-1], f"limit {limit}")
    shapes.listing(me.get(path).json, lambda p: shapes.post(p, me))
    equal(me.get(path + "?limit=11").json["next_cursor"], None, "no page follows the last")
    ANYONE.get("/v1/accounts/1/posts").problem(404)


@test("posts-pages-are-stable-while-posts-come-and-go")
def _():
    me = somebody()
    made = [write(me, str(n)).json["id"] for n in range(9)]
    path = f"/v1/accounts/{me.id}/posts?limit=3"
    page = me.get(path).json
    seen = shapes.ids(page["items"])
    write(me, "new")
    me.delete("/v1/posts/" + seen[-1]).expect(204)  # the post at the cursor
    me.delete("/v1/posts/" + made[4]).expect(204)
    while page["next_cursor"]:
        page = me.get(f"{path}&cursor={page['next_cursor']}").expect(200).json
        seen += shapes.ids(page["items"])
    equal(seen, [p for p in made[::-1] if p != made[4]])


@test("posts-cursors-forged-foreign-or-of-another-list-are-refused")
def _():
    me, other = somebody(), somebody()
    for n in range(5):
        for client in (me, other):
            post = write(client, str(n)).json["id"]
    for n in range(3):
        somebody().put(f"/v1/posts/{post}/like").expect(200)
        other.post(f"/v1/posts/{post}/comments", {"body": str(n)}).expect(201)
    lists = {path: me.get(path + "?limit=2").expect(200).json["next_cursor"] for path in (
        f"/v1/accounts/{me.id}/posts", f"/v1/accounts/{other.id}/posts", f"/v1/posts/{post}/likes",
        f"/v1/posts/{post}/comments", "/v1/feed")}
    for path, cursor in lists.items():
        check(cursor, path)
        me.get(f"{path}?limit=2&cursor={cursor}").expect(200)
        other.get(f"{path}?limit=2&cursor={cursor}").problem(400)
        for elsewhere in lists:
            if elsewhere != path:
                me.get(f"{elsewhere}?limit=2&cursor={cursor}").problem(400)
        for forged in (cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor[1:], cursor + "A", "0", post, "A" * 48,
                       "%00", "-1"):
            me.get(f"{path}?cursor={forged}").problem(400)
        for limit in ("0", "-1", "1e3", "x", "", "99999999999999999999", "1001"):
            me.get(f"{path}?limit={limit}").problem(400)


@test("posts-a-blank-caption-is-refused")
def _():
    post = write(ADA, "words").expect(201).json["id"]
    for blank in (" ", "   ", "\n\t ", "\u00a0", "\u2003\u3000", "\u200b", "\ufeff \u2060"):
        check("blank" in write(ADA, blank).problem(422)["detail"])
        ADA.patch("/v1/posts/" + post, {"caption": blank}).problem(422)
        ADA.post(f"/v1/posts/{post}/comments", {"body": blank}).problem(422)
    for good in (" x ", "\u00a0\u00e4", "\u200b\U0001f600"):
        equal(write(ADA, good).expect(201).json["caption"], good)


# -- doing it safely twice -------------------------------------------------------------------------------


@test("posts-the-same-key-and-body-is-one-post-answered-alike")
def _():
    me = somebody()
    first = write(me, "once", key="k-1").expect(201)
    check("idempotent-replayed" not in first.headers)
    for key in ("k-1", '"k-1"'):  # as a structured field, too
        again = write(me, "once", key=key).expect(201)
        equal(again.body, first.body)
        equal(again.headers["idempotent-replayed"], "true")
    equal(me.get("/v1/me").json["post_count"], 1)
    check(write(me, "once", key="k-2").expect(201).json["id"] != first.json["id"])
    me.delete("/v1/posts/" + first.json["id"]).expect(204)
    write(me, "once", key="k-1").problem(404)  # done once, and gone
    equal(me.get("/v1/me").json["post_count"], 1)
    me.get("/v1/posts/" + first.json["id"]).problem(404)


@test("posts-the-same-key-with-another-body-is-422-and-of-another-account-is-another-key")
def _():
    me, other = somebody(), somebody()
    first = write(me, "one", key="shared").expect(201).json
    write(me, "two", key="shared").problem(422)
    theirs = write(other, "one", key="shared").expect(201).json
    check(theirs["id"] != first["id"])
    equal(me.get("/v1/me").json["post_count"], 1)
    # Per route and subject: the same word elsewhere is another key.
    path, key = f"/v1/posts/{first['id']}/comments", {"Idempotency-Key": "shared"}
    comment = me.post(path, {"body": "one"}, headers=key).expect(201)
    equal(me.post(path, {"body": "one"}, headers=key).expect(201).body, comment.body)
    equal(me.get("/v1/posts/" + first["id"]).json["comment_count"], 1)


@test("posts-a-delete-with-a-key-answers-204-again")
def _():
    post = write(ADA).json["id"]
    for _ in range(2):
        ADA.delete("/v1/posts/" + post, headers={"Idempotency-Key": "del"}).expect(204)
    ADA.delete("/v1/posts/" + post).problem(404)


@test("posts-keys-that-are-no-keys-are-400")
def _():
    for key in ("x" * 256, '"unclosed', 'in"side', "é"):
        before = ADA.get("/v1/me").json["post_count"]
        write(ADA, "x", key=key.encode("latin-1")).problem(400)
        equal(ADA.get("/v1/me").json["post_count"], before)
    write(ADA, "x", key="y" * 255).expect(201)


@test("posts-one-key-sent-by-many-at-once-makes-one-post")
def _():
    me = somebody()
    answers = []

    def send(_):
        answers.append(write(me, "crowd", key="crowd"))

    together(send, range(10))
    equal({a.status for a in answers} - {201, 409}, set())
    equal(len({a.json["id"] for a in answers if a.status == 201}), 1)
    equal(me.get("/v1/me").json["post_count"], 1)


@test("posts-keys-are-remembered-for-24-hours-through-crashes-and-no-longer")
def _():
    with Server(rate_auth=0) as server:
        me = server.sign_up("ada")
        first = write(me, "once", key="day").expect(201)
        server.restart(hard=True)
        equal(write(me, "once", key="day").expect(201).body, first.body)

        def age(ms):
            server.stop()
            with store(server, write=True) as database:
                equal(database.execute("UPDATE idempotency SET created_at = ?", (int(time.time() * 1000) - ms,)).rowcount, 1)
            server.start()

        day_ms = 24 * 3600 * 1000
        age(day_ms - 60_000)
        equal(write(me, "once", key="day").expect(201).body, first.body)
        age(day_ms + 1000)
        second = write(me, "once", key="day").expect(201)
        check(second.json["id"] != first.json["id"])
        equal(write(me, "once", key="day").expect(201).body, second.body, "and remembered anew")
        equal(me.get("/v1/me").json["post_count"], 2)


if __name__ == "__main__":
    main()
