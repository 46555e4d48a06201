#!/usr/bin/env python3
"""Groups: making, joining, inviting, roles, leaving, chats of two, and what happens to them when an account goes."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.place import is_cluster  # noqa: E402
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0, rate_read=0)
ANYONE = SERVER.anonymous
ADA, BOB, EVE, TOM, ZOE = (SERVER.sign_up(name) for name in ("ada", "bob", "eve", "tom", "zoe"))
GROUP = {"id", "kind", "name", "history", "member_count", "seq", "created_at", "role", "muted", "archived", "read_seq",
         "joined_seq", "peer"}


def make(owner=ADA, *members, **more):
    body = {"name": "birds", "members": [m.id for m in members], **more}
    return owner.post("/v1/groups", body).expect(201).json


def show(client, group):
    return client.get(f"/v1/groups/{group['id']}")


def member(client, group, whom):
    return f"/v1/groups/{group['id']}/members/{whom.id}"


def put(client, group, whom, body=None):
    return client.put(member(client, group, whom), body)


def leave(client, group, whom=None):
    return client.delete(member(client, group, whom or client))


def say(client, group, body="hello", **more):
    return client.post(f"/v1/groups/{group['id']}/messages", {"body": body, **more})


def members(client, group, **more):
    return [(m["username"], m["role"]) for m in client.pages(f"/v1/groups/{group['id']}/members", **more)]


def log(client, group):
    return client.get(f"/v1/groups/{group['id']}/messages?after=0&limit=200").expect(200).json["items"]


def story(client, group):
    """What happened, without the messages: (kind, author, whom or what)."""
    names = {c.id: c.username for c in (ADA, BOB, EVE, TOM, ZOE)}
    return [(e["kind"], names.get(e["author_id"]), names.get(e.get("subject_id"), e["body"])) for e in log(client, group)]


@test("groups-create-answers-the-group-and-its-first-members-are-its-first-entries")
def _():
    answer = ADA.post("/v1/groups", {"name": "birds", "members": [BOB.id, EVE.id, BOB.id, ADA.id]}).expect(201)
    group = answer.json
    equal(answer.headers["location"], "/v1/groups/" + group["id"])
    equal(set(group), GROUP)
    equal({k: group[k] for k in ("kind", "name", "history", "member_count", "seq", "role", "muted", "archived", "read_seq",
                                 "joined_seq", "peer")},
          {"kind": "group", "name": "birds", "history": "joined", "member_count": 3, "seq": 3, "role": "owner",
           "muted": False, "archived": False, "read_seq": 1, "joined_seq": 1, "peer": None})
    check(shapes.is_id(group["id"]) and shapes.is_time(group["created_at"]))
    equal(show(ADA, group).expect(200).json, group)
    theirs = show(BOB, group).expect(200).json
    equal((theirs["role"], theirs["joined_seq"], theirs["seq"]), ("member", 2, 3))
    equal(story(ADA, group), [("join", "ada", "ada"), ("join", "ada", "bob"), ("join", "ada", "eve")])
    equal(members(EVE, group), [("ada", "owner"), ("bob", "member"), ("eve", "member")])


@test("groups-are-hidden-from-all-but-their-members")
def _():
    group = make(ADA, BOB)
    for client, status in ((TOM, 404), (ANYONE, 401)):
        show(client, group).problem(status)
        client.patch(f"/v1/groups/{group['id']}", {"name": "mine"}).problem(status)
        client.get(f"/v1/groups/{group['id']}/members").problem(status)
        client.get(f"/v1/groups/{group['id']}/messages").problem(status)
        say(client, group).problem(status)
        client.put(f"/v1/groups/{group['id']}/read", {"seq": 1}).problem(status)
        client.patch(f"/v1/groups/{group['id']}/messages/1", {"body": "x"}).problem(status)
        client.delete(f"/v1/groups/{group['id']}/messages/1").problem(status)
        put(client, group, ZOE).problem(status)
        put(client, group, TOM).problem(status)
        leave(client, group, BOB).problem(status)
        leave(client, group, TOM).problem(status)
    ADA.get("/v1/groups/1").problem(404)
    ADA.get("/v1/groups/0").problem(404)


@test("groups-create-refuses-bad-names-histories-and-members")
def _():
    for bad in ("", "x" * 101, None, 7, "two\nlines", "bell\a"):
        ADA.post("/v1/groups", {"name": bad}).problem(422)
    ADA.post("/v1/groups", {}).problem(422)
    equal(ADA.post("/v1/groups", {"name": "😀" * 100}).expect(201).json["name"], "😀" * 100)
    ADA.post("/v1/groups", {"name": "x", "history": "some"}).problem(422)
    equal(make(ADA, history="all")["history"], "all")
    for bad in ("x", [1], ["x"], [""], {"a": 1}, [None]):
        ADA.post("/v1/groups", {"name": "x", "members": bad}).problem(422)
    ADA.post("/v1/groups", {"name": "x", "members": ["1"]}).problem(404)
    ADA.post("/v1/groups", {"name": "x", "members": [str(n) for n in range(1, 1002)]}).problem(422)
    EVE.put(f"/v1/accounts/{ADA.id}/block").expect(200)
    ADA.post("/v1/groups", {"name": "x", "members": [BOB.id, EVE.id]}).problem(403)
    EVE.delete(f"/v1/accounts/{ADA.id}/block").expect(200)
    key = {"Idempotency-Key": "once"}
    first = ADA.post("/v1/groups", {"name": "once"}, headers=key).expect(201)
    equal(ADA.post("/v1/groups", {"name": "once"}, headers=key).expect(201).json, first.json)


@test("groups-take-a-thousand-members-at-once")
def _():
    with Server(rate_auth=0, rate_write=0, place=False) as server:
        ada = server.sign_up("ada")
        server.stop()
        with store(server, write=True) as database:
            database.executemany("INSERT INTO accounts (id, username) VALUES (?, ?)",
                                 [(n, f"person{n}") for n in range(1, 1001)])
        server.start()
        ids = [str(n) for n in range(1, 1001)]
        group = ada.post("/v1/groups", {"name": "many", "members": ids}).expect(201).json
        equal((group["member_count"], group["seq"]), (1001, 1001))
        for limit in (7, 200):
            listed = ada.pages(f"/v1/groups/{group['id']}/members", limit=limit)
            equal([m["id"] for m in listed], [ada.id] + ids)


@test("groups-are-renamed-and-opened-by-owner-and-admins-and-each-is-an-entry")
def _():
    group = make(ADA, BOB, EVE)
    put(ADA, group, BOB, {"role": "admin"}).expect(200)
    path = f"/v1/groups/{group['id']}"
    EVE.patch(path, {"name": "mine"}).problem(403)
    EVE.patch(path, {"history": "all"}).problem(403)
    EVE.patch(path, {"name": "birds"}).problem(403)
    equal(BOB.patch(path, {"name": "gulls"}).expect(200).json["name"], "gulls")
    equal(BOB.patch(path, {"name": "gulls"}).expect(200).json["seq"], show(ADA, group).json["seq"])
    equal(ADA.patch(path, {"history": "all"}).expect(200).json["history"], "all")
    for bad in ({"name": ""}, {"name": "x" * 101}, {"history": "none"}, {"muted": 1}, {"archived": "yes"}):
        ADA.patch(path, bad).problem(422)
    equal(story(ADA, group)[3:], [("role", "ada", "bob"), ("rename", "bob", "gulls"), ("history", "ada", "all")])


@test("groups-muted-and-archived-are-each-members-own")
def _():
    group = make(ADA, BOB)
    path = f"/v1/groups/{group['id']}"
    theirs = BOB.patch(path, {"muted": True, "archived": True}).expect(200).json
    equal((theirs["muted"], theirs["archived"]), (True, True))
    equal((show(ADA, group).json["muted"], show(ADA, group).json["archived"]), (False, False))
    equal(BOB.patch(path, {"muted": False}).json["archived"], True)
    equal((show(BOB, group).json["muted"], show(BOB, group).json["seq"]), (False, 2))


@test("members-are-added-by-owner-and-admins-once")
def _():
    group = make(ADA, BOB)
    put(BOB, group, EVE).problem(403)
    added = put(ADA, group, EVE).expect(201).json
    equal((added["id"], added["username"], added["state"], added["role"], added["joined_seq"]),
          (EVE.id, "eve", "member", "member", 3))
    check(shapes.is_time(added["joined_at"]))
    equal(put(ADA, group, EVE).expect(200).json, added)
    equal(show(EVE, group).json["member_count"], 3)
    put(ADA, group, TOM, {"role": "admin"}).expect(201)
    put(TOM, group, ZOE, {"role": "admin"}).problem(403)
    put(TOM, group, ZOE, {"role": "owner"}).problem(422)
    put(TOM, group, ZOE, {"role": "member"}).expect(201)
    put(ADA, group, ZOE, {"role": "king"}).problem(422)
    ADA.put(f"/v1/groups/{group['id']}/members/1").problem(404)
    equal(members(ADA, group), [("ada", "owner"), ("tom", "admin"), ("bob", "member"), ("eve", "member"),
                                ("zoe", "member")])
    for limit in (1, 2, 3):
        equal(len(members(ADA, group, limit=limit)), 5)
    ADA.get(f"/v1/groups/{group['id']}/members?limit=201").problem(400)


@test("members-who-block-the-adder-cannot-be-added-or-invited")
def _():
    group = make(ADA)
    EVE.put(f"/v1/accounts/{ADA.id}/block").expect(200)
    put(ADA, group, EVE).problem(403)
    put(ADA, group, EVE, {"invite": True}).problem(403)
    EVE.delete(f"/v1/accounts/{ADA.id}/block").expect(200)
    put(ADA, group, EVE).expect(201)


@test("invitations-are-accepted-declined-or-withdrawn")
def _():
    group = make(ADA, BOB)
    put(BOB, group, EVE, {"invite": True}).problem(403)
    put(ADA, group, EVE, {"invite": True, "role": "admin"}).problem(422)
    invited = put(ADA, group, EVE, {"invite": True}).expect(201).json
    equal((invited["state"], invited["joined_seq"]), ("invited", None))
    put(ADA, group, EVE, {"invite": True}).expect(200)
    show(EVE, group).problem(404)
    say(EVE, group).problem(404)
    waiting = [i for i in EVE.pages("/v1/groups/invitations", limit=1) if i["group_id"] == group["id"]]
    equal([(i["name"], i["invited_by"], i["member_count"]) for i in waiting], [("birds", ADA.id, 2)])
    put(EVE, group, EVE, {"role": "admin"}).problem(422)
    equal(put(EVE, group, EVE).expect(201).json["state"], "member")
    put(EVE, group, EVE).expect(200)
    check(group["id"] not in [i["group_id"] for i in EVE.pages("/v1/groups/invitations")])
    equal(story(ADA, group)[-1], ("join", "eve", "eve"))
    put(ADA, group, TOM, {"invite": True}).expect(201)
    leave(TOM, group).expect(204)
    put(TOM, group, TOM).problem(404)
    put(ADA, group, TOM, {"invite": True}).expect(201)
    leave(BOB, group, TOM).problem(403)
    leave(ADA, group, TOM).expect(204)
    put(TOM, group, TOM).problem(404)
    leave(ADA, group, TOM).problem(404)
    equal(show(ADA, group).json["member_count"], 3)


@test("roles-are-the-owners-to-give-and-the-group-has-one-owner")
def _():
    group = make(ADA, BOB, EVE, TOM)
    put(ADA, group, BOB, {"role": "admin"}).expect(200)
    seq = show(ADA, group).json["seq"]
    put(ADA, group, BOB, {"role": "admin"}).expect(200)
    equal(show(ADA, group).json["seq"], seq)
    put(BOB, group, EVE, {"role": "admin"}).problem(403)
    put(BOB, group, ADA, {"role": "member"}).problem(403)
    put(EVE, group, EVE, {"role": "admin"}).problem(403)
    put(BOB, group, BOB, {"role": "owner"}).problem(403)
    put(ADA, group, ADA, {"role": "admin"}).problem(409)
    equal(put(BOB, group, BOB, {"role": "member"}).expect(200).json["role"], "member")
    put(ADA, group, EVE, {"role": "owner"}).expect(200)
    equal(members(ADA, group), [("eve", "owner"), ("ada", "admin"), ("bob", "member"), ("tom", "member")])
    put(ADA, group, BOB, {"role": "admin"}).problem(403)
    equal(story(ADA, group)[-2:], [("role", "ada", "ada"), ("role", "ada", "eve")])


@test("members-are-removed-only-by-a-higher-role")
def _():
    group = make(ADA, BOB, EVE, TOM, ZOE)
    for admin in (BOB, EVE):
        put(ADA, group, admin, {"role": "admin"}).expect(200)
    leave(TOM, group, ZOE).problem(403)
    leave(BOB, group, EVE).problem(403)
    leave(BOB, group, ADA).problem(403)
    leave(BOB, group, TOM).expect(204)
    leave(BOB, group, TOM).problem(404)
    show(TOM, group).problem(404)
    leave(ADA, group, EVE).expect(204)
    equal(show(ADA, group).json["member_count"], 3)
    equal(story(ADA, group)[-2:], [("leave", "bob", "tom"), ("leave", "ada", "eve")])


@test("an-owner-who-leaves-passes-the-group-to-the-oldest-admin-else-the-oldest-member")
def _():
    group = make(ADA)
    for newcomer in (ZOE, TOM, EVE, BOB):
        put(ADA, group, newcomer).expect(201)
    put(ADA, group, EVE, {"role": "admin"}).expect(200)
    put(ADA, group, TOM, {"role": "admin"}).expect(200)
    leave(ADA, group).expect(204)
    equal(members(BOB, group), [("tom", "owner"), ("eve", "admin"), ("zoe", "member"), ("bob", "member")])
    leave(EVE, group).expect(204)
    leave(TOM, group).expect(204)
    equal(members(BOB, group), [("zoe", "owner"), ("bob", "member")])
    leave(ZOE, group).expect(204)
    leave(BOB, group).expect(204)
    show(BOB, group).problem(404)
    equal(story(BOB, group)[-1], ("leave", "bob", "bob"))


@test("accepting-an-invitation-to-a-group-that-all-left-makes-the-owner")
def _():
    group = make(ADA)
    for guest in (BOB, EVE):
        put(ADA, group, guest, {"invite": True}).expect(201)
    leave(ADA, group).expect(204)
    equal(put(BOB, group, BOB).expect(201).json["role"], "owner")
    equal(put(EVE, group, EVE).expect(201).json["role"], "member")
    equal(members(EVE, group), [("bob", "owner"), ("eve", "member")])
    equal(story(BOB, group), [("join", "bob", "bob"), ("role", "bob", "bob"), ("join", "eve", "eve")])


@test("who-joins-later-reads-from-there-and-who-left-up-to-there")
def _():
    group = make(ADA, BOB)
    say(ADA, group, "one").expect(201)
    put(ADA, group, EVE).expect(201)  # entry 4
    say(ADA, group, "two").expect(201)
    leave(BOB, group).expect(204)  # entry 6
    say(ADA, group, "three").expect(201)
    seen = lambda c: [e["seq"] for e in log(c, group)]  # noqa: E731
    equal((seen(ADA), seen(BOB), seen(EVE)), ([1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6], [4, 5, 6, 7]))
    ADA.patch(f"/v1/groups/{group['id']}", {"history": "all"}).expect(200)
    equal((seen(EVE), seen(BOB)), ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6]))
    ADA.patch(f"/v1/groups/{group['id']}", {"history": "joined"}).expect(200)
    say(BOB, group).problem(404)
    put(ADA, group, BOB).expect(201)  # entry 10: comes back, and begins anew
    equal(seen(BOB), [10])
    equal(show(BOB, group).json["read_seq"], 10)


@test("an-edit-shows-no-member-what-was-not-said-in-their-time")
def _():
    group = make(ADA, BOB)
    first = say(ADA, group, "one").expect(201).json
    leave(BOB, group).expect(204)
    put(ADA, group, EVE).expect(201)
    ADA.patch(f"/v1/groups/{group['id']}/messages/{first['seq']}", {"body": "changed"}).expect(200)
    edit = log(EVE, group)[-1]
    equal((edit["kind"], edit["target_seq"], edit["body"]), ("edit", first["seq"], None))
    equal([e["body"] for e in log(ADA, group) if e["kind"] in ("message", "edit")], ["changed", "changed"])
    equal([e["body"] for e in log(BOB, group) if e["kind"] == "message"], [None])


@test("a-chat-is-found-by-either-and-made-once")
def _():
    made = ADA.put(f"/v1/accounts/{ZOE.id}/chat").expect(201).json
    equal(set(made), GROUP)
    equal((made["kind"], made["name"], made["member_count"], made["role"]), ("chat", None, 2, "member"))
    shapes.brief(made["peer"], ZOE)
    equal(ADA.put(f"/v1/accounts/{ZOE.id}/chat").expect(200).json, made)
    theirs = ZOE.put(f"/v1/accounts/{ADA.id}/chat").expect(200).json
    equal(theirs["id"], made["id"])
    shapes.brief(theirs["peer"], ADA)
    ADA.put(f"/v1/accounts/{ADA.id}/chat").problem(422)
    ADA.put("/v1/accounts/1/chat").problem(404)
    ANYONE.put(f"/v1/accounts/{ADA.id}/chat").problem(401)


@test("a-chat-asked-for-by-many-at-once-is-one")
def _():
    ids, lock = [], threading.Lock()

    def ask(client, other):
        answer = client.put(f"/v1/accounts/{other.id}/chat").expect(200, 201)
        with lock:
            ids.append((answer.json["id"], answer.status))

    threads = [threading.Thread(target=ask, args=pair) for pair in [(BOB, TOM), (TOM, BOB)] * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(ids), 16)
    equal(len({one for one, _ in ids}), 1)
    equal([status for _, status in ids].count(201), 1)


@test("a-chat-has-its-two-people-and-takes-nothing-while-one-blocks-the-other")
def _():
    chat = EVE.put(f"/v1/accounts/{TOM.id}/chat").expect(201).json
    sent = say(EVE, chat, "hello").expect(201).json
    put(EVE, chat, ADA).problem(403)
    leave(EVE, chat).problem(403)
    leave(EVE, chat, TOM).problem(403)
    EVE.patch(f"/v1/groups/{chat['id']}", {"name": "us"}).problem(403)
    EVE.patch(f"/v1/groups/{chat['id']}", {"history": "joined"}).problem(403)
    EVE.patch(f"/v1/groups/{chat['id']}", {"muted": True}).expect(200)
    TOM.delete(f"/v1/groups/{chat['id']}/messages/{sent['seq']}").problem(403)
    for blocker, blocked in ((EVE, TOM), (TOM, EVE)):
        blocker.put(f"/v1/accounts/{blocked.id}/block").expect(200)
        for client in (EVE, TOM):
            say(client, chat).problem(403)
        EVE.patch(f"/v1/groups/{chat['id']}/messages/{sent['seq']}", {"body": "x"}).problem(403)
        EVE.put(f"/v1/accounts/{TOM.id}/chat").problem(403)
        equal(len(log(EVE, chat)), 3)
        blocker.delete(f"/v1/accounts/{blocked.id}/block").expect(200)
    say(TOM, chat).expect(201)
    EVE.delete(f"/v1/groups/{chat['id']}/messages/{sent['seq']}").expect(204)


@test("a-deleted-account-leaves-its-groups-and-its-messages-lose-their-text")
def _():
    owner, gone = SERVER.sign_up("owner1"), SERVER.sign_up("gone1")
    group = make(owner, gone, BOB)
    chat = gone.put(f"/v1/accounts/{BOB.id}/chat").expect(201).json
    say(gone, group, "still here").expect(201)
    put(owner, group, ADA, {"invite": True}).expect(201)
    gone.delete("/v1/me").expect(204)
    owner.delete("/v1/me").expect(204)
    wait_until(lambda: show(BOB, group).json["member_count"] == 1, what="both to leave")
    equal(members(BOB, group), [("bob", "owner")])
    wait_until(lambda: "still here" not in [e["body"] for e in log(BOB, group)], what="the message to be erased")
    check((gone.id, None) in [(e["author_id"], e["body"]) for e in log(BOB, group) if e["kind"] == "message"])
    wait_until(lambda: show(BOB, chat).json["member_count"] == 1, what="the chat to be left")
    equal(show(BOB, chat).json["peer"], None)
    say(BOB, chat).problem(403)


@test("a-suspended-account-stays-a-member-and-is-not-shown")
def _():
    someone = SERVER.sign_up("someone1")
    group = make(ADA, someone)
    SERVER.operator.put(f"/v1/admin/accounts/{someone.id}/suspension").expect(204)
    equal(members(ADA, group), [("ada", "owner")])
    equal(show(ADA, group).json["member_count"], 2)
    put(BOB, make(BOB), someone).problem(404)
    SERVER.operator.delete(f"/v1/admin/accounts/{someone.id}/suspension").expect(204)
    equal(members(ADA, group), [("ada", "owner"), ("someone1", "member")])


@test("limits-of-a-group-and-of-a-person-answer-409")
def _():
    with Server(rate_auth=0, rate_write=0, place=False) as server:
        ada, bob, eve = (server.sign_up(name) for name in ("ada", "bob", "eve"))
        group = ada.post("/v1/groups", {"name": "full"}).expect(201).json
        other = ada.post("/v1/groups", {"name": "other"}).expect(201).json
        server.stop()
        with store(server, write=True) as database:
            database.execute("UPDATE groups SET member_count = 1000000 WHERE id = ?", (int(group["id"]),))
            database.executemany("INSERT INTO group_members VALUES (?, ?, 2, 1, 1, NULL, 1, 0, 0, 0)",
                                 [(n, int(bob.id)) for n in range(1, 10001)])
            database.executemany("INSERT INTO group_invitations VALUES (?, ?, 1, 1)",
                                 [(int(eve.id), n) for n in range(1, 1001)])
        server.start()
        check("1000000" in ada.put(f"/v1/groups/{group['id']}/members/{eve.id}").problem(409)["detail"])
        check("10000" in ada.put(f"/v1/groups/{other['id']}/members/{bob.id}").problem(409)["detail"])
        bob.post("/v1/groups", {"name": "mine"}).problem(409)
        ada.post("/v1/groups", {"name": "ours", "members": [bob.id]}).problem(409)
        ada.put(f"/v1/accounts/{bob.id}/chat").problem(409)
        ada.put(f"/v1/groups/{other['id']}/members/{eve.id}", {"invite": True}).problem(409)
        ada.put(f"/v1/groups/{other['id']}/members/{eve.id}").expect(201)
        equal(ada.get(f"/v1/groups/{other['id']}").json["member_count"], 2)


@test("counting-a-persons-groups-reads-an-index-alone", when=not is_cluster())
def _():
    with store(SERVER) as database:
        plan = database.execute("EXPLAIN QUERY PLAN SELECT COUNT(*) FROM (SELECT 1 FROM group_members "
                                "WHERE account_id = 7 AND left_seq IS NULL LIMIT 10000) AS few").fetchall()
    check(any("COVERING INDEX group_members_of" in row["detail"] for row in plan), [row["detail"] for row in plan])


@test("an-export-names-the-groups-that-one-is-in")
def _():
    someone = SERVER.sign_up("someone2")
    equal(someone.get("/v1/me/export").expect(200).json["groups"], [])
    group, left = make(someone, BOB), make(someone, BOB)
    leave(someone, left).expect(204)
    equal([(g["group_id"], g["name"], g["role"]) for g in someone.get("/v1/me/export").json["groups"]],
          [(group["id"], "birds", "owner")])


@test("the-api-document-names-both-answers-of-what-may-have-been-there-already")
def _():
    paths = ANYONE.get("/openapi.json").expect(200).json["paths"]
    group = make(ADA, history="all")
    for path, method, ask in (
            ("/v1/accounts/{id}/chat", "put", lambda: SERVER.sign_up("chatty1").put(f"/v1/accounts/{ADA.id}/chat")),
            ("/v1/groups/{id}/members/{account}", "put", lambda: put(ADA, group, BOB)),
            ("/v1/groups/{id}/messages", "post", lambda: say(ADA, group, client_id="once"))):
        answers = paths[path][method]["responses"]
        check(str(ask().expect(201).status) in answers and "200" in answers, (path, list(answers)))
        equal(answers["200"], answers["201"])
    check("404" in paths["/v1/groups"]["post"]["responses"])


@test("groups-survive-kill-9")
def _():
    with Server(rate_auth=0, rate_write=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        group = ada.post("/v1/groups", {"name": "birds", "members": [bob.id]}).expect(201).json
        sent = say(bob, group, "hello").expect(201).json
        server.restart(hard=True)
        equal(say(bob, group, "again").expect(201).json["seq"], sent["seq"] + 1)
        equal([e["seq"] for e in log(ada, group)], [1, 2, 3, 4])


if __name__ == "__main__":
    main()
