#!/usr/bin/env python3
"""Other systems follow our events: GET /v1/events by cursor, at least once, in order; positions of their own."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402

BATCH = "application/cloudevents-batch+json"
SERVER = Server(rate_auth=0)
OPERATOR = SERVER.operator
ADA, BOB = SERVER.sign_up("ada"), SERVER.sign_up("bob")
ADA.put(f"/v1/accounts/{BOB.id}/follow").expect(200)
for number in range(8):
    BOB.post("/v1/posts", {"caption": str(number)}).expect(201)
SERVER.drain()  # events of many nodes are shown when no earlier one can come any more


def page(query="", server=SERVER, status=200):
    return server.operator.get("/v1/events?" + query).expect(status).json


def walk(limit, query="", server=SERVER):
    """All events there are at the moment, page by page."""
    items, cursor = [], "0"
    while True:
        got = page(f"limit={limit}&cursor={cursor}&{query}", server)
        items += got["items"]
        cursor = got["next_cursor"]
        if not got["more"]:
            return items


def save(name, cursor, server=SERVER, **more):
    return server.operator.put(f"/v1/events/consumers/{name}", {"cursor": cursor, **more})


def consumer(name, server=SERVER):
    return next((c for c in server.operator.get("/v1/events/consumers").json["items"] if c["name"] == name), None)


@test("events-are-cloudevents-with-an-order-and-a-source-of-their-own")
def _():
    event = page("types=follow.created")["items"][0]
    equal(event["specversion"], "1.0")
    equal((event["type"], event["datacontenttype"]), ("follow.created", "application/json"))
    equal(event["data"], {"actor": ADA.id, "object": BOB.id, "value": 0, "subject": BOB.id})
    equal(event["subject"], "accounts/" + ADA.id)
    check(shapes.is_id(event["id"]) and shapes.is_time(event["time"]))
    equal(event["sequence"], event["id"].zfill(20))
    check(re.fullmatch(r"urn:fantail:[0-9a-f]{16}", event["source"]), event["source"])
    check(all(re.fullmatch(r"[a-z0-9]{1,20}", name) for name in event), "attribute names are lower case and short")
    post = page("types=post.created")["items"][0]
    equal(post["subject"], "posts/" + post["data"]["object"])
    with Server(rate_auth=0) as other:
        other.sign_up("ada")
        other.drain()
        check(page("", other)["items"][0]["source"] != event["source"], "two stores have one source")


@test("events-tell-of-likes-comments-mentions-and-blocks-with-whom-they-concern")
def _():
    with Server(rate_auth=0) as server:
        ada, bob, eve = (server.sign_up(name) for name in ("ada", "bob", "eve"))
        post = bob.post("/v1/posts", {"caption": "with @ada, @EVE. not@eve @nobody.here @bob"}).expect(201).json["id"]
        for client in (ada, bob):
            client.put(f"/v1/posts/{post}/like").expect(200)
            client.put(f"/v1/posts/{post}/like").expect(200)
        ada.delete(f"/v1/posts/{post}/like").expect(200, 204)
        comment = ada.post(f"/v1/posts/{post}/comments", {"body": "@eve look"}).expect(201).json["id"]
        bob.delete(f"/v1/comments/{comment}").expect(204)
        bob.patch(f"/v1/posts/{post}", {"caption": "with @ada"}).expect(200)
        ada.put(f"/v1/accounts/{eve.id}/block").expect(200)
        ada.delete(f"/v1/accounts/{eve.id}/block").expect(200, 204)
        server.drain()
        told = [(e["type"], e["subject"], e["data"]) for e in walk(100, server=server) if not e["type"].startswith("account.")]
        about, said = "posts/" + post, "comments/" + comment

        def data(actor, thing, subject=None, **more):
            body = {"actor": actor.id, "object": thing, "value": 0}
            return body | ({"subject": subject.id} if subject else {}) | ({"data": more} if more else {})

        equal(told, [
            ("post.mentions", about, data(bob, post, to=[ada.id, eve.id])),
            ("post.created", about, data(bob, post)),
            ("like.created", about, data(ada, post, bob)),
            ("like.created", about, data(bob, post)),  # one's own concerns nobody else
            ("like.removed", about, data(ada, post, bob)),
            ("comment.mentions", said, data(ada, comment, post=post, to=[eve.id])),
            ("comment.created", said, data(ada, comment, bob, post=post)),
            ("comment.deleted", said, data(ada, comment, bob, post=post)),
            ("post.edited", about, data(bob, post)),  # names nobody who was not named before
            ("block.created", "accounts/" + ada.id, data(ada, eve.id)),
            ("block.removed", "accounts/" + ada.id, data(ada, eve.id))])


@test("events-come-in-order-without-gap-or-repetition-whatever-the-page")
def _():
    whole = walk(1000)
    equal(len(whole), 11)
    ids = [int(e["id"]) for e in whole]
    equal(ids, sorted(set(ids)))
    equal([e["sequence"] for e in whole], sorted(e["sequence"] for e in whole))
    for limit in (1, 3, 11):
        equal(walk(limit), whole)
    posts = [e for e in whole if e["type"] == "post.created"]
    equal(walk(3, "types=post.created"), posts)
    equal(walk(2, "types=post.created,follow.created"), [e for e in whole if e["type"] in ("post.created", "follow.created")])


@test("events-next-cursor-stays-good-at-the-end-and-new-ones-come-after-it")
def _():
    end = walk(1000)[-1]["id"]
    got = page("cursor=" + end)
    equal((got["items"], got["next_cursor"], got["more"]), ([], end, False))
    BOB.post("/v1/posts", {"caption": "later"}).expect(201)
    SERVER.drain()
    got = page("cursor=" + end)
    equal(len(got["items"]), 1)
    check(int(got["items"][0]["id"]) > int(end))
    equal(got["next_cursor"], got["items"][0]["id"])


@test("events-link-to-the-next-page-and-come-as-a-bare-batch-when-asked")
def _():
    answer = OPERATOR.get("/v1/events?limit=2").expect(200)
    cursor = answer.json["next_cursor"]
    equal(answer.headers["link"], f'</v1/events?limit=2&cursor={cursor}>; rel="next"')
    check("link" not in OPERATOR.get("/v1/events?limit=1000").headers)
    for accept in (BATCH, "text/html, " + BATCH.upper() + ";q=0.9"):
        batch = OPERATOR.get("/v1/events?limit=2", headers={"Accept": accept}).expect(200)
        equal(batch.headers["content-type"], BATCH)
        equal(batch.json, answer.json["items"])
        equal(batch.headers["fantail-next-cursor"], cursor)
        check('rel="next"' in batch.headers["link"])
    equal(OPERATOR.get("/v1/events?limit=2", headers={"Accept": "application/json, */*"}).headers["content-type"],
          "application/json")


@test("consumer-begins-where-it-saved-and-at-the-oldest-before-that")
def _():
    whole = walk(1000)
    got = page("consumer=search&limit=4")
    equal([e["id"] for e in got["items"]], [e["id"] for e in whole[:4]])
    equal((got["consumer"]["name"], got["consumer"]["position"]), ("search", None))
    equal(consumer("search"), None, "reading makes no consumer")
    third = whole[2]["id"]
    saved = save("search", third).expect(200).json
    equal((saved["name"], saved["position"], saved["behind_at_least"]), ("search", third, len(whole) - 3))
    got = page("consumer=search&limit=1")
    equal(got["items"][0]["id"], whole[3]["id"])
    equal(page("consumer=search&limit=1")["items"], got["items"], "reading moves nothing")
    equal(page(f"consumer=search&limit=1&cursor={whole[6]['id']}")["items"][0]["id"], whole[7]["id"])
    SERVER.restart(hard=True)
    equal(page("consumer=search&limit=1")["items"], got["items"], "a saved position survives a crash")


@test("consumer-goes-forward-and-back-only-when-it-says-so")
def _():
    whole = walk(1000)
    save("crm", whole[5]["id"]).expect(200)
    detail = save("crm", whole[2]["id"]).problem(409)["detail"]
    check("rewind" in detail and whole[5]["id"] in detail, detail)
    equal(consumer("crm")["position"], whole[5]["id"])
    save("crm", whole[2]["id"], rewind=True).expect(200)
    equal(consumer("crm")["position"], whole[2]["id"])
    check("beyond the newest" in save("crm", str(int(whole[-1]["id"]) + 10 ** 9)).problem(422)["detail"])
    for bad in (None, 5, "", "x", "-1", "9" * 25):
        save("crm", bad).problem(422)
    save("crm", whole[-1]["id"], rewind=3).problem(422)


@test("consumer-list-says-how-far-behind-each-is")
def _():
    whole = walk(1000)
    save("done", whole[-1]["id"]).expect(200)
    save("begins", "0", rewind=True).expect(200)
    done, begins = consumer("done"), consumer("begins")
    equal((done["behind_ms"], done["behind_at_least"], done["unread"], done["verdict"]), (0, 0, "0", "green"))
    check(begins["behind_ms"] > 0)
    equal((begins["behind_at_least"], begins["unread"]), (len(whole), str(len(whole))))
    # The ages are looked up every five seconds.
    wait_until(lambda: re.search(r'^fantail_subscriber_age_seconds\{consumer="begins"\} [0-9.]+$',
                                 SERVER.anonymous.get("/metrics").expect(200).text, re.M), 10, "the metric")
    for name in ("done", "begins"):
        OPERATOR.delete("/v1/events/consumers/" + name).expect(204)
        OPERATOR.delete("/v1/events/consumers/" + name).problem(404)
        equal(consumer(name), None)


@test("consumer-names-and-queries-that-are-wrong-are-refused-with-what-is-right")
def _():
    for name in ("CRM", "a b".replace(" ", "%20"), "x" * 41, "%C3%A9"):
        save(name, "0").problem(404)
        OPERATOR.get("/v1/events?consumer=" + name).problem(400)
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=-1", "types=nothing.happened", "types=post.liked",
                  "types=" + ",".join(["post.created"] * 17)):
        OPERATOR.get("/v1/events?" + query).problem(400)


@test("events-are-for-operators-alone")
def _():
    reader, admin = SERVER.key("admin:read"), SERVER.key("admin")
    for client, status in ((SERVER.anonymous, 401), (ADA, 403), (SERVER.key("act"), 403)):
        client.get("/v1/events").problem(status)
        client.get("/v1/events/consumers").problem(status)
        client.put("/v1/events/consumers/x", {"cursor": "0"}).problem(status)
    reader.get("/v1/events").expect(200)
    reader.put("/v1/events/consumers/x", {"cursor": "0"}).problem(403)
    admin.put("/v1/events/consumers/x", {"cursor": "0"}).expect(200)
    admin.delete("/v1/events/consumers/x").expect(204)


@test("consumer-whose-position-is-too-old-is-told-410-with-what-to-do")
def _():
    with Server(rate_auth=0, retain_events="0", snapshot_every="1s") as server:
        ada = server.sign_up("ada")
        first = wait_until(lambda: page("", server)["items"], what="the first event")[0]["id"]
        save("slow", "0", server).expect(200)
        ada.post("/v1/posts", {"caption": "soon gone"}).expect(201)

        def gone():
            answer = server.operator.get("/v1/events?consumer=slow")
            return answer if answer.status == 410 else None

        problem = wait_until(gone, 20, "old events to be removed").problem(410)
        check("position 0 is too old" in problem["detail"], problem["detail"])
        check(int(re.search(r"go on from (\d+)", problem["detail"])[1]) >= int(first), problem["detail"])
        equal(consumer("slow", server)["verdict"], "lost")
        save("slow", "0", server, rewind=True).problem(410)
        server.operator.get("/v1/events?cursor=0").problem(410)
        page("", server)  # without a position: from the oldest that is kept
        # What the message says to do: after it nothing is missed, as long as nothing more is removed.
        server.restart(retain_events="1h")
        detail = server.operator.get("/v1/events?cursor=0").problem(410)["detail"]
        save("slow", re.search(r"go on from (\d+)", detail)[1], server).expect(200)
        post = ada.post("/v1/posts", {"caption": "seen"}).expect(201).json["id"]
        server.drain()
        equal([e["data"]["object"] for e in page("consumer=slow&types=post.created", server)["items"]][-1], post)


if __name__ == "__main__":
    main()
