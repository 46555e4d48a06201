#!/usr/bin/env python3
"""Comments: writing, listing, deleting, and whom they are shown to."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0)
ANYONE = SERVER.anonymous
ADA, BOB, EVE = (SERVER.sign_up(name) for name in ("ada", "bob", "eve"))


def write(client=ADA):
    return client.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]


def say(client, post, body="well said"):
    return client.post(f"/v1/posts/{post}/comments", {"body": body})


def bodies(client, post):
    return [c["body"] for c in client.get(f"/v1/posts/{post}/comments").expect(200).json["items"]]


@test("comments-create-answers-the-comment-and-counts-at-once")
def _():
    post = write()
    made = shapes.comment(say(BOB, post).expect(201).json, BOB, post_id=post, body="well said")
    for client in (ADA, BOB, ANYONE):
        equal(shapes.listing(client.get(f"/v1/posts/{post}/comments").expect(200).json), [made])
        equal(client.get("/v1/posts/" + post).json["comment_count"], 1)
    equal(ADA.get("/v1/feed?limit=1").json["items"][0]["comment_count"], 1)


@test("comments-hold-1-to-2200-characters-and-come-back-as-given")
def _():
    post = write()
    for good in ("x", "😀" * 2200, 'a "quote" \\ and\na line', "<i>&lt;"):
        equal(say(BOB, post, good).expect(201).json["body"], good)
        equal(bodies(ADA, post)[-1], good)
    for bad in ("", "😀" * 2201, None, 7, "nul\0"):
        say(BOB, post, bad).expect(400, 422)
    BOB.post(f"/v1/posts/{post}/comments", {}).problem(422)
    say(ANYONE, post).problem(401)
    say(BOB, 1).problem(404)
    equal(ADA.get("/v1/posts/" + post).json["comment_count"], 4)


@test("comments-are-listed-oldest-first-and-paged-whole-while-more-come")
def _():
    post = write()
    made = [say(BOB, post, str(n)).expect(201).json["id"] for n in range(10)]
    for limit in (1, 3, 5, 10, 200):
        equal(shapes.ids(ANYONE.pages(f"/v1/posts/{post}/comments", limit=limit)), made)
    path = f"/v1/posts/{post}/comments?limit=4"
    page = ADA.get(path).json
    seen = shapes.ids(page["items"])
    late = say(EVE, post, "late").json["id"]
    BOB.delete("/v1/comments/" + seen[-1]).expect(204)  # the one at the cursor
    while page["next_cursor"]:
        page = ADA.get(f"{path}&cursor={page['next_cursor']}").expect(200).json
        seen += shapes.ids(page["items"])
    equal(seen, made + [late])
    ADA.get(f"/v1/posts/{post}/comments?limit=201").problem(400)
    ADA.get("/v1/posts/1/comments").problem(404)


@test("comments-are-deleted-by-their-author-or-the-posts-alone")
def _():
    post = write(ADA)
    first, second, third = (say(BOB, post, str(n)).json["id"] for n in range(3))
    EVE.delete("/v1/comments/" + first).problem(403)
    ANYONE.delete("/v1/comments/" + first).problem(401)
    BOB.delete("/v1/comments/" + first).expect(204)
    equal(bodies(ANYONE, post), ["1", "2"])
    ADA.delete("/v1/comments/" + second).expect(204)
    equal(bodies(ANYONE, post), ["2"])
    BOB.delete("/v1/comments/" + first).problem(404)
    BOB.delete("/v1/comments/1").problem(404)
    equal(ADA.get("/v1/posts/" + post).json["comment_count"], 1)
    equal(ADA.get("/v1/feed?limit=1").json["items"][0]["comment_count"], 1)
    check(third)


@test("comments-under-a-deleted-post-are-gone-and-cannot-be-touched")
def _():
    post = write(ADA)
    comment = say(BOB, post).json["id"]
    ADA.delete("/v1/posts/" + post).expect(204)
    ADA.get(f"/v1/posts/{post}/comments").problem(404)
    BOB.delete("/v1/comments/" + comment).problem(404)
    say(BOB, post).problem(404)


@test("comments-of-blocked-people-are-hidden-from-each-other-and-still-counted")
def _():
    post = write(ADA)
    for client in (BOB, EVE):
        say(client, post, client.username).expect(201)
    BOB.put(f"/v1/accounts/{EVE.id}/block").expect(200)
    equal((bodies(BOB, post), bodies(EVE, post), bodies(ADA, post)), (["bob"], ["eve"], ["bob", "eve"]))
    equal(BOB.get("/v1/posts/" + post).json["comment_count"], 2)
    for limit in (1, 2):
        equal([c["body"] for c in EVE.pages(f"/v1/posts/{post}/comments", limit=limit)], ["eve"])
    BOB.delete(f"/v1/accounts/{EVE.id}/block").expect(200)
    equal(bodies(BOB, post), ["bob", "eve"])


@test("comments-of-whom-the-posts-author-blocks-are-shown-to-the-author-alone")
def _():
    post = write(ADA)
    comment = say(EVE, post, "spam").expect(201).json["id"]
    say(BOB, post, "bob").expect(201)
    ADA.put(f"/v1/accounts/{EVE.id}/block").expect(200)
    equal((bodies(ADA, post), bodies(BOB, post), bodies(ANYONE, post)), (["spam", "bob"], ["bob"], ["bob"]))
    EVE.get(f"/v1/posts/{post}/comments").problem(404)
    ADA.delete(f"/v1/accounts/{EVE.id}/block").expect(200)
    equal(bodies(BOB, post), ["spam", "bob"])
    EVE.put(f"/v1/accounts/{ADA.id}/block").expect(200)  # hides nothing from the post's author
    equal((bodies(ADA, post), bodies(BOB, post)), (["spam", "bob"], ["spam", "bob"]))
    ADA.delete("/v1/comments/" + comment).expect(204)
    equal(bodies(ADA, post), ["bob"])
    EVE.delete(f"/v1/accounts/{ADA.id}/block").expect(200)


@test("comments-survive-kill-9")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        post = write(ada)
        made = [say(ada, post, str(n)).expect(201).json for n in range(3)]
        ada.delete("/v1/comments/" + made[1]["id"]).expect(204)
        server.restart(hard=True)
        equal(ada.get(f"/v1/posts/{post}/comments").json["items"], [made[0], made[2]])
        equal(ada.get("/v1/feed").json["items"][0]["comment_count"], 2)


if __name__ == "__main__":
    main()
