#!/usr/bin/env python3
"""Messages of groups: numbers, ranges, edits, deletions, client ids, mentions, and the inbox that comes from them."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0, rate_read=0)
ANYONE = SERVER.anonymous
ADA, BOB, EVE, TOM = (SERVER.sign_up(name) for name in ("ada", "bob", "eve", "tom"))
MESSAGE = {"group_id", "seq", "kind", "client_id", "author_id", "body", "created_at", "edited_at", "deleted"}


def make(owner=ADA, *members, **more):
    return owner.post("/v1/groups", {"name": "birds", "members": [m.id for m in members], **more}).expect(201).json["id"]


def say(client, group, body="hello", headers=None, **more):
    return client.post(f"/v1/groups/{group}/messages", {"body": body, **more}, headers=headers)


def edit(client, group, seq, body):
    return client.patch(f"/v1/groups/{group}/messages/{seq}", {"body": body})


def delete(client, group, seq):
    return client.delete(f"/v1/groups/{group}/messages/{seq}")


def page(client, group, query=""):
    return client.get(f"/v1/groups/{group}/messages{query}").expect(200).json


def seqs(client, group, query=""):
    return [e["seq"] for e in page(client, group, query)["items"]]


@test("messages-are-numbered-and-answered-in-their-shape")
def _():
    group = make(ADA, BOB)
    sent = say(BOB, group, "hello", client_id="b-1").expect(201).json
    equal(set(sent), MESSAGE)
    equal({k: sent[k] for k in MESSAGE - {"created_at"}},
          {"group_id": group, "seq": 3, "kind": "message", "client_id": "b-1", "author_id": BOB.id, "body": "hello",
           "edited_at": None, "deleted": False})
    check(shapes.is_time(sent["created_at"]))
    plain = say(ADA, group).expect(201).json
    equal((plain["seq"], plain["client_id"]), (4, None))
    equal(page(ADA, group, "?after=2")["items"], [sent, plain])


@test("messages-hold-1-to-10000-characters-and-come-back-as-given")
def _():
    group = make(ADA)
    for good in ("x", "ä" * 10000, 'a "quote" \\ and\na line\t\x01', "<i>&lt;"):
        equal(say(ADA, group, good).expect(201).json["body"], good)
        equal(page(ADA, group)["items"][-1]["body"], good)
    for bad in ("", "x" * 10001, None, 7, "nul\0", ["x"]):
        say(ADA, group, bad).expect(400, 422)
        edit(ADA, group, 2, bad).expect(400, 422)
    ADA.post(f"/v1/groups/{group}/messages", {}).problem(422)
    equal(seqs(ADA, group), [1, 2, 3, 4, 5])


@test("a-client-id-sent-again-is-the-same-message-and-with-another-body-422")
def _():
    group, other = make(ADA, BOB), make(ADA)
    sent = say(ADA, group, "hello", client_id="a-1").expect(201).json
    equal(say(ADA, group, "hello", client_id="a-1").expect(200).json, sent)
    say(ADA, group, "other", client_id="a-1").problem(422)
    say(BOB, group, "other", client_id="a-1").expect(201)
    say(ADA, other, "other", client_id="a-1").expect(201)
    changed = edit(ADA, group, sent["seq"], "changed").expect(200).json
    equal(say(ADA, group, "hello", client_id="a-1").expect(200).json, changed)
    say(ADA, group, "changed", client_id="a-1").problem(422)
    delete(ADA, group, sent["seq"]).expect(204)
    gone = say(ADA, group, "hello", client_id="a-1").expect(200).json
    equal((gone["body"], gone["deleted"], gone["seq"]), (None, True, sent["seq"]))
    for bad in ("", "x" * 65, "tab\t", "ä", 7):
        say(ADA, group, "x", client_id=bad).problem(422)
    say(ADA, group, "x", client_id="~" * 64).expect(201)


@test("a-client-id-sent-many-times-at-once-is-one-message-among-those-of-others")
def _():
    """They meet in one commit, beside messages into other groups and such as are refused for all sorts of reasons."""
    group, other = make(ADA, BOB), make(BOB, ADA)
    answers = []

    def send(number):
        kind = number % 6
        client, into, status = ((ADA, group, (200, 201)), (ADA, group, (200, 201)), (BOB, group, (201,)), (BOB, other, (201,)),
                                (EVE, group, (404,)), (TOM, other, (404,)))[kind]
        for turn in range(10):
            client_id = f"same {turn}" if kind < 2 else None
            answer = say(client, into, f"text {turn}", **({"client_id": client_id} if client_id else {})).expect(*status)
            if kind < 2:
                answers.append((turn, answer.status, answer.json["seq"]))
            say(client, into, "x" * 10001).expect(422, 404)

    together(send, range(24))
    for turn in range(10):
        mine = [a for a in answers if a[0] == turn]
        equal(sorted(a[1] for a in mine), [200] * 7 + [201])
        equal(len({a[2] for a in mine}), 1)
    equal(seqs(ADA, group, "?limit=200"), list(range(1, 2 + 10 + 40 + 1)))
    equal(seqs(BOB, other, "?limit=200"), list(range(1, 2 + 40 + 1)))


@test("an-idempotency-key-works-as-elsewhere-and-belongs-to-one-message")
def _():
    group = make(ADA)
    key = {"Idempotency-Key": "k1"}
    first = say(ADA, group, "one", headers=key).expect(201)
    again = say(ADA, group, "one", headers=key).expect(201)
    equal((again.json, again.headers.get("idempotent-replayed")), (first.json, "true"))
    say(ADA, group, "two", headers=key).problem(422)
    say(ADA, group, "two").expect(201)
    path = f"/v1/groups/{group}/messages/"
    equal(ADA.patch(path + "2", {"body": "new"}, headers=key).expect(200).json["seq"], 2)
    equal(ADA.patch(path + "3", {"body": "new"}, headers=key).expect(200).json["seq"], 3)


@test("messages-of-many-senders-have-no-gap-and-everyone-reads-the-same")
def _():
    people = [SERVER.sign_up(f"sender{n}") for n in range(8)]
    group = make(ADA, *people)
    answers, lock = [], threading.Lock()

    def send(client):
        for n in range(25):
            answer = say(client, group, f"{client.username} {n}", client_id=str(n)).expect(201).json
            with lock:
                answers.append(answer)

    threads = [threading.Thread(target=send, args=(p,)) for p in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sorted(a["seq"] for a in answers), list(range(10, 210)))
    logs = []
    for client in people[:2] + [ADA]:
        seen, after = [], 9
        while after is not None:
            got = page(client, group, f"?after={after}&limit=33")
            seen += got["items"]
            after = got["next"]
        logs.append(seen)
    equal(logs[0], sorted(answers, key=lambda a: a["seq"]))
    check(logs[0] == logs[1] == logs[2])


@test("ranges-are-by-number-in-rising-order-from-both-ends")
def _():
    group = make(ADA)
    for n in range(9):
        say(ADA, group, str(n)).expect(201)
    equal(seqs(ADA, group), list(range(1, 11)))
    equal(seqs(ADA, group, "?limit=3"), [8, 9, 10])
    equal(seqs(ADA, group, "?after=4&limit=3"), [5, 6, 7])
    equal(seqs(ADA, group, "?before=4&limit=2"), [2, 3])
    equal(seqs(ADA, group, "?before=1"), [])
    equal(seqs(ADA, group, "?after=10"), [])
    equal(seqs(ADA, group, "?after=99999"), [])
    equal(seqs(ADA, group, "?before=99999&limit=1"), [10])
    equal(page(ADA, group, "?after=7&limit=3")["next"], None)
    equal(page(ADA, group, "?after=6&limit=3")["next"], 9)
    equal(page(ADA, group, "?before=4&limit=3")["next"], None)
    equal(page(ADA, group, "?before=5&limit=3")["next"], 2)
    for start in ("?after=0&limit=4", "?limit=4"):
        seen, path = [], f"/v1/groups/{group}/messages{start}"
        while path:
            answer = ADA.get(path).expect(200)
            items = [e["seq"] for e in answer.json["items"]]
            seen = seen + items if "after" in path else items + seen
            link = answer.headers.get("link")
            equal(link is None, answer.json["next"] is None)
            path = link and link[1:link.index(">")]
        equal(seen, list(range(1, 11)))
    for bad in ("?after=1&before=2", "?after=-1", "?after=x", "?before=0", "?limit=0", "?limit=201", "?limit=x"):
        ADA.get(f"/v1/groups/{group}/messages{bad}").problem(400)


@test("pages-of-long-texts-are-shorter-and-lead-on-from-both-ends")
def _():
    group = make(ADA)
    for n in range(90):
        say(ADA, group, "\x01" * 9990 + str(n)).expect(201)
    for direction, query in (("after", "?limit=200&after=0"), ("before", "?limit=200")):
        seen = []
        while query:
            answer = ADA.get(f"/v1/groups/{group}/messages{query}").expect(200)
            check(len(answer.body) < 4 << 20, f"{len(answer.body)} bytes on a page")
            items, following = [e["seq"] for e in answer.json["items"]], answer.json["next"]
            check(items == list(range(items[0], items[-1] + 1)), items)
            seen = seen + items if direction == "after" else items + seen
            equal(answer.headers.get("link") is None, following is None)
            query = following and f"?limit=200&{direction}={following}"
        equal(seen, list(range(1, 92)))


@test("an-edit-is-the-authors-and-an-entry-of-its-own")
def _():
    group = make(ADA, BOB)
    sent = say(BOB, group, "one").expect(201).json
    edit(ADA, group, sent["seq"], "x").problem(403)
    edit(BOB, group, 1, "x").problem(404)
    edit(BOB, group, 99, "x").problem(404)
    changed = edit(BOB, group, sent["seq"], "two").expect(200).json
    equal((changed["seq"], changed["body"], changed["kind"]), (sent["seq"], "two", "message"))
    check(shapes.is_time(changed["edited_at"]))
    equal(edit(BOB, group, sent["seq"], "two").expect(200).json, changed)
    edit(BOB, group, sent["seq"], "three").expect(200)
    entries = page(ADA, group, "?after=2")["items"]
    equal([(e["kind"], e["seq"], e["body"], e.get("target_seq")) for e in entries],
          [("message", 3, "three", None), ("edit", 4, "three", 3), ("edit", 5, "three", 3)])


@test("a-deleted-body-is-gone-from-every-read-and-from-the-store")
def _():
    group = make(ADA, BOB, EVE)
    sent = say(BOB, group, "secret-one", mentions=[EVE.id]).expect(201).json
    edit(BOB, group, sent["seq"], "secret-two").expect(200)
    delete(EVE, group, sent["seq"]).problem(403)
    delete(BOB, group, sent["seq"]).expect(204)
    delete(BOB, group, sent["seq"]).problem(404)
    edit(BOB, group, sent["seq"], "x").problem(409)
    entries = page(ADA, group, "?after=3")["items"]
    equal([(e["kind"], e["body"], e["deleted"], e.get("target_seq")) for e in entries],
          [("message", None, True, None), ("edit", None, True, 4), ("delete", None, False, 4)])
    other = say(BOB, group, "secret-three").expect(201).json
    delete(ADA, group, other["seq"]).expect(204)
    equal([(e["kind"], e["author_id"]) for e in page(ADA, group)["items"]][-1], ("moderation", ADA.id))
    for client in (ADA, BOB, EVE):
        check("secret" not in client.get(f"/v1/groups/{group}/messages").text)
        check("secret" not in client.get("/v1/inbox").text)
    with store(SERVER) as database:
        rows = database.execute("SELECT count(*) AS n FROM group_log WHERE body LIKE 'secret%'").fetchone()
        equal(rows["n"], 0)
    item = [i for i in EVE.get("/v1/inbox").json["items"] if i["group"]["id"] == group][0]
    equal((item["mentions"], item["last_message"]["deleted"], item["last_message"]["body"]), (0, True, None))


@test("an-answer-under-an-idempotency-key-does-not-tell-what-was-deleted")
def _():
    group = make(ADA, BOB)
    key = {"Idempotency-Key": "forget"}
    other = say(BOB, group, "hidden-one", headers={"Idempotency-Key": "keep"}).expect(201)
    sent = say(BOB, group, "hidden-two", headers=key).expect(201).json
    path = f"/v1/groups/{group}/messages/{sent['seq']}"
    BOB.patch(path, {"body": "hidden-three"}, headers=key).expect(200)
    delete(ADA, group, sent["seq"]).expect(204)
    for again in (say(BOB, group, "hidden-two", headers=key).expect(201),
                  BOB.patch(path, {"body": "hidden-three"}, headers=key).expect(200)):
        equal((again.json["seq"], again.json["body"], again.json["deleted"]), (sent["seq"], None, True))
        equal(set(again.json), MESSAGE)
    equal(say(BOB, group, "hidden-one", headers={"Idempotency-Key": "keep"}).expect(201).json, other.json)


@test("a-read-mark-under-an-idempotency-key-does-not-tell-what-was-deleted")
def _():
    group = make(ADA, BOB)
    sent = say(ADA, group, "hidden-four").expect(201).json
    mark = lambda: BOB.put(f"/v1/groups/{group}/read", {"seq": sent["seq"]}, headers={"Idempotency-Key": "r"})  # noqa: E731
    equal(mark().expect(200).json["last_message"], sent)
    delete(ADA, group, sent["seq"]).expect(204)
    again = mark().expect(200).json["last_message"]
    equal((again["seq"], again["body"], again["deleted"]), (sent["seq"], None, True))


@test("an-answer-under-an-idempotency-key-is-the-message-as-it-is-now-also-for-who-left")
def _():
    group = make(ADA, BOB)
    key = {"Idempotency-Key": "again"}
    sent = say(BOB, group, "one", headers=key, client_id="c").expect(201).json
    changed = edit(BOB, group, sent["seq"], "two").expect(200).json
    equal(say(BOB, group, "one", headers=key, client_id="c").expect(201).json, changed)
    equal(say(BOB, group, "one", headers={"Idempotency-Key": "2"}, client_id="c").expect(200).json, changed)
    BOB.delete(f"/v1/groups/{group}/members/{BOB.id}").expect(204)
    equal(say(BOB, group, "one", headers=key, client_id="c").expect(201).json, changed)
    equal(say(BOB, group, "one", headers={"Idempotency-Key": "2"}, client_id="c").expect(200).json, changed)
    say(BOB, group, "one", client_id="c").problem(404)


@test("mentions-are-of-members-and-at-most-fifty")
def _():
    group = make(ADA, BOB, EVE)
    say(ADA, group, "x", mentions=[TOM.id]).problem(422)
    say(ADA, group, "x", mentions=[str(n) for n in range(1, 52)]).problem(422)
    say(ADA, group, "x", mentions="bob").problem(422)
    equal(page(ADA, group)["items"][-1]["kind"], "join")
    say(ADA, group, "x", mentions=[BOB.id, BOB.id, ADA.id]).expect(201)
    of = lambda c: [(i["unread"], i["mentions"]) for i in c.get("/v1/inbox").json["items"]  # noqa: E731
                    if i["group"]["id"] == group]
    equal((of(BOB), of(EVE), of(ADA)), ([(1, 1)], [(1, 0)], [(0, 0)]))


if __name__ == "__main__":
    main()
