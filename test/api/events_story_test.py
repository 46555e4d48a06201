#!/usr/bin/env python3
"""One event's whole story: GET /v1/admin/events/{id} and `fantail event`, from its commit to its end, whatever that is."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, program, test, wait_until  # noqa: E402
from support.store import new_id, store  # noqa: E402

SERVER = Server(rate_auth=0, celebrity_threshold=2, celebrity_adaptive=False)
ADA, BOB, EVE = SERVER.sign_up("ada"), SERVER.sign_up("bob"), SERVER.sign_up("eve")
ADA.put(f"/v1/accounts/{BOB.id}/follow").expect(200)
SERVER.drain()


def events(server=SERVER, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return server.operator.get("/v1/events?limit=1000&" + text).expect(200).json["items"]


def event_of(post, server=SERVER, kind="post.created"):
    """Its id, as soon as other systems are told of it."""
    return wait_until(lambda: next((e["id"] for e in events(server, types=kind) if e["data"]["object"] == post), None), 10,
                      f"{kind} of {post}")


def story(event, server=SERVER):
    return server.operator.get(f"/v1/admin/events/{event}").expect(200).json


def await_state(event, state, server=SERVER):
    return wait_until(lambda: (lambda s: s if s["state"] == state else None)(story(event, server)), 20,
                      f"event {event} to be {state}: {story(event, server)}")


def lane(name, stopped, server=SERVER):
    return server.operator.put("/v1/admin/lanes", {"lane": name, "stopped": stopped}).expect(200).json


def said(*words, server=SERVER, code=0):
    done = subprocess.run([program(), *words, "--data", server.data], capture_output=True, text=True, timeout=60)
    equal(done.returncode, code, done.stderr)
    return done.stdout + done.stderr


@test("story-of-a-walk-in-two-parts-counts-each-member-once")
def _():
    with Server(rate_auth=0) as server:
        bob = server.sign_up("bob")
        lines = [{"type": "account", "username": f"reader{n}"} for n in range(1200)]
        lines += [{"type": "follow", "follower": f"reader{n}", "followee": "bob"} for n in range(1200)]
        server.operator.post("/v1/admin/import", raw="\n".join(map(json.dumps, lines)).encode()).expect(200)
        server.drain()  # a backfill that is late would bring the post, too
        bob.post("/v1/posts", {"caption": "to many"}).expect(201)
        event, = wait_until(lambda: server.operator.get("/v1/events?types=post.created").json["items"], 10, "the event")
        told = wait_until(lambda: (lambda s: s if s["state"] == "done" else None)(
            server.operator.get(f"/v1/admin/events/{event['id']}").expect(200).json), 20, "its end")
        equal((told["batches"]["members"], told["batches"]["delivered"]), (1200, 1200))


@test("story-of-a-post-that-reached-its-followers")
def _():
    post = BOB.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]
    event = event_of(post)
    told = await_state(event, "done")
    equal((told["id"], told["type"], told["version"]), (event, "post.created", 1))
    equal((told["actor"], told["object"], told["value"]), (BOB.id, post, 0))
    for field in ("time", "committed_at", "published_at", "done_at"):
        check(shapes.is_time(told[field]), f"{field} is {told[field]}")
    check(told["committed_at"] <= told["published_at"] <= told["done_at"], str(told))
    equal([(r["consumer"], r["wanted"]) for r in told["rules"]], [("timelines", True), ("live", False), ("pulls", False)])
    equal(told["rules"][0]["why_not"], None)
    batches = told["batches"]
    equal((batches["count"], batches["members"], batches["delivered"], batches["complete"]), (1, 1, 1, True))
    kinds = [r["kind"] for r in told["trace"] if r["kind"] != "unwanted"]
    equal((kinds[0], kinds[-1]), ("published", "done"))
    equal((told["deliveries"], told["in_flight"], told["unread"]), ([], [], None))
    equal([(d["kind"], d["consumer"]) for d in told["decisions"]], [("unwanted", "live")])
    text = said("event", event)
    for words in (f"event {event}: post.created, done", f"by {BOB.id}, about {post}", "for timelines, lane small",
                  "delivered to 1 account in 1 batch"):
        check(words in text, f"{words!r} is not in {text}")


@test("story-names-the-rule-that-does-not-want-it-and-why")
def _():
    star = SERVER.sign_up("star")
    for fan in (ADA, BOB, EVE):
        fan.put(f"/v1/accounts/{star.id}/follow").expect(200)
    wait_until(lambda: [e for e in events(types="author.became_celebrity") if e["data"]["actor"] == star.id], 20,
               "the author to become a celebrity")
    post = star.post("/v1/posts", {"caption": "pulled"}).expect(201).json["id"]
    told = await_state(event_of(post), "done")
    equal([(r["consumer"], r["wanted"]) for r in told["rules"]], [("timelines", False), ("live", True), ("pulls", True)])
    check(len(told["rules"][0]["why_not"]) > 5, str(told["rules"]))
    equal(told["batches"]["count"], 2)  # the announcement to open streams, and whether followers know of the pull list
    check("not for timelines: " + told["rules"][0]["why_not"] in said("event", told["id"]))


@test("story-of-one-in-flight-says-where-it-is-and-goes-on")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        server.drain()
        equal(lane("small", True, server)["breaker"]["state"], "by hand")
        post = bob.post("/v1/posts", {"caption": "waits"}).expect(201).json["id"]
        event = event_of(post, server)
        told = wait_until(lambda: (lambda s: s if s["in_flight"] else None)(story(event, server)), 20, "its work item")
        check(told["state"] in ("pending", "published", "expanded"), told["state"])
        item = told["in_flight"][0]
        equal((item["consumer"], item["lane"]), ("timelines", "small"))
        equal(told["done_at"], None)
        check("in flight: timelines" in said("event", event, server=server))
        equal(lane("small", False, server)["breaker"]["state"], "running")
        await_state(event, "done", server)
        equal(shapes.ids(ada.get("/v1/feed").json["items"]), [post])


@test("story-of-an-id-that-is-no-event-is-404-and-says-how-long-events-are-kept")
def _():
    for other in ("1", ADA.id, "9223372036854775807"):
        detail = SERVER.operator.get(f"/v1/admin/events/{other}").problem(404)["detail"]
        check("unknown" in detail and "7 days" in detail, detail)
    SERVER.operator.get("/v1/admin/events/x").problem(404)
    check("unknown" in said("event", "1", code=1))
    check("not the id of an event" in said("event", "post", code=2))


@test("story-of-one-that-cannot-be-read-is-parked-with-its-reason")
def _():
    with Server(rate_auth=0) as server:
        server.sign_up("ada")
        server.stop()
        newest = new_id()
        with store(server, write=True) as db:
            db.execute("INSERT INTO outbox (id, type, version, payload) VALUES (?, 'post.created', 99, '{\"x\":1}')",
                       (newest,))
            db.execute("INSERT INTO outbox (id, type, version, payload) VALUES (?, 'moon.landed', 1, 'not JSON')",
                       (newest + 1,))
        server.start()
        for event, kind, reason in ((newest, "post.created", "UNKNOWN_VERSION"), (newest + 1, "moon.landed", "UNKNOWN_TYPE")):
            told = await_state(event, "parked", server)
            equal((told["type"], told["unread"], told["actor"]), (kind, reason, None))
            equal([(d["state"], d["reason"], d["consumer"]) for d in told["deliveries"]], [("parked", reason, None)])
        check("this version of the program cannot read it: UNKNOWN_TYPE" in said("event", str(newest + 1), server=server))
        groups = {(g["state"], g["reason"], g["type"]): g["count"]
                  for g in server.operator.get("/v1/admin/deliveries/groups").json["items"]}
        equal(groups, {("parked", "UNKNOWN_VERSION", "post.created"): 1, ("parked", "UNKNOWN_TYPE", "moon.landed"): 1})
        # this version cannot read them any better than before: nothing is released
        equal(server.operator.post("/v1/admin/deliveries/release", {"all": True}).expect(200).json,
              {"changed": 0, "next": None})
        health = wait_until(lambda: (lambda h: h if h["parked"] == 2 else None)(
            server.operator.get("/v1/admin/health").json), 10, "health to know")
        check(any("release" in s["says"] for s in health["stale"]), str(health["stale"]))
        # other systems get them as they are
        passed_on = events(server, cursor=str(newest - 1))
        equal([(e["type"], e["dataversion"], e["data"]) for e in passed_on],
              [("post.created", 99, {"x": 1}), ("moon.landed", 1, "not JSON")])


@test("story-of-one-that-was-removed-is-archived-while-anything-remembers-it")
def _():
    with Server(rate_auth=0, retain_events="0", snapshot_every="1s") as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        post = bob.post("/v1/posts", {"caption": "soon forgotten"}).expect(201).json["id"]
        event = event_of(post, server)
        told = await_state(event, "archived", server)
        equal((told["kept"], told["settled"]), (False, True))
        server.restart()
        detail = server.operator.get(f"/v1/admin/events/{event}").problem(404)["detail"]
        check("removed" in detail, detail)


if __name__ == "__main__":
    main()
