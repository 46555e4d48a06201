#!/usr/bin/env python3
"""The inbox: which groups in which order, what is unread, and the mark of what was read."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0, rate_read=0)
count = 0


def people(*names):
    global count
    count += 1
    return [SERVER.sign_up(f"{name}{count}") for name in names]


def make(owner, *members, **more):
    body = {"name": "birds", "members": [m.id for m in members], **more}
    return owner.post("/v1/groups", body).expect(201).json["id"]


def say(client, group, body="hello", **more):
    return client.post(f"/v1/groups/{group}/messages", {"body": body, **more}).expect(201).json


def read(client, group, seq):
    return client.put(f"/v1/groups/{group}/read", {"seq": seq})


def order(client, **more):
    SERVER.drain()
    return [i["group"]["id"] for i in client.pages("/v1/inbox", **more)]


def item(client, group):
    SERVER.drain()
    return [i for i in client.pages("/v1/inbox") if i["group"]["id"] == group][0]


@test("an-inbox-begins-empty-and-shows-a-group-with-all-that-a-list-needs")
def _():
    ada, bob = people("ada", "bob")
    equal(shapes.listing(ada.get("/v1/inbox").expect(200).json), [])
    group = make(ada, bob)
    sent = say(bob, group)
    one = shapes.listing(ada.get("/v1/inbox").expect(200).json)[0]
    equal(set(one), {"group", "unread", "mentions", "last_message", "activity_at"})
    equal((one["group"], one["unread"], one["mentions"], one["last_message"]),
          (ada.get("/v1/groups/" + group).json, 1, 0, sent))
    check(shapes.is_time(one["activity_at"]))
    SERVER.anonymous.get("/v1/inbox").problem(401)


@test("the-newest-activity-comes-first-and-pages-are-whole")
def _():
    ada, bob = people("ada", "bob")
    groups = [make(ada, bob) for _ in range(7)]
    equal(order(ada), groups[::-1])
    for n in (2, 5, 0):
        say(bob, groups[n])
    wanted = [groups[n] for n in (0, 5, 2, 6, 4, 3, 1)]
    for limit in (1, 2, 3, 7, 100):
        equal(order(ada, limit=limit), wanted)
    chat = bob.put(f"/v1/accounts/{ada.id}/chat").expect(201).json["id"]
    equal(order(ada), [chat] + wanted)
    for bad in ("limit=101", "limit=0", "cursor=x", "archived=maybe"):
        ada.get("/v1/inbox?" + bad).problem(400)
    page = ada.get("/v1/inbox?limit=3").json
    bob.get(f"/v1/inbox?limit=3&cursor={page['next_cursor']}").problem(400)


@test("pages-of-long-messages-are-shorter-and-lead-on")
def _():
    ada, bob = people("ada", "bob")
    groups = [make(ada, bob) for _ in range(80)]
    for group in groups:
        say(ada, group, "\x01" * 10000)
    equal(order(bob, limit=100), groups[::-1])
    check(1 < len(bob.get("/v1/inbox?limit=100").json["items"]) < 80)
    for group in groups:
        bob.patch(f"/v1/groups/{group}", {"archived": True}).expect(200)
    equal([i["group"]["id"] for i in bob.pages("/v1/inbox?archived=true", limit=100)], groups[::-1])
    check(1 < len(bob.get("/v1/inbox?archived=true&limit=100").json["items"]) < 80)


@test("what-is-not-a-message-does-not-move-a-group")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    first, second = make(ada, bob), make(ada, bob)
    sent = say(bob, second)
    say(ada, first)
    bob.patch(f"/v1/groups/{second}/messages/{sent['seq']}", {"body": "changed"}).expect(200)
    ada.patch(f"/v1/groups/{second}", {"name": "gulls"}).expect(200)
    ada.put(f"/v1/groups/{second}/members/{eve.id}").expect(201)
    equal(order(ada), [first, second])
    equal(order(eve), [second])
    equal((item(eve, second)["unread"], item(eve, second)["last_message"]), (0, None))
    equal(item(ada, second)["last_message"]["body"], "changed")


@test("an-inbox-that-was-just-read-shows-every-change-at-once")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    group = make(ada, bob, eve)
    chat = bob.put(f"/v1/accounts/{ada.id}/chat").expect(201).json["id"]
    SERVER.drain()

    def shown(client, of=group):
        SERVER.drain()
        pages = [client.get("/v1/inbox").expect(200).json for _ in range(3)]  # from truth, then from memory
        equal(pages[1:], pages[:1] * 2)
        return {i["group"]["id"]: i for i in pages[0]["items"]}.get(of)

    shown(bob)
    sent = say(ada, group, "one", mentions=[bob.id])
    equal((shown(bob)["unread"], shown(bob)["mentions"], shown(bob)["last_message"]["body"]), (1, 1, "one"))
    equal((shown(ada)["unread"], shown(eve)["mentions"]), (0, 0))
    ada.patch(f"/v1/groups/{group}/messages/{sent['seq']}", {"body": "two"}).expect(200)
    equal([shown(c)["last_message"]["body"] for c in (ada, bob, eve)], ["two"] * 3)
    ada.delete(f"/v1/groups/{group}/messages/{sent['seq']}").expect(204)
    for client in (ada, bob, eve):
        equal((shown(client)["last_message"]["body"], shown(client)["last_message"]["deleted"]), (None, True))
    equal(shown(bob)["mentions"], 0)
    read(bob, group, sent["seq"]).expect(200)
    equal((shown(bob)["unread"], shown(eve)["unread"]), (0, 0))  # deleted
    say(ada, group, "three")
    read(bob, group, sent["seq"] + 2 + 1).expect(200)  # behind it: an edit, a deletion, and that one
    equal((shown(bob)["unread"], shown(eve)["unread"]), (0, 1))
    bob.patch(f"/v1/groups/{group}", {"muted": True}).expect(200)
    equal((shown(bob)["group"]["muted"], shown(eve)["group"]["muted"]), (True, False))
    ada.patch(f"/v1/groups/{group}", {"name": "gulls"}).expect(200)
    ada.put(f"/v1/groups/{group}/members/{bob.id}", {"role": "admin"}).expect(200)
    equal((shown(bob)["group"]["name"], shown(bob)["group"]["role"]), ("gulls", "admin"))
    shown(bob, chat)
    ada.patch("/v1/me", {"display_name": "Ada, renamed"}).expect(200)
    equal(shown(bob, chat)["group"]["peer"]["display_name"], "Ada, renamed")
    eve.delete(f"/v1/groups/{group}/members/{eve.id}").expect(204)
    equal((shown(eve), shown(bob)["group"]["member_count"]), (None, 2))
    bob.patch(f"/v1/groups/{group}", {"archived": True}).expect(200)
    equal(shown(bob), None)


@test("archived-groups-are-a-list-of-their-own")
def _():
    ada, bob = people("ada", "bob")
    first, second = make(ada, bob), make(ada, bob)
    ada.patch(f"/v1/groups/{first}", {"archived": True}).expect(200)
    equal((order(ada), order(bob)), ([second], [second, first]))
    equal([i["group"]["id"] for i in ada.get("/v1/inbox?archived=true").expect(200).json["items"]], [first])
    equal([i["group"]["id"] for i in ada.get("/v1/inbox?archived=false").expect(200).json["items"]], [second])
    ada.patch(f"/v1/groups/{first}", {"archived": False}).expect(200)
    equal(order(ada), [second, first])


@test("unread-counts-messages-alone-and-ones-own-are-read")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    for n in range(3):
        say(ada, group, str(n))
    ada.patch(f"/v1/groups/{group}", {"name": "gulls"}).expect(200)
    equal((item(bob, group)["unread"], item(ada, group)["unread"]), (3, 0))
    say(bob, group)
    equal((item(bob, group)["unread"], item(ada, group)["unread"]), (0, 1))


@test("unread-does-not-count-a-deleted-message")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    sent = [say(ada, group, str(n)) for n in range(4)]
    unread = lambda: item(bob, group)["unread"]  # noqa: E731
    remove = lambda one: ada.delete(f"/v1/groups/{group}/messages/{one['seq']}").expect(204)  # noqa: E731
    equal(unread(), 4)
    remove(sent[1])
    equal((unread(), item(ada, group)["unread"]), (3, 0))
    equal(read(bob, group, sent[0]["seq"]).expect(200).json["unread"], 2)
    equal(read(bob, group, sent[2]["seq"]).expect(200).json["unread"], 1)  # past the deleted one
    remove(sent[0])  # what was read is not unread by its deletion
    equal(unread(), 1)
    remove(sent[3])
    equal((unread(), item(bob, group)["last_message"]["deleted"]), (0, True))
    say(ada, group, "new")
    equal(unread(), 1)


@test("a-read-mark-goes-forward-only-and-not-beyond-the-end")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)  # entries 1 and 2
    for n in range(4):
        say(ada, group, str(n), mentions=[bob.id])  # 3 to 6
    equal((item(bob, group)["unread"], item(bob, group)["mentions"]), (4, 4))
    got = read(bob, group, 4).expect(200).json
    equal((got["unread"], got["mentions"], got["group"]["read_seq"]), (2, 2, 4))
    equal(got, item(bob, group))
    equal(read(bob, group, 3).expect(200).json, got)
    equal(read(bob, group, 0).expect(200).json, got)
    got = read(bob, group, 999).expect(200).json
    equal((got["unread"], got["mentions"], got["group"]["read_seq"]), (0, 0, 6))
    for bad in ({}, {"seq": -1}, {"seq": "4"}, {"seq": 1.5}, {"seq": None}):
        bob.put(f"/v1/groups/{group}/read", bad).problem(422)
    read(bob, 1, 1).problem(404)


@test("who-leaves-has-the-group-no-more-and-who-returns-begins-anew")
def _():
    ada, bob = people("ada", "bob")
    group, other = make(ada, bob), make(ada, bob)
    say(ada, group, "x", mentions=[bob.id])
    bob.delete(f"/v1/groups/{group}/members/{bob.id}").expect(204)
    equal(order(bob), [other])
    read(bob, group, 3).problem(404)
    say(ada, group)
    ada.put(f"/v1/groups/{group}/members/{bob.id}").expect(201)
    equal(order(bob), [group, other])
    one = item(bob, group)
    equal((one["unread"], one["mentions"], one["last_message"]), (0, 0, None))
    sent = say(ada, group)
    equal((item(bob, group)["unread"], item(bob, group)["last_message"]), (1, sent))


if __name__ == "__main__":
    main()
