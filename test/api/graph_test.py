#!/usr/bin/env python3
"""The graph: follow, block, mute, the lists, and counters that never drift from the edges."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0)
ANYONE = SERVER.anonymous
_count = [0]


def somebody():
    _count[0] += 1
    return SERVER.sign_up(f"person.{_count[0]:04d}")


def edge(method, client, other, kind):
    return client.request(method, f"/v1/accounts/{other.id}/{kind}")


def counts(client):
    me = client.get("/v1/me").expect(200).json
    return me["follower_count"], me["following_count"]


@test("graph-follow-answers-the-account-with-the-relationship-and-counts-both-ends")
def _():
    ada, bob = somebody(), somebody()
    seen = shapes.account(edge("PUT", ada, bob, "follow").expect(200).json, relationship=["following"])
    equal((seen["id"], seen["follower_count"]), (bob.id, 1))
    equal((counts(ada), counts(bob)), ((0, 1), (1, 0)))
    shapes.account(edge("PUT", bob, ada, "follow").expect(200).json, relationship=["following", "followed_by"])
    equal((counts(ada), counts(bob)), ((1, 1), (1, 1)))


@test("graph-following-twice-is-once-and-unfollowing-twice-too")
def _():
    ada, bob = somebody(), somebody()
    for _ in range(3):
        equal(edge("PUT", ada, bob, "follow").expect(200).json["follower_count"], 1)
    for _ in range(3):
        seen = shapes.account(edge("DELETE", ada, bob, "follow").expect(200).json, relationship=[])
        equal(seen["follower_count"], 0)
    equal((counts(ada), counts(bob)), ((0, 0), (0, 0)))


@test("graph-follow-block-and-mute-of-oneself-are-422")
def _():
    ada = somebody()
    for kind in ("follow", "block", "mute"):
        edge("PUT", ada, ada, kind).problem(422)
    equal(counts(ada), (0, 0))


@test("graph-edges-to-unknown-accounts-are-404-and-without-a-token-401")
def _():
    ada = somebody()
    for kind in ("follow", "block", "mute"):
        for method in ("PUT", "DELETE"):
            ada.request(method, f"/v1/accounts/1/{kind}").problem(404)
            ANYONE.request(method, f"/v1/accounts/{ada.id}/{kind}").problem(401)


@test("graph-a-block-ends-follows-both-ways-and-hides-each-from-the-other")
def _():
    ada, bob, third = somebody(), somebody(), somebody()
    for one, other in ((ada, bob), (bob, ada), (third, ada), (third, bob), (ada, third)):
        edge("PUT", one, other, "follow").expect(200)
    by_ada = ada.post("/v1/posts", {"caption": "by ada"}).expect(201).json["id"]
    by_bob = bob.post("/v1/posts", {"caption": "by bob"}).expect(201).json["id"]
    by_third = third.post("/v1/posts", {"caption": "by third"}).expect(201).json["id"]
    for one in (ada, bob):
        one.put(f"/v1/posts/{by_third}/like").expect(200)
        one.post(f"/v1/posts/{by_third}/comments", {"body": "by " + one.username}).expect(201)
    SERVER.drain()
    shapes.account(edge("PUT", ada, bob, "block").expect(200).json, relationship=["blocking"])
    equal((counts(ada), counts(bob)), ((1, 1), (1, 0)))
    for one, other, post in ((ada, bob, by_bob), (bob, ada, by_ada)):
        one.get("/v1/posts/" + post).problem(404)
        one.get(f"/v1/posts/{post}/comments").problem(404)
        one.get(f"/v1/posts/{post}/likes").problem(404)
        one.put(f"/v1/posts/{post}/like").problem(404)
        one.post(f"/v1/posts/{post}/comments", {"body": "no"}).problem(404)
        check(post not in shapes.ids(one.get("/v1/feed").json["items"]))
        equal(one.get("/v1/accounts?q=" + other.username).json["items"], [])
        check(other.id not in shapes.ids(one.get(f"/v1/accounts/{third.id}/following").json["items"]))
        check(other.id not in shapes.ids(one.get(f"/v1/posts/{by_third}/likes").json["items"]))
        equal([c["author"]["id"] for c in one.get(f"/v1/posts/{by_third}/comments").json["items"]], [one.id])
    bob.get("/v1/accounts/" + ada.id).problem(404)
    for path in ("posts", "followers", "following"):
        bob.get(f"/v1/accounts/{ada.id}/{path}").problem(404)
        equal(ada.get(f"/v1/accounts/{bob.id}/{path}").json["items"], [], path)
    shapes.account(ada.get("/v1/accounts/" + bob.id).expect(200).json, relationship=["blocking"])  # to unblock
    # Third parties see both, and counters count everyone.
    equal(third.get("/v1/posts/" + by_third).json["comment_count"], 2)
    equal(ada.get("/v1/posts/" + by_third).json["like_count"], 2)
    equal(set(shapes.ids(third.get(f"/v1/posts/{by_third}/likes").json["items"])), {ada.id, bob.id})


@test("graph-following-across-a-block-is-refused-both-ways-until-it-is-lifted")
def _():
    ada, bob = somebody(), somebody()
    edge("PUT", ada, bob, "block").expect(200)
    edge("PUT", ada, bob, "block").expect(200)
    edge("PUT", ada, bob, "follow").problem(403)
    edge("PUT", bob, ada, "follow").problem(403)
    equal((counts(ada), counts(bob)), ((0, 0), (0, 0)))
    edge("PUT", bob, ada, "block").expect(200)  # both block
    edge("DELETE", ada, bob, "block").expect(200)
    edge("PUT", ada, bob, "follow").problem(403)
    edge("DELETE", bob, ada, "block").expect(200)
    edge("DELETE", bob, ada, "block").expect(200)
    edge("PUT", ada, bob, "follow").expect(200)
    edge("PUT", bob, ada, "follow").expect(200)


@test("graph-no-edge-shows-a-profile-that-hides-behind-a-block-or-a-suspension")
def _():
    ada, bob, eve = somebody(), somebody(), somebody()
    for one in (ada, eve):
        one.patch("/v1/me", {"bio": "secret", "display_name": "Secret"}).expect(200)
    edge("PUT", bob, eve, "mute").expect(200)
    edge("PUT", ada, bob, "block").expect(200)
    SERVER.client(control=True).put(f"/v1/admin/accounts/{eve.id}/suspension").expect(204)
    for other in (ada, eve):
        bob.get("/v1/accounts/" + other.id).problem(404)
        edge("PUT", bob, other, "mute").problem(404)
    for method, other, kind in (("DELETE", ada, "block"), ("DELETE", ada, "mute"), ("DELETE", eve, "mute"),
                                ("PUT", ada, "block"), ("PUT", eve, "block"), ("DELETE", eve, "block")):
        for _ in range(2):  # whether it changes something or not
            answer = edge(method, bob, other, kind).expect(200)
            equal(shapes.account(answer.json)["id"], other.id)
            check("secret" not in answer.text.lower(), answer.text)


@test("graph-mute-hides-from-the-feed-alone-and-the-muted-cannot-tell")
def _():
    ada, bob = somebody(), somebody()
    edge("PUT", ada, bob, "follow").expect(200)
    post = bob.post("/v1/posts", {"caption": "loud"}).expect(201).json["id"]
    SERVER.drain()
    shapes.account(edge("PUT", ada, bob, "mute").expect(200).json, relationship=["following", "muting"])
    equal(ada.get("/v1/feed").json["items"], [])
    ada.get("/v1/posts/" + post).expect(200)
    equal(shapes.ids(ada.get(f"/v1/accounts/{bob.id}/posts").json["items"]), [post])
    shapes.account(bob.get("/v1/accounts/" + ada.id).json, relationship=["followed_by"])
    shapes.account(edge("DELETE", ada, bob, "mute").expect(200).json, relationship=["following"])
    equal(shapes.ids(ada.get("/v1/feed").json["items"]), [post])


@test("graph-followers-and-following-are-paged-whole-and-without-repeats")
def _():
    star = somebody()
    fans = [somebody() for _ in range(13)]
    for fan in fans:
        edge("PUT", fan, star, "follow").expect(200)
        edge("PUT", star, fan, "follow").expect(200)
    for path in ("followers", "following"):
        whole = f"/v1/accounts/{star.id}/{path}"
        for limit in (1, 4, 13, 200):
            items = ANYONE.pages(whole, limit=limit)
            for item in items:
                shapes.brief(item)
            equal(sorted(shapes.ids(items)), sorted(fan.id for fan in fans), f"{path} by {limit}")
        shapes.listing(ANYONE.get(whole).expect(200).json, shapes.brief)
        ANYONE.get(whole + "?limit=0").problem(400)
        ANYONE.get(whole + "?limit=201").problem(400)
        ANYONE.get(whole + "?cursor=forged").problem(400)
        cursor = fans[0].get(whole + "?limit=2").json["next_cursor"]
        fans[0].get(f"{whole}?limit=2&cursor={cursor}").expect(200)
        fans[1].get(f"{whole}?limit=2&cursor={cursor}").problem(400)
        changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
        fans[0].get(f"{whole}?cursor={changed}").problem(400)
        fans[0].get(f"/v1/accounts/{fans[0].id}/{path}?cursor={cursor}").problem(400)
    cursor = star.get(f"/v1/accounts/{star.id}/followers?limit=2").json["next_cursor"]
    star.get(f"/v1/accounts/{star.id}/following?cursor={cursor}").problem(400)


@test("graph-ones-own-blocks-and-mutes-are-listed-whole-and-for-oneself-alone")
def _():
    me, others = somebody(), [somebody() for _ in range(5)]
    for kind, path in (("block", "/v1/me/blocks"), ("mute", "/v1/me/mutes")):
        ANYONE.get(path).problem(401)
        equal(me.get(path).expect(200).json, {"items": [], "next_cursor": None})
        for other in others:
            edge("PUT", me, other, kind).expect(200)
        for limit in (1, 2, 5, 200):
            items = me.pages(path, limit=limit)
            equal(sorted(shapes.ids(items)), sorted(o.id for o in others), f"{path} by {limit}")
        shapes.listing(me.get(path).json, shapes.brief)
        equal(others[0].get(path).json["items"], [])
        cursor = me.get(path + "?limit=2").json["next_cursor"]
        others[0].get(f"{path}?cursor={cursor}").problem(400)
        me.get(f"/v1/accounts/{me.id}/followers?cursor={cursor}").problem(400)
        for other in others[1:]:
            edge("DELETE", me, other, kind).expect(200)
        equal(shapes.ids(me.get(path).json["items"]), [others[0].id])
        edge("DELETE", me, others[0], kind).expect(200)
        equal(me.get(path).json["items"], [])


@test("graph-pages-hold-while-people-come-and-go")
def _():
    star = somebody()
    fans = [somebody() for _ in range(8)]
    for fan in fans:
        edge("PUT", fan, star, "follow").expect(200)
    path = f"/v1/accounts/{star.id}/followers?limit=3"
    page = ANYONE.get(path).json
    seen = shapes.ids(page["items"])
    late = somebody()
    edge("PUT", late, star, "follow").expect(200)
    gone = next(f for f in fans if f.id in seen)
    edge("DELETE", gone, star, "follow").expect(200)
    while page["next_cursor"]:
        page = ANYONE.get(f"{path}&cursor={page['next_cursor']}").expect(200).json
        seen += shapes.ids(page["items"])
    equal(sorted(seen), sorted(f.id for f in fans))


@test("graph-one-can-follow-at-most-max-following")
def _():
    with Server(rate_auth=0, max_following=3) as server:
        people = [server.sign_up(f"p{n}.x") for n in range(5)]
        me = people[0]
        for other in people[1:4]:
            edge("PUT", me, other, "follow").expect(200)
        edge("PUT", me, people[4], "follow").problem(422)
        edge("PUT", me, people[1], "follow").expect(200)  # there already
        edge("DELETE", me, people[1], "follow").expect(200)
        edge("PUT", me, people[4], "follow").expect(200)
        equal(me.get("/v1/me").json["following_count"], 3)


@test("graph-counters-equal-edges-after-many-random-acts-at-once")
def _():
    people = [somebody() for _ in range(8)]

    def act(seed):
        rng = random.Random(seed)
        for _ in range(60):
            one, other = rng.sample(people, 2)
            method = rng.choice(("PUT", "PUT", "DELETE"))
            kind = rng.choice(("follow", "follow", "follow", "block", "mute"))
            if kind == "block" and rng.random() < 0.7:
                method = "DELETE"
            edge(method, one, other, kind).expect(200, 403, 404)

    together(act, range(4))
    edges = set()
    for one in people:  # anonymous readers see everybody
        following = shapes.ids(ANYONE.pages(f"/v1/accounts/{one.id}/following", limit=3))
        equal(len(following), len(set(following)))
        edges |= {(one.id, other) for other in following}
    for one in people:
        followers = set(shapes.ids(ANYONE.pages(f"/v1/accounts/{one.id}/followers")))
        equal(followers, {a for a, b in edges if b == one.id}, "the two directions differ")
        equal(counts(one), (len(followers), sum(a == one.id for a, _ in edges)))
        for other in people:
            if other is one:
                continue
            answer = one.get("/v1/accounts/" + other.id)
            if answer.status == 404:  # blocked by the other
                check((one.id, other.id) not in edges and (other.id, one.id) not in edges)
                continue
            relation = answer.json["relationship"]
            equal(relation["following"], (one.id, other.id) in edges)
            equal(relation["followed_by"], (other.id, one.id) in edges)
            check(not (relation["blocking"] and relation["following"]))
    SERVER.drain()
    result = SERVER.command("check", "--all")
    equal(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    main()
